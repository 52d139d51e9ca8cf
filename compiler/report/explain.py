"""A plan in words: segments, why each cut is where it is, which nodes stay on the host, what merging did."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from compiler.amounts import bytes_text, count_text, cycles_text
from compiler.errors import RequestError, did_you_mean, printable
from compiler.report.boundaries import crossing_lines, objective_text
from compiler.report.explain_group import explain_group, group_part, rules_line
from compiler.report.explain_search import search_line, simulated_line
from compiler.report.headline import LABEL_WIDTH, headline, title
from compiler.report.plan import Plan, PlanGroup, PlanSegment, Report

_NAMES_SHOWN = 6
_CROSSINGS_SHOWN = 10
# An error names so many ids; those between them and the last can be told.
_IDS_SHOWN = 100


def explain(plan: Plan, group: str | None = None, report: Report | None = None, *, advised: int = 0) -> str:
    """The explanation of a whole plan, or of one group or segment by its id; with a report a group's bytes are split.

    For the first `advised` boundaries changes are planned again, and listed elsewhere.

    Raises RequestError if there is none of that id, naming those that exist.
    """
    if group is None:
        return "\n".join([*_whole(plan, report, advised), ""])
    segment, found = find(plan, group)
    if found is not None:
        return "\n".join([*explain_group(plan, segment, found, report), ""])
    lines = _segment(plan, segment)
    groups = (line for g in segment.groups for line in ("", *explain_group(plan, segment, g, report)))
    return "\n".join([*lines, *groups, ""])


def group_values(plan: Plan, report: Report | None, group: str | None) -> dict[str, Any]:
    """A group's part of plan and report as plain values; none for a segment, or for the whole plan."""
    found = None if group is None else find(plan, group)[1]
    return {} if found is None else group_part(plan, report, found)


def find(plan: Plan, name: str) -> tuple[PlanSegment, PlanGroup | None]:
    """The segment of an id, or the group with its segment; raises RequestError naming the ids that exist."""
    for segment in plan.segments:
        if segment.id == name:
            return segment, None
        for found in segment.groups:
            if found.id == name:
                return segment, found
    known = [name for segment in plan.segments for name in (segment.id, *(g.id for g in segment.groups))]
    shown = known if len(known) <= _IDS_SHOWN else [*known[: _IDS_SHOWN - 1], f"... {known[-1]}"]
    raise RequestError(
        f"the plan has no group or segment {printable(name, 60)!r}",
        code="unknown_group",
        stage="explain",
        actual=printable(name, 60),
        limit=", ".join(shown) or "no segments",
        hint=did_you_mean(name, known) or "Give an id of the plan's table: s0.g3 for a group, s0 for a segment",
    )


def _whole(plan: Plan, report: Report | None, advised: int) -> Iterator[str]:
    yield title(plan)
    before = ""
    for line in headline(plan, report):
        yield f"{(line.label if line.label != before else '').ljust(LABEL_WIDTH)}{line.text}"
        before = line.label
    yield ""
    crossing = list(crossing_lines(plan, _CROSSINGS_SHOWN, advised))
    yield (
        "Boundaries between groups, by the DRAM traffic that each costs:"
        if crossing
        else ("No boundary between groups costs DRAM traffic above the minimum.")
    )
    yield from (f"  {line}" for line in crossing)
    yield ""
    if plan.folded:
        removed = count_text(len(plan.folded), "node")
        yield f"Removed: {removed} with constant results (computed at compile time) or that no output needs."
    kinds = sorted({pattern.kind for pattern in plan.patterns})
    if kinds:
        counts = (f"{sum(p.kind == kind for p in plan.patterns)} {kind}" for kind in kinds)
        yield f"Recognised patterns: {', '.join(counts)}."
    if plan.rules:
        yield rules_line(plan)
    for segment in plan.segments:
        yield from _segment(plan, segment)
    partition = plan.partition
    if partition.failed:
        yield ""
        yield "Segments that did not compile whole, in the order tried:"
        for failed in partition.failed:
            yield (
                f"  {_span(failed.first, failed.last)}: {printable(failed.why, 400)}."
                f" Cut by {failed.cut} into {count_text(failed.parts, 'part')}."
            )
    yield ""
    yield from _merging(plan)
    if len(partition.chips) > 1 or any(chip.reprogrammed_bytes for chip in partition.chips):
        yield ""
        yield from _chips(plan)


def _segment(plan: Plan, segment: PlanSegment) -> Iterator[str]:
    where = "on the host" if segment.kind == "host" else f"on chip {segment.chip}"
    parts = [f"{count_text(len(segment.nodes), 'node')}{_names(segment.nodes)}"] if segment.nodes else []
    if segment.continues:
        parts.append(f"further parts of {count_text(len(segment.continues), 'node')}{_names(segment.continues)}")
    yield f"Segment {segment.id} {where}: {'; '.join(parts)}"
    cut = segment.cut
    after = f" after {printable(cut.after, 80)}" if cut.after is not None else ""
    crossing = f"; {bytes_text(cut.crossing_bytes)} cross" if cut.after is not None else ""
    yield f"  begins{after}: {cut.why}{crossing}."
    for node in segment.host:
        what = f"{printable(node.node, 80)} ({printable(node.op_type, 60)})"
        yield f"  {what} stays on the host: {printable(node.reason, 300)}."
    if segment.kind == "chip":
        cores = segment.unit_cores
        units = ", ".join(
            f"{count} {unit} on {count_text(cores[unit], 'core')}" for unit, count in segment.units.items()
        )
        resident = ""
        if segment.resident_bytes_per_core:
            resident = f" ({bytes_text(segment.resident_bytes_per_core)} in the fullest core before it runs)"
        yield (
            f"  {segment.macs:,} multiply-accumulates, {bytes_text(segment.weight_bytes)} of weights{resident},"
            f" {cycles_text(segment.cycles, plan.cycle_s)} estimated, {count_text(len(segment.groups), 'group')};"
            f" ops by engine: {units}."
        )
    if segment.search is not None:
        yield f"  {search_line(segment.id, segment.search, partial(objective_text, plan))}"
    if segment.simulated is not None:
        yield f"  {simulated_line(segment.id, segment.simulated, lambda cycles: cycles_text(cycles, plan.cycle_s))}"


def _merging(plan: Plan) -> Iterator[str]:
    partition = plan.partition
    chip_and_host = len(plan.segments)
    if partition.segments_before_merge == chip_and_host and not partition.merges:
        yield f"Merging segments ({partition.strategy}): there was nothing to merge."
        return
    worked = sum(merge.compiled for merge in partition.merges)
    yield (
        f"Merging segments ({partition.strategy}) made {chip_and_host} of {partition.segments_before_merge} segments:"
        f" {count_text(len(partition.merges), 'candidate')} tried, {worked} compiled."
    )
    for merge in partition.merges:
        if not merge.compiled:
            why = printable(merge.why, 300) if merge.why else "it does not compile"
            yield f"  {_span(merge.first, merge.last)} ({merge.members} segments) did not compile: {why}."
    for apart in partition.apart:
        yield f"  {apart.before} and {apart.after} stay apart: {printable(apart.why, 300)}."


def _chips(plan: Plan) -> Iterator[str]:
    for chip in plan.partition.chips:
        reprogrammed = ""
        if chip.reprogrammed_bytes:
            reprogrammed = (
                f", {bytes_text(chip.reprogrammed_bytes)} of them loaded anew per inference for its executables"
            )
        yield (
            f"Chip {chip.chip}: {', '.join(chip.segments) or 'no segments'}; {chip.cycles:,} cycles,"
            f" {bytes_text(chip.weight_bytes)} of weights{reprogrammed}."
        )
    for traffic in plan.partition.traffic:
        yield f"From {traffic.source} to {traffic.target}: {bytes_text(traffic.bytes)} per inference."


def _names(nodes: tuple[str, ...]) -> str:
    if not nodes:
        return "."
    shown = ", ".join(printable(name, 60) for name in nodes[:_NAMES_SHOWN])
    return f": {shown}{', ...' if len(nodes) > _NAMES_SHOWN else ''}"


def _span(first: str, last: str) -> str:
    return printable(first, 60) if first == last else f"{printable(first, 60)} to {printable(last, 60)}"
