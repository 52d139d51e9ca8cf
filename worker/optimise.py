"""The task that makes an optimised table and replaces the simple one (SHAPE-7)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.tables import simple_tables
from app.tables.buckets import BucketChoice
from app.tables.cache import TableCache
from app.tables.check_cached import fitting
from app.tables.counts import TableCounts, made
from app.tables.open_packages import OpenPackages
from app.tables.optimised_tables import settled
from app.tables.request_queue import Wanted, WantedTables
from compiler.errors import TesseraError

log = structlog.get_logger(__name__)

# After this time no other table of a message is begun: jobs wait behind it.
_TURN_S: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimiser:
    """Makes optimised tables in one process."""

    cache: TableCache
    wanted: WantedTables
    counts: TableCounts
    buckets: BucketChoice
    packages: OpenPackages
    clock: Callable[[], float] = time.monotonic

    def take_turn(self, tables: Sequence[Wanted], token: str) -> None:
        """Makes tables of one message for a quarter of a second; the others are queued again, before all others.

        If a table fails unexpectedly, that table is dropped, the others are queued again, and the error is raised.
        """
        left = deque(tables)
        ends_at = self.clock() + _TURN_S
        try:
            while left and self.clock() < ends_at:
                self.run(left.popleft(), token)
        finally:
            if left:
                self.wanted.put_back(left)

    def run(self, wanted: Wanted, token: str) -> str:
        """Makes a table unless it exists or another worker makes it; returns the result for the log.

        If killed at any point, it leaves the simple table in use and a lock that runs out.
        """
        if not self.cache.begin(wanted.key, token):
            return "duplicate"
        try:
            return self._optimise(wanted, token)
        except (TesseraError, FileNotFoundError) as error:
            log.warning("table_not_optimised", key=wanted.key, package=wanted.package, error=str(error))
            return "refused"
        finally:
            self.cache.end(wanted.key, token)

    def _optimise(self, wanted: Wanted, token: str) -> str:
        begun = self.clock()
        opened = self.packages.get(wanted.package)
        asked = opened.table_of(wanted.routine, wanted.problem)
        if asked.key != wanted.key:
            return "stale"  # made by another version of the compiler
        entry = fitting(opened, {asked.key: asked}, self.cache.read([asked.key]))[asked.key]
        if entry.table is not None and entry.table.settled:
            return "known"
        simple = simple_tables.simple(opened, asked) if entry.table is None else entry.table
        best = settled(opened, asked, simple)
        self.cache.put({wanted.key: best}, {wanted.key: entry}, token)
        self.counts.add(wanted.package, {made(best.kind): 1})
        self.buckets.choose_if_due(opened)
        log.info("table_optimised", key=wanted.key, kind=best.kind, duration_s=round(self.clock() - begun, 4))
        return "optimised"
