"""The worked examples and stated sizes of address tables (G-7, ADDR-2, ADDR-4)."""

from __future__ import annotations

import pytest

from compiler.address.build import build_table
from compiler.address.layouts import layout_named
from compiler.address.read import Piece, WindowRead, convolution_read, matrix_read, piece_in, pooling_read


def three_by_three(
    name: str, *, n: int = 1, c: int = 1, extent: int = 4, pad: int = 0, element_bytes: int = 1, block: int = 1
) -> WindowRead:
    """A 3×3 convolution of stride 1 over the whole of a square input."""
    extents = (n, c, extent, extent)
    piece = piece_in(
        layout_named(name, channel_block=block), (0,) * 4, extents, element_bytes=element_bytes, address=640
    )
    out = extent + 2 * pad - 2
    return convolution_read(
        batch=(0, n),
        window=((0, out), (0, out)),
        channels=(0, c),
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(pad, pad),
        extents=extents,
        pieces=[piece],
        element_bytes=element_bytes,
    )


def test_the_example_of_addr_2_has_the_stated_bases_and_offsets() -> None:
    """ADDR-2, G-7: 4×4 input, 3×3 kernel."""
    table = build_table(three_by_three("NCHW"))
    (only,) = table.classes
    assert only.bases.tolist() == [0, 1, 4, 5]
    assert only.offsets.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_two_images_of_two_channels_in_nchw_have_the_stated_values() -> None:
    """G-7: the second image at + 32, the second channel's offsets at + 16."""
    table = build_table(three_by_three("NCHW", n=2, c=2))
    (only,) = table.classes
    first = [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert only.bases.tolist() == [0, 1, 4, 5, 32, 33, 36, 37]
    assert only.offsets.tolist() == first + [offset + 16 for offset in first]
    assert table.order.tolist() == list(range(18))


def test_two_images_of_two_channels_in_nhwc_have_the_stated_values() -> None:
    """G-7: bases 0, 2, 8, 10 and + 32; offsets 0 to 5, 8 to 13, 16 to 21; weights packed in the same order."""
    table = build_table(three_by_three("NHWC", n=2, c=2))
    (only,) = table.classes
    assert only.bases.tolist() == [0, 2, 8, 10, 32, 34, 40, 42]
    assert only.offsets.tolist() == [*range(6), *range(8, 14), *range(16, 22)]
    # weights [filters, C, S, R]: channel by channel of each tap
    assert table.order.tolist() == [channel * 9 + tap for tap in range(9) for channel in range(2)]


def test_values_are_in_bytes() -> None:
    """ADDR-2: both times e."""
    (only,) = build_table(three_by_three("NCHW", element_bytes=4)).classes
    assert only.bases.tolist() == [0, 4, 16, 20]
    assert only.offsets.tolist()[:4] == [0, 4, 8, 16]


def test_strides_and_dilations_multiply_rows_and_columns() -> None:
    """ADDR-2: base = ho·sv·W + wo·su, offset = s·dv·W + r·du."""
    extents = (1, 1, 9, 8)
    piece = piece_in(layout_named("NCHW"), (0,) * 4, extents, element_bytes=1)
    read = convolution_read(
        batch=(0, 1),
        window=((0, 2), (0, 3)),
        channels=(0, 1),
        kernel=(2, 2),
        strides=(3, 2),
        dilations=(4, 3),
        pads=(0, 0),
        extents=extents,
        pieces=[piece],
        element_bytes=1,
    )
    (only,) = build_table(read).classes
    assert only.bases.tolist() == [0, 2, 4, 24, 26, 28]
    assert only.offsets.tolist() == [0, 3, 32, 35]


@pytest.mark.parametrize(
    ("name", "runs", "size_bytes"),
    [("NHWC", 9, 12_580), ("NCHW", 192, 13_312)],
)
def test_tables_have_the_stated_sizes(name: str, runs: int, size_bytes: int) -> None:
    """ADDR-4: 56×56, 3×3, 64 channels: 14,848 bytes, 12,580 with runs of channels, 7.2 MB as a matrix."""
    table = build_table(three_by_three(name, c=64, extent=58, element_bytes=4))
    assert table.size_without_runs_bytes == 14_848
    assert (len(table.classes[0].run_offsets), table.size_bytes) == (runs, size_bytes)
    assert table.im2col_bytes == 7_225_344


def test_channels_in_blocks_make_runs_of_a_block() -> None:
    """ADDR-4: 64 channels in blocks of 16 are four runs for each of nine taps."""
    table = build_table(three_by_three("NCHWc", c=64, extent=58, block=16))
    assert (len(table.classes[0].run_offsets), table.classes[0].run_length) == (36, 16)


def test_blocks_that_are_not_full_shorten_all_runs() -> None:
    """Runs of a class have one length, so that a run takes four bytes: 6 channels in blocks of 4 are runs of 2."""
    table = build_table(three_by_three("NCHWc", c=6, block=4))
    assert table.classes[0].run_length == 2
    assert table.classes[0].offsets.tolist()[:6] == [0, 1, 2, 3, 4, 5]
    # channels 4 and 5 of the first tap come behind the whole first block
    assert table.order.tolist()[36:38] == [36, 45]


def test_bases_and_offsets_ascend_in_every_layout() -> None:
    """ADDR-4: both follow memory."""
    for name, block in (("NCHW", 1), ("NHWC", 1), ("CNHW", 1), ("NCHWc", 4)):
        (only,) = build_table(three_by_three(name, n=2, c=6, extent=6, block=block)).classes
        assert (only.bases[1:] > only.bases[:-1]).all()
        assert (only.offsets[1:] > only.offsets[:-1]).all()


def test_padding_makes_nine_classes_that_share_offsets() -> None:
    """ADDR-3: corners, edges and the inside; opposite sides have equal offsets of other taps."""
    table = build_table(three_by_three("NCHW", extent=5, pad=1))
    assert [each.ranges[2:] for each in table.classes] == [
        (rows, columns) for rows in ((0, 1), (1, 4), (4, 5)) for columns in ((0, 1), (1, 4), (4, 5))
    ]
    assert [each.count for each in table.classes] == [4, 6, 4, 6, 9, 6, 4, 6, 4]
    top_left, top, *_ = table.classes
    assert top_left.offsets.tolist() == [0, 1, 5, 6]
    assert top_left.taps.tolist() == [4, 5, 7, 8]
    assert top.bases.tolist() == [0, 1, 2]
    # 25 positions; lists of 4, 6 (rows), 6 (columns) and 9 offsets; taps of 4 corners and 4 edges
    assert table.size_without_runs_bytes == 4 * (25 + 25 + 4 * 4 + 4 * 6)


def test_a_pooling_has_its_channels_as_positions() -> None:
    """ADDR-1: offsets are taps only."""
    extents = (1, 2, 4, 4)
    piece = piece_in(layout_named("NHWC"), (0,) * 4, extents, element_bytes=2)
    read = pooling_read(
        batch=(0, 1),
        window=((0, 2), (0, 2)),
        channels=(0, 2),
        kernel=(2, 2),
        strides=(2, 2),
        dilations=(1, 1),
        pads=(0, 0),
        extents=extents,
        pieces=[piece],
        element_bytes=2,
    )
    (only,) = build_table(read).classes
    assert only.axes == (0, 2, 3, 1)
    assert only.bases.tolist() == [0, 2, 8, 10, 32, 34, 40, 42]
    assert only.offsets.tolist() == [0, 4, 16, 20]


def test_rows_of_a_matrix_are_positions_and_the_summed_axis_is_one_run() -> None:
    """ADDR-1 for a matrix product, of the rows 2 to 5 of a 6×7 matrix."""
    piece = Piece(starts=(0, 0), stops=(6, 7), address=100, strides=(28, 4))
    read = matrix_read(rows=((2, 5),), depth=(0, 7), extents=(6, 7), pieces=[piece], element_bytes=4)
    (only,) = build_table(read).classes
    assert read.anchor_address == 100 + 2 * 28
    assert only.bases.tolist() == [0, 28, 56]
    assert (only.run_offsets.tolist(), only.run_length) == ([0], 7)
