"""In how many rounds units get through tiles whose halos pass between them (TILE-3, TILE-4)."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.profile import builtin_profile
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.traffic import traffic_of
from compiler.tiling.turns import rounds_in_turn, rounds_of_runs
from tests.compiler.tiling.tilings import group_of_all, tiled
from tests.models import Model


def test_units_of_one_tile_each_work_at_the_same_time() -> None:
    assert rounds_in_turn([0, 1, 2], [[1], [2], []]) == [0, 0, 0]


def test_units_that_wait_for_whole_tiles_work_one_after_another() -> None:
    assert rounds_in_turn([0, 1, 2], [[1], [2], []], by_tile=True) == [0, 1, 2]
    assert rounds_in_turn([0, 0, 1, 1], [[1], [2], [3], []], by_tile=True) == [0, 1, 2, 3]


def test_a_unit_begins_when_the_one_before_it_is_at_the_last_tile_of_its_run() -> None:
    assert rounds_in_turn([0, 0, 0, 1, 1, 1], [[1], [2], [3], [4], [5], []]) == [0, 1, 2, 2, 3, 4]


def test_a_unit_does_not_send_before_the_next_one_is_done_with_what_came_before() -> None:
    """Unit 0 has the first row of both images, unit 1 the others: it needs what waits until its image is done."""
    owners = [0, 1, 1, 1, 0, 1, 1, 1]
    later = [[1], [2], [3], [], [5], [6], [7], []]
    assert rounds_in_turn(owners, later) == [0, 0, 1, 2, 3, 3, 4, 5]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3), st.booleans()), min_size=1, max_size=3),
    st.booleans(),
)
def test_runs_take_as_many_rounds_as_their_tiles_worked_out_one_by_one(
    counts: list[tuple[int, int, bool]], by_tile: bool
) -> None:
    counts = [(tiles, units if passes else 1, passes) for tiles, units, passes in counts]
    indices = list(product(*(range(tiles * units) for tiles, units, _ in counts)))
    ranks = {index: rank for rank, index in enumerate(indices)}
    parts = [tuple(i // tiles for i, (tiles, _, _) in zip(index, counts, strict=True)) for index in indices]
    unit = {part: number for number, part in enumerate(sorted(set(parts)))}
    later = [
        [
            ranks[after]
            for axis, (_, _, passes) in enumerate(counts)
            if passes and (after := (*index[:axis], index[axis] + 1, *index[axis + 1 :])) in ranks
        ]
        for index in indices
    ]
    one_by_one = rounds_in_turn([unit[part] for part in parts], later, by_tile=by_tile)
    assert rounds_of_runs(counts, by_tile=by_tile) == max(one_by_one) + 1


@pytest.mark.parametrize(
    ("mode", "walk", "rounds"),
    [
        (HaloMode.CACHED, ("H", "W"), 12),
        (HaloMode.EXCHANGE, ("H", "W"), 12 + 2 * 4),
        (HaloMode.EXCHANGE, ("W", "H"), 12 + 2),
    ],
)
def test_bands_of_several_tiles_wait_for_the_halos_that_pass_between_them(
    mode: HaloMode, walk: tuple[str, ...], rounds: int
) -> None:
    """Two units of 3 x 4 tiles: the second begins at the end of the first one's rows, or of its first column."""
    model = Model()
    model.output(model.conv(model.input([1, 2, 12, 16], "x"), 2, 2))
    _, geometry = group_of_all(model)
    group = tiled(geometry, {"H": 2, "W": 4}, mode, units=2, spread=Spread.BANDS, walk=walk)
    assert group.walk.rounds == rounds
    assert group.walk.share == pytest.approx(min(1.0, rounds / 24))


def test_placements_that_interleave_wait_as_their_tiles_do_one_by_one() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 2, 8, 8], "x"), 2, 2))
    _, geometry = group_of_all(model)
    how: dict[str, Any] = {"units": 4, "spread": Spread.BANDS, "placement": Placement.CHECKERBOARD}
    group = tiled(geometry, {"H": 2, "W": 2}, HaloMode.EXCHANGE, **how)
    assert 4 < group.walk.rounds < 16
    assert tiled(geometry, {"H": 2, "W": 2}, HaloMode.RECOMPUTE, **how).walk.rounds == 4


def test_a_tile_of_several_core_tiles_keeps_the_next_unit_waiting_for_all_of_them() -> None:
    """The last core tile of one unit makes the halo of the first one of the next: the price knows it."""
    model = Model()
    model.output(model.conv(model.conv(model.input([1, 16, 32, 8], "x"), 16, 16), 16, 16))
    _, geometry = group_of_all(model)
    profile = builtin_profile("cluster4x4")
    how: dict[str, Any] = {"units": 4, "spread": Spread.BANDS, "cores": 4, "core_spread": Spread.CHANNELS}

    def cycles(mode: HaloMode, core: int) -> int:
        group = tiled(geometry, {"H": 8}, mode, profile=profile, core={"C": 16, "N": 1, "H": core, "W": 8}, **how)
        return sum(step.compute_cycles for step in traffic_of(group).steps)

    assert cycles(HaloMode.EXCHANGE, 4) > 3 * cycles(HaloMode.EXCHANGE, 8)
    assert cycles(HaloMode.CACHED, 4) < 2 * cycles(HaloMode.CACHED, 8)
