"""Which bytes of a memory hold something when: a map of address × time, from what commands write and read (PROG-2).

Addresses and times are cut into steps, so that the map stays small. A step of a memory is occupied from the first time
anything in it is written until it is read for the last time before it is written again; what lies there before the
program runs, from the beginning, and results that it hands out, to the end.

Commands are shown once, in the order in which they end, so maps of all steps are drawn at once, and the finest that is
small enough is taken (`cells.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.program.loops.tiles import Tiles
from compiler.program.loops.time import Commands, ProgramTime
from compiler.program.program import Level, Program, Role
from compiler.program.timing.cells import EMPTY, UNKNOWN, Cells, Drawing, close_touches, draw_touches, keep_to_the_end
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints
from compiler.program.timing.touches import StatementTouches
from compiler.units import ceil_div

# Steps of addresses and of time of the finest map, and the most rectangles that a map may have.
_ADDRESS_STEPS: Final = 64
_TIME_STEPS: Final = 100
MAX_RECTANGLES: Final = 150


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Occupancy:
    """The fullest memory of a level over time.

    number, capacity_bytes: which memory it is. address_step, step_ticks: what the map is rounded outwards to.
    `rectangles`: address, bytes, first and last time step (half-open) and the step (of the program) that wrote first,
    -1 for what was there before; shape (n, 5), by time, then by address.
    """

    level: Level
    number: int
    capacity_bytes: int
    address_step: int
    step_ticks: float
    rectangles: Ints

    def held_bytes(self) -> Ints:
        """Bytes that are occupied at each time step."""
        _, sizes, begins, ends, _ = self.rectangles.T
        edges = np.zeros(int(ends.max(initial=0)) + 1, dtype=np.int64)
        np.add.at(edges, begins, sizes)
        np.add.at(edges, ends, -sizes)
        found: Ints = np.cumsum(edges[:-1])
        return found


class Occupancies:
    """The fullest memory of each level that a program touches, as all of its commands are shown."""

    def __init__(self, time: ProgramTime, tiles: Tiles, touches: StatementTouches) -> None:
        self._time, self._tiles, self._touches = time, tiles, touches
        program = time.program
        self._queues = program.commands["queue"].astype(np.int64)
        self._steps = program.commands["step"].astype(np.int64)
        used = touches.used()
        self._places = _fullest(program, used)
        # by place the number of its memory
        self._memory_of = np.full(len(program.places), -1, dtype=np.int64)
        self._memory_of[self._places] = np.arange(len(self._places))
        self._chosen = self._memory_of[touches.places] >= 0
        ticks = max(time.ticks, TICKS_PER_CYCLE)
        self._used = [int(used[place]) for place in self._places]
        self._cells = Cells.of([_maps(size, ticks) for size in self._used], len(program.queues))
        # of a tick from which on not all is known, commands that begin there
        none = np.zeros(0, dtype=np.int64)
        self._late = none, none
        self._until = 0

    def add(self, commands: Commands) -> None:
        """Take in the next commands."""
        positions, begins, ends = commands.positions, commands.begins, commands.ends
        # those that had begun before are drawn already, but for their ends: before others of their queues are
        open_before = begins < self._until
        self._close(positions[open_before], begins[open_before], ends[open_before])
        late_positions, late_begins = self._late
        is_late = ~open_before & (begins >= commands.until)
        new = ~open_before & ~is_late
        has_begun = (commands.open_begins >= self._until) & (commands.open_begins < commands.until)
        # what ends where it begins ends at the tick at which it is late
        self._draw(
            np.concatenate([late_positions, positions[new], commands.open_positions[has_begun]]),
            np.concatenate([late_begins, begins[new], commands.open_begins[has_begun]]),
            np.concatenate([late_begins, ends[new], np.full(int(has_begun.sum()), UNKNOWN)]),
        )
        self._late = positions[is_late], begins[is_late]
        self._until = commands.until

    def _drawing(self, positions: Ints, begins: Ints, ends: Ints) -> tuple[Drawing, Ints]:
        """The ranges of commands in the memories whose maps are drawn, and whose each of them is."""
        statements = self._tiles.statements(positions)
        touches = self._touches.of(statements, self._tiles.places(positions), self._chosen)
        its = touches.commands
        drawing = Drawing(
            memories=self._memory_of[touches.places],
            lows=touches.lows,
            highs=touches.highs,
            begins=begins[its],
            ends=ends[its],
            writes=touches.writes.astype(np.int64),
            steps=self._steps[statements][its],
            queues=self._queues[statements][its],
        )
        return drawing, its

    def _draw(self, positions: Ints, begins: Ints, ends: Ints) -> None:
        drawing, its = self._drawing(positions, begins, ends)
        # what a command reads it has read before it writes
        order = np.lexsort((positions[its], drawing.writes, drawing.begins))
        draw_touches(self._cells, Drawing(*(column[order] for column in drawing)))

    def _close(self, positions: Ints, begins: Ints, ends: Ints) -> None:
        if len(positions):
            close_touches(self._cells, self._drawing(positions, begins, ends)[0])

    def occupancies(self) -> tuple[Occupancy, ...]:
        """The maps, in the order of the program's places, once all commands are taken in."""
        found = []
        for number, place in enumerate(self._places):
            low, high = _outputs(self._time.program, place)
            keep_to_the_end(self._cells, number, low, high, self._time.ticks)
            found.append(self._smallest(number, place))
        return tuple(found)

    def _smallest(self, number: int, place: int) -> Occupancy:
        """The finest map of a memory that has few enough rectangles."""
        memory, used = self._time.program.places[place], self._used[number]
        maps = (
            (step, width, _rectangles(cells, np.minimum(np.arange(len(cells) + 1) * step, used)))
            for step, width, cells in self._cells.maps(number)
        )
        # one cell is one rectangle at most, so one of them is small
        step, width, rectangles = next(found for found in maps if len(found[2]) <= MAX_RECTANGLES)
        return Occupancy(
            level=memory.level,
            number=memory.number,
            capacity_bytes=memory.capacity_bytes,
            address_step=step,
            step_ticks=width,
            rectangles=rectangles,
        )


def _fullest(program: Program, used: Ints) -> list[int]:
    """The fullest place of each level whose places are used; the first one where several are equally full."""
    found = []
    for level in dict.fromkeys(place.level for place in program.places):
        numbers = [number for number, place in enumerate(program.places) if place.level is level]
        fullest = max(numbers, key=lambda number: (used[number], -number))
        if used[fullest]:
            found.append(fullest)
    return found


def _maps(used: int, ticks: int) -> list[tuple[int, float, int, int]]:
    """Maps of a memory with longer and longer steps: bytes and ticks of a step, and how many of either there are."""
    found = []
    bins, times = _ADDRESS_STEPS, _TIME_STEPS
    while True:
        step = ceil_div(used, bins)
        # what is empty and lies behind all else has a step of its own
        found.append((step, ticks / times, used // step + 1, times))
        if bins == times == 1:
            return found
        bins, times = max(1, bins * 3 // 4), max(1, times * 3 // 4)


def _outputs(program: Program, place: int) -> tuple[Ints, Ints]:
    """Where outputs begin and end in a memory."""
    is_dram = program.places[place].level is Level.DRAM
    regions = [r for r in program.regions if is_dram and r.role is Role.OUTPUT and r.size_bytes]
    found = np.array([(r.address, r.address + r.size_bytes) for r in regions], dtype=np.int64).reshape(-1, 2)
    return np.ascontiguousarray(found[:, 0]), np.ascontiguousarray(found[:, 1])


def _rectangles(cells: Ints, edges: Ints) -> Ints:
    """Runs of equal cells along time made one, then equal runs of neighbouring parts; `edges`: addresses of parts."""
    changes = np.ones((len(cells), cells.shape[1] + 1), dtype=np.bool_)
    changes[:, 1:-1] = cells[:, 1:] != cells[:, :-1]
    bins, begins = np.nonzero(changes[:, :-1])
    _, ends = np.nonzero(changes[:, 1:])
    runs = np.stack([bins, begins, ends + 1, cells[bins, begins]])[:, cells[bins, begins] != EMPTY]
    runs = runs[:, np.lexsort(runs[[0, 3, 2, 1]])]
    is_top = np.ones(runs.shape[1], dtype=np.bool_)
    is_top[1:] = (runs[1:, 1:] != runs[1:, :-1]).any(axis=0) | (runs[0, 1:] != runs[0, :-1] + 1)
    tops: Ints = np.flatnonzero(is_top)
    heights = np.diff(np.append(tops, runs.shape[1]))
    bins, begins, ends, writers = runs[:, tops]
    found = np.stack([edges[bins], edges[bins + heights] - edges[bins], begins, ends, writers], axis=1)
    result: Ints = found[np.lexsort((found[:, 0], found[:, 2]))]
    return result
