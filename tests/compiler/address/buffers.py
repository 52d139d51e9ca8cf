"""Buffers in byte memory, random reads of them, and what a gather by a table finds there."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from compiler.address.layouts import layout_named
from compiler.address.read import Piece, Range, WindowRead, piece_in
from compiler.address.table import AddressTable, PositionClass

Values = NDArray[Any]
NAMES = {1: ("NCW", "NWC", "CNW"), 2: ("NCHW", "NHWC", "CNHW"), 3: ("NCDHW", "NDHWC", "CNDHW")}
DTYPES = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


@dataclass(kw_only=True)
class Memory:
    """Flat byte memory: what is stored where, filled with 0x55 elsewhere."""

    dtype: Any
    data: bytearray = field(default_factory=bytearray)
    # addresses at which an element begins
    held: set[int] = field(default_factory=set)

    @property
    def element_bytes(self) -> int:
        return int(np.dtype(self.dtype).itemsize)

    def store(self, values: Values, starts: tuple[int, ...], name: str, block: int, slack_bytes: int) -> Piece:
        """A box of a tensor in a buffer of its own, written by numpy's transposition, not by the strides under test."""
        stops = tuple(start + length for start, length in zip(starts, values.shape, strict=True))
        axes = ("N", "C", *("D", "H", "W")[5 - values.ndim :])
        ordered = values.astype(self.dtype)
        numbers: Values = np.arange(ordered.size).reshape(ordered.shape)  # which element goes where
        letters = list(name.removesuffix("c"))
        order = [axes.index(letter) for letter in letters]
        if block > 1:
            fill = -values.shape[1] % block
            width = [(0, fill) if axis == 1 else (0, 0) for axis in range(values.ndim)]
            numbers = np.pad(numbers, width, constant_values=-1)
            blocks = numbers.shape[1] // block
            split = numbers.reshape(numbers.shape[0], blocks, block, *numbers.shape[2:])
            numbers = split.transpose([axis + (axis > 1) for axis in order] + [2])
        else:
            numbers = numbers.transpose(order)
        row = prod(numbers.shape[letters.index("W") :])
        rows = numbers.reshape(-1, row)
        pitch = row * self.element_bytes + slack_bytes
        address = len(self.data) + 3 * self.element_bytes
        self.data += b"\x55" * (3 * self.element_bytes + len(rows) * pitch)
        flat = ordered.reshape(-1)
        for place, line in enumerate(rows):
            for at, number in enumerate(line.tolist()):
                if number >= 0:
                    begin = address + place * pitch + at * self.element_bytes
                    self.data[begin : begin + self.element_bytes] = flat[number].tobytes()
                    self.held.add(begin)
        layout = layout_named(name, channel_block=block)
        return piece_in(layout, starts, stops, element_bytes=self.element_bytes, address=address, row_pitch_bytes=pitch)

    def load(self, addresses: Values) -> Values:
        """The elements at some addresses; an address at which none begins fails the test."""
        wrong = set(addresses.reshape(-1).tolist()) - self.held
        assert not wrong, f"addresses {sorted(wrong)[:5]} hold no element of the operand"
        data = np.frombuffer(bytes(self.data), dtype=np.uint8)
        spread = data[addresses[..., np.newaxis] + np.arange(self.element_bytes)]
        loaded = np.ascontiguousarray(spread).view(self.dtype)[..., 0]
        return np.asarray(loaded, dtype=np.int64)


@dataclass(kw_only=True)
class Window:
    """A random window over a random tensor, and the box of output positions to compute."""

    values: Values
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    group_channels: int
    batch: Range
    window: tuple[Range, ...]

    @property
    def groups(self) -> list[Range]:
        step = self.group_channels
        return [(first, first + step) for first in range(0, self.values.shape[1], step)]

    def padded(self, fill: int = 0) -> Values:
        """The tensor with padding wide enough for every tap of every position."""
        reach = [
            (end - 1) * stride + (taps - 1) * dilation + 1 - pad - extent
            for (_, end), stride, taps, dilation, pad, extent in zip(
                *(self.window, self.strides, self.kernel, self.dilations, self.pads, self.values.shape[2:]), strict=True
            )
        ]
        width = [(0, 0), (0, 0), *((pad, max(0, more)) for pad, more in zip(self.pads, reach, strict=True))]
        return np.pad(self.values, width, constant_values=fill)

    def seen(self, tap: tuple[int, ...], channels: Range, fill: int = 0) -> Values:
        """What one tap meets at every position of the box: [batch, channels, window...]."""
        index = tuple(
            slice(begin * stride + at * dilation, (end - 1) * stride + at * dilation + 1, stride)
            for (begin, end), stride, dilation, at in zip(self.window, self.strides, self.dilations, tap, strict=True)
        )
        return np.asarray(self.padded(fill)[(slice(*self.batch), slice(*channels), *index)])

    def convolved(self, weights: Values, channels: Range) -> Values:
        """The convolution of one group, tap by tap: [batch, filters, window...]."""
        total = np.zeros((1,), dtype=np.int64)
        for tap in product(*map(range, self.kernel)):
            index: Any = (slice(None), slice(None), *tap)
            part = np.tensordot(self.seen(tap, channels), weights[index], axes=([1], [1]))
            total = total + np.moveaxis(part, -1, 1)
        return total

    def arguments(self) -> dict[str, Any]:
        """What the builders of reads take."""
        return {
            "batch": self.batch,
            "window": self.window,
            "kernel": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": self.pads,
            "extents": self.values.shape,
        }


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Windows over one to three spatial axes, with groups, strides, dilations and padding on either side."""
    rank = draw(st.sampled_from([1, 2, 2, 3]))
    group_channels, groups, n = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 2))
    kernel, strides, dilations, pads, extents, window = [], [], [], [], [], []
    for _ in range(rank):
        taps, dilation, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 3))
        before, after = draw(st.integers(0, 3)), draw(st.integers(0, 2))
        span = (taps - 1) * dilation + 1
        extent = draw(st.integers(max(1, span - before - after), 8 if rank < 3 else 5))
        count = (extent + before + after - span) // stride + 1
        begin = draw(st.integers(0, count - 1))
        window.append((begin, draw(st.integers(begin + 1, count))))
        kernel.append(taps)
        strides.append(stride)
        dilations.append(dilation)
        pads.append(before)
        extents.append(extent)
    seed = draw(st.integers(0, 1000))
    shape = (n, group_channels * groups, *extents)
    return Window(
        values=np.random.default_rng(seed).integers(-9, 10, size=shape),
        kernel=tuple(kernel),
        strides=tuple(strides),
        dilations=tuple(dilations),
        pads=tuple(pads),
        group_channels=group_channels,
        batch=(draw(st.integers(0, n - 1)), n),
        window=tuple(window),
    )


@st.composite
def stored(draw: st.DrawFn, values: Values, *, most_cuts: int = 3) -> tuple[Memory, tuple[Piece, ...]]:
    """A tensor in memory: cut into boxes at random, each in a buffer of its own, mostly all of one layout."""
    memory = Memory(dtype=DTYPES[draw(st.sampled_from(sorted(DTYPES)))])
    boxes = [tuple((0, extent) for extent in values.shape)]
    for _ in range(draw(st.integers(0, most_cuts))):
        box = boxes.pop(draw(st.integers(0, len(boxes) - 1)))
        axis = draw(st.integers(0, values.ndim - 1))
        start, stop = box[axis]
        at = draw(st.integers(start, stop))
        parts = (
            tuple((a, b) if i != axis else half for i, (a, b) in enumerate(box)) for half in ((start, at), (at, stop))
        )
        boxes += [part for part in parts if all(b > a for a, b in part)]
    forms = st.tuples(
        st.sampled_from(NAMES[values.ndim - 2]), st.sampled_from([1, 1, 2, 3, 4]), st.sampled_from([0, 0, 8, 24])
    )
    same = draw(forms) if draw(st.integers(0, 3)) else None
    pieces = []
    for box in boxes:
        name, block, slack = same or draw(forms)
        part = values[tuple(slice(*range_) for range_ in box)]
        starts = tuple(start for start, _ in box)
        pieces.append(memory.store(part, starts, name + "c" * (block > 1), block, slack))
    return memory, tuple(draw(st.permutations(pieces)))


def gathered(memory: Memory, read: WindowRead, table: AddressTable, each: PositionClass) -> Values:
    """The operands of a class, [positions, offsets], each at base + offset (ADDR-1)."""
    assert read.taps == table.taps
    return memory.load(read.anchor_address + each.bases[:, np.newaxis] + each.offsets)
