"""Buckets: which shapes share a table, by the shapes that were asked for (SHAPE-5).

A bucket is a range of sizes and the table that serves it at the least cost. Shapes stand in order of size, a bucket
takes up neighbours, and boundaries are chosen by dynamic programming over their histogram.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import Floats

# Elements of the matrix of costs; the choice takes time that grows with them and with the number of shapes.
MAX_ELEMENTS: Final = 4_000_000


class Bucket(NamedTuple):
    """Shapes by number, from `begin` to before `end`, and the table by number that serves them."""

    begin: int
    end: int
    table: int


def choose_buckets(costs: Floats, weights: Sequence[int], buckets: int) -> tuple[Bucket, ...]:
    """At most so many buckets that serve all shapes at the least total cost; fewer where they cost the same.

    `costs`: of serving each shape, in order of size, by each table: [shape, table]; infinite where it cannot.
    `weights`: requests by shape. Raises RequestError where there is nothing to choose, or a shape that no table
    serves; LimitError for too many shapes and tables.
    """
    if costs.ndim != 2 or not costs.size or len(weights) != len(costs) or min(weights) < 0 or buckets < 1:
        raise RequestError(
            "there is nothing to choose buckets for",
            stage="shapes",
            actual=f"{costs.shape} costs, {len(weights)} weights, {buckets} buckets",
            limit="at least one of each, a weight of 0 or more for each shape",
        )
    if costs.size > MAX_ELEMENTS:
        raise LimitError(
            "a histogram has too many shapes", stage="shapes", actual=costs.size, limit=f"{MAX_ELEMENTS} costs"
        )
    count = len(costs)
    # within[i, j]: least cost of shapes i to j by one table, and that table
    within, tables = np.full((count, count), np.inf), np.zeros((count, count), dtype=np.int64)
    weighted = costs * np.array(weights, dtype=np.float64)[:, None]
    for end in range(count):
        # sums of the shapes from each one to the last, by table
        sums = np.cumsum(weighted[end::-1], axis=0)[::-1]
        within[: end + 1, end], tables[: end + 1, end] = sums.min(axis=1), sums.argmin(axis=1)
    # best[n]: least cost of the n smallest shapes in the buckets so far
    best = np.concatenate([[0.0], np.full(count, np.inf)])
    begins: list[list[int]] = []
    for _ in range(min(buckets, count)):
        fuller, begin = best.copy(), list(range(count + 1))
        for end in range(1, count + 1):
            options = best[:end] + within[:end, end - 1]
            first = int(options.argmin())
            if options[first] < fuller[end]:
                fuller[end], begin[end] = options[first], first
        begins.append(begin)
        best = fuller
    if best[count] == np.inf:
        raise RequestError("no table serves a shape", stage="shapes", actual=f"{count} shapes")
    found, end = list[Bucket](), count
    for begin in reversed(begins):
        if begin[end] < end:
            found.append(Bucket(begin[end], end, int(tables[begin[end], end - 1])))
            end = begin[end]
    return tuple(reversed(found))
