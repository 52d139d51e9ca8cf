"""Layouts by name, and the strides of buffers in them (ADDR-1, ADDR-2)."""

from __future__ import annotations

import pytest

from compiler.address.layouts import layout_named, strides_in
from compiler.errors import InternalError


@pytest.mark.parametrize(
    ("name", "strides"),
    [
        ("NCHW", (60, 20, 5, 1)),  # ((n·C + c)·H + h)·W + w
        ("NHWC", (60, 1, 15, 3)),  # ((n·H + h)·W + w)·C + c
        ("CNHW", (20, 40, 5, 1)),
    ],
)
def test_strides_follow_the_formulas_of_the_layouts(name: str, strides: tuple[int, ...]) -> None:
    """ADDR-2, for two images of three channels of 4×5, in elements and in elements of four bytes."""
    assert strides_in(layout_named(name), (2, 3, 4, 5), 1).axes == strides
    wide = strides_in(layout_named(name), (2, 3, 4, 5), 4)
    assert wide.axes == tuple(4 * step for step in strides)
    assert wide.size_bytes == 480


def test_channels_in_blocks_lie_innermost_and_the_last_block_is_filled_up() -> None:
    """ADDR-1 with NCHWc: five channels in blocks of four are two blocks."""
    strides = strides_in(layout_named("NCHWc", channel_block=4), (2, 5, 3, 2), 2)
    assert strides.axes == (96, 2, 16, 8)
    assert (strides.channel_block, strides.block_bytes, strides.size_bytes) == (4, 48, 192)


@pytest.mark.parametrize(
    ("name", "lengths", "strides"),
    [("NCW", (2, 3, 5), (15, 5, 1)), ("NWC", (2, 3, 5), (15, 1, 3)), ("NDHWC", (1, 2, 3, 4, 5), (120, 1, 40, 10, 2))],
)
def test_layouts_have_one_to_three_spatial_axes(name: str, lengths: tuple[int, ...], strides: tuple[int, ...]) -> None:
    assert strides_in(layout_named(name), lengths, 1).axes == strides


@pytest.mark.parametrize(
    ("name", "strides", "size"),
    [("NCHW", (96, 32, 8, 1), 192), ("NHWC", (64, 1, 16, 3), 128), ("CNHW", (32, 64, 8, 1), 192)],
)
def test_a_row_pitch_sets_rows_apart(name: str, strides: tuple[int, ...], size: int) -> None:
    pitch = 16 if name == "NHWC" else 8
    found = strides_in(layout_named(name), (2, 3, 4, 5), 1, row_pitch_bytes=pitch)
    assert (found.axes, found.size_bytes) == (strides, size)


def test_a_row_pitch_shorter_than_a_row_is_refused() -> None:
    with pytest.raises(InternalError, match="limit 15"):
        strides_in(layout_named("NHWC"), (2, 3, 4, 5), 1, row_pitch_bytes=14)


@pytest.mark.parametrize(("name", "block"), [("NCHH", 1), ("NC", 1), ("NCHWc", 1), ("NHWC", 8), ("NCHWc", 0), ("", 1)])
def test_a_name_that_is_no_layout_is_refused(name: str, block: int) -> None:
    with pytest.raises(InternalError, match="layout"):
        layout_named(name, channel_block=block)


@pytest.mark.parametrize("name", ["NCW", "NHWC", "CNHW", "NCDHW", "NCHWc"])
def test_a_layout_has_the_name_it_was_made_from(name: str) -> None:
    assert layout_named(name, channel_block=8 if name.endswith("c") else 1).name == name


@pytest.mark.parametrize("lengths", [(1, 2, 3), (1, 2, 0, 3)])
def test_lengths_that_do_not_fit_the_layout_are_refused(lengths: tuple[int, ...]) -> None:
    with pytest.raises(InternalError, match="length"):
        strides_in(layout_named("NCHW"), lengths, 4)
