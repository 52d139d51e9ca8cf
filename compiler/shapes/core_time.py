"""The cycles of a table on several cores: each core makes its own calls, the slowest core decides (SHAPE-6).

A core brings what its next call reads and stores what its last one made while it computes: a call takes the longer of
the two. What its first call reads and its last one makes hides behind nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.errors import LimitError
from compiler.shapes.cost import CallCost, Floats
from compiler.shapes.table import Entries, Ints, ShapeTable, expand
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet

# Calls that are priced one by one: 10 ms for as many.
MAX_CALLS: Final = 50_000
# As plain numbers: numpy compares them in a tenth of the time.
_FULL_RANGE: Final = int(TailMode.FULL_RANGE)
_TAIL_RANGE: Final = int(TailMode.TAIL_RANGE)


def owners(lengths: Ints, cores: int) -> Ints:
    """Which core makes each call, [call]: neighbours together, about as much work for each. `lengths`: [call, axis]."""
    work = lengths.prod(axis=1).astype(np.float64)
    done = np.cumsum(work)
    middle = done - work / 2
    found: Ints = np.minimum((middle / done[-1:] * cores).astype(np.int64), cores - 1)
    return found


def on_cores(table: ShapeTable, units: UnitSet, cost: CallCost, cores: int, loaders: int) -> ShapeTable:
    """A table with the cycles that its calls take of all cores together, those that wait included.

    What all calls read is read by `loaders`, at most once for each call. The last operand of `cost` is the result.
    Raises LimitError for a table of more than `MAX_CALLS` calls.
    """
    if not len(table.runs):
        return table
    if table.calls > MAX_CALLS:
        raise LimitError(
            "too many calls to price one by one",
            stage="shapes",
            op_type=table.signature,
            actual=table.calls,
            limit=MAX_CALLS,
        )
    entries = expand(table)
    slowest = float(_core_cycles(entries, owners(entries.lengths, cores), units, cost).max())
    return replace(table, cost_cycles=slowest * cores + cost.once_cycles * min(len(entries.units), loaders))


def waiting_share(table: ShapeTable, units: UnitSet, cost: CallCost, cores: int) -> float:
    """Which part of the cores' time is lost: they wait for the slowest, or compute what lies outside the tensor."""
    if not table.cost_cycles:
        return 0.0
    entries = expand(table)
    cycles = _core_cycles(entries, owners(entries.lengths, cores), units, cost)
    if not cycles.any():  # all is moved once
        return 0.0
    inside = entries.lengths.prod(axis=1).sum() / _computed(entries, units, _ranged(entries)).prod(axis=1).sum()
    return 1.0 - float(cycles.sum() / (cycles.max() * cores) * inside)


def _core_cycles(entries: Entries, owner: Ints, units: UnitSet, cost: CallCost) -> Floats:
    """Cycles of each core that has calls."""
    # calls of a core follow each other; another unit has its buffers where those of the one before lie
    begins = np.empty(len(owner), dtype=np.bool_)
    begins[0] = True
    np.not_equal(owner[1:], owner[:-1], out=begins[1:])
    first = begins.copy()
    first[1:] |= entries.units[1:] != entries.units[:-1]
    loads, stores = _moves(entries, cost, first)
    # beside a call goes what the next one reads, and what the one before it made, unless either stands alone
    goes_on = ~first[1:]
    beside = np.zeros(len(owner))
    beside[:-1] = loads[1:] * goes_on
    beside[1:] += stores[:-1] * goes_on
    cycles = np.maximum(_work(entries, units, cost), beside)
    cycles += loads * first
    cycles[:-1] += stores[:-1] * first[1:]
    cycles[-1] += stores[-1]
    found: Floats = np.add.reduceat(cycles, np.flatnonzero(begins))
    return found


def _ranged(entries: Entries) -> NDArray[np.bool_]:
    """The axes of each call whose length is given with it."""
    found: NDArray[np.bool_] = (entries.modes == _FULL_RANGE) | (entries.modes == _TAIL_RANGE)
    return found


def _computed(entries: Entries, units: UnitSet, ranged: NDArray[np.bool_]) -> Ints:
    """The lengths that each call computes, inside the tensor or not."""
    found: Ints = np.where(ranged, entries.lengths, units.extents[entries.units])
    return found


def _work(entries: Entries, units: UnitSet, cost: CallCost) -> Floats:
    """Cycles of each call, transfers apart."""
    ranged = _ranged(entries)
    computed = _computed(entries, units, ranged)
    cycles: Floats = cost.compute_cycles * cost.compute[0][computed[:, 0]]
    for axis in range(1, len(cost.compute)):
        cycles *= cost.compute[axis][computed[:, axis]]
    cycles += cost.call_cycles
    if cost.variable_cycles:
        cycles += cost.variable_cycles * ranged.sum(axis=1)
    return cycles


def _moves(entries: Entries, cost: CallCost, first: NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Cycles of the loads of each call, without operands that its core holds already, and of its stores."""
    place = np.argsort(entries.orders, axis=1)
    loads = np.zeros(len(first))
    stores = np.zeros(len(first))
    for operand in cost.operands:
        axes = operand.axes
        if not axes:
            continue
        cycles: Any = operand.move_cycles
        for axis in axes:
            factor = operand.factors[axis]
            assert factor is not None
            cycles = cycles * factor[entries.lengths[:, axis]]
        cycles += operand.start_cycles
        if operand is cost.operands[-1]:
            stores = cycles
        else:
            deepest = place[:, axes[0]] if len(axes) == 1 else place[:, list(axes)].max(axis=1)
            loads += np.where(first | (entries.fresh <= deepest), cycles, 0.0)
    return loads, stores
