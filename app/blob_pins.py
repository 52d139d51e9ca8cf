"""Keeps blobs that are about to be written or referred to from being removed meanwhile."""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock
from typing import Final

from app.errors import StoreUnavailableError
from app.jobs.records import Records

_REMOVAL_S: Final = 10.0
_POLL_S: Final = 0.02
_KNOWN_MAX: Final = 20_000


class BlobPins:
    """Pins in the records, each for `pin_s`; a removal that has begun is waited for."""

    def __init__(self, records: Records, pin_s: float) -> None:
        self._records = records
        self._pin_s = pin_s
        self._lock = Lock()
        self._known: OrderedDict[str, float] = OrderedDict()

    def pin(self, digest: str) -> bool:
        """Pins a blob unless this process did so less than half of the time ago; returns whether it did now.

        Raises redis.RedisError, and StoreUnavailableError if a removal that is under way takes too long.
        """
        now = time.monotonic()
        with self._lock:
            if now < self._known.get(digest, 0.0):
                return False
        while not self._records.pin_blob(digest, self._pin_s):
            if time.monotonic() > now + _REMOVAL_S:
                raise StoreUnavailableError(
                    "a blob is being removed", stage="store", actual=digest, hint="Try again in a few seconds"
                )
            time.sleep(_POLL_S)
        with self._lock:
            self._known[digest] = now + self._pin_s / 2
            self._known.move_to_end(digest)
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return True
