"""The choice of units for a library (SHAPE-1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.shapes.library import choose_library, regret, regret_curve, shape_costs
from compiler.shapes.simple import simple_table
from tests.compiler.shapes.given import product_cost, units_of

MATRICES = st.integers(1, 7).flatmap(
    lambda shapes: st.lists(st.lists(st.integers(1, 50), min_size=shapes, max_size=shapes), min_size=1, max_size=7)
)


@given(MATRICES)
def test_all_units_together_have_no_regret_and_one_is_the_best_one(rows: list[list[int]]) -> None:
    costs, weights = np.array(rows, dtype=np.float64), [1] * len(rows[0])
    everything = choose_library(costs, weights, len(rows))
    assert len(everything) == len(set(everything)) <= len(rows)
    assert regret(costs, weights, everything) == pytest.approx(0, abs=1e-6)
    alone = regret(costs, weights, choose_library(costs, weights, 1))
    assert alone == pytest.approx(min(regret(costs, weights, [unit]) for unit in range(len(rows))), abs=1e-5)


@given(MATRICES, st.integers(1, 4))
def test_no_single_exchange_improves_a_library(rows: list[list[int]], size: int) -> None:
    costs, weights = np.array(rows, dtype=np.float64), list(range(1, len(rows[0]) + 1))
    chosen = choose_library(costs, weights, size)
    for place in range(len(chosen)):
        for unit in range(len(rows)):
            other = (*chosen[:place], unit, *chosen[place + 1 :])
            # regrets are counted in millionths
            assert regret(costs, weights, chosen) <= regret(costs, weights, other) + 1e-5


def test_two_clusters_of_shapes_get_a_unit_each() -> None:
    costs = np.array([[10.0, 10, 90, 90], [90, 90, 10, 10], [40, 40, 40, 40]])
    assert choose_library(costs, [1] * 4, 2) == (0, 1)
    # one unit alone: the middle one
    assert choose_library(costs, [1] * 4, 1) == (2,)
    # unless one cluster is asked for much more often
    assert choose_library(costs, [9, 9, 1, 1], 1) == (0,)


def test_regret_falls_with_size() -> None:
    units = units_of([[4, 4], [8, 8], [16, 16], [5, 3], [16, 1]])
    cost = product_cost([16, 16], [(0,), (1,)])
    shapes = [(m, n) for m in range(1, 20) for n in (3, 16)]
    costs = shape_costs(units, cost, shapes)
    curve = regret_curve(costs, [1] * len(shapes), (1, 2, 3, 5))
    assert [size for size, _ in curve] == [1, 2, 3, 5]
    assert [amount for _, amount in curve] == sorted((amount for _, amount in curve), reverse=True)
    assert curve[-1][1] == pytest.approx(0, abs=1e-6)


def test_the_matrix_has_the_costs_of_simple_tables() -> None:
    units, cost, shapes = units_of([[4], [7]], [[0], [7]]), product_cost([7]), [(3,), (11,), (28,)]
    costs = shape_costs(units, cost, shapes)
    for number, shape in enumerate(shapes):
        for unit in range(2):
            assert costs[unit, number] == simple_table(units.chosen([unit]), cost, shape).cost_cycles


def test_nothing_to_choose_and_too_much_are_refused() -> None:
    with pytest.raises(RequestError, match="nothing to choose"):
        choose_library(np.zeros((0, 0)), [], 1)
    with pytest.raises(RequestError, match="at least one unit"):
        choose_library(np.ones((1, 1)), [1], 0)
    with pytest.raises(LimitError, match="too many"):
        shape_costs(units_of([[n + 1] for n in range(2000)]), product_cost([2000]), [(1,)] * 10_001)
