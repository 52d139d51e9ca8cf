"""Answers for shapes whose tables are final: made once per process, counted in batches (SHAPE-7)."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from app.known import Known
from app.tables.counts import REQUESTS, TableCounts, answered
from app.tables.document import TablesDocument, tables_json

# Of an answer beside its bytes, roughly.
_ENTRY_BYTES: Final = 1000
_Counted: TypeAlias = tuple[str, tuple[int, ...], tuple[tuple[str, int], ...]]
_ByOwner: TypeAlias = tuple[str, _Counted]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablesAnswer:
    """tables.json with its digest, and what a request for it counts as."""

    body: bytes
    digest: str
    counted: _Counted


def tables_answer(document: TablesDocument) -> TablesAnswer:
    """The answer that a document is."""
    body = tables_json(document)
    counts: dict[str, int] = {REQUESTS: 1}
    for routine in document.routines:
        name = answered(routine.cache, routine.kind)
        counts[name] = counts.get(name, 0) + 1
    extents = tuple(document.dims.values())  # by name
    counted = document.package, extents, tuple(sorted(counts.items()))
    return TablesAnswer(body=body, digest=hashlib.sha256(body).hexdigest(), counted=counted)


class KnownTables:
    """Final answers by package and shapes, at most `limit_bytes` together.

    The event loop asks; any thread may send the counts.
    """

    def __init__(self, counts: TableCounts, limit_bytes: int) -> None:
        self._counts = counts
        self._known = Known[TablesAnswer](limit_bytes)
        self._lock = threading.Lock()
        self._uncounted: dict[_ByOwner, int] = {}

    def get(self, package: str, shapes: Sequence[str], owner: str) -> TablesAnswer | None:
        """The answer for shapes, counted as one request of the owner, if it is known."""
        found = self._known.get((package, tuple(shapes)))
        if found is not None:
            with self._lock:
                key = owner, found.counted
                self._uncounted[key] = self._uncounted.get(key, 0) + 1
        return found

    def put(self, package: str, shapes: Sequence[str], answer: TablesAnswer) -> None:
        """Remembers an answer that will not change."""
        size_bytes = len(answer.body) + sum(map(len, shapes)) + _ENTRY_BYTES
        self._known.put((package, tuple(shapes)), answer, size_bytes)

    def send_counts(self) -> None:
        """Counts what was answered since the last call; raises redis.RedisError, and then the next call counts it."""
        with self._lock:
            uncounted, self._uncounted = self._uncounted, {}
        try:
            while uncounted:
                (owner, counted), times = uncounted.popitem()
                package, extents, counts = counted
                try:
                    self._counts.add(package, _times(counts, times), extents, times=times, owner=owner)
                except BaseException:
                    uncounted[owner, counted] = times
                    raise
        finally:
            with self._lock:
                for key, times in uncounted.items():
                    self._uncounted[key] = self._uncounted.get(key, 0) + times


def _times(counts: tuple[tuple[str, int], ...], times: int) -> Mapping[str, int]:
    return {name: times * count for name, count in counts}
