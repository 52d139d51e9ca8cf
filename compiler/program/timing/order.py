"""The order of a program's commands: what is ready goes first (PROG-1).

Lowering emits tile after tile, and knows what has to come before what. An engine that kept that order would wait for
a tile's result before it loads the next tile. Here the commands of each engine are streams (inputs, weights, results,
what passes between cores) that keep their own order; a simulation in time, in which an engine takes of its streams
what is ready, gives the order in which the program lists them. It stays a legal one: nothing comes before what it
waits for. Taking what is ready is not always best: of several orders the fastest is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.program import COMMAND, Program
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.ticks import Ints
from compiler.program.timing.timeline import Timeline, timeline_of, timeline_under, to_the_end

# What a simulation reads of commands whose demands are known.
_TIMED: Final = np.dtype([(name, COMMAND[name]) for name in ("queue", "step")])


def in_time(program: Program, profile: Profile, streams: Ints) -> Timeline:
    """The timeline of the program with its commands in the fastest of three orders.

    As emitted; of what is ready the first of the program; of what is ready what most comes after (list scheduling by
    critical paths). `streams` by command; waits have to say all that a command comes after, but what is before it in
    its own stream.
    """
    if not len(program.commands):
        return timeline_of(program, profile)
    demands = demands_of(program, profile)
    order, _ = fastest(program, demands, ready_first(program, demands, streams))
    return timeline_under(Orders(program).ordered(order), demands.ordered(order))


def ready_first(program: Program, demands: Demands, streams: Ints) -> list[Timeline]:
    """The timelines of a program whose engines take of what is ready the first, and what most comes after."""
    urgencies = None, -to_the_end(program, demands, streams)
    return [timeline_under(program, demands, streams, urgency) for urgency in urgencies]


def fastest(
    program: Program, demands: Demands, ready: Sequence[Timeline], others: Sequence[Ints] = ()
) -> tuple[Ints, int]:
    """The fastest of others, the order as emitted, and those of `ready_first`, and the ticks that it takes."""
    # imported where it is used alone: it brings a compiler with it
    from compiler.program.loops.time import time_under

    # time depends on few fields of commands: rows are large
    rows = np.zeros(len(program.commands), dtype=_TIMED)
    for name in _TIMED.names or ():
        rows[name] = program.commands[name]
    emitted, orders = np.arange(len(rows), dtype=np.int64), Orders(replace(program, commands=rows))
    tried = [emitted, *others, *(np.lexsort((emitted, its.issues)).astype(np.int64) for its in ready)]
    different = {order.tobytes(): order for order in tried}.values()
    timed = [(order, time_under(orders.ordered(order), demands.ordered(order)).ticks) for order in different]
    return min(timed, key=lambda its: its[1])


def as_emitted(program: Program) -> Program:
    """The program in the order in which it was emitted, without idle waits: a tenth smaller or larger than in time."""
    return Orders(program).ordered(np.arange(len(program.commands), dtype=np.int64))


class Orders:
    """A program without loops in several orders."""

    def __init__(self, program: Program) -> None:
        self._program = program
        queues = program.commands["queue"].astype(np.int64)
        waits, counts = program.waits.astype(np.int64), np.diff(program.wait_offsets)
        owners = np.repeat(np.arange(len(queues)), counts)
        # waits together that are of one command for one other queue: in any order the last of them is enough
        kept = np.flatnonzero(queues[waits] != queues[owners])
        keys = owners[kept] * (int(queues.max(initial=0)) + 1) + queues[waits[kept]]
        together = np.argsort(keys, kind="stable")
        self._waits, keys = waits[kept[together]], keys[together]
        self._firsts = np.flatnonzero(np.append(True, keys[1:] != keys[:-1])[: len(keys)])
        self._owners = owners[kept[together[self._firsts]]]

    def ordered(self, order: Ints) -> Program:
        """The program with its commands in another order, without the waits that the order of queues makes idle."""
        program, count = self._program, max(1, len(order))
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order))
        latest = np.maximum.reduceat(places[self._waits], self._firsts) if len(self._firsts) else self._firsts
        # whole numbers sort many times faster than rows of several columns: owner and wait in one
        keys = np.sort(places[self._owners] * count + latest)
        offsets = np.zeros(len(order) + 1, dtype=np.int64)
        np.cumsum(np.bincount(keys // count, minlength=len(order)), out=offsets[1:])
        return program.once(
            program.commands[order],
            offsets.astype(program.wait_offsets.dtype),
            (keys % count).astype(program.waits.dtype),
        )
