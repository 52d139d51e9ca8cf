"""The least partition of a network into single-output groups, by dynamic programming over post-dominators (FUSE-O).

Call an op *materialised* if its result leaves its group. In a partition into single-output groups every group has one
such op, its output, and any other op is in the group of all of its consumers; so the materialised ops determine the
partition. Three facts make the search exact on every directed acyclic graph, series-parallel or not:

1. Every partition into single-output groups is made of convex groups that can run one after another. Each member of a
   group reaches the output, so an edge from one group to another means a path from output to output.
2. An op that is not materialised is in the group of its immediate post-dominator, together with all ops between the
   two. Follow any path from the op: all ops up to the first materialised one are in its group, and that one is the
   group's output, so all paths meet there. Conversely, a set of materialised ops that for no other op holds anything
   strictly between it and its immediate post-dominator gives such a partition. An op that some path leads out of the
   network from before all paths meet has the sink as post-dominator and is always materialised.
3. If op w is materialised, the ops that w post-dominates are grouped independently of all others. What lies between
   one of these and its post-dominator is one of them; and an op outside that needs one of them in its group needs w
   there as well.

So with F(w) the least cost of all ops post-dominated by w, w materialised,

    F(w) = min over groups G with output w of cost(G) + sum of F(u) over the frontier of G,

where the frontier are the ops outside G whose immediate post-dominator is inside. The whole costs the sum of F over
the ops whose post-dominator is the sink. Groups with output w are connected parts of the post-dominator tree, rooted
at w, that contain with an op all between it and its parent; `single_output.py` enumerates them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf, isclose
from typing import Final, Generic, TypeVar

from compiler.errors import InternalError
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import bits
from compiler.fusion.single_output import single_output_groups

# What the caller's prices are: numbers, or something with several parts (bytes, cycles, energy).
PriceT = TypeVar("PriceT")

# Two ways to add the same floating-point numbers differ by less than this.
_ROUNDING: Final = 1e-9


class Candidate(Generic[PriceT]):
    """A group that one output may have, the outputs that it then needs, and what is known of its price."""

    __slots__ = ("_low", "_shape", "frontier", "is_exact", "price")

    def __init__(self, group: int, frontier: int, floor: PriceT) -> None:
        # groups are small and far from op 0: kept from their first op on
        self._low = (group & -group).bit_length() - 1
        self._shape = group >> self._low
        self.frontier = tuple(bits(frontier))
        self.price: PriceT | None = floor
        self.is_exact = False

    @property
    def group(self) -> int:
        """The ops as a bit set."""
        return self._shape << self._low

    def __lt__(self, other: Candidate[PriceT]) -> bool:
        return self.group < other.group


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition(Generic[PriceT]):
    """A partition: groups with their prices, each after the groups that it reads from, and the value they sum up to."""

    groups: tuple[int, ...]
    prices: tuple[PriceT, ...]
    value: float


class Partitions(Generic[PriceT]):
    """All partitions of a network into single-output groups, as a space in which one asks for the least.

    `floor` is a lower bound of a group's price and cheap; `price` is exact and expensive, None refuses the group.
    Both have to be functions of the group alone; no group is priced twice. `may_grow` and `limit` bound the groups of
    each op as in `single_output_groups`. All groups are enumerated here, at once: time and memory are proportional to
    their number (`size`), some 300 bytes each.
    """

    def __init__(
        self,
        tree: PostDominators,
        floor: Callable[[int], PriceT | None],
        price: Callable[[int], PriceT | None],
        may_grow: Callable[[int], bool],
        limit: int,
    ) -> None:
        """`floor` None: the group is refused without being priced."""
        self.tree = tree
        self.priced = 0
        self._price = price
        candidates: dict[int, tuple[Candidate[PriceT], ...]] = {}
        for op in tree.ops:
            found = []
            for group, frontier in single_output_groups(tree, op, may_grow, limit):
                least = floor(group)
                if least is not None:
                    found.append(Candidate(group, frontier, least))
            candidates[op] = tuple(found)
        self.candidates: Mapping[int, tuple[Candidate[PriceT], ...]] = candidates
        self.size = sum(map(len, candidates.values()))

    def settle(self, candidate: Candidate[PriceT]) -> None:
        """Ask for the exact price of a candidate, unless it is known."""
        if not candidate.is_exact:
            candidate.price = self._price(candidate.group)
            candidate.is_exact = True
            self.priced += 1

    def best(self, value: Callable[[PriceT], float]) -> Partition[PriceT] | None:
        """The partition with the least sum of `value` over its groups; None if every partition has a refused group.

        `value` must not be greater for a floor than for the price above it (InternalError). The answer is that of
        pricing all groups. Ties go to fewer groups, then to the smaller bit set where two partitions first differ,
        compared from the last output to the first; they are recognised where sums are exact, as with integers.

        Few groups are priced: with floors in place of the prices not known yet, the least partition is found, the
        groups in it are priced, and so on until all of its groups have been.
        """
        search = _LazySearch(self, value)
        while (chosen := search.least()) is not None:
            open_ones = [candidate for candidate in chosen if not candidate.is_exact]
            if not open_ones:
                groups = tuple(candidate.group for candidate in chosen)
                prices = tuple(c.price for c in chosen if c.price is not None)
                return Partition(groups=groups, prices=prices, value=sum(map(value, prices)))
            for candidate in open_ones:
                search.settle(candidate)
        return None


def best_partition(
    tree: PostDominators,
    floor: Callable[[int], float],
    price: Callable[[int], float | None],
    may_grow: Callable[[int], bool],
    limit: int,
) -> Partition[float] | None:
    """The partition of least total price, see `Partitions.best`; a floor of infinity refuses a group."""

    def finite(group: int) -> float | None:
        least = floor(group)
        return None if least == inf else least

    return Partitions(tree, finite, price, may_grow, limit).best(lambda known: known)


class _LazySearch(Generic[PriceT]):
    """F(w) from what is known: exact prices, and floors of groups not priced yet.

    Each op has a heap of its candidates by their sum when last looked at. Knowledge only makes sums greater, so the
    first of the heap is the least once its own sum is up to date.
    """

    def __init__(self, space: Partitions[PriceT], value: Callable[[PriceT], float]) -> None:
        self._space = space
        self._value = value
        self._least: dict[int, tuple[float, int]] = {}
        self._heaps: dict[int, list[tuple[float, int, Candidate[PriceT]]]] = {}
        for op, candidates in space.candidates.items():
            heap = self._heaps[op] = [(*self._sum(candidate), candidate) for candidate in candidates]
            heapq.heapify(heap)
            self._least[op] = heap[0][:2] if heap else (inf, 0)
        self._changed: set[int] = set()

    def least(self) -> list[Candidate[PriceT]] | None:
        """The least partition by what is known, its outputs ascending; None if none is left."""
        self._update()
        waiting = list(self._space.tree.roots)
        chosen: list[Candidate[PriceT]] = []
        while waiting:
            op = waiting.pop()
            if self._least[op][0] == inf:
                return None
            candidate = self._heaps[op][0][2]
            chosen.append(candidate)
            waiting.extend(candidate.frontier)
        return sorted(chosen)

    def settle(self, candidate: Candidate[PriceT]) -> None:
        """Price a candidate of the least partition."""
        before = self._of(candidate)
        self._space.settle(candidate)
        after = self._of(candidate)
        if after < before and not isclose(after, before, rel_tol=_ROUNDING):
            raise InternalError("a group costs less than its floor", stage="fusion", actual=after, limit=before)
        self._changed.add(candidate.group.bit_length() - 1)

    def _of(self, candidate: Candidate[PriceT]) -> float:
        return inf if candidate.price is None else self._value(candidate.price)

    def _sum(self, candidate: Candidate[PriceT]) -> tuple[float, int]:
        """Cost and number of groups with this candidate for its output's group."""
        total, groups = self._of(candidate), 1
        for op in candidate.frontier:
            cost, number = self._least[op]
            total += cost
            groups += number
        return total, groups

    def _update(self) -> None:
        """Bring the least of each op up to date; outputs of a frontier come before the group's."""
        changed, self._changed = self._changed, set()
        if not changed:
            return
        for op in self._space.tree.ops:
            heap = self._heaps[op]
            if not heap or (op not in changed and changed.isdisjoint(heap[0][2].frontier)):
                continue
            while (now := self._sum(heap[0][2])) != heap[0][:2]:
                heapq.heapreplace(heap, (*now, heap[0][2]))
            if self._least[op] != heap[0][:2]:
                self._least[op] = heap[0][:2]
                changed.add(op)
