"""Depth order and halos of chosen tilings, recounted by hand (TILE-3, TILE-8)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import pytest

from compiler.ops.facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.choose import Choice, choose_tiling
from compiler.tiling.figures import Check, Constraint, Figures
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Order
from tests.models import Model
from tests.profiles import small_profile


def pair(extent: int, channels: int = 4) -> tuple[GraphFacts, GroupGeometry]:
    """Two 3×3 convolutions as one group."""
    model = Model()
    x = model.conv(model.input([1, channels, extent, extent]), channels, channels)
    model.output(model.conv(x, channels, channels))
    facts = model.facts()
    return facts, GroupGeometry(facts, [0, 1])


def chosen(facts: GraphFacts, geometry: GroupGeometry, profile: Profile, *rules: Constraint) -> Choice:
    """The tiling of least traffic."""
    choice = choose_tiling(facts, geometry, profile, rules, "dram_bytes")
    assert isinstance(choice, Choice)
    return choice


def test_bands_read_their_halo_again() -> None:
    """TILE-3, recompute: rows of two convolutions overlap by four; nothing is kept or exchanged."""
    facts, geometry = pair(64)
    choice = chosen(facts, geometry, small_profile(nram_bytes=24_000))
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
    facts, geometry = pair(64)
    choice = chosen(facts, geometry, small_profile(nram_bytes=24_000))
    rows = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))["H"]
    middle = sum(min(64, min(start + rows, 64) + 1) - max(0, start - 1) for start in range(0, 64, rows))
    assert choice.cost.macs == (middle + 64) * 64 * 4 * 4 * 9


def test_a_whole_map_has_no_halo() -> None:
    facts, geometry = pair(16)
    choice = chosen(facts, geometry, small_profile(nram_bytes=65_536))
    assert choice.tiling.tiles == 1
    assert choice.cost.macs == 2 * 16 * 16 * 4 * 4 * 9
    assert choice.cost.dram_read_bytes - choice.cost.weight_read_bytes == 16 * 16 * 4 * 4


def only(order: Order, sram_bytes: int) -> Constraint:
    """A constraint that a figure of one depth order alone satisfies: what steps hold in SRAM."""

    def constraint(figures: Figures) -> Check:
        # breadth-first holds intermediates in SRAM, so its peak exceeds input plus output
        holds = (figures.peak > figures.inputs + figures.outputs) == (order is Order.BREADTH_FIRST)
        return Check(rule="order", holds=holds, actual=0, limit=sram_bytes)

    return constraint


@pytest.mark.parametrize("order", list(Order))
def test_intermediates_return_to_sram_only_breadth_first(order: Order) -> None:
    """TILE-8: depth-first keeps them in NRAM, breadth-first runs each op over the whole SRAM tile."""
    model = Model()
    x = model.conv(model.input([1, 4, 32, 32]), 4, 16, 1)
    model.output(model.conv(x, 16, 4, 1))
    facts = model.facts()
    geometry = GroupGeometry(facts, [0, 1])
    profile = small_profile(nram_bytes=131_072, wram_bytes=65_536, sram_bytes=262_144)
    choice = chosen(facts, geometry, profile, only(order, 262_144))
    assert choice.tiling.configuration.order is order
    pixels = 32 * 32 * 4
    written = choice.cost.sram.written - choice.cost.weight_read_bytes
    # the input from DRAM and the result from the core; the intermediate only breadth-first
    assert written == (4 + 4 + (16 if order is Order.BREADTH_FIRST else 0)) * pixels


def test_depth_first_needs_all_weights_at_once() -> None:
    """TILE-8: a core tile goes through all ops, so all their weights are resident."""
    facts, geometry = pair(16, channels=16)
    one_op = 16 * 16 * 9 * 4
    profile = small_profile(nram_bytes=262_144, wram_bytes=2 * one_op, sram_bytes=262_144)
    assert chosen(facts, geometry, profile).tiling.configuration is not None
    tight = small_profile(nram_bytes=262_144, wram_bytes=2 * one_op - 1, sram_bytes=262_144)
    choice = chosen(facts, geometry, tight)
    how = choice.tiling.configuration
    assert how.order is Order.BREADTH_FIRST or how.channel_slices > 1
    assert replace(how, order=Order.BREADTH_FIRST).order is Order.BREADTH_FIRST
