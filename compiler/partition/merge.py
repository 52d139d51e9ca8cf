"""Merging of neighbours in a chain of segments that compile: which runs become one executable (PART-4).

Members are numbered 0..n-1; a run is a half-open range of them. Each strategy is one function that reads as the SPEC
words it. What they have in common:

- A run of more than one member is proposed only within the maxima; `thresholds` alone knows minima. A member that is
  too large by itself stays, as a run of one.
- Whether a run compiles is asked at most once, of singles never, and nothing is inferred from other runs: a run may
  compile although a part of it does not.
- A run of three or more that fails is regrouped: its last member is left out, then the next, down to two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Final, Literal, assert_never, get_args

import numpy as np
from numpy.typing import NDArray

Run = tuple[int, int]
Compiles = Callable[[int, int], bool]
MergeStrategy = Literal["pairwise", "thresholds", "forward", "forward-greedy", "bidirectional", "optimal"]
MERGE_STRATEGIES: Final[tuple[MergeStrategy, ...]] = get_args(MergeStrategy)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one member asks of the accelerator; no figure is negative."""

    macs: int
    weight_bytes: int
    vector_nodes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeLimits:
    """Bounds on the sums of a run of more than one member, both inclusive; None where there is none (SPEC section 13).

    The maxima hold for every strategy, the minima for `thresholds`.
    """

    min_macs: int | None = None
    max_macs: int | None = None
    min_weight_bytes: int | None = None
    max_weight_bytes: int | None = None
    min_vector_nodes: int | None = None
    max_vector_nodes: int | None = None

    def allow(self, first: Load, second: Load) -> bool:
        """Whether two members together keep the maxima."""
        pairs = (
            (first.macs + second.macs, self.max_macs),
            (first.weight_bytes + second.weight_bytes, self.max_weight_bytes),
            (first.vector_nodes + second.vector_nodes, self.max_vector_nodes),
        )
        return all(limit is None or amount <= limit for amount, limit in pairs)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeStep:
    """A run that was compiled on trial, members `begin` to `end` (half-open), and whether it succeeded."""

    begin: int
    end: int
    compiled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """The runs, which cover the chain in order, and what was tried to find them, in that order."""

    runs: tuple[Run, ...]
    steps: tuple[MergeStep, ...]


def merge_chain(
    loads: Sequence[Load],
    compiles: Compiles,
    strategy: MergeStrategy,
    limits: MergeLimits,
    *,
    may_compile: Compiles | None = None,
) -> Merged:
    """The runs of the chain that become one executable each.

    `compiles(begin, end)` says whether a run of two or more members compiles. `may_compile`, where given, is a cheap
    necessary condition: it spares calls of `compiles` and never changes the result.
    """
    chain = _Chain(loads, compiles, limits, may_compile)
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
            runs = _optimal(chain)
        case _:
            assert_never(strategy)
    return Merged(runs=tuple(runs), steps=chain.steps())


class _Chain:
    """The members' loads under the limits, and what has been tried so far."""

    def __init__(
        self, loads: Sequence[Load], compiles: Compiles, limits: MergeLimits, may_compile: Compiles | None
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
        self._compiles = compiles
        self._may_compile = may_compile
        self._compiled: dict[Run, bool] = {}

    def load(self, begin: int, end: int) -> list[int]:
        """The run's sums: MACs, weight bytes, vector nodes."""
        return [sums[end] - sums[begin] for sums in self._sums]

    def below_maxima(self, begin: int, end: int) -> bool:
        """Whether no sum of the run exceeds its maximum; if one does, so does that of every longer run."""
        return all(m is None or v <= m for v, m in zip(self.load(begin, end), self._maxima, strict=True))

    def above_minima(self, begin: int, end: int) -> bool:
        """Whether no sum of the run falls below its minimum."""
        return all(m is None or v >= m for v, m in zip(self.load(begin, end), self._minima, strict=True))

    def may_merge(self, begin: int, end: int) -> bool:
        """Whether nothing known beforehand speaks against the run."""
        if end - begin == 1:
            return True
        return self.below_maxima(begin, end) and (self._may_compile is None or self._may_compile(begin, end))

    def merges(self, begin: int, end: int) -> bool:
        """Whether the run lies within the maxima and compiles; compiled on trial the first time it is asked."""
        if end - begin == 1:
            return True
        known = self._compiled.get((begin, end))
        if known is None:
            if not self.may_merge(begin, end):
                return False
            known = self._compiled[begin, end] = self._compiles(begin, end)
        return known

    def steps(self) -> tuple[MergeStep, ...]:
        """The trials so far, in order."""
        return tuple(MergeStep(begin=b, end=e, compiled=compiled) for (b, e), compiled in self._compiled.items())


def _singles(begin: int, end: int) -> list[Run]:
    return [(member, member + 1) for member in range(begin, end)]


def _pairwise(chain: _Chain) -> list[Run]:
    """Disjoint pairs of neighbours; a pair that fails leaves both as they are."""
    runs = []
    for begin in range(0, chain.size, 2):
        end = min(begin + 2, chain.size)
        runs += [(begin, end)] if chain.merges(begin, end) else _singles(begin, end)
    return runs


def _thresholds(chain: _Chain) -> list[Run]:
    """From the front, the longest run within the maxima, if it reaches the minima; regrouped if it fails.

    Sums only grow with a run, so where the longest one misses a minimum every shorter one does, and its first member
    stays single.
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
    """The run as far as it compiles within the minima; members left out from its end stay single."""
    kept = end
    while kept - begin > 1 and not (chain.above_minima(begin, kept) and chain.merges(begin, kept)):
        kept -= 1
    return [(begin, kept), *_singles(kept, end)]


def _forward(chain: _Chain) -> list[Run]:
    """Current and next become one and the scan goes on behind them; else current stays and next becomes current."""
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

    Where a run of three or more fails, its last member is left out, which gives the run before it; as in the forward
    scan, the one left out becomes current.
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
    """The forward scan from the front and its mirror from the back, meeting in the middle.

    The scan that has settled fewer members goes next, on a tie the front: after a success at the front and a failure
    at the back, the back tries again, as in G-2.
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


def _optimal(chain: _Chain) -> list[Run]:
    """The fewest runs; of those the best balance; of those the lexicographically first.

    A run's share is the largest, over MACs, weight bytes and vector nodes, of its sum over the chain's; the best
    balance is the smallest largest share, compared exactly. Exact for any outcome of compiling: the best cover is
    computed as if every run not yet tried compiled, its runs are tried, largest share first, and after a failure the
    cover is computed anew. A cover whose runs all compile is then the best of all. Runs that cannot be in such a
    cover are never tried; in the worst case all runs within the maxima are. O(n²) per cover.
    """
    if not chain.size:
        return []
    if chain.merges(0, chain.size):
        return [(0, chain.size)]  # no other cover has so few
    rank = _share_ranks(chain)
    possible = rank >= 0
    while True:
        cover = _best_cover(possible, rank)
        failed = next((run for run in sorted(cover, key=lambda r: (-rank[r], r)) if not chain.merges(*run)), None)
        if failed is None:
            return cover
        possible[failed] = False


def _share_ranks(chain: _Chain) -> NDArray[np.int64]:
    """[begin, end]: the place of the run's share among all shares, ascending, equal for equal ones; -1: ruled out."""
    totals = chain.load(0, chain.size)
    # over one common denominator shares are integers
    weights = [prod(t for other, t in enumerate(totals) if t and other != r) if totals[r] else 0 for r in range(3)]
    shares: dict[Run, int] = {}
    for begin in range(chain.size):
        for end in range(begin + 1, chain.size + 1):
            if end - begin > 1 and not chain.below_maxima(begin, end):
                break
            if chain.may_merge(begin, end):
                shares[begin, end] = max(v * w for v, w in zip(chain.load(begin, end), weights, strict=True))
    place = {share: number for number, share in enumerate(sorted(set(shares.values())))}
    rank = np.full((chain.size, chain.size + 1), -1, dtype=np.int64)
    for run, share in shares.items():
        rank[run] = place[share]
    return rank


def _best_cover(possible: NDArray[np.bool_], rank: NDArray[np.int64]) -> list[Run]:
    """The cover by possible runs with the fewest runs, then the smallest largest rank, then lexicographically first."""
    size = len(possible)
    # of the members from each one on: the fewest runs, and the smallest largest rank with so few
    count = np.zeros(size + 1, dtype=np.int64)
    worst = np.zeros(size + 1, dtype=np.int64)
    for begin in reversed(range(size)):
        ends = np.flatnonzero(possible[begin])
        fewest = count[ends].min()
        ends = ends[count[ends] == fewest]
        count[begin] = fewest + 1
        worst[begin] = np.maximum(rank[begin, ends], worst[ends]).min()
    cover: list[Run] = []
    begin = 0
    while begin < size:
        ends = np.flatnonzero(possible[begin])
        ends = ends[count[ends] == count[begin] - 1]
        end = int(ends[np.maximum(rank[begin, ends], worst[ends]) <= worst[0]][0])
        cover.append((begin, end))
        begin = end
    return cover
