"""Assignment of segments to chips (PART-5): each strategy, its limits, the report, and brute force."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError, LimitError
from compiler.partition.chips import (
    ChipAssignment,
    ChipLoad,
    ChipStrategy,
    HandOver,
    SegmentLoad,
    Traffic,
    assign_chips,
)


def loads(*cycles: int, weight_bytes: int = 1) -> list[SegmentLoad]:
    """Segments of so many cycles and equal weights."""
    return [SegmentLoad(cycles=count, weight_bytes=weight_bytes) for count in cycles]


def hand(producer: int | None, *consumers: int, size: int = 1, to_host: bool = False) -> HandOver:
    """A tensor between segments."""
    return HandOver(producer=producer, consumers=consumers, size_bytes=size, to_host=to_host)


# -- strategies ---------------------------------------------------------------------------------------------------


def test_single_puts_all_segments_on_the_first_chip() -> None:
    """PART-5."""
    assert assign_chips(loads(1, 2, 3), [], [None, None], "single").chip_of == (0, 0, 0)


def test_one_each_puts_every_segment_on_a_chip_of_its_own() -> None:
    """PART-5."""
    assert assign_chips(loads(1, 2, 3), [], [None] * 4, "one-each").chip_of == (0, 1, 2)


def test_one_each_refuses_more_segments_than_chips() -> None:
    """PART-5."""
    with pytest.raises(LimitError, match="more segments than chips") as caught:
        assign_chips(loads(1, 2, 3), [], [None] * 2, "one-each")
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("too_few_chips", 3, 2)


def test_balanced_minimises_the_largest_load() -> None:
    """PART-5."""
    assert assign_chips(loads(3, 1, 1, 3), [], [None] * 2, "balanced").chip_of == (0, 0, 1, 1)
    assert assign_chips(loads(1, 1, 1, 5), [], [None] * 2, "balanced").chip_of == (0, 0, 0, 1)


def test_balanced_holds_for_loads_beyond_all_machine_numbers() -> None:
    """PART-5: a clock may be 10^21 times as fast as its DRAM gives a byte (PROF-2)."""
    segments = loads(3 * 10**30, 10**30, 10**30, 3 * 10**30)
    assert assign_chips(segments, [], [None] * 2, "balanced").chip_of == (0, 0, 1, 1)


def test_balanced_then_minimises_the_bytes_between_chips() -> None:
    """PART-5: the long segment decides the load, the large tensor stays on a chip."""
    tensors = [hand(0, 1, size=9), hand(1, 2, size=2), hand(2, 3, size=5)]
    assert assign_chips(loads(2, 2, 2, 9), tensors, [None] * 3, "balanced").chip_of == (0, 0, 0, 1)
    assert assign_chips(loads(2, 2, 6, 4), tensors, [None] * 3, "balanced").chip_of == (0, 0, 1, 2)
    assert assign_chips(loads(4, 4, 4, 9), tensors, [None] * 3, "balanced").chip_of == (0, 0, 1, 2)


def test_balanced_leaves_chips_idle_where_more_would_not_help() -> None:
    """PART-5: the one long segment decides."""
    assignment = assign_chips(loads(2, 9, 2), [hand(0, 1), hand(1, 2)], [None] * 5, "balanced")
    assert assignment.chip_of == (0, 1, 2)
    assert [load.segments for load in assignment.chips] == [(0,), (1,), (2,), (), ()]


def test_balanced_keeps_within_capacities_at_the_price_of_balance() -> None:
    """PART-5."""
    segments = loads(1, 1, 1, 5, weight_bytes=10)
    assert assign_chips(segments, [], [20, 20], "balanced").chip_of == (0, 0, 1, 1)


def test_balanced_skips_a_chip_that_is_too_small() -> None:
    """PART-5."""
    assert assign_chips(loads(1, 1, weight_bytes=10), [], [10, 5, 10], "balanced").chip_of == (0, 2)


# -- limits -------------------------------------------------------------------------------------------------------


def test_balanced_names_the_chip_that_cannot_hold_what_is_left() -> None:
    """PART-5."""
    with pytest.raises(LimitError, match="the last segments exceed what chip 1 holds") as caught:
        assign_chips(loads(1, 1, 1, 1, 1, weight_bytes=10), [], [20, 25], "balanced")
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("chip_capacity", 30, 25)


def test_balanced_names_the_segment_that_no_chip_holds() -> None:
    """PART-5: the largest chip is named."""
    segments = [*loads(1, weight_bytes=10), *loads(1, weight_bytes=40)]
    with pytest.raises(LimitError, match="segment 1 exceed what chip 1 holds") as caught:
        assign_chips(segments, [], [20, 30], "balanced")
    assert (caught.value.actual, caught.value.limit) == (40, 30)


@pytest.mark.parametrize(("strategy", "chip", "actual"), [("single", 0, 40), ("one-each", 1, 20)])
def test_the_other_strategies_refuse_a_chip_that_is_too_small(strategy: ChipStrategy, chip: int, actual: int) -> None:
    """PART-5."""
    with pytest.raises(LimitError, match=f"chip {chip}") as caught:
        assign_chips(loads(1, 1, weight_bytes=20), [], [30, 10], strategy)
    assert (caught.value.code, caught.value.actual) == ("chip_capacity", actual)


def test_a_segment_that_reads_what_is_made_later_is_refused() -> None:
    with pytest.raises(InternalError, match="made later"):
        assign_chips(loads(1, 1), [hand(1, 0)], [None], "single")


# -- report -------------------------------------------------------------------------------------------------------


def test_the_report_sums_loads_per_chip_and_traffic_per_pair() -> None:
    """PART-5: a tensor goes once to each chip that reads it, and to the host if that reads it."""
    segments = [SegmentLoad(cycles=c, weight_bytes=w) for c, w in ((4, 10), (4, 20), (6, 30), (8, 40))]
    tensors = [
        hand(None, 0, 1, 3, size=100),
        hand(0, 1, size=7),
        hand(1, 2, 3, size=8, to_host=True),
        hand(0, 2, size=1),
        hand(3, size=64, to_host=True),
    ]
    assert assign_chips(segments, tensors, [None] * 3, "balanced") == ChipAssignment(
        chip_of=(0, 0, 1, 2),
        chips=(
            ChipLoad(chip=0, segments=(0, 1), cycles=8, weight_bytes=30),
            ChipLoad(chip=1, segments=(2,), cycles=6, weight_bytes=30),
            ChipLoad(chip=2, segments=(3,), cycles=8, weight_bytes=40),
        ),
        traffic=(
            Traffic(source=None, target=0, size_bytes=100),
            Traffic(source=None, target=2, size_bytes=100),
            Traffic(source=0, target=None, size_bytes=8),
            Traffic(source=0, target=1, size_bytes=9),
            Traffic(source=0, target=2, size_bytes=8),
            Traffic(source=2, target=None, size_bytes=64),
        ),
    )


def test_a_chain_without_segments_leaves_all_chips_idle() -> None:
    for strategy in ("single", "one-each", "balanced"):
        assignment = assign_chips([], [], [5, 5], strategy)
        assert (assignment.chip_of, assignment.traffic) == ((), ())
        assert all(load.segments == () for load in assignment.chips)


# -- brute force --------------------------------------------------------------------------------------------------


def all_mappings(segments: int, chips: int) -> Iterator[tuple[int, ...]]:
    """Every way to give chips contiguous runs in order, some perhaps empty."""
    for inner in combinations_with_replacement(range(segments + 1), chips - 1):
        ends = pairwise((0, *inner, segments))
        yield tuple(chip for chip, (begin, end) in enumerate(ends) for _ in range(begin, end))


def judge(segments: Sequence[SegmentLoad], tensors: Sequence[HandOver], chip_of: tuple[int, ...]) -> tuple[int, int]:
    """Largest load, bytes between chips."""
    cycles = [sum(s.cycles for s, c in zip(segments, chip_of, strict=True) if c == chip) for chip in set(chip_of)]
    moved = 0
    for tensor in tensors:
        if tensor.producer is not None:
            readers = {chip_of[consumer] for consumer in tensor.consumers} - {chip_of[tensor.producer]}
            moved += len(readers) * tensor.size_bytes
    return max(cycles, default=0), moved


@settings(max_examples=300)
@given(st.data())
def test_balanced_equals_the_best_of_all_contiguous_mappings(data: st.DataObject) -> None:
    """PART-5: largest load, then bytes between chips, then lower chips first; refused only where none holds."""
    segments = data.draw(
        st.lists(st.builds(SegmentLoad, cycles=st.integers(0, 6), weight_bytes=st.integers(0, 4)), max_size=7)
    )
    size = len(segments)
    tensors = []
    for producer in [None, *range(size)]:
        later = range(0 if producer is None else producer + 1, size)
        consumers = data.draw(st.lists(st.sampled_from(later), max_size=3)) if later else []
        tensors.append(hand(producer, *consumers, size=data.draw(st.integers(1, 5))))
    capacities = data.draw(
        st.lists(st.one_of(st.none(), st.integers(0, 12), st.integers(6, 12)), min_size=1, max_size=4)
    )
    fitting = [
        chip_of
        for chip_of in all_mappings(size, len(capacities))
        if all(
            capacity is None
            or sum(s.weight_bytes for s, c in zip(segments, chip_of, strict=True) if c == chip) <= capacity
            for chip, capacity in enumerate(capacities)
        )
    ]
    if not fitting:
        with pytest.raises(LimitError) as caught:
            assign_chips(segments, tensors, capacities, "balanced")
        assert isinstance(caught.value.actual, int)
        assert isinstance(caught.value.limit, int)
        assert caught.value.actual > caught.value.limit
        return
    best = min(fitting, key=lambda chip_of: (*judge(segments, tensors, chip_of), chip_of))
    assignment = assign_chips(segments, tensors, capacities, "balanced")
    assert assignment.chip_of == best
    between = sum(t.size_bytes for t in assignment.traffic if t.source is not None and t.target is not None)
    assert (max(load.cycles for load in assignment.chips), between) == judge(segments, tensors, best)
