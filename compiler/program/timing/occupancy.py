"""Which bytes of a memory hold something when: a map of address × time, from what commands write and read (PROG-2).

Addresses and times are cut into steps, so that the map stays small. A step of a memory is occupied from the first time
anything in it is written until it is read for the last time before it is written again; what lies there before the
program runs, from the beginning, and results that it hands out, to the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.program.program import Level, Program, Role
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints
from compiler.program.timing.timeline import Timeline
from compiler.program.timing.touches import Touches, touches_of
from compiler.units import ceil_div

# Steps of addresses and of time at the beginning, and the most rectangles that a map may have.
_ADDRESS_STEPS: Final = 64
_TIME_STEPS: Final = 100
MAX_RECTANGLES: Final = 150
# Who wrote a cell: nobody, or what was there before the program.
_EMPTY: Final = -2
_GIVEN: Final = -1


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


def occupancies_of(timeline: Timeline) -> tuple[Occupancy, ...]:
    """The fullest memory of each level that a program touches, in the order of its places."""
    touches = touches_of(timeline.program)
    places = timeline.program.places
    used = np.zeros(len(places), dtype=np.int64)
    np.maximum.at(used, touches.places, touches.highs)
    found = []
    for level in dict.fromkeys(place.level for place in places):
        numbers = [number for number, place in enumerate(places) if place.level is level]
        fullest = max(numbers, key=lambda number: (used[number], -number))
        if used[fullest]:
            found.append(_map(timeline, touches, fullest, int(used[fullest])))
    return tuple(found)


def _map(timeline: Timeline, touches: Touches, place: int, used: int) -> Occupancy:
    """The map of one memory, with longer steps until it is small enough."""
    rows = np.flatnonzero(touches.places == place)
    bins, times = _ADDRESS_STEPS, _TIME_STEPS
    memory = timeline.program.places[place]
    while True:
        step, width = ceil_div(used, bins), max(timeline.ticks, TICKS_PER_CYCLE) / times
        lives = _kept(_lives(timeline, touches, rows, step), timeline, place, step)
        found = _rectangles(_cells(lives, width, times), np.minimum(lives.edges * step, used))
        if len(found) <= MAX_RECTANGLES:
            return Occupancy(
                level=memory.level,
                number=memory.number,
                capacity_bytes=memory.capacity_bytes,
                address_step=step,
                step_ticks=width,
                rectangles=found,
            )
        # one cell is one rectangle at most, so this ends
        bins, times = max(1, bins * 3 // 4), max(1, times * 3 // 4)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Lives:
    """For how long parts of a memory hold something: which part, from when until when, written for which step of the
    program; those of one part by time. Part p is from step edges[p] to edges[p + 1]: no command ends or begins between.
    """

    edges: Ints
    bins: Ints
    begins: Ints
    ends: Ints
    writers: Ints


def _lives(timeline: Timeline, touches: Touches, rows: Ints, step: int) -> _Lives:
    low, high = touches.lows[rows] // step, -(-touches.highs[rows] // step)
    high = np.maximum(high, low + 1)
    edges = np.unique(np.concatenate([low, high]))
    low, high = np.searchsorted(edges, low), np.searchsorted(edges, high)
    counts = high - low
    owners = np.repeat(rows, counts)
    bins = np.repeat(low, counts) + np.arange(len(owners)) - np.repeat(np.cumsum(counts) - counts, counts)
    commands, writes = touches.commands[owners], touches.writes[owners]
    # what a command reads it has read before it writes
    order = np.lexsort((writes, timeline.begins[commands], bins))
    bins, commands, writes = bins[order], commands[order], writes[order]
    is_new, after_read = np.ones((2, len(bins)), dtype=np.bool_)
    is_new[1:] = bins[1:] != bins[:-1]
    after_read[1:] = ~writes[:-1]
    is_first = is_new | (writes & after_read)
    firsts = np.flatnonzero(is_first)
    ends = np.zeros(len(firsts), dtype=np.int64)
    np.maximum.at(ends, np.cumsum(is_first) - 1, timeline.ends[commands])
    was_there = ~writes[firsts]
    return _Lives(
        edges=edges,
        bins=bins[firsts],
        begins=np.where(was_there, 0, timeline.begins[commands[firsts]]),
        ends=ends,
        writers=np.where(was_there, _GIVEN, timeline.program.commands["step"][commands[firsts]]),
    )


def _kept(lives: _Lives, timeline: Timeline, place: int, step: int) -> _Lives:
    """With what is written last of the program's outputs there to the end."""
    low, high = _outputs(timeline.program, place)
    # how many outputs begin before a part's end, and end before its begin: the others lie in it
    begun = np.searchsorted(low, lives.edges[1:] * step, side="left")
    over = np.searchsorted(high, lives.edges[:-1] * step, side="right")
    is_last = np.ones(len(lives.bins), dtype=np.bool_)
    is_last[:-1] = lives.bins[1:] != lives.bins[:-1]
    stays = is_last & (begun > over)[lives.bins]
    return replace(lives, ends=np.where(stays, timeline.ticks, lives.ends))


def _outputs(program: Program, place: int) -> tuple[Ints, Ints]:
    """Where outputs begin and end in a memory, in order."""
    is_dram = program.places[place].level is Level.DRAM
    regions = [r for r in program.regions if is_dram and r.role is Role.OUTPUT and r.size_bytes]
    found = np.array(sorted((r.address, r.address + r.size_bytes) for r in regions), dtype=np.int64).reshape(-1, 2)
    return found[:, 0], found[:, 1]


def _cells(lives: _Lives, width: float, times: int) -> Ints:
    """Who wrote what each cell of the map holds, of several the last; shape (parts of the memory, steps of time)."""
    cells = np.full((len(lives.edges) - 1, times), _EMPTY, dtype=np.int64)
    first = np.clip(lives.begins // width, 0, times - 1).astype(np.int64)
    last = np.clip(np.ceil(lives.ends / width), first + 1, times).astype(np.int64)
    lengths = last - first
    owners = np.repeat(np.arange(len(first)), lengths)
    steps = first[owners] + np.arange(len(owners)) - (np.cumsum(lengths) - lengths)[owners]
    cells[lives.bins[owners], steps] = lives.writers[owners]
    return cells


def _rectangles(cells: Ints, edges: Ints) -> Ints:
    """Runs of equal cells along time made one, then equal runs of neighbouring parts; `edges`: addresses of parts."""
    changes = np.ones((len(cells), cells.shape[1] + 1), dtype=np.bool_)
    changes[:, 1:-1] = cells[:, 1:] != cells[:, :-1]
    bins, begins = np.nonzero(changes[:, :-1])
    _, ends = np.nonzero(changes[:, 1:])
    runs = np.stack([bins, begins, ends + 1, cells[bins, begins]])[:, cells[bins, begins] != _EMPTY]
    runs = runs[:, np.lexsort(runs[[0, 3, 2, 1]])]
    is_top = np.ones(runs.shape[1], dtype=np.bool_)
    is_top[1:] = (runs[1:, 1:] != runs[1:, :-1]).any(axis=0) | (runs[0, 1:] != runs[0, :-1] + 1)
    tops: Ints = np.flatnonzero(is_top)
    heights = np.diff(np.append(tops, runs.shape[1]))
    bins, begins, ends, writers = runs[:, tops]
    found = np.stack([edges[bins], edges[bins + heights] - edges[bins], begins, ends, writers], axis=1)
    result: Ints = found[np.lexsort((found[:, 0], found[:, 2]))]
    return result
