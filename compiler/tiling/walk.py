"""Who works on which tile, in what order: the tiles of units and of cores along every axis (TILE-4, TILE-8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.lazy import lazy
from compiler.tiling.axis_tiles import AxisTiles
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.placement import Assignment, Placement, assign, parts_of
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.tiling.turns import rounds_in_turn, rounds_of_runs
from compiler.units import ceil_div

# Placements under which the tiles of a unit lie side by side, so that it has one run along each axis.
RUNS: Final = frozenset({Placement.BANDS, Placement.BAND_COLUMNS, Placement.BLOCKS})

# Of so many tiles dealt out one by one it is worked out when each can be worked on; of more, one after another.
_TURNS_MAX: Final = 4096


@dataclass(frozen=True, kw_only=True, eq=False)
class Walk:
    """The SRAM tiles of a group: their ranges by axis, their owners, and how many one unit does in turn.

    `rows` and `columns` are the axes that the placement deals out (None: not cut). `tiles` counts SRAM tiles, channel
    slices apart; `rounds` how many come one after another: those of the busiest unit, and where units wait for halos
    that others pass them, more; `units` those that have work; `share` is the part of all work that takes its time: the
    output positions of the busiest unit, and as many more as it waits for; `share_by_tile` the same where a unit waits
    for the end of a tile whose halo it needs. `grid`: rows and columns of tiles, dealt to `dealt_to` units.
    """

    axes: Mapping[str, AxisTiles]
    rows: str | None
    columns: str | None
    placement: Placement
    grid: tuple[int, int]
    dealt_to: int
    tiles: int
    rounds: int
    units: int
    share: float
    share_by_tile: float
    # walks of core tiles in its tiles, by what decides them
    core_walks: dict[tuple[object, ...], CoreWalk] = field(default_factory=dict, init=False, repr=False)

    @property
    def assignment(self) -> Assignment:
        """The owner of every tile; of many it is not kept."""
        return self._assigned if prod(self.grid) <= _TURNS_MAX else self._assign()

    def _assign(self) -> Assignment:
        return assign(self.placement, *self.grid, self.dealt_to)

    _assigned = lazy(_assign)


def restarts_in_bands(configuration: Configuration) -> bool:
    """True if rows of a tile are dealt to cores that keep halos to themselves, so that every tile begins anew."""
    bands = configuration.order is Order.DEPTH_FIRST and configuration.core_spread is Spread.BANDS
    return bands and configuration.cores > 1


def walked_axes(geometry: GroupGeometry, configuration: Configuration) -> tuple[str, ...]:
    """The axes of the group's output in walking order, channels apart: images outermost, then as configured."""
    axes = [axis for axis in geometry.output.axes if axis != "C"]
    order = [axis for axis in configuration.walk if axis in axes]
    return tuple(sorted(axes, key=lambda a: (a != "N", order.index(a) if a in order else len(order) + axes.index(a))))


def unit_walk(
    geometry: GroupGeometry,
    configuration: Configuration,
    tile: Mapping[str, int],
    core: Mapping[str, int] | None = None,
) -> Walk:
    """The SRAM tiles of a group and who walks them; `core`: extents of the core tiles that they are cut into."""
    output, how = geometry.output, configuration
    rows = dealt_axes(geometry)[0]
    whole = frozenset(axis for axis in tile if axis != "C" and _is_whole(how, tile, core, axis, rows))
    sliced = how.channel_slices if how.slices_outer else 0
    key = ("walk", output.axes, output.shape, *tile.items(), how.units, how.spread, how.halo, how.placement, how.walk)
    key = (*key, sliced, restarts_in_bands(how), whole)
    return _known(geometry, key, lambda: _unit_walk(geometry, configuration, tile, whole))


def dealt_axes(geometry: GroupGeometry) -> tuple[str | None, str | None]:
    """The axes of the group's output whose tiles a placement deals out: rows and columns; None: not cut."""
    pairs = zip(geometry.output.axes, geometry.output.shape, strict=True)
    spatial = [axis for axis, extent in pairs if axis not in ("N", "C") and extent > 1]
    return spatial[0] if spatial else None, spatial[1] if len(spatial) > 1 else None


def _is_whole(
    configuration: Configuration, tile: Mapping[str, int], core: Mapping[str, int] | None, axis: str, rows: str | None
) -> bool:
    """True if each core has one core tile at most of an SRAM tile along an axis."""
    bands = configuration.core_spread is Spread.BANDS and axis == rows
    return core is None or ceil_div(tile[axis], core.get(axis, tile[axis])) <= (configuration.cores if bands else 1)


def _unit_walk(
    geometry: GroupGeometry, configuration: Configuration, tile: Mapping[str, int], whole: frozenset[str]
) -> Walk:
    """As `unit_walk`; `whole`: the axes along which each core has one core tile at most of an SRAM tile."""
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    rows, columns = dealt_axes(geometry)
    counts = {axis: ceil_div(extents[axis], tile[axis]) for axis in extents if axis != "C"}
    by_bands = configuration.spread is Spread.BANDS
    grid = counts[rows] if rows else 1, counts[columns] if columns else 1
    images, others = counts.get("N", 1), 1
    for axis, count in counts.items():
        if axis not in ("N", rows, columns):
            others *= count
    tiles = images * others * grid[0] * grid[1]
    dealt = _dealt(configuration, grid, lambda: [_lengths(extents, tile, axis) for axis in (rows, columns)])
    rounds, units = tiles, 1
    if by_bands:
        rounds, units = images * others * dealt.most, dealt.units
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
            runs = dealt.row_runs
        elif by_bands and axis == columns:
            runs = dealt.column_runs
        elif configuration.spread is Spread.IMAGES and axis == "N":
            runs = np.arange(images) % ceil_div(images, configuration.units) == 0
        mode = configuration.halo_of(axis)
        if axis == rows and mode is HaloMode.CACHED and restarts_in_bands(configuration):
            # what a tile's first core needs of the tile before lies in another core: it is made again
            mode = HaloMode.RECOMPUTE
        found = AxisTiles.of_size(extents[axis], min(tile[axis], extents[axis]), mode, runs=runs)
        mixed = by_bands and configuration.placement not in RUNS and axis in (rows, columns)
        axes[axis] = replace(found, interleaved=True) if mixed else found
    passing = [axis for axis in dealt.axes_of(rows, columns) if axes[axis].mode is HaloMode.EXCHANGE]
    if all(axis in whole and axes[axis].begins.all() for axis in passing):
        # each unit has one tile along all of them: they are in step
        axes |= {axis: replace(axes[axis], both_ways=True) for axis in passing}
    if not configuration.slices_outer:
        axes |= _channels(extents, tile, times=1)
    share = share_by_tile = 1.0
    if by_bands:
        in_turn = _rounds_in_turn(axes, dealt, (rows, columns), rounds)
        by_tile = _rounds_in_turn(axes, dealt, (rows, columns), rounds, by_tile=True)
        share, share_by_tile = (min(1.0, dealt.share * turns / rounds) for turns in (in_turn, by_tile))
        rounds = in_turn
    elif configuration.spread is Spread.IMAGES:
        share = min(extents["N"], ceil_div(images, configuration.units) * tile["N"]) / extents["N"]
        share_by_tile = share
    return Walk(
        axes=axes,
        rows=rows,
        columns=columns,
        placement=configuration.placement,
        grid=grid,
        dealt_to=configuration.units if by_bands else 1,
        tiles=tiles,
        rounds=rounds,
        units=units,
        share=share,
        share_by_tile=share_by_tile,
    )


def _known(geometry: GroupGeometry, key: tuple[object, ...], walk: Callable[[], Walk]) -> Walk:
    """A walk that is the same object wherever the same things decide it."""
    known = geometry.projections.known
    found = known.get(key)
    if not isinstance(found, Walk):
        found = known[key] = walk()
    return found


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Dealt:
    """How tiles are dealt: where runs begin along rows and columns, the most tiles and positions of a unit, units.

    `runs`: of rows and columns the longest run and how many there are, where the tiles of a unit lie side by side;
    else `owner` has the unit of every tile.
    """

    row_runs: NDArray[np.bool_] | None
    column_runs: NDArray[np.bool_] | None
    most: int
    units: int
    share: float
    runs: tuple[tuple[int, int], tuple[int, int]] | None = None
    owner: Ints | None = None

    def axes_of(self, *axes: str | None) -> list[str]:
        """The axes along which units have runs of their own, of rows and columns; none where tiles interleave."""
        pairs = zip(axes, self.runs or ((0, 0), (0, 0)), strict=True)
        return [axis for axis, (_, units) in pairs if axis is not None and units > 1]


def _dealt(configuration: Configuration, grid: tuple[int, int], lengths: Callable[[], list[Ints]]) -> _Dealt:
    """The tiles of a grid, rows and columns of the given lengths, as the placement deals them."""
    rows, columns = grid
    units = configuration.units if configuration.spread is Spread.BANDS else 1
    if units == 1:
        return _Dealt(row_runs=None, column_runs=None, most=rows * columns, units=1, share=1.0)
    heights, widths = lengths()
    parts = parts_of(configuration.placement, rows, columns, units)
    if parts is not None:
        row, column, _ = parts
        tall, wide = np.bincount(row), np.bincount(column)
        positions = np.bincount(row, weights=heights).max() * np.bincount(column, weights=widths).max()
        return _Dealt(
            row_runs=_changes(row[:, None]),
            column_runs=_changes(column[:, None]),
            most=int(tall.max() * wide.max()),
            units=len(tall) * len(wide),
            share=float(positions / (heights.sum() * widths.sum())),
            runs=((int(tall.max()), len(tall)), (int(wide.max()), len(wide))),
        )
    assignment = assign(configuration.placement, rows, columns, units)
    positions = np.bincount(assignment.owner.ravel(), weights=np.outer(heights, widths).ravel())
    return _Dealt(
        row_runs=_changes(assignment.owner),
        column_runs=_changes(assignment.owner.T),
        most=int(assignment.loads.max()),
        units=int(np.count_nonzero(assignment.loads)),
        share=float(positions.max() / positions.sum()),
        owner=assignment.owner,
    )


def _rounds_in_turn(
    axes: Mapping[str, AxisTiles],
    dealt: _Dealt,
    dealt_axes: tuple[str | None, str | None],
    rounds: int,
    *,
    by_tile: bool = False,
) -> int:
    """How many rounds the units take, of which the busiest has `rounds` tiles, where halos pass between them."""
    walked = {axis: tiles for axis, tiles in axes.items() if axis != "C"}
    passing = {
        axis
        for axis, tiles in walked.items()
        if tiles.mode is HaloMode.EXCHANGE and tiles.count > 1 and not tiles.both_ways
    }
    if dealt.units == 1 or not passing.intersection(dealt_axes):
        return rounds
    if dealt.runs is not None:
        runs = dict(zip(dealt_axes, dealt.runs, strict=True))
        counted = [(*runs.get(axis, (tiles.count, 1)), axis in passing) for axis, tiles in walked.items()]
        return rounds_of_runs(counted, by_tile=by_tile)
    counts = [tiles.count for tiles in walked.values()]
    if dealt.owner is None or prod(counts) > _TURNS_MAX:
        return prod(counts)
    ranks = np.arange(prod(counts)).reshape(counts)
    later: list[list[int]] = [[] for _ in range(ranks.size)]
    for number, (axis, tiles) in enumerate(walked.items()):
        if axis in passing:
            before = np.take(ranks, range(tiles.count - 1), axis=number).ravel().tolist()
            after = np.take(ranks, range(1, tiles.count), axis=number).ravel().tolist()
            for one, other in zip(before, after, strict=True):
                later[one].append(other)
    places = np.unravel_index(np.arange(ranks.size), counts)
    at = dict(zip(walked, places, strict=True))
    none = np.zeros(ranks.size, dtype=np.int64)
    row, column = (none if axis is None else at.get(axis, none) for axis in dealt_axes)
    return max(rounds_in_turn(dealt.owner[row, column].tolist(), later, by_tile=by_tile)) + 1


def grid_of(geometry: GroupGeometry, tile: Mapping[str, int]) -> int:
    """Tiles of one image's map: what a placement that interleaves has to look at one by one."""
    output = geometry.output
    spatial = [(a, e) for a, e in zip(output.axes, output.shape, strict=True) if a not in ("N", "C") and e > 1]
    return prod(ceil_div(extent, tile[axis]) for axis, extent in spatial[:2])


def _lengths(extents: Mapping[str, int], tile: Mapping[str, int], axis: str | None) -> Ints:
    if axis is None:
        return np.ones(1, dtype=np.int64)
    starts = np.arange(0, extents[axis], min(tile[axis], extents[axis]), dtype=np.int64)
    return np.diff(np.append(starts, extents[axis]))


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
    key = (*core.items(), configuration.cores, configuration.core_spread)
    found = walk.core_walks.get(key)
    if found is None:
        found = walk.core_walks[key] = _core_walk(walk, configuration, tile, core)
    return found


def _core_walk(walk: Walk, configuration: Configuration, tile: Mapping[str, int], core: Mapping[str, int]) -> CoreWalk:
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
            axes[axis] = _nested(tiles, size, None, tiles.mode)
            continue
        per_tile = ceil_div(int((tiles.stops - tiles.starts).max()), size)
        per_core = ceil_div(per_tile, configuration.cores) if axis == band else per_tile
        alone = per_tile == 1 and tiles.count == 1
        axes[axis] = (
            tiles if alone else _nested(tiles, size, per_core if axis == band else None, configuration.halo_of(axis))
        )
        count, total = count * per_tile, total * axes[axis].count
        rounds *= per_core
        if axis == band:
            lengths = tiles.stops - tiles.starts
            share = float(np.minimum(lengths, per_core * size).sum() / lengths.sum())
    return CoreWalk(axes=axes, count=count, rounds=rounds, total=total, share=share)


def _nested(tiles: AxisTiles, size: int, per_core: int | None, mode: HaloMode) -> AxisTiles:
    """Each range cut again into ranges of `size`; with `per_core` a run begins with each core's band."""
    lengths = tiles.stops - tiles.starts
    pieces = -(-lengths // size)
    tile = np.repeat(np.arange(tiles.count), pieces)
    number = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    starts = tiles.starts[tile] + number * size
    begins = tiles.begins[tile] & (number == 0)
    if per_core is not None:
        begins = begins | (number % per_core == 0)
    whole = mode is HaloMode.EXCHANGE and len(starts) > 1 and bool(begins.all())
    return AxisTiles(
        starts=starts,
        stops=np.minimum(starts + size, tiles.stops[tile]),
        begins=begins,
        mode=mode,
        times=tiles.times,
        blocks=np.cumsum(pieces) - pieces,
        # a core has a band of every tile: what waits along an axis outside waits for all of them
        interleaved=tiles.interleaved or (per_core is not None and tiles.count > 1),
        both_ways=whole and (tiles.both_ways or tiles.count == 1),
    )
