"""The order of commands that touch the same bytes, iteration by iteration (PROG-4, PROG-6).

Tables of statements, accesses and waits go into the judge (`judge.py`), which judges one iteration at a time. Where the
state recurs (`proof_recurrence.py`) and the loop goes on alike, iterations are jumped over.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from compiler.program.accesses import Kind
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_call
from compiler.program.loops import judge
from compiler.program.loops.dram_order import Writes
from compiler.program.loops.history import LONG_AGO, capture, forget
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import LoopedProgram
from compiler.program.loops.periods import look_ahead
from compiler.program.loops.positions import Positions
from compiler.program.loops.proof_recurrence import State
from compiler.program.loops.shapes import Shapes, joined, shape_columns, shapes_of
from compiler.program.loops.statement_accesses import StatementAccesses
from compiler.program.loops.windows import NONE, RESIDENT, touch_all
from compiler.program.strided import Ints, distinct
from compiler.program.verify import normal_residents

# Iterations, and rows of each inner loop, after which a state is looked for again. Lowering pads rings to periods of at
# most four tiles; longer ones are tried by themselves.
_PERIODS: Final = (1, 2, 3, 4)
# A number of a command, or an iteration, behind all others.
LATEST: Final = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Target:
    """Positions that are waited for wherever the waiting command stands: by nest and iteration, those `kept` first.

    `of_wait` the target of each wait, NONE for those that move with it. `kept`: how many are waited for after their
    iteration.
    """

    nests: Ints
    iterations: Ints
    statements: Ints
    of_wait: Ints
    kept: int


class Order:
    """The judge's tables, and its way through nests and iterations.

    `iterations`, and how many of them were `jumped` over; `report`: what the judge tells (`judge.py`).
    """

    def __init__(
        self,
        looped: LoopedProgram,
        instances: Instances,
        positions: Positions,
        found: StatementAccesses,
        writes: Writes,
        limits: ProgramLimits,
    ) -> None:
        self.looped, self._instances, self.positions = looped, instances, positions
        self._found, self.limits = found, limits
        program, loops = looped.program, looped.loops
        count, engines = len(program.commands), len(program.queues)
        self.iterations = self.jumped = 0
        self.report = np.zeros(judge.REPORT_SIZE, dtype=np.int64)
        # statements and their spaces
        spaces = loops.spaces[loops.statements["space"]]
        first, of = distinct([loops.statements["space"].astype(np.int64), loops.statements["stage"].astype(np.int64)])
        width = positions.leaps.shape[1]
        self.queues = program.commands["queue"].astype(np.int64)
        self.statements = (
            of.astype(np.int64),
            self.queues,
            found.first_parts,
            found.are_apart.astype(np.int64),
            is_call(program.commands["opcode"]).astype(np.int64),
            np.full(count, LONG_AGO),
            np.zeros(count, dtype=np.int64),
            positions.origins,
        )
        self.group_origins = positions.origins[first]
        self.group_columns = (
            np.ascontiguousarray(spaces["extents"][first][:, :width]),
            np.ascontiguousarray(spaces["strides"][first][:, :width]),
        )
        self.targets = _targets_of(looped, instances)
        self._target_columns = (
            self.targets.statements,
            self.targets.iterations,
            np.zeros(len(self.targets.nests), dtype=np.int64),
            np.zeros(len(self.targets.nests), dtype=np.int64),
        )
        self._target_clocks = np.zeros((self.targets.kept, engines), dtype=np.int64)
        self._captured = np.zeros(engines, dtype=np.int64)
        self.waits = (
            program.wait_offsets.astype(np.int64),
            program.waits.astype(np.int64),
            loops.distances.astype(np.int64),
            self.targets.of_wait,
        )
        self._access_tables(writes)
        self._memories(limits)
        # what was seen
        self._heads = np.full(len(self._logs[0]), NONE)
        self._sizes = np.zeros(3, dtype=np.int64)
        self._seen: dict[str, Ints] = {}
        self._grow_seen(1)
        self._done, self._clocks = np.zeros(engines, dtype=np.int64), np.zeros((engines, engines), dtype=np.int64)
        self._clock_rows = np.zeros((0, engines), dtype=np.int64)
        none = np.zeros(0, dtype=np.int64)
        self._history = (np.zeros(engines, dtype=np.int64), np.zeros(engines, dtype=np.int64), none, none, none)
        self._room = np.zeros(engines, dtype=np.int64)
        # of the parts of a statement, one is judged in an iteration
        self._most_accesses = np.maximum.reduceat(np.diff(self._accesses[0]), found.first_parts) if count else none
        most = int(self._most_accesses.max(initial=0)) + 1
        groups = len(first)
        self._counters = np.zeros((groups, width), dtype=np.int64)
        self._scratch = (
            np.zeros(width + 1, dtype=np.int64),
            np.zeros(most, dtype=np.int64),
            np.zeros(most, dtype=np.int64),
            np.zeros(groups, dtype=np.int64),
            np.full(engines, NONE),
            np.full(1 << 14, NONE),
        )

    # --- tables -------------------------------------------------------------------------------------------------------

    def _access_tables(self, writes: Writes) -> None:
        """What is judged in order: accesses on the chip, and reads of the DRAM where it is written."""
        found, areas = self._found, self._found.region_areas
        is_given = areas.is_given[found.areas] if len(areas.is_given) else np.zeros(len(found.areas), dtype=np.bool_)
        judged = np.flatnonzero((found.areas < 0) | ((found.kinds != Kind.WRITE) & ~is_given))
        parts = np.repeat(np.arange(len(found.part_offsets) - 1), np.diff(found.part_offsets))[judged]
        offsets = np.append(0, np.cumsum(np.bincount(parts, minlength=len(found.part_offsets) - 1))).astype(np.int64)
        kinds, statements, its_areas = found.kinds[judged], found.statements[judged], found.areas[judged]
        on_chip = its_areas < 0
        places, of_place = np.unique(found.places[judged][on_chip], return_inverse=True)
        memories = -1 - its_areas
        memories[on_chip] = of_place
        self._places = places
        # shapes: one for all accesses of a memory that are alike
        shapes = shapes_of(found.counts[judged], found.strides[judged])
        first, of_shape = distinct([memories, shapes.runs, *shapes.counts.T, *shapes.strides.T])
        alike = Shapes(
            counts=shapes.counts[first],
            strides=shapes.strides[first],
            runs=shapes.runs[first],
            is_nested=shapes.is_nested[first],
        )
        # the last one is scratch, for boxes of tiles
        blank = Shapes(
            counts=np.ones((1, 1), dtype=np.int64),
            strides=np.zeros((1, 1), dtype=np.int64),
            runs=np.ones(1, dtype=np.int64),
            is_nested=np.ones(1, dtype=np.bool_),
        )
        columns, counts, strides = shape_columns(joined(alike, writes.shapes, blank))
        self._shapes, self._shape_columns = columns, (counts, strides)
        self._accesses_on_chip = judged[on_chip]
        # what leaves marks: reads, and writes, of an engine in a memory
        leaves = np.flatnonzero(on_chip & (kinds != Kind.OVERWRITTEN))
        engines = len(self.looped.program.queues)
        is_write = (kinds == Kind.WRITE).astype(np.int64)
        keys = (memories[leaves] * engines + self.queues[statements[leaves]]) * 2 + is_write[leaves]
        known, of_log = np.unique(keys, return_inverse=True)
        logs = np.full(len(judged), NONE)
        logs[leaves] = of_log
        self._logs = (
            known // 2 % engines if engines else known,
            known % 2,
            np.searchsorted(known, np.arange(len(places) + 1) * engines * 2).astype(np.int64),
        )
        self._accesses = (
            offsets,
            kinds,
            memories,
            of_shape.astype(np.int64),
            logs,
            found.lows[judged],
            found.moduli[judged],
            found.sizes[judged],
            found.turns[judged],
        )
        self._access_columns = (
            np.ascontiguousarray(found.slopes[judged]),
            np.ascontiguousarray(found.turn_slopes[judged]),
        )
        self.turns = self._turns_of(judged[on_chip])
        self._late_tables(writes, len(first), np.unique(its_areas[~on_chip]))

    def _turns_of(self, rows: Ints) -> Ints:
        """By statement and counter after how many places the same bytes of the chip come again; 0: never."""
        found = self._found
        turns = np.ones_like(self.positions.leaps)
        ringed = rows[found.moduli[rows] > 1]
        moduli = found.moduli[ringed][:, None]
        np.lcm.at(turns, found.statements[ringed], moduli // np.gcd(moduli, found.turn_slopes[ringed]))
        # a common period that is too long to be met is none
        turns[(turns < 0) | (turns > 1 << 40)] = 0
        moves = np.zeros_like(turns, dtype=np.bool_)
        np.logical_or.at(moves, found.statements[rows], found.slopes[rows] != 0)
        turns[moves] = 0
        turns[found.are_apart] = 0
        return turns

    def _late_tables(self, writes: Writes, first_shape: int, read_areas: Ints) -> None:
        """By area that is read and engine, what it writes there, the latest first."""
        positions = self.positions
        rows = np.flatnonzero(np.isin(writes.areas, read_areas))
        queues = self.queues[writes.statements[rows]]
        rows = rows[np.lexsort((-writes.numbers[rows], queues, writes.areas[rows]))]
        engines = len(self.looped.program.queues)
        keys = writes.areas[rows] * engines + self.queues[writes.statements[rows]]
        known, starts = np.unique(keys, return_index=True)
        areas = len(self._found.region_areas.starts)
        self._late = (
            np.searchsorted(known, np.arange(areas + 1) * engines).astype(np.int64),
            known % engines if engines else known,
            np.append(starts, len(rows)).astype(np.int64),
            rows.astype(np.int64),
            writes.numbers[rows],
        )
        of = writes.statements
        self._pieces = (
            writes.lows,
            first_shape + np.arange(len(of)),
            of,
            writes.origins,
            positions.befores[of],
            positions.parts[of],
        )
        self._tiles = tuple(
            np.ascontiguousarray(part) for part in (writes.slopes, writes.spans, writes.axes, writes.leaps)
        )

    def _memories(self, limits: ProgramLimits) -> None:
        """What is written of each memory on the chip: nothing but residents."""
        found, program = self._found, self.looped.program
        residents = normal_residents(found.checked)
        of_place = {place: number for number, place in enumerate(self._places.tolist())}
        rows = self._accesses_on_chip
        numbers = np.array([of_place[place] for place in found.places[rows].tolist()], dtype=np.int64)
        count = len(self._places)
        begins, stops = np.full(count, 1 << 62), np.zeros(count, dtype=np.int64)
        np.minimum.at(begins, numbers, found.least[rows])
        np.maximum.at(stops, numbers, found.most[rows])
        lasting = [(of_place[place], its) for place, all_of in residents.items() if place in of_place for its in all_of]
        shapes = [shapes_of(its.counts, its.strides) for _, its in lasting]
        for (number, its), shape in zip(lasting, shapes, strict=True):
            reach = int(shape.runs[0] + ((shape.counts - 1) * shape.strides).sum())
            begins[number], stops[number] = min(begins[number], its.low[0]), max(stops[number], its.low[0] + reach)
        # a word is as large as all accesses of a memory allow
        words = np.zeros(count, dtype=np.int64)
        all_shapes = shapes_of(found.counts[rows], found.strides[rows])
        moves = [found.lows[rows] - begins[numbers], all_shapes.runs, found.sizes[rows]]
        moves += [*all_shapes.strides.T, *found.slopes[rows].T]
        for part in moves:
            np.gcd.at(words, numbers, part)
        for (number, its), shape in zip(lasting, shapes, strict=True):
            parts = [its.low - begins[number], shape.runs, shape.strides.ravel()]
            words[number] = np.gcd(words[number], np.gcd.reduce(np.concatenate(parts)))
        words = np.maximum(words, 1)
        sizes = -(-(stops - begins) // words)
        if sizes.sum() > limits.shadow_bytes:
            raise ProgramError(
                "the memories touched are too large to be verified",
                violation="size",
                actual=int(sizes.sum()),
                limit=limits.shadow_bytes,
            )
        self._words = (begins, words, (np.cumsum(sizes) - sizes).astype(np.int64))
        self._written = np.zeros(int(sizes.sum()), dtype=np.uint8)
        for (number, its), shape in zip(lasting, shapes, strict=True):
            columns, counts, strides = shape_columns(shape)
            memory = np.array([number])
            zero = np.zeros(1, dtype=np.int64)
            seen = touch_all(
                its.low,
                zero,
                memory,
                *self._words[:2],
                self._written,
                self._words[2],
                columns,
                counts,
                strides,
                RESIDENT,
            )
            if seen[0] & 3:
                place = program.places[int(self._places[number])]
                name = f"{place.level.value} {place.number}"
                raise ProgramError("residents lie on one another", violation="twice", actual=name)

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
            if 2 * wanted * len(self._done) > 2 * self.limits.clock_entries:
                raise ProgramError(
                    "too many commands are waited for at one time",
                    violation="size",
                    actual=wanted * len(self._done),
                    limit=self.limits.clock_entries,
                )
            grown_rows = np.zeros((2 * wanted, len(self._done)), dtype=np.int64)
            grown_rows[:used] = self._clock_rows[:used]
            self._clock_rows = grown_rows

    def _forget(self, begins: Ints, waiting: Any) -> None:
        """Leave out what is not waited for any more: by engine, before an iteration; `waiting`: who waits for whom."""
        rows = self._history[4]
        known = np.where(waiting, self._clocks, LATEST).min(axis=0, initial=LATEST)
        self._sizes[judge.ROWS] = forget(
            begins, known, self._done, *self._history, self._clock_rows, int(self._sizes[judge.ROWS])
        )
        offsets, sizes = self._history[:2]
        last = np.maximum(0, offsets + sizes - 1)
        if len(rows):
            self._scratch[4][:] = np.where(sizes > 0, rows[np.minimum(last, len(rows) - 1)], NONE)

    # --- nests --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Judge all nests. Raises ProgramError."""
        nests = self._instances.nests
        for nest in np.unique(nests).tolist():
            begin, stop = np.searchsorted(nests, [nest, nest + 1]).tolist()
            self._run_nest(nest, begin, stop)

    def _run_nest(self, nest: int, begin: int, stop: int) -> None:
        instances, of = self._instances, slice(begin, stop)
        iteration, last = int(instances.firsts[of].min()), int(instances.lasts[of].max())
        self.iterations += last + 1 - iteration
        loop = _Loop(self, nest, begin, stop, iteration, last)
        self._capture(loop.targets_before(iteration))
        self._forget(np.full(len(self._done), LATEST), loop.waiting)
        engines = np.bincount(self.queues[of], minlength=len(self._done))
        most = int(self._most_accesses[of].sum())
        self.report[judge.LATE_READ] = LONG_AGO
        while iteration <= last:
            iteration = loop.jump(iteration)
            if iteration > last:
                break
            self._grow_seen(most)
            self._grow_history(engines)
            self._judge(iteration, begin, stop)
            self._capture(loop.targets_before(iteration + 1))
            iteration += 1
            if iteration <= last:
                self._forget(iteration - loop.reach, loop.waiting)
        self._capture(loop.targets_before(LATEST))

    def _judge(self, iteration: int, begin: int, stop: int) -> None:
        judge.judge_iteration(
            iteration,
            begin,
            stop,
            self.statements,
            self.positions.runs,
            self.positions.order,
            self.group_origins,
            self.group_columns,
            self.waits,
            self._target_columns,
            self._target_clocks,
            self._accesses,
            self._access_columns,
            self._shapes,
            self._shape_columns,
            self._logs,
            self._words,
            self._written,
            self._late,
            self._pieces,
            self._tiles,
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

    def _capture(self, targets: Ints) -> None:
        """Keep what has ended when the last commands up to some positions have."""
        if not len(targets):
            return
        _, _, known, numbers = self._target_columns
        capture(
            self.targets.iterations[targets],
            targets,
            self.queues[self.targets.statements],
            self.targets.statements,
            self._done,
            *self._history,
            numbers,
            known,
            self._target_clocks,
            self._clock_rows,
        )
        np.maximum(self._captured, self._target_clocks[targets].max(axis=0), out=self._captured)
        np.maximum.at(self._captured, self.queues[self.targets.statements[targets]], numbers[targets])

    # --- states -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """What the proof knows now."""
        offsets, sizes, iterations, statements, rows = self._history
        marks = int(self._sizes[judge.MARKS])
        its = np.arange(int(sizes.sum())) + np.repeat(offsets - (np.cumsum(sizes) - sizes), sizes)
        return State(
            done=self._done.copy(),
            marks=self._seen["mark_numbers"][:marks].copy(),
            mark_queues=self._logs[0][self._seen["mark_logs"][:marks]],
            clocks=self._clocks.copy(),
            rows=self._clock_rows[: int(self._sizes[judge.ROWS])].copy(),
            sizes=sizes.copy(),
            iterations=iterations[its],
            statements=statements[its],
            row_numbers=rows[its],
            captured=self._captured.copy(),
        )

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
        self.statements[5][:] = LONG_AGO - 1

    # --- errors -------------------------------------------------------------------------------------------------------

    def _error(self, iteration: int) -> ProgramError:
        report, found, program = self.report, self._found, self.looped.program
        fault, statement, other = (int(report[at]) for at in (judge.FAULT, judge.FAULT_STATEMENT, judge.FAULT_OTHER))
        memory = int(self._accesses[2][report[judge.FAULT_ACCESS]])
        if memory >= 0:
            place = program.places[int(self._places[memory])]
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
        is_write = self._accesses[1][report[judge.FAULT_ACCESS]] == Kind.WRITE
        verb, done = "writes" if is_write else "reads", "is read" if fault == judge.UNORDERED_READER else "was written"
        return error(
            f"{verb} bytes of {name} that {done} by command {other}, for which it does not wait",
            "dependency",
            actual=f"no path of waits from command {other}",
            hint="Let it wait for that command, or for one that comes after it in its queue",
        )

    def _tile(self, statement: int, iteration: int) -> tuple[int, ...]:
        """The counters of a statement's tile of an iteration."""
        loops = self.looped.loops
        space = loops.spaces[loops.statements["space"][statement]]
        left, found = iteration - int(self.positions.origins[statement]), []
        for counter in range(int(space["counters"])):
            value = left // int(space["strides"][counter]) if space["extents"][counter] > 1 else 0
            left -= value * int(space["strides"][counter])
            found.append(value)
        return tuple(found)


class _Loop:
    """The iterations of one nest, and where they may be jumped over."""

    def __init__(self, order: Order, nest: int, begin: int, stop: int, first: int, last: int) -> None:
        self._order, self._begin, self._stop, self._last = order, begin, stop, last
        looped, positions = order.looped, order.positions
        of = slice(begin, stop)
        # how far back each engine is waited for
        engines = len(looped.program.queues)
        self.reach = np.zeros(engines, dtype=np.int64)
        offsets, waits, distances, of_wait = order.waits
        its = slice(int(offsets[begin]), int(offsets[stop]))
        moving = of_wait[its] == NONE
        np.maximum.at(self.reach, order.queues[waits[its][moving]], distances[its][moving])
        owners = np.repeat(np.arange(begin, stop), np.diff(offsets[begin : stop + 1]))
        self.waiting = np.zeros((engines, engines), dtype=np.bool_)
        self.waiting[order.queues[owners], order.queues[waits[its]]] = True
        np.fill_diagonal(self.waiting, val=False)
        named = order.queues[waits[its]][moving]
        self._distances = [np.unique(distances[its][moving][named == queue]) for queue in range(engines)]
        self.reach = np.minimum(self.reach, last + 1 - first)
        targets = order.targets
        mine = np.flatnonzero(targets.nests[: targets.kept] == nest)
        self._pending = mine[np.argsort(targets.iterations[mine], kind="stable")]
        self._next = 0
        self._periods = np.array(self._candidates(positions, of, last + 1 - first), dtype=np.int64)
        self._untils = np.full(len(self._periods), first)
        self._states: dict[int, State] = {}
        # by iteration the earlier ones whose states may come again then, with their periods and how far these reach
        self._due: dict[int, list[tuple[int, int, int]]] = {}

    def _candidates(self, positions: Positions, of: slice, iterations: int) -> list[int]:
        """Numbers of iterations after which a state may come again."""
        strides = {1, *positions.leaps[of][positions.tile_counts[of] > 1].tolist()}
        return sorted({times * stride for stride in strides for times in _PERIODS if 3 * times * stride <= iterations})

    def targets_before(self, iteration: int) -> Ints:
        """Positions before an iteration that have not been asked for yet."""
        iterations = self._order.targets.iterations
        begin = self._next
        while self._next < len(self._pending) and iterations[self._pending[self._next]] < iteration:
            self._next += 1
        return self._pending[begin : self._next]

    def jump(self, iteration: int) -> int:
        """The iteration to be judged next, behind those that need no look."""
        if not len(self._periods):
            return iteration
        order, states = self._order, self._states
        look_ahead(
            iteration,
            self._periods,
            self._untils,
            self._begin,
            self._stop,
            order.statements[0],
            order.positions.runs,
            order.group_origins,
            order.group_columns,
            order.turns,
        )
        begins = np.flatnonzero(self._untils - iteration >= self._periods).tolist()
        due = self._due.pop(iteration, [])
        if not begins and not due:
            return iteration
        now = order.state()
        for begin, period, until in due:
            # tiles that read what may not be written yet have to be looked at one by one
            if begin not in states or order.report[judge.LATE_READ] >= begin:
                continue
            end = min(until + period, self._last + 1)
            if self._next < len(self._pending):
                end = min(end, int(order.targets.iterations[self._pending[self._next]]))
            if end < iteration + period or not states[begin].recurs_in(now, period):
                continue
            times = (min(end, states[begin].stands_until(now, begin, self._distances)) - iteration) // period
            if times > 0:
                order.go_on(states[begin].jumped(now, period, times))
                order.jumped += times * period
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
            min(states) + self._periods[-1] <= iteration or len(states) * now.size_bytes > order.limits.shadow_bytes
        ):
            del states[min(states)]
        return iteration


def _targets_of(looped: LoopedProgram, instances: Instances) -> _Target:
    """The positions that waits name once for all: of nests before, and of what is done once."""
    program, loops = looped.program, looped.loops
    offsets = program.wait_offsets.astype(np.int64)
    waiting = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    named = program.waits.astype(np.int64)
    has_counters = loops.spaces["counters"][loops.statements["space"][named]] > 0
    nests = instances.nests
    is_earlier = nests[named] != nests[waiting]
    fixed = np.flatnonzero(is_earlier | ~has_counters)
    iterations = instances.lasts[named[fixed]] - np.where(is_earlier[fixed], loops.distances[fixed], 0)
    first, of = distinct([named[fixed], iterations]) if len(fixed) else (fixed, fixed)
    is_late = np.zeros(len(first), dtype=np.bool_)
    later = is_earlier[fixed] | (instances.lasts[waiting[fixed]] > iterations)
    np.logical_or.at(is_late, of, later)
    order = np.argsort(~is_late, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    of_wait = np.full(len(named), NONE)
    of_wait[fixed] = place[of]
    rows = fixed[first][order]
    return _Target(
        nests=nests[named[rows]],
        iterations=iterations[first][order],
        statements=named[rows],
        of_wait=of_wait,
        kept=int(is_late.sum()),
    )
