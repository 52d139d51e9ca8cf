"""SHAPE-5: a table serves smaller shapes: whole pieces are dropped, the last that is left is clipped."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import RequestError
from compiler.shapes.clip import clipped
from compiler.shapes.cost import CallCost
from compiler.shapes.simple import simple_table
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import check_cover, expand
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.given import problems, product_cost, units_of
from tests.compiler.shapes.recount import times_computed

Problem = tuple[UnitSet, CallCost, tuple[int, ...]]


@given(problems(ranks=(1, 2, 3, 4), lengths=25), st.data())
def test_a_clipped_table_covers_the_smaller_shape(problem: Problem, data: st.DataObject) -> None:
    units, cost, shape = problem
    shape = tuple(max(1, length) for length in shape)
    smaller = tuple(data.draw(st.integers(1, length)) for length in shape)
    for table in (simple_table(units, cost, shape), optimised_table(units, cost, shape)):
        found = clipped(table, units, smaller)
        assert (found.shape, found.kind, found.units) == (smaller, table.kind, table.units)
        for clip in (found, clipped(found, units, smaller)):
            check_cover(clip)
            assert (times_computed(clip) == 1).all()


@given(problems(ranks=(1, 2, 3), lengths=25))
def test_a_table_clipped_to_its_own_shape_is_itself(problem: Problem) -> None:
    units, cost, shape = problem
    table = optimised_table(units, cost, tuple(max(1, length) for length in shape))
    found = clipped(table, units, table.shape)
    assert found.runs.tobytes() == table.runs.tobytes()


def test_by_hand_whole_strips_go_and_the_last_is_clipped() -> None:
    """Ten positions as 4 + 4 + 2 cut to seven: 4 and a piece of 3, for which the unit is given the length."""
    units = units_of([[4], [2]], [[0], [2]])
    cost = product_cost([10])
    table = optimised_table(units, cost, (10,))
    assert expand(table).lengths.tolist() == [[4], [4], [2]]
    entries = expand(clipped(table, units, (7,)))
    assert (entries.starts.tolist(), entries.lengths.tolist()) == ([[0], [4]], [[4], [3]])
    assert entries.modes.tolist() == [[TailMode.EXACT], [TailMode.FULL_RANGE]]
    # a unit that accepts its own length alone computes the whole tile
    fixed = units_of([[4], [2]], [[4], [2]])
    entries = expand(clipped(optimised_table(fixed, cost, (10,)), fixed, (9,)))
    assert (entries.lengths.tolist(), entries.modes.tolist()[-1]) == ([[4], [4], [1]], [TailMode.DISCARD])


def test_what_cannot_be_clipped_is_refused() -> None:
    units = units_of([[4]], [[4]])
    cost = product_cost([10])
    for shape in ((11,), (0,), (4, 4)):
        with pytest.raises(RequestError, match="not larger than its own"):
            clipped(simple_table(units, cost, (10,), (TailMode.DISCARD,)), units, shape)
