"""The offline meter of what strip decompositions leave (SHAPE-6, N-5)."""

from __future__ import annotations

from math import inf, isclose

import pytest
from hypothesis import given, settings

from compiler.errors import LimitError, RequestError
from compiler.shapes.cost import CallCost
from compiler.shapes.guillotine import guillotine
from compiler.shapes.strips import StripSearch, optimised_table
from compiler.shapes.units import UnitSet
from tests.compiler.shapes.exhaustive import Cut, call_cycles, covers
from tests.compiler.shapes.given import problems, product_cost, units_of


def least_by_cuts(units: UnitSet, cost: CallCost, shape: tuple[int, int]) -> float:
    """By definition: one strip of calls along either axis, or the best cut into two."""
    known: dict[tuple[int, int], float] = {}

    def strip(along: int, lengths: tuple[int, int]) -> float:
        across, best = 1 - along, inf
        for pieces in covers(lengths[along], units.extents[:, along].tolist()):
            total = 0.0
            for number, cut in enumerate(pieces):
                total += call_cycles({along: cut, across: Cut(lengths[across], is_tail=True)}, units, cost)
                moved = (cut.length, lengths[1]) if along == 0 else (lengths[0], cut.length)
                for operand in cost.operands:
                    if along in operand.axes or (operand.axes and number == 0):
                        total += operand.cycles(moved)
            best = min(best, total)
        return best

    def least(height: int, width: int) -> float:
        if (height, width) not in known:
            options = [strip(0, (height, width)), strip(1, (height, width))]
            options += [least(cut, width) + least(height - cut, width) for cut in range(1, height)]
            options += [least(height, cut) + least(height, width - cut) for cut in range(1, width)]
            known[height, width] = min(options)
        return known[height, width]

    once = sum(operand.start_cycles + operand.move_cycles for operand in cost.operands if not operand.axes)
    return least(*shape) + once


@given(problems(ranks=(2,), longest=4, most=3, lengths=7))
@settings(max_examples=40)
def test_no_guillotine_cuts_are_cheaper(problem: tuple[UnitSet, CallCost, tuple[int, ...]]) -> None:
    """With a unit that is one wide, so that cuts may lie anywhere."""
    units, cost, shape = problem
    height, width = (max(1, length) for length in shape)
    extents, lows = units.extents.tolist(), units.lows.tolist()
    units = units_of([*extents, [9, 1]], [*lows, [0, 1]])
    cost = CallCost(
        call_cycles=cost.call_cycles,
        variable_cycles=cost.variable_cycles,
        compute_cycles=cost.compute_cycles,
        compute=product_cost([9, 9]).compute,
        operands=product_cost([9, 9], [(0,), (1,), ()]).operands,
    )
    found = guillotine(units, cost, (height, width))
    for rows in range(1, height + 1):
        assert isclose(found[rows - 1], least_by_cuts(units, cost, (rows, width)), rel_tol=1e-9)
    assert found[-1] <= optimised_table(units, cost, (height, width)).cost_cycles * (1 + 1e-9)


def test_cuts_save_a_call_that_strips_cannot() -> None:
    """6 x 4 by 1 x 3 and 4 x 1: the last column by itself takes two calls, the rest three down and two across."""
    units, cost = units_of([[1, 3], [4, 1]]), product_cost([4, 4], call=100)
    # calls of 100 and their results' starts of 5; 26 elements computed, two of them discarded; 24 stored
    assert guillotine(units, cost, (6, 4))[-1] == 7 * 105 + 26 + 24
    assert StripSearch.build(units, cost, (6, 4)).cycles()[0, 0] == 8 * 105 + 26 + 24


def test_what_is_no_rectangle_or_too_large_is_refused() -> None:
    with pytest.raises(RequestError, match="two axes"):
        guillotine(units_of([[3]]), product_cost([3]), (3, 3))
    with pytest.raises(RequestError, match="two axes"):
        guillotine(units_of([[3, 3]]), product_cost([3, 3]), (0, 3))
    with pytest.raises(LimitError, match="too many cuts"):
        guillotine(units_of([[1, 1]]), product_cost([1, 1]), (3000, 3000))
