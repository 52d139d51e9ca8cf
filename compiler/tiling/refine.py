"""A group's tile by cost: from the largest that fits to sizes around it, as long as the price falls (FUSE-O).

The largest tile moves the fewest bytes (FUSE-S4). A smaller one may take less time all the same: its first load and its
last store hide less of a group that few large tiles make up, and what is kept of it may lie nearer to the cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Final

from compiler.cost.array import spatial_lanes
from compiler.cost.model import Cost, price
from compiler.cost.objective import NO_TOTALS, Totals
from compiler.profile.schema import Profile
from compiler.tiling.candidates import channel_size
from compiler.tiling.cheapest import ranked
from compiler.tiling.choose import completed, tables_of
from compiler.tiling.configurations import simple_configurations
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import PHYSICAL, Constraint
from compiler.tiling.finished import Choice, Priced, finished
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.lowerable import lowering_check
from compiler.tiling.memory import allocation_check, memory_of
from compiler.tiling.pace import turns
from compiler.tiling.placement import Placement, unit_grid
from compiler.tiling.price import group_of, leasts
from compiler.tiling.sizes import RANGES_MAX, SizeTable
from compiler.tiling.tile import Configuration, Order, Tiling, WeightHome
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import GroupWork
from compiler.tiling.wishes import Wishes
from compiler.units import ceil_div

# A tile that differs along two axes is far from the one before, and prices of far tiles compare to a percent or two: of
# MC-CNN on metaproto-df a tile of 0.9992 of the price, with four times the bytes, took 1.019 of the time.
_BETTER_OF_PAIRS: Final = 0.995


def refined(
    choice: Choice,
    geometry: GroupGeometry,
    profile: Profile,
    constraints: tuple[Constraint, ...],
    wishes: Wishes,
    tried: int,
    beside: Totals = NO_TOTALS,
) -> tuple[Choice, int]:
    """The tiling, or one that costs less: another tile, or another way of spreading it, passing ops and keeping halos.

    At most `tried` tilings are priced; how many were is the second result. Of all tiles that differ along one axis
    (there an equal part of its extent, filled up to whole lanes of the array) the best is taken, and so on while prices
    fall; then of all simple configurations for that tile the best, and from there on again; then of all tiles that
    differ along two axes, if it costs so much less that prices can tell; at last whole blocks. Slices stay as they
    are, and nothing changes where options or a schedule say how tiles are found. `beside`: totals of all other groups,
    for a product of sums (energy × latency) is compared as a whole.
    """
    if wishes.is_pinned or wishes.split.kind != "exact":
        return choice, 0
    search = _Refinement(choice, geometry, profile, (*PHYSICAL, *constraints), wishes, tried, beside)
    search.as_it_is()
    while search.along_axes() or search.across_ways() or search.along_pairs():
        pass
    search.whole_blocks()
    return search.choice, search.tried


def as_before(
    choice: Choice, geometry: GroupGeometry, profile: Profile, constraints: tuple[Constraint, ...], wishes: Wishes
) -> Choice | None:
    """A group's tiling, while what is wished for stays on the chip between groups; None where that leaves no room."""
    configuration = replace(choice.tiling.configuration, walk=(), handover=wishes.handover)
    tile = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    profile = profile.holding(wishes.handover.held_bytes)
    group = _lowerable(SizeTable.of_group(geometry, dict(configuration.halo)), profile, configuration, tile)
    if group is None:
        return None
    figures = figures_of(group)
    if not all(constraint(figures).holds for constraint in (*PHYSICAL, *constraints)):
        return None
    if allocation_check(levels := memory_of(group)) is not None:
        return None
    return finished(Priced(group=group, figures=figures, cost=price(GroupWork(group).traffic, profile)), levels)


def nearly_as_good(
    choice: Choice,
    geometry: GroupGeometry,
    profile: Profile,
    constraints: tuple[Constraint, ...],
    wishes: Wishes,
    tried: int,
    count: int,
) -> list[Choice]:
    """At most `count` other tilings near a choice that cost least, the least first; no two take the same.

    They are those that `refined` tries from there, at most `tried`. None where options or a schedule say how tiles are
    found.
    """
    if wishes.is_pinned or wishes.split.kind != "exact":
        return []
    search = _Refinement(choice, geometry, profile, (*PHYSICAL, *constraints), wishes, tried, is_for_best=False)
    search.as_it_is()
    search.across_ways()
    search.along_axes()
    found = {likeness(choice): choice}
    for _, priced in sorted(search.priced, key=lambda entry: entry[0]):
        if len(found) > count:
            break
        if allocation_check(levels := memory_of(priced.group)) is None:
            other = finished(priced, levels)
            found.setdefault(likeness(other), other)
    return list(found.values())[1:]


def likeness(choice: Choice) -> tuple[Cost, Tiling]:
    """A key that tilings have in common whose programs take the same time; its first part is the price.

    Where all weights lie in the cores, tilings of equal price that differ in depth order or in slices of weights only
    are lowered to such programs.
    """
    tiling = choice.tiling
    if all(weights.home is WeightHome.CORE for weights in tiling.weights):
        configuration = replace(tiling.configuration, order=Order.DEPTH_FIRST)
        weights = tuple([replace(its, slices=1) for its in tiling.weights])
        tiling = replace(tiling, configuration=configuration, weights=weights)
    return choice.cost, tiling


class _Refinement:
    """The best tiling of a group so far, and which were tried; `priced`: their ranks, and what has them.

    `is_for_best`: all that is looked for is the best one.
    """

    def __init__(
        self,
        choice: Choice,
        geometry: GroupGeometry,
        profile: Profile,
        bound: tuple[Constraint, ...],
        wishes: Wishes,
        tried: int,
        beside: Totals = NO_TOTALS,
        *,
        is_for_best: bool = True,
    ) -> None:
        self.choice = choice
        self._is_for_best = is_for_best
        self._objective, self._beside = wishes.objective, beside
        self._best = self._rank(choice.cost, group_of(geometry, profile, choice.tiling))
        self._profile = profile = profile.holding(wishes.handover.held_bytes)
        self._bound = bound
        self._tile = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
        self._extents = extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
        lanes = spatial_lanes(geometry.ops, profile)
        cut = [axis for axis in self._tile if axis != "C" and extents[axis] > 1]
        self._lines = [_line(axis, extents[axis], lanes.get(axis, 1)) for axis in cut]
        self._ways = _ways(choice, geometry, profile, wishes)
        blocks = sum(way.configuration.placement is Placement.BLOCKS for way in self._ways)
        # some are for whole blocks, which are tried last
        self._reserved = min(tried, blocks)
        self._left = tried - self._reserved
        self._way = self._ways[0]
        self._seen: set[tuple[object, ...]] = set()
        self.priced: list[tuple[tuple[float, ...], Priced]] = []

    @property
    def tried(self) -> int:
        """How many tilings were priced."""
        return len(self._seen)

    def as_it_is(self) -> bool:
        """Try the tile itself with the next one loaded while it is worked on; True if that is better."""
        return self._try([(self._way, self._tile)])

    def along_axes(self) -> bool:
        """Try all tiles that differ along one axis; True if one is better."""
        return self._try([(self._way, {**self._tile, axis: size}) for axis, line in self._lines for size in line])

    def along_pairs(self) -> bool:
        """Try all tiles that differ along two axes; True if one is better by more than prices are exact to."""
        pairs = combinations(self._lines, 2)
        tilings = [
            (self._way, {**self._tile, one: size, other: its})
            for (one, line), (other, across) in pairs
            for size, its in product(line, across)
        ]
        return self._try(tilings, _BETTER_OF_PAIRS)

    def across_ways(self) -> bool:
        """Try the tile under all simple configurations; True if it is better under one."""
        return self._try([(way, {**self._tile, **way.channels}) for way in self._ways])

    def whole_blocks(self) -> bool:
        """Try to give each unit its whole block of the map as one tile (TILE-4); True if that is better.

        No tile found so far is taller than a band's share of the rows.
        """
        extents = {axis: size for axis, size in self._extents.items() if axis not in ("N", "C") and size > 1}
        blocks = [way for way in self._ways if way.configuration.placement is Placement.BLOCKS]
        if len(extents) < 2 or not blocks:
            return False
        rows, columns = [*extents][:2]
        down, across = unit_grid(extents[rows], extents[columns], blocks[0].configuration.units)
        block = {rows: ceil_div(extents[rows], down), columns: ceil_div(extents[columns], across)}
        self._left, self._reserved = self._left + self._reserved, 0
        return self._try([(way, {**self._tile, **way.channels, **block}) for way in blocks])

    def _least(self, least: Totals, group: TiledGroup) -> float:
        """What no rank of a group is below."""
        return float(ranked(self._objective, self._beside + least, turns(group))[0])

    def _rank(self, cost: Cost, group: TiledGroup) -> tuple[float, ...]:
        return ranked(self._objective, self._beside + Totals.of((cost,)), turns(group))

    def _try(self, tilings: list[tuple[_Way, dict[str, int]]], most: float = 1.0) -> bool:
        """Price tilings; True if one is better. The first to be better has to have this part of the price at most."""
        better = False
        for way, tile in tilings:
            key = (way.configuration, *tile.items())
            if key in self._seen or not self._left:
                continue
            self._seen.add(key)
            self._left -= 1
            group = _lowerable(way.table, self._profile, way.configuration, tile)
            # what has no room even without its weights is not worked out
            if group is None or group.tile_bytes + group.buffered_bytes > self._profile.units.memory.capacity_bytes:
                continue
            work = GroupWork(group)
            # what cannot be better is not priced, where nothing else is looked for
            enough = self._best[0] if better else most * self._best[0]
            if self._is_for_best and any(self._least(least, group) > enough for least in leasts(work, self._profile)):
                continue
            figures = figures_of(group)
            if not all(constraint(figures).holds for constraint in self._bound):
                continue
            found = Priced(group=group, figures=figures, cost=price(work.traffic, self._profile))
            rank = self._rank(found.cost, group)
            self.priced.append((rank, found))
            if rank >= self._best or (not better and rank[0] > most * self._best[0]):
                continue
            if allocation_check(levels := memory_of(found.group)) is None:
                better, self._best, self._way, self._tile = True, rank, way, tile
                self.choice = finished(found, levels)
        return better


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """A configuration with the sizes of boxes under its halo modes, and the tile's extent of channels."""

    table: SizeTable
    configuration: Configuration
    channels: Mapping[str, int]


def _ways(choice: Choice, geometry: GroupGeometry, profile: Profile, wishes: Wishes) -> list[_Way]:
    """The tiling's own configuration, with other parts of sums if it has any, then the simple ones.

    These only where neither channels nor sums are cut in time.
    """
    own = replace(choice.tiling.configuration, walk=(), double_buffered=True)
    table = SizeTable.of_group(geometry, dict(own.halo))
    tile = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))
    channels = {axis: size for axis, size in tile.items() if axis == "C"}
    found = {own: _Way(table=table, configuration=own, channels=channels)}
    # what a smaller tile leaves free takes sums in fewer parts, and the other way round
    for parts in (own.input_slices // 4, own.input_slices // 2, 2 * own.input_slices):
        if own.input_slices > 1 and 1 < parts <= geometry.summed_extent:
            other = replace(own, input_slices=parts)
            found[other] = _Way(table=table, configuration=other, channels=channels)
    if own.channel_slices == 1 and own.input_slices == 1:
        for table in tables_of(geometry, profile, wishes):
            tried = simple_configurations(geometry, table, profile, wishes.halo, wishes.placement)
            for simple in wishes.marked(tried):
                size = channel_size(table, simple)
                channels = {} if size is None else {"C": size}
                found.setdefault(simple, _Way(table=table, configuration=simple, channels=channels))
    return list(found.values())


def _line(axis: str, extent: int, lane: int) -> tuple[str, tuple[int, ...]]:
    """An axis with its sizes: the extent's equal parts, twice as many each time, filled up to whole lanes."""
    sizes: dict[int, None] = {}
    parts = 1
    while parts <= min(extent, RANGES_MAX):
        sizes[min(extent, ceil_div(ceil_div(extent, parts), lane) * lane)] = None
        parts *= 2
    return axis, tuple(sizes)


def _lowerable(
    table: SizeTable,
    profile: Profile,
    configuration: Configuration,
    tile: Mapping[str, int],
) -> TiledGroup | None:
    """A tile under a configuration, worked out; None where no core tile fits, or where it cannot be lowered."""
    group = completed(table, profile, configuration, tile)
    return group if isinstance(group, TiledGroup) and lowering_check(group) is None else None
