"""The improvement step: what the exact class of the search leaves out (FUSE-O).

Groups with several outputs, or too many ops to be listed, joined from neighbours of a partition, tiles by cost instead
of the largest that fit, and boundaries moved where these make that pay (`moves.py`).
Nothing makes the objective worse, and limits count steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import takewhile
from math import inf
from operator import or_
from typing import Final

from compiler.cost.objective import Totals, ranking
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.greedy import MAX_OPS, group_order
from compiler.fusion.handing import handed_over
from compiler.fusion.moves import Moves
from compiler.fusion.partitions import Partitions
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice

# So many groups are looked at before they are priced, to join them.
LOOKED_MAX: Final = 4096
# Steps of pricing groups that are not joined in the end; those that are take at most one more for each op, of
# up to so many.
JOINED_MAX: Final = 64
_JOINS_OF_OPS: Final = 1024
# With so many groups a join takes as long as a step of pricing: all are put in order again.
_GROUPS_OF_A_STEP: Final = 2048
# Where steps end before all is tried, groups are joined once more with what takes more than this part of the steps that
# are left after all else, and the better of both is taken: a group that all others read from, with all of these, took
# half of them where an LSTM of 24 steps was 46 groups in the end. A network of NASNet's cells was better without.
_DEAR: Final = 0.125
# A group that has been joined with its neighbours so often in a row is joined with twice as many next time: one by one
# the 80 steps of a recurrence whose states are outputs would be priced in 80 sizes.
_STREAK: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Improved:
    """Groups in execution order, the evaluator that knows their tilings, and if boundaries were moved those before.

    `apart`: by run of groups between which something stays on the chip their tilings without that.
    """

    evaluator: Evaluator
    groups: tuple[int, ...]
    apart: tuple[Mapping[int, Choice], ...] = ()
    unmoved: Improved | None = None


def improve(
    evaluator: Evaluator,
    graph: SegmentGraph,
    groups: tuple[int, ...],
    outside: Totals,
    fixed: frozenset[int],
    *,
    space: Partitions | None = None,
    moves_boundaries: bool = True,
) -> Improved:
    """Groups no worse than those given: neighbours joined where that pays, then tiles by cost, and boundaries moved.

    `outside` are the totals of the other segments; `fixed` groups of a pinned schedule stay as they are. `space`: the
    groups with one output that the search knows; None: none. `moves_boundaries`: not where groups were found by
    simulation, which prices would undo.
    """
    joining = _Joining(evaluator, graph, groups, outside, fixed, space, dear_last=False)
    joining.join()
    found = _after_joining(evaluator, graph, joining.groups, outside, fixed, moves_boundaries)
    if not joining.ended_early:
        return found
    other = _Joining(evaluator, graph, groups, outside, fixed, space, dear_last=True)
    other.join()
    if other.groups == joining.groups:
        return found
    again = _after_joining(evaluator, graph, other.groups, outside, fixed, moves_boundaries)
    objective = evaluator.options.objective
    values = [ranking(objective, outside + its.evaluator.totals(its.groups)) for its in (found, again)]
    return again if values[1] < values[0] else found


def _after_joining(
    evaluator: Evaluator,
    graph: SegmentGraph,
    groups: tuple[int, ...],
    outside: Totals,
    fixed: frozenset[int],
    moves_boundaries: bool,
) -> Improved:
    """Joined groups with tiles by cost, and boundaries moved, and what stays on the chip between them."""
    moves = Moves(evaluator, graph, groups, outside, fixed)
    moves.refine()
    unmoved = Improved(evaluator=evaluator.with_tilings(moves.tilings), groups=moves.groups)
    if not moves_boundaries:
        return unmoved
    moves.move()
    if moves.groups != unmoved.groups:
        moves.refine()
    known = evaluator.with_tilings(moves.tilings)
    choices = {group: choice for group in moves.groups if isinstance(choice := known.tiling(group), Choice)}
    handing = handed_over(known, graph, choices, outside, fixed)
    return Improved(
        evaluator=known.with_tilings(handing.tilings) if handing.tilings else known,
        groups=moves.groups,
        apart=handing.apart,
        unmoved=None if moves.groups == unmoved.groups else unmoved,
    )


class _Joining:
    """Neighbours joined while that pays: a group with all of its own at once, then pairs."""

    def __init__(
        self,
        evaluator: Evaluator,
        graph: SegmentGraph,
        groups: tuple[int, ...],
        outside: Totals,
        fixed: frozenset[int],
        space: Partitions | None,
        *,
        dear_last: bool,
    ) -> None:
        """`dear_last`: what takes many of the steps is tried after all else."""
        self.groups = groups
        self._dear = _DEAR if dear_last else inf
        self._space = space
        self._evaluator, self._graph, self._fixed = evaluator, graph, fixed
        self._total = outside + evaluator.totals(groups)
        self._near = self._sharing()
        self._tried: set[int] = set()
        self._steps: dict[int, int] = {}
        self._looked, self._left, self._left_to_join = 0, JOINED_MAX, min(len(graph.ops), _JOINS_OF_OPS)

    @property
    def ended_early(self) -> bool:
        """True if steps had ended before all neighbours were tried."""
        return not self._goes_on()

    def join(self) -> None:
        """Join while that pays, and steps are left."""
        grown = streak = 0
        while True:
            joined = grown and streak >= _STREAK and self._pays(self._around(grown, 1 << streak - _STREAK))
            if not joined:
                streak = streak if streak < _STREAK else 0
                joined = next(filter(None, map(self._pays, self._in_turn())), 0)
            if not joined:
                return
            streak = streak + 1 if joined & grown == grown else 1
            grown = joined

    def _pays(self, parts: Sequence[int]) -> int:
        """The union of groups if it takes their place; 0 if not."""
        union = reduce(or_, parts)
        if union in self._tried:
            return 0
        self._looked += 1
        if not self._goes_on():
            return 0
        if not self._may_join(union):
            self._tried.add(union)
            return 0
        ordered = group_order(self._graph, [union, *(group for group in self.groups if group not in parts)])
        if ordered is None:
            return 0
        self._tried.add(union)
        evaluator, steps = self._evaluator, self._evaluator.steps(union)
        if not isinstance(evaluator.tiling(union), Refusal):
            objective = evaluator.options.objective
            after = self._total - evaluator.totals(parts) + evaluator.totals((union,))
            if ranking(objective, after) < ranking(objective, self._total):
                self._left_to_join -= steps + len(self.groups) // _GROUPS_OF_A_STEP
                self.groups, self._total = ordered, after
                self._merge(parts, union)
                return union
        self._left -= steps
        return 0

    def _may_join(self, union: int) -> bool:
        """True if groups may be one; with one output only what the search does not have: it lists so many of an op."""
        graph = self._graph
        if union.bit_count() > MAX_OPS or not graph.is_convex(union):
            return False
        if len(graph.outputs_of(union)) < 2 and self._space is not None and self._space.row_of(union) is not None:
            return False
        return all(check.holds for check in self._evaluator.legality(graph, union))

    def _goes_on(self) -> bool:
        return self._left > 0 and self._left_to_join > 0 and self._looked <= LOOKED_MAX

    def _in_turn(self) -> Iterator[tuple[int, ...]]:
        """What is tried while steps are left: what takes much of them last."""
        dear = []
        for parts in takewhile(lambda _: self._goes_on(), self._neighbours()):
            union = reduce(or_, parts)
            steps = self._steps.get(union)
            if steps is None:
                steps = self._steps[union] = self._evaluator.steps(union)
            if steps > self._dear * self._left:
                dear.append(parts)
            else:
                yield parts
        yield from takewhile(lambda _: self._goes_on(), dear)

    def _neighbours(self) -> Iterator[tuple[int, ...]]:
        """Groups that share a tensor: each with all that it shares one with, if several, then pairs, in order.

        A group whose many outputs many others read would take a step for each of them otherwise.
        """
        place = {group: number for number, group in enumerate(self.groups)}
        for group in self.groups:
            if len(self._near.get(group, ())) > 1:
                yield tuple(sorted((group, *self._near[group]), key=place.__getitem__))
        for group in self.groups:
            others = sorted(self._near.get(group, ()), key=place.__getitem__)
            yield from ((group, other) for other in others if place[group] < place[other])

    def _around(self, group: int, far: int) -> tuple[int, ...]:
        """A group, those that it shares tensors with, those that these share tensors with, and so on so far."""
        found = border = {group}
        for _ in range(far):
            border = {other for one in border for other in self._near.get(one, ())} - found
            found = found | border
        return tuple(group for group in self.groups if group in found)

    def _sharing(self) -> dict[int, set[int]]:
        """By group that may be joined those with which it shares a tensor."""
        home = {op: group for group in self.groups for op in bits(group)}
        near: dict[int, set[int]] = {group: set() for group in self.groups if group not in self._fixed}
        for op in self._graph.ops:
            sharing = {home[op], *(home[user] for user in self._graph.successors[op])} & near.keys()
            for group in sharing:
                near[group] |= sharing - {group}
        return near

    def _merge(self, parts: Sequence[int], union: int) -> None:
        """Note that a union has taken the place of groups."""
        self._near[union] = {other for part in parts for other in self._near.pop(part)} - {*parts}
        for other in self._near[union]:
            self._near[other] = self._near[other] - {*parts} | {union}
