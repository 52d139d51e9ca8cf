"""Tile grids: every position of an axis is covered exactly once, whatever the sizes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from compiler.tiling.geometry import Grid
from compiler.tiling.sizes import ALL_SIZES_UP_TO, candidate_sizes, part_sizes


def coverage(grid: Grid, candidate: int) -> list[int]:
    """How often each position is covered by one candidate's ranges."""
    end = int(grid.offsets[candidate + 1]) if candidate + 1 < len(grid.offsets) else len(grid.starts)
    counts = [0] * grid.extent
    for start, stop in zip(
        grid.starts[grid.offsets[candidate] : end], grid.stops[grid.offsets[candidate] : end], strict=True
    ):
        for position in range(int(start), int(stop)):
            counts[position] += 1
    return counts


@given(st.integers(1, 60), st.lists(st.integers(1, 60), min_size=1, max_size=5))
def test_tiles_of_each_size_cover_each_position_once(extent: int, sizes: list[int]) -> None:
    """TILE-1: rectangular tiles, clipped at the border."""
    wanted = np.array(sorted({min(size, extent) for size in sizes}))
    grid = Grid.of_sizes(extent, wanted)
    for candidate, size in enumerate(wanted):
        assert coverage(grid, candidate) == [1] * extent
        begin = int(grid.offsets[candidate])
        end = begin + -(-extent // int(size))
        assert int((grid.stops - grid.starts)[begin:end].max()) == size


@given(st.integers(1, 60), st.data())
def test_core_tiles_cover_each_position_of_their_tiles_once(extent: int, data: st.DataObject) -> None:
    """Core tiles never cross the end of their SRAM tile."""
    tile = data.draw(st.integers(1, extent))
    sizes = np.array(sorted(data.draw(st.sets(st.integers(1, tile), min_size=1, max_size=4))))
    grid = Grid.nested(extent, tile, sizes)
    assert bool((grid.starts <= grid.stops).all())
    for candidate in range(len(sizes)):
        assert coverage(grid, candidate) == [1] * extent
    filled = grid.stops > grid.starts
    assert bool((grid.starts[filled] // tile == (grid.stops[filled] - 1) // tile).all())


@given(st.integers(1, 2000))
def test_candidates_contain_every_near_equal_cut(extent: int) -> None:
    """FUSE-S4: up to 512 parts; below that, sizes halve."""
    sizes = set(candidate_sizes(extent).tolist())
    assert all(-(-extent // parts) in sizes for parts in range(1, min(extent, 512) + 1))
    assert min(sizes) == 1
    assert max(sizes) == extent


@given(st.integers(1, 5000))
def test_part_sizes_are_ascending_and_distinct(extent: int) -> None:
    sizes = part_sizes(extent)
    assert bool((np.diff(sizes) > 0).all())
    assert int(sizes[-1]) == extent


def test_small_axes_try_every_size() -> None:
    """FUSE-S4: exact, so every size of an axis of ordinary extent is a candidate."""
    assert candidate_sizes(ALL_SIZES_UP_TO).tolist() == list(range(1, ALL_SIZES_UP_TO + 1))
