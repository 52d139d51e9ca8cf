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

# The longest period of a run: more is listed tile by tile (SCHED-2).
PERIODS: Final = (1, 2, 3, 4)
# Rounds looked at for the distances of waits.
_SAMPLES: Final = 96


class Run(NamedTuple):
    """Values of a counter: first, first + step, ..., `count` of them."""

    first: int
    step: int
    count: int

    def place(self, value: int) -> int:
        """Which one a value is; -1 for none."""
        number, rest = divmod(value - self.first, self.step)
        return -1 if rest or not 0 <= number < self.count else number


class Position(NamedTuple):
    """Where in an engine's loop a command stands: its iteration and its order there."""

    iteration: int
    order: int
    rank: int
    place: int


class Wait(NamedTuple):
    """That an engine has gone past a position: `iteration` is relative to the tile's round."""

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
    order: tuple[int, int] = (0, 0)
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
            found *= run.count
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
    """A group's statements by queue in their order, and the iterations from the first to one past the last."""

    actions: FlatActions
    statements: list[Statement]
    iterations: range
    listed: int

    def by_queue(self) -> dict[int, list[Statement]]:
        """The statements of each engine in the order of an iteration."""
        found: dict[int, list[Statement]] = defaultdict(list)
        for statement in sorted(self.statements, key=lambda s: (s.order, s.place)):
            found[statement.queue].append(statement)
        return dict(sorted(found.items()))


def instances(statements: Sequence[Statement], iteration: int) -> Iterator[tuple[Statement, tuple[int, ...], Position]]:
    """What an engine does in one iteration: statements, counters, positions."""
    for statement in statements:
        number = iteration + statement.stage
        position = Position(iteration, *statement.order, statement.place)
        unit = statement.unit
        if unit is None:
            if iteration == -1:
                yield statement, (), position
            continue
        number -= unit.lag
        if number < 0:
            continue
        local = unit.local(number)
        if unit.number(local) != number:
            continue
        if all(run.place(value) >= 0 for run, value in zip(statement.runs, local, strict=True)):
            yield statement, local, position


# --- from families to statements ------------------------------------------------------------------------------------------


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
            if run.count > 1:
                other = self._cell((*first[:axis], run.first + run.step, *first[axis + 1 :]))
                if other.keys != base.keys:
                    yield from self._listed(runs)
                    return
                change = _difference(base, other)
            coefficients.append(change)
        corner = self._cell(tuple(run.first + run.step * (run.count - 1) for run in runs))
        expected = list(base.numbers)
        for run, change in zip(runs, coefficients, strict=True):
            expected = [value + (run.count - 1) * c for value, c in zip(expected, change, strict=True)]
        if corner.keys != base.keys or corner.numbers != tuple(expected):
            yield from self._listed(runs)
        elif base.keys:
            yield runs, base, tuple(coefficients)

    def _listed(self, runs: tuple[Run, ...]) -> Iterator[tuple[tuple[Run, ...], _Cell, tuple[tuple[int, ...], ...]]]:
        """Cut a product in which the numbers do not go up evenly along the first axis that has several values."""
        axis = next(axis for axis, run in enumerate(runs) if run.count > 1)
        self.listed += 1
        for value in range(runs[axis].count):
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


def looped(actions: FlatActions) -> Looped:
    """All statements of a group, with their order and waits."""
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
    _order(actions, statements)
    return Looped(actions=actions, statements=statements, iterations=range(-max([1, *(s.stage for s in statements)]), len(actions.rounds)), listed=listed)


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
    step = mine.step if mine.count > 1 else its.first - mine.first
    if its.first != mine.first + step * mine.count or (its.count > 1 and its.step != step) or step > PERIODS[-1]:
        return None
    if any(a != b for at, (a, b) in enumerate(zip(coefficients, changes, strict=True)) if at != axis):
        return None
    change = coefficients[axis] if mine.count > 1 else _difference(base, after)
    if its.count > 1 and changes[axis] != change:
        return None
    if any(b != a + mine.count * c for a, b, c in zip(base.numbers, after.numbers, change, strict=True)):
        return None
    run = Run(mine.first, step, mine.count + its.count)
    return (*runs[:axis], run, *runs[axis + 1 :]), base, (*coefficients[:axis], change, *coefficients[axis + 1 :])


# --- order and waits ------------------------------------------------------------------------------------------------------

_Node = tuple[int, int]  # family, queue


def _order(actions: FlatActions, statements: list[Statement]) -> None:
    """Say at which place of an iteration each statement stands, and what it waits for."""
    distances, inside = _conflicts(actions, statements)
    families = {family.number: family for family in actions.families}
    least: dict[tuple[int, int], int] = {}
    for (before, after), distance in distances.items():
        pair = before[0], after[0]
        least[pair] = min(least.get(pair, distance), distance)
    orders: dict[int, tuple[int, int]] = {f: (f, 0) for f in families}
    stages = dict.fromkeys(families, 0)
    rank = 0
    for number, family in families.items():
        if family.before:
            orders[number] = (len(families) + number, 0)
            continue
        if not family.ahead:
            continue
        rank += 1
        mine = {f: d for f in families if (d := least.get((f, number))) is not None and not families[f].before}
        # as many tiles ahead as what it waits for lets it: then behind that, else at the begin of an iteration
        stage = min([d + stages[f] for f, d in mine.items()], default=1)
        if stage:
            close = [orders[f][0] for f, d in mine.items() if d + stages[f] == stage]
            stages[number], orders[number] = stage, (max(close, default=-1), rank)
    by_node: dict[_Node, list[tuple[_Node, int]]] = defaultdict(list)
    for (before, after), distance in distances.items():
        if before[1] != after[1]:
            by_node[after].append((before, distance))
    for statement in statements:
        statement.order, statement.stage = orders[statement.family], stages[statement.family]
        latest: dict[int, Position] = {}
        for (family, queue), distance in by_node[statement.family, statement.queue]:
            if families[family].before:
                continue
            position = Position(-distance - stages[family], *orders[family], _LAST)
            latest[queue] = max(latest.get(queue, position), position)
        for queue, place in inside.get((statement.family, statement.queue, statement.place), {}).items():
            position = Position(-statement.stage, *statement.order, place)
            latest[queue] = max(latest.get(queue, position), position)
        waits = [Wait(queue, position) for queue, position in sorted(latest.items())]
        for (family, queue), _ in by_node[statement.family, statement.queue]:
            # what is done once is waited for where it stands
            if families[family].before:
                waits.append(Wait(queue, Position(ENTRY, *orders[family], _LAST)))
        if families[statement.family].before:
            waits = [w for w in waits if w.position.iteration <= ENTRY or w.position.order == statement.order[0]]
        statement.waits = tuple(waits)


# Behind all actions of a family.
_LAST: Final = 1 << 30
# The iteration of waits for what is done once, before all tiles.
ENTRY: Final = -(1 << 40)


def reach_of(actions: FlatActions) -> int:
    """How many tiles back a wait may look before it waits for all before: two buffers' worth of channel slices."""
    slices = [its.counts[actions.channels] for its in actions.units.values() if actions.channels > 0]
    return 2 * max(slices, default=1) + 2


def _conflicts(
    actions: FlatActions, statements: list[Statement]
) -> tuple[dict[tuple[_Node, _Node], int], dict[tuple[int, int, int], dict[int, int]]]:
    """By pairs of (family, queue) that touch common bytes, one of them writing: how many tiles lie between the two.

    The second: inside a family, by (family, queue, place), the last place on another queue that comes before it.
    """
    entry = {family.number for family in actions.families if family.before}
    reach = reach_of(actions)
    inside: dict[tuple[int, int, int], dict[int, int]] = defaultdict(dict)
    touched: dict[int, _Touched] = {}

    def touches(number: int) -> _Touched:
        if number not in touched:
            touched[number] = _touched(actions, number, inside)
        return touched[number]

    distances: dict[tuple[_Node, _Node], int] = {}
    union: dict[int, dict[_Node, set[Any]]] = defaultdict(lambda: defaultdict(set))
    for number in _samples(actions, statements):
        mine = touches(number)
        for distance in range(min(reach, number + 1)):
            for place, nodes in touches(number - distance).items():
                for other, those in mine.get(place, {}).items():
                    for one, its in nodes.items():
                        if distance == 0 and one[0] >= other[0]:
                            continue
                        if distances.get((one, other), reach) > distance and _meet(its, those):
                            distances[one, other] = distance
    for found in touched.values():
        _add(union, found)
    _add(union, touches(-1))
    for nodes in union.values():
        for one, its in nodes.items():
            for other, those in nodes.items():
                if (one, other) in distances or one == other or not _meet(its, those):
                    continue
                if one[0] in entry and (other[0] not in entry or one[0] < other[0]):
                    distances[one, other] = 0
                elif one[0] not in entry and other[0] not in entry:
                    distances[one, other] = reach
    return distances, inside


# By place what each node touches there.
_Touched = dict[int, dict[_Node, set[Any]]]


def _add(union: _Touched, found: _Touched) -> None:
    for place, nodes in found.items():
        for node, its in nodes.items():
            union[place][node] |= its


def _touched(actions: FlatActions, number: int, inside: dict[tuple[int, int, int], dict[int, int]]) -> _Touched:
    """What all families touch in a round; notes in `inside` what comes before what within one of them."""
    found: _Touched = defaultdict(lambda: defaultdict(set))
    for family in actions.families:
        known: list[tuple[int, set[Any]]] = []
        for place, action in enumerate(actions.at(family, number)):
            whole = set(action.touches)
            for other, (queue, its) in enumerate(known):
                if queue != action.queue and {t[0] for t in its} & {t[0] for t in whole}:
                    both = [({t[1:] for t in its if t[0] == p}, {t[1:] for t in whole if t[0] == p}) for p, *_ in its]
                    if any(_meet(a, b) for a, b in both):
                        latest = inside[family.number, action.queue, place]
                        latest[queue] = max(latest.get(queue, 0), other)
            known.append((action.queue, whole))
            for touch in action.touches:
                found[touch[0]][family.number, action.queue].add(touch[1:])
    return found


def _meet(some: set[Any], others: set[Any]) -> bool:
    for low, high, is_write in some:
        for its_low, its_high, its_write in others:
            if (is_write or its_write) and low < its_high and its_low < high:
                return True
    return False


def _samples(actions: FlatActions, statements: list[Statement]) -> list[int]:
    """Rounds at which something begins, goes on or ends along some axis: the ones with most of that first."""
    found: dict[int, int] = defaultdict(int)
    for runs, unit in {(s.runs, s.unit) for s in statements if s.unit is not None}:
        for local in product(*({run.first, run.first + run.step * (run.count - 1)} for run in runs)):
            found[unit.lag + unit.number(local)] += 1
            found[unit.lag + unit.number(local) + 1] += 1
    numbers = sorted(found, key=lambda number: (-found[number], number))
    return [number for number in numbers if number < len(actions.rounds)][:_SAMPLES]
