"""States of the proof at the boundaries of iterations, and jumps from one that recurs (PROG-6).

A state is the marks on the chip, the clocks, and the last commands of each engine that can be waited for. All of them
are numbers of commands of some engine. From an earlier state to a later one a number may *move*, as far as its engine
has come, or *stay*. The two states are the same if every number does one of both, the last commands are the same ones
at the same distance (of an engine that stands still, at the same place), and of each engine all clocks that stay are
below all numbers that move. Then every comparison of
a mark with a clock comes out in the next period as in this one: two that move, or stay, keep their distance; a clock
that moves stays beyond a mark that does not; a clock that stays was never beyond a mark that moves. So what was found
in one period holds of all that follow, as long as they do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compiler.program.loops.history import LONG_AGO
from compiler.program.strided import Flags, Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class State:
    """What the proof knows when an iteration begins.

    `done`: commands by engine. `marks`: numbers; each mark is of one engine for good. `clocks`: by engine; `rows`:
    those that the last commands share. `sizes`: how many last commands each engine has; of all of them, engine by
    engine, `iterations`, `statements`, and in `row_numbers` their rows. `captured`: by engine the latest of clocks that
    are kept for good.
    """

    done: Ints
    marks: Ints
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

    def recurs_in(self, later: State, period: int, mark_queues: Ints) -> bool:
        """True if a later state, by so many iterations, is the same; `mark_queues`: by mark its engine."""
        if len(self.marks) != len(later.marks) or len(self.rows) != len(later.rows):
            return False
        for one, other in (
            (self.sizes, later.sizes),
            (self.statements, later.statements),
            (self.row_numbers, later.row_numbers),
            (self._moved(later, period), later.iterations),
        ):
            if not np.array_equal(one, other):
                return False
        moves = later.done - self.done
        every = np.arange(len(moves))
        # clocks that stay, and whatever moves: by engine the greatest and the least
        stay, move = self.captured.copy(), self.done - self.sizes + 1
        for old, new, queues, is_clock in (
            (self.marks, later.marks, mark_queues, False),
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

    def stands_until(self, later: State, begin: int, distances: Sequence[Ints]) -> int:
        """Up to which iteration whoever waits for an engine that stands still finds the same last command.

        This is the state of the iteration `begin`; `distances`: by engine those at which it is waited for, ascending.
        """
        found = 1 << 60
        for at in np.flatnonzero(~self._moves(later) & (self.iterations != LONG_AGO)).tolist():
            its, place = distances[self.queues[at]], int(self.iterations[at])
            next_one = int(np.searchsorted(its, begin - place, side="right"))
            if next_one < len(its):
                found = min(found, place + int(its[next_one]))
        return found

    @property
    def queues(self) -> Ints:
        """The engine of each of the last commands."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def _moves(self, later: State) -> Flags:
        """Which of the last commands are of engines that have done something."""
        found: Flags = (later.done != self.done)[self.queues]
        return found

    def _moved(self, later: State, period: int) -> Ints:
        """The iterations of the last commands, by engines that have done something, so much later."""
        moves = self._moves(later) & (self.iterations != LONG_AGO)
        found: Ints = np.where(moves, self.iterations + period, self.iterations)
        return found

    def jumped(self, later: State, period: int, times: int, mark_queues: Ints) -> State:
        """The state so many periods after the later one; `mark_queues`: by mark its engine."""
        moves = later.done - self.done
        far = times * moves
        every = np.arange(len(moves))

        def go(old: Ints, new: Ints, queues: Ints) -> Ints:
            found: Ints = np.where(new != old, new + far[queues], new)
            return found

        return State(
            done=later.done + far,
            marks=go(self.marks, later.marks, mark_queues),
            clocks=go(self.clocks, later.clocks, every),
            rows=go(self.rows, later.rows, every),
            sizes=later.sizes,
            iterations=np.where(
                self.iterations != later.iterations, later.iterations + times * period, later.iterations
            ),
            statements=later.statements,
            row_numbers=later.row_numbers,
            captured=later.captured,
        )
