"""The loops of the optimised algorithm, compiled to machine code (SHAPE-6).

Costs are cycles, infinite where something cannot be. Ties go to what is tried first, so that results are the same to
the bit everywhere. What is needed to use tables, and not to find them, does not import this module.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled

# The end of a cover that has no tail, and the last piece of a length that whole pieces do not make up.
NO_PIECE: Final = -1


@compiled()
def _row(
    whole: Any,
    extents: Any,
    clipped: Any,
    tails: Any,
    wanted: Any,
    sums: Any,
    last: Any,
    best: Any,
    ends: Any,
) -> None:
    """The cheapest cover of each wanted length by whole pieces and at most one tail.

    whole[e], clipped[t]: cost of a piece of extents[e] (descending), of a tail of tails[t] (ascending). `wanted` rises.
    Filled in: sums[l], the cheapest sum of whole pieces of length l, last[l], the last of them; best[w] and ends[w],
    the cover of wanted[w] and its tail: NO_PIECE, or a number in `tails`.
    """
    longest = wanted[len(wanted) - 1]
    step = 0
    for extent in extents:
        step = np.gcd(step, extent)
    sums[:] = np.inf
    last[:] = NO_PIECE
    sums[0] = 0.0
    for length in range(step, longest + 1, max(step, 1)):
        for e in range(len(extents)):
            if extents[e] <= length:
                cycles = sums[length - extents[e]] + whole[e]
                if cycles < sums[length]:
                    sums[length], last[length] = cycles, e
    for w in range(len(wanted)):
        length = wanted[w]
        best[w], ends[w] = sums[length], NO_PIECE
        for t in range(len(tails)):
            if tails[t] > length:
                break
            cycles = sums[length - tails[t]] + clipped[t]
            if cycles < best[w]:
                best[w], ends[w] = cycles, t


@compiled("float64[:, ::1](float64[:, ::1], int64[::1], float64[:, ::1], int64[::1], int64[::1])")
def best_covers(whole: Any, extents: Any, clipped: Any, tails: Any, wanted: Any) -> Any:
    """Per row of costs the cheapest cover of each wanted length."""
    rows, longest = whole.shape[0], wanted[len(wanted) - 1]
    best = np.empty((rows, len(wanted)))
    sums, last = np.empty(longest + 1), np.empty(longest + 1, dtype=np.int32)
    ends = np.empty(len(wanted), dtype=np.int32)
    for row in range(rows):
        _row(whole[row], extents, clipped[row], tails, wanted, sums, last, best[row], ends)
    return best


@compiled(
    "Tuple((float64[::1], int32[::1], float64[::1], int32[::1]))("
    "float64[::1], int64[::1], float64[::1], int64[::1], int64[::1])"
)
def frontier(whole: Any, extents: Any, clipped: Any, tails: Any, wanted: Any) -> Any:
    """One row of costs: best and tail of each wanted length, sums and last whole piece of each length."""
    longest = wanted[len(wanted) - 1]
    best, ends = np.empty(len(wanted)), np.empty(len(wanted), dtype=np.int32)
    sums, last = np.empty(longest + 1), np.empty(longest + 1, dtype=np.int32)
    _row(whole, extents, clipped, tails, wanted, sums, last, best, ends)
    return best, ends, sums, last


@compiled("int64[::1](int64[::1], int32[::1], int64)")
def whole_pieces(extents: Any, last: Any, length: int) -> Any:
    """How many pieces of each extent the cheapest sum of a length has."""
    counts = np.zeros(len(extents), dtype=np.int64)
    while length > 0:
        counts[last[length]] += 1
        length -= extents[last[length]]
    return counts


@compiled()
def _usable(table: Any, piece: int, among: Any, found: Any) -> int:
    """Put those of `among` into `found` that can work on a piece; how many."""
    count = 0
    for unit in among:
        if table[piece, unit] < np.inf:
            found[count] = unit
            count += 1
    return count


@compiled(
    "Tuple((float64[:, :, :, ::1], int32[:, :, :, ::1], uint8[:, :, :, ::1]))("
    "UniTuple(float64[:, ::1], 4), UniTuple(float64[:, ::1], 4), float64, float64, float64, int64)"
)
def cheapest_calls(
    fixed: Any, given: Any, call_cycles: float, variable_cycles: float, compute_cycles: float, ways: int
) -> Any:
    """Per combination of pieces, one per axis of four: least cycles of a call, its unit, and the axes of given length.

    fixed[a][p, u]: factor of unit u on piece p of axis a computed whole, infinite where it is too short.
    given[a][p, u]: with the length given to it, infinite where it is not accepted. `ways`: 2 to the number of axes.
    """
    counts = (fixed[0].shape[0], fixed[1].shape[0], fixed[2].shape[0], fixed[3].shape[0])
    units = np.arange(fixed[0].shape[1])
    cost = np.full(counts, np.inf)
    chosen = np.full(counts, NO_PIECE, dtype=np.int32)
    lengths = np.zeros(counts, dtype=np.uint8)
    among = np.empty((4, len(units)), dtype=np.int64)
    for p in range(counts[0]):
        n0 = _usable(fixed[0], p, units, among[0])
        for q in range(counts[1]):
            n1 = _usable(fixed[1], q, among[0][:n0], among[1])
            for r in range(counts[2]):
                n2 = _usable(fixed[2], r, among[1][:n1], among[2])
                for s in range(counts[3]):
                    n3 = _usable(fixed[3], s, among[2][:n2], among[3])
                    for unit in among[3][:n3]:
                        for mask in range(ways - 1, -1, -1):
                            cycles = compute_cycles
                            cycles *= given[0][p, unit] if mask & 1 else fixed[0][p, unit]
                            cycles *= given[1][q, unit] if mask & 2 else fixed[1][q, unit]
                            cycles *= given[2][r, unit] if mask & 4 else fixed[2][r, unit]
                            cycles *= given[3][s, unit] if mask & 8 else fixed[3][s, unit]
                            bits = (mask & 1) + (mask >> 1 & 1) + (mask >> 2 & 1) + (mask >> 3 & 1)
                            total = call_cycles + variable_cycles * bits + cycles
                            if total < cost[p, q, r, s]:
                                cost[p, q, r, s], chosen[p, q, r, s], lengths[p, q, r, s] = total, unit, mask
    return cost, chosen, lengths


@compiled("float64[:, ::1](float64[:, ::1], float64[:, ::1], int64[:, ::1], int64[::1], int64[:, ::1], int64[::1])")
def guillotine_cycles(
    rows: Any, columns: Any, row_cuts: Any, row_first: Any, column_cuts: Any, column_first: Any
) -> Any:
    """Least cost of each rectangle, by number of its height and width, when it may be cut through again and again.

    rows, columns: cost of a rectangle as one strip of either direction. A height's cuts are those of `row_cuts` from
    its `row_first` to the next, each the numbers of two smaller heights that make it up; widths likewise.
    """
    best = np.minimum(rows, columns)
    for i in range(best.shape[0]):
        for j in range(best.shape[1]):
            least = best[i, j]
            for cut in range(row_first[i], row_first[i + 1]):
                least = min(least, best[row_cuts[cut, 0], j] + best[row_cuts[cut, 1], j])
            for cut in range(column_first[j], column_first[j + 1]):
                least = min(least, best[i, column_cuts[cut, 0]] + best[i, column_cuts[cut, 1]])
            best[i, j] = least
    return best
