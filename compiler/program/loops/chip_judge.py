"""The judge at work: what it has seen so far, in arrays that grow, and what it says of a fault.

`judge.py` judges an iteration, `history.py` keeps the last commands, `judge_tables.py` has what does not change.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.program.accesses import Kind
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops import judge
from compiler.program.loops.history import LONG_AGO, capture, forget
from compiler.program.loops.judge_tables import JudgeTables
from compiler.program.loops.positions import Positions
from compiler.program.loops.proof_recurrence import State
from compiler.program.loops.statement_accesses import StatementAccesses
from compiler.program.loops.windows import NONE
from compiler.program.program import Program
from compiler.program.strided import Ints

# A number of a command, or an iteration, behind all others.
LATEST: Final = 1 << 60
# How many pairs of shapes at a distance are remembered as without a common byte: as many as a cache near the core
# holds. Eight times as many took 7 % longer, where 105 million pairs of windows were asked for.
_PAIRS: Final = 1 << 14


class ChipJudge:
    """Windows, marks, clocks, and the history of engines; `report`: what the judge tells (`judge.py`)."""

    def __init__(
        self,
        program: Program,
        positions: Positions,
        found: StatementAccesses,
        tables: JudgeTables,
        limits: ProgramLimits,
    ) -> None:
        self._program, self._positions, self._found = program, positions, found
        self._tables, self._limits = tables, limits
        count, engines = len(tables.queues), tables.engines
        self.report = np.zeros(judge.REPORT_SIZE, dtype=np.int64)
        self._last_iterations = np.full(count, LONG_AGO)
        self._statements = (
            *tables.statements,
            self._last_iterations,
            np.zeros(count, dtype=np.int64),
            positions.origins,
        )
        targets = tables.targets
        self._target_columns = (
            targets.statements,
            targets.iterations,
            np.zeros(len(targets.nests), dtype=np.int64),
            np.zeros(len(targets.nests), dtype=np.int64),
        )
        self._target_clocks = np.zeros((targets.kept, engines), dtype=np.int64)
        self._captured = np.zeros(engines, dtype=np.int64)
        self._heads = np.full(len(tables.logs[0]), NONE)
        self._sizes = np.zeros(3, dtype=np.int64)
        self._seen: dict[str, Ints] = {}
        self._grow_seen(1)
        self._done, self._clocks = np.zeros(engines, dtype=np.int64), np.zeros((engines, engines), dtype=np.int64)
        self._clock_rows = np.zeros((0, engines), dtype=np.int64)
        none = np.zeros(0, dtype=np.int64)
        self._history = (np.zeros(engines, dtype=np.int64), np.zeros(engines, dtype=np.int64), none, none, none)
        self._room = np.zeros(engines, dtype=np.int64)
        most = int(tables.most_accesses.max(initial=0)) + 1
        groups, width = tables.group_columns[0].shape
        self._counters = np.zeros((groups, width), dtype=np.int64)
        self._scratch = (
            np.zeros(width + 1, dtype=np.int64),
            np.zeros(most, dtype=np.int64),
            np.zeros(groups, dtype=np.int64),
            np.full(engines, NONE),
            np.full(_PAIRS, NONE),
            np.zeros(_PAIRS, dtype=np.int64),
            tables.classes,
        )

    def make_room(self, commands: Ints, accesses: int) -> None:
        """Make room for an iteration: at most so many commands by engine, and accesses of all of them."""
        self._grow_seen(accesses)
        self._grow_history(commands)

    def judge_iteration(self, iteration: int, begin: int, stop: int) -> None:
        """Judge an iteration of the statements begin to stop, for which there is room. Raises ProgramError."""
        judge.judge_iteration(
            iteration,
            begin,
            stop,
            self._statements,
            self._positions.runs,
            self._positions.order,
            self._tables.group_origins,
            self._tables.group_columns,
            self._tables.waits,
            self._target_columns,
            self._target_clocks,
            self._tables.accesses,
            self._tables.access_columns,
            self._tables.shapes,
            self._tables.shape_columns,
            self._tables.logs,
            self._tables.words,
            self._tables.written,
            self._tables.late,
            self._tables.pieces,
            self._tables.tiles,
            self._seen_columns,
            self._history,
            self._done,
            self._clocks,
            self._clock_rows,
            self._sizes,
            self._counters,
            self._scratch,
            self.report,
        )
        if self.report[judge.FAULT]:
            raise self._error(iteration)

    def capture(self, targets: Ints) -> None:
        """Keep what has ended when the last commands up to some positions have."""
        if not len(targets):
            return
        _, _, known, numbers = self._target_columns
        capture(
            self._tables.targets.iterations[targets],
            targets,
            self._tables.queues[self._tables.targets.statements],
            self._tables.targets.statements,
            self._done,
            *self._history,
            numbers,
            known,
            self._target_clocks,
            self._clock_rows,
        )
        np.maximum(self._captured, self._target_clocks[targets].max(axis=0), out=self._captured)
        np.maximum.at(self._captured, self._tables.queues[self._tables.targets.statements[targets]], numbers[targets])

    def forget(self, begins: Ints, waiting: Any) -> None:
        """Leave out what is not waited for any more: by engine, before an iteration; `waiting`: who waits for whom."""
        rows = self._history[4]
        known = np.where(waiting, self._clocks, LATEST).min(axis=0, initial=LATEST)
        self._sizes[judge.ROWS] = forget(
            begins, known, self._done, *self._history, self._clock_rows, int(self._sizes[judge.ROWS])
        )
        offsets, sizes = self._history[:2]
        last = np.maximum(0, offsets + sizes - 1)
        if len(rows):
            self._scratch[3][:] = np.where(sizes > 0, rows[np.minimum(last, len(rows) - 1)], NONE)

    # --- what grows ---------------------------------------------------------------------------------------------------

    def _grow_seen(self, more: int) -> None:
        """Make room for so many more windows and marks."""
        for number, size_of, names, keys in (
            (judge.WINDOWS, "windows", ("window_lows", "window_shapes", "window_states"), (1, 0)),
            (
                judge.MARKS,
                "marks",
                ("mark_windows", "mark_logs", "mark_numbers", "mark_statements", "mark_next", "mark_before"),
                (0, 1),
            ),
        ):
            used, have = int(self._sizes[number]), len(self._seen.get(names[0], ()))
            if used + more <= have and self._seen:
                continue
            room = 2 * (used + more)
            for name in names:
                grown = np.zeros(room, dtype=np.int64)
                grown[:used] = self._seen.get(name, grown)[:used]
                self._seen[name] = grown
            slots = np.full(1 << (2 * room).bit_length(), NONE)
            judge.hash_rows(slots, self._seen[names[keys[0]]], self._seen[names[keys[1]]], used)
            self._seen[size_of] = slots
        seen = self._seen
        self._seen_columns = (
            seen["window_lows"],
            seen["window_shapes"],
            seen["window_states"],
            seen["windows"],
            seen["mark_windows"],
            seen["mark_logs"],
            seen["mark_numbers"],
            seen["mark_statements"],
            seen["mark_next"],
            seen["mark_before"],
            seen["marks"],
            self._heads,
        )

    def _grow_history(self, more: Ints) -> None:
        """Make room for so many more commands by engine."""
        offsets, sizes, *columns = self._history
        if (sizes + more > self._room).any():
            self._room = np.where(sizes + more > self._room, 2 * (sizes + more), self._room)
            begins = np.cumsum(self._room) - self._room
            total = int(self._room.sum())
            rows = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
            old, new = rows + np.repeat(offsets, sizes), rows + np.repeat(begins, sizes)
            grown = []
            for column in columns:
                its = np.zeros(total, dtype=np.int64)
                its[new] = column[old]
                grown.append(its)
            self._history = (begins.astype(np.int64), sizes, grown[0], grown[1], grown[2])
        used, wanted = int(self._sizes[judge.ROWS]), int(self._sizes[judge.ROWS] + more.sum())
        if wanted > len(self._clock_rows):
            if 2 * wanted * len(self._done) > 2 * self._limits.clock_entries:
                raise ProgramError(
                    "too many commands are waited for at one time",
                    violation="size",
                    actual=wanted * len(self._done),
                    limit=self._limits.clock_entries,
                )
            grown_rows = np.zeros((2 * wanted, len(self._done)), dtype=np.int64)
            grown_rows[:used] = self._clock_rows[:used]
            self._clock_rows = grown_rows

    # --- states -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What the proof knows now."""
        offsets, sizes, iterations, statements, rows = self._history
        marks = int(self._sizes[judge.MARKS])
        its = np.arange(int(sizes.sum())) + np.repeat(offsets - (np.cumsum(sizes) - sizes), sizes)
        return State(
            done=self._done.copy(),
            marks=self._seen["mark_numbers"][:marks].copy(),
            clocks=self._clocks.copy(),
            rows=self._clock_rows[: int(self._sizes[judge.ROWS])].copy(),
            sizes=sizes.copy(),
            iterations=iterations[its],
            statements=statements[its],
            row_numbers=rows[its],
            captured=self._captured.copy(),
        )

    def mark_queues(self) -> Ints:
        """By mark its engine."""
        found: Ints = self._tables.logs[0][self._seen["mark_logs"][: int(self._sizes[judge.MARKS])]]
        return found

    def go_on(self, state: State) -> None:
        """Know what a state says, which is like the present one."""
        offsets, sizes, iterations, _, _ = self._history
        its = np.arange(int(sizes.sum())) + np.repeat(offsets - (np.cumsum(sizes) - sizes), sizes)
        self._done[:] = state.done
        self._seen["mark_numbers"][: len(state.marks)] = state.marks
        self._clocks[:] = state.clocks
        self._clock_rows[: len(state.rows)] = state.rows
        iterations[its] = state.iterations
        # found again in the history
        self._last_iterations[:] = LONG_AGO - 1

    # --- errors -------------------------------------------------------------------------------------------------------

    def _error(self, iteration: int) -> ProgramError:
        report, found, program = self.report, self._found, self._program
        fault, statement, other = (int(report[at]) for at in (judge.FAULT, judge.FAULT_STATEMENT, judge.FAULT_OTHER))
        memory = int(self._tables.accesses[2][report[judge.FAULT_ACCESS]])
        if memory >= 0:
            place = program.places[int(self._tables.places[memory])]
            name = f"{place.level.value} {place.number}"
        else:
            its = [
                r.name for r, a in zip(program.regions, found.region_areas.of_region, strict=True) if a == -1 - memory
            ]
            name = f"region {its[0]!r}"
        tile = self._tile(statement, iteration)

        def error(message: str, violation: str, **more: Any) -> ProgramError:
            return ProgramError(message, violation=violation, command=statement, tile=tile, **more)

        if fault == judge.UNWRITTEN:
            return error(f"reads bytes of {name} that nobody has written", "unwritten")
        if fault == judge.READ_ONLY:
            return error(f"writes over weights that stay in {name}", "read-only")
        if fault == judge.OVERLAP:
            return error(
                "a call's result lies on an operand that it does not overwrite in place", "overlap", actual=name
            )
        if fault == judge.TWICE:
            return error("writes a byte twice", "twice", actual=name)
        is_write = self._tables.accesses[1][report[judge.FAULT_ACCESS]] == Kind.WRITE
        verb, done = "writes" if is_write else "reads", "is read" if fault == judge.UNORDERED_READER else "was written"
        return error(
            f"{verb} bytes of {name} that {done} by command {other}, for which it does not wait",
            "dependency",
            actual=f"no path of waits from command {other}",
            hint="Let it wait for that command, or for one that comes after it in its queue",
        )

    def _tile(self, statement: int, iteration: int) -> tuple[int, ...]:
        """The counters of a statement's tile of an iteration."""
        loops = self._program.loops
        space = loops.spaces[loops.statements["space"][statement]]
        left, found = iteration - int(self._positions.origins[statement]), []
        for counter in range(int(space["counters"])):
            value = left // int(space["strides"][counter]) if space["extents"][counter] > 1 else 0
            left -= value * int(space["strides"][counter])
            found.append(value)
        return tuple(found)
