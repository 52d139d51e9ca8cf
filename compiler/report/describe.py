"""From the fused graph to the documents: the last pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

import msgspec

from compiler.cost.objective import Totals
from compiler.degraded import Degradations
from compiler.frontend.host import host_bytes
from compiler.frontend.source import ModelSource
from compiler.fusion.bounds import dram_floor_bytes, dram_reference_bytes, needed_positions, roofline_cycles
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.gap import gap_of
from compiler.fusion.groups import FusedGraph, FusedSegment, Group
from compiler.fusion.map_chips import MappedGraph
from compiler.fusion.segment_graph import SegmentGraph
from compiler.ir.graph import HOST, Graph
from compiler.options import DimRange, Options
from compiler.partition.chips import Traffic
from compiler.partition.segments import CutKind, Segment, SegmentKind
from compiler.profile import Profile, profile_digest
from compiler.program.executable import Executable
from compiler.program.lower import LoweredGraph, LoweredSegment
from compiler.report import plan as doc
from compiler.report.arithmetic import arithmetic_doc
from compiler.report.dim_ranges import DimRangeDoc
from compiler.report.execution import GraphOp, LevelTraffic, MemoryMap
from compiler.report.gaps import gap_doc
from compiler.report.groups import Naming, group_doc, rule_uses
from compiler.report.pictures import pictures_of
from compiler.report.programs import Execution, execution_assumptions, execution_of, memory_maps, values_report
from compiler.report.searched import search_doc, simulated_doc
from compiler.simulator.value_check import CheckedGraph, ValueCheck
from compiler.tiling.stationary import WeightTable
from compiler.version import COMPILER_VERSION

ASSUMPTIONS = (
    "Ops that pass the cores together make a stage: computation and the transfers that serve it overlap, and it takes "
    "as long as its slowest part. The stages of a group follow one another.",
    "DRAM transfers run beside the stages of a group, except the first tile's load and the last tile's store; without "
    "double buffering they come on top of them.",
    "Groups run one after another.",
    "What neighbouring tiles both need is made twice, kept by the unit that walks on, or passed between units, as the "
    "halo mode of each axis says; what is kept waits on chip and takes room there.",
    "Stationary weights lie on the chip before an executable runs, spread over its cores by output channels; a core "
    "that computes other channels stages its peers' weights over the core links. Loading them is in no figure.",
    "Host segments take no time and no energy here; bytes over host and chip-to-chip links are counted, and timed in "
    "`stream` alone, where the profile states their rates.",
    "Units read shared weights from DRAM once and pass them on over CDMA or core links where the profile has them.",
    "Not modelled in the closed form, though a profile may state them: engines that share a queue, line granularity, "
    "and the direct route of IODMA beside an SRAM. Programs keep to all of them, and to the limits on their size.",
    "Views (Reshape, Flatten, Squeeze, Unsqueeze) move nothing.",
)
_ONLY_PLANNED: Final = "only a plan was asked for"
_WHAT_IF: Final = "What-if (option precision): float tensors are counted in that type, biases in 4 bytes; no values."


@dataclass(frozen=True, slots=True, kw_only=True)
class Documents:
    """What a compilation answers with; `pictures` are SVG texts by group id, none unless asked for."""

    plan: doc.Plan
    report: doc.Report
    pictures: Mapping[str, str]
    executable: Executable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Describe:
    """Pass: the plan and the report of a checked graph."""

    name: str = "describe"
    source: ModelSource
    profile: Profile
    options: Options
    compilers: SegmentCompilers | None = field(default=None, repr=False)
    pictures: bool = False
    degradations: Degradations = field(default_factory=Degradations, repr=False)
    only_plan: bool = False
    by_default: bool = False

    def run(self, checked: CheckedGraph) -> Documents:
        """Both documents, and the pictures where asked for; deterministic to the byte."""
        mapped = checked.lowered.mapped
        fused = mapped.fused
        graph, facts = fused.partitioned.graph, fused.facts
        execution = None if self.only_plan else execution_of(checked, _images(graph), self.profile)
        plan = self._plan(mapped, checked.lowered.segments, execution)
        report = doc.Report(
            schema="tessera.report/1",
            model=plan.model,
            profile=plan.profile,
            compiler_version=COMPILER_VERSION,
            totals=plan.totals,
            baseline=plan.baseline,
            values_checked=checked.check.has_run,
            values=values_report(checked.check),
            programs=() if execution is None else execution.programs,
            stream=None if execution is None else execution.stream,
            op_counts=dict(sorted(Counter(op.kind for op in graph.ops).items())),
            weight_bytes=facts.weight_bytes(range(len(graph.ops))),
            groups=self._group_reports(fused),
            degraded=plan.degraded,
            assumptions=execution_assumptions(checked)
            + ASSUMPTIONS
            + (() if self.options.precision == "model" else (_WHAT_IF,)),
            graph=_graph_ops(fused),
        )
        pictures = pictures_of(fused, self.profile) if self.pictures else {}
        return Documents(plan=plan, report=report, pictures=pictures, executable=checked.executable)

    def provisional(self, mapped: MappedGraph) -> doc.Plan:
        """The plan before its programs are made."""
        return self._plan(mapped, (None,) * len(mapped.fused.segments), None)

    def _plan(
        self, mapped: MappedGraph, programs: Sequence[LoweredSegment | None], execution: Execution | None
    ) -> doc.Plan:
        fused = mapped.fused
        graph, facts = fused.partitioned.graph, fused.facts
        chosen = msgspec.json.decode(msgspec.json.encode(self.options))  # as the document has it once read back
        for bound in ("time_limit_s", "memory_limit_bytes"):
            chosen.pop(bound)  # they never change a result (SPEC section 13)
        return doc.Plan(
            schema="tessera.plan/1",
            model=doc.ModelRef(name=self.source.name, sha256=self.source.sha256),
            profile=doc.ProfileRef(name=self.profile.name, digest=profile_digest(self.profile)),
            options=_sorted(chosen),
            compiler_version=COMPILER_VERSION,
            provisional=execution is None,
            totals=self._totals(mapped, execution),
            baseline=self._baseline(fused),
            gap=gap_doc(gap_of(fused, self.profile, None if self.compilers is None else self.compilers.tilings(facts))),
            native=_native(fused),
            arithmetic=arithmetic_doc(fused, self.profile.matrix.arrays),
            dims=dict(graph.dims),
            ranges=self._ranges(),
            folded=graph.folded,
            patterns=tuple(doc.PatternDoc(kind=pattern.kind, nodes=pattern.nodes) for pattern in graph.patterns),
            partition=self._partition(mapped),
            degraded=tuple(
                doc.DegradedDoc(nodes=entry.nodes, stage=entry.stage, failed=entry.failed, instead=entry.instead)
                for entry in self.degradations.entries
            ),
            rules=rule_uses(fused, self.options),
            segments=self._segments(mapped, programs),
        )

    def _ranges(self) -> dict[str, DimRangeDoc]:
        """The ranges of option `dims`, and single extents where they are defaults."""
        found = {}
        for name, given in sorted(self.options.dims.items()):
            one = given if isinstance(given, DimRange) else DimRange(min=given, max=given)
            if self.by_default or isinstance(given, DimRange):
                found[name] = DimRangeDoc(min=one.min, max=one.max, step=one.step, is_default=self.by_default)
        return found

    def _totals(self, mapped: MappedGraph, execution: Execution | None) -> doc.Totals:
        fused = mapped.fused
        graph, facts = fused.partitioned.graph, fused.facts
        costs = [group.choice.cost for found in fused.segments for group in found.groups]
        total = Totals.of(costs)
        needed = needed_positions(facts)
        floor = dram_floor_bytes(facts, needed, self.profile)
        segments = tuple(
            SegmentGraph(facts, found.segment.ops) for found in fused.segments if found.segment.kind is SegmentKind.CHIP
        )
        reference = dram_reference_bytes(facts, segments, self.profile)
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
            host_link_bytes=sum(t.size_bytes for t in mapped.assignment.traffic if None in (t.source, t.target)),
            stationary_weight_bytes=sum(load.weight_bytes for load in mapped.assignment.chips)
            if self.profile.is_stationary
            else 0,
            images=images,
            per_image=doc.PerImage(
                dram_bytes=total.dram_bytes / images, latency_s=latency / images, energy_j=energy / images
            ),
            dram_gap_to_floor=_ratio(total.dram_bytes, floor),
            dram_gap_to_reference=_ratio(total.dram_bytes, reference),
            latency_gap_to_bound=_ratio(latency, bound),
            energy_by_level=_joules(entry for cost in costs for entry in cost.energy_by_level),
            stalls=_summed(entry for cost in costs for entry in cost.stalls),
            simulated_latency_s=None if execution is None else execution.latency_s,
            simulated_energy_j=None if execution is None else execution.energy_j,
        )

    def _baseline(self, fused: FusedGraph) -> doc.Baseline:
        total = Totals.of(group.choice.cost for found in fused.baseline for group in found.groups)
        return doc.Baseline(
            dram_bytes=total.dram_bytes,
            latency_s=total.cycles / self.profile.clock_hz,
            energy_j=total.energy_pj * 1e-12,
        )

    def _segments(self, mapped: MappedGraph, programs: Sequence[LoweredSegment | None]) -> tuple[doc.PlanSegment, ...]:
        """Segments with their nodes, each node once: one of several ops (Split) stands with the first of them."""
        weights = WeightTable(mapped.fused.facts, self.profile)
        segments = zip(mapped.fused.segments, mapped.chip_of, programs, strict=True)
        naming = Naming(mapped.fused)
        return tuple(_segment(mapped, found, chip, lowered, weights, naming) for found, chip, lowered in segments)

    def _group_reports(self, fused: FusedGraph) -> tuple[doc.GroupReport, ...]:
        weights = WeightTable(fused.facts, self.profile)
        reports = []
        for found in fused.segments:
            resident = weights.resident_bytes_per_core(found.segment.ops)
            for number, group in enumerate(found.groups):
                maps = memory_maps(fused.facts, self.profile, group, resident)
                reports.append(_group_report(fused.facts.graph, f"{found.segment.id}.g{number}", group, maps))
        return tuple(reports)

    def _partition(self, mapped: MappedGraph) -> doc.PartitionDoc:
        partitioned = mapped.fused.partitioned
        graph = partitioned.graph
        name = {index: graph.ops[index].node for index in range(len(graph.ops))}
        chip_segments = [s.id for s in partitioned.segments if s.kind is SegmentKind.CHIP]
        return doc.PartitionDoc(
            strategy=self.options.merge,
            segments_before_merge=partitioned.unmerged,
            failed=tuple(
                doc.FailedCompileDoc(
                    first=name[entry.first],
                    last=name[entry.last],
                    code=entry.code,
                    why=entry.why,
                    cut=entry.by.value,
                    parts=entry.parts,
                )
                for entry in partitioned.failed
            ),
            merges=tuple(
                doc.MergeDoc(
                    first=name[entry.first],
                    last=name[entry.last],
                    members=entry.members,
                    compiled=entry.compiled,
                    why=entry.why,
                )
                for entry in partitioned.merges
            ),
            apart=tuple(
                doc.ApartDoc(
                    before=partitioned.segments[entry.segment - 1].id,
                    after=partitioned.segments[entry.segment].id,
                    why=entry.why,
                )
                for entry in partitioned.apart
            ),
            chips=tuple(
                doc.ChipDoc(
                    chip=load.chip,
                    segments=tuple(chip_segments[number] for number in load.segments),
                    cycles=load.cycles,
                    weight_bytes=load.weight_bytes,
                    reprogrammed_bytes=load.weight_bytes
                    if self.profile.is_stationary and len(load.segments) > 1
                    else 0,
                )
                for load in mapped.assignment.chips
            ),
            traffic=tuple(_traffic(entry) for entry in mapped.assignment.traffic),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOutPrograms:
    """Pass: nothing is lowered, simulated or compared; the plan is all that was asked for."""

    name: str = "plan"

    def run(self, mapped: MappedGraph) -> CheckedGraph:
        """The mapped graph with no program and a check that says why it did not run."""
        none = LoweredSegment()
        segments = tuple(none for _ in mapped.fused.segments)
        return CheckedGraph(
            lowered=LoweredGraph(mapped=mapped, segments=segments, reason=_ONLY_PLANNED),
            executable=None,
            check=ValueCheck(seed=0, judge="", reason=_ONLY_PLANNED, comparisons=()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncePlan:
    """Pass: tell whoever waits the plan before its programs are made; the graph goes on as it is."""

    name: str = "plan"
    describe: Describe
    announce: Callable[[doc.Plan], None]

    def run(self, mapped: MappedGraph) -> MappedGraph:
        """Describe it and call `announce`."""
        self.announce(self.describe.provisional(mapped))
        return mapped


def _segment(
    mapped: MappedGraph,
    found: FusedSegment,
    chip: int | None,
    lowered: LoweredSegment | None,
    weights: WeightTable,
    naming: Naming,
) -> doc.PlanSegment:
    graph, facts = mapped.fused.partitioned.graph, mapped.fused.facts
    segment = found.segment
    continues = dict.fromkeys(n for op in segment.ops for n in graph.ops[op].origin if n in naming.seen)
    on_host = segment.kind is SegmentKind.HOST
    groups = tuple(
        group_doc(facts, naming, f"{segment.id}.g{number}", group, reasons)
        for number, (group, reasons) in enumerate(zip(found.groups, found.boundaries, strict=True))
    )
    nodes = naming.nodes(segment.ops) if on_host else tuple(n for group in groups for n in group.nodes)
    return doc.PlanSegment(
        id=segment.id,
        kind=segment.kind.value,
        chip=chip,
        cut=_cut(graph, segment),
        nodes=nodes,
        continues=tuple(continues),
        macs=sum(facts.ops[op].total_macs for op in segment.ops),
        weight_bytes=facts.weight_bytes(segment.ops),
        resident_bytes_per_core=weights.resident_bytes_per_core(segment.ops),
        program_bytes=None if lowered is None or lowered.sizes is None else lowered.sizes.program_bytes,
        cycles=sum(group.choice.cost.cycles for group in found.groups),
        units=mapped.mapping.counts(segment.ops),
        unit_cores=mapped.mapping.cores(segment.ops),
        host=_host_nodes(graph, segment) if on_host else (),
        search=None if found.search is None else search_doc(found.search),
        simulated=None if found.simulated is None else simulated_doc(found.simulated),
        groups=groups,
    )


_CUTS: Final[Mapping[CutKind, str]] = MappingProxyType(
    {
        CutKind.BEGIN: "the graph begins here",
        CutKind.HOST: "host and chip take turns here",
        CutKind.NAMED: "option partition names the node before it",
        CutKind.OUTPUT_TAP: "the result of the node before it is an output and is read further on",
        CutKind.ARTICULATION: "exactly one live tensor crosses here",
        CutKind.BALANCED: "a balanced cut: the largest resource share of the parts is smallest here",
    }
)


def _cut(graph: Graph, segment: Segment) -> doc.CutDoc:
    cut = segment.cut
    return doc.CutDoc(
        kind=cut.kind.value,
        after=None if cut.after is None else graph.ops[cut.after].node,
        crossing_bytes=cut.crossing_bytes,
        why=_CUTS[cut.kind],
    )


def _host_nodes(graph: Graph, segment: Segment) -> tuple[doc.HostNodeDoc, ...]:
    keys = dict.fromkeys(str(dict(graph.ops[op].attributes)["node"]) for op in segment.ops)
    hosts = [graph.host[key] for key in keys]
    return tuple(doc.HostNodeDoc(node=h.name, op_type=h.op_type, reason=h.reason, macs=h.macs) for h in hosts)


def _graph_ops(fused: FusedGraph) -> tuple[GraphOp, ...]:
    """The ops in topological order with their groups and the ops whose results they read."""
    graph = fused.partitioned.graph
    homes = Naming(fused).homes
    homes |= {op: s.id for s in fused.partitioned.segments if s.kind is SegmentKind.HOST for op in s.ops}
    ops = []
    for index, op in enumerate(graph.ops):
        result = graph.tensors[op.output]
        ops.append(
            GraphOp(
                node=op.node,
                kind=op.kind if op.kind != HOST else graph.host[str(dict(op.attributes)["node"])].op_type,
                group=homes[index],
                inputs=tuple(dict.fromkeys(graph.producer[name] for name in op.inputs if name in graph.producer)),
                output=op.output,
                axes=result.axes,
                shape=result.shape,
                bytes=host_bytes(result) if result.is_known else 0,
            )
        )
    return tuple(ops)


def _traffic(entry: Traffic) -> doc.LinkTrafficDoc:
    def place(chip: int | None) -> str:
        return "host" if chip is None else f"chip {chip}"

    return doc.LinkTrafficDoc(source=place(entry.source), target=place(entry.target), bytes=entry.size_bytes)


def _native(fused: FusedGraph) -> doc.NativeShare:
    """Nodes and multiply-accumulates on the chip and on the host; a node in both counts as the host's."""
    graph = fused.partitioned.graph
    on_host = {node for op in graph.on_host for node in graph.ops[op].origin}
    everything = {node for op in graph.ops for node in op.origin}
    macs = [node.macs for node in graph.host.values()]
    return doc.NativeShare(
        chip_nodes=len(everything - on_host),
        host_nodes=len(on_host),
        chip_macs=sum(op.total_macs for op in fused.facts.ops),
        host_macs=sum(count for count in macs if count is not None),
        host_nodes_of_unknown_work=sum(count is None for count in macs),
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


def _summed(entries: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Amounts by name, the names in order."""
    total: Counter[str] = Counter()
    for name, amount in entries:
        total[name] += amount
    return dict(sorted(total.items()))


def _joules(entries: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Joules by level from pJ, levels in the order in which they come."""
    total: dict[str, float] = {}
    for name, energy in entries:
        total[name] = total.get(name, 0.0) + energy
    return {name: energy * 1e-12 for name, energy in total.items()}


def _group_report(graph: Graph, name: str, group: Group, maps: tuple[MemoryMap, ...]) -> doc.GroupReport:
    cost = group.choice.cost
    return doc.GroupReport(
        id=name,
        dram_read_bytes=cost.dram_read_bytes,
        dram_write_bytes=cost.dram_write_bytes,
        weight_read_bytes=cost.weight_read_bytes,
        table_read_bytes=cost.table_read_bytes,
        sram=LevelTraffic(read_bytes=cost.sram.read, written_bytes=cost.sram.written),
        nram=LevelTraffic(read_bytes=cost.nram.read, written_bytes=cost.nram.written),
        wram=LevelTraffic(read_bytes=cost.wram.read, written_bytes=cost.wram.written),
        exchanged_bytes=cost.exchanged_bytes,
        dram_cycles=cost.dram_cycles,
        onchip_cycles=cost.onchip_cycles,
        compute_cycles=cost.compute_cycles,
        array_cycles=cost.array_cycles,
        array_utilisation=cost.array_cycles / cost.compute_cycles if cost.compute_cycles else 0.0,
        cycles=cost.cycles,
        stalls=dict(cost.stalls),
        macs=cost.macs,
        vector_operations=cost.vector_ops,
        energy_j=cost.energy_pj * 1e-12,
        energy_by_level=_joules(cost.energy_by_level),
        stages=tuple(
            doc.StageReport(
                ops=tuple(
                    doc.OpReport(node=graph.ops[op].node, dataflow=dataflow, compute_cycles=cycles)
                    for op, dataflow, cycles in stage.ops
                ),
                cycles=stage.cycles,
                compute_cycles=stage.compute_cycles,
                bound_by=stage.bound_by,
            )
            for stage in cost.stages
        ),
        memory=maps,
    )
