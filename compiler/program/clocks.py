"""What happens before what: vector clocks over the queues of a program (PROG-4)."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.program import Program
from compiler.program.strided import Flags, Ints

Clocks = NDArray[np.int32]
# Commands with waits that are listed at once.
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
    queues = program.commands["queue"].astype(np.int64)
    owners, waits, of_waits = _new_waits(program, queues)
    # a command that waits for nothing new knows what the one before it in its queue knew: only the others have rows
    # at first, and `bases` says whose row stands for a command's
    has_row = np.zeros(count, dtype=np.bool_)
    has_row[owners - 1] = True
    bases, before = _bases(queues, has_row)
    waiting, firsts = np.unique(owners, return_index=True)
    stops = np.append(firsts, len(owners))[1:]
    maximum = np.maximum
    for begin in range(0, len(waiting), _BLOCK):
        block = slice(begin, begin + _BLOCK)
        low, high = int(firsts[block][0]), int(stops[block][-1])
        triples = list(
            zip(waits[low:high].tolist(), bases[waits[low:high]].tolist(), of_waits[low:high].tolist(), strict=True)
        )
        columns = (waiting[block], before[waiting[block]], queues[waiting[block] - 1], firsts[block], stops[block])
        for number, last, queue, start, stop in zip(*(column.tolist() for column in columns), strict=True):
            row, known = clocks[number], clocks[last]
            its = triples[start - low : stop - low]
            if stop - start > _MANY:
                # of many most are known to have ended by what the queue's last command knew
                new = known[of_waits[start:stop]] < waits[start:stop]
                its = [its[place] for place in new.nonzero()[0].tolist()]
            # latest first: what is known to have ended by then brings nothing new
            for other, base, its_queue in reversed(its):
                if known.item(its_queue) < other:
                    known = maximum(known, clocks[base], out=row)
                    row[its_queue] = other
            if known is not row:
                row[:] = known
            row[queue] = number
    rest = np.flatnonzero(~has_row) + 1
    clocks[rest] = clocks[bases[rest]]
    clocks[rest, queues[rest - 1]] = rest
    return clocks


def _new_waits(program: Program, queues: Ints) -> tuple[Ints, Ints, Ints]:
    """Waits by command: who waits, for whom, and of what queue that is; commands count from 1.

    Without those for a command that is not after one that an earlier command of the same queue has waited for.
    """
    count, width = len(program.commands), len(program.queues)
    offsets = program.wait_offsets.astype(np.int64)
    owners = np.repeat(np.arange(1, count + 1), offsets[1:] - offsets[:-1])
    waits = program.waits.astype(np.int64) + 1
    of_waits = queues[waits - 1]
    pairs = queues[owners - 1] * width + of_waits
    order = np.argsort(pairs, kind="stable")
    latest = np.maximum.accumulate(pairs[order] * (count + 1) + waits[order])
    is_new = np.ones(len(order), dtype=np.bool_)
    is_new[1:] = latest[1:] > latest[:-1]
    kept = np.sort(order[is_new])
    return owners[kept], waits[kept], of_waits[kept]


def _bases(queues: Ints, has_row: Flags) -> tuple[Ints, Ints]:
    """By command, counted from 1, the last one of its queue that has a row, itself included, and before it; 0: none."""
    count = len(queues)
    order = np.argsort(queues, kind="stable")
    # numbers of other queues are out of reach of a queue's own
    offsets = queues[order] * (count + 1)
    latest = np.maximum.accumulate(offsets + np.where(has_row, np.arange(1, count + 1), 0)[order]) - offsets
    is_first = np.diff(queues[order], prepend=-1) > 0
    bases, before = np.zeros(count + 1, dtype=np.int64), np.zeros(count + 1, dtype=np.int64)
    bases[order + 1] = latest
    before[order + 1] = np.where(is_first, 0, np.concatenate([[0], latest[:-1]]))
    return bases, before
