"""SHAPE-6: tables whose calls several cores share."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.shapes import optimised
from compiler.shapes.core_time import on_cores, waiting_share
from compiler.shapes.cost import CallCost
from compiler.shapes.optimised import best_table
from compiler.shapes.simple import SimpleChooser, idle_factor
from compiler.shapes.strips import optimised_table
from compiler.shapes.table import ShapeTable, check_cover, expand
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.given import problems, product_cost, units_of
from tests.compiler.shapes.recount import recounted_core_cycles

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
    once = cost.once_cycles
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
    check_cover(table)
    assert table.units == units.ids
    assert table.kind == "optimised"
    simple = SimpleChooser.build(units, cost, cores, loaders).table(shape)
    assert table.cost_cycles <= simple.cost_cycles
    if 0 in shape or waiting_share(table, units, cost, cores) < 0.05:
        return  # nothing that a search could gain
    mixed = on_cores(optimised_table(units, cost, shape), units, cost, cores, loaders)
    assert table.cost_cycles <= mixed.cost_cycles
    assert table.cost_cycles == pytest.approx(recounted_core_cycles(table, units, cost, cores, loaders), rel=1e-9)


@given(problems(ranks=(1, 2, 3)), st.integers(1, 5), st.integers(1, 5))
@settings(max_examples=80)
def test_the_time_on_cores_is_what_the_calls_of_the_slowest_core_add_up_to(
    problem: Problem, cores: int, loaders: int
) -> None:
    units, cost, shape = problem
    for table in (SimpleChooser.build(units, cost).table(shape), optimised_table(units, cost, shape)):
        found = on_cores(table, units, cost, cores, loaders).cost_cycles
        assert found == pytest.approx(recounted_core_cycles(table, units, cost, cores, loaders), rel=1e-9)


def test_by_hand_a_core_moves_beside_its_work_and_waits_for_its_first_and_last_box() -> None:
    """Two cores, two calls of 4 positions each: 4 + 10 cycles of work, 9 to bring, 9 to store."""
    units = units_of([[4]])
    cost = product_cost([4], operands=((0,),), call=10.0, start=1.0, move=2.0)
    read, result = cost.operands
    assert (cost.work_cycles((4,), 0), read.cycles((4,)), result.cycles((4,))) == (14.0, 5.0, 5.0)
    table = SimpleChooser.build(units, cost, cores=2).table((16,))
    assert table.calls == 4
    # bring, work beside bringing, work beside storing, store
    assert table.cost_cycles == 2 * (5 + 14 + 14 + 5)
    assert waiting_share(table, units, cost, 2) == 0
    # the third call of three is one core's, or a half more work than the other's
    assert on_cores(SimpleChooser.build(units, cost).table((12,)), units, cost, 2, 1).cost_cycles == 2 * 38


def test_another_unit_has_its_buffers_where_those_of_the_one_before_lie() -> None:
    """So it waits for what was stored last, and brings all of its operands."""
    units, cost = units_of([[4], [2]], [[4], [2]]), product_cost([4], operands=((0,),))
    mixed = optimised_table(units, cost, (6,))
    assert expand(mixed).units.tolist() == [0, 1]
    each = [on_cores(optimised_table(units, cost, (length,)), units, cost, 1, 1).cost_cycles for length in (4, 2)]
    assert on_cores(mixed, units, cost, 1, 1).cost_cycles == sum(each)


def test_cores_without_waits_are_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a search can gain is the time that cores lose: where they lose none, none is made."""
    units, cost = units_of([[4], [3], [2]], [[4], [3], [2]]), product_cost([4])
    asked: list[tuple[int, ...]] = []

    def searched(units: UnitSet, cost: CallCost, shape: tuple[int, ...]) -> ShapeTable:
        asked.append(shape)
        return optimised_table(units, cost, shape)

    monkeypatch.setattr(optimised, "optimised_table", searched)
    assert waiting_share(best_table(units, cost, (16,), 4, 1), units, cost, 4) == 0
    assert not asked
    best_table(units, cost, (17,), 4, 1)
    assert (17,) in asked
