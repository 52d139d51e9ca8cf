"""What statements wait for, and the order of each engine's loop: a modulo schedule from one simulation (PROG-5)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import floor
from typing import Any, Final

import numpy as np

from compiler.program.timing.demands import demands_of
from compiler.program.timing.timeline import timeline_of, timeline_under, to_the_end
from tests.spike.actions import Dims, FlatActions
from tests.spike.expand import expanded, program_of
from tests.spike.statements import ENTRY, Looped, Position, Statement, Wait, statements_of

# Rounds looked at for the distances of waits.
_SAMPLES: Final = 96
# Behind all actions of a family.
_LAST: Final = 1 << 30
# By how much of an iteration one command has to stand behind another that it waits for.
_BEHIND: Final = 1e-6

Node = tuple[int, int]  # family, queue
# By pairs of nodes that touch common bytes, one of them writing: how many tiles lie between the two.
Distances = dict[tuple[Node, Node], int]
# What each node touches of a place: whether it writes, the first byte, the others.
_Touched = dict[int, dict[Node, set[tuple[bool, int, Dims]]]]


def looped(actions: FlatActions) -> Looped:
    """A group's statements in the fastest of three orders, as today's programs have it.

    As the families stand; by the phases at which engines that take what is ready first come to them; the same where of
    what is ready the one goes first that most comes after.
    """
    found = statements_of(actions)
    distances = distances_of(actions, found.statements)
    emitted = dict.fromkeys({(s.family, s.queue) for s in found.statements}, 0.0)
    order_by(found, distances, emitted)
    tried = [emitted, *(_ready_first(found, distances, is_urgent=is_urgent) for is_urgent in (False, True))]
    cycles = []
    for phases in tried:
        order_by(found, distances, phases)
        cycles.append(timeline_of(program_of(found), actions.group.profile).cycles)
    order_by(found, distances, tried[cycles.index(min(cycles))])
    return found


def order_by(found: Looped, distances: Distances, phases: Mapping[Node, float]) -> None:
    """Give each statement its stage, order and waits: a node's part of tile t runs at the time t + phase."""
    families = {family.number: family for family in found.actions.families}
    phase = {node: value for node, value in phases.items() if not families[node[0]].before}
    _behind(phase, distances)
    stages = {node: -floor(value) for node, value in phase.items()}
    parts = sorted({(value - floor(value), node[0]) for node, value in phase.items()})
    orders = {node: parts.index((value - floor(value), node[0])) for node, value in phase.items()}
    for node in phases.keys() - phase.keys():
        orders[node], stages[node] = node[0] - len(families), 0
    waiting: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    for (before, after), distance in distances.items():
        if before[1] != after[1]:
            waiting[after].append((before, distance))
    for statement in found.statements:
        node = statement.family, statement.queue
        statement.stage, statement.order = stages[node], orders[node]
        latest: dict[tuple[int, bool], Position] = {}
        for other, distance in waiting[node]:
            is_entry = families[other[0]].before
            iteration = ENTRY if is_entry else -distance - stages[other]
            # of its own family only what stands before it
            place = statement.place if other[0] == node[0] and not distance else _LAST
            position = Position(iteration, orders[other], place)
            key = other[1], is_entry
            latest[key] = max(latest.get(key, position), position)
        statement.waits = tuple(Wait(queue, position) for (queue, _), position in sorted(latest.items()))
    last = max(0, *(s.stage for s in found.statements)), max(0, *(-s.stage for s in found.statements))
    after_entry = [stages[b] for a, b in distances if families[a[0]].before and not families[b[0]].before]
    found.entry = -max(after_entry, default=0)
    found.iterations = range(-last[0], len(found.actions.rounds) + last[1])


def _behind(phase: dict[Node, float], distances: Distances) -> None:
    """Move nodes behind what they wait for; families stand one behind the other where nothing else is said."""
    rules = [(a, b, d) for (a, b), d in sorted(distances.items()) if a in phase and b in phase and a != b]
    for node in phase:
        phase[node] += node[0] * _BEHIND
    moved = True
    while moved:
        moved = False
        for before, after, distance in rules:
            least = phase[before] - distance + (_BEHIND if before[0] != after[0] else 0.0)
            if phase[after] < least - _BEHIND / 4:
                phase[after], moved = least, True


# --- what is ready first --------------------------------------------------------------------------------------------------


def _ready_first(found: Looped, distances: Distances, *, is_urgent: bool) -> dict[Node, float]:
    """How much later than its tile each node runs, in iterations, if engines take what is ready first."""
    program, order = program_of(found), expanded(found)
    rounds: dict[Node, list[int]] = defaultdict(list)
    numbers: dict[Node, list[int]] = defaultdict(list)
    for number, (position, queue, statement, _) in enumerate(order):
        node = statement.family, queue
        rounds[node].append(position.iteration + statement.stage if statement.unit is not None else -1)
        numbers[node].append(number)
    before: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    for (one, other), distance in distances.items():
        before[other].append((one, distance))
    waits, offsets = [], [0]
    for number, (position, queue, statement, _) in enumerate(order):
        its = set()
        at = position.iteration + statement.stage if statement.unit is not None else -1
        for node, distance in before[statement.family, queue]:
            past = bisect_right(rounds[node], at - distance if rounds[node][0] >= 0 else at)
            its |= {n for n in numbers[node][max(0, past - 1) : past] if n < number}
        waits += sorted(its)
        offsets.append(len(waits))
    offsets_, waits_ = np.array(offsets, dtype=np.int32), np.array(waits, dtype=np.int32)
    program = replace(program, wait_offsets=offsets_, waits=waits_)
    streams = np.array([statement.family for _, _, statement, _ in order], dtype=np.int64)
    demands = demands_of(program, found.actions.group.profile)
    urgency = -to_the_end(program, demands, streams) if is_urgent else None
    timeline = timeline_under(program, demands, streams, urgency)
    times: dict[Node, dict[int, float]] = defaultdict(dict)
    for number, (position, queue, statement, _) in enumerate(order):
        if statement.unit is not None:
            at = position.iteration + statement.stage
            times[statement.family, queue].setdefault(at, float(timeline.issues[number]))
    clock = _clock(found, times)
    phases = {}
    for node in {(s.family, s.queue) for s in found.statements}:
        its = times.get(node, {})
        middle = [at for at in its if len(clock) / 4 <= at <= len(clock) * 3 / 4] or list(its)
        gaps = [its[at] - clock[at] for at in middle]
        phases[node] = float(np.mean(gaps)) / max(1e-9, (clock[-1] - clock[0]) / max(1, len(clock) - 1)) if gaps else 0.0
    return phases


def _clock(found: Looped, times: Mapping[Node, Mapping[int, float]]) -> Any:
    """By round the time at which its tiles are worked on: when the last op of them is issued."""
    ops = [family.number for family in found.actions.families if family.name.startswith("op ")]
    marks: dict[int, float] = {}
    for (family, _), its in times.items():
        if family == ops[-1]:
            for at, time in its.items():
                marks[at] = max(marks.get(at, 0.0), time)
    count = len(found.actions.rounds)
    known = sorted(marks) or [0]
    return np.interp(np.arange(count), known, [marks.get(at, 0.0) for at in known])


# --- distances ------------------------------------------------------------------------------------------------------------


def reach_of(actions: FlatActions) -> int:
    """How many tiles back a wait may look before it waits for all before: two buffers' worth of channel slices."""
    slices = [its.counts[actions.channels] for its in actions.units.values() if actions.channels > 0]
    return 2 * max(slices, default=1) + 2


def distances_of(actions: FlatActions, statements: list[Statement]) -> Distances:
    """Who comes how many tiles after whom, since they touch common bytes and one of them writes."""
    entry = {family.number for family in actions.families if family.before}
    reach = reach_of(actions)
    touched: dict[int, _Touched] = {}

    def touches(number: int) -> _Touched:
        if number not in touched:
            touched[number] = _touched(actions, number)
        return touched[number]

    distances: Distances = {}
    union: dict[int, dict[Node, set[tuple[bool, int, int]]]] = defaultdict(lambda: defaultdict(set))
    for number in _samples(actions, statements):
        mine = touches(number)
        for distance in range(min(reach, number + 1)):
            for place, nodes in touches(number - distance).items():
                for other, those in mine.get(place, {}).items():
                    for one, its in nodes.items():
                        if distance == 0 and (one[0] > other[0] or one == other):
                            continue
                        if distances.get((one, other), reach) <= distance:
                            continue
                        if distance == 0 and one[0] == other[0] and not _is_first(actions, number, one, other):
                            continue
                        if _meet(its, those):
                            distances[one, other] = distance
    touches(-1)
    for found in touched.values():
        for place, nodes in found.items():
            for node, its in nodes.items():
                union[place][node] |= {(w, low, low + 1 + sum((c - 1) * s for c, s in dims)) for w, low, dims in its}
    for nodes in union.values():
        for one, hulls in nodes.items():
            for other, others in nodes.items():
                if (one, other) in distances or one == other or not _hulls_meet(hulls, others):
                    continue
                if one[0] in entry and (other[0] not in entry or one[0] < other[0]):
                    distances[one, other] = 0
                elif one[0] in entry and other[0] == one[0] and _is_first(actions, -1, one, other):
                    distances[one, other] = 0
                elif one[0] not in entry and other[0] not in entry:
                    distances[one, other] = reach
    return distances


def _touched(actions: FlatActions, number: int) -> _Touched:
    """What all families touch in a round."""
    found: _Touched = defaultdict(lambda: defaultdict(set))
    for family in actions.families:
        for action in actions.at(family, number):
            for place, is_write, low, dims in action.touches:
                found[place][family.number, action.queue].add((is_write, low, dims))
    return found


def _is_first(actions: FlatActions, number: int, one: Node, other: Node) -> bool:
    """True if, inside a family, something on one queue comes before what touches the same bytes on the other."""
    its = actions.at(actions.families[one[0]], number)
    for place, action in enumerate(its):
        if action.queue == other[1]:
            for earlier in its[:place]:
                if earlier.queue == one[1] and _actions_meet(earlier.touches, action.touches):
                    return True
    return False


def _actions_meet(some: Any, others: Any) -> bool:
    places = {touch[0] for touch in some} & {touch[0] for touch in others}
    return any(
        _meet({t[1:] for t in some if t[0] == place}, {t[1:] for t in others if t[0] == place}) for place in places
    )


def _meet(some: set[tuple[bool, int, Dims]], others: set[tuple[bool, int, Dims]]) -> bool:
    for is_write, low, dims in some:
        high = low + 1 + sum((c - 1) * s for c, s in dims)
        for its_write, its_low, its_dims in others:
            if (is_write or its_write) and low < its_low + 1 + sum((c - 1) * s for c, s in its_dims) and its_low < high:
                if not _are_apart(low, dims, its_low, its_dims):
                    return True
    return False


def _are_apart(low: int, dims: Dims, other: int, others: Dims) -> bool:
    """True if two strided accesses surely share no byte: modulo a stride of either they pass each other."""
    for modulus in {s for _, s in (*dims, *others) if s > 1}:
        ahead = (other - low) % modulus
        mine = 1 + sum((c - 1) * s for c, s in dims if s % modulus)
        its = 1 + sum((c - 1) * s for c, s in others if s % modulus)
        if ahead >= mine and modulus - ahead >= its:
            return True
    return False


def _hulls_meet(some: set[tuple[bool, int, int]], others: set[tuple[bool, int, int]]) -> bool:
    for is_write, low, high in some:
        for its_write, its_low, its_high in others:
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
