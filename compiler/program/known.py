"""Dictionaries of what lowering works out once, or for as long as it works on a round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# So many rounds are kept: the time of lowering is that of keeping all, also for a group of 98 rounds.
ROUNDS_KEPT: Final = 64


class Known(dict[K, V]):
    """A dictionary that computes a missing entry when it is read."""

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, key: K) -> V:
        """Work out an entry."""
        found = self[key] = self._make(key)
        return found


class Recent(Known[K, V]):
    """The same with a bound: it drops its oldest entry when it is full."""

    def __init__(self, in_a_round: int, make: Callable[[K], V]) -> None:
        """`in_a_round`: the most entries that one round makes."""
        super().__init__(make)
        self._most = ROUNDS_KEPT * in_a_round

    def __missing__(self, key: K) -> V:
        """Work out an entry, in place of the oldest one if there are too many."""
        if len(self) >= self._most:
            del self[next(iter(self))]
        return super().__missing__(key)
