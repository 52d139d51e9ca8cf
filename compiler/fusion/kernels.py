"""The loops of the search over all groups, in machine code (FUSE-O): see `partitions.py` and `guided.py`."""

from __future__ import annotations

from typing import Any

import numpy as np

from compiler.machine_code import compiled


@compiled("void(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1], float64[::1], int64[::1])")
def least_of_ops(
    begins: Any, frontiers: Any, places: Any, ranks: Any, values: Any, least: Any, counts: Any, chosen: Any
) -> None:
    """The least of each op's groups: fewest groups first where values are equal, then the first by `ranks`.

    The rows of op i, by place, are begins[i] to begins[i + 1]; the outputs that row r needs are places[frontiers[r]] to
    places[frontiers[r + 1]], all of ops before. Filled in by place: `least`, `counts` of groups, the `chosen` row, -1
    where none has a finite value.
    """
    for op in range(len(begins) - 1):
        best, fewest, row = np.inf, 0.0, -1
        for candidate in range(begins[op], begins[op + 1]):
            if not values[candidate] < np.inf:
                continue
            before, count = 0.0, 1.0
            for at in range(frontiers[candidate], frontiers[candidate + 1]):
                before += least[places[at]]
                count += counts[places[at]]
            total = values[candidate] + before
            is_tied = total == best and row >= 0
            if total < best or (is_tied and (count < fewest or (count == fewest and ranks[candidate] < ranks[row]))):
                best, fewest, row = total, count, candidate
        least[op], counts[op], chosen[op] = best, fewest, row


@compiled("void(int64[::1], boolean[::1], float64[::1], float64[::1], float64, float64[::1])")
def expect_between(begins: Any, is_known: Any, sizes: Any, ratios: Any, alone: float, expected: Any) -> None:
    """Of each op's groups that are not known, the ratio between those of the known ones next to it in size.

    The rows of op i are begins[i] to begins[i + 1]; of a group of one op `alone` is expected where none so small is
    known. Filled in: `expected`, where the op has known groups.
    """
    longest = 2
    for op in range(len(begins) - 1):
        longest = max(longest, begins[op + 1] - begins[op] + 1)
    at, of = np.empty(longest), np.empty(longest)
    for op in range(len(begins) - 1):
        # one place is left in front; in order of size, of equal ones in the order of rows
        count = 1
        for row in range(begins[op], begins[op + 1]):
            if is_known[row]:
                place = count
                while place > 1 and at[place - 1] > sizes[row]:
                    at[place], of[place] = at[place - 1], of[place - 1]
                    place -= 1
                at[place], of[place] = sizes[row], ratios[row]
                count += 1
        if count == 1:
            continue
        at[0], of[0] = 1.0, alone
        first = 0 if at[1] > 1 else 1
        for row in range(begins[op], begins[op + 1]):
            if is_known[row]:
                continue
            low, high = first, count - 1
            while low < high:
                middle = (low + high + 1) // 2
                if at[middle] <= sizes[row]:
                    low = middle
                else:
                    high = middle - 1
            if low == count - 1 or at[low] == sizes[row]:
                expected[row] = of[low]
            else:
                slope = (of[low + 1] - of[low]) / (at[low + 1] - at[low])
                expected[row] = slope * (sizes[row] - at[low]) + of[low]
