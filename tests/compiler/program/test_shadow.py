"""Shadows of memories: which accesses are known not to meet without a look at their words (PROG-4)."""

from __future__ import annotations

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.program.shadow import Shadow, Window, are_apart

_SIZE = 4096


def shadow() -> Shadow:
    """A memory whose words are bytes."""
    words = np.full(_SIZE, -1, dtype=np.int32)
    return Shadow(name="memory", begin=0, word_bytes=1, writers=words, readers={})


def bytes_of(low: int, counts: list[int], strides: list[int]) -> set[int]:
    """All bytes of an access."""
    return {
        low + sum(i * stride for i, stride in zip(place, strides, strict=True))
        for place in product(*(range(count) for count in counts))
    }


def access(draw: st.DrawFn) -> tuple[int, list[int], list[int]]:
    """First byte, counts and strides, the run last."""
    dims = draw(st.integers(0, 2))
    counts = [draw(st.integers(1, 4)) for _ in range(dims)]
    strides = [draw(st.sampled_from((1, 4, 6, 8, 12, 24))) for _ in range(dims)]
    return draw(st.integers(0, 60)), [*counts, draw(st.integers(1, 10))], [*strides, 1]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_accesses_that_are_apart_share_no_byte(data: st.DataObject) -> None:
    one, other = (data.draw(st.composite(access)()) for _ in range(2))
    memory = shadow()
    if are_apart(memory.window(*one), memory.window(*other)):
        assert not bytes_of(*one) & bytes_of(*other)


def test_channels_of_the_same_positions_are_apart() -> None:
    memory = shadow()

    def channels(first: int, count: int) -> Window:
        return memory.window(first, [7, 5, count], [480, 64, 1])

    # 480 and 64 have 32 in common: of each position's 32 bytes, the first 16 and the last 16
    assert are_apart(channels(0, 16), channels(16, 16))
    assert not are_apart(channels(0, 17), channels(16, 16))
    assert not are_apart(channels(0, 16), channels(0, 16))
