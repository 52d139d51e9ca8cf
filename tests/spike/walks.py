"""What each engine's loop does in an iteration, without listing iterations, and how often that repeats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.spike.actions import Unit
from tests.spike.statements import Looped, Position, Statement

Instance = tuple[Statement, Position]


class Walks:
    """The statements that hold in an iteration, found by the runs that its tiles' counters lie in."""

    def __init__(self, found: Looped) -> None:
        self.iterations, self.entry = found.iterations, found.entry
        self.queues = found.by_queue()
        self._runs: dict[int, tuple[Unit, list[list[int]]]] = {}
        self._known: dict[tuple[int, Any], list[Statement]] = {}
        self._stages: dict[int, tuple[int, ...]] = {}
        by_unit: dict[int, tuple[Unit, list[Statement]]] = {}
        for statement in found.statements:
            if statement.unit is not None:
                by_unit.setdefault(id(statement.unit), (statement.unit, []))[1].append(statement)
        for key, (unit, its) in by_unit.items():
            self._runs[key] = unit, [_classes(axis, count, its) for axis, count in enumerate(unit.counts)]
        self._unit_of = {
            queue: next((s.unit for s in its if s.unit is not None), None) for queue, its in self.queues.items()
        }
        for queue, its in self.queues.items():
            self._stages[queue] = tuple(sorted({s.stage for s in its if s.unit is not None}))
        self.kinds = self._kinds()

    def _class(self, unit: Unit, number: int) -> tuple[int, ...]:
        """In which runs a tile of a core lies; empty for none."""
        if not 0 <= number < unit.strides()[0] * unit.counts[0]:
            return ()
        classes = self._runs[id(unit)][1]
        return tuple(axis[value] for axis, value in zip(classes, unit.local(number), strict=True))

    def _kind(self, queue: int, iteration: int) -> Any:
        unit = self._unit_of[queue]
        if unit is None:
            return iteration == self.entry
        tiles = tuple(self._class(unit, iteration + stage - unit.lag) for stage in self._stages[queue])
        return tiles, iteration == self.entry

    def _kinds(self) -> Any:
        """By iteration a number for what all engines do in it; shape (iterations,)."""
        known: dict[Any, int] = {}
        found = []
        for iteration in self.iterations:
            kind = tuple(self._kind(queue, iteration) for queue in self.queues)
            found.append(known.setdefault(kind, len(known)))
        return np.array(found, dtype=np.int64)

    def at(self, queue: int, iteration: int) -> list[Statement]:
        """The statements that an engine runs in an iteration, in order."""
        key = queue, self._kind(queue, iteration)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = [s for s in self.queues[queue] if _holds(s, iteration, self.entry)]
        return found

    def alike(self, iteration: int, period: int) -> int:
        """How many iterations from one on are followed, a period later, by one that does the same."""
        begin = iteration - self.iterations.start
        kinds = self.kinds
        same = kinds[begin : len(kinds) - period] == kinds[begin + period :]
        return int(np.argmin(same)) if not same.all() else len(same)


def _holds(statement: Statement, iteration: int, entry: int) -> bool:
    unit = statement.unit
    if unit is None:
        return iteration == entry
    number = iteration + statement.stage - unit.lag
    if not 0 <= number < unit.strides()[0] * unit.counts[0]:
        return False
    return all(run.place(value) >= 0 for run, value in zip(statement.runs, unit.local(number), strict=True))


def _classes(axis: int, count: int, statements: Sequence[Statement]) -> list[int]:
    """By value of a counter a number for the runs that it lies in."""
    runs = sorted({statement.runs[axis] for statement in statements})
    known: dict[tuple[bool, ...], int] = {}
    return [known.setdefault(tuple(r.place(value) >= 0 for r in runs), len(known)) for value in range(count)]
