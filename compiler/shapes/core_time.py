"""The cycles of a table on several cores: each core makes its own calls, the slowest core decides (SHAPE-6).

A core brings what its next call reads and stores what its last one made while it computes: a call takes the longer of
the two. What its first call reads and its last one makes hides behind nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Final

import numpy as np

from compiler.errors import LimitError
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.table import Ints, ShapeTable, call_order
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet

# Calls that are priced one by one: some milliseconds for as many.
MAX_CALLS: Final = 50_000
# As plain numbers: what is asked of an enumeration takes ten times as long.
_RANGED: Final = tuple(int(mode) for mode in TailMode if mode.is_ranged)


def owners(volumes: Ints, cores: int) -> Ints:
    """Which core makes each call, [call]: neighbours together, about as much work for each. `volumes`: elements."""
    work = volumes.astype(np.float64)
    done = work.cumsum()
    work *= -0.5
    work += done  # the middle of each call
    work /= done[-1:]
    work *= cores
    found: Ints = np.minimum(work.astype(np.int64), cores - 1)
    return found


def on_cores(table: ShapeTable, units: UnitSet, cost: CallCost, cores: int, loaders: int) -> ShapeTable:
    """A table with the cycles that its calls take of all cores together, those that wait included.

    What all calls read is read by `loaders`, at most once for each call. The last operand of `cost` is the result.
    Raises LimitError for a table of more than `MAX_CALLS` calls.
    """
    if not len(table.runs):
        return table
    calls = table.calls
    if calls > MAX_CALLS:
        raise LimitError(
            "too many calls to price one by one",
            stage="shapes",
            op_type=table.signature,
            actual=calls,
            limit=MAX_CALLS,
        )
    slowest = float(_core_cycles(table, _RunCycles.of(table, units, cost), cores).max())
    return replace(table, cost_cycles=slowest * cores + cost.once_cycles * min(calls, loaders))


def waiting_share(table: ShapeTable, units: UnitSet, cost: CallCost, cores: int) -> float:
    """Which part of the cores' time is lost: they wait for the slowest, or compute what lies outside the tensor."""
    if not table.cost_cycles:
        return 0.0
    of_runs = _RunCycles.of(table, units, cost)
    cycles = _core_cycles(table, of_runs, cores)
    if not cycles.any():  # all is moved once
        return 0.0
    counts = table.runs["count"].prod(axis=1)
    inside = float((counts * of_runs.volumes).sum() / (counts * of_runs.computed).sum())
    return 1.0 - float(cycles.sum() / (cycles.max() * cores) * inside)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _RunCycles:
    """What a call of each run takes: [run].

    `volumes`: elements inside the tensor; `computed`: inside it or not. `loads`: cycles of what comes with a call by
    the outermost loop that moves on with it, [run, loop]; in the last column what comes with the first call of a core.
    """

    volumes: Ints
    computed: Ints
    work: Floats
    loads: Floats
    stores: Floats

    @classmethod
    def of(cls, table: ShapeTable, units: UnitSet, cost: CallCost) -> _RunCycles:
        runs, rank = table.runs, len(table.shape)
        read, result = [operand for operand in cost.operands[:-1] if operand.axes], cost.operands[-1:]
        lists = [runs[name].tolist() for name in ("unit", "length", "mode", "order")]
        volumes, sizes, work, loads, stores = [], [], [], [], []
        for unit, length, mode, order in zip(*lists, strict=True):
            lengths, extents = length[:rank], units.extents[unit].tolist()
            ranged = [one in _RANGED for one in mode[:rank]]
            computed = [one if given else extent for one, given, extent in zip(lengths, ranged, extents, strict=True)]
            volumes.append(prod(lengths))
            sizes.append(prod(computed))
            work.append(cost.work_cycles(computed, sum(ranged)))
            # what an operand takes comes where its deepest axis moves on, or one outside of it
            by_loop = [0.0] * (rank + 1)
            for operand in read:
                cycles = operand.cycles(lengths)
                for loop in range(1 + max(order.index(axis) for axis in operand.axes)):
                    by_loop[loop] += cycles
                by_loop[rank] += cycles
            loads.append(by_loop)
            stores.append(sum(operand.cycles(lengths) for operand in result if operand.axes))
        return cls(
            volumes=np.array(volumes),
            computed=np.array(sizes),
            work=np.array(work),
            loads=np.array(loads),
            stores=np.array(stores),
        )


def _core_cycles(table: ShapeTable, of_runs: _RunCycles, cores: int) -> Floats:
    """Cycles of each core that has calls."""
    runs, fresh = call_order(table)
    owner = owners(of_runs.volumes[runs], cores)
    # calls of a core follow each other; another unit has its buffers where those of the one before lie
    first = np.empty(len(owner), dtype=np.bool_)
    first[0] = True
    np.not_equal(owner[1:], owner[:-1], out=first[1:])
    begins = first.nonzero()[0]
    if len(table.runs) > 1:
        units = table.runs["unit"][runs]
        first[1:] |= units[1:] != units[:-1]
    fresh[first] = of_runs.loads.shape[1] - 1
    loads, stores = of_runs.loads[runs, fresh], of_runs.stores[runs]
    # beside a call goes what the next one reads, and what the one before it made, unless either stands alone
    alone = first[1:]
    goes_on = ~alone
    beside = np.zeros(len(owner))
    beside[:-1] = loads[1:] * goes_on
    beside[1:] += stores[:-1] * goes_on
    cycles = np.maximum(of_runs.work[runs], beside)
    cycles += loads * first
    cycles[:-1] += stores[:-1] * alone
    cycles[-1] += stores[-1]
    found: Floats = np.add.reduceat(cycles, begins)
    return found
