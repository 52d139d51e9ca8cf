"""Counts answers for shapes, and sends the counts in batches: no answer waits for its own to be sent (SHAPE-7)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from app.tables.counts import CountedAnswer, TableCounts
from app.tables.optimising_delay import Pace


class AnswerCounts:
    """Answers since the counts were sent last. Any thread may count and send."""

    def __init__(self, counts: TableCounts, pace: Pace) -> None:
        self._counts = counts
        self._pace = pace
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._uncounted: Counter[CountedAnswer] = Counter()

    def add(self, package: str, counts: Mapping[str, int], extents: tuple[int, ...], *, owner: str) -> None:
        """Counts an answer for a shape, given by the package's dimensions by name."""
        answer = CountedAnswer(owner=owner, package=package, extents=extents, counts=tuple(sorted(counts.items())))
        with self._lock:
            self._uncounted[answer] += 1

    def counting(
        self, package: str, counts: Mapping[str, int], extents: tuple[int, ...], *, owner: str
    ) -> Callable[[], None]:
        """What counts one more answer that is given from memory."""

        def count() -> None:
            self._pace.asked()
            self.add(package, counts, extents, owner=owner)

        return count

    def send(self) -> None:
        """Sends the counts; raises redis.RedisError, and then the next call sends them, if need be again.

        Whatever was counted before the call is there after it, also what another thread is sending.
        """
        with self._sending:
            with self._lock:
                uncounted, self._uncounted = self._uncounted, Counter()
            if not uncounted:
                return
            try:
                self._counts.add_all(uncounted)
                uncounted.clear()
            finally:
                with self._lock:
                    self._uncounted.update(uncounted)
