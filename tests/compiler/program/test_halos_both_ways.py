"""Neighbours that pass each other halos both ways: what they make, send and compute (TILE-3, PROG-1, PROG-2, SIM-1)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.profile.schema import Profile
from compiler.program.program import Level, Opcode
from compiler.tiling.halos import halos_of
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Network, chip, group, run
from tests.models import Model

BANDS: dict[str, Any] = {"units": 4, "spread": Spread.BANDS}
CORES: dict[str, Any] = {**BANDS, "cores": 4, "core_spread": Spread.BANDS}
PARTS: dict[str, Any] = {**BANDS, "cores": 4, "core_spread": Spread.CHANNELS}
FLAT = chip(cores=4)
NESTED = chip(clusters=4, cores=4, sram=1 << 18)
# too little in a core for what waits along the rows: it waits in the SRAM
SMALL = chip(clusters=4, cores=4, sram=1 << 18, nram=6000)


def chain(*, height: int = 16, width: int = 8, batch: int = 1, taps: int = 3) -> Network:
    """Three convolutions with a ReLU behind each."""
    model = Model()
    x, channels = model.input([batch, 3, height, width], "x"), 3
    for _ in range(3):
        pads = [taps // 2, 1, taps // 2, 1]
        x = model.node("Conv", [x, model.weight(4, channels, taps, 3)], kernel_shape=[taps, 3], pads=pads)
        x, channels = model.relu(x), 4
    model.output(x)
    return Network(model)


def exchanging(network: Network, profile: Profile, tile: dict[str, int], **changes: Any) -> TiledGroup:
    """The network as one group whose units pass halos."""
    return group(network, profile, tile, HaloMode.EXCHANGE, **changes)


def made_along(found: TiledGroup, axis: str) -> list[list[int]]:
    """What each tile makes anew along an axis, of each activation."""
    names = (*found.geometry.inputs, *found.geometry.made)
    return [found.frustums.factors(name)[1][axis].made.tolist() for name in names]


@pytest.mark.matrix(first=4, rest=4)
@pytest.mark.parametrize(
    ("profile", "tile", "changes"),
    [
        (FLAT, {"H": 4}, BANDS),
        (FLAT, {"H": 4, "W": 3}, BANDS),
        (FLAT, {"H": 4, "W": 3}, {**BANDS, "walk": ("W", "H")}),
        (FLAT, {"H": 4, "W": 4, "N": 1}, {**BANDS, "double_buffered": True}),
        (NESTED, {"H": 4}, {**CORES, "order": Order.BREADTH_FIRST}),
        (NESTED, {"H": 4, "W": 3}, {**PARTS, "order": Order.BREADTH_FIRST}),
        (NESTED, {"H": 4}, {**CORES, "core": {"H": 1, "W": 3}}),
        (NESTED, {"H": 4, "W": 5}, {**CORES, "core": {"H": 1, "W": 3}, "walk": ("W", "H")}),
        (NESTED, {"H": 4}, {**PARTS, "core": {"H": 4, "W": 3}}),
        (SMALL, {"N": 1, "H": 4, "W": 5}, {**CORES, "core": {"H": 1, "W": 3}}),
        (SMALL, {"N": 1, "H": 4, "W": 5}, {**PARTS, "core": {"H": 4, "W": 3}}),
    ],
)
def test_units_share_out_every_op_evenly_and_pass_halos_both_ways(
    profile: Profile, tile: dict[str, int], changes: dict[str, Any]
) -> None:
    """Four rows of each map for each unit, those before and behind come from its neighbours; all units in step."""
    found = exchanging(chain(batch=2), profile, tile, **changes)
    assert made_along(found, "H") == [[4, 4, 4, 4]] * 7
    assert not (profile is SMALL and found.core_kept_axes)
    assert found.walk.rounds * 4 == found.walk.tiles
    lowered = run(chain(batch=2), found)
    level = Level.NRAM if profile.sram is None else Level.SRAM
    assert {(a, b) for a in range(4) for b in range(4) if abs(a - b) == 1} <= lowered.passed_between(level)


def test_columns_are_passed_both_ways_too() -> None:
    found = exchanging(chain(), FLAT, {"H": 5, "W": 2}, **BANDS, placement=Placement.BAND_COLUMNS)
    assert made_along(found, "W") == [[2, 2, 2, 2]] * 7
    assert made_along(found, "H")[0] == [8, 5, 3, 0]
    run(chain(), found)


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize(
    ("profile", "tile", "changes"),
    [
        (FLAT, {"H": 8, "W": 4}, BANDS),
        (FLAT, {"H": 8, "W": 4, "N": 1}, {**BANDS, "walk": ("W", "H")}),
        (NESTED, {"H": 8, "W": 4}, {**CORES, "core": {"H": 2, "W": 4}}),
        (NESTED, {"H": 8, "W": 4}, {**CORES, "core": {"H": 2, "W": 4}, "walk": ("W", "H")}),
        (SMALL, {"N": 1, "H": 8, "W": 4}, {**CORES, "core": {"H": 2, "W": 4}}),
        (SMALL, {"N": 1, "H": 8, "W": 4}, {**CORES, "core": {"H": 2, "W": 4}, "walk": ("W", "H")}),
        (NESTED, {"H": 8, "W": 4}, {**PARTS, "order": Order.BREADTH_FIRST}),
    ],
)
def test_blocks_pass_rows_and_columns_both_ways_and_corners_through_a_neighbour(
    profile: Profile, tile: dict[str, int], changes: dict[str, Any]
) -> None:
    network = chain(batch=2)
    found = exchanging(network, profile, tile, **changes, placement=Placement.BLOCKS)
    assert (made_along(found, "H"), made_along(found, "W")) == ([[8, 8]] * 7, [[4, 4]] * 7)
    run(network, found)


def test_who_needs_more_than_a_neighbour_makes_gets_it_by_that_neighbour() -> None:
    """Six units with a row each, and convolutions of 7 rows: the middle ones need all rows of a map."""
    network = chain(height=6, taps=7)
    found = exchanging(network, chip(cores=6, multicast=True), {"H": 1}, units=6, spread=Spread.BANDS)
    assert made_along(found, "H") == [[1] * 6] * 7
    lowered = run(network, found)
    assert lowered.passed_between(Level.NRAM) == {(a, b) for a in range(6) for b in range(6) if abs(a - b) == 1}
    cores = exchanging(
        network, chip(clusters=2, cores=4, sram=1 << 18), {"H": 3}, **{**CORES, "units": 2}, core={"H": 1, "W": 3}
    )
    assert made_along(cores, "H") == [[3, 3]] * 7
    run(network, cores)


def test_cores_of_one_unit_pass_each_other_halos_both_ways() -> None:
    """Six rows a core, in tiles of three columns."""
    network = chain(height=24)
    found = exchanging(network, NESTED, {}, units=1, cores=4, core_spread=Spread.BANDS, core={"H": 6, "W": 3})
    assert not any(tiles.both_ways for tiles in found.walk.axes.values())
    names = (*found.geometry.inputs, *found.geometry.made)
    shares = [found.core_frustums.factors(name)[1]["H"].made.tolist() for name in names]
    assert shares == [[6, 6, 6, 6]] * 7
    run(network, found)


@pytest.mark.parametrize(
    ("tile", "changes"),
    [
        ({"H": 2}, {}),
        ({"H": 4, "W": 2}, {"placement": Placement.BLOCKS}),
        ({"H": 4}, {"placement": Placement.ROW_MAJOR}),
        ({"H": 4}, {"units": 1, "spread": Spread.SINGLE}),
    ],
)
def test_halos_pass_one_way_where_a_unit_has_several_tiles_or_no_band(
    tile: dict[str, int], changes: dict[str, Any]
) -> None:
    found = exchanging(chain(), FLAT, tile, **{**BANDS, **changes})
    assert not any(tiles.both_ways for tiles in found.walk.axes.values())
    first, *_, last = made_along(found, "H")[0]
    assert first > tile["H"] > last


def test_a_band_that_a_core_takes_in_several_tiles_passes_halos_one_way() -> None:
    found = exchanging(chain(height=24), NESTED, {"H": 6}, **CORES, core={"H": 1, "W": 3})
    assert not any(tiles.both_ways for tiles in found.core_frustums.tiles.values())
    assert made_along(found, "H")[0] == [9, 6, 6, 3]
    run(chain(height=24), found)


def test_bytes_that_pass_are_those_that_the_price_counts() -> None:
    """Of each map between two convolutions, and of the input, a row of 8 columns both ways over three borders."""
    found = exchanging(chain(), chip(cores=4, multicast=True), {"H": 4}, **BANDS)
    lowered = run(chain(), found)
    rows = lowered.commands(Opcode.EXCHANGE)
    moved = int((rows["run_bytes"] * rows["counts"].prod(axis=1)).sum())
    assert moved == 3 * 2 * 8 * 4 * (3 + 4 + 4)
    assert moved == sum(halos_of(found, op)[0] for op in found.geometry.ops)
