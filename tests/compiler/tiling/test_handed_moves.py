"""How tensors that stay on the chip between groups come to units and go to them, and what the price makes of it."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.compile import compile_model
from compiler.cost.model import price
from compiler.options import parse_options
from compiler.profile.load import profile_from_values
from compiler.tiling.handed_moves import HandedMoves, moving_cycles, put_moves, taken_moves
from compiler.tiling.tile import Handed, Handover, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from tests.compiler.program.lowered import Network, chip, group
from tests.models import Model
from tests.profiles import profile_values

# a map of 8 x 16 x 16 float32
MAP = 8 * 16 * 16 * 4


def one_conv(kernel: int = 1) -> Network:
    """A convolution of eight channels to eight on a map of 16 x 16, whose tensors four cores share out."""
    model = Model()
    model.output(model.conv(model.input([1, 8, 16, 16], "x"), 8, 8, kernel, pad=kernel // 2))
    return Network(model)


def taking(axis: str, share: int, tile: dict[str, int], network: Network | None = None, **how: Any) -> TiledGroup:
    """Its group on four cores with the input in parts along an axis."""
    taken = Handed(place=0, axis=axis, share=share, before_end=0)
    handover = Handover(hands=None, takes=(taken,), held_bytes=MAP // 4)
    return group(network or one_conv(), chip(cores=4), tile, units=4, handover=handover, **how)


def putting(axis: str, share: int, tile: dict[str, int], **how: Any) -> TiledGroup:
    """The same with the result in parts along an axis."""
    hands = Handed(place=0, axis=axis, share=share, before_end=0)
    handover = Handover(hands=hands, takes=(), held_bytes=MAP // 4)
    return group(one_conv(), chip(cores=4), tile, units=4, handover=handover, **how)


def put(tiled: TiledGroup) -> HandedMoves:
    """How its result goes to those that hold it."""
    return put_moves(tiled, tiled.geometry.primary)


def test_units_begin_with_the_rows_that_they_hold() -> None:
    """Nothing else is needed, or of both neighbours a row each: six rows in all, over four tiles of four."""
    tiled = taking("H", 4, {"H": 4}, spread=Spread.BANDS)
    assert taken_moves(tiled, "x") == HandedMoves(own=MAP // 4, senders=4, receivers=2)
    wide = taking("H", 4, {"H": 4}, one_conv(3), spread=Spread.BANDS)
    assert taken_moves(wide, "x").scattered == 6 * MAP // 16


def test_few_units_work_on_what_all_hold() -> None:
    """Two tiles of eight rows go to units 0 and 1: of the first unit's rows it holds half, of the second one's none."""
    tiled = taking("H", 4, {"H": 8}, spread=Spread.BANDS)
    assert taken_moves(tiled, "x").scattered == 3 * MAP // 4


def test_few_units_share_out_channels_that_all_hold() -> None:
    """Of two units with four channels each one holds two of them: of a pooling, whose channels are those it reads."""
    model = Model()
    model.output(model.pool(model.input([1, 8, 16, 16], "x")))
    taken = Handed(place=0, axis="C", share=2, before_end=0)
    handover = Handover(hands=None, takes=(taken,), held_bytes=MAP // 4)
    tiled = group(Network(model), chip(cores=4), {"C": 4}, units=2, spread=Spread.CHANNELS, handover=handover)
    moves = taken_moves(tiled, "x")
    assert (moves.own, moves.scattered) == (MAP // 4, 3 * MAP // 4)


def test_what_all_units_need_comes_from_all_or_from_the_one_that_holds_the_tile() -> None:
    """A tile of two rows lies in one unit, a tile of all rows in all four."""
    few = taken_moves(taking("H", 4, {"H": 2, "C": 2}, spread=Spread.CHANNELS), "x")
    assert few == HandedMoves(gathered=MAP, senders=1, own=MAP)
    every = taken_moves(taking("H", 4, {"C": 2}, spread=Spread.CHANNELS), "x")
    assert every == HandedMoves(gathered=MAP, senders=4, own=MAP // 4)


def test_rows_of_channels_that_others_hold_come_from_all() -> None:
    """Each unit needs a quarter of what each holds; its own quarter of its own part it copies, three quarters pass."""
    tiled = taking("C", 2, {"H": 4}, spread=Spread.BANDS)
    assert taken_moves(tiled, "x") == HandedMoves(scattered=3 * MAP // 4, senders=4, receivers=3, own=MAP // 16)


def test_results_go_to_those_that_hold_them() -> None:
    """Rows of four to those that made them; of tiles of eight rows, which two units make, three quarters to others."""
    rows = put(putting("H", 4, {"H": 4}, spread=Spread.BANDS))
    assert rows == HandedMoves(own=MAP // 4, senders=4, receivers=1)
    apart = put(putting("H", 4, {"H": 8}, spread=Spread.BANDS))
    assert (apart.scattered, apart.senders) == (3 * MAP // 4, 2)
    channels = put(putting("C", 2, {"C": 2}, spread=Spread.CHANNELS))
    assert (channels.scattered, channels.own) == (0, MAP // 4)
    across = put(putting("C", 2, {"H": 4}, spread=Spread.BANDS))
    assert across == HandedMoves(scattered=3 * MAP // 4, senders=4, receivers=3, own=MAP // 16)


def test_few_senders_take_longer() -> None:
    """Round a ring at 8 bytes a cycle: all four links, or one, carry what all units need."""
    every = taking("H", 4, {"C": 2}, spread=Spread.CHANNELS)
    assert moving_cycles(every, HandedMoves(gathered=MAP, senders=4), 1) == pytest.approx(3 / 4 * MAP / 8, abs=2)
    assert moving_cycles(every, HandedMoves(gathered=MAP, senders=1), 1) == pytest.approx(MAP / 8, abs=2)
    assert moving_cycles(every, HandedMoves(scattered=MAP, senders=2), 1) == pytest.approx(MAP / 2 / 8, abs=2)


def test_with_two_buffers_tiles_come_while_others_are_worked_on() -> None:
    """Only the first one is waited for; with one buffer every one is."""
    tile = {"H": 2, "C": 2}
    chips = [
        (tiled, traffic_of(tiled))
        for tiled in (taking("H", 4, tile, spread=Spread.CHANNELS, double_buffered=two) for two in (True, False))
    ]
    (two, beside), (one, before) = chips
    moved = sum(step.taken_cycles for step in beside.steps)
    assert moved == sum(step.taken_cycles for step in before.steps)
    assert sum(step.first_taken_cycles for step in beside.steps) == pytest.approx(moved / 8)
    assert [sum(step.awaited_cycles for step in its.steps) for its in (beside, before)] == [
        0,
        pytest.approx(moved, abs=1),
    ]
    assert price(beside, two.profile).cycles < price(before, one.profile).cycles


def test_with_one_buffer_results_leave_before_cores_go_on() -> None:
    """Eight tiles of two rows in half of the channels' places, each sent to the units that hold its rows."""
    tile = {"H": 2, "C": 2}
    found = [traffic_of(putting("H", 4, tile, spread=Spread.CHANNELS, double_buffered=two)) for two in (True, False)]
    beside, before = found
    assert beside.put_cycles == before.put_cycles > 0
    assert beside.last_put_cycles == pytest.approx(beside.put_cycles / 8)
    awaited = [sum(step.awaited_cycles for step in its.steps) for its in found]
    assert awaited == [0, pytest.approx(before.put_cycles, abs=1)]


@pytest.mark.slow
def test_prices_of_groups_that_take_and_hand_on_are_what_they_take() -> None:
    """Each simulated by itself: a norm over channels between convolutions over rows, on clusters with little room."""
    model = Model(seed=5)
    x = model.input([1, 16, 96, 96])
    for _ in range(2):
        x = model.relu(model.node("InstanceNormalization", [model.conv(x, 16, 16), model.weight(16), model.weight(16)]))
    model.output(model.conv(x, 16, 16))
    values = profile_values("cluster4x4")
    values["sram"]["capacity_bytes"] = 1 << 19
    values["nram"]["capacity_bytes"] = 1 << 17
    options = parse_options({"objective": "latency", "verify": "none"})
    found = compile_model(model.data(), profile_from_values(values), options)
    [program] = found.report.programs
    groups = [group for segment in found.plan.segments for group in segment.groups]
    ratios = [its.cycles / program.alone_group_cycles[its.id] for its in groups if its.handover is not None]
    assert len(ratios) >= 4
    assert all(0.8 < ratio < 1.2 for ratio in ratios), ratios
