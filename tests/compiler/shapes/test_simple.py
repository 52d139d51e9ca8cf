"""The simple table: identical units, their tails, and what they cost (SHAPE-2, SHAPE-4, SHAPE-6, G-8)."""

from __future__ import annotations

from contextlib import suppress
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import RequestError
from compiler.shapes.cost import CallCost
from compiler.shapes.simple import SimpleChooser, simple_table
from compiler.shapes.table import ShapeTable, expand
from compiler.shapes.tails import TailMode
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.given import problems, product_cost, units_of
from tests.compiler.shapes.recount import assert_table_holds

Piece = tuple[int, int, str]


def pieces(table: ShapeTable) -> list[Piece]:
    """Start, length and mode of the calls of a 1-D table."""
    entries = expand(table)
    rows = zip(entries.starts[:, 0], entries.lengths[:, 0], entries.modes[:, 0], strict=True)
    return [(int(start), int(length), TailMode(int(mode)).text) for start, length, mode in rows]


@pytest.mark.parametrize(
    ("mode", "low", "tail", "cycles"),
    [
        # 3 calls of 10 + 5 computed; results stored: 11 elements and 3 starts of 5
        (TailMode.DISCARD, 5, (10, 1, "discard"), 3 * 15 + 11 + 15),
        # 11 elements computed, once a length is given
        (TailMode.FULL_RANGE, 0, (10, 1, "full-range"), 3 * 10 + 11 + 3 + 11 + 15),
    ],
)
def test_eleven_is_covered_by_fives_in_each_mode(mode: TailMode, low: int, tail: Piece, cycles: float) -> None:
    """G-8: 5 + 5 + 5 with a surplus of 4 discarded, or 5 + 5 + 1."""
    units, cost = units_of([[5]], [[low]]), product_cost([5])
    table = simple_table(units, cost, (11,), (mode,))
    assert pieces(table) == [(0, 5, "exact"), (5, 5, "exact"), tail]
    assert table.cost_cycles == cycles
    assert_table_holds(table, units, cost)


def test_units_of_sixteen_that_vary_from_nothing_to_sixteen() -> None:
    """G-8: full-range; any tail is given its length, and no tail is no call."""
    units, cost = units_of([[16]], [[0]]), product_cost([16], variable=0.5)
    for length in range(1, 65):
        table = simple_table(units, cost, (length,))
        modes = [piece[2] for piece in pieces(table)]
        assert modes == ["exact"] * (length // 16) + ["full-range"] * (length % 16 > 0)
        assert_table_holds(table, units, cost)


def test_a_dear_length_is_rather_discarded() -> None:
    """SHAPE-4: the mode is chosen by cost; giving a length costs 3 cycles here, discarding one element 1."""
    units, cost = units_of([[16]], [[0]]), product_cost([16])
    assert [pieces(simple_table(units, cost, (length,)))[-1][2] for length in (12, 13, 14, 15)] == [
        "full-range",
        "full-range",
        "discard",
        "discard",
    ]


def test_units_of_a_hundred_that_vary_from_ninety() -> None:
    """G-8: tail-range; shorter tails are discarded."""
    units, cost = units_of([[100]], [[90]]), product_cost([100])
    expected = {100: "exact", 95: "tail-range", 90: "tail-range", 89: "discard", 1: "discard"}
    for tail, mode in expected.items():
        table = simple_table(units, cost, (100 + tail,))
        assert pieces(table)[-1] == (100, tail, mode)
        assert_table_holds(table, units, cost)


def test_a_three_dimensional_single_input() -> None:
    """G-8: every axis has its own tail; the input has all three axes, as the result has."""
    units, cost = units_of([[2, 4, 8]]), product_cost([2, 4, 8], [(0, 1, 2)])
    table = simple_table(units, cost, (5, 6, 16))
    assert table.calls == 3 * 2 * 2
    assert len(table.runs) == 4
    # 12 calls of 10 + 64; the input and the result are moved by each call, and only inside the tensor
    assert table.cost_cycles == 12 * 74 + 2 * (12 * 5 + 5 * 6 * 16)
    assert_table_holds(table, units, cost)


@pytest.mark.parametrize("shape", [(8, 64), (64, 8)])
def test_a_matrix_with_a_vector_moves_the_vector_once_per_strip(shape: tuple[int, int]) -> None:
    """G-8: 2-D data with a 1-D operand that has only axis 1; it stays while calls go on along axis 0."""
    units = units_of([[4, 4]])
    cost = product_cost([4, 4], [(1,)], call=0, start=100, move=10)
    table = simple_table(units, cost, shape)
    assert table.runs["order"][0][:2].tolist() == [1, 0]
    columns, calls = shape[1] // 4, shape[0] * shape[1] // 16
    assert table.cost_cycles == calls * 16 + columns * (100 + 40) + calls * 100 + shape[0] * shape[1]
    assert_table_holds(table, units, cost)


@pytest.mark.parametrize(
    ("extent", "low", "length", "mode"),
    [
        # 3 cycles that a length costs, against a tile of 16 of which 15 or 1 lie outside
        (16, 0, 33, TailMode.FULL_RANGE),
        (100, 90, 191, TailMode.TAIL_RANGE),
        # one or two cycles that lie outside are less than 3; the tail is too short for the unit's range
        (16, 0, 31, TailMode.DISCARD),
        (100, 90, 130, TailMode.DISCARD),
    ],
)
def test_each_mode_is_chosen_where_it_is_cheaper_than_the_others(
    extent: int, low: int, length: int, mode: TailMode
) -> None:
    """SHAPE-4: the mode is chosen by cost; a length that is given costs scalar work."""
    units, cost = units_of([[extent]], [[low]]), product_cost([extent])
    table = simple_table(units, cost, (length,))
    assert table.runs["mode"][-1, 0] == mode
    for other in TailMode:
        if other not in (mode, TailMode.EXACT):
            with suppress(RequestError):
                assert simple_table(units, cost, (length,), (other,)).cost_cycles > table.cost_cycles


@pytest.mark.parametrize(("shape", "mode"), [((11,), TailMode.FULL_RANGE), ((11,), TailMode.EXACT)])
def test_a_mode_that_no_unit_serves_is_refused(shape: tuple[int, ...], mode: TailMode) -> None:
    with pytest.raises(RequestError, match="as demanded") as caught:
        simple_table(units_of([[5]]), product_cost([5]), shape, (mode,))
    assert caught.value.code == "tail_refused"


def test_shapes_of_other_axes_and_unknown_costs_are_refused() -> None:
    units = units_of([[5]])
    with pytest.raises(RequestError, match="tiled axes"):
        simple_table(units, product_cost([5]), (3, 4))
    with pytest.raises(RequestError, match="not known"):
        simple_table(units, product_cost([4]), (3,))


def test_an_empty_shape_has_no_calls() -> None:
    units, cost = units_of([[5, 5]]), product_cost([5, 5])
    table = simple_table(units, cost, (0, 7))
    assert (table.calls, table.cost_cycles) == (0, 0.0)
    assert len(expand(table).units) == 0


def cheapest_grid(units: UnitSet, cost: CallCost, shape: tuple[int, ...]) -> float:
    """The least cost of one unit's grid by trying units, call orders and tail modes, call by call."""
    found = []
    for extents, lows in zip(units.extents.tolist(), units.lows.tolist(), strict=True):
        axes = []
        for extent, low, length in zip(extents, lows, shape, strict=True):
            count, tail = divmod(length, extent)
            whole = [(extent, extent, 0)] * count
            ways = [[*whole, (extent, tail, 0)]] if tail else [whole]
            if tail and tail >= low:
                ways.append([*whole, (tail, tail, 1)])
            axes.append(ways)
        for ways, order in product(list(product(*axes)), permutations(range(len(shape)))):
            found.append(_grid_cycles(ways, order, cost))
    return min(found)


def _grid_cycles(ways: tuple[list[tuple[int, int, int]], ...], order: tuple[int, ...], cost: CallCost) -> float:
    """The cycles of a grid of pieces (computed, moved, length given), the last axis of the order innermost."""
    total = 0.0
    for place in product(*(range(len(ways[axis])) for axis in order)):
        at = dict(zip(order, place, strict=True))
        call = [ways[axis][at[axis]] for axis in range(len(order))]
        total += cost.work_cycles([piece[0] for piece in call], sum(piece[2] for piece in call))
        for operand in cost.operands:
            # new if all loops inside its deepest axis are at their first turn
            deepest = max((order.index(axis) for axis in operand.axes), default=-1)
            if not any(place[deepest + 1 :]):
                total += operand.cycles([piece[1] for piece in call])
    return total


@given(problems(lengths=12))
def test_no_grid_of_one_unit_is_cheaper(problem: tuple[UnitSet, CallCost, tuple[int, ...]]) -> None:
    units, cost, shape = problem
    table = simple_table(units, cost, shape)
    assert_table_holds(table, units, cost)
    if 0 not in shape:
        assert table.cost_cycles == pytest.approx(cheapest_grid(units, cost, shape), rel=1e-9)


@given(problems(ranks=(1, 2, 3, 4)))
def test_a_table_covers_its_shape_and_costs_what_its_calls_add_up_to(
    problem: tuple[UnitSet, CallCost, tuple[int, ...]],
) -> None:
    units, cost, shape = problem
    table = simple_table(units, cost, shape)
    assert_table_holds(table, units, cost)
    assert len(table.runs) <= 2 ** len(shape)


@given(st.integers(1, 10**12))
def test_a_table_does_not_grow_with_its_shape(length: int) -> None:
    """SHAPE-2: runs of equal calls are stored as one."""
    table = simple_table(units_of([[7, 5]]), product_cost([7, 5]), (length, 13))
    assert len(table.runs) <= 4
    assert table.calls == -(-length // 7) * 3


def test_costs_by_unit_are_those_of_tables_of_that_unit_alone() -> None:
    units, cost = units_of([[4, 3], [7, 7], [1, 2]], [[0, 3], [7, 6], [1, 2]]), product_cost([7, 7], [(0,), (1,)])
    alone = [simple_table(units.chosen([unit]), cost, (9, 11)).cost_cycles for unit in range(3)]
    assert np.allclose(SimpleChooser.build(units, cost).unit_costs((9, 11)), alone, rtol=1e-12)
