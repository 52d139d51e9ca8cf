"""What a step does on one unit's engines at given counters, and in which runs of counters it may be alike."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from compiler.program.steps.action import Call, Columns, Copy, Numbers, Space, Steps
from compiler.program.steps.axis_runs import Run, runs_of


class Cell(NamedTuple):
    """What is done at one place: by action its place among all of the step's, and its key; and all their numbers."""

    keys: tuple[tuple[int, Copy | Call], ...]
    numbers: Numbers


class Product(NamedTuple):
    """Runs of all counters of a space, those of tiles and of loops inside them, in which a step may do the same."""

    space: Space
    runs: tuple[Run, ...]


class Cells:
    """The cells of one step on one unit."""

    def __init__(self, steps: Steps, step: int, unit: int) -> None:
        self._steps, self._step, self._unit = steps, step, unit
        self._tiles = steps.spaces(step)[unit]
        self._known: dict[int, Cell] = {}

    def at(self, iteration: int) -> Cell:
        """The cell of an iteration."""
        found = self._known.get(iteration)
        if found is None:
            steps = self._steps
            its = [
                (place, action)
                for place, action in enumerate(steps.at(self._step, iteration))
                if steps.unit_of(action.queue) == self._unit
            ]
            numbers = tuple(number for _, action in its for number in action.numbers)
            found = self._known[iteration] = Cell(tuple((place, action.key) for place, action in its), numbers)
        return found

    def products(self) -> list[Product]:
        """All products of runs, those included in which nothing is done."""
        tiles = self._tiles
        found = []
        for outer in product(*(runs_of(columns) for columns in self._steps.columns(self._step, self._unit))):
            first = tuple(run.first for run in outer)
            counts, strides, runs = list(tiles.counts), list(tiles.strides), [[run] for run in outer]
            inside = self._steps.inner(self._step, self._unit, first)
            if any(inner.times == 0 for inner in inside):
                continue
            for inner in inside:
                for count, stride, its in self._inner_runs(tiles.iteration(first), inner.times, inner.stride):
                    counts.append(count)
                    strides.append(stride)
                    runs.append(its)
            space = Space(tuple(counts), tuple(strides), tiles.base)
            found += [Product(space, its) for its in product(*runs)]
        return found

    def _inner_runs(self, begin: int, count: int, stride: int) -> list[tuple[int, int, list[Run]]]:
        """The runs of a loop that begins at an iteration: as one counter, or as rows and what is in them."""
        cells = [self.at(begin + number * stride) for number in range(count)]
        best = [(count, stride, _runs(cells))]
        cost = len(best[0][2])
        for width in range(2, count // 2 + 1):
            if count % width == 0 and cost > 1:
                rows, inside = _runs(cells[::width]), _runs(cells[:width])
                if len(rows) * len(inside) < cost and _is_alike(cells, width, rows, inside):
                    cost = len(rows) * len(inside)
                    best = [(count // width, width * stride, rows), (width, stride, inside)]
        return best


def _is_alike(cells: Sequence[Cell], width: int, rows: Sequence[Run], inside: Sequence[Run]) -> bool:
    """True if in each product of runs of rows, and of what is in them, the same is done."""
    for row, column in product(rows, inside):
        keys = cells[row.first * width + column.first].keys
        if any(cells[r * width + c].keys != keys for r in row.values for c in column.values):
            return False
    return True


def _runs(cells: Sequence[Cell]) -> list[Run]:
    """The runs of cells that follow one another."""
    kinds: dict[object, int] = {}
    same = np.array([kinds.setdefault(cell.keys, len(kinds)) for cell in cells], dtype=np.int64).reshape(-1, 1)
    width = max(len(cell.numbers) for cell in cells)
    numbers = np.zeros((len(cells), width), dtype=np.int64)
    for row, cell in zip(numbers, cells, strict=True):
        row[: len(cell.numbers)] = cell.numbers
    # of neighbours together, so that two buffers in turn go up evenly
    even = numbers.copy()
    even[:-1] += numbers[1:]
    if len(cells) > 1:
        even[-1] = 2 * even[-2] - even[-3] if len(cells) > 2 else even[0]
    return runs_of(Columns(even=even, same=same))
