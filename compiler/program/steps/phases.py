"""At which time of a tile each node comes if engines take what is ready first: by a simulation of some iterations.

Engines do not keep the order of steps there: each takes, of its steps' next commands, one that waits for nothing, the
most urgent first if asked for (that after which most comes).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.program import Program
from compiler.program.steps.action import Action, Steps
from compiler.program.steps.conflicts import Distances, Node
from compiler.program.timing.demands import demands_of
from compiler.program.timing.timeline import timeline_under, to_the_end

# The simulation ends with the first iteration after which it has had at least so many commands and iterations.
_COMMANDS_MIN: Final = 4096
_ITERATIONS_MIN: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FirstIterations:
    """The commands of a group's first iterations: their nodes and iterations (-1: once), in the order of steps."""

    actions: Sequence[Action]
    nodes: Sequence[Node]
    numbers: Sequence[int]
    iterations: int


def first_iterations(group: int, steps: Steps) -> FirstIterations:
    """The commands of the first iterations of a group."""
    actions: list[Action] = []
    nodes: list[Node] = []
    numbers: list[int] = []
    iteration = -1
    while iteration < steps.iterations and (iteration < _ITERATIONS_MIN or len(actions) < _COMMANDS_MIN):
        for step, is_once in enumerate(steps.once):
            if is_once == (iteration < 0):
                for action in steps.at(step, iteration):
                    actions.append(action)
                    nodes.append(Node(group, step, action.queue))
                    numbers.append(iteration)
        iteration += 1
    return FirstIterations(actions=actions, nodes=nodes, numbers=numbers, iterations=iteration)


def waits_of(first: FirstIterations, distances: Distances) -> tuple[np.ndarray, np.ndarray]:
    """What each of the commands waits for, as offsets and numbers of commands."""
    numbers: dict[Node, list[int]] = defaultdict(list)
    rounds: dict[Node, list[int]] = defaultdict(list)
    for at, (node, number) in enumerate(zip(first.nodes, first.numbers, strict=True)):
        numbers[node].append(at)
        rounds[node].append(number)
    before: dict[Node, list[tuple[Node, int]]] = defaultdict(list)
    for (one, other), distance in distances.items():
        if one in numbers:
            before[other].append((one, distance))
    waits: list[int] = []
    offsets = [0]
    for at, (node, number) in enumerate(zip(first.nodes, first.numbers, strict=True)):
        its = set()
        for one, distance in before[node]:
            is_once = rounds[one][0] < 0
            # of its own step only what stands before it
            past = min(
                bisect_right(rounds[one], number if is_once else number - distance), bisect_right(numbers[one], at)
            )
            if past:
                its.add(numbers[one][past - 1])
        waits += sorted(its)
        offsets.append(len(waits))
    return np.array(offsets, dtype=np.int32), np.array(waits, dtype=np.int32)


def phases_of(first: FirstIterations, program: Program, profile: Profile) -> list[Mapping[Node, float]]:
    """By node how much later than its tile it runs, in iterations; `program`: the commands with their waits.

    Several answers: with what is ready first and with the most urgent of it, of the times of a node in different
    iterations their mean, the earliest and the latest.
    """
    streams = np.array([node.step for node in first.nodes], dtype=np.int64)
    demands = demands_of(program, profile)
    found: list[Mapping[Node, float]] = []
    for urgency in (None, -to_the_end(program, demands, streams)):
        timeline = timeline_under(program, demands, streams, urgency)
        times: dict[Node, dict[int, int]] = defaultdict(dict)
        for node, number, issue in zip(first.nodes, first.numbers, timeline.issues.tolist(), strict=True):
            if number >= 0:
                times[node].setdefault(number, issue)
        clock = _clock(times, program, first)
        # where tiles are worked on at one time only, the whole time is that of an iteration
        interval = float(clock[-1] - clock[0]) / (len(clock) - 1) if clock[-1] > clock[0] else max(1, timeline.ticks)
        delays = {node: _delays(its, clock) / interval for node, its in times.items()}
        views = (np.mean, np.min, np.max)
        found += [{node: float(view(its)) for node, its in delays.items()} for view in views]
    return found


def _delays(times: Mapping[int, int], clock: np.ndarray) -> np.ndarray:
    """How long after its tile a node runs, in the middle half of the iterations, if it runs there at all."""
    middle = [number for number in times if len(clock) / 4 <= number <= len(clock) * 3 / 4] or list(times)
    return np.array([times[number] - clock[number] for number in middle])


def _clock(times: Mapping[Node, Mapping[int, int]], program: Program, first: FirstIterations) -> np.ndarray:
    """By iteration the time at which its tiles are worked on: when the last of their calls is issued."""
    calls = [node.step for node, call in zip(first.nodes, program.commands["call"].tolist(), strict=True) if call >= 0]
    last = max(calls, default=max(node.step for node in first.nodes))
    marks: dict[int, int] = {}
    for node, its in times.items():
        if node.step == last:
            for number, time in its.items():
                marks[number] = max(marks.get(number, 0), time)
    known = sorted(marks) or [0]
    return np.interp(np.arange(max(1, first.iterations)), known, [float(marks.get(number, 0)) for number in known])
