"""Sequences that repeat themselves: literals, and copies of what came before.

A sequence is pieces: so many literals, then so many values copied from `distance` values before (the copy may run into
itself, so a short pattern repeats for ever at the price of one piece).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from compiler.program.encoding.cursor import Cursor, Integers, encode, encode_counts, sizes_of

# The shortest copy worth a piece.
_SHORTEST: Final = 4
_CHUNK: Final = 64
_LARGEST: Final = 1 << 31
# An odd number without a pattern: 2^64 divided by the golden ratio.
_MULTIPLIER: Final = 0x9E3779B97F4A7C15


def encode_sequence(values: Integers, literals: Integers | None = None) -> tuple[bytes, Integers]:
    """The sequence's bytes, and how many of them each value takes; values are 0 and above.

    `literals` are stored in place of the values where a value is not copied.
    """
    pieces = _pieces(values)
    counts, lengths, distances = np.array(pieces, dtype=np.uint64).reshape(-1, 3).T
    stored = values if literals is None else literals
    ends = np.cumsum(counts + lengths).astype(np.int64)
    starts = ends - (counts + lengths).astype(np.int64)
    is_literal = np.zeros(len(values) + 1, dtype=np.int64)
    np.add.at(is_literal, starts, 1)
    np.add.at(is_literal, starts + counts.astype(np.int64), -1)
    literal_rows = np.flatnonzero(np.cumsum(is_literal)[:-1] > 0)
    chosen = stored[literal_rows].astype(np.uint64)
    cost = np.zeros(len(values), dtype=np.int64)
    cost[literal_rows] = sizes_of(chosen)
    if len(values):
        last = len(values) - 1
        np.add.at(cost, np.minimum(starts, last), sizes_of(counts) + sizes_of(lengths) + sizes_of(distances))
    head = encode_counts(len(pieces))
    return b"".join((head, encode(counts), encode(lengths), encode(distances), encode(chosen))), cost


def decode_sequence(cursor: Cursor, count: int) -> Integers:
    """The sequence of `count` values; raises ExecutableError where the pieces do not make it up."""
    pieces = cursor.number("pieces", count)
    counts, lengths, distances = (cursor.numbers(pieces) for _ in range(3))
    if pieces and max(int(counts.max()), int(lengths.max())) > count:
        cursor.fail("a piece is longer than its sequence", limit=count)
    total = int((counts + lengths).sum())
    if total != count:
        cursor.fail("the pieces do not make up the sequence", actual=total, limit=count)
    literals = cursor.numbers(int(counts.sum()))
    if len(literals) and int(literals.max()) > _LARGEST:
        cursor.fail("a literal is too large", actual=int(literals.max()), limit=_LARGEST)
    ends = np.cumsum(counts + lengths)
    reachable = ends - lengths
    if ((lengths > 0) & ((distances == 0) | (distances > reachable))).any():
        cursor.fail("a copy begins before the sequence")
    return _expand(count, counts.tolist(), lengths.tolist(), distances.tolist(), literals.view(np.int64))


def _expand(count: int, counts: list[int], lengths: list[int], distances: list[int], literals: Integers) -> Integers:
    out = np.empty(count, dtype=np.int64)
    at = taken = 0
    for literal, length, distance in zip(counts, lengths, distances, strict=True):
        out[at : at + literal] = literals[taken : taken + literal]
        at += literal
        taken += literal
        # what is copied grows with what has been copied, so a short pattern doubles until it is long enough
        stop = at + length
        source = at - distance
        while at < stop:
            step = min(stop - at, at - source)
            out[at : at + step] = out[source : source + step]
            at += step
    return out


def _pieces(values: Integers) -> list[tuple[int, int, int]]:
    """Literal count, copy length and distance of each piece, found greedily."""
    count = len(values)
    before = _earlier(values)
    pieces: list[tuple[int, int, int]] = []
    candidates = np.flatnonzero(before >= 0).tolist()
    earlier = before.tolist()
    at = 0
    for candidate in candidates:
        if candidate < at:
            continue
        length = _agreement(values, candidate, earlier[candidate])
        if length >= _SHORTEST:
            pieces.append((candidate - at, length, candidate - earlier[candidate]))
            at = candidate + length
    if at < count:
        pieces.append((count - at, 0, 0))
    return pieces


def _earlier(values: Integers) -> Integers:
    """For each position the last one before it where the next values are the same, -1 for none.

    They are compared by a sum that may deceive; whoever copies compares the values themselves.
    """
    count = len(values)
    result = np.full(count, -1, dtype=np.int64)
    if count <= _SHORTEST:
        return result
    unsigned = values.astype(np.uint64)
    window = count - _SHORTEST + 1
    sums = np.zeros(window, dtype=np.uint64)
    for shift in range(_SHORTEST):
        sums = sums * np.uint64(_MULTIPLIER) + unsigned[shift : shift + window]
    order = np.argsort(sums, kind="stable")
    same = sums[order[1:]] == sums[order[:-1]]
    result[order[1:][same]] = order[:-1][same]
    return result


def _agreement(values: Integers, first: int, second: int) -> int:
    """How many values from two positions on are the same; `first` is the later one."""
    count = len(values)
    at, chunk = first, _CHUNK
    shift = first - second
    while at < count:
        stop = min(count, at + chunk)
        differs = values[at:stop] != values[at - shift : stop - shift]
        if differs.any():
            return at - first + int(differs.argmax())
        at, chunk = stop, chunk * 2
    return count - first
