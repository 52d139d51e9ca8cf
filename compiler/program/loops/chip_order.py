"""The order of commands that touch the same bytes, iteration by iteration (PROG-4, PROG-6).

The judge (`chip_judge.py`) judges one iteration at a time. Where its state recurs (`proof_recurrence.py`) and the loop
goes on alike (`periods.py`), iterations are jumped over.
"""

from __future__ import annotations

import numpy as np

from compiler.program.fields import ProgramLimits
from compiler.program.loops.chip_judge import LATEST, ChipJudge
from compiler.program.loops.dram_order import Writes
from compiler.program.loops.history import LONG_AGO
from compiler.program.loops.instances import Instances
from compiler.program.loops.judge import JUDGED, LATE_READ
from compiler.program.loops.judge_tables import JudgeTables
from compiler.program.loops.periods import PERIODS, look_ahead
from compiler.program.loops.positions import Positions
from compiler.program.loops.proof_recurrence import State
from compiler.program.loops.statement_accesses import StatementAccesses
from compiler.program.loops.windows import NONE
from compiler.program.strided import Ints


class Order:
    """The judge's way through nests and iterations: `iterations`, and how many of them were `jumped` over."""

    def __init__(
        self,
        instances: Instances,
        positions: Positions,
        found: StatementAccesses,
        writes: Writes,
        limits: ProgramLimits,
    ) -> None:
        self._instances, self._positions, self._limits = instances, positions, limits
        self._tables = JudgeTables(instances, positions, found, writes, limits)
        self._judge = ChipJudge(instances.program, positions, found, self._tables, limits)
        self.iterations = self.jumped = 0

    @property
    def judged(self) -> int:
        """How many commands were judged, in the iterations that were not jumped over."""
        return int(self._judge.report[JUDGED])

    def run(self) -> None:
        """Judge all nests. Raises ProgramError."""
        nests = self._instances.nests
        for nest in np.unique(nests).tolist():
            begin, stop = np.searchsorted(nests, [nest, nest + 1]).tolist()
            self._run_nest(nest, begin, stop)

    def _run_nest(self, nest: int, begin: int, stop: int) -> None:
        instances, judge, tables = self._instances, self._judge, self._tables
        of = slice(begin, stop)
        iteration, last = int(instances.firsts[of].min()), int(instances.lasts[of].max())
        self.iterations += last + 1 - iteration
        loop = _Loop(
            judge,
            tables,
            self._positions,
            self._limits,
            nest=nest,
            begin=begin,
            stop=stop,
            first=iteration,
            last=last,
        )
        judge.capture(loop.targets_before(iteration))
        commands = np.bincount(tables.queues[of], minlength=tables.engines)
        accesses = int(tables.most_accesses[of].sum())
        judge.forget(np.full(tables.engines, LATEST), loop.waiting)
        judge.report[LATE_READ] = LONG_AGO
        while iteration <= last:
            iteration = loop.jump(iteration)
            if iteration > last:
                break
            judge.make_room(commands, accesses)
            judge.judge_iteration(iteration, begin, stop)
            judge.capture(loop.targets_before(iteration + 1))
            iteration += 1
            if iteration <= last:
                judge.forget(iteration - loop.reach, loop.waiting)
        judge.capture(loop.targets_before(LATEST))
        self.jumped += loop.jumped


class _Loop:
    """The iterations first to last of one nest, the statements begin to stop, and where they may be jumped over.

    By engine `reach`: how far back it is waited for, and `waiting`: for whom it waits. `jumped`: iterations so far.
    """

    def __init__(
        self,
        judge: ChipJudge,
        tables: JudgeTables,
        positions: Positions,
        limits: ProgramLimits,
        *,
        nest: int,
        begin: int,
        stop: int,
        first: int,
        last: int,
    ) -> None:
        self._judge, self._tables, self._positions, self._limits = judge, tables, positions, limits
        self._begin, self._stop, self._last = begin, stop, last
        self.jumped = 0
        of, engines, queues = slice(begin, stop), tables.engines, tables.queues
        self.reach = np.zeros(engines, dtype=np.int64)
        offsets, waits, distances, of_wait = tables.waits
        its = slice(int(offsets[begin]), int(offsets[stop]))
        moving = of_wait[its] == NONE
        np.maximum.at(self.reach, queues[waits[its][moving]], distances[its][moving])
        owners = np.repeat(np.arange(begin, stop), np.diff(offsets[begin : stop + 1]))
        self.waiting = np.zeros((engines, engines), dtype=np.bool_)
        self.waiting[queues[owners], queues[waits[its]]] = True
        np.fill_diagonal(self.waiting, val=False)
        named = queues[waits[its]][moving]
        self._distances = [np.unique(distances[its][moving][named == queue]) for queue in range(engines)]
        self.reach = np.minimum(self.reach, last + 1 - first)
        targets = tables.targets
        mine = np.flatnonzero(targets.nests[: targets.kept] == nest)
        self._pending = mine[np.argsort(targets.iterations[mine], kind="stable")]
        self._next = 0
        self._periods = np.array(self._candidates(of, last + 1 - first), dtype=np.int64)
        self._untils = np.full(len(self._periods), first)
        self._states: dict[int, State] = {}
        # by iteration the earlier ones whose states may come again then, with their periods and how far these reach
        self._due: dict[int, list[tuple[int, int, int]]] = {}

    def _candidates(self, of: slice, iterations: int) -> list[int]:
        """Numbers of iterations after which a state may come again."""
        positions = self._positions
        strides = {1, *positions.leaps[of][positions.tile_counts[of] > 1].tolist()}
        return sorted({times * stride for stride in strides for times in PERIODS if 3 * times * stride <= iterations})

    def targets_before(self, iteration: int) -> Ints:
        """Positions before an iteration that have not been asked for yet."""
        iterations = self._tables.targets.iterations
        begin = self._next
        while self._next < len(self._pending) and iterations[self._pending[self._next]] < iteration:
            self._next += 1
        return self._pending[begin : self._next]

    def jump(self, iteration: int) -> int:
        """The iteration to be judged next, behind those that need no look."""
        if not len(self._periods):
            return iteration
        judge, tables, states = self._judge, self._tables, self._states
        look_ahead(
            iteration,
            self._periods,
            self._untils,
            self._begin,
            self._stop,
            tables.groups,
            self._positions.runs,
            tables.group_origins,
            tables.group_columns,
            tables.turns,
        )
        begins = np.flatnonzero(self._untils - iteration >= self._periods).tolist()
        due = self._due.pop(iteration, [])
        if not begins and not due:
            return iteration
        now = judge.state()
        for begin, period, until in due:
            # tiles that read what may not be written yet have to be looked at one by one
            if begin not in states or judge.report[LATE_READ] >= begin:
                continue
            end = min(until + period, self._last + 1)
            if self._next < len(self._pending):
                end = min(end, int(tables.targets.iterations[self._pending[self._next]]))
            if end < iteration + period:
                continue
            mark_queues = judge.mark_queues()
            if not states[begin].recurs_in(now, period, mark_queues):
                continue
            times = (min(end, states[begin].stands_until(now, begin, self._distances)) - iteration) // period
            if times > 0:
                judge.go_on(states[begin].jumped(now, period, times, mark_queues))
                self.jumped += times * period
                states.clear()
                self._due.clear()
                return iteration + times * period
        if begins:
            states[iteration] = now
        for row in begins:
            period = int(self._periods[row])
            self._due.setdefault(iteration + period, []).append((iteration, period, int(self._untils[row])))
        # none is asked for after the longest period
        while states and (
            min(states) + self._periods[-1] <= iteration or len(states) * now.size_bytes > self._limits.shadow_bytes
        ):
            del states[min(states)]
        return iteration
