"""What statements wait for, and the order of each engine's loop: a modulo schedule from one simulation (PROG-5)."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import floor
from typing import Any, Final

import numpy as np

from compiler.program.timing.demands import demands_of
from compiler.program.timing.timeline import timeline_of, timeline_under, to_the_end
from tests.spike.actions import Dims, FlatActions
from tests.spike.expand import expanded, program_of
from tests.spike.statements import ENTRY, Looped, Position, Wait, statements_of

# Behind all actions of a family.
_LAST: Final = 1 << 30
# By how much of an iteration one command has to stand behind another that it waits for.
_BEHIND: Final = 1e-6

Node = tuple[int, int]  # family, queue
# By pairs of nodes that touch common bytes, one of them writing: how many tiles lie between the two.
Distances = dict[tuple[Node, Node], int]


def looped(actions: FlatActions) -> Looped:
    """A group's statements in the fastest of three orders, as today's programs have it.

    As the families stand; by the phases at which engines that take what is ready first come to them; the same where of
    what is ready the one goes first that most comes after.
    """
    found = statements_of(actions)
    distances = distances_of(actions)
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
    found.reach = max(
        (-w.position.iteration - s.stage for s in found.statements for w in s.waits if w.position.iteration > ENTRY),
        default=0,
    )
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


# --- what is ready first ----------------------------------------------------------------------------------------------


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
        known = times.get(node, {})
        middle = [at for at in known if len(clock) / 4 <= at <= len(clock) * 3 / 4] or list(known)
        gaps = [known[at] - clock[at] for at in middle]
        interval = max(1e-9, (clock[-1] - clock[0]) / max(1, len(clock) - 1))
        phases[node] = float(np.mean(gaps)) / interval if gaps else 0.0
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


# --- distances --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Bytes:
    """The bytes of one memory: the node that wrote each last, in which round, and by node the last round of a read."""

    writer: Any
    written: Any
    read: dict[int, Any]


def distances_of(actions: FlatActions) -> Distances:
    """Who comes how many tiles after whom, since they touch common bytes and one of them writes.

    The tiles are gone through once, in the order in which they are meant: of what a byte was touched by the last
    before counts. A compiler would stop where this recurs.
    """
    machine = actions.lowering.machine
    memories: dict[int, _Bytes] = {}
    numbers: dict[Node, int] = {}
    names: list[Node] = []
    distances: Distances = {}

    def meet(before: int, after: Node, distance: int) -> None:
        one = names[before]
        if one != after and distances.get((one, after), _LAST) > distance:
            distances[one, after] = distance

    for number in range(-1, len(actions.rounds)):
        for family in actions.families:
            for action in actions.at(family, number):
                node = family.number, action.queue
                if node not in numbers:
                    numbers[node] = len(names)
                    names.append(node)
                mine = numbers[node]
                # it reads all before it writes
                for place, is_write, low, dims in sorted(action.touches, key=lambda touch: touch[1]):
                    memory = memories.get(place)
                    if memory is None:
                        size = machine.places[place].capacity_bytes
                        memory = memories[place] = _Bytes(np.full(size, -1, np.int16), np.full(size, -2, np.int32), {})
                    nodes, rounds = _window(memory.writer, low, dims), _window(memory.written, low, dims)
                    for other in np.unique(nodes).tolist():
                        if other >= 0:
                            meet(other, node, _tiles_between(rounds[nodes == other].max(), number))
                    if not is_write:
                        if mine not in memory.read:
                            memory.read[mine] = np.full(len(memory.writer), -2, np.int32)
                        _window(memory.read[mine], low, dims)[...] = number
                        continue
                    for other, read in memory.read.items():
                        latest = int(_window(read, low, dims).max())
                        if latest > -2:
                            meet(other, node, _tiles_between(latest, number))
                    nodes[...] = mine
                    rounds[...] = number
    return distances


def _tiles_between(before: int, after: int) -> int:
    """Tiles from one round to another; 0 from what is done once."""
    return 0 if before < 0 else int(after - before)


def _window(words: Any, low: int, dims: Dims) -> Any:
    size = words.itemsize
    counts, strides = tuple(c for c, _ in dims) or (1,), tuple(s * size for _, s in dims) or (size,)
    return np.ndarray(counts, words.dtype, words, low * size, strides)
