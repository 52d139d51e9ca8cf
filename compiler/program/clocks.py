"""What happens before what: vector clocks over the queues of a program (PROG-4)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from compiler.program.program import Program

Clocks = NDArray[np.int32]


def clocks_of(program: Program) -> Clocks:
    """Per command and queue the last command of that queue that has surely ended when the command starts.

    Commands count from 1; 0 stands for what is there before the program runs. Row c, column q: command number of
    queue q that is command c itself or happens before it, by waits and by the order within queues. Shape (commands +
    1, queues).
    """
    count, width = len(program.commands), len(program.queues)
    clocks = np.zeros((count + 1, width), dtype=np.int32)
    last = [0] * width
    queues = program.commands["queue"].tolist()
    offsets = program.wait_offsets.tolist()
    waits = (program.waits.astype(np.int64) + 1).tolist()
    rows = list(clocks)
    maximum = np.maximum
    start = 0
    for number, (queue, stop) in enumerate(zip(queues, offsets[1:], strict=True), start=1):
        row = rows[number]
        row[:] = rows[last[queue]]
        # latest first: what is known to have ended by then brings nothing new
        for other in reversed(waits[start:stop]):
            if row.item(queues[other - 1]) < other:
                maximum(row, rows[other], out=row)
        row[queue] = number
        last[queue] = number
        start = stop
    return clocks
