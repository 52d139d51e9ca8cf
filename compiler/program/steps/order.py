"""In which order each engine goes through a group's loop, and how far ahead of its tile: a modulo schedule (PROG-5).

The unit is the *node*: a step on an engine. A node of phase p does its part of tile t at the time t + p, in iterations:
the whole part of -p is its stage, the rest decides its place in an iteration. A phase that stands before what the node
waits for is moved behind it.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.machine_code import compiled
from compiler.program.steps.conflicts import Pairs
from compiler.program.timing.ticks import Flags, Ints

# By how much of an iteration a node has to stand behind another one that it waits for in the same tile.
_BEHIND: Final = 1e-6

Phases = NDArray[np.float64]


class Turns(NamedTuple):
    """By node how many iterations ahead of its tile it works, and its place in an iteration; equal ones share one."""

    stages: Ints
    places: Ints


def turns_of(steps: Ints, once: Flags, pairs: Pairs, phases: Phases) -> Turns:
    """The order of a group whose nodes have these phases.

    By node: its step, and whether it is done once before all tiles.
    """
    before, after, distances = pairs.chosen(~once[pairs.before] & ~once[pairs.after])
    # commands of one step and one tile may share a phase: they stand in the order of the step
    gaps = np.where((distances > 0) | (steps[before] != steps[after]), _BEHIND, 0.0)
    found = phases + steps * _BEHIND
    _move(found, before, after, distances, gaps)
    whole = np.floor(found)
    stages = np.where(once, 0, -whole).astype(np.int64)
    # what is done once stands before what loops, in the order of steps
    parts = np.where(once, -1.0, found - whole)
    order = np.lexsort((steps, parts))
    is_new = np.append(True, (np.diff(parts[order]) != 0) | (np.diff(steps[order]) != 0))[: len(order)]
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.cumsum(is_new) - 1
    return Turns(stages, places)


@compiled("void(float64[::1], int64[::1], int64[::1], int64[::1], float64[::1])")
def _move(phases: Any, before: Any, after: Any, distances: Any, gaps: Any) -> None:
    """Move phases behind what their nodes wait for; where nothing else is said steps stand one behind the other."""
    is_moving = True
    while is_moving:
        is_moving = False
        for i in range(len(before)):
            least = phases[before[i]] - distances[i] + gaps[i]
            # phases that are equal but for rounding would stand in the wrong order: only a gap leaves room for it
            if phases[after[i]] < least - gaps[i] / 4:
                phases[after[i]] = least
                is_moving = True
