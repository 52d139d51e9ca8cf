"""From the fused graph to the documents: the last pass."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import msgspec

from compiler import plan as doc
from compiler.cost.objective import Totals
from compiler.frontend.source import ModelSource
from compiler.fusion.bounds import dram_floor_bytes, dram_reference_bytes, needed_positions, roofline_cycles
from compiler.fusion.groups import Boundary, FusedGraph, FusedSegment, Group
from compiler.fusion.segment_graph import SegmentGraph
from compiler.ir.graph import Graph
from compiler.options import Options
from compiler.profile import Profile, profile_digest
from compiler.version import COMPILER_VERSION

ASSUMPTIONS = (
    "Figures are closed-form estimates; no program was generated or executed, and no values were computed.",
    "Inside a group transfers and computation overlap, except the first tile's load and the last tile's store; "
    "without double buffering transfers and computation alternate.",
    "Groups run one after another.",
    "Neighbouring tiles recompute or re-read their halo (halo mode recompute).",
    "Every operand crosses a core's memories once per core tile; re-reads inside the matrix unit are not counted.",
    "Units read shared weights from DRAM once and pass them on over CDMA or core links where the profile has them.",
    "Not modelled in this version, though a profile may state them: limits on program bytes and commands (no program "
    "is generated), engines that share a queue, start-ups on chip, cycles per hop, host and chip-to-chip links, line "
    "granularity, and the direct route of IODMA beside an SRAM.",
    "Views (Reshape, Flatten, Squeeze, Unsqueeze) move nothing.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What a compilation answers with."""

    plan: doc.Plan
    report: doc.Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Pass: the plan and the report of a fused graph."""

    name: str = "describe"
    source: ModelSource
    profile: Profile
    options: Options

    def run(self, fused: FusedGraph) -> Documents:
        """Both documents; deterministic to the byte."""
        graph = fused.partitioned.graph
        model = doc.ModelRef(name=self.source.name, sha256=self.source.sha256)
        profile = doc.ProfileRef(name=self.profile.name, digest=profile_digest(self.profile))
        totals = self._totals(fused)
        baseline = self._baseline(fused)
        chosen = msgspec.to_builtins(self.options)
        for bound in ("time_limit_s", "memory_limit_bytes"):
            chosen.pop(bound)  # they never change a result (SPEC section 13)
        plan = doc.Plan(
            schema="tessera.plan/1",
            model=model,
            profile=profile,
            options=_sorted(chosen),
            compiler_version=COMPILER_VERSION,
            totals=totals,
            baseline=baseline,
            folded=graph.folded,
            segments=_segments(graph, fused.segments),
        )
        report = doc.Report(
            schema="tessera.report/1",
            model=model,
            profile=profile,
            compiler_version=COMPILER_VERSION,
            totals=totals,
            baseline=baseline,
            values_checked=False,
            op_counts=dict(sorted(Counter(op.kind for op in graph.ops).items())),
            weight_bytes=sum(t.size_bytes for t in graph.tensors.values() if t.constant is not None),
            groups=tuple(
                _group_report(f"{found.segment.id}.g{number}", group)
                for found in fused.segments
                for number, group in enumerate(found.groups)
            ),
            assumptions=ASSUMPTIONS,
        )
        return Documents(plan=plan, report=report)

    def _totals(self, fused: FusedGraph) -> doc.Totals:
        graph, facts = fused.partitioned.graph, fused.facts
        total = Totals.of(group.choice.cost for found in fused.segments for group in found.groups)
        needed = needed_positions(facts)
        floor = dram_floor_bytes(facts, needed)
        segments = tuple(SegmentGraph(facts, found.segment.ops) for found in fused.segments)
        reference = dram_reference_bytes(facts, segments)
        bound = roofline_cycles(facts, needed, floor, self.profile) / self.profile.clock_hz
        latency, energy = total.cycles / self.profile.clock_hz, total.energy_pj * 1e-12
        images = _images(graph)
        return doc.Totals(
            dram_bytes=total.dram_bytes,
            dram_bytes_floor=floor,
            dram_bytes_reference=reference,
            latency_s=latency,
            latency_bound_s=bound,
            energy_j=energy,
            macs=sum(op.total_macs for op in facts.ops),
            images=images,
            per_image=doc.PerImage(
                dram_bytes=total.dram_bytes / images, latency_s=latency / images, energy_j=energy / images
            ),
            dram_gap_to_floor=_ratio(total.dram_bytes, floor),
            dram_gap_to_reference=_ratio(total.dram_bytes, reference),
            latency_gap_to_bound=_ratio(latency, bound),
        )

    def _baseline(self, fused: FusedGraph) -> doc.Baseline:
        total = Totals.of(group.choice.cost for found in fused.baseline for group in found.groups)
        return doc.Baseline(
            dram_bytes=total.dram_bytes,
            latency_s=total.cycles / self.profile.clock_hz,
            energy_j=total.energy_pj * 1e-12,
        )


def _sorted(values: dict[str, Any]) -> dict[str, Any]:
    """Objects with their keys in order, at every depth: the same options give the same bytes."""
    return {key: _sorted(value) if isinstance(value, dict) else value for key, value in sorted(values.items())}


def _ratio(value: float, yardstick: float) -> float:
    return value / yardstick if yardstick else 1.0


def _images(graph: Graph) -> int:
    for name in graph.inputs:
        tensor = graph.tensors[name]
        if tensor.axes and tensor.axes[0] == "N":
            return tensor.shape[0]
    return 1


def _segments(graph: Graph, segments: tuple[FusedSegment, ...]) -> tuple[doc.PlanSegment, ...]:
    """Segments with their nodes, each node once: one of several ops (Split) stands with the first of them."""
    seen: set[str] = set()
    return tuple(_segment(graph, found, seen) for found in segments)


def _nodes(graph: Graph, ops: tuple[int, ...], seen: set[str]) -> tuple[str, ...]:
    names = [node for index in ops for node in graph.ops[index].origin]
    new = tuple(dict.fromkeys(name for name in names if name not in seen))
    seen.update(new)
    return new


def _segment(graph: Graph, found: FusedSegment, seen: set[str]) -> doc.PlanSegment:
    groups = tuple(
        _group(graph, f"{found.segment.id}.g{number}", group, reasons, seen)
        for number, (group, reasons) in enumerate(zip(found.groups, found.boundaries, strict=True))
    )
    return doc.PlanSegment(
        id=found.segment.id,
        kind="chip",
        nodes=tuple(node for group in groups for node in group.nodes),
        reason=None,
        groups=groups,
    )


def _group(graph: Graph, name: str, group: Group, reasons: tuple[Boundary, ...], seen: set[str]) -> doc.PlanGroup:
    tiling, cost = group.choice.tiling, group.choice.cost
    configuration = tiling.configuration
    weights = {entry.op: entry for entry in tiling.weights}
    ops = []
    for index in group.ops:
        entry = weights.get(index)
        ops.append(
            doc.PlanOp(
                node=graph.ops[index].node,
                kind=graph.ops[index].kind,
                weight_bytes=entry.size_bytes if entry else 0,
                weight_loads=entry.loads if entry else 0,
                weight_mode=entry.kind.value if entry else "none",
            )
        )
    return doc.PlanGroup(
        id=name,
        nodes=_nodes(graph, group.ops, seen),
        mode=tiling.mode.value,
        sram_tile=doc.SramTile(inputs=dict(tiling.input_tiles), bytes=tiling.tile_bytes),
        tiling=doc.TilingDoc(
            axes=tiling.axes,
            tile=tiling.tile,
            core_tile=tiling.core_tile,
            tiles=tiling.tiles,
            core_tiles=tiling.core_tiles,
            rounds=tiling.rounds,
            channel_slices=configuration.channel_slices,
            outer_loop="slices" if configuration.slices_outer else "tiles",
            order=configuration.order.value,
            double_buffered=configuration.double_buffered and tiling.rounds > 1,
        ),
        halo="recompute",
        placement=doc.Placement(
            units=configuration.units,
            spread=configuration.spread.value,
            cores=configuration.cores,
            core_spread=configuration.core_spread.value,
        ),
        ops=tuple(ops),
        dram_bytes=cost.dram_bytes,
        cycles=cost.cycles,
        energy_j=cost.energy_pj * 1e-12,
        bound_by=cost.bound_by,
        rules=tuple(
            doc.RuleVerdict(id=c.rule, holds=bool(c.holds), actual=float(c.actual), limit=float(c.limit))
            for c in group.checks
        ),
        boundary=tuple(
            doc.BoundaryDoc(
                tensor=reason.tensor,
                consumer=None if reason.consumer is None else graph.ops[reason.consumer].node,
                rule=reason.rule,
                actual=reason.actual,
                limit=reason.limit,
                why=reason.why,
            )
            for reason in reasons
        ),
    )


def _group_report(name: str, group: Group) -> doc.GroupReport:
    cost = group.choice.cost
    return doc.GroupReport(
        id=name,
        dram_read_bytes=cost.dram_read_bytes,
        dram_write_bytes=cost.dram_write_bytes,
        weight_read_bytes=cost.weight_read_bytes,
        sram=doc.LevelTraffic(read_bytes=cost.sram.read, written_bytes=cost.sram.written),
        nram=doc.LevelTraffic(read_bytes=cost.nram.read, written_bytes=cost.nram.written),
        wram=doc.LevelTraffic(read_bytes=cost.wram.read, written_bytes=cost.wram.written),
        exchanged_bytes=cost.exchanged_bytes,
        dram_cycles=cost.dram_cycles,
        onchip_cycles=cost.onchip_cycles,
        compute_cycles=cost.compute_cycles,
        cycles=cost.cycles,
        macs=cost.macs,
        vector_operations=cost.vector_ops,
        energy_j=cost.energy_pj * 1e-12,
    )
