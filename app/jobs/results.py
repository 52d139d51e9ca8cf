"""Caches the outcome of each content key; the cache may be lost (API-1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec
import redis

from app.settings import Settings
from app.store import BlobStore

Outcome = dict[str, str]
# The fields of an outcome that refer to blobs.
BLOBS: Final = ("plan", "report", "pictures", "executable", "outputs", "package")


class ResultCache:
    """Outcomes by content key: references to blobs, or the problem if the model or profile is at fault."""

    def __init__(self, client: redis.Redis, settings: Settings, store: BlobStore) -> None:
        self._redis = client
        self._keep_ms = round(settings.keep_result_s * 1000)
        self._store = store

    def get(self, content: str) -> Outcome | None:
        """The outcome, if it is known and its blobs still exist."""
        raw = self._redis.get(f"tessera:result:{content}")
        if not isinstance(raw, str):
            return None
        outcome = msgspec.json.decode(raw, type=Outcome)
        blobs = [outcome[name] for name in BLOBS if name in outcome]
        return outcome if all(self._store.exists(digest) for digest in blobs) else None

    def put(self, content: str, outcome: Mapping[str, str]) -> None:
        """Stores an outcome."""
        self._redis.set(f"tessera:result:{content}", msgspec.json.encode(outcome), px=self._keep_ms)
