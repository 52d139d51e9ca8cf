"""The tables that the judge reads (`judge.py`): statements, waits, accesses, memories, and who writes to the DRAM."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.program.accesses import Kind
from compiler.program.checked import normal_residents
from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits, is_call
from compiler.program.loops.dram_order import Writes
from compiler.program.loops.instances import Instances
from compiler.program.loops.periods import PERIODS
from compiler.program.loops.positions import Positions
from compiler.program.loops.shapes import Shapes, joined, shape_columns, shapes_of
from compiler.program.loops.statement_accesses import StatementAccesses
from compiler.program.loops.windows import NONE, RESIDENT, touch_all
from compiler.program.strided import Ints, distinct


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Targets:
    """Positions that are waited for wherever the waiting command stands: by nest and iteration, those `kept` first.

    `of_wait` the target of each wait, NONE for those that move with it. `kept`: how many are waited for after their
    iteration.
    """

    nests: Ints
    iterations: Ints
    statements: Ints
    of_wait: Ints
    kept: int


class JudgeTables:
    """What does not change while the judge works, but for `written`.

    By statement: `groups` (alike in space and stage), `queues`, `turns` (`periods.py`), and in `most_accesses` how many
    accesses it has in an iteration. By group: `group_origins`, `group_columns`. By access on the chip, or read of the
    DRAM where it is written: `accesses`, `access_columns`; their `shapes` and `shape_columns`, and by shape its number
    among those that differ in more than their memory, `classes`. `logs`: lists of marks, by memory, engine and kind. By
    memory: `places`, and in `words` its first byte, the bytes of a word, and where it begins in `written`, which says
    what each word is. `late`, `pieces`, `tiles`: who writes to the DRAM. Raises ProgramError if the memories are too
    large, or residents lie on one another.
    """

    def __init__(
        self,
        instances: Instances,
        positions: Positions,
        found: StatementAccesses,
        writes: Writes,
        limits: ProgramLimits,
    ) -> None:
        self._program, self._positions, self._found = instances.program, positions, found
        program, loops = instances.program, instances.program.loops
        self.engines = len(program.queues)
        spaces = loops.spaces[loops.statements["space"]]
        first, of = distinct([loops.statements["space"].astype(np.int64), loops.statements["stage"].astype(np.int64)])
        width = positions.leaps.shape[1]
        self.groups: Ints = of.astype(np.int64)
        self.queues: Ints = program.commands["queue"].astype(np.int64)
        self.statements = (
            self.groups,
            self.queues,
            found.first_parts,
            found.are_apart.astype(np.int64),
            is_call(program.commands["opcode"]).astype(np.int64),
        )
        self.group_origins = positions.origins[first]
        self.group_columns = (
            np.ascontiguousarray(spaces["extents"][first][:, :width]),
            np.ascontiguousarray(spaces["strides"][first][:, :width]),
        )
        self.targets = targets_of(instances)
        self.waits = (
            program.wait_offsets.astype(np.int64),
            program.waits.astype(np.int64),
            loops.distances.astype(np.int64),
            self.targets.of_wait,
        )
        self._access_tables(writes)
        self._memories(limits)
        # of the parts of a statement, one is judged in an iteration
        none = np.zeros(0, dtype=np.int64)
        self.most_accesses: Ints = (
            np.maximum.reduceat(np.diff(self.accesses[0]), found.first_parts) if len(self.queues) else none
        )

    def _access_tables(self, writes: Writes) -> None:
        """What is judged in order: accesses on the chip, and reads of the DRAM where it is written."""
        found, areas = self._found, self._found.region_areas
        is_given = areas.is_given[found.areas] if len(areas.is_given) else np.zeros(len(found.areas), dtype=np.bool_)
        self._is_judged = (found.areas < 0) | ((found.kinds != Kind.WRITE) & ~is_given)
        judged = np.flatnonzero(self._is_judged)
        parts = np.repeat(np.arange(len(found.part_offsets) - 1), np.diff(found.part_offsets))[judged]
        offsets = np.append(0, np.cumsum(np.bincount(parts, minlength=len(found.part_offsets) - 1))).astype(np.int64)
        kinds, statements, its_areas = found.kinds[judged], found.statements[judged], found.areas[judged]
        on_chip = its_areas < 0
        places, of_place = np.unique(found.places[judged][on_chip], return_inverse=True)
        memories = -1 - its_areas
        memories[on_chip] = of_place
        self.places = places
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
        self.shapes, self.shape_columns = columns, (counts, strides)
        _, self.classes = distinct([columns[1], *counts.T, *strides.T])
        self._accesses_on_chip = judged[on_chip]
        # what leaves marks: reads, and writes, of an engine in a memory
        leaves = np.flatnonzero(on_chip & (kinds != Kind.OVERWRITTEN))
        engines = self.engines
        is_write = (kinds == Kind.WRITE).astype(np.int64)
        keys = (memories[leaves] * engines + self.queues[statements[leaves]]) * 2 + is_write[leaves]
        known, of_log = np.unique(keys, return_inverse=True)
        logs = np.full(len(judged), NONE)
        logs[leaves] = of_log
        self.logs = (
            known // 2 % engines if engines else known,
            known % 2,
            np.searchsorted(known, np.arange(len(places) + 1) * engines * 2).astype(np.int64),
        )
        self.accesses = (
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
        self.access_columns = (
            np.ascontiguousarray(found.slopes[judged]),
            np.ascontiguousarray(found.turn_slopes[judged]),
        )
        self.turns = self._turns_of(judged[on_chip])
        self._late_tables(writes, len(first), np.unique(its_areas[~on_chip]))

    def _turns_of(self, rows: Ints) -> Ints:
        """By statement and counter after how many places the same bytes of the chip come again; 0: never."""
        found = self._found
        turns = np.ones_like(self._positions.leaps)
        ringed = rows[found.moduli[rows] > 1]
        moduli = found.moduli[ringed][:, None]
        np.lcm.at(turns, found.statements[ringed], moduli // np.gcd(moduli, found.turn_slopes[ringed]))
        # a common period that is too long to be met is none
        turns[(turns < 0) | (turns > 1 << 40)] = 0
        moves = np.zeros_like(turns, dtype=np.bool_)
        np.logical_or.at(moves, found.statements[rows], found.slopes[rows] != 0)
        turns[moves] = 0
        for statement in np.flatnonzero(found.are_apart).tolist():
            turns[statement] = self._turns_apart(statement)
        return turns

    def _turns_apart(self, statement: int) -> list[int]:
        """The same of a statement whose tiles are judged apart: looked for among all of them.

        Of reads of the DRAM that are judged the area is looked at: where in it a tile reads is judged without tiles.
        """
        found, counts = self._found, self._found.tile_counts[statement]
        first, tiles = found.first_parts[statement], int(counts.prod())
        ends = found.part_offsets[first : first + tiles + 1]
        rows = np.arange(ends[0], ends[-1])
        of = np.repeat(np.arange(tiles), np.diff(ends))[self._is_judged[rows]]
        rows = rows[self._is_judged[rows]]
        sizes = np.bincount(of, minlength=tiles)
        if (sizes != sizes[0]).any():
            return [int(count == 1) for count in counts.tolist()]
        on_chip = found.areas[rows] < 0
        boxes = (found.places[rows], found.lows[rows], *found.counts[rows].T, *found.strides[rows].T)
        _, alike = distinct([found.kinds[rows], found.areas[rows], *(column * on_chip for column in boxes)])
        accesses = alike.reshape(*counts, -1)
        return [_turn_along(np.moveaxis(accesses, axis, 0)) for axis in range(len(counts))]

    def _late_tables(self, writes: Writes, first_shape: int, read_areas: Ints) -> None:
        """By area that is read and engine, what it writes there, the latest first."""
        positions = self._positions
        rows = np.flatnonzero(np.isin(writes.areas, read_areas))
        queues = self.queues[writes.statements[rows]]
        rows = rows[np.lexsort((-writes.numbers[rows], queues, writes.areas[rows]))]
        engines = self.engines
        keys = writes.areas[rows] * engines + self.queues[writes.statements[rows]]
        known, starts = np.unique(keys, return_index=True)
        areas = len(self._found.region_areas.starts)
        self.late = (
            np.searchsorted(known, np.arange(areas + 1) * engines).astype(np.int64),
            known % engines if engines else known,
            np.append(starts, len(rows)).astype(np.int64),
            rows.astype(np.int64),
            writes.numbers[rows],
        )
        of = writes.statements
        self.pieces = (
            writes.lows,
            first_shape + np.arange(len(of)),
            of,
            writes.origins,
            positions.befores[of],
            positions.parts[of],
        )
        self.tiles = tuple(
            np.ascontiguousarray(part) for part in (writes.slopes, writes.spans, writes.axes, writes.leaps)
        )

    def _memories(self, limits: ProgramLimits) -> None:
        """What is written of each memory on the chip: nothing but residents."""
        found, program = self._found, self._program
        of_place = {place: number for number, place in enumerate(self.places.tolist())}
        lasting = np.array([of_place.get(place, NONE) for place, _, _ in found.residents], dtype=np.int64)
        its = normal_residents(program, found.residents).chosen(lasting != NONE)
        lasting, shapes = lasting[lasting != NONE], shapes_of(its.counts, its.strides)
        rows = self._accesses_on_chip
        numbers = np.array([of_place[place] for place in found.places[rows].tolist()], dtype=np.int64)
        count = len(self.places)
        begins, stops = np.full(count, 1 << 62), np.zeros(count, dtype=np.int64)
        np.minimum.at(begins, numbers, found.least[rows])
        np.maximum.at(stops, numbers, found.most[rows])
        np.minimum.at(begins, lasting, its.low)
        reaches = shapes.runs + ((shapes.counts - 1) * shapes.strides).sum(axis=1)
        np.maximum.at(stops, lasting, its.low + reaches)
        # a word is as large as all accesses of a memory allow
        words = np.zeros(count, dtype=np.int64)
        all_shapes = shapes_of(found.counts[rows], found.strides[rows])
        moves = [found.lows[rows] - begins[numbers], all_shapes.runs, found.sizes[rows]]
        moves += [*all_shapes.strides.T, *found.slopes[rows].T]
        for part in moves:
            np.gcd.at(words, numbers, part)
        for part in (its.low - begins[lasting], shapes.runs, *shapes.strides.T):
            np.gcd.at(words, lasting, part)
        words = np.maximum(words, 1)
        sizes = -(-(stops - begins) // words)
        if sizes.sum() > limits.shadow_bytes:
            raise ProgramError(
                "the memories touched are too large to be verified",
                violation="size",
                actual=int(sizes.sum()),
                limit=limits.shadow_bytes,
            )
        self.words = (begins, words, (np.cumsum(sizes) - sizes).astype(np.int64))
        self.written = np.zeros(int(sizes.sum()), dtype=np.uint8)
        columns, counts, strides = shape_columns(shapes)
        seen = touch_all(
            its.low,
            np.arange(len(lasting)),
            lasting,
            *self.words[:2],
            self.written,
            self.words[2],
            columns,
            counts,
            strides,
            RESIDENT,
        )
        twice = np.flatnonzero(seen & 3)
        if len(twice):
            place = program.places[int(self.places[lasting[twice[0]]])]
            name = f"{place.level.value} {place.number}"
            raise ProgramError("residents lie on one another", violation="twice", actual=name)


def targets_of(instances: Instances) -> Targets:
    """The positions that waits name once for all: of nests before, and of what is done once."""
    program, loops = instances.program, instances.program.loops
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
    return Targets(
        nests=nests[named[rows]],
        iterations=iterations[first][order],
        statements=named[rows],
        of_wait=of_wait,
        kept=int(is_late.sum()),
    )


def _turn_along(accesses: Ints) -> int:
    """After how many rows the same ones come again, of the numbers that are tried; 0: never."""
    count = len(accesses)
    for turn in PERIODS:
        if turn == 1 == count or (turn < count and np.array_equal(accesses[turn:], accesses[:-turn])):
            return turn
    return 0
