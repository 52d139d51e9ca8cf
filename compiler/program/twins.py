"""Second buffers in what memory the plan leaves free: the next tile comes and is worked on while the last one leaves.

The planner gives every tensor of a tile one buffer, and inputs that are loaded ahead two. Where a memory has room
beside all buffers, lowering takes it for *twins*: a tile then need not wait until what lies where its own results shall
lie has left. Nothing depends on them but time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from compiler.program.buffers import Buffers, Key

_ALIGNMENT: Final = 64


class Twins:
    """The free part of a memory, alike in all units or cores, and the twins that lie at its begin."""

    def __init__(self, buffers: Buffers, begin: int, end: int) -> None:
        """`begin` to `end`: the bytes beside all buffers of the plan."""
        self._buffers = buffers
        self.begin = begin
        self.end = end

    @property
    def left_bytes(self) -> int:
        """What is still free."""
        return max(0, self.end - self.begin)

    def take(self, size_bytes: int) -> int | None:
        """The address of so many bytes, None if they are not left."""
        if size_bytes > self.left_bytes:
            return None
        start, self.begin = self.begin, min(self.end, self.begin + align_to_line(size_bytes))
        return start

    def add(self, places: Iterable[int], key: Key, twin: Key, address: int) -> None:
        """A twin, of its own key, for the slot of a key in each of some places."""
        for place in places:
            slot = self._buffers.slots[place, key]
            self._buffers.add(place, twin, address, slot.size_bytes)


def align_to_line(size_bytes: int) -> int:
    """Bytes filled up so that a next slot begins where any element may lie."""
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT
