"""Room in an SRAM through which boxes pass on their way between DRAM and cores, round and round (PROG-1)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from compiler.program.slots import Slot

# Where boxes begin in an SRAM.
_ALIGNMENT: Final = 64


@dataclass(slots=True, kw_only=True)
class PassingRoom:
    """A memory that boxes take one after another, from its beginning again when its end is reached.

    A box waits for those that lay where it lies, and for no others: as many are on their way as there is room for. All
    commands on a box are emitted before the next one takes its place.
    """

    place: int
    capacity_bytes: int
    _at: int = 0
    # what lies behind the place of the next box, of this round; before it, of the rounds before; both by address
    _behind: list[Slot] = field(default_factory=list)
    _ahead: deque[Slot] = field(default_factory=deque)

    @property
    def largest_bytes(self) -> int:
        """The most that a box may take, so that the next one finds room beside it, if there is any."""
        return self.capacity_bytes // 2 // _ALIGNMENT * _ALIGNMENT or self.capacity_bytes

    def take(self, size_bytes: int) -> Slot:
        """The next place for a box of at most `largest_bytes`."""
        if self._at + size_bytes > self.capacity_bytes:
            self._ahead = deque([*self._behind, *self._ahead])
            self._behind = []
            self._at = 0
        slot = Slot(self.place, self._at, size_bytes)
        end = self._at + size_bytes
        while self._ahead and self._ahead[0].address < end:
            slot.succeed(self._ahead[0])
            if self._ahead[0].address + self._ahead[0].size_bytes > end:
                break
            self._ahead.popleft()
        self._behind.append(slot)
        self._at = -(-end // _ALIGNMENT) * _ALIGNMENT
        return slot
