"""What the tiles along one axis make anew, keep and need, against sets of positions (TILE-3)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from compiler.tiling.axis_tiles import AxisTiles, Share, fresh_ranges
from compiler.tiling.geometry import Grid
from compiler.tiling.projection import Projections
from compiler.tiling.sizes import CandidateGrids
from compiler.tiling.tile import HaloMode

RANGES = st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6), st.booleans()), min_size=1, max_size=12)


@given(RANGES)
def test_what_is_new_of_a_range_is_what_no_range_before_it_in_its_run_has(ranges: list[tuple[int, int, bool]]) -> None:
    """Where ranges rise; where they do not, all of each is new."""
    starts = np.array([start for start, _, _ in ranges])
    stops = starts + np.array([length for _, length, _ in ranges])
    begins = np.array([number == 0 or begin for number, (_, _, begin) in enumerate(ranges)])
    first, last, waiting = fresh_ranges(starts, stops, begins)
    runs = np.cumsum(begins)
    filled = [place for place in range(len(ranges)) if stops[place] > starts[place]]
    falls = any(runs[a] == runs[b] and (starts[b] < starts[a] or stops[b] < stops[a]) for a, b in pairwise(filled))
    assert last is stops
    assert (first is starts) == falls
    if falls:
        assert not waiting.any()
        return
    for place in filled:
        before = [other for other in range(place) if runs[other] == runs[place]]
        reached = max((int(stops[other]) for other in before), default=0)
        assert first[place] == max(starts[place], min(reached, stops[place]))
        assert waiting[place] == max(reached - starts[place], 0)


@given(st.integers(1, 40), st.sampled_from((HaloMode.RECOMPUTE, HaloMode.CACHED)), st.data())
def test_figures_of_candidate_sizes_are_those_of_each_size_alone(
    extent: int, mode: HaloMode, data: st.DataObject
) -> None:
    sizes = np.array(sorted(data.draw(st.sets(st.integers(1, extent), min_size=1))))
    grid = Grid.of_sizes(extent, sizes)
    assume(len(grid.starts) > 1)  # an axis that nothing cuts has no figures
    candidates = CandidateGrids(Projections(), {"H": grid}, {"H": mode})
    needed = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(grid.starts), max_size=len(grid.starts))))
    made, waiting = needed // 2, needed % 3
    tiles = AxisTiles(starts=grid.starts, stops=grid.stops, begins=grid.begins, mode=mode)
    column = candidates.column("H", Share(needed, made, waiting, tiles))
    ends = [*grid.offsets[1:].tolist(), len(needed)]
    for number, (begin, end) in enumerate(zip(grid.offsets.tolist(), ends, strict=True)):
        assert column.largest[number] == made[begin:end].max()
        assert column.needed[number] == needed[begin:end].max()
        assert column.kept[number] == (waiting[begin:end].max() if len(waiting) > 1 else 0)
        assert column.total[number] == made[begin:end].sum()
