"""The optimised table: exact within strip decompositions (SHAPE-6, N-5)."""

from __future__ import annotations

from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import CallCost
from compiler.shapes.simple import simple_table
from compiler.shapes.strips import StripSearch, optimised_table
from compiler.shapes.table import expand, table_text
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.exhaustive import least_cycles
from tests.compiler.shapes.given import problems, product_cost, units_of
from tests.compiler.shapes.recount import assert_table_holds
from tests.matrices import tries

Problem = tuple[UnitSet, CallCost, tuple[int, ...]]


@given(problems(ranks=(1, 2), longest=6, most=4, lengths=13))
@tries(first=50, rest=150)
def test_no_strip_decomposition_is_cheaper(problem: Problem) -> None:
    """N-5: equal to an independent exhaustive search on small cases."""
    units, cost, shape = problem
    table = optimised_table(units, cost, shape)
    assert_table_holds(table, units, cost)
    if 0 not in shape:
        assert isclose(table.cost_cycles, least_cycles(units, cost, shape), rel_tol=1e-9)


@given(problems(ranks=(3,), longest=3, most=3))
@settings(max_examples=40)
def test_no_decomposition_into_slabs_is_cheaper(problem: Problem) -> None:
    units, cost, shape = problem
    shape = (min(shape[0], 4), min(shape[1], 5), min(shape[2], 6))
    table = optimised_table(units, cost, shape)
    assert isclose(table.cost_cycles, least_cycles(units, cost, shape), rel_tol=1e-9)


@given(problems(ranks=(1, 2, 3, 4)))
def test_an_optimised_table_covers_its_shape_and_is_no_dearer_than_the_simple_one(problem: Problem) -> None:
    units, cost, shape = problem
    table, simple = optimised_table(units, cost, shape), simple_table(units, cost, shape)
    assert_table_holds(table, units, cost)
    assert table.cost_cycles <= simple.cost_cycles * (1 + 1e-9)


@given(problems(ranks=(1, 2), lengths=30), st.data())
def test_one_search_answers_every_length_of_an_axis(problem: Problem, data: st.DataObject) -> None:
    units, cost, shape = problem
    shape = tuple(max(1, length) for length in shape)
    axis = data.draw(st.integers(0, len(shape) - 1))
    length = data.draw(st.integers(1, shape[axis]))
    search = StripSearch.build(units, cost, shape, axis)
    asked = (*shape[:axis], length, *shape[axis + 1 :])
    table, alone = search.table(asked), optimised_table(units, cost, asked)
    assert_table_holds(table, units, cost)
    assert isclose(table.cost_cycles, alone.cost_cycles, rel_tol=1e-9)
    assert table.cost_cycles == search.cycles().reshape(-1)[length - 1]


def test_eleven_is_five_and_five_and_one() -> None:
    """G-8: 5 + 5 + 1, where there is a unit of 1."""
    units, cost = units_of([[5], [1]]), product_cost([5])
    table = optimised_table(units, cost, (11,))
    assert expand(table).lengths[:, 0].tolist() == [5, 5, 1]
    # 3 calls, 11 elements computed and stored, 3 starts
    assert table.cost_cycles == 3 * 10 + 11 + 11 + 3 * 5


def test_a_strip_of_two_units_stays_a_strip_in_call_order() -> None:
    """Operand 0 has rows only: it is moved once per strip, though a strip has calls of two units."""
    units = units_of([[4, 4], [4, 2]])
    cost = product_cost([4, 4], [(0,)], start=50, move=10)
    table = optimised_table(units, cost, (8, 10))
    assert table_text(table).splitlines()[1:] == [
        "  run 0 shared 0 unit u0  0: 0+4 x2; 1: 0+4 x2",
        "  run 1 shared 1 unit u1  0: 0+4 x2; 1: 8+2",
    ]
    entries = expand(table)
    assert entries.starts.tolist() == [[0, 0], [0, 4], [0, 8], [4, 0], [4, 4], [4, 8]]
    # 6 calls, 80 elements; 2 strips of rows; results
    assert table.cost_cycles == 6 * 10 + 80 + 2 * (50 + 40) + 6 * 50 + 80
    assert_table_holds(table, units, cost)


def test_a_smaller_shape_drops_strips_and_clips_the_last() -> None:
    """SHAPE-5: longer pieces first, the tail last; for 8 fewer rows the table loses strips at its end."""
    units, cost = units_of([[8, 8], [3, 8]], [[8, 8], [0, 8]]), product_cost([8, 8])
    search = StripSearch.build(units, cost, (40, 8), axis=0)
    starts = [expand(search.table((rows, 8))).starts[:, 0].tolist() for rows in (34, 26)]
    assert starts == [[0, 8, 16, 24, 32], [0, 8, 16, 24]]


def test_searches_that_are_too_large_are_refused() -> None:
    units = units_of([[500, 500, 500]])
    with pytest.raises(LimitError, match="simple table"):
        StripSearch.build(units, product_cost([500, 500, 500]), (400, 400, 1_000_001))
    ones = units_of([[1, 1, 1], [200, 200, 200]])
    with pytest.raises(LimitError, match="combinations"):
        StripSearch.build(ones, product_cost([200, 200, 200]), (200, 200, 200))


def test_what_was_not_searched_is_not_answered() -> None:
    units, cost = units_of([[5]]), product_cost([5])
    with pytest.raises(RequestError, match="nothing to cover"):
        StripSearch.build(units, cost, (0,))
    with pytest.raises(RequestError, match="did not look"):
        StripSearch.build(units, cost, (11,)).table((7,))
    with pytest.raises(RequestError, match="did not look"):
        StripSearch.build(units, cost, (11,), axis=0).table((12,))
