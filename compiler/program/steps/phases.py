"""At which time of a tile each node comes if engines take what is ready first: by a simulation of some iterations.

Engines do not keep the order of steps there: each takes, of its steps' next commands, one that waits for nothing, the
most urgent first if asked for (that after which most comes).
"""

from __future__ import annotations

from collections.abc import Sequence

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
    commands: Commands, nodes: Ints, program: Program, ready: Sequence[Timeline], node_count: int
) -> list[Phases]:
    """By node how much later than its tile it runs, in iterations; `program`: the commands with their waits, `ready`:
    its timelines where engines take what is ready.

    Several answers: with what is ready first and with the most urgent of it, of the times of a node in different
    iterations their mean, the earliest and the latest.
    """
    # of each node and iteration the first command
    looping = np.flatnonzero(commands.iterations >= 0)
    span = int(commands.iterations.max(initial=0)) + 1
    keys, first = np.unique(nodes[looping] * span + commands.iterations[looping], return_index=True)
    first, (node_of, number_of) = looping[first], np.divmod(keys, span)
    calls = np.flatnonzero(program.commands["call"] >= 0)
    last = commands.steps[calls].max() if len(calls) else commands.steps.max()
    of_last = np.flatnonzero(commands.steps[first] == last)
    found: list[Phases] = []
    for timeline in ready:
        issues = timeline.issues[first]
        # by iteration the time at which its tiles are worked on: when the last of their calls is issued
        marks = np.full(span, -1, dtype=np.int64)
        np.maximum.at(marks, number_of[of_last], issues[of_last])
        known = np.flatnonzero(marks >= 0)
        clock = np.interp(np.arange(span), known, marks[known]) if len(known) else np.zeros(span)
        # where tiles are worked on at one time only, the whole time is that of an iteration
        interval = float(clock[-1] - clock[0]) / (span - 1) if clock[-1] > clock[0] else max(1, timeline.ticks)
        delays = (issues - clock[number_of]) / interval
        found += _views(node_of, number_of, delays, span, node_count)
    return found


def _views(nodes: Ints, numbers: Ints, delays: Phases, span: int, node_count: int) -> list[Phases]:
    """By node the mean, the least and the largest of its delays in the middle half of the iterations, if it has any."""
    is_middle = (numbers >= span / 4) & (numbers <= span * 3 / 4)
    has_middle = np.zeros(node_count, dtype=np.bool_)
    has_middle[nodes[is_middle]] = True
    kept = is_middle | ~has_middle[nodes]
    nodes, delays = nodes[kept], delays[kept]
    counts = np.bincount(nodes, minlength=node_count)
    mean = np.bincount(nodes, weights=delays, minlength=node_count) / np.maximum(1, counts)
    least, most = np.full(node_count, np.inf), np.full(node_count, -np.inf)
    np.minimum.at(least, nodes, delays)
    np.maximum.at(most, nodes, delays)
    return [mean, np.where(counts > 0, least, 0.0), np.where(counts > 0, most, 0.0)]
