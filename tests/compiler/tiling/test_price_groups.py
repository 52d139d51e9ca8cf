"""The price of given tilings is that of the plan that chose them (TILE-9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from compiler.profile import builtin_profile
from compiler.tiling.choose import choose_tiling
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import price_groups
from compiler.tiling.wishes import Wishes
from tests.models import Model


@pytest.mark.parametrize("profile_name", ["cluster4x4", "edge4", "manycore2x64"])
def test_a_schedule_costs_what_its_tilings_cost_when_they_were_chosen(profile_name: str) -> None:
    model = Model()
    x = model.input([1, 8, 24, 24])
    for _ in range(3):
        x = model.relu(model.conv(x, 8, 8))
    model.output(x)
    facts, profile = model.facts(), builtin_profile(profile_name)
    groups, costs = [], []
    for ops in ((0, 1), (2, 3), (4, 5)):
        choice = choose_tiling(GroupGeometry(facts, ops), profile, (), Wishes(objective="latency"))
        assert isinstance(choice, Choice)
        groups.append((ops, choice.tiling))
        costs.append(choice.cost)
    # equal groups are priced once, so op indices in the stages are the first one's
    plain = [replace(cost, stages=()) for cost in price_groups(facts, profile, groups)]
    assert plain == [replace(cost, stages=()) for cost in costs]
