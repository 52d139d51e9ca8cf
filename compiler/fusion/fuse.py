"""The pass that groups every segment, and the baseline beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from compiler.cost.objective import Totals, objective_value
from compiler.errors import InternalError
from compiler.fusion.boundary import Reasons, boundaries_of
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator, not_held, refused
from compiler.fusion.greedy import execution_order, greedy_groups
from compiler.fusion.groups import FusedGraph, FusedSegment, Group
from compiler.fusion.improve import Improved, improve
from compiler.fusion.none import none_groups
from compiler.fusion.schedule import SegmentSchedule, resolve
from compiler.fusion.search import search_groups
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.garbage import collection_paused
from compiler.options import Options
from compiler.partition.segments import PartitionedGraph, Segment, SegmentKind
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import Check
from compiler.tiling.finished import Choice

# Two ways to add the same floating-point numbers differ by less than this, relatively.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseSegments:
    """Pass: the groups of each chip segment, by the chosen strategy, and those of `none` (FUSE-R, FUSE-N)."""

    name: str = "fuse"
    options: Options
    compilers: SegmentCompilers = field(repr=False)

    def run(self, partitioned: PartitionedGraph) -> FusedGraph:
        """Raises LimitError if a single op does not fit the chip, naming it."""
        with collection_paused():
            return self._fused(partitioned)

    def _fused(self, partitioned: PartitionedGraph) -> FusedGraph:
        facts = partitioned.facts
        compiler = self.compilers.of(facts)
        graphs = {
            number: SegmentGraph(facts, segment.ops)
            for number, segment in enumerate(partitioned.segments)
            if segment.kind is SegmentKind.CHIP
        }
        schedule = self.options.schedule
        pinned = {} if schedule is None else resolve(schedule, partitioned, graphs)
        work = {
            number: _work(compiler.evaluator(graph.ops), graph, pinned.get(number)) for number, graph in graphs.items()
        }
        # totals of all segments before the current one, as grouped, and of those after it, by `none`
        before = Totals()
        after = [Totals()]
        for part in reversed(work.values()):
            after.append(after[-1] + part.evaluator.totals(part.start))
        reasons = Reasons()
        segments: list[FusedSegment] = []
        baseline: list[FusedSegment] = []
        for number, segment in enumerate(partitioned.segments):
            if segment.kind is SegmentKind.HOST:
                segments.append(FusedSegment(segment=segment, groups=(), boundaries=()))
                continue
            part = work[number]
            after.pop()
            groups, gains, evaluator = part.start, {}, part.evaluator
            if self.options.fusion == "rules":
                result = greedy_groups(part.evaluator, part.graph, before + after[-1], part.fixed)
                groups, gains = result.groups, result.gains
            elif self.options.fusion == "search":
                improved = _searched(part, before + after[-1])
                groups, evaluator = improved.groups, improved.evaluator
            before = before + evaluator.totals(groups)
            segments.append(_finished(evaluator, part, segment, groups, gains, reasons))
            baseline.append(_finished(part.plain, part, segment, part.baseline, {}, None))
        return FusedGraph(partitioned=partitioned, facts=facts, segments=tuple(segments), baseline=tuple(baseline))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """One chip segment: its groups by `none` with and without what a schedule pins, and who prices which."""

    graph: SegmentGraph
    plain: Evaluator
    baseline: tuple[int, ...]
    evaluator: Evaluator
    fixed: tuple[int, ...]
    start: tuple[int, ...]


def _work(plain: Evaluator, graph: SegmentGraph, pinned: SegmentSchedule | None) -> _Work:
    """LimitError for a pinned group that breaks FUSE-8 or FUSE-9, or has no tiling as pinned (TILE-9)."""
    baseline = execution_order(graph, none_groups(plain, graph, graph.all))
    if pinned is None:
        return _Work(graph=graph, plain=plain, baseline=baseline, evaluator=plain, fixed=(), start=baseline)
    evaluator, fixed = plain.pinned(pinned.pins, pinned.apart), pinned.fixed
    for group in fixed:
        for check in evaluator.pinned_rules(graph, group):
            if not check.holds:
                op = next(op for op in bits(group) if _breaks(evaluator, graph, op, check.rule))
                raise not_held(graph.facts, group, op, f"{int(check.actual)} ({check.rule})", f"{int(check.limit)}")
        evaluator.tiling(group)
    free = graph.all & ~sum(fixed)
    start = execution_order(graph, [*fixed, *none_groups(evaluator, graph, free)])
    return _Work(graph=graph, plain=plain, baseline=baseline, evaluator=evaluator, fixed=fixed, start=start)


def _searched(part: _Work, outside: Totals) -> Improved:
    """The groups that search finds, improved; or those of `none` or `rules`, improved, should they cost less.

    They can only where not all groups could be tried or priced, or where rules allow several outputs.
    """
    found = search_groups(part.evaluator, part.graph, outside, part.fixed)
    groups = part.start if found is None else found.groups
    best = _improved(part.evaluator, part, groups, outside)
    bound = None if found is None or not part.evaluator.options.rule_enabled("FUSE-4") else found.bound
    if bound is not None and _value(best, outside) <= bound * (1 + _ROUNDING):
        return best
    rules = part.evaluator.under("rules")
    grown = greedy_groups(rules, part.graph, outside, part.fixed).groups
    tilings = {group: choice for group in grown if isinstance(choice := rules.tiling(group), Choice)}
    known = part.evaluator.with_tilings(tilings)
    others = [Improved(evaluator=known, groups=grown), Improved(evaluator=part.evaluator, groups=part.start)]
    other = min(others, key=lambda one: _value(one, outside))
    if _value(other, outside) >= _value(best, outside):
        return best
    return _improved(other.evaluator, part, other.groups, outside)


def _improved(evaluator: Evaluator, part: _Work, groups: tuple[int, ...], outside: Totals) -> Improved:
    return improve(evaluator, part.graph, groups, outside, frozenset(part.fixed))


def _value(found: Improved, outside: Totals) -> float:
    totals = outside + found.evaluator.totals(found.groups)
    return float(objective_value(found.evaluator.options.objective, totals))


def _breaks(evaluator: Evaluator, graph: SegmentGraph, op: int, rule: str) -> bool:
    return any(check.rule == rule and not check.holds for check in evaluator.structure(graph, 1 << op))


def _finished(
    evaluator: Evaluator,
    part: _Work,
    segment: Segment,
    groups: tuple[int, ...],
    gains: dict[int, Check],
    reasons: Reasons | None,
) -> FusedSegment:
    """The segment with its groups; with `reasons` None (the baseline) nothing is explained."""
    graph = part.graph
    homes = {op: group for group in groups for op in bits(group)}
    pinned = frozenset(part.fixed)
    made, explained = [], []
    for group in groups:
        choice = evaluator.tiling(group)
        if isinstance(choice, Refusal):
            raise refused(graph.facts, group, choice, evaluator.profile)
        checks: list[Check] = []
        if reasons is not None:
            structure = evaluator.pinned_rules(graph, group) if group in pinned else None
            checks = _verdicts(evaluator, graph, group, gains.get(group), structure)
        made.append(Group(ops=tuple(bits(group)), choice=choice, checks=tuple(_plain(c) for c in checks)))
        explained.append(() if reasons is None else boundaries_of(evaluator, graph, group, homes, pinned, reasons))
    return FusedSegment(segment=segment, groups=tuple(made), boundaries=tuple(explained))


def _verdicts(
    evaluator: Evaluator, graph: SegmentGraph, group: int, gain: Check | None, pinned: list[Check] | None
) -> list[Check]:
    """The rules that bind the group, in the order in which they are asked; `pinned`: those of a pinned one."""
    checks: list[Check] = []
    if pinned is not None:
        checks = pinned
    elif gain is not None:
        checks = [*evaluator.structure(graph, group), *evaluator.profit(graph, group), gain]
    elif group.bit_count() > 1 and evaluator.options.fusion == "search":
        checks = evaluator.legality(graph, group)
    elif group.bit_count() > 1:
        checks = evaluator.chain_rules(graph, group)
    return [*checks, *evaluator.capacity(group)]


def _plain(check: Check) -> Check:
    return replace(check, holds=bool(check.holds), actual=float(check.actual), limit=float(check.limit))


def verify_fused(fused: FusedGraph) -> None:
    """Raises InternalError unless groups cover each op once, are convex, and stand in an execution order."""
    for found in fused.segments:
        if found.segment.kind is SegmentKind.HOST:
            continue
        graph = SegmentGraph(fused.facts, found.segment.ops)
        covered = [op for group in found.groups for op in group.ops]
        if sorted(covered) != list(found.segment.ops):
            raise InternalError("groups do not cover each op of the segment exactly once", stage="fusion")
        done = 0
        for group in found.groups:
            mask = sum(1 << op for op in group.ops)
            if not graph.is_convex(mask):
                raise InternalError("a group is not convex", stage="fusion", actual=str(group.ops))
            for op in group.ops:
                before = graph.ancestors[op]
                if before & ~(done | mask):
                    raise InternalError("a group runs before one that it reads from", stage="fusion")
            done |= mask
