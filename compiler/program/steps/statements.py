"""Statements of a group: products of runs whose commands differ in numbers that go up evenly (SCHED-2, PROG-5).

A product of runs (`cells.py`) is asked for at its first tile, at the next ones and the last one along each counter, at
its farthest corner and at some tiles between, and of loops inside a tile at all their times there. The first ones give
base, coefficients and rings of two buffers; the others confirm them. So the work depends on runs, not on tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from operator import mul
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.program.steps.action import Call, Copy, Numbers, Space, Steps
from compiler.program.steps.axis_runs import PERIODS, Run
from compiler.program.steps.cells import Cell, Cells, Product

# At how many tiles between its corners a product of runs is looked at, and how far these lie apart: a prime number.
_LOOKS: Final = 4
_BETWEEN: Final = 7919
_Row = NDArray[np.int64]
# The cell of an iteration.
CellAt = Callable[[int], Cell]


class Change(NamedTuple):
    """How numbers change along one counter: what they go up by, and whether each changes to its other buffer."""

    up: Numbers
    turns: tuple[bool, ...]


class Rule(NamedTuple):
    """How the numbers of a product of runs change: along each counter, and by number how far its other buffer lies."""

    changes: tuple[Change, ...]
    other: Numbers


@dataclass(slots=True, kw_only=True, eq=False)
class Statement:
    """A command for all tiles of one unit whose counters lie in `runs`; of space None: once, before the first tile.

    `place`: where it stands among what its step does in an iteration, `rank` among what its engine does of that.
    Numbers of a tile are `base`, plus what its rule says for the places of its counters in their runs.
    """

    step: int
    place: int
    rank: int
    space: Space | None
    runs: tuple[Run, ...]
    key: Copy | Call
    base: Numbers
    rule: Rule

    @property
    def queue(self) -> int:
        """Its engine."""
        return self.key.queue

    @property
    def tiles(self) -> int:
        """For how many tiles it holds."""
        return prod(run.tiles for run in self.runs)


class _Part(NamedTuple):
    """A product of runs, what is done at its first tile, and how the numbers change."""

    space: Space
    runs: tuple[Run, ...]
    cell: Cell
    rule: Rule


def statements_of(cells: Cells) -> Iterator[Statement]:
    """All statements of a group, in the order of its steps."""
    steps = cells.steps
    for step, is_once in enumerate(steps.once):
        if is_once:
            actions = steps.at(step, -1)
            ranks = ranks_in([action.queue for action in actions])
            for place, (rank, action) in enumerate(zip(ranks, actions, strict=True)):
                rule = Rule((), (0,) * len(action.numbers))
                yield Statement(
                    step=step,
                    place=place,
                    rank=rank,
                    space=None,
                    runs=(),
                    key=action.key,
                    base=action.numbers,
                    rule=rule,
                )
            continue
        for _, parts in _parts(cells, step) if steps.works(step) else ():
            for part in _merged(parts):
                at = 0
                ranks = ranks_in([key.queue for _, key in part.cell.keys])
                for rank, (place, key) in zip(ranks, part.cell.keys, strict=True):
                    its = slice(at, at + size_of(key))
                    at = its.stop
                    yield Statement(
                        step=step,
                        place=place,
                        rank=rank,
                        space=part.space,
                        runs=part.runs,
                        key=key,
                        base=part.cell.numbers[its],
                        rule=_cut_rule(part.rule, its),
                    )


def share_of_looks(steps: Steps) -> float:
    """The share of all tiles of units at which they are looked at for their statements, if in all runs a rule holds."""
    looks = tiles = 0
    for axes in {tuple(map(tuple, steps.runs(unit))) for unit in steps.spaces(0)}:
        for runs in product(*axes):
            sizes = [run.tiles for run in runs if run.tiles > 1]
            beside = 1 + _LOOKS if len(sizes) > 1 else 0
            looks += min(prod(sizes), 1 + sum(min(size - 1, PERIODS[-1] + 1) for size in sizes) + beside)
            tiles += prod(sizes)
    return looks / tiles


def ranks_in(queues: Sequence[int]) -> list[int]:
    """Of each the number among those before it that are equal."""
    counts: dict[int, int] = defaultdict(int)
    found = []
    for queue in queues:
        found.append(counts[queue])
        counts[queue] += 1
    return found


def size_of(key: Copy | Call) -> int:
    """How many numbers an action with this key has."""
    return 2 if isinstance(key, Copy) else key.own + sum(1 + len(bound.lengths) for bound in key.bound)


def _cut_rule(rule: Rule, its: slice) -> Rule:
    return Rule(tuple(Change(change.up[its], change.turns[its]) for change in rule.changes), rule.other[its])


# --- from products of runs to parts -----------------------------------------------------------------------------------


class _Arrays(NamedTuple):
    """A rule as arrays: what numbers go up by and whether they change buffers, shapes (counters, numbers)."""

    base: _Row
    ups: _Row
    turns: _Row
    other: _Row

    @classmethod
    def of(cls, base: _Row, counters: int) -> _Arrays:
        """The rule of numbers that stay the same."""
        shape = counters, len(base)
        return cls(base, np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(len(base), np.int64))

    def at(self, places: _Row) -> _Row:
        """The numbers of tiles by the places of their counters in their runs: shape (tiles, numbers)."""
        found: _Row = self.base + places @ self.ups + (places @ self.turns) % 2 * self.other
        return found

    def cut(self, its: slice) -> Rule:
        """The rule of some of the numbers."""
        lines = zip(self.ups[:, its].tolist(), (self.turns[:, its] != 0).tolist(), strict=True)
        return Rule(tuple(Change(tuple(up), tuple(turns)) for up, turns in lines), tuple(self.other[its].tolist()))


class _Cut(NamedTuple):
    """Where no rule holds: along which counter to cut, and what its first values look like."""

    counter: int
    seen: Sequence[object]


def _parts(cells: Cells, step: int) -> Iterator[tuple[int, list[_Part]]]:
    """The parts of one step, unit by unit; units whose counters have the same runs are looked at together."""
    alike: dict[tuple[Product, ...], list[int]] = defaultdict(list)
    units = list(cells.steps.spaces(step))
    for unit in units:
        alike[tuple(cells.products(step, unit))].append(unit)
    found: dict[int, list[_Part]] = {unit: [] for unit in units}
    for products, its in alike.items():
        for one in products:
            together = _rule_of(_joined_at(cells, step, its), one) if len(its) > 1 else None
            if isinstance(together, _Arrays):
                first = 0
                firsts = cells.at(step, its, one.space.iteration([run.first for run in one.runs]))
                for unit, cell in zip(its, firsts, strict=True):
                    if cell.keys:
                        mine = slice(first, first + len(cell.numbers))
                        found[unit].append(_Part(one.space, one.runs, cell, together.cut(mine)))
                        first = mine.stop
            else:
                for unit in its:
                    found[unit] += _whole(_joined_at(cells, step, [unit]), one)
    yield from found.items()


def _joined_at(cells: Cells, step: int, units: Sequence[int]) -> CellAt:
    """What several units do, as one cell: keys by unit."""

    def at(iteration: int) -> Cell:
        its = cells.at(step, units, iteration)
        if len(units) == 1:
            return its[0]
        return Cell(tuple([cell.keys for cell in its]), tuple(chain.from_iterable([cell.numbers for cell in its])))

    return at


def _whole(at: CellAt, found: Product) -> Iterator[_Part]:
    """One part, or several where numbers do not go up evenly."""
    rule = _rule_of(at, found)
    if isinstance(rule, _Cut):
        yield from _split(at, found, rule)
        return
    cell = at(found.space.iteration([run.first for run in found.runs]))
    if cell.keys:
        yield _Part(found.space, found.runs, cell, rule.cut(slice(None)))


def _rule_of(at: CellAt, found: Product) -> _Arrays | _Cut:
    """The rule that holds in a product of runs, or where to cut it."""
    space, runs, _ = found
    origin = space.iteration([run.first for run in runs])
    # by how many iterations neighbouring tiles of a run lie apart
    strides = [run.step * stride for run, stride in zip(runs, space.strides, strict=True)]
    base = at(origin)
    if not base.numbers:
        return _rule_of_nothing(at, found, strides, base)
    numbers = np.array(base.numbers, dtype=np.int64)
    rule = _Arrays.of(numbers, len(runs))
    # the longest first: they tell where other buffers lie
    for counter in sorted(range(len(runs)), key=lambda counter: -runs[counter].tiles):
        run = runs[counter]
        if run.tiles == 1:
            continue
        places = _places(run)
        its = [at(origin + place * strides[counter]) for place in places]
        if any(one.keys != base.keys for one in its):
            return _Cut(counter, [base.keys, *(one.keys for one in its[:-1])])
        rows = np.array([one.numbers for one in its], dtype=np.int64).reshape(len(its), -1)
        if run.tiles > 2:
            is_even = _enter_change(rule, counter, rows)
        else:
            is_even = _enter_change_of_two(rule, counter, rows[0], lambda moves: at(origin + moves), strides, base)
        # by values of a counter it would not be told which buffer is whose
        is_even = is_even and not (run.step % 2 == 0 and rule.turns[counter].any())
        if is_even:
            lines = np.zeros((len(places), len(runs)), dtype=np.int64)
            lines[:, counter] = places
            is_even = np.array_equal(rule.at(lines), rows)
        if not is_even:
            return _Cut(counter, [base.numbers, *(one.numbers for one in its[:-1])])
    looks = _looks(found)
    if looks:
        lines = np.array(looks, dtype=np.int64)
        its = [at(origin + apart) for apart in (lines @ np.array(strides, dtype=np.int64)).tolist()]
        is_right = all(one.keys == base.keys for one in its)
        if not is_right or not np.array_equal(rule.at(lines), np.array([one.numbers for one in its], dtype=np.int64)):
            return _Cut(max(range(len(runs)), key=lambda counter: runs[counter].tiles), [])
    return rule


def _rule_of_nothing(at: CellAt, found: Product, strides: Sequence[int], base: Cell) -> _Arrays | _Cut:
    """The same of a product at whose first tile nothing is done: if nothing is done at others, too, it says nothing."""
    runs, origin = found.runs, found.space.iteration([run.first for run in found.runs])
    for counter in sorted(range(len(runs)), key=lambda counter: -runs[counter].tiles):
        places = _places(runs[counter])
        its = [at(origin + place * strides[counter]) for place in places]
        if any(one.keys != base.keys for one in its):
            return _Cut(counter, [base.keys, *(one.keys for one in its[:-1])])
    for look in _looks(found):
        if at(origin + sum(map(mul, look, strides))).keys != base.keys:
            return _Cut(max(range(len(runs)), key=lambda counter: runs[counter].tiles), [])
    return _Arrays.of(np.zeros(0, np.int64), len(runs))


def _places(run: Run) -> Sequence[int]:
    """The places of a run at which its rule is sought: a whole period, to see what takes turns, and the end."""
    return [*range(1, min(run.tiles, PERIODS[-1] + 1)), run.tiles - 1] if run.tiles > 1 else []


def _looks(found: Product) -> list[tuple[int, ...]]:
    """Where else a rule is looked at: the corner, all times of the first tile's inner loops, some tiles between, and
    where it may be another's turn.
    """
    _, runs, tiles = found
    if sum(run.tiles > 1 for run in runs) < 2:
        return []
    inside = product(*([0] if number < tiles else range(run.tiles) for number, run in enumerate(runs)))
    between = (
        tuple([_BETWEEN * (turn + number) % run.tiles for number, run in enumerate(runs)]) for turn in range(_LOOKS)
    )
    is_grid = sum(run.tiles > 1 for run in runs[:tiles]) > 1
    corner = tuple([run.tiles - 1 for run in runs])
    return list(dict.fromkeys([corner, *inside, *(between if is_grid else ()), *_turns(found)]))


def _turns(found: Product) -> Iterator[tuple[int, ...]]:
    """Times of the loops inside the first tiles along each counter: whose turn it is goes on with tiles and times
    together, so that a turn may come at none of the first tile's times and at the first time of none of the tiles.
    """
    _, runs, tiles = found
    times = [range(min(run.tiles, PERIODS[-1])) for run in runs]
    if any(len(its) > 1 for its in times[tiles:]):
        for counter, its in enumerate(times[:tiles]):
            if len(its) > 1:
                alone = (range(1) if number != counter else its for number in range(tiles))
                yield from product(*alone, *times[tiles:])


def _split(at: CellAt, found: Product, cut: _Cut) -> Iterator[_Part]:
    """The parts of a product cut along a counter: in phases if its first values take turns, else in halves."""
    counter, seen = cut
    run = found.runs[counter]
    cuts: Sequence[Run] = run.halves()
    for period in PERIODS[1:]:
        if period < len(seen) - 1 and all(one == after for one, after in zip(seen, seen[period:], strict=False)):
            cuts = run.phases(period)
            break
    for its in cuts:
        runs = (*found.runs[:counter], its, *found.runs[counter + 1 :])
        yield from _whole(at, found._replace(runs=runs))


def _enter_change(rule: _Arrays, counter: int, rows: _Row) -> bool:
    """Enter how numbers change along a counter, given at its second and third value; False where they do not fit.

    What is found out of where other buffers lie is entered too.
    """
    one, two = rows[0] - rule.base, rows[1] - rule.base
    turns = two != 2 * one
    rule.ups[counter] = np.where(turns, two // 2, one)
    away = one - rule.ups[counter]
    if (turns & ((two % 2 != 0) | ((rule.other != 0) & (rule.other != away)))).any():
        return False
    rule.turns[counter] = turns
    rule.other[turns] = away[turns]
    return True


def _enter_change_of_two(
    rule: _Arrays, counter: int, row: _Row, cell: CellAt, strides: Sequence[int], base: Cell
) -> bool:
    """The same of a counter with two values: whether it changes buffers shows together with another one that does.

    `cell`: by iterations from the first tile.
    """
    up = row - rule.base
    open_ = np.ones(len(row), dtype=bool)
    for turning in range(len(strides)):
        its = open_ & (rule.turns[turning] != 0)
        if not its.any():
            continue
        both = cell(strides[counter] + strides[turning])
        if both.keys != base.keys:
            return False
        # where both turn, the second turn takes back the first
        far, turned = np.array(both.numbers, dtype=np.int64), row + rule.ups[turning] - rule.other
        takes_back = far == turned
        if (its & ~takes_back & (far != turned + 2 * rule.other)).any():
            return False
        changing = its & takes_back
        up[changing] -= rule.other[changing]
        rule.turns[counter][changing] = 1
        open_ &= ~its
    rule.ups[counter] = up
    return True


def numbers_at(base: Numbers, rule: Rule, places: Sequence[int]) -> Numbers:
    """Numbers of a tile by the places of its counters in their runs; counters that are left out are at their first."""
    found = list(base)
    flips = [0] * len(base)
    for place, change in zip(places, rule.changes, strict=False):
        if place:
            for number, up in enumerate(change.up):
                found[number] += place * up
                flips[number] += place * change.turns[number]
    return tuple(value + flip % 2 * other for value, flip, other in zip(found, flips, rule.other, strict=True))


# --- neighbouring parts as one ----------------------------------------------------------------------------------------


def _merged(parts: list[_Part]) -> list[_Part]:
    """Neighbouring products of runs put together where the numbers of one go on in the other."""
    for counter in range(max((len(part.runs) for part in parts), default=0)):
        alike: dict[Any, list[_Part]] = defaultdict(list)
        for part in parts:
            alike[part.space, part.runs[:counter], part.runs[counter + 1 :], part.cell.keys].append(part)
        parts = []
        for its in alike.values():
            its.sort(key=lambda part: part.runs[counter : counter + 1])
            kept: list[_Part] = []
            for part in its:
                joined = _joined(kept[-1], part, counter) if kept and counter < len(part.runs) else None
                if joined is None:
                    kept.append(part)
                else:
                    kept[-1] = joined
            parts += kept
    return parts


def _joined(one: _Part, other: _Part, counter: int) -> _Part | None:
    mine, its = one.runs[counter], other.runs[counter]
    step = mine.step if mine.tiles > 1 else its.first - mine.first
    follows = its.first == mine.first + step * mine.tiles and (its.tiles == 1 or its.step == step)
    if not follows or step > PERIODS[-1]:
        return None
    changes = list(one.rule.changes)
    if any(a != b for at, (a, b) in enumerate(zip(changes, other.rule.changes, strict=True)) if at != counter):
        return None
    if mine.tiles == 1:
        if its.tiles > 1:
            changes[counter] = other.rule.changes[counter]
        else:
            up = tuple(b - a for a, b in zip(one.cell.numbers, other.cell.numbers, strict=True))
            changes[counter] = Change(up, (False,) * len(up))
    elif its.tiles > 1 and other.rule.changes[counter] != changes[counter]:
        return None
    # in the other part buffers are counted from its own first tile
    flips = [mine.tiles * turns % 2 for turns in changes[counter].turns]
    seen = [-b if flip else b for flip, b in zip(flips, other.rule.other, strict=True)]
    distances = [a if a else b for a, b in zip(one.rule.other, seen, strict=True)]
    if any(b and b != d for b, d in zip(seen, distances, strict=True)):
        return None
    rule = Rule(tuple(changes), tuple(distances))
    if other.cell.numbers != numbers_at(one.cell.numbers, rule, [0] * counter + [mine.tiles]):
        return None
    run = Run(mine.first, step, mine.tiles + its.tiles)
    return _Part(one.space, (*one.runs[:counter], run, *one.runs[counter + 1 :]), one.cell, rule)
