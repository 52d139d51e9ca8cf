"""The documents a compilation answers with: plan.json and report.json, their types and canonical bytes."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from compiler.report.dim_ranges import DimRangeDoc
from compiler.report.execution import GraphOp, LevelTraffic, MemoryMap, Part, ProgramReport, ValuesReport
from compiler.report.execution_time import StreamReport
from compiler.report.plan_group_parts import AddressTables, HandoverDoc
from compiler.report.plan_rules import BoundaryDoc, RuleUse, RuleVerdict
from compiler.report.plan_search import SearchDoc, SimulatedDoc
from compiler.schedule import HaloName, LoopName, OrderName, PlacementName, SpreadName, WeightModeName


class ModelRef(Part, frozen=True, kw_only=True):
    """The compiled model: a name for people, the SHA-256 of its file."""

    name: str
    sha256: str


class ProfileRef(Part, frozen=True, kw_only=True):
    """The profile compiled for: its name and the digest of its canonical form."""

    name: str
    digest: str


class PerImage(Part, frozen=True, kw_only=True):
    """Totals divided by the number of images in the batch."""

    dram_bytes: float
    latency_s: float
    energy_j: float


class Totals(Part, frozen=True, kw_only=True):
    """The whole plan, for the whole batch.

    `dram_bytes_floor`: inputs, weights and outputs once. `dram_bytes_reference`: the same for the groups of strategy
    `none`, capacity ignored. `latency_bound_s`: roofline (floor at full DRAM bandwidth,
    or all multiply-accumulates on full arrays). Gaps are plan / yardstick. `macs` are the chips'. `host_link_bytes`
    cross between chips and host per inference. `stationary_weight_bytes` are loaded once, before the first inference,
    and are in no DRAM figure. `energy_by_level` are joules by memory level, unit and link, `stalls` cycles beyond
    computation by their cause; both add up over groups. Those are closed-form estimates; `simulated_latency_s` and
    `simulated_energy_j` are what a simulation of the commands makes of the chips' programs, one after another; None
    where there are none.
    """

    dram_bytes: int
    dram_bytes_floor: int
    dram_bytes_reference: int
    latency_s: float
    latency_bound_s: float
    energy_j: float
    macs: int
    host_link_bytes: int
    stationary_weight_bytes: int
    images: int
    per_image: PerImage
    dram_gap_to_floor: float
    dram_gap_to_reference: float
    latency_gap_to_bound: float
    energy_by_level: dict[str, float]
    stalls: dict[str, int]
    simulated_latency_s: float | None
    simulated_energy_j: float | None


class Baseline(Part, frozen=True, kw_only=True):
    """The plan of strategy `none` on the same profile."""

    dram_bytes: int
    latency_s: float
    energy_j: float


class SramTile(Part, frozen=True, kw_only=True):
    """The box of the group's inputs loaded at once into the memory of one unit: extents per input, bytes of all."""

    inputs: dict[str, tuple[int, ...]]
    bytes: int


class TilingDoc(Part, frozen=True, kw_only=True):
    """How the group's output is cut: `axes` names the extents of `tile` (SRAM tile) and `core_tile`.

    `tiles` SRAM tiles, `core_tiles` core tiles in each, `rounds` tiles one after another on one unit;
    `channel_slices` slices of the output channels, looped `slices` outermost or `tiles` outermost; `input_slices`
    slices of the input channels, whose partial sums stay with the tile. `weights_in_sram`: weights that do not fit the
    cores may wait in the SRAM. `kept_bytes` wait in a unit for later tiles of its walk.
    """

    axes: tuple[str, ...]
    tile: tuple[int, ...]
    core_tile: tuple[int, ...]
    tiles: int
    core_tiles: int
    rounds: int
    channel_slices: int
    input_slices: int
    outer_loop: LoopName
    order: OrderName
    double_buffered: bool
    weights_in_sram: bool
    kept_bytes: int


class Placement(Part, frozen=True, kw_only=True):
    """What the units and the cores inside a unit share out among themselves.

    `placement` deals the tiles of a map to units where these share bands (TILE-4). `walk` are the axes in the order in
    which a unit walks its tiles, outermost first.
    """

    units: int
    spread: SpreadName
    cores: int
    core_spread: SpreadName
    placement: PlacementName
    walk: tuple[str, ...]


class PlanOp(Part, frozen=True, kw_only=True):
    """One op of a group: its ONNX node, kind, weight bytes and how often they are read from DRAM per inference.

    0 times: stationary ones, and those that an earlier op of the group reads and leaves in the cores.
    `part` says which of the ops that its node became it is; None where it is the only one. `weight_home` is where the
    weights wait between tiles (`dram`: nowhere on the chip), `weight_slices` in how many parts they pass a core.
    `addresses`: null where the op's operands are found by strides, as those of a 1×1 window are.
    """

    node: str
    part: int | None
    kind: str
    weight_bytes: int
    weight_loads: int
    weight_mode: WeightModeName
    weight_home: Literal["none", "core", "sram", "dram"]
    weight_slices: int
    addresses: AddressTables | None


class LevelUseDoc(Part, frozen=True, kw_only=True):
    """What one memory level of a unit or core holds (PROG-2): allocated by lifetimes, and the most that is live."""

    capacity_bytes: int
    peak_bytes: int
    lower_bound_bytes: int


class PlanGroup(Part, frozen=True, kw_only=True):
    """A fusion group; `nodes` are ONNX node names.

    `halo` is the mode by axis of the output, for every axis with more than one tile or core tile (TILE-3). `stalls` are
    the cycles beyond computation by their cause. `memory` is by level: sram, sram-weights, nram, nram-weights, wram.
    `handover`: null where nothing stays on the chip between this group and others. What is printed of a group is enough
    to pin it (TILE-9).
    """

    id: str
    nodes: tuple[str, ...]
    mode: Literal["whole-map", "partial-map"]
    sram_tile: SramTile
    tiling: TilingDoc
    halo: dict[str, HaloName]
    placement: Placement
    handover: HandoverDoc | None
    ops: tuple[PlanOp, ...]
    dram_bytes: int
    cycles: int
    energy_j: float
    bound_by: Literal["dram", "compute", "on-chip"]
    stalls: dict[str, int]
    memory: dict[str, LevelUseDoc]
    rules: tuple[RuleVerdict, ...]
    boundary: tuple[BoundaryDoc, ...]


class CutDoc(Part, frozen=True, kw_only=True):
    """Why a segment begins where it does: the kind of cut, the node before it, the bytes that cross it, in words."""

    kind: Literal["begin", "host", "named", "output-tap", "articulation", "balanced"]
    after: str | None
    crossing_bytes: int
    why: str


class HostNodeDoc(Part, frozen=True, kw_only=True):
    """A node that the host runs, and why; `macs` is None where its work cannot be told before it runs."""

    node: str
    op_type: str
    reason: str
    macs: int | None


class PlanSegment(Part, frozen=True, kw_only=True):
    """A segment: one executable on a chip, or nodes that stay on the host, each with its reason (IMPORT-6).

    `nodes` stand in the first segment that runs anything of them; `continues` are those of earlier segments of which
    this one runs further parts. `units` counts the nodes of the segment's mapping graph by hardware unit, and
    `unit_cores` the cores of its chip on which such nodes lie (PART-6).
    `resident_bytes_per_core` are stationary weights in the fullest core, 0 where weights stream. `program_bytes` are
    the statements of its program, with calls, bindings and waits; None where it has no program. `search` is
    None under the strategies `rules` and `none`, and on the host; `simulated` also before programs are made.
    """

    id: str
    kind: Literal["chip", "host"]
    chip: int | None
    cut: CutDoc
    nodes: tuple[str, ...]
    continues: tuple[str, ...]
    macs: int
    weight_bytes: int
    resident_bytes_per_core: int
    program_bytes: int | None
    cycles: int
    units: dict[str, int]
    unit_cores: dict[str, int]
    host: tuple[HostNodeDoc, ...]
    search: SearchDoc | None
    simulated: SimulatedDoc | None
    groups: tuple[PlanGroup, ...]


class FailedCompileDoc(Part, frozen=True, kw_only=True):
    """A segment that did not compile whole: its first and last node, why, and how it was cut (PART-3)."""

    first: str
    last: str
    code: str
    why: str
    cut: str
    parts: int


class MergeDoc(Part, frozen=True, kw_only=True):
    """A merge of neighbouring segments that was tried (PART-4): its first and last node, and what came of it."""

    first: str
    last: str
    members: int
    compiled: bool
    why: str | None


class ApartDoc(Part, frozen=True, kw_only=True):
    """Two neighbouring chip segments that merging left apart, and why."""

    before: str
    after: str
    why: str


class ChipDoc(Part, frozen=True, kw_only=True):
    """One chip's load (PART-5).

    `reprogrammed_bytes`: stationary weights loaded anew per inference, because the chip runs several executables in
    turn; excluded from DRAM figures.
    """

    chip: int
    segments: tuple[str, ...]
    cycles: int
    weight_bytes: int
    reprogrammed_bytes: int


class LinkTrafficDoc(Part, frozen=True, kw_only=True):
    """Bytes per inference from one place to another: `host` or `chip N`."""

    source: str
    target: str
    bytes: int


class PartitionDoc(Part, frozen=True, kw_only=True):
    """How the segments came about: what did not compile whole, which merges were tried, which chip runs what."""

    strategy: str
    segments_before_merge: int
    failed: tuple[FailedCompileDoc, ...]
    merges: tuple[MergeDoc, ...]
    apart: tuple[ApartDoc, ...]
    chips: tuple[ChipDoc, ...]
    traffic: tuple[LinkTrafficDoc, ...]


class PatternDoc(Part, frozen=True, kw_only=True):
    """A recognised pattern: its kind, and the nodes that make it up."""

    kind: str
    nodes: tuple[str, ...]


class NativeShare(Part, frozen=True, kw_only=True):
    """How much of the model the accelerator runs: nodes (folded ones apart) and multiply-accumulates.

    `host_nodes_of_unknown_work` have multiply-accumulates that cannot be told before they run; they are not in
    `host_macs`.
    """

    chip_nodes: int
    host_nodes: int
    chip_macs: int
    host_macs: int
    host_nodes_of_unknown_work: int


class FloatProductsDoc(Part, frozen=True, kw_only=True):
    """Products of a quantised model that the chips compute in floats for one reason: `nodes`, and their `macs`."""

    dtype: str
    nodes: tuple[str, ...]
    macs: int
    reason: str


class ArithmeticDoc(Part, frozen=True, kw_only=True):
    """The element types of the chips' work.

    `macs`: multiply-accumulates by the type of the array that multiplies; those in int8 multiply int8 or uint8 and sum
    in int32. `weight_bytes`: bytes of weights by the type that they are stored in. `is_quantised`: ops work on
    quantised tensors, or convert from or to them. Of such a model, `float_products` are the products in floats, most
    work first, and `float_ops` count the other ops that compute in floats, by kind: on floats, or on integers that they
    convert as they read and write. What the host runs stands with the segments.
    """

    macs: dict[str, int]
    weight_bytes: dict[str, int]
    is_quantised: bool
    float_products: tuple[FloatProductsDoc, ...]
    float_ops: dict[str, int]


class GapEntryDoc(Part, frozen=True, kw_only=True):
    """Bytes above the floor of one tensor, or of one op's weights or tables, read (`times` times) and written.

    `name` is a tensor, or for `weights` and `tables` an ONNX node; `groups` move it, the one that writes it first.
    `fields` are the fields of the profile that would all have to grow; empty where no larger memory is known to help,
    and `why` says what decides instead.
    """

    kind: Literal["intermediates", "weights", "inputs", "shared", "unneeded"]
    name: str
    groups: tuple[str, ...]
    read_bytes: int
    written_bytes: int
    times: int
    fields: tuple[str, ...]
    why: str


class GapDoc(Part, frozen=True, kw_only=True):
    """What lies between the plan's DRAM bytes and the floor, to the byte: by kind, and the entries, largest first."""

    above_floor_bytes: int
    kinds: dict[str, int]
    entries: tuple[GapEntryDoc, ...]


class DegradedDoc(Part, frozen=True, kw_only=True):
    """Nodes that the compiler failed on: in which step and how, and what was done instead (IMPORT-7).

    `instead`: `op by op` (each op is a group of its own), `on the host`, or `without this step` (no nodes: a step that
    only improves the graph was left out).
    """

    nodes: tuple[str, ...]
    stage: str
    failed: str
    instead: str


class Plan(Part, frozen=True, kw_only=True):
    """plan.json: what was fused, why it stopped there, and how far it is from the physical limit.

    `options` are all options that decide the plan, defaults included. `dims` are the dynamic dimensions with the
    extents that the plan is for, `ranges` those of a range. `folded` are nodes evaluated at compile time, or needed by
    no output; every other node is in exactly one group or host segment. `degraded` are defects that were planned
    around. `rules` are what was asked or bound anything, and what is switched off. `provisional`: programs are not made
    yet; times are estimates, and a segment whose program turns out too long is cut again.
    """

    schema: Literal["tessera.plan/1"]
    model: ModelRef
    profile: ProfileRef
    options: dict[str, Any]
    compiler_version: str
    provisional: bool = False
    totals: Totals
    baseline: Baseline
    gap: GapDoc
    native: NativeShare
    arithmetic: ArithmeticDoc
    dims: dict[str, int]
    ranges: dict[str, DimRangeDoc] = msgspec.field(default_factory=dict)
    folded: tuple[str, ...]
    patterns: tuple[PatternDoc, ...]
    partition: PartitionDoc
    degraded: tuple[DegradedDoc, ...]
    rules: tuple[RuleUse, ...]
    segments: tuple[PlanSegment, ...]

    @property
    def cycle_s(self) -> float:
        """The time of one cycle; 0 for a plan without groups."""
        cycles = sum(group.cycles for segment in self.segments for group in segment.groups)
        return self.totals.latency_s / cycles if cycles else 0.0


class OpReport(Part, frozen=True, kw_only=True):
    """One op of a stage: its ONNX node, the dataflow on the matrix unit, and the cycles that it computes."""

    node: str
    dataflow: str
    compute_cycles: int


class StageReport(Part, frozen=True, kw_only=True):
    """Ops that pass the cores together: the stage takes as long as its slowest part, `bound_by`.

    `cycles` less `compute_cycles` are stalls.
    """

    ops: tuple[OpReport, ...]
    cycles: int
    compute_cycles: int
    bound_by: str


class GroupReport(Part, frozen=True, kw_only=True):
    """The price of one group in parts; cycles of transfers, on-chip transfers and computation before overlapping.

    `array_utilisation` is the part of the compute cycles in which the busiest core's array works. `energy_by_level`:
    joules, adding up to `energy_j`. `memory` says where each buffer lies and when, level by level (PROG-2).
    """

    id: str
    dram_read_bytes: int
    dram_write_bytes: int
    weight_read_bytes: int
    table_read_bytes: int
    sram: LevelTraffic
    nram: LevelTraffic
    wram: LevelTraffic
    exchanged_bytes: int
    dram_cycles: int
    onchip_cycles: int
    compute_cycles: int
    array_cycles: int
    array_utilisation: float
    cycles: int
    stalls: dict[str, int]
    macs: int
    vector_operations: int
    energy_j: float
    energy_by_level: dict[str, float]
    stages: tuple[StageReport, ...]
    memory: tuple[MemoryMap, ...]


class Report(Part, frozen=True, kw_only=True):
    """report.json: the figures behind the plan, what was run of it, and the assumptions they rest on.

    `values_checked` is `values.checked`. `programs` are those of the chip segments, in order; none where the profile
    describes what programs cannot do. `stream`: batches one after another over the chips; None where no chip has
    anything to do. `graph`: the ops in topological order; reports of earlier versions have none.
    """

    schema: Literal["tessera.report/1"]
    model: ModelRef
    profile: ProfileRef
    compiler_version: str
    totals: Totals
    baseline: Baseline
    values_checked: bool
    values: ValuesReport
    programs: tuple[ProgramReport, ...]
    stream: StreamReport | None
    op_counts: dict[str, int]
    weight_bytes: int
    groups: tuple[GroupReport, ...]
    degraded: tuple[DegradedDoc, ...]
    assumptions: tuple[str, ...]
    graph: tuple[GraphOp, ...] = ()


def plan_json(plan: Plan) -> bytes:
    """The plan's canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    return _document(plan)


def report_json(report: Report) -> bytes:
    """The report's canonical bytes."""
    return _document(report)


def _document(value: object) -> bytes:
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False).encode() + b"\n"
