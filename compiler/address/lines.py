"""How many memory lines the operands of a position lie in, and whether a read needs a table at all (ADDR-4, ADDR-5)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.address.read import WindowRead
from compiler.address.table import AddressTable, PositionClass
from compiler.errors import InternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesTouched:
    """Lines that the positions of a table touch, each position for itself: in total, and per position on average."""

    line_bytes: int
    total: int
    positions: int

    @property
    def per_position(self) -> float:
        """The average over positions; 0 where there are none."""
        return self.total / self.positions if self.positions else 0.0


def lines_touched(table: AddressTable, line_bytes: int, *, anchor_address: int = 0) -> LinesTouched:
    """The lines of `line_bytes` that each position's operands lie in (ADDR-4).

    Lines begin at multiples of `line_bytes`; `anchor_address` says where the table's addresses are counted from.
    """
    if line_bytes < 1:
        raise InternalError("a line has at least one byte", stage="address", actual=line_bytes, limit=1)
    total = sum(_lines_of(each, line_bytes, anchor_address) for each in table.classes if each.count)
    return LinesTouched(line_bytes=line_bytes, total=total, positions=prod(table.positions))


def is_table_needed(read: WindowRead) -> bool:
    """False if the strides of the one buffer say it all, as for a 1×1 window of stride 1 without padding (ADDR-5)."""
    if not all(read.positions):
        return False
    relative = read.relative()
    if len(relative.pieces) != 1 or relative.pieces[0].channel_block > 1:
        return True
    has_window = any(
        (axis.taps > 1 and axis.positions > 1) or axis.stride > 1 or axis.dilation > 1 for axis in relative.axes
    )
    is_padded = any(axis.valid != (0, axis.reach) for axis in relative.axes)
    return has_window or is_padded


def _lines_of(each: PositionClass, line_bytes: int, anchor_address: int) -> int:
    """Lines summed over the positions of a class: they depend on nothing but where in a line the base lies."""
    places, counts = np.unique((each.bases + anchor_address) % line_bytes, return_counts=True)
    run_bytes = each.run_length * each.element_bytes
    begins = np.sort(each.run_offsets) + places[:, np.newaxis]
    first, last = begins // line_bytes, (begins + run_bytes - 1) // line_bytes
    # runs ascend and are disjoint, so what is not new is at most the line in which the run before ended
    behind = np.concatenate((first[:, :1] - 1, last[:, :-1]), axis=1)
    lines = (last - np.maximum(first, behind + 1) + 1).sum(axis=1)
    return int((lines * counts).sum())
