"""Pinned schedules on networks: what is pinned comes out as pinned, or the constraint that cannot hold (TILE-9)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from compiler.compile import compile_model, plan_model
from compiler.errors import LimitError, RequestError, TesseraError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.schema import Engine, Profile
from compiler.report.plan import Plan, PlanGroup, plan_json
from tests.compiler.fusion.cases import any_model, any_profile, facts_of, tight
from tests.models import Model, light_source
from tests.networks import fsrcnn
from tests.profiles import small_profile
from tests.strategies import OBJECTIVES

CONVOLUTIONS = [f"conv{index}" for index in range(8)]
CACHED = {"H": "cached", "W": "cached"}


@cache
def fsrcnn_source() -> ModelSource:
    return ModelSource.from_bytes(fsrcnn().SerializeToString(), name="fsrcnn")


def fsrcnn_plan(schedule: Mapping[str, Any] | None, **options: object) -> Plan:
    """FSRCNN in eight bits on the accelerator of N-2, under a schedule."""
    values = {"precision": "int8", "schedule": schedule, **options}
    return plan_model(fsrcnn_source(), builtin_profile("metaproto-df"), parse_options(values)).plan


def groups_of(plan: Plan) -> list[PlanGroup]:
    return [group for segment in plan.segments for group in segment.groups]


def members(plan: Plan) -> list[tuple[str, ...]]:
    return [group.nodes for group in groups_of(plan)]


def whole(**pinned: object) -> dict[str, Any]:
    """FSRCNN as one group, with some of its tiling pinned."""
    return {"groups": [{"nodes": CONVOLUTIONS, **pinned}]}


@cache
def branches() -> ModelSource:
    """A stem, two branches that are added, and a tail."""
    model = Model(name="branches")
    x = model.conv(model.input([1, 8, 16, 16], "image"), 8, 8, name="stem")
    left = model.relu(model.conv(x, 8, 8, name="left"), name="left_relu")
    right = model.conv(x, 8, 8, name="right")
    x = model.node("Add", [left, right], name="sum")
    model.output(model.relu(model.conv(x, 8, 8, name="tail"), name="tail_relu"))
    return ModelSource.from_bytes(model.data(), name="branches")


def plan_of(schedule: Mapping[str, Any] | None, profile: str = "edge4", **options: object) -> Plan:
    return plan_model(branches(), builtin_profile(profile), parse_options({"schedule": schedule, **options})).plan


# what is pinned


@pytest.mark.parametrize("width", [4, 60])
def test_a_tile_with_cached_halos_moves_the_bytes_of_the_floor(width: int) -> None:
    """TILE-9, N-2: 539,596 in, 8,294,400 out and 15,992 of weights."""
    plan = fsrcnn_plan(whole(tiling={"tile": {"W": width, "H": 72}}, halo=CACHED))
    (group,) = groups_of(plan)
    assert plan.totals.dram_bytes == 8_849_988 == 539_596 + 8_294_400 + 15_992
    assert dict(zip(group.tiling.axes, group.tiling.tile, strict=True)) == {"N": 1, "C": 16, "H": 72, "W": width}
    assert group.halo == CACHED
    assert group.tiling.tiles == 8 * (960 // width)
    assert sum(group.stalls.values()) == sum(plan.totals.stalls.values())


def test_a_tile_that_does_not_fit_is_refused_with_constraint_op_needed_and_available_bytes() -> None:
    """TILE-9: the whole map of FSRCNN at once."""
    with pytest.raises(LimitError) as caught:
        fsrcnn_plan(whole(tiling={"tile": {"W": 960, "H": 540}}))
    error = caught.value
    assert error.code == "schedule_does_not_hold"
    assert (error.node, error.op_type) == ("conv7", "Conv")
    assert "8 nodes, conv0 to conv7" in error.message
    assert str(error.actual).endswith("bytes needed (tile fits on chip, TILE-2:tile)")
    assert error.limit == f"{2**20} bytes available"
    assert int(str(error.actual).split()[0]) > 2**20


def test_what_is_left_open_is_chosen_and_what_is_pinned_is_kept() -> None:
    plan = fsrcnn_plan(whole(tiling={"tile": {"H": 60}}, halo={"H": "cached"}))
    (group,) = groups_of(plan)
    assert group.tiling.tile[2] == 60
    assert group.halo["H"] == "cached"


@pytest.mark.slow
def test_a_group_alone_may_be_pinned_with_everything_open() -> None:
    plan = fsrcnn_plan({"groups": [{"nodes": ["conv3", "conv2"]}]})
    assert ("conv2", "conv3") in members(plan)
    assert {name for group in members(plan) for name in group} == set(CONVOLUTIONS)


def test_only_rules_8_9_and_12_to_16_and_memory_bind_a_pinned_group() -> None:
    """FUSE-4, 11 and 18 to 20 do not: two outputs, and kernels whose overlaps add up to more than 4."""
    (group,) = groups_of(fsrcnn_plan(whole(halo={"H": "recompute", "W": "recompute"})))
    memory = ["TILE-2:tile", "TILE-2:core", "TILE-2:weights"]
    asked = ["FUSE-8", "FUSE-9", *memory, *(f"FUSE-{number}" for number in range(12, 17))]
    assert [rule.id for rule in group.rules] == [*asked, *(f"PROG-2:{level}" for level in group.memory)]
    plan = plan_of({"groups": [{"nodes": ["left", "left_relu", "right", "stem"]}]})
    assert ("stem", "left", "left_relu", "right") in members(plan)


@pytest.mark.slow
def test_weights_may_be_pinned_to_be_streamed() -> None:
    schedule = {"groups": [{"nodes": ["conv0", "conv1"], "ops": [{"node": "conv0", "weight_mode": "streamed"}]}]}
    group = groups_of(fsrcnn_plan(schedule))[0]
    modes = {op.node: (op.weight_mode, op.weight_loads) for op in group.ops}
    assert modes["conv0"][0] == "streamed"
    assert modes["conv0"][1] > 1
    assert modes["conv1"] == ("resident", 1)


def test_a_weight_mode_that_no_tiling_has_is_refused() -> None:
    schedule = whole(ops=[{"node": "conv3", "weight_mode": "stationary"}])
    with pytest.raises(LimitError) as caught:
        fsrcnn_plan(schedule)
    assert (caught.value.code, caught.value.node) == ("schedule_does_not_hold", "conv3")
    assert "resident (weights are read as pinned, TILE-9:weights)" in str(caught.value.actual)


@pytest.mark.parametrize(
    ("pinned", "words"),
    [
        ({"tiling": {"tile": {"H": 541}}}, ("tile H = 541", "at most 540")),
        ({"tiling": {"tile": {"D": 4}}}, ("tile names axis D", "N, C, H, W")),
        ({"tiling": {"tile": {"H": 4}, "core_tile": {"H": 5}}}, ("core_tile H = 5", "at most 4")),
        ({"halo": {"C": "cached"}}, ("halo names axis C", "N, H, W")),
        ({"placement": {"walk": ["H", "H"]}}, ("walk names an axis twice",)),
        ({"placement": {"units": 2}}, ("units = 2", "at most 1")),
        ({"placement": {"spread": "bands"}}, ("spread = bands", "single")),
        ({"tiling": {"input_slices": 2}}, ("input_slices = 2",)),
    ],
)
def test_what_no_tiling_of_the_group_could_have_is_a_wrong_request(
    pinned: dict[str, Any], words: tuple[str, ...]
) -> None:
    with pytest.raises(RequestError) as caught:
        fsrcnn_plan(whole(**pinned))
    assert (caught.value.code, caught.value.node) == ("invalid_schedule", "conv7")
    for word in words:
        assert word in str(caught.value)


def test_channel_tile_without_slices_is_reached_by_slices() -> None:
    """TILE-9: the channel tile follows from slices; pinned alone it finds them."""
    model = Model(name="one")
    model.output(model.conv(model.input([1, 8, 8, 8], "image"), 8, 64, name="conv"))
    pinned = {"groups": [{"nodes": ["conv"], "tiling": {"tile": {"C": 16}}, "placement": {"spread": "single"}}]}
    plan = plan_model(model.data(), builtin_profile("edge4"), parse_options({"schedule": pinned})).plan
    (group,) = groups_of(plan)
    assert (group.tiling.tile[1], group.tiling.channel_slices) == (16, 4)


# which nodes


@pytest.mark.parametrize(
    ("groups", "code", "node", "word"),
    [
        ([["stem", "nowhere"]], "unknown_node", "nowhere", "does not have"),
        ([["stem", "left"], ["left", "left_relu"]], "invalid_schedule", "left", "two groups"),
        ([["stem", "sum"]], "invalid_schedule", "left", "runs between"),
        ([["stem", "left", "left_relu", "sum"]], "invalid_schedule", "right", "runs between"),
    ],
)
def test_a_group_of_wrong_nodes_is_refused_naming_the_node(
    groups: list[list[str]], code: str, node: str, word: str
) -> None:
    with pytest.raises(RequestError) as caught:
        plan_of({"groups": [{"nodes": nodes} for nodes in groups]})
    assert (caught.value.code, caught.value.node) == (code, node)
    assert word in caught.value.message


def test_pinned_groups_that_wait_for_each_other_are_refused() -> None:
    model = Model(name="crossed")
    x, y = model.input([1, 8, 8, 8], "x"), model.input([1, 8, 8, 8], "y")
    model.output(model.relu(model.relu(x, name="a"), name="b"))
    model.output(model.relu(model.relu(y, name="c"), name="d"))
    options = parse_options({"schedule": {"groups": [{"nodes": ["a", "d"]}, {"nodes": ["b", "c"]}]}})
    with pytest.raises(RequestError) as caught:
        plan_model(model.data(), builtin_profile("edge4"), options)
    assert caught.value.code == "invalid_schedule"
    assert "circle" in caught.value.message


def host_and_folded() -> Model:
    model = Model(name="host")
    x = model.conv(model.input([1, 8, 8, 8], "image"), 8, 8, name="conv")
    x = model.relu(model.node("Det", [x], name="determinant"), name="relu")
    scale = model.node("Sqrt", [model.constant(4.0, dtype="float32")], name="folded")
    model.output(model.node("Mul", [x, scale], name="tail"))
    return model


@pytest.mark.parametrize(
    ("nodes", "word"),
    [(["determinant"], "host"), (["folded"], "compile time"), (["conv", "relu"], "segment")],
)
def test_nodes_off_the_chip_or_of_two_segments_are_refused(nodes: list[str], word: str) -> None:
    options = parse_options({"schedule": {"groups": [{"nodes": nodes}]}})
    with pytest.raises(RequestError) as caught:
        plan_model(host_and_folded().data(), builtin_profile("edge4"), options)
    assert caught.value.node in nodes
    assert word in caught.value.message


# forced and forbidden fusions


@pytest.mark.parametrize("fusion", ["search", "rules", "none"])
def test_a_forced_fusion_takes_in_what_runs_in_between(fusion: str) -> None:
    plan = plan_of({"fuse": [["stem", "sum"]]}, fusion=fusion)
    assert ("stem", "left", "left_relu", "right", "sum") in members(plan)


def test_forced_fusions_that_meet_make_one_group() -> None:
    plan = fsrcnn_plan({"fuse": [["conv1", "conv2"], ["conv2", "conv4"]]}, fusion="none")
    assert ("conv1", "conv2", "conv3", "conv4") in members(plan)
    assert len(members(plan)) == 5


@pytest.mark.slow
def test_a_forced_fusion_extends_a_pinned_group_and_keeps_its_pins() -> None:
    schedule = {"groups": [{"nodes": ["conv6", "conv7"], "tiling": {"tile": {"H": 30}}}], "fuse": [["conv5", "conv6"]]}
    group = next(group for group in groups_of(fsrcnn_plan(schedule)) if "conv7" in group.nodes)
    assert group.nodes == ("conv5", "conv6", "conv7")
    assert group.tiling.tile[2] == 30


def test_a_forced_fusion_of_two_pinned_tilings_is_refused() -> None:
    pinned = [{"nodes": [node], "tiling": {"tile": {"H": 30}}} for node in ("conv5", "conv6")]
    with pytest.raises(RequestError, match="forced fusion joins"):
        fsrcnn_plan({"groups": pinned, "fuse": [["conv5", "conv6"]]})


@pytest.mark.parametrize("fusion", ["search", "rules", "none"])
def test_a_forbidden_fusion_is_in_no_group(fusion: str) -> None:
    """TILE-9:apart; conv and relu are one group otherwise."""
    together, apart = plan_of(None, fusion=fusion), plan_of({"apart": [["tail", "tail_relu"]]}, fusion=fusion)
    assert any({"tail", "tail_relu"} <= set(group) for group in members(together))
    assert not any({"tail", "tail_relu"} <= set(group) for group in members(apart))
    group = next(group for group in groups_of(apart) if "tail" in group.nodes)
    assert ("TILE-9:apart", 1.0, 0.0) in [(edge.rule, edge.actual, edge.limit) for edge in group.boundary]


@pytest.mark.parametrize("schedule", [{"fuse": [["stem", "sum"]]}, {"groups": [{"nodes": ["left", "left_relu"]}]}])
def test_what_is_forced_and_forbidden_at_once_is_refused(schedule: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        plan_of({**schedule, "apart": [["left_relu", "left"]]})
    assert caught.value.code == "invalid_schedule"
    assert caught.value.node == "left_relu"
    assert "left" in caught.value.message
    assert "TILE-9:apart" in str(caught.value.limit)


def test_the_baseline_does_not_follow_the_schedule() -> None:
    assert plan_of({"fuse": [["stem", "sum"]]}).baseline == plan_of(None).baseline


# a plan is a schedule

PROFILES = ("cluster4x4", "edge4", "manycore2x64", "metaproto-df")
ROUND_TRIPS = [
    (name, profile, fusion)
    for name in ("shufflenet", "squeezenet", "resnet50", "inception_v2")
    for profile in PROFILES
    for fusion in ("search", "rules", "none")
    if (name, profile) not in (("resnet50", "metaproto-df"), ("squeezenet", "metaproto-df"))
]


def same_but_for_reasons(plan: Plan) -> list[PlanGroup]:
    """The groups without what a schedule changes: which rules bound a group, and why it ends where it does."""
    return [msgspec.structs.replace(group, rules=(), boundary=()) for group in groups_of(plan)]


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(("name", "profile", "fusion"), ROUND_TRIPS)
def test_a_plan_pins_itself(name: str, profile: str, fusion: str) -> None:
    """TILE-9: the schedule that a plan prints gives the same groups, tilings and costs."""
    values = {"fusion": fusion} | ({"precision": "int8"} if profile == "metaproto-df" else {})
    first = plan_model(light_source(name), builtin_profile(profile), parse_options(values)).plan
    printed = json.loads(plan_json(first))
    again = plan_model(
        light_source(name), builtin_profile(profile), parse_options({**values, "schedule": printed})
    ).plan
    assert same_but_for_reasons(again) == same_but_for_reasons(first)
    assert again.totals == first.totals
    assert again.baseline == first.baseline
    assert {key for key in first.options if again.options[key] != first.options[key]} == {"schedule"}
    third = plan_model(
        light_source(name), builtin_profile(profile), parse_options({**values, "schedule": again.options["schedule"]})
    ).plan
    assert third == again


def drawn(seed: int) -> tuple[ModelSource, Profile, dict[str, str]]:
    """A random network, a chip with little memory for it, and options."""
    random = Random(seed)
    while True:
        model = any_model(random, 8)
        try:
            profile = tight(random, any_profile(random), facts_of(model))
        except TesseraError:
            continue
        return ModelSource.from_bytes(model.data()), profile, {"objective": OBJECTIVES[seed % 4], "fusion": "search"}


def assert_pins_itself(seed: int) -> bool:
    """The schedule that a plan prints gives the same groups; False if the network does not fit its chip."""
    source, profile, values = drawn(seed)
    try:
        first = plan_model(source, profile, parse_options(values)).plan
    except LimitError:
        return False
    again = plan_model(source, profile, parse_options({**values, "schedule": json.loads(plan_json(first))})).plan
    assert same_but_for_reasons(again) == same_but_for_reasons(first), seed
    assert again.totals == first.totals, seed
    return True


@pytest.mark.parametrize("seed", [22, 59, 66])
def test_a_plan_of_a_search_pins_itself(seed: int) -> None:
    """TILE-9: tiles by cost too, larger than a unit's share or that fit only when they are worked out."""
    assert assert_pins_itself(seed)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("start", range(1000, 1400, 10))
def test_every_plan_of_a_search_pins_itself(start: int) -> None:
    """TILE-9: 400 random networks on chips with little memory for them."""
    assert sum(assert_pins_itself(seed) for seed in range(start, start + 10)) > 1


@pytest.mark.parametrize("slices", [2, 4])
@pytest.mark.parametrize("outer", ["tiles", "slices"])
def test_the_order_of_slices_and_tiles_is_as_pinned(outer: str, slices: int) -> None:
    """TILE-9: the order that costs more too."""
    model = Model()
    model.output(model.conv(model.input([1, 512, 14, 14]), 512, 512, 1, name="conv"))
    schedule = {"groups": [{"nodes": ["conv"], "tiling": {"channel_slices": slices, "outer_loop": outer}}]}
    plan = plan_model(model.data(), builtin_profile("edge4"), parse_options({"schedule": schedule})).plan
    (group,) = groups_of(plan)
    assert (group.tiling.channel_slices, group.tiling.outer_loop) == (slices, outer)


@pytest.mark.parametrize("doubled", [False, True])
def test_buffers_are_doubled_as_pinned(doubled: bool) -> None:
    """TILE-9: where units have two rounds, the choice that costs more too."""
    plan = plan_of({"groups": [{"nodes": ["stem"], "tiling": {"tile": {"H": 2}, "double_buffered": doubled}}]})
    (group,) = (group for group in groups_of(plan) if group.nodes == ("stem",))
    assert group.tiling.double_buffered is doubled


def test_a_tile_larger_than_the_share_of_a_unit_is_as_pinned() -> None:
    """TILE-9: 16 rows on four units are four each, but one may have eight."""
    tiling, placement = {"tile": {"H": 8, "W": 16}}, {"units": 4, "spread": "bands"}
    plan = plan_of({"groups": [{"nodes": ["stem"], "tiling": tiling, "placement": placement}]})
    group = next(group for group in groups_of(plan) if group.nodes == ("stem",))
    assert dict(zip(group.tiling.axes, group.tiling.tile, strict=True)) == {"N": 1, "C": 8, "H": 8, "W": 16}
    assert (group.placement.units, group.placement.spread, group.tiling.tiles) == (4, "bands", 2)


def test_a_plan_with_nodes_that_became_several_ops_pins_itself() -> None:
    """Split becomes an op per output; they end in groups of their own."""
    model = Model(name="parts")
    x = model.conv(model.input([1, 8, 16, 16], "image"), 8, 8, name="stem")
    parts = model.nodes_out("Split", [x], ["first", "second"], name="split", axis=1)
    for part, name in zip(parts, ("left", "right"), strict=True):
        model.output(model.conv(part, 4, 8, name=name))
    first = plan_model(model.data(), builtin_profile("edge4"), parse_options({"fusion": "none"})).plan
    assert {op.part for group in groups_of(first) for op in group.ops if op.node == "split"} == {0, 1}
    values = {"fusion": "none", "schedule": json.loads(plan_json(first))}
    again = plan_model(model.data(), builtin_profile("edge4"), parse_options(values)).plan
    assert same_but_for_reasons(again) == same_but_for_reasons(first)


# options for all groups


@pytest.mark.parametrize("mode", ["recompute", "cached", "exchange"])
def test_option_halo_is_the_mode_of_every_map_that_is_cut_and_shared(mode: str) -> None:
    plan = fsrcnn_plan(None, halo=mode, fusion="rules")
    assert {found for group in groups_of(plan) for found in group.halo.values()} == {mode}


@pytest.mark.parametrize("placement", ["columns", "blocks", "quadrants", "checkerboard", "row-major", "z-order"])
def test_option_placement_deals_out_the_tiles_of_every_band(placement: str) -> None:
    plan = plan_of(None, placement=placement, fusion="none")
    found = {group.placement.placement for group in groups_of(plan) if group.placement.spread == "bands"}
    assert found == {placement}


@pytest.mark.parametrize(
    ("pinned", "words"),
    [
        ({"placement": {"units": 1, "spread": "bands"}}, "units = 1 with spread bands"),
        ({"tiling": {"channel_slices": 2, "input_slices": 2, "outer_loop": "tiles"}}, "outer_loop tiles"),
    ],
)
def test_a_schedule_that_contradicts_itself_is_refused_by_name(pinned: dict[str, Any], words: str) -> None:
    """TILE-9: not found out by a search that has nothing left to search."""
    schedule = {"groups": [{"nodes": ["stem"], **pinned}]}
    with pytest.raises(RequestError) as caught:
        plan_of(schedule)
    assert words in str(caught.value)


def test_units_that_a_group_has_no_way_to_share_out_are_refused_in_words() -> None:
    """TILE-9: a single number has nothing that four units could share; no bytes are made up for it."""
    model = Model()
    model.output(model.node("Softmax", [model.input([1, 1])], name="alone"))
    schedule = {"groups": [{"nodes": ["alone"], "placement": {"units": 4}}]}
    with pytest.raises(LimitError, match="no tiling has all that is pinned"):
        plan_model(model.data(), builtin_profile("edge4"), parse_options({"schedule": schedule}))


BETWEEN_UNITS = [
    {"halo": "exchange"},
    {"schedule": {"groups": [{"nodes": ["a", "b"], "halo": {"H": "exchange"}}]}},
]


def unconnected() -> Profile:
    """Two clusters with no way between them."""
    profile = small_profile(nram_bytes=2_000, sram_bytes=3_000, clusters=2)
    engines = msgspec.structs.replace(profile.engines, cdma=None, iodma=Engine(bytes_per_cycle=8))
    return msgspec.structs.replace(profile, engines=engines)


def two_layers() -> bytes:
    """Two convolutions of maps that do not fit."""
    model = Model()
    x = model.conv(model.input([1, 4, 24, 24]), 4, 4, name="a")
    model.output(model.conv(x, 4, 4, name="b"))
    return model.data()


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("fusion", ["search", "rules", "none"])
@pytest.mark.parametrize("values", BETWEEN_UNITS, ids=["option", "schedule"])
def test_units_without_a_way_to_each_other_exchange_nothing(values: dict[str, Any], fusion: str) -> None:
    """TILE-3: the tiles of one map are then one unit's, or its channels are shared out."""
    compilation = compile_model(two_layers(), unconnected(), parse_options({**values, "fusion": fusion}))
    assert compilation.report.values_checked
    modes = [(group.placement.spread, mode) for group in groups_of(compilation.plan) for mode in group.halo.values()]
    assert "exchange" in {mode for _, mode in modes}
    assert ("bands", "exchange") not in modes


def test_a_halo_that_is_not_shared_needs_no_way_between_units() -> None:
    """TILE-3, TILE-9: what a plan prints of a map that units share out, each row for itself, is read back."""
    model = Model()
    model.output(model.relu(model.input([1, 4, 64, 24], "x"), name="a"))
    values: dict[str, Any] = {"halo": "exchange", "fusion": "none"}
    first = plan_model(model.data(), unconnected(), parse_options(values)).plan
    group = {"nodes": ["a"], "tiling": {"tile": {"H": 8}}, "placement": {"units": 2, "spread": "bands"}}
    schedule = {"groups": [{**group, "halo": {"H": "recompute"}}]}
    (found,) = groups_of(plan_model(model.data(), unconnected(), parse_options({**values, "schedule": schedule})).plan)
    assert (found.placement.units, found.placement.spread) == (2, "bands")
    again = plan_model(model.data(), unconnected(), parse_options({**values, "schedule": json.loads(plan_json(first))}))
    assert same_but_for_reasons(again.plan) == same_but_for_reasons(first)


def test_images_of_units_without_a_way_to_each_other_keep_nothing_for_each_other() -> None:
    """TILE-3: a computed weight is the same for all images, and waits for the next one in its own unit only."""
    model = Model()
    weight = model.node("Tanh", [model.input([4, 4, 3, 3], "w")])
    model.output(model.node("Conv", [model.input([4, 4, 12, 12], "x"), weight], name="product"))
    options = parse_options({"halo": "exchange", "fusion": "none"})
    compilation = compile_model(model.data(), unconnected(), options)
    assert compilation.report.values_checked


def test_an_exchange_that_is_pinned_between_units_without_a_way_to_each_other_is_refused() -> None:
    """TILE-3, TILE-9."""
    group = {"nodes": ["a", "b"], "halo": {"H": "exchange"}, "placement": {"units": 2, "spread": "bands"}}
    with pytest.raises(LimitError) as caught:
        plan_model(two_layers(), unconnected(), parse_options({"schedule": {"groups": [group]}}))
    assert caught.value.actual == "2 units that pass each other halos (units can exchange halos, TILE-3:exchange)"
    assert "engines.cdma" in str(caught.value.limit)
