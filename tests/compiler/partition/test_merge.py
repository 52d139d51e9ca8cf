"""Merging of neighbours (PART-4): the worked example G-2, each strategy's rules, and brute force."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.partition.merge import (
    MERGE_STRATEGIES,
    Load,
    Merged,
    MergeLimits,
    MergeStrategy,
    Run,
    merge_chain,
    merge_for_chips,
)

NO_LIMITS = MergeLimits()


@dataclass(frozen=True, kw_only=True)
class Example:
    """A chain named by letters, with the runs that do not compile."""

    names: str
    failing: frozenset[str]

    def merge(self, strategy: MergeStrategy, limits: MergeLimits = NO_LIMITS, loads: Sequence[int] = ()) -> Merged:
        """The chain merged; `loads` are MACs, 1 each if not given."""
        macs = loads or [1] * len(self.names)
        members = [Load(macs=count, weight_bytes=1, vector_nodes=1) for count in macs]
        return merge_chain(members, lambda b, e: self.names[b:e] not in self.failing, strategy, limits)

    def runs(self, merged: Merged) -> list[str]:
        """The runs by their letters."""
        return [self.names[begin:end] for begin, end in merged.runs]

    def tried(self, merged: Merged) -> list[str]:
        """What was tried, by letters, with a mark on what failed."""
        return [self.names[s.begin : s.end] + ("" if s.compiled else "!") for s in merged.steps]


def example(names: str, *failing: str) -> Example:
    return Example(names=names, failing=frozenset(failing))


# -- the worked example -------------------------------------------------------------------------------------------


def test_forward_merges_h_with_i_and_j_with_k() -> None:
    """G-2."""
    chain = example("hijklm")
    merged = chain.merge("forward")
    assert chain.tried(merged)[:2] == ["hi", "jk"]
    assert chain.runs(merged)[:2] == ["hi", "jk"]


def test_forward_goes_on_with_i_and_j_where_h_and_i_fail() -> None:
    """G-2."""
    chain = example("hijklm", "hi")
    merged = chain.merge("forward")
    assert chain.tried(merged)[:2] == ["hi!", "ij"]
    assert chain.runs(merged)[:2] == ["h", "ij"]


def test_bidirectional_tries_the_front_then_the_back_then_the_middle() -> None:
    """G-2."""
    chain = example("hijklm")
    merged = chain.merge("bidirectional")
    assert chain.tried(merged) == ["hi", "lm", "jk"]
    assert chain.runs(merged) == ["hi", "jk", "lm"]


def test_bidirectional_goes_on_with_k_and_l_where_l_and_m_fail() -> None:
    """G-2."""
    chain = example("hijklm", "lm")
    merged = chain.merge("bidirectional")
    assert chain.tried(merged) == ["hi", "lm!", "kl"]
    assert chain.runs(merged) == ["hi", "j", "kl", "m"]


def test_pairwise_leaves_both_of_a_failing_pair() -> None:
    """G-2."""
    chain = example("ab", "ab")
    assert chain.runs(chain.merge("pairwise")) == ["a", "b"]


@pytest.mark.parametrize("strategy", ["thresholds", "forward-greedy"])
def test_regrouping_tries_d_and_e_and_leaves_f_alone(strategy: MergeStrategy) -> None:
    """G-2."""
    chain = example("def", "def")
    merged = chain.merge(strategy)
    assert sorted(chain.tried(merged)) == ["de", "def!"]
    assert chain.runs(merged) == ["de", "f"]


# -- each strategy ------------------------------------------------------------------------------------------------


def test_pairwise_takes_disjoint_pairs_and_never_pairs_across_a_failure() -> None:
    """PART-4: 1+2, 3+4, ..."""
    chain = example("abcde", "ab")
    merged = chain.merge("pairwise")
    assert chain.tried(merged) == ["ab!", "cd"]
    assert chain.runs(merged) == ["a", "b", "cd", "e"]


def test_thresholds_take_the_longest_run_within_the_maximum() -> None:
    """PART-4."""
    chain = example("abcdef")
    merged = chain.merge("thresholds", MergeLimits(max_macs=5), [1, 2, 2, 4, 2, 1])
    assert chain.runs(merged) == ["abc", "d", "ef"]
    assert chain.tried(merged) == ["abc", "ef"]


def test_thresholds_leave_a_run_below_the_minimum_single() -> None:
    """PART-4."""
    chain = example("abcd")
    merged = chain.merge("thresholds", MergeLimits(min_macs=4, max_macs=6), [1, 2, 5, 1])
    assert chain.runs(merged) == ["a", "b", "cd"]


def test_thresholds_go_on_behind_the_first_of_a_run_below_the_minimum() -> None:
    """PART-4: a+b is too small, a+b+c too large, b+c is neither."""
    chain = example("abc")
    merged = chain.merge("thresholds", MergeLimits(min_macs=8, max_macs=10), [1, 2, 8])
    assert chain.runs(merged) == ["a", "bc"]


def test_thresholds_regroup_down_to_two_and_leave_all_others_single() -> None:
    """PART-4."""
    chain = example("abcdef", "abcd", "abc")
    merged = chain.merge("thresholds", MergeLimits(max_macs=4))
    assert chain.tried(merged) == ["abcd!", "abc!", "ab", "ef"]
    assert chain.runs(merged) == ["ab", "c", "d", "ef"]


def test_thresholds_do_not_regroup_below_the_minimum() -> None:
    """PART-4: each sum lies within [min, max]."""
    chain = example("abcd", "abcd")
    merged = chain.merge("thresholds", MergeLimits(min_macs=4))
    assert chain.tried(merged) == ["abcd!"]
    assert chain.runs(merged) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("resource", ["macs", "weight_bytes", "vector_nodes"])
def test_thresholds_bound_each_resource(resource: str) -> None:
    """PART-4."""
    small = Load(macs=1, weight_bytes=1, vector_nodes=1)
    large = replace(small, **{resource: 3})

    def runs(**limits: int) -> tuple[Run, ...]:
        return merge_chain([large, small, small], lambda *_: True, "thresholds", MergeLimits(**limits)).runs

    assert runs(**{f"max_{resource}": 5}) == ((0, 3),)
    assert runs(**{f"max_{resource}": 4}) == ((0, 2), (2, 3))
    assert runs(**{f"max_{resource}": 3}) == ((0, 1), (1, 3))
    assert runs(**{f"min_{resource}": 5}) == ((0, 3),)
    assert runs(**{f"min_{resource}": 6}) == ((0, 1), (1, 2), (2, 3))


def test_forward_stops_at_two_and_the_last_one_may_stay_alone() -> None:
    """PART-4: the scan continues after a target segment."""
    chain = example("abcde")
    assert chain.runs(chain.merge("forward")) == ["ab", "cd", "e"]


def test_forward_greedy_grows_until_a_run_fails_and_goes_on_with_the_one_left_out() -> None:
    """PART-4."""
    chain = example("abcdefg", "abcd")
    merged = chain.merge("forward-greedy")
    assert chain.tried(merged) == ["ab", "abc", "abcd!", "de", "def", "defg"]
    assert chain.runs(merged) == ["abc", "defg"]


def test_bidirectional_scans_take_turns_where_everything_fails() -> None:
    """PART-4: both scans at once."""
    chain = example("abcde", "ab", "bc", "cd", "de")
    merged = chain.merge("bidirectional")
    assert chain.tried(merged) == ["ab!", "de!", "bc!", "cd!"]
    assert chain.runs(merged) == ["a", "b", "c", "d", "e"]


def test_optimal_takes_fewer_runs_than_the_greedy_scan() -> None:
    """PART-4: forward-greedy spends b on a, although c and d need it."""
    chain = example("abcd", "abc", "abcd", "cd")
    assert chain.runs(chain.merge("forward-greedy")) == ["ab", "c", "d"]
    assert chain.runs(chain.merge("optimal")) == ["a", "bcd"]


def test_optimal_balances_the_largest_share_of_the_chain() -> None:
    """PART-4: of two runs, those with the smaller largest share."""
    chain = example("abcd", "abcd")
    assert chain.runs(chain.merge("optimal", loads=[2, 1, 1, 2])) == ["ab", "cd"]
    assert chain.runs(chain.merge("optimal", loads=[1, 1, 1, 9])) == ["abc", "d"]


def test_optimal_halves_a_chain_whose_loads_tell_nothing_apart() -> None:
    """Members without work: one at a time cut off would have every attempt lowered nearly whole."""
    merged = merge_chain(
        [Load(macs=0, weight_bytes=0, vector_nodes=0)] * 6, lambda b, e: e - b < 6, "optimal", NO_LIMITS
    )
    assert merged.runs == ((0, 3), (3, 6))


def test_optimal_balances_the_scarcest_resource() -> None:
    """PART-4: weights are a larger share of the chain's than MACs."""
    loads = [Load(macs=m, weight_bytes=w, vector_nodes=0) for m, w in ((2, 1), (2, 1), (2, 4))]
    merged = merge_chain(loads, lambda b, e: e - b < 3, "optimal", NO_LIMITS)
    assert merged.runs == ((0, 2), (2, 3))


def test_optimal_finds_a_run_that_compiles_although_its_parts_do_not() -> None:
    """PART-4: nothing is inferred from other runs."""
    chain = example("abcd", "ab", "bc", "cd", "abc", "bcd")
    assert chain.runs(chain.merge("optimal")) == ["abcd"]
    assert chain.runs(chain.merge("forward-greedy")) == ["a", "b", "c", "d"]


def test_optimal_tries_one_run_where_the_whole_chain_compiles() -> None:
    """PART-4."""
    chain = example("abcdefgh")
    assert chain.tried(chain.merge("optimal")) == ["abcdefgh"]


@pytest.mark.slow
def test_optimal_gives_up_after_so_many_trials_for_the_greedy_scan() -> None:
    """Each trial is a compilation. A long chain in which only short runs compile would need thousands."""
    loads = [Load(macs=1, weight_bytes=1, vector_nodes=1)] * 80

    def pairs(begin: int, end: int) -> bool:
        return end - begin < 4

    found = merge_chain(loads, pairs, "optimal", NO_LIMITS)
    greedy = merge_chain(loads, pairs, "forward-greedy", NO_LIMITS)
    assert found.runs == greedy.runs
    assert 640 <= len(found.steps) <= 640 + len(greedy.steps)
    several = merge_for_chips(loads, pairs, NO_LIMITS, chips=2, reprograms=False)
    assert len(several.steps) <= 640 + len(greedy.steps)


@pytest.mark.parametrize("strategy", MERGE_STRATEGIES)
def test_a_run_beyond_a_maximum_is_not_tried(strategy: MergeStrategy) -> None:
    """PART-4, SPEC section 13."""
    chain = example("abcd")
    merged = chain.merge(strategy, MergeLimits(max_macs=3), [2, 2, 9, 2])
    assert chain.tried(merged) == []
    assert chain.runs(merged) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("strategy", MERGE_STRATEGIES)
def test_an_empty_chain_and_a_single_member_need_no_trial(strategy: MergeStrategy) -> None:
    assert example("").merge(strategy) == Merged(runs=(), steps=())
    assert example("a").merge(strategy) == Merged(runs=((0, 1),), steps=())


# -- properties ---------------------------------------------------------------------------------------------------

_loads = st.builds(
    Load, macs=st.integers(0, 6), weight_bytes=st.sampled_from([0, 0, 10**12, 3 * 10**12]), vector_nodes=st.just(1)
)
_bound = st.one_of(st.none(), st.integers(0, 20))
_limits = st.builds(
    MergeLimits,
    min_macs=_bound,
    max_macs=_bound,
    max_weight_bytes=st.sampled_from([None, None, 5 * 10**12]),
    min_vector_nodes=st.sampled_from([None, None, 2, 3]),
    max_vector_nodes=st.sampled_from([None, None, 3, 4]),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A random chain, the runs that compile (in no order of inclusion), and limits."""

    loads: tuple[Load, ...]
    good: frozenset[Run]
    limits: MergeLimits

    def merge(self, strategy: MergeStrategy, asked: list[Run] | None = None) -> Merged:
        """The chain merged; what is asked is added to `asked`."""

        def compiles(begin: int, end: int) -> bool:
            if asked is not None:
                asked.append((begin, end))
            return (begin, end) in self.good

        return merge_chain(self.loads, compiles, strategy, self.limits)

    def balance(self, runs: Collection[Run]) -> Fraction:
        """The largest share of a run, over resources, in the chain's sums."""
        return max((self._share(run) for run in runs), default=Fraction(0))

    def sums(self, run: Run) -> tuple[int, int, int]:
        """MACs, weight bytes, vector nodes of a run."""
        part = self.loads[run[0] : run[1]]
        return sum(m.macs for m in part), sum(m.weight_bytes for m in part), sum(m.vector_nodes for m in part)

    def _share(self, run: Run) -> Fraction:
        totals = self.sums((0, len(self.loads)))
        return max(Fraction(part, total) for part, total in zip(self.sums(run), totals, strict=True) if total)

    def within_maxima(self, run: Run) -> bool:
        """Whether a run exceeds no maximum."""
        maxima = (self.limits.max_macs, self.limits.max_weight_bytes, self.limits.max_vector_nodes)
        return all(m is None or value <= m for value, m in zip(self.sums(run), maxima, strict=True))

    def within_minima(self, run: Run) -> bool:
        """Whether a run reaches each minimum."""
        minima = (self.limits.min_macs, self.limits.min_weight_bytes, self.limits.min_vector_nodes)
        return all(m is None or value >= m for value, m in zip(self.sums(run), minima, strict=True))


@st.composite
def cases(draw: st.DrawFn, max_size: int = 9) -> Case:
    """Chains of up to `max_size` members."""
    loads = tuple(draw(st.lists(_loads, max_size=max_size)))
    runs = [(b, e) for b in range(len(loads)) for e in range(b + 2, len(loads) + 1)]
    if draw(st.booleans()):
        # what really happens: runs up to some size compile
        capacity = draw(st.integers(1, 12))
        good = {(b, e) for b, e in runs if sum(m.macs + 1 for m in loads[b:e]) <= capacity}
    else:
        good = {run for run in runs if draw(st.integers(0, 9)) < 6}
    return Case(loads=loads, good=frozenset(good), limits=draw(_limits))


def all_covers(size: int) -> Iterator[tuple[Run, ...]]:
    """Every way to cut a chain into runs."""
    for count in range(size):
        for inner in combinations(range(1, size), count):
            yield tuple(pairwise((0, *inner, size)))


@settings(max_examples=300)
@given(cases(), st.sampled_from(MERGE_STRATEGIES))
def test_runs_cover_the_chain_and_each_longer_one_compiles_within_the_limits(
    case: Case, strategy: MergeStrategy
) -> None:
    """PART-4."""
    asked: list[Run] = []
    merged = case.merge(strategy, asked)
    assert [member for run in merged.runs for member in range(*run)] == list(range(len(case.loads)))
    longer = [run for run in merged.runs if run[1] - run[0] > 1]
    assert all(run in case.good and case.within_maxima(run) for run in longer)
    assert strategy != "thresholds" or all(case.within_minima(run) for run in longer)
    assert all(end - begin > 1 and case.within_maxima((begin, end)) for begin, end in asked)
    assert len(set(asked)) == len(asked)
    assert [((s.begin, s.end), s.compiled) for s in merged.steps] == [(run, run in case.good) for run in asked]


@settings(max_examples=300)
@given(cases())
def test_optimal_equals_the_best_of_all_covers(case: Case) -> None:
    """PART-4: the fewest executables, the best balance, the shortest longest run, the first in order.

    Compiling is not monotone.
    """
    size = len(case.loads)
    allowed = [
        runs
        for runs in (all_covers(size) if size else [()])
        if all(run[1] - run[0] == 1 or (run in case.good and case.within_maxima(run)) for run in runs)
    ]
    best = min(
        allowed, key=lambda runs: (len(runs), case.balance(runs), max((e - b for b, e in runs), default=0), runs)
    )
    assert case.merge("optimal").runs == best


@settings(max_examples=150)
@given(cases(max_size=14), st.sampled_from(MERGE_STRATEGIES))
def test_optimal_is_never_worse_than_another_strategy(case: Case, strategy: MergeStrategy) -> None:
    """PART-4."""
    best, other = case.merge("optimal").runs, case.merge(strategy).runs
    assert (len(best), case.balance(best)) <= (len(other), case.balance(other))


@settings(max_examples=150)
@given(cases(), st.sampled_from(MERGE_STRATEGIES), st.data())
def test_a_necessary_condition_spares_trials_and_changes_nothing(
    case: Case, strategy: MergeStrategy, data: st.DataObject
) -> None:
    """PART-4: a bound that no run that compiles exceeds."""
    size = len(case.loads)
    longest = [max((e for b, e in case.good if b == begin), default=begin) for begin in range(size)]
    farthest = [data.draw(st.integers(longest[begin], size)) for begin in range(size)]
    plain = case.merge(strategy)
    spared = merge_chain(
        case.loads,
        lambda begin, end: (begin, end) in case.good,
        strategy,
        case.limits,
        farthest=farthest,
    )
    assert spared.runs == plain.runs
    assert all(step.end <= farthest[step.begin] for step in spared.steps)


# -- several chips ------------------------------------------------------------------------------------------------


def for_chips(cycles: Sequence[int], good: Collection[Run], chips: int, reprograms: bool) -> tuple[Run, ...]:
    """The runs of a chain whose members take so many cycles, a byte between any two, where these runs compile."""
    loads = [Load(macs=1, weight_bytes=1, vector_nodes=1, cycles=count, entering_bytes=1) for count in cycles]
    merged = merge_for_chips(loads, lambda b, e: (b, e) in good, NO_LIMITS, chips=chips, reprograms=reprograms)
    return merged.runs


def up_to(members: int, size: int) -> set[Run]:
    """The runs of two to so many members."""
    return {(b, e) for b in range(size) for e in range(b + 2, min(b + members, size) + 1)}


def test_a_chain_that_one_chip_could_run_is_shared_out() -> None:
    """PART-4: with several chips the slowest one is to take least time, not the executables to be few."""
    everything = up_to(6, 6)
    assert for_chips([1] * 6, everything, 2, True) == ((0, 3), (3, 6))
    assert for_chips([5, 1, 1, 1, 1, 1], everything, 2, True) == ((0, 1), (1, 6))
    assert for_chips([1] * 6, everything, 3, False) == ((0, 2), (2, 4), (4, 6))


def test_a_cut_that_helps_no_chip_is_not_made() -> None:
    """PART-4: then latency, which every cut adds to."""
    everything = up_to(4, 4)
    assert for_chips([9, 1, 1, 1], everything, 3, True) == ((0, 1), (1, 4))
    assert for_chips([0] * 4, everything, 2, True) == ((0, 4),)


def test_between_equal_cuts_the_one_that_fewest_bytes_cross_is_taken() -> None:
    """PART-4: time first, then what has to pass from chip to chip."""
    loads = [
        Load(macs=1, weight_bytes=1, vector_nodes=1, cycles=cycles, entering_bytes=size)
        for cycles, size in ((2, 0), (0, 9), (0, 3), (2, 5))
    ]
    merged = merge_for_chips(loads, lambda *_: True, NO_LIMITS, chips=2, reprograms=True)
    assert merged.runs == ((0, 2), (2, 4))


def test_a_chip_with_one_executable_keeps_its_weights_where_another_cut_would_be_faster() -> None:
    """PART-4, PART-5: 3 and 3 cycles would leave one chip two executables, whose weights come anew for every batch."""
    good = up_to(4, 4) - {(1, 4), (0, 4)}
    assert for_chips([3, 1, 1, 1], good, 2, True) == ((0, 2), (2, 4))
    assert for_chips([3, 1, 1, 1], good, 2, False) == ((0, 1), (1, 2), (2, 4))


@settings(max_examples=300)
@given(cases(max_size=8), st.lists(st.integers(0, 4), min_size=8, max_size=8), st.integers(2, 4), st.booleans())
def test_the_slowest_chip_is_the_least_of_all_deals(
    case: Case, cycles: list[int], chips: int, reprograms: bool
) -> None:
    """PART-4: against every way to give the chips a stretch of the chain each."""
    size = len(case.loads)
    loads = [replace(load, cycles=count) for load, count in zip(case.loads, cycles, strict=False)]
    runs = merge_for_chips(
        loads, lambda b, e: (b, e) in case.good, case.limits, chips=chips, reprograms=reprograms
    ).runs
    assert [member for run in runs for member in range(*run)] == list(range(size))

    def compiles(run: Run) -> bool:
        return run[1] - run[0] == 1 or (run in case.good and case.within_maxima(run))

    def slowest(stretches: Sequence[Run]) -> int:
        return max((sum(cycles[b:e]) for b, e in stretches), default=0)

    def dealt(covers: Collection[Sequence[Run]]) -> int | None:
        return min(map(slowest, covers), default=None)

    assert all(map(compiles, runs))
    deals = [cover for cover in (all_covers(size) if size else [()]) if len(cover) <= chips]
    each = dealt([cover for cover in deals if all(map(compiles, cover))])
    best = dealt(deals)
    if each is not None and (reprograms or each == best):
        assert len(runs) <= chips
        assert slowest(runs) == each
    else:
        # some way to give the runs to the chips in order is as fast as the best deal
        ends = [0, *(end for _, end in runs)]
        assert min(slowest(deal) for deal in deals if all(end in ends for _, end in deal)) == best
