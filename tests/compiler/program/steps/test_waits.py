"""What statements of one step wait for (PROG-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from compiler.program.steps.action import Action, Copy, Inner, Numbers, Space, Steps
from compiler.program.steps.assemble import GroupStatements
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.cells import Cells
from compiler.program.steps.commands import Kinds, Nodes
from compiler.program.steps.conflicts import conflicts_of, walked
from compiler.program.steps.key_rows import KeyRows
from compiler.program.steps.loop_rows import loop_rows_of
from compiler.program.steps.rows import CommandRows
from compiler.program.steps.statement_commands import StatementCommands
from compiler.program.steps.statements import Statement, statements_of
from compiler.program.steps.waits import Inside, inside_of

TILES, RARE = 20, 9
OFTEN, SELDOM = 0, 1
# Where the tiles of `Scattered` write, and which tile reads what the second one wrote.
PLACES, LATE = (0, 64, 200, 512), 3


class TwoUnits:
    """Unit OFTEN copies from one place at all tiles; at tile RARE unit SELDOM writes there before, in the same step."""

    def __init__(self) -> None:
        self.iterations = TILES
        self.once = [False]

    def doing(self, iteration: int) -> Sequence[int]:
        return [0] if iteration >= 0 else []

    def works(self, step: int) -> bool:
        del step
        return True

    def spaces(self, step: int) -> Mapping[int, Space]:
        del step
        return dict.fromkeys((OFTEN, SELDOM), Space((TILES,), (1,), 0))

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        if unit == OFTEN:
            return [[Run(0, 1, TILES)]]
        return [[Run(0, 1, RARE), Run(RARE, 1, 1), Run(RARE + 1, 1, TILES - RARE - 1)]]

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        del step, unit, counters
        return []

    def unit_of(self, queue: int) -> int:
        return queue

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        del step
        seldom = [_copy(SELDOM, 64, 0)] if iteration == RARE else []
        return [*seldom, _copy(OFTEN, 0, 128)]


def _copy(queue: int, source: int, target: int) -> Action:
    return Action(_key(queue), (source, target))


@cache
def _key(queue: int) -> Copy:
    return Copy(0, queue, 0, 1, 1, 1, (8, (1,) * 4, (0,) * 4, (0,) * 4))


def _group(steps: Steps) -> tuple[GroupStatements, Sequence[Statement], Inside]:
    """A group of one step, its statements, and what waits inside it."""
    cells, kinds = Cells(steps), Kinds()
    statements = list(statements_of(cells))
    commands = StatementCommands(steps, statements).at(walked(cells), kinds)
    none = np.zeros(len(statements), dtype=np.int64)
    queues = np.array([its.queue for its in statements], dtype=np.int64)
    nodes = Nodes.of([(0, none, queues)])
    group = GroupStatements(
        number=0,
        rows=CommandRows(commands=none, calls=none, bindings=none),
        kinds=kinds.of((its.key, its.base) for its in statements),
        first_kind=0,
        loops=loop_rows_of(statements),
        nodes=nodes.numbers(0, none, queues),
        places=np.array([its.place for its in statements], dtype=np.int64),
        ranks=np.array([its.rank for its in statements], dtype=np.int64),
        iterations=steps.iterations,
        is_listed=False,
    )
    conflicts = conflicts_of(nodes, [commands], [KeyRows.of(kinds.keys)], [steps.iterations], [])
    return group, statements, inside_of(group, conflicts)


def _pairs(inside: Inside) -> set[tuple[int, int, int]]:
    return set(zip(*(column.tolist() for column in inside.pairs), strict=True))


def test_what_another_unit_does_at_one_tile_is_waited_for() -> None:
    """PROG-5: no tile that the statement was found from has it, so places in the step are off by one there."""
    _, statements, inside = _group(TwoUnits())
    assert [(its.queue, its.place, its.tiles) for its in statements] == [(OFTEN, 0, TILES), (SELDOM, 0, 1)]
    often, seldom = inside.slot_of.tolist()
    assert (seldom, often, 0) in _pairs(inside)
    assert inside.levels[0] > inside.levels[1]


class Scattered(TwoUnits):
    """Unit OFTEN writes to places without a rule; unit SELDOM reads one of them, two tiles later."""

    def __init__(self) -> None:
        self.iterations = len(PLACES)
        self.once = [False]

    def spaces(self, step: int) -> Mapping[int, Space]:
        del step
        return dict.fromkeys((OFTEN, SELDOM), Space((len(PLACES),), (1,), 0))

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        del unit
        return [[Run(0, 1, len(PLACES))]]

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        del step
        read = PLACES[1] if iteration == LATE else 1000 + PLACES[iteration]
        return [_copy(OFTEN, 4000, PLACES[iteration]), _copy(SELDOM, read, 2000 + PLACES[iteration])]


def test_a_statement_that_was_walked_through_waits_for_what_it_meets_only() -> None:
    """PROG-5: by kind and rank all reads would wait for all writes two tiles before."""
    _, statements, inside = _group(Scattered())
    # two tiles each: whatever two numbers are, they go up evenly
    assert [(its.queue, its.tiles) for its in statements] == [(OFTEN, 2), (OFTEN, 2), (SELDOM, 2), (SELDOM, 2)]
    first_write, second_write, first_read, second_read = inside.slot_of.tolist()
    assert len({first_write, second_write, first_read, second_read}) == len(statements)
    assert _pairs(inside) == {(first_write, second_read, LATE - 1)}
