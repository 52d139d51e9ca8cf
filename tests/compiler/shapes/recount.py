"""Independent accounts of a table: its cost from the calls one by one, and how often each element is computed."""

from __future__ import annotations

from math import isclose

import numpy as np
from numpy.typing import NDArray

from compiler.shapes.cost import CallCost
from compiler.shapes.table import ShapeTable, check_cover, expand
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


def times_computed(table: ShapeTable) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Per element by how many calls it is computed: plain ones, and ones that are declared to overlap."""
    plain, overlapping = np.zeros(table.shape, dtype=np.int64), np.zeros(table.shape, dtype=np.int64)
    entries = expand(table)
    for start, length, modes in zip(entries.starts, entries.lengths, entries.modes, strict=True):
        assert (start >= 0).all()
        assert (start + length <= np.array(table.shape)).all()
        box = tuple(slice(s, s + n) for s, n in zip(start.tolist(), length.tolist(), strict=True))
        (overlapping if TailMode.OVERLAP in modes else plain)[box] += 1
    return plain, overlapping


def assert_table_holds(table: ShapeTable, units: UnitSet, cost: CallCost) -> None:
    """The cover is exact by both accounts, and the cost is what the calls add up to."""
    check_cover(table, allows_overlap=units.allows_overlap)
    plain, overlapping = times_computed(table)
    assert plain.max(initial=0) <= 1
    assert (plain + overlapping >= 1).all()
    assert isclose(table.cost_cycles, recounted_cycles(table, units, cost), rel_tol=1e-9)
