"""The parts of the report about time and energy, by simulation of the commands (SIM-2, SIM-3)."""

from __future__ import annotations

from typing import Literal

import msgspec


class TimePart(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A part of a document."""


class EngineTime(TimePart, frozen=True, kw_only=True):
    """What the engines of one name do with their time, `count` of them.

    `cycles`: by what they do or wait for, the mean of all engines of the name, adding up to the program's cycles (each
    is rounded by itself). `busiest_cycles`: for how long the one that works longest computes or moves.
    """

    engine: str
    count: int
    cycles: dict[str, int]
    busiest_cycles: int


class RooflinePoint(TimePart, frozen=True, kw_only=True):
    """A group (None: the whole program) under the roof.

    `operations`: two per multiply-accumulate, one per operation of a vector unit. `intensity`: operations per byte that
    passes the DRAM's port, None where none does. `cycles`: from the first command's issue to the last one's end; groups
    overlap at their ends. `bound_cycles`: what no program that computes and moves as much can go below, by the ceiling
    `bound_by`.
    """

    group: str | None
    operations: int
    dram_bytes: int
    intensity: float | None
    cycles: int
    operations_per_s: float
    bound_cycles: float
    bound_by: Literal["dram", "array", "vector"]


class RooflineReport(TimePart, frozen=True, kw_only=True):
    """The ceilings of the chip, and the points of the program and its groups beneath them.

    `array_operations_per_s`: two per multiply-accumulate, of all cores, by element type.
    """

    array_operations_per_s: dict[str, float]
    vector_operations_per_s: float
    dram_bytes_per_s: float
    program: RooflinePoint
    groups: tuple[RooflinePoint, ...]


class UsageReport(TimePart, frozen=True, kw_only=True):
    """What the program uses by slice of its time, all slices `slice_cycles` long.

    `bytes`: through the DRAM's port, links, and ports of memories that have a rate, all of a name together;
    `bytes_per_cycle`: what those that the program uses could pass. `array`, `vector`: work of these units, as a share
    of what those of all cores could do in the slice at their peak.
    """

    slice_cycles: float
    bytes: dict[str, tuple[int, ...]]
    bytes_per_cycle: dict[str, float]
    array: tuple[float, ...]
    vector: tuple[float, ...]


class HeldBytes(TimePart, frozen=True, kw_only=True):
    """A rectangle of address × time that holds something, from step `begin` to `end` (half-open).

    `tensor`: what was being made when it was written, None for what was there before the program.
    """

    address: int
    size_bytes: int
    begin: int
    end: int
    tensor: str | None


class HeldMemory(TimePart, frozen=True, kw_only=True):
    """What the fullest memory of a level holds over time, memory `number` of that level (PROG-2).

    Addresses are rounded outwards to multiples of `address_step_bytes`, times to steps of `step_cycles`; of what shares
    such a cell the last is named. `held_bytes`: by step.
    """

    level: str
    number: int
    capacity_bytes: int
    address_step_bytes: int
    step_cycles: float
    held_bytes: tuple[int, ...]
    held: tuple[HeldBytes, ...]


class StreamReport(TimePart, frozen=True, kw_only=True):
    """Batches one after another over chips and links (PART-5).

    `latency_s`: of a lone batch, links with a stated rate included. `interval_s`: from one batch's end to the next
    one's, in a long stream. `busy_s`: by chip and direction of a link, for how long each batch keeps it; `bound_by`
    names the busiest. `segments_begin_s`: when each segment begins in a lone batch.
    """

    latency_s: float
    interval_s: float
    images_per_s: float
    bound_by: str
    busy_s: dict[str, float]
    segments_begin_s: dict[str, float]
