"""Why each boundary is where it is: the first rule that keeps the consumer outside, or both objectives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from compiler.fusion.evaluate import Evaluator
from compiler.fusion.greedy import MAX_OPS
from compiler.fusion.groups import Boundary
from compiler.fusion.rules.gain import fuse_20
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.base import OpClass
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import Check

# So many steps of pricing are taken at most to say what merged groups would cost, in all segments.
REASONS_MAX: Final = 512.0
_NOT_PRICED: Final = "what the two groups cost fused was not worked out: the steps for reasons at boundaries had ended"


@dataclass(slots=True)
class Reasons:
    """The steps of pricing that may still be taken to say why boundaries are where they are."""

    left: float = REASONS_MAX

    def may_price(self, evaluator: Evaluator, group: int) -> bool:
        """True if there are steps left for a group's price; they are taken."""
        if evaluator.asking_at_least(group) > self.left:
            return False
        steps = evaluator.asking(group)
        if steps > self.left:
            return False
        self.left -= steps
        return True


def boundaries_of(
    evaluator: Evaluator,
    graph: SegmentGraph,
    group: int,
    homes: dict[int, int],
    fixed: frozenset[int] = frozenset(),
    reasons: Reasons | None = None,
) -> tuple[Boundary, ...]:
    """One entry per tensor that leaves the group and group (or graph output) that it goes to.

    `fixed` are groups of a pinned schedule: nothing but the schedule is why they end where they do (TILE-9). `reasons`
    bounds how many merged groups are priced; without it only this group's are counted.
    """
    reasons = Reasons() if reasons is None else reasons
    model = graph.facts.graph
    result = []
    for op in graph.outputs_of(group):
        tensor = model.ops[op].output
        if tensor in model.outputs:
            result.append(_plain(tensor, None, "it is an output of the graph"))
        seen: set[int] = set()
        for user in model.consumers.get(tensor, ()):
            if user not in homes:
                result.append(_plain(tensor, user, "its consumer is in a later segment"))
                continue
            other = homes[user]
            if other != group and other not in seen:
                seen.add(other)
                if group in fixed or other in fixed:
                    which = "this group" if group in fixed else "the consumer's group"
                    result.append(_plain(tensor, user, f"the schedule pins {which} (TILE-9)"))
                    continue
                result.append(_between(evaluator, graph, tensor, user, (group, other), reasons))
    return tuple(result)


def _between(
    evaluator: Evaluator, graph: SegmentGraph, tensor: str, user: int, groups: tuple[int, int], reasons: Reasons
) -> Boundary:
    group, other = groups
    union = group | other
    if not graph.is_convex(union):
        return _plain(tensor, user, "the consumer's group also waits for ops outside both groups")
    if evaluator.options.fusion == "none":
        return _unchained(evaluator, graph, tensor, user, group)
    if evaluator.options.fusion == "search":
        return _searched(evaluator, graph, tensor, user, groups, reasons)
    for check in evaluator.structure(graph, union):
        if not check.holds:
            return _ruled(tensor, user, check, "with the consumer's group the rule fails")
    profits = evaluator.profit(graph, union)
    if not evaluator.is_profitable(profits):
        return _ruled(tensor, user, next(c for c in profits if not c.holds), "the merged group shows no profit")
    if union.bit_count() > MAX_OPS:
        check = Check(rule="group-size", holds=False, actual=union.bit_count(), limit=MAX_OPS)
        return _ruled(tensor, user, check, "greedy growth ends at this number of ops")
    if not reasons.may_price(evaluator, union):
        return _plain(tensor, user, _NOT_PRICED)
    found = evaluator.tiling(union)
    if isinstance(found, Refusal):
        return _ruled(tensor, user, found.check, "not even the smallest tile of both groups together satisfies it")
    merged, apart = evaluator.value([union]), evaluator.value([group, other])
    gain = fuse_20(merged, apart)
    if evaluator.options.rule_enabled("FUSE-20") and not gain.holds:
        return _ruled(tensor, user, gain, f"the two groups cost more {evaluator.options.objective} fused than apart")
    return Boundary(
        tensor=tensor,
        consumer=user,
        rule=None,
        actual=merged,
        limit=apart,
        why="no rule forbids it: greedy growth had placed one of the two before, or had ended after additions that "
        f"did not pay ({evaluator.options.objective} merged and apart are given)",
    )


def _searched(
    evaluator: Evaluator, graph: SegmentGraph, tensor: str, user: int, groups: tuple[int, int], reasons: Reasons
) -> Boundary:
    """Why strategy `search` has two groups where one could be: a rule, a refused tiling, or what both cost."""
    union, objective = groups[0] | groups[1], evaluator.options.objective
    for check in evaluator.legality(graph, union):
        if not check.holds:
            return _ruled(tensor, user, check, "with the consumer's group the rule fails")
    if union.bit_count() > MAX_OPS:
        check = Check(rule="group-size", holds=False, actual=union.bit_count(), limit=MAX_OPS)
        return _ruled(tensor, user, check, "groups of more ops are not tried")
    if not reasons.may_price(evaluator, union):
        return _plain(tensor, user, _NOT_PRICED)
    found = evaluator.tiling(union)
    if isinstance(found, Refusal):
        return _ruled(tensor, user, found.check, "not even the smallest tile of both groups together satisfies it")
    merged, apart = evaluator.value([union]), evaluator.value(groups)
    if merged > apart:
        why = f"the two groups cost more {objective} fused than apart"
    elif len(graph.outputs_of(union)) > 1:
        why = f"fused, the two groups have several outputs and by themselves cost no more {objective}"
        why += " (merged and apart are given): joining them waits for others, or steps had ended"
    else:
        why = f"by themselves the two cost no more {objective} fused (merged and apart are given): the whole plan does,"
        why += " or steps had ended"
    return Boundary(tensor=tensor, consumer=user, rule=None, actual=merged, limit=apart, why=why)


def _unchained(evaluator: Evaluator, graph: SegmentGraph, tensor: str, user: int, group: int) -> Boundary:
    """Why strategy `none` did not take the consumer into the group's chain."""
    members = list(bits(group))
    if graph.facts.ops[members[0]].op_class is not OpClass.MAIN:
        return _plain(tensor, user, "strategy none: only a main op takes in what follows")
    if not graph.facts.ops[user].in_place:
        return _plain(tensor, user, "strategy none: the consumer is not element-wise")
    if len(graph.successors[members[-1]]) != 1 or graph.leaves[members[-1]]:
        return _plain(tensor, user, "strategy none: the consumer is not the only one")
    longer = group | 1 << user
    for check in evaluator.chain_rules(graph, longer):
        if not check.holds:
            return _ruled(tensor, user, check, "with the consumer the rule fails")
    if not evaluator.chain_fits(longer):
        found = evaluator.tiling(longer)
        if isinstance(found, Refusal):
            return _ruled(tensor, user, found.check, "not even the smallest tile with the consumer satisfies it")
    return _plain(tensor, user, "strategy none: the consumer belongs to the chain of a later main op")


def _plain(tensor: str, user: int | None, why: str) -> Boundary:
    return Boundary(tensor=tensor, consumer=user, rule=None, actual=None, limit=None, why=why)


def _ruled(tensor: str, user: int, check: Check, why: str) -> Boundary:
    return Boundary(
        tensor=tensor,
        consumer=user,
        rule=check.rule,
        actual=float(check.actual),
        limit=float(check.limit),
        why=why,
    )
