"""Splitting by steps: the sequences of tiles, the worked example G-3, and that what is chosen holds (FUSE-S2, S3)."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.compile import plan_model
from compiler.errors import RequestError
from compiler.fusion.evaluate import Evaluator
from compiler.ops.op_facts import GraphFacts
from compiler.option_words import parse_assignments
from compiler.options import Options, parse_options
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.tiling.choose import choose_tiling, completed
from compiler.tiling.exact import figures_of
from compiler.tiling.figures import PHYSICAL
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.sizes import SizeTable
from compiler.tiling.split import Kind, Path, Split, bottom_up_sizes, smallest_units, split_candidates, top_down_sizes
from compiler.tiling.tile import HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.wishes import Wishes
from compiler.units import ceil_div
from tests.compiler.tiling.groups import groups
from tests.compiler.tiling.oracle import unit_plan, walked
from tests.compiler.tiling.tilings import group_of_all, tiled
from tests.matrices import tries
from tests.models import Model, light_source
from tests.profiles import small_profile
from tests.strategies import OBJECTIVES, profiles

KIB: Final = 1024
HALF: Final = Fraction(1, 2)
FINER: Final = (HALF, Fraction(3, 4))

CAPS = st.dictionaries(st.sampled_from(["N", "D", "H", "W"]), st.integers(1, 300), min_size=1)
RATIOS = st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100)


@st.composite
def splits(draw: st.DrawFn, kind: Kind = "top-down") -> Split:
    """A random way of splitting by steps."""
    return Split(
        kind=kind,
        granularity=tuple(draw(st.lists(RATIOS, min_size=1, max_size=4))),
        order=tuple(draw(st.permutations(["N", "H", "W"]))[: draw(st.integers(1, 3))]),
        cycle=draw(st.booleans()),
    )


def rows(split: Split, extent: int) -> list[int]:
    """Rows of the tiles of a map of one image and one column, as top-down splitting tries them."""
    return [tile["H"] for tile in top_down_sizes({"N": 1, "H": extent, "W": 1}, split)]


# --- sequences of tiles -----------------------------------------------------------------------------------------------


def test_halving_leaves_a_quarter_and_then_finer_ratios_more() -> None:
    """G-3: 100 KiB by halving goes to 50, then 25; by 1/2 then 3/4 to 50, then 37.5."""
    assert rows(Split(kind="top-down"), 100) == [100, 50, 25, 13, 7, 4, 2, 1]
    assert rows(Split(kind="top-down", granularity=FINER), 1000)[:4] == [1000, 500, 375, 282]


def test_ratios_advance_with_each_cut_and_the_last_repeats() -> None:
    ratios = (HALF, Fraction(3, 4), Fraction(4, 5))
    assert rows(Split(kind="top-down", granularity=ratios), 800)[:5] == [800, 400, 300, 240, 192]
    tiles = list(top_down_sizes({"N": 1, "H": 80, "W": 80}, Split(kind="top-down", granularity=ratios)))
    assert [(t["H"], t["W"]) for t in tiles[:5]] == [(80, 80), (40, 80), (40, 60), (32, 60), (32, 48)]


def test_a_cycle_cuts_each_axis_once_and_exhausting_finishes_one_first() -> None:
    caps = {"N": 2, "H": 4, "W": 4}
    cycle = [tuple(t.values()) for t in top_down_sizes(caps, Split(kind="top-down"))]
    assert cycle == [(2, 4, 4), (1, 4, 4), (1, 2, 4), (1, 2, 2), (1, 1, 2), (1, 1, 1)]
    one = [tuple(t.values()) for t in top_down_sizes(caps, Split(kind="top-down", cycle=False, order=("W", "N")))]
    assert one == [(2, 4, 4), (2, 4, 2), (2, 4, 1), (1, 4, 1), (1, 2, 1), (1, 1, 1)]


@given(CAPS, splits())
def test_top_down_tiles_shrink_one_axis_at_a_time_from_the_caps_to_ones(caps: dict[str, int], split: Split) -> None:
    tiles = list(top_down_sizes(caps, split))
    assert tiles[0] == caps
    assert set(tiles[-1].values()) == {1}
    for before, after in pairwise(tiles):
        changed = [axis for axis in caps if after[axis] != before[axis]]
        assert len(changed) == 1
        assert 1 <= after[changed[0]] < before[changed[0]]


@given(CAPS, splits("bottom-up"))
def test_bottom_up_tiles_grow_one_axis_at_a_time_from_ones_to_the_caps(caps: dict[str, int], split: Split) -> None:
    tiles = list(bottom_up_sizes(caps, split))
    assert set(tiles[0].values()) == {1}
    assert tiles[-1] == caps
    for before, after in pairwise(tiles):
        changed = [axis for axis in caps if after[axis] != before[axis]]
        assert len(changed) == 1
        growth = after[changed[0]] - before[changed[0]]
        assert 1 <= growth <= max(1, before[changed[0]] // 16 if before[changed[0]] >= 64 else 1)
    # the smallest units lie on the way, the largest is asked for first
    places = [tiles.index(unit) for unit in smallest_units(caps, split)]
    assert places == sorted(places, reverse=True)
    assert places[-1] == 0


def test_the_smallest_units_are_an_image_a_row_and_a_position() -> None:
    """FUSE-S3: 1×H×W×C, else 1×1×W×C, else 1×1×1×C."""
    units = list(smallest_units({"N": 8, "H": 7, "W": 5}, Split(kind="bottom-up")))
    assert [tuple(unit.values()) for unit in units] == [(1, 7, 5), (1, 1, 5), (1, 1, 1)]
    units = list(smallest_units({"N": 1, "H": 7, "W": 5}, Split(kind="bottom-up", order=("W",))))
    assert [tuple(unit.values()) for unit in units] == [(1, 7, 5), (1, 7, 1), (1, 1, 1)]


@given(st.dictionaries(st.sampled_from(["H", "W"]), st.integers(1, 10**6), min_size=1), splits(), st.booleans())
def test_an_axis_in_very_many_tiles_has_few_candidates(caps: dict[str, int], split: Split, many: bool) -> None:
    found = split_candidates({"N": 1, **caps}, split, [4], 2000 if many else 10)
    for axis, extent in caps.items():
        sizes = found[axis].tolist()
        assert sizes == sorted(set(sizes))
        assert sizes[-1] == extent
        assert sum(ceil_div(extent, size) for size in sizes) <= 2**19


# --- the choice of a tiling -------------------------------------------------------------------------------------------


def map_of_rows(count: int, row_bytes: int) -> tuple[GraphFacts, GroupGeometry]:
    """One Relu, which needs no room beside its map, of so many rows."""
    model = Model()
    model.output(model.relu(model.input([1, row_bytes // 4, count, 1])))
    return group_of_all(model)


def of_one_unit(split: Split, **changes: Any) -> Wishes:
    """Tiles by memory alone: one at a time, channels whole."""
    fixed = {"double_buffered": False, "channel_slices": 1}
    return Wishes(objective="dram_bytes", fixed=fixed, split=split, **changes)


@pytest.mark.parametrize("sram", [True, False])
@pytest.mark.parametrize(
    ("split", "expected"),
    [
        (Split(kind="top-down"), 25),
        (Split(kind="top-down", granularity=FINER), 38),
        (Split(kind="bottom-up"), 40),
        (Split(), 40),
    ],
)
def test_a_map_of_100_kib_in_40_kib(split: Split, expected: int, sram: bool) -> None:
    """G-3: 25 KiB by halving, 37.5 KiB by 1/2 then 3/4 (38 whole rows); bottom-up and exact fill the 40 KiB."""
    _, geometry = map_of_rows(100, KIB)
    profile = small_profile(nram_bytes=40 * KIB, wram_bytes=KIB, sram_bytes=40 * KIB if sram else None)
    choice = choose_tiling(geometry, profile, (), of_one_unit(split))
    assert isinstance(choice, Choice)
    assert dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True))["H"] == expected
    assert choice.tiling.tile_bytes == expected * KIB


@pytest.mark.parametrize(("room", "expected"), [(60, 25), (20, 13)])
def test_units_split_their_own_share(room: int, expected: int) -> None:
    """Bands of four cores: each splits 25 of 100 rows, not the whole map."""
    _, geometry = map_of_rows(100, KIB)
    profile = small_profile(nram_bytes=room * KIB, wram_bytes=KIB, cores=4)
    fixed = {"double_buffered": False, "channel_slices": 1, "spread": Spread.BANDS, "units": 4}
    wishes = Wishes(objective="dram_bytes", fixed=fixed, split=Split(kind="top-down"))
    choice = choose_tiling(geometry, profile, (), wishes)
    assert isinstance(choice, Choice)
    assert choice.tiling.tile_bytes == expected * KIB


@settings(max_examples=60)
@given(groups(), splits(), st.sampled_from(["top-down", "bottom-up"]), st.booleans())
def test_a_path_holds_what_each_of_its_tiles_holds(
    group: tuple[GraphFacts, GroupGeometry], split: Split, kind: Kind, cached: bool
) -> None:
    """Bytes of boxes and of what waits, tile by tile."""
    _, geometry = group
    extents = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    channels = extents.pop("C", None)
    way = Split(kind=kind, granularity=split.granularity, order=split.order, cycle=split.cycle)
    halo = dict.fromkeys(extents, HaloMode.CACHED) if cached else None
    table = SizeTable.of_group(geometry, halo, None, split_candidates(extents, way, [4], 10))
    path = Path.build(table, extents, channels, way)
    volumes, waiting = table.volumes(path.at, path.count), table.waiting(path.at, path.count)
    for row in range(path.count):
        mode = HaloMode.CACHED if cached else HaloMode.RECOMPUTE
        frustums = tiled(geometry, path.sizes(table, row), mode).frustums
        assert volumes[:, row].tolist() == [frustums.largest_made(name) for name in table.names]
        assert waiting[:, row].tolist() == [frustums.kept_bytes(name) for name in table.names]


def test_bottom_up_starts_at_the_first_unit_that_holds_and_stops_at_the_first_step_that_does_not() -> None:
    path = Path(at={}, count=6, units=(4, 1, 0))
    assert path.chosen(np.array([True, True, True, False, False, True])) == 2
    assert path.chosen(np.array([True, False, True, False, False, True])) == 0
    assert path.chosen(np.array([True, True, True, False, True, True])) == 5
    assert path.chosen(np.array([False, False, True, True, False, True])) is None


def test_ratios_reach_sizes_that_no_number_of_equal_parts_gives() -> None:
    """375 of 1000 rows is no candidate of `exact`."""
    _, geometry = map_of_rows(1000, KIB)
    profile = small_profile(nram_bytes=400 * KIB, wram_bytes=KIB)
    choice = choose_tiling(geometry, profile, (), of_one_unit(Split(kind="top-down", granularity=FINER)))
    assert isinstance(choice, Choice)
    assert choice.tiling.tile_bytes == 375 * KIB


def test_a_pinned_size_wins_over_the_split() -> None:
    _, geometry = map_of_rows(100, KIB)
    profile = small_profile(nram_bytes=40 * KIB, wram_bytes=KIB)
    for kind in ("top-down", "bottom-up"):
        choice = choose_tiling(geometry, profile, (), of_one_unit(Split(kind=kind), sizes={"H": 33}))
        assert isinstance(choice, Choice)
        assert choice.tiling.tile_bytes == 33 * KIB


@settings(max_examples=40)
@given(st.integers(1, 600), st.integers(1, 600), splits(), st.sampled_from(["top-down", "bottom-up"]))
def test_exact_is_never_smaller_along_one_axis(count: int, room: int, split: Split, kind: Kind) -> None:
    """FUSE-S4: no other tile that fits is closer to the available space; up to 512 rows all are candidates."""
    assume(count <= 512)
    _, geometry = map_of_rows(count, 64)
    profile = small_profile(nram_bytes=64 * room, wram_bytes=KIB)
    sizes = []
    for how in (Split(), Split(kind=kind, granularity=split.granularity)):
        choice = choose_tiling(geometry, profile, (), of_one_unit(how))
        assert isinstance(choice, Choice)
        sizes.append(choice.tiling.tile_bytes)
    assert sizes[1] <= sizes[0] == 64 * min(count, room)


def holds(geometry: GroupGeometry, profile: Profile, choice: Choice, tile: Mapping[str, int]) -> bool:
    """True if a tile of the chosen configuration makes a complete tiling that fits every memory."""
    how = choice.tiling.configuration
    table = SizeTable.of_group(geometry, dict(how.halo) or None, tile)
    channel = dict(zip(choice.tiling.axes, choice.tiling.tile, strict=True)).get("C")
    group = completed(table, profile, how, {**tile, "C": channel} if channel is not None else tile)
    if not isinstance(group, TiledGroup):
        return False
    figures = figures_of(group)
    return all(check(figures).holds for check in PHYSICAL)


def caps_of(choice: Choice, geometry: GroupGeometry) -> dict[str, int]:
    """What one unit gets of the output, channels apart."""
    how = choice.tiling.configuration
    caps = {a: e for a, e in zip(geometry.output.axes, geometry.output.shape, strict=True) if a != "C"}
    shared = next((a for a, e in caps.items() if a != "N" and e > 1), None) if how.spread is Spread.BANDS else "N"
    if how.spread in (Spread.BANDS, Spread.IMAGES) and shared is not None:
        caps[shared] = ceil_div(caps[shared], how.units)
    return caps


@tries(first=30, rest=100)
@given(groups(), profiles(), splits(), st.sampled_from(["recompute", "auto"]))
def test_the_tile_is_the_first_that_holds_from_the_top(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, split: Split, halo: str
) -> None:
    """FUSE-S2, judged by complete tilings one after another."""
    _, geometry = group
    choice = choose_tiling(geometry, profile, (), Wishes(objective="latency", halo=halo, split=split))
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tile = {a: s for a, s in zip(choice.tiling.axes, choice.tiling.tile, strict=True) if a != "C"}
    for tried in top_down_sizes(caps_of(choice, geometry), split):
        if holds(geometry, profile, choice, tried):
            assert tried == tile
            return
    raise AssertionError("the tile is none of the split")


@tries(first=30, rest=100)
@given(groups(), profiles(), splits("bottom-up"), st.sampled_from(["recompute", "auto"]))
def test_the_tile_is_the_last_before_one_that_does_not_hold_from_the_bottom(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, split: Split, halo: str
) -> None:
    """FUSE-S3, judged by complete tilings one after another."""
    _, geometry = group
    choice = choose_tiling(geometry, profile, (), Wishes(objective="latency", halo=halo, split=split))
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tile = {a: s for a, s in zip(choice.tiling.axes, choice.tiling.tile, strict=True) if a != "C"}
    caps = caps_of(choice, geometry)
    tiles = list(bottom_up_sizes(caps, split))
    start = next(unit for unit in smallest_units(caps, split) if holds(geometry, profile, choice, unit))
    expected = start
    for tried in tiles[tiles.index(start) :]:
        if not holds(geometry, profile, choice, tried):
            break
        expected = tried
    assert tile == expected


@tries(first=30, rest=100)
@given(groups(), profiles(), st.sampled_from(OBJECTIVES), splits(), st.sampled_from(["top-down", "bottom-up"]))
def test_split_tilings_never_exceed_any_memory(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, objective: str, split: Split, kind: Kind
) -> None:
    """TILE-2: the most that a walk over all tiles holds at any step, element by element."""
    _, geometry = group
    way = Split(kind=kind, granularity=split.granularity, order=split.order, cycle=split.cycle)
    choice = choose_tiling(geometry, profile, (), Wishes(objective=objective, halo="recompute", split=way))
    assume(isinstance(choice, Choice))
    assert isinstance(choice, Choice)
    tiling, how = choice.tiling, choice.tiling.configuration
    assume(tiling.tiles * how.channel_slices <= 200 and how.spread in (Spread.SINGLE, Spread.BANDS, Spread.IMAGES))
    assume(how.channel_slices == 1 and how.input_slices == 1)
    log = walked(geometry, unit_plan(geometry, how, dict(zip(tiling.axes, tiling.tile, strict=True))))
    staging = max(log.loads) if how.double_buffered and tiling.rounds > 1 else 0
    memory = profile.nram if profile.sram is None else profile.sram
    nested = profile.sram is not None and how.order is Order.DEPTH_FIRST
    assert (max(log.loads) if nested else log.peak) + staging <= memory.capacity_bytes
    assert (log.coverage == 1).all()


@settings(max_examples=30)
@given(groups(), profiles(), splits(), st.sampled_from(["top-down", "bottom-up"]))
def test_a_split_is_deterministic(
    group: tuple[GraphFacts, GroupGeometry], profile: Profile, split: Split, kind: Kind
) -> None:
    facts, geometry = group
    wishes = Wishes(objective="energy", split=Split(kind=kind, granularity=split.granularity))
    first, second = (choose_tiling(GroupGeometry(facts, geometry.indices), profile, (), wishes) for _ in range(2))
    if isinstance(first, Choice):
        assert isinstance(second, Choice)
        assert (first.tiling, first.cost) == (second.tiling, second.cost)
    else:
        assert first == second


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_reach_the_split() -> None:
    options = parse_assignments(
        ["split=top-down", 'granularity=["1/2", 0.75, "4/5"]', 'order=["W", "H"]', "split_cycle=false"]
    )
    model = Model()
    model.output(model.relu(model.input([1, 1, 4, 4])))
    evaluator = Evaluator(model.facts(), builtin_profile("edge4"), options)
    assert evaluator._wishes.split == Split(
        kind="top-down", granularity=(HALF, Fraction(3, 4), Fraction(4, 5)), order=("W", "H"), cycle=False
    )


def test_the_default_options_are_the_default_split() -> None:
    options = Options()
    assert Split() == Split(
        kind=options.split, granularity=options.ratios, order=options.order, cycle=options.split_cycle
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("split", "sideways"),
        ("granularity", []),
        ("granularity", 0.5),
        ("granularity", [0]),
        ("granularity", [1]),
        ("granularity", [0.999]),
        ("granularity", [float("nan")]),
        ("granularity", ["3/2"]),
        ("granularity", ["1/0"]),
        ("granularity", ["1/1000"]),
        ("granularity", ["half"]),
        ("granularity", [0.5] * 65),
        ("order", []),
        ("order", ["C"]),
        ("order", ["N", "N"]),
        ("order", "N"),
        ("split_cycle", 1),
    ],
)
def test_what_is_no_split_is_refused_by_name(option: str, value: object) -> None:
    with pytest.raises(RequestError) as caught:
        parse_options({option: value})
    assert caught.value.code == "invalid_option"
    assert option in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    "values",
    [
        {"split": "top-down", "granularity": ["1/2", "3/4"]},
        pytest.param({"split": "bottom-up"}, marks=pytest.mark.full),
    ],
)
def test_a_network_compiles_with_each_split(values: dict[str, object]) -> None:
    compiled = plan_model(light_source("squeezenet"), builtin_profile("cluster4x4"), parse_options(values))
    totals = compiled.plan.totals
    assert totals.dram_bytes_floor <= totals.dram_bytes <= totals.dram_bytes_reference
