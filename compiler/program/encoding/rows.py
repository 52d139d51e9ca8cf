"""Rows of integers that follow patterns: groups of like rows, each column by what its pattern does not foretell.

The rows of a group come one after another. A column's first value in a group is stored as what it differs from the
first value of the group before (SHAPE-2: the base). The others are stored as differences from the value before (the
stride); and of these differences, up to three times over, again what they differ from those `lag` rows before (the
counts of the loops that made the rows, from the inside out). In nested loops with constant steps nearly everything
that is left is 0; only what is not 0 is stored, with how many zeros come before it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.encoding.cursor import (
    Cursor,
    Integers,
    Unsigned,
    encode,
    encode_counts,
    fold,
    sizes_of,
)

# How often differences are taken at a lag.
_PASSES: Final = 3
# A lag is worth its byte from so many rows on.
_WORTH: Final = 2
_MULTIPLIER: Final = 0x9E3779B97F4A7C15
_LARGEST_LAG: Final = 1 << 31
# No value but 0.
_NOTHING: Final = b"\0"


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """How rows lie in groups: the rows of each (at least one), and which group begins anew instead of following."""

    sizes: Integers
    anew: NDArray[np.bool_]

    @property
    def starts(self) -> Integers:
        """The first row of each group."""
        result: Integers = np.cumsum(self.sizes) - self.sizes
        return result

    @property
    def of_rows(self) -> Integers:
        """Each row's group."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @property
    def within(self) -> Integers:
        """Each row's number in its group."""
        result: Integers = np.arange(int(self.sizes.sum())) - np.repeat(self.starts, self.sizes)
        return result


def groups_of(keys: Sequence[Integers], owners: Integers) -> Groups:
    """Groups of neighbouring rows whose keys are all equal; each owner's first group begins anew."""
    count = len(owners)
    if count == 0:
        return Groups(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.bool_))
    changes = np.zeros(count, dtype=np.bool_)
    changes[0] = True
    for key in (*keys, owners):
        changes[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(changes)
    sizes = np.diff(np.append(starts, count))
    anew = np.ones(len(starts), dtype=np.bool_)
    anew[1:] = owners[starts[1:]] != owners[starts[:-1]]
    return Groups(sizes, anew)


def encode_rows(columns: Sequence[Integers], groups: Groups) -> tuple[bytes, Integers]:
    """The rows' bytes, and how many of them each row takes."""
    rows = int(groups.sizes.sum())
    cost = np.zeros(rows, dtype=np.int64)
    if rows == 0:
        return b"", cost
    starts, of_rows, within = groups.starts, groups.of_rows, groups.within
    first = within == 0
    mixed = np.zeros(rows, dtype=np.uint64)
    steps = [_steps(column, first) for column in columns]
    for step in steps:
        if step is not None:
            mixed = mixed * np.uint64(_MULTIPLIER) + step.view(np.uint64)
    lags = _choose_lags(mixed, of_rows, within, groups)
    parts = [encode_counts(len(lags))]
    for lag in lags:
        part, spent = _encode_sparse(_follow(lag, groups.anew))
        parts.append(part)
        cost[starts] += spent
    for column, step in zip(columns, steps, strict=True):
        part, spent = _encode_sparse(_follow(column[starts], groups.anew))
        parts.append(part)
        cost[starts] += spent
        if step is None:
            parts.append(_NOTHING)
            continue
        left = step
        for lag in lags:
            left = _lagged(left, lag, of_rows, within)
        part, spent = _encode_sparse(left)
        parts.append(part)
        cost += spent
    return b"".join(parts), cost


def decode_rows(cursor: Cursor, count: int, groups: Groups) -> list[Integers]:
    """So many columns of the rows; raises ExecutableError where the bytes do not give them."""
    rows = int(groups.sizes.sum())
    if rows == 0:
        return [np.zeros(0, dtype=np.int64) for _ in range(count)]
    passes = cursor.number("passes", _PASSES)
    lags = [_accumulate(_decode_sparse(cursor, len(groups.sizes)), groups.anew) for _ in range(passes)]
    for lag in lags:
        if int(lag.min()) < 0 or int(lag.max()) > _LARGEST_LAG:
            cursor.fail("a lag is out of range", actual=int(lag.min()) if int(lag.min()) < 0 else int(lag.max()))
    undo = [_Undo.of(lag, groups) for lag in reversed(lags)]
    starts = groups.starts
    columns = []
    for _ in range(count):
        first = _accumulate(_decode_sparse(cursor, len(groups.sizes)), groups.anew)
        step = _decode_sparse(cursor, rows)
        if not step.any():
            columns.append(np.repeat(first, groups.sizes))
            continue
        if step[starts].any():
            cursor.fail("a group's first row has a step")
        for one in undo:
            one.apply(step)
        step[starts] = first
        columns.append(_sums(step, starts, groups.sizes))
    return columns


def _steps(column: Integers, first: NDArray[np.bool_]) -> Integers | None:
    """What each value differs from the one before in its group; None if it never does."""
    if not (column != column[0]).any():
        return None
    step = np.zeros(len(column), dtype=np.int64)
    step[1:] = column[1:] - column[:-1]
    step[first] = 0
    return step if step.any() else None


def _follow(values: Integers, anew: NDArray[np.bool_]) -> Integers:
    """What each group's value differs from that of the group before."""
    result = values.copy()
    result[1:] -= np.where(anew[1:], 0, values[:-1])
    return result


def _accumulate(differences: Integers, anew: NDArray[np.bool_]) -> Integers:
    """What `_follow` was given."""
    starts = np.flatnonzero(anew)
    return _sums(differences, starts, np.diff(np.append(starts, len(differences))))


def _sums(values: Integers, starts: Integers, sizes: Integers) -> Integers:
    """Sums from the beginning of each part; they wrap around at 64 bits, as the differences did."""
    sums = np.cumsum(values)
    result: Integers = sums - np.repeat(sums[starts] - values[starts], sizes)
    return result


def _encode_sparse(values: Integers) -> tuple[bytes, Integers]:
    """What is not 0: how many there are, the zeros before each, and the values; and the bytes by row."""
    cost = np.zeros(len(values), dtype=np.int64)
    where = np.flatnonzero(values)
    if len(where) == 0:
        return _NOTHING, cost
    gaps = np.diff(where, prepend=-1) - 1
    folded = fold(values[where])
    cost[where] = sizes_of(gaps.view(np.uint64)) + sizes_of(folded)
    return encode_counts(len(where)) + encode(gaps) + encode(folded), cost


def _decode_sparse(cursor: Cursor, count: int) -> Integers:
    values = np.zeros(count, dtype=np.int64)
    stored = cursor.number("values", count)
    if stored:
        gaps = cursor.numbers(stored)
        if int(gaps.max()) >= count or int(gaps.sum()) + stored > count:
            cursor.fail("values lie beyond the last row", actual=int(gaps.max()), limit=count)
        where = np.cumsum(gaps.view(np.int64) + 1) - 1
        values[where] = cursor.signed(stored)
    return values


def _lagged(step: Integers, lag: Integers, of_rows: Integers, within: Integers) -> Integers:
    """Differences of differences at each group's lag; those of its first rows stay as they are."""
    distance = lag[of_rows]
    rows = np.flatnonzero((distance > 0) & (within > distance))
    result = step.copy()
    result[rows] -= step[rows - distance[rows]]
    return result


@dataclass(frozen=True, slots=True, eq=False)
class _Undo:
    """The rows of one pass in the order in which their sums are taken: a group's rows that are `lag` apart together."""

    order: Integers
    starts: Integers
    sizes: Integers

    @staticmethod
    def of(lag: Integers, groups: Groups) -> _Undo:
        """For the lag of each group, 0 where the pass leaves it alone."""
        steps = groups.sizes - 1
        chosen = np.flatnonzero((lag > 0) & (lag < steps))
        lag, steps, first = lag[chosen], steps[chosen], groups.starts[chosen] + 1
        total = int(steps.sum())
        number = np.arange(total) - np.repeat(np.cumsum(steps) - steps, steps)
        apart = np.repeat(lag, steps)
        remainder, turn = number % apart, number // apart
        # of `steps` rows those with a smaller remainder come first
        whole, rest = np.repeat(steps // lag, steps), np.repeat(steps % lag, steps)
        begin = np.repeat(np.cumsum(steps) - steps, steps)
        position = begin + remainder * whole + np.minimum(remainder, rest) + turn
        order = np.empty(total, dtype=np.int64)
        order[position] = np.repeat(first, steps) + number
        starts = np.sort(position[turn == 0])
        return _Undo(order, starts, np.diff(np.append(starts, total)))

    def apply(self, step: Integers) -> None:
        """Put sums in place of the differences."""
        if len(self.order):
            step[self.order] = _sums(step[self.order], self.starts, self.sizes)


def _choose_lags(mixed: Unsigned, of_rows: Integers, within: Integers, groups: Groups) -> list[Integers]:
    """The lags of each pass, by group; as many passes as pay.

    `mixed` has one number per row that is 0 where all columns' differences are, and equal where they are equal (it may
    deceive: a lag is then badly chosen, not wrong).
    """
    lags: list[Integers] = []
    current = mixed.view(np.int64)
    for _ in range(_PASSES):
        lag = _best_lag(current, of_rows, within, groups)
        if not lag.any():
            break
        lags.append(lag)
        current = _lagged(current, lag, of_rows, within)
    return lags


def _best_lag(step: Integers, of_rows: Integers, within: Integers, groups: Groups) -> Integers:
    """By group the lag that leaves the fewest rows to store: none, 1, or the distance at which changes come again."""
    count = len(groups.sizes)
    left = _stored(step, of_rows, count)
    best = np.zeros(count, dtype=np.int64)
    rows = np.flatnonzero((left > _WORTH)[of_rows])
    if len(rows) == 0:
        return best
    # the groups that have much to store, alone
    step, of_rows, within = step[rows], of_rows[rows], within[rows]
    for lag in _candidates(step, of_rows, within, count):
        remaining = _stored(_lagged(step, lag, of_rows, within), of_rows, count)
        better = (remaining + _WORTH < left) & (lag > 0)
        best = np.where(better, lag, best)
        left = np.where(better, remaining, left)
    return best


def _stored(step: Integers, of_rows: Integers, count: int) -> Integers:
    result: Integers = np.bincount(of_rows[step != 0], minlength=count)
    return result


def _candidates(step: Integers, of_rows: Integers, within: Integers, count: int) -> Iterable[Integers]:
    """Lags to try, by group: 1, and the most common distance between two equal changes."""
    yield np.ones(count, dtype=np.int64)
    changes = np.zeros(len(step), dtype=np.bool_)
    changes[1:] = (step[1:] != step[:-1]) & (within[1:] > 1)
    where = np.flatnonzero(changes)
    if len(where) < 2:
        return
    key = step[where].view(np.uint64) * np.uint64(_MULTIPLIER) + step[where - 1].view(np.uint64)
    order = np.lexsort((key, of_rows[where]))
    at, keys, owners = where[order], key[order], of_rows[where][order]
    again = (keys[1:] == keys[:-1]) & (owners[1:] == owners[:-1])
    distance, owner = (at[1:] - at[:-1])[again], owners[1:][again]
    if len(distance) == 0:
        return
    # the distances of each group by how often they occur, the smaller one first
    span = int(distance.max()) + 1
    pairs, times = np.unique(owner * span + distance, return_counts=True)
    owner, distance = pairs // span, pairs % span
    order = np.lexsort((distance, -times, owner))
    leads = np.ones(len(order), dtype=np.bool_)
    leads[1:] = owner[order][1:] != owner[order][:-1]
    lag = np.zeros(count, dtype=np.int64)
    lag[owner[order][leads]] = distance[order][leads]
    yield lag
