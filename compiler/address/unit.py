"""The address tables that units of programs use: one block of output positions, and the taps of a window (ADDR-1).

A unit goes over the box of a call block by block. The table holds, for one block, the bases of its positions and the
offsets of the window's taps, in the strides of the buffer that the operand's box lies in; where the block begins in
that buffer is the one address that changes from block to block and from call to call. So a table depends neither on
where a tile lies, nor on how large it is, nor on what of it is padding, and all tiles of an op, and all ops of equal
geometry, share it. Channels lie innermost: of each element that a tap meets all channels follow as one run, whose
length is that of the box. At a border the taps of a position are a part of all taps along each axis, so the shortened
lists of ADDR-3 are parts of the one list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod
from typing import Final

import numpy as np

from compiler.address.layouts import SPATIAL
from compiler.address.read import AxisRead, Piece, WindowRead
from compiler.address.table import ENTRY_BYTES, AddressTable
from compiler.errors import InternalError
from compiler.ir.box import Ints
from compiler.ops.base import Window

# The most positions of one block: what feeds a matrix unit, and keeps a table small beside the operands.
BLOCK_POSITIONS: Final = 256
_BATCH: Final = 0


def block_of(extents: Sequence[int]) -> tuple[int, ...]:
    """The block of an output of these extents [N, C, spatial...]: whole rows, as many as BLOCK_POSITIONS allow.

    One long row is cut. Channels are no positions: theirs is 1.
    """
    left, block = BLOCK_POSITIONS, [1] * len(extents)
    for axis in (*reversed(range(SPATIAL, len(extents))), _BATCH):
        block[axis] = max(1, min(int(extents[axis]), left))
        left //= block[axis]
    return tuple(block)


def largest_table_bytes(window: Window, extents: Sequence[int]) -> int:
    """What a table takes for an output of these extents: 4 bytes for each position of a block and each tap (ADDR-4).

    Where taps are neighbours in memory (of one channel) it takes less.
    """
    return ENTRY_BYTES * (prod(block_of(extents)) + prod(window.kernel))


def unit_read(window: Window, block: Sequence[int], strides: Sequence[int], element_bytes: int) -> WindowRead:
    """What a unit reads of one block, in a buffer with these byte strides [N, C, spatial...] (ADDR-2).

    It begins with the element of the first tap at the block's first position; no tap counts as padding.
    """
    axes, stops = [], []
    for axis, count in enumerate(block):
        place = axis - SPATIAL
        read = AxisRead(begin=0, end=count, valid=(0, count))
        if place >= 0:
            taps, step, dilation = window.kernel[place], window.strides[place], window.dilations[place]
            reach = (count - 1) * step + (taps - 1) * dilation + 1
            read = AxisRead(begin=0, end=count, stride=step, taps=taps, dilation=dilation, valid=(0, reach))
        axes.append(read)
        stops.append(read.valid[1])
    piece = Piece(starts=(0,) * len(stops), stops=tuple(stops), address=0, strides=tuple(strides))
    return WindowRead(axes=tuple(axes), pieces=(piece,), element_bytes=element_bytes)


def is_addressable(read: WindowRead) -> bool:
    """True if all bases and offsets of a read fit in the 32 bits that tables have for each."""
    (piece,) = read.pieces
    reach = sum((stop - 1) * abs(stride) for stop, stride in zip(piece.stops, piece.strides, strict=True))
    return reach <= np.iinfo(np.int32).max


def words_of(table: AddressTable) -> Ints:
    """The table as it lies in memory: the bases, then the offsets by runs, 32 bits each.

    Only for tables without padding, whose positions are one class.
    """
    (only,) = table.classes
    return np.concatenate([only.bases, only.run_offsets]).astype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class UnitTable:
    """A unit's table, taken apart: bytes from position to position and from tap to tap along each axis.

    `bases` by axis: of the block's positions along it, the others at 0. `offsets`: [taps along each spatial axis].
    `steps` and `tap_steps` are 0 along axes of one position or one tap.
    """

    table: AddressTable
    block: tuple[int, ...]
    taps: tuple[int, ...]
    steps: tuple[int, ...]
    tap_steps: tuple[int, ...]
    bases: tuple[Ints, ...]
    offsets: Ints

    @classmethod
    def of(cls, table: AddressTable) -> UnitTable:
        """Raises InternalError for a table that is not of one block: with padding, or with taps in no even steps."""
        rank = len(table.positions)
        if len(table.classes) != 1 or rank < SPATIAL + 1 or table.classes[0].count != prod(table.taps):
            raise InternalError("this is no table of one block", stage="address", actual=len(table.classes), limit=1)
        only = table.classes[0]
        offsets = np.empty(len(table.order), dtype=np.int64)
        offsets[table.order] = only.offsets
        if offsets[0] or only.bases[0]:
            raise InternalError("a table counts from its first operand", stage="address", actual=int(offsets[0]))
        grid = offsets.reshape(table.taps)
        tap_steps = tuple(
            int(grid[tuple(1 if a == axis else 0 for a in range(rank))]) if table.taps[axis] > 1 else 0
            for axis in range(rank)
        )
        ramps = [np.arange(count, dtype=np.int64) * step for count, step in zip(table.taps, tap_steps, strict=True)]
        is_even = np.array_equal(reduce(np.add.outer, ramps), grid) and max(table.taps[:SPATIAL]) == 1
        if not is_even or min(*tap_steps, *only.steps) < 0:
            raise InternalError("the taps of a table lie in no even steps", stage="address", actual=table.taps)
        return cls(
            table=table,
            block=table.positions,
            taps=table.taps[SPATIAL:],
            steps=only.steps,
            tap_steps=tap_steps,
            bases=tuple(
                np.arange(count, dtype=np.int64) * step for count, step in zip(table.positions, only.steps, strict=True)
            ),
            offsets=grid.reshape(table.taps[SPATIAL:]),
        )

    def element_strides(self, window: Window, strides: Sequence[int]) -> tuple[int, ...]:
        """Bytes from element to element along each axis as the table has them; `strides` where it says nothing."""
        found = []
        for axis, stride in enumerate(strides):
            place = axis - SPATIAL
            if place >= 0 and self.taps[place] > 1:
                stride = self.tap_steps[axis] // window.dilations[place]
            elif self.block[axis] > 1:
                stride = self.steps[axis] // (window.strides[place] if place >= 0 else 1)
            found.append(stride)
        return tuple(found)

    def fits(self, window: Window, lengths: Sequence[int], strides: Sequence[int], element_bytes: int) -> bool:
        """True if the table is that of a window for a buffer in which a box of these lengths and strides lies.

        Of an axis of one element the stride is unknown, and any will do. Channels have to lie side by side.
        """
        if self.taps != window.kernel or self.table.element_bytes != element_bytes:
            return False
        if lengths[1] > 1 and strides[1] != element_bytes:
            return False
        for axis, (length, stride) in enumerate(zip(lengths, strides, strict=True)):
            place = axis - SPATIAL
            step, dilation = (window.strides[place], window.dilations[place]) if place >= 0 else (1, 1)
            if axis == 1:
                continue
            # positions and taps have to agree on the distance of elements, also where the piece does not say it
            between = self.tap_steps[axis] * step - self.steps[axis] * dilation
            both = self.block[axis] > 1 and place >= 0 and self.taps[place] > 1
            if (both and between) or self.tap_steps[axis] % dilation or self.steps[axis] % step:
                return False
            if length == 1:
                continue
            if self.block[axis] > 1 and self.steps[axis] != step * stride:
                return False
            if place >= 0 and self.taps[place] > 1 and self.tap_steps[axis] != dilation * stride:
                return False
        return True
