"""Tilings that were once lowered wrongly: a small network and a pinned tiling each (PROG-1, PROG-4, SIM-1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler.errors import LimitError
from compiler.program.program import Level, Opcode
from compiler.program.tiles import Tiles
from compiler.program.timing.demands import demands_of
from compiler.program.timing.levels import moved_by
from compiler.report.programs import dram_bytes
from compiler.tiling.lowerable import falls_check
from compiler.tiling.memory import memory_of
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Order, Spread, WeightLoads
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from tests.compiler.program.lowered import Network, bytes_of, chip, fits, group, pair, run, single, weights_of
from tests.models import Model

STREAMED, RESIDENT = WeightLoads.STREAMED, WeightLoads.RESIDENT
CHANNELS: dict[str, Any] = {"units": 2, "spread": Spread.CHANNELS, "cores": 2, "core_spread": Spread.CHANNELS}


def scores(*outputs: str) -> Network:
    """Products of a matrix with its transpose, twice."""
    model = Model()
    x = model.input([1, 4, 6], "x")
    first = model.node("MatMul", [x, model.node("Transpose", [x], perm=[0, 2, 1])])
    turned = model.node("Transpose", [first], perm=[0, 2, 1])
    last = model.node("MatMul", [turned, model.node("Transpose", [turned], perm=[0, 2, 1])])
    names = {"first": first, "last": last}
    for name in outputs:
        model.output(names[name])
    return Network(model)


def normed(n: int, m: int, k: int) -> Network:
    """A softmax along the rows of a matrix."""
    model = Model()
    model.output(model.node("Softmax", [model.input([n, m, k], "x")], axis=1))
    return Network(model)


def test_an_output_that_every_tile_recomputes_whole_is_handed_out_whole() -> None:
    network = scores("first", "last")
    run(network, group(network, chip(), {"H": 3}))


def test_rows_of_a_table_are_not_kept_where_no_op_lays_them() -> None:
    model = Model()
    indices = model.input([2, 3], dtype=TensorProto.INT64)
    rows = model.node("Gather", [model.weight(23, 8), indices], axis=0)
    model.output(model.node("Softmax", [rows], axis=1))
    network = Network(model)
    how: dict[str, Any] = {
        "units": 4,
        "spread": Spread.CHANNELS,
        "halo": (("N", HaloMode.CACHED), ("H", HaloMode.CACHED)),
    }
    run(network, group(network, chip(cores=4), {"N": 1, "H": 1, "C": 2}, HaloMode.CACHED, **how))


def test_what_has_been_written_over_is_not_kept() -> None:
    model = Model()
    x = model.input([3, 6, 5], "x")
    turned = model.node("Transpose", [model.node("Mul", [x, model.node("Sigmoid", [x])])], perm=[0, 2, 1])
    model.output(turned)
    model.output(model.node("Add", [model.node("MatMul", [turned, model.weight(6, 11)]), model.weight(11)]))
    network = Network(model)
    profile = chip(cores=4, sram=1 << 13)
    how: dict[str, Any] = {"cores": 4, "core_spread": Spread.CHANNELS, "order": Order.BREADTH_FIRST}
    halo = (("N", HaloMode.EXCHANGE), ("H", HaloMode.EXCHANGE))
    run(network, group(network, profile, {"N": 1, "H": 3}, HaloMode.EXCHANGE, halo=halo, **how))


def test_cores_do_not_send_each_other_what_has_been_written_over() -> None:
    """Attention as exporters write it: keys and values are the same for all tiles, and made by the first."""
    model = Model()
    x, short = model.input([1, 24, 4], "x"), model.input([1, 3, 4], "short")
    values = model.node("Add", [model.node("MatMul", [short, model.weight(4, 4)]), model.weight(4)])
    scores = model.node("MatMul", [x, model.node("Transpose", [short], perm=[0, 2, 1])])
    model.output(model.node("MatMul", [model.node("Softmax", [scores], axis=-1), values]))
    network = Network(model)
    how: dict[str, Any] = {"cores": 3, "core_spread": Spread.BANDS}
    run(network, group(network, chip(cores=3, sram=1 << 13), {"H": 24}, HaloMode.EXCHANGE, {"H": 4}, **how))


def test_a_unit_does_not_send_before_the_next_one_is_done_with_the_image_before() -> None:
    network = normed(2, 5, 4)
    how: dict[str, Any] = {"units": 4, "spread": Spread.BANDS, "placement": Placement.QUADRANTS}
    run(network, group(network, chip(cores=4), {"N": 1, "H": 1}, HaloMode.EXCHANGE, **how))


def test_units_that_share_out_a_tile_keep_what_waits_for_themselves() -> None:
    model = Model()
    x = model.node("Transpose", [model.input([1, 3, 8], "x")], perm=[0, 2, 1])
    model.output(x)
    model.output(model.node("Transpose", [model.node("MatMul", [x, model.weight(3, 4)])], perm=[0, 2, 1]))
    network = Network(model)
    profile = chip(clusters=2, cores=1, sram=1 << 13)
    how: dict[str, Any] = {"units": 2, "spread": Spread.CHANNELS, "order": Order.BREADTH_FIRST}
    run(network, group(network, profile, {"H": 2}, HaloMode.EXCHANGE, **how))


def test_weights_of_one_stage_that_take_each_others_place_come_op_by_op() -> None:
    model = Model()
    x = model.node("MatMul", [model.input([1, 4, 6], "x"), model.weight(6, 2)])
    model.output(model.node("Add", [x, model.weight(2)]))
    network = Network(model)
    profile = chip(cores=2, sram=1 << 13, wram=1 << 12)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS, "loads": ((0, STREAMED), (1, STREAMED))}
    run(network, group(network, profile, {"H": 4}, order=Order.BREADTH_FIRST, **how))


def test_resident_weights_do_not_pass_the_buffer_of_streamed_ones() -> None:
    model = Model()
    x = model.conv(model.input([1, 2, 6, 1], "x"), 2, 8, kernel=1, bias=True)
    model.output(model.conv(x, 8, 1, kernel=1))
    network = Network(model)
    profile = chip(cores=1, sram=1 << 13, wram=1 << 12, iodma=False)
    how: dict[str, Any] = {"loads": ((0, RESIDENT), (1, STREAMED)), "double_buffered": True}
    run(network, group(network, profile, {"H": 1}, HaloMode.RECOMPUTE, {"H": 1}, **how))


def test_cores_that_share_out_channels_do_not_overwrite_what_others_still_read() -> None:
    network = pair(height=6)
    profile = chip(clusters=2, cores=2, sram=1 << 13)
    run(network, group(network, profile, {"H": 2}, HaloMode.CACHED, {"H": 1}, **CHANNELS))


def test_what_waits_outlasts_a_tile_that_needs_none_of_it() -> None:
    model = Model()
    x = model.input([1, 1, 1, 4], "x")
    scales = model.constant(np.array([1, 1, 2, 1], dtype=np.float32))
    how: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    middle = model.node("Resize", [x, "", scales], **how)
    model.output(middle)
    model.output(model.node("Resize", [middle, "", scales], **how))
    network = Network(model)
    run(network, group(network, chip(), {"H": 1}, HaloMode.CACHED))


def test_core_tiles_that_recompute_an_output_hand_out_each_position_once() -> None:
    model = Model()
    x = model.relu(model.input([1, 2, 8, 4], "x"))
    model.output(x)
    model.output(model.conv(x, 2, 2))
    network = Network(model)
    profile = chip(cores=2, sram=1 << 13)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
    run(network, group(network, profile, {"H": 4}, HaloMode.RECOMPUTE, {"H": 2}, **how))
    run(network, group(network, profile, {"H": 4}, HaloMode.CACHED, {"H": 2}, **how))


@pytest.mark.parametrize("mode", [HaloMode.CACHED, HaloMode.EXCHANGE])
@pytest.mark.parametrize("nested", [True, False])
def test_tiles_whose_ranges_do_not_rise_hand_out_each_position_once(mode: HaloMode, nested: bool) -> None:
    """The shorter output is cut at rounded fractions of the padded one, and its readers need nothing of some tiles."""
    model = Model()
    x = model.relu(model.input([1, 1, 8, 4], "x"))
    model.output(x)
    model.output(model.node("Pad", [x, model.ints(0, 0, 0, 0, 0, 0, 2, 0)]))
    network = Network(model)
    if nested:
        how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
        tiling = group(network, chip(cores=2, sram=1 << 13), {"H": 4}, mode, {"H": 1}, **how)
        starts = Tiles(tiling.core_frustums).dims(x)[2].starts
    else:
        tiling = group(network, chip(cores=5), {"H": 1}, mode, units=5, spread=Spread.BANDS)
        starts = Tiles(tiling.frustums).dims(x)[2].starts
    assert list(starts) != sorted(starts), "the case is none if the ranges rise"
    # only here SRAM tiles' ranges rise where those of core tiles fall
    is_refused = nested and mode is HaloMode.EXCHANGE
    assert (falls_check(tiling) is not None) is is_refused
    if is_refused:
        with pytest.raises(LimitError, match="fall back"):
            run(network, tiling)
    else:
        run(network, tiling)


def test_bands_of_cores_keep_what_waits_for_all_tiles_of_a_column() -> None:
    network = pair(height=8, width=6)
    profile = chip(cores=2, sram=1 << 13)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS, "walk": ("W", "H")}
    run(network, group(network, profile, {"H": 4, "W": 3}, HaloMode.CACHED, {"H": 2, "W": 1}, **how))


def test_results_of_a_stage_do_not_lie_over_what_its_other_pieces_read() -> None:
    model = Model()
    x = model.node("Cast", [model.input([1, 4, 4, 2], "x", TensorProto.INT8)], to=TensorProto.INT32)
    flags = model.node("Cast", [x], to=TensorProto.BOOL)
    found = model.node("Cast", [model.node("Where", [flags, x, x])], to=TensorProto.INT64)
    model.output(found, TensorProto.INT64)
    network = Network(model)
    profile = chip(cores=2, sram=1 << 13)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.CHANNELS, "order": Order.BREADTH_FIRST}
    run(network, group(network, profile, {}, **how))


def test_the_next_inputs_lie_where_their_types_may() -> None:
    """A mask of bytes comes before values of eight bytes."""
    model = Model()
    mask = model.input([1, 3, 6, 3], "mask", TensorProto.BOOL)
    x = model.input([1, 3, 6, 3], "x", TensorProto.INT64)
    model.output(model.node("Where", [mask, x, x]), TensorProto.INT64)
    network = Network(model)
    tiling = group(network, chip(), {"H": 2}, double_buffered=True)
    assert tiling.is_buffered
    run(network, tiling)


def test_what_a_core_finds_whole_in_the_sram_is_brought_back_for_every_core_tile() -> None:
    """The transpose is the same for all rows, and the cores have no room to keep it between their tiles."""
    model = Model()
    x = model.input([1, 9, 11], "x")
    product = model.node("MatMul", [x, model.node("Transpose", [x], perm=[0, 2, 1])])
    model.output(model.node("Mul", [product, model.node("Sigmoid", [product])]))
    network = Network(model)
    profile = chip(cores=2, sram=1 << 14, nram=1024)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.CHANNELS}
    tiling = group(network, profile, {"H": 4}, HaloMode.CACHED, {"H": 2}, **how)
    assert tiling.kept_outside_cores_bytes
    run(network, tiling)


def test_clusters_that_share_out_a_sum_work_on_the_same_tile_whatever_the_halo_mode() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 4, 6, 4], "x"), 4, 3, kernel=1, bias=True))
    network = Network(model)
    profile = chip(clusters=2, cores=2, sram=1 << 13)
    how: dict[str, Any] = {"units": 2, "spread": Spread.INPUT_CHANNELS, "cores": 2, "core_spread": Spread.CHANNELS}
    run(network, group(network, profile, {"H": 3}, HaloMode.EXCHANGE, {"H": 1, "C": 2}, **how))


def test_the_channels_of_a_stage_are_each_ops_own() -> None:
    """What follows a product in its stage may call another axis its channels: a sum takes its first operand's axes."""
    model = Model()
    x = model.input([1, 3, 8], "x")
    rows = model.node("Conv", [x, model.weight(6, 3, 1)], kernel_shape=[1])
    product = model.node("MatMul", [rows, model.weight(8, 8)])
    model.output(model.node("Add", [rows, product]))
    network = Network(model)
    axes = [network.facts.tensors[op.output].axes for op in network.facts.ops]
    assert axes[-1] != axes[-2], "the case is none if both name their axes alike"
    for how in (Spread.BANDS, Spread.CHANNELS):
        spread: dict[str, Any] = {"cores": 2, "core_spread": how}
        run(network, group(network, chip(cores=2, sram=1 << 15), {}, order=Order.BREADTH_FIRST, **spread))


@pytest.mark.parametrize("spread", [Spread.SINGLE, Spread.CHANNELS, Spread.BANDS])
def test_a_core_does_not_send_to_the_next_tile_what_the_receiver_still_needs_for_this_one(spread: Spread) -> None:
    """Each core has one row of every tile: the last one sends to the first, which works at the same time."""
    network = pair(height=8)
    profile = chip(clusters=2, cores=2, sram=1 << 13)
    units = 1 if spread is Spread.SINGLE else 2
    how: dict[str, Any] = {"units": units, "spread": spread, "cores": 2, "core_spread": Spread.BANDS}
    run(network, group(network, profile, {"H": 2}, HaloMode.EXCHANGE, {"H": 1}, **how))


@pytest.mark.parametrize("spread", [Spread.SINGLE, Spread.CHANNELS, Spread.BANDS])
def test_a_core_without_room_for_a_halo_fetches_it_when_its_neighbour_has_made_it(spread: Spread) -> None:
    """What passes between cores lies in the SRAM: it is made in the round in which it is needed."""
    network = pair(height=8)
    profile = chip(clusters=2, cores=2, sram=1 << 13, nram=2048)
    units = 1 if spread is Spread.SINGLE else 2
    how: dict[str, Any] = {"units": units, "spread": spread, "cores": 2, "core_spread": Spread.BANDS}
    tiling = group(network, profile, {"H": 4}, HaloMode.EXCHANGE, {"H": 2}, **how)
    assert tiling.kept_outside_cores_bytes
    run(network, tiling)


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("placement", [Placement.BANDS, Placement.BLOCKS])
@pytest.mark.parametrize("tile", [{"H": 2}, {"H": 1, "W": 1}])
def test_what_other_clusters_need_does_not_stay_in_the_core(placement: Placement, tile: dict[str, int]) -> None:
    """With one core per cluster results stay there between stages; halos are passed on from the SRAM."""
    model = Model()
    x = model.conv(model.input([1, 16, 8, 8], "x"), 16, 4, kernel=1)
    model.output(model.node("MaxPool", [model.relu(x)], kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2]))
    network = Network(model)
    profile = chip(clusters=2, sram=1 << 16, multicast=True)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "placement": placement, "order": Order.BREADTH_FIRST}
    kept = group(network, profile, tile, HaloMode.CACHED, **how)
    passed = group(network, profile, tile, HaloMode.EXCHANGE, **how)
    assert kept.core_resident
    assert not passed.core_resident
    run(network, kept)
    run(network, passed)


@pytest.mark.parametrize("units", [2, 4, 8])
def test_what_has_been_written_over_is_not_passed_on(units: int) -> None:
    """All parts of the channels need the same row: a unit with several parts has only what has become of it."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 4, 6], "x"), 4, 32, kernel=1))
    model.output(model.node("Reshape", [x, model.ints(1, 2, 16, 4, 6)]))
    network = Network(model)
    how: dict[str, Any] = {"units": units, "spread": Spread.BANDS, "placement": Placement.BLOCKS}
    run(network, group(network, chip(cores=units), {"D": 1, "H": 1}, HaloMode.EXCHANGE, **how))


def test_core_tiles_whose_ranges_fall_back_inside_sram_tiles_are_refused() -> None:
    """They would read what the SRAM tile no longer holds: no program rather than a wrong one (PROG-1:falls)."""
    model = Model()
    first = model.node("Pad", [model.input([1, 1, 8, 6], "x"), model.ints(0, 0, 2, 2, 0, 0, 2, 1)])
    pooled = model.node("MaxPool", [first], kernel_shape=[2, 2], strides=[2, 2])
    model.output(first)
    model.output(model.node("Pad", [pooled, model.ints(0, 0, 0, 2, 0, 0, 1, 0)]))
    network = Network(model)
    profile = chip(sram=4096, nram=1024)
    how: dict[str, Any] = {"order": Order.DEPTH_FIRST, "double_buffered": False}
    tiling = group(network, profile, {"H": 1, "W": 2}, HaloMode.EXCHANGE, {"H": 1, "W": 1}, **how)
    check = falls_check(tiling)
    assert check is not None
    assert check.rule == "PROG-1:falls"
    with pytest.raises(LimitError, match="fall back") as caught:
        run(network, tiling)
    assert caught.value.code == "not_lowered"
    # with whole SRAM tiles in a core nothing falls
    run(network, group(network, profile, {"H": 1, "W": 2}, HaloMode.EXCHANGE, **how))


@pytest.mark.parametrize("sram", [0, 1 << 13])
def test_rows_of_a_table_pass_between_units_once_they_have_come(sram: int) -> None:
    """The engine that brings rows writes them, not the core."""
    model = Model()
    rows = model.node("Gather", [model.weight(25, 4), model.input([1, 6], "x", TensorProto.INT64)], axis=0)
    model.output(model.node("MatMul", [rows, model.weight(4, 3)]))
    network = Network(model)
    clusters, cores = (2, 1) if sram else (1, 2)
    how: dict[str, Any] = {"units": 2, "spread": Spread.CHANNELS}
    run(network, group(network, chip(clusters=clusters, cores=cores, sram=sram), {"H": 2}, **how))


def test_parts_of_channels_that_stay_in_a_core_are_sent_once_they_are_made() -> None:
    """Results that stay between stages are written by calls, the others by what moves pieces to the SRAM."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4], "x"), 4, 7, kernel=1)
    x = model.node("Pad", [model.node("Add", [x, x]), model.ints(0, 0, 1, 1, 0, 0, 1, 1)])
    for name in model.nodes_out("Split", [x, model.ints(2, 5)], [model.fresh("s"), model.fresh("s")], axis=1):
        model.output(name)
    network = Network(model)
    profile = chip(clusters=4, cores=1, sram=1 << 18, nram=1024, nram_weights=256)
    how: dict[str, Any] = {"units": 4, "spread": Spread.CHANNELS, "order": Order.BREADTH_FIRST, "walk": ("W", "H")}
    tiling = group(network, profile, {"W": 1}, HaloMode.EXCHANGE, **how)
    assert tiling.core_resident
    run(network, tiling)


def _slices(dtype: int = TensorProto.FLOAT, width: int = 3) -> tuple[Network, TiledGroup]:
    """A convolution channel by channel whose weights for half of the channels take each other's place."""
    model = Model()
    x = model.node("Cast", [model.input([1, 2, 6, 6], "x", dtype)], to=TensorProto.FLOAT)
    weight = model.weight(2, 1, 1, width)
    model.output(model.node("Conv", [x, weight], kernel_shape=[1, width], group=2))
    network = Network(model)
    tiling = group(network, chip(), {"C": 1, "H": 2}, channel_slices=2)
    assert tiling.doubles_weights
    return network, tiling


def test_second_buffers_for_weights_begin_where_any_element_may_lie() -> None:
    """Weights of twelve bytes beside inputs of eight bytes each."""
    network, tiling = _slices(TensorProto.INT64)
    assert tiling.weights[1].core_bytes % 8 == 4
    run(network, tiling)


def test_weights_of_as_many_slices_as_there_are_buffers_come_once() -> None:
    network, tiling = _slices()
    assert tiling.walk.rounds > 1
    found = run(network, tiling)
    assert sum(map(found.loaded_bytes, weights_of(network))) == traffic_of(tiling).weight_bytes
    assert traffic_of(tiling).weight_bytes == sum(bytes_of(network, name) for name in weights_of(network))


def test_what_is_added_to_a_sum_comes_with_its_last_part() -> None:
    network = single(6, channels=8)
    tiling = group(network, chip(), {}, input_slices=4)
    found = run(network, tiling)
    for name in weights_of(network):
        assert found.loaded_bytes(name) == bytes_of(network, name)


def test_weights_that_find_no_room_to_pass_the_sram_are_read_once_for_all_cores() -> None:
    network = pair(height=8)
    profile = chip(clusters=2, cores=2, sram=1 << 14, sram_weights=1 << 10, nram_weights=1 << 12)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "cores": 2, "core_spread": Spread.BANDS}
    for mode in (HaloMode.CACHED, HaloMode.EXCHANGE):
        found = run(network, group(network, profile, {"H": 4}, mode, {"H": 2}, **how))
        for name in weights_of(network):
            assert found.loaded_bytes(name) == bytes_of(network, name)


def test_the_last_results_lie_where_their_types_may() -> None:
    """A mask of bytes leaves beside values of eight bytes."""
    model = Model()
    x = model.input([1, 3, 6, 3], "x", TensorProto.INT64)
    mask = model.node("Cast", [x], to=TensorProto.BOOL)
    model.output(mask, TensorProto.BOOL)
    model.output(model.node("Where", [mask, x, model.node("Add", [x, x])]), TensorProto.INT64)
    network = Network(model)
    tiling = group(network, chip(), {"H": 1}, double_buffered=True)
    assert len(tiling.leaving) == 2
    run(network, tiling)


def test_cores_whose_second_buffers_have_not_the_same_turn_each_get_their_weights() -> None:
    """Uneven tiles: some cores work on slices of weights that others have not needed."""
    model = Model()
    x = model.input([2, 1, 18], "x")
    x = model.node("Conv", [x, model.weight(5, 1, 2)], kernel_shape=[2])
    x = model.node("MaxPool", [x], kernel_shape=[1], strides=[4])
    window: dict[str, Any] = {"kernel_shape": [3], "dilations": [2], "strides": [2], "pads": [2, 2]}
    model.output(model.node("Conv", [x, model.weight(5, 5, 3), model.weight(5)], **window))
    network = Network(model)
    profile = chip(cores=3, sram=1 << 18, nram=2048, nram_weights=512, bus=True, iodma=False)
    halo = tuple((axis, HaloMode.CACHED) for axis in "NW")
    how: dict[str, Any] = {"cores": 3, "core_spread": Spread.BANDS, "order": Order.BREADTH_FIRST, "walk": ("W",)}
    tiling = group(network, profile, {"N": 1, "W": 2}, halo=halo, double_buffered=True, **how)
    assert tiling.weights[2].slices == 2
    run(network, tiling)


def test_input_parts_of_a_slice_beyond_the_buffers_come_again_with_every_tile() -> None:
    network = single(4, channels=8, height=4)
    tiling = group(network, chip(), {"C": 2, "H": 2}, channel_slices=2, slices_outer=True, input_slices=4)
    found = run(network, tiling)
    assert sum(map(found.loaded_bytes, weights_of(network))) == traffic_of(tiling).weight_bytes


def test_weights_that_every_channel_needs_are_in_every_slice() -> None:
    """Those of a transposed convolution by groups; its bias is what follows the channels."""
    model = Model()
    weight = model.weight(8, 8, 3, 3)
    model.output(model.node("ConvTranspose", [model.input([1, 8, 4, 3], "x"), weight, model.weight(64)], group=8))
    network = Network(model)
    how: dict[str, Any] = {"order": Order.BREADTH_FIRST, "loads": ((0, STREAMED),)}

    def tiling(memory: int) -> TiledGroup:
        return group(network, chip(sram=1 << 16, nram_weights=memory), {"H": 2}, **how)

    found = tiling(2 * (2304 + 128))
    assert (found.weights[0].slices, found.weights[0].passing_core_bytes) == (2, 2 * (2304 + 128))
    run(network, found)
    assert not fits(tiling(2304))


@pytest.mark.parametrize("part", [0, 64])
def test_weights_pass_an_sram_that_tiles_or_other_weights_fill_to_the_last_byte(part: int) -> None:
    """No engine brings them to the cores directly, so the plan keeps a line for them (PROG-2)."""
    network = pair()
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS, "order": Order.BREADTH_FIRST}
    how |= {"weights_in_sram": bool(part), "loads": ((0, STREAMED), (1, STREAMED)) if part else ()}

    def tiling(sram: int, weights: int = 0) -> TiledGroup:
        profile = chip(cores=2, sram=sram, sram_weights=weights, nram_weights=1 << 13, iodma=False)
        return group(network, profile, {"H": 4}, **how)

    roomy = tiling(1 << 14, part)
    levels = {level.level: level.allocation.peak_bytes for level in memory_of(roomy)}
    exact = tiling(levels["sram"], levels["sram-weights"] if part else 0)
    assert fits(exact)
    found = run(network, exact)
    # address tables come line by line too, and are told from data all the same
    read, _, tables = dram_bytes(found.expanded)
    assert (read, tables) == (traffic_of(exact).read_bytes, found.table_bytes)
    assert exact.passing_line_bytes == exact.profile.line_bytes
    assert not fits(tiling(levels["sram"] - (0 if part else 8), levels["sram-weights"] - 8 if part else 0))


def test_where_an_engine_brings_weights_to_cores_no_line_of_the_sram_is_kept_for_them() -> None:
    network = pair()
    assert group(network, chip(sram=1 << 14), {"H": 4}).passing_line_bytes == 0


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("sram", [0, 1 << 13])
def test_indices_of_a_table_are_read_from_dram_once(sram: int, order: Order) -> None:
    """They come to a core like any input; the engine that brings rows finds them there."""
    model = Model()
    rows = model.node("Gather", [model.weight(25, 4), model.input([3, 6], "x", TensorProto.INT64)], axis=0)
    model.output(model.node("MatMul", [rows, model.weight(4, 3)]))
    network = Network(model)
    tiling = group(network, chip(sram=sram), {"N": 1}, order=order)
    found = run(network, tiling)
    read, written, _ = dram_bytes(found.expanded)
    assert (read, written) == (traffic_of(tiling).read_bytes, traffic_of(tiling).output_bytes)
    # rows are of 16 bytes, indices of 8, and 12 weights of 4
    assert read == 18 * 16 + 18 * 8 + 48


@pytest.mark.matrix(first=8, rest=8)
@pytest.mark.parametrize("sram", [0, 1 << 14])
@pytest.mark.parametrize("tile", [2, 8])
@pytest.mark.parametrize(("slices", "parts"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (1, 4), (2, 4)])
def test_weights_come_into_cores_as_often_as_plans_say(sram: int, tile: int, slices: int, parts: int) -> None:
    """Whether slices and parts have a buffer each, or give way to the next and come again with every tile."""
    model = Model()
    model.output(model.conv(model.input([1, 8, 8, 6], "x"), 8, 8, kernel=1, bias=True))
    network = Network(model)
    core = {"H": 1} if sram else None
    how: dict[str, Any] = {"channel_slices": slices, "input_slices": parts}
    tiling = group(network, chip(sram=sram, wram=1 << 13), {"H": tile, "C": 8 // slices}, core=core, **how)
    found = run(network, tiling)
    (step,) = traffic_of(tiling).steps
    written = moved_by(found.expanded, demands_of(found.expanded, tiling.profile)).memories["wram"].written
    assert written == step.wram.written
    assert sum(map(found.loaded_bytes, weights_of(network))) == traffic_of(tiling).weight_bytes


def test_weights_that_wait_in_a_core_come_once_also_where_tiles_need_other_channels() -> None:
    """Of a map that is split, a tile makes channels of the first part and channels of the second."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4], "x"), 4, 10, bias=True)
    for name in model.nodes_out("Split", [x, model.ints(4, 6)], [model.fresh("s"), model.fresh("s")], axis=1):
        model.output(name)
    network = Network(model)
    for sram in (0, 1 << 14):
        tiling = group(network, chip(sram=sram), {"H": 2, "C": 2})
        assert tiling.slices == 1
        found = run(network, tiling)
        assert len({box[1] for box in found.boxes_by_core(0)[0]}) > 1
        assert sum(map(found.loaded_bytes, weights_of(network))) == traffic_of(tiling).weight_bytes


def test_of_weights_that_wait_in_a_core_only_what_some_tile_needs_comes() -> None:
    """Three of ten channels are cut out of what a convolution makes."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4], "x"), 4, 10)
    model.output(model.node("Slice", [x, model.ints(4), model.ints(7), model.ints(1)]))
    network = Network(model)
    found = run(network, group(network, chip(), {"H": 2}))
    assert sum(map(found.loaded_bytes, weights_of(network))) == 3 * 4 * 9 * 4


@pytest.mark.parametrize("sram", [0, 1 << 14])
def test_the_second_of_two_slices_of_weights_begins_where_any_element_may_lie(sram: int) -> None:
    """Slices of 100 bytes beside indices of eight bytes each."""
    model = Model()
    table, indices = model.weight(25, 4), model.input([1, 30], "x", TensorProto.INT64)
    model.output(model.node("Gather", [table, indices], axis=0))
    network = Network(model)
    how: dict[str, Any] = {"order": Order.BREADTH_FIRST, "loads": ((0, STREAMED),)}
    tiling = group(network, chip(sram=sram, nram_weights=2 * 104), {"H": 10}, **how)
    assert tiling.weights[0].slices == 4
    assert tiling.weights[0].passing_core_bytes == 104 + 100
    run(network, tiling)


@pytest.mark.parametrize("sram", [0, 1 << 14])
def test_weights_that_follow_no_channels_come_once_for_all_slices_and_cores(sram: int) -> None:
    """Those of a transposed convolution by groups: each slice of the channels needs them whole."""
    model = Model()
    model.output(model.node("ConvTranspose", [model.input([1, 4, 4, 3], "x"), model.weight(4, 2, 3, 3)], group=4))
    network = Network(model)
    spread: dict[str, Any] = {"cores": 2, "core_spread": Spread.CHANNELS} if sram else {}
    profile = chip(cores=2 if sram else 1, sram=sram)
    for outer in (False, True):
        tiling = group(network, profile, {"C": 4, "H": 3}, channel_slices=2, slices_outer=outer, **spread)
        found = run(network, tiling)
        assert sum(map(found.loaded_bytes, weights_of(network))) == 4 * 2 * 9 * 4


def test_stationary_weights_lie_where_a_lone_core_uses_them_whatever_channels_its_tiles_make() -> None:
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4], "x"), 4, 10, bias=True)
    for name in model.nodes_out("Split", [x, model.ints(4, 6)], [model.fresh("s"), model.fresh("s")], axis=1):
        model.output(name)
    network = Network(model)
    profile = chip(stationary=True)
    resident = network.resident_bytes(profile)
    tiling = group(network, profile.beside(resident), {"H": 2, "C": 2})
    assert tiling.weights_in_place
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    assert not any(map(found.loaded_bytes, weights_of(network)))


@pytest.mark.parametrize("first", [0, 1])
def test_stationary_weights_lie_where_they_are_used_only_if_all_their_channels_are_needed(first: int) -> None:
    """The first channel that no output needs has weights in the first core all the same, which works on the second."""
    model = Model()
    x = model.conv(model.input([1, 4, 4, 4], "x"), 4, 5, bias=True)
    x = model.node("Slice", [x, model.ints(first), model.ints(5), model.ints(1)])
    model.output(model.node("Flatten", [x]))
    network = Network(model)
    profile = chip(cores=4, stationary=True, multicast=True)
    resident = network.resident_bytes(profile)
    tiling = group(network, profile.beside(resident), {}, units=4, spread=Spread.CHANNELS)
    assert tiling.weights_in_place is (first == 0)
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    assert not any(map(found.loaded_bytes, weights_of(network)))


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("units", [3, 2])
@pytest.mark.parametrize("mode", [HaloMode.RECOMPUTE, HaloMode.CACHED])
def test_stationary_weights_come_from_whoever_has_those_of_a_tile_whose_rows_a_view_makes_of_channels(
    units: int, mode: HaloMode
) -> None:
    """Of 30 tiles the first and the last need nothing of the second core, which has the weights of ten between."""
    model = Model()
    x = model.node("Conv", [model.input([1, 8, 6], "x"), model.weight(60, 8, 1)])
    model.output(model.node("Add", [model.node("Reshape", [x, model.ints(60, 6)]), model.weight(60, 1)]))
    network = Network(model)
    profile = chip(cores=3, stationary=True)
    resident = network.resident_bytes(profile)
    halo = (("N", mode),) if mode is HaloMode.CACHED else ()
    tiling = group(network, profile.beside(resident), {"N": 2}, halo=halo, units=units, spread=Spread.CHANNELS)
    assert not tiling.weights_in_place
    found = run(network, tiling, resident_bytes=resident, profile=profile)
    assert not any(map(found.loaded_bytes, weights_of(network)))


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("mode", list(HaloMode))
@pytest.mark.parametrize("spread", [Spread.BANDS, Spread.CHANNELS])
@pytest.mark.parametrize("how", [{"tile": {"H": 2}}, {"tile": {"H": 4}, "core_tile": {"H": 2}}])
def test_a_scalar_that_all_tiles_read_is_made_once(mode: HaloMode, spread: Spread, how: dict[str, Any]) -> None:
    """A tensor without axes has no empty box of its own, which would say that a tile makes nothing of it anew."""
    model = Model()
    x = model.input([1, 4, 8, 4], "x")
    most = model.node("Exp", [model.node("ReduceMax", [x], keepdims=0)])
    model.output(model.conv(model.node("Div", [x, most]), 4, 4))
    network = Network(model)
    choice: dict[str, Any] = {"units": 2, "spread": spread, "cores": 2, "core_spread": spread}
    if "core_tile" not in how:
        choice["order"] = Order.BREADTH_FIRST
    tiling = group(network, chip(clusters=2, cores=2, sram=1 << 13), how["tile"], mode, how.get("core_tile"), **choice)
    made = [op.output for op in tiling.geometry.ops].index(most)
    calls = run(network, tiling).boxes_by_core(made)
    assert mode is HaloMode.RECOMPUTE or all(len(boxes) == 1 for boxes in calls.values())


def test_units_that_share_out_channels_send_what_a_view_makes_of_other_channels() -> None:
    """The channels of the view's result are last; those of the sum, over the same positions, come after the images."""
    model = Model()
    x = model.input([6, 4], "x")
    y = model.node("Transpose", [model.input([1, 4, 6], "y")], perm=[0, 2, 1])
    seen = model.node("Reshape", [model.norm(x, 4), model.ints(1, 6, 4)])
    added = model.node("Add", [y, seen])
    model.output(added)
    network = Network(model)
    channels = [op.channel_axis for op in network.facts.ops if op.output in (seen, added)]
    assert channels == [2, 1], "the case is none if both share out the same axis"
    run(network, group(network, chip(clusters=2, cores=2, sram=1 << 13), {}, **CHANNELS, order=Order.BREADTH_FIRST))


@pytest.mark.parametrize("order", [Order.DEPTH_FIRST, Order.BREADTH_FIRST])
@pytest.mark.parametrize("units", [1, 2])
def test_an_input_that_every_tile_needs_whole_is_never_copied(order: Order, units: int) -> None:
    """Tiles of a normalisation over all rows read one input: it is loaded to where it waits for the later ones."""
    model = Model()
    x = model.input([1, 8, 12, 6], "x")
    model.output(model.relu(model.node("InstanceNormalization", [x, model.weight(8), model.weight(8)])))
    network = Network(model)
    spread = Spread.BANDS if units > 1 else Spread.SINGLE
    how: dict[str, Any] = {"units": units, "spread": spread, "cores": 2, "core_spread": Spread.CHANNELS, "order": order}
    core = {"C": 4} if order is Order.DEPTH_FIRST else None
    profile = chip(cores=2, clusters=units, sram=1 << 15)
    done = run(network, group(network, profile, {"H": 3}, HaloMode.CACHED, core, double_buffered=True, **how))
    assert len(done.group.walk.axes["H"].starts) == 4
    assert done.levels(Opcode.MOVE)[Level.SRAM, Level.SRAM] == 0


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize("is_written_over", [False, True])
@pytest.mark.parametrize("mode", [HaloMode.CACHED, HaloMode.EXCHANGE])
@pytest.mark.parametrize("units", [1, 2, 4])
def test_an_input_that_tiles_of_two_axes_need_whole_waits_in_two_stores(
    units: int, mode: HaloMode, *, is_written_over: bool
) -> None:
    """What waits for the next column is copied to where it waits for the next row; nothing waits of what is gone."""
    model = Model()
    x, y = model.input([1, 8, 12, 6], "x"), model.input([1, 8, 1, 1], "y")
    factor = model.node("Sqrt", [y]) if is_written_over else model.node("Mul", [y, model.relu(y)])
    model.output(model.node("Mul", [x, factor]))
    network = Network(model)
    spread = Spread.BANDS if units > 1 else Spread.SINGLE
    for double_buffered in (False, True):
        how: dict[str, Any] = {"units": units, "spread": spread, "double_buffered": double_buffered}
        done = run(network, group(network, chip(cores=units), {"H": 2, "W": 3}, mode, **how))
        assert done.group.walk.rounds > 2


def test_what_nobody_needs_along_one_axis_has_no_store_along_another() -> None:
    """Of the pool no row is needed, for the convolution's stride meets its padding alone; columns overlap."""
    model = Model()
    pooled = model.node("MaxPool", [model.input([1, 2, 5, 8], "x")], kernel_shape=[2, 1], strides=[3, 1])
    weight, stride, pads = model.weight(4, 2, 1, 3), [3, 1], [1, 1, 1, 1]
    model.output(model.node("Conv", [pooled, weight], kernel_shape=[1, 3], strides=stride, pads=pads))
    network = Network(model)
    split: dict[str, Any] = {"units": 1, "spread": Spread.SINGLE, "cores": 2, "core_spread": Spread.BANDS}
    tiled = group(network, chip(cores=2, sram=1 << 18), {"W": 6}, HaloMode.EXCHANGE, {"H": 1}, **split)
    assert not any(tiled.core_frustums.kept_along(pooled).values())
    run(network, tiled)
