"""Independent accounts of a table: its cost from the calls one by one, and how often each element is computed."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose, prod

import numpy as np
from numpy.typing import NDArray

from compiler.shapes.cost import CallCost
from compiler.shapes.table import Entries, ShapeTable, check_cover, expand
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet


def recounted_cycles(table: ShapeTable, units: UnitSet, cost: CallCost) -> float:
    """The cost of a table, call after call, as the definition in `compiler/shapes/cost.py` has it."""
    entries, total = expand(table), 0.0
    for call in range(len(entries.units)):
        extents = units.extents[entries.units[call]].tolist()
        lengths, modes = entries.lengths[call].tolist(), entries.modes[call].tolist()
        ranged = [mode in (TailMode.FULL_RANGE, TailMode.TAIL_RANGE) for mode in modes]
        computed = [length if given else extent for length, extent, given in zip(lengths, extents, ranged, strict=True)]
        total += cost.work_cycles(computed, sum(ranged))
        order = entries.orders[call].tolist()
        for operand in cost.operands:
            deepest = max((order.index(axis) for axis in operand.axes), default=-1)
            if call == 0 or deepest >= entries.fresh[call]:
                total += operand.cycles(lengths)
    return total


def recounted_core_cycles(table: ShapeTable, units: UnitSet, cost: CallCost, cores: int, loaders: int) -> float:
    """What the calls take on cores, core after core and call after call."""
    entries = expand(table)
    sizes = [prod(lengths) for lengths in entries.lengths.tolist()]
    dealt: list[list[int]] = [[] for _ in range(cores)]
    for call, size in enumerate(sizes):
        middle = sum(sizes[:call]) + size / 2
        dealt[min(int(middle / sum(sizes) * cores), cores - 1)].append(call)
    slowest = max((_core_cycles(entries, calls, units, cost) for calls in dealt if calls), default=0.0)
    once = sum(operand.start_cycles + operand.move_cycles for operand in cost.operands if not operand.axes)
    return slowest * cores + once * min(len(sizes), loaders)


def _core_cycles(entries: Entries, calls: Sequence[int], units: UnitSet, cost: CallCost) -> float:
    """A core works, and beside it brings what its next call of the unit reads and stores what the last one made."""
    total = work = stored = stored_before = 0.0
    unit = -1
    for call in calls:
        lengths, modes = entries.lengths[call].tolist(), entries.modes[call].tolist()
        order, is_new = entries.orders[call].tolist(), int(entries.units[call]) != unit
        brought, result = 0.0, 0.0
        for operand in cost.operands:
            deepest = max((order.index(axis) for axis in operand.axes), default=-1)
            if operand.axes and operand is cost.operands[-1]:
                result = operand.cycles(lengths)
            elif operand.axes and (is_new or call == calls[0] or deepest >= entries.fresh[call]):
                brought += operand.cycles(lengths)
        if is_new:  # the call before ends alone
            total += max(work, stored_before) + stored if unit >= 0 else 0.0
            total += brought
            stored_before = 0.0
        else:
            total += max(work, stored_before + brought)
            stored_before = stored
        unit, stored = int(entries.units[call]), result
        extents = units.extents[unit].tolist()
        given = [mode in (TailMode.FULL_RANGE, TailMode.TAIL_RANGE) for mode in modes]
        computed = [one if ranged else extent for one, extent, ranged in zip(lengths, extents, given, strict=True)]
        work = cost.work_cycles(computed, sum(given))
    return total + max(work, stored_before) + stored


def times_computed(table: ShapeTable) -> NDArray[np.int64]:
    """Per element by how many calls it is computed."""
    found = np.zeros(table.shape, dtype=np.int64)
    entries = expand(table)
    for start, length in zip(entries.starts, entries.lengths, strict=True):
        assert (start >= 0).all()
        assert (start + length <= np.array(table.shape)).all()
        box = tuple(slice(s, s + n) for s, n in zip(start.tolist(), length.tolist(), strict=True))
        found[box] += 1
    return found


def assert_table_holds(table: ShapeTable, units: UnitSet, cost: CallCost) -> None:
    """The cover is exact by both accounts, and the cost is what the calls add up to."""
    check_cover(table)
    assert (times_computed(table) == 1).all()
    assert isclose(table.cost_cycles, recounted_cycles(table, units, cost), rel_tol=1e-9)
