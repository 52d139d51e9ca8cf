"""What steps do on one unit's engines at given counters, and in which runs of counters that may be alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import chain, product
from typing import Any, Final, NamedTuple

import numpy as np

from compiler.program.iteration import PERIOD_MAX
from compiler.program.steps.action import Inner, Numbers, Space, Steps
from compiler.program.steps.axis_runs import Columns, Run, runs_of


class Cell(NamedTuple):
    """What is done at one place: by action its place among all of the step's, and its key; and all their numbers."""

    keys: tuple[Any, ...]
    numbers: Numbers


class Product(NamedTuple):
    """Runs of all counters of a space, those of tiles and of loops inside them, in which a step may do the same.

    `tiles`: how many of the counters are those of tiles.
    """

    space: Space
    runs: tuple[Run, ...]
    tiles: int


class _Loops(NamedTuple):
    """A product of runs of tiles, the tile that goes through its inner loops most often, and how often it does."""

    outer: tuple[Run, ...]
    first: Numbers
    inside: Sequence[Inner]


_NOTHING: Final = Cell((), ())


class Cells:
    """The cells of a group, and in which runs of counters they may be alike; each is asked for once."""

    def __init__(self, steps: Steps) -> None:
        """`steps`: the group's."""
        self.steps = steps
        self._known: dict[tuple[int, int], dict[int, Cell]] = {}
        self._flat: dict[tuple[Space, tuple[tuple[Run, ...], ...]], list[Product]] = {}
        self._loops: dict[tuple[int, Space, tuple[tuple[Run, ...], ...]], list[_Loops]] = {}
        self._products: dict[tuple[int, int], list[Product]] = {}

    def at(self, step: int, units: Sequence[int], iteration: int) -> list[Cell]:
        """What a step does in an iteration on the engines of some units."""
        found = self._known.get((step, iteration))
        if found is None:
            found = self._known[step, iteration] = self._new_cells(step, iteration)
        return [found.get(unit, _NOTHING) for unit in units] if found else [_NOTHING] * len(units)

    def _new_cells(self, step: int, iteration: int) -> dict[int, Cell]:
        actions = self.steps.at(step, iteration)
        if not actions:
            return {}
        keys: dict[int, list[Any]] = defaultdict(list)
        numbers: dict[int, list[Numbers]] = defaultdict(list)
        unit_of = self.steps.unit_of
        for place, (key, its) in enumerate(actions):
            mine = unit_of(key.queue)
            keys[mine].append((place, key))
            numbers[mine].append(its)
        return {
            number: Cell(tuple(its_keys), tuple(chain.from_iterable(numbers[number])))
            for number, its_keys in keys.items()
        }

    def products(self, step: int, unit: int) -> list[Product]:
        """All products of runs of a step on a unit, those included in which nothing is done."""
        found = self._products.get((step, unit))
        if found is None:
            found = self._products[step, unit] = self._new_products(step, unit)
        return found

    def _new_products(self, step: int, unit: int) -> list[Product]:
        tiles, found = self.steps.spaces(step)[unit], []
        axes = tuple(map(tuple, self.steps.runs(unit)))
        if not self.steps.inner(step, unit, tuple([runs[0].first for runs in axes])):
            # without loops inside a tile nothing has to be asked, and units with the same runs share them
            flat = self._flat.get((tiles, axes))
            if flat is None:
                flat = self._flat[tiles, axes] = [Product(tiles, outer, len(outer)) for outer in product(*axes)]
            return flat
        loops = self._loops.get((step, tiles, axes))
        if loops is None:
            loops = self._loops[step, tiles, axes] = [
                _Loops(outer, first, inside)
                for outer in product(*axes)
                for first, inside in [self._most(step, unit, outer)]
                if all(inner.times for inner in inside)
            ]
        for outer, first, inside in loops:
            counts, strides, runs = list(tiles.counts), list(tiles.strides), [[run] for run in outer]
            for inner in inside:
                begin = tiles.iteration(first)
                its = [self.at(step, (unit,), begin + number * inner.stride)[0] for number in range(inner.times)]
                for count, stride, its_runs in _inner_runs(its, inner.stride):
                    counts.append(count)
                    strides.append(stride)
                    runs.append(its_runs)
            space = Space(tuple(counts), tuple(strides), tiles.base)
            found += [Product(space, its, len(outer)) for its in product(*runs)]
        return found

    def _most(self, step: int, unit: int, outer: Sequence[Run]) -> tuple[Numbers, Sequence[Inner]]:
        """Of some tiles of a product the one that goes through its inner loops most often, and how often.

        Where others go through them less often they do nothing in the rest.
        """
        ends = [[*run.values[:PERIOD_MAX], *([run.last] if run.tiles > PERIOD_MAX else [])] for run in outer]
        first = tuple(its[0] for its in ends)
        best, most = first, self.steps.inner(step, unit, first)
        others = [(*first[:at], value, *first[at + 1 :]) for at, its in enumerate(ends) for value in its[1:]]
        for counters in dict.fromkeys([*others, tuple(its[-1] for its in ends)]):
            inside = self.steps.inner(step, unit, counters)
            if any(its.times > known.times for its, known in zip(inside, most, strict=True)):
                if all(its.times >= known.times for its, known in zip(inside, most, strict=True)):
                    best = counters
                most = [its if its.times > known.times else known for its, known in zip(inside, most, strict=True)]
        return best, most


def _inner_runs(cells: Sequence[Cell], stride: int) -> list[tuple[int, int, list[Run]]]:
    """The runs of a loop with these cells: as one counter, or as rows and what is in them."""
    count = len(cells)
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
    """True if in each product of runs of rows, and of what is in them, the same is done with numbers that add up.

    Numbers of two buffers in turn add up but where both counters are odd.
    """
    for row, column in product(rows, inside):
        its = [[cells[r * width + c] for c in column.values] for r in row.values]
        if any(cell.keys != its[0][0].keys for line in its for cell in line):
            return False
        numbers = np.array([[cell.numbers for cell in line] for line in its], dtype=np.int64)
        rest = numbers - numbers[:1] - numbers[:, :1] + numbers[:1, :1]
        is_odd = np.outer(np.arange(len(its)) % 2, np.arange(len(its[0])) % 2)[:, :, None] == 1
        if (rest != np.where(is_odd, rest[1:2, 1:2], 0) if is_odd.any() else rest).any():
            return False
    return True


def _runs(cells: Sequence[Cell]) -> list[Run]:
    """The runs of cells that follow one another."""
    if len(cells) == 1:
        return [Run(0, 1, 1)]
    if not any(cell.keys for cell in cells):
        return [Run(0, 1, len(cells))]
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
