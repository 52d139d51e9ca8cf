"""What a plan will at least take, told from some of its groups (SCHED-7)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.cost.model import Cost, price
from compiler.cost.objective import Totals
from compiler.program.outlook import as_whole, least_of, sampled
from tests.compiler.cost.test_price import CLUSTER, traffic

RATE = CLUSTER.dram_bytes_per_cycle


def cost(cycles: int) -> Cost:
    """A price of about so many cycles of computation."""
    return price(traffic(input_bytes=1_024, output_bytes=1_024, compute_cycles=cycles, array_cycles=cycles), CLUSTER)


def met(*factors: float) -> list[tuple[Totals, Totals]]:
    """Groups of 1,000 cycles and more that took these times their price."""
    prices = [Totals.of((cost(1_000 + 100 * number),)) for number in range(len(factors))]
    return [
        (its, Totals(dram_bytes=its.dram_bytes, cycles=factor * its.cycles, energy_pj=factor * its.energy_pj))
        for factor, its in zip(factors, prices, strict=True)
    ]


def priced(*cycles: int) -> tuple[list[Cost], Any]:
    """Prices, and the cycles of all of them."""
    costs = [cost(its) for its in cycles]
    return costs, sum(its.cycles for its in costs)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 100])
def test_the_first_of_what_is_sampled_come_from_everywhere(count: int) -> None:
    order = sampled(count)
    assert sorted(order) == list(range(count))
    if count == 100:
        assert {number // 20 for number in order[:8]} == set(range(5))


def test_while_few_groups_were_met_only_what_none_can_undercut_is_said() -> None:
    costs, _ = priced(2_000, 3_000)
    found = least_of(costs, met(1.5, 1.5), RATE)
    assert (found.cycles, found.dram_bytes, found.energy_pj) == (5_000, 4_096, 0.0)


@pytest.mark.parametrize(("factors", "mean"), [((), 1.0), ((1.5,), 1.5), ((1.4, 1.8), 1.6)])
def test_when_no_more_can_be_met_the_mean_decides_however_few_were(factors: tuple[float, ...], mean: float) -> None:
    costs, cycles = priced(2_000, 3_000)
    assert least_of(costs, met(*factors), RATE, 0.0).cycles == pytest.approx(mean * cycles)


def test_groups_take_as_much_more_than_their_price_as_those_that_were_met() -> None:
    costs, cycles = priced(2_000, 3_000)
    assert least_of(costs, met(*[1.5] * 5), RATE).cycles == pytest.approx(1.5 * cycles)


def test_the_more_factors_differ_the_less_is_sure() -> None:
    costs, cycles = priced(*[2_000] * 40)
    even, uneven = met(*[1.4, 1.5, 1.6] * 3), met(*[1.2, 1.5, 1.8] * 3)
    sure = [least_of(costs, its, RATE).cycles for its in (even, uneven)]
    assert cycles < sure[1] < sure[0] < 1.5 * cycles
    mean = least_of(costs, uneven, RATE, 0.0).cycles
    assert mean == pytest.approx(1.5 * cycles)


def test_nothing_is_left_when_all_were_met() -> None:
    assert least_of([], met(*[1.5] * 6), RATE) == Totals(energy_pj=0.0)


def test_a_whole_is_expected_to_take_the_share_that_another_one_took() -> None:
    """Time and energy each by their own: groups that wait for each other take more time, and hardly more energy."""
    before, after = (Totals(dram_bytes=7, cycles=cycles, energy_pj=pj) for cycles, pj in ((1000, 100.0), (1040, 101.0)))
    found = as_whole(Totals(dram_bytes=5, cycles=500, energy_pj=40.0), before, after)
    assert (found.dram_bytes, found.cycles, found.energy_pj) == (5, pytest.approx(520), pytest.approx(40.4))
    assert as_whole(Totals(), Totals(), Totals()) == Totals()
