"""The cache of parameter tables in Redis, and the locks for making them (SHAPE-7).

The cache may be lost at any time; its tables are then made again. No FastAPI: the worker uses this too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import resources
from typing import Any, Final, TypeVar

import redis

from app.cache_losses import CacheLosses
from app.settings import Settings
from app.tables.table_encoding import FORM, StoredTable, decoded, encoded

T = TypeVar("T")

_ASKED: Final = b"asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The contents of a key: the bytes, the table if they are valid, and whether a better one was requested."""

    value: bytes | None
    table: StoredTable | None
    asked: bool

    @property
    def damaged(self) -> bytes:
        """The bytes found instead of a table; empty if the table is valid."""
        return b"" if self.value is None or self.table is not None else self.value


class TableCache:
    """Tables by key, over a Redis client of bytes.

    If it does not answer, `read`, `claim`, `put`, `release` and `ask` count that in `losses` and do as if the cache
    were empty and nobody else there; the others, and all without `losses`, raise redis.RedisError.
    """

    def __init__(self, client: redis.Redis, settings: Settings, losses: CacheLosses | None = None) -> None:
        self._redis = client
        self._losses = losses
        self._keep_ms = round(settings.keep_table_s * 1000)
        self._lock_ms = round(settings.table_lock_s * 1000)
        self._optimise_ms = round(settings.optimise_lock_s * 1000)
        folder = resources.files("app.tables") / "scripts"
        self._claim, self._put, self._release, self._begin = (
            client.register_script((folder / f"{name}.lua").read_text())
            for name in ("claim", "put", "release", "begin")
        )

    def read(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entry of each key; damaged or foreign bytes count as no table."""
        if not keys:
            return {}
        return _entries(keys, self._or([None] * (2 * len(keys)), lambda: self._redis.mget(_read_keys(keys))))

    def ages_s(self, keys: Sequence[str]) -> dict[str, float]:
        """Seconds since each table was stored; 0 for one that is not there."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(value_key(key))
        left = self._or([self._keep_ms] * len(keys), pipeline.execute)
        return {key: max(0, self._keep_ms - ms) / 1000 if ms >= 0 else 0.0 for key, ms in zip(keys, left, strict=True)}

    def claim(self, keys: Sequence[str], token: str) -> dict[str, Entry]:
        """Locks keys for the caller to make their simple tables; returns those it got, with their present entries.

        Other callers make the rest.
        """
        alone: list[list[Any]] = [[1] * len(keys), [None] * (2 * len(keys))]
        places = [*map(simple_lock, keys), *_read_keys(keys)]
        locks, values = self._or(alone, lambda: self._claim(keys=places, args=(token, self._lock_ms)))
        entries = _entries(keys, values)
        return {key: entries[key] for key, won in zip(keys, locks, strict=True) if won}

    def put(self, tables: Mapping[str, StoredTable], found: Mapping[str, Entry], token: str) -> list[str]:
        """Stores tables, each in one step, releases their simple locks and marks better ones as requested.

        Returns the keys of tables that are not final and of which nobody had requested an optimised one yet. A simple
        table never replaces an optimised one. `found` holds the earlier entries, replaced if they were damaged.
        """
        keys = [place for key in tables for place in (value_key(key), simple_lock(key), optimise_lock(key))]
        values: list[bytes] = [
            part
            for key, table in tables.items()
            for part in (encoded(key, table), found[key].damaged, b"" if table.settled else _ASKED)
        ]
        arguments: list[bytes | str | int] = [self._keep_ms, token, self._optimise_ms, *values]
        asked = self._or([0] * len(tables), lambda: self._put(keys=keys, args=arguments))
        return [key for key, is_new in zip(tables, asked, strict=True) if is_new]

    def release(self, keys: Sequence[str], token: str) -> None:
        """Releases the locks of tables that the caller does not make."""
        for key in keys:
            self._or(None, partial(self._release, keys=(simple_lock(key),), args=(token,)))

    def ask(self, keys: Sequence[str]) -> list[str]:
        """Marks optimised tables as requested; returns the keys that nobody had requested yet."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.set(optimise_lock(key), _ASKED, nx=True, px=self._optimise_ms)
        locks = self._or([False] * len(keys), pipeline.execute)
        return [key for key, won in zip(keys, locks, strict=True) if won]

    def unask(self, keys: Sequence[str]) -> None:
        """Removes the requests for tables that nobody will make, except those in work; they can be requested again."""
        for key in keys:
            self._release(keys=(optimise_lock(key),), args=(_ASKED,))

    def begin(self, key: str, token: str) -> bool:
        """Whether the caller is to make the optimised table, because nobody else works on it."""
        return bool(self._begin(keys=(optimise_lock(key),), args=(token, self._optimise_ms)))

    def end(self, key: str, token: str) -> None:
        """Records that an optimisation has ended, whatever its result."""
        self._release(keys=(optimise_lock(key),), args=(token,))

    def _or(self, otherwise: T, call: Callable[[], T]) -> T:
        """What a call returns, or the other value if the cache does not answer and that is counted."""
        try:
            return call()
        except redis.RedisError as error:
            if self._losses is None:
                raise
            self._losses.note(error)
            return otherwise


def _read_keys(keys: Sequence[str]) -> list[str]:
    return [*map(value_key, keys), *map(optimise_lock, keys)]


def _entries(keys: Sequence[str], values: Sequence[Any]) -> dict[str, Entry]:
    """The entries of the values found by `_read_keys`."""
    return {
        key: Entry(value=value, table=decoded(key, value), asked=lock is not None)
        for key, value, lock in zip(keys, values[: len(keys)], values[len(keys) :], strict=True)
    }


def value_key(key: str) -> str:
    """The key of a table."""
    return f"tessera:table:{FORM}:{key}"


def simple_lock(key: str) -> str:
    """The key of the lock for making the simple table."""
    return f"{value_key(key)}:simple"


def optimise_lock(key: str) -> str:
    """The key of the request for the optimised table, or of the lock of its maker."""
    return f"{value_key(key)}:optimise"
