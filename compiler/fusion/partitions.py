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

All groups are one table. A price is a vector of figures (bytes, cycles, energy), what is to be least a weighted sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

import numpy as np

from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import GroupList, bits
from compiler.fusion.single_output import single_output_groups

Floats = np.ndarray[Any, np.dtype[np.float64]]
Price = tuple[float, ...]

# Two ways to add the same floating-point numbers differ by less than this.
_ROUNDING: Final = 1e-9
# What finding that a group has no tiling takes of the steps of pricing one that has.
_STEPS_OF_REFUSAL: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition: groups with their prices, each after the groups that it reads from, and the value they sum up to."""

    groups: tuple[int, ...]
    prices: tuple[Price, ...]
    value: float


class Partitions:
    """All partitions of a network into single-output groups, as a space in which one asks for the least.

    `floors` gives lower bounds of groups' prices, [groups, figures], and is cheap; infinity refuses a group. `price` is
    exact and expensive, None refuses the group. Both have to be functions of the group alone; no group is priced twice.
    `may_grow` and `limit` bound the groups of each op as in `single_output_groups`. All groups are enumerated here, at
    once: time and memory are proportional to their number (`size`), some 300 bytes each.

    `priced`: groups priced so far; `spent`: steps that took, by `steps`, asked before. `is_whole`: no op has so many
    groups that some were left out. `is_sound`: no price was below its floor. `known`: by group its figures, exact
    where `is_priced`, else the floor; infinite for refused ones.
    """

    def __init__(
        self,
        tree: PostDominators,
        floors: Callable[[Sequence[int]], Floats],
        price: Callable[[int], Price | None],
        may_grow: Callable[[int], bool],
        limit: int,
        steps: Callable[[int], float] = lambda _group: 1,
    ) -> None:
        self.tree = tree
        self.priced, self.spent = 0, 0.0
        self._price, self._steps = price, steps
        self.groups = GroupList()
        self.begins: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        # rows by group, of outputs that were asked about
        self._rows_of: dict[int, dict[int, int]] = {}
        frontiers: list[int] = []
        places: list[int] = []
        self.place = {op: number for number, op in enumerate(tree.ops)}
        for op in tree.ops:
            self.begins[op] = len(self.groups)
            for group, frontier in single_output_groups(tree, op, may_grow, limit):
                self.groups.append(group)
                frontiers.append(len(places))
                places.extend(self.place[source] for source in bits(frontier))
            self.ends[op] = len(self.groups)
        self.size = len(self.groups)
        self.is_sound = True
        self.is_whole = all(self.ends[op] - self.begins[op] < limit for op in tree.ops)
        self.known: Floats = floors(self.groups)
        self.is_priced = np.asarray(np.isinf(self.known).any(axis=1))
        self._begins = np.array([*frontiers, len(places)], dtype=np.int64)
        self._places = np.array(places, dtype=np.int64)
        ranks = np.empty(self.size, dtype=np.int64)
        # a group's last op decides first
        for op in tree.ops:
            rows = range(self.begins[op], self.ends[op])
            ranks[sorted(rows, key=self.groups.__getitem__)] = rows
        # as `least_of_ops` has it; of equals the group whose bits come first is taken
        begins = np.array([*(self.begins[op] for op in tree.ops), self.size], dtype=np.int64)
        self.table = begins, self._begins, self._places, ranks

    def settle(self, row: int) -> None:
        """Ask for the exact price of the group in a row, unless it is known."""
        if self.is_priced[row]:
            return
        self.is_priced[row] = True
        self.priced += 1
        steps = self._steps(self.groups[row])
        price = self._price(self.groups[row])
        if price is None:
            self.spent += steps * _STEPS_OF_REFUSAL
            self.known[row] = inf
            return
        self.spent += steps
        exact = np.array(price, dtype=np.float64)
        self.is_sound &= not (exact < self.known[row] * (1 - _ROUNDING)).any()
        self.known[row] = exact

    def row_of(self, group: int) -> int | None:
        """The row of a group; None if it is not in the table."""
        output = group.bit_length() - 1
        rows = self._rows_of.get(output)
        if rows is None:
            begin, end = self.begins.get(output, 0), self.ends.get(output, 0)
            rows = self._rows_of[output] = {self.groups[row]: row for row in range(begin, end)}
        return rows.get(group)

    def values(self, weights: Sequence[float], rows: Sequence[int] | None = None) -> Floats:
        """What is known of each group as one number: the weighted sum of its figures, infinite for refused ones."""
        return weighted_rows(self.known if rows is None else self.known[rows], weights)

    def partition(self, rows: Iterable[int], weights: Sequence[float]) -> Partition:
        """The partition of some rows, all priced."""
        ordered = sorted(rows, key=lambda row: self.groups[row])
        prices = tuple(tuple(self.known[row].tolist()) for row in ordered)
        found = Partition(groups=tuple(self.groups[row] for row in ordered), prices=prices, value=0)
        return replace(found, value=weighted(found, weights))

    def frontier(self, row: int) -> list[int]:
        """The outputs that a group in a row needs, as places among the ops."""
        places: list[int] = self._places[self._begins[row] : self._begins[row + 1]].tolist()
        return places


def weighted_rows(figures: Floats, weights: Sequence[float]) -> Floats:
    """Per row of [groups, figures] the weighted sum; infinite where a figure is, also where that has no weight."""
    total = np.zeros(len(figures))
    refused = np.isinf(figures).any(axis=1)
    for number, weight in enumerate(weights):
        if weight:
            total += weight * figures[:, number]
    total[refused] = inf
    return total


class Least:
    """F(w) of all ops for values of the groups."""

    def __init__(self, space: Partitions, values: Floats) -> None:
        # imported where it is used alone: it brings a compiler with it
        from compiler.fusion.kernels import least_of_ops

        count = len(space.tree.ops)
        self._space = space
        # by place: F(w), the number of groups that it takes, and the row of w's own group
        self._least, self._counts = np.zeros(count), np.zeros(count)
        self._chosen = np.empty(count, dtype=np.int64)
        least_of_ops(*space.table, values, self._least, self._counts, self._chosen)

    @property
    def value(self) -> float:
        """What the least partition costs; infinite if there is none."""
        return float(sum(self._least[self._space.place[root]] for root in self._space.tree.roots))

    def rows(self) -> list[int] | None:
        """The rows of the least partition, from its last output to the first; None if there is none."""
        space = self._space
        waiting = [space.place[root] for root in space.tree.roots]
        chosen: list[int] = []
        while waiting:
            row = int(self._chosen[waiting.pop()])
            if row < 0:
                return None
            chosen.append(row)
            waiting.extend(space.frontier(row))
        return sorted(chosen, reverse=True)


def weighted(partition: Partition, weights: Sequence[float]) -> float:
    """The weighted sum of a partition's prices."""
    return sum(sum(w * figure for w, figure in zip(weights, price, strict=True) if w) for price in partition.prices)
