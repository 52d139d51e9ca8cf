"""How segments follow one another over chips, batch after batch (SIM-2, PART-5).

A batch is *tasks*: the program of a segment on its chip, or a tensor on its way between chips, or between chip and
host. A resource (a chip, a direction of a link) does one task at a time, of those that are ready that of the oldest
batch first. A batch begins when few enough are on their way, twice as many as there are resources. A steady stream of
batches comes out at the pace of the busiest resource, if no chip has to wait for its own results.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from compiler.profile.schema import Profile
from compiler.program.executable import ChipSegment, Executable, HostSegment
from compiler.program.program import Role
from compiler.program.timing.ticks import TICKS_PER_CYCLE

HOST: Final = "host"
# Batches that are looked at at least, after those with which the stream begins and before those with which it ends.
_BATCHES: Final = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What one resource does for each batch, once the tasks `after` (numbers) have ended for it.

    `segment`: whose program it is, None of a tensor on its way.
    """

    segment: str | None
    resource: str
    ticks: int
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Batches in steady state: ticks of a lone batch, and from one batch's end to the next one's in a long stream.

    The interval is a mean over several batches, and need not be whole. `begins`: of each task in the lone batch.
    `busy`: by resource, the ticks it takes for each batch.
    """

    latency_ticks: int
    interval_ticks: float
    begins: tuple[int, ...]
    busy: dict[str, int]


def tasks_of(executable: Executable, ticks: Mapping[str, int], profile: Profile) -> tuple[Task, ...]:
    """The tasks of an executable whose chip segments take so many ticks; what has no stated rate takes no time.

    A tensor goes once to each other chip that reads it, and once to the host. Host segments take no time.
    """
    maker = _Tasks(profile)
    for value in executable.inputs:
        maker.made[value.tensor] = (HOST, None)
    for segment in executable.segments:
        if isinstance(segment, ChipSegment):
            maker.add_chip(segment, ticks[segment.id])
        else:
            maker.add_host(segment)
    for value in executable.outputs:
        maker.bring(value.tensor, HOST)
    return tuple(maker.tasks)


class _Tasks:
    """Makes tasks, segment by segment; `made`: where a tensor was made, and by which task (None: before all)."""

    def __init__(self, profile: Profile) -> None:
        self.tasks: list[Task] = []
        self.made: dict[str, tuple[str, int | None]] = {}
        self._profile = profile
        self._sizes: dict[str, int] = {}
        self._brought: dict[tuple[str, str], int] = {}
        self._before: dict[str, int] = {}

    def add_chip(self, segment: ChipSegment, ticks: int) -> None:
        place = f"chip {segment.chip}"
        regions = segment.program.regions
        self._sizes |= {region.name: region.size_bytes for region in regions}
        inputs = [region.name for region in regions if region.role is Role.INPUT]
        outputs = [region.name for region in regions if region.role is Role.OUTPUT]
        self._run(segment.id, place, ticks, inputs, outputs)

    def add_host(self, segment: HostSegment) -> None:
        self._run(segment.id, HOST, 0, segment.inputs, segment.outputs)

    def _run(self, name: str, place: str, ticks: int, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        arrived = [self.bring(tensor, place) for tensor in inputs]
        after = sorted({number for number in arrived if number is not None})
        number = self._add(Task(segment=name, resource=place, ticks=ticks, after=tuple(after)))
        self.made |= dict.fromkeys(outputs, (place, number))

    def bring(self, tensor: str, place: str) -> int | None:
        """The task after which a tensor is at a place; None: from the start."""
        source, maker = self.made.get(tensor, (HOST, None))
        if source == place:
            return maker
        found = self._brought.get((tensor, place))
        if found is None:
            rate = self._rate(source, place)
            ticks = 0 if rate is None else ceil(self._sizes.get(tensor, 0) / rate * TICKS_PER_CYCLE)
            after = () if maker is None else (maker,)
            task = Task(segment=None, resource=f"{source} to {place}", ticks=ticks, after=after)
            found = self._brought[tensor, place] = self._add(task)
        return found

    def _rate(self, source: str, target: str) -> float | None:
        """Bytes per cycle between two places; None where the profile states nothing."""
        profile = self._profile
        rate = profile.host_link_bytes_per_s if HOST in (source, target) else profile.chip_link_bytes_per_s
        return None if rate is None else rate / profile.clock_hz

    def _add(self, task: Task) -> int:
        self.tasks.append(task)
        return len(self.tasks) - 1


def stream_of(tasks: Sequence[Task]) -> Stream:
    """A lone batch and a long stream of them, by event."""
    resources = dict.fromkeys(task.resource for task in tasks)
    begins, alone = _run_batches(tasks, 1, 1)
    depth = 2 * len(resources)
    looked_at = max(_BATCHES, 2 * depth)
    _, ends = _run_batches(tasks, looked_at + 2 * depth, depth)
    busy = {name: sum(task.ticks for task in tasks if task.resource == name) for name in resources}
    interval = _interval(ends[depth : depth + looked_at], max(busy.values(), default=0))
    return Stream(latency_ticks=alone[0], interval_ticks=interval, begins=begins[0], busy=busy)


def _interval(ends: Sequence[int], least: int) -> float:
    """Ticks per batch: batches come out in a rhythm, which may take several of them.

    If there is none it is the mean. Neither is less than the busiest resource needs, `least`, in the end: bursts may
    make the mean seem so, and a rhythm that lasts until what the busiest resource does late has piled up.
    """
    for period in range(1, len(ends) // 2):
        steps = [later - earlier for earlier, later in zip(ends, ends[period:], strict=False)]
        if max(steps) == min(steps):
            return max(least, steps[-1] / period)
    return max(least, (ends[-1] - ends[0]) / (len(ends) - 1))


def _run_batches(tasks: Sequence[Task], count: int, depth: int) -> tuple[list[tuple[int, ...]], list[int]]:
    """Of each batch when its tasks begin, and when the last of them ends; `depth` batches are on their way at once."""
    stream = _Run(tasks, count)
    for batch in range(min(depth, count)):
        stream.enter(batch)
    while stream.start():
        for batch in stream.advance():
            if batch + depth < count:
                stream.enter(batch + depth)
    return [tuple(row) for row in stream.begins], stream.ends


class _Run:
    """The state of a stream of batches; tasks that are ready wait at their resource, the oldest batch first."""

    def __init__(self, tasks: Sequence[Task], count: int) -> None:
        self.begins = [[0] * len(tasks) for _ in range(count)]
        self.ends = [0] * count
        self._tasks = tasks
        self._readers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in task.after:
                self._readers[before].append(number)
        self._missing = [[len(task.after) for task in tasks] for _ in range(count)]
        self._left = [len(tasks)] * count
        self._ready: dict[str, list[tuple[int, int]]] = {task.resource: [] for task in tasks}
        self._busy: set[str] = set()
        # resources that may be able to do something
        self._woken: set[str] = set()
        self._events: list[tuple[int, int, int]] = []
        self._now = 0

    def enter(self, batch: int) -> None:
        """A batch begins: what waits for nothing is ready."""
        for number, task in enumerate(self._tasks):
            if not task.after:
                self._wake(batch, number)

    def start(self) -> bool:
        """Every idle resource takes what is ready; False if nothing is going on."""
        for resource in sorted(self._woken - self._busy):
            if self._ready[resource]:
                self._busy.add(resource)
                batch, number = heapq.heappop(self._ready[resource])
                self.begins[batch][number] = self._now
                heapq.heappush(self._events, (self._now + self._tasks[number].ticks, batch, number))
        self._woken.clear()
        return bool(self._events)

    def advance(self) -> list[int]:
        """Go on to when the next tasks end; the batches of which these were the last."""
        self._now = self._events[0][0]
        done = []
        while self._events and self._events[0][0] == self._now:
            _, batch, number = heapq.heappop(self._events)
            self._busy.discard(self._tasks[number].resource)
            self._woken.add(self._tasks[number].resource)
            self._left[batch] -= 1
            if not self._left[batch]:
                self.ends[batch] = self._now
                done.append(batch)
            for reader in self._readers[number]:
                self._missing[batch][reader] -= 1
                if not self._missing[batch][reader]:
                    self._wake(batch, reader)
        return done

    def _wake(self, batch: int, number: int) -> None:
        """A task is ready."""
        resource = self._tasks[number].resource
        heapq.heappush(self._ready[resource], (batch, number))
        self._woken.add(resource)
