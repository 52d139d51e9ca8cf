"""Strided accesses of many commands at once: their bounds without overflow, and one normal form (PROG-4).

An access is bytes at address + Σ index·stride, `counts` positions along each dimension. All arrays have one row per
access; dimensions are columns, and the last column of the normal form are the bytes of a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

# No address is that far away; sums of numbers within it stay exact in 64 bits.
FAR: Final = 1 << 56
# An odd number whose bits look random: it spreads what is multiplied by it over all bits.
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """First byte and one past the last byte of each access; `is_far`: rows whose numbers are beyond reason."""

    low: Ints
    high: Ints
    is_far: Flags


def spans(addresses: Ints, counts: Ints, strides: Ints, run_bytes: Ints) -> Spans:
    """The hull of each access; rows that would overflow are marked and count as empty at 0.

    Counts and runs are at least 1. Shapes: (n,), (n, d), (n, d), (n,).
    """
    # judged in floats first, which do not wrap around
    reach = np.abs(addresses.astype(np.float64)) + run_bytes.astype(np.float64)
    reach += ((counts.astype(np.float64) - 1) * np.abs(strides.astype(np.float64))).sum(axis=1)
    is_far = ~(reach < FAR)
    if is_far.any():
        keep = ~is_far
        addresses, run_bytes = np.where(keep, addresses, 0), np.where(keep, run_bytes, 0)
        counts, strides = np.where(keep[:, None], counts, 1), np.where(keep[:, None], strides, 0)
    steps = np.where(counts > 1, (counts - 1) * strides, 0)
    low = addresses + np.minimum(steps, 0).sum(axis=1)
    high = addresses + np.maximum(steps, 0).sum(axis=1) + run_bytes
    return Spans(low=low, high=high, is_far=is_far)


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """Accesses as sets of bytes: dimensions by falling stride, neighbours joined, the run as the last column.

    Strides are positive; dimensions that are not used have count 1 and stride 0. `repeats`: a stride of 0 was left
    out. `tangles`: strides do not nest, so that a byte may belong to several positions.
    """

    low: Ints
    counts: Ints
    strides: Ints
    repeats: Flags
    tangles: Flags

    @property
    def touched_bytes(self) -> NDArray[np.float64]:
        """Bytes of each access, repetitions left out."""
        product: NDArray[np.float64] = np.prod(self.counts.astype(np.float64), axis=1)
        return product

    def chosen(self, which: Flags) -> Normal:
        """Some of the accesses."""
        return Normal(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def normalise(low: Ints, counts: Ints, strides: Ints, run_bytes: Ints) -> Normal:
    """The normal form of accesses with bounds found sane; `low` is the lowest byte of each."""
    repeated = (counts > 1) & (strides == 0)
    counts = np.where(strides == 0, 1, counts)
    strides = np.where(counts > 1, np.abs(strides), 0)
    order = np.argsort(-strides, axis=1, kind="stable")
    rows = len(low)
    counts = np.concatenate([np.take_along_axis(counts, order, 1), run_bytes[:, None]], axis=1)
    strides = np.concatenate([np.take_along_axis(strides, order, 1), np.ones((rows, 1), dtype=np.int64)], axis=1)
    # from the innermost dimension outwards: how far the bytes so far reach, and whether the next stride clears them
    reach = run_bytes.copy()
    tangles = np.zeros(rows, dtype=np.bool_)
    for column in range(counts.shape[1] - 2, -1, -1):
        count, stride = counts[:, column], strides[:, column]
        inner_count, inner_stride = counts[:, column + 1], strides[:, column + 1]
        tangles |= (count > 1) & (stride < reach)
        reach = reach + (count - 1) * stride
        joins = (count > 1) & (stride == inner_count * inner_stride)
        moves = joins | (count == 1)
        strides[:, column] = np.where(moves, inner_stride, stride)
        counts[:, column] = np.where(joins, count * inner_count, np.where(count == 1, inner_count, count))
        counts[:, column + 1] = np.where(moves, 1, inner_count)
        strides[:, column + 1] = np.where(moves, 0, inner_stride)
    return Normal(low=low, counts=counts, strides=strides, repeats=repeated.any(axis=1), tangles=tangles)


def distinct(columns: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Of rows, given by columns, the first of each that are equal, and by row which of these it equals."""
    if not len(columns[0]):
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = (hashes ^ column.astype(np.uint64)) * _FACTOR
        hashes ^= hashes >> np.uint64(29)
    _, first, of_row = np.unique(hashes, return_index=True, return_inverse=True)
    if all(bool((column[first[of_row]] == column).all()) for column in columns):
        return first, of_row
    # different rows of equal hashes
    _, first, of_row = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    return first, of_row.reshape(-1)
