"""Counts when the cache's Redis was asked and did not answer; the API then does without it (API-8)."""

from __future__ import annotations

from contextlib import suppress

import redis

from app.jobs.records import COUNTS_KEY
from app.redis_urls import SkippedError


class CacheLosses:
    """The count, in the broker's Redis, from where /metrics reads it."""

    def __init__(self, broker: redis.Redis) -> None:
        self._broker = broker

    def note(self, error: redis.RedisError) -> None:
        """Counts a failure; not one of a server that was not asked because it failed a moment ago."""
        if not isinstance(error, SkippedError):
            with suppress(redis.RedisError):  # what needs the broker will say that it is gone
                self._broker.hincrby(COUNTS_KEY, "cache_failures", 1)
