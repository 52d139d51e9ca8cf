"""A dictionary for what lowering works out per round: it keeps the last rounds, so memory is bounded."""

from __future__ import annotations

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# So many rounds are kept: the time of lowering is that of keeping all, also for a group of 98 rounds.
ROUNDS_KEPT: Final = 64


class Recent(dict[K, V]):
    """A dictionary that drops its oldest entry where a new one would be one too many."""

    def __init__(self, in_a_round: int) -> None:
        """`in_a_round`: the most entries that one round makes."""
        super().__init__()
        self._most = ROUNDS_KEPT * in_a_round

    def __setitem__(self, key: K, value: V) -> None:
        """Put an entry."""
        if len(self) >= self._most and key not in self:
            del self[next(iter(self))]
        super().__setitem__(key, value)
