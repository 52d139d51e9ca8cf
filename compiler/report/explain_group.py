"""Everything that a plan decides and knows of one group, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from compiler.amounts import bytes_text, count_text, cycles_text, number_text, si_text
from compiler.errors import printable
from compiler.report.boundaries import reason_text
from compiler.report.explain_gap import entry_line
from compiler.report.headline import BOUNDS
from compiler.report.plan import (
    GapEntryDoc,
    GroupReport,
    Plan,
    PlanGroup,
    PlanOp,
    PlanSegment,
    Report,
)
from compiler.report.plan_group_parts import HandedDoc, HandoverDoc
from compiler.report.plan_rules import BoundaryDoc, RuleVerdict
from compiler.rules import named

_HOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "core": "kept in the cores",
        "sram": "kept in the SRAM",
        "dram": "not kept on the chip",
        "none": "not kept",
    }
)

# A rule's outcome (RuleVerdict.outcome) for people.
_OUTCOMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bound": "decided this group",
        "held anyway": "met, not decisive",
        "fails": "not met",
        "not asked": "not asked here",
    }
)
# Ops that read parts of a constant as data.
_LOOKUPS: Final = ("Gather", "GatherElements", "GatherND")


class Entering(msgspec.Struct, frozen=True, kw_only=True):
    """One edge that enters a group: the group that makes the tensor, and why the two are not one.

    `producer_group` is None for what no group of the plan makes: inputs of the graph, results of the host.
    """

    tensor: str
    producer_group: str | None
    edge: BoundaryDoc | None


def entering(plan: Plan, group: PlanGroup) -> tuple[Entering, ...]:
    """Every tensor that a group reads from outside, with the reason at the boundary of the group that makes it."""
    made = {
        edge.tensor: (other.id, edge)
        for segment in plan.segments
        for other in segment.groups
        for edge in other.boundary
        if edge.consumer_group == group.id
    }
    found = []
    for tensor in group.sram_tile.inputs:
        producer, edge = made.get(tensor, (None, None))
        found.append(Entering(tensor=tensor, producer_group=producer, edge=edge))
    return tuple(found)


def gap_entries(plan: Plan, group: PlanGroup) -> tuple[GapEntryDoc, ...]:
    """The bytes above the floor in which a group has a part."""
    return tuple(entry for entry in plan.gap.entries if group.id in entry.groups)


def group_part(plan: Plan, report: Report | None, group: PlanGroup) -> dict[str, Any]:
    """A group's part of the documents as plain values, with the edges that enter it and its bytes above the floor."""
    prices = [] if report is None else [entry for entry in report.groups if entry.id == group.id]
    return {
        "group": msgspec.to_builtins(group),
        "report": msgspec.to_builtins(prices[0]) if prices else None,
        "entering": msgspec.to_builtins(entering(plan, group)),
        "gap": msgspec.to_builtins(gap_entries(plan, group)),
    }


def explain_group(plan: Plan, segment: PlanSegment, group: PlanGroup, report: Report | None) -> Iterator[str]:
    """One group line by line; without a report its DRAM bytes are not split."""
    count = count_text(len(group.ops), "op")
    yield f"Group {group.id} of segment {segment.id} on chip {segment.chip}: {count}, {group.mode} mode."
    nodes = ", ".join(printable(node, 60) for node in group.nodes)
    yield f"ONNX nodes: {nodes or 'further parts of nodes that an earlier group begins'}."
    yield "Ops:"
    for op in group.ops:
        yield f"  {_op(op)}."
    yield "Tiling:"
    yield from _tiling(group)
    yield from _handover(group.handover)
    yield "Costs:"
    yield from _price(plan, group, next((g for g in report.groups if g.id == group.id), None) if report else None)
    yield "Memory (SRAM of a cluster, NRAM and WRAM of a core):"
    for level, use in group.memory.items():
        live = f"at most {bytes_text(use.lower_bound_bytes)} live at once"
        yield f"  {_memory(level)}: takes {bytes_text(use.peak_bytes)} of {bytes_text(use.capacity_bytes)}, {live}."
    yield "Checks:"
    for verdict in group.rules:
        yield f"  {verdict_line(verdict)}."
    yield "Inputs:"
    for enters in entering(plan, group):
        name = printable(enters.tensor, 80)
        if enters.edge is None:
            yield f"  {name}: {_source(plan, group, report, enters.tensor)}."
        else:
            yield f"  {name} from {enters.producer_group}: {reason_text(enters.edge, plan)}."
    yield "Outputs:"
    for edge in group.boundary:
        yield f"  {printable(edge.tensor, 80)} to {_target(edge)}: {reason_text(edge, plan)}."
    above = gap_entries(plan, group)
    if above:
        yield "Excess DRAM traffic that it has a part in:"
        for entry in above:
            yield f"  {entry_line(entry)}."


def rules_line(plan: Plan) -> str:
    """Which rules and checks decided groups of the plan, and how many were met without deciding one."""
    groups = ((named(use.id), len(use.bound)) for use in plan.rules if use.bound)
    bound = [f"{name} in {count_text(count, 'group')}" for name, count in groups]
    off = [named(use.id) for use in plan.rules if not use.enabled]
    others = sum(use.enabled and not use.bound for use in plan.rules)
    switched = f" Switched off: {', '.join(off)}." if off else ""
    met = f"{others} others were met without deciding one" if bound else f"all {others} were met without deciding one"
    return f"Rules that decided groups: {', '.join(bound) or 'none'}; {met}.{switched}"


def verdict_line(verdict: RuleVerdict) -> str:
    """A rule or check by name: whether it decided the group, and actual value and limit unless it counts nothing."""
    ids = verdict.id if verdict.also is None else f"{verdict.id}, {verdict.also}"
    name = verdict.name if verdict.name == verdict.id else f"{verdict.name} ({ids})"
    amounts = f", {number_text(verdict.actual)} of {number_text(verdict.limit)}"
    return f"{name}: {_OUTCOMES[verdict.outcome]}{amounts if verdict.actual or verdict.limit else ''}"


def _source(plan: Plan, group: PlanGroup, report: Report | None, tensor: str) -> str:
    """What makes a tensor that no group makes, as far as plan and report tell."""
    hosts = {segment.id for segment in plan.segments if segment.kind == "host"}
    for op in () if report is None else report.graph:
        if op.output == tensor and op.group in hosts:
            return f"computed on the host by {printable(op.node, 80)}"
    may_be = ["an input of the graph"]
    may_be += ["part of a lookup table"] if any(op.kind in _LOOKUPS for op in group.ops) else []
    may_be += ["a result of the host"] if hosts and report is None else []
    return " or ".join(may_be)


def _memory(level: str) -> str:
    """A level in words: sram-weights is the weight part of the SRAM."""
    name, _, part = level.partition("-")
    return f"{name.upper()}{f', {part}' if part else ''}"


def _op(op: PlanOp) -> str:
    part = "" if op.part is None else f", part {op.part}"
    words = f"{printable(op.node, 80)} ({printable(op.kind, 60)}{part})"
    if op.weight_bytes:
        times = "read once" if op.weight_loads == 1 else f"read {op.weight_loads} times"
        if not op.weight_loads and op.weight_mode == "resident":
            times = "read with an earlier op of the group"
        slices = f", {op.weight_slices} slices" if op.weight_slices > 1 else ""
        read = f"{op.weight_mode}, {times}{slices}"
        words += f": {bytes_text(op.weight_bytes)} of weights, {read}, {_HOMES[op.weight_home]}"
    if op.addresses is not None:
        tables = op.addresses
        words += (
            f"; address tables of {tables.positions} positions and {tables.taps} taps:"
            f" {bytes_text(tables.bytes)} in a core, {bytes_text(tables.read_bytes)} read"
        )
    return words


def _tiling(group: PlanGroup) -> Iterator[str]:
    tiling, placement = group.tiling, group.placement
    inputs = ", ".join(
        f"{printable(name, 60)} {'×'.join(map(str, extents))}" for name, extents in group.sram_tile.inputs.items()
    )
    yield (
        f"  tile: {_extents(tiling.axes, tiling.tile)} of the result;"
        f" {bytes_text(group.sram_tile.bytes)} of inputs ({inputs});"
        f" {tiling.tiles:,} in all, {tiling.rounds:,} one after another."
    )
    yield f"  core tile: {_extents(tiling.axes, tiling.core_tile)}; {tiling.core_tiles} in each tile."
    buffered = "double-buffered" if tiling.double_buffered else "not double-buffered"
    in_sram = "; weights may be kept in the SRAM" if tiling.weights_in_sram else ""
    yield (
        f"  {tiling.order}, {buffered}; slices of output channels: {tiling.channel_slices}"
        f" ({tiling.outer_loop} are the outer loop), of input channels: {tiling.input_slices}{in_sram}."
    )
    halos = ", ".join(f"{axis} {mode}" for axis, mode in group.halo.items()) or "none"
    kept = f"; {bytes_text(tiling.kept_bytes)} kept for later tiles" if tiling.kept_bytes else ""
    yield f"  halos: {halos}{kept}."
    walk = f"; tiles in the order of {', '.join(placement.walk)}" if placement.walk else ""
    dealt = f", dealt as {placement.placement}" if placement.spread == "bands" else ""
    yield (
        f"  placement: {count_text(placement.units, 'unit')} (spread: {placement.spread}{dealt});"
        f" {count_text(placement.cores, 'core')} in each (spread: {placement.core_spread}){walk}."
    )


def _handover(handover: HandoverDoc | None) -> Iterator[str]:
    if handover is None:
        return
    parts = [f"takes {_handed(its)}" for its in handover.takes]
    parts += [f"leaves {_handed(handover.hands)}"] if handover.hands is not None else []
    held = f"{bytes_text(handover.held_bytes)} of each unit are held for what stays on the chip between groups"
    yield f"  on the chip: {'; '.join([*parts, held])}."


def _handed(tensor: HandedDoc) -> str:
    return f"{printable(tensor.tensor, 60)} (in each unit {tensor.share} along {tensor.axis})"


def _price(plan: Plan, group: PlanGroup, price: GroupReport | None) -> Iterator[str]:
    parts = ""
    if price is not None:
        inputs = price.dram_read_bytes - price.weight_read_bytes
        tables = f"; address tables besides: {bytes_text(price.table_read_bytes)}" if price.table_read_bytes else ""
        weights, out = bytes_text(price.weight_read_bytes), bytes_text(price.dram_write_bytes)
        parts = f": {bytes_text(inputs)} in, {weights} weights, {out} out{tables}"
    yield f"  {bytes_text(group.dram_bytes)} of DRAM traffic{parts}."
    stalls = ", ".join(f"{cycles:,} {cause}" for cause, cycles in group.stalls.items())
    energy = si_text(group.energy_j, "J")
    limit = BOUNDS[group.bound_by]
    yield f"  {cycles_text(group.cycles, plan.cycle_s)} estimated, limited by {limit}; {energy} estimated."
    yield f"  Stalls in cycles: {stalls or 'none'}."


def _target(edge: BoundaryDoc) -> str:
    if edge.consumer is None:
        return "the graph's output"
    home = "on the host" if edge.consumer_group is None else f"in {edge.consumer_group}"
    return f"{printable(edge.consumer, 80)} {home}"


def _extents(axes: tuple[str, ...], extents: tuple[int, ...]) -> str:
    return ", ".join(f"{axis} {extent}" for axis, extent in zip(axes, extents, strict=True)) or "one value"
