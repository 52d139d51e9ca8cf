"""The task that makes an optimised table and puts it in the place of the simple one (SHAPE-7)."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog

from app.tables import making
from app.tables.buckets import BucketChoice
from app.tables.cache import TableCache
from app.tables.counts import TableCounts, made
from app.tables.fitting import fitting
from app.tables.opened import OpenPackages
from app.tables.optimising import settled
from app.tables.wanted import Wanted, WantedTables
from compiler.errors import TesseraError

log = structlog.get_logger(__name__)

# After so long no other table of a message is begun: jobs wait behind it.
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
        """Make tables of one message for a quarter of a second; those not begun by then are wanted again, first of all.

        So are they if a table fails in a way that nobody foresaw, which is raised: that one is left.
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
        """Make a table unless it is there or another makes it; what came of it, for the log.

        Killed at any point, it leaves the simple table in use and a lock that runs out.
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
            return "stale"  # of a version of the compiler that is no more
        entry = fitting(opened, {asked.key: asked}, self.cache.read([asked.key]))[asked.key]
        if entry.table is not None and entry.table.settled:
            return "known"
        simple = making.simple(opened, asked) if entry.table is None else entry.table
        best = settled(opened, asked, simple)
        self.cache.put({wanted.key: best}, {wanted.key: entry}, token)
        self.counts.add(wanted.package, {made(best.kind): 1})
        self.buckets.choose_if_due(wanted.package)
        log.info("table_optimised", key=wanted.key, kind=best.kind, duration_s=round(self.clock() - begun, 4))
        return "optimised"
