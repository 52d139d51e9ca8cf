"""Padding by a bordered buffer instead of classes, and which is the cheaper (ADDR-3)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.border import Padding, bordered, cheaper
from compiler.address.build import build_table
from compiler.address.layouts import layout_named
from compiler.address.read import WindowRead, convolution_read, piece_in
from compiler.errors import InternalError
from tests.compiler.address.buffers import NAMES, Memory, stored, windows
from tests.compiler.address.test_build import FILTERS, computed


@given(st.data())
def test_a_bordered_buffer_is_read_in_one_class_and_gives_the_same(data: st.DataObject) -> None:
    """ADDR-3: the tile between zeros, in any layout."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    read = convolution_read(
        **case.arguments(), channels=case.groups[0], pieces=pieces, element_bytes=memory.element_bytes
    )
    name = data.draw(st.sampled_from(NAMES[len(case.kernel)]))
    starts = [axis.first for axis in read.axes]
    padded = np.pad(case.values, [(0, 0), (0, 0), *((9, 12),) * len(case.kernel)])
    box = tuple(
        slice(axis.first + 9 * (number > 1), axis.first + axis.reach + 9 * (number > 1))
        for number, axis in enumerate(read.axes)
    )
    fresh = Memory(dtype=memory.dtype)
    piece = fresh.store(padded[box], tuple(starts), name, 1, 0)
    other = bordered(read, layout_named(name), address=piece.address)
    table = build_table(other)
    assert len(table.classes) == 1
    weights = np.random.default_rng(1).integers(-9, 10, size=(FILTERS, case.group_channels, *case.kernel))
    found = computed(fresh, other, table, weights)[:, 0]
    assert np.array_equal(np.moveaxis(found, -1, 1), case.convolved(weights, case.groups[0]))


def convolution(name: str, *, extent: int = 8, channels: int = 4, pad: int = 1) -> WindowRead:
    extents = (1, channels, extent, extent)
    piece = piece_in(layout_named(name), (0,) * 4, extents, element_bytes=4)
    out = extent + 2 * pad - 2
    return convolution_read(
        batch=(0, 1),
        window=((0, out), (0, out)),
        channels=(0, channels),
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(pad, pad),
        extents=extents,
        pieces=[piece],
        element_bytes=4,
    )


def test_both_costs_are_the_bytes_that_follow_from_table_border_and_lines() -> None:
    """ADDR-3: 8×8 positions of 4 channels in NHWC, lines of 16 bytes, so that a tap is a line."""
    choice = cheaper(convolution("NHWC"), layout_named("NHWC"), line_bytes=16)
    # runs: 25 of distinct offsets, of 4, 6, 6 and 9; 40 of the taps of eight classes
    assert choice.classes.table_bytes == 4 * (64 + 25 + 40)
    assert (choice.classes.border_bytes, choice.classes.lines_touched) == (0, (3 * 8 - 2) ** 2)
    assert choice.border.table_bytes == 4 * (64 + 9)
    assert (choice.border.border_bytes, choice.border.lines_touched) == (16 * (100 - 64), 9 * 64)
    assert choice.classes.total_bytes == 516 + 484 * 16
    assert choice.border.total_bytes == 292 + 576 + 576 * 16


def test_classes_are_cheaper_where_a_border_is_much_to_read() -> None:
    """ADDR-3: and the reason says what was compared."""
    read = convolution("NHWC")
    choice = cheaper(read, layout_named("NHWC"), line_bytes=16)
    assert choice.chosen is Padding.CLASSES
    assert choice.read == read
    assert len(choice.table.classes) == 9
    assert choice.reason == (
        "fewer bytes are loaded, written and read: classes 8260 bytes (table 516, border 0, 484 lines of 16); "
        "border 10084 bytes (table 292, border 576, 576 lines of 16)"
    )


def rows_of_fourteen() -> WindowRead:
    """64 channels of 14 elements of 4 bytes, each in a line of 64 bytes, which padding would fill."""
    extents = (1, 64, 14)
    piece = piece_in(layout_named("NCW"), (0,) * 3, extents, element_bytes=4, row_pitch_bytes=64)
    return convolution_read(
        batch=(0, 1),
        window=((0, 14),),
        channels=(0, 64),
        kernel=(3,),
        strides=(1,),
        dilations=(1,),
        pads=(1,),
        extents=extents,
        pieces=[piece],
        element_bytes=4,
    )


def test_a_border_is_cheaper_where_it_is_small_and_classes_make_many_offsets() -> None:
    """ADDR-3: two columns more, against lists of 64 runs for either end."""
    choice = cheaper(rows_of_fourteen(), layout_named("NCW"), line_bytes=64, address=4096)
    assert choice.chosen is Padding.BORDER
    assert len(choice.table.classes) == 1
    assert choice.read.pieces[0].address == 4096
    assert choice.classes.table_bytes == 4 * (14 + 64 + 64 + 2 * 64)
    assert (choice.border.table_bytes, choice.border.border_bytes) == (4 * (14 + 64), 64 * 2 * 4)
    assert choice.border.lines_touched == 14 * 64


def test_a_way_that_does_not_fit_is_out() -> None:
    """ADDR-3: whatever it would save; where neither fits, as if there were room."""
    read, layout = rows_of_fourteen(), layout_named("NCW")
    free = cheaper(read, layout, line_bytes=1)
    assert (free.classes.memory_bytes, free.border.memory_bytes) == (1080, 824)
    assert cheaper(convolution("NHWC"), layout_named("NHWC"), line_bytes=16, room_bytes=516).chosen is Padding.CLASSES
    assert free.chosen is Padding.CLASSES
    tight = cheaper(read, layout, line_bytes=1, room_bytes=1079)
    assert tight.chosen is Padding.BORDER
    assert "does not fit in 1079 bytes" in tight.reason
    assert cheaper(read, layout, line_bytes=1, room_bytes=1080).chosen is Padding.CLASSES
    assert cheaper(read, layout, line_bytes=1, room_bytes=823).chosen is Padding.CLASSES


def test_without_padding_the_buffer_stays_as_it_is() -> None:
    """ADDR-3: both cost the same."""
    choice = cheaper(convolution("NHWC", pad=0), layout_named("NHWC"), line_bytes=16)
    assert choice.chosen is Padding.CLASSES
    assert choice.border.border_bytes == 0
    assert "same" in choice.reason


def test_a_read_wholly_in_the_padding_is_cheaper_by_a_class_without_offsets() -> None:
    """ADDR-3: its border would be the whole buffer."""
    read = convolution("NHWC", pad=3)
    corner = replace(read, axes=(*read.axes[:2], replace(read.axes[2], end=1), read.axes[3]))
    choice = cheaper(corner, layout_named("NHWC"), line_bytes=16)
    assert choice.chosen is Padding.CLASSES
    assert (choice.classes.lines_touched, choice.border.border_bytes) == (0, 3 * 14 * 16)


def test_a_read_without_positions_has_no_border() -> None:
    read = convolution("NHWC")
    none = replace(read, axes=(replace(read.axes[0], end=0), *read.axes[1:]))
    with pytest.raises(InternalError, match="no border"):
        bordered(none, layout_named("NHWC"))
