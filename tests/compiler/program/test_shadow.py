"""Which accesses are known not to meet without a look at their words (PROG-4)."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.program.meetings import Extents

# First byte, counts and strides, the run last.
Access = tuple[int, list[int], list[int]]


def are_apart(one: Access, other: Access) -> bool:
    """What is said of two accesses."""
    width = max(len(one[1]), len(other[1]))
    fill = [width - len(access[1]) for access in (one, other)]
    extents = Extents.of(
        np.array([one[0], other[0]]),
        np.array([[1] * more + access[1] for more, access in zip(fill, (one, other), strict=True)]),
        np.array([[0] * more + access[2] for more, access in zip(fill, (one, other), strict=True)]),
    )
    first, second = np.array([0]), np.array([1])
    apart = bool(extents.are_apart(first, second)[0])
    assert apart == bool(extents.are_apart(second, first)[0])
    assert not (apart and extents.meet(first, second)[0])
    return apart


def bytes_of(low: int, counts: list[int], strides: list[int]) -> set[int]:
    """All bytes of an access."""
    return {
        low + sum(i * stride for i, stride in zip(place, strides, strict=True))
        for place in product(*(range(count) for count in counts))
    }


def access(draw: st.DrawFn) -> Access:
    """First byte, counts and strides, the run last."""
    dims = draw(st.integers(0, 2))
    counts = [draw(st.integers(1, 4)) for _ in range(dims)]
    strides = [draw(st.sampled_from((1, 4, 6, 8, 12, 24))) for _ in range(dims)]
    return draw(st.integers(0, 60)), [*counts, draw(st.integers(1, 10))], [*strides, 1]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_accesses_that_are_apart_share_no_byte(data: st.DataObject) -> None:
    one, other = (data.draw(st.composite(access)()) for _ in range(2))
    if are_apart(one, other):
        assert not bytes_of(*one) & bytes_of(*other)


def test_channels_of_the_same_positions_are_apart() -> None:
    def channels(first: int, count: int) -> Access:
        return first, [7, 5, count], [480, 64, 1]

    # 480 and 64 have 32 in common: of each position's 32 bytes, the first 16 and the last 16
    assert are_apart(channels(0, 16), channels(16, 16))
    assert not are_apart(channels(0, 17), channels(16, 16))
    assert not are_apart(channels(0, 16), channels(0, 16))
