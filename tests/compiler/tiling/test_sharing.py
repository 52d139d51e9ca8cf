"""What units that make parts of the channels need of each other (FUSE-S1), and what the price makes of it."""

from __future__ import annotations

import pytest

from compiler.cost.model import price
from compiler.profile import builtin_profile
from compiler.program.loops.time import time_of
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.loads import input_reads
from compiler.tiling.pace import Passed, awaited_cycles, summed_in_turn
from compiler.tiling.sharing import passed_parts
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.traffic import traffic_of
from tests.compiler.program.lowered import Network, chip, group, lower
from tests.compiler.tiling.tilings import configuration
from tests.models import Model


def two_convs(groups: int, kernel: int = 1) -> Network:
    """A convolution of 8 filters and one of 8 channels in groups, on maps of 6 × 6."""
    model = Model()
    x = model.conv(model.input([1, 4, 6, 6]), 4, 8, 1, pad=0)
    model.output(model.conv(x, 8, 8, kernel, pad=kernel // 2, group=groups))
    return Network(model)


# of four units with two channels each: all six others, the two others of a group of four, nothing
@pytest.mark.parametrize(("groups", "part"), [(1, 1.0), (2, 1 / 3), (8, 0.0)])
def test_units_need_the_channels_of_the_groups_that_they_make(groups: int, part: float) -> None:
    network = two_convs(groups)
    geometry = GroupGeometry(network.facts, network.ops)
    assert passed_parts(geometry, 4)[network.ops[0]] == pytest.approx(part)
    # nobody in the group reads the last result
    assert passed_parts(geometry, 4)[network.ops[1]] == 0.0
    assert passed_parts(geometry, 1)[network.ops[0]] == 0.0


def test_a_shuffle_needs_channels_of_all_units() -> None:
    """Of 8 channels as 2 × 4, turned to 4 × 2, each unit needs of both rows, as one range all that lies between."""
    model = Model()
    x = model.conv(model.input([1, 4, 6, 6]), 4, 8, 1, pad=0)
    x = model.node("Reshape", [x, model.ints(1, 2, 4, 6, 6)])
    x = model.node("Transpose", [x], perm=[0, 2, 1, 3, 4])
    x = model.node("Reshape", [x, model.ints(1, 8, 6, 6)])
    model.output(model.conv(x, 8, 8, 1, pad=0, group=8))
    network = Network(model)
    found = passed_parts(GroupGeometry(network.facts, network.ops), 2)
    assert max(found.values()) == 1.0


def test_all_of_a_result_that_waits_for_later_tiles_goes_to_all_units() -> None:
    """Of four units each lacks three quarters of the channels; its group of the convolution needs a third of those."""
    network, profile = two_convs(2, kernel=3), chip(cores=4)
    apart = traffic_of(group(network, profile, {"H": 2}, units=4, spread=Spread.CHANNELS))
    kept = traffic_of(group(network, profile, {"H": 2}, HaloMode.CACHED, units=4, spread=Spread.CHANNELS))
    whole = 4 * 8 * 6 * 6
    assert (apart.steps[0].awaited_bytes, kept.steps[0].awaited_bytes) == (whole, 3 * whole)
    # as much of the result passes the busiest link of the ring, at 8 bytes a cycle; each of three tiles starts up
    assert (apart.steps[0].awaited_cycles, kept.steps[0].awaited_cycles) == (39, 111)


# units 0 and 1 make channels of the first group, 2 and 3 of the second: each half is read once. Of three units the one
# in the middle makes channels of both groups and reads both
@pytest.mark.parametrize(("units", "channels", "times"), [(4, 3, 1), (3, 4, 2)])
def test_units_that_make_channels_of_the_same_group_read_its_input_once(units: int, channels: int, times: int) -> None:
    model = Model()
    model.output(model.conv(model.input([1, 8, 6, 6], "x"), 8, 12, 1, pad=0, group=2))
    network = Network(model)
    tiled = group(network, chip(cores=units, multicast=True), {"C": channels}, units=units, spread=Spread.CHANNELS)
    read, _ = input_reads(tiled)["x"]
    assert read == times * 4 * 8 * 6 * 6


@pytest.mark.parametrize(("apart", "transfers"), [(False, 2), (True, 3)])
def test_a_part_for_single_cores_of_other_clusters_is_sent_once_for_each_of_them(apart: bool, transfers: int) -> None:
    """A quarter of 12,800 bytes goes to neighbours at once, twice at most; each of four cores sends its own."""
    passed = Passed(gathered=12_800, senders=4, apart=apart)
    assert awaited_cycles(builtin_profile("cluster4x4"), 4, 4, 1, passed) == transfers * (3_200 // 32 + 4 * 20)


@pytest.mark.parametrize(("parts", "turns", "times"), [(1, 1, 1.0), (2, 1, 1.0), (8, 1, 3.25), (8, 3, 1.75)])
def test_units_that_sum_up_in_turn_load_in_turn_what_has_no_buffer_before(parts: int, turns: int, times: float) -> None:
    """Of eight parts six come when their unit sums up: four units' one after another."""
    how = configuration(units=4, spread=Spread.INPUT_CHANNELS, input_slices=parts)
    assert summed_in_turn(how, turns, 2) == times


@pytest.mark.parametrize("parts", [1, 2, 16])
def test_the_price_of_sums_in_turn_is_what_they_take(parts: int) -> None:
    """With two buffers for 16 parts of its weights, each of four units has the DRAM for itself: half of its rate."""
    model = Model()
    model.output(model.node("MatMul", [model.input([1, 8192]), model.weight(8192, 16)]))
    network, edge = Network(model), builtin_profile("edge4")
    tiled = group(network, edge, {}, units=4, spread=Spread.INPUT_CHANNELS, input_slices=parts, double_buffered=True)
    taken = time_of(lower(network, tiled).program, edge).cycles
    assert price(traffic_of(tiled), edge).cycles == pytest.approx(taken, rel=0.1)
