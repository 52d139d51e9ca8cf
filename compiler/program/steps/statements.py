"""Statements of a group: products of runs whose commands differ in numbers that go up evenly (SCHED-2, PROG-5).

A product of runs (`cells.py`) is asked for at its first tile, at the next ones and the last one along each counter, at
its farthest corner and at some tiles between, and of loops inside a tile at all their times there. The first ones give
base, coefficients and rings of two buffers; the others confirm them. So the work depends on runs, not on tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from typing import Any, Final, NamedTuple

from compiler.program.steps.action import Call, Copy, Numbers, Space
from compiler.program.steps.axis_runs import PERIODS, Run
from compiler.program.steps.cells import Cell, Cells, Product

# At how many tiles between its corners a product of runs is looked at, and how far these lie apart: a prime number.
_LOOKS: Final = 4
_BETWEEN: Final = 7919
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

    `place`: where it stands among what its step does in an iteration. Numbers of a tile are `base`, plus what its rule
    says for the places of its counters in their runs.
    """

    step: int
    place: int
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


def statements_of(cells: Cells) -> list[Statement]:
    """All statements of a group, in the order of its steps."""
    steps, found = cells.steps, list[Statement]()
    for step, is_once in enumerate(steps.once):
        if is_once:
            for place, action in enumerate(steps.at(step, -1)):
                rule = Rule((), (0,) * len(action.numbers))
                found.append(
                    Statement(
                        step=step, place=place, space=None, runs=(), key=action.key, base=action.numbers, rule=rule
                    )
                )
            continue
        for unit in steps.spaces(step):
            for part in _merged(list(_parts(cells, step, unit))):
                at = 0
                for place, key in part.cell.keys:
                    its = slice(at, at + size_of(key))
                    at = its.stop
                    found.append(
                        Statement(
                            step=step,
                            place=place,
                            space=part.space,
                            runs=part.runs,
                            key=key,
                            base=part.cell.numbers[its],
                            rule=_cut_rule(part.rule, its),
                        )
                    )
    return found


def size_of(key: Copy | Call) -> int:
    """How many numbers an action with this key has."""
    return 2 if isinstance(key, Copy) else len(key.lengths) + sum(1 + len(bound.lengths) for bound in key.bound)


def _cut_rule(rule: Rule, its: slice) -> Rule:
    return Rule(tuple(Change(change.up[its], change.turns[its]) for change in rule.changes), rule.other[its])


# --- from products of runs to parts -----------------------------------------------------------------------------------


def _parts(cells: Cells, step: int, unit: int) -> Iterator[_Part]:
    """The parts of one step on one unit."""

    def at(iteration: int) -> Cell:
        return cells.at(step, unit, iteration)

    for found in cells.products(step, unit):
        yield from _whole(at, found)


def _whole(at: CellAt, found: Product) -> Iterator[_Part]:
    """One part, or several where numbers do not go up evenly."""
    space, runs, _ = found
    first = tuple(run.first for run in runs)

    def cell(moves: Mapping[int, int]) -> Cell:
        return at(space.iteration([moves.get(counter, value) for counter, value in enumerate(first)]))

    base = cell({})
    changes = [Change((0,) * len(base.numbers), (False,) * len(base.numbers))] * len(runs)
    other = [0] * len(base.numbers)
    # the longest first: they tell where other buffers lie
    for counter in sorted(range(len(runs)), key=lambda counter: -runs[counter].tiles):
        run = runs[counter]
        if run.tiles == 1:
            continue
        # a whole period, so that what comes in turns is seen
        places = [*range(1, min(run.tiles, PERIODS[-1] + 1)), run.tiles - 1]
        its = [cell({counter: run.values[place]}) for place in places]
        if any(one.keys != base.keys for one in its):
            yield from _split(at, found, counter, [base.keys, *(one.keys for one in its[:-1])])
            return
        if run.tiles > 2:
            change = _change(base.numbers, its[0].numbers, its[1].numbers, other)
        else:
            change = _change_of_two(base.numbers, its[0].numbers, changes, other, cell, runs, counter)
        if change is not None and any(change.turns) and run.step % 2 == 0:
            # by values of a counter it would not be told which buffer is whose
            change = None
        if change is not None:
            changes[counter] = change
            rule = Rule(tuple(changes), tuple(other))
            for place, one in zip(places, its, strict=True):
                if one.numbers != numbers_at(base.numbers, rule, (*(0 for _ in range(counter)), place)):
                    change = None
                    break
        if change is None:
            yield from _split(at, found, counter, [base.numbers, *(one.numbers for one in its[:-1])])
            return
    rule = Rule(tuple(changes), tuple(other))
    corner = cell({counter: run.last for counter, run in enumerate(runs)})
    is_right = corner.keys == base.keys and corner.numbers == numbers_at(
        base.numbers, rule, [run.tiles - 1 for run in runs]
    )
    if not is_right or not _holds_between(at, found, base, rule):
        yield from _split(at, found, max(range(len(runs)), key=lambda counter: runs[counter].tiles), [])
    elif base.keys:
        yield _Part(space, runs, base, rule)


def _holds_between(at: CellAt, found: Product, base: Cell, rule: Rule) -> bool:
    """True if a rule holds at all times of the loops inside the first tile, and at some places between the corners."""
    space, runs, tiles = found
    inside = product(*([0] if number < tiles else range(run.tiles) for number, run in enumerate(runs)))
    between = ([_BETWEEN * (turn + number) % run.tiles for number, run in enumerate(runs)] for turn in range(_LOOKS))
    for places in chain(inside, between if sum(run.tiles > 1 for run in runs[:tiles]) > 1 else ()):
        cell = at(space.iteration([run.values[place] for run, place in zip(runs, places, strict=True)]))
        if cell.keys != base.keys or cell.numbers != numbers_at(base.numbers, rule, places):
            return False
    return True


def _split(at: CellAt, found: Product, counter: int, seen: Sequence[object]) -> Iterator[_Part]:
    """The parts of a product cut along a counter: in phases if its first values (`seen`) take turns, else in halves."""
    run = found.runs[counter]
    cuts: Sequence[Run] = run.halves()
    for period in PERIODS[1:]:
        if period < len(seen) - 1 and all(one == after for one, after in zip(seen, seen[period:], strict=False)):
            cuts = run.phases(period)
            break
    for cut in cuts:
        runs = (*found.runs[:counter], cut, *found.runs[counter + 1 :])
        yield from _whole(at, found._replace(runs=runs))


def _change(begin: Numbers, one: Numbers, two: Numbers, other: list[int]) -> Change | None:
    """How numbers change along a counter, given at its first three values; None where they do not fit.

    `other`: by number how far its other buffer lies; what is found out of that is entered.
    """
    up, turns = [], []
    for number, (a, b, c) in enumerate(zip(begin, one, two, strict=True)):
        step = b - a
        if c - b != step:
            if (c - a) % 2:
                return None
            step = (c - a) // 2
            if other[number] not in (0, b - a - step):
                return None
            other[number] = b - a - step
        up.append(step)
        turns.append(b - a != step)
    return Change(tuple(up), tuple(turns))


def _change_of_two(
    begin: Numbers,
    one: Numbers,
    changes: Sequence[Change],
    other: Sequence[int],
    cell: Callable[[Mapping[int, int]], Cell],
    runs: Sequence[Run],
    counter: int,
) -> Change | None:
    """The same of a counter with two values: whether it changes buffers shows together with another one that does."""
    up, turns = [], []
    for number, (a, b) in enumerate(zip(begin, one, strict=True)):
        step = b - a
        turning = next((at for at, change in enumerate(changes) if change.turns[number]), None)
        if turning is not None:
            both = cell({counter: runs[counter].last, turning: runs[turning].values[1]})
            if len(both.numbers) != len(begin):
                return None
            # where both turn, the second turn takes back the first
            turned = b + changes[turning].up[number] - other[number]
            if both.numbers[number] not in (turned, turned + 2 * other[number]):
                return None
            if both.numbers[number] == turned:
                step -= other[number]
        up.append(step)
        turns.append(b - a != step)
    return Change(tuple(up), tuple(turns))


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
