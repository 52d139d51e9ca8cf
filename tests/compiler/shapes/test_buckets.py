"""Buckets by dynamic programming over a histogram (SHAPE-5)."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.shapes.buckets import MAX_ELEMENTS, Bucket, choose_buckets
from compiler.shapes.cost import Floats


@st.composite
def histograms(draw: st.DrawFn) -> tuple[Floats, list[int]]:
    """Costs of up to seven shapes by up to four tables, and requests for each shape."""
    shapes, tables = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    costs = draw(
        st.lists(st.lists(st.integers(0, 20), min_size=tables, max_size=tables), min_size=shapes, max_size=shapes)
    )
    return np.array(costs, dtype=np.float64), draw(st.lists(st.integers(0, 9), min_size=shapes, max_size=shapes))


def total(costs: Floats, weights: list[int], found: tuple[Bucket, ...]) -> float:
    """What all requests cost, each by the table of its bucket."""
    return sum(weights[n] * float(costs[n, one.table]) for one in found for n in range(one.begin, one.end))


def least(costs: Floats, weights: list[int], buckets: int) -> float:
    """The least cost of all choices of boundaries, written out."""
    shapes = len(costs)
    every = [cut for number in range(min(buckets, shapes)) for cut in combinations(range(1, shapes), number)]
    weighted = costs * np.array(weights)[:, None]
    return min(
        sum(float(weighted[begin:end].sum(axis=0).min()) for begin, end in zip((0, *cut), (*cut, shapes), strict=True))
        for cut in every
    )


@given(histograms(), st.sampled_from((1, 2, 3, 4, 8)))
def test_no_boundaries_cost_less(histogram: tuple[Floats, list[int]], buckets: int) -> None:
    costs, weights = histogram
    found = choose_buckets(costs, weights, buckets)
    assert len(found) <= buckets
    assert [one.begin for one in found] == [0, *(one.end for one in found[:-1])]
    assert found[-1].end == len(costs)
    assert total(costs, weights, found) == pytest.approx(least(costs, weights, buckets))


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(("buckets", "most"), [(1, 0.999), (4, 0.25), (8, 0.125), (16, 0.061)])
def test_uniform_lengths_waste_what_they_must(buckets: int, most: float) -> None:
    """Lengths 1 to 512, equally often, each padded to the length of a table; one bucket nearly doubles the work."""
    lengths = np.arange(1.0, 513.0)
    costs = np.where(lengths >= lengths[:, None], lengths, np.inf)
    found = choose_buckets(costs, [1] * 512, buckets)
    assert len(found) == buckets
    assert total(costs, [1] * 512, found) / lengths.sum() - 1 <= most


def test_of_equal_choices_the_one_with_fewer_buckets_is_taken() -> None:
    """Costs of whole sixteens: nothing is gained by a boundary within one."""
    lengths = np.arange(1, 33)
    costs = np.where(lengths >= lengths[:, None], -(-lengths // 16), np.inf)
    found = choose_buckets(costs, [1] * 32, 8)
    assert [(one.begin, one.end) for one in found] == [(0, 16), (16, 32)]


def test_a_bucket_has_the_table_that_suits_most_of_its_requests() -> None:
    costs = np.array([[1.0, 2.0], [3.0, 1.0]])
    assert choose_buckets(costs, [5, 1], 1) == (Bucket(0, 2, 0),)
    assert choose_buckets(costs, [1, 5], 1) == (Bucket(0, 2, 1),)
    assert choose_buckets(costs, [1, 5], 2) == (Bucket(0, 1, 0), Bucket(1, 2, 1))


def test_nothing_to_choose_and_too_much_are_refused() -> None:
    one = np.ones((1, 1))
    for costs, weights, buckets in ((np.ones((0, 1)), [], 4), (one, [1, 2], 4), (one, [-1], 4), (one, [1], 0)):
        with pytest.raises(RequestError, match="nothing to choose"):
            choose_buckets(costs, weights, buckets)
    with pytest.raises(RequestError, match="no table serves"):
        choose_buckets(np.full((2, 2), np.inf), [1, 1], 2)
    with pytest.raises(LimitError, match="too many shapes"):
        choose_buckets(np.ones((MAX_ELEMENTS // 2, 3)), [1] * (MAX_ELEMENTS // 2), 2)
