"""What lies between a plan and its floor: exact to the byte, and named (SPEC 5.1, 5.4)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given

from compiler.errors import LimitError
from compiler.fusion.bounds import dram_floor_bytes, needed_positions
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.fusion.gap import Gap, GapEntry, GapKind, Tilings, gap_of
from compiler.fusion.gap_fields import Cause, field_of_rule
from compiler.fusion.groups import FusedGraph
from compiler.options import Options, RuleSetting, parse_options
from compiler.partition.partition import PartitionGraph
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.matrices import tries
from tests.models import Model
from tests.profiles import profile_values, small_profile
from tests.strategies import models, options, profiles

ROOMY = small_profile(nram_bytes=1 << 20, wram_bytes=1 << 20)


def fused_of(model: Model, profile: Profile, chosen: Options) -> tuple[FusedGraph, Tilings]:
    """The fused graph, and who knows the tilings of merged groups."""
    compilers = SegmentCompilers(profile, chosen)
    partition = PartitionGraph(profile=profile, options=chosen, candidates=compilers.of)
    fused = FuseSegments(options=chosen, compilers=compilers).run(partition.run(model.graph()))
    return fused, compilers.tilings(fused.facts)


def gap(model: Model, profile: Profile = ROOMY, **chosen: object) -> Gap:
    """The gap of a model's plan, strategy `none` unless told otherwise."""
    fused, tilings = fused_of(model, profile, Options(**{"fusion": "none", **chosen}))  # type: ignore[arg-type]
    found = gap_of(fused, profile, tilings)
    assert found.above_floor_bytes == above_floor(fused, profile)
    return found


def above_floor(fused: FusedGraph, profile: Profile) -> int:
    """DRAM bytes by the groups' prices, less the floor."""
    moved = sum(group.choice.cost.dram_bytes for segment in fused.segments for group in segment.groups)
    return moved - dram_floor_bytes(fused.facts, needed_positions(fused.facts), profile)


def only(found: Gap, kind: GapKind) -> list[GapEntry]:
    """The entries of one kind; there are no others."""
    assert {entry.kind for entry in found.entries} == {kind}
    return list(found.entries)


@tries(first=20, rest=60)
@given(models(), profiles(), options(switches=True))
def test_the_kinds_add_up_to_the_bytes_above_the_floor(model: Model, profile: Profile, chosen: Options) -> None:
    """Every byte of every group's price is either in the floor or in exactly one entry."""
    try:
        fused, tilings = fused_of(model, profile, chosen)
    except LimitError:
        assume(False)
    found = gap_of(fused, profile, tilings)
    assert found.above_floor_bytes == sum(found.kinds.values()) == above_floor(fused, profile)
    assert all(entry.read_bytes >= 0 and entry.written_bytes >= 0 and entry.why for entry in found.entries)
    sizes = [entry.size_bytes for entry in found.entries]
    assert sizes == sorted(sizes, reverse=True)
    assert all(sizes)


def test_a_plan_at_its_floor_has_no_gap() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 4, 8, 8]), 4, 4))
    found = gap(model)
    assert (found.entries, found.above_floor_bytes) == ((), 0)
    assert set(found.kinds) == set(GapKind)


def test_what_leaves_a_group_is_written_once_and_read_by_each_group_that_needs_it() -> None:
    model = Model()
    x = model.conv(model.input([1, 4, 8, 8]), 4, 4, name="first")
    for number in range(2):
        model.output(model.conv(x, 4, 4, name=f"reader{number}"))
    (entry,) = only(gap(model), GapKind.INTERMEDIATES)
    size = 4 * 4 * 64
    assert (entry.name, entry.written_bytes, entry.read_bytes, entry.times) == (x, size, 2 * size, 2)
    assert entry.groups == ("s0.g0", "s0.g1", "s0.g2")
    assert entry.fields == ()
    assert "strategy none" in entry.why


def test_of_an_intermediate_that_is_an_output_too_only_the_reading_lies_above_the_floor() -> None:
    model = Model()
    x = model.output(model.conv(model.input([1, 4, 8, 8]), 4, 4, name="first"))
    model.output(model.conv(x, 4, 4, name="second"))
    (entry,) = only(gap(model, merge="none"), GapKind.INTERMEDIATES)
    assert (entry.written_bytes, entry.read_bytes) == (0, 4 * 4 * 64)


def test_an_input_that_two_groups_read_is_shared() -> None:
    model = Model()
    x = model.input([1, 4, 8, 8], "image")
    for number in range(2):
        model.output(model.conv(x, 4, 4, name=f"reader{number}"))
    (entry,) = only(gap(model), GapKind.SHARED)
    assert (entry.name, entry.size_bytes, entry.times) == ("image", 4 * 4 * 64, 2)
    assert entry.groups == ("s0.g0", "s0.g1")


def test_a_weight_that_two_ops_read_is_shared_too() -> None:
    model = Model()
    x, w = model.input([1, 4, 4, 4]), model.weight(4, 4, 1, 1)
    model.output(model.node("Conv", [model.node("Conv", [x, w]), w]))
    kinds = gap(model).kinds
    assert kinds[GapKind.SHARED] == 4 * 16
    assert kinds[GapKind.INTERMEDIATES] == 2 * 4 * 64


def test_positions_between_strides_are_unneeded_where_they_are_read() -> None:
    """SPEC 5.1: the floor counts 9 of the 49 positions that lie in the convolution's one box."""
    model = Model()
    model.output(model.conv(model.input([1, 1, 9, 9], "image"), 1, 1, 1, stride=3))
    (entry,) = only(gap(model), GapKind.UNNEEDED)
    assert (entry.name, entry.size_bytes) == ("image", 4 * (49 - 9))


def test_of_an_intermediate_and_an_input_more_moves_than_the_output_needs() -> None:
    model = Model()
    x = model.input([1, 4, 8, 8])
    part = model.node("Slice", [model.relu(x), model.ints(0), model.ints(4), model.ints(2)])
    model.output(part)
    found = gap(model)
    (entry,) = [e for e in found.entries if e.kind is GapKind.INTERMEDIATES]
    assert (entry.written_bytes, entry.read_bytes) == (4 * 4 * 64, 4 * 4 * 4 * 8)
    assert found.kinds[GapKind.UNNEEDED] == 4 * 4 * 32


def convs(count: int, channels: int, kernel: int, extent: int) -> Model:
    """Convolutions in a row."""
    model = Model()
    x = model.input([1, channels, extent, extent], "image")
    for number in range(count):
        x = model.conv(x, channels, channels, kernel, name=f"conv{number}")
    model.output(x)
    return model


@pytest.mark.parametrize(
    ("memory", "field"),
    [
        ({"nram_bytes": 6_000, "wram_bytes": 5_000}, "wram.capacity_bytes"),
        ({"nram_bytes": 10_000}, "nram.capacity_bytes"),
    ],
)
def test_an_input_read_for_each_slice_of_the_weights_names_the_memory_of_weights(
    memory: dict[str, int], field: str
) -> None:
    """FUSE-S1."""
    found = gap(convs(1, 16, 3, 24), small_profile(**memory), objective="dram_bytes")  # type: ignore[arg-type]
    (entry,) = only(found, GapKind.INPUTS)
    assert entry.size_bytes == (entry.times - 1) * 4 * 16 * 24 * 24
    assert "channel slices" in entry.why
    assert entry.fields == (field,)


def test_weights_read_again_count_their_loads() -> None:
    """SPEC 5.1; they would stay: channels are cut for the sake of the tile, so its memory is named."""
    profile = small_profile(nram_bytes=12_000, wram_bytes=1 << 20)
    pin = {"nodes": ["conv0"], "tiling": {"tile": {"H": 8}, "channel_slices": 4, "outer_loop": "tiles"}}
    chosen = parse_options({"fusion": "none", "objective": "dram_bytes", "schedule": {"groups": [pin]}})
    fused, tilings = fused_of(convs(1, 8, 3, 32), profile, chosen)
    (entry,) = only(gap_of(fused, profile, tilings), GapKind.WEIGHTS)
    assert entry.name == "conv0"
    assert entry.times == 8
    assert entry.size_bytes == (entry.times - 1) * 4 * 8 * 8 * 9
    assert entry.fields == ("nram.capacity_bytes",)


@pytest.mark.parametrize("objective", ["dram_bytes", "latency"])
def test_where_merging_costs_more_because_weights_do_not_stay_their_memory_is_named(objective: str) -> None:
    """FUSE-20: no rule of memory fails, the merged tiling tells."""
    model = convs(2, 64, 1, 16)
    profile = small_profile(nram_bytes=8_000, wram_bytes=17_000)
    (entry,) = only(gap(model, profile, fusion="rules", objective=objective), GapKind.INTERMEDIATES)
    assert entry.fields == ("wram.capacity_bytes",)
    assert "fusing costs more" in entry.why
    # with that memory larger the two groups are one
    larger = small_profile(nram_bytes=8_000, wram_bytes=2 * 17_000)
    assert gap(model, larger, fusion="rules", objective=objective).entries == ()


def test_where_merging_costs_no_more_no_field_is_blamed() -> None:
    """A strategy that did not look further than it did is no lack of memory."""
    profile = small_profile(nram_bytes=8_000, wram_bytes=17_000)
    fused, tilings = fused_of(convs(2, 64, 1, 16), profile, Options())
    (segment,) = fused.segments
    ((edge,), last) = segment.boundaries
    cheaper = replace(edge, rule=None, actual=1.0, limit=2.0, why="it was not looked at")
    changed = replace(fused, segments=(replace(segment, boundaries=((cheaper,), last)),))
    (entry,) = only(gap_of(changed, profile, tilings), GapKind.INTERMEDIATES)
    assert (entry.fields, entry.why) == ((), "it was not looked at")


@pytest.mark.parametrize(
    ("fusion", "why"), [("rules", "fusing pays (FUSE-20) fails"), ("search", "the two groups cost more")]
)
def test_without_tilings_of_merged_groups_no_field_is_named_where_cost_decides(fusion: str, why: str) -> None:
    profile = small_profile(nram_bytes=8_000, wram_bytes=17_000)
    fused, _ = fused_of(convs(2, 64, 1, 16), profile, Options(fusion=fusion))  # type: ignore[arg-type]
    (entry,) = only(gap_of(fused, profile), GapKind.INTERMEDIATES)
    assert entry.fields == ()
    assert entry.why.startswith(why)


def test_halos_of_tiles_one_after_another_name_the_memory_of_the_tile() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 4, 32, 32], "image"), 4, 4, 5, name="conv"))
    found = gap(model, small_profile(nram_bytes=6_000, wram_bytes=1 << 20), halo="recompute")
    (entry,) = only(found, GapKind.INPUTS)
    assert (entry.name, entry.fields) == ("image", ("nram.capacity_bytes",))
    staged = small_profile(nram_bytes=1 << 16, wram_bytes=1 << 20, sram_bytes=6_000)
    (entry,) = only(gap(model, staged, halo="recompute"), GapKind.INPUTS)
    assert entry.fields == ("sram.capacity_bytes",)


def test_halos_of_tiles_side_by_side_name_no_field() -> None:
    """All fits; the units read what both need because the map is spread over them."""
    values = profile_values("edge4")
    del values["engines"]["link"]
    values["addressing"] = "strides"
    model = Model()
    model.output(model.conv(model.input([1, 8, 16, 16], "image"), 8, 8, name="conv"))
    found = gap(model, profile_from_values(values))
    entries = [entry for entry in found.entries if entry.kind in (GapKind.INPUTS, GapKind.WEIGHTS)]
    assert entries
    for entry in entries:
        assert entry.fields == ()
        assert "each unit reads it for itself" in entry.why


def test_address_tables_are_no_dram_bytes() -> None:
    """SPEC 5.1: they are reported apart."""
    model = Model()
    model.output(model.conv(model.input([1, 4, 8, 8]), 4, 4, name="conv"))
    profile = small_profile(nram_bytes=1 << 20, wram_bytes=1 << 20, addressing="tables")
    assert gap(model, profile).entries == ()


def test_a_rule_on_structure_at_a_boundary_names_no_field() -> None:
    """SPEC 5.4: the rule still failing is why an intermediate leaves its group."""
    found = only(gap(convs(4, 4, 3, 16), fusion="rules"), GapKind.INTERMEDIATES)
    assert {entry.why.partition(":")[0] for entry in found} == {"small window overlap (FUSE-19) fails"}
    assert not any(entry.fields for entry in found)
    allowed = {"FUSE-19": RuleSetting(enabled=False)}
    assert gap(convs(4, 4, 3, 16), fusion="rules", rules=allowed).entries == ()


@pytest.mark.parametrize(
    ("rule", "with_sram", "without"),
    [
        ("FUSE-12", "sram.capacity_bytes", "nram.capacity_bytes"),
        ("TILE-2:tile", "sram.capacity_bytes", "nram.capacity_bytes"),
        ("TILE-2:core", "nram.capacity_bytes", "nram.capacity_bytes"),
        ("TILE-2:weights", "wram.capacity_bytes", "nram.capacity_bytes"),
        ("FUSE-16", "wram.capacity_bytes", "nram.capacity_bytes"),
        ("FUSE-4", None, None),
        ("FUSE-18", None, None),
        ("FUSE-20", None, None),
        (None, None, None),
    ],
)
def test_the_field_of_a_rule_is_the_memory_that_it_speaks_of(
    rule: str | None, with_sram: str | None, without: str | None
) -> None:
    """FUSE-10 to 18, TILE-2."""
    staged = small_profile(nram_bytes=4096, wram_bytes=4096, sram_bytes=4096)
    assert field_of_rule(rule, staged) == with_sram
    assert field_of_rule(rule, small_profile(nram_bytes=4096)) == without


def test_weights_in_a_part_of_the_core_memory_name_that_part() -> None:
    values = profile_values("edge4")
    values["nram"]["weight_bytes"] = 4096
    assert field_of_rule("TILE-2:weights", profile_from_values(values)) == "nram.weight_bytes"


def test_no_field_helps_where_one_of_several_edges_has_none() -> None:
    memory, rule = Cause(fields=("sram.capacity_bytes",), why="too large"), Cause(why="FUSE-4 fails")
    assert Cause.of_all([memory, rule]) == Cause(why="too large; FUSE-4 fails")
    other = Cause(fields=("nram.capacity_bytes",), why="too large")
    assert Cause.of_all([memory, other]) == Cause(
        fields=("nram.capacity_bytes", "sram.capacity_bytes"), why="too large"
    )
