"""Which rules change plans, which never do, and what a plan says of it (SPEC 5.3); rules that a user adds."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from math import prod
from random import Random
from typing import Any

import pytest

from compiler.compile import plan_model
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.rules.capacity import fuse_12
from compiler.fusion.segment_graph import SegmentGraph
from compiler.options import Options, RuleSetting, parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import Plan
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import core_fits, tile_fits, weights_fit
from compiler.tiling.finished import Choice
from tests.compiler.fusion.cases import any_model, any_profile, facts_of, tight
from tests.compiler.fusion.test_strategies import convs, two_convs
from tests.models import Model
from tests.profiles import small_profile


def without(*rules: str) -> Options:
    """Options with rules switched off."""
    return Options(objective="dram_bytes", rules={rule: RuleSetting(enabled=False) for rule in rules})


def two_results() -> Model:
    """The first of two results is written over the input."""
    model = Model()
    y = model.relu(model.input([1, 8, 8, 8]))
    model.output(y)
    model.output(model.conv(y, 8, 8, 1))
    return model


def late_weights() -> Model:
    """The last step has the most weights, and reads less than the group."""
    return two_convs(1, 8, (32, 2, 3), (2, 4, 1))


def early_result() -> Model:
    """The third step has large weights, and reads the large result of the first."""
    model = Model()
    x = model.input([1, 4, 4, 4])
    large, small = model.conv(x, 4, 16, 1), model.conv(x, 4, 4, 4)
    model.output(model.node("Add", [small, model.conv(large, 16, 4, 4)]))
    return model


def next_weights() -> Model:
    """The second step has large weights, and does not read the large result of the first."""
    model = Model()
    x = model.input([1, 4, 4, 4])
    large, other = model.conv(x, 4, 16, 1), model.conv(x, 4, 16, 4)
    model.output(model.node("Add", [other, model.node("MaxPool", [large], kernel_shape=[4, 4])]))
    return model


@pytest.mark.parametrize(
    ("rule", "network", "memory"),
    [
        ("FUSE-12", two_results, {"nram_bytes": 5_000, "wram_bytes": 60_000}),
        ("FUSE-13", late_weights, {"nram_bytes": 7_990, "wram_bytes": 28_841, "cores": 2}),
        ("FUSE-14", early_result, {"nram_bytes": 4_750, "wram_bytes": 60_000}),
        ("FUSE-15", next_weights, {"nram_bytes": 4_750, "wram_bytes": 60_000}),
    ],
)
def test_a_rule_that_is_stricter_than_memory_changes_a_tiling(
    rule: str, network: Callable[[], Model], memory: dict[str, Any]
) -> None:
    """FUSE-13 to 15 count weights that have a memory of their own; FUSE-16's case stands in test_strategies.py."""
    facts = facts_of(network())
    group = (1 << len(facts.ops)) - 1

    def chosen(*off: str) -> tuple[int, ...]:
        found = Evaluator(facts, small_profile(**memory), without(*off)).tiling(group)
        assert isinstance(found, Choice)
        return found.tiling.tile

    assert prod(chosen()) < prod(chosen(rule))
    assert {chosen(f"FUSE-{number}") for number in range(12, 17) if f"FUSE-{number}" != rule} == {chosen()}


@pytest.mark.matrix(first=20, rest=20)
@pytest.mark.parametrize("seed", range(60))
def test_memory_binds_before_rule_12_where_a_group_has_one_output(seed: int) -> None:
    """FUSE-12: TILE-2:tile counts the same and more. FUSE-10 and 17 are memory checks: their switches do nothing."""
    random = Random(seed)
    facts = facts_of(any_model(random, 6))
    profile = tight(random, any_profile(random), facts)
    asked = Evaluator(facts, profile, without())
    switched = Evaluator(facts, profile, without("FUSE-10", "FUSE-12", "FUSE-17"))
    graph = SegmentGraph(facts, tuple(range(len(facts.ops))))
    for first, last in combinations(range(len(facts.ops)), 2):
        group = (2 << last) - (1 << first)
        if last - first > 3 or len(graph.outputs_of(group)) != 1:
            continue
        found, other = asked.tiling(group), switched.tiling(group)
        if isinstance(found, Refusal):
            assert isinstance(other, Refusal)
            continue
        assert isinstance(other, Choice)
        assert found.tiling == other.tiling
        assert fuse_12(found.figures).actual <= tile_fits(found.figures).actual
        assert core_fits(found.figures).holds
        assert weights_fit(found.figures).holds
        assert max(found.figures.core_weights, default=0) <= found.figures.needed_weights


def planned(model: Model, profile: Any, **values: Any) -> Plan:
    """The plan under options as a user gives them."""
    return plan_model(model.data(), profile, parse_options({"objective": "dram_bytes", **values})).plan


def outcomes(plan: Plan, rule: str) -> set[str]:
    """What groups say of a rule."""
    return {one.outcome for segment in plan.segments for g in segment.groups for one in g.rules if one.id == rule}


def test_a_limit_that_ends_a_tile_bound_the_group_and_a_wider_one_held_anyway() -> None:
    """FUSE-18: of 64 images a tile holds 16, or all without the rule."""
    model, profile = convs(2, extent=4, batch=64), small_profile(nram_bytes=262_144)
    plans = [
        planned(model, profile, fusion="rules", objective="dram_bytes", rules={"FUSE-18": {"limit": limit}})
        for limit in (16, 64)
    ]
    assert [outcomes(plan, "FUSE-18") for plan in plans] == [{"bound"}, {"held anyway"}]
    bound, wide = ({use.id: use for use in plan.rules}["FUSE-18"] for plan in plans)
    assert (bound.name, bound.limit, bound.bound, bound.held_anyway) == (
        "few feature maps in a tile",
        16,
        ("s0.g0",),
        0,
    )
    assert (wide.limit, wide.bound, wide.held_anyway) == (64, (), 1)


def test_a_rule_that_fails_at_a_boundary_bound_both_groups() -> None:
    """FUSE-19: the plan lists both groups under it, and the boundary names it."""
    plan = planned(convs(4), builtin_profile("cluster4x4"), fusion="rules")
    (first, second) = plan.segments[0].groups
    edge = first.boundary[0]
    assert (edge.rule, edge.rule_name) == ("FUSE-19", "small window overlap")
    assert {use.id: use.bound for use in plan.rules}["FUSE-19"] == (first.id, second.id)
    assert outcomes(plan, "FUSE-19") == {"bound"}


def test_a_rule_that_is_switched_off_is_said_and_asked_nowhere() -> None:
    plan = planned(convs(2), builtin_profile("cluster4x4"), rules={"few feature maps in a tile": {"enabled": False}})
    (use,) = (use for use in plan.rules if use.id == "FUSE-18")
    assert (use.enabled, use.bound, use.held_anyway) == (False, (), 0)
    assert outcomes(plan, "FUSE-18") == set()


@pytest.mark.parametrize("fusion", ["search", "rules"])
def test_an_added_rule_binds_groups_under_either_strategy(fusion: str) -> None:
    """SPEC 5.3: a named inequality over a group's figures, by bound or by text.

    Of tilings with equal bytes `search` takes the quickest, which has one image in a tile.
    """
    model, profile = convs(2, extent=4, batch=64), small_profile(nram_bytes=262_144)
    bound, text = {"few images": {"figure": "maps", "at_most": 5}}, [{"name": "few images", "holds": "2 * maps <= 10"}]
    rules: list[object] = [bound, text]
    by_bound, by_text = (planned(model, profile, fusion=fusion, objective="dram_bytes", rules=its) for its in rules)
    (group,) = by_bound.segments[0].groups
    assert group.tiling.tile[0] == (5 if fusion == "rules" else 1)
    (verdict,) = (one for one in group.rules if one.id == "few images")
    outcome = "bound" if fusion == "rules" else "held anyway"
    assert (verdict.name, verdict.limit, verdict.outcome) == ("few images", 5, outcome)
    assert by_text.segments[0].groups[0].tiling == group.tiling
    short = planned(model, profile, fusion=fusion, rules={"short": {"figure": "ops", "at_most": 2}})
    assert max(len(one.ops) for one in short.segments[0].groups) == 2
    assert "short" in {edge.rule for one in short.segments[0].groups for edge in one.boundary}


def test_an_added_rule_binds_a_pinned_group_too() -> None:
    model, profile = convs(2, extent=4, batch=64), small_profile(nram_bytes=262_144)
    schedule = {"groups": [{"nodes": ["c0", "r0", "c1", "r1"]}]}
    plan = planned(model, profile, schedule=schedule, rules={"few images": {"figure": "maps", "at_most": 5}})
    assert plan.segments[0].groups[0].tiling.tile[0] <= 5


def test_rules_are_asked_and_printed_in_the_order_of_the_list() -> None:
    """SPEC 5.3: their order is free; it changes no group."""
    model, profile = convs(2, extent=4, batch=64), small_profile(nram_bytes=262_144)
    rules = ["FUSE-16", "fits SRAM as a whole", {"name": "few images", "figure": "maps", "at_most": 12}, "FUSE-9"]
    ordered, usual = (
        planned(model, profile, rules=given) for given in (rules, {"few images": {"figure": "maps", "at_most": 12}})
    )
    (group,), (other,) = ordered.segments[0].groups, usual.segments[0].groups
    assert [one.id for one in group.rules][:4] == ["FUSE-16", "FUSE-13", "few images", "FUSE-9"]
    assert {one.id: one for one in group.rules} == {one.id: one for one in other.rules}
    assert group.tiling == other.tiling


def test_an_added_rule_is_not_asked_of_single_ops() -> None:
    """They have to run somehow."""
    plan = planned(convs(2), small_profile(nram_bytes=262_144), rules={"no group": {"holds": "ops <= 0"}})
    assert [len(group.ops) for group in plan.segments[0].groups] == [1, 1, 1, 1]
