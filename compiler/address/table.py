"""Address tables: bases of output positions, and the offsets that they share (ADDR-1, ADDR-4).

The k-th operand of position t is at bases[t] + offsets[k], counted from the first operand of the first position.
`build.py` makes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from compiler.ir.box import Ints

# Bases and offsets are kept in so many bytes each (ADDR-4).
ENTRY_BYTES: Final = 4
# Windows of more taps are read by strides: a table that was read from a file must not ask for much memory by few bytes.
MAX_TAPS: Final = 1 << 24


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddressTable:
    """Where one unit finds one operand (ADDR-1).

    `positions` and `taps` are counts along the operand's axes; `axes` and `tap_axes` are the axes in the order in which
    `bases` and offsets go through them, outermost first. `run_offsets` are where runs of `run_length` contiguous
    elements along the innermost tap axis begin.
    """

    element_bytes: int
    positions: tuple[int, ...]
    taps: tuple[int, ...]
    axes: tuple[int, ...]
    tap_axes: tuple[int, ...]
    bases: Ints
    run_offsets: Ints
    run_length: int

    @property
    def offsets(self) -> Ints:
        """The offset of each operand, in bytes."""
        within = np.arange(self.run_length, dtype=np.int64) * self.element_bytes
        return (self.run_offsets[:, np.newaxis] + within).reshape(-1)

    @property
    def order(self) -> Ints:
        """For each operand its tap, as a number in row-major order of `taps`.

        Weights [filters, taps...] flattened to [filters, -1] are packed as weights[:, order].
        """
        numbers = np.arange(prod(self.taps), dtype=np.int64).reshape(self.taps)
        return numbers.transpose(self.tap_axes).reshape(-1)

    @property
    def steps(self) -> tuple[int, ...]:
        """Bytes from one position to the next along each axis; 0 along axes of one."""
        return _steps(self.positions, self.axes, self.bases)

    @property
    def tap_steps(self) -> tuple[int, ...]:
        """Bytes from one tap to the next along each axis; 0 along axes of one."""
        return _steps(self.taps, self.tap_axes, self.offsets)

    @property
    def is_even(self) -> bool:
        """True if bases and offsets advance by one step along each axis, from 0."""
        bases = ramp(self.positions, self.steps, self.axes)
        return np.array_equal(bases, self.bases) and np.array_equal(
            ramp(self.taps, self.tap_steps, self.tap_axes), self.offsets
        )

    @property
    def size_bytes(self) -> int:
        """Bytes on chip: 4 for each position and each run of offsets (ADDR-4)."""
        return ENTRY_BYTES * (len(self.bases) + len(self.run_offsets))


def ramp(counts: Sequence[int], steps: Sequence[int], axes: Sequence[int]) -> Ints:
    """The sums of one multiple of each axis's step, over all combinations, with the axes in order, outermost first."""
    ramps = [np.arange(counts[axis], dtype=np.int64) * steps[axis] for axis in axes]
    return reduce(np.add.outer, ramps).reshape(-1)


def frozen(values: Ints) -> Ints:
    """The array, which nobody can write to any more."""
    values.setflags(write=False)
    return values


def _steps(counts: Sequence[int], axes: Sequence[int], values: Ints) -> tuple[int, ...]:
    result, apart = [0] * len(counts), 1
    for axis in reversed(axes):
        if counts[axis] > 1:
            result[axis] = int(values[apart] - values[0])
        apart *= counts[axis]
    return tuple(result)
