"""A program's timeline: when each of its commands was issued, moved and ended (SIM-2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.program import Program
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints

_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Per command of a program without loops, in program order, ticks from the program's start.

    issues: all that it waits for has ended and its engine turns to it. begins, ends: its data moves, or its call runs.
    last: the command that it waited for last when it was the next of its stream, -1 where it did not wait then.
    """

    program: Program
    demands: Demands
    issues: Ints
    begins: Ints
    ends: Ints
    last: Ints

    @property
    def ticks(self) -> int:
        """Ticks until the last command has ended."""
        return int(self.ends.max(initial=0))

    @property
    def cycles(self) -> float:
        """The same in cycles."""
        return self.ticks / TICKS_PER_CYCLE


def timeline_of(program: Program, profile: Profile) -> Timeline:
    """Simulate a program without loops in time on an otherwise idle chip.

    Raises InternalError where commands wait in a circle.
    """
    return timeline_under(program, demands_of(program, profile))


def timeline_under(
    program: Program, demands: Demands, streams: Ints | None = None, urgency: Ints | None = None
) -> Timeline:
    """The same with the demands of its commands known.

    With `streams` (per command, the number of one of as many streams for each queue) queues do not keep the order of
    the program: each of their streams does, and what is ready goes first; by `urgency` if given, the smallest first.
    """
    # imported where it is used alone: it brings a compiler with it
    from compiler.program.loops.time import Commands, time_under

    count = len(program.commands)
    columns = np.full((4, count), _NONE, dtype=np.int64)

    def note(commands: Commands) -> None:
        numbers = commands.positions % count
        lasts = np.where(commands.lasts < 0, _NONE, commands.lasts % count)
        columns[:, numbers] = commands.issues, commands.begins, commands.ends, lasts

    time_under(program, demands, streams=streams, urgency=urgency, observer=note)
    issues, begins, ends, last = columns
    return Timeline(program=program, demands=demands, issues=issues, begins=begins, ends=ends, last=last)


def to_the_end(program: Program, demands: Demands, streams: Ints) -> Ints:
    """Per command the ticks that pass from its begin to the program's end at least, if nothing shares its resources.

    Through what waits for it, and what comes after it in its stream.
    """
    from compiler.program.timing.events import longest_to_end

    queues = program.commands["queue"].astype(np.int64)
    per = int(streams.max(initial=0)) + 1
    _, following = _in_order(queues * per + streams, len(program.queues) * per)
    offsets, waits = program.wait_offsets.astype(np.int64), program.waits.astype(np.int64)
    found: Ints = longest_to_end(demands.startups + demands.durations, offsets, waits, following)
    return found


def _in_order(streams: Ints, count: int) -> tuple[Ints, Ints]:
    """Each stream's first command, and of each command the next one of its stream."""
    order = np.argsort(streams, kind="stable")
    sorted_streams = streams[order]
    following = np.full(len(streams), _NONE, dtype=np.int64)
    same = sorted_streams[1:] == sorted_streams[:-1]
    following[order[:-1][same]] = order[1:][same]
    heads = np.full(count, _NONE, dtype=np.int64)
    is_first = np.append(True, ~same) if len(order) else np.zeros(0, dtype=np.bool_)
    heads[sorted_streams[is_first]] = order[is_first]
    return heads, following
