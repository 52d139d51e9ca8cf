"""Depth order and halos of chosen tilings, recounted by hand (TILE-3, TILE-8)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from compiler.profile.schema import Profile
from compiler.tiling.choose import choose_tiling
from compiler.tiling.figures import Constraint
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Order
from compiler.tiling.wishes import Wishes
from tests.models import Model
from tests.profiles import small_profile


def pair(extent: int, channels: int = 4) -> GroupGeometry:
    """Two 3×3 convolutions as one group."""
    model = Model()
    x = model.conv(model.input([1, channels, extent, extent]), channels, channels)
    model.output(model.conv(x, channels, channels))
    return GroupGeometry(model.facts(), [0, 1])


def chosen(geometry: GroupGeometry, profile: Profile, *rules: Constraint) -> Choice:
    """The tiling of least traffic that recomputes halos."""
    choice = choose_tiling(geometry, profile, rules, Wishes(objective="dram_bytes", halo="recompute"))
    assert isinstance(choice, Choice)
    return choice


def test_bands_read_their_halo_again() -> None:
    """TILE-3, recompute: rows of two convolutions overlap by four; nothing is kept or exchanged."""
    geometry = pair(64)
    choice = chosen(geometry, small_profile(nram_bytes=24_000))
    sizes = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    assert (sizes["C"], sizes["W"]) == (4, 64)
    rows = sizes["H"]
    assert rows < 64
    loaded = sum(min(64, min(start + rows, 64) + 2) - max(0, start - 2) for start in range(0, 64, rows))
    assert choice.tiling.tiles == ceil(64 / rows)
    assert choice.cost.dram_read_bytes - choice.cost.weight_read_bytes == loaded * 64 * 4 * 4
    assert loaded == 64 + 4 * (choice.tiling.tiles - 1)


def test_recomputed_halos_count_as_work() -> None:
    """TILE-3: the middle map's rows in the overlap are computed twice."""
    geometry = pair(64)
    choice = chosen(geometry, small_profile(nram_bytes=24_000))
    rows = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))["H"]
    middle = sum(min(64, min(start + rows, 64) + 1) - max(0, start - 1) for start in range(0, 64, rows))
    assert choice.cost.macs == (middle + 64) * 64 * 4 * 4 * 9


def test_a_whole_map_has_no_halo() -> None:
    geometry = pair(16)
    choice = chosen(geometry, small_profile(nram_bytes=65_536))
    assert choice.tiling.tiles == 1
    assert choice.cost.macs == 2 * 16 * 16 * 4 * 4 * 9
    assert choice.cost.dram_read_bytes - choice.cost.weight_read_bytes == 16 * 16 * 4 * 4


def channels_between(order: Order, cores: int, nram_bytes: int) -> Choice:
    """Two 1×1 convolutions of 4, 16 and 4 channels on 32×32, in one depth order."""
    model = Model()
    x = model.conv(model.input([1, 4, 32, 32]), 4, 16, 1)
    model.output(model.conv(x, 16, 4, 1))
    facts = model.facts()
    geometry = GroupGeometry(facts, [0, 1])
    profile = small_profile(nram_bytes=nram_bytes, wram_bytes=65_536, sram_bytes=262_144, cores=cores)
    wishes = Wishes(objective="dram_bytes", halo="recompute", fixed={"order": order})
    choice = choose_tiling(geometry, profile, (), wishes)
    assert isinstance(choice, Choice)
    assert choice.tiling.configuration.order is order
    return choice


@pytest.mark.parametrize("order", list(Order))
def test_intermediates_return_to_sram_only_breadth_first(order: Order) -> None:
    """TILE-8: depth-first keeps them in NRAM, breadth-first runs each op over the whole SRAM tile."""
    choice = channels_between(order, cores=2, nram_bytes=131_072)
    pixels = 32 * 32 * 4
    written = choice.cost.sram.written - choice.cost.weight_read_bytes
    # the input from DRAM and the result from the core; the intermediate only breadth-first
    assert written == (4 + 4 + (16 if order is Order.BREADTH_FIRST else 0)) * pixels


@pytest.mark.parametrize(("nram_bytes", "stays"), [(131_072, True), (65_536, False)])
def test_a_core_that_works_alone_keeps_intermediates_for_which_it_has_room(nram_bytes: int, stays: bool) -> None:
    """TILE-8: 16 channels of 32×32 are 65,536 bytes."""
    choice = channels_between(Order.BREADTH_FIRST, cores=1, nram_bytes=nram_bytes)
    pixels = 32 * 32 * 4
    written = choice.cost.sram.written - choice.cost.weight_read_bytes
    assert written == (4 + 4 + (0 if stays else 16)) * pixels


def test_depth_first_needs_all_weights_at_once() -> None:
    """TILE-8: a core tile goes through all ops, so all their weights are resident."""
    geometry = pair(16, channels=16)
    one_op = 16 * 16 * 9 * 4
    profile = small_profile(nram_bytes=262_144, wram_bytes=2 * one_op, sram_bytes=262_144)
    assert chosen(geometry, profile).tiling.configuration is not None
    tight = small_profile(nram_bytes=262_144, wram_bytes=2 * one_op - 1, sram_bytes=262_144)
    choice = chosen(geometry, tight)
    how = choice.tiling.configuration
    assert how.order is Order.BREADTH_FIRST or how.channel_slices > 1
    assert replace(how, order=Order.BREADTH_FIRST).order is Order.BREADTH_FIRST
