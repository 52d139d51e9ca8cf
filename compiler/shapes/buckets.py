"""Buckets: which lengths share a table, by the lengths that were asked for (SHAPE-5).

A bucket serves all lengths up to its boundary with the boundary's table. Boundaries are chosen by dynamic programming
over a histogram, so that what is spent on lengths that nobody asked for is least.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from compiler.errors import LimitError, RequestError

# Lengths of a histogram; the choice takes time that grows with their square.
MAX_LENGTHS: Final = 4096


def choose_buckets(
    counts: Mapping[int, int], buckets: int, cost: Callable[[int], float] | None = None
) -> tuple[int, ...]:
    """At most so many boundaries, rising, that serve all requested lengths at the least total cost.

    `counts`: requests by length. `cost`: of serving one request by a table of a length; by default the length itself,
    so that padding is least. Boundaries are requested lengths: as long as costs rise with length, no others are better.
    Of equal choices the one with fewer buckets is taken. Raises RequestError for an empty histogram or no buckets,
    LimitError for a histogram of too many lengths.
    """
    lengths = sorted(length for length, count in counts.items() if count > 0)
    if not lengths or lengths[0] < 0 or buckets < 1:
        raise RequestError(
            "there is nothing to choose buckets for",
            stage="shapes",
            actual=f"{len(lengths)} lengths, {buckets} buckets",
            limit="at least one of each, lengths of 0 or more",
        )
    if len(lengths) > MAX_LENGTHS:
        raise LimitError(
            "a histogram has too many lengths",
            stage="shapes",
            actual=len(lengths),
            limit=MAX_LENGTHS,
            hint="Round requested lengths up to a coarser step",
        )
    before = np.concatenate([[0], np.cumsum([counts[length] for length in lengths])])
    costs = np.array([float(length if cost is None else cost(length)) for length in lengths])
    # best[n]: least cost of the n shortest lengths in the buckets so far
    best = np.full(len(lengths) + 1, np.inf)
    best[0] = 0.0
    starts: list[list[int]] = []
    for _ in range(min(buckets, len(lengths))):
        first = np.empty(len(lengths) + 1, dtype=np.int64)
        fuller = best.copy()
        first[0] = 0
        for end in range(1, len(lengths) + 1):
            options = best[:end] + (before[end] - before[:end]) * costs[end - 1]
            start = int(options.argmin())
            # a bucket without lengths: fewer do
            first[end] = end
            if options[start] < best[end]:
                first[end], fuller[end] = start, options[start]
        starts.append(first.tolist())
        best = fuller
    boundaries, end = [], len(lengths)
    for first_of in reversed(starts):
        if first_of[end] < end:
            boundaries.append(lengths[end - 1])
            end = first_of[end]
    return tuple(reversed(boundaries))


def bucket_of(length: int, boundaries: Sequence[int]) -> int:
    """The least boundary that is not below a length; raises RequestError where there is none."""
    place = bisect_left(boundaries, length)
    if place == len(boundaries):
        raise RequestError(
            "a length lies above all buckets",
            code="no_bucket",
            stage="shapes",
            actual=length,
            limit=boundaries[-1] if boundaries else None,
        )
    return boundaries[place]


def padding_waste(counts: Mapping[int, int], boundaries: Sequence[int]) -> float:
    """What is padded, over what is asked for: 0.25 means that a quarter is computed on top."""
    padded = sum(count * (bucket_of(length, boundaries) - length) for length, count in counts.items() if count > 0)
    asked = sum(count * length for length, count in counts.items())
    return padded / asked if asked else 0.0
