"""Counts answers for shapes that are given from memory, and sends the counts in batches (SHAPE-7)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from app.tables.counts import REQUESTS, TableCounts, answered
from app.tables.document import TablesDocument
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

    def counting(self, document: TablesDocument, owner: str) -> Callable[[], None]:
        """What counts one more answer with the tables of a document, all of them found in the cache."""
        counts = Counter(answered(routine.cache, routine.kind) for routine in document.routines)
        counts[REQUESTS] = 1
        extents = tuple(extent for _, extent in sorted(document.dims.items()))
        answer = _Answer(owner=owner, package=document.package, extents=extents, counts=tuple(sorted(counts.items())))

        def count() -> None:
            self._pace.asked()
            with self._lock:
                self._uncounted[answer] += 1

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
