"""Runs of counters, rules of numbers, and which steps meet (SCHED-2, PROG-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np
import pytest

from compiler.program.steps.action import Action, Copy, Inner, Numbers, Space
from compiler.program.steps.axis_runs import Columns, Run, runs_of
from compiler.program.steps.cells import Cells
from compiler.program.steps.commands import Commands, Kinds, Nodes, all_commands
from compiler.program.steps.conflicts import conflicts_of, walked
from compiler.program.steps.group_columns import columns_of
from compiler.program.steps.key_rows import KeyRows
from compiler.program.steps.statement_commands import StatementCommands
from compiler.program.steps.statements import numbers_at, statements_of

LOAD, CALL = 0, 1
TILE = 64
# Group, step and engine.
Node = tuple[int, int, int]


class Pipeline:
    """A tile is loaded to one of `buffers`, and what a call makes of it lies beside; `rows` times `width` tiles.

    What is read skips `gap` bytes at the end of each row.
    """

    def __init__(self, rows: int, width: int, *, buffers: int = 2, gap: int = 0, halves: int = 1) -> None:
        self.rows, self.width, self.buffers, self.gap, self.halves = rows, width, buffers, gap, halves
        self.iterations = rows * width * halves
        self.once = [False, False]

    def doing(self, iteration: int) -> Sequence[int]:
        return range(len(self.once)) if iteration >= 0 else []

    def works(self, step: int) -> bool:
        del step
        return True

    def spaces(self, step: int) -> Mapping[int, Space]:
        del step
        return {0: Space((self.rows, self.width), (self.width * self.halves, self.halves), 0)}

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        del unit
        return [[Run(0, 1, count)] for count in (self.rows, self.width)]

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        del step, unit, counters
        return [Inner(self.halves, 1)] if self.halves > 1 else []

    def unit_of(self, queue: int) -> int:
        del queue
        return 0

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        tile, half = divmod(iteration, self.halves)
        if half and step == LOAD:
            return []
        place = tile % self.buffers * TILE
        source = tile * TILE + tile // self.width * self.gap
        size = TILE // self.halves
        if step == LOAD:
            return [_copy(0, (0, source), (1, place), TILE)]
        return [_copy(1, (1, place + half * size), (1, 4 * TILE), size)]


def _copy(queue: int, source: tuple[int, int], target: tuple[int, int], size: int) -> Action:
    return Action(_key(queue, source[0], target[0], size), (source[1], target[1]))


@cache
def _key(queue: int, source: int, target: int, size: int) -> Copy:
    return Copy(0, queue, 0, source, target, 1, (size, (1,) * 4, (0,) * 4, (0,) * 4))


def distances_of(groups: Sequence[Pipeline], regions: Sequence[tuple[int, int]]) -> dict[tuple[Node, Node], int]:
    """By pairs of nodes of groups that follow one another the least iterations between them."""
    kinds = Kinds()
    cells = [Cells(group) for group in groups]
    commands = [StatementCommands(its.steps, list(statements_of(its))).at(walked(its), kinds) for its in cells]
    nodes = Nodes.of((number, its.steps, its.queues) for number, its in enumerate(commands))
    keys = [KeyRows.of(kinds.keys)] * len(groups)
    conflicts = conflicts_of(nodes, commands, keys, [group.iterations for group in groups], regions)
    names = list(zip(nodes.groups.tolist(), nodes.steps.tolist(), nodes.queues.tolist(), strict=True))
    # what goes through the DRAM is waited for whole
    found = {(names[one], names[other]): 0 for one, other in zip(conflicts.writers, conflicts.readers, strict=True)}
    pairs = conflicts.pairs
    for one, other, gap in zip(pairs.before, pairs.after, pairs.distances, strict=True):
        found.setdefault((names[one], names[other]), int(gap))
    return found


@pytest.mark.parametrize("pipeline", [Pipeline(5, 6), Pipeline(4, 7, gap=32), Pipeline(3, 5, halves=4)])
def test_statements_say_what_steps_say_at_every_tile(pipeline: Pipeline) -> None:
    found: dict[tuple[int, int], Numbers] = {}
    for statement in statements_of(Cells(pipeline)):
        assert statement.space is not None
        for places in np.ndindex(*(run.tiles for run in statement.runs)):
            counters = [run.values[place] for run, place in zip(statement.runs, places, strict=True)]
            at = statement.step, statement.space.iteration(counters)
            assert at not in found
            found[at] = numbers_at(statement.base, statement.rule, places)
    for iteration in range(pipeline.iterations):
        for step in (LOAD, CALL):
            its = [action.numbers for action in pipeline.at(step, iteration)]
            assert its == ([found.pop((step, iteration))] if its else [])
    assert not found


@pytest.mark.parametrize("pipeline", [Pipeline(5, 6), Pipeline(4, 7, gap=32), Pipeline(3, 5, halves=4)])
def test_commands_of_statements_are_those_that_steps_say(pipeline: Pipeline) -> None:
    statements, kinds = StatementCommands(pipeline, list(statements_of(Cells(pipeline)))), Kinds()
    every = all_commands(pipeline, kinds, 1 << 20)
    assert every is not None
    assert _columns_of(every) == _columns_of(statements.at(np.arange(-1, pipeline.iterations), kinds))
    for count in (0, 5, len(every) - 1, len(every)):
        first = _columns_of(statements.first(count, 2, pipeline.iterations, kinds))
        # the first iteration after which there are two, and more commands than so many
        more = every.iterations[min(count, len(every) - 1)]
        assert first == [its for its in _columns_of(every) if its[0] <= max(1, more)]


class Counted(Pipeline):
    """Says how often it is asked."""

    asked = 0

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        self.asked += 1
        return super().at(step, iteration)


def test_a_group_whose_statements_show_at_few_tiles_is_listed_without_asking_for_all() -> None:
    pipeline = Counted(20, 20)
    found, count = columns_of(pipeline, 4096), pipeline.asked
    every = all_commands(pipeline, Kinds(), 1 << 20)
    assert every is not None
    assert found.is_listed
    assert _columns_of(found.first) == _columns_of(every)
    assert count < pipeline.iterations / 4


def _columns_of(commands: Commands) -> list[tuple[int, int, int, int, int, list[int]]]:
    columns = (commands.iterations, commands.steps, commands.queues, commands.ranks, commands.kinds)
    rows = np.split(commands.numbers.rows, commands.numbers.offsets[1:-1])
    return list(zip(*(its.tolist() for its in columns), [its.tolist() for its in rows], strict=True))


@pytest.mark.parametrize("width", [6, 7])
def test_two_buffers_in_turn_are_a_ring_whatever_the_width(width: int) -> None:
    statements = list(statements_of(Cells(Pipeline(5, width))))
    assert len(statements) == 2
    assert [statement.rule.other[1] for statement in statements] == [TILE, 0]


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_who_reuses_a_buffer_comes_as_many_tiles_later(buffers: int) -> None:
    distances = distances_of([Pipeline(6, 8, buffers=buffers)], [])
    load, call = (0, LOAD, 0), (0, CALL, 1)
    assert distances == {(load, call): 0, (call, load): buffers}


def test_a_group_waits_for_the_last_tiles_of_the_one_before_that_used_its_bytes() -> None:
    distances = distances_of([Pipeline(3, 4), Pipeline(2, 2)], [])
    # the buffer of the second group's first tile was last read by the tile before the last of the first
    assert distances[(0, CALL, 1), (1, LOAD, 0)] == 0
    alone = distances_of([Pipeline(3, 5), Pipeline(1, 1)], [])
    assert alone[(0, CALL, 1), (1, LOAD, 0)] == 0
    assert distances_of([Pipeline(3, 4), Pipeline(1, 1)], [])[(0, CALL, 1), (1, LOAD, 0)] == 1


def test_a_region_between_groups_is_waited_for_whole() -> None:
    class Storing(Pipeline):
        """The same the other way round: what lies on the chip goes to DRAM."""

        def at(self, step: int, iteration: int) -> Sequence[Action]:
            return [_copy(2, (1, 8 * TILE), (0, iteration * TILE), TILE)] if step == LOAD else []

    distances = distances_of([Storing(2, 2), Pipeline(2, 2)], [(0, 4 * TILE)])
    assert distances[(0, LOAD, 2), (1, LOAD, 0)] == 0
    assert ((0, LOAD, 2), (1, LOAD, 0)) not in distances_of([Storing(2, 2), Pipeline(2, 2)], [])


def test_runs_end_where_lengths_change_and_take_the_shortest_list() -> None:
    starts = np.arange(10).reshape(-1, 1) * 3
    clipped = np.array([2, *[3] * 8, 1]).reshape(-1, 1)
    assert runs_of(Columns(even=starts, same=clipped)) == [Run(0, 1, 1), Run(1, 1, 8), Run(9, 1, 1)]
    in_turn = np.array([0, 1] * 5).reshape(-1, 1)
    assert runs_of(Columns(even=starts, same=in_turn)) == [Run(0, 2, 5), Run(1, 2, 5)]


def test_turns_of_a_loop_that_only_seem_to_be_rows_are_none() -> None:
    """Places that repeat after seven of 28 times: in rows of four the corners alone would fit a ring."""

    class Turning(Pipeline):
        def at(self, step: int, iteration: int) -> Sequence[Action]:
            its = iteration % self.halves
            return [_copy(1, (1, its % 7 * TILE), (1, 8 * TILE), TILE)] if step == CALL else []

    statements = list(statements_of(Cells(Turning(3, 1, halves=28))))
    assert [statement.tiles for statement in statements] == [84]
    for place in np.ndindex(*(run.tiles for run in statements[0].runs)):
        *_, row, inside = place
        assert numbers_at(statements[0].base, statements[0].rule, place)[0] == inside * TILE
        assert 0 <= row < 4


def test_a_loop_that_later_tiles_go_through_more_often_loses_none_of_its_times() -> None:
    """SCHED-2: times of an inner loop are those of the tile that has most, not those of a run's first tile."""

    class Growing(Pipeline):
        """The first tile of each row has one half, the others have all."""

        def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
            del step, unit
            return [Inner(self.halves if counters[1] else 1, 1)]

        def at(self, step: int, iteration: int) -> Sequence[Action]:
            tile, half = divmod(iteration, self.halves)
            return [] if half and not tile % self.width else super().at(step, iteration)

    pipeline, found = Growing(3, 5, halves=4), set[tuple[int, int]]()
    for statement in statements_of(Cells(pipeline)):
        assert statement.space is not None
        for places in np.ndindex(*(run.tiles for run in statement.runs)):
            counters = [run.values[place] for run, place in zip(statement.runs, places, strict=True)]
            found.add((statement.step, statement.space.iteration(counters)))
    asked = ((step, iteration) for step in (LOAD, CALL) for iteration in range(pipeline.iterations))
    assert found == {(step, iteration) for step, iteration in asked if pipeline.at(step, iteration)}
