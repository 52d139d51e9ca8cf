"""The history of engines, in machine code: their last commands by position, each with its clock.

A position is an iteration and a statement. Of each engine the history is a stretch of columns, `sizes` rows from
`offsets` on, in order; the last row is the command whose number is `done`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from compiler.machine_code import compiled
from compiler.program.loops.windows import NONE

# A position before all others.
LONG_AGO: Final = -(1 << 60)


@compiled(allocates=False)
def place_up_to(
    queue: int, iteration: int, statement: int, offsets: Any, sizes: Any, iterations: Any, statements: Any
) -> Any:
    """The place in the history of an engine of its last command up to a position; NONE before all of them."""
    begin = offsets[queue]
    low, high = 0, sizes[queue]
    while low < high:
        middle = (low + high) >> 1
        at = begin + middle
        if iterations[at] < iteration or (iterations[at] == iteration and statements[at] <= statement):
            low = middle + 1
        else:
            high = middle
    return begin + low - 1 if low else NONE


@compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1])"
)
def capture(
    target_iterations: Any,
    targets: Any,
    target_queues: Any,
    target_statements: Any,
    done: Any,
    offsets: Any,
    sizes: Any,
    iterations: Any,
    statements: Any,
    rows: Any,
    target_numbers: Any,
    is_known: Any,
    target_clocks: Any,
    clock_rows: Any,
) -> None:
    """Keep, for some positions, the last command of their engines up to each, and its clock."""
    for at in range(len(targets)):
        target = targets[at]
        queue = target_queues[target]
        place = place_up_to(
            queue, target_iterations[at], target_statements[target], offsets, sizes, iterations, statements
        )
        is_known[target] = 1
        if place == NONE:
            target_numbers[target] = 0
            continue
        target_numbers[target] = done[queue] - (sizes[queue] - 1 - (place - offsets[queue]))
        for engine in range(clock_rows.shape[1]):
            target_clocks[target, engine] = clock_rows[rows[place], engine]


@compiled(
    "int64(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[:, ::1], int64)"
)
def forget(
    begins: Any,
    known: Any,
    done: Any,
    offsets: Any,
    sizes: Any,
    iterations: Any,
    statements: Any,
    rows: Any,
    clock_rows: Any,
    row_count: int,
) -> int:
    """Leave out of each engine's history what nobody waits for any more, and rows of clocks that nobody needs.

    That is all before an iteration, by engine in `begins`, and up to the number in `known`, which whoever waits for the
    engine knows to have ended. The last command stays. How many rows of clocks are left.
    """
    queues = len(sizes)
    moved = np.full(row_count, NONE)
    for queue in range(queues):
        first, size = offsets[queue], sizes[queue]
        low, high = 0, size
        while low < high:
            middle = (low + high) >> 1
            if iterations[first + middle] < begins[queue]:
                low = middle + 1
            else:
                high = middle
        low = min(size, max(low, known[queue] - (done[queue] - size)))
        gone = max(0, low - 1)
        for place in range(size - gone):
            iterations[first + place] = iterations[first + gone + place]
            statements[first + place] = statements[first + gone + place]
            rows[first + place] = rows[first + gone + place]
            moved[rows[first + place]] = 0
        sizes[queue] = size - gone
        if low:
            iterations[first], statements[first] = LONG_AGO, NONE
    kept = 0
    for row in range(row_count):
        if moved[row] != NONE:
            moved[row] = kept
            if kept != row:
                clock_rows[kept] = clock_rows[row]
            kept += 1
    for queue in range(queues):
        for place in range(offsets[queue], offsets[queue] + sizes[queue]):
            rows[place] = moved[rows[place]]
    return kept
