"""Tables of units: blocks, sizes, and addresses against those that strides give (ADDR-1 to ADDR-5)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import build_table
from compiler.address.encode import decode, encode
from compiler.address.table import AddressTable, ramp
from compiler.address.unit import BLOCK_POSITIONS, UnitTable, block_of, largest_table_bytes, unit_read, words_of
from compiler.errors import InternalError
from compiler.ir.layout import strides_of
from compiler.ops.base import Window

# The axes N, C, H, W in memory order.
ORDERS = {"NHWC": (0, 2, 3, 1), "NCHW": (0, 1, 2, 3), "CNHW": (1, 0, 2, 3)}


def window(kernel: tuple[int, ...], strides: tuple[int, ...] = (), dilations: tuple[int, ...] = ()) -> Window:
    """A window without padding."""
    ones = (1,) * len(kernel)
    return Window(kernel, strides or ones, dilations or ones, (0,) * len(kernel))


def table_of(
    found: Window, block: tuple[int, ...], lengths: tuple[int, ...], element: int = 4, order: tuple[int, ...] = ()
) -> AddressTable:
    """The table for a buffer of these lengths [N, C, spatial...], its axes in order, by default channels innermost."""
    order = order or (0, *range(2, len(lengths)), 1)
    return build_table(unit_read(found, block, lengths[1], strides_of(lengths, order, element), element))


def bytes_of(found: Window, extents: tuple[int, ...], channels: int = 8, layout: str = "NHWC") -> int:
    """The most that a table takes for an output of these extents, over an input of so many channels."""
    data, order = (extents[0], channels, *extents[2:]), ORDERS[layout][: len(extents)]
    return largest_table_bytes(found, extents, data, order)


def test_a_block_is_whole_rows_or_a_part_of_one() -> None:
    assert block_of((1, 64, 56, 56)) == (1, 1, 4, 56)
    assert block_of((8, 3, 5, 5)) == (8, 1, 5, 5)
    assert block_of((2, 3, 10, 1000)) == (1, 1, 1, BLOCK_POSITIONS)
    assert block_of((1, 3, 300)) == (1, 1, 256)
    assert block_of((1, 3, 2, 4, 8)) == (1, 1, 2, 4, 8)


def test_a_table_takes_four_bytes_for_each_position_and_each_tap() -> None:
    """ADDR-4: channels that follow one another are one run."""
    found = window((3, 3))
    table = table_of(found, (1, 1, 4, 56), (1, 64, 58, 58))
    assert table.size_bytes == 4 * (4 * 56 + 9) == bytes_of(found, (1, 64, 56, 56), 64)
    assert len(words_of(table)) * 4 == table.size_bytes
    one_channel = table_of(found, (1, 1, 4, 56), (1, 1, 58, 58))
    assert one_channel.size_bytes == 4 * (4 * 56 + 3), "the taps of a row are neighbours"


@pytest.mark.parametrize("steps", [2**31, 2**63 - 1])
def test_a_window_beyond_32_bits_has_no_table(steps: int) -> None:
    """ADDR-4: in the smallest buffer its last tap, or its last position, is out of reach."""
    assert bytes_of(window((3, 3), dilations=(1, steps)), (1, 8, 4, 4)) == 0
    assert bytes_of(window((3, 3), strides=(steps, 1)), (1, 8, 4, 4)) == 0
    assert bytes_of(window((3, 1), (1, steps), (1, steps)), (1, 8, 4, 1)) == 4 * (4 + 3), "never taken"
    assert bytes_of(window((1, 3), dilations=(1, 2**30 - 2)), (1, 8, 1, 4)) == 4 * (4 + 3), "just in reach"


def test_a_table_of_other_strides_or_another_window_does_not_fit() -> None:
    found, lengths = window((3, 3), (2, 2), (1, 2)), (1, 8, 20, 20)
    table = UnitTable.of(table_of(found, (1, 1, 4, 5), lengths))
    strides = strides_of(lengths, (0, 2, 3, 1), 4)
    assert table.fits(found, (1, 8, 9, 20), strides, 4)
    assert not table.fits(found, (1, 8, 9, 20), strides, 2)
    assert not table.fits(window((3, 3), (1, 2), (1, 2)), (1, 8, 9, 20), strides, 4)
    assert not table.fits(window((3, 3), (2, 2), (1, 1)), (1, 8, 9, 20), strides, 4)
    assert not table.fits(window((3, 5), (2, 2), (1, 2)), (1, 8, 9, 20), strides, 4)
    wider = (*strides[:2], strides[2] + 4, strides[3])
    assert not table.fits(found, (1, 8, 9, 20), wider, 4)
    assert table.fits(found, (1, 8, 1, 20), wider, 4), "a single row has no distance to the next"
    assert not table.fits(found, (1, 8, 9, 20), (strides[0], 8, *strides[2:]), 4), "channels lie side by side"


def test_tables_with_uneven_bases_or_images_as_taps_are_none_of_a_block() -> None:
    table = table_of(window((3, 3)), (1, 1, 3, 6), (1, 2, 5, 8))
    with pytest.raises(InternalError):
        UnitTable.of(replace(table, bases=table.bases + (table.bases > 100)))
    read = unit_read(window((3, 3)), (1, 1, 3, 6), 2, (320, 4, 64, 8), 4)
    with pytest.raises(InternalError, match="no table of one block"):
        UnitTable.of(build_table(replace(read, taps=(2, 1, 3, 3))))


@pytest.mark.parametrize("layout", ["NCHW", "CNHW"])
def test_channels_that_lie_apart_are_taps_of_a_block_of_them(layout: str) -> None:
    """ADDR-2, ADDR-4: as many offsets as positions at most, neighbours along a row as one run."""
    found, lengths = window((3, 3)), (1, 64, 58, 58)
    table = table_of(found, (1, 1, 4, 56), lengths, order=ORDERS[layout])
    assert table.taps == (1, 256 // 9, 3, 3)
    assert table.size_bytes == 4 * (4 * 56 + 28 * 3) == bytes_of(found, (1, 64, 56, 56), 64, layout)
    assert table.tap_steps[1] == 58 * 58 * 4
    dilated = window((3, 3), dilations=(2, 2))
    assert bytes_of(dilated, (1, 64, 56, 56), 64, layout) == 4 * (4 * 56 + 28 * 9), "no neighbours"
    assert bytes_of(found, (1, 64, 56, 56), 3, layout) == 4 * (4 * 56 + 3 * 3)
    wide = table_of(window((17, 17)), (1, 1, 4, 56), (1, 64, 74, 74), order=ORDERS[layout])
    assert wide.taps[1] == 2, "it says how far apart channels lie"


@pytest.mark.parametrize("layout", ["NCHW", "CNHW"])
def test_a_table_fits_pieces_whose_channels_lie_as_it_says(layout: str) -> None:
    found, lengths = window((3, 3)), (2, 40, 20, 20)
    table = UnitTable.of(table_of(found, (1, 1, 4, 5), lengths, order=ORDERS[layout]))
    strides = strides_of(lengths, ORDERS[layout], 4)
    assert table.fits(found, (1, 40, 9, 20), strides, 4)
    wider = (strides[0], strides[1] + 4, *strides[2:])
    assert not table.fits(found, (1, 40, 9, 20), wider, 4)
    assert table.fits(found, (1, 1, 9, 20), wider, 4), "one channel has no distance to the next"
    last = UnitTable.of(table_of(found, (1, 1, 4, 5), lengths))
    assert not last.fits(found, (1, 40, 9, 20), strides, 4)
    assert not table.fits(found, (1, 40, 9, 20), strides_of(lengths, ORDERS["NHWC"], 4), 4)


@given(
    st.integers(1, 3).flatmap(
        lambda rank: st.tuples(
            st.tuples(*[st.integers(1, 3)] * rank),
            st.tuples(*[st.integers(1, 3)] * rank),
            st.tuples(*[st.integers(1, 2)] * rank),
            st.tuples(*[st.integers(1, 4)] * (rank + 1)),
        )
    ),
    st.integers(1, 4),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from(sorted(ORDERS)),
)
def test_bases_and_offsets_are_where_the_elements_lie(
    shape: tuple[tuple[int, ...], ...], channels: int, element: int, layout: str
) -> None:
    """ADDR-2: base + offset is the element's distance from the first, and nothing is lost when a table is stored."""
    kernel, strides, dilations, counts = shape
    found = window(kernel, strides, dilations)
    block = (counts[0], 1, *counts[1:])
    spatial = [
        (count - 1) * s + (k - 1) * d + 1 for count, s, k, d in zip(counts[1:], strides, kernel, dilations, strict=True)
    ]
    lengths = (counts[0], channels, *spatial)
    spatially = tuple(range(2, len(lengths)))
    order = {"NHWC": (0, *spatially, 1), "NCHW": (0, 1, *spatially), "CNHW": (1, 0, *spatially)}[layout]
    steps = strides_of(lengths, order, element)
    table = table_of(found, block, lengths, element, order)
    unit = UnitTable.of(decode(encode(table)))
    assert len(words_of(table)) * 4 == table.size_bytes <= largest_table_bytes(found, block, lengths, order)
    for position in product(*map(range, counts)):
        base = unit.bases[0][position[0]] + sum(int(unit.bases[a + 2][p]) for a, p in enumerate(position[1:]))
        for tap in product(*map(range, kernel)):
            expected = position[0] * steps[0] + sum(
                (p * s + k * d) * step
                for p, s, k, d, step in zip(position[1:], strides, tap, dilations, steps[2:], strict=True)
            )
            assert base + unit.offsets[tap] == expected
    every = {int(offset) for offset in table.offsets}
    assert every == {
        int(unit.offsets[tap]) + channel * steps[1]
        for tap in product(*map(range, kernel))
        for channel in range(table.taps[1])
    }
    assert channels == 1 or unit.channel_step == steps[1]
    assert np.array_equal(words_of(table), words_of(decode(encode(table))))


def test_positions_and_taps_of_a_table_agree_on_the_distance_of_elements() -> None:
    """Where a piece has one row its strides do not say where the next one is: then the table must not, either."""
    found = window((3, 3))
    table = table_of(found, (1, 1, 3, 6), (1, 2, 5, 8))
    steps = [step + 8 * (axis == 2) for axis, step in enumerate(table.steps)]
    other = UnitTable.of(replace(table, bases=ramp(table.positions, steps, table.axes)))
    strides = strides_of((1, 2, 5, 8), (0, 2, 3, 1), 4)
    assert UnitTable.of(table).fits(found, (1, 2, 1, 8), strides, 4)
    assert not other.fits(found, (1, 2, 1, 8), strides, 4)
