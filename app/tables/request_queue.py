"""The queue of requested optimised tables, until the relay hands them to workers (SHAPE-7).

A lost entry costs only time: the next request for the shape after the lock has run out adds it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, cast

import msgspec
import redis

OPTIMISE_TASK: Final = "tessera.optimise"
OPTIMISE_QUEUE: Final = "short"

_WANTED: Final = "tessera:tables:wanted"
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
    """A list in the broker's Redis."""

    def __init__(self, client: redis.Redis, clock: Callable[[], float] = time.monotonic) -> None:
        self._redis = client
        self._clock = clock
        self._claimed_at = clock()

    def add(self, wanted: Sequence[Wanted]) -> None:
        """Adds tables."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(_WANTED, *(msgspec.json.encode(one) for one in wanted))
        pipeline.ltrim(_WANTED, -_MAX_WANTED, -1)
        pipeline.execute()

    def put_back(self, wanted: Iterable[Wanted]) -> None:
        """Puts back tables that were handed out and not begun, first in the queue and in their order."""
        self._redis.lpush(_WANTED, *reversed([msgspec.json.encode(one) for one in wanted]))

    def claim(self) -> list[Wanted]:
        """Takes the first tables in the queue, as many as a message carries; while jobs wait, one message at a time."""
        now = self._clock()
        is_full = self._redis.llen(OPTIMISE_QUEUE) >= _MAX_MESSAGES
        if is_full and (now - self._claimed_at < LINE_UP_S or self._in_line()):
            return []
        found = cast(list[str] | None, self._redis.lpop(_WANTED, _MESSAGE_TABLES))
        self._claimed_at = now
        return [msgspec.json.decode(one, type=Wanted) for one in found or ()]

    def _in_line(self) -> bool:
        """Whether a message of tables is waiting for a worker."""
        messages = cast(list[str], self._redis.lrange(OPTIMISE_QUEUE, 0, -1))
        return any(OPTIMISE_TASK in message for message in messages)

    def waiting(self) -> int:
        """The number of tables not yet handed out."""
        return self._redis.llen(_WANTED)
