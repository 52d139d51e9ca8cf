"""In which order each engine goes through a group's loop, and how far ahead of its tile: a modulo schedule (PROG-5).

The unit is the *node*: a step on an engine. A node of phase p does its part of tile t at the time t + p, in iterations:
the whole part of -p is its stage, the rest decides its place in an iteration. A phase that stands before what the node
waits for is moved behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import floor
from typing import Final, NamedTuple

from compiler.program.steps.conflicts import Distances, Node

# By how much of an iteration a node has to stand behind another one that it waits for in the same tile.
_BEHIND: Final = 1e-6

Phases = Mapping[Node, float]


class Turn(NamedTuple):
    """How many iterations ahead of its tile a node works, and which of its group's nodes comes when in an iteration."""

    stage: int
    order: int


class Wait(NamedTuple):
    """That a node has done its part of what it did so many iterations before."""

    node: Node
    distance: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOrder:
    """The order of one group's loop: by node its turn, and what it waits for."""

    turns: Mapping[Node, Turn]
    waits: Mapping[Node, tuple[Wait, ...]]


def order_of(nodes: Sequence[Node], once: Sequence[bool], distances: Distances, phases: Phases) -> GroupOrder:
    """The order of a group whose nodes have these phases; `once`: by step, whether it is done before all tiles.

    Of distances those matter whose second node is the group's.
    """
    mine = {node for node in nodes if not once[node.step]}
    moved = _moved({node: phases[node] for node in sorted(mine)}, distances)
    turns = {}
    parts = sorted({(phase - floor(phase), node.step) for node, phase in moved.items()})
    rank = {part: number for number, part in enumerate(parts)}
    for node, phase in moved.items():
        turns[node] = Turn(-floor(phase), rank[phase - floor(phase), node.step])
    for node in nodes:
        if node not in mine:
            # before what loops, in the order of steps
            turns[node] = Turn(0, node.step - len(once))
    waits: dict[Node, list[Wait]] = defaultdict(list)
    for (before, after), distance in sorted(distances.items()):
        if before.queue != after.queue and after in turns:
            waits[after].append(Wait(before, distance))
    return GroupOrder(turns=turns, waits={node: tuple(its) for node, its in waits.items()})


def _moved(phases: dict[Node, float], distances: Distances) -> dict[Node, float]:
    """Phases behind what their nodes wait for; where nothing else is said steps stand one behind the other."""
    rules = [(a, b, d) for (a, b), d in sorted(distances.items()) if a in phases and b in phases and a != b]
    found = {node: phase + node.step * _BEHIND for node, phase in phases.items()}
    is_moving = True
    while is_moving:
        is_moving = False
        for before, after, distance in rules:
            # commands of one step and one tile may share a phase: they stand in the order of the step
            gap = _BEHIND if distance or before.step != after.step else 0.0
            least = found[before] - distance + gap
            # phases that are equal but for rounding would stand in the wrong order: only a gap leaves room for it
            if found[after] < least - gap / 4:
                found[after], is_moving = least, True
    return found
