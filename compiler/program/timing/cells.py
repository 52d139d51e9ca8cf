"""Maps of memories as cells, address × time, drawn by what commands touch (PROG-2).

A *bin* is a step of addresses of one map. It has one *life* after another: from what is written after something was
read there (or from the beginning, for what is read first) until the last command that touches it ends. A cell holds who
wrote what was there, of several lives that of the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from compiler.machine_code import compiled, types_of
from compiler.program.timing.ticks import Ints

# Who wrote a cell: nobody, or what was there before the program.
EMPTY: Final = -2
GIVEN: Final = -1
# When a command ends that goes on.
UNKNOWN: Final = -1


class Columns(NamedTuple):
    """The state of maps. Memory m has the maps `map_offsets[m]` to `map_offsets[m + 1]`.

    By map: bytes of a bin, how many bins and steps of time it has, where its bins and cells begin; the step in which
    the last command began (`now`), and a tick before that step's end. By bin: how many lives it has had, who wrote the
    present one, whether it was read last, and up to which step it is drawn. By cell: who wrote it, and the number of
    the life. `joined`, by queue and bin: the queue's command has not ended; life and writer of the bytes it reads, then
    of those it writes.
    """

    map_offsets: Ints
    bin_bytes: Ints
    bin_counts: Ints
    step_counts: Ints
    bin_offsets: Ints
    cell_offsets: Ints
    now: Ints
    next_begins: Ints
    lives: Ints
    writers: Ints
    was_read: Ints
    drawn: Ints
    cells: Ints
    cell_lives: Ints
    joined: Ints


class Drawing(NamedTuple):
    """Ranges of commands in the order in which they are touched: the memory, bytes (half-open), ticks at which the
    command begins and ends (UNKNOWN: later), whether it writes them, for which step of the program, and its queue.
    """

    memories: Ints
    lows: Ints
    highs: Ints
    begins: Ints
    ends: Ints
    writes: Ints
    steps: Ints
    queues: Ints


class Cells:
    """Maps of several memories; `widths`: by map, ticks of a step of time."""

    def __init__(self, columns: Columns, widths: NDArray[np.float64]) -> None:
        self.columns = columns
        self.widths = widths

    @classmethod
    def of(cls, maps: Sequence[Sequence[tuple[int, float, int, int]]], queues: int) -> Cells:
        """Empty maps: by memory and map the bytes of a bin, the ticks of a step, and how many of either there are."""
        its = [one for of_memory in maps for one in of_memory]
        bin_counts, step_counts = (np.array([one[part] for one in its], dtype=np.int64) for part in (2, 3))
        bins, cells = int(bin_counts.sum()), int((bin_counts * step_counts).sum())

        def before(counts: Ints) -> Ints:
            return (np.cumsum(counts) - counts).astype(np.int64)

        def zeros(count: int) -> Ints:
            return np.zeros(count, dtype=np.int64)

        columns = Columns(
            map_offsets=np.cumsum([0, *map(len, maps)]).astype(np.int64),
            bin_bytes=np.array([one[0] for one in its], dtype=np.int64),
            bin_counts=bin_counts,
            step_counts=step_counts,
            bin_offsets=before(bin_counts),
            cell_offsets=before(bin_counts * step_counts),
            now=zeros(len(its)),
            next_begins=zeros(len(its)),
            lives=zeros(bins),
            writers=zeros(bins),
            was_read=zeros(bins),
            drawn=zeros(bins),
            cells=np.full(cells, EMPTY),
            cell_lives=zeros(cells),
            joined=zeros(queues * bins * 4),
        )
        return cls(columns, np.array([one[1] for one in its], dtype=np.float64))

    def maps(self, memory: int) -> Iterator[tuple[int, float, Ints]]:
        """The maps of a memory: bytes of a bin, ticks of a step, and cells; shape (bins, steps of time)."""
        its = self.columns
        for number in range(*its.map_offsets[memory : memory + 2].tolist()):
            bins, steps, first = (int(one[number]) for one in (its.bin_counts, its.step_counts, its.cell_offsets))
            cells = its.cells[first : first + bins * steps].reshape(bins, steps)
            yield int(its.bin_bytes[number]), float(self.widths[number]), cells


def draw_touches(cells: Cells, drawing: Drawing) -> None:
    """Draw what commands touch, in this order; of one that goes on, what is known."""
    _draw(cells.columns, cells.widths, drawing)


def close_touches(cells: Cells, drawing: Drawing) -> None:
    """Draw to their ends commands that went on when they were drawn."""
    _close(cells.columns, cells.widths, drawing)


def keep_to_the_end(cells: Cells, memory: int, lows: Ints, highs: Ints, ticks: int) -> None:
    """Let what lies last in the bins of some ranges stay there until the program's end."""
    _keep(cells.columns, cells.widths, memory, lows, highs, ticks)


@compiled(allocates=False)
def _paint(its: Any, number: int, bin_number: int, life: int, writer: int, first: int, stop: int) -> None:
    """Draw a life from one step up to another, where no later life is drawn."""
    steps = its.step_counts[number]
    base = its.cell_offsets[number] + bin_number * steps
    for step in range(base + first, base + min(stop, steps)):
        if its.cell_lives[step] <= life:
            its.cells[step], its.cell_lives[step] = writer, life


@compiled(allocates=False)
def _bins(its: Any, number: int, low: int, high: int) -> Any:
    """The bins of a range, at least one; of a range outside of the map those that there are."""
    size, count = its.bin_bytes[number], its.bin_counts[number]
    first = max(0, min(count, low // size))
    return first, max(0, min(count, max(-(-high // size), first + 1)))


@compiled((*types_of(Columns), numba.float64[::1], *types_of(Drawing)), allocates=False)
def _draw(its: Any, widths: Any, drawing: Any) -> None:
    total = len(its.lives)
    for row in range(len(drawing.lows)):
        memory, writes = drawing.memories[row], drawing.writes[row]
        begin, end = drawing.begins[row], drawing.ends[row]
        for number in range(its.map_offsets[memory], its.map_offsets[memory + 1]):
            width = widths[number]
            if begin >= its.next_begins[number]:
                its.now[number] = min(its.step_counts[number] - 1, int(begin // width))
                its.next_begins[number] = int((its.now[number] + 1) * width) - 1
            step = its.now[number]
            stop = step + 1
            if not begin < end < its.next_begins[number]:
                stop = int(np.ceil(max(begin, end) / width))
            first, behind = _bins(its, number, drawing.lows[row], drawing.highs[row])
            for bin_number in range(first, behind):
                at = its.bin_offsets[number] + bin_number
                if its.lives[at] == 0 or (writes and its.was_read[at]):
                    its.lives[at] += 1
                    its.writers[at] = drawing.steps[row] if writes else GIVEN
                    from_step = step if writes else 0
                    _paint(its, number, bin_number, its.lives[at], its.writers[at], from_step, from_step + 1)
                    its.drawn[at] = from_step + 1
                _paint(its, number, bin_number, its.lives[at], its.writers[at], its.drawn[at], stop)
                its.drawn[at] = max(its.drawn[at], stop)
                its.was_read[at] = not writes
                if end == UNKNOWN:
                    place = 4 * (drawing.queues[row] * total + at) + 2 * writes
                    its.joined[place], its.joined[place + 1] = its.lives[at], its.writers[at]


@compiled((*types_of(Columns), numba.float64[::1], *types_of(Drawing)), allocates=False)
def _close(its: Any, widths: Any, drawing: Any) -> None:
    total = len(its.lives)
    for row in range(len(drawing.lows)):
        memory = drawing.memories[row]
        for number in range(its.map_offsets[memory], its.map_offsets[memory + 1]):
            width, steps = widths[number], its.step_counts[number]
            step = min(steps - 1, int(drawing.begins[row] // width))
            stop = int(np.ceil(drawing.ends[row] / width))
            first, behind = _bins(its, number, drawing.lows[row], drawing.highs[row])
            for bin_number in range(first, behind):
                at = its.bin_offsets[number] + bin_number
                place = 4 * (drawing.queues[row] * total + at) + 2 * drawing.writes[row]
                _paint(its, number, bin_number, its.joined[place], its.joined[place + 1], step, stop)


@compiled(
    (*types_of(Columns), numba.float64[::1], *types_of(int, Ints, Ints, int)),
    allocates=False,
)
def _keep(its: Any, widths: Any, memory: int, lows: Any, highs: Any, ticks: int) -> None:
    for number in range(its.map_offsets[memory], its.map_offsets[memory + 1]):
        size, stop = its.bin_bytes[number], int(np.ceil(ticks / widths[number]))
        for row in range(len(lows)):
            first = max(0, lows[row] // size)
            for bin_number in range(first, min(its.bin_counts[number], -(-highs[row] // size))):
                at = its.bin_offsets[number] + bin_number
                if its.lives[at]:
                    _paint(its, number, bin_number, its.lives[at], its.writers[at], its.drawn[at], stop)
