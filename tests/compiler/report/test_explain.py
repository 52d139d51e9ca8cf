"""A plan in words: segments, cuts, hosts and what merging did (PART-3 to PART-6, IMPORT-6)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from compiler.amounts import bytes_text, cycles_text
from compiler.compile import Compilation, plan_model
from compiler.errors import RequestError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.report.explain import explain, group_values
from compiler.report.explain_gap import gap_lines
from compiler.report.explain_search import search_line
from compiler.report.plan import GapDoc, GapEntryDoc, Plan
from compiler.report.plan_search import SearchDoc
from tests.compiler.partition.graphs import limited, stationary
from tests.models import Model
from tests.profiles import small_profile

# Bytes of weights of one convolution of the network.
WEIGHTS = 8 * 8 * 9 * 4


def network() -> Model:
    """Three convolutions with taps, an op of the host, a folded branch, and a tail."""
    model = Model(name="explained")
    x = model.input(["batch", 8, 16, 16], "image")
    for index in range(3):
        x = model.output(model.relu(model.conv(x, 8, 8, name=f"conv{index}"), name=f"relu{index}"))
    x = model.node("Det", [x], name="determinant")
    scale = model.node("Sqrt", [model.constant(4.0, dtype="float32")], name="folded")
    model.output(model.node("Mul", [x, scale], name="tail"))
    return model


def plan_of(model: Model, profile: Profile, **options: object) -> Plan:
    """The plan under options."""
    return compilation_of(model, profile, **options).plan


def test_a_plan_with_a_host_op_and_a_limit(golden: Callable[[str], None]) -> None:
    """What does not fit together is said with limit and amount."""
    profile = limited(weight_bytes=2 * WEIGHTS)
    golden(explain(plan_of(network(), profile, dims={"batch": 2}, merge="forward")))


def test_a_plan_on_two_chips_with_stationary_weights(golden: Callable[[str], None]) -> None:
    """Cut further for what does not fit beside the weights; each chip's load and traffic."""
    model = Model(name="chips")
    x = model.input([1, 8, 16, 16], "image")
    for index in range(4):
        x = model.conv(x, 8, 8, name=f"conv{index}")
    model.output(x)
    profile = stationary(nram_bytes=2 * WEIGHTS // 4 + 900)
    golden(explain(plan_of(model, profile, merge="pairwise")))


def test_a_merge_that_does_not_compile(golden: Callable[[str], None]) -> None:
    """Two convolutions' weights fit a core, but leave less than the smallest tile needs."""
    model = Model(name="tight")
    x = model.input([1, 8, 16, 16], "image")
    for index in range(2):
        x = model.output(model.conv(x, 8, 8, name=f"conv{index}"))
    golden(explain(plan_of(model, stationary(nram_bytes=2 * WEIGHTS // 4 + 200), merge="forward", chips="single")))


def test_one_segment(golden: Callable[[str], None]) -> None:
    golden(explain(plan_of(network(), builtin_profile("edge4"), dims={"batch": 1}, merge="none"), "s1"))


def compilation_of(model: Model, profile: Profile, **options: object) -> Compilation:
    """As `plan_of`, with the report."""
    source = ModelSource.from_bytes(model.data(), name="explained.onnx")
    return plan_model(source, profile, parse_options(options))


def test_one_group(golden: Callable[[str], None]) -> None:
    """All that the documents say of it: ops, tiling, price, memory, checks, and what keeps its neighbours outside."""
    found = compilation_of(network(), builtin_profile("edge4"), dims={"batch": 1}, merge="none")
    golden(explain(found.plan, "s1.g0", found.report))


def test_one_group_between_others(golden: Callable[[str], None]) -> None:
    """SPEC 5.4: on either side what the two groups cost as one and apart, and by what bytes they differ."""
    model = Model(name="between")
    x = model.input([1, 32, 16, 16], "image")
    for index, kernel in enumerate((1, 1, 3, 3, 3)):
        x = model.conv(x, 32, 32, kernel, name=f"conv{index}")
    model.output(x)
    profile = small_profile(nram_bytes=12_000, wram_bytes=12_000, addressing="tables")
    found = compilation_of(model, profile, merge="none")
    golden(explain(found.plan, "s0.g1", found.report))


@pytest.mark.parametrize("profile", ["edge4", "cluster4x4"])
def test_the_parts_of_a_groups_bytes_add_up(profile: str) -> None:
    found = compilation_of(network(), builtin_profile(profile), dims={"batch": 2})
    prices = {price.id: price for price in found.report.groups}
    for segment in found.plan.segments:
        for group in segment.groups:
            price = prices[group.id]
            assert group.dram_bytes == price.dram_read_bytes + price.dram_write_bytes
            inputs = price.dram_read_bytes - price.weight_read_bytes
            parts = f"{bytes_text(inputs)} in, {bytes_text(price.weight_read_bytes)} weights"
            said = f"{bytes_text(group.dram_bytes)} of DRAM traffic: {parts}, {bytes_text(price.dram_write_bytes)} out"
            assert said in explain(found.plan, group.id, found.report)


@pytest.mark.parametrize(("fusion", "deciding"), [("rules", "FUSE-20"), ("search", None)])
def test_every_op_check_and_edge_of_a_group_is_said(fusion: str, deciding: str | None) -> None:
    """SPEC 5.4: also of the edges that enter, which stand in the documents with the groups that they leave."""
    plan = plan_of(chain(), small_profile(nram_bytes=12_000, wram_bytes=12_000), merge="none", fusion=fusion)
    groups = plan.segments[0].groups
    assert len(groups) > 2
    for number, group in enumerate(groups):
        text = explain(plan, group.id)
        assert f"ONNX nodes: {', '.join(group.nodes)}." in text
        for op in group.ops:
            assert f"  {op.node} ({op.kind})" in text
        for rule in group.rules:
            ids = rule.id if rule.also is None else f"{rule.id}, {rule.also}"
            said = {"bound": "decided this group", "held anyway": "met, not decisive", "not asked": "not asked here"}
            assert f"  {rule.name} ({ids}): {said[rule.outcome]}{', ' if rule.limit else '.'}" in text
        entered = text.partition("Inputs:")[2].partition("Outputs:")[0]
        if number == 0:
            assert "image: an input of the graph." in entered
        else:
            (edge,) = groups[number - 1].boundary
            assert f"from {groups[number - 1].id}: " in entered
            assert edge.why in entered
            assert edge.rule == deciding
            assert edge.actual is not None
            assert edge.limit is not None
            fused, apart = (cycles_text(value, plan.cycle_s) for value in (edge.actual, edge.limit))
            assert f"{edge.why}: {fused} fused, {apart} apart" in entered


def chain() -> Model:
    """Convolutions that do not all go together."""
    model = Model(name="chain")
    x = model.input([1, 32, 16, 16], "image")
    for index in range(8):
        x = model.conv(x, 32, 32, 3, name=f"conv{index}")
    model.output(x)
    return model


def test_the_part_of_a_group_as_values_is_that_of_the_documents() -> None:
    found = compilation_of(chain(), small_profile(nram_bytes=12_000, wram_bytes=12_000), merge="none")
    values = group_values(found.plan, found.report, "s0.g1")
    assert values["group"] == msgspec.to_builtins(found.plan.segments[0].groups[1])
    assert values["report"] == msgspec.to_builtins(found.report.groups[1])
    (enters,) = values["entering"]
    assert (enters["producer_group"], enters["edge"]["consumer_group"]) == ("s0.g0", "s0.g1")
    assert values["gap"]
    assert all("s0.g1" in entry["groups"] for entry in values["gap"])
    for whole in (None, "s0"):
        assert group_values(found.plan, found.report, whole) == {}
    with pytest.raises(RequestError):
        group_values(found.plan, found.report, "s0.g99")


def test_the_gap_is_said_where_a_plan_is_far_from_its_floor_and_not_where_it_is_near() -> None:
    tight = small_profile(nram_bytes=12_000, wram_bytes=12_000)
    text = explain(plan_of(chain(), tight, merge="none"))
    assert "Excess DRAM" in text
    assert "could save up to" in text
    assert "Excess DRAM" not in explain(plan_of(chain(), small_profile(nram_bytes=1 << 20), fusion="rules", **ANY))


ANY: dict[str, object] = {"rules": {"FUSE-19": {"enabled": False}}}


def gap(**kinds: int) -> GapDoc:
    """A gap of these kinds, an entry each, for which a memory is to grow."""
    entries = tuple(
        GapEntryDoc(
            kind=kind,  # type: ignore[arg-type]
            name=f"of {kind}",
            groups=("s0.g0",),
            read_bytes=size,
            written_bytes=0,
            times=2,
            fields=("nram.capacity_bytes",) if kind == "weights" else (),
            why="it is so",
        )
        for kind, size in kinds.items()
    )
    return GapDoc(above_floor_bytes=sum(kinds.values()), kinds=kinds, entries=entries)


def test_the_three_largest_kinds_are_said_and_the_rest_together() -> None:
    found = gap(weights=50, inputs=30, shared=10, unneeded=7, tables=3)
    assert list(gap_lines(found, 200, 100)) == [
        "50 B (50 %): weights loaded more than once, for node of weights (loaded 2 times);"
        " more NRAM (nram.capacity_bytes) could save up to 50 B",
        "30 B (30 %): inputs loaded more than once by one group, for tensor of inputs (loaded 2 times);"
        " no larger memory is known to help",
        "10 B (10 %): inputs and weights loaded by several groups, for tensor of shared (loaded 2 times);"
        " no larger memory is known to help",
        "10 B: other kinds",
    ]


@pytest.mark.parametrize(("dram", "floor", "said"), [(1050, 1000, False), (1051, 1000, True), (7, 0, False)])
def test_the_gap_is_said_above_five_per_cent(dram: int, floor: int, said: bool) -> None:
    assert bool(list(gap_lines(gap(weights=dram - floor), dram, floor))) is said


@pytest.mark.parametrize("group", ["s9", "s0.g9", "", "s0.g0 ", "\x1b[31m"])
def test_a_group_that_the_plan_does_not_have_is_refused_with_some_that_it_has(group: str) -> None:
    with pytest.raises(RequestError) as caught:
        explain(plan_of(network(), builtin_profile("edge4"), dims={"batch": 1}), group)
    error = caught.value
    assert error.code == "unknown_group"
    assert "s0.g0" in str(error.limit)
    assert str(error).isprintable()


def test_a_plan_without_groups_names_its_segments() -> None:
    model = Model()
    model.output(model.node("Det", [model.input([4, 4])], name="it"))
    plan = plan_of(model, builtin_profile("edge4"))
    with pytest.raises(RequestError) as caught:
        explain(plan, "s0.g0")
    assert caught.value.limit == "s0"
    assert "it (Det) stays on the host: the accelerator has no Det." in explain(plan)


def test_names_of_a_model_reach_the_text_in_bounds_and_printable() -> None:
    """API-7."""
    model = Model()
    x = model.relu(model.input([4, 4]), name="evil\x1b[31m\nnode" * 200)
    model.output(model.node("Det", [x], name="host\x1b[0m\n" * 200))
    text = explain(plan_of(model, builtin_profile("edge4")))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 1000


def test_every_segment_group_and_reason_is_in_the_text() -> None:
    plan = plan_of(network(), limited(weight_bytes=2 * WEIGHTS), dims={"batch": 2}, merge="pairwise")
    text = explain(plan)
    for segment in plan.segments:
        assert f"Segment {segment.id} " in text
        assert segment.cut.why in text
        assert all(node.reason in text for node in segment.host)
        for group in segment.groups:
            assert group.id in explain(plan, segment.id)
            assert all(edge.why in explain(plan, group.id) for edge in group.boundary)
    assert all(entry.why[:100] in text for entry in plan.partition.apart)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            {"bound": 1500.0, "is_least": True},
            "Search in s0: optimal among partitions into single-output groups; 1,500",
        ),
        (
            {"bound": 1200.0, "is_least": False},
            "Search in s0: 1,500 cycles before tiles are refined; lower bound 1,200 cycles, so at most 25.0 % above",
        ),
        ({"bound": None, "is_least": False}, "Search in s0: 1,500 cycles before tiles are refined; no lower bound is"),
        ({"bound": None, "is_least": True}, "Search in s0: optimal among partitions into single-output groups; 1,500"),
    ],
    ids=["proven", "bounded", "without a bound", "proven beside other segments"],
)
def test_what_the_search_knows_is_told_in_one_line(found: dict[str, Any], words: str) -> None:
    document = SearchDoc(candidates=3292, priced=369, value=1500.0, **found)
    line = search_line("s0", document, lambda value: f"{value:,.0f} cycles")
    assert line.startswith(words)
    assert "369 of 3,292 possible groups priced" in line


def test_a_segment_is_explained_with_what_the_search_knows_of_it() -> None:
    model = Model()
    model.output(model.relu(model.conv(model.input([1, 4, 8, 8]), 4, 4)))
    for fusion in ("search", "rules"):
        plan = plan_model(model.data(), builtin_profile("edge4"), parse_options({"fusion": fusion})).plan
        assert ("Search in s0: optimal" in explain(plan, "s0")) == (fusion == "search")
        assert ("Search in s0: optimal" in explain(plan)) == (fusion == "search")
