"""Covers of one axis (SHAPE-6)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.shapes.frontier import Frontier, Part, Pieces, cover_cycles
from tests.compiler.shapes.exhaustive import covers

LISTS = st.lists(st.integers(1, 6), min_size=1, max_size=3, unique=True)


@given(LISTS, st.lists(st.integers(0, 30), min_size=12, max_size=12))
def test_a_frontier_has_the_cheapest_cover_of_every_length(extents: list[int], amounts: list[int]) -> None:
    pieces = Pieces.up_to(np.array(extents), 14)
    costs = np.array(amounts[: len(pieces)], dtype=np.float64)
    found = Frontier.build(pieces, costs, np.arange(1, 15))
    whole = dict(zip(pieces.extents.tolist(), costs[: len(pieces.extents)].tolist(), strict=True))
    tails = dict(zip(pieces.tails.tolist(), costs[len(pieces.extents) :].tolist(), strict=True))
    for length in range(1, 15):
        every = [
            sum(tails[cut.length] if cut.is_tail else whole[cut.length] for cut in cover)
            for cover in covers(length, extents)
        ]
        assert found.cycles[length - 1] == min(every)
        cover = found.cover(length - 1)
        assert sum(costs[part.kind] * part.count for part in cover) == min(every)
        end = 0
        for part in cover:
            assert part.start == end
            end = part.start + part.length * part.count
        assert end == length
    assert (cover_cycles(pieces, costs[None], np.arange(1, 15))[0] == found.cycles).all()


def test_longer_pieces_come_first_and_the_tail_last() -> None:
    pieces = Pieces.up_to(np.array([2, 5]), 9)
    costs = np.array([5.0, 2.5, *(9.0,) * 5])
    found = Frontier.build(pieces, costs, np.array([9]))
    assert found.cover(0) == (
        Part(kind=0, start=0, length=5, count=1),
        Part(kind=1, start=5, length=2, count=2),
    )


@pytest.mark.parametrize(
    ("extents", "length", "tails"),
    [([5], 11, [1]), ([16, 32], 40, [8, 24]), ([3, 5], 7, [1, 2, 4]), ([8], 5, [5]), ([4], 8, [4])],
)
def test_only_tails_that_sums_of_extents_leave_are_looked_at(extents: list[int], length: int, tails: list[int]) -> None:
    assert Pieces.of_length(np.array(extents), length).tails.tolist() == tails
