"""Address tables in the cache's Redis, shared by all compilations (ADDR-5).

They may be lost at any time, and are then made again. No FastAPI: workers use this.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

import redis

from app.cache_losses import CacheLosses
from app.settings import Settings
from compiler.address.build import WindowRead
from compiler.cache_key import address_table_key

_DIGEST_BYTES: Final = 12


class AddressTableCache:
    """Encoded tables by key, over a Redis client of bytes: the port `StoredAddressTables` of the compiler.

    A Redis that does not answer counts as an empty one, and is noted in `losses`.
    """

    def __init__(self, client: redis.Redis, settings: Settings, losses: CacheLosses) -> None:
        self._redis = client
        self._losses = losses
        self._keep_ms = round(settings.keep_table_s * 1000)

    def get(self, read: WindowRead) -> bytes | None:
        """The bytes stored for a read; None where there are none, or others than were written."""
        key = address_table_key(read)
        try:
            value = self._redis.get(value_key(key))
        except redis.RedisError as error:
            self._losses.note(error)
            return None
        if not isinstance(value, bytes) or value[:_DIGEST_BYTES] != _digest(key, value[_DIGEST_BYTES:]):
            return None
        return value[_DIGEST_BYTES:]

    def put(self, tables: Mapping[WindowRead, bytes]) -> None:
        """Stores tables in one exchange; equal keys have equal tables, so that the last writer changes nothing."""
        pipeline = self._redis.pipeline(transaction=False)
        for read, table in tables.items():
            key = address_table_key(read)
            pipeline.set(value_key(key), _digest(key, table) + table, px=self._keep_ms)
        try:
            pipeline.execute()
        except redis.RedisError as error:
            self._losses.note(error)


def value_key(key: str) -> str:
    """The key of an address table."""
    return f"tessera:addresses:{key}"


def _digest(key: str, table: bytes) -> bytes:
    return hashlib.sha256(key.encode() + table).digest()[:_DIGEST_BYTES]
