"""How many memory lines the operands of a position lie in (ADDR-4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.address.table import AddressTable
from compiler.errors import InternalError


@dataclass(frozen=True, slots=True, kw_only=True)
class LinesTouched:
    """Lines that the positions of a table touch, each position for itself: in total, and per position on average."""

    line_bytes: int
    total: int
    positions: int

    @property
    def per_position(self) -> float:
        """The average over positions."""
        return self.total / self.positions


def lines_touched(table: AddressTable, line_bytes: int) -> LinesTouched:
    """The lines of `line_bytes` that each position's operands lie in; the first operand begins a line (ADDR-4)."""
    if line_bytes < 1:
        raise InternalError("a line has at least one byte", stage="address", actual=line_bytes, limit=1)
    # lines depend on nothing but where in a line the base lies
    places, counts = np.unique(table.bases % line_bytes, return_counts=True)
    begins = np.sort(table.run_offsets) + places[:, np.newaxis]
    first, last = begins // line_bytes, (begins + table.run_length * table.element_bytes - 1) // line_bytes
    # runs ascend, so what is not new is at most the line in which the run before ended
    behind = np.concatenate((first[:, :1] - 1, last[:, :-1]), axis=1)
    lines = (last - np.maximum(first, behind + 1) + 1).sum(axis=1)
    return LinesTouched(line_bytes=line_bytes, total=int((lines * counts).sum()), positions=len(table.bases))
