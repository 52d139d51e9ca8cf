"""When each command of a program was issued, moved and ended, and what its engine waited for before it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.loops.time import WINDOW, ProgramTime, commands_of, time_of
from compiler.program.program import Program
from compiler.program.timing.demands import Demands
from compiler.program.timing.observed import Observation, Observed, observe
from compiler.program.timing.ticks import Ints


@dataclass(frozen=True, kw_only=True)
class CommandTimes:
    """Per command, in the order of the program: ticks at which it was issued, began and ended to move.

    last: the command that it waited for last when it was the next of its stream, -1 where it did not wait then.
    waits, causes, startups: as `CommandStalls`.
    """

    time: ProgramTime
    profile: Profile
    issues: Ints
    begins: Ints
    ends: Ints
    last: Ints
    waits: Ints
    causes: Ints
    startups: Ints

    @property
    def program(self) -> Program:
        """Its statements."""
        return self.time.program

    @property
    def demands(self) -> Demands:
        """What statements take."""
        return self.time.demands

    @property
    def ticks(self) -> int:
        """Until all has ended."""
        return self.time.ticks

    @property
    def cycles(self) -> float:
        """The same in cycles."""
        return self.time.cycles

    @cached_property
    def observed(self) -> Observed:
        """What all commands say together."""
        return observe(self.time, self.profile)


def times_of(program: Program, profile: Profile, window: int = WINDOW) -> CommandTimes:
    """The times of a program's commands, shown so many at a time."""
    time = time_of(program, profile)
    observation = Observation(time, profile)
    parts = []
    for commands in commands_of(time, window):
        stalls = observation.add(commands)
        of_commands = (commands.positions, commands.issues, commands.begins, commands.ends, commands.lasts)
        parts.append(np.stack([*of_commands, stalls.waits, stalls.causes, stalls.startups]))
    columns = np.concatenate(parts, axis=1)
    positions, issues, begins, ends, lasts, waits, causes, startups = columns[:, np.argsort(columns[0])]
    return CommandTimes(
        time=time,
        profile=profile,
        issues=issues,
        begins=begins,
        ends=ends,
        last=np.where(lasts < 0, -1, np.searchsorted(positions, lasts)),
        waits=waits,
        causes=causes,
        startups=startups,
    )
