"""A table for a smaller shape: whole pieces are dropped, and of those that are left only the last is clipped (SHAPE-5).

The runs of a table are the leaves of a tree: along one axis a slab is cut into parts, each part along another.
A smaller shape keeps of each part the pieces that lie inside, and of the one that its end goes through a clipped one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from compiler.errors import RequestError
from compiler.shapes.cost import CallCost
from compiler.shapes.table import RUN, ShapeTable
from compiler.shapes.tails import TailMode, ranged_mode
from compiler.shapes.units import MAX_TILED_AXES, UnitSet


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """Equal pieces along an axis; `clipped`: shorter than in the table that was clipped."""

    start: int
    length: int
    count: int
    clipped: bool


_Cuts = Mapping[int, _Piece]


def clipped(table: ShapeTable, units: UnitSet, cost: CallCost, shape: tuple[int, ...]) -> ShapeTable:
    """The table for a shape that is nowhere larger than its own, with what it costs there.

    Clipped pieces have their length given to the unit where it accepts it, else the whole tile is computed. Raises
    RequestError for a larger or empty shape.
    """
    if len(shape) != len(table.shape) or not all(1 <= s <= m for s, m in zip(shape, table.shape, strict=True)):
        raise _refused(table, "a table serves shapes that are not larger than its own", shape, table.shape)
    rows, cycles = _Clipping(table=table, units=units, cost=cost, shape=shape).slab(0, len(table.runs), {}, 0)
    return replace(table, shape=shape, runs=np.array(rows, dtype=RUN), cost_cycles=cycles + cost.once_cycles)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Clipping:
    table: ShapeTable
    units: UnitSet
    cost: CallCost
    shape: tuple[int, ...]

    def slab(self, begin: int, end: int, cuts: _Cuts, shared: int) -> tuple[list[tuple[Any, ...]], float]:
        """What is left of the runs from `begin` to `end`, which share the loops of `cuts`: rows of RUN, and cycles.

        `shared`: loops that the first row shares with the row before it.
        """
        depth = len(cuts)
        if depth == len(self.shape):
            return self._call(begin, cuts, shared)
        runs = self.table.runs
        begins = [begin, *(run for run in range(begin + 1, end) if runs["shared"][run] <= depth), end]
        rows: list[tuple[Any, ...]] = []
        cycles = 0.0
        for first, last in pairwise(begins):
            axis = int(runs["order"][first, depth])
            for piece in self._pieces(first, axis):
                inside = {**cuts, axis: piece}
                found, each = self.slab(first, last, inside, depth if rows else shared)
                rows += found
                cycles += piece.count * (each + self._moves(axis, inside))
        return rows, cycles

    def _pieces(self, run: int, axis: int) -> list[_Piece]:
        """The pieces of a part that lie inside the shape, and the one that its end goes through."""
        start, length, count = (int(self.table.runs[name][run, axis]) for name in ("start", "length", "count"))
        whole = min(count, max(0, (self.shape[axis] - start) // length))
        rest = self.shape[axis] - (start + whole * length)
        pieces = [_Piece(start=start, length=length, count=whole, clipped=False)] if whole else []
        if whole < count and rest > 0:
            pieces.append(_Piece(start=start + whole * length, length=rest, count=1, clipped=True))
        return pieces

    def _moves(self, axis: int, cuts: _Cuts) -> float:
        """Cycles of the operands the last of whose axes is cut now."""
        lengths = [cuts[number].length if number in cuts else 0 for number in range(len(self.shape))]
        return sum(
            operand.cycles(lengths)
            for operand in self.cost.operands
            if axis in operand.axes and all(other in cuts for other in operand.axes)
        )

    def _call(self, run: int, cuts: _Cuts, shared: int) -> tuple[list[tuple[Any, ...]], float]:
        row = self.table.runs[run]
        unit = int(row["unit"])
        by_axis, computed, given = [], [], 0
        for axis in range(len(self.shape)):
            piece, low, high = cuts[axis], int(self.units.lows[unit, axis]), int(self.units.extents[unit, axis])
            mode = TailMode(int(row["mode"][axis]))
            if piece.clipped:
                mode = ranged_mode(low) if low <= piece.length else TailMode.DISCARD
            given += mode.is_ranged
            computed.append(piece.length if mode.is_ranged else high)
            by_axis.append((int(mode), piece.start, piece.length, piece.length, piece.count, low, high))
        by_axis += [(int(TailMode.EXACT), 0, 1, 0, 1, 1, 1)] * (MAX_TILED_AXES - len(by_axis))
        rows = [(unit, shared, tuple(row["order"].tolist()), *zip(*by_axis, strict=True))]
        return rows, self.cost.work_cycles(computed, given)


def _refused(table: ShapeTable, message: str, actual: object, limit: Sequence[int] | str) -> RequestError:
    return RequestError(message, stage="shapes", op_type=table.signature, actual=str(actual), limit=str(limit))
