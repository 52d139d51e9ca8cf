"""A table for a smaller shape: whole pieces are dropped, and of those that are left only the last is clipped (SHAPE-5).

The runs of a table are the leaves of a tree: along one axis a slab is cut into parts, each part along another.
A smaller shape keeps of each part the pieces that lie inside, and of the one that its end goes through a clipped one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from compiler.errors import RequestError
from compiler.shapes.table import RUN, ShapeTable
from compiler.shapes.tails import TailMode, ranged_mode
from compiler.shapes.units import MAX_TILED_AXES, UnitSet

# Start, length and count of equal pieces along an axis, and whether they are shorter than in the table.
_Piece = tuple[int, int, int, bool]
# Mode, start, length, stride, count, low and high along an axis that the tensor does not have.
_UNUSED: Final = (int(TailMode.EXACT), 0, 1, 0, 1, 1, 1)


def clipped(table: ShapeTable, units: UnitSet, shape: tuple[int, ...]) -> ShapeTable:
    """The table for a shape that is nowhere larger than its own, without a cost: `on_cores` prices it.

    Clipped pieces have their length given to the unit where it accepts it, else the whole tile is computed. Raises
    RequestError for a larger or empty shape.
    """
    if len(shape) != len(table.shape) or not all(1 <= s <= m for s, m in zip(shape, table.shape, strict=True)):
        raise _refused(table, "a table serves shapes that are not larger than its own", shape, table.shape)
    names = ("unit", "shared", "order", "mode", "start", "length", "count")
    clipping = _Clipping(
        units=units, shape=shape, runs=list(zip(*(table.runs[name].tolist() for name in names), strict=True))
    )
    clipping.slab(0, len(table.runs), 0, 0)
    return replace(table, shape=shape, runs=np.array(clipping.rows, dtype=RUN), cost_cycles=0.0)


@dataclass(slots=True, kw_only=True, eq=False)
class _Clipping:
    """What is left of runs (unit, shared loops, order, then per axis mode, start, length and count): rows of RUN.

    `cuts`: the pieces, axis by axis, that the loops outside of the present one turn over.
    """

    units: UnitSet
    shape: tuple[int, ...]
    runs: Sequence[Any]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    cuts: dict[int, _Piece] = field(default_factory=dict)

    def slab(self, begin: int, end: int, depth: int, shared: int) -> None:
        """Add what is left of the runs from `begin` to `end`, whose loops outside `depth` are shared.

        `shared`: loops that the first row shares with the row before it.
        """
        if depth == len(self.shape):
            self._call(begin, shared)
            return
        while begin < end:
            after = begin + 1
            while after < end and self.runs[after][1] > depth:
                after += 1
            axis = self.runs[begin][2][depth]
            for piece in self._pieces(begin, axis):
                self.cuts[axis] = piece
                self.slab(begin, after, depth + 1, shared)
                shared = depth
            begin = after

    def _pieces(self, run: int, axis: int) -> list[_Piece]:
        """The pieces of a part that lie inside the shape, and the one that its end goes through."""
        _, _, _, _, starts, lengths, counts = self.runs[run]
        start, length, count = starts[axis], lengths[axis], counts[axis]
        whole = min(count, max(0, (self.shape[axis] - start) // length))
        rest = self.shape[axis] - (start + whole * length)
        pieces = [(start, length, whole, False)] if whole else []
        if whole < count and rest > 0:
            pieces.append((start + whole * length, rest, 1, True))
        return pieces

    def _call(self, run: int, shared: int) -> None:
        unit, _, order, modes, *_ = self.runs[run]
        lows, highs = self.units.lows[unit].tolist(), self.units.extents[unit].tolist()
        by_axis = []
        for axis, (low, high) in enumerate(zip(lows, highs, strict=True)):
            start, length, count, is_clipped = self.cuts[axis]
            mode = modes[axis]
            if is_clipped:
                mode = int(ranged_mode(low) if low <= length else TailMode.DISCARD)
            by_axis.append((mode, start, length, length, count, low, high))
        by_axis += [_UNUSED] * (MAX_TILED_AXES - len(by_axis))
        self.rows.append((unit, shared, order, *zip(*by_axis, strict=True)))


def _refused(table: ShapeTable, message: str, actual: object, limit: Sequence[int] | str) -> RequestError:
    return RequestError(message, stage="shapes", op_type=table.signature, actual=str(actual), limit=str(limit))
