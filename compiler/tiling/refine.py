"""A group's tile by cost: from the largest that fits to sizes around it, as long as the price falls (FUSE-O).

The largest tile moves the fewest bytes (FUSE-S4). A smaller one may take less time all the same: its first load and its
last store hide less of a group that few large tiles make up, and what is kept of it may lie nearer to the cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.cost.array import spatial_lanes
from compiler.cost.model import price
from compiler.cost.objective import Totals, ranking
from compiler.profile.schema import Profile
from compiler.tiling.choose import completed
from compiler.tiling.commands import commands_check
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import PHYSICAL, Constraint
from compiler.tiling.finished import Choice, Priced, finished
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import allocation_check, memory_of
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from compiler.tiling.wishes import Wishes
from compiler.units import ceil_div


def refined(
    choice: Choice,
    geometry: GroupGeometry,
    profile: Profile,
    constraints: tuple[Constraint, ...],
    wishes: Wishes,
    tried: int,
) -> Choice:
    """The tiling, or one of another tile that costs less, its spread, order and halo modes as they are.

    Tiles are tried double buffered, the one that is given too if it is not. At most `tried` tiles are priced. Of all
    tiles that differ along one axis (there an equal part of its extent, filled up to whole lanes of the array) the best
    is taken, and so on while prices fall. Nothing changes where options or a schedule say how tiles are found.
    """
    if wishes.is_pinned or wishes.split.kind != "exact":
        return choice
    bound = (*PHYSICAL, *constraints)
    configuration = replace(choice.tiling.configuration, walk=())
    table = SizeTable.of_group(geometry, dict(configuration.halo))
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    tile = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    lanes = spatial_lanes(geometry.ops, profile)
    lines = [_line(axis, extents[axis], lanes.get(axis, 1)) for axis in tile if axis != "C" and extents[axis] > 1]
    best = ranking(wishes.objective, Totals.of((choice.cost,)))
    seen = {tuple(tile.items())} if configuration.double_buffered else set()
    most = len(seen) + tried
    configuration = replace(configuration, double_buffered=True)
    better = True
    while better:
        better = False
        for sizes in [tile, *({**tile, axis: size} for axis, line in lines for size in line)]:
            if tuple(sizes.items()) in seen or len(seen) >= most:
                continue
            seen.add(tuple(sizes.items()))
            found = _priced(table, profile, configuration, sizes, bound)
            if found is None:
                continue
            rank = ranking(wishes.objective, Totals.of((found.cost,)))
            if rank < best and allocation_check(levels := memory_of(found.group)) is None:
                better, best, tile, choice = True, rank, sizes, finished(found, levels)
    return choice


def _line(axis: str, extent: int, lane: int) -> tuple[str, tuple[int, ...]]:
    """An axis with its sizes: the extent's equal parts, twice as many each time, filled up to whole lanes."""
    sizes: dict[int, None] = {}
    parts = 1
    while parts <= extent:
        sizes[min(extent, ceil_div(ceil_div(extent, parts), lane) * lane)] = None
        parts *= 2
    return axis, tuple(sizes)


def _priced(
    table: SizeTable,
    profile: Profile,
    configuration: Configuration,
    tile: Mapping[str, int],
    bound: tuple[Constraint, ...],
) -> Priced | None:
    """A tile under a configuration, worked out and priced; None if anything of it does not hold."""
    group = completed(table, profile, configuration, tile)
    if not isinstance(group, TiledGroup) or commands_check(group, is_searched=True) is not None:
        return None
    figures = figures_of(group)
    if not all(constraint(figures).holds for constraint in bound):
        return None
    return Priced(group=group, figures=figures, cost=price(traffic_of(group), profile))
