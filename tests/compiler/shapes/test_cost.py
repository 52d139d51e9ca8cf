"""The factors of a call's cost (SHAPE-6)."""

from __future__ import annotations

import pytest

from compiler.errors import RequestError
from compiler.shapes.cost import CallCost, OperandTraffic
from compiler.units import ceil_div


def work(lengths: tuple[int, ...]) -> float:
    """Array cycles of a product of m x n over k: 16 lanes each over n and k."""
    m, n, k = lengths
    return float(m * ceil_div(n, 16) * ceil_div(k, 16))


def tabulated() -> CallCost:
    """Over m, n and k; the input has m and k, the weights n and k, the result m and n."""
    return CallCost.tabulate(
        call_cycles=10,
        variable_cycles=3,
        compute_cycles=work,
        operands=(
            OperandTraffic(axes=(0, 2), start_cycles=200, cycles=lambda e: e[0] * e[2] / 4),
            OperandTraffic(axes=(1, 2), start_cycles=200, cycles=lambda e: e[1] * e[2] / 4),
            OperandTraffic(axes=(0, 1), start_cycles=100, cycles=lambda e: e[0] * e[1] / 4),
        ),
        maxima=(8, 40, 64),
        reference=(4, 16, 32),
    )


def test_separable_costs_are_tabulated_exactly() -> None:
    cost = tabulated()
    for lengths in ((1, 1, 1), (8, 40, 64), (3, 17, 33), (5, 16, 48)):
        assert cost.work_cycles(lengths, 0) == pytest.approx(10 + work(lengths))
        assert cost.work_cycles(lengths, 2) == pytest.approx(16 + work(lengths))
        assert [operand.cycles(lengths) for operand in cost.operands] == pytest.approx(
            [
                200 + lengths[0] * lengths[2] / 4,
                200 + lengths[1] * lengths[2] / 4,
                100 + lengths[0] * lengths[1] / 4,
            ]
        )
    assert [operand.axes for operand in cost.operands] == [(0, 2), (1, 2), (0, 1)]


def test_whole_axes_are_folded_in() -> None:
    cost = tabulated().at({2: 48})
    assert cost.maxima == (8, 40)
    assert cost.work_cycles((5, 17), 1) == pytest.approx(13 + work((5, 17, 48)))
    assert [operand.axes for operand in cost.operands] == [(0,), (1,), (0, 1)]
    assert cost.operands[1].cycles((5, 17)) == pytest.approx(200 + 17 * 12)


def test_a_whole_axis_beyond_what_is_known_is_refused() -> None:
    with pytest.raises(RequestError, match="longer than its costs"):
        tabulated().at({2: 65})


def test_what_costs_nothing_at_the_reference_has_no_factor() -> None:
    cost = CallCost.tabulate(
        call_cycles=1, variable_cycles=0, compute_cycles=lambda _: 0.0, operands=(), maxima=(4,), reference=(2,)
    )
    assert cost.work_cycles((3,), 0) == 1
