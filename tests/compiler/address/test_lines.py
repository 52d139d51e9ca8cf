"""Lines that positions touch, and reads that need no table (ADDR-4, ADDR-5)."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import build_table
from compiler.address.layouts import layout_named
from compiler.address.lines import is_table_needed, lines_touched
from compiler.address.read import AxisRead, Piece, WindowRead, convolution_read, matrix_read, piece_in
from compiler.errors import InternalError
from tests.compiler.address.buffers import stored, windows


@given(st.data())
def test_lines_are_those_that_a_count_byte_by_byte_finds(data: st.DataObject) -> None:
    """ADDR-4."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    line_bytes = data.draw(st.sampled_from([1, 3, 8, 16, 64]))
    read = convolution_read(
        **case.arguments(), channels=case.groups[0], pieces=pieces, element_bytes=memory.element_bytes
    )
    table = build_table(read)
    total = 0
    for each in table.classes:
        for base in each.bases.tolist():
            first = read.anchor_address + base + each.offsets
            last = first + memory.element_bytes - 1
            lines = [np.arange(a // line_bytes, b // line_bytes + 1) for a, b in zip(first, last, strict=True)]
            total += len(np.unique(np.concatenate(lines))) if lines else 0
    found = lines_touched(table, line_bytes, anchor_address=read.anchor_address)
    assert (found.total, found.positions) == (total, prod(table.positions))
    assert found.per_position == total / prod(table.positions)


def convolution(name: str, kernel: int, *, stride: int = 1, pad: int = 0, n: int = 1, address: int = 0) -> WindowRead:
    extents = (n, 64, 8, 8)
    piece = piece_in(layout_named(name), (0,) * 4, extents, element_bytes=4, address=address)
    out = (8 + 2 * pad - kernel) // stride + 1
    return convolution_read(
        batch=(0, n),
        window=((0, out), (0, out)),
        channels=(0, 64),
        kernel=(kernel, kernel),
        strides=(stride, stride),
        dilations=(1, 1),
        pads=(pad, pad),
        extents=extents,
        pieces=[piece],
        element_bytes=4,
    )


def test_channels_that_lie_together_touch_fewer_lines() -> None:
    """ADDR-4: nine taps of 64 channels of 4 bytes are 36 lines of 64 bytes; else two or three rows of each channel."""
    together = lines_touched(build_table(convolution("NHWC", 3)), 64)
    apart = lines_touched(build_table(convolution("NCHW", 3)), 64)
    assert (together.total, together.per_position) == (36 * 36, 36.0)
    assert apart.per_position == 2 * 64


def test_a_table_without_positions_touches_no_lines() -> None:
    axis = AxisRead(begin=0, end=0, valid=(0, 5))
    table = build_table(WindowRead(axes=(axis,), pieces=(), element_bytes=1))
    assert lines_touched(table, 64).per_position == 0.0


def test_a_line_without_bytes_is_refused() -> None:
    with pytest.raises(InternalError, match="at least one byte"):
        lines_touched(build_table(convolution("NHWC", 3)), 0)


@pytest.mark.parametrize("name", ["NCHW", "NHWC", "CNHW"])
def test_one_by_one_of_stride_one_needs_no_table(name: str) -> None:
    """ADDR-5."""
    assert not is_table_needed(convolution(name, 1))
    assert not is_table_needed(convolution(name, 1, n=2, address=4096))


def test_windows_strides_padding_and_pieces_need_a_table() -> None:
    """ADDR-5."""
    assert is_table_needed(convolution("NHWC", 3))
    assert is_table_needed(convolution("NHWC", 1, stride=2))
    assert is_table_needed(convolution("NHWC", 1, pad=1))
    whole = convolution("NHWC", 1)
    (piece,) = whole.pieces
    two = (
        replace(piece, stops=(1, 64, 3, 8)),
        replace(piece, starts=(0, 0, 3, 0), address=piece.address + piece.place(2, 3)),
    )
    assert is_table_needed(replace(whole, pieces=two))
    blocked = piece_in(layout_named("NCHWc", channel_block=16), (0,) * 4, (1, 64, 8, 8), element_bytes=4)
    assert is_table_needed(replace(whole, pieces=(blocked,)))


def test_a_window_over_the_whole_map_has_one_position_and_needs_no_table() -> None:
    """ADDR-5: its offsets are the buffer itself; nor does a read without positions."""
    assert not is_table_needed(convolution("NHWC", 8))
    whole = convolution("NHWC", 3)
    assert not is_table_needed(replace(whole, axes=(replace(whole.axes[0], end=0), *whole.axes[1:])))


def test_a_matrix_needs_no_table() -> None:
    """ADDR-5: rows and columns are strides."""
    piece = Piece(starts=(0, 0), stops=(6, 7), address=0, strides=(28, 4))
    read = matrix_read(rows=((0, 6),), depth=(0, 7), extents=(6, 7), pieces=[piece], element_bytes=4)
    assert not is_table_needed(read)
