"""Frustums of random groups, tilings and placements against a walk over their tiles element by element (TILE-1, 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, prod

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.halos import exchanged_halo
from compiler.tiling.placement import Placement
from compiler.tiling.tile import Configuration, HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.walk import core_walk, unit_walk
from tests.compiler.brute import Box
from tests.compiler.tiling.groups import groups
from tests.compiler.tiling.oracle import core_plan, is_simple, unit_plan, walked
from tests.compiler.tiling.tilings import configuration
from tests.profiles import small_profile

_TILES_MAX = 150
# Placements under which a unit's tiles lie together, so that it walks one run of them.
_TOGETHER = (Placement.BANDS, Placement.BAND_COLUMNS, Placement.BLOCKS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A group with a tiling; `core` are extents of core tiles."""

    geometry: GroupGeometry
    configuration: Configuration
    tile: dict[str, int]
    core: dict[str, int]

    @property
    def names(self) -> tuple[str, ...]:
        """All activations."""
        return (*self.geometry.inputs, *self.geometry.made)

    @property
    def frustums(self) -> Frustums:
        """Those of the SRAM tiles."""
        return Frustums(self.geometry, unit_walk(self.geometry, self.configuration, self.tile).axes)


@st.composite
def cases(draw: st.DrawFn, *, nested: bool = False, sliced: bool = True, one_mode: bool = False) -> Case:
    """A random group, cut at random; with `nested` its tiles are cut again and shared out to cores."""
    _, geometry = draw(groups())
    axes, shape = geometry.output.axes, geometry.output.shape
    extents = dict(zip(axes, shape, strict=True))
    tile = {axis: draw(st.integers(1, extent)) for axis, extent in extents.items()}
    if "C" in tile and not (sliced and geometry.channels_follow):
        tile["C"] = extents["C"]
    core = {axis: draw(st.integers(1, tile[axis])) if nested else tile[axis] for axis in axes if axis != "C"}
    count = prod(ceil(extents[a] / min(tile[a], core.get(a, tile[a]))) for a in axes)
    assume(count <= _TILES_MAX)
    positions = [axis for axis in axes if axis != "C"]
    mode = draw(st.sampled_from(HaloMode))
    modes = {a: mode if nested or one_mode else draw(st.sampled_from(HaloMode)) for a in positions}
    units = draw(st.sampled_from([1, 2, 4]))
    cores = draw(st.sampled_from([1, 2, 4])) if nested else 1
    return Case(
        geometry=geometry,
        configuration=configuration(
            units=units,
            spread=Spread.SINGLE if units == 1 else Spread.BANDS,
            cores=cores,
            core_spread=Spread.SINGLE if cores == 1 else Spread.BANDS,
            placement=draw(st.sampled_from(Placement)) if units > 1 else Placement.BANDS,
            halo=tuple(modes.items()),
            walk=tuple(draw(st.permutations(positions))),
            channel_slices=ceil(extents["C"] / tile["C"]) if "C" in tile else 1,
            slices_outer=draw(st.booleans()),
        ),
        tile=tile,
        core=core,
    )


@settings(max_examples=50)
@given(cases())
def test_tiles_cover_each_output_element_once_and_make_what_a_walk_makes(case: Case) -> None:
    """TILE-1, TILE-3: nothing that a tile needs is missing, nothing is made that is at hand."""
    log = walked(case.geometry, unit_plan(case.geometry, case.configuration, case.tile))
    assert (log.coverage == 1).all()
    for name in case.names:
        if is_simple(case.geometry):
            assert case.frustums.made_bytes(name) == log.made[name]
            assert case.frustums.largest_made(name) >= log.largest[name]
        else:
            assert case.frustums.made_bytes(name) >= log.made[name]


@settings(max_examples=26)
@given(cases(one_mode=True))
def test_less_is_made_where_halos_are_kept_and_least_where_they_are_exchanged(case: Case) -> None:
    """TILE-3: recompute ≥ cached ≥ exchange, and in exchange mode each needed element is made once per image slice."""
    made = []
    for mode in HaloMode:
        how = configuration(
            units=case.configuration.units,
            spread=case.configuration.spread,
            placement=case.configuration.placement,
            halo=tuple((axis, mode) for axis, _ in case.configuration.halo),
            channel_slices=case.configuration.channel_slices,
        )
        frustums = Frustums(case.geometry, unit_walk(case.geometry, how, case.tile).axes)
        made.append([frustums.made_bytes(name) for name in case.names])
    for recomputed, cached, exchanged in zip(*made, strict=True):
        assert recomputed >= cached >= exchanged


@settings(max_examples=26)
@given(cases(one_mode=True, sliced=False))
def test_nothing_is_made_twice_where_halos_are_exchanged(case: Case) -> None:
    """TILE-3: no tensor's bytes made exceed its size."""
    how = configuration(
        units=case.configuration.units,
        spread=case.configuration.spread,
        placement=case.configuration.placement,
        halo=tuple((axis, HaloMode.EXCHANGE) for axis, _ in case.configuration.halo),
        walk=case.configuration.walk,
    )
    frustums = Frustums(case.geometry, unit_walk(case.geometry, how, case.tile).axes)
    for name in case.names:
        if is_simple(case.geometry):
            assert frustums.made_bytes(name) <= case.geometry.facts.tensor_bytes(name)


@settings(max_examples=50)
@given(cases())
def test_what_is_kept_is_enough_for_later_tiles_and_not_much_more(case: Case) -> None:
    """TILE-3: what a walk holds between two tiles for later ones; at most twice that and what a tile makes.

    What units pass each other is held from its arrival on, so the upper bound is for halos that a unit keeps itself.
    """
    assume(is_simple(case.geometry))
    modes = {mode for _, mode in case.configuration.halo}
    log = walked(case.geometry, unit_plan(case.geometry, case.configuration, case.tile))
    for name in case.names:
        kept = case.frustums.kept_bytes(name)
        if HaloMode.EXCHANGE not in modes or case.configuration.units == 1:
            assert kept >= log.kept[name]
        if HaloMode.EXCHANGE not in modes and case.configuration.placement in _TOGETHER:
            assert kept <= 2 * log.kept[name] + log.largest[name]


@settings(max_examples=50)
@given(cases())
def test_the_store_along_each_axis_has_room_for_what_waits_in_it(case: Case) -> None:
    """TILE-3: of an inner axis the corner too, which waited along an outer one."""
    assume(is_simple(case.geometry))
    assume(HaloMode.EXCHANGE not in {mode for _, mode in case.configuration.halo} or case.configuration.units == 1)
    log = walked(case.geometry, unit_plan(case.geometry, case.configuration, case.tile))
    for name in case.names:
        along = case.frustums.kept_along(name)
        for axis in case.frustums.tiles:
            assert along.get(axis, 0) >= log.stored.get((name, axis), 0)


@settings(max_examples=33)
@given(cases(nested=True, sliced=False))
def test_core_tiles_make_and_keep_what_a_walk_over_them_does(case: Case) -> None:
    """TILE-8: every SRAM tile is cut into core tiles, and each core walks a band of them."""
    assume(is_simple(case.geometry))
    walk = unit_walk(case.geometry, case.configuration, case.tile, case.core)
    inner = core_walk(walk, case.configuration, case.tile, case.core)
    plan = core_plan(case.geometry, case.configuration, case.tile, case.core)
    log = walked(case.geometry, plan)
    frustums = Frustums(case.geometry, inner.axes)
    modes = {mode for _, mode in case.configuration.halo}
    assert (log.coverage == 1).all()
    assert inner.total == len(plan.visits)
    for name in case.names:
        assert frustums.made_bytes(name) == log.made[name]
        assert frustums.largest_made(name) >= log.largest[name]
        if HaloMode.EXCHANGE not in modes and case.configuration.placement in _TOGETHER:
            assert frustums.kept_bytes(name) >= log.kept[name]
            along = frustums.kept_along(name)
            assert all(along.get(axis, 0) >= log.stored.get((name, axis), 0) for axis in frustums.tiles)


def steps_of(boxes: list[Box], lanes: Mapping[str, int], axes: tuple[str, ...], channel: int | None) -> int:
    """Array steps over boxes, channels apart: per axis whole lanes."""
    return sum(
        prod(
            ceil((stop - start) / lanes.get(axis, 1))
            for number, (axis, (start, stop)) in enumerate(zip(axes, box, strict=True))
            if number != channel
        )
        for box in boxes
    )


@settings(max_examples=50)
@given(cases(sliced=False), st.sampled_from([{}, {"W": 4, "H": 4}, {"W": 3, "H": 2}]))
def test_reads_and_array_steps_are_those_of_the_boxes_of_all_tiles(case: Case, lanes: Mapping[str, int]) -> None:
    """What an op reads to make what each tile makes anew, and ⌈columns / lanes⌉ · ⌈rows / lanes⌉ steps for it."""
    assume(is_simple(case.geometry))
    log = walked(case.geometry, unit_plan(case.geometry, case.configuration, case.tile))
    for op in case.geometry.ops:
        boxes = log.boxes.get(op.index, [])
        axes = case.geometry.facts.tensors[op.output].axes
        assert case.frustums.steps(op, lanes, {}) == steps_of(boxes, lanes, axes, op.channel_axis)
        for number, operand in enumerate(op.operands):
            if not operand.constant:
                assert case.frustums.read_bytes(op, operand) == log.reads.get((op.index, number), 0)


@settings(max_examples=40)
@given(cases(sliced=False), st.sampled_from(Placement))
def test_units_exchange_what_others_made_and_they_need(case: Case, placement: Placement) -> None:
    """TILE-3, TILE-4: in bands each element once per unit that needs it, otherwise at least that."""
    assume(is_simple(case.geometry) and case.configuration.units > 1)
    how = replace(
        case.configuration,
        placement=placement,
        halo=tuple((axis, HaloMode.EXCHANGE) for axis, _ in case.configuration.halo),
    )
    group = TiledGroup(case.geometry, small_profile(nram_bytes=1 << 20, cores=how.units), how, case.tile)
    log = walked(case.geometry, unit_plan(case.geometry, how, case.tile))
    for name in case.names:
        passed, _ = exchanged_halo(group, name)
        if placement in (Placement.BANDS, Placement.BAND_COLUMNS):
            assert passed == log.received[name]
        else:
            assert passed >= log.received[name]


@settings(max_examples=50)
@given(cases())
def test_a_tile_takes_at_least_what_a_unit_holds_at_any_step(case: Case) -> None:
    """TILE-2: what waits, what comes and what is made, until its last use; what slices of one tile share stays."""
    modes = {mode for _, mode in case.configuration.halo}
    assume(HaloMode.EXCHANGE not in modes or case.configuration.units == 1)
    profile = small_profile(nram_bytes=1 << 20, cores=case.configuration.units)
    group = TiledGroup(case.geometry, profile, case.configuration, case.tile)
    log = walked(case.geometry, unit_plan(case.geometry, case.configuration, case.tile))
    assert group.tile_bytes >= log.peak
