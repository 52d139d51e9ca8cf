"""Buckets: a new shape is served by the optimised table of a larger shape (SHAPE-5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

# check_cover needs this module; loading it with the first request from a bucket would take 10 ms
import numpy.ma  # noqa: F401
import redis

from app.settings import Settings
from app.tables.counts import MAX_SHAPES, REQUESTS, TableCounts
from app.tables.open_packages import Asked, OpenPackage
from app.tables.table_encoding import StoredTable, restored, stored_runs
from compiler.errors import RequestError
from compiler.shapes.buckets import bucket_of, choose_buckets
from compiler.shapes.clip import clipped
from compiler.shapes.core_time import on_cores
from compiler.shapes.table import check_cover

# Buckets per dimension, and requests before the first choice; they are chosen again when requests have doubled.
_BUCKETS: Final = 8
_FIRST_CHOICE: Final = 32
# A bucket serves a shape if its table costs at most this many times the simple table.
_WORTH: Final = 1.01


class Boundaries(msgspec.Struct, frozen=True, kw_only=True):
    """The upper ends of buckets, per dimension by name, ascending, and the number of requests behind the choice."""

    requests: int
    extents: tuple[tuple[int, ...], ...]

    def bucket(self, dims: Mapping[str, int]) -> dict[str, int] | None:
        """The dimensions of the bucket's largest shape; None above all buckets."""
        names = sorted(dims)
        if any(dims[name] > extents[-1] for name, extents in zip(names, self.extents, strict=True)):
            return None
        return {name: bucket_of(dims[name], extents) for name, extents in zip(names, self.extents, strict=True)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketChoice:
    """The boundaries of packages, in the broker's Redis."""

    client: redis.Redis
    counts: TableCounts
    settings: Settings

    def of(self, package: str) -> Boundaries | None:
        """The boundaries chosen for a package."""
        value = self.client.get(_key(package))
        return msgspec.json.decode(value, type=Boundaries) if isinstance(value, str) else None

    def choose_if_due(self, package: str) -> None:
        """Chooses boundaries by the requested shapes, if requests have doubled since the last choice."""
        last = self.of(package)
        requests = self.counts.count(package, REQUESTS)
        if requests < (_FIRST_CHOICE if last is None else 2 * last.requests):
            return
        shapes = self.counts.of(package, MAX_SHAPES).shapes
        if not shapes:
            return  # shapes may be forgotten before the count of requests
        extents = []
        for along in zip(*(shape for shape, _ in shapes), strict=True):
            lengths: Counter[int] = Counter()
            for length, (_, count) in zip(along, shapes, strict=True):
                lengths[length] += count
            extents.append(choose_buckets(lengths, _BUCKETS))
        chosen = Boundaries(requests=requests, extents=tuple(extents))
        self.client.set(_key(package), msgspec.json.encode(chosen), px=round(self.settings.keep_table_s * 1000))


def bucket_tables(opened: OpenPackage, boundaries: Boundaries, dims: Mapping[str, int]) -> dict[int, Asked]:
    """The table of the bucket by routine, if it differs from the shape's own and may serve."""
    bucket = boundaries.bucket(dims)
    if bucket is None or bucket == dims:
        return {}
    try:
        opened.model.doubts.check(bucket)
    except RequestError:  # each extent was requested, but not together, and the model does not allow the combination
        return {}
    return {one.routine: one for one in opened.asked(bucket)}


def served(
    opened: OpenPackage, asked: Asked, bucket: Asked, table: StoredTable, simple_cycles: float
) -> StoredTable | None:
    """The bucket's optimised table clipped to a shape, proved to cover it; None if it costs too much."""
    library = opened.model.libraries[asked.routine]
    shape = _tiled(asked, library.routine.tiled)
    larger = _tiled(bucket, library.routine.tiled)
    if not shape or any(not 1 <= extent <= most for extent, most in zip(shape, larger, strict=True)):
        return None
    cost = opened.model.cost_at(asked.routine, asked.problem)
    found = clipped(restored(table, library.units), library.units, cost, shape)
    found = on_cores(found, library.units, cost, opened.model.cores, library.loaders)
    if found.cost_cycles > _WORTH * simple_cycles:
        return None
    check_cover(found, allows_overlap=library.units.allows_overlap)
    return StoredTable(
        kind="optimised",
        settled=True,
        simple_cycles=simple_cycles,
        optimised_cycles=found.cost_cycles,
        shape=shape,
        runs=stored_runs(found),
    )


def _tiled(asked: Asked, tiled: Sequence[int]) -> tuple[int, ...]:
    return tuple(asked.problem[axis] for axis in tiled)


def _key(package: str) -> str:
    return f"tessera:package:{package}:buckets"
