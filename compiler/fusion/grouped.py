"""How a segment is grouped on its way through fusion, and that as later stages see it: with verdicts and reasons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from compiler.cost.objective import Totals
from compiler.fusion.bound import rules_at_boundaries, rules_of_tile
from compiler.fusion.boundary import Reasons, boundaries_of
from compiler.fusion.evaluate import Evaluator, refused
from compiler.fusion.groups import FusedSegment, Group, Searched
from compiler.fusion.partitions import Partitions
from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.partition.segments import Segment
from compiler.tiling.choose import Refusal
from compiler.tiling.figures import Check
from compiler.tiling.finished import Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """The groups of a segment, who knows their tilings, and FUSE-20's verdict for those that `rules` grew.

    `space`: the partitions among which strategy `search` found them, with what it priced. `unmoved`: the groups before
    boundaries were moved, if they were. `apart`: by run of groups between which something stays on the chip their
    tilings without that.
    """

    evaluator: Evaluator
    groups: tuple[int, ...]
    gains: Mapping[int, Check] = field(default_factory=dict)
    search: Searched | None = None
    space: Partitions | None = field(default=None, repr=False)
    unmoved: Grouped | None = field(default=None, repr=False)
    apart: tuple[Mapping[int, Choice], ...] = field(default=(), repr=False)

    @property
    def totals(self) -> Totals:
        """Of all groups."""
        return self.evaluator.totals(self.groups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One chip segment: its groups by `none` with and without what a schedule pins, and who prices which."""

    graph: SegmentGraph
    plain: Evaluator
    baseline: tuple[int, ...]
    evaluator: Evaluator
    fixed: tuple[int, ...]
    start: tuple[int, ...]


def finished(found: Grouped, part: Work, segment: Segment, reasons: Reasons | None) -> FusedSegment:
    """The segment with its groups; with `reasons` None (the baseline) nothing is explained."""
    evaluator, groups, graph = found.evaluator, found.groups, part.graph
    homes = {op: group for group in groups for op in bits(group)}
    pinned = frozenset(part.fixed)
    made, explained = [], []
    tiles: list[set[str]] = []
    for group in groups:
        choice = evaluator.tiling(group)
        if isinstance(choice, Refusal):
            raise refused(graph.facts, group, choice, evaluator.profile)
        checks: list[Check] = []
        if reasons is not None:
            structure = evaluator.pinned_rules(graph, group) if group in pinned else None
            checks = _verdicts(evaluator, graph, group, found.gains.get(group), structure)
            tiles.append(rules_of_tile(evaluator, group, choice))
        made.append(Group(ops=tuple(bits(group)), choice=choice, checks=tuple(_plain(c) for c in checks)))
        edges = () if reasons is None else boundaries_of(evaluator, graph, group, homes, pinned, reasons)
        if choice.tiling.configuration.handover.hands is not None:
            edges = tuple(replace(edge, why=f"it stays on the chip between the two; {edge.why}") for edge in edges)
        explained.append(edges)
    if reasons is not None:
        decided = rules_at_boundaries(groups, homes, explained)
        bound = (tuple(sorted(decided[group] | of_tile)) for group, of_tile in zip(groups, tiles, strict=True))
        made = [replace(group, bound=rules) for group, rules in zip(made, bound, strict=True)]
    return FusedSegment(segment=segment, groups=tuple(made), boundaries=tuple(explained), search=found.search)


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
    return sorted([*checks, *evaluator.capacity(group)], key=lambda check: evaluator.options.rule_place(check.rule))


def _plain(check: Check) -> Check:
    return replace(check, holds=bool(check.holds), actual=float(check.actual), limit=float(check.limit))
