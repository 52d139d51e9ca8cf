"""Counts requests for tables and shapes, per package and in all (SHAPE-5, API-8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final, cast

import redis

from app.settings import Settings

# The number of requests, regardless of their number of tables.
REQUESTS: Final = "requests"
_TOTALS: Final = "tessera:table-counts"
# The limit on counted shapes per package; the rarest are dropped for new ones.
MAX_SHAPES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counts by name (see `answered` and `made`), and the most requested shapes as extents with their counts."""

    counts: Mapping[str, int]
    shapes: tuple[tuple[tuple[int, ...], int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedAnswer:
    """What an answer counts as: names and numbers, and the shape if one was requested."""

    owner: str
    package: str
    extents: tuple[int, ...] | None
    counts: tuple[tuple[str, int], ...]


def answered(cache: str, kind: str) -> str:
    """The name of the count of tables answered in this way."""
    return f"answered:{cache}:{kind}"


def made(kind: str) -> str:
    """The name of the count of tables computed."""
    return f"made:{kind}"


class TableCounts:
    """The counts, in the broker's Redis, so that a flush of the cache keeps them."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._redis = client
        self._keep_ms = round(settings.keep_table_s * 1000)
        self._count = client.register_script((resources.files("app.tables") / "scripts" / "count.lua").read_text())

    def add(
        self, package: str, counts: Mapping[str, int], extents: Sequence[int] | None = None, *, owner: str = ""
    ) -> None:
        """Counts for a package, and for the owner who asked.

        `extents` gives the values of the package's dimensions by name, if a shape was requested. A Redis that refuses
        to write counts nothing.
        """
        shape = None if extents is None else tuple(extents)
        self.add_all({CountedAnswer(owner=owner, package=package, extents=shape, counts=tuple(counts.items())): 1})

    def add_all(self, answers: Mapping[CountedAnswer, int]) -> None:
        """Counts answers, each so many times, in one exchange; errors as `add`."""
        pipeline = self._redis.pipeline(transaction=False)
        for answer, times in answers.items():
            shape = "" if answer.extents is None else ",".join(map(str, answer.extents))
            pairs = [part for name, count in answer.counts for part in (name, times * count)]
            fixed = (answer.package, answer.owner, shape, MAX_SHAPES, self._keep_ms, times)
            self._count(keys=(), args=(*fixed, *pairs), client=pipeline)
        with suppress(redis.ResponseError):  # its memory or disk is full, which is no reason to answer nothing
            pipeline.execute()

    def of(self, package: str, shapes: int, *, owner: str = "") -> Figures:
        """The counts of a package, of all requests or an owner's, with at most that many shapes."""
        counted = f"{package}:{owner}" if owner else package
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hgetall(f"tessera:package:{counted}:counts")
        pipeline.zrevrange(f"tessera:package:{counted}:shapes", 0, shapes - 1, withscores=True)
        counts, found = pipeline.execute()
        return Figures(
            counts={name: int(count) for name, count in counts.items()},
            shapes=tuple((tuple(int(extent) for extent in text.split(",")), int(count)) for text, count in found),
        )

    def ask(self, pipeline: Any, package: str, extents: Sequence[int]) -> None:
        """Asks for what `least_count` needs of a shape."""
        pipeline.zscore(f"tessera:package:{package}:shapes", ",".join(map(str, extents)))
        pipeline.hget(f"tessera:package:{package}:counts", REQUESTS)

    @staticmethod
    def least_count(shape: float | None, requests: str | None) -> int:
        """At least how often a shape was asked for: a count is too high by the place that the shape took over."""
        return int((shape or 0) - int(requests or 0) // MAX_SHAPES)

    def count(self, package: str, name: str) -> int:
        """One of the counts of a package."""
        return int(str(self._redis.hget(f"tessera:package:{package}:counts", name) or 0))

    def totals(self) -> dict[str, int]:
        """The counts of all packages together."""
        counts = cast(dict[str, str], self._redis.hgetall(_TOTALS))
        return {name: int(count) for name, count in counts.items()}
