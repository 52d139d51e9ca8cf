"""Finds children that are alive and answer nothing, so that the supervisor ends and restarts them."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final

import redis

from app.jobs.identity import Identity
from app.jobs.records import WORKERS_KEY, Records, live_workers
from app.settings import Settings

# How long one question waits for its answer.
ANSWER_S: Final = 1.0
# A longer pause between two rounds means that this process was held up itself, and the children with it.
_GAP_S: Final = 10.0
# A child loads its modules or its file before it answers first, perhaps from a slow disk.
_LONGER_AT_START: Final = 4


@dataclass(slots=True)
class Silence:
    """For how long each child has answered nothing, by process id.

    One child is found at a time: all others then have their whole patience again. What keeps several silent at once
    may be the machine, and a child may be silent because another one is.
    """

    patience_s: float
    clock: Callable[[], float] = time.monotonic
    _looked_at: float | None = None
    _silent_s: dict[int, float] = field(default_factory=dict)
    _answered: set[int] = field(default_factory=set)

    def look(self, answers: Mapping[int, bool | None]) -> int | None:
        """Takes note of who answered (None: could not be asked); returns a process that was silent for too long."""
        now = self.clock()
        passed_s = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        if passed_s > _GAP_S:
            self._silent_s.clear()
            return None
        self._answered = {pid for pid in answers if pid in self._answered or answers[pid]}
        silent = {pid: self._silent_s.get(pid, 0.0) for pid, answered in answers.items() if not answered}
        self._silent_s = {pid: sum_s + (0.0 if answers[pid] is None else passed_s) for pid, sum_s in silent.items()}
        for pid, silent_s in self._silent_s.items():
            if silent_s >= self.patience_s * (1 if pid in self._answered else _LONGER_AT_START):
                self._silent_s.clear()
                return pid
        return None


def redis_answers(client: redis.Redis) -> bool:
    """Whether a Redis says anything, be it that it still loads its file or has no memory."""
    try:
        client.ping()
    except (redis.TimeoutError, OSError):
        return False
    except redis.ConnectionError as error:
        return isinstance(error, redis.BusyLoadingError)
    except redis.RedisError:
        return True
    return True


def worker_answers(broker: redis.Redis, pid: int) -> bool | None:
    """Whether the worker's main process gave its sign of life; None while the broker cannot say."""
    try:
        alive = live_workers(broker)
    except (redis.RedisError, OSError):
        return None
    return any(is_worker(name, pid) for name in alive)


def is_worker(name: str, pid: int) -> bool:
    """Whether this is the name of a worker (worker/app.py) whose main process has this id."""
    return name.split("-")[-2:-1] == [str(pid)]


def note_stop(broker: redis.Redis, settings: Settings, identity: Identity, pid: int) -> None:
    """Records that a worker was told to stop, as it would itself if it could: what it was doing is no attempt."""
    with suppress(redis.RedisError, OSError):
        for name in map(str, broker.zrange(WORKERS_KEY, 0, -1)):
            if is_worker(name, pid):
                Records(broker, settings, identity).goodbye(name)


def api_answers(address: tuple[str, int]) -> bool:
    """Whether the API answers anything at all."""
    with closing(http.client.HTTPConnection(*address, timeout=ANSWER_S)) as connection:
        try:
            connection.request("GET", "/livez")
            connection.getresponse()
        except (http.client.HTTPException, OSError):
            return False
    return True
