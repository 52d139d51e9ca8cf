"""Boxes and axis maps: the arithmetic everything else stands on (TILE-1)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ir.box import WHOLE, AxisMap, hull, same, shifted, window

# Maps as ops make them: identity, window, slice or concatenation, resize, grouped channels, space-to-depth.
MAPS = st.one_of(
    st.just(WHOLE),
    st.builds(
        window,
        st.just(0),
        kernel=st.integers(1, 5),
        stride=st.integers(1, 4),
        dilation=st.integers(1, 3),
        pad=st.integers(0, 4),
    ),
    st.builds(shifted, st.just(0), st.integers(-6, 6)),
    st.builds(AxisMap, axis=st.just(0), divisor=st.integers(1, 5)),
    st.builds(AxisMap, axis=st.just(0), divisor=st.integers(1, 5), block=st.integers(1, 5)),
    st.builds(AxisMap, axis=st.just(0), block=st.integers(1, 5)),
)
RANGES = st.tuples(st.integers(0, 20), st.integers(0, 20)).map(lambda pair: (min(pair), max(pair)))


def one(axis_map: AxisMap, start: int, stop: int, extent: int) -> tuple[int, int]:
    """A single range through the array form."""
    begin, end = axis_map.project(np.array([start]), np.array([stop]), extent)
    return int(begin[0]), int(end[0])


@given(MAPS.filter(lambda axis_map: axis_map.axis is not None), RANGES, st.integers(1, 30))
def test_no_range_is_longer_than_the_longest_and_that_of_nothing_is_nothing(
    axis_map: AxisMap, ranges: tuple[int, int], extent: int
) -> None:
    begin, end = one(axis_map, *ranges, extent)
    assert end - begin <= axis_map.longest(ranges[1] - ranges[0])
    assert axis_map.longest(0) == 0


@given(MAPS, RANGES, st.integers(1, 30))
def test_projecting_one_range_equals_projecting_an_array(
    axis_map: AxisMap, ranges: tuple[int, int], extent: int
) -> None:
    assert axis_map.project_one(*ranges, extent) == one(axis_map, *ranges, extent)


@given(MAPS, RANGES, RANGES, st.integers(1, 30))
def test_projection_is_monotone(axis_map: AxisMap, outer: tuple[int, int], inner: tuple[int, int], extent: int) -> None:
    inner = (max(outer[0], inner[0]), min(outer[1], inner[1]))
    small, large = one(axis_map, *inner, extent), one(axis_map, *outer, extent)
    assert small[0] >= small[1] or (large[0] <= small[0] and small[1] <= large[1])


@given(MAPS, st.integers(0, 20), st.integers(1, 8), st.integers(1, 8), st.integers(1, 30))
def test_projection_of_a_union_is_the_hull_of_projections(
    axis_map: AxisMap, begin: int, first: int, second: int, extent: int
) -> None:
    a, b = (begin, begin + first), (begin + first, begin + first + second)
    starts, stops = hull(
        axis_map.project(np.array([a[0]]), np.array([a[1]]), extent),
        axis_map.project(np.array([b[0]]), np.array([b[1]]), extent),
    )
    assert (int(starts[0]), int(stops[0])) == one(axis_map, a[0], b[1], extent)


@given(MAPS, RANGES, st.integers(1, 30))
def test_projection_stays_inside_the_input_and_empty_stays_empty(
    axis_map: AxisMap, ranges: tuple[int, int], extent: int
) -> None:
    begin, end = one(axis_map, *ranges, extent)
    assert 0 <= begin <= end <= extent
    if ranges[0] == ranges[1]:
        assert begin == end


@given(MAPS, RANGES, st.integers(1, 30))
def test_longest_bounds_every_projected_range(axis_map: AxisMap, ranges: tuple[int, int], extent: int) -> None:
    begin, end = one(axis_map, *ranges, extent)
    if axis_map.axis is not None and ranges[0] < ranges[1]:
        assert end - begin <= axis_map.longest(ranges[1] - ranges[0])


@given(
    kernel=st.integers(1, 5),
    stride=st.integers(1, 4),
    dilation=st.integers(1, 3),
    pad=st.integers(0, 3),
    ranges=RANGES,
    extent=st.integers(1, 25),
)
def test_window_needs_exactly_the_hull_of_its_taps(
    kernel: int, stride: int, dilation: int, pad: int, ranges: tuple[int, int], extent: int
) -> None:
    taps = [
        position
        for o in range(*ranges)
        for k in range(kernel)
        if 0 <= (position := o * stride + k * dilation - pad) < extent
    ]
    box = one(window(0, kernel=kernel, stride=stride, dilation=dilation, pad=pad), *ranges, extent)
    if dilation == 1 and kernel >= stride:
        assert box == ((min(taps), max(taps) + 1) if taps else (0, 0))
    else:  # windows with gaps: taps in the padding leave the range a little wide at the border
        assert all(box[0] <= position < box[1] for position in taps)


def test_two_3x3_convolutions_need_3x3_and_5x5_for_one_element() -> None:
    """G-4: maps 7 -> 5 -> 3."""
    layer = window(0, kernel=3, stride=1, dilation=1, pad=0)
    for o in range(3):
        middle = one(layer, o, o + 1, 5)
        first = one(layer, *middle, 7)
        assert (middle[1] - middle[0], first[1] - first[0]) == (3, 5)


@pytest.mark.parametrize(("side", "shared"), [(5, 20), (3, 6)])
def test_horizontally_neighbouring_windows_share_a_halo(side: int, shared: int) -> None:
    """G-4: 5×5 windows one step apart share 20 elements, 3×3 ones 6."""
    layer = window(0, kernel=side, stride=1, dilation=1, pad=0)
    left, right = one(layer, 0, 1, 7), one(layer, 1, 2, 7)
    overlap = min(left[1], right[1]) - max(left[0], right[0])
    assert overlap * side == shared


def test_a_box_at_the_border_is_clipped_not_padded() -> None:
    """TILE-1: clipping belongs to the box."""
    layer = window(0, kernel=3, stride=1, dilation=1, pad=1)
    assert one(layer, 0, 1, 10) == (0, 2)
    assert one(layer, 9, 10, 10) == (8, 10)


def test_hull_ignores_empty_ranges() -> None:
    a = (np.array([3, 0]), np.array([3, 4]))
    b = (np.array([5, 2]), np.array([7, 2]))
    starts, stops = hull(a, b)
    assert starts.tolist() == [5, 0]
    assert stops.tolist() == [7, 4]


def test_identity_map_hands_the_ranges_on_unchanged() -> None:
    starts, stops = np.array([1, 4]), np.array([4, 6])
    begin, end = same(0).project(starts, stops, 6)
    assert begin is starts
    assert end is stops
