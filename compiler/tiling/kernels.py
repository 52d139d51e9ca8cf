"""Loops over the tiles of one axis, in machine code (TILE-1, TILE-3): see `axis_tiles.py` and `sizes.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.machine_code import compiled


@compiled("Tuple((boolean, int64[::1], int64[::1]))(int64[::1], int64[::1], boolean[::1])")
def fresh_positions(starts: Any, stops: Any, begins: Any) -> Any:
    """Where the new part of each range starts, which no range before it in its run has, and how many positions waited.

    A run starts where `begins` holds. The first result is False, and the others mean nothing, where within a run a
    range starts or stops before the one before it; empty ranges are left out of that.
    """
    count = len(starts)
    first, waiting = np.empty(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    reached = 0
    is_first, last_start, last_stop = True, 0, 0
    for at in range(count):
        start, stop = starts[at], stops[at]
        if begins[at]:
            reached, is_first = 0, True
        if stop <= start:
            first[at] = stop
        else:
            if not is_first and (start < last_start or stop < last_stop):
                return False, first, waiting
            is_first, last_start, last_stop = False, start, stop
            first[at] = max(start, min(reached, stop))
            waiting[at] = max(reached - start, 0)
        reached = max(reached, stop)
    return True, first, waiting


@compiled("UniTuple(int64, 2)(int64[::1])", allocates=False)
def sums_of(values: Any) -> Any:
    """The sum of values, and the largest of them."""
    total, most = 0, values[0]
    for one in values:
        total += one
        most = max(most, one)
    return total, most


@compiled("float64(Array(int64, 2, 'C', readonly=True), int64[:, ::1], int64[:, ::1])")
def largest_part(owner: Any, rows: Any, columns: Any) -> Any:
    """The most that any core makes, as a part of all.

    `rows` by row and core of a unit, `columns` by column; `owner`: by row and column the unit whose tile it is.
    """
    units = 0
    for one in owner.flat:
        units = max(units, one + 1)
    made, total = np.zeros((units, rows.shape[1])), 0.0
    for row in range(owner.shape[0]):
        for column in range(owner.shape[1]):
            for core in range(rows.shape[1]):
                part = float(columns[column, 0]) * float(rows[row, core])
                made[owner[row, column], core] += part
                total += part
    return made.max() / total if total > 0 else 1.0


@compiled("int64(int64[::1], int64[::1])", allocates=False)
def longest_of(starts: Any, stops: Any) -> Any:
    """The length of the longest range; 0 if all are empty."""
    longest = 0
    for at in range(len(starts)):
        longest = max(longest, stops[at] - starts[at])
    return longest


@compiled("Tuple((int64, int64[::1]))(int64[::1], int64[::1], int64, int64)")
def steps_of(starts: Any, stops: Any, cut: Any, lane: Any) -> Any:
    """Steps over ranges that are each cut into parts, those of one part, by so many lanes: their sum, and each."""
    found, total = np.empty(len(starts), dtype=np.int64), 0
    for at in range(len(starts)):
        length = max(0, stops[at] - starts[at])
        found[at] = ((length + cut - 1) // cut + lane - 1) // lane
        total += found[at]
    return total, found


@compiled("Tuple((float64[:, ::1], int64[::1]))(int64[::1], int64[::1], int64[::1], int64[::1], boolean)")
def figures_of_sizes(offsets: Any, needed: Any, made: Any, waiting: Any, keeps: Any) -> Any:
    """Per candidate size the most that a tile makes, needs and keeps, [figure, candidate]; and what all make together.

    The tiles of candidate k begin at offsets[k]. Unless it `keeps` anything, `waiting` means nothing.
    """
    count = len(offsets)
    most, total = np.zeros((3, count)), np.zeros(count, dtype=np.int64)
    for number in range(count):
        end = offsets[number + 1] if number + 1 < count else len(made)
        largest, longest, kept = made[offsets[number]], needed[offsets[number]], 0
        for at in range(offsets[number], end):
            largest, longest = max(largest, made[at]), max(longest, needed[at])
            total[number] += made[at]
            if keeps:
                kept = max(kept, waiting[at])
        most[0, number], most[1, number], most[2, number] = largest, longest, kept
    return most, total
