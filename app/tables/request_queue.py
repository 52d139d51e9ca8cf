"""The queue of requested optimised tables, until the relay hands them to workers (SHAPE-7).

A lost entry costs only time: the next request for the shape after the lock has run out adds it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, cast

import msgspec
import redis

from app.jobs.identity import Identity, queue_name

OPTIMISE_TASK: Final = "tessera.optimise"

_WANTED: Final = "tessera:tables:wanted"
# What a version that is gone has left is forgotten after this time: packages of other versions are not read.
_KEPT_S: Final = 3600
# Above this length, the oldest entries are dropped.
_MAX_WANTED: Final = 20_000
# Tables per message: one message per table would take the API longer than answering with simple ones.
_MESSAGE_TABLES: Final = 16
# Tables wait while this many messages wait, since jobs go first. After the time limit, one message of tables joins the
# queue.
_MAX_MESSAGES: Final = 2
LINE_UP_S: Final = 2.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The key of a table, and the data to make it: the package by its digest, the routine, the problem."""

    key: str
    package: str
    routine: int
    problem: tuple[int, ...]


class WantedTables:
    """A list in the broker's Redis for workers of one identity, as tables are of a version and packages of a store."""

    def __init__(self, client: redis.Redis, identity: Identity, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = client
        self.queue: Final = queue_name("short", identity)
        """The queue by which workers get the tables."""
        self._wanted = f"{_WANTED}:{identity.label}"
        self._clock = clock
        self._claimed_at = clock()

    def add(self, wanted: Iterable[Wanted]) -> None:
        """Adds tables; a Redis that refuses to write, because its memory or disk is full, drops them."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(self._wanted, *(msgspec.json.encode(one) for one in wanted))
        pipeline.ltrim(self._wanted, -_MAX_WANTED, -1)
        pipeline.expire(self._wanted, _KEPT_S)
        with suppress(redis.ResponseError):
            pipeline.execute()

    def put_back(self, wanted: Iterable[Wanted]) -> None:
        """Puts back tables that were handed out and not begun, first in the queue and in their order."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.lpush(self._wanted, *reversed([msgspec.json.encode(one) for one in wanted]))
        pipeline.expire(self._wanted, _KEPT_S)
        pipeline.execute()

    def claim(self) -> list[Wanted]:
        """Takes the first tables in the queue, as many as a message carries; while jobs wait, one message at a time."""
        now = self._clock()
        is_full = self._redis.llen(self.queue) >= _MAX_MESSAGES
        if is_full and (now - self._claimed_at < LINE_UP_S or self._in_line()):
            return []
        found = cast(list[str] | None, self._redis.lpop(self._wanted, _MESSAGE_TABLES))
        self._claimed_at = now
        return [msgspec.json.decode(one, type=Wanted) for one in found or ()]

    def _in_line(self) -> bool:
        """Whether a message of tables is waiting for a worker."""
        messages = cast(list[str], self._redis.lrange(self.queue, 0, -1))
        return any(OPTIMISE_TASK in message for message in messages)

    def waiting(self) -> int:
        """The number of tables not yet handed out."""
        return self._redis.llen(self._wanted)
