"""Who works on which tile, in what order: the tiles of units and of cores along every axis (TILE-4, TILE-8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.ir.box import Ints
from compiler.tiling.frustum import AxisTiles
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Assignment, Placement, assign
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.units import ceil_div

# Placements under which the tiles of a unit lie side by side, so that it has one run along each axis.
_RUNS: Final = frozenset({Placement.BANDS, Placement.BAND_COLUMNS, Placement.BLOCKS})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Walk:
    """The SRAM tiles of a group: their ranges by axis, their owners, and how many one unit does in turn.

    `rows` and `columns` are the axes that the placement deals out (None: not cut). `tiles` counts SRAM tiles, channel
    slices apart; `rounds` those of the busiest unit; `units` those that have work; `share` is the part of all output
    positions that the busiest unit has.
    """

    axes: Mapping[str, AxisTiles]
    rows: str | None
    columns: str | None
    assignment: Assignment
    tiles: int
    rounds: int
    units: int
    share: float


def walked_axes(geometry: GroupGeometry, configuration: Configuration) -> tuple[str, ...]:
    """The axes of the group's output in walking order, channels apart: images outermost, then as configured."""
    axes = [axis for axis in geometry.output.axes if axis != "C"]
    order = [axis for axis in configuration.walk if axis in axes]
    return tuple(sorted(axes, key=lambda a: (a != "N", order.index(a) if a in order else len(order) + axes.index(a))))


def unit_walk(geometry: GroupGeometry, configuration: Configuration, tile: Mapping[str, int]) -> Walk:
    """The SRAM tiles of a group and who walks them."""
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    spatial = [a for a in geometry.output.axes if a not in ("N", "C") and extents[a] > 1]
    rows = spatial[0] if spatial else None
    columns = spatial[1] if len(spatial) > 1 else None
    counts = {axis: ceil_div(extents[axis], tile[axis]) for axis in extents if axis != "C"}
    by_bands = configuration.spread is Spread.BANDS
    assignment = assign(
        configuration.placement,
        counts[rows] if rows else 1,
        counts[columns] if columns else 1,
        configuration.units if by_bands else 1,
    )
    images = counts.get("N", 1)
    others = 1
    for axis, count in counts.items():
        if axis not in ("N", rows, columns):
            others *= count
    tiles = images * others * assignment.rows * assignment.columns
    busiest = int(assignment.loads.max())
    rounds, units = tiles, 1
    if by_bands:
        rounds, units = images * others * busiest, int(np.count_nonzero(assignment.loads))
    elif configuration.spread is Spread.IMAGES:
        rounds = ceil_div(images, configuration.units) * (tiles // images)
        units = min(configuration.units, images)
    elif configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
        units = configuration.units
    axes: dict[str, AxisTiles] = {}
    if configuration.slices_outer:
        axes |= _channels(extents, tile, times=configuration.channel_slices)
    for axis in walked_axes(geometry, configuration):
        runs = None
        if by_bands and axis == rows:
            runs = _changes(assignment.owner)
        elif by_bands and axis == columns:
            runs = _changes(assignment.owner.T)
        elif configuration.spread is Spread.IMAGES and axis == "N":
            runs = np.arange(images) % ceil_div(images, configuration.units) == 0
        mode = configuration.halo_of(axis)
        found = AxisTiles.of_size(extents[axis], min(tile[axis], extents[axis]), mode, runs=runs)
        mixed = by_bands and configuration.placement not in _RUNS and axis in (rows, columns)
        axes[axis] = replace(found, interleaved=True) if mixed else found
    if not configuration.slices_outer:
        axes |= _channels(extents, tile, times=1)
    share = 1.0
    if by_bands:
        share = _busiest(assignment, axes.get(rows or ""), axes.get(columns or ""))
    elif configuration.spread is Spread.IMAGES:
        share = min(extents["N"], ceil_div(images, configuration.units) * tile["N"]) / extents["N"]
    return Walk(
        axes=axes,
        rows=rows,
        columns=columns,
        assignment=assignment,
        tiles=tiles,
        rounds=rounds,
        units=units,
        share=share,
    )


def _busiest(assignment: Assignment, rows: AxisTiles | None, columns: AxisTiles | None) -> float:
    """The part of the positions of a map that the unit with most of them has."""
    heights = np.ones(1) if rows is None else rows.stops - rows.starts
    widths = np.ones(1) if columns is None else columns.stops - columns.starts
    positions = np.outer(heights, widths)
    return float(np.bincount(assignment.owner.ravel(), weights=positions.ravel()).max() / positions.sum())


def _channels(extents: Mapping[str, int], tile: Mapping[str, int], *, times: int) -> dict[str, AxisTiles]:
    size = tile.get("C", extents.get("C", 1))
    if "C" not in extents or size >= extents["C"]:
        return {}
    return {"C": AxisTiles.of_size(extents["C"], size, HaloMode.RECOMPUTE, times=times)}


def _changes(owner: Ints) -> np.ndarray:
    """Where along the first axis any tile has another owner than the one before it."""
    result = np.zeros(len(owner), dtype=np.bool_)
    result[1:] = (owner[1:] != owner[:-1]).any(axis=1)
    return result


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CoreWalk:
    """The core tiles of a depth-first group: their ranges by axis; per SRAM tile how many, and in how many rounds.

    `share`: the part of a unit's positions that its busiest core has.
    """

    axes: Mapping[str, AxisTiles]
    count: int
    rounds: int
    total: int
    share: float


def core_walk(walk: Walk, configuration: Configuration, tile: Mapping[str, int], core: Mapping[str, int]) -> CoreWalk:
    """Every SRAM tile cut into core tiles of the given sizes, dealt to the unit's cores in bands (TILE-8)."""
    if configuration.order is not Order.DEPTH_FIRST:
        raise ValueError("only depth-first groups have core tiles of the whole group")
    band = walk.rows if configuration.core_spread is Spread.BANDS else None
    outer = dict(walk.axes)
    if "C" in core and core["C"] < tile.get("C", core["C"]):
        # cores share out the channels of the tile
        whole = tile["C"]
        outer.setdefault("C", AxisTiles.of_size(whole, whole, HaloMode.RECOMPUTE, times=1))
    axes: dict[str, AxisTiles] = {}
    count = rounds = total = 1
    share = 1.0
    for axis, tiles in outer.items():
        size = core.get(axis, tile.get(axis, 0))
        if axis == "C":
            axes[axis] = _nested(tiles, size, None)
            continue
        per_tile = ceil_div(int((tiles.stops - tiles.starts).max()), size)
        per_core = ceil_div(per_tile, configuration.cores) if axis == band else per_tile
        axes[axis] = _nested(tiles, size, per_core if axis == band else None)
        count, total = count * per_tile, total * axes[axis].count
        rounds *= per_core
        if axis == band:
            lengths = tiles.stops - tiles.starts
            share = float(np.minimum(lengths, per_core * size).sum() / lengths.sum())
    return CoreWalk(axes=axes, count=count, rounds=rounds, total=total, share=share)


def _nested(tiles: AxisTiles, size: int, per_core: int | None) -> AxisTiles:
    """Each range cut again into ranges of `size`; with `per_core` a run begins with each core's band."""
    lengths = tiles.stops - tiles.starts
    pieces = -(-lengths // size)
    tile = np.repeat(np.arange(tiles.count), pieces)
    number = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = tiles.starts[tile] + number * size
    begins = tiles.begins[tile] & (number == 0)
    if per_core is not None:
        begins = begins | (number % per_core == 0)
    return AxisTiles(
        starts=starts,
        stops=np.minimum(starts + size, tiles.stops[tile]),
        begins=begins,
        mode=tiles.mode,
        times=tiles.times,
        blocks=np.cumsum(pieces) - pieces,
        interleaved=tiles.interleaved,
    )
