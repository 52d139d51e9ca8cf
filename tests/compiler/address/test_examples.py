"""The worked examples and stated sizes of address tables (G-7, ADDR-2, ADDR-4)."""

from __future__ import annotations

import pytest

from compiler.address.build import WindowRead, build_table
from compiler.errors import InternalError
from compiler.ir.layout import strides_of

# The axes N, C, H, W in memory order.
ORDERS = {"NCHW": (0, 1, 2, 3), "NHWC": (0, 2, 3, 1), "CNHW": (1, 0, 2, 3)}


def three_by_three(name: str, *, n: int = 1, c: int = 1, extent: int = 4, element_bytes: int = 1) -> WindowRead:
    """A 3×3 convolution of stride 1 over the whole of a square input, whose channels it sums over."""
    return WindowRead(
        positions=(n, 1, extent - 2, extent - 2),
        taps=(1, c, 3, 3),
        strides=(1, 1, 1, 1),
        dilations=(1, 1, 1, 1),
        distances=strides_of((n, c, extent, extent), ORDERS[name], element_bytes),
        element_bytes=element_bytes,
    )


def test_the_example_of_addr_2_has_the_stated_bases_and_offsets() -> None:
    """ADDR-2, G-7: 4×4 input, 3×3 kernel."""
    table = build_table(three_by_three("NCHW"))
    assert table.bases.tolist() == [0, 1, 4, 5]
    assert table.offsets.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]


def test_two_images_of_two_channels_in_nchw_have_the_stated_values() -> None:
    """G-7: the second image at + 32, the second channel's offsets at + 16."""
    table = build_table(three_by_three("NCHW", n=2, c=2))
    first = [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert table.bases.tolist() == [0, 1, 4, 5, 32, 33, 36, 37]
    assert table.offsets.tolist() == first + [offset + 16 for offset in first]
    assert table.order.tolist() == list(range(18))


def test_two_images_of_two_channels_in_nhwc_have_the_stated_values() -> None:
    """G-7: bases 0, 2, 8, 10 and + 32; offsets 0 to 5, 8 to 13, 16 to 21; weights packed in the same order."""
    table = build_table(three_by_three("NHWC", n=2, c=2))
    assert table.bases.tolist() == [0, 2, 8, 10, 32, 34, 40, 42]
    assert table.offsets.tolist() == [*range(6), *range(8, 14), *range(16, 22)]
    # weights [filters, C, S, R]: channel by channel of each tap
    assert table.order.tolist() == [channel * 9 + tap for tap in range(9) for channel in range(2)]


def test_values_are_in_bytes() -> None:
    """ADDR-2: both times e."""
    table = build_table(three_by_three("NCHW", element_bytes=4))
    assert table.bases.tolist() == [0, 4, 16, 20]
    assert table.offsets.tolist()[:4] == [0, 4, 8, 16]


def test_strides_and_dilations_multiply_rows_and_columns() -> None:
    """ADDR-2: base = ho·sv·W + wo·su, offset = s·dv·W + r·du, of rows of 8."""
    read = WindowRead(
        positions=(1, 1, 2, 3),
        taps=(1, 1, 2, 2),
        strides=(1, 1, 3, 2),
        dilations=(1, 1, 4, 3),
        distances=(72, 72, 8, 1),
        element_bytes=1,
    )
    table = build_table(read)
    assert table.bases.tolist() == [0, 2, 4, 24, 26, 28]
    assert table.offsets.tolist() == [0, 3, 32, 35]
    assert read.reach_bytes == 28 + 35


@pytest.mark.parametrize(
    ("name", "runs", "size_bytes"),
    [("NHWC", 9, 12_580), ("NCHW", 192, 13_312)],
)
def test_tables_have_the_stated_sizes(name: str, runs: int, size_bytes: int) -> None:
    """ADDR-4: 56×56, 3×3, 64 channels: 14,848 bytes, 12,580 with runs of channels, 7.2 MB as a matrix."""
    table = build_table(three_by_three(name, c=64, extent=58, element_bytes=4))
    assert 4 * (len(table.bases) + len(table.offsets)) == 14_848
    assert (len(table.run_offsets), table.size_bytes) == (runs, size_bytes)
    assert len(table.bases) * len(table.offsets) * 4 == 7_225_344


def test_bases_and_offsets_ascend_whatever_the_strides() -> None:
    """ADDR-4: both follow memory."""
    for name in ORDERS:
        table = build_table(three_by_three(name, n=2, c=6, extent=6))
        assert (table.bases[1:] > table.bases[:-1]).all()
        assert (table.offsets[1:] > table.offsets[:-1]).all()


def test_rows_of_a_matrix_are_positions_and_the_summed_axis_is_one_run() -> None:
    """ADDR-1 for a matrix product, of three rows of seven."""
    read = WindowRead(
        positions=(3, 1), taps=(1, 7), strides=(1, 1), dilations=(1, 1), distances=(28, 4), element_bytes=4
    )
    table = build_table(read)
    assert table.bases.tolist() == [0, 28, 56]
    assert (table.run_offsets.tolist(), table.run_length) == ([0], 7)


def test_what_makes_no_difference_is_no_part_of_the_key() -> None:
    """ADDR-5: of an axis of one position the stride, of one tap the dilation, of neither the distance."""
    one = WindowRead(
        positions=(1, 4), taps=(1, 2), strides=(7, 1), dilations=(5, 1), distances=(99, 4), element_bytes=4
    )
    other = WindowRead(
        positions=(1, 4), taps=(1, 2), strides=(1, 1), dilations=(1, 1), distances=(11, 4), element_bytes=4
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != WindowRead(
        positions=(1, 4), taps=(1, 2), strides=(1, 1), dilations=(1, 2), distances=(11, 4), element_bytes=4
    )


def test_counts_that_no_window_has_are_refused() -> None:
    with pytest.raises(InternalError, match="positive"):
        WindowRead(positions=(0,), taps=(1,), strides=(1,), dilations=(1,), distances=(1,), element_bytes=1)
