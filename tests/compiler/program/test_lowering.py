"""What commands a group becomes, choice by choice of its tiling: a small network and a pinned tiling each (PROG-1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler.program.program import OUTPUT, Level, Opcode
from compiler.tiling.loads import op_weights
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Order, Spread, WeightHome, WeightLoads
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from tests.compiler.program.lowered import (
    Network,
    bytes_of,
    chip,
    classifier,
    group,
    lower,
    pair,
    run,
    single,
    weights_of,
)
from tests.models import Model

KEEPING = (HaloMode.CACHED, HaloMode.EXCHANGE)


# --- halo modes (TILE-3) ----------------------------------------------------------------------------------------------


def test_recomputed_halos_are_read_again_with_every_tile() -> None:
    network = pair()
    found = run(network, group(network, chip(), {"H": 3}))
    # four tiles of 3 rows each need two rows more on either side, clipped at the border
    assert found.loaded_bytes("x") == (5 + 7 + 7 + 5) * 6 * 3 * 4
    assert found.count(Opcode.MOVE) == found.count(Opcode.EXCHANGE) == 0


def test_cached_halos_are_read_once_and_kept_by_the_core_that_walks() -> None:
    network = pair()
    found = run(network, group(network, chip(), {"H": 3}, HaloMode.CACHED))
    assert found.loaded_bytes("x") == bytes_of(network, "x")
    assert found.levels(Opcode.MOVE) == {(Level.NRAM, Level.NRAM): found.count(Opcode.MOVE)}
    assert found.engines(found.commands(Opcode.MOVE)) == {"core"}
    rows = [box[2] for box in found.boxes_by_core(0)[0]]
    assert rows == [(0, 4), (4, 7), (7, 10), (10, 12)], "each row of the intermediate map is made once"


def test_exchanged_halos_pass_from_core_to_core_by_link() -> None:
    network = pair()
    profile = chip(cores=4, multicast=True)
    tiling = group(network, profile, {"H": 3}, HaloMode.EXCHANGE, units=4, spread=Spread.BANDS)
    found = run(network, tiling)
    passed = found.commands(Opcode.EXCHANGE)
    assert found.engines(passed) == {"link"}
    assert found.passed_between(Level.NRAM) == {(0, 1), (1, 2), (2, 3), (3, 2), (2, 1), (1, 0)}
    assert found.loaded_bytes("x") == bytes_of(network, "x")


@pytest.mark.parametrize(("walk", "rounds"), [(("H", "W"), 6), (("W", "H"), 5)])
def test_units_that_pass_halos_work_on_several_tiles_each_as_early_as_these_come(
    walk: tuple[str, ...], rounds: int
) -> None:
    """Weights that wait nowhere are read in every round, and the plan knows how many there are."""
    network = pair(height=8)
    profile = chip(cores=2, multicast=True)
    streamed = tuple((op, WeightLoads.STREAMED) for op in network.ops)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "walk": walk, "loads": streamed}
    tiling = group(network, profile, {"H": 2, "W": 3}, HaloMode.EXCHANGE, **how)
    assert tiling.walk.rounds == rounds
    lowered = run(network, tiling)
    assert [entry.loads for entry in op_weights(tiling)] == [rounds, rounds]
    assert len(lowered.loads_of(weights_of(network)[0])) == rounds


def test_exchanged_halos_pass_from_cluster_to_cluster_by_cdma() -> None:
    network = pair()
    profile = chip(clusters=2, cores=2, sram=1 << 15, multicast=True)
    tiling = group(
        network, profile, {"H": 3}, HaloMode.EXCHANGE, units=2, spread=Spread.BANDS, cores=2, core_spread=Spread.BANDS,
        order=Order.BREADTH_FIRST,
    )  # fmt: skip
    found = run(network, tiling)
    assert found.passed_between(Level.SRAM) == {(0, 1)}
    assert "cdma" in found.engines(found.commands(Opcode.EXCHANGE))
    assert found.loaded_bytes("x") == bytes_of(network, "x")


def test_cores_of_a_cluster_pass_each_other_the_halos_of_intermediates() -> None:
    network = pair()
    tiling = group(
        network, chip(cores=4, sram=1 << 15), {}, HaloMode.EXCHANGE, {"H": 3}, cores=4, core_spread=Spread.BANDS
    )
    found = run(network, tiling)
    passed = found.commands(Opcode.EXCHANGE)
    assert found.levels(Opcode.EXCHANGE) == {(Level.NRAM, Level.NRAM): len(passed)}
    assert len(passed) > 0
    made = [box for boxes in found.boxes_by_core(0).values() for box in boxes]
    assert sum(stop - start for _, _, (start, stop), _ in made) == 12, "each row is made once"


def test_core_tiles_keep_cached_halos_in_their_core() -> None:
    network = pair()
    found = run(network, group(network, chip(sram=1 << 15), {}, HaloMode.CACHED, {"H": 3}))
    assert found.levels(Opcode.MOVE)[Level.NRAM, Level.NRAM] > 0
    made = [box for boxes in found.boxes_by_core(0).values() for box in boxes]
    assert sum(stop - start for _, _, (start, stop), _ in made) == 12


def test_what_a_core_has_no_room_to_keep_waits_in_the_sram() -> None:
    network = pair(width=16)
    tiling = group(network, chip(sram=1 << 15, nram=1280, wram=1 << 12), {}, HaloMode.CACHED, {"H": 2, "W": 5})
    assert tiling.kept_outside_cores_bytes > 0
    found = run(network, tiling)
    assert found.levels(Opcode.MOVE)[Level.NRAM, Level.SRAM] > 12 * 16 // 10, "results alone are fewer"


@pytest.mark.parametrize("mode", KEEPING)
def test_corners_of_tiles_cut_along_two_axes_are_kept(mode: HaloMode) -> None:
    network = pair(height=9, width=9)
    units = 4 if mode is HaloMode.EXCHANGE else 1
    spread = Spread.BANDS if units > 1 else Spread.SINGLE
    tiling = group(network, chip(cores=4), {"H": 2, "W": 2}, mode, units=units, spread=spread)
    found = run(network, tiling)
    assert found.loaded_bytes("x") == bytes_of(network, "x")


# --- placements (TILE-4) ----------------------------------------------------------------------------------------------


@pytest.mark.matrix(first=7, rest=7)
@pytest.mark.parametrize("mode", HaloMode)
@pytest.mark.parametrize("placement", Placement)
def test_every_core_makes_the_tiles_that_the_placement_deals_to_it(placement: Placement, mode: HaloMode) -> None:
    network = pair(height=8, width=8)
    tiling = group(network, chip(cores=4), {"H": 2, "W": 2}, mode, units=4, spread=Spread.BANDS, placement=placement)
    found = run(network, tiling)
    owner = tiling.walk.assignment.owner
    made = {core: {(h[0] // 2, w[0] // 2) for _, _, h, w in boxes} for core, boxes in found.boxes_by_core(1).items()}
    assert made == {
        core: set(zip(*map(np.ndarray.tolist, np.nonzero(owner == core)), strict=True)) for core in range(4)
    }


# --- what units share out (TILE-5, FUSE-S1) ---------------------------------------------------------------------------


def test_spread_images_stay_with_their_core() -> None:
    network = pair(batch=4, height=6)
    found = run(network, group(network, chip(cores=2), {"N": 1}, units=2, spread=Spread.IMAGES))
    images = {core: {n for (n, _), *_ in boxes} for core, boxes in found.boxes_by_core(1).items()}
    assert images == {0: {0, 1}, 1: {2, 3}}


def test_spread_channels_divide_weights_over_cores() -> None:
    network = single(8)
    found = run(network, group(network, chip(cores=4), {"C": 2}, units=4, spread=Spread.CHANNELS))
    channels = {core: {c for _, c, *_ in boxes} for core, boxes in found.boxes_by_core(0).items()}
    assert channels == {core: {(2 * core, 2 * core + 2)} for core in range(4)}
    assert sum(map(found.loaded_bytes, weights_of(network))) == sum(bytes_of(network, w) for w in weights_of(network))


def test_parts_of_channels_that_a_later_op_needs_whole_pass_between_cores() -> None:
    network = pair(channels=4)
    found = run(network, group(network, chip(cores=4), {"H": 6}, units=4, spread=Spread.CHANNELS))
    assert {(a, b) for a in range(4) for b in range(4) if a != b} <= found.passed_between(Level.NRAM)


def test_spread_input_channels_add_up_partial_sums_from_core_to_core() -> None:
    network = classifier()
    found = run(network, group(network, chip(cores=4), {}, units=4, spread=Spread.INPUT_CHANNELS))
    entries = found.entries()
    assert [(int(e["begins"]), int(e["ends"])) for e in entries if e["sum_stop"]] == [(1, 0), (0, 0), (0, 0), (0, 1)]
    assert found.passed_between(Level.NRAM) >= {(0, 1), (1, 2), (2, 3)}
    assert found.loaded_bytes("x") == bytes_of(network, "x")


# --- slices in time (TILE-6) ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stationary", [False, True])
def test_units_that_share_channels_read_each_part_of_what_is_summed_once(stationary: bool) -> None:
    """All need the same part at the same time: it is read once for all, not by each for itself (TILE-5, TILE-7)."""
    model = Model()
    model.output(model.node("MatMul", [model.input([3, 32], "x"), model.weight(32, 16)]))
    network = Network(model)
    profile = chip(cores=4, multicast=True, stationary=stationary)
    resident = network.resident_bytes(profile) if stationary else 0
    how: dict[str, Any] = {"units": 4, "spread": Spread.CHANNELS, "input_slices": 4}
    tiling = group(network, profile.beside(resident), {"C": 4}, **how)
    assert tiling.input_parts == 4
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    assert found.loaded_bytes("x") == bytes_of(network, "x")


def test_input_slices_leave_sums_unfinished_until_the_last_one() -> None:
    network = classifier()
    found = run(network, group(network, chip(), {}, input_slices=4))
    sums = [(int(e["sum_start"]), int(e["begins"]), int(e["ends"])) for e in found.entries() if e["sum_stop"]]
    assert sums == [(0, 1, 0), (8, 0, 0), (16, 0, 0), (24, 0, 1)]
    assert found.loaded_bytes("x") == bytes_of(network, "x")


def test_outer_channel_slices_read_the_input_once_for_each_slice_and_weights_once() -> None:
    network = single(8)
    tiling = group(network, chip(), {"C": 4, "H": 4}, HaloMode.CACHED, channel_slices=2, slices_outer=True)
    found = run(network, tiling)
    assert found.loaded_bytes("x") == 2 * bytes_of(network, "x")
    assert [c for _, c, *_ in found.boxes_by_core(0)[0]] == [(0, 4), (0, 4), (4, 8), (4, 8)]
    for name in weights_of(network):
        assert found.loaded_bytes(name) == bytes_of(network, name)


def test_inner_channel_slices_read_the_input_once() -> None:
    network = single(8)
    tiling = group(network, chip(), {"C": 4, "H": 4}, HaloMode.CACHED, channel_slices=2, slices_outer=False)
    found = run(network, tiling)
    assert found.loaded_bytes("x") == bytes_of(network, "x")
    assert [c for _, c, *_ in found.boxes_by_core(0)[0]] == [(0, 4), (4, 8), (0, 4), (4, 8)]


# --- double buffering (PROG-1) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("sram", [0, 1 << 15])
@pytest.mark.parametrize("buffered", [True, False])
def test_double_buffering_loads_the_next_tile_into_a_buffer_of_its_own(buffered: bool, sram: int) -> None:
    network = pair()
    order = Order.BREADTH_FIRST if sram else Order.DEPTH_FIRST
    found = run(network, group(network, chip(sram=sram), {"H": 3}, double_buffered=buffered, order=order))
    loads = found.loads_of("x")
    begin, end = found.expanded.wait_offsets[loads[1] : loads[1] + 2].tolist()
    assert (begin == end) is buffered, "the second tile's input waits for nothing, or for what reads the first one's"
    addresses = {int(found.expanded.commands[number]["target_address"]) for number in loads}
    assert len(addresses) == (2 if buffered else 1)


# --- weights: homes, loads, memories (TILE-6, TILE-7) -----------------------------------------------------------------


def test_resident_weights_are_read_once_whatever_the_number_of_tiles() -> None:
    network = pair()
    tiling = group(network, chip(), {"H": 3})
    assert set(tiling.homes) == {WeightHome.CORE}
    found = run(network, tiling)
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))


def test_streamed_weights_are_read_again_with_every_tile() -> None:
    network = pair()
    streamed = tuple((op, WeightLoads.STREAMED) for op in network.ops)
    tiling = group(network, chip(), {"H": 3}, loads=streamed, order=Order.BREADTH_FIRST)
    assert set(tiling.homes) == {WeightHome.DRAM}
    found = run(network, tiling)
    assert all(found.loaded_bytes(name) == 4 * bytes_of(network, name) for name in weights_of(network))


def test_weights_that_wait_in_the_sram_are_read_once_and_moved_again_and_again() -> None:
    network = pair(channels=4)
    tiling = group(network, chip(sram=1 << 15, wram=1200), {"H": 3}, order=Order.BREADTH_FIRST, weights_in_sram=True)
    assert set(tiling.homes) == {WeightHome.SRAM}
    found = run(network, tiling)
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))
    assert found.levels(Opcode.MOVE)[Level.SRAM, Level.WRAM] >= 4 * 3


@pytest.mark.parametrize(
    ("memories", "level"), [((4096, 0), Level.WRAM), ((0, 4096), Level.NRAM_WEIGHTS), ((0, 0), Level.NRAM)]
)
@pytest.mark.parametrize("sram", [0, 1 << 15])
def test_weights_lie_in_the_memory_that_the_core_has_for_them(
    memories: tuple[int, int], level: Level, sram: int
) -> None:
    network = pair()
    found = run(network, group(network, chip(sram=sram, wram=memories[0], nram_weights=memories[1]), {"H": 6}))
    of_weights = {b["place"] for b in found.expanded.bindings if b["operand"] in (1, 2)}
    assert {found.expanded.places[place].level for place in of_weights} == {level}


def test_slices_of_weights_come_once_for_the_pieces_of_all_clusters() -> None:
    """TILE-6: pieces side by side use a slice before the next one takes its place."""
    network = single(32, channels=4)
    profile = chip(clusters=2, cores=2, sram=1 << 15, wram=2048)
    cores: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
    units: dict[str, Any] = {"units": 2, "spread": Spread.BANDS}
    tiling = group(network, profile, {"H": 4}, order=Order.BREADTH_FIRST, **units, **cores)
    assert [(w.slices, w.loads) for w in op_weights(tiling)] == [(6, 1)]
    found = run(network, tiling)
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))
    assert found.table_bytes <= traffic_of(tiling).table_bytes


def test_weights_of_a_split_sram_come_through_its_weight_part() -> None:
    network = pair(channels=4)
    profile = chip(sram=1 << 15, sram_weights=4096, wram=1200, cores=2)
    tiling = group(
        network, profile, {"H": 6}, order=Order.BREADTH_FIRST, weights_in_sram=True, cores=2, core_spread=Spread.BANDS
    )
    found = run(network, tiling)
    assert found.levels(Opcode.LOAD)[Level.DRAM, Level.SRAM_WEIGHTS] >= 3
    assert found.levels(Opcode.MOVE)[Level.SRAM_WEIGHTS, Level.WRAM] >= 3


def test_shared_weights_are_broadcast_on_the_bus() -> None:
    network = pair()
    profile = chip(cores=4, sram=1 << 15, wram=4096, bus=True)
    found = run(network, group(network, profile, {}, cores=4, core_spread=Spread.BANDS, core={"H": 3}))
    sent = found.commands(Opcode.BROADCAST)
    assert set(sent["targets"].tolist()) == {4}
    assert found.engines(sent) == {"bus"}
    assert set(found.places(sent, "target")) == {(Level.WRAM, 0)}
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))


def test_without_a_bus_each_core_fetches_shared_weights_from_the_sram() -> None:
    network = pair()
    profile = chip(cores=4, sram=1 << 15, wram=4096)
    found = run(network, group(network, profile, {}, cores=4, core_spread=Spread.BANDS, core={"H": 3}))
    assert found.count(Opcode.BROADCAST) == 0
    moved = found.commands(Opcode.MOVE)
    targets = [place for place in found.places(moved, "target") if place[0] is Level.WRAM]
    assert set(targets) == {(Level.WRAM, core) for core in range(4)}


@pytest.mark.parametrize("sram", [0, 1 << 15])
def test_multicast_reads_shared_weights_once_for_all_units(sram: int) -> None:
    network = pair()
    clusters, cores = (4, 1) if sram else (1, 4)
    order = Order.BREADTH_FIRST if sram else Order.DEPTH_FIRST
    streamed = tuple((op, WeightLoads.STREAMED) for op in network.ops)
    profile = chip(sram=sram, multicast=True, wram=4096, clusters=clusters, cores=cores)
    found = run(network, group(network, profile, {"H": 3}, units=4, spread=Spread.BANDS, order=order, loads=streamed))
    loads = found.commands(Opcode.LOAD)
    assert 4 in loads["targets"].tolist()
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))


def test_without_multicast_linked_cores_pass_shared_weights_on() -> None:
    network = pair()
    found = run(network, group(network, chip(cores=4), {"H": 3}, units=4, spread=Spread.BANDS))
    assert set(found.commands(Opcode.LOAD)["targets"].tolist()) == {1}
    assert all(found.loaded_bytes(name) == bytes_of(network, name) for name in weights_of(network))
    # units take turns at loading what all of them need
    passed = found.passed_between(Level.NRAM)
    assert len({sender for sender, _ in passed}) >= 3
    assert {receiver for _, receiver in passed} == {0, 1, 2, 3}


def test_weights_of_a_stage_that_lie_over_one_another_are_brought_back_for_each_piece() -> None:
    """The factors and the summands of a scaled map wait in the SRAM and pass the core one after the other."""
    model = Model()
    x = model.input([1, 8, 12, 6], "x")
    for kind in ("Mul", "Add", "Mul", "Add"):
        x = model.node(kind, [x, model.weight(8, 1, 1)])
    model.output(x)
    network = Network(model)
    tiling = group(network, chip(sram=1 << 15, nram=800, wram=96), {}, order=Order.BREADTH_FIRST, weights_in_sram=True)
    assert set(tiling.homes) == {WeightHome.SRAM}
    assert any(len(stage.steps) > 1 for stage in tiling.stages)
    found = run(network, tiling)
    assert found.count(Opcode.COMPUTE) > len(tiling.geometry.ops), "in pieces"


def test_a_sum_lies_as_the_operand_does_that_it_is_written_over() -> None:
    """Its own axes are called after the other operand's, of which other ones are the channels."""
    model = Model()
    x = model.node("Conv", [model.input([2, 8, 8], "x"), model.weight(8, 8, 1)])
    y = model.node("MatMul", [model.input([2, 8, 8], "y"), model.weight(8, 8)])
    model.output(model.node("Add", [model.node("Add", [x, y]), x]))
    network = Network(model)
    tiling = group(network, chip(), {})
    assert tiling.geometry.takes_over
    run(network, tiling)


def test_clusters_that_pass_halos_work_in_turn_where_their_cores_share_the_channels() -> None:
    """A cluster's first core tile needs what the cluster before it makes with its last one."""
    model = Model()
    x = model.input([1, 4, 13, 8], "x")
    for kernel, groups in ((3, 4), (1, 1), (3, 4)):
        x = model.conv(x, 4, 4, kernel, group=groups, pad=0)
    model.output(x)
    network = Network(model)
    run(
        network,
        group(
            network, chip(clusters=3, cores=2, sram=1 << 14), {"H": 3}, HaloMode.EXCHANGE, {"H": 1}, units=3,
            spread=Spread.BANDS, cores=2, core_spread=Spread.CHANNELS, order=Order.DEPTH_FIRST,
        ),
    )  # fmt: skip


@pytest.mark.parametrize("spread", [Spread.BANDS, Spread.CHANNELS])
def test_stationary_weights_are_never_read_from_dram(spread: Spread) -> None:
    network = single(8)
    profile = chip(cores=4, stationary=True, multicast=True)
    resident = network.resident_bytes(profile)
    tile = {"H": 2} if spread is Spread.BANDS else {"C": 2}
    tiling = group(network, profile.beside(resident), tile, units=4, spread=spread)
    assert tiling.weights_in_place is (spread is Spread.CHANNELS)
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    assert all(found.loaded_bytes(name) == 0 for name in weights_of(network))
    assert {found.expanded.places[r.place].number for r in found.expanded.residents} == {0, 1, 2, 3}
    # where every core needs all of them, each sends the part that it has to all at once
    assert found.count(Opcode.EXCHANGE) == 0
    assert found.count(Opcode.BROADCAST) == (4 * len(weights_of(network)) if spread is Spread.BANDS else 0)


def test_stationary_weights_of_a_core_beside_another_cluster_stay_in_it() -> None:
    """A core's own part is moved inside it where only a core of another cluster gets it too."""
    network = single(8)
    profile = chip(cores=1, clusters=2, sram=1 << 14, stationary=True)
    resident = network.resident_bytes(profile)
    tiling = group(network, profile.beside(resident), {"H": 4}, units=2, spread=Spread.BANDS)
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    between_cores = (Level.NRAM, Level.NRAM)
    assert found.levels(Opcode.EXCHANGE)[between_cores] == 2 * len(weights_of(network))
    assert found.levels(Opcode.MOVE)[between_cores] == 2 * len(weights_of(network))


def test_large_weights_pass_a_core_slice_by_slice() -> None:
    network = single(16, channels=8)
    streamed = tuple((op, WeightLoads.STREAMED) for op in network.ops)
    tiling = group(network, chip(wram=2048, sram=1 << 15), {"H": 4}, order=Order.BREADTH_FIRST, loads=streamed)
    assert tiling.weights[0].slices > 2
    found = run(network, tiling)
    addresses = {int(b["address"]) for b in found.expanded.bindings if b["operand"] == 1}
    assert len(addresses) == 2, "two halves of the core's weight memory take turns"


@pytest.mark.parametrize(("wram", "buffers"), [(3200, 1), (5600, 2)])
def test_a_slice_passes_alone_where_two_leave_lanes_of_the_array_idle(wram: int, buffers: int) -> None:
    """TILE-6: 24 channels of 292 B on an array of 8 lanes: three slices of 8, whether one or two have room."""
    network = single(24, channels=8, height=24)
    tiling = group(network, chip(wram=wram, sram=1 << 15), {"H": 12}, order=Order.BREADTH_FIRST, weights_in_sram=True)
    assert (tiling.weights[0].slices, tiling.weights[0].slice_buffers) == (3, buffers)
    found = run(network, tiling)
    addresses = {int(b["address"]) for b in found.program.bindings if b["operand"] == 1}
    assert len(addresses) == buffers


def test_a_slice_does_not_pass_alone_where_cores_would_wait_for_it_longer_than_lanes_idle() -> None:
    """TILE-6: of tiles of one position the array makes less in the time of a slice's transfer than idle lanes cost."""
    network = single(16, channels=8, height=24)
    tiling = group(network, chip(wram=3200, sram=1 << 15), {"H": 1, "W": 1}, order=Order.BREADTH_FIRST)
    assert tiling.weights[0].in_one_buffer is not None
    assert tiling.weights[0].slice_buffers == 2


# --- ops --------------------------------------------------------------------------------------------------------------


def test_an_op_that_works_in_place_writes_over_its_operand() -> None:
    model = Model()
    x = model.input([1, 4, 8, 8], "x")
    model.output(model.node("Sigmoid", [model.relu(model.conv(x, 4, 4))]))
    network = Network(model)
    found = run(network, group(network, chip(), {"H": 4}))
    steps: dict[int, tuple[set[int], set[int]]] = {}
    for row in found.commands(Opcode.COMPUTE):
        call = found.expanded.calls[row["call"]]
        bound = found.expanded.bindings[call["first"] : call["first"] + call["count"]]
        reads, writes = steps.setdefault(int(row["step"]), (set(), set()))
        reads |= {int(b["address"]) for b in bound if b["operand"] != OUTPUT}
        writes |= {int(b["address"]) for b in bound if b["operand"] == OUTPUT}
    assert steps[1][0] == steps[1][1] == steps[0][1]


def test_rows_of_a_table_come_by_index_and_the_rest_stays_in_dram() -> None:
    model = Model()
    table = model.weight(100, 8)
    indices = model.input([2, 3], "x", TensorProto.INT64)
    model.output(model.relu(model.node("Gather", [table, indices], axis=0)))
    network = Network(model)
    found = run(network, group(network, chip(), {"N": 1}))
    assert found.count(Opcode.GATHER) == 2
    assert found.loaded_bytes(table) == 0
    assert found.engines(found.commands(Opcode.GATHER)) == {"iodma"}


@pytest.mark.parametrize("sram", [0, 1 << 15])
def test_every_output_of_a_group_reaches_dram(sram: int) -> None:
    model = Model()
    x = model.input([1, 3, 8, 8], "x")
    first = model.output(model.conv(x, 3, 4))
    model.output(model.conv(model.relu(first), 4, 2))
    network = Network(model)
    found = run(network, group(network, chip(sram=sram), {"H": 3}, HaloMode.CACHED, order=Order.BREADTH_FIRST))
    outputs = {r.name: r for r in found.expanded.regions if r.role == "output"}
    assert len(outputs) == 2
    assert found.dram_bytes(Opcode.STORE) == sum(r.size_bytes for r in outputs.values()), "each element once"


@pytest.mark.parametrize("mode", HaloMode)
@pytest.mark.parametrize("rank", [1, 3])
def test_lines_and_volumes_are_tiled_as_images_are(rank: int, mode: HaloMode) -> None:
    model = Model()
    extents = [7, 6, 5][:rank] if rank > 1 else [20]
    x = model.input([1, 2, *extents], "x")
    kernel: dict[str, Any] = {"kernel_shape": [3] * rank, "pads": [1] * (2 * rank)}
    y = model.node("Conv", [x, model.weight(3, 2, *([3] * rank))], **kernel)
    model.output(model.node("Conv", [y, model.weight(2, 3, *([3] * rank))], **kernel))
    network = Network(model)
    axes = network.facts.tensors[network.facts.graph.outputs[0]].axes
    tile = {axis: 3 for axis in axes if axis not in ("N", "C")}
    units = 2 if mode is HaloMode.EXCHANGE else 1
    spread = Spread.BANDS if units > 1 else Spread.SINGLE
    found = run(network, group(network, chip(cores=2), tile, mode, units=units, spread=spread))
    assert (found.loaded_bytes("x") == bytes_of(network, "x")) is (mode is not HaloMode.RECOMPUTE)


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("mode", [HaloMode.RECOMPUTE, HaloMode.CACHED])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation"), [(5, 1, 1), (1, 3, 1), (2, 4, 1), (3, 1, 3), (3, 2, 2), (2, 3, 2)]
)
def test_kernels_larger_than_tiles_wide_strides_and_dilation_keep_what_later_tiles_need(
    kernel: int, stride: int, dilation: int, mode: HaloMode
) -> None:
    model = Model()
    x = model.input([1, 2, 17, 13], "x")
    pad = dilation * (kernel - 1) // 2
    model.output(model.conv(model.conv(x, 2, 3, kernel, stride=stride, dilation=dilation, pad=pad), 3, 2))
    network = Network(model)
    found = run(network, group(network, chip(), {"H": 2, "W": 1}, mode))
    reads = found.loaded_bytes("x")
    assert reads <= bytes_of(network, "x") if mode is HaloMode.CACHED else reads > 0


@pytest.mark.parametrize("dtype", ["FLOAT16", "BFLOAT16", "INT8", "UINT8", "INT32", "INT64", "BOOL"])
@pytest.mark.parametrize("sram", [0, 1 << 15])
def test_values_of_every_element_type_come_through(dtype: str, sram: int) -> None:
    model = Model()
    kind = getattr(TensorProto, dtype)
    x = model.input([1, 3, 8, 8], "x", kind)
    y = model.node("Where", [model.node("Cast", [x], to=TensorProto.BOOL), x, x])
    model.output(model.node("Concat", [y, y], axis=1), kind)
    network = Network(model)
    run(network, group(network, chip(sram=sram), {"H": 3}, order=Order.BREADTH_FIRST, double_buffered=True))


# --- the program as a whole -------------------------------------------------------------------------------------------


def every_spread() -> list[tuple[str, Network, TiledGroup]]:
    """Tilings of all kinds, by name."""
    network = pair(batch=2)
    flat, nested = chip(cores=2), chip(clusters=2, cores=2, sram=1 << 15, bus=True)
    cores: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
    return [
        ("flat", network, group(network, flat, {"H": 3}, HaloMode.CACHED, double_buffered=True)),
        ("bands", network, group(network, flat, {"H": 3}, HaloMode.EXCHANGE, units=2, spread=Spread.BANDS)),
        ("channels", network, group(network, flat, {"H": 6}, units=2, spread=Spread.CHANNELS)),
        ("staged", network, group(network, nested, {"H": 3}, order=Order.BREADTH_FIRST, **cores)),
        ("nested", network, group(network, nested, {"H": 6}, HaloMode.CACHED, {"H": 2}, **cores)),
    ]


@pytest.mark.parametrize("number", range(5))
def test_two_lowerings_of_a_group_are_equal_to_the_byte(number: int) -> None:
    _, network, tiling = every_spread()[number]
    first = lower(network, tiling)
    again = lower(network, every_spread()[number][2])
    for field in ("commands", "waits", "wait_offsets", "calls", "bindings"):
        assert getattr(first.expanded, field).tobytes() == getattr(again.expanded, field).tobytes()
    assert first.expanded.regions == again.expanded.regions
    assert first.expanded.units == again.expanded.units


@pytest.mark.parametrize("number", range(5))
def test_the_dram_sees_what_the_plan_says(number: int) -> None:
    """SIM-3: the bytes that commands move are those that the plan is priced by."""
    _, network, tiling = every_spread()[number]
    found, traffic = run(network, tiling), traffic_of(tiling)
    assert found.dram_bytes(Opcode.STORE) == traffic.output_bytes
    assert found.loaded_bytes("x") == traffic.input_bytes
    assert sum(map(found.loaded_bytes, weights_of(network))) == traffic.weight_bytes
    assert 0 < found.table_bytes <= traffic.table_bytes
