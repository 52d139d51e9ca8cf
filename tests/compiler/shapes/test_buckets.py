"""Buckets by dynamic programming over a histogram (SHAPE-5)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.shapes.buckets import MAX_LENGTHS, bucket_of, choose_buckets, padding_waste

HISTOGRAMS = st.dictionaries(st.integers(1, 40), st.integers(0, 9), min_size=1, max_size=9).filter(
    lambda counts: sum(counts.values()) > 0
)


def best_waste(counts: dict[int, int], buckets: int) -> float:
    """The least waste of all choices of boundaries, written out."""
    lengths = sorted(length for length, count in counts.items() if count)
    every: list[Sequence[int]] = [
        (*inner, lengths[-1])
        for number in range(min(buckets, len(lengths)))
        for inner in combinations(lengths[:-1], number)
    ]
    return min(padding_waste(counts, boundaries) for boundaries in every)


@given(HISTOGRAMS, st.sampled_from((1, 2, 3, 4, 8, 16)))
def test_no_boundaries_waste_less(counts: dict[int, int], buckets: int) -> None:
    boundaries = choose_buckets(counts, buckets)
    assert len(boundaries) <= buckets
    assert list(boundaries) == sorted(set(boundaries))
    assert padding_waste(counts, boundaries) == best_waste(counts, buckets)


@pytest.mark.parametrize(("buckets", "most"), [(1, 0.999), (4, 0.25), (8, 0.125), (16, 0.061)])
def test_uniform_lengths_waste_what_they_must(buckets: int, most: float) -> None:
    """Lengths 1 to 512, equally often; one bucket pads to 512, which nearly doubles the work."""
    counts = dict.fromkeys(range(1, 513), 1)
    boundaries = choose_buckets(counts, buckets)
    assert len(boundaries) == buckets
    assert padding_waste(counts, boundaries) <= most


def test_a_given_cost_decides_where_boundaries_lie() -> None:
    """Costs of whole sixteens: nothing is gained by a boundary within one."""
    counts = dict.fromkeys(range(1, 33), 1)
    assert choose_buckets(counts, 8, lambda length: -(-length // 16)) == (16, 32)
    assert choose_buckets(counts, 1, lambda length: -(-length // 16)) == (32,)


def test_as_many_buckets_as_lengths_waste_nothing() -> None:
    counts = {3: 5, 9: 1, 200: 2}
    assert choose_buckets(counts, 16) == (3, 9, 200)
    assert padding_waste(counts, (3, 9, 200)) == 0


def test_a_length_is_served_by_the_next_boundary() -> None:
    assert [bucket_of(length, (4, 9)) for length in (1, 4, 5, 9)] == [4, 4, 9, 9]
    with pytest.raises(RequestError, match="above all buckets"):
        bucket_of(10, (4, 9))


def test_nothing_to_choose_and_too_much_are_refused() -> None:
    for counts, buckets in (({}, 4), ({3: 0}, 4), ({3: 1}, 0), ({-1: 1}, 1)):
        with pytest.raises(RequestError, match="nothing to choose"):
            choose_buckets(counts, buckets)
    with pytest.raises(LimitError, match="too many lengths"):
        choose_buckets(dict.fromkeys(range(MAX_LENGTHS + 1), 1), 2)
