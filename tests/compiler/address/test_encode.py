"""Tables as bytes: the same again, the same bytes again, and errors instead of crashes (ADDR-5)."""

from __future__ import annotations

import struct
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.address.build import WindowRead, build_table
from compiler.address.encode import decode, encode
from compiler.address.table import MAX_TAPS, AddressTable
from compiler.errors import LimitError, RequestError


def small_table() -> AddressTable:
    """Four positions of two taps, in rows of 16 bytes."""
    return build_table(
        WindowRead(positions=(2, 2), taps=(2, 1), strides=(1, 2), dilations=(1, 1), distances=(16, 2), element_bytes=2)
    )


@st.composite
def reads(draw: st.DrawFn) -> WindowRead:
    """Windows over buffers of one to four axes."""
    rank = draw(st.integers(1, 4))
    few = st.tuples(*[st.integers(1, 3)] * rank)
    return WindowRead(
        positions=draw(few),
        taps=draw(few),
        strides=draw(few),
        dilations=draw(few),
        distances=draw(st.tuples(*[st.integers(0, 1000)] * rank)),
        element_bytes=draw(st.sampled_from([1, 2, 4, 8])),
    )


@given(reads())
def test_a_table_comes_back_from_its_bytes(read: WindowRead) -> None:
    """ADDR-5."""
    table = build_table(read)
    encoded = encode(table)
    assert encode(build_table(read)) == encoded
    found = decode(encoded)
    for name in ("element_bytes", "positions", "taps", "axes", "tap_axes", "run_length", "steps", "tap_steps"):
        assert getattr(found, name) == getattr(table, name)
    assert (found.steps, found.tap_steps) == (read.steps, read.tap_steps)
    for name in ("bases", "offsets", "order"):
        assert np.array_equal(getattr(found, name), getattr(table, name))
    assert encode(found) == encoded


def test_the_bytes_of_a_table_are_these() -> None:
    """ADDR-5: the format of version 2; a change of it needs a new version."""
    expected = struct.pack("<4sHHI", b"TADR", 2, 2, 2)
    expected += struct.pack("<4I", 2, 2, 2, 1)  # positions, taps
    expected += bytes((0, 1, 1, 0)) + struct.pack("<I", 1)  # axes, axes of taps, length of runs
    expected += struct.pack("<4i", 0, 4, 16, 20) + struct.pack("<2i", 0, 16)
    assert encode(small_table()) == expected


def test_a_large_table_takes_little_more_than_what_lies_on_chip() -> None:
    """ADDR-4: bases and offsets are four bytes each."""
    table = build_table(
        WindowRead(
            positions=(1, 56, 56),
            taps=(64, 3, 3),
            strides=(1, 1, 1),
            dilations=(1, 1, 1),
            distances=(1, 58 * 64, 64),
            element_bytes=1,
        )
    )
    assert table.size_bytes == 12_580
    assert len(encode(table)) < 12_580 + 100


def test_an_address_beyond_32_bits_is_refused() -> None:
    read = WindowRead(positions=(2,), taps=(1,), strides=(1,), dilations=(1,), distances=(2**31,), element_bytes=1)
    with pytest.raises(LimitError, match="32 bits"):
        encode(build_table(read))


def test_every_prefix_is_refused() -> None:
    data = encode(small_table())
    for length in range(len(data)):
        with pytest.raises(RequestError):
            decode(data[:length])
    with pytest.raises(RequestError, match="left behind"):
        decode(data + b"\0")


@given(st.data())
def test_bytes_that_were_changed_are_refused_or_a_sound_table(data: st.DataObject) -> None:
    """No crash, nothing made that the bytes do not hold, and addresses that are what `decode` promises."""
    encoded = bytearray(encode(small_table()))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(encoded) - 1))
        encoded[at] = data.draw(st.one_of(st.sampled_from([0, 1, 2, 127, 128, 255]), st.integers(0, 255)))
    try:
        table = decode(bytes(encoded))
    except RequestError:
        return
    assert table.is_even
    assert len(table.bases) == prod(table.positions)
    assert len(table.offsets) == prod(table.taps)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RequestError):
        decode(b"TADR\2\0\2\0\4\0\0\0" + data)


HEAD = struct.pack("<4sHHI", b"TADR", 2, 1, 2)


def one_axis(**changes: int) -> bytes:
    """A sound table of two positions and two taps along one axis, with single numbers changed."""
    values = {"positions": 2, "taps": 2, "axis": 0, "tap_axis": 0, "run": 1, "b0": 0, "b1": 2, "o0": 0, "o1": 4}
    values |= changes
    return HEAD + struct.pack("<IIBBI4i", *values.values())


def test_the_table_that_the_next_test_spoils_is_sound() -> None:
    table = decode(one_axis())
    assert (table.bases.tolist(), table.offsets.tolist(), table.order.tolist()) == ([0, 2], [0, 4], [0, 1])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"TADX" + one_axis()[4:], "no address table"),
        (one_axis()[:4] + b"\1\0" + one_axis()[6:], "no address table"),
        (one_axis()[:6] + b"\0\0" + one_axis()[8:], "out of bounds"),
        (one_axis()[:8] + b"\0\0\0\0" + one_axis()[12:], "out of bounds"),
        (one_axis(positions=2**32 - 1), "cut off"),
        (one_axis(taps=2**20), "cut off"),
        (one_axis(taps=2 * MAX_TAPS, run=2 * MAX_TAPS), "too many taps"),
        (one_axis(positions=0), "at least one position"),
        (one_axis(taps=0), "at least one position"),
        (one_axis(axis=1), "axis twice"),
        (one_axis(tap_axis=1), "axis twice"),
        (one_axis(run=0), "no parts"),
        (one_axis(run=3), "no parts"),
        (one_axis(run=2), "left behind"),
        (one_axis(positions=3), "cut off"),
        (one_axis(b0=1), "by one step"),
        (one_axis(o0=2, o1=6), "by one step"),
    ],
)
def test_what_contradicts_itself_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason) as caught:
        decode(data)
    assert caught.value.code == "invalid_address_table"


def test_bases_in_uneven_steps_are_refused() -> None:
    table = small_table()
    uneven = replace(table, bases=np.array([0, 4, 16, 21], dtype=np.int64))
    with pytest.raises(RequestError, match="one step"):
        decode(encode(uneven))
