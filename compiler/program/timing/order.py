"""The order of a program's commands: what is ready goes first (PROG-1).

Lowering emits tile after tile, and knows what has to come before what. An engine that kept that order would wait for
a tile's result before it loads the next tile. Here the commands of each engine are streams (inputs, weights, results,
what passes between cores) that keep their own order; a simulation in time, in which an engine takes of its streams
what is ready, gives the order in which the program lists them. It stays a legal one: nothing comes before what it
waits for. Taking what is ready is not always best: of several orders the fastest is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.program import Program
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.ticks import Ints
from compiler.program.timing.timeline import Timeline, timeline_of, timeline_under, to_the_end


def in_time(program: Program, profile: Profile, streams: Ints) -> Timeline:
    """The timeline of the program with its commands in the fastest of three orders.

    As emitted; of what is ready the first of the program; of what is ready what most comes after (list scheduling by
    critical paths). `streams` by command; waits have to say all that a command comes after, but what is before it in
    its own stream.
    """
    if not len(program.commands):
        return timeline_of(program, profile)
    demands = demands_of(program, profile)
    return fastest(program, demands, ready_first(program, demands, streams))[1]


def ready_first(program: Program, demands: Demands, streams: Ints) -> list[Timeline]:
    """The timelines of a program whose engines take of what is ready the first, and what most comes after."""
    urgencies = None, -to_the_end(program, demands, streams)
    return [timeline_under(program, demands, streams, urgency) for urgency in urgencies]


def fastest(
    program: Program, demands: Demands, ready: Sequence[Timeline], others: Sequence[Ints] = ()
) -> tuple[Ints, Timeline]:
    """The fastest of others, the order as emitted, and those of `ready_first`, and the program's timeline in it."""
    emitted = np.arange(len(program.commands), dtype=np.int64)
    orders = [emitted, *others, *(np.lexsort((emitted, its.issues)).astype(np.int64) for its in ready)]
    different = {order.tobytes(): order for order in orders}.values()
    timelines = [(order, timeline_under(_ordered(program, order), demands.ordered(order))) for order in different]
    return min(timelines, key=lambda its: its[1].ticks)


def as_emitted(program: Program) -> Program:
    """The program in the order in which it was emitted, without idle waits: a tenth smaller or larger than in time."""
    return _ordered(program, np.arange(len(program.commands), dtype=np.int64))


def _ordered(program: Program, order: Ints) -> Program:
    """The program with its commands in another order, without the waits that the order of queues makes idle."""
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    counts: Ints = np.diff(program.wait_offsets).astype(np.int64)
    owners = np.repeat(places, counts)
    waits, offsets = _latest(owners, places[program.waits.astype(np.int64)], program.commands["queue"][order])
    return program.once(
        program.commands[order],
        offsets.astype(program.wait_offsets.dtype),
        waits.astype(program.waits.dtype),
    )


def _latest(owners: Ints, waits: Ints, queues: Ints) -> tuple[Ints, Ints]:
    """Waits by command, and where each command's begin: of every other queue the last one that it waits for."""
    of_waits = queues[waits].astype(np.int64)
    other = of_waits != queues[owners]
    owners, waits, of_waits = owners[other], waits[other], of_waits[other]
    count, width = max(1, len(queues)), int(queues.max(initial=0)) + 1
    # whole numbers sort many times faster than rows of several columns: owner, queue and wait in one
    keys = np.sort(((owners * width + of_waits) * count) + waits)
    groups = keys // count
    keys = keys[np.append(groups[1:] != groups[:-1], True)] if len(keys) else keys
    keys = np.sort(keys // (width * count) * count + keys % count)
    offsets = np.zeros(len(queues) + 1, dtype=np.int64)
    np.cumsum(np.bincount(keys // count, minlength=len(queues)), out=offsets[1:])
    return keys % count, offsets
