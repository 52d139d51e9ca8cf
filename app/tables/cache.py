"""The cache of parameter tables in Redis, and the locks under which they are made (SHAPE-7).

Everything here may be lost at any time: it costs the time to make it again. No FastAPI: the worker uses this too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import redis

from app.settings import Settings
from app.tables.stored import FORM, StoredTable, decoded, encoded

_ASKED: Final = b"asked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What was found under a key: the bytes, the table if they are one, and whether a better one is on its way."""

    value: bytes | None
    table: StoredTable | None
    asked: bool

    @property
    def damaged(self) -> bytes:
        """What is there in the place of a table, nothing if that is one."""
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
        """What is there for each key; a damaged or foreign value is no table."""
        return _entries(keys, self._redis.mget(_read_keys(keys))) if keys else {}

    def claim(self, keys: Sequence[str], token: str) -> dict[str, Entry]:
        """Those of the keys whose simple tables the caller is to make, and what is there now; others make the rest."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.set(simple_lock(key), token, nx=True, px=self._lock_ms)
        # after the locks: another may have made a table between the caller's look and its lock
        pipeline.mget(_read_keys(keys))
        *locks, values = pipeline.execute()
        entries = _entries(keys, values)
        return {key: entries[key] for key, won in zip(keys, locks, strict=True) if won}

    def put(self, tables: Mapping[str, StoredTable], found: Mapping[str, Entry], token: str) -> None:
        """Store tables, each in one step and no simple one over an optimised one, and give their simple locks back.

        `found`: what was in their places, which is replaced if it was no table.
        """
        keys = [place for key in tables for place in (value_key(key), simple_lock(key))]
        values = [part for key, table in tables.items() for part in (encoded(key, table), found[key].damaged)]
        self._put(keys=keys, args=(self._keep_ms, token, *values))

    def release(self, keys: Sequence[str], token: str) -> None:
        """Give back what was claimed and is not made."""
        for key in keys:
            self._release(keys=(simple_lock(key),), args=(token,))

    def ask(self, keys: Sequence[str]) -> list[str]:
        """Those of the keys whose optimised tables nobody has asked for, as far as is known; now the caller has."""
        pipeline = self._redis.pipeline(transaction=False)
        for key in keys:
            pipeline.set(optimise_lock(key), _ASKED, nx=True, px=self._optimise_ms)
        return [key for key, won in zip(keys, pipeline.execute(), strict=True) if won]

    def unask(self, keys: Sequence[str]) -> None:
        """Nobody makes these any more: whoever asks for one again wants it anew, but for those that somebody began."""
        for key in keys:
            self._release(keys=(optimise_lock(key),), args=(_ASKED,))

    def begin(self, key: str, token: str) -> bool:
        """Whether the caller is to make the optimised table: nobody else works on it."""
        return bool(self._begin(keys=(optimise_lock(key),), args=(token, self._optimise_ms)))

    def end(self, key: str, token: str) -> None:
        """An optimisation has ended, however it did."""
        self._release(keys=(optimise_lock(key),), args=(token,))


def _read_keys(keys: Sequence[str]) -> list[str]:
    return [*map(value_key, keys), *map(optimise_lock, keys)]


def _entries(keys: Sequence[str], values: Sequence[Any]) -> dict[str, Entry]:
    """What `_read_keys` found."""
    return {
        key: Entry(value=value, table=decoded(key, value), asked=lock is not None)
        for key, value, lock in zip(keys, values[: len(keys)], values[len(keys) :], strict=True)
    }


def value_key(key: str) -> str:
    """Where a table is kept."""
    return f"tessera:table:{FORM}:{key}"


def simple_lock(key: str) -> str:
    """Who makes the simple table."""
    return f"{value_key(key)}:simple"


def optimise_lock(key: str) -> str:
    """Whether the optimised table was asked for, or who makes it."""
    return f"{value_key(key)}:optimise"
