"""Stores of what waits for later tiles, one per axis of the walk (TILE-3, TILE-8)."""

from __future__ import annotations

from itertools import product

import pytest

from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.walk import core_walk, unit_walk
from tests.compiler.tiling.oracle import core_plan, unit_plan, walked
from tests.compiler.tiling.tilings import along, configuration, group_of_all, tiled
from tests.models import Model

CACHED = HaloMode.CACHED


def convolution(extent: int, count: int = 1) -> GroupGeometry:
    """Padded 3×3 convolutions of one channel, one after another, on a square map."""
    model = Model()
    x = model.input([1, 1, extent, extent], "x")
    for _ in range(count):
        x = model.conv(x, 1, 1)
    model.output(x)
    return group_of_all(model)[1]


def test_the_store_of_an_inner_axis_spans_the_rows_that_a_tile_needs_not_only_those_it_makes() -> None:
    """TILE-3: a padded 3×3 convolution on 12×12, tiles 4×4; rows and columns needed 0-5, 3-9, 7-12, made 5 + 4 + 3.

    Along rows two rows of all 12 columns wait. Along columns two columns of the most that a tile needs, 6 rows (the
    second tile row's): four of them it loads, two came out of the store along rows, which has taken up later rows at
    these columns when the next tile comes.
    """
    geometry = convolution(12)
    group = tiled(geometry, {"H": 4, "W": 4}, CACHED)
    assert group.frustums.kept_along("x") == {"H": 2 * 12 * 4, "W": 6 * 2 * 4}
    stored = walked(geometry, unit_plan(geometry, group.configuration, group.tile)).stored
    assert (stored["x", "H"], stored["x", "W"]) == (2 * 12 * 4, 6 * 2 * 4)


def test_the_store_across_sram_tiles_spans_what_each_of_their_core_tiles_needs() -> None:
    """TILE-8: SRAM tiles of 8×4 on 8×8, cut into core tiles of 2 rows, which need rows 0-3, 1-5, 3-7, 5-8 of the input.

    Two columns wait for the SRAM tile to the right, for each core tile its own: 3 + 4 + 4 + 3 = 14 rows. Along rows
    two rows wait, here of the 5 columns of one SRAM tile; the store has room for those of the whole walk.
    """
    geometry = convolution(8)
    how = configuration(halo=along(geometry, CACHED))
    tile, core = {"N": 1, "C": 1, "H": 8, "W": 4}, {"N": 1, "C": 1, "H": 2, "W": 4}
    frustums = Frustums(geometry, core_walk(unit_walk(geometry, how, tile), how, tile, core).axes)
    assert frustums.kept_along("x") == {"H": 2 * 8 * 4, "W": 14 * 2 * 4}
    stored = walked(geometry, core_plan(geometry, how, tile, core)).stored
    assert (stored["x", "H"], stored["x", "W"]) == (2 * 5 * 4, 14 * 2 * 4)


@pytest.mark.parametrize("walk", [("H", "W"), ("W", "H")])
def test_every_store_has_room_for_what_waits_in_it_and_no_row_or_column_too_many(walk: tuple[str, ...]) -> None:
    """TILE-3: two convolutions on 9×9 in tiles of every size, by one unit or in bands."""
    geometry = convolution(9, 2)
    for rows, columns, units in product((1, 2, 4, 9), (2, 3, 5), (1, 2)):
        how = configuration(
            halo=along(geometry, CACHED),
            walk=walk,
            units=units,
            spread=Spread.BANDS if units > 1 else Spread.SINGLE,
        )
        tile = {"N": 1, "C": 1, "H": rows, "W": columns}
        frustums = Frustums(geometry, unit_walk(geometry, how, tile).axes)
        stored = walked(geometry, unit_plan(geometry, how, tile)).stored
        for name in (*geometry.inputs, *geometry.made):
            kept = frustums.kept_along(name)
            for axis in frustums.tiles:
                assert kept.get(axis, 0) == stored.get((name, axis), 0), (tile, units, name, axis)


@pytest.mark.parametrize("halves", [("H", "W"), ("H",), ("W",)])
def test_every_store_of_core_tiles_has_room_for_what_waits_in_it(halves: tuple[str, ...]) -> None:
    """TILE-8: two convolutions on 10×10, SRAM tiles of several sizes cut into core tiles along one axis or both."""
    geometry = convolution(10, 2)
    for rows, columns, cores in product((4, 6, 10), (4, 5), (1, 2)):
        how = configuration(
            halo=along(geometry, CACHED), cores=cores, core_spread=Spread.BANDS if cores > 1 else Spread.SINGLE
        )
        tile = {"N": 1, "C": 1, "H": rows, "W": columns}
        core = {axis: size // 2 if axis in halves else size for axis, size in tile.items()}
        frustums = Frustums(geometry, core_walk(unit_walk(geometry, how, tile), how, tile, core).axes)
        stored = walked(geometry, core_plan(geometry, how, tile, core)).stored
        for name in (*geometry.inputs, *geometry.made):
            kept = frustums.kept_along(name)
            for axis in frustums.tiles:
                assert kept.get(axis, 0) >= stored.get((name, axis), 0), (tile, core, cores, name, axis)
