"""At which time of a tile each node comes if engines take what is ready first: by a simulation of some iterations.

Engines do not keep the order of steps there: each takes, of its steps' next commands, one that waits for nothing, the
most urgent first if asked for (that after which most comes).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from compiler.program.program import Program, Rows
from compiler.program.steps.commands import SIDES, Commands, different, spread
from compiler.program.steps.conflicts import Pairs
from compiler.program.steps.order import Phases
from compiler.program.timing.ticks import Ints
from compiler.program.timing.timeline import Timeline


def waits_of(commands: Commands, slots: Ints, pairs: Pairs) -> tuple[Rows, Rows]:
    """What each of a group's commands waits for, as offsets and numbers of commands.

    `slots`: by command; `pairs`: of slots.
    """
    count, span = len(slots), int(commands.iterations.max(initial=0)) + 2
    # the commands of each slot stand together, in order
    order = np.argsort(slots, kind="stable")
    ascending = slots[order]
    low, high = (np.searchsorted(ascending, pairs.after, side=side) for side in SIDES)
    one, end = (np.searchsorted(ascending, pairs.before, side=side) for side in SIDES)
    # by pair all commands of the second slot
    owners, numbers = spread(np.where(end > one, high - low, 0))
    its, one = order[low[owners] + numbers], one[owners]
    wanted = commands.iterations[its] - pairs.distances[owners]
    wanted[commands.iterations[order[one]] < 0] = -1
    rounds = ascending * span + commands.iterations[order] + 1
    past = np.searchsorted(rounds, ascending[one] * span + np.maximum(wanted, -2) + 1, side="right")
    # of its own step only what stands before it
    past = np.minimum(past, np.searchsorted(ascending * count + order, ascending[one] * count + its)) - one
    known = past > 0
    keys = different(its[known] * count + order[(one + past - 1)[known]])
    offsets = np.zeros(count + 1, dtype=np.int32)
    np.cumsum(np.bincount(keys // max(1, count), minlength=count), out=offsets[1:])
    waits: Rows = (keys % max(1, count)).astype(np.int32)
    return offsets, waits


def phases_of(
    commands: Commands, nodes: Ints, program: Program, ready: Sequence[Timeline], pairs: Pairs, count: int
) -> Iterator[Phases]:
    """By node of a group, which has `count`, how much later than its tile it may run, in iterations.

    `program`: the commands with their waits, `nodes` theirs; `ready`: its timelines where engines take what is ready;
    `pairs`: of nodes. Of each timeline the mean of a node's times, and the earliest; then the mean, but what a call
    waits for in its tile at most one iteration ahead of it, and what waits for the call at most one behind, as buffers
    are two; then these just one iteration ahead and behind. Last that with every other node in its tile's iteration.
    """
    calls = np.zeros(count, dtype=np.bool_)
    calls[nodes[program.commands["call"] >= 0]] = True
    one, other, _ = pairs.chosen(pairs.distances == 0)
    ahead, behind = np.zeros((2, count), dtype=np.bool_)
    ahead[one[calls[other] & ~calls[one]]] = True
    behind[other[calls[one] & ~calls[other]]] = True
    for timeline in ready:
        mean, earliest = _delays(commands, nodes, program, timeline, count)
        near = np.where(calls, 0.0, mean)
        just = near.copy()
        near[ahead], near[behind] = np.maximum(near[ahead], -1.0), np.minimum(near[behind], 1.0)
        just[ahead], just[behind] = -1.0, 1.0
        yield from (mean, earliest, near, just)
    in_its_tile = np.zeros(count)
    in_its_tile[ahead], in_its_tile[behind] = -1.0, 1.0
    yield in_its_tile


def _delays(commands: Commands, nodes: Ints, program: Program, ready: Timeline, count: int) -> tuple[Phases, Phases]:
    """By node the mean and the least of its delays in the middle half of the iterations, if it has any there."""
    # of each node and iteration the first command
    looping = np.flatnonzero(commands.iterations >= 0)
    span = int(commands.iterations.max(initial=0)) + 1
    keys, first = np.unique(nodes[looping] * span + commands.iterations[looping], return_index=True)
    first, (node_of, number_of) = looping[first], np.divmod(keys, span)
    # by iteration the time at which its tile is worked on: when the last of its calls is issued
    calls = looping[program.commands["call"][looping] >= 0]
    if not len(calls):
        calls = looping
    last = np.full(span, -1, dtype=np.int64)
    np.maximum.at(last, commands.iterations[calls], commands.steps[calls])
    of_last = np.flatnonzero(commands.steps[first] == last[number_of])
    issues = ready.issues[first]
    marks = np.full(span, -1, dtype=np.int64)
    np.maximum.at(marks, number_of[of_last], issues[of_last])
    known = np.flatnonzero(marks >= 0)
    clock = np.interp(np.arange(span), known, marks[known]) if len(known) else np.zeros(span)
    # where tiles are worked on at one time only, the whole time is that of an iteration
    interval = float(clock[-1] - clock[0]) / (span - 1) if clock[-1] > clock[0] else max(1, ready.ticks)
    delays = (issues - clock[number_of]) / interval
    is_middle = (number_of >= span / 4) & (number_of <= span * 3 / 4)
    has_middle = np.zeros(count, dtype=np.bool_)
    has_middle[node_of[is_middle]] = True
    kept = is_middle | ~has_middle[node_of]
    node_of, delays = node_of[kept], delays[kept]
    counts, least = np.bincount(node_of, minlength=count), np.full(count, np.inf)
    np.minimum.at(least, node_of, delays)
    mean = np.bincount(node_of, weights=delays, minlength=count) / np.maximum(1, counts)
    return mean, np.where(counts > 0, least, 0.0)
