"""What happens before what: vector clocks over the queues of a program (PROG-4)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.program import Program

Clocks = NDArray[np.int32]
# Commands whose waits are listed at once.
_BLOCK: Final = 4096
# With more waits than this they are compared with the clock at once.
_MANY: Final = 12


def clocks_of(program: Program) -> Clocks:
    """Per command and queue the last command of that queue that has surely ended when the command starts.

    Commands count from 1; 0 stands for what is there before the program runs. Row c, column q: command number of
    queue q that is command c itself or happens before it, by waits and by the order within queues. Shape (commands +
    1, queues).
    """
    count, width = len(program.commands), len(program.queues)
    clocks = np.zeros((count + 1, width), dtype=np.int32)
    last = [0] * width
    queues = program.commands["queue"]
    maximum = np.maximum
    for begin in range(0, count, _BLOCK):
        end = min(count, begin + _BLOCK)
        offsets = program.wait_offsets[begin : end + 1].tolist()
        waits = program.waits[offsets[0] : offsets[-1]].astype(np.int64) + 1
        of_waits = queues[waits - 1]
        pairs = list(zip(waits.tolist(), of_waits.tolist(), strict=True))
        start = 0
        for number, queue, stop in zip(
            range(begin + 1, end + 1), queues[begin:end].tolist(), [at - offsets[0] for at in offsets[1:]], strict=True
        ):
            row, known = clocks[number], clocks[last[queue]]
            its = pairs[start:stop]
            if stop - start > _MANY:
                # of many most are known to have ended by what the queue's last command knew
                new = known[of_waits[start:stop]] < waits[start:stop]
                its = [its[place] for place in new.nonzero()[0].tolist()]
            # latest first: what is known to have ended by then brings nothing new
            for other, its_queue in reversed(its):
                if known.item(its_queue) < other:
                    known = maximum(known, clocks[other], out=row)
            if known is not row:
                row[:] = known
            row[queue] = number
            last[queue] = number
            start = stop
    return clocks
