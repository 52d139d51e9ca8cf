"""The improvement step: what the exact class of the search leaves out (FUSE-O).

Groups with several outputs, joined from neighbours of a partition, tiles by cost instead of the largest that fit, and
boundaries moved where these make that pay (`moves.py`).
Nothing makes the objective worse, and limits count steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from compiler.cost.objective import Totals, ranking
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.greedy import MAX_OPS, group_order
from compiler.fusion.handing import handed_over
from compiler.fusion.moves import Moves
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice

# So many groups are looked at before they are priced, to join them.
LOOKED_MAX: Final = 4096
# Steps of pricing joined groups.
JOINED_MAX: Final = 64


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
    moves_boundaries: bool = True,
) -> Improved:
    """Groups no worse than those given: neighbours joined where that pays, then tiles by cost, and boundaries moved.

    `outside` are the totals of the other segments; `fixed` groups of a pinned schedule stay as they are.
    `moves_boundaries`: not where groups were found by simulation, which prices would undo.
    """
    moves = Moves(evaluator, graph, _joined(evaluator, graph, groups, outside, fixed), outside, fixed)
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


def _joined(
    evaluator: Evaluator, graph: SegmentGraph, groups: tuple[int, ...], outside: Totals, fixed: frozenset[int]
) -> tuple[int, ...]:
    """Neighbours joined while that pays: a group with all of its own at once, then pairs."""
    objective = evaluator.options.objective
    total = outside + evaluator.totals(groups)
    tried: set[int] = set()
    spent = looked = 0
    waiting = True
    while waiting:
        waiting = False
        for parts in _neighbours(graph, groups, fixed):
            union = reduce(or_, parts)
            if union in tried:
                continue
            looked += 1
            if spent >= JOINED_MAX or looked > LOOKED_MAX:
                return groups
            if not _may_join(evaluator, graph, union):
                tried.add(union)
                continue
            ordered = group_order(graph, [union, *(group for group in groups if group not in parts)])
            if ordered is None:
                continue
            tried.add(union)
            spent += evaluator.steps(union)
            if isinstance(evaluator.tiling(union), Refusal):
                continue
            after = total - evaluator.totals(parts) + evaluator.totals((union,))
            if ranking(objective, after) < ranking(objective, total):
                groups, total, waiting = ordered, after, True
                break
    return groups


def _neighbours(graph: SegmentGraph, groups: tuple[int, ...], fixed: frozenset[int]) -> Iterator[tuple[int, ...]]:
    """Groups that share a tensor: each with all that it shares one with, if several, then pairs, in execution order.

    A group whose many outputs many others read would take a step for each of them otherwise.
    """
    home = {op: number for number, group in enumerate(groups) for op in bits(group)}
    near: dict[int, set[int]] = {number: set() for number, group in enumerate(groups) if group not in fixed}
    for op in graph.ops:
        sharing = {home[op], *(home[user] for user in graph.successors[op])} & near.keys()
        for number in sharing:
            near[number] |= sharing - {number}
    for number, others in near.items():
        if len(others) > 1:
            yield tuple(groups[one] for one in sorted({number, *others}))
    for number, others in near.items():
        yield from ((groups[number], groups[other]) for other in sorted(others) if number < other)


def _may_join(evaluator: Evaluator, graph: SegmentGraph, union: int) -> bool:
    """True if groups may be one with several outputs; with one output the search has seen it."""
    if union.bit_count() > MAX_OPS or len(graph.outputs_of(union)) < 2 or not graph.is_convex(union):
        return False
    return all(check.holds for check in evaluator.legality(graph, union))
