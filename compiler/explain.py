"""A plan in words: segments, why each cut is where it is, which nodes stay on the host, what merging did."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from compiler.errors import RequestError, printable
from compiler.explain_gap import gap_lines
from compiler.explain_group import explain_group, group_part, rules_line, verdict_line
from compiler.explain_search import search_line
from compiler.plan import Plan, PlanGroup, PlanSegment, Report

_NAMES_SHOWN = 6
# An error names so many ids; those between them and the last can be told.
_IDS_SHOWN = 100


def explain(plan: Plan, group: str | None = None, report: Report | None = None) -> str:
    """The explanation of a whole plan, or of one group or segment by its id; with a report a group's bytes are split.

    Raises RequestError if there is none of that id, naming those that exist.
    """
    if group is None:
        return "\n".join([*_whole(plan), ""])
    segment, found = find(plan, group)
    if found is not None:
        return "\n".join([*explain_group(plan, segment, found, report), ""])
    lines = _segment(segment, plan.options["objective"])
    return "\n".join([*lines, *(line for g in segment.groups for line in _group(g)), ""])


def group_values(plan: Plan, report: Report, group: str | None) -> dict[str, Any]:
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
    )


def _whole(plan: Plan) -> Iterator[str]:
    native, partition = plan.native, plan.partition
    chips = [segment for segment in plan.segments if segment.kind == "chip"]
    hosts = [segment for segment in plan.segments if segment.kind == "host"]
    yield (
        f"{printable(plan.model.name, 80)} on {plan.profile.name}: {_count(len(plan.segments), 'segment')}"
        f" ({len(chips)} on chip, {len(hosts)} on the host),"
        f" {_count(sum(len(s.groups) for s in chips), 'group')}."
    )
    macs = native.chip_macs + native.host_macs
    share = f"{100 * native.chip_macs / macs:.2f} % of the multiply-accumulates" if macs else "no multiply-accumulates"
    nodes = native.chip_nodes + native.host_nodes
    yield (
        f"The accelerator runs {native.chip_nodes} of {nodes} nodes and {share};"
        f" {_count(len(plan.folded), 'node')} {'was' if len(plan.folded) == 1 else 'were'} evaluated at compile time"
        " or needed by no output."
    )
    if plan.dims:
        dims = ", ".join(f"{printable(name, 40)} = {extent}" for name, extent in plan.dims.items())
        yield f"Dynamic dimensions are planned at their maxima: {dims}."
    kinds = sorted({pattern.kind for pattern in plan.patterns})
    if kinds:
        counts = (f"{sum(p.kind == kind for p in plan.patterns)} {kind}" for kind in kinds)
        yield f"Recognised: {', '.join(counts)}."
    stalls = ", ".join(f"{cycles} {cause}" for cause, cycles in plan.totals.stalls.items())
    yield (
        f"{plan.totals.dram_bytes} DRAM bytes, {sum(s.cycles for s in chips)} cycles"
        f"{f', of them stalls: {stalls}' if stalls else ''}."
    )
    totals = plan.totals
    yield from gap_lines(plan.gap, totals.dram_bytes, totals.dram_bytes_floor, lambda size: f"{size} bytes")
    if plan.rules:
        yield rules_line(plan)
    yield ""
    for segment in plan.segments:
        yield from _segment(segment, plan.options["objective"])
    if partition.failed:
        yield ""
        yield "Segments that did not compile whole, in the order tried:"
        for failed in partition.failed:
            yield (
                f"  {_span(failed.first, failed.last)}: {printable(failed.why, 400)}."
                f" Cut by {failed.cut} into {_count(failed.parts, 'part')}."
            )
    yield ""
    yield from _merging(plan)
    if len(partition.chips) > 1 or any(chip.reprogrammed_bytes for chip in partition.chips):
        yield ""
        yield from _chips(plan)


def _segment(segment: PlanSegment, objective: str) -> Iterator[str]:
    where = "on the host" if segment.kind == "host" else f"on chip {segment.chip}"
    parts = [f"{_count(len(segment.nodes), 'node')}{_names(segment.nodes)}"] if segment.nodes else []
    if segment.continues:
        parts.append(f"further parts of {_count(len(segment.continues), 'node')}{_names(segment.continues)}")
    yield f"Segment {segment.id} {where}: {'; '.join(parts)}"
    cut = segment.cut
    after = f" after {printable(cut.after, 80)}" if cut.after is not None else ""
    crossing = f"; {cut.crossing_bytes} bytes cross" if cut.after is not None else ""
    yield f"  begins{after}: {cut.why}{crossing}."
    for node in segment.host:
        what = f"{printable(node.node, 80)} ({printable(node.op_type, 60)})"
        yield f"  {what} stays on the host: {printable(node.reason, 300)}."
    if segment.kind == "chip":
        cores = segment.unit_cores
        units = ", ".join(f"{count} {unit} on {_count(cores[unit], 'core')}" for unit, count in segment.units.items())
        resident = ""
        if segment.resident_bytes_per_core:
            resident = f" ({segment.resident_bytes_per_core} in the fullest core before it runs)"
        yield (
            f"  {segment.macs} multiply-accumulates, {segment.weight_bytes} bytes of weights{resident},"
            f" {segment.cycles} cycles, {_count(len(segment.groups), 'group')}; hardware nodes: {units}."
        )
    if segment.search is not None:
        yield f"  {search_line(segment.id, segment.search, objective)}"


def _merging(plan: Plan) -> Iterator[str]:
    partition = plan.partition
    chip_and_host = len(plan.segments)
    if partition.segments_before_merge == chip_and_host and not partition.merges:
        yield f"Merging ({partition.strategy}): there was nothing to merge."
        return
    worked = sum(merge.compiled for merge in partition.merges)
    yield (
        f"Merging ({partition.strategy}) made {chip_and_host} of {partition.segments_before_merge} segments:"
        f" {_count(len(partition.merges), 'candidate')} tried, {worked} compiled."
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
            reprogrammed = f", {chip.reprogrammed_bytes} bytes of them loaded anew per inference for its executables"
        yield (
            f"Chip {chip.chip}: {', '.join(chip.segments) or 'no segments'}; {chip.cycles} cycles,"
            f" {chip.weight_bytes} bytes of weights{reprogrammed}."
        )
    for traffic in plan.partition.traffic:
        yield f"From {traffic.source} to {traffic.target}: {traffic.bytes} bytes per inference."


def _group(group: PlanGroup) -> Iterator[str]:
    tiling, placement = group.tiling, group.placement
    yield f"Group {group.id}: {_count(len(group.nodes), 'node')}{_names(group.nodes)}"
    extents = ", ".join(f"{axis} {extent}" for axis, extent in zip(tiling.axes, tiling.tile, strict=True))
    dealt = f", dealt as {placement.placement}," if placement.spread == "bands" != placement.placement else ""
    yield (
        f"  {group.mode}: {_count(tiling.tiles, 'SRAM tile')} of ({extents}), {tiling.rounds} one after another;"
        f" {_count(placement.units, 'unit')} by {placement.spread}{dealt or ','}"
        f" {_count(placement.cores, 'core')} each by {placement.core_spread};"
        f" {tiling.order}, {_count(tiling.channel_slices, 'channel slice')}."
    )
    if group.halo:
        modes = ", ".join(f"{axis} {mode}" for axis, mode in group.halo.items())
        kept = f"; {tiling.kept_bytes} bytes wait for later tiles" if tiling.kept_bytes else ""
        walk = ", ".join(axis for axis in placement.walk if axis in group.halo)
        yield f"  halos: {modes}; walked by {walk}{kept}."
    read = [op for op in group.ops if op.weight_bytes]
    for op in read[:_NAMES_SHOWN]:
        times = _count(op.weight_loads, "time")
        home = {"core": "wait in the cores", "sram": "wait in the SRAM", "dram": "do not wait on chip", "none": ""}
        yield (
            f"  weights of {printable(op.node, 60)}: {op.weight_bytes} bytes, {op.weight_mode}, read {times};"
            f" they {home[op.weight_home]}."
        )
    if len(read) > _NAMES_SHOWN:
        yield f"  and weights of {_count(len(read) - _NAMES_SHOWN, 'more op')}."
    stalls = ", ".join(f"{cycles} {cause}" for cause, cycles in group.stalls.items())
    yield (
        f"  {group.dram_bytes} DRAM bytes, {group.cycles} cycles, bound by {group.bound_by}"
        f"{f'; stalls: {stalls}' if stalls else ''}."
    )
    for verdict in group.rules:
        yield f"  {verdict_line(verdict)}."
    for edge in group.boundary:
        target = printable(edge.consumer, 80) if edge.consumer is not None else "the graph's output"
        yield f"  {printable(edge.tensor, 80)} goes to {target}: {printable(edge.why, 300)}."


def _names(nodes: tuple[str, ...]) -> str:
    if not nodes:
        return "."
    shown = ", ".join(printable(name, 60) for name in nodes[:_NAMES_SHOWN])
    return f": {shown}{', ...' if len(nodes) > _NAMES_SHOWN else ''}"


def _span(first: str, last: str) -> str:
    return printable(first, 60) if first == last else f"{printable(first, 60)} to {printable(last, 60)}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
