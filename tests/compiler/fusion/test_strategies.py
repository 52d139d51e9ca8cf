"""All strategies on random networks and accelerators; what switches of `rules` and `none` do (FUSE-R, FUSE-N)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.compile import plan_model
from compiler.cost.objective import Totals, objective_value
from compiler.errors import InternalError, LimitError
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments, verify_fused
from compiler.fusion.groups import FusedGraph, FusedSegment
from compiler.fusion.none import main_chains
from compiler.fusion.segment_graph import SegmentGraph, bits, mask_of
from compiler.ir.graph import Graph
from compiler.ops.base import OpClass
from compiler.options import Options, RuleSetting
from compiler.partition.partition import PartitionGraph
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.report.plan import PlanGroup
from compiler.tiling.figures import Check
from tests.compiler.brute import floor_of
from tests.compiler.fusion.cases import any_model, any_profile, facts_of, tight
from tests.matrices import tries
from tests.models import Model, error_of, group_of, whole_segment
from tests.profiles import profile_values, small_profile
from tests.strategies import OBJECTIVES, models, options, profiles


def fuse(model: Model, profile: Profile, chosen: Options) -> FusedGraph:
    """The fused graph; a random accelerator may be too small for any plan."""
    fused = fused_if_it_fits(model, profile, chosen)
    if fused is None:
        assume(False)
    assert fused is not None
    return fused


def fused_if_it_fits(model: Model, profile: Profile, chosen: Options) -> FusedGraph | None:
    """The fused graph, verified; None if an op does not fit the accelerator."""
    graph = model.graph()
    compilers = SegmentCompilers(profile, chosen)
    partition = PartitionGraph(profile=profile, options=chosen, candidates=compilers.of)
    fusion = FuseSegments(options=chosen, compilers=compilers)
    made: list[FusedGraph] = []
    error = error_of(lambda: made.append(fusion.run(partition.run(graph))))
    if error is not None:
        # stationary weights of one op may exceed the chip
        assert error.code == "does_not_fit" or (error.code == "op_too_large" and profile.is_stationary)
        assert error.node
    for fused in made:
        verify_fused(fused)
    return made[0] if made else None


def totals(segments: tuple[FusedSegment, ...]) -> Totals:
    """The sum over all groups."""
    return Totals.of(group.choice.cost for segment in segments for group in segment.groups)


@tries(first=15, rest=100)
@given(models(), profiles(), options(switches=True))
def test_a_plan_of_any_strategy_keeps_what_all_strategies_promise(
    model: Model, profile: Profile, chosen: Options
) -> None:
    """Each op once, convex, in order, single outputs (FUSE-4), verdicts hold, never below the floor (SPEC 5.1)."""
    fused = fuse(model, profile, chosen)
    graph = fused.partitioned.graph
    floor = floor_of(fused.facts, profile)
    for plan in (fused.segments, fused.baseline):
        groups = [group for segment in plan for group in segment.groups]
        assert sorted(op for group in groups for op in group.ops) == list(range(len(graph.ops)))
        assert_convex_and_in_order(graph, [group.ops for group in groups])
        assert floor <= totals(plan).dram_bytes
    several_outputs = chosen.fusion == "search" or chosen.rule_settings.get("FUSE-4", RuleSetting()).enabled is False
    for group in (group for segment in fused.segments for group in segment.groups):
        assert_verdicts_hold(group.checks, chosen)
        if len(group.ops) > 1 and not several_outputs:
            assert len(leaving(graph, group.ops)) == 1
    if chosen.fusion == "rules" and chosen.rule_settings.get("FUSE-20", RuleSetting()).enabled is not False:
        # FUSE-20 keeps every step from costing more
        found, none = (objective_value(chosen.objective, totals(plan)) for plan in (fused.segments, fused.baseline))
        assert found <= none * (1 + 1e-9)


def assert_convex_and_in_order(graph: Graph, groups: Sequence[Sequence[int]]) -> None:
    """Convexity recomputed by walking paths, not by the compiler's bit sets."""
    home = {op: number for number, group in enumerate(groups) for op in group}
    for op, made in enumerate(graph.ops):
        for user in graph.consumers.get(made.output, ()):
            assert home[op] <= home[user]
    for number, group in enumerate(groups):
        outside: set[int] = set()
        for op in range(len(graph.ops)):
            readers = {graph.producer[name] for name in graph.ops[op].inputs if name in graph.producer}
            if readers & outside or (readers & set(group) and home[op] != number):
                assert home[op] != number, "a path leaves the group and comes back"
                outside.add(op)


def leaving(graph: Graph, group: Sequence[int]) -> list[int]:
    """The ops of a group whose results are read outside it."""
    return [
        op
        for op in group
        if graph.ops[op].output in graph.outputs
        or any(user not in group for user in graph.consumers.get(graph.ops[op].output, ()))
    ]


def assert_verdicts_hold(checks: Sequence[Check], chosen: Options) -> None:
    """Every printed rule holds; of the profit rules one suffices under `profit=any`."""
    profits = [bool(check.holds) for check in checks if check.rule in ("FUSE-5", "FUSE-6", "FUSE-7")]
    assert all(check.holds for check in checks if check.rule not in ("FUSE-5", "FUSE-6", "FUSE-7"))
    if profits:
        assert any(profits) if chosen.profit == "any" else all(profits)


def test_edp_of_a_plan_with_several_segments_is_never_worse_than_none() -> None:
    """Energy × latency is no sum over segments: what pays inside one may cost the whole."""
    model = Model()
    a, b = model.input([1, 2, 11, 12]), model.input([1, 2, 7, 12])
    y = model.conv(model.conv(b, 2, 7, 1), 7, 1, 1, stride=3)
    y = model.output(model.node("ReduceMean", [y], axes=[2, 3]))
    model.output(model.node("Add", [y, y]))
    z = model.output(model.node("Add", [a, a]))
    z = model.node("Mul", [model.node("Transpose", [z], perm=[0, 1, 3, 2]), model.weight(2, 1, 1)])
    model.output(model.conv(model.node("Slice", [z, model.ints(10), model.ints(11), model.ints(3)]), 2, 4, 1))
    values = profile_values("edge4") | {"clock_hz": 1e9, "static_w": 0.0}
    values["dram"] |= {
        "bandwidth_bytes_per_s": 1e11,
        "read_pj_per_byte": 59.0,
        "write_pj_per_byte": 64.0,
        "startup_ns": 0.0,
    }
    values["nram"] |= {"capacity_bytes": 32_792, "read_pj_per_byte": 0.4, "write_pj_per_byte": 0.4}
    values["wram"] = {"capacity_bytes": 262_144, "read_pj_per_byte": 0.5, "write_pj_per_byte": 0.5}
    values["engines"] = {"iodma": {"bytes_per_cycle": 10.0}}
    values["matrix"]["arrays"] = {"float32": {"k": 1, "c": 1}}
    values["vector"]["lanes"] = 1
    values["weights"]["compression"] = 0.5
    profile = profile_from_values(values)
    chosen = [Options(fusion="rules", objective="edp", profit=profit) for profit in ("any", "all", ("FUSE-5",))]
    for each in (*chosen, Options(fusion="search", objective="edp")):
        fused = fuse(model, profile, each)
        found = objective_value("edp", totals(fused.segments))
        assert found <= objective_value("edp", totals(fused.baseline)) * (1 + 1e-9)


def test_rules_are_never_worse_than_none_where_memory_ends_groups_inside_chains() -> None:
    """FUSE-20 counts what a new group leaves over of the chains of `none`."""
    compared = 0
    for seed in range(8):
        random = Random(seed)
        model = any_model(random, 12)
        profile = tight(random, any_profile(random), facts_of(model))
        objective = OBJECTIVES[seed % 4]
        fused = fused_if_it_fits(model, profile, Options(fusion="rules", objective=objective))  # type: ignore[arg-type]
        if fused is None:
            continue
        found, none = (objective_value(objective, totals(plan)) for plan in (fused.segments, fused.baseline))
        assert found <= none * (1 + 1e-9), seed
        compared += 1
    assert compared > 4


@settings(max_examples=60)
@given(models())
def test_chains_of_none_hold_one_main_op_and_what_alone_follows_it(model: Model) -> None:
    """FUSE-N."""
    graph = whole_segment(model.facts())
    groups = main_chains(graph, graph.all)
    assert sorted(op for group in groups for op in bits(group)) == list(graph.ops)
    for group in groups:
        members = list(bits(group))
        mains = [op for op in members if graph.facts.ops[op].op_class is OpClass.MAIN]
        assert len(members) == 1 or mains == [members[0]]
        assert len(graph.outputs_of(group)) == 1
        for before, after in pairwise(members):
            assert graph.successors[before] == (after,)


def test_an_op_that_two_chains_reach_joins_the_latest_main_op() -> None:
    """FUSE-N."""
    model = Model()
    x = model.input([1, 4, 8, 8])
    first, second = model.conv(x, 4, 4, name="first"), model.conv(x, 4, 4, name="second")
    model.output(model.relu(model.node("Add", [first, second], name="add"), name="relu"))
    facts = model.facts()
    graph = whole_segment(facts)
    assert main_chains(graph, graph.all) == [group_of(facts, "first"), group_of(facts, "second", "add", "relu")]


def test_none_puts_an_op_that_follows_no_main_op_alone() -> None:
    """FUSE-N."""
    model = Model()
    x = model.relu(model.relu(model.input([1, 4, 8, 8]), name="a"), name="b")
    model.output(model.conv(x, 4, 4, name="c"))
    graph = whole_segment(model.facts())
    assert main_chains(graph, graph.all) == [1, 2, 4]


def test_none_stops_a_chain_at_a_result_with_two_readers() -> None:
    """FUSE-N: each the sole consumer of the one before."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 8, 8]), 4, 4), name="relu")
    model.output(model.node("Add", [model.node("Sigmoid", [x]), model.node("Tanh", [x])]))
    graph = whole_segment(model.facts())
    assert main_chains(graph, graph.all)[0] == mask_of([0, 1])


# Switching each rule off, or moving its limit, changes what a compilation does.


def groups_of(model: Model, profile: Profile, chosen: Options) -> list[tuple[str, ...]]:
    """The nodes of each group of a plan."""
    return [group.nodes for group in plan_groups(model, profile, chosen)]


def plan_groups(model: Model, profile: Profile, chosen: Options) -> list[PlanGroup]:
    """The groups of a plan."""
    plan = plan_model(ModelSource.from_bytes(model.data()), profile, chosen).plan
    return [group for segment in plan.segments for group in segment.groups]


def off(*rules: str, **more: object) -> Options:
    """Options of strategy `rules`, some of them switched off."""
    return Options(fusion="rules", rules={rule: RuleSetting(enabled=False) for rule in rules}, **more)  # type: ignore[arg-type]


def limit(rule: str, value: float, **more: object) -> Options:
    """Options of strategy `rules` with another limit for one."""
    return Options(fusion="rules", rules={rule: RuleSetting(limit=value)}, **more)  # type: ignore[arg-type]


def convs(count: int, *, extent: int = 32, channels: int = 4, batch: int = 1) -> Model:
    """A chain of 3×3 convolutions with activations."""
    model = Model()
    x = model.input([batch, channels, extent, extent])
    for index in range(count):
        x = model.relu(model.conv(x, channels, channels, name=f"c{index}"), name=f"r{index}")
    model.output(x)
    return model


ROOMY = builtin_profile("cluster4x4")


def test_fuse_19_limit_decides_how_many_convolutions_fuse() -> None:
    sizes = [
        max(map(len, groups_of(convs(5), ROOMY, limit("FUSE-19", value, objective="dram_bytes"))))
        for value in (2, 4, 6)
    ]
    assert sizes == [2, 4, 6]


def test_fuse_19_switched_off_fuses_the_whole_chain() -> None:
    assert groups_of(convs(5), ROOMY, off("FUSE-19", objective="dram_bytes")) == [
        tuple(name for index in range(5) for name in (f"c{index}", f"r{index}"))
    ]


def test_fuse_9_switched_off_lets_convolutions_with_one_weight_fuse() -> None:
    model = Model()
    w = model.weight(4, 4, 3, 3)
    x = model.input([1, 4, 32, 32])
    for name in ("a", "b"):
        x = model.relu(model.node("Conv", [x, w], name=name, pads=[1, 1, 1, 1]))
    model.output(x)
    assert not any({"a", "b"} <= set(group) for group in groups_of(model, ROOMY, Options(fusion="rules")))
    fused = groups_of(model, ROOMY, off("FUSE-9", objective="dram_bytes"))
    assert any({"a", "b"} <= set(group) for group in fused)


def test_fuse_9_leaves_the_convolution_out_of_every_group() -> None:
    """SPEC 5.3: 8, 9, leave that convolution out."""
    model = Model()
    w = model.weight(4, 4, 3, 3)
    x = model.input([1, 4, 32, 32])
    for name in ("a", "b"):
        x = model.relu(model.node("Conv", [x, w], name=name, pads=[1, 1, 1, 1]))
    model.output(x)
    groups = groups_of(model, ROOMY, Options(fusion="rules"))
    assert ("a",) in groups
    assert ("b",) in groups


def test_fuse_8_switched_off_lets_a_convolution_with_a_computed_weight_fuse() -> None:
    model = Model()
    x, w = model.input([1, 4, 32, 32]), model.input([4, 4, 3, 3])
    w = model.node("Tanh", [w], name="w")
    x = model.node("Conv", [model.conv(x, 4, 4, name="first"), w], name="second", pads=[1, 1, 1, 1])
    model.output(model.relu(x, name="relu"))
    assert ("second",) in groups_of(model, ROOMY, Options(fusion="rules", objective="dram_bytes"))
    fused = groups_of(model, ROOMY, off("FUSE-8", objective="dram_bytes"))
    assert any({"second", "relu"} <= set(group) for group in fused)


def test_fuse_4_switched_off_lets_a_group_have_two_outputs() -> None:
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 32, 32]), 4, 4, 1, name="a"), name="ra")
    model.output(model.conv(x, 4, 4, 1, name="b"))
    model.output(model.conv(x, 4, 4, 1, name="c"))
    single = groups_of(model, ROOMY, Options(fusion="rules", objective="dram_bytes"))
    double = groups_of(model, ROOMY, off("FUSE-4", objective="dram_bytes"))
    assert not any({"b", "c"} <= set(group) for group in single)
    assert any({"b", "c"} <= set(group) for group in double)


def test_fuse_18_limit_bounds_the_images_in_a_tile() -> None:
    model = convs(2, extent=4, batch=8)
    for images in (2, 4):
        groups = plan_groups(model, ROOMY, limit("FUSE-18", images, objective="dram_bytes"))
        fused = [group for group in groups if len(group.nodes) > 2]
        assert fused
        assert all(group.tiling.tile[0] <= images for group in fused if group.mode == "whole-map")


def test_fuse_18_switched_off_puts_more_images_into_a_tile() -> None:
    model = convs(2, extent=4, batch=64)
    profile = small_profile(nram_bytes=262_144)
    (bounded,) = plan_groups(model, profile, Options(fusion="rules", objective="dram_bytes"))
    (free,) = plan_groups(model, profile, off("FUSE-18", objective="dram_bytes"))
    assert bounded.tiling.tile[0] <= 16 < free.tiling.tile[0]


def test_fuse_11_limit_stops_growth_where_halos_cost_too_much() -> None:
    model = convs(2, extent=64)
    profile = small_profile(nram_bytes=20_000)
    strict = groups_of(model, profile, limit("FUSE-11", 0, objective="dram_bytes", halo="recompute"))
    lax = groups_of(model, profile, limit("FUSE-11", 1000, objective="dram_bytes", halo="recompute"))
    assert max(map(len, strict)) == 2
    assert max(map(len, lax)) == 4


def test_fuse_20_refuses_a_group_that_costs_more_than_none() -> None:
    """Switched off, rules may be worse than none; switched on, they never are."""
    model = convs(2, extent=64, channels=16)
    profile = small_profile(nram_bytes=16_000, cores=2)
    chosen = Options(fusion="rules", objective="latency")
    plan = plan_model(model.data(), profile, chosen).plan
    loose = plan_model(model.data(), profile, off("FUSE-20", "FUSE-11", objective="latency")).plan
    assert plan.totals.latency_s <= plan.baseline.latency_s
    assert loose.totals.latency_s > loose.baseline.latency_s
    assert loose.segments != plan.segments


def test_fuse_16_wants_the_weights_of_two_steps_resident() -> None:
    """Where weights share the cores' memory with pieces of whole maps, two steps' weights may leave these no room."""
    model = two_convs(1, 16, (32, 16, 1), (16, 8, 3))
    profile = small_profile(nram_bytes=24_250, sram_bytes=103_436)
    (loose,) = plan_groups(model, profile, off("FUSE-16", objective="dram_bytes"))
    assert (loose.tiling.tiles, loose.tiling.tile) == (1, (1, 8, 16, 16))
    (bound,) = plan_groups(model, profile, Options(fusion="rules", objective="dram_bytes"))
    assert bound.tiling.tiles > 1
    (verdict,) = (rule for rule in bound.rules if rule.id == "FUSE-16")
    assert verdict.holds


def two_convs(batch: int, extent: int, *layers: tuple[int, int, int]) -> Model:
    """Convolutions of (input channels, filters, kernel) in a chain."""
    model = Model()
    x = model.input([batch, layers[0][0], extent, extent])
    for channels, filters, kernel in layers:
        x = model.conv(x, channels, filters, kernel)
    model.output(x)
    return model


@pytest.mark.parametrize("number", [11, 12, 13, 14, 15, 16, 18])
def test_a_switched_off_capacity_rule_leaves_the_plan(number: int) -> None:
    """FUSE-11 to FUSE-18: a rule that is on is printed with its verdict, one that is off is not asked."""
    rule = f"FUSE-{number}"
    for chosen, present in (
        (Options(fusion="rules", objective="dram_bytes"), True),
        (off(rule, objective="dram_bytes"), False),
    ):
        groups = [group for group in plan_groups(convs(2), ROOMY, chosen) if len(group.nodes) > 2]
        assert groups
        assert all((rule in {verdict.id for verdict in group.rules}) == present for group in groups)


def chain_of(*kinds: str) -> Model:
    """A chain of ops, large enough that fusing pays."""
    model = Model()
    x = model.input([1, 4, 64, 64])
    for index, kind in enumerate(kinds):
        name = f"{kind}{index}"
        if kind == "conv":
            x = model.conv(x, 4, 4, 1, name=name)
        elif kind == "mul":
            x = model.node("Mul", [x, model.weight(4, 1, 1)], name=name)
        else:
            x = model.relu(x, name=name)
    model.output(x)
    return model


@pytest.mark.parametrize(
    ("profit", "kinds", "fused"),
    [
        ("any", ("conv", "relu", "conv"), True),  # FUSE-5 alone
        ("any", ("mul", "relu"), True),  # FUSE-7 alone
        ("any", ("relu", "relu"), False),
        ("all", ("conv", "relu", "conv"), False),
        ("all", ("mul", "relu"), False),
        ("all", ("conv", "conv", "relu", "mul", "relu"), True),
        (("FUSE-5",), ("mul", "relu"), False),
        (("FUSE-7",), ("mul", "relu"), True),
        (("FUSE-6",), ("conv", "relu", "conv"), False),
        (("FUSE-6",), ("conv", "conv", "relu"), True),
        (("FUSE-5", "FUSE-7"), ("conv", "relu", "conv"), False),
        (("FUSE-5", "FUSE-7"), ("conv", "conv", "mul", "relu"), True),
    ],
)
def test_profit_says_which_of_rules_5_to_7_have_to_hold(profit: object, kinds: tuple[str, ...], fused: bool) -> None:
    """FUSE-5, FUSE-6, FUSE-7: any one, all, or a list."""
    chosen = Options(fusion="rules", objective="dram_bytes", profit=profit)  # type: ignore[arg-type]
    groups = groups_of(chain_of(*kinds), ROOMY, chosen)
    assert (len(groups) == 1) == fused


@pytest.mark.parametrize(("rule", "kinds"), [("FUSE-5", ("conv", "relu", "conv")), ("FUSE-7", ("mul", "relu"))])
def test_a_profit_rule_that_is_off_proves_nothing(rule: str, kinds: tuple[str, ...]) -> None:
    assert len(groups_of(chain_of(*kinds), ROOMY, Options(fusion="rules", objective="dram_bytes"))) == 1
    assert len(groups_of(chain_of(*kinds), ROOMY, off(rule, objective="dram_bytes"))) > 1


def test_start_rule_b_leaves_ops_before_the_first_convolution_out() -> None:
    """FUSE-A against FUSE-B with FUSE-1 (FUSE-2 would take them in)."""
    model = chain_of("relu", "conv", "relu", "conv")
    whole = groups_of(model, ROOMY, Options(fusion="rules", objective="dram_bytes", start_rule="A"))
    assert len(whole) == 1
    forward = Options(
        fusion="rules",
        objective="dram_bytes",
        start_rule="B",
        rules={"FUSE-1": RuleSetting(enabled=True), "FUSE-2": RuleSetting(enabled=False)},
    )
    assert groups_of(model, ROOMY, forward)[0] == ("relu0",)


def test_start_rule_b_grows_backwards_by_default() -> None:
    """SPEC 5.3, defaults: A with FUSE-1, or B with FUSE-2."""
    model = chain_of("relu", "conv", "relu", "conv")
    assert len(groups_of(model, ROOMY, Options(fusion="rules", objective="dram_bytes", start_rule="B"))) == 1


def test_fuse_3_switched_off_takes_branches_op_by_op() -> None:
    """Without whole blocks a group may not pass the two loose ends of an open block, as FUSE-4 forbids them."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 32, 32]), 4, 4, name="c0"), name="r0")
    left = model.conv(model.conv(x, 4, 4, name="l1"), 4, 4, name="l2")
    model.output(model.node("Add", [left, model.conv(x, 4, 4, 1, name="m1")], name="add"))
    block = ("l1", "l2", "m1", "add")
    with_blocks = groups_of(model, ROOMY, Options(fusion="rules", objective="dram_bytes"))
    without = groups_of(model, ROOMY, off("FUSE-3", objective="dram_bytes"))
    assert any({"r0", *block} <= set(group) for group in with_blocks)
    assert not any({"r0", *block} <= set(group) for group in without)


def test_strategy_none_is_its_own_baseline() -> None:
    """FUSE-N."""
    plan = plan_model(convs(3).data(), ROOMY, Options(fusion="none")).plan
    assert plan.totals.dram_bytes == plan.baseline.dram_bytes
    assert plan.totals.latency_s == plan.baseline.latency_s
    assert [group.nodes for segment in plan.segments for group in segment.groups] == [
        (f"c{index}", f"r{index}") for index in range(3)
    ]


def test_every_edge_that_leaves_a_group_says_why() -> None:
    """SPEC 5.4: the first rule still failing, or the two objectives."""
    model = convs(6)
    groups = plan_groups(model, ROOMY, Options(fusion="rules", objective="dram_bytes"))
    assert len(groups) > 1
    for group in groups[:-1]:
        (edge,) = group.boundary
        assert edge.consumer in {node for other in groups for node in other.nodes} - set(group.nodes)
        assert edge.rule == "FUSE-19"
        assert edge.actual is not None
        assert edge.limit == 4
        assert edge.actual > edge.limit
    (last,) = groups[-1].boundary
    assert last.consumer is None


def test_fused_groups_name_the_objective_that_merging_would_cost() -> None:
    """SPEC 5.4, FUSE-20: the objective of the merged group against the objective of the two apart."""
    model = Model()
    x = model.input([1, 64, 8, 8])
    for index in range(2):
        x = model.conv(x, 64, 64, 1, name=f"c{index}")
    model.output(x)
    for objective in OBJECTIVES:
        chosen = Options(fusion="rules", objective=objective)  # type: ignore[arg-type]
        groups = plan_groups(model, small_profile(nram_bytes=12_000, cores=4), chosen)
        for group in groups:
            for edge in group.boundary:
                if edge.rule == "FUSE-20":
                    assert edge.actual is not None
                    assert edge.limit is not None
                    assert edge.actual > edge.limit


def test_nothing_fits_names_op_needed_and_available_bytes() -> None:
    """SPEC 5.3: a single op is legal only if its smallest tiling fits."""
    model = Model()
    x = model.relu(model.input([1, 64, 8, 8]), name="fine")
    model.output(model.conv(x, 64, 64, name="large"))
    with pytest.raises(LimitError) as caught:
        plan_model(model.data(), small_profile(nram_bytes=40))
    error = caught.value
    assert error.code == "does_not_fit"
    assert error.node == "large"
    assert error.op_type == "Conv"
    assert "bytes needed" in str(error.actual)
    assert "bytes available" in str(error.limit)
    needed, available = (int(str(text).split()[0]) for text in (error.actual, error.limit))
    assert available < needed
    assert available <= 40
    assert error.hint


def test_verifier_refuses_groups_that_miss_an_op() -> None:
    fused = fuse(convs(2), ROOMY, Options(fusion="none"))
    (segment,) = fused.segments
    broken = FusedSegment(segment=segment.segment, groups=segment.groups[:1], boundaries=segment.boundaries[:1])
    with pytest.raises(InternalError, match="exactly once"):
        verify_fused(FusedGraph(partitioned=fused.partitioned, facts=fused.facts, segments=(broken,), baseline=()))


def test_verifier_refuses_groups_out_of_order() -> None:
    fused = fuse(convs(2), ROOMY, Options(fusion="none"))
    (segment,) = fused.segments
    broken = FusedSegment(segment=segment.segment, groups=segment.groups[::-1], boundaries=segment.boundaries[::-1])
    with pytest.raises(InternalError, match="before one that it reads"):
        verify_fused(FusedGraph(partitioned=fused.partitioned, facts=fused.facts, segments=(broken,), baseline=()))


@settings(max_examples=80)
@given(models())
def test_blocks_have_one_entry_and_one_exit(model: Model) -> None:
    """FUSE-3: every path from the op before a block to the end of the segment passes its exit."""
    graph = whole_segment(model.facts())
    for op in graph.ops:
        leave = graph.exits[op]
        assert leave == brute_exit(graph, op)


def brute_exit(graph: SegmentGraph, op: int) -> int | None:
    """The first op after `op` on every path from it to where results leave the segment."""

    def leaves_without(banned: int) -> bool:
        pending, seen = [op], {op}
        while pending:
            current = pending.pop()
            if graph.leaves[current] or not graph.successors[current]:
                return True
            for user in graph.successors[current]:
                if user != banned and user not in seen:
                    seen.add(user)
                    pending.append(user)
        return False

    through = [other for other in bits(graph.descendants[op]) if not leaves_without(other)]
    return min(through, default=None)


@settings(max_examples=60)
@given(models(), st.data())
def test_convexity_by_bit_sets_equals_convexity_by_paths(model: Model, data: st.DataObject) -> None:
    graph = whole_segment(model.facts())
    members = data.draw(st.sets(st.sampled_from(graph.ops), min_size=1))
    outside: set[int] = set()
    comes_back = False
    for op in graph.ops:
        before = set(graph.predecessors[op])
        if op in members:
            comes_back |= bool(before & outside)
        elif before & (outside | members):
            outside.add(op)
    assert graph.is_convex(mask_of(members)) != comes_back
