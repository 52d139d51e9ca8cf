"""An executable's commands in time as a Perfetto trace: a track per engine, counters of memory and bandwidth (SIM-4).

Cores, clusters and chips are groups of tracks. On an engine's track its waits, the start-ups that nothing hides, and
what it moves or computes follow one another without overlapping; what it prepares meanwhile is not shown. A slice is
named by the ONNX nodes that it works for, and its category is what the command does. It has the command's number in the
listing and, if that loops, its tile's counters. Times are rounded to whole nanoseconds, each by itself; `cycles` is the
exact length. Segments begin as in a lone batch (`chips.py`). Commands are written as they end, window by window, in
each of them engine after engine.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.degraded import reason_of
from compiler.errors import LimitError, ModelError, printable
from compiler.profile.schema import Profile
from compiler.program.calls import HOSTILE
from compiler.program.engines import is_per_core
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable
from compiler.program.fields import check_fields
from compiler.program.loops.loops import COUNTER_NAMES
from compiler.program.loops.tiles import Tiles
from compiler.program.loops.time import WINDOW, Commands, ProgramTime, commands_of, time_of
from compiler.program.program import Opcode, Queue, Step
from compiler.program.timing.chips import Stream, Task, stream_of, tasks_of
from compiler.program.timing.observed import Observation, Observed
from compiler.program.timing.packets import Argument, TraceWriter
from compiler.program.timing.stalls import CommandStalls, Spent
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Flags, seconds_of

# Categories of slices that are no commands.
WAIT: Final = "wait"
STARTUP: Final = "start-up"
LINK: Final = "transfer"
NOTE: Final = "note"
_COMMANDS_PER_PIECE: Final = 1024
_NAME_LIMIT: Final = 80
# The last time that a reader of traces can tell, in nanoseconds.
_LAST_NS: Final = 2**63 - 1


def trace_of(executable: Executable, *, limit: int | None = None, window: int = WINDOW) -> Iterator[bytes]:
    """The trace of an executable, piece by piece; with `limit` so many commands of each segment, the first ones.

    window: how many commands it looks at together, at least.

    Raises, before the first piece, LimitError if the lone batch lasts longer than a trace can tell, and ProgramError
    for a program that makes no sense.
    """
    profile = executable.profile
    times = {segment.id: _time(segment, profile) for segment in executable.segments if isinstance(segment, ChipSegment)}
    tasks = tasks_of(executable, {name: time.ticks for name, time in times.items()}, profile)
    stream = stream_of(tasks)
    _check_length(stream, profile)
    begins = dict(zip((task.segment for task in tasks), stream.begins, strict=True))
    trace = _Trace(profile)
    for segment in executable.segments:
        if isinstance(segment, ChipSegment):
            part = _Part(segment=segment, time=times[segment.id], begin=begins[segment.id])
            observed = yield from trace.commands(part, limit, window)
            trace.counters(part, observed)
            yield trace.take()
    trace.links(tasks, stream)
    yield trace.take()


def _time(segment: ChipSegment, profile: Profile) -> ProgramTime:
    try:
        check_fields(segment.program)
        return time_of(segment.program, profile)
    except (ModelError, *HOSTILE) as error:  # nobody has proved the program
        raise ProgramError(
            f"segment {printable(segment.id, 60)} cannot be timed: {reason_of(error)[:160]}",
            violation="timing",
            actual=type(error).__name__,
        ) from error


def _check_length(stream: Stream, profile: Profile) -> None:
    seconds = seconds_of(stream.latency_ticks, profile.clock_hz)
    if seconds * 1e9 > _LAST_NS:
        raise LimitError(
            "the program takes longer than a trace can tell",
            stage="trace",
            actual=f"{seconds:.3g} s",
            limit=f"{_LAST_NS / 1e9:.3g} s",
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Part:
    """A segment in the trace, and when it begins, in ticks."""

    segment: ChipSegment
    time: ProgramTime
    begin: int


class _Trace:
    """The trace as it is written; groups of tracks and tracks appear as they are met."""

    def __init__(self, profile: Profile) -> None:
        self._writer = TraceWriter()
        self._profile = profile
        self._ns_per_tick = seconds_of(1, profile.clock_hz) * 1e9
        self._groups: dict[str, int] = {}
        self._tracks: dict[tuple[str, str], int] = {}

    def take(self) -> bytes:
        """What was written since the last time."""
        return self._writer.take()

    def commands(self, part: _Part, limit: int | None, window: int) -> Generator[bytes, None, Observed]:
        """The commands of a segment; what all of them together say."""
        time = part.time
        observation = Observation(time, self._profile)
        queue_of = time.program.commands["queue"]
        texts, written = _Texts(time, observation.tiles), 0
        last = None
        if limit is not None and limit < time.commands:
            last = int(observation.tiles.first(limit).max(initial=-1))
        for commands in commands_of(time, window):
            stalls = observation.add(commands)
            shown = np.ones(len(commands), dtype=np.bool_) if last is None else commands.positions <= last
            rows = _Rows(texts, commands, stalls, shown)
            its = queue_of[observation.tiles.statements(commands.positions[shown])]
            for number, queue in enumerate(time.program.queues):
                track = self._engine(part.segment.chip, queue)
                for row in np.flatnonzero(its == number).tolist():
                    self._command(track, part.begin, rows, row)
                    written += 1
                    if written % _COMMANDS_PER_PIECE == 0:
                        yield self.take()
        if written < time.commands:
            track = self._track(f"chip {part.segment.chip}", NOTE)
            name = printable(part.segment.id, _NAME_LIMIT)
            text = f"{time.commands - written} of {time.commands} commands of {name} are left out"
            self._slice(track, part.begin, 0, time.ticks, text, NOTE, {})
        return observation.found()

    def _command(self, track: int, at: int, rows: _Rows, row: int) -> None:
        """What an engine does from being free until a command has ended."""
        free, begin = rows.frees[row], rows.begins[row]
        turn = max(free, rows.issues[row])
        if turn > free:
            cause = rows.cause(row)
            waited = (turn - free) / TICKS_PER_CYCLE
            self._slice(track, at, free, turn, f"waits: {cause}", WAIT, {"for": cause, "cycles": waited})
        if begin > turn:
            self._slice(track, at, turn, begin, STARTUP, STARTUP, {"cycles": (begin - turn) / TICKS_PER_CYCLE})
        self._slice(track, at, begin, rows.ends[row], rows.name(row), rows.category(row), rows.arguments(row))

    def counters(self, part: _Part, observed: Observed) -> None:
        """What the fullest memory of each level holds, and the bytes per second through the DRAM's port."""
        chip = f"chip {part.segment.chip}"
        for found in observed.occupancies:
            track = self._counter(chip, f"{found.level.value} {found.number} holds")
            for step, size in enumerate([*found.held_bytes().tolist(), 0]):
                self._writer.value(track, self._time(part.begin, step * found.step_ticks), size)
        usage = observed.usage
        track = self._counter(chip, "DRAM bandwidth", unit="bytes/s")
        sizes = usage.bytes["dram"].tolist() if "dram" in usage.bytes else []
        for number, size in enumerate([*sizes, 0.0]):
            rate = size / usage.slice_cycles * self._profile.clock_hz
            self._writer.value(track, self._time(part.begin, number * usage.slice_cycles * TICKS_PER_CYCLE), rate)

    def links(self, tasks: Sequence[Task], stream: Stream) -> None:
        """Tensors on their way between chips and host, where that takes time."""
        for task, begin in zip(tasks, stream.begins, strict=True):
            if task.segment is None and task.ticks:
                track = self._track("links", task.resource)
                self._slice(track, begin, 0, task.ticks, task.resource, LINK, {"cycles": task.ticks / TICKS_PER_CYCLE})

    def _slice(
        self,
        track: int,
        at: int,
        begin: int,
        end: int,
        name: str,
        category: str,
        arguments: dict[str, Argument],
    ) -> None:
        self._writer.slice(track, self._time(at, begin), self._time(at, end), name, category, arguments)

    def _time(self, at: int, tick: float) -> int:
        """Nanoseconds from the beginning of the lone batch; later is never rounded to earlier."""
        return round((at + tick) * self._ns_per_tick)

    def _engine(self, chip: int, queue: Queue) -> int:
        owner = "core" if is_per_core(queue.engine) else "cluster"
        return self._track(f"chip {chip} {owner} {queue.number}", queue.engine)

    def _track(self, group: str, name: str) -> int:
        found = self._tracks.get((group, name))
        if found is None:
            parent = self._group(group)
            found = self._tracks[group, name] = self._writer.track(name, parent, len(self._tracks))
        return found

    def _counter(self, group: str, name: str, *, unit: str | None = None) -> int:
        found = self._tracks.get((group, name))
        if found is None:
            parent = self._group(group)
            found = self._tracks[group, name] = self._writer.counter(name, parent, len(self._tracks), unit=unit)
        return found

    def _group(self, name: str) -> int:
        found = self._groups.get(name)
        if found is None:
            found = self._groups[name] = self._writer.process(name, len(self._groups))
        return found


class _Texts:
    """What the trace says of the commands of a program, whenever they run."""

    def __init__(self, time: ProgramTime, tiles: Tiles) -> None:
        program = time.program
        self.tiles = tiles
        self.opcodes, self.steps = program.commands["opcode"], program.commands["step"]
        self.moved = time.demands.moved
        spaces = time.program.loops.spaces["counters"]
        self.counters = spaces[time.program.loops.statements["space"]]
        self.names = [*map(_name, program.steps), ""]
        self.purposes: list[dict[str, Argument]] = [
            {"group": printable(step.group, _NAME_LIMIT), "tensor": printable(step.tensor, _NAME_LIMIT)}
            for step in program.steps
        ]
        self.purposes.append({})


class _Rows:
    """Commands that end one after another, as they stand in the trace; times in ticks of the program."""

    def __init__(self, texts: _Texts, commands: Commands, stalls: CommandStalls, shown: Flags) -> None:
        times = (commands.issues, commands.begins, commands.ends, stalls.frees)
        self.issues, self.begins, self.ends, self.frees = (column[shown].tolist() for column in times)
        positions = commands.positions[shown]
        statements = texts.tiles.statements(positions)
        self._texts = texts
        self._causes = stalls.causes[shown].tolist()
        self._statements, self._tiles = statements.tolist(), texts.tiles.counters(positions).tolist()
        columns = (texts.opcodes, texts.steps, texts.moved, texts.counters)
        self._opcodes, self._steps, self._moved, self._counters = (one[statements].tolist() for one in columns)

    def cause(self, row: int) -> str:
        """What the engine waits for before it."""
        return Spent(self._causes[row]).label

    def name(self, row: int) -> str:
        """The ONNX nodes that it works for; of what works for none, what it does."""
        return self._texts.names[self._steps[row]] or self.category(row)

    def category(self, row: int) -> str:
        """What it does."""
        return Opcode(self._opcodes[row]).name.lower()

    def arguments(self, row: int) -> dict[str, Argument]:
        """Its statement and tile, its length, what it moves, and for what."""
        moved, counters = self._moved[row], self._counters[row]
        return {
            "command": self._statements[row],
            **dict(zip(COUNTER_NAMES, self._tiles[row][:counters], strict=False)),
            "cycles": (self.ends[row] - self.begins[row]) / TICKS_PER_CYCLE,
            **({"bytes": moved} if moved else {}),
            **self._texts.purposes[self._steps[row]],
        }


def _name(step: Step) -> str:
    """A step's nodes in short."""
    names = [printable(node, _NAME_LIMIT) for node in step.nodes]
    return names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "") if names else ""
