"""Follows transfers and comparisons of boxes, one after another, in machine code (SIM-1).

A *row* goes over the elements of a box in two byte arrays at once: it copies them, or compares them. `Rows` says
where; which commands have which rows is `follow`'s argument. Every element lies inside its array, which was checked
before (`Moves.check`).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.machine_code import compiled

# Element sizes in bytes; place in this list is what rows name.
WORDS: Final = (1, 2, 4, 8)


class Action(IntEnum):
    """What a row does.

    MOVE copies inside the chip's memories. CHECK compares a box in them with one that is kept beside them, CHECK_GIVEN
    with one of a region that no command writes. FILL copies from what is kept beside them. CHECK_SUMS is CHECK of the
    partial sums that a call adds to.
    """

    MOVE = 0
    CHECK = 1
    CHECK_GIVEN = 2
    FILL = 3
    CHECK_SUMS = 4


class Doing(IntEnum):
    """What following a command means: its rows, its rows if its kind of tile is settled, or nothing."""

    NOTHING = 0
    ROWS = 1
    CALL = 2
    ASK = 3


# Which rows `do_rows` does: those that copy, those that compare, or those that compare operands.
COPYING: Final = 0
COMPARING: Final = 1
OPERANDS: Final = 2


class Rows(NamedTuple):
    """Boxes to copy or compare: `actions`, and `words`, the place of the element size in WORDS.

    `at` is the first element in the chip's memories that is written or compared, `of` the first one on the other side,
    both in elements. `dims` axes count: `counts`, `at_steps` and `of_steps` are (rows, axes), outermost first, steps in
    elements.
    """

    actions: Ints
    words: Ints
    at: Ints
    of: Ints
    dims: Ints
    counts: NDArray[np.int64]
    at_steps: NDArray[np.int64]
    of_steps: NDArray[np.int64]


def views_of(memory: NDArray[np.uint8]) -> tuple[NDArray[Any], ...]:
    """The bytes as elements of each size in WORDS; their number is a multiple of 8."""
    return tuple(memory.view(np.dtype(f"u{word}")) for word in WORDS)


@compiled(allocates=False)
def _equal(a: Any, at: int, b: Any, of: int, row: int, rows: Any, places: Any) -> bool:
    """True if the box has the same elements in both arrays."""
    dims, counts, a_steps, b_steps = rows[4][row], rows[5], rows[6], rows[7]
    last = dims - 1
    inner, a_step, b_step = counts[row, last], a_steps[row, last], b_steps[row, last]
    for axis in range(last):
        places[axis] = 0
    while True:
        differs = a[at] ^ b[of]
        if a_step == 1 and b_step == 1:
            one, other = a[at : at + inner], b[of : of + inner]
            for i in range(inner):
                differs |= one[i] ^ other[i]
        else:
            for i in range(inner):
                differs |= a[at + i * a_step] ^ b[of + i * b_step]
        if differs != 0:
            return False
        axis = last - 1
        while axis >= 0:
            places[axis] += 1
            at += a_steps[row, axis]
            of += b_steps[row, axis]
            if places[axis] < counts[row, axis]:
                break
            at -= a_steps[row, axis] * counts[row, axis]
            of -= b_steps[row, axis] * counts[row, axis]
            places[axis] = 0
            axis -= 1
        if axis < 0:
            return True


@compiled(allocates=False)
def _copy(a: Any, at: int, b: Any, of: int, row: int, rows: Any, places: Any) -> None:
    """Copies the box from `b` to `a`."""
    dims, counts, a_steps, b_steps = rows[4][row], rows[5], rows[6], rows[7]
    last = dims - 1
    inner, a_step, b_step = counts[row, last], a_steps[row, last], b_steps[row, last]
    for axis in range(last):
        places[axis] = 0
    while True:
        if a_step == 1 and b_step == 1:
            one, other = a[at : at + inner], b[of : of + inner]
            for i in range(inner):
                one[i] = other[i]
        else:
            for i in range(inner):
                a[at + i * a_step] = b[of + i * b_step]
        axis = last - 1
        while axis >= 0:
            places[axis] += 1
            at += a_steps[row, axis]
            of += b_steps[row, axis]
            if places[axis] < counts[row, axis]:
                break
            at -= a_steps[row, axis] * counts[row, axis]
            of -= b_steps[row, axis] * counts[row, axis]
            places[axis] = 0
            axis -= 1
        if axis < 0:
            return


@compiled(allocates=False)
def _do(row: int, rows: Any, places: Any, memory: Any, beside: Any) -> bool:
    """Does one row; False if it compares boxes that differ."""
    action, word, at, of = rows[0][row], rows[1][row], rows[2][row], rows[3][row]
    if action == 0:  # Action.MOVE
        if word == 0:
            _copy(memory[0], at, memory[0], of, row, rows, places)
        elif word == 1:
            _copy(memory[1], at, memory[1], of, row, rows, places)
        elif word == 2:
            _copy(memory[2], at, memory[2], of, row, rows, places)
        else:
            _copy(memory[3], at, memory[3], of, row, rows, places)
        return True
    if action == 3:  # Action.FILL
        if word == 0:
            _copy(memory[0], at, beside[0], of, row, rows, places)
        elif word == 1:
            _copy(memory[1], at, beside[1], of, row, rows, places)
        elif word == 2:
            _copy(memory[2], at, beside[2], of, row, rows, places)
        else:
            _copy(memory[3], at, beside[3], of, row, rows, places)
        return True
    other = memory if action == 2 else beside  # Action.CHECK_GIVEN
    if word == 0:
        same: bool = _equal(memory[0], at, other[0], of, row, rows, places)
    elif word == 1:
        same = _equal(memory[1], at, other[1], of, row, rows, places)
    elif word == 2:
        same = _equal(memory[2], at, other[2], of, row, rows, places)
    else:
        same = _equal(memory[3], at, other[3], of, row, rows, places)
    return same


@compiled("void(int64[::1], int64[:, ::1], int64[:, ::1], int64[:, ::1])", allocates=False)
def order_axes(dims: Ints, counts: Any, at_steps: Any, of_steps: Any) -> None:
    """Brings the axes of each row into order, in place: none of one element, the smallest steps last, runs as one."""
    for row in range(len(dims)):
        used = 0
        for axis in range(counts.shape[1]):
            count, at_step, of_step = counts[row, axis], at_steps[row, axis], of_steps[row, axis]
            if count == 1:
                continue
            place = used
            while place > 0 and abs(at_steps[row, place - 1]) < abs(at_step):
                counts[row, place] = counts[row, place - 1]
                at_steps[row, place] = at_steps[row, place - 1]
                of_steps[row, place] = of_steps[row, place - 1]
                place -= 1
            counts[row, place], at_steps[row, place], of_steps[row, place] = count, at_step, of_step
            used += 1
        last = 0
        for axis in range(1, used):
            count = counts[row, axis]
            if (
                at_steps[row, last] == at_steps[row, axis] * count
                and of_steps[row, last] == of_steps[row, axis] * count
            ):
                counts[row, last] *= count
            else:
                last += 1
                counts[row, last] = count
            at_steps[row, last], of_steps[row, last] = at_steps[row, axis], of_steps[row, axis]
        if used == 0:
            counts[row, 0], at_steps[row, 0], of_steps[row, 0] = 1, 1, 1
        dims[row] = last + 1


_BYTES: Final = "Tuple((uint8[::1], uint16[::1], uint32[::1], uint64[::1]))"
_ROWS: Final = f"Tuple(({', '.join(['int64[::1]'] * 5 + ['int64[:, ::1]'] * 3)}))"


@compiled(f"boolean(int64, int64, int64, {_ROWS}, int64[::1], {_BYTES}, {_BYTES})", allocates=False)
def do_rows(first: int, stop: int, which: int, rows: Any, places: Any, memory: Any, beside: Any) -> bool:
    """Does the rows that copy, or those that compare; False at the first difference."""
    for row in range(first, stop):
        action = rows[0][row]
        copies = action == 0 or action == 3  # Action.MOVE, Action.FILL
        if copies != (which == 0) or (which == 2 and action == 4):  # Action.CHECK_SUMS
            continue
        if not _do(row, rows, places, memory, beside):
            return False
    return True


@compiled(
    "int64(int64[::1], int64, int64, int64[::1], int64[::1], int64[::1], int64[::1],"
    f" {_ROWS}, int64[::1], {_BYTES}, {_BYTES})",
    allocates=False,
)
def follow(
    numbers: Ints,
    start: int,
    stop: int,
    doings: Ints,
    kinds: Ints,
    settled: Ints,
    firsts: Ints,
    rows: Any,
    places: Any,
    memory: Any,
    beside: Any,
) -> int:
    """Follows the commands `numbers[start:stop]` as far as it can; returns the place of the first that it cannot, or
    `stop`.

    It cannot where a command asks (Doing.ASK), where the kind of a call's tile is not settled (`settled`, by `kinds`),
    and where what a call reads differs from what it is compared with. `firsts`: the rows of command c are from
    firsts[c] to firsts[c + 1].
    """
    for place in range(start, stop):
        number = numbers[place]
        doing = doings[number]
        if doing == 0:  # Doing.NOTHING
            continue
        if doing == 3:  # Doing.ASK
            return place
        first, last = firsts[number], firsts[number + 1]
        if doing == 2:  # Doing.CALL
            if settled[kinds[number]] != 1 or not do_rows(first, last, 1, rows, places, memory, beside):
                return place
            do_rows(first, last, 0, rows, places, memory, beside)
            continue
        for row in range(first, last):
            _do(row, rows, places, memory, beside)
    return stop
