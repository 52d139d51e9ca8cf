"""Statements of a group: products of runs whose commands differ in numbers that go up evenly (SCHED-2, PROG-5).

The values of each counter are cut into runs (`axis_runs.py`). A product of runs is asked for at its first tile, at the
next one and the last one along each counter, and at its farthest corner: the first two give base and coefficients, the
others confirm them. So the work depends on runs, not on tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

from compiler.program.steps.action import Call, Copy, Numbers, Space, Steps
from compiler.program.steps.axis_runs import PERIODS, Run, runs_of


@dataclass(slots=True, kw_only=True, eq=False)
class Statement:
    """A command for all tiles of one unit whose counters lie in `runs`; of unit None: once, before the first tile.

    `place`: where it stands among what its step does in a round. Numbers of a tile are `base` plus a coefficient for
    each place in a run; `coefficients` are by counter.
    """

    step: int
    place: int
    unit: int | None
    runs: tuple[Run, ...]
    key: Copy | Call
    base: Numbers
    coefficients: tuple[Numbers, ...]

    @property
    def queue(self) -> int:
        """Its engine."""
        return self.key.queue

    @property
    def tiles(self) -> int:
        """For how many tiles it holds."""
        found = 1
        for run in self.runs:
            found *= run.tiles
        return found


class _Cell(NamedTuple):
    """What one unit's engines do for a tile: places and keys of all its actions, and all their numbers."""

    keys: tuple[tuple[int, Copy | Call], ...]
    numbers: Numbers


class _Part(NamedTuple):
    """A product of runs, what is done at its first tile, and by counter how the numbers change."""

    runs: tuple[Run, ...]
    cell: _Cell
    coefficients: tuple[Numbers, ...]


def statements_of(steps: Steps) -> list[Statement]:
    """All statements of a group, in the order of its steps."""
    found: list[Statement] = []
    for step, is_once in enumerate(steps.once):
        if is_once:
            for place, action in enumerate(steps.at(step, -1)):
                found.append(_statement(step, place, None, (), action.key, action.numbers, ()))
            continue
        for unit, space in steps.spaces(step).items():
            for part in _merged(_Prober(steps, step, unit, space).parts()):
                at = 0
                for place, key in part.cell.keys:
                    its = slice(at, at + size_of(key))
                    at = its.stop
                    changes = tuple(change[its] for change in part.coefficients)
                    found.append(_statement(step, place, unit, part.runs, key, part.cell.numbers[its], changes))
    return found


def _statement(step: int, place: int, unit: int | None, runs: Any, key: Any, base: Numbers, changes: Any) -> Statement:
    return Statement(step=step, place=place, unit=unit, runs=runs, key=key, base=base, coefficients=changes)


def size_of(key: Copy | Call) -> int:
    """How many numbers an action with this key has."""
    return 2 if isinstance(key, Copy) else len(key.lengths) + sum(1 + len(bound.lengths) for bound in key.bound)


class _Prober:
    """Asks for what one step does on one unit's engines."""

    def __init__(self, steps: Steps, step: int, unit: int, space: Space) -> None:
        self._steps, self._step, self._unit, self._space = steps, step, unit, space
        self._cells: dict[Numbers, _Cell] = {}

    def _cell(self, counters: Numbers) -> _Cell:
        found = self._cells.get(counters)
        if found is None:
            steps = self._steps
            its = [
                (place, action)
                for place, action in enumerate(steps.at(self._step, self._space.iteration(counters)))
                if steps.unit_of(action.queue) == self._unit
            ]
            numbers = tuple(number for _, action in its for number in action.numbers)
            found = self._cells[counters] = _Cell(tuple((place, action.key) for place, action in its), numbers)
        return found

    def parts(self) -> list[_Part]:
        """Products of runs in which something is done."""
        runs = [runs_of(columns) for columns in self._steps.columns(self._step, self._unit)]
        return [part for found in product(*runs) for part in self._whole(found)]

    def _whole(self, runs: tuple[Run, ...]) -> Iterator[_Part]:
        first = tuple(run.first for run in runs)
        base = self._cell(first)
        coefficients = []
        for axis, run in enumerate(runs):
            change: Numbers = (0,) * len(base.numbers)
            if run.tiles > 1:
                other = self._cell((*first[:axis], run.first + run.step, *first[axis + 1 :]))
                end = self._cell((*first[:axis], run.last, *first[axis + 1 :]))
                if not other.keys == base.keys == end.keys:
                    yield from self._cut(runs, axis)
                    return
                change = _difference(base, other)
                if end.numbers != _after(base.numbers, change, run.tiles - 1):
                    yield from self._cut(runs, axis)
                    return
            coefficients.append(change)
        corner, expected = self._cell(tuple(run.last for run in runs)), base.numbers
        for run, change in zip(runs, coefficients, strict=True):
            expected = _after(expected, change, run.tiles - 1)
        if corner.keys != base.keys or corner.numbers != expected:
            yield from self._cut(runs, max(range(len(runs)), key=lambda axis: runs[axis].tiles))
        elif base.keys:
            yield _Part(runs, base, tuple(coefficients))

    def _cut(self, runs: tuple[Run, ...], axis: int) -> Iterator[_Part]:
        """Halve a product in which numbers do not go up evenly along a counter."""
        for half in runs[axis].halves():
            yield from self._whole((*runs[:axis], half, *runs[axis + 1 :]))


def _after(numbers: Numbers, change: Numbers, tiles: int) -> Numbers:
    """Numbers so many tiles later."""
    return tuple(value + tiles * c for value, c in zip(numbers, change, strict=True))


def _difference(one: _Cell, other: _Cell) -> Numbers:
    return tuple(b - a for a, b in zip(one.numbers, other.numbers, strict=True))


def _merged(parts: list[_Part]) -> list[_Part]:
    """Neighbouring products of runs put together where the numbers of one go on in the other."""
    for axis in range(len(parts[0].runs) if parts else 0):
        alike: dict[Any, list[_Part]] = defaultdict(list)
        for part in parts:
            alike[part.runs[:axis], part.runs[axis + 1 :], part.cell.keys].append(part)
        parts = []
        for its in alike.values():
            its.sort(key=lambda part: part.runs[axis])
            kept: list[_Part] = []
            for part in its:
                joined = _joined(kept[-1], part, axis) if kept else None
                if joined is None:
                    kept.append(part)
                else:
                    kept[-1] = joined
            parts += kept
    return parts


def _joined(one: _Part, other: _Part, axis: int) -> _Part | None:
    mine, its = one.runs[axis], other.runs[axis]
    step = mine.step if mine.tiles > 1 else its.first - mine.first
    follows = its.first == mine.first + step * mine.tiles and (its.tiles == 1 or its.step == step)
    if not follows or step > PERIODS[-1]:
        return None
    changes = zip(one.coefficients, other.coefficients, strict=True)
    if any(a != b for at, (a, b) in enumerate(changes) if at != axis):
        return None
    change = one.coefficients[axis] if mine.tiles > 1 else _difference(one.cell, other.cell)
    if its.tiles > 1 and other.coefficients[axis] != change:
        return None
    pairs = zip(one.cell.numbers, other.cell.numbers, change, strict=True)
    if any(b != a + mine.tiles * c for a, b, c in pairs):
        return None
    runs = (*one.runs[:axis], Run(mine.first, step, mine.tiles + its.tiles), *one.runs[axis + 1 :])
    return _Part(runs, one.cell, (*one.coefficients[:axis], change, *one.coefficients[axis + 1 :]))
