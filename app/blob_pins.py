"""Keeps blobs that are about to be written or referred to from being removed meanwhile."""

from __future__ import annotations

import time
from collections import OrderedDict
from threading import Lock
from typing import Final

from app.errors import StoreUnavailableError
from app.jobs.records import Records

# The longest time from the last byte of an upload, over its way into a bucket, to its record, which ends the pin.
MODEL_PIN_S: Final = 600.0
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
        """Pins a blob; raises redis.RedisError, and StoreUnavailableError if its removal takes too long."""
        give_up_at = time.monotonic() + _REMOVAL_S
        while not self._records.pin_blob(digest, self._pin_s):
            if time.monotonic() > give_up_at:
                raise StoreUnavailableError(
                    "a blob is being removed", stage="store", actual=digest, hint="Try again in a few seconds"
                )
            time.sleep(_POLL_S)
        return True

    def pin_once(self, digest: str) -> bool:
        """Pins a blob unless this process did so less than half of the time ago; returns whether it did now.

        Raises as `pin`.
        """
        now = time.monotonic()
        with self._lock:
            if now < self._known.get(digest, 0.0):
                return False
        self.pin(digest)
        with self._lock:
            self._known[digest] = now + self._pin_s / 2
            self._known.move_to_end(digest)
            while len(self._known) > _KNOWN_MAX:
                self._known.popitem(last=False)
        return True
