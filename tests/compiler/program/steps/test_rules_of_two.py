"""What a counter with two values adds to a number that takes turns along another counter (SCHED-2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from compiler.program.steps.action import Action, Copy, Inner, Numbers, Space
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.cells import Cells
from compiler.program.steps.statements import numbers_at, statements_of

ROWS, COLUMNS = 5, 2
KEY = Copy(0, 0, 0, 0, 1, 1, (4, (1,) * 4, (0,) * 4, (0,) * 4))


class Copies:
    """One copy a tile, from the address that a table has for it."""

    def __init__(self, addresses: Mapping[tuple[int, ...], int]) -> None:
        self.addresses = addresses
        self.iterations = ROWS * COLUMNS
        self.once = [False]

    def doing(self, iteration: int) -> Sequence[int]:
        return [0] if iteration >= 0 else []

    def works(self, step: int) -> bool:
        del step
        return True

    def spaces(self, step: int) -> Mapping[int, Space]:
        del step
        return {0: Space((ROWS, COLUMNS), (COLUMNS, 1), 0)}

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        del unit
        return [[Run(0, 1, ROWS)], [Run(0, 1, COLUMNS)]]

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        del step, unit, counters
        return []

    def unit_of(self, queue: int) -> int:
        del queue
        return 0

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        del step
        return [Action(KEY, (self.addresses[divmod(iteration, COLUMNS)], 0))]


def test_a_tile_that_follows_neither_rule_has_a_statement_of_its_own() -> None:
    """SCHED-2: a number neither turns with the second counter nor keeps its buffer."""
    addresses: dict[tuple[int, ...], int] = {
        (row, column): row % 2 * 100 + column * 7 for row, column in product(range(ROWS), range(COLUMNS))
    }
    addresses[1, 1] = 50
    found: dict[tuple[int, ...], int] = {}
    for statement in statements_of(Cells(Copies(addresses))):
        for places in product(*(range(run.tiles) for run in statement.runs)):
            counters = [run.values[place] for run, place in zip(statement.runs, places, strict=True)]
            found[tuple(counters)] = numbers_at(statement.base, statement.rule, places)[0]
    assert found == addresses
