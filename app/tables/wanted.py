"""Optimised tables that somebody waits for, until the relay hands them to workers (SHAPE-7).

Losing one costs nothing but time: whoever asks for the shape again once the lock has run out wants it anew.
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
# Beyond, the oldest are forgotten.
_MAX_WANTED: Final = 20_000
# Tables of one message: carried one by one they would take the API longer than to answer with simple ones.
_MESSAGE_TABLES: Final = 16
# While so many messages wait, tables do: jobs go first. After so long one message of
# tables lines up behind them.
_MAX_MESSAGES: Final = 2
LINE_UP_S: Final = 2.0


class Wanted(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """The key of a table, and what is needed to make it: the package by its digest, the routine, the problem."""

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
        """Want tables."""
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.rpush(_WANTED, *(msgspec.json.encode(one) for one in wanted))
        pipeline.ltrim(_WANTED, -_MAX_WANTED, -1)
        pipeline.execute()

    def put_back(self, wanted: Iterable[Wanted]) -> None:
        """Want tables that were handed out and not begun, before all others and in their order."""
        self._redis.lpush(_WANTED, *reversed([msgspec.json.encode(one) for one in wanted]))

    def claim(self) -> list[Wanted]:
        """The first that are wanted, as many as a message carries; while jobs wait, for one message at a time."""
        now = self._clock()
        is_full = self._redis.llen(OPTIMISE_QUEUE) >= _MAX_MESSAGES
        if is_full and (now - self._claimed_at < LINE_UP_S or self._in_line()):
            return []
        found = cast(list[str] | None, self._redis.lpop(_WANTED, _MESSAGE_TABLES))
        self._claimed_at = now
        return [msgspec.json.decode(one, type=Wanted) for one in found or ()]

    def _in_line(self) -> bool:
        """Whether a message of tables is among those that wait."""
        messages = cast(list[str], self._redis.lrange(OPTIMISE_QUEUE, 0, -1))
        return any(OPTIMISE_TASK in message for message in messages)

    def waiting(self) -> int:
        """How many are wanted and not yet handed out."""
        return self._redis.llen(_WANTED)
