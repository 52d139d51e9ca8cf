"""Merges neighbouring segments of a chain into executables that compile (PART-4).

Members are numbered 0..n-1; a run is a half-open range of them. Each strategy is one function that follows the wording
of the SPEC. Rules for all strategies:

- A run of more than one member is proposed only within the maxima; only `thresholds` uses the minima. A member that is
  too large by itself stays a run of one.
- Each run is compiled at most once, a single member never. The result says nothing about other runs: a run may compile
  although a part of it does not.
- `optimal` is for one chip. For several chips `merge_for_chips` first divides the chain among them. Each trial is a
  compilation; if there are too many trials, the result is that of `forward-greedy`.
- A run of three or more that fails is regrouped: its last member is left out, then the next, down to two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final, Literal, assert_never, get_args

import numpy as np
from numpy.typing import NDArray

Run = tuple[int, int]
Compiles = Callable[[int, int], bool]
MergeStrategy = Literal["pairwise", "thresholds", "forward", "forward-greedy", "bidirectional", "optimal"]
MERGE_STRATEGIES: Final[tuple[MergeStrategy, ...]] = get_args(MergeStrategy)
# The limit of trial compilations of `optimal`: per member of a chain, and in all for a short chain.
_TRIALS_OF_MEMBER: Final = 8
_TRIALS: Final = 256
_Ints = NDArray[np.int64]
_Floats = NDArray[np.float64]
_Possible = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The load of one member on the accelerator; no figure is negative.

    `cycles` is the time to compute it on a chip. `entering_bytes` are the bytes that enter from earlier members if it
    begins a run. Only merging for several chips uses these two.
    """

    macs: int
    weight_bytes: int
    vector_nodes: int
    cycles: float = 0.0
    entering_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Inclusive bounds on the sums of a run of more than one member; None: no bound (SPEC section 13).

    The maxima apply to every strategy, the minima to `thresholds`.
    """

    min_macs: int | None = None
    max_macs: int | None = None
    min_weight_bytes: int | None = None
    max_weight_bytes: int | None = None
    min_vector_nodes: int | None = None
    max_vector_nodes: int | None = None

    def allow(self, first: Load, second: Load) -> bool:
        """Whether two members together stay within the maxima."""
        pairs = (
            (first.macs + second.macs, self.max_macs),
            (first.weight_bytes + second.weight_bytes, self.max_weight_bytes),
            (first.vector_nodes + second.vector_nodes, self.max_vector_nodes),
        )
        return all(limit is None or amount <= limit for amount, limit in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """A trial compilation of the members `begin` to `end` (half-open), and whether it succeeded."""

    begin: int
    end: int
    compiled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The runs, which cover the chain in order, and the trials that found them, in order."""

    runs: tuple[Run, ...]
    steps: tuple[MergeStep, ...]


def merge_chain(
    loads: Sequence[Load],
    compiles: Compiles,
    strategy: MergeStrategy,
    limits: MergeLimits,
    *,
    farthest: Sequence[int] | None = None,
) -> Merged:
    """Merges the members of a chain into runs, one executable each.

    `compiles(begin, end)` returns whether a run of two or more members compiles. `farthest`, if given, is a cheap
    necessary condition: no run from member i compiles beyond farthest[i]. It saves calls of `compiles` and never
    changes the result.
    """
    chain = _Chain(loads, compiles, limits, farthest)
    match strategy:
        case "pairwise":
            runs = _pairwise(chain)
        case "thresholds":
            runs = _thresholds(chain)
        case "forward":
            runs = _forward(chain)
        case "forward-greedy":
            runs = _forward_greedy(chain)
        case "bidirectional":
            runs = _bidirectional(chain)
        case "optimal":
            runs = _within_trials(chain, lambda: _optimal(chain, 0, chain.size))
        case _:
            assert_never(strategy)
    return Merged(runs=tuple(runs), steps=chain.steps())


def merge_for_chips(
    loads: Sequence[Load],
    compiles: Compiles,
    limits: MergeLimits,
    *,
    chips: int,
    reprograms: bool,
    farthest: Sequence[int] | None = None,
) -> Merged:
    """Strategy `optimal` for several chips: each chip gets consecutive members, merged into runs.

    Minimises, in this order: cycles of the slowest chip, bytes between chips, and on each chip the criteria of
    `optimal` for one chip. `reprograms` means that a chip with several executables loads their weights for every batch;
    then one executable per chip is preferred wherever it compiles.
    """
    chain = _Chain(loads, compiles, limits, farthest)
    runs = _within_trials(chain, lambda: _for_chips(chain, chips, reprograms=reprograms))
    return Merged(runs=tuple(runs), steps=chain.steps())


def _for_chips(chain: _Chain, chips: int, *, reprograms: bool) -> list[Run]:
    dealt = _dealt(chain, chips, np.tri(chain.size, chain.size + 1, dtype=np.bool_) == 0)
    alone = _one_run_each(chain, chips)
    if alone is not None and (reprograms or chain.slowest(alone) <= chain.slowest(dealt)):
        return alone
    return [run for stretch in dealt for run in _optimal(chain, *stretch)]


class _TooManyTrialsError(Exception):
    """The search needs more trial compilations than allowed."""


def _within_trials(chain: _Chain, find: Callable[[], list[Run]]) -> list[Run]:
    """The result of `find`, or the runs of `forward-greedy` if `find` needs more trials than allowed."""
    chain.trials_left = max(_TRIALS, _TRIALS_OF_MEMBER * chain.size)
    try:
        return find()
    except _TooManyTrialsError:
        chain.trials_left = None
        return _forward_greedy(chain)


class _Chain:
    """The members' loads, the limits, and the trials so far."""

    def __init__(
        self, loads: Sequence[Load], compiles: Compiles, limits: MergeLimits, farthest: Sequence[int] | None
    ) -> None:
        self.size = len(loads)
        columns = (
            [load.macs for load in loads],
            [load.weight_bytes for load in loads],
            [load.vector_nodes for load in loads],
        )
        self._sums = [list(accumulate(column, initial=0)) for column in columns]
        self._minima = (limits.min_macs, limits.min_weight_bytes, limits.min_vector_nodes)
        self._maxima = (limits.max_macs, limits.max_weight_bytes, limits.max_vector_nodes)
        self._floats = [np.array(sums, dtype=np.float64) for sums in self._sums]
        self.cycles: _Floats = np.array([0.0, *accumulate(load.cycles for load in loads)], dtype=np.float64)
        self.entering: _Ints = np.array([*(load.entering_bytes for load in loads), 0], dtype=np.int64)
        self._compiles = compiles
        self._compiled: dict[Run, bool] = {}
        self.trials_left: int | None = None
        self._reach = [self._farthest(begin, farthest) for begin in range(self.size)]

    def load(self, begin: int, end: int) -> list[int]:
        """The run's sums: MACs, weight bytes, vector nodes."""
        return [sums[end] - sums[begin] for sums in self._sums]

    def below_maxima(self, begin: int, end: int) -> bool:
        """Whether no sum of the run exceeds its maximum; if one does, longer runs exceed it too."""
        return all(m is None or v <= m for v, m in zip(self.load(begin, end), self._maxima, strict=True))

    def above_minima(self, begin: int, end: int) -> bool:
        """Whether no sum of the run falls below its minimum."""
        return all(m is None or v >= m for v, m in zip(self.load(begin, end), self._minima, strict=True))

    def merges(self, begin: int, end: int) -> bool:
        """Whether the run lies within the maxima and compiles; the first call compiles it on trial."""
        if end - begin == 1:
            return True
        known = self._compiled.get((begin, end))
        if known is None:
            if end > self._reach[begin]:
                return False
            if self.trials_left is not None:
                if not self.trials_left:
                    raise _TooManyTrialsError
                self.trials_left -= 1
            known = self._compiled[begin, end] = self._compiles(begin, end)
        return known

    def possible(self, begin: int, end: int) -> _Possible:
        """[i, j]: whether the run from i to j, within a stretch, may still compile by everything known so far."""
        table = np.zeros((self.size, self.size + 1), dtype=np.bool_)
        for first in range(begin, end):
            table[first, first + 1 : min(self._reach[first], end) + 1] = True
        return table

    def shares(self, begin: int, ends: _Ints, within: Run) -> _Floats:
        """The largest share of a stretch's MACs, weight bytes and vector nodes, for runs from `begin`."""
        found = np.zeros(len(ends))
        for sums in self._floats:
            total = sums[within[1]] - sums[within[0]]
            if total:
                found = np.maximum(found, (sums[ends] - sums[begin]) / total)
        return found

    def slowest(self, runs: Sequence[Run]) -> float:
        """The cycles of the longest run."""
        return max((float(self.cycles[end] - self.cycles[begin]) for begin, end in runs), default=0.0)

    def steps(self) -> tuple[MergeStep, ...]:
        """The trials so far, in order."""
        return tuple(MergeStep(begin=b, end=e, compiled=compiled) for (b, e), compiled in self._compiled.items())

    def _farthest(self, begin: int, farthest: Sequence[int] | None) -> int:
        """The latest end of a run from `begin` by the known bounds; a single member is always possible."""
        ends = [self.size if farthest is None else farthest[begin]]
        for sums, maximum in zip(self._sums, self._maxima, strict=True):
            if maximum is not None:
                ends.append(bisect_right(sums, sums[begin] + maximum) - 1)
        return max(begin + 1, min(ends))


def _singles(begin: int, end: int) -> list[Run]:
    return [(member, member + 1) for member in range(begin, end)]


def _pairwise(chain: _Chain) -> list[Run]:
    """Joins disjoint pairs of neighbours; a pair that fails stays two runs."""
    runs = []
    for begin in range(0, chain.size, 2):
        end = min(begin + 2, chain.size)
        runs += [(begin, end)] if chain.merges(begin, end) else _singles(begin, end)
    return runs


def _thresholds(chain: _Chain) -> list[Run]:
    """From the front, takes the longest run within the maxima if it reaches the minima; regroups it if it fails.

    Sums only grow with a run. If the longest run misses a minimum, every shorter one does, and its first member stays
    single.
    """
    runs: list[Run] = []
    begin = 0
    while begin < chain.size:
        end = begin + 1
        while end < chain.size and chain.below_maxima(begin, end + 1):
            end += 1
        if not chain.above_minima(begin, end):
            end = begin + 1
        runs += _regroup(chain, begin, end)
        begin = end
    return runs


def _regroup(chain: _Chain, begin: int, end: int) -> list[Run]:
    """Shortens a run until it compiles within the minima; members left out at its end stay single."""
    kept = end
    while kept - begin > 1 and not (chain.above_minima(begin, kept) and chain.merges(begin, kept)):
        kept -= 1
    return [(begin, kept), *_singles(kept, end)]


def _forward(chain: _Chain) -> list[Run]:
    """Joins current and next and goes on behind them; if that fails, current stays alone and next becomes current."""
    runs: list[Run] = []
    begin = 0
    while begin < chain.size:
        end = min(begin + 2, chain.size)
        if not chain.merges(begin, end):
            end = begin + 1
        runs.append((begin, end))
        begin = end
    return runs


def _forward_greedy(chain: _Chain) -> list[Run]:
    """As forward, but a run that compiles keeps growing.

    If a run of three or more fails, its last member is left out, which gives the run before it. As in the forward scan,
    that member becomes current.
    """
    runs: list[Run] = []
    begin = 0
    while begin < chain.size:
        end = begin + 1
        while end < chain.size and chain.merges(begin, end + 1):
            end += 1
        runs.append((begin, end))
        begin = end
    return runs


def _bidirectional(chain: _Chain) -> list[Run]:
    """Scans forward from the front and mirrored from the back; the two meet in the middle.

    The scan that has settled fewer members goes next, the front on a tie: after a success at the front and a failure at
    the back, the back tries again, as in G-2.
    """
    front: list[Run] = []
    back: list[Run] = []
    low, high = 0, chain.size
    while low < high:
        if low <= chain.size - high:
            end = min(low + 2, high)
            if not chain.merges(low, end):
                end = low + 1
            front.append((low, end))
            low = end
        else:
            begin = max(high - 2, low)
            if not chain.merges(begin, high):
                begin = high - 1
            back.append((begin, high))
            high = begin
    return front + back[::-1]


def _optimal(chain: _Chain, begin: int, end: int) -> list[Run]:
    """The fewest runs of a stretch; on ties the best balance, then the shortest longest run, then the first in order.

    A run's share is its largest share of the stretch's MACs, weight bytes or vector nodes; the best balance has the
    smallest largest share. Exact for any outcome of compiling: the best cover is computed as if every untried run
    compiled, and its runs are tried, largest share first. After a failure the cover is computed again. A cover whose
    runs all compile is the best one. Runs that cannot be in such a cover are never tried; in the worst case all runs
    within the maxima are. O(n²) per cover.
    """
    if begin == end or chain.merges(begin, end):
        return [(begin, end)] if begin < end else []  # no other cover has so few runs
    possible = chain.possible(begin, end)
    while True:
        cover = _best_cover(chain, begin, end, possible)
        largest = [-float(chain.shares(b, np.array([e]), (begin, end))[0]) for b, e in cover]
        failed = _first_failure(chain, [run for _, run in sorted(zip(largest, cover, strict=True))])
        if failed is None:
            return cover
        possible[failed] = False


def _first_failure(chain: _Chain, runs: Sequence[Run]) -> Run | None:
    """The first run that does not compile."""
    return next((run for run in runs if not chain.merges(*run)), None)


def _best_cover(chain: _Chain, begin: int, end: int, possible: _Possible) -> list[Run]:
    """The cover with the fewest runs, all possible; then the smallest largest share; then the shortest longest run.

    The run length decides where loads are equal (members without work); then the lexicographically first cover wins.
    """
    shares = np.full((end + 1, end + 1), np.inf)
    lengths = np.full((end + 1, end + 1), np.inf)
    for first in range(begin, end):
        ends = np.flatnonzero(possible[first, : end + 1])
        shares[first, ends] = chain.shares(first, ends, (begin, end))
        lengths[first, ends] = ends - first
    worst = _least_largest(shares, begin, end)
    lengths[shares > worst] = np.inf
    longest = _least_largest(lengths, begin, end)
    return _fewest(lengths <= longest, begin, end)


def _least_largest(measure: _Floats, begin: int, end: int) -> float:
    """The smallest largest measure of a cover with the fewest runs; measure[i, j] is infinite if impossible."""
    count, largest = np.full(end + 1, end + 1, dtype=np.int64), np.zeros(end + 1)
    count[end] = 0
    for first in reversed(range(begin, end)):
        ends = np.flatnonzero(np.isfinite(measure[first]))
        least = min(count[ends], default=end + 1)
        ends = ends[count[ends] == least]
        count[first] = 1 + least
        largest[first] = np.maximum(measure[first, ends], largest[ends]).min(initial=np.inf)
    return float(largest[begin])


def _fewest(allowed: _Possible, begin: int, end: int) -> list[Run]:
    """The lexicographically first cover with the fewest runs, all of them allowed."""
    count = np.full(end + 1, end + 1, dtype=np.int64)
    count[end] = 0
    for first in reversed(range(begin, end)):
        count[first] = 1 + min(count[np.flatnonzero(allowed[first])], default=end + 1)
    cover: list[Run] = []
    first = begin
    while first < end:
        ends = np.flatnonzero(allowed[first])
        last = int(ends[count[ends] == count[first] - 1][0])
        cover.append((first, last))
        first = last
    return cover


def _one_run_each(chain: _Chain, chips: int) -> list[Run] | None:
    """The best runs, at most one per chip, that all compile, tried as in `_optimal`; None if there are none."""
    possible = chain.possible(0, chain.size)
    while True:
        cover = _dealt(chain, chips, possible)
        if not cover:
            return None
        failed = _first_failure(chain, sorted(cover, key=lambda run: (-chain.slowest([run]), run)))
        if failed is None:
            return cover
        possible[failed] = False


def _dealt(chain: _Chain, chips: int, possible: _Possible) -> list[Run]:
    """Divides the chain into at most `chips` stretches, all of them possible; empty if there is no such way.

    Minimises the cycles of the longest stretch, then the bytes between stretches, then their number; then takes the
    lexicographically first. Exact, by dynamic programming from the back: O(chips · n²).
    """
    size = chain.size
    ends = [np.flatnonzero(row) for row in possible]
    # least[c][i]: the smallest largest cycles of the members from i on, in at most c stretches
    least = [np.full(size + 1, np.inf)]
    least[0][size] = 0.0
    for _ in range(chips):
        lengths = [
            np.maximum(chain.cycles[to] - chain.cycles[begin], least[-1][to]).min(initial=np.inf)
            for begin, to in enumerate(ends)
        ]
        least.append(np.array([*lengths, 0.0]))
    bound = least[chips][0]
    if not np.isfinite(bound):
        return []
    ends = [to[chain.cycles[to] - chain.cycles[begin] <= bound] for begin, to in enumerate(ends)]
    # an additional stretch costs less than one byte
    price = np.where(np.arange(size + 1) < size, chain.entering.astype(np.float64) * (chips + 1) + 1, 0.0)
    behind = [np.where(np.arange(size + 1) < size, np.inf, 0.0)]
    for _ in range(chips):
        amounts = [(price[to] + behind[-1][to]).min(initial=np.inf) for to in ends]
        behind.append(np.array([*amounts, 0.0]))
    cover: list[Run] = []
    begin = 0
    for left in range(chips - 1, -1, -1):
        if begin < size:
            to = ends[begin]
            end = int(to[np.argmin(price[to] + behind[left][to])])
            cover.append((begin, end))
            begin = end
    return cover
