"""Address tables: bases of output positions, and the offsets they share, by classes of positions (ADDR-1 to ADDR-4).

The k-th operand of position t is at bases[t] + offsets[k], counted from the read's anchor. `build.py` makes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from compiler.address.read import Range
from compiler.ir.box import Ints

# Bases and offsets are kept in so many bytes each (ADDR-4).
ENTRY_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PositionClass:
    """A box of output positions that read the same taps by the same offsets (ADDR-3).

    `ranges`: the box, per axis of the operand, counted from the read's first position. `axes`: the axes in the order
    in which `bases` go through the box, outermost first. `run_offsets` and `run_taps` are where runs of `run_length`
    contiguous elements begin, and the places of their first taps in the table's `order`. A class without runs lies
    in the padding altogether.
    """

    ranges: tuple[Range, ...]
    axes: tuple[int, ...]
    bases: Ints
    run_offsets: Ints
    run_taps: Ints
    run_length: int
    element_bytes: int

    @property
    def lengths(self) -> tuple[int, ...]:
        """Positions along each axis."""
        return tuple(stop - start for start, stop in self.ranges)

    @property
    def count(self) -> int:
        """How many operands each position reads."""
        return len(self.run_offsets) * self.run_length

    @property
    def offsets(self) -> Ints:
        """The offset of each operand, in bytes."""
        return _spread(self.run_offsets, self.run_length, self.element_bytes)

    @property
    def taps(self) -> Ints:
        """For each operand its place in the table's `order`, ascending; all of them unless some are padding."""
        return _spread(self.run_taps, self.run_length, 1)

    @property
    def steps(self) -> tuple[int, ...]:
        """Bytes from one position's base to the next along each axis; 0 along axes of one position."""
        result = [0] * len(self.ranges)
        step = 1
        for axis in reversed(self.axes):
            length = self.lengths[axis]
            if length > 1:
                result[axis] = int(self.bases[step] - self.bases[0])
            step *= length
        return tuple(result)

    def advances(self) -> Ints:
        """What `bases` are beyond the first of them, made from the `steps` alone."""
        ramps = [np.arange(self.lengths[axis], dtype=np.int64) * self.steps[axis] for axis in self.axes]
        return reduce(np.add.outer, ramps).reshape(-1)

    def at(self, values: Ints) -> Ints:
        """An array over the read's whole box of positions, at this class's positions in the order of `bases`."""
        box = values[tuple(slice(start, stop) for start, stop in self.ranges)]
        return box.transpose(self.axes).reshape(-1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AddressTable:
    """Where one unit finds one operand (ADDR-1).

    `positions` and `taps` are counts along the operand's axes. `order[k]` is the tap that the k-th operand of a full
    window stands for, as a number in row-major order of `taps`: weights [filters, taps...] flattened to
    [filters, -1] are packed as weights[:, order], and for a class as weights[:, order[class.taps]].
    """

    element_bytes: int
    positions: tuple[int, ...]
    taps: tuple[int, ...]
    order: Ints
    classes: tuple[PositionClass, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes on chip: 4 for each position and each run of offsets (ADDR-4).

        Classes with equal offsets share them. Where a class leaves taps out, the places of its runs in the packed
        second operand count too.
        """
        return ENTRY_BYTES * (prod(self.positions) + self._entries(merged=True))

    @property
    def size_without_runs_bytes(self) -> int:
        """As `size_bytes`, with an entry for each offset."""
        return ENTRY_BYTES * (prod(self.positions) + self._entries(merged=False))

    @property
    def im2col_bytes(self) -> int:
        """Bytes of the matrix that the table makes unnecessary: every operand of every position."""
        return prod(self.positions) * prod(self.taps) * self.element_bytes

    @property
    def span(self) -> Range:
        """The bytes that are read, as a range from the anchor; (0, 0) if none are."""
        reading = [each for each in self.classes if each.count]
        if not reading:
            return 0, 0
        low = min(int(each.bases.min() + each.run_offsets.min()) for each in reading)
        high = max(
            int(each.bases.max() + each.run_offsets.max()) + each.run_length * each.element_bytes for each in reading
        )
        return low, high

    def _entries(self, *, merged: bool) -> int:
        """Entries of distinct offset lists, and of distinct lists of taps that are not simply all."""
        offsets: dict[tuple[bytes, int], int] = {}
        taps: dict[tuple[bytes, int], int] = {}
        for each in self.classes:
            entries = len(each.run_offsets) if merged else each.count
            offsets[each.run_offsets.tobytes(), each.run_length] = entries
            if each.count < len(self.order):
                taps[each.run_taps.tobytes(), each.run_length] = entries
        return sum(offsets.values()) + sum(taps.values())


def frozen(values: Ints) -> Ints:
    """The array, which nobody can write to any more."""
    values.setflags(write=False)
    return values


def _spread(firsts: Ints, length: int, step: int) -> Ints:
    """Runs of `length` numbers `step` apart from each first one."""
    if length == 1:
        return firsts
    return (firsts[:, np.newaxis] + np.arange(length, dtype=np.int64) * step).reshape(-1)
