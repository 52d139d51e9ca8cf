"""What a program uses over time: bytes through memories' ports, DRAM and links, work of the units, by slice (SIM-2).

Bytes are exact: what the rates of moves carried (`run_flows`). What a call computes is spread evenly over the time that
it takes, though its core's ports may have slowed it at one time more than at another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.profile.schema import Profile
from compiler.program.timing.roofline import Floats, ideal_cycles
from compiler.program.timing.ticks import GRAIN_BITS, RATE_BITS, TICKS_PER_CYCLE, WEIGHT_BITS, Ints
from compiler.program.timing.timeline import Timeline

SLICES: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """By slice of the program's time, all slices equally long.

    `bytes`: by name of resource, through all resources of that name; `capacities`: bytes per cycle of those that the
    program uses, together. array, vector: cycles that the units of all cores would take at their peak for what they
    compute, as a share of the slice.
    """

    slice_cycles: float
    bytes: dict[str, Floats]
    capacities: dict[str, float]
    array: Floats
    vector: Floats


def usage_of(timeline: Timeline, profile: Profile, slices: int = SLICES) -> Usage:
    """The usage of a chip by a program, in so many slices."""
    demands = timeline.demands
    width = max(timeline.ticks, 1) / slices
    flows = _flows(timeline, width, slices)
    capacities = demands.capacities * 2.0 ** -(RATE_BITS + WEIGHT_BITS)
    resources: dict[str, list[int]] = {}
    for number, resource in enumerate(demands.names):
        resources.setdefault(resource.name, []).append(number)
    overlaps = _Overlaps.of(timeline.begins, timeline.ends, width, slices)
    ideal = np.array([(0.0, 0.0) if work is None else ideal_cycles(work, profile) for work in demands.works])
    shares = ideal.reshape(-1, 2)[demands.kinds] / profile.cores / (width / TICKS_PER_CYCLE)
    return Usage(
        slice_cycles=width / TICKS_PER_CYCLE,
        bytes={name: flows[numbers].sum(axis=0) for name, numbers in resources.items()},
        capacities={name: float(capacities[numbers].sum()) for name, numbers in resources.items()},
        array=overlaps.spread(shares[:, 0]),
        vector=overlaps.spread(shares[:, 1]),
    )


def _flows(timeline: Timeline, width: float, slices: int) -> Floats:
    """Bytes through each resource by slice; shape (resources, slices)."""
    # imported where it is used alone: it brings a compiler with it
    from compiler.program.timing.shares import run_flows

    demands = timeline.demands
    # what begins and ends at one time has nothing to move
    moving = np.flatnonzero((np.diff(demands.offsets)[demands.kinds] > 0) & (timeline.ends > timeline.begins))
    times = np.concatenate([timeline.ends[moving], timeline.begins[moving]])
    events = np.concatenate([2 * moving, 2 * moving + 1])
    order = np.lexsort((events, times))
    found: Floats = run_flows(
        times[order],
        events[order],
        width,
        slices,
        len(timeline.program.queues),
        demands.amounts,
        demands.shifts,
        demands.kinds,
        demands.rates,
        demands.offsets,
        demands.resources,
        demands.weights,
        demands.capacities,
    )
    return found * 2.0 ** -(GRAIN_BITS + WEIGHT_BITS)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Overlaps:
    """Which commands go on in which slices, and the share of each command's time that lies in the slice."""

    commands: Ints
    slices: Ints
    shares: Floats
    count: int

    @classmethod
    def of(cls, begins: Ints, ends: Ints, width: float, count: int) -> _Overlaps:
        first = np.clip(begins // width, 0, count - 1).astype(np.int64)
        last = np.maximum(first, np.clip(np.ceil(ends / width) - 1, 0, count - 1).astype(np.int64))
        lengths = last - first + 1
        commands = np.repeat(np.arange(len(begins), dtype=np.int64), lengths)
        slices = first[commands] + np.arange(len(commands)) - (np.cumsum(lengths) - lengths)[commands]
        inside = np.minimum(ends[commands], (slices + 1) * width) - np.maximum(begins[commands], slices * width)
        inside = np.maximum(inside, 0.0)
        # what takes no time, or lies in one slice, is there whole
        sums = np.bincount(commands, weights=inside, minlength=len(begins))[commands]
        whole = 1.0 / lengths[commands]
        shares = np.divide(inside, sums, out=whole, where=sums > 0)
        return cls(commands=commands, slices=slices, shares=shares, count=count)

    def spread(self, amounts: Floats) -> Floats:
        """Amounts of commands by slice."""
        sums = np.bincount(self.slices, weights=amounts[self.commands] * self.shares, minlength=self.count)
        return sums.astype(np.float64)
