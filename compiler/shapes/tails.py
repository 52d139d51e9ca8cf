"""How the last, shorter piece along an axis is worked on (SHAPE-4)."""

from __future__ import annotations

from enum import IntEnum

from compiler.errors import RequestError
from compiler.shapes.units import UnitSet


class TailMode(IntEnum):
    """EXACT: the piece is as long as the unit. The others are for a tail, in the order in which ties are settled.

    FULL_RANGE, TAIL_RANGE: the unit is given the length, which it accepts from 0 or from some length near its own.
    DISCARD: the whole tile is computed, only what lies inside the tensor is read and written. OVERLAP: the whole tile
    is moved back until it ends with the tensor, and computes again what its neighbour did.
    """

    EXACT = 0
    FULL_RANGE = 1
    TAIL_RANGE = 2
    DISCARD = 3
    OVERLAP = 4

    @property
    def text(self) -> str:
        """The mode as the specification and listings write it."""
        return self.name.lower().replace("_", "-")

    @property
    def is_ranged(self) -> bool:
        """True if the length is given with the call."""
        return self in (TailMode.FULL_RANGE, TailMode.TAIL_RANGE)


def ranged_mode(low: int) -> TailMode:
    """What a unit that is given its length is called, by the least length it accepts."""
    return TailMode.FULL_RANGE if low == 0 else TailMode.TAIL_RANGE


def refuse_overlap(units: UnitSet) -> RequestError:
    """Why a tail of these units cannot overlap its neighbour."""
    return RequestError(
        "tail mode overlap would add to, or overwrite, what another call has made",
        code="overlap_refused",
        stage="shapes",
        op_type=units.signature,
        actual=TailMode.OVERLAP.text,
        limit="an op that neither accumulates nor works in place",
        hint="Use discard, or units that accept the tail's length",
    )
