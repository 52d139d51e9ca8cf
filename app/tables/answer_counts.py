"""Counts answers for shapes, and sends the counts in batches: no answer waits for its own to be sent (SHAPE-7)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.tables.counts import TableCounts
from app.tables.optimising_delay import Pace


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What an answer counts as."""

    owner: str
    package: str
    extents: tuple[int, ...]
    counts: tuple[tuple[str, int], ...]


class AnswerCounts:
    """Answers since the counts were sent last. Any thread may count and send."""

    def __init__(self, counts: TableCounts, pace: Pace) -> None:
        self._counts = counts
        self._pace = pace
        self._lock = threading.Lock()
        self._uncounted: Counter[_Answer] = Counter()

    def add(self, package: str, counts: Mapping[str, int], extents: tuple[int, ...], *, owner: str) -> None:
        """Counts an answer for a shape, given by the package's dimensions by name."""
        answer = _Answer(owner=owner, package=package, extents=extents, counts=tuple(sorted(counts.items())))
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
        """Sends the counts; raises redis.RedisError, and then the next call sends them."""
        with self._lock:
            uncounted, self._uncounted = self._uncounted, Counter()
        try:
            while uncounted:
                answer, times = uncounted.popitem()
                try:
                    self._counts.add(
                        answer.package, _times(answer, times), answer.extents, times=times, owner=answer.owner
                    )
                except BaseException:
                    uncounted[answer] = times
                    raise
        finally:
            with self._lock:
                self._uncounted.update(uncounted)


def _times(answer: _Answer, times: int) -> Mapping[str, int]:
    return {name: times * count for name, count in answer.counts}
