"""The roofline of a program: what it computes and moves, against what the chip could at most (SIM-2).

The ceilings are the matrix units and the vector units of all cores at their peak, and the DRAM at its full bandwidth.
None of them can be exceeded by the simulation, so no program is faster than its bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compiler.cost.array import Dataflow
from compiler.profile.schema import Profile
from compiler.program.loops.time import ProgramTime
from compiler.program.timing.demands import Demands
from compiler.program.timing.ticks import TICKS_PER_CYCLE, WEIGHT_BITS
from compiler.program.timing.work import CallWork

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A group, or a whole program, under the roof.

    macs, vector_ops: products, and operations of the vector units beside them; `dram_bytes` pass the DRAM's port, those
    of address tables too. array_cycles, vector_cycles, dram_cycles: how long these take at least, all cores at their
    peak and the DRAM at its full bandwidth. `cycles`: of the program, or of a group by itself.
    """

    name: str
    macs: float
    vector_ops: float
    dram_bytes: float
    array_cycles: float
    vector_cycles: float
    dram_cycles: float
    cycles: float

    @property
    def bounds(self) -> dict[str, float]:
        """The least cycles under each ceiling."""
        return {"dram": self.dram_cycles, "array": self.array_cycles, "vector": self.vector_cycles}

    @property
    def operations(self) -> float:
        """Two per product, one per operation of a vector unit."""
        return 2 * self.macs + self.vector_ops


def roofline_of(time: ProgramTime, alone: Sequence[int], profile: Profile) -> tuple[Point, tuple[Point, ...]]:
    """The program's point, and those of its groups in order. `alone`: by group the ticks that it takes by itself."""
    program, demands = time.program, time.demands
    names, works = program.group_names, demands.works
    kinds = len(works)
    keys, inverse = np.unique(program.group_numbers * kinds + demands.kinds, return_inverse=True)
    counts, sums = np.zeros((2, len(keys)), dtype=np.int64)
    np.add.at(counts, inverse, time.instances)
    np.add.at(sums, inverse, demands.moved * time.instances)
    moved = sums * _dram_weights(demands)[keys % kinds]
    totals = np.zeros((len(names) + 1, 5))
    for group, kind, count, size in zip(
        (keys // kinds).tolist(), (keys % kinds).tolist(), counts.tolist(), moved.tolist(), strict=True
    ):
        totals[group, 2] += size
        work = works[kind]
        if work is not None:
            totals[group, [0, 1, 3, 4]] += count * np.array([work.macs, work.vector_ops, *ideal_cycles(work, profile)])
    whole = _point("", totals.sum(axis=0), time.cycles, profile)
    points = tuple(
        _point(name, its, ticks / TICKS_PER_CYCLE, profile)
        for name, its, ticks in zip(names, totals[: len(names)], alone, strict=True)
    )
    return whole, points


def ideal_cycles(work: CallWork, profile: Profile) -> tuple[float, float]:
    """Cycles of one core's array and of its vector unit for a call, all of their lanes in use."""
    operations = work.vector_ops
    if work.use.dataflow is Dataflow.VECTOR:
        return 0.0, (operations + 2 * work.macs) / profile.vector.lanes
    array = profile.matrix.arrays[work.dtype]
    return work.macs / (array.k * array.c * array.ox * array.oy), operations / profile.vector.lanes


def _dram_weights(demands: Demands) -> Floats:
    """By kind of command, bytes through the DRAM's port for each byte that it moves."""
    kinds = np.repeat(np.arange(len(demands.works)), np.diff(demands.offsets))
    is_dram = np.array([resource.name == "dram" for resource in demands.names], dtype=np.float64)
    weights = demands.weights / (1 << WEIGHT_BITS) * is_dram[demands.resources]
    return np.bincount(kinds, weights=weights, minlength=len(demands.works)).astype(np.float64)


def _point(name: str, totals: Floats, cycles: float, profile: Profile) -> Point:
    macs, vector_ops, dram_bytes, array, vector = totals.tolist()
    return Point(
        name=name,
        macs=macs,
        vector_ops=vector_ops,
        dram_bytes=dram_bytes,
        array_cycles=array / profile.cores,
        vector_cycles=vector / profile.cores,
        dram_cycles=dram_bytes / profile.dram_bytes_per_cycle,
        cycles=float(cycles),
    )
