"""From the times of programs to what the report says of time and energy (SIM-2, SIM-3)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, cast

import numpy as np

from compiler.profile import Profile
from compiler.program.executable import Executable
from compiler.program.loops.time import ProgramTime
from compiler.program.program import Queue, Step
from compiler.program.timing.chips import stream_of, tasks_of
from compiler.program.timing.occupancy import Occupancy
from compiler.program.timing.roofline import Point, roofline_of
from compiler.program.timing.stalls import Spent
from compiler.program.timing.ticks import TICKS_PER_CYCLE, Ints, seconds_of
from compiler.program.timing.usage import Usage
from compiler.report import execution_time as doc

# What an engine does while it is busy.
_BUSY: Final = (Spent.WORK, Spent.PORTS, Spent.SHARING)
_DIGITS: Final = 4


def engine_times(queues: Sequence[Queue], stalls: Ints) -> tuple[doc.EngineTime, ...]:
    """Engines of one name together, by name; stalls: ticks by queue and `Spent`."""
    found = []
    for name in sorted({queue.engine for queue in queues}):
        rows = stalls[[number for number, queue in enumerate(queues) if queue.engine == name]] / TICKS_PER_CYCLE
        found.append(
            doc.EngineTime(
                engine=name,
                count=len(rows),
                cycles=_labelled(rows.mean(axis=0)),
                busiest_cycles=round(float(rows[:, _BUSY].sum(axis=1).max())),
            )
        )
    return tuple(found)


def core_stalls(engines: Sequence[doc.EngineTime]) -> dict[str, int]:
    """Cycles in which a core does not work, by cause, the mean of all cores; none where no core has anything to do."""
    cores = next((one.cycles for one in engines if one.engine == "core"), {})
    return {cause: cycles for cause, cycles in cores.items() if cause != Spent.WORK.label}


def _labelled(cycles: Any) -> dict[str, int]:
    return {spent.label: round(float(cycles[spent])) for spent in Spent if cycles[spent] > 0}


def usage_report(usage: Usage) -> doc.UsageReport:
    """The usage in slices."""
    return doc.UsageReport(
        slice_cycles=usage.slice_cycles,
        bytes={name: tuple(np.rint(sizes).astype(int).tolist()) for name, sizes in usage.bytes.items()},
        bytes_per_cycle=usage.capacities,
        array=_rounded(usage.array),
        vector=_rounded(usage.vector),
    )


def _rounded(values: Any) -> tuple[float, ...]:
    return tuple(np.round(values, _DIGITS).tolist())


def roofline_report(time: ProgramTime, alone: Sequence[int], profile: Profile) -> doc.RooflineReport:
    """Ceilings and points. `alone`: by group the ticks that it takes by itself."""
    whole, groups = roofline_of(time, alone, profile)
    per_s = profile.cores * profile.clock_hz
    used = {work.dtype for work in time.demands.works if work is not None and work.macs}
    return doc.RooflineReport(
        array_operations_per_s={
            dtype: 2 * array.k * array.c * array.ox * array.oy * per_s
            for dtype, array in sorted(profile.matrix.arrays.items())
            if dtype in used
        },
        vector_operations_per_s=profile.vector.lanes * per_s,
        dram_bytes_per_s=profile.dram.bandwidth_bytes_per_s,
        program=_point(whole, None, profile),
        groups=tuple(_point(point, point.name, profile) for point in groups),
    )


def _point(point: Point, group: str | None, profile: Profile) -> doc.RooflinePoint:
    bounds = point.bounds
    by = max(bounds, key=lambda name: bounds[name])
    return doc.RooflinePoint(
        group=group,
        operations=round(point.operations),
        dram_bytes=round(point.dram_bytes),
        intensity=point.operations / point.dram_bytes if point.dram_bytes else None,
        cycles=round(point.cycles),
        operations_per_s=point.operations * profile.clock_hz / point.cycles if point.cycles else 0.0,
        bound_cycles=bounds[by],
        bound_by=cast(Literal["dram", "array", "vector"], by),
    )


def held_memories(occupancies: Sequence[Occupancy], steps: Sequence[Step]) -> tuple[doc.HeldMemory, ...]:
    """The fullest memory of each level, in a program with these steps."""
    return tuple(
        doc.HeldMemory(
            level=found.level.value,
            number=found.number,
            capacity_bytes=found.capacity_bytes,
            address_step_bytes=found.address_step,
            step_cycles=found.step_ticks / TICKS_PER_CYCLE,
            held_bytes=tuple(found.held_bytes().tolist()),
            held=tuple(_held(found, [step.tensor for step in steps])),
        )
        for found in occupancies
    )


def _held(found: Occupancy, tensors: Sequence[str]) -> Iterator[doc.HeldBytes]:
    for address, size, begin, end, writer in found.rectangles.tolist():
        tensor = None if writer < 0 else tensors[writer]
        yield doc.HeldBytes(address=address, size_bytes=size, begin=begin, end=end, tensor=tensor)


def stream_report(
    executable: Executable, ticks: Mapping[str, int], images: int, profile: Profile
) -> doc.StreamReport | None:
    """Batches over chips whose segments take so many ticks; None where they take no time."""
    tasks = tasks_of(executable, ticks, profile)
    stream = stream_of(tasks)
    clock_hz = profile.clock_hz
    if not stream.interval_ticks:
        return None
    return doc.StreamReport(
        latency_s=seconds_of(stream.latency_ticks, clock_hz),
        interval_s=seconds_of(stream.interval_ticks, clock_hz),
        images_per_s=images / seconds_of(stream.interval_ticks, clock_hz),
        bound_by=max(stream.busy, key=lambda name: stream.busy[name]),
        busy_s={name: seconds_of(busy, clock_hz) for name, busy in stream.busy.items()},
        segments_begin_s={
            task.segment: seconds_of(begin, clock_hz)
            for task, begin in zip(tasks, stream.begins, strict=True)
            if task.segment is not None
        },
    )
