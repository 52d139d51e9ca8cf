"""The pass that groups every segment, and the baseline beside it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from compiler.cost.objective import Totals
from compiler.errors import InternalError
from compiler.fusion.boundary import boundaries_of
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator, refused
from compiler.fusion.greedy import execution_order, greedy_groups
from compiler.fusion.groups import FusedGraph, FusedSegment, Group
from compiler.fusion.none import none_groups
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.options import Options
from compiler.partition.segments import PartitionedGraph, Segment, SegmentKind
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import Check


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseSegments:
    """Pass: the groups of each chip segment, by the chosen strategy, and those of `none` (FUSE-R, FUSE-N)."""

    name: str = "fuse"
    options: Options
    compilers: SegmentCompilers = field(repr=False)

    def run(self, partitioned: PartitionedGraph) -> FusedGraph:
        """Raises LimitError if a single op does not fit the chip, naming it."""
        facts = partitioned.facts
        compiler = self.compilers.of(facts)
        work = []
        for segment in partitioned.segments:
            if segment.kind is SegmentKind.CHIP:
                evaluator, graph = compiler.evaluator(segment.ops), SegmentGraph(facts, segment.ops)
                work.append((evaluator, graph, execution_order(graph, none_groups(evaluator, graph, graph.all))))
        # totals of all segments before the current one, as grouped, and of those after it, by `none`
        before = Totals()
        after = [Totals()]
        for evaluator, _, groups in reversed(work):
            after.append(after[-1] + evaluator.totals(groups))
        segments: list[FusedSegment] = []
        baseline: list[FusedSegment] = []
        number = 0
        for segment in partitioned.segments:
            if segment.kind is SegmentKind.HOST:
                segments.append(FusedSegment(segment=segment, groups=(), boundaries=()))
                continue
            evaluator, graph, plain = work[number]
            groups, gains = plain, {}
            if self.options.fusion == "rules":
                result = greedy_groups(evaluator, graph, before + after[len(work) - number - 1])
                groups, gains = result.groups, result.gains
            before = before + evaluator.totals(groups)
            segments.append(_finished(evaluator, graph, segment, groups, gains, explain=True))
            baseline.append(_finished(evaluator, graph, segment, plain, {}, explain=False))
            number += 1
        return FusedGraph(partitioned=partitioned, facts=facts, segments=tuple(segments), baseline=tuple(baseline))


def _finished(
    evaluator: Evaluator,
    graph: SegmentGraph,
    segment: Segment,
    groups: tuple[int, ...],
    gains: dict[int, Check],
    *,
    explain: bool,
) -> FusedSegment:
    homes = {op: group for group in groups for op in bits(group)}
    made, reasons = [], []
    for group in groups:
        choice = evaluator.tiling(group)
        if isinstance(choice, Refusal):
            raise refused(graph.facts, group, choice)
        checks = _verdicts(evaluator, graph, group, gains.get(group)) if explain else []
        made.append(Group(ops=tuple(bits(group)), choice=choice, checks=tuple(_plain(c) for c in checks)))
        reasons.append(boundaries_of(evaluator, graph, group, homes) if explain else ())
    return FusedSegment(segment=segment, groups=tuple(made), boundaries=tuple(reasons))


def _verdicts(evaluator: Evaluator, graph: SegmentGraph, group: int, gain: Check | None) -> list[Check]:
    """The rules that bind the group, in the order in which they are asked."""
    checks: list[Check] = []
    if gain is not None:
        checks = [*evaluator.structure(graph, group), *evaluator.profit(graph, group), gain]
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
