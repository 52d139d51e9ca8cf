"""The cache of parameter tables in Redis, and the locks for making them (SHAPE-7).

The cache may be lost at any time; its tables are then made again. No FastAPI: the worker uses this too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import redis

from app.settings import Settings
from app.tables.table_encoding import FORM, StoredTable, decoded, encoded

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
    """Tables by key, over a Redis client of bytes. Raises redis.RedisError if it does not answer."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._redis = client
        self._keep_ms = round(settings.keep_table_s * 1000)
        self._lock_ms = round(settings.table_lock_s * 1000)
        self._optimise_ms = round(settings.optimise_lock_s * 1000)
        folder = resources.files("app.tables") / "scripts"
        self._put, self._release, self._begin = (
            client.register_script((folder / f"{name}.lua").read_text()) for name in ("put", "release", "begin")
        )

    def read(self, keys: Sequence[str]) -> dict[str, Entry]:
        """The entry of each key; damaged or foreign bytes count as no table."""
        return _entries(keys, self._redis.mget(_read_keys(keys))) if keys else {}

    def claim(self, keys: Sequence[str], token: str) -> dict[str, Entry]:
        """Locks keys for the caller to make their simple tables; returns those it got, with their present entries.

        Other callers make the rest.
        """
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.set(simple_lock(key), token, nx=True, px=self._lock_ms)
        # after the locks: another caller may have made a table between the caller's look and its lock
        pipeline.mget(_read_keys(keys))
        *locks, values = pipeline.execute()
        entries = _entries(keys, values)
        return {key: entries[key] for key, won in zip(keys, locks, strict=True) if won}

    def put(self, tables: Mapping[str, StoredTable], found: Mapping[str, Entry], token: str) -> None:
        """Stores tables, each in one step, and releases their simple locks.

        A simple table never replaces an optimised one. `found` holds the earlier entries, which are replaced if they
        were damaged.
        """
        keys = [place for key in tables for place in (value_key(key), simple_lock(key))]
        values = [part for key, table in tables.items() for part in (encoded(key, table), found[key].damaged)]
        self._put(keys=keys, args=(self._keep_ms, token, *values))

    def release(self, keys: Sequence[str], token: str) -> None:
        """Releases the locks of tables that the caller does not make."""
        for key in keys:
            self._release(keys=(simple_lock(key),), args=(token,))

    def ask(self, keys: Sequence[str]) -> list[str]:
        """Marks optimised tables as requested; returns the keys that nobody had requested yet."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.set(optimise_lock(key), _ASKED, nx=True, px=self._optimise_ms)
        return [key for key, won in zip(keys, pipeline.execute(), strict=True) if won]

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
