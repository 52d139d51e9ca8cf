"""Statements: commands that hold for an interval of every counter, and how one group becomes them (SCHED-2, PROG-5).

A family's actions are looked at along each axis of the walk at a few places of the others. Where neighbouring tiles do
the same with numbers that go up evenly, they are a run; the products of runs are statements, whose coefficients two
tiles give and whose far corner proves. So the work depends on the runs and the axes' lengths, not on the tiles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from tests.spike.actions import Action, Family, FlatActions, Unit

# The iteration of waits for what is done once, before all tiles.
ENTRY: Final = -(1 << 40)
# The longest period of a run: more is listed tile by tile (SCHED-2).
PERIODS: Final = (1, 2, 3, 4)


class Run(NamedTuple):
    """Values of a counter: first, first + step, ..., `tiles` of them."""

    first: int
    step: int
    tiles: int

    def place(self, value: int) -> int:
        """Which one a value is; -1 for none."""
        number, rest = divmod(value - self.first, self.step)
        return -1 if rest or not 0 <= number < self.tiles else number


class Position(NamedTuple):
    """Where in an engine's loop a command stands: its iteration, its order there, its place in its family."""

    iteration: int
    order: int
    place: int


class Wait(NamedTuple):
    """That an engine has gone past a position, whose iteration counts from the tile's round."""

    queue: int
    position: Position


@dataclass(slots=True, kw_only=True, eq=False)
class Statement:
    """A command for all tiles of one core whose counters lie in `runs`; `unit` None: once, before the first tile.

    `stage`: how many iterations ahead of its tile it runs. Numbers of a tile are `base` plus a coefficient for each
    place in a run.
    """

    queue: int
    family: int
    unit: Unit | None
    runs: tuple[Run, ...]
    key: tuple[Any, ...]
    base: tuple[int, ...]
    coefficients: tuple[tuple[int, ...], ...]
    place: int
    stage: int = 0
    order: int = 0
    waits: tuple[Wait, ...] = ()

    def numbers(self, local: Sequence[int]) -> tuple[int, ...] | None:
        """Addresses and positions at a tile, double buffers included; None where it does not hold."""
        values = list(self.base)
        for run, coefficients, value in zip(self.runs, self.coefficients, local, strict=True):
            number = run.place(value)
            if number < 0:
                return None
            if number:
                values = [v + number * c for v, c in zip(values, coefficients, strict=True)]
        return tuple(with_rings(self.key, values, local))

    @property
    def tiles(self) -> int:
        """For how many tiles it holds."""
        found = 1
        for run in self.runs:
            found *= run.tiles
        return found


def with_rings(key: tuple[Any, ...], numbers: Sequence[int], local: Sequence[int]) -> list[int]:
    """Numbers with the offset of the second buffer where a counter chooses it."""
    found = list(numbers)
    if key[0] == "copy":
        for at, ring in enumerate(key[-2:]):
            found[at] += _offset(ring, local)
        return found
    at = len(key[5])
    for _, _, sides, _, ring in key[-1]:
        found[at] += _offset(ring, local)
        at += 1 + len(sides)
    return found


def _offset(ring: Any, local: Sequence[int]) -> int:
    if ring is None:
        return 0
    delta, coefficients, base = ring
    turn = base + sum(c * i for c, i in zip(coefficients, local, strict=True))
    return int(delta * (turn % 2))


@dataclass(slots=True, kw_only=True, eq=False)
class Looped:
    """A group's statements, and the iterations from the first to one past the last.

    What is done once is done at the begin of iteration `entry`. No wait looks back more than `reach`
    iterations. `listed`: products of runs that had to be cut tile by
    tile.
    """

    actions: FlatActions
    statements: list[Statement]
    iterations: range
    listed: int
    entry: int = 0
    reach: int = 0

    def by_queue(self) -> dict[int, list[Statement]]:
        """The statements of each engine in the order of an iteration."""
        found: dict[int, list[Statement]] = defaultdict(list)
        for statement in sorted(self.statements, key=lambda s: (s.order, s.place)):
            found[statement.queue].append(statement)
        return dict(sorted(found.items()))

    def instances(self, statement: Statement) -> Iterator[tuple[Position, tuple[int, ...]]]:
        """The positions and counters at which a statement runs."""
        unit = statement.unit
        if unit is None:
            yield Position(self.entry, statement.order, statement.place), ()
            return
        for local in product(*(range(r.first, r.first + r.step * r.tiles, r.step) for r in statement.runs)):
            number = unit.lag + unit.number(local) - statement.stage
            yield Position(number, statement.order, statement.place), local


# --- from families to statements --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cell:
    """What one core does for a tile: keys and numbers of all its actions, and their places in the family's."""

    keys: tuple[Any, ...]
    numbers: tuple[int, ...]


class _Prober:
    """Finds the runs of one family on one core."""

    def __init__(self, actions: FlatActions, family: Family, number: int) -> None:
        self._actions, self._family = actions, family
        self.unit = actions.units[number]
        self._mine = {q for q, queue in enumerate(actions.lowering.machine.queues) if queue.number == number}
        self._cells: dict[tuple[int, ...], _Cell] = {}
        self.listed = 0

    def actions_at(self, local: Sequence[int]) -> list[tuple[int, Action]]:
        """The core's actions at a tile, with their places."""
        number = self.unit.lag + self.unit.number(local)
        found = self._actions.at(self._family, number)
        return [(place, action) for place, action in enumerate(found) if action.queue in self._mine]

    def _cell(self, local: tuple[int, ...]) -> _Cell:
        found = self._cells.get(local)
        if found is None:
            its = self.actions_at(local)
            keys = tuple((place, action.key) for place, action in its)
            found = self._cells[local] = _Cell(keys, tuple(n for _, action in its for n in action.numbers))
        return found

    def cells(self) -> Iterator[tuple[tuple[Run, ...], _Cell, tuple[tuple[int, ...], ...]]]:
        """Products of runs with what is done at their first tile, and the coefficients of its numbers."""
        runs = [self._runs(axis) for axis in range(len(self.unit.counts))]
        for found in product(*runs):
            yield from self._whole(found)

    def _whole(self, runs: tuple[Run, ...]) -> Iterator[tuple[tuple[Run, ...], _Cell, tuple[tuple[int, ...], ...]]]:
        first = tuple(run.first for run in runs)
        base = self._cell(first)
        coefficients = []
        for axis, run in enumerate(runs):
            change = (0,) * len(base.numbers)
            if run.tiles > 1:
                other = self._cell((*first[:axis], run.first + run.step, *first[axis + 1 :]))
                if other.keys != base.keys:
                    yield from self._listed(runs)
                    return
                change = _difference(base, other)
            coefficients.append(change)
        corner = self._cell(tuple(run.first + run.step * (run.tiles - 1) for run in runs))
        expected = list(base.numbers)
        for run, change in zip(runs, coefficients, strict=True):
            expected = [value + (run.tiles - 1) * c for value, c in zip(expected, change, strict=True)]
        if corner.keys != base.keys or corner.numbers != tuple(expected):
            yield from self._listed(runs)
        elif base.keys:
            yield runs, base, tuple(coefficients)

    def _listed(self, runs: tuple[Run, ...]) -> Iterator[tuple[tuple[Run, ...], _Cell, tuple[tuple[int, ...], ...]]]:
        """Cut a product in which the numbers do not go up evenly along the first axis that has several values."""
        axis = next(axis for axis, run in enumerate(runs) if run.tiles > 1)
        self.listed += 1
        for value in range(runs[axis].tiles):
            its = Run(runs[axis].first + value * runs[axis].step, 1, 1)
            yield from self._whole((*runs[:axis], its, *runs[axis + 1 :]))

    def _runs(self, axis: int) -> list[Run]:
        """The runs along one axis: those of the period that needs fewest."""
        count = self.unit.counts[axis]
        places = [sorted({0, min(1, n - 1), n - 1}) for at, n in enumerate(self.unit.counts) if at != axis]
        lines = [
            [self._cell((*others[:axis], value, *others[axis:])) for value in range(count)]
            for others in product(*places)
        ]
        found = [_with_period(lines, count, period) for period in PERIODS if period == 1 or count > period]
        return min(found, key=len)


def _difference(one: _Cell, other: _Cell) -> tuple[int, ...]:
    return tuple(b - a for a, b in zip(one.numbers, other.numbers, strict=True))


def _with_period(lines: list[list[_Cell]], count: int, period: int) -> list[Run]:
    found = []
    for phase in range(min(period, count)):
        first = phase
        while first < count:
            last, change = first, None
            while last + period < count:
                pairs = [(line[last], line[last + period]) for line in lines]
                if any(a.keys != b.keys for a, b in pairs):
                    break
                changes = [_difference(a, b) for a, b in pairs]
                if change is not None and changes != change:
                    break
                change, last = changes, last + period
            found.append(Run(first, period if last > first else 1, (last - first) // period + 1))
            first = last + period
    return sorted(found)


def statements_of(actions: FlatActions) -> Looped:
    """All statements of a group, in the order of their families and without waits."""
    statements: list[Statement] = []
    listed = 0
    for family in actions.families:
        if family.before:
            for place, action in enumerate(actions.at(family, -1)):
                statements.append(
                    Statement(
                        queue=action.queue,
                        family=family.number,
                        unit=None,
                        runs=(),
                        key=action.key,
                        base=action.numbers,
                        coefficients=(),
                        place=place,
                    )
                )
            continue
        for number in actions.units:
            prober = _Prober(actions, family, number)
            for runs, cell, coefficients in _merged(list(prober.cells())):
                at = 0
                for place, key in cell.keys:
                    size = 2 if key[0] == "copy" else len(key[5]) + sum(1 + len(b[2]) for b in key[-1])
                    part = slice(at, at + size)
                    at += size
                    statements.append(
                        Statement(
                            queue=key[2],
                            family=family.number,
                            unit=prober.unit,
                            runs=runs,
                            key=key,
                            base=cell.numbers[part],
                            coefficients=tuple(change[part] for change in coefficients),
                            place=place,
                        )
                    )
            listed += prober.listed
    return Looped(actions=actions, statements=statements, iterations=range(len(actions.rounds)), listed=listed)


_Part = tuple[tuple[Run, ...], _Cell, tuple[tuple[int, ...], ...]]


def _merged(cells: list[_Part]) -> list[_Part]:
    """Neighbouring products of runs put together where the numbers of one go on in the other."""
    for axis in range(len(cells[0][0]) if cells else 0):
        groups: dict[Any, list[_Part]] = defaultdict(list)
        for cell in cells:
            groups[cell[0][:axis], cell[0][axis + 1 :], cell[1].keys].append(cell)
        cells = []
        for found in groups.values():
            found.sort(key=lambda cell, axis=axis: cell[0][axis])  # type: ignore[misc]
            kept: list[_Part] = []
            for cell in found:
                joined = _joined(kept[-1], cell, axis) if kept else None
                if joined is None:
                    kept.append(cell)
                else:
                    kept[-1] = joined
            cells += kept
    return cells


def _joined(one: _Part, other: _Part, axis: int) -> _Part | None:
    (runs, base, coefficients), (others, after, changes) = one, other
    mine, its = runs[axis], others[axis]
    step = mine.step if mine.tiles > 1 else its.first - mine.first
    if its.first != mine.first + step * mine.tiles or (its.tiles > 1 and its.step != step) or step > PERIODS[-1]:
        return None
    if any(a != b for at, (a, b) in enumerate(zip(coefficients, changes, strict=True)) if at != axis):
        return None
    change = coefficients[axis] if mine.tiles > 1 else _difference(base, after)
    if its.tiles > 1 and changes[axis] != change:
        return None
    if any(b != a + mine.tiles * c for a, b, c in zip(base.numbers, after.numbers, change, strict=True)):
        return None
    run = Run(mine.first, step, mine.tiles + its.tiles)
    return (*runs[:axis], run, *runs[axis + 1 :]), base, (*coefficients[:axis], change, *coefficients[axis + 1 :])


def over_cores(found: Looped) -> int:
    """How many statements there are if equal ones of neighbouring cores are one, with the core as a counter."""
    machine = found.actions.lowering.machine
    groups: dict[Any, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for statement in found.statements:
        queue, key = machine.queues[statement.queue], list(statement.key)
        key[2] = queue.engine
        if key[0] == "copy":
            key[4:6] = [place and place - queue.number for place in key[4:6]]
        else:
            key[-1] = tuple((o, place - queue.number, *rest) for o, place, *rest in key[-1])
        groups[statement.family, statement.runs, tuple(key), statement.coefficients].append(
            (queue.number, statement.base)
        )
    count = 0
    for its in groups.values():
        last: tuple[int, tuple[int, ...]] | None = None
        change: tuple[int, ...] | None = None
        for core, base in sorted(its):
            step = None if last is None else tuple(b - a for a, b in zip(last[1], base, strict=True))
            if last is None or core != last[0] + 1 or (change is not None and step != change):
                count, change = count + 1, None
            else:
                change = step
            last = core, base
    return count
