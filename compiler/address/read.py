"""What a unit reads of one operand: windows over the axes of a tensor whose box lies in one or more buffers (ADDR-1).

Along every axis of the operand one formula says which element tap `k` of output position `p` is:
p·stride + low + k·dilation. A convolution has one position and all channels as taps along C, a pooling one tap and
its channels as positions; rows of a matrix product are positions, what is summed over are taps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from compiler.address.layouts import CHANNEL, Layout, strides_in
from compiler.errors import InternalError
from compiler.ir.box import Ints

Place = TypeVar("Place", int, Ints)
Range = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisRead:
    """The output positions `begin` to `end` along one axis, and the `taps` elements that each of them reads.

    Position p reads the elements p·stride + low + k·dilation, k from 0 to taps − 1. Those outside `valid` are padding.
    All ranges are half-open; positions and elements are counted from the beginnings of the whole tensors.
    """

    begin: int
    end: int
    stride: int = 1
    taps: int = 1
    dilation: int = 1
    low: int = 0
    valid: Range

    def __post_init__(self) -> None:
        if self.end < self.begin or min(self.stride, self.taps, self.dilation) < 1 or self.valid[1] < self.valid[0]:
            raise InternalError("a window has positive stride, taps and dilation", stage="address", actual=str(self))

    @property
    def positions(self) -> int:
        """How many output positions there are."""
        return self.end - self.begin

    @property
    def first(self) -> int:
        """The element of the first tap at the first position, padding or not."""
        return self.begin * self.stride + self.low

    @property
    def reach(self) -> int:
        """Elements from the first that is read to the last, both included; at least one position."""
        return (self.positions - 1) * self.stride + (self.taps - 1) * self.dilation + 1

    @property
    def needed(self) -> Range:
        """The range of elements that are read and are not padding; empty ranges have equal ends."""
        if not self.positions:
            return 0, 0
        start = max(self.first, self.valid[0])
        return start, max(start, min(self.first + self.reach, self.valid[1]))

    def relative(self) -> AxisRead:
        """The same read counted from its own first position and element, without what makes no difference."""
        start, stop = self.needed
        first = self.first if self.positions else 0
        return AxisRead(
            begin=0,
            end=self.positions,
            stride=self.stride if self.positions > 1 else 1,
            taps=self.taps,
            dilation=self.dilation if self.taps > 1 else 1,
            low=0,
            valid=(start - first, stop - first),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A box of the operand that lies in one buffer: `address` of its first element, bytes per step along each axis.

    With `channel_block` > 1 channels lie in blocks: `strides` hold inside a block, `block_bytes` lead from block to
    block, and the piece's first channel is number `channel_phase` of its block. `starts` and `stops` are counted in
    the whole tensor.
    """

    starts: tuple[int, ...]
    stops: tuple[int, ...]
    address: int
    strides: tuple[int, ...]
    channel_block: int = 1
    block_bytes: int = 0
    channel_phase: int = 0

    def place(self, axis: int, position: Place) -> Place:
        """Bytes from the piece's first element to a position along one axis."""
        local = position - self.starts[axis]
        if axis != CHANNEL or self.channel_block == 1:
            return local * self.strides[axis]
        phase, stride = self.channel_phase, self.strides[axis]
        return (local + phase) // self.channel_block * self.block_bytes + (
            (local + phase) % self.channel_block - phase
        ) * stride

    def cropped(self, ranges: Sequence[Range]) -> Piece | None:
        """What of the piece lies in a box, with strides of 0 along axes of one position; None if nothing does."""
        starts = tuple(max(mine, start) for mine, (start, _) in zip(self.starts, ranges, strict=True))
        stops = tuple(min(mine, stop) for mine, (_, stop) in zip(self.stops, ranges, strict=True))
        if any(stop <= start for start, stop in zip(starts, stops, strict=True)):
            return None
        address = self.address + sum(self.place(axis, start) for axis, start in enumerate(starts))
        block, block_bytes, phase = self.channel_block, self.block_bytes, 0
        if block > 1:
            phase = (self.channel_phase + starts[CHANNEL] - self.starts[CHANNEL]) % block
            if phase + stops[CHANNEL] - starts[CHANNEL] <= block:
                block, block_bytes, phase = 1, 0, 0
        strides = tuple(
            step if stop - start > 1 else 0 for step, start, stop in zip(self.strides, starts, stops, strict=True)
        )
        return Piece(
            starts=starts,
            stops=stops,
            address=address,
            strides=strides,
            channel_block=block,
            block_bytes=block_bytes,
            channel_phase=phase,
        )

    def moved(self, by: Sequence[int], address: int) -> Piece:
        """The piece counted from another element of the tensor, and its address from another one."""
        return replace(
            self,
            starts=tuple(start - first for start, first in zip(self.starts, by, strict=True)),
            stops=tuple(stop - first for stop, first in zip(self.stops, by, strict=True)),
            address=self.address - address,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowRead:
    """One operand of one unit: what is read along each axis of the tensor, and the pieces in which it lies.

    Pieces are disjoint; together they hold all that is read and is not padding. Raises InternalError on pieces that
    overlap or have other axes; one that is missing is found when the table is built.
    """

    axes: tuple[AxisRead, ...]
    pieces: tuple[Piece, ...]
    element_bytes: int

    def __post_init__(self) -> None:
        rank = len(self.axes)
        for piece in self.pieces:
            if not len(piece.starts) == len(piece.stops) == len(piece.strides) == rank:
                raise InternalError("a piece has other axes than the read", stage="address", actual=str(piece))
            if not 0 <= piece.channel_phase < piece.channel_block:
                raise InternalError("a piece begins inside its first block", stage="address", actual=str(piece))
        for one, other in combinations(self.pieces, 2):
            if one.cropped(tuple(zip(other.starts, other.stops, strict=True))) is not None:
                raise InternalError("two pieces hold the same elements", stage="address", actual=f"{one}, {other}")

    @property
    def needed(self) -> tuple[Range, ...]:
        """The box of elements that are read and are not padding."""
        return tuple(axis.needed for axis in self.axes)

    @property
    def positions(self) -> tuple[int, ...]:
        """Output positions along each axis."""
        return tuple(axis.positions for axis in self.axes)

    @property
    def taps(self) -> tuple[int, ...]:
        """Elements that one output position reads, along each axis, padding included."""
        return tuple(axis.taps for axis in self.axes)

    def _cut(self) -> tuple[Piece, ...]:
        """The pieces as far as they are read, in the order of their first elements."""
        cut = (piece.cropped(self.needed) for piece in self.pieces)
        return tuple(sorted((piece for piece in cut if piece is not None), key=lambda piece: piece.starts))

    @property
    def anchor_address(self) -> int:
        """The address that a table counts from: of the first element that is read and is not padding; else 0."""
        cut = self._cut()
        return cut[0].address if cut else 0

    def relative(self) -> WindowRead:
        """The read without absolute positions and addresses: equal ones have equal tables (ADDR-5)."""
        firsts = tuple(axis.first if axis.positions else 0 for axis in self.axes)
        cut = self._cut()
        return WindowRead(
            axes=tuple(axis.relative() for axis in self.axes),
            pieces=tuple(piece.moved(firsts, cut[0].address) for piece in cut),
            element_bytes=self.element_bytes,
        )


TableKey = tuple[object, ...]


def table_key(read: WindowRead) -> TableKey:
    """Everything that decides a table, and nothing else: reads with equal keys share one (ADDR-5).

    It holds no absolute position and no absolute address, so tiles of equal geometry, images and groups share.
    """
    relative = read.relative()
    return (
        relative.element_bytes,
        tuple((axis.end, axis.stride, axis.taps, axis.dilation, *axis.valid) for axis in relative.axes),
        tuple(
            (
                *(piece.starts, piece.stops, piece.strides, piece.address),
                *(piece.channel_block, piece.block_bytes, piece.channel_phase),
            )
            for piece in relative.pieces
        ),
    )


def piece_in(
    layout: Layout,
    starts: Sequence[int],
    stops: Sequence[int],
    *,
    element_bytes: int,
    address: int = 0,
    row_pitch_bytes: int | None = None,
) -> Piece:
    """The box from `starts` to `stops` (N, C, spatial ones) in a buffer of its own."""
    lengths = tuple(stop - start for start, stop in zip(starts, stops, strict=True))
    strides = strides_in(layout, lengths, element_bytes, row_pitch_bytes=row_pitch_bytes)
    return Piece(
        starts=tuple(starts),
        stops=tuple(stops),
        address=address,
        strides=strides.axes,
        channel_block=strides.channel_block,
        block_bytes=strides.block_bytes,
    )


def convolution_read(
    *,
    batch: Range,
    window: Sequence[Range],
    channels: Range,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    extents: Sequence[int],
    pieces: Iterable[Piece],
    element_bytes: int,
) -> WindowRead:
    """What a convolution reads for the output box `batch` × `window`, of one group's `channels`.

    `pads` are those before the tensor, `extents` of the whole input (N, C, spatial ones). Groups are read one by one:
    their tables are equal (ADDR-5), only the anchor differs.
    """
    channel = AxisRead(begin=0, end=1, taps=channels[1] - channels[0], low=channels[0], valid=(0, extents[CHANNEL]))
    spatial = _spatial(window, kernel, strides, dilations, pads, extents[2:])
    return WindowRead(
        axes=(_positions(batch, extents[0]), channel, *spatial), pieces=tuple(pieces), element_bytes=element_bytes
    )


def pooling_read(
    *,
    batch: Range,
    window: Sequence[Range],
    channels: Range,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    extents: Sequence[int],
    pieces: Iterable[Piece],
    element_bytes: int,
) -> WindowRead:
    """What a pooling or depth-wise convolution reads for the output box `batch` × `channels` × `window`.

    As a convolution, but each channel is a position of its own, so that offsets are taps only.
    """
    spatial = _spatial(window, kernel, strides, dilations, pads, extents[2:])
    axes = (_positions(batch, extents[0]), _positions(channels, extents[CHANNEL]), *spatial)
    return WindowRead(axes=axes, pieces=tuple(pieces), element_bytes=element_bytes)


def matrix_read(
    *, rows: Sequence[Range], depth: Range, extents: Sequence[int], pieces: Iterable[Piece], element_bytes: int
) -> WindowRead:
    """What a matrix product reads of an operand [..., rows, depth]: rows are positions, offsets the summed axis."""
    *outer, inner = extents
    summed = AxisRead(begin=0, end=1, taps=depth[1] - depth[0], low=depth[0], valid=(0, inner))
    axes = (*(_positions(range_, extent) for range_, extent in zip(rows, outer, strict=True)), summed)
    return WindowRead(axes=axes, pieces=tuple(pieces), element_bytes=element_bytes)


def _positions(range_: Range, extent: int) -> AxisRead:
    """An axis along which output position and element are the same."""
    return AxisRead(begin=range_[0], end=range_[1], valid=(0, extent))


def _spatial(
    window: Sequence[Range],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    extents: Sequence[int],
) -> tuple[AxisRead, ...]:
    return tuple(
        AxisRead(begin=begin, end=end, taps=taps, stride=stride, dilation=dilation, low=-pad, valid=(0, extent))
        for (begin, end), taps, stride, dilation, pad, extent in zip(
            window, kernel, strides, dilations, pads, extents, strict=True
        )
    )
