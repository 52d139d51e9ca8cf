"""Runs: values of a counter for which the same is done with numbers that go up evenly (SCHED-2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.program.iteration import PERIOD_MAX

# The periods of a run: more is listed value by value.
PERIODS: Final = tuple(range(1, PERIOD_MAX + 1))
# What stays the same beyond the last value: smaller than any position.
_BEYOND: Final = -(1 << 40)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All that what is done depends on along one counter, value by value.

    `even`: what may go up evenly from value to value, `same`: what has to stay the same for values to be a run; shapes
    (values, columns).
    """

    even: NDArray[np.int64]
    same: NDArray[np.int64]

    def beside(self, other: Columns) -> Columns:
        """Both together."""
        even, same = np.hstack([self.even, other.even]), np.hstack([self.same, other.same])
        return Columns(even=even, same=same)

    def part(self, first: int, count: int, step: int = 1) -> Columns:
        """The columns of `count` values from `first` on, each `step` behind the one before.

        Those beyond the last value are like each other only.
        """
        its = slice(first, first + count * step, step)
        even, same = self.even[its], self.same[its]
        missing = (0, count - len(same)), (0, 0)
        return Columns(even=np.pad(even, missing), same=np.pad(same, missing, constant_values=_BEYOND))


class Run(NamedTuple):
    """Values of a counter: first, first + step, ..., `tiles` of them."""

    first: int
    step: int
    tiles: int

    @property
    def last(self) -> int:
        """The last value."""
        return self.first + self.step * (self.tiles - 1)

    @property
    def values(self) -> range:
        """All of them."""
        return range(self.first, self.last + 1, self.step)

    def phases(self, period: int) -> list[Run]:
        """The same values in as many runs as a period is long."""
        found = []
        for phase in range(period):
            tiles = len(range(phase, self.tiles, period))
            found.append(Run(self.first + phase * self.step, self.step * period if tiles > 1 else 1, tiles))
        return found

    def halves(self) -> tuple[Run, Run]:
        """The same values in two runs."""
        half = self.tiles // 2
        second = Run(self.first + half * self.step, self.step if self.tiles - half > 1 else 1, self.tiles - half)
        return Run(self.first, self.step if half > 1 else 1, half), second


def runs_of(columns: Columns) -> list[Run]:
    """The runs of a counter's values; of the period that needs fewest."""
    same, even, count = columns.same, columns.even, len(columns.same)
    if count == 1:
        return [Run(0, 1, 1)]
    found = [_with_period(same, even, count, period) for period in PERIODS if period == 1 or count > period]
    return min(found, key=len)


def _with_period(same: NDArray[np.int64], even: NDArray[np.int64], count: int, period: int) -> list[Run]:
    """Runs of values so many apart."""
    found = []
    for phase in range(min(period, count)):
        its_same, its_even = same[phase::period], even[phase::period]
        goes_on = (its_same[1:] == its_same[:-1]).all(axis=1)
        changes = np.diff(its_even, axis=0)
        is_even = (changes[1:] == changes[:-1]).all(axis=1)
        first, length = 0, len(its_same)
        while first < length:
            last = first
            while last + 1 < length and goes_on[last] and (last == first or is_even[last - 1]):
                last += 1
            found.append(Run(phase + first * period, period if last > first else 1, last - first + 1))
            first = last + 1
    return sorted(found)
