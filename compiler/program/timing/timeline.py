"""A program's timeline: when each of its commands was issued, moved and ended (SIM-2)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.errors import InternalError
from compiler.profile.schema import Profile
from compiler.program.program import Program
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints

_NONE: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Per command, in program order, ticks from the program's start.

    issues: all that it waits for has ended and its engine turns to it. begins, ends: its data moves, or its call runs.
    last: the command that it waited for last, -1 for none.
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

    @property
    def group_names(self) -> tuple[str, ...]:
        """The groups of the plan that commands work for, in order."""
        return tuple(dict.fromkeys(step.group for step in self.program.steps))

    @property
    def groups(self) -> Ints:
        """Per command the number of its group; of those that work for none, one past the last."""
        names = {name: number for number, name in enumerate(self.group_names)}
        of_step = np.array([*(names[step.group] for step in self.program.steps), len(names)], dtype=np.int64)
        found: Ints = of_step[self.program.commands["step"]]
        return found

    def by_group(self) -> dict[str, int]:
        """Ticks by which each group of the plan prolongs the program, in the order of the groups.

        Groups overlap at their ends; the ticks from the last end of all before to a group's own are its, and the sum
        of all is the program's length.
        """
        names = self.group_names
        ends = np.zeros(len(names) + 1, dtype=np.int64)
        np.maximum.at(ends, self.groups, self.ends)
        lengths = np.diff(np.maximum.accumulate(ends[:-1]), prepend=0)
        return dict(zip(names, lengths.tolist(), strict=True))

    def alone(self) -> dict[str, int]:
        """Ticks that each group of the plan takes by itself, on an otherwise idle chip: what its price estimates.

        In a program groups overlap: one begins while the one before it still stores.
        """
        program, groups = self.program, self.groups
        count = len(program.commands)
        owners = np.repeat(np.arange(count), np.diff(program.wait_offsets))
        inside = groups[owners] == groups[program.waits]
        found = {}
        for number, name in enumerate(self.group_names):
            mine = np.flatnonzero(groups == number)
            place = np.zeros(count, dtype=np.int64)
            place[mine] = np.arange(len(mine))
            kept = inside & (groups[owners] == number)
            offsets = np.zeros(len(mine) + 1, dtype=np.int64)
            np.cumsum(np.bincount(place[owners[kept]], minlength=len(mine)), out=offsets[1:])
            part = replace(
                program, commands=program.commands[mine], waits=place[program.waits[kept]], wait_offsets=offsets
            )
            found[name] = timeline_under(part, self.demands.ordered(mine)).ticks
        return found


def timeline_of(program: Program, profile: Profile) -> Timeline:
    """Simulate a program in time on an otherwise idle chip; raises InternalError where commands wait in a circle."""
    return timeline_under(program, demands_of(program, profile))


def timeline_under(
    program: Program, demands: Demands, streams: Ints | None = None, urgency: Ints | None = None
) -> Timeline:
    """The same with the demands of its commands known.

    With `streams` (per command, the number of one of as many streams for each queue) queues do not keep the order of
    the program: each of their streams does, and what is ready goes first; by `urgency` if given, the smallest first.
    """
    # imported where it is used alone: it brings a compiler with it
    from compiler.program.timing.events import run_events

    count, queues = len(program.commands), program.commands["queue"].astype(np.int64)
    per = 1 if streams is None else int(streams.max(initial=0)) + 1
    stream_of = queues if streams is None else queues * per + streams
    heads, following = _in_order(stream_of, len(program.queues) * per)
    offsets, waits = program.wait_offsets.astype(np.int64), program.waits.astype(np.int64)
    wait_counts = np.diff(offsets)
    owners = np.repeat(np.arange(count, dtype=np.int64), wait_counts)
    order = np.argsort(waits, kind="stable")
    after_offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(waits, minlength=count), out=after_offsets[1:])
    issues, begins, ends, last = run_events(
        queues,
        stream_of,
        np.arange(len(program.queues) + 1, dtype=np.int64) * per,
        heads,
        following,
        np.zeros(count, dtype=np.int64) if urgency is None else urgency,
        wait_counts,
        after_offsets,
        owners[order],
        demands.startups,
        demands.durations,
        demands.amounts,
        demands.shifts,
        demands.rates,
        demands.kinds,
        demands.offsets,
        demands.resources,
        demands.weights,
        demands.capacities,
    )
    if (ends < 0).any():
        raise InternalError("commands of a program wait in a circle", stage="simulate", actual=int((ends < 0).argmax()))
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
