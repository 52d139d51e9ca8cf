"""What tiles load, make, keep and pass on under each halo mode, worked out by hand (TILE-1, TILE-3, TILE-6)."""

from __future__ import annotations

import pytest

from compiler.ops.op_facts import graph_facts
from compiler.tiling.choose import choose_tiling
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.halos import exchanged_halo
from compiler.tiling.loads import op_weights
from compiler.tiling.pace import Unevenness, in_turn, turns
from compiler.tiling.placement import Placement, pairs
from compiler.tiling.tile import HaloMode, Order, Spread, WeightLoads
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from compiler.tiling.wishes import Wishes
from tests.compiler.tiling.oracle import unit_plan, walked
from tests.compiler.tiling.tilings import group_of_all, tiled
from tests.models import Model, import_graph
from tests.networks import vgg_e_head
from tests.profiles import small_profile

RECOMPUTE, CACHED, EXCHANGE = HaloMode.RECOMPUTE, HaloMode.CACHED, HaloMode.EXCHANGE


def made(group: TiledGroup) -> dict[str, int]:
    """Bytes that tiles load and make, by tensor in order of execution."""
    geometry = group.geometry
    return {name: group.frustums.made_bytes(name) for name in (*geometry.inputs, *geometry.made)}


def kept(group: TiledGroup) -> dict[str, int]:
    """Bytes that wait between tiles, by tensor."""
    geometry = group.geometry
    return {name: group.frustums.kept_bytes(name) for name in (*geometry.inputs, *geometry.made)}


# --- a chain with a stride ------------------------------------------------------------------------------------------


def strided_chain() -> GroupGeometry:
    """Three 3×3 convolutions of one channel without padding, stride 2 in the middle: maps 21, 19, 9, 7."""
    model = Model()
    x = model.conv(model.input([1, 1, 21, 21]), 1, 1, pad=0)
    x = model.conv(x, 1, 1, stride=2, pad=0)
    model.output(model.conv(x, 1, 1, pad=0))
    return group_of_all(model)[1]


# Bytes of a row of each map: input, first, second, result.
ROWS = (84, 76, 36, 28)


def in_rows(*counts: int) -> list[int]:
    """Bytes of so many rows of each map of the chain."""
    return [count * row for count, row in zip(counts, ROWS, strict=True)]


def test_a_chain_recomputes_what_neighbouring_tiles_both_need() -> None:
    """TILE-3: result rows 0-2, 2-4, 4-6, 6-7 (half-open) of a tile size of 2.

    A row range [a, b) of the result needs [a, b+2) of the second map: 4 + 4 + 4 + 3 = 15 rows.
    A range [a, b) of the second needs [2a, 2b+1) of the first: 0-9, 4-13, 8-17, 12-19: 9 + 9 + 9 + 7 = 34.
    A range [a, b) of the first needs [a, b+2) of the input: 0-11, 4-15, 8-19, 12-21: 11 + 11 + 11 + 9 = 42.
    """
    group = tiled(strided_chain(), {"H": 2})
    assert list(made(group).values()) == in_rows(42, 34, 15, 7)
    assert not any(kept(group).values())
    assert group.kept_bytes == 0


def test_a_chain_that_caches_makes_every_row_once() -> None:
    """TILE-3: new rows of the second map 4 + 2 + 2 + 1, of the first 9 + 4 + 4 + 2, of the input 11 + 4 + 4 + 2.

    The second tile's rows 4-6 of the second map need 8-13 of the first, of which 8 waited, and its rows 9-13 need
    9-15 of the input, of which 9-11 waited. So 2 rows of the input, 1 of the first map and 2 of the second wait.
    """
    group = tiled(strided_chain(), {"H": 2}, CACHED)
    assert list(made(group).values()) == in_rows(21, 19, 9, 7)
    assert list(kept(group).values()) == in_rows(2, 1, 2, 0)
    assert group.kept_bytes == 2 * 84 + 76 + 2 * 36


def test_two_units_that_cache_make_the_rows_between_their_bands_twice() -> None:
    """TILE-3: unit 1 begins with result rows 4-6 and makes 4-8 of the second map, 8-17 of the first, 8-19 of the input.

    Second map: 4 + 2, then 4 + 1 = 11; first: 9 + 4, then 9 + 2 = 24; input: 11 + 4, then 11 + 2 = 28.
    """
    group = tiled(strided_chain(), {"H": 2}, CACHED, units=2, spread=Spread.BANDS)
    assert list(made(group).values()) == in_rows(28, 24, 11, 7)


def test_two_units_that_exchange_make_every_row_once_and_pass_the_rest_on() -> None:
    """TILE-3: unit 1's first tile gets rows 4-6 of the second map, row 12 of the first and 13-15 of the input.

    It also gets the weights, 9 elements of each op, that only one of the two reads from DRAM (TILE-5).
    """
    group = tiled(strided_chain(), {"H": 2}, EXCHANGE, units=2, spread=Spread.BANDS)
    assert list(made(group).values()) == in_rows(21, 19, 9, 7)
    passed = [exchanged_halo(group, name)[0] for name in made(group)]
    assert passed == in_rows(2, 1, 2, 0)
    assert sum(step.exchanged_bytes for step in traffic_of(group).steps) == sum(passed) + 3 * 9 * 4


@pytest.mark.parametrize("size", range(1, 8))
def test_recomputing_never_makes_less_than_caching_and_caching_not_less_than_exchanging(size: int) -> None:
    geometry = strided_chain()
    by_mode = [
        made(tiled(geometry, {"H": size, "W": 3}, mode, units=2, spread=Spread.BANDS))
        for mode in (RECOMPUTE, CACHED, EXCHANGE)
    ]
    for name in by_mode[0]:
        assert by_mode[0][name] >= by_mode[1][name] >= by_mode[2][name]
    assert list(by_mode[2].values()) == in_rows(21, 19, 9, 7)


# --- branches, dilation, upsampling ---------------------------------------------------------------------------------


def test_a_residual_block_keeps_rows_for_both_of_its_paths() -> None:
    """TILE-1, TILE-3: y = conv(conv(x)) + x on 8×8, result rows in pairs; a row is 32 bytes.

    First convolution's result: 0-3, 1-5, 3-7, 5-8 are 3 + 4 + 4 + 3 = 14 rows; input (the union of both paths):
    0-4, 0-6, 2-8, 4-8 are 4 + 6 + 6 + 4 = 20. Cached: 3 + 2 + 2 + 1 and 4 + 2 + 2 + 0; two rows of either wait.
    """
    model = Model()
    x = model.input([1, 1, 8, 8], "x")
    inner = model.conv(x, 1, 1)
    model.output(model.node("Add", [model.conv(inner, 1, 1), x]))
    _, geometry = group_of_all(model)
    again, once = tiled(geometry, {"H": 2}), tiled(geometry, {"H": 2}, CACHED)
    assert list(made(again).values()) == [20 * 32, 14 * 32, 8 * 32, 8 * 32]
    assert list(made(once).values()) == [8 * 32] * 4
    assert list(kept(once).values()) == [2 * 32, 2 * 32, 0, 0]


def test_a_dilated_convolution_keeps_its_whole_reach() -> None:
    """TILE-1: 3 taps 2 apart reach over 5 rows; 12 rows give 8. Needed: 0-7, 3-10, 6-12; a row is 48 bytes."""
    model = Model()
    model.output(model.conv(model.input([1, 1, 12, 12], "x"), 1, 1, dilation=2, pad=0))
    _, geometry = group_of_all(model)
    assert made(tiled(geometry, {"H": 3}))["x"] == (7 + 7 + 6) * 48
    once = tiled(geometry, {"H": 3}, CACHED)
    assert made(once)["x"] == 12 * 48
    assert kept(once)["x"] == 4 * 48


def test_an_upsampling_path_keeps_rows_on_both_sides_of_the_resize() -> None:
    """TILE-1: 5×5 enlarged to 10×10, then 3×3; result rows 0-3, 3-6, 6-9, 9-10.

    Enlarged rows 0-4, 2-7, 5-10, 8-10: 4 + 5 + 5 + 2 = 16; input rows (half of these) 0-2, 1-4, 2-5, 4-5: 9.
    Cached: the enlarged map's new rows are 0-4, 4-7, 7-10 and none, two wait; they need input rows 0-2, 2-4, 3-5, so
    one input row waits (row 3, for the third tile).
    """
    model = Model()
    x = model.node(
        "Resize",
        [model.input([1, 1, 5, 5], "x"), "", "", model.ints(1, 1, 10, 10)],
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    model.output(model.conv(x, 1, 1))
    _, geometry = group_of_all(model)
    again, once = tiled(geometry, {"H": 3}), tiled(geometry, {"H": 3}, CACHED)
    assert list(made(again).values()) == [9 * 20, 16 * 40, 10 * 40]
    assert list(made(once).values()) == [5 * 20, 10 * 40, 10 * 40]
    assert list(kept(once).values()) == [1 * 20, 2 * 40, 0]


@pytest.mark.parametrize("mode", list(HaloMode))
def test_slices_in_another_order_are_loaded_whole(mode: HaloMode) -> None:
    """TILE-3: rows 4-8, then rows 0-4 of one input: the second tile needs what lies before the first one's."""
    model = Model()
    x = model.input([1, 1, 8, 4], "x")
    late, early = (model.node("Slice", [x, model.ints(a), model.ints(a + 4), model.ints(2)]) for a in (4, 0))
    model.output(model.node("Concat", [late, early], axis=2))
    _, geometry = group_of_all(model)
    assert made(tiled(geometry, {"H": 4}, mode))["x"] == 8 * 4 * 4


def test_walking_columns_inside_rows_keeps_a_rows_length_and_a_tiles_width() -> None:
    """TILE-3, TILE-8: 3×3 without padding on 10×10, tiles 4×4: rows and columns needed 0-6, 4-10.

    Along rows two rows of all 10 columns wait, along columns two columns of the 6 new rows of the first tile row.
    """
    model = Model()
    model.output(model.conv(model.input([1, 1, 10, 10], "x"), 1, 1, pad=0))
    _, geometry = group_of_all(model)
    group = tiled(geometry, {"H": 4, "W": 4}, CACHED)
    assert made(group)["x"] == 400
    assert kept(group)["x"] == (2 * 10 + 6 * 2) * 4
    across = tiled(geometry, {"H": 4, "W": 4}, CACHED, walk=("W", "H"))
    assert kept(across)["x"] == (2 * 10 + 6 * 2) * 4


def test_a_unit_keeps_the_rows_of_all_its_columns_under_an_interleaved_placement() -> None:
    """TILE-4: dealt row by row, 8 columns of tiles over 2 units: unit 0 has every other one.

    A 3×3 convolution on 16×16, tiles 2×2: of each inner tile column 2 rows of 4 columns wait, of the first one 3:
    3 + 4 + 4 + 4 = 15 columns, 2 rows, 4 bytes.
    """
    model = Model()
    model.output(model.conv(model.input([1, 1, 16, 16], "x"), 1, 1))
    _, geometry = group_of_all(model)
    group = tiled(geometry, {"H": 2, "W": 2}, CACHED, units=2, spread=Spread.BANDS, placement=Placement.ROW_MAJOR)
    assert kept(group)["x"] >= 15 * 2 * 4


# --- what every tile needs whole ------------------------------------------------------------------------------------


def attention(queries: int = 6) -> GroupGeometry:
    """softmax(Q · Kᵀ) · V with 4 features: Q and V of 6 rows, the keys transposed."""
    model = Model()
    q, k, v = model.input([1, queries, 4], "q"), model.input([1, 4, 6], "k"), model.input([1, 6, 4], "v")
    scores = model.node("Softmax", [model.node("MatMul", [q, k])], axis=-1)
    model.output(model.node("MatMul", [scores, v]))
    return group_of_all(model)[1]


def test_attention_by_query_rows_reads_keys_and_values_once_if_they_are_kept() -> None:
    """TILE-3: three tiles of two query rows; keys and values are 6 × 4 × 4 = 96 bytes each, and so are the queries."""
    geometry = attention()
    rows = geometry.output.axes[1]
    again, once = tiled(geometry, {rows: 2}), tiled(geometry, {rows: 2}, CACHED)
    assert again.walk.tiles == once.walk.tiles == 3
    assert [made(again)[name] for name in ("q", "k", "v")] == [96, 3 * 96, 3 * 96]
    assert [made(once)[name] for name in ("q", "k", "v")] == [96, 96, 96]
    assert [kept(once)[name] for name in ("q", "k", "v")] == [0, 96, 96]
    assert traffic_of(again).input_bytes == 7 * 96
    assert traffic_of(once).input_bytes == 3 * 96


def test_attention_spread_over_units_passes_keys_and_values_on() -> None:
    """TILE-5: each of three units keeps its own copy; DRAM gives one, and two are handed on by the links."""
    geometry = attention()
    group = tiled(geometry, {geometry.output.axes[1]: 2}, CACHED, units=3, spread=Spread.BANDS)
    found = traffic_of(group)
    assert (found.input_bytes, found.passed_on_bytes) == (3 * 96, 2 * 2 * 96)


# --- input channels in parts ----------------------------------------------------------------------------------------


def product() -> GroupGeometry:
    """A Gemm of 4 rows, 8 input channels and 6 output channels."""
    model = Model()
    model.output(model.node("Gemm", [model.input([4, 8], "x"), model.weight(8, 6)]))
    return group_of_all(model)[1]


def test_a_product_summed_in_parts_over_time_passes_its_partial_sums_through_the_core() -> None:
    """FUSE-S1, TILE-6: two slices of the input channels; 24 sums of 4 bytes go out and in once between them."""
    geometry = product()
    whole, halves = tiled(geometry, {}), tiled(geometry, {}, input_slices=2)
    assert halves.reduced == {"x"}
    assert halves.held_bytes(halves.frustums, "x") == 4 * 8 * 4 // 2
    assert halves.weights[0].core_bytes == 8 * 6 * 4 // 2
    one, two = traffic_of(whole), traffic_of(halves)
    assert (one.input_bytes, one.weight_bytes) == (two.input_bytes, two.weight_bytes) == (4 * 8 * 4, 8 * 6 * 4)
    assert two.steps[0].nram.read - one.steps[0].nram.read == 24 * 4
    assert two.steps[0].nram.written - one.steps[0].nram.written == 24 * 4
    assert two.steps[0].macs == one.steps[0].macs == 4 * 8 * 6


def test_a_product_summed_in_parts_over_units_passes_partial_sums_between_them() -> None:
    """FUSE-S1: each of two units reads half of the input and of the weights; 24 sums of 4 bytes go to the other."""
    geometry = product()
    group = tiled(geometry, {}, units=2, spread=Spread.INPUT_CHANNELS)
    found = traffic_of(group)
    assert (found.input_bytes, found.weight_bytes) == (4 * 8 * 4, 8 * 6 * 4)
    assert group.weights[0].unit_bytes == 8 * 6 * 4 // 2
    assert found.steps[0].exchanged_bytes == 24 * 4
    # one adds to the sums of the other: of a single tile they are at work one after the other, each with half of the
    # array's lanes over input channels
    assert found.steps[0].compute_cycles == 2 * traffic_of(tiled(geometry, {})).steps[0].compute_cycles
    assert in_turn(group) == 1
    # of four tiles, while one adds to the first the other makes the second: five turns of half the work each
    rows = tiled(geometry, {"N": 1}, units=2, spread=Spread.INPUT_CHANNELS)
    assert turns(rows) == 4
    assert in_turn(rows) == 5 / 8


# --- N-1: the kept rows of VGG-E's head -----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 4])
def test_the_head_of_vgg_e_keeps_two_rows_of_the_input_of_each_convolution(rows: int) -> None:
    """N-1: 2 rows × width × channels × 4 bytes.

    3 × 224, 64 × 224, 64 × 112, 128 × 112 and 128 × 56: 5,376 + 114,688 + 57,344 + 114,688 + 57,344 = 349,440.
    Input 3 × 224² × 4 = 602,112 and result 256 × 56² × 4 = 3,211,264 make 3,813,376 bytes of DRAM traffic.
    """
    facts = graph_facts(import_graph(vgg_e_head().SerializeToString()))
    geometry = GroupGeometry(facts, range(len(facts.ops)))
    profile = small_profile(nram_bytes=1 << 20, wram_bytes=1 << 20, sram_bytes=1 << 24)
    group = tiled(geometry, {"H": rows}, CACHED, profile=profile, order=Order.BREADTH_FIRST)
    assert sum(kept(group).values()) == 349_440
    assert group.kept_bytes == 349_440
    found = traffic_of(group)
    assert found.input_bytes + found.output_bytes == 3_813_376


# --- G-9: classifier weights batched --------------------------------------------------------------------------------


def classifier(images: int, inputs: int, outputs: int) -> GroupGeometry:
    """A Gemm with two-byte weights."""
    model = Model()
    x = model.input([images, inputs], "x", dtype=10)
    weights = model.constant([[0.0] * outputs] * inputs, dtype="float16")
    model.output(model.node("Gemm", [x, weights]), dtype=10)
    return group_of_all(model)[1]


def test_classifier_weights_pass_once_per_batch_in_a_thousand_slices() -> None:
    """G-9, TILE-6: 16,000,000 two-byte weights, of which a slice holds 16,000 while the next one comes.

    1000 slices of 4 output channels × 4000; 32 MB per batch of 16 against 16 × 32 = 512 MB image by image.
    """
    geometry = classifier(16, 4000, 4000)
    profile = small_profile(nram_bytes=1 << 20, wram_bytes=2 * 32_000, sram_bytes=1 << 20)
    batched = tiled(geometry, {}, profile=profile, order=Order.BREADTH_FIRST)
    assert [(w.slices, w.loads, w.kind) for w in op_weights(batched)] == [(1000, 1, WeightLoads.ONCE_THROUGH)]
    assert traffic_of(batched).weight_bytes == 32_000_000
    single = tiled(geometry, {"N": 1}, profile=profile, order=Order.BREADTH_FIRST)
    assert [(w.slices, w.loads, w.kind) for w in op_weights(single)] == [(1000, 16, WeightLoads.STREAMED)]
    assert traffic_of(single).weight_bytes == 512_000_000


def test_the_choice_batches_classifier_weights() -> None:
    """TILE-6: least traffic reads them once, in whatever slices."""
    geometry = classifier(16, 4000, 4000)
    for profile in (
        small_profile(nram_bytes=1 << 20, wram_bytes=2 * 32_000, sram_bytes=1 << 20),
        small_profile(nram_bytes=1 << 18, wram_bytes=32_000),
    ):
        choice = choose_tiling(geometry, profile, (), Wishes(objective="dram_bytes"))
        assert isinstance(choice, Choice)
        assert choice.cost.weight_read_bytes == 32_000_000


def test_batching_saves_fifteen_sixteenths_of_the_classifiers_share() -> None:
    """G-9: 1000 weights of a convolution streamed 16 times, 9000 of a classifier once instead of 16 times.

    Before 16 · (1000 + 9000), after 16 · 1000 + 9000: 135,000 of 160,000 are saved, 84.375 %.
    """
    model = Model()
    x = model.input([16, 10, 1, 1], "x", dtype=10)
    weights = model.constant([[[[0.0]]] * 10] * 100, dtype="float16")
    model.output(model.node("Conv", [x, weights]), dtype=10)
    _, convolution = group_of_all(model)
    profile = small_profile(nram_bytes=1 << 16, wram_bytes=512, sram_bytes=1 << 16)
    streamed, dense, batched = (
        sum(w.size_bytes * w.loads for w in op_weights(group))
        for group in (
            tiled(convolution, {"N": 1}, profile=profile, order=Order.BREADTH_FIRST),
            tiled(classifier(16, 90, 100), {"N": 1}, profile=profile, order=Order.BREADTH_FIRST),
            tiled(classifier(16, 90, 100), {}, profile=profile, order=Order.BREADTH_FIRST),
        )
    )
    before, after = streamed + dense, streamed + batched
    assert (before, after) == (16 * 10_000 * 2, (16 * 1000 + 9000) * 2)
    assert 1 - after / before == 0.84375


# --- G-10: what placements exchange ---------------------------------------------------------------------------------

# Neighbouring pairs of tiles on different units, and elements that pass between units, for 4×4 tiles on 4 units.
#
# A 3×3 convolution on 16×16: along either axis tiles need 0-5, 3-9, 7-13, 11-16 of the input and make 5, 4, 4, 3
# anew; each takes 2 from the tile before. All needs are (5 + 6 + 6 + 5)² = 484 elements. Per axis 16 stay in the tile,
# and 2 more for each of the three borders between tiles of equal place:
# blocks: two such borders, 20² stay; quadrants: one, 18²; checkerboard: none, 16²; row-major: all borders between
# rows, none between columns, 22 · 16. In bands (columns) a unit fetches its neighbour's 2 rows of 16 once, 3 times.
EXCHANGED = {
    Placement.BANDS: (12, 96),
    Placement.BAND_COLUMNS: (12, 96),
    Placement.BLOCKS: (8, 484 - 20 * 20),
    Placement.QUADRANTS: (16, 484 - 18 * 18),
    Placement.CHECKERBOARD: (24, 484 - 16 * 16),
    Placement.ROW_MAJOR: (12, 484 - 22 * 16),
    Placement.Z_ORDER: (8, 484 - 20 * 20),
}


@pytest.mark.parametrize("placement", list(Placement))
def test_each_placement_exchanges_what_its_borders_cut(placement: Placement) -> None:
    """G-10, TILE-4."""
    model = Model()
    model.output(model.conv(model.input([1, 1, 16, 16], "x"), 1, 1))
    _, geometry = group_of_all(model)
    group = tiled(geometry, {"H": 4, "W": 4}, EXCHANGE, units=4, spread=Spread.BANDS, placement=placement)
    neighbours, elements = EXCHANGED[placement]
    assert sum(pairs(group.walk.assignment)) == neighbours
    assert made(group)["x"] == 16 * 16 * 4
    assert exchanged_halo(group, "x")[0] == elements * 4
    # what passes is at least what units need that others made, each element once
    plan = unit_plan(geometry, group.configuration, group.tile)
    assert walked(geometry, plan).received["x"] <= elements * 4


# --- found by walking element by element ----------------------------------------------------------------------------


def test_input_slices_outside_channel_slices_hold_the_sums_of_all_channels() -> None:
    """FUSE-S1: half of the input (64 bytes) waits with 24 sums of 4 bytes, or it comes once per channel slice."""
    group = tiled(product(), {"C": 2}, input_slices=2, channel_slices=3)
    assert group.tile_bytes >= 64 + 24 * 4 or traffic_of(group).input_bytes == 3 * 128


def test_the_busiest_unit_works_as_long_as_its_rows_take() -> None:
    """5 rows in bands of 4 and 1: the first unit does 4/5 of the work."""
    model = Model()
    model.output(model.conv(model.input([1, 8, 5, 8]), 8, 8))
    _, geometry = group_of_all(model)
    alone = traffic_of(tiled(geometry, {})).steps[0].compute_cycles
    spread = traffic_of(tiled(geometry, {"H": 4}, units=2, spread=Spread.BANDS)).steps[0].compute_cycles
    assert spread == alone * 4 // 5


@pytest.mark.parametrize("mode", [EXCHANGE, CACHED, RECOMPUTE])
def test_the_busiest_core_makes_more_of_an_op_before_the_output(mode: HaloMode) -> None:
    """Two 3×3 convolutions of 20 rows to 16, four rows a core: each core makes 6 of the 18 rows between them.

    If halos pass between cores the first makes 5 and the others 4 or 5 each.
    """
    model = Model()
    model.output(model.conv(model.conv(model.input([1, 1, 20, 20]), 1, 1, 3, pad=0), 1, 1, 3, pad=0))
    _, geometry = group_of_all(model)
    profile = small_profile(nram_bytes=1 << 16, wram_bytes=4096, sram_bytes=1 << 16, cores=4)
    core = {"N": 1, "C": 1, "H": 4, "W": 16}
    group = tiled(geometry, {}, mode, profile=profile, core=core, cores=4, core_spread=Spread.BANDS)
    busiest, total = (5, 18) if mode is EXCHANGE else (6, 4 * 6)
    assert Unevenness(group).of(geometry.ops[0]) == pytest.approx((busiest / total) / (4 / 16))
    assert Unevenness(group).of(geometry.ops[1]) == 1.0


def test_weights_in_input_slices_come_again_for_every_tile_of_a_channel_slice() -> None:
    """FUSE-S1: 4 rows as 4 tiles, 3 channel slices outside; the core holds one of two parts of a slice, 4 × 2 × 4."""
    profile = small_profile(nram_bytes=4096, wram_bytes=32)
    group = tiled(product(), {"N": 1, "C": 2}, profile=profile, input_slices=2, channel_slices=3, slices_outer=True)
    assert [w.loads for w in op_weights(group)] == [4]


def test_a_core_that_gets_its_input_from_the_sram_holds_all_rows_that_it_computes_with() -> None:
    """TILE-2, TILE-8: 5×5 on rows of 64 bytes: five input rows and one of the result, whatever was made before."""
    model = Model()
    model.output(model.conv(model.input([1, 1, 16, 16], "x"), 1, 1, 5))
    _, geometry = group_of_all(model)
    profile = small_profile(nram_bytes=1 << 16, wram_bytes=4096, sram_bytes=1 << 16)
    core = {"N": 1, "C": 1, "H": 1, "W": 16}
    group = tiled(geometry, {}, CACHED, profile=profile, core=core)
    assert group.core_peak_bytes >= (5 + 1) * 64


def test_a_breadth_first_core_tile_has_the_axes_of_the_groups_output() -> None:
    """TILE-8: a Reshape to five axes and a Transpose of two of them."""
    model = Model()
    x = model.node("Reshape", [model.input([1, 4, 7, 5]), model.ints(1, 2, 2, 7, 5)])
    model.output(model.node("Transpose", [x], perm=[0, 2, 1, 3, 4]))
    _, geometry = group_of_all(model)
    profile = small_profile(nram_bytes=4096, wram_bytes=4096, sram_bytes=1 << 16, cores=2)
    group = tiled(
        geometry,
        {geometry.output.axes[1]: 1},
        profile=profile,
        cores=2,
        core_spread=Spread.BANDS,
        order=Order.BREADTH_FIRST,
    )
    assert all(core <= group.tile[a] for a, core in zip(geometry.output.axes, group.core_extents, strict=True))


def test_attention_that_exchanges_passes_keys_and_values_on_as_well() -> None:
    """TILE-3, TILE-5: as cached, two copies of keys and values, 96 bytes each, go to the other two units."""
    geometry = attention()
    group = tiled(geometry, {geometry.output.axes[1]: 2}, EXCHANGE, units=3, spread=Spread.BANDS)
    found = traffic_of(group)
    assert found.passed_on_bytes + sum(step.exchanged_bytes for step in found.steps) == 2 * 2 * 96
