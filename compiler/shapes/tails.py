"""How the last, shorter piece along an axis is worked on (SHAPE-4)."""

from __future__ import annotations

from enum import IntEnum


class TailMode(IntEnum):
    """EXACT: the piece is as long as the unit. The others are for a tail, in the order in which ties are settled.

    FULL_RANGE, TAIL_RANGE: the unit is given the length, which it accepts from 0 or from some length near its own.
    DISCARD: the whole tile is computed, only what lies inside the tensor is read and written. To move the whole tile
    back over its neighbour is no mode: it computes as much as DISCARD, moves more, and writes bytes of the DRAM twice.
    """

    EXACT = 0
    FULL_RANGE = 1
    TAIL_RANGE = 2
    DISCARD = 3

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
