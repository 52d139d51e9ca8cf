"""Tiles by cost, and boundaries between groups moved where these make that pay: part of the improvement step (FUSE-O).

The search prices a group by the largest tile that fits. Where another tile costs less, and for some groups by more than
for others, another grouping may be better: neighbours joined, ops handed to a neighbour, a group cut in two.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from typing import Final, NamedTuple

from compiler.cost.objective import NO_TOTALS, Totals, objective_value, ranking
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.greedy import MAX_OPS, group_order
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.base import OpClass
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice

# Steps of pricing tiles by cost: of all groups, of one, and of one that is tried in the place of others.
REFINED_MAX: Final = 6144
_TILES_OF_GROUP: Final = 192
_TILES_OF_TRIED: Final = 64
# Steps of pricing groups that are tried, so many changes are looked at before, and so many ops pass to a neighbour.
MOVED_MAX: Final = 32
LOOKED_MAX: Final = 4096
_HANDED_MAX: Final = 3


class _Change(NamedTuple):
    """Groups, and those that take their place."""

    old: tuple[int, ...]
    new: tuple[int, ...]


class Moves:
    """Groups in execution order, with the tilings that are taken by cost."""

    def __init__(
        self,
        evaluator: Evaluator,
        graph: SegmentGraph,
        groups: tuple[int, ...],
        outside: Totals,
        fixed: frozenset[int],
    ) -> None:
        """`outside`: totals of the other segments; `fixed` groups of a pinned schedule stay as they are."""
        self.groups = groups
        self._evaluator, self._graph, self._fixed = evaluator, graph, fixed
        self._objective = evaluator.options.objective
        self._total = outside + evaluator.totals(groups)
        # tilings that are better than those of the evaluator
        self._better: dict[int, Choice] = {}
        self._refined: set[int] = set(fixed)
        self._tried: set[_Change] = set()
        self._left: float = MOVED_MAX
        self._left_to_look = LOOKED_MAX
        self._left_for_tiles = REFINED_MAX

    def move(self) -> None:
        """Move boundaries while that pays, as far as steps allow."""
        while (change := next(filter(self._pays, self._changes()), None)) is not None:
            self._take(change)

    @property
    def tilings(self) -> dict[int, Choice]:
        """The tilings that cost less than the evaluator's."""
        return {group: self._better[group] for group in self.groups if group in self._better}

    def refine(self) -> None:
        """Tiles by cost of all groups that do not have them yet, the costliest first."""
        kind = "energy" if self._objective == "edp" else self._objective
        before = self._total
        costs = {group: self._totals((group,)) for group in self.groups if group not in self._refined}
        for group in sorted(costs, key=lambda group: (-objective_value(kind, costs[group]), group)):
            self._refined.add(group)
            # others as they were: equal groups are then asked about once
            self._tile(group, _TILES_OF_GROUP, before - costs[group], self._total - costs[group])
            self._total += self._totals((group,)) - costs[group]

    def _tile(self, group: int, most: int, beside: Totals, others: Totals) -> None:
        """Find a tiling that costs less among so many; `others`: what the rest takes, `beside`: the same as it was."""
        steps = self._evaluator.steps(group)
        if self._left_for_tiles <= 0 or most < steps:
            return
        found, priced = self._evaluator.refined(group, most // steps, beside if self._objective == "edp" else NO_TOTALS)
        self._left_for_tiles -= steps * priced
        now = others + self._totals((group,))
        if ranking(self._objective, others + Totals.of((found.cost,))) < ranking(self._objective, now):
            self._better[group] = found

    # --- boundaries ---------------------------------------------------------------------------------------------------

    def _changes(self) -> Iterator[_Change]:
        """What was not tried yet, of the costliest groups first."""
        kind = "energy" if self._objective == "edp" else self._objective
        costs = {group: objective_value(kind, self._totals((group,))) for group in self.groups}
        found = [change for change in self._all() if change not in self._tried]
        for change in sorted(found, key=lambda change: -sum(costs[group] for group in change.old)):
            if self._left <= 0 or not self._left_to_look:
                return
            self._left_to_look -= 1
            yield change

    def _all(self) -> Iterator[_Change]:
        home = {op: group for group in self.groups if group not in self._fixed for op in bits(group)}
        pairs = {
            (home[op], home[user]): None
            for op in self._graph.ops
            for user in self._graph.successors[op]
            if op in home and user in home and home[op] != home[user]
        }
        for pair in pairs:
            one, other = pair
            yield _Change(pair, (one | other,))
            for ops in _first(reversed(tuple(bits(one)))):
                yield _Change(pair, (one & ~ops, other | ops))
            for ops in _first(bits(other)):
                yield _Change(pair, (one | ops, other & ~ops))
        for group in dict.fromkeys(home.values()):
            cuts = tuple(bits(group))[1:]
            # a view at the end may give the whole group axes along which its work cannot be shared out
            ends_with_view = bool(cuts) and self._graph.facts.ops[cuts[-1]].op_class is OpClass.VIEW
            for op in (*cuts[-1:], *cuts[:-1]) if ends_with_view else cuts:
                behind = group >> op << op
                yield _Change((group,), (group & ~behind, behind))

    def _pays(self, change: _Change) -> bool:
        self._tried.add(change)
        if not all(map(self._is_allowed, change.new)):
            return False
        unknown = [group for group in change.new if group not in self._better]
        # the first change is tried whatever it takes: groups of many ops would have none otherwise
        most = inf if self._left == MOVED_MAX else self._left
        if sum(map(self._evaluator.asking_at_least, unknown)) > most:
            return False
        steps = sum(map(self._evaluator.asking, unknown))
        if steps > most:
            return False
        self._left -= steps
        if any(isinstance(self._evaluator.tiling(group), Refusal) for group in unknown):
            return False
        rest = self._total - self._totals(change.old)
        for group in unknown:
            others = rest + self._totals([other for other in change.new if other != group])
            self._tile(group, _TILES_OF_TRIED, others, others)
        after = rest + self._totals(change.new)
        is_better = ranking(self._objective, after) < ranking(self._objective, self._total)
        return is_better and self._ordered(change) is not None

    def _is_allowed(self, group: int) -> bool:
        if group.bit_count() < 2:
            return group != 0
        if group.bit_count() > MAX_OPS or not self._graph.is_convex(group):
            return False
        return all(check.holds for check in self._evaluator.legality(self._graph, group))

    def _ordered(self, change: _Change) -> tuple[int, ...] | None:
        return group_order(self._graph, [*change.new, *(group for group in self.groups if group not in change.old)])

    def _take(self, change: _Change) -> None:
        ordered = self._ordered(change)
        assert ordered is not None
        self._total += self._totals(change.new) - self._totals(change.old)
        self.groups = ordered

    def _totals(self, groups: Sequence[int]) -> Totals:
        own = [self._better[group].cost for group in groups if group in self._better]
        return Totals.of(own) + self._evaluator.totals([group for group in groups if group not in self._better])


def _first(ops: Iterator[int]) -> Iterator[int]:
    """The first of these ops, the first two and so on, as sets."""
    found = 0
    for _, op in zip(range(_HANDED_MAX), ops, strict=False):
        found |= 1 << op
        yield found
