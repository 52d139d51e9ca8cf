"""The address tables that units of programs use: one block of output positions, and the taps of a window (ADDR-1).

A unit goes over the box of a call block by block. The table holds, for one block, the bases of its positions and the
offsets of the window's taps, in the strides of the buffer that the operand's box lies in; where the block begins in
that buffer is the one address that changes from block to block and from call to call. So a table depends neither on
where a tile lies, nor on how large it is, nor on what of it is padding, and all tiles of an op, and all ops of equal
geometry, share it. At a border the taps of a position are a part of all taps along each axis, so the shortened
lists of ADDR-3 are parts of the one list.

Where channels lie side by side, all channels of a box follow the element that a tap meets, as one run. Elsewhere the
table has offsets of a block of channels too, and the unit goes over the channels block by block, as over positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from compiler.address.build import WindowRead, orders_of
from compiler.address.table import ENTRY_BYTES, MAX_TAPS, AddressTable, ramp
from compiler.errors import InternalError
from compiler.ir.box import Ints
from compiler.ir.layout import strides_of
from compiler.ops.base import Window

# The most positions of one block: what feeds a matrix unit, and keeps a table small beside the operands.
BLOCK_POSITIONS: Final = 256
# The channels and the first spatial axis of a tensor [N, C, spatial...].
CHANNELS: Final = 1
SPATIAL: Final = 2
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


def channels_of_block(window: Window, channels: int) -> int:
    """Of how many channels a table has offsets, where they do not lie side by side: as many as positions.

    Two at least where there are two, so that the table says how far apart they lie.
    """
    return min(channels, max(2, BLOCK_POSITIONS // prod(window.kernel)))


def largest_table_bytes(window: Window, extents: Sequence[int], data: Sequence[int], order: Sequence[int]) -> int:
    """What a table takes for an output of these extents: 4 bytes for each position of a block and each run (ADDR-4).

    `data`: the extents of the input, `order` its axes from outermost to innermost in memory. An input of one channel
    may take less. 0 where there is none, as no buffer is so small that its bases and offsets would fit in 32 bits.
    """
    block = block_of(extents)
    if not _is_in_reach(unit_read(window, block, data[CHANNELS], (1,) * len(block), 1)):
        return 0
    # in a buffer in which only elements along the innermost axis are neighbours
    apart = strides_of([3] * len(data), order, 1)
    read = unit_read(window, block, data[CHANNELS], apart, 1)
    return ENTRY_BYTES * (prod(block) + prod(read.taps) // orders_of(read)[2])


def unit_read(
    window: Window, block: Sequence[int], channels: int, strides: Sequence[int], element_bytes: int
) -> WindowRead:
    """What a unit reads of one block, in a buffer with these byte strides [N, C, spatial...] (ADDR-2).

    It begins with the element of the first tap at the block's first position; no tap counts as padding. `channels` of
    the input are taps where they do not lie side by side.
    """
    ones = (1,) * SPATIAL
    apart = 1 if strides[CHANNELS] == element_bytes else channels_of_block(window, channels)
    return WindowRead(
        positions=tuple(block),
        taps=(1, apart, *window.kernel),
        strides=(*ones, *window.strides),
        dilations=(*ones, *window.dilations),
        distances=tuple(strides),
        element_bytes=element_bytes,
    )


def is_addressable(read: WindowRead) -> bool:
    """True if all bases and offsets fit in the 32 bits that tables have for each, and taps are not too many."""
    return _is_in_reach(read) and prod(read.taps) <= MAX_TAPS


def _is_in_reach(read: WindowRead) -> bool:
    return read.reach_bytes <= np.iinfo(np.int32).max


def words_of(table: AddressTable) -> Ints:
    """The table as it lies in memory: the bases, then the offsets by runs, 32 bits each."""
    return np.concatenate([table.bases, table.run_offsets]).astype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class UnitTable:
    """A unit's table, taken apart: bytes from position to position and from tap to tap along each axis.

    `bases` by axis: of the block's positions along it, the others at 0. `offsets`: [taps along each spatial axis], of
    the first channel. `channel_step`: bytes from one channel to the next. `steps` and `tap_steps` are 0 along axes of
    one position or one tap.
    """

    table: AddressTable
    block: tuple[int, ...]
    taps: tuple[int, ...]
    steps: tuple[int, ...]
    tap_steps: tuple[int, ...]
    channel_step: int
    bases: tuple[Ints, ...]
    offsets: Ints

    @classmethod
    def of(cls, table: AddressTable) -> UnitTable:
        """Raises InternalError for a table that is not of one block: with taps along images, or in uneven steps."""
        steps, tap_steps = table.steps, table.tap_steps
        is_block = len(table.positions) > SPATIAL and table.taps[_BATCH] == table.positions[CHANNELS] == 1
        if not is_block or not table.is_even or min(*steps, *tap_steps) < 0:
            raise InternalError("this is no table of one block", stage="address", actual=table.taps)
        taps = table.taps[SPATIAL:]
        return cls(
            table=table,
            block=table.positions,
            taps=taps,
            steps=steps,
            tap_steps=tap_steps,
            channel_step=tap_steps[CHANNELS] if table.taps[CHANNELS] > 1 else table.element_bytes,
            bases=tuple(
                np.arange(count, dtype=np.int64) * step for count, step in zip(table.positions, steps, strict=True)
            ),
            offsets=ramp(taps, tap_steps[SPATIAL:], range(len(taps))).reshape(taps),
        )

    def element_strides(self, window: Window, strides: Sequence[int]) -> tuple[int, ...]:
        """Bytes from element to element along each axis as the table has them; `strides` where it says nothing."""
        found = []
        for axis, stride in enumerate(strides):
            place = axis - SPATIAL
            if axis == CHANNELS:
                stride = self.channel_step
            elif place >= 0 and self.taps[place] > 1:
                stride = self.tap_steps[axis] // window.dilations[place]
            elif self.block[axis] > 1:
                stride = self.steps[axis] // (window.strides[place] if place >= 0 else 1)
            found.append(stride)
        return tuple(found)

    def fits(self, window: Window, lengths: Sequence[int], strides: Sequence[int], element_bytes: int) -> bool:
        """True if the table is that of a window for a buffer in which a box of these lengths and strides lies.

        Of an axis of one element the stride is unknown, and any will do. Channels without offsets in the table have to
        lie side by side.
        """
        if self.taps != window.kernel or self.table.element_bytes != element_bytes:
            return False
        if lengths[CHANNELS] > 1 and strides[CHANNELS] != self.channel_step:
            return False
        for axis, (length, stride) in enumerate(zip(lengths, strides, strict=True)):
            place = axis - SPATIAL
            step, dilation = (window.strides[place], window.dilations[place]) if place >= 0 else (1, 1)
            if axis == CHANNELS:
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
