"""States of the proof at the boundaries of iterations, and jumps from one that recurs (PROG-6).

A state is the marks on the chip, the clocks, and the last commands of each engine that can be waited for. All of them
are numbers of commands of some engine. From an earlier state to a later one a number may *move*, as far as its engine
has come, or *stay*. The two states are the same if every number does one of both, the last commands are the same ones
at the same distance, and of each engine all clocks that stay are below all numbers that move. Then every comparison of
a mark with a clock comes out in the next period as in this one: two that move, or stay, keep their distance; a clock
that moves stays beyond a mark that does not; a clock that stays was never beyond a mark that moves. So what was found
in one period holds of all that follow, as long as they do the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.program.loops.judge import LONG_AGO
from compiler.program.strided import Flags, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """What the proof knows when an iteration begins.

    `done`: commands by engine. `marks`: numbers, of the engines `mark_queues`. `clocks`: by engine; `rows`: those that
    the last commands share. `sizes`: how many last commands each engine has; of all of them, engine by engine,
    `iterations`, `statements`, and in `row_numbers` their rows. `captured`: by engine the latest of clocks that are
    kept for good.
    """

    done: Ints
    marks: Ints
    mark_queues: Ints
    clocks: Ints
    rows: Ints
    sizes: Ints
    iterations: Ints
    statements: Ints
    row_numbers: Ints
    captured: Ints

    @property
    def size_bytes(self) -> int:
        """What keeping it takes."""
        parts = (self.marks, self.clocks, self.rows, self.iterations, self.statements, self.row_numbers)
        return sum(part.nbytes for part in parts)

    def recurs_in(self, later: State, period: int) -> bool:
        """True if a later state, by so many iterations, is the same."""
        if len(self.marks) != len(later.marks) or len(self.rows) != len(later.rows):
            return False
        for one, other in (
            (self.sizes, later.sizes),
            (self.statements, later.statements),
            (self.row_numbers, later.row_numbers),
            (_moved(self.iterations, period), later.iterations),
        ):
            if not np.array_equal(one, other):
                return False
        moves = later.done - self.done
        every = np.arange(len(moves))
        # clocks that stay, and whatever moves: by engine the greatest and the least
        stay, move = self.captured.copy(), self.done - self.sizes + 1
        for old, new, queues, is_clock in (
            (self.marks, later.marks, self.mark_queues, False),
            (self.clocks, later.clocks, every, True),
            (self.rows, later.rows, every, True),
        ):
            stays, goes = new == old, new == old + moves[queues]
            if not (stays | goes).all():
                return False
            if is_clock:
                np.maximum(stay, np.where(stays, old, 0).max(axis=0, initial=0), out=stay)
                np.minimum(move, np.where(goes, old, self.done).min(axis=0, initial=1 << 62), out=move)
            else:
                np.minimum.at(move, queues[goes], old[goes])
        return bool(((moves == 0) | (stay < move)).all())

    def jumped(self, later: State, period: int, times: int) -> State:
        """The state so many periods after the later one."""
        moves = later.done - self.done
        far = times * moves
        every = np.arange(len(moves))

        def go(old: Ints, new: Ints, queues: Ints) -> Ints:
            found: Ints = np.where(new != old, new + far[queues], new)
            return found

        return State(
            done=later.done + far,
            marks=go(self.marks, later.marks, self.mark_queues),
            mark_queues=later.mark_queues,
            clocks=go(self.clocks, later.clocks, every),
            rows=go(self.rows, later.rows, every),
            sizes=later.sizes,
            iterations=_moved(later.iterations, times * period),
            statements=later.statements,
            row_numbers=later.row_numbers,
            captured=later.captured,
        )


def _moved(iterations: Ints, by: int) -> Ints:
    is_recent: Flags = iterations != LONG_AGO
    found: Ints = np.where(is_recent, iterations + by, iterations)
    return found
