"""Placement of tiles on units and what they exchange, against hand arithmetic and a map of single elements (TILE-4)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import InternalError
from compiler.ir.box import Ints
from compiler.tiling.placement import (
    Assignment,
    AxisOverlap,
    Placement,
    assign,
    exchange_matrix,
    exchanged_elements,
    mesh_hops,
    pairs,
    unit_grid,
)

PLACEMENTS = st.sampled_from(list(Placement))
COUNTS = st.integers(1, 13)


def letters(assignment: Assignment) -> list[str]:
    """Owners as the specification writes them: A, B, C, D."""
    return ["".join(chr(ord("A") + unit) for unit in row) for row in assignment.owner.tolist()]


def halos(tiles: int, size: int, *, before: int, after: int) -> AxisOverlap:
    """An axis of equal tiles that each need some positions before and after their own, clipped at the border."""
    starts = np.arange(tiles) * size
    needs = (np.maximum(starts - before, 0), np.minimum(starts + size + after, tiles * size))
    return AxisOverlap.of(*needs, starts, starts + size)


@pytest.mark.parametrize(
    ("placement", "owners", "different"),
    [
        (Placement.BANDS, ["AAAA", "BBBB", "CCCC", "DDDD"], 12),
        (Placement.BAND_COLUMNS, ["ABCD"] * 4, 12),
        (Placement.BLOCKS, ["AABB", "AABB", "CCDD", "CCDD"], 8),
        (Placement.QUADRANTS, ["ABBA", "CDDC", "CDDC", "ABBA"], 16),
        (Placement.CHECKERBOARD, ["ABAB", "CDCD", "ABAB", "CDCD"], 24),
        (Placement.ROW_MAJOR, ["ABCD"] * 4, 12),
        (Placement.Z_ORDER, ["AABB", "AABB", "CCDD", "CCDD"], 8),
    ],
)
def test_sixteen_tiles_on_four_cores(placement: Placement, owners: list[str], different: int) -> None:
    """G-10."""
    assignment = assign(placement, 4, 4, 4)
    assert letters(assignment) == owners
    assert sum(pairs(assignment)) == different


def test_bands_walk_their_rows_in_step_and_need_nothing_from_others_to_go_on() -> None:
    """G-10: tile (r, c) is worked on at step c by all four at once."""
    assignment = assign(Placement.BANDS, 4, 4, 4)
    assert assignment.step.tolist() == [[0, 1, 2, 3]] * 4
    assert pairs(assignment) == (0, 12)


def test_columns_walk_downwards() -> None:
    assignment = assign(Placement.BAND_COLUMNS, 3, 2, 2)
    assert assignment.step.tolist() == [[0, 0], [1, 1], [2, 2]]


def test_a_core_walks_its_rows_one_after_another() -> None:
    assert assign(Placement.BANDS, 4, 3, 2).step.tolist() == [[0, 1, 2], [3, 4, 5]] * 2


def test_blocks_are_walked_from_top_left_to_bottom_right() -> None:
    assert assign(Placement.BLOCKS, 4, 4, 4).step.tolist() == [[0, 1, 0, 1], [2, 3, 2, 3]] * 2


def test_one_repetition_of_the_unit_grid_is_one_step() -> None:
    for placement in (Placement.QUADRANTS, Placement.CHECKERBOARD):
        step = assign(placement, 4, 4, 4).step.tolist()
        assert step == [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]


def test_rows_are_mirrored_on_a_grid_of_other_than_two() -> None:
    """Six units as 2 x 3: 0 1 2 2 1 0 0 along a row."""
    assert letters(assign(Placement.QUADRANTS, 4, 7, 6)) == ["ABCCBAA", "DEFFEDD", "DEFFEDD", "ABCCBAA"]


def test_z_order_cuts_the_morton_order_into_equal_runs() -> None:
    """The order of 2 x 4: (0,0) (0,1) (1,0) (1,1) (0,2) (0,3) (1,2) (1,3); three units get 3, 3 and 2."""
    assignment = assign(Placement.Z_ORDER, 2, 4, 3)
    assert letters(assignment) == ["AABB", "ABCC"]
    assert assignment.step.tolist() == [[0, 1, 1, 2], [2, 0, 0, 1]]


def test_row_major_deals_round_robin() -> None:
    assignment = assign(Placement.ROW_MAJOR, 2, 3, 4)
    assert letters(assignment) == ["ABC", "DAB"]
    assert assignment.step.tolist() == [[0, 0, 0], [0, 1, 1]]


@pytest.mark.parametrize(
    ("rows", "columns", "units", "shape"),
    [
        (4, 4, 4, (2, 2)),
        (8, 8, 8, (2, 4)),
        (2, 100, 6, (1, 6)),  # 2 x 3 would load 34 as well, but have a border of 100 columns
        (100, 2, 6, (6, 1)),
        (16, 1, 4, (4, 1)),
        (9, 9, 7, (1, 7)),
    ],
)
def test_units_are_arranged_to_suit_the_tile_grid(rows: int, columns: int, units: int, shape: tuple[int, int]) -> None:
    assert unit_grid(rows, columns, units) == shape


@pytest.mark.parametrize(("rows", "columns", "units"), [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_grid_without_tiles_or_units_is_refused(rows: int, columns: int, units: int) -> None:
    with pytest.raises(InternalError, match="needs tiles and units"):
        assign(Placement.BANDS, rows, columns, units)


@given(PLACEMENTS, COUNTS, COUNTS, COUNTS)
def test_every_tile_has_one_owner_that_works_on_it_alone_at_its_step(
    placement: Placement, rows: int, columns: int, units: int
) -> None:
    assignment = assign(placement, rows, columns, units)
    assert assignment.owner.shape == assignment.step.shape == (rows, columns)
    assert 0 <= int(assignment.owner.min()) <= int(assignment.owner.max()) < units
    visits = list(zip(assignment.owner.ravel().tolist(), assignment.step.ravel().tolist(), strict=True))
    assert len(set(visits)) == rows * columns
    assert int(assignment.loads.sum()) == rows * columns
    # nobody waits longer than the busiest unit works
    assert assignment.steps == int(assignment.loads.max())
    assert int(assignment.step.min()) == 0


@given(PLACEMENTS, COUNTS, COUNTS, COUNTS)
def test_loads_differ_by_no_more_than_the_scheme_states(
    placement: Placement, rows: int, columns: int, units: int
) -> None:
    a, b = unit_grid(rows, columns, units)
    stated = {
        Placement.BANDS: (-(-rows // units) - rows // units) * columns,
        Placement.BAND_COLUMNS: (-(-columns // units) - columns // units) * rows,
        Placement.ROW_MAJOR: min(1, rows * columns % units),
        Placement.Z_ORDER: min(1, rows * columns % units),
    }.get(placement, -(-rows // a) * -(-columns // b) - (rows // a) * (columns // b))
    loads = assign(placement, rows, columns, units).loads
    assert int(loads.max() - loads.min()) == stated


@given(COUNTS, COUNTS, COUNTS)
def test_bands_and_blocks_are_contiguous(rows: int, columns: int, units: int) -> None:
    """Each unit's part is the whole of its bounding box."""
    for placement in (Placement.BANDS, Placement.BAND_COLUMNS, Placement.BLOCKS):
        owner = assign(placement, rows, columns, units).owner
        for unit in np.unique(owner):
            row, column = np.nonzero(owner == unit)
            assert len(row) == (np.ptp(row) + 1) * (np.ptp(column) + 1)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_tiles_of_adjacent_repetitions_have_one_owner_in_quadrants(a: int, b: int, down: int, right: int) -> None:
    """TILE-4: mirrored, so that a border between repetitions costs nothing."""
    rows, columns, units = a * down, b * right, a * b
    owner = assign(Placement.QUADRANTS, rows, columns, units).owner
    a, b = unit_grid(rows, columns, units)
    assert bool((owner[a::a] == owner[a - 1 : -1 : a]).all())
    assert bool((owner[:, b::b] == owner[:, b - 1 : -1 : b]).all())


@pytest.mark.parametrize(
    ("placement", "elements"),
    [
        # 4 x 4 tiles of 8 x 8, kernel 3 x 3: a neighbouring pair of different owners passes 8 elements each way, a
        # diagonal pair 1 each way. There are 24 neighbouring pairs (G-10) and 2 diagonal ones in each of the 9
        # squares of four tiles.
        # bands, columns, row-major: 12 pairs; all 18 diagonals lead to another row (column): 12·16 + 18·2
        (Placement.BANDS, 228),
        (Placement.BAND_COLUMNS, 228),
        (Placement.ROW_MAJOR, 228),
        # blocks, z-order: 8 pairs; 4 of the 9 squares lie inside a block, so 10 diagonals: 8·16 + 10·2
        (Placement.BLOCKS, 148),
        (Placement.Z_ORDER, 148),
        # quadrants: 16 pairs; only the square D D / D D in the middle has equal diagonals: 16·16 + 16·2
        (Placement.QUADRANTS, 288),
        # checkerboard: everything differs: 24·16 + 18·2
        (Placement.CHECKERBOARD, 420),
    ],
)
def test_halos_of_a_convolution_exchanged_by_each_placement(placement: Placement, elements: int) -> None:
    """TILE-4 on G-10's grid."""
    axis = halos(4, 8, before=1, after=1)
    assert exchanged_elements(assign(placement, 4, 4, 4), axis, axis) == elements


def test_a_halo_in_one_direction_costs_half() -> None:
    """Bands of 8 rows x 32 columns, 2 rows needed of the band above: 3 borders x 2 x 32 elements."""
    assignment = assign(Placement.BANDS, 4, 4, 4)
    rows, columns = halos(4, 8, before=2, after=0), halos(4, 8, before=0, after=0)
    assert exchanged_elements(assignment, rows, columns) == 3 * 2 * 32


def test_a_halo_longer_than_a_tile_comes_from_every_tile_that_it_covers() -> None:
    """Tiles of 2 rows that need 5 rows before: of (2, 2, 1) where there are as many; one column of 3 elements."""
    assignment = assign(Placement.BANDS, 4, 1, 4)
    matrix = exchange_matrix(assignment, halos(4, 2, before=5, after=0), halos(1, 3, before=0, after=0))
    assert matrix.tolist() == [[6, 6, 6, 3], [0, 6, 6, 6], [0, 0, 6, 6], [0, 0, 0, 6]]


def test_what_passes_far_over_a_mesh_counts_each_link() -> None:
    """Units 0 1 / 2 3: from 0 to 3 and from 1 to 2 are two links, to a neighbour one."""
    matrix = np.array([[9, 1, 10, 100], [0, 9, 1000, 0], [0, 0, 9, 0], [0, 0, 0, 9]])
    assert mesh_hops(matrix, 2) == 1 + 10 + 2 * 100 + 2 * 1000
    assert mesh_hops(matrix, 4) == 1 + 2 * 10 + 3 * 100 + 1000


def test_with_fewer_rows_than_units_the_last_units_are_idle() -> None:
    assert assign(Placement.BANDS, 2, 3, 5).loads.tolist() == [3, 3, 0, 0, 0]
    assert assign(Placement.Z_ORDER, 1, 2, 3).loads.tolist() == [1, 1, 0]


def test_only_tiles_that_something_is_needed_of_are_passed_over() -> None:
    """Ranges that only touch do not overlap."""
    assert [halos(9, 4, before=count, after=count).reach for count in (0, 1, 4, 5)] == [1, 3, 3, 5]


def test_overlaps_of_another_grid_are_refused() -> None:
    axis = halos(3, 8, before=1, after=1)
    with pytest.raises(InternalError, match="not of this tile grid"):
        exchanged_elements(assign(Placement.BANDS, 4, 4, 4), axis, axis)


def test_tiles_that_make_the_same_positions_are_refused() -> None:
    starts = np.array([0, 3])
    with pytest.raises(InternalError, match="disjoint"):
        AxisOverlap.of(starts, starts + 4, starts, starts + 4)


Ranges = tuple[Ints, Ints, Ints, Ints]


@st.composite
def axes(draw: st.DrawFn) -> Ranges:
    """Needed and made ranges of up to six tiles: gaps, empty ranges and needs far over the neighbours included."""
    tiles = draw(st.integers(1, 6))
    bounds = sorted(draw(st.lists(st.integers(0, 14), min_size=2 * tiles, max_size=2 * tiles)))
    made_starts, made_stops = np.array(bounds[::2]), np.array(bounds[1::2])
    # a tile that makes nothing may stand anywhere
    empty = made_stops == made_starts
    made_starts, made_stops = np.where(empty, 0, made_starts), np.where(empty, 0, made_stops)
    needs = [draw(st.tuples(st.integers(0, 15), st.integers(0, 15))) for _ in range(tiles)]
    # one that ends before it begins is empty; most are made to need something
    needs = [need if draw(st.integers(0, 5)) == 0 else (min(need), max(need)) for need in needs]
    return np.array([need[0] for need in needs]), np.array([need[1] for need in needs]), made_starts, made_stops


def by_element(assignment: Assignment, rows: Ranges, columns: Ranges) -> list[list[int]]:
    """The exchange matrix by asking for each element of each tile's need who made it."""
    makers: dict[tuple[int, int], int] = {}
    tiles = [(i, k) for i in range(assignment.rows) for k in range(assignment.columns)]
    for i, k in tiles:
        for y in range(int(rows[2][i]), int(rows[3][i])):
            for x in range(int(columns[2][k]), int(columns[3][k])):
                makers[y, x] = int(assignment.owner[i, k])
    matrix = [[0] * assignment.units for _ in range(assignment.units)]
    for i, k in tiles:
        for y in range(int(rows[0][i]), int(rows[1][i])):
            for x in range(int(columns[0][k]), int(columns[1][k])):
                if (y, x) in makers:
                    matrix[makers[y, x]][int(assignment.owner[i, k])] += 1
    return matrix


@given(PLACEMENTS, axes(), axes(), st.integers(1, 5))
def test_exchanged_elements_are_those_that_another_unit_made(
    placement: Placement, rows: Ranges, columns: Ranges, units: int
) -> None:
    """Against a map of single elements; few units take the pass per unit, many the pass per hop."""
    assignment = assign(placement, len(rows[0]), len(columns[0]), units)
    expected = by_element(assignment, rows, columns)
    overlaps = AxisOverlap.of(*rows), AxisOverlap.of(*columns)
    assert exchange_matrix(assignment, *overlaps).tolist() == expected
    outside = sum(sum(line) for line in expected) - sum(expected[unit][unit] for unit in range(units))
    assert exchanged_elements(assignment, *overlaps) == outside


def test_needs_that_reach_over_everything_take_the_other_way_to_the_same_sum() -> None:
    """Every tile needs the whole plane: all but what its own unit made."""
    axis = halos(40, 3, before=120, after=120)
    assignment = assign(Placement.QUADRANTS, 40, 40, 4)
    assert axis.reach**2 > 8 * assignment.units
    assert exchanged_elements(assignment, axis, axis) == 1600 * (120 * 120) * 3 // 4
