"""Gathering by a table and multiplying equals the op, for any layout, window, group and cut into pieces (ADDR-1)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import build_table
from compiler.address.layouts import layout_named
from compiler.address.read import (
    AxisRead,
    Piece,
    WindowRead,
    convolution_read,
    matrix_read,
    piece_in,
    pooling_read,
    table_key,
)
from compiler.address.table import AddressTable
from compiler.errors import InternalError
from tests.compiler.address.buffers import DTYPES, Memory, Values, Window, gathered, stored, windows

FILTERS = 2


def computed(memory: Memory, read: WindowRead, table: AddressTable, weights: Values) -> Values:
    """The product of what the table gathers and the packed weights, [positions of the read..., filters]."""
    assert_each_position_is_in_one_class(table)
    numbers = np.arange(prod(table.positions), dtype=np.int64).reshape(table.positions)
    result = np.zeros((prod(table.positions), len(weights)), dtype=np.int64)
    packed = weights.reshape(len(weights), -1)[:, table.order]
    for each in table.classes:
        operands = gathered(memory, read, table, each)
        assert operands.shape == (prod(each.lengths), each.count)
        result[each.at(numbers)] = operands @ packed[:, each.taps].T
    return result.reshape(*table.positions, len(weights))


def assert_each_position_is_in_one_class(table: AddressTable) -> None:
    """ADDR-3: classes partition the positions."""
    seen = np.zeros(table.positions, dtype=np.int64)
    for each in table.classes:
        seen[tuple(slice(*range_) for range_ in each.ranges)] += 1
    assert (seen == 1).all()


def convolution_of(case: Window, pieces: tuple[Piece, ...], element_bytes: int, group: int) -> WindowRead:
    return convolution_read(**case.arguments(), channels=case.groups[group], pieces=pieces, element_bytes=element_bytes)


@given(st.data())
def test_a_convolution_by_table_equals_one_by_taps(data: st.DataObject) -> None:
    """ADDR-1, ADDR-3: layouts, strides, dilations, padding, groups, 1 to 3 axes, several pieces, element sizes."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    weights = np.random.default_rng(1).integers(-9, 10, size=(FILTERS, case.group_channels, *case.kernel))
    for group, channels in enumerate(case.groups):
        read = convolution_of(case, pieces, memory.element_bytes, group)
        table = build_table(read)
        found = computed(memory, read, table, weights)[:, 0]
        assert np.array_equal(np.moveaxis(found, -1, 1), case.convolved(weights, channels))
        # operands follow each other as the packed weights do
        assert all((np.diff(each.taps) > 0).all() for each in table.classes)
        assert np.array_equal(np.sort(table.order), np.arange(prod(table.taps)))


@given(st.data())
def test_a_pooling_by_table_equals_one_by_taps(data: st.DataObject) -> None:
    """ADDR-1: the maximum and the sum over the taps that are no padding, channel by channel."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    channels = data.draw(st.integers(0, case.values.shape[1] - 1)), case.values.shape[1]
    read = pooling_read(**case.arguments(), channels=channels, pieces=pieces, element_bytes=memory.element_bytes)
    table = build_table(read)
    ones = np.ones((1, prod(case.kernel)), dtype=np.int64)
    taps = list(np.ndindex(case.kernel))
    assert np.array_equal(computed(memory, read, table, ones)[..., 0], sum(case.seen(tap, channels) for tap in taps))
    highest = np.full(table.positions, -99, dtype=np.int64)
    for each in table.classes:
        box = tuple(slice(*range_) for range_ in each.ranges)
        best = gathered(memory, read, table, each).max(axis=1, initial=-99)
        highest[box] = best.reshape([each.lengths[axis] for axis in each.axes]).transpose(np.argsort(each.axes))
    assert np.array_equal(highest, np.max([case.seen(tap, channels, fill=-99) for tap in taps], axis=0))


@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 6), st.integers(1, 6)),
    transposed=st.booleans(),
    element_bytes=st.sampled_from(sorted(DTYPES)),
    data=st.data(),
)
def test_a_matrix_product_by_table_equals_numpys(
    shape: tuple[int, int, int], transposed: bool, element_bytes: int, data: st.DataObject
) -> None:
    """ADDR-1: rows are positions, offsets the summed axis, for a part of both, either axis innermost."""
    values = np.arange(prod(shape)).reshape(shape) % 100
    memory = Memory(dtype=DTYPES[element_bytes], data=bytearray(7))
    axes = (0, 2, 1) if transposed else (0, 1, 2)
    memory.data += values.transpose(axes).astype(memory.dtype).tobytes()
    memory.held.update(range(7, len(memory.data), element_bytes))
    inner = (shape[1], 1) if not transposed else (1, shape[1])
    strides = (shape[1] * shape[2], shape[2], 1) if not transposed else (shape[1] * shape[2], *inner[::1])
    piece = Piece(starts=(0, 0, 0), stops=shape, address=7, strides=tuple(step * element_bytes for step in strides))
    ranges = []
    for extent in shape:
        begin = data.draw(st.integers(0, extent - 1))
        ranges.append((begin, data.draw(st.integers(begin + 1, extent))))
    read = matrix_read(rows=ranges[:2], depth=ranges[2], extents=shape, pieces=[piece], element_bytes=element_bytes)
    weights = np.random.default_rng(2).integers(-9, 10, size=(FILTERS, ranges[2][1] - ranges[2][0]))
    found = computed(memory, read, build_table(read), weights)[:, :, 0]
    assert np.array_equal(found, values[tuple(slice(*range_) for range_ in ranges)] @ weights.T)


@given(st.data())
def test_classes_advance_by_one_step_along_each_axis(data: st.DataObject) -> None:
    """So a unit may count instead of reading bases, and `steps` say it all."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    for each in build_table(convolution_of(case, pieces, memory.element_bytes, 0)).classes:
        assert np.array_equal(each.bases, each.bases[0] + each.advances())


@given(st.data())
def test_all_that_is_read_lies_in_the_span(data: st.DataObject) -> None:
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    table = build_table(convolution_of(case, pieces, memory.element_bytes, 0))
    read = [int(address) for each in table.classes for address in (each.bases[:, np.newaxis] + each.offsets).flat]
    expected = (min(read), max(read) + memory.element_bytes) if read else (0, 0)
    assert table.span == expected


@given(st.data())
def test_reads_of_one_key_have_one_table(data: st.DataObject) -> None:
    """ADDR-5: moving the tensor, the box in it and the buffers changes neither key nor table."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    read = convolution_of(case, pieces, memory.element_bytes, 0)
    by = [data.draw(st.integers(0, 3)) * axis.stride for axis in read.axes]
    shift = data.draw(st.integers(0, 100))
    moved = WindowRead(
        axes=tuple(
            replace(axis, begin=axis.begin + step // axis.stride, end=axis.end + step // axis.stride, valid=valid)
            for axis, step, valid in (
                (axis, step, (axis.valid[0] + step, axis.valid[1] + step))
                for axis, step in zip(read.axes, by, strict=True)
            )
        ),
        pieces=tuple(
            replace(
                piece,
                starts=tuple(start + step for start, step in zip(piece.starts, by, strict=True)),
                stops=tuple(stop + step for stop, step in zip(piece.stops, by, strict=True)),
                address=piece.address + shift,
            )
            for piece in reversed(read.pieces)
        ),
        element_bytes=read.element_bytes,
    )
    assert table_key(moved) == table_key(read)
    one, other = build_table(read), build_table(moved)
    assert len(one.classes) == len(other.classes)
    for mine, theirs in zip(one.classes, other.classes, strict=True):
        assert (mine.ranges, mine.axes, mine.run_length) == (theirs.ranges, theirs.axes, theirs.run_length)
        for name in ("bases", "run_offsets", "run_taps"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    if any(each.count for each in one.classes):
        assert moved.anchor_address == read.anchor_address + shift


def tile(rows: tuple[int, int], columns: tuple[int, int], *, address: int = 0, channels: int = 4) -> WindowRead:
    """A tile of a padded 3×3 convolution over a 32×32 map, its input box in an NHWC buffer of its own."""
    (top, bottom), (left, right) = rows, columns
    starts = (0, 0, max(0, top - 1), max(0, left - 1))
    stops = (1, channels, min(32, bottom + 1), min(32, right + 1))
    piece = piece_in(layout_named("NHWC"), starts, stops, element_bytes=4, address=address)
    return convolution_read(
        batch=(0, 1),
        window=(rows, columns),
        channels=(0, channels),
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(1, 1),
        extents=(1, channels, 32, 32),
        pieces=[piece],
        element_bytes=4,
    )


def test_tiles_inside_share_a_table_and_those_at_a_border_do_not() -> None:
    """ADDR-5: sixteen tiles of 8×8 need nine tables: corners, edges, inside."""
    steps = list(pairwise(range(0, 33, 8)))
    reads = [
        tile(rows, columns, address=number * 4096)
        for number, (rows, columns) in enumerate((a, b) for a in steps for b in steps)
    ]
    assert len({table_key(read) for read in reads}) == 9
    assert table_key(reads[5]) == table_key(reads[10])
    assert len(build_table(reads[5]).classes) == 1
    assert len(build_table(reads[0]).classes) == 4


def test_what_is_read_decides_the_key() -> None:
    """ADDR-5: a key of all inputs."""
    read = tile((8, 16), (8, 16))
    (piece,) = read.pieces
    others = [
        tile((8, 16), (8, 17)),
        tile((0, 8), (8, 16)),
        tile((8, 16), (8, 16), channels=5),
        replace(read, element_bytes=2),
        replace(read, pieces=(replace(piece, strides=(*piece.strides[:2], 400, 16)),)),
        replace(read, axes=(*read.axes[:2], replace(read.axes[2], begin=2, end=6, stride=2), read.axes[3])),
        replace(read, axes=(*read.axes[:3], replace(read.axes[3], taps=2, dilation=2))),
        replace(read, pieces=_halved(piece, gap=64)),
        replace(read, pieces=_halved(piece, gap=128)),
    ]
    keys = {table_key(other) for other in (read, *others)}
    assert len(keys) == 1 + len(others)


def _halved(piece: Piece, gap: int) -> tuple[Piece, Piece]:
    """The rows of a piece from 12 on lie `gap` bytes further on."""
    below = piece.address + piece.place(2, 12) + gap
    return (
        replace(piece, stops=(*piece.stops[:2], 12, piece.stops[3])),
        replace(piece, starts=(*piece.starts[:2], 12, piece.starts[3]), address=below),
    )


def test_what_makes_no_difference_is_no_part_of_the_key() -> None:
    """ADDR-5: strides along axes of one position, of the window and of memory."""
    read = tile((8, 9), (8, 16))
    (piece,) = read.pieces
    rows = read.axes[2]
    others = [
        replace(read, pieces=(replace(piece, strides=(12345, *piece.strides[1:])),)),
        replace(read, axes=(*read.axes[:2], replace(rows, stride=2, low=rows.low - 8), read.axes[3])),
        replace(read, axes=(replace(read.axes[0], dilation=7), *read.axes[1:])),
    ]
    assert {table_key(other) for other in others} == {table_key(read)}


def test_how_channels_lie_in_blocks_is_part_of_the_key() -> None:
    """ADDR-5: groups of three channels begin at other places of their blocks of four; none of one block has blocks."""
    axis = AxisRead(begin=0, end=1, valid=(0, 1))
    piece = Piece(starts=(0, 0), stops=(1, 12), address=0, strides=(0, 1), channel_block=4, block_bytes=40)
    keys = [
        table_key(
            WindowRead(
                axes=(axis, AxisRead(begin=0, end=1, taps=3, low=first, valid=(0, 12))),
                pieces=(replace(piece, block_bytes=block_bytes),),
                element_bytes=1,
            )
        )
        for block_bytes in (40, 80)
        for first in (0, 3, 6, 9)
    ]
    assert len(set(keys)) == 5
    assert keys[0] == keys[3] == keys[4] == keys[7]


def test_groups_share_a_table() -> None:
    """ADDR-5: each group has its own anchor, in every layout whose blocks groups fill."""
    extents = (1, 12, 6, 6)
    for name, block, distance in (("NCHW", 1, 4 * 36), ("NHWC", 1, 4), ("NCHWc", 4, 4 * 36)):
        piece = piece_in(layout_named(name, channel_block=block), (0,) * 4, extents, element_bytes=1)
        reads = [
            convolution_read(
                batch=(0, 1),
                window=((0, 6), (0, 6)),
                channels=(first, first + 4),
                kernel=(3, 3),
                strides=(1, 1),
                dilations=(1, 1),
                pads=(1, 1),
                extents=extents,
                pieces=[piece],
                element_bytes=1,
            )
            for first in (0, 4, 8)
        ]
        assert len({table_key(read) for read in reads}) == 1
        assert [read.anchor_address for read in reads] == [0, distance, 2 * distance]


def test_kept_rows_and_columns_are_read_from_where_they_lie() -> None:
    """ADDR-1 with halos kept in other buffers: rows above in one of equal strides, columns beside in a narrow one."""
    values = np.random.default_rng(3).integers(-9, 10, size=(1, 2, 8, 8))
    memory = Memory(dtype=np.int16)
    above = memory.store(values[:, :, :2], (0, 0, 0, 0), "NHWC", 1, 0)
    beside = memory.store(values[:, :, 2:, :2], (0, 0, 2, 0), "NHWC", 1, 0)
    main = memory.store(values[:, :, 2:, 2:], (0, 0, 2, 2), "NHWC", 1, 8)
    case = Window(
        values=values,
        kernel=(3, 3),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(0, 0),
        group_channels=2,
        batch=(0, 1),
        window=((0, 6), (0, 6)),
    )
    read = convolution_of(case, (main, above, beside), 2, 0)
    table = build_table(read)
    weights = np.random.default_rng(4).integers(-9, 10, size=(FILTERS, 2, 3, 3))
    found = computed(memory, read, table, weights)[:, 0]
    assert np.array_equal(np.moveaxis(found, -1, 1), case.convolved(weights, (0, 2)))
    # three runs of rows by three of columns; only where narrow and wide rows meet is each row a class of its own
    assert len(table.classes) == 3 * 3 - 2 + 2 * 4
    assert [each.ranges[2:] for each in table.classes if each.ranges[3] == (2, 6)] == [
        ((0, 1), (2, 6)),
        ((1, 2), (2, 6)),
        ((2, 6), (2, 6)),
    ]


def test_only_axes_along_which_strides_differ_are_cut() -> None:
    """ADDR-3: the channels of a pooling lie together in the narrow and in the wide buffer."""
    narrow = piece_in(layout_named("NHWC"), (0, 0, 0, 0), (1, 5, 4, 1), element_bytes=1)
    wide = piece_in(layout_named("NHWC"), (0, 0, 0, 1), (1, 5, 4, 6), element_bytes=1, address=100)
    read = pooling_read(
        batch=(0, 1),
        window=((0, 4), (0, 1)),
        channels=(0, 5),
        kernel=(1, 2),
        strides=(1, 1),
        dilations=(1, 1),
        pads=(0, 0),
        extents=(1, 5, 4, 6),
        pieces=[narrow, wide],
        element_bytes=1,
    )
    classes = build_table(read).classes
    assert [each.ranges[1:3] for each in classes] == [((0, 5), (row, row + 1)) for row in range(4)]
    assert [each.offsets.tolist() for each in classes] == [[0, 100 + 20 * row] for row in range(4)]


def test_groups_as_positions_follow_blocks_of_channels() -> None:
    """ADDR-1 with NCHWc: groups of three or four channels, one position each, over blocks of four."""
    piece = Piece(starts=(0, 0), stops=(1, 12), address=0, strides=(0, 1), channel_block=4, block_bytes=40)
    for size, classes in ((3, 4), (4, 1), (2, 3), (1, 3)):
        axis = AxisRead(begin=0, end=12 // size, stride=size, taps=size, valid=(0, 12))
        one = AxisRead(begin=0, end=1, valid=(0, 1))
        table = build_table(WindowRead(axes=(one, axis), pieces=(piece,), element_bytes=1))
        assert len(table.classes) == classes
        found = [base + offset for each in table.classes for base in each.bases for offset in each.offsets]
        assert found == [channel // 4 * 40 + channel % 4 for channel in range(12)]


def test_runs_never_join_taps_that_are_packed_apart() -> None:
    """ADDR-4: channels that lie together in one piece, while weights are packed in the blocks of another."""
    together = piece_in(layout_named("NWC"), (0, 0, 0), (1, 8, 1), element_bytes=1)
    blocks = piece_in(layout_named("NCWc", channel_block=4), (0, 0, 1), (1, 8, 4), element_bytes=1, address=64)
    read = convolution_read(
        batch=(0, 1),
        window=((0, 3),),
        channels=(0, 8),
        kernel=(2,),
        strides=(1,),
        dilations=(1,),
        pads=(1,),
        extents=(1, 8, 4),
        pieces=[together, blocks],
        element_bytes=1,
    )
    first = build_table(read).classes[0]
    assert first.offsets.tolist() == list(range(8))
    assert (first.run_taps.tolist(), first.run_length) == ([4, 12], 4)


def test_pieces_of_equal_strides_do_not_cut_classes_into_positions() -> None:
    """ADDR-3: the number of classes does not grow with the tile."""
    for rows in (8, 16):
        read = tile((8, 8 + rows), (8, 16))
        table = build_table(replace(read, pieces=_halved(read.pieces[0], gap=64)))
        assert [each.ranges[2] for each in table.classes] == [(0, 3), (3, 4), (4, 5), (5, rows)]


def test_an_element_in_no_piece_is_named() -> None:
    read = tile((8, 16), (8, 16))
    (piece,) = read.pieces
    short = replace(piece, stops=(*piece.stops[:3], piece.stops[3] - 1))
    with pytest.raises(InternalError, match="no buffer"):
        build_table(replace(read, pieces=(short,)))


def test_padding_and_gaps_between_windows_need_no_piece() -> None:
    """ADDR-3: stride 3 with two taps leaves every third column out."""
    columns = AxisRead(begin=0, end=3, stride=3, taps=2, low=-1, valid=(0, 20))
    narrow = [
        Piece(starts=(start,), stops=(stop,), address=50 * start, strides=(2,))
        for start, stop in ((0, 1), (2, 4), (5, 7))
    ]
    table = build_table(WindowRead(axes=(columns,), pieces=tuple(narrow), element_bytes=2))
    assert [(each.bases.tolist(), each.offsets.tolist()) for each in table.classes] == [
        ([0], [0]),
        ([100], [0, 2]),
        ([250], [0, 2]),
    ]


def test_positions_wholly_in_the_padding_read_nothing() -> None:
    """ADDR-3: they are a class without offsets, so that each position is still in one class."""
    axis = AxisRead(begin=0, end=4, taps=2, low=-3, valid=(0, 5))
    piece = Piece(starts=(0,), stops=(5,), address=0, strides=(1,))
    table = build_table(WindowRead(axes=(axis,), pieces=(piece,), element_bytes=1))
    assert [(each.ranges, each.offsets.tolist(), each.taps.tolist()) for each in table.classes] == [
        (((0, 2),), [], []),
        (((2, 3),), [0], [1]),
        (((3, 4),), [0, 1], [0, 1]),
    ]


def test_a_read_without_positions_has_no_classes() -> None:
    axis = AxisRead(begin=2, end=2, taps=3, valid=(0, 5))
    table = build_table(WindowRead(axes=(axis,), pieces=(), element_bytes=1))
    assert (table.classes, table.span, table.positions) == ((), (0, 0), (0,))


def test_pieces_that_overlap_are_refused() -> None:
    read = tile((8, 16), (8, 16))
    with pytest.raises(InternalError, match="same elements"):
        replace(read, pieces=(read.pieces[0], replace(read.pieces[0], address=5000)))


def test_pieces_of_other_axes_are_refused() -> None:
    read = tile((8, 16), (8, 16))
    with pytest.raises(InternalError, match="other axes"):
        replace(read, pieces=(Piece(starts=(0,), stops=(1,), address=0, strides=(1,)),))


@pytest.mark.parametrize("change", [{"taps": 0}, {"stride": 0}, {"dilation": 0}, {"end": -1}, {"valid": (3, 2)}])
def test_windows_without_taps_or_steps_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InternalError, match="positive"):
        replace(AxisRead(begin=0, end=2, valid=(0, 5)), **change)


def test_a_piece_that_begins_behind_its_block_is_refused() -> None:
    piece = Piece(
        starts=(0, 0), stops=(1, 4), address=0, strides=(8, 1), channel_block=4, block_bytes=8, channel_phase=4
    )
    axis = AxisRead(begin=0, end=1, valid=(0, 4))
    with pytest.raises(InternalError, match="first block"):
        WindowRead(axes=(axis, axis), pieces=(piece,), element_bytes=1)


def test_nobody_can_write_to_a_table() -> None:
    table = build_table(tile((0, 8), (0, 8)))
    for each in table.classes:
        for values in (each.bases, each.run_offsets, each.run_taps):
            assert not values.flags.writeable
    assert not table.order.flags.writeable
