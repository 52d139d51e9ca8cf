"""Caches the outcome of each content key; the cache may be lost (API-1)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import msgspec
import redis

from app.cache_losses import CacheLosses
from app.jobs.records import FINAL_STATES
from app.settings import Settings
from app.store import BlobStore, is_digest

Outcome = dict[str, str]
# The fields of an outcome that refer to blobs.
BLOBS: Final = ("plan", "report", "pictures", "executable", "outputs", "package")


class ResultCache:
    """Outcomes by content key: references to blobs, or the problem if the model or profile is at fault."""

    def __init__(
        self, client: redis.Redis, settings: Settings, store: BlobStore, losses: CacheLosses | None = None
    ) -> None:
        self._redis = client
        self._keep_ms = round(settings.keep_result_s * 1000)
        self._store = store
        self._losses = losses

    def get(self, content: str) -> Outcome | None:
        """The outcome, if it is known and its blobs still exist. What is no outcome is removed.

        Raises redis.RedisError if the cache does not answer, unless there are `losses` to count that.
        """
        key = f"tessera:result:{content}"
        try:
            outcome = _outcome(self._redis.get(key))
        except (ValueError, redis.ResponseError):  # no text, no JSON, no outcome, or no string of Redis
            with suppress(redis.RedisError):
                self._redis.delete(key)
            return None
        except redis.RedisError as error:
            if self._losses is None:
                raise
            self._losses.note(error)
            return None
        if outcome is None or not all(self._store.exists(outcome[name]) for name in BLOBS if name in outcome):
            return None
        return outcome

    def put(self, content: str, outcome: Mapping[str, str]) -> None:
        """Stores an outcome."""
        self._redis.set(f"tessera:result:{content}", msgspec.json.encode(outcome), px=self._keep_ms)


def _outcome(raw: Any) -> Outcome | None:
    """The outcome in a text of the cache; raises ValueError for any other text."""
    if raw is None:
        return None
    outcome = msgspec.json.decode(raw, type=Outcome)
    needed = "report" if outcome.get("state") == "succeeded" else "problem"
    if outcome.get("state") not in FINAL_STATES or needed not in outcome:
        raise ValueError("no outcome")
    if "problem" in outcome:
        msgspec.json.decode(outcome["problem"], type=dict[str, Any])
    if not all(is_digest(outcome[name]) for name in BLOBS if name in outcome):
        raise ValueError("no digest")
    return outcome
