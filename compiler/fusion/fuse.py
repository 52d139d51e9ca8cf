"""The pass that groups every segment, and the baseline beside it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from compiler.cost.objective import Totals, objective_value
from compiler.degraded import Degradations, defects_of, failed_group
from compiler.errors import InternalError
from compiler.fusion.boundary import Reasons
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.evaluate import Evaluator, not_held
from compiler.fusion.greedy import execution_order, greedy_groups
from compiler.fusion.grouped import Grouped, Work, finished
from compiler.fusion.groups import FusedGraph, FusedSegment, Searched
from compiler.fusion.handing import handed_wrongly
from compiler.fusion.improve import improve
from compiler.fusion.none import none_groups
from compiler.fusion.partitions import Partitions
from compiler.fusion.pinned import Pin
from compiler.fusion.rivals import Rivals
from compiler.fusion.schedule import SegmentSchedule, resolve
from compiler.fusion.search import SearchResult, search_groups
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.garbage import collection_paused
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.segments import PartitionedGraph, SegmentKind
from compiler.rules import called
from compiler.tiling.finished import Choice
from compiler.tiling.tile import NOTHING_HANDED

# Two ways to add the same floating-point numbers differ by less than this, relatively.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class FuseSegments:
    """Pass: the groups of each chip segment, by the chosen strategy, and those of `none` (FUSE-R, FUSE-N)."""

    name: str = "fuse"
    options: Options
    compilers: SegmentCompilers = field(repr=False)
    degradations: Degradations = field(default_factory=Degradations, repr=False)

    def run(self, partitioned: PartitionedGraph) -> FusedGraph:
        """Raises LimitError if a single op does not fit the chip, naming it."""
        whole = [
            failed_group(partitioned.facts, segment.ops)
            for segment in partitioned.segments
            if segment.kind is SegmentKind.CHIP
        ]
        with collection_paused(), defects_of(self.name, whole):
            fused = self._fused(partitioned)
        self.compilers.of(partitioned.facts).forget_boxes()
        return fused

    def _fused(self, partitioned: PartitionedGraph) -> FusedGraph:
        facts = partitioned.facts
        compiler = self.compilers.of(facts)
        graphs = {
            number: SegmentGraph(facts, segment.ops)
            for number, segment in enumerate(partitioned.segments)
            if segment.kind is SegmentKind.CHIP
        }
        schedule, units = self.options.schedule, self.compilers.profile.units.count
        pinned = {} if schedule is None else resolve(schedule, partitioned, graphs, units)
        pinned = _op_by_op(pinned, graphs, facts, self.degradations.alone)
        work = {
            number: _work(compiler.evaluator(graph.ops), graph, pinned.get(number)) for number, graph in graphs.items()
        }
        found = _of_strategy(work, self.options.fusion)
        if self.options.fusion == "search" and self.options.objective == "edp" and len(work) > 1:
            found = _least_product(work, found)
        reasons = Reasons()
        segments: list[FusedSegment] = []
        baseline: list[FusedSegment] = []
        for number, segment in enumerate(partitioned.segments):
            if segment.kind is SegmentKind.HOST:
                segments.append(FusedSegment(segment=segment, groups=(), boundaries=()))
                continue
            part = work[number]
            segments.append(finished(found[number], part, segment, reasons))
            plain = Grouped(evaluator=part.plain, groups=part.baseline)
            baseline.append(finished(plain, part, segment, None))
        rivals = {
            number: Rivals(segment=partitioned.segments[number], part=part, found=found[number])
            for number, part in work.items()
            if self.options.fusion == "search"
        }
        return FusedGraph(
            partitioned=partitioned, facts=facts, segments=tuple(segments), baseline=tuple(baseline), rivals=rivals
        )


def _op_by_op(
    pinned: Mapping[int, SegmentSchedule],
    graphs: Mapping[int, SegmentGraph],
    facts: GraphFacts,
    alone: Collection[str],
) -> dict[int, SegmentSchedule]:
    """What is pinned by segment, with a group of its own for every op whose result `alone` names (IMPORT-7)."""
    result = dict(pinned)
    for number, graph in graphs.items():
        masks = [1 << op for op in graph.ops if facts.graph.ops[op].output in alone]
        if not masks:
            continue
        known = result.get(number, SegmentSchedule())
        # what groups hand each other on the chip they no longer can once some of them are taken apart
        pins = {
            group: replace(pin, handover=NOTHING_HANDED) for group, pin in known.pins.items() if not group & sum(masks)
        }
        result[number] = replace(known, pins=pins | dict.fromkeys(masks, Pin()))
    return result


def _work(plain: Evaluator, graph: SegmentGraph, pinned: SegmentSchedule | None) -> Work:
    """LimitError for a pinned group that breaks FUSE-8 or FUSE-9, or has no tiling as pinned (TILE-9)."""
    baseline = execution_order(graph, none_groups(plain, graph, graph.all))
    if pinned is None:
        return Work(graph=graph, plain=plain, baseline=baseline, evaluator=plain, fixed=(), start=baseline)
    evaluator, fixed = plain.pinned(pinned.pins, pinned.apart), pinned.fixed
    for group in fixed:
        for check in evaluator.pinned_rules(graph, group):
            if not check.holds:
                op = next(op for op in bits(group) if _breaks(evaluator, graph, op, check.rule))
                raise not_held(
                    graph.facts, group, op, f"{int(check.actual)} ({called(check.rule)})", f"{int(check.limit)}"
                )
        evaluator.tiling(group)
    part = Work(graph=graph, plain=plain, baseline=baseline, evaluator=evaluator, fixed=fixed, start=())
    return _started(part, evaluator)


def _started(part: Work, evaluator: Evaluator) -> Work:
    """A segment's work with its groups by `none` beside pinned ones, as this evaluator has them."""
    free = part.graph.all & ~sum(part.fixed)
    start = execution_order(part.graph, [*part.fixed, *none_groups(evaluator, part.graph, free)])
    return replace(part, evaluator=evaluator, start=start)


def _of_strategy(work: Mapping[int, Work], fusion: str) -> dict[int, Grouped]:
    """The groups of all segments, one after another: those before as grouped, those after as by `none`."""
    found: dict[int, Grouped] = {}
    before = Totals()
    after = [Totals()]
    for part in reversed(list(work.values())):
        after.append(after[-1] + part.evaluator.totals(part.start))
    for number, part in work.items():
        after.pop()
        outside = before + after[-1]
        if fusion == "rules":
            result = greedy_groups(part.evaluator, part.graph, outside, part.fixed)
            found[number] = Grouped(evaluator=part.evaluator, groups=result.groups, gains=result.gains)
        elif fusion == "search":
            found[number] = _searched(part, outside)
        else:
            found[number] = Grouped(evaluator=part.evaluator, groups=part.start)
        before = before + found[number].totals
    return found


def _least_product(work: Mapping[int, Work], found: dict[int, Grouped]) -> dict[int, Grouped]:
    """What search found, or `rules` or `none`, improved, should the whole cost less by them.

    Energy × latency is no sum over segments: the best of each segment, the others given, may be worse together than
    what `rules` makes of them all.
    """
    under = {number: _started(part, part.evaluator.under("rules")) for number, part in work.items()}
    grown = {number: _known(work[number], one) for number, one in _of_strategy(under, "rules").items()}
    plain = {number: Grouped(evaluator=part.evaluator, groups=part.start) for number, part in work.items()}
    least = min((found, grown, plain), key=lambda plan: _product(plan.values()))
    if least is found:
        return found
    result = dict(least)
    for number, part in work.items():
        outside = sum((one.totals for other, one in result.items() if other != number), start=Totals())
        better = _improved(result[number].evaluator, part, result[number].groups, outside, result[number].space)
        result[number] = replace(better, search=found[number].search, space=found[number].space)
    return result


def _known(part: Work, grown: Grouped) -> Grouped:
    """Groups of `rules` with their tilings, known to the segment's own evaluator."""
    tilings = {group: choice for group in grown.groups if isinstance(choice := grown.evaluator.tiling(group), Choice)}
    return Grouped(evaluator=part.evaluator.with_tilings(tilings), groups=grown.groups)


def _product(plan: Iterable[Grouped]) -> float:
    return float(objective_value("edp", sum((one.totals for one in plan), start=Totals())))


def _searched(part: Work, outside: Totals) -> Grouped:
    """The groups that search finds, improved; or those of `none` or `rules`, improved, should they cost less.

    They can where not all groups could be tried or priced, where rules allow several outputs, and where FUSE-11 keeps
    `rules` from the tile that search takes for a group: the largest one, which may read more and cost more. Then the
    bound holds for search's own tiles only.
    """
    found = search_groups(part.evaluator, part.graph, outside, part.fixed)
    groups, space = (part.start, None) if found is None else (found.groups, found.space)
    best = _improved(part.evaluator, part, groups, outside, space)
    if found is not None:
        best = replace(best, search=_known_of(found, part.evaluator, outside), space=space)
    options = part.evaluator.options
    alike = options.rule_enabled("FUSE-4") and not options.rule_enabled("FUSE-11")
    bound = None if found is None or not alike else found.bound
    if bound is not None and _value(best, outside) <= bound * (1 + _ROUNDING):
        return best
    rules = part.evaluator.under("rules")
    grown = greedy_groups(rules, part.graph, outside, part.fixed).groups
    others = [
        _known(part, Grouped(evaluator=rules, groups=grown)),
        Grouped(evaluator=part.evaluator, groups=part.start),
    ]
    other = min(others, key=lambda one: _value(one, outside))
    if _value(other, outside) >= _value(best, outside):
        return best
    return replace(_improved(other.evaluator, part, other.groups, outside, space), search=best.search, space=best.space)


def _known_of(found: SearchResult, evaluator: Evaluator, outside: Totals) -> Searched:
    """What the search knows, of the segment alone."""
    objective, own = evaluator.options.objective, evaluator.totals(found.groups)
    value, whole = (float(objective_value(objective, totals)) for totals in (own, outside + own))
    is_least = found.bound is not None and whole <= found.bound * (1 + _ROUNDING)
    bound = None if found.bound is None else found.bound - float(objective_value(objective, outside))
    if objective == "edp" and outside != Totals():
        bound = None
    elif is_least:
        bound = value
    return Searched(candidates=found.candidates, priced=found.priced, value=value, bound=bound, is_least=is_least)


def _improved(
    evaluator: Evaluator, part: Work, groups: tuple[int, ...], outside: Totals, space: Partitions | None
) -> Grouped:
    found = improve(evaluator, part.graph, groups, outside, frozenset(part.fixed), space=space)
    before = found.unmoved
    unmoved = None if before is None else Grouped(evaluator=before.evaluator, groups=before.groups)
    return Grouped(evaluator=found.evaluator, groups=found.groups, apart=found.apart, unmoved=unmoved)


def _value(found: Grouped, outside: Totals) -> float:
    return float(objective_value(found.evaluator.options.objective, outside + found.totals))


def _breaks(evaluator: Evaluator, graph: SegmentGraph, op: int, rule: str) -> bool:
    return any(check.rule == rule and not check.holds for check in evaluator.structure(graph, 1 << op))


def verify_fused(fused: FusedGraph) -> None:
    """Raises InternalError unless groups cover each op once, are convex, and stand in an execution order."""
    for found in fused.segments:
        if found.segment.kind is SegmentKind.HOST:
            continue
        graph = SegmentGraph(fused.facts, found.segment.ops)
        covered = [op for group in found.groups for op in group.ops]
        if sorted(covered) != list(found.segment.ops):
            raise InternalError("groups do not cover each op of the segment exactly once", stage="fusion")
        handovers = [(group.ops, group.choice.tiling.configuration.handover) for group in found.groups]
        if any(handover != NOTHING_HANDED for _, handover in handovers):
            wrong = handed_wrongly(fused.facts, handovers)
            if wrong is not None:
                raise InternalError(f"group {wrong[0]} {wrong[1]}", stage="fusion")
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
