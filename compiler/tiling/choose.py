"""The choice of a group's tiling.

Reads top to bottom: all configurations -> the largest SRAM tile of each that memory and rules allow (FUSE-S4), found
for all at once -> an estimate that orders them -> core tiles and exact prices for the most promising -> the cheapest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np

from compiler.cost.array import spatial_lanes
from compiler.cost.objective import Totals, ranking
from compiler.cost.rates import dram_port_bytes_per_cycle
from compiler.ir.box import Ints
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import Block, CandidateTable, KnownFigures, last_holding
from compiler.tiling.cheapest import Worked, cheapest, most_promising
from compiler.tiling.configurations import PARTS_MAX, finer_configurations, simple_configurations, summed_configurations
from compiler.tiling.core import core_tile_for
from compiler.tiling.estimate import TilePlan
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import CORE_RULE, KEPT_RULE, PHYSICAL, Check, Constraint
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.lowerable import FORM_RULES, lowering_check
from compiler.tiling.placement import Placement
from compiler.tiling.rows import least_bytes
from compiler.tiling.same_weights import bytes_again, same_weights
from compiler.tiling.sizes import SizeTable, Stage, stage_sizes, tensors_of
from compiler.tiling.split import STEPS, Split, split_candidates
from compiler.tiling.tile import Configuration, HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.walk import grid_of
from compiler.tiling.weights import most_table_bytes
from compiler.tiling.wishes import Wishes, as_pinned
from compiler.units import ceil_div

_HALVINGS: Final = 12
_BASES: Final = 3
# Groups of more ops than this need not have a tiling at any price: there are smaller ones in their place.
_THOROUGH_OPS: Final = 16
# So many core tiles are tried in an SRAM tile, each smaller than the one before.
_CORE_TILES: Final = 2
# The most tiles of a map that are dealt out one by one.
GRID_MAX: Final = 1 << 20
# A group that takes, or moves, so many times what it has to at least is tried with sums in parts as well.
_GAIN: Final = 1.1
NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No tiling fits: the first constraint that fails even for the smallest tile, and the op that needs most."""

    check: Check
    op: int | None = None


class _Found(NamedTuple):
    """A configuration's largest tile: its row among the candidates."""

    search: _Search
    plan: TilePlan
    row: int
    block: Block

    @property
    def is_whole(self) -> bool:
        """Whether no tile of the configuration is larger."""
        return self.block.path is None and self.row == self.block.ends[0] - 1


def choose_tiling(
    geometry: GroupGeometry, profile: Profile, constraints: tuple[Constraint, ...], wishes: Wishes
) -> Choice | Refusal:
    """The cheapest tiling under memory and the given constraints, or why there is none (TILE-2, FUSE-S1 to S4)."""
    bound = (*PHYSICAL, *constraints)
    profile = profile.holding(wishes.handover.held_bytes)
    pinned = wishes.pins_tile(geometry.output.axes, geometry.output.shape)
    found, failing = _largest_tiles(geometry, profile, bound, wishes, is_thorough=pinned)
    outcome, refused = _cheapest(found, profile, bound, wishes, is_thorough=pinned)
    if outcome is None and refused and not wishes.is_pinned and len(geometry.ops) <= _THOROUGH_OPS:
        # what was left out as no better than others may be all that fits
        found, failing = _largest_tiles(geometry, profile, bound, wishes, is_thorough=True)
        outcome, more = _cheapest(found, profile, bound, wishes, is_thorough=True)
        refused += more
    if not wishes.is_pinned and geometry.product is not None and _may_gain(geometry, profile, outcome):
        parts = _summed_in_parts(geometry, profile, bound, wishes)
        summed, more = _cheapest(parts, profile, bound, wishes, is_thorough=True)
        outcome = _better(outcome, summed, wishes)
        refused += more
    if outcome is not None:
        return outcome
    # last what no memory helps
    refused.sort(key=lambda check: check.rule in FORM_RULES)
    check = failing or next(iter(refused), Check(rule="TILE-2", holds=False, actual=1, limit=0))
    return Refusal(check=check, op=_culprit(geometry, check))


def _may_gain(geometry: GroupGeometry, profile: Profile, outcome: Choice | None) -> bool:
    """Whether a group takes, or moves, much more than what it reads and makes once, and its work; or has no tiling.

    Of what has none beside stationary weights fewer ops share a chip (PART-3): cheaper than the smallest tiles.
    """
    if outcome is None:
        return not profile.is_stationary
    weights = 0 if profile.is_stationary else geometry.weight_bytes - bytes_again(geometry, same_weights(geometry))
    once = geometry.input_bytes + weights + geometry.output_bytes
    cost = outcome.cost
    least = max(cost.compute_cycles, once / dram_port_bytes_per_cycle(profile, profile.units.count))
    return cost.dram_bytes > _GAIN * once or cost.cycles > _GAIN * least


def _summed_in_parts(
    geometry: GroupGeometry, profile: Profile, bound: tuple[Constraint, ...], wishes: Wishes
) -> list[_Found]:
    """The largest tiles of configurations that take a product's sums in parts.

    Each tile in the fewest parts; more of them are tried only as long as a tile may be larger, or has to fit a core.
    """
    table = next((table for table in tables_of(geometry, profile, wishes) if not table.halo), None)
    if table is None:
        return []
    simple = wishes.marked(simple_configurations(geometry, table, profile, wishes.halo, wishes.placement))
    tried = [(place, choice) for place, base in enumerate(simple) for choice in summed_configurations(table, base)]
    waiting = {number: choice for number, (_, choice) in enumerate(tried)}
    known, parts, most = KnownFigures(), 2, min(geometry.summed_extent, PARTS_MAX)
    fewest: dict[tuple[object, ...], tuple[tuple[int, int, int], _Found]] = {}
    while waiting and parts <= most:
        search = _Search(table, profile, tuple(waiting.values()), bound, wishes.split, known)
        numbers = {block.begin: number for block, number in zip(search.candidates.blocks, waiting, strict=True)}
        found = search.found()
        kept = {entry.block.begin for entry in _without_twins([], found)}
        for entry in found:
            number, plan = numbers[entry.block.begin], entry.plan
            key = (number, *plan.tile.items())
            if entry.block.begin in kept and key not in fewest:
                if not isinstance(completed(table, profile, plan.configuration, plan.tile), TiledGroup):
                    continue
                fewest[key] = (tried[number][0], parts, number), entry
            if entry.is_whole:
                del waiting[number]
        parts *= 2
        waiting = {number: replace(choice, input_slices=parts) for number, choice in waiting.items()}
    return [entry for _, entry in sorted(fewest.values(), key=lambda one: one[0])]


def _better(whole: Choice | None, summed: Choice | None, wishes: Wishes) -> Choice | None:
    """The cheaper of two choices; of equal ones that which takes no sums in parts."""
    if whole is None or summed is None:
        return whole or summed
    (price, *_), (other, *_) = (ranking(wishes.objective, Totals.of((choice.cost,))) for choice in (whole, summed))
    return summed if other < price else whole


def _largest_tiles(
    geometry: GroupGeometry,
    profile: Profile,
    bound: tuple[Constraint, ...],
    wishes: Wishes,
    *,
    is_thorough: bool = False,
) -> tuple[list[_Found], Check | None]:
    """The largest tile of every configuration, and if there is none the constraint that the smallest one fails.

    Unless it is thorough, configurations that cannot be better than others found are left out.
    """
    found: list[_Found] = []
    failing: Check | None = None
    known, capacity = KnownFigures(), profile.units.memory.capacity_bytes
    tables = [*tables_of(geometry, profile, wishes)]
    for table in tables:
        if wishes.spread is None and not wishes.is_pinned and least_bytes(table, profile) > capacity:
            # no tile has room: all that may be asked for is what the smallest one lacks
            failing = _failing(table, profile, bound, wishes, known) if table is tables[-1] and not found else None
            continue
        # halos that are kept cost least as a rule: once some are found, only the best are tried without
        bases = () if is_thorough else _bases(found, profile, wishes)
        here, refused = _search(table, profile, bound, wishes, bases, known, is_thorough=is_thorough)
        found.extend(here if wishes.modes is not None else map(_as_cut, here))
        failing = refused or failing
    # what halos of one mode have no room for is no reason where those of another have it
    return found, None if found else failing


def _cheapest(
    found: list[_Found], profile: Profile, bound: tuple[Constraint, ...], wishes: Wishes, *, is_thorough: bool
) -> tuple[Choice | None, list[Check]]:
    plans = [entry.plan for entry in found]

    def tilings(number: int) -> Iterator[Worked | Check]:
        return _tilings(found[number], profile, bound, wishes, is_thorough=is_thorough)

    return cheapest(plans, tilings, profile, wishes, is_thorough=is_thorough)


def _as_cut(entry: _Found) -> _Found:
    """An entry whose map is not cut has no halos, whatever mode it was searched under."""
    plan = entry.plan
    if plan.tiles > 1 or not plan.configuration.halo:
        return entry
    plain = replace(plan.configuration, halo=())
    return entry._replace(plan=plan.under(plain))


def _bases(found: list[_Found], profile: Profile, wishes: Wishes) -> tuple[Configuration, ...]:
    """The most promising configurations found so far, with halos recomputed; none if all have to be tried."""
    if wishes.is_pinned:
        return ()
    plans = most_promising((entry.plan for entry in found), profile, wishes.objective)
    best: dict[Configuration, None] = {}
    for _, _, plan in plans:
        # nothing is exchanged, so one placement is as good as another
        placement = Placement.BANDS if wishes.placement == "auto" else plan.configuration.placement
        best[replace(plan.configuration, placement=placement, halo=())] = None
        if len(best) == _BASES:
            break
    return tuple(best)


def _search(
    table: SizeTable,
    profile: Profile,
    bound: tuple[Constraint, ...],
    wishes: Wishes,
    bases: tuple[Configuration, ...],
    known: KnownFigures,
    *,
    is_thorough: bool,
) -> tuple[list[_Found], Check | None]:
    """The largest tile of every configuration for a table's halo modes, of `bases` only if any are given."""
    if bases:
        search = _Search(table, profile, bases, bound, wishes.split, known)
        return search.found(), search.failing
    simple = wishes.marked(simple_configurations(table.geometry, table, profile, wishes.halo, wishes.placement))
    simple = as_pinned(simple, wishes)
    if not simple:
        return [], None
    output = table.geometry.output
    if wishes.pins_tile(output.axes, output.shape):
        # one tile each, which is judged when it is worked out: candidates are judged on the safe side
        bound = ()
    first = _Search(table, profile, simple, bound, wishes.split, known)
    here = _in_pinned_order(first.found(), wishes)
    # Where a tile leaves nothing to be done after it, no finer cut of the same spread can help.
    done = {entry.plan.configuration for entry in here if entry.plan.rounds == 1 and not is_thorough}
    finer = tuple(c for base in simple if base not in done for c in finer_configurations(table, base))
    if wishes.is_pinned:
        finer = tuple(c for c in as_pinned(finer, wishes) if c not in simple)
    if not finer:
        return here, first.failing
    second = _Search(table, profile, finer, bound, wishes.split, known)
    more = second.found() if is_thorough else _without_twins(here, second.found())
    return [*here, *_in_pinned_order(more, wishes)], second.failing


def _failing(
    table: SizeTable, profile: Profile, bound: tuple[Constraint, ...], wishes: Wishes, known: KnownFigures
) -> Check | None:
    """The constraint that even the smallest tile fails, for a table in which no tile has room.

    It is the one that `_search` would name: from the finest cuts, where there are any.
    """
    simple = wishes.marked(simple_configurations(table.geometry, table, profile, wishes.halo, wishes.placement))
    finer = tuple(c for base in simple for c in finer_configurations(table, base))
    return _Search(table, profile, finer or simple, bound, wishes.split, known).failing


def _in_pinned_order(found: list[_Found], wishes: Wishes) -> list[_Found]:
    """Those whose channel slices and tiles are in the order that is pinned; all where none is."""
    outer = wishes.fixed.get("slices_outer")
    return [entry for entry in found if outer in (None, entry.plan.configuration.slices_outer)]


def _culprit(geometry: GroupGeometry, check: Check) -> int:
    """The op that a failing check is about: for weights the one with most, else the one with the largest boxes."""

    def needs(op: OpFacts) -> int:
        if check.rule in ("FUSE-16", "TILE-2:weights"):
            return op.weight_bytes
        return sum(geometry.facts.tensor_bytes(name) for name in (op.output, *(o.tensor for o in op.operands)))

    return max(geometry.ops, key=lambda op: (needs(op), -op.index)).index


def tables_of(geometry: GroupGeometry, profile: Profile, wishes: Wishes) -> Iterator[SizeTable]:
    """Sizes of boxes with halos kept along every axis where tiles share anything, and with halos recomputed."""
    tried = _tried(geometry, profile, wishes)
    if wishes.modes is not None:
        kept = {axis: mode for axis, mode in wishes.modes.items() if mode is not HaloMode.RECOMPUTE}
        yield SizeTable.of_group(geometry, kept, wishes.sizes, tried)
        return
    recomputed = SizeTable.of_group(geometry, None, wishes.sizes, tried)
    axes = [axis for axis in recomputed.axes if recomputed.grids[axis].extent > 1 and recomputed.is_straight(axis)]
    if wishes.halo == "recompute" or not axes:
        yield recomputed
        return
    kept_table = SizeTable.of_group(geometry, dict.fromkeys(axes, HaloMode.CACHED), wishes.sizes, tried)
    shares = any(kept_table.kept[axis].any() for axis in axes)
    kept_table.recomputed = recomputed
    if shares:
        yield kept_table
    if wishes.halo == "auto" or not shares:
        yield recomputed


def _tried(geometry: GroupGeometry, profile: Profile, wishes: Wishes) -> Mapping[str, Ints]:
    """The sizes that a split by steps can meet along the axes that are open; nothing under `exact`."""
    if wishes.split.kind == "exact":
        return {}
    output = geometry.output
    extents = {
        axis: extent
        for axis, extent in sorted(zip(output.axes, output.shape, strict=True), key=lambda pair: pair[0] != "N")
        if axis != "C" and axis not in wishes.sizes
    }
    pinned = wishes.fixed.get("units")
    counts = [profile.units.count]
    return split_candidates(
        extents, wishes.split, [*counts, pinned] if isinstance(pinned, int) else counts, tensors_of(geometry)
    )


class _Search:
    """Configurations, all their candidate tiles, and which of these hold."""

    def __init__(
        self,
        table: SizeTable,
        profile: Profile,
        choices: tuple[Configuration, ...],
        constraints: tuple[Constraint, ...],
        split: Split,
        known: KnownFigures,
    ) -> None:
        self.candidates = CandidateTable(table, profile, choices, split, known)
        self.figures = self.candidates.figures()
        self.failing: Check | None = None
        holds = np.ones(self.candidates.rows, dtype=np.bool_)
        for constraint in constraints:
            check = constraint(self.figures)
            remaining = holds & check.holds
            if self.failing is None and not remaining.any():
                self.failing = _nearest(check, holds)
            holds = remaining
        self.holds = holds
        self.rooms = np.asarray(self.figures.weight_memory)

    def found(self) -> list[_Found]:
        """The largest tile of each configuration that has one; of a split by steps the tile that it ends at."""
        result = []
        candidates = self.candidates
        for block, row in zip(candidates.blocks, candidates.largest_rows(self.holds), strict=True):
            if row is None:
                continue
            plan = TilePlan(
                geometry=candidates.table.geometry,
                table=candidates.table,
                configuration=block.configuration,
                tile=self.tile(block, row),
                weights=block.weights,
                weight_room=float(self.rooms[row]),
            )
            result.append(_Found(search=self, plan=plan, row=row, block=block))
            if block.configuration.channel_slices > 1 and not block.configuration.slices_outer:
                outer = replace(block.configuration, slices_outer=True)
                result.append(_Found(search=self, plan=plan.under(outer), row=row, block=block))
        return result

    def tile(self, block: Block, row: int) -> dict[str, int]:
        """The tile of one row: size per axis."""
        begin = block.begin
        for part, end in zip(block.stages, block.ends, strict=True):
            if row < end:
                table = self.candidates.table
                if isinstance(part.stage, Stage):
                    return self._shared_evenly(block.configuration, stage_sizes(table, part.stage, row - begin))
                return part.stage.sizes(table, row - begin)
            begin = end
        raise AssertionError(row)

    def _shared_evenly(self, choice: Configuration, tile: dict[str, int]) -> dict[str, int]:
        """A tile cut so that each unit's share of the map is whole tiles, as many as before, of equal size."""
        candidates = self.candidates
        axis = candidates.table.band_axis if choice.spread is Spread.BANDS else "N"
        if choice.units == 1 or choice.spread not in (Spread.BANDS, Spread.IMAGES) or axis not in tile:
            return tile
        if len(candidates.table.grids[axis].sizes) == 1:
            return tile  # as pinned
        share, lane = candidates.caps(choice)[axis], candidates.lanes.get(axis, 1)
        even = ceil_div(share, ceil_div(share, tile[axis]))
        return {**tile, axis: min(tile[axis], ceil_div(even, lane) * lane)}


def _row_of(block: Block, row: int | None) -> int | None:
    """A row of a block's path as a row of the table of candidates."""
    return None if row is None else block.begin + row


def _without_twins(simple: list[_Found], finer: list[_Found]) -> list[_Found]:
    """Of the finer ones, those that give up double buffering only for a larger tile."""
    buffered = {
        _apart_from_buffering(entry.plan.configuration): entry.plan.tile
        for entry in (*simple, *finer)
        if entry.plan.configuration.double_buffered
    }
    return [
        entry
        for entry in finer
        if entry.plan.configuration.double_buffered
        or buffered.get(_apart_from_buffering(entry.plan.configuration)) != entry.plan.tile
    ]


def _apart_from_buffering(choice: Configuration) -> tuple[object, ...]:
    """What tells configurations apart that differ in more than double buffering."""
    spread = (choice.units, choice.spread, choice.cores, choice.core_spread, choice.order, choice.placement)
    slices = (choice.channel_slices, choice.slices_outer, choice.input_slices, choice.weights_in_sram)
    return (*spread, *slices, choice.halo, choice.walk, choice.loads)


def _nearest(check: Check, among: np.ndarray) -> Check:
    """A check over candidates as it stands for the one nearest to its limit."""
    rows = np.flatnonzero(among)
    actual = np.broadcast_to(np.asarray(check.actual), among.shape)[rows]
    limit = np.broadcast_to(np.asarray(check.limit), among.shape)[rows]
    nearest = int(np.argmin(np.abs(actual - limit)))
    return Check(rule=check.rule, holds=False, actual=actual[nearest].item(), limit=limit[nearest].item())


def _tilings(
    entry: _Found, profile: Profile, constraints: tuple[Constraint, ...], wishes: Wishes, *, is_thorough: bool
) -> Iterator[Worked | Check]:
    """A configuration's tilings that hold when they are worked out, the largest first; then what fails."""
    row = entry.row
    search, plan = entry.search, entry.plan
    path = entry.block.path
    broken: Check | None = None
    tried: Mapping[str, int] | None = None
    for attempt in range(_HALVINGS if path is None else STEPS + _HALVINGS):
        group = (
            None if plan.tile == tried else completed(plan.table, profile, plan.configuration, plan.tile, wishes.core)
        )
        tried = plan.tile
        if isinstance(group, TiledGroup):
            refused = lowering_check(group)
            if refused is not None:
                # smaller tiles keep more
                yield refused
                return
            figures = figures_of(group)
            failed = next((check for c in constraints if not (check := c(figures)).holds), None)
            if failed is None:
                yield Worked(group=group, figures=figures)
            broken = broken or failed
        elif group is not None:
            broken = broken or group
            if group.rule == CORE_RULE and not is_thorough:
                # the smallest core tile of a smaller SRAM tile is as large
                break
        if path is None:
            smaller = last_holding(entry.block, search.holds, below=row)
        else:
            begin, end = entry.block.begin, entry.block.ends[-1]
            smaller = _row_of(entry.block, path.smaller(search.holds[begin:end], row - begin, attempt))
        if smaller is None:
            break
        row = smaller
        # where the largest tile is the whole map it has no halos, and smaller ones have
        configuration = replace(plan.configuration, halo=entry.block.configuration.halo)
        plan = replace(plan, tile=search.tile(entry.block, row), configuration=configuration)
    yield broken or Check(rule="TILE-2", holds=False, actual=1, limit=0)


def completed(
    table: SizeTable,
    profile: Profile,
    configuration: Configuration,
    tile: Mapping[str, int],
    pinned: Mapping[str, int] = NOTHING,
) -> TiledGroup | Check:
    """A tiling with its core tile chosen, or as pinned; the check that fails if not even the smallest one fits."""
    tiles = grid_of(table.geometry, tile)
    one_by_one = configuration.placement not in (Placement.BANDS, Placement.BAND_COLUMNS)
    if one_by_one and configuration.spread is Spread.BANDS and tiles > GRID_MAX:
        return Check(rule="TILE-4:tiles", holds=False, actual=tiles, limit=GRID_MAX)
    group = TiledGroup(table.geometry, profile, configuration, tile)
    if not group.is_nested:
        return group
    if pinned:
        return TiledGroup(table.geometry, profile, configuration, tile, {**tile, **pinned})
    capacity = profile.nram.capacity_bytes
    if profile.weights_share_activations:
        capacity -= sum(w.own_core_bytes - w.table_bytes for w in group.weights_of_each)
        capacity -= sum(most_table_bytes(table.geometry, profile, configuration))
    lanes, room = spatial_lanes(table.geometry.ops, profile), capacity
    shares = tuple(float(group.split_share(name)) for name in table.names) if group.input_parts > 1 else ()
    for _ in range(_CORE_TILES):
        core = core_tile_for(table, configuration, tile, room, lanes, shares)
        if isinstance(core, int):
            return Check(rule=CORE_RULE if room == capacity else KEPT_RULE, holds=False, actual=core, limit=room)
        group = TiledGroup(table.geometry, profile, configuration, tile, core)
        held = group.core_peak_bytes
        if held <= capacity:
            return group
        # beside its boxes a core tile has what is kept, and results that have no room in their operands' place
        room = min(room - 1, room * capacity // held)
    return Check(rule=KEPT_RULE, holds=False, actual=held, limit=capacity)
