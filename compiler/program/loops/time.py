"""How long a program takes (SIM-2, PROG-6): engines go through their loops, and jump over what repeats.

In: a program and a profile. Out: ticks, and sums over all commands, in memory that depends on statements only.
Who wants to know of single commands gives an observer, which is shown all of them, window by window; then nothing is
jumped over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.errors import InternalError
from compiler.profile.schema import Profile
from compiler.program.loops.time_recurrence import states_of
from compiler.program.loops.walk import NEVER, NONE, cursors_of, instances_of, walk_of
from compiler.program.program import Program
from compiler.program.timing.demands import Demands, demands_of
from compiler.program.timing.engine_state import COMMANDS, FILLED, NOW, Loads, engines_of
from compiler.program.timing.events import ROW, run_events
from compiler.program.timing.levels import Moved, moved_by
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints, check_lengths

# Commands that an observer is shown at a time, at least; a command is 40 bytes.
WINDOW: Final = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Commands:
    """Some commands of a walk in the order in which they end: positions, and ticks at which they are issued, begin and
    end to move. lasts: the position of what each waited for last when it was the next of its stream, -1 without a wait.

    All that ends before tick `until` has been shown by now; behind the last commands it is NEVER. `open_positions` have
    begun to move at `open_begins`, and are shown later.
    """

    positions: Ints
    issues: Ints
    begins: Ints
    ends: Ints
    lasts: Ints
    until: int
    open_positions: Ints
    open_begins: Ints

    def __len__(self) -> int:
        return len(self.positions)


Observer = Callable[[Commands], None]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProgramTime:
    """What a program takes. ticks: until all has ended.

    By queue `busy`: ticks in which a command moves. By group of the plan, `group_begins`: when the first command of it
    is issued, NEVER without any; `group_ends`: the last end of one, 0 without any; behind the groups, of what works for
    none. By statement `instances`: how often it runs; `origins`: the position of its tile where all counters are 0. By
    nest: its iterations, and how many of them were jumped over. walked: commands that were gone through.
    """

    program: Program
    demands: Demands
    instances: Ints
    ticks: int
    busy: Ints
    group_begins: Ints
    group_ends: Ints
    origins: Ints
    iterations: Ints
    jumped: Ints
    walked: int

    @property
    def cycles(self) -> float:
        """Ticks in cycles."""
        return self.ticks / TICKS_PER_CYCLE

    @property
    def idle(self) -> Ints:
        """By queue the ticks in which nothing moves."""
        return self.ticks - self.busy

    @property
    def commands(self) -> int:
        """How many commands run."""
        return int(self.instances.sum())

    def by_group(self) -> dict[str, int]:
        """Ticks by which each group of the plan prolongs the program: from the last end of all before to its own."""
        lengths = np.diff(np.maximum.accumulate(self.group_ends[:-1]), prepend=0)
        return dict(zip(self.program.group_names, lengths.tolist(), strict=True))

    def parts(self) -> Iterator[tuple[str, ProgramTime]]:
        """Each group of the plan by itself, on an otherwise idle chip, its commands in the order of the program."""
        groups = self.program.group_numbers
        for number, name in enumerate(self.program.group_names):
            mine = np.flatnonzero(groups == number)
            yield name, time_under(self.program.alone(mine), self.demands.ordered(mine))

    def moved(self) -> Moved:
        """Bytes by memory and direction, and bytes times links crossed."""
        return moved_by(self.program, self.demands, self.instances)


def time_of(program: Program, profile: Profile, *, observer: Observer | None = None) -> ProgramTime:
    """Simulate a program in time on an otherwise idle chip.

    Raises LimitError for more than can be simulated, and InternalError where commands wait in a circle.
    """
    return time_under(program, demands_of(program, profile), observer=observer)


def time_under(
    program: Program,
    demands: Demands,
    *,
    streams: Ints | None = None,
    urgency: Ints | None = None,
    observer: Observer | None = None,
    jumps: bool = True,
) -> ProgramTime:
    """The same with the demands of its statements known.

    With `streams` (per statement, the number of one of as many streams for each queue) queues do not keep the order of
    the program: each of their streams does, and what is ready goes first; by `urgency` if given, the smallest first.
    """
    run = _Run(program, demands, streams, urgency, jumps=jumps and observer is None)
    for commands in run.windows(0 if observer is None else WINDOW):
        if observer is not None:
            observer(commands)
    return run.time()


def commands_of(time: ProgramTime, window: int = WINDOW) -> Iterator[Commands]:
    """All commands of a program whose time is known, at least so many at a time but for the last ones."""
    return _Run(time.program, time.demands, jumps=False).windows(window)


class _Run:
    """One simulation of a program."""

    def __init__(
        self,
        program: Program,
        demands: Demands,
        streams: Ints | None = None,
        urgency: Ints | None = None,
        *,
        jumps: bool,
    ) -> None:
        count, queues = len(program.commands), len(program.queues)
        instances = instances_of(program.loops)
        check_lengths(demands.startups, demands.durations, demands.moved, instances)
        per = 1 if streams is None else int(streams.max(initial=0)) + 1
        stream_of = program.commands["queue"].astype(np.int64) * per
        self._program, self._demands, self._instances = program, demands, instances
        self._walk = walk_of(program, stream_of if streams is None else stream_of + streams, queues * per)
        self._loads = Loads(
            startups=demands.startups,
            durations=demands.durations,
            amounts=demands.amounts,
            shifts=demands.shifts,
            rates=demands.rates,
            kinds=demands.kinds,
            offsets=demands.offsets,
            resources=demands.resources,
            weights=demands.weights,
            capacities=demands.capacities,
            urgency=np.zeros(count, dtype=np.int64) if urgency is None else urgency,
            sections=program.group_numbers,
        )
        self._cursors = cursors_of(self._walk)
        self._engines = engines_of(
            np.repeat(np.arange(queues), per), queues, len(demands.capacities), len(program.group_names) + 1
        )
        self._states = states_of(self._walk, queues, jumps=jumps)

    def windows(self, window: int) -> Iterator[Commands]:
        """Run all commands, and show them, at least so many at a time; 0: show none.

        Raises InternalError where commands wait in a circle.
        """
        most = min(window, int(self._instances.sum()))
        rows = np.zeros(ROW * (len(self._program.queues) + most) if window else 0, dtype=np.int64)
        is_done = False
        while not is_done:
            is_done = run_events(self._walk, self._cursors, self._loads, self._engines, self._states, rows)
            if window:
                yield self._commands(rows[: ROW * self._engines.clock[FILLED]], is_done=is_done)
        stuck = np.flatnonzero(self._cursors.heads != NEVER)
        if len(stuck):
            raise InternalError(
                "commands of a program wait in a circle",
                stage="simulate",
                actual=int(self._cursors.head_statements[stuck].min()),
            )

    def _commands(self, rows: Ints, *, is_done: bool) -> Commands:
        # the rows are written again
        positions, issues, begins, ends, lasts = rows.reshape(-1, ROW).T.copy()
        moving = self._engines.active != NONE
        return Commands(
            positions=positions,
            issues=issues,
            begins=begins,
            ends=ends,
            lasts=lasts,
            until=NEVER if is_done else int(self._engines.clock[NOW]),
            open_positions=self._engines.active_positions[moving],
            open_begins=self._engines.active_begun[moving],
        )

    def time(self) -> ProgramTime:
        """What the program took, once all commands have run."""
        walk, engines, states = self._walk, self._engines, self._states
        return ProgramTime(
            program=self._program,
            demands=self._demands,
            instances=self._instances,
            ticks=int(engines.clock[NOW]),
            busy=engines.busy,
            group_begins=engines.section_begins,
            group_ends=engines.section_ends,
            origins=walk.origins,
            iterations=(walk.nest_offsets[1::2] - walk.nest_offsets[::2]) // max(1, walk.statements),
            jumped=states.jumped,
            walked=int(engines.clock[COMMANDS]),
        )
