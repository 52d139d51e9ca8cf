"""Bytes that windows of a memory have in common, or that are written there, in machine code.

A *shape* is a set of bytes from an address on: positions along strides, each a run of bytes (`shapes.py`). A *window*
is a shape at an address of a memory.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled

NONE: Final = -1

# What a byte on the chip is: never written, written, or a weight that stays.
WRITTEN: Final = 1
RESIDENT: Final = 2


@compiled(allocates=False)
def _first_from(shape: int, start: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """The first byte of a nested shape from `start` on, counted from the shape's first byte; NONE behind the last."""
    if start <= 0:
        return 0
    found, rest, step = 0, start, NONE
    step_to = 0
    for axis in range(dims[shape]):
        place = rest // strides[shape, axis]
        if place >= counts[shape, axis]:
            place = counts[shape, axis] - 1
        if place + 1 < counts[shape, axis]:
            step, step_to = axis, found + (place + 1) * strides[shape, axis]
        found += place * strides[shape, axis]
        rest -= place * strides[shape, axis]
    if rest < runs[shape]:
        return found + rest
    return step_to if step != NONE else NONE


@compiled(allocates=False)
def _to_next(run: int, shape: int, dims: Any, counts: Any, strides: Any) -> Any:
    """How many bytes lie from the begin of a shape's run to that of its next one."""
    found, number = 0, run + 1
    for axis in range(dims[shape] - 1, -1, -1):
        found += strides[shape, axis]
        if number % counts[shape, axis]:
            break
        number //= counts[shape, axis]
        found -= counts[shape, axis] * strides[shape, axis]
    return found


@compiled(allocates=False)
def _bytes_before(shape: int, stop: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """How many bytes of a nested shape lie before `stop`, counted from its first byte."""
    if stop <= 0:
        return 0
    inner = runs[shape]
    for axis in range(dims[shape]):
        inner *= counts[shape, axis]
    found, rest = 0, stop
    for axis in range(dims[shape]):
        inner //= counts[shape, axis]
        place = rest // strides[shape, axis]
        if place >= counts[shape, axis]:
            return found + counts[shape, axis] * inner
        found += place * inner
        rest -= place * strides[shape, axis]
    return found + min(rest, runs[shape])


@compiled(allocates=False)
def _length(shape: int, modulus: int, dims: Any, runs: Any, counts: Any, strides: Any) -> Any:
    """How far a shape reaches modulo a number: all axes count whose strides are no multiples of it."""
    found = runs[shape]
    for axis in range(dims[shape]):
        if strides[shape, axis] % modulus:
            found += (counts[shape, axis] - 1) * strides[shape, axis]
    return found


@compiled(allocates=False)
def _pass(
    low: int, shape: int, other_low: int, other: int, modulus: int, dims: Any, runs: Any, counts: Any, strides: Any
) -> Any:
    """True if two windows share no byte modulo a number."""
    ahead = (other_low - low) % modulus
    if ahead < _length(shape, modulus, dims, runs, counts, strides):
        return False
    return modulus - ahead >= _length(other, modulus, dims, runs, counts, strides)


@compiled(allocates=False)
def _gcd(one: int, other: int) -> int:
    while other:
        one, other = other, one % other
    return one


@compiled(allocates=False)
def meet(low: int, shape: int, other_low: int, other: int, shapes: Any, counts: Any, strides: Any) -> bool:
    """True if two windows of one memory have a byte in common; one of them has to be nested.

    Most are told apart by their ends, or modulo their strides; else the runs of one are looked for in the other.
    """
    dims, runs, reaches, rows, nested = shapes
    if other_low >= low + reaches[shape] or low >= other_low + reaches[other]:
        return False
    if not dims[shape] and not dims[other]:
        return True
    common = 0
    for axis in range(dims[shape]):
        common = _gcd(common, strides[shape, axis])
    for axis in range(dims[other]):
        common = _gcd(common, strides[other, axis])
    if common > 1 and _pass(low, shape, other_low, other, common, dims, runs, counts, strides):
        return False
    for axis in range(dims[shape]):
        if _pass(low, shape, other_low, other, strides[shape, axis], dims, runs, counts, strides):
            return False
    for axis in range(dims[other]):
        if _pass(low, shape, other_low, other, strides[other, axis], dims, runs, counts, strides):
            return False
    if not nested[other] or (nested[shape] and rows[shape] > rows[other]):
        low, shape, other_low, other = other_low, other, low, shape
    at = low - other_low
    for run in range(rows[shape]):
        found = _first_from(other, at, dims, runs, counts, strides)
        if found != NONE and found < at + runs[shape]:
            return True
        at += _to_next(run, shape, dims, counts, strides)
    return False


@compiled(
    "boolean[::1](int64[::1], int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[:, ::1], "
    "int64[:, ::1])"
)
def which_meet(lows: Any, its: Any, other_lows: Any, others: Any, shapes: Any, counts: Any, strides: Any) -> Any:
    """Which pairs of windows, given by address and shape, have a byte in common; one of each pair has to be nested.

    shapes: by shape how many axes it has, the bytes of a run, how far it reaches, its runs, and whether it is nested:
    no position is within reach of those before it. counts, strides: (shapes, axes), outermost first.
    """
    found = np.zeros(len(lows), dtype=np.bool_)
    for pair in range(len(lows)):
        found[pair] = meet(lows[pair], its[pair], other_lows[pair], others[pair], shapes, counts, strides)
    return found


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], int64[::1], UniTuple(int64[::1], 5), int64[:, ::1], int64[:, ::1])"
)
def common_bytes(lows: Any, its: Any, other_lows: Any, others: Any, shapes: Any, counts: Any, strides: Any) -> Any:
    """Of pairs of windows how many bytes of the first, position by position, lie in the second, which is nested."""
    dims, runs, reaches, rows, _ = shapes
    result = np.zeros(len(lows), dtype=np.int64)
    for pair in range(len(lows)):
        low, shape, other_low, other = lows[pair], its[pair], other_lows[pair], others[pair]
        if other_low >= low + reaches[shape] or low >= other_low + reaches[other]:
            continue
        at = low - other_low
        for run in range(rows[shape]):
            result[pair] += _bytes_before(other, at + runs[shape], dims, runs, counts, strides)
            result[pair] -= _bytes_before(other, at, dims, runs, counts, strides)
            at += _to_next(run, shape, dims, counts, strides)
    return result


@compiled(allocates=False)
def touch(
    low: int,
    shape: int,
    begin: int,
    word: int,
    written: Any,
    base: int,
    shapes: Any,
    counts: Any,
    strides: Any,
    put: int,
) -> int:
    """Look at all words of a window, and make them `put` if that is not 0; the least and the greatest, 2 bits each."""
    dims, runs, _, rows, _ = shapes
    at, words = low - begin, runs[shape] // word
    least, greatest = 3, 0
    for run in range(rows[shape]):
        first = base + at // word
        for byte in range(first, first + words):
            least, greatest = min(least, written[byte]), max(greatest, written[byte])
        if put:
            for byte in range(first, first + words):
                written[byte] = put
        at += _to_next(run, shape, dims, counts, strides)
    return least << 2 | greatest


@compiled(
    "int64[::1](int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[::1], "
    "UniTuple(int64[::1], 5), int64[:, ::1], int64[:, ::1], int64)"
)
def touch_all(
    lows: Any,
    its: Any,
    memories: Any,
    begins: Any,
    words: Any,
    written: Any,
    bases: Any,
    shapes: Any,
    counts: Any,
    strides: Any,
    put: int,
) -> Any:
    """Make all words of some windows `put` if that is not 0, one window after another.

    By window the least and the greatest that was there before, 2 bits each.
    """
    found = np.zeros(len(lows), dtype=np.int64)
    for row in range(len(lows)):
        of = memories[row]
        found[row] = touch(lows[row], its[row], begins[of], words[of], written, bases[of], shapes, counts, strides, put)
    return found
