"""Tables as bytes: the same again, the same bytes again, and errors instead of crashes (ADDR-5)."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import build_table
from compiler.address.encode import decode, encode
from compiler.address.read import AxisRead, Piece, WindowRead, convolution_read
from compiler.address.table import AddressTable
from compiler.errors import LimitError, RequestError
from tests.compiler.address.buffers import stored, windows


def small_table() -> AddressTable:
    """Four positions of two taps, the first of them padding for the first position."""
    axis = AxisRead(begin=0, end=4, taps=2, low=-1, valid=(0, 5))
    piece = Piece(starts=(0,), stops=(5,), address=0, strides=(2,))
    return build_table(WindowRead(axes=(axis,), pieces=(piece,), element_bytes=2))


def assert_equal(one: AddressTable, other: AddressTable) -> None:
    assert (one.element_bytes, one.positions, one.taps) == (other.element_bytes, other.positions, other.taps)
    assert np.array_equal(one.order, other.order)
    for mine, theirs in zip(one.classes, other.classes, strict=True):
        for name in ("ranges", "axes", "run_length", "element_bytes", "steps"):
            assert getattr(mine, name) == getattr(theirs, name)
        for name in ("bases", "offsets", "taps"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))


@given(st.data())
def test_a_table_comes_back_from_its_bytes(data: st.DataObject) -> None:
    """ADDR-5."""
    case = data.draw(windows())
    memory, pieces = data.draw(stored(case.values))
    read = convolution_read(
        **case.arguments(), channels=case.groups[-1], pieces=pieces, element_bytes=memory.element_bytes
    )
    table = build_table(read)
    encoded = encode(table)
    assert encode(build_table(read)) == encoded
    assert_equal(decode(encoded), table)
    assert encode(decode(encoded)) == encoded


def test_the_bytes_of_a_table_are_these() -> None:
    """ADDR-5: the format of version 1; a change of it needs a new version."""
    expected = struct.pack("<4sHHI", b"TADR", 1, 1, 2)
    expected += struct.pack("<4I", 4, 2, 3, 2)  # positions, taps, lists, classes
    expected += struct.pack("<2i", 0, 1)  # order
    expected += struct.pack("<Ii", 1, 0) + struct.pack("<Ii", 1, 1)  # offsets and taps of the first class
    expected += struct.pack("<IIB3I", 0, 1, 0, 0, 1, 1) + struct.pack("<i", 0)
    expected += struct.pack("<IIB3I", 1, 4, 0, 0, 0, 2) + struct.pack("<3i", 0, 2, 4)
    expected = expected.replace(struct.pack("<4I", 4, 2, 3, 2), struct.pack("<4I", 4, 2, 2, 2))
    assert encode(small_table()) == expected


def test_a_large_table_takes_little_more_than_what_lies_on_chip() -> None:
    """ADDR-4: bases and offsets are four bytes each; the order of taps is kept for packing."""
    channels, rows, columns = (
        AxisRead(begin=0, end=1, taps=64, valid=(0, 64)),
        AxisRead(begin=0, end=56, taps=3, valid=(0, 58)),
        AxisRead(begin=0, end=56, taps=3, valid=(0, 58)),
    )
    piece = Piece(starts=(0, 0, 0), stops=(64, 58, 58), address=0, strides=(1, 58 * 64, 64))
    table = build_table(WindowRead(axes=(channels, rows, columns), pieces=(piece,), element_bytes=1))
    assert table.size_bytes == 12_580
    assert len(encode(table)) < 12_580 + 4 * 576 + 200


def test_a_table_without_classes_comes_back() -> None:
    axis = AxisRead(begin=0, end=0, taps=3, valid=(0, 5))
    table = build_table(WindowRead(axes=(axis, axis), pieces=(), element_bytes=1))
    assert_equal(decode(encode(table)), table)


def test_an_address_beyond_32_bits_is_refused() -> None:
    axis = AxisRead(begin=0, end=2, valid=(0, 2))
    piece = Piece(starts=(0,), stops=(2,), address=0, strides=(2**31,))
    table = build_table(WindowRead(axes=(axis,), pieces=(piece,), element_bytes=1))
    with pytest.raises(LimitError, match="32 bits"):
        encode(table)


def test_every_prefix_is_refused() -> None:
    data = encode(small_table())
    for length in range(len(data)):
        with pytest.raises(RequestError):
            decode(data[:length])
    with pytest.raises(RequestError, match="left behind"):
        decode(data + b"\0")


@given(st.data())
def test_bytes_that_were_changed_are_refused_or_a_sound_table(data: st.DataObject) -> None:
    """No crash, nothing made that the bytes do not hold, and classes that are what `decode` promises."""
    encoded = bytearray(encode(small_table()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.one_of(st.sampled_from([0, 1, 2, 127, 128, 255]), st.integers(0, 255)))
    try:
        table = decode(bytes(encoded))
    except RequestError:
        return
    seen = np.zeros(table.positions, dtype=np.int64)
    for each in table.classes:
        seen[tuple(slice(*range_) for range_ in each.ranges)] += 1
        assert np.array_equal(each.bases, each.bases[0] + each.advances())
        assert len(each.offsets) == len(each.taps) == each.count <= len(table.order)
        assert (np.diff(each.taps) > 0).all()
        assert not each.count or 0 <= each.taps[0] <= each.taps[-1] < len(table.order)
    assert (seen == 1).all()


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        decode(b"TADR\1\0\2\0\4\0\0\0" + data)


HEAD = struct.pack("<4sHHI", b"TADR", 1, 1, 2)
ORDER = struct.pack("<2i", 0, 1)
LISTS = struct.pack("<Iii", 2, 0, 2) + struct.pack("<Iii", 2, 0, 1)


def one_class(**changes: int) -> bytes:
    """A sound table of two positions and two taps in one class, with single numbers changed."""
    values = {"start": 0, "stop": 2, "axis": 0, "offsets": 0, "taps": 1, "run_length": 1, "first": 0, "second": 2}
    values |= changes
    return (
        HEAD
        + struct.pack("<4I", 2, 2, 2, 1)
        + ORDER
        + LISTS
        + struct.pack("<IIB3I2i", *(values[name] for name in values))
    )


def test_the_table_that_the_next_tests_spoil_is_sound() -> None:
    (only,) = decode(one_class()).classes
    assert (only.bases.tolist(), only.offsets.tolist(), only.taps.tolist()) == ([0, 2], [0, 2], [0, 1])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"TADX" + one_class()[4:], "no address table"),
        (one_class()[:4] + b"\2\0" + one_class()[6:], "no address table"),
        (one_class()[:6] + b"\0\0" + one_class()[8:], "out of bounds"),
        (one_class()[:8] + b"\0\0\0\0" + one_class()[12:], "out of bounds"),
        (HEAD + struct.pack("<4I", 2, 2**32 - 1, 2, 1) + ORDER, "cut off"),
        (HEAD + struct.pack("<4I", 2, 2, 2**32 - 1, 1) + ORDER, "cut off"),
        (HEAD + struct.pack("<4I", 2, 2, 0, 2**32 - 1) + ORDER, "cut off"),
        (HEAD + struct.pack("<4I", 0, 0, 0, 0), "at least one tap"),
        (HEAD + struct.pack("<4I", 2, 2, 0, 0) + struct.pack("<2i", 1, 1), "no order"),
        (HEAD + struct.pack("<4I", 2, 2, 0, 0) + ORDER, "once each"),
        (one_class(stop=0), "empty range"),
        (one_class(axis=1), "names an axis"),
        (one_class(offsets=2), "not there"),
        (one_class(taps=0), "taps that are not there"),
        (one_class(run_length=0), "not there"),
        (one_class(run_length=2), "twice"),
        (one_class(start=1, stop=3), "has not"),
        (one_class(stop=3), "cut off"),
    ],
)
def test_what_contradicts_itself_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        decode(data)
    assert caught.value.code == "invalid_address_table"


def test_taps_before_the_first_and_lists_of_unequal_lengths_are_refused() -> None:
    table = small_table()
    full = table.classes[1]
    for run_taps in (np.array([-1], dtype=np.int64), np.array([0, 1], dtype=np.int64)):
        spoiled = replace(full, run_taps=run_taps, run_length=1)
        with pytest.raises(RequestError, match="not there"):
            decode(encode(replace(table, classes=(table.classes[0], spoiled))))


def test_a_table_without_positions_may_be_of_any_length_along_the_other_axes() -> None:
    """Nothing of that size is made."""
    huge = 2**32 - 1
    data = struct.pack("<4sHHI", b"TADR", 1, 4, 1) + struct.pack("<8I2Ii", 0, huge, huge, huge, 1, 1, 1, 1, 0, 0, 0)
    assert decode(data).positions == (0, huge, huge, huge)


def test_bases_in_uneven_steps_are_refused() -> None:
    table = small_table()
    uneven = replace(table.classes[1], bases=np.array([0, 2, 5], dtype=np.int64))
    with pytest.raises(RequestError, match="one step"):
        decode(encode(replace(table, classes=(table.classes[0], uneven))))


def test_classes_that_overlap_are_refused() -> None:
    table = small_table()
    shifted = replace(table.classes[1], ranges=((0, 3),))
    with pytest.raises(RequestError, match="same position"):
        decode(encode(replace(table, classes=(table.classes[0], shifted))))
