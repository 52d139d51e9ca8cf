"""The chosen tiling, recomputed tile by tile: it covers the output, fits every memory, and costs what it says."""

from __future__ import annotations

from itertools import product
from math import ceil, prod

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.fusion.segment_graph import bits
from compiler.ops.facts import GraphFacts
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.tiling.choose import Choice, Refusal, choose_tiling
from compiler.tiling.figures import PHYSICAL
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Order, Spread
from tests.compiler.brute import Box, live_peak, project_group, tiles, volume
from tests.models import Model, whole_segment
from tests.profiles import small_profile
from tests.strategies import OBJECTIVES, models, profiles


@st.composite
def groups(draw: st.DrawFn) -> tuple[GraphFacts, GroupGeometry]:
    """A random convex group of a random network with one output."""
    facts = draw(models(max_ops=6, max_extent=10)).facts()
    graph = whole_segment(facts)
    assume(graph.ops)
    last = draw(st.sampled_from(graph.ops))
    members = [last]
    for op in sorted(bits(graph.ancestors[last]), reverse=True):
        if draw(st.integers(0, 3)):
            mask = sum(1 << m for m in [*members, op])
            if graph.is_convex(mask) and len(graph.outputs_of(mask)) == 1:
                members.append(op)
    return facts, GroupGeometry(facts, members)


def bytes_of(facts: GraphFacts, name: str, box: Box) -> int:
    """Bytes of a box."""
    return volume(box) * facts.tensors[name].element_bytes


def channels_are_free(geometry: GroupGeometry) -> bool:
    """True if a slice of the output's channels needs a slice of every op's output channels only."""
    output = geometry.output
    if "C" not in output.axes or output.shape[output.axes.index("C")] == 1:
        return False
    reached: dict[str, set[int]] = {geometry.primary: {output.axes.index("C")}}
    for op in reversed(geometry.ops):
        axes = reached.get(op.output, set())
        for operand in op.operands:
            found = {i for i, m in enumerate(operand.access) if m.axis in axes and m.axis is not None}
            if found:
                reached.setdefault(operand.tensor, set()).update(found)
    return all(reached.get(name) for name in geometry.made)


def overwrites(geometry: GroupGeometry) -> bool:
    """True if nothing but element-wise ops stands between an input and the only output of equal size."""
    tensors = geometry.facts.tensors
    for op in geometry.ops:
        for operand in op.operands:
            shape, target = tensors[operand.tensor].shape, tensors[op.output].shape
            if operand.constant or prod(shape) != prod(target):
                continue
            # a view that regroups axes reads other positions than it writes
            if shape != target or any(m.axis != i for i, m in enumerate(operand.access) if shape[i] > 1):
                return False
    sizes = {prod(tensors[name].shape) * tensors[name].element_bytes for name in geometry.inputs}
    result = geometry.output
    return (
        all(op.in_place for op in geometry.ops)
        and len(geometry.outputs) == 1
        and prod(result.shape) * result.element_bytes in sizes
    )


def worst_peaks(facts: GraphFacts, geometry: GroupGeometry, tile: tuple[int, ...]) -> tuple[int, int, int]:
    """Over all tiles: the largest live bytes, inputs, and inputs plus outputs."""
    peak = inputs = both = 0
    for box in tiles(geometry.output.shape, tile):
        boxes = project_group(facts, geometry, box)
        read = sum(bytes_of(facts, name, boxes[name]) for name in geometry.inputs)
        made = sum(bytes_of(facts, name, boxes[name]) for name in geometry.outputs)
        peak = max(peak, live_peak(facts, geometry, boxes))
        # the result of element-wise ops alone may overwrite an input of its size
        inputs, both = max(inputs, read), max(both, max(read, made) if overwrites(geometry) else read + made)
    return peak, inputs, both


def weight_bytes(
    facts: GraphFacts, geometry: GroupGeometry, profile: Profile, channels: int | None, parts: int
) -> list[int]:
    """Per op, the bytes of weights one core holds when output channels are cut into ranges of `channels`.

    Without such a cut each core holds an even part of `parts`.
    """
    output = geometry.output
    result = []
    for op in geometry.ops:
        total = 0
        for operand in op.operands:
            if not operand.constant:
                continue
            shape = facts.tensors[operand.tensor].shape
            whole = prod(shape) * facts.tensors[operand.tensor].element_bytes
            if channels is None:
                total += ceil(whole / parts)
                continue
            tile = tuple(channels if a == "C" else e for a, e in zip(output.axes, output.shape, strict=True))
            sizes = []
            for box in tiles(output.shape, tile):
                boxes = project_group(facts, geometry, box)
                made = boxes[op.output]
                need = tuple(
                    (0, extent) if m.axis is None else m.project_one(*made[m.axis], extent)
                    for m, extent in zip(operand.access, shape, strict=True)
                )
                sizes.append(bytes_of(facts, operand.tensor, need))
            # a weight that does not follow the channels is shared out evenly
            total += (
                ceil(whole / parts)
                if parts > 1 and len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0] == whole
                else max(sizes)
            )
        result.append(ceil(total * profile.weights.compression))
    return result


@settings(max_examples=150)
@given(groups(), profiles(), st.sampled_from(OBJECTIVES))
def test_chosen_tilings_never_exceed_any_memory(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, objective: str
) -> None:
    """TILE-2, recomputed from the boxes of every tile."""
    facts, geometry = group
    choice = choose_tiling(facts, geometry, profile, (), objective)
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tiling, how = choice.tiling, choice.tiling.configuration
    assume(prod(ceil(e / t) for e, t in zip(geometry.output.shape, tiling.core_tile, strict=True)) < 3000)
    peak, inputs, both = worst_peaks(facts, geometry, tiling.tile)
    staging = inputs if how.double_buffered and tiling.rounds > 1 else 0
    free = channels_are_free(geometry)
    channel = tiling.tile[tiling.axes.index("C")] if "C" in tiling.axes else None
    parts = (how.units if how.spread is Spread.CHANNELS else 1) * (
        how.cores if how.core_spread is Spread.CHANNELS else 1
    )
    per_core = None
    if free and channel is not None:
        per_core = ceil(channel / how.cores) if how.core_spread is Spread.CHANNELS else channel
    held = weight_bytes(facts, geometry, profile, per_core, parts)
    needed = sum(held) if how.order is Order.DEPTH_FIRST else max(held)
    nram = profile.nram.capacity_bytes
    if profile.sram is None:
        shared = needed if profile.wram is None else 0
        assert peak + shared <= nram
        assert peak + staging <= nram
    elif how.order is Order.DEPTH_FIRST:
        assert both + staging <= profile.sram.capacity_bytes
        core_peak, _, _ = worst_peaks(facts, geometry, tiling.core_tile)
        if not (how.core_spread is Spread.CHANNELS and not free):
            assert core_peak + (needed if profile.wram is None else 0) <= nram
    else:
        assert peak + staging <= profile.sram.capacity_bytes
    if profile.wram is not None:
        assert needed <= profile.wram.capacity_bytes


@settings(max_examples=80)
@given(groups(), profiles(), st.sampled_from(OBJECTIVES))
def test_tiles_of_chosen_tilings_cover_each_output_element_once(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, objective: str
) -> None:
    """TILE-1: SRAM tiles cover the output, core tiles their SRAM tile, channel slices the channels."""
    facts, geometry = group
    choice = choose_tiling(facts, geometry, profile, (), objective)
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tiling, how = choice.tiling, choice.tiling.configuration
    shape = geometry.output.shape
    assert sum(volume(box) for box in tiles(shape, tiling.tile)) == prod(shape)
    assert all(
        1 <= core <= tile <= extent for core, tile, extent in zip(tiling.core_tile, tiling.tile, shape, strict=True)
    )
    spatial = [
        ceil(extent / tile) for axis, extent, tile in zip(tiling.axes, shape, tiling.tile, strict=True) if axis != "C"
    ]
    assert tiling.tiles == prod(spatial)
    if "C" in tiling.axes:
        index = tiling.axes.index("C")
        parts = how.channel_slices * (how.units if how.spread is Spread.CHANNELS else 1)
        assert tiling.tile[index] * parts >= shape[index]
    if how.spread is Spread.CHANNELS:
        assert tiling.rounds == tiling.tiles
    else:
        assert tiling.rounds == ceil(tiling.tiles / how.units)


@settings(max_examples=80)
@given(groups(), profiles())
def test_dram_bytes_are_the_sum_over_all_tiles(group: tuple[GraphFacts, GroupGeometry], profile: Profile) -> None:
    """SPEC 5.1: inputs with their halos once per tile, outputs once, weights as often as they are loaded."""
    facts, geometry = group
    choice = choose_tiling(facts, geometry, profile, (), "dram_bytes")
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tiling, how = choice.tiling, choice.tiling.configuration
    assume(how.spread is not Spread.CHANNELS and how.channel_slices == 1)
    assume(geometry.outputs)
    shape = geometry.output.shape
    tile = tuple(e if a == "C" else t for a, e, t in zip(tiling.axes, shape, tiling.tile, strict=True))
    loaded = sum(
        bytes_of(facts, name, project_group(facts, geometry, box)[name])
        for box in tiles(shape, tile)
        for name in geometry.inputs
    )
    weights = sum(entry.size_bytes * entry.loads for entry in tiling.weights)
    assert choice.cost.dram_read_bytes == loaded + weights
    assert choice.cost.weight_read_bytes == weights
    assert choice.cost.dram_write_bytes == sum(
        bytes_of(facts, name, tuple((0, e) for e in facts.tensors[name].shape)) for name in geometry.outputs
    )


@settings(max_examples=60)
@given(groups(), profiles())
def test_the_input_tile_is_the_largest_box_of_the_inputs(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile
) -> None:
    facts, geometry = group
    choice = choose_tiling(facts, geometry, profile, (), "latency")
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tiling = choice.tiling
    longest: dict[str, list[int]] = {name: [0] * len(facts.tensors[name].shape) for name in geometry.inputs}
    for box in tiles(geometry.output.shape, tiling.tile):
        boxes = project_group(facts, geometry, box)
        for name in geometry.inputs:
            for axis, (start, stop) in enumerate(boxes[name]):
                longest[name][axis] = max(longest[name][axis], stop - start)
    assert {name: list(extents) for name, extents in tiling.input_tiles} == longest


def one_conv(extent: int, channels: int, filters: int, kernel: int = 3) -> tuple[GraphFacts, GroupGeometry]:
    """A single convolution."""
    model = Model()
    x = model.input([1, channels, extent, extent])
    model.output(model.conv(x, channels, filters, kernel))
    facts = model.facts()
    return facts, GroupGeometry(facts, [0])


def test_whole_map_mode_where_the_map_fits() -> None:
    """SPEC 5.2: the mode follows from the tile."""
    facts, geometry = one_conv(8, 4, 4)
    choice = choose_tiling(facts, geometry, builtin_profile("cluster4x4"), (), "dram_bytes")
    assert isinstance(choice, Choice)
    assert choice.tiling.mode.value == "whole-map"
    assert choice.cost.dram_read_bytes == (4 * 8 * 8 + 4 * 4 * 9) * 4


def test_partial_map_mode_splits_rows_before_columns() -> None:
    """FUSE-S1: N, then H, then W."""
    facts, geometry = one_conv(64, 4, 4)
    choice = choose_tiling(facts, geometry, small_profile(nram_bytes=32_768), (), "dram_bytes")
    assert isinstance(choice, Choice)
    assert choice.tiling.mode.value == "partial-map"
    sizes = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    assert sizes["H"] < 64
    assert sizes["W"] == 64


def test_exact_split_takes_the_largest_tile_that_fits() -> None:
    """FUSE-S4: one row more would not fit, so the tile is the largest."""
    facts, geometry = one_conv(64, 4, 4)
    profile = small_profile(nram_bytes=32_768)
    choice = choose_tiling(facts, geometry, profile, (), "dram_bytes")
    assert isinstance(choice, Choice)
    sizes = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    weights = 4 * 4 * 9 * 4

    def needed(rows: int) -> int:
        read = 4 * min(64, rows + 2) * 64 * 4
        return read + sizes["C"] * rows * 64 * 4 + weights * sizes["C"] // 4

    assert needed(sizes["H"]) <= 32_768
    assert needed(sizes["H"] + 1) > 32_768


def test_images_share_one_tile_where_they_fit() -> None:
    """SPEC 5.2: in whole-map mode an SRAM tile may hold several of the N images."""
    model = Model()
    model.output(model.relu(model.conv(model.input([8, 4, 8, 8]), 4, 4)))
    facts = model.facts()
    geometry = GroupGeometry(facts, [0, 1])
    choice = choose_tiling(facts, geometry, small_profile(nram_bytes=16_384), (), "dram_bytes")
    assert isinstance(choice, Choice)
    assert choice.tiling.mode.value == "whole-map"
    assert choice.tiling.tile[0] > 1


def test_cout_split_lets_weights_pass_that_do_not_fit() -> None:
    """FUSE-S1: slices of the output channels, each loading its part of the weights once."""
    facts, geometry = one_conv(8, 64, 64)
    profile = small_profile(nram_bytes=65_536, wram_bytes=16_384)
    choice = choose_tiling(facts, geometry, profile, (), "dram_bytes")
    assert isinstance(choice, Choice)
    how = choice.tiling.configuration
    parts = how.channel_slices * (how.units if how.spread is Spread.CHANNELS else 1)
    assert 64 * 64 * 9 * 4 / parts <= 16_384
    assert how.channel_slices > 1


def test_cout_split_divides_weights_over_cores() -> None:
    """FUSE-10: with a Cout split over n cores each holds W / n."""
    facts, geometry = one_conv(4, 32, 32)
    profile = small_profile(nram_bytes=65_536, wram_bytes=32 * 32 * 9 * 4 // 4, cores=4)
    choice = choose_tiling(facts, geometry, profile, (), "latency")
    assert isinstance(choice, Choice)
    assert choice.tiling.configuration.spread is Spread.CHANNELS
    assert int(choice.figures.core_weights.max()) == 32 * 32 * 9 * 4 // 4


def test_a_refusal_names_the_constraint_with_actual_and_limit() -> None:
    """TILE-2: not even one element's window fits."""
    facts, geometry = one_conv(8, 64, 64)
    refusal = choose_tiling(facts, geometry, small_profile(nram_bytes=1024), (), "latency")
    assert isinstance(refusal, Refusal)
    assert refusal.check.rule.startswith("TILE-2")
    assert float(refusal.check.actual) > float(refusal.check.limit)


def test_memory_has_no_switch() -> None:
    assert len(PHYSICAL) == 3


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_each_objective_chooses_no_worse_than_the_others_by_its_own_measure(objective: str) -> None:
    facts, geometry = one_conv(56, 64, 64)
    profile = builtin_profile("edge4")
    found = {}
    for chosen, _ in product(OBJECTIVES, [0]):
        choice = choose_tiling(facts, geometry, profile, (), chosen)
        assert isinstance(choice, Choice)
        cost = choice.cost
        found[chosen] = {
            "latency": cost.cycles,
            "dram_bytes": cost.dram_bytes,
            "energy": cost.energy_pj,
            "edp": cost.energy_pj * cost.cycles,
        }[objective]
    assert found[objective] == min(found.values())
