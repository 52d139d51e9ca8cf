"""The improvement step: what the exact class of the search leaves out (FUSE-O).

Groups with several outputs, joined from neighbours of a partition, and tiles by cost instead of the largest that fit.
Nothing makes the objective worse, and limits count steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler.cost.objective import Totals, objective_value
from compiler.fusion.evaluate import Evaluator
from compiler.fusion.greedy import MAX_OPS, group_order
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.tiling.choose import Refusal

# Steps of pricing: for joined groups, for tiles by cost of all groups, and of one group.
JOINED_MAX: Final = 64
REFINED_MAX: Final = 1024
_TILES_OF_GROUP: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Improved:
    """Groups in execution order, and the evaluator that knows their tilings."""

    evaluator: Evaluator
    groups: tuple[int, ...]


def improve(
    evaluator: Evaluator, graph: SegmentGraph, groups: tuple[int, ...], outside: Totals, fixed: frozenset[int]
) -> Improved:
    """Groups no worse than those given: neighbours joined where that pays, then tiles by cost.

    `outside` are the totals of the other segments; `fixed` groups of a pinned schedule stay as they are.
    """
    groups = _joined(evaluator, graph, groups, outside, fixed)
    return _refined(evaluator, groups, outside, fixed)


def _joined(
    evaluator: Evaluator, graph: SegmentGraph, groups: tuple[int, ...], outside: Totals, fixed: frozenset[int]
) -> tuple[int, ...]:
    """Pairs of groups, one of which reads the other's or both of which read a third's, joined while that pays."""
    objective = evaluator.options.objective
    total = outside + evaluator.totals(groups)
    tried: set[int] = set()
    spent = 0
    waiting = True
    while waiting:
        waiting = False
        for one, other in _neighbours(graph, groups, fixed):
            union = one | other
            if union in tried or spent >= JOINED_MAX:
                continue
            if not _may_join(evaluator, graph, groups, one, other):
                continue
            tried.add(union)
            spent += evaluator.steps(union)
            if isinstance(evaluator.tiling(union), Refusal):
                continue
            apart, together = evaluator.totals((one, other)), evaluator.totals((union,))
            after = total - apart + together
            if objective_value(objective, after) < objective_value(objective, total):
                ordered = group_order(graph, [union, *(g for g in groups if g not in (one, other))])
                if ordered is not None:
                    groups, total, waiting = ordered, after, True
                    break
    return groups


def _neighbours(graph: SegmentGraph, groups: tuple[int, ...], fixed: frozenset[int]) -> list[tuple[int, int]]:
    """Pairs of groups that share a tensor, in execution order."""
    home = {op: number for number, group in enumerate(groups) for op in bits(group)}
    pairs: dict[tuple[int, int], None] = {}
    for op in graph.ops:
        near = sorted({home[op], *(home[user] for user in graph.successors[op])})
        pairs.update(dict.fromkeys((a, b) for place, a in enumerate(near) for b in near[place + 1 :]))
    return [(groups[a], groups[b]) for a, b in sorted(pairs) if groups[a] not in fixed and groups[b] not in fixed]


def _may_join(evaluator: Evaluator, graph: SegmentGraph, groups: tuple[int, ...], one: int, other: int) -> bool:
    """True if two groups may be one with several outputs; with one output the search has seen it."""
    union = one | other
    if union.bit_count() > MAX_OPS or len(graph.outputs_of(union)) < 2 or not graph.is_convex(union):
        return False
    if not all(check.holds for check in evaluator.legality(graph, union)):
        return False
    return group_order(graph, [union, *(g for g in groups if g not in (one, other))]) is not None


def _refined(evaluator: Evaluator, groups: tuple[int, ...], outside: Totals, fixed: frozenset[int]) -> Improved:
    """The costliest groups with tiles by cost, as far as the whole gets no worse."""
    objective = evaluator.options.objective
    total = outside + evaluator.totals(groups)
    costs = {group: evaluator.totals((group,)) for group in groups if group not in fixed}
    kind = "energy" if objective == "edp" else objective
    order = sorted(costs, key=lambda group: (-objective_value(kind, costs[group]), group))
    better, left = {}, REFINED_MAX
    for group in order:
        tiles = min(_TILES_OF_GROUP, left) // evaluator.steps(group)
        if not tiles:
            continue
        left -= tiles * evaluator.steps(group)
        found = evaluator.refined(group, tiles)
        after = total - costs[group] + Totals.of((found.cost,))
        if objective_value(objective, after) < objective_value(objective, total):
            better[group], total = found, after
    return Improved(evaluator=evaluator.with_tilings(better), groups=groups)
