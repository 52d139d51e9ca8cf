"""Which command a position of a walk is: its statement and its tile (PROG-5)."""

from __future__ import annotations

import numpy as np

from compiler.program.loops.instances import Instances, Window
from compiler.program.loops.time import ProgramTime
from compiler.program.timing.ticks import Ints


class Tiles:
    """The commands of a program that was simulated in time, by their positions."""

    def __init__(self, time: ProgramTime) -> None:
        self.instances = Instances(time.program)
        self._origins = time.origins
        self._count = max(1, len(time.origins))

    def statements(self, positions: Ints) -> Ints:
        """The statements of commands."""
        found: Ints = positions % self._count
        return found

    def places(self, positions: Ints) -> Ints:
        """The places of commands in the runs of their statements; (commands, counters)."""
        its = self.statements(positions)
        iterations = (positions - self._origins[its]) // self._count + self.instances.origins[its]
        return self.instances.places(its, iterations)

    def positions(self, window: Window) -> Ints:
        """The positions of the commands of a window."""
        its = window.statements
        found: Ints = self._origins[its] + (window.iterations - self.instances.origins[its]) * self._count
        return found

    def counters(self, positions: Ints) -> Ints:
        """The counters of commands' tiles; 0 where a space has fewer."""
        its = self.statements(positions)
        window = Window(first=0, statements=its, iterations=its, places=self.places(positions))
        return self.instances.counters(window)

    def first(self, count: int) -> Ints:
        """The positions of the first commands in program order, so many if there are."""
        parts, left = [np.zeros(0, dtype=np.int64)], count
        for window in self.instances.windows(max(1, count)) if count else ():
            parts.append(self.positions(window)[:left])
            left -= len(parts[-1])
            if not left:
                break
        return np.concatenate(parts)
