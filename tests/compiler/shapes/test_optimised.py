"""SHAPE-6: tables whose calls several cores share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.shapes.cost import CallCost
from compiler.shapes.optimised import best_table
from compiler.shapes.simple import SimpleChooser, idle_factor, once_cycles, with_cores
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import check_cover
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.given import problems, product_cost, units_of

Problem = tuple[UnitSet, CallCost, tuple[int, ...]]


def test_cores_that_wait_in_the_last_round_are_counted() -> None:
    assert idle_factor(1, 16) == 16
    assert idle_factor(16, 16) == 1
    assert idle_factor(17, 16) == pytest.approx(32 / 17)
    assert idle_factor(5, 1) == 1


def test_one_large_call_is_no_table_for_many_cores() -> None:
    """By work alone it is: 16 calls have 15 starts more."""
    units, cost = units_of([[64], [4]]), product_cost([64], operands=())
    alone, shared = SimpleChooser.build(units, cost), SimpleChooser.build(units, cost, cores=16)
    assert alone.table((64,)).calls == 1
    assert shared.table((64,)).calls == 16
    assert best_table(units, cost, (64,), 16, 1).calls == 16


def test_what_all_calls_read_is_read_by_every_loader() -> None:
    units, cost = units_of([[4]]), product_cost([4], operands=((),), start=5.0, move=2.0)
    once = once_cycles(cost)
    assert once == 7.0
    by_loaders = [SimpleChooser.build(units, cost, 4, loaders).table((16,)).cost_cycles for loaders in (1, 2, 4, 8)]
    assert [cycles - by_loaders[0] for cycles in by_loaders] == [0, once, 3 * once, 3 * once]


@given(problems(ranks=(1, 2)), st.integers(1, 20), st.integers(1, 20))
@settings(max_examples=120)
def test_the_best_table_covers_its_shape_and_is_no_dearer_than_either(
    problem: Problem, cores: int, loaders: int
) -> None:
    units, cost, shape = problem
    table = best_table(units, cost, shape, cores, loaders)
    check_cover(table, allows_overlap=units.allows_overlap)
    assert table.units == units.ids
    assert table.kind == "optimised"
    simple = SimpleChooser.build(units, cost, cores, loaders).table(shape)
    mixed = with_cores(optimised_table(units, cost, shape), cost, cores, loaders)
    assert table.cost_cycles <= min(simple.cost_cycles, mixed.cost_cycles) * (1 + 1e-9)
