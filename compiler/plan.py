"""The documents a compilation answers with: plan.json and report.json, their types and canonical bytes."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """A part of a document."""


class ModelRef(_Part, frozen=True, kw_only=True):
    """The compiled model: a name for people, the SHA-256 of its file."""

    name: str
    sha256: str


class ProfileRef(_Part, frozen=True, kw_only=True):
    """The profile compiled for: its name and the digest of its canonical form."""

    name: str
    digest: str


class PerImage(_Part, frozen=True, kw_only=True):
    """Totals divided by the number of images in the batch."""

    dram_bytes: float
    latency_s: float
    energy_j: float


class Totals(_Part, frozen=True, kw_only=True):
    """The whole plan, for the whole batch.

    `dram_bytes_floor`, `dram_bytes_reference`: SPEC 5.1. `latency_bound_s`: roofline (floor at full DRAM bandwidth,
    or all multiply-accumulates on full arrays). Gaps are plan / yardstick.
    """

    dram_bytes: int
    dram_bytes_floor: int
    dram_bytes_reference: int
    latency_s: float
    latency_bound_s: float
    energy_j: float
    macs: int
    images: int
    per_image: PerImage
    dram_gap_to_floor: float
    dram_gap_to_reference: float
    latency_gap_to_bound: float


class Baseline(_Part, frozen=True, kw_only=True):
    """The plan of strategy `none` on the same profile."""

    dram_bytes: int
    latency_s: float
    energy_j: float


class SramTile(_Part, frozen=True, kw_only=True):
    """The box of the group's inputs loaded at once into the memory of one unit: extents per input, bytes of all."""

    inputs: dict[str, tuple[int, ...]]
    bytes: int


class TilingDoc(_Part, frozen=True, kw_only=True):
    """How the group's output is cut: `axes` names the extents of `tile` (SRAM tile) and `core_tile`.

    `tiles` SRAM tiles, `core_tiles` core tiles in each, `rounds` tiles one after another on one unit;
    `channel_slices` slices of the output channels, looped `slices` outermost or `tiles` outermost.
    """

    axes: tuple[str, ...]
    tile: tuple[int, ...]
    core_tile: tuple[int, ...]
    tiles: int
    core_tiles: int
    rounds: int
    channel_slices: int
    outer_loop: Literal["tiles", "slices"]
    order: Literal["depth-first", "breadth-first"]
    double_buffered: bool


class Placement(_Part, frozen=True, kw_only=True):
    """What the units and the cores inside a unit share out among themselves."""

    units: int
    spread: Literal["single", "images", "bands", "channels"]
    cores: int
    core_spread: Literal["single", "images", "bands", "channels"]


class PlanOp(_Part, frozen=True, kw_only=True):
    """One op of a group: its ONNX node, kind, weight bytes and how often they are read from DRAM per inference."""

    node: str
    kind: str
    weight_bytes: int
    weight_loads: int
    weight_mode: Literal["none", "resident", "once-through", "streamed"]


class RuleVerdict(_Part, frozen=True, kw_only=True):
    """One rule on this group: whether it holds, the actual value and the limit, in the rule's unit."""

    id: str
    holds: bool
    actual: float
    limit: float


class BoundaryDoc(_Part, frozen=True, kw_only=True):
    """One edge that leaves the group, and what kept its consumer outside."""

    tensor: str
    consumer: str | None
    rule: str | None
    actual: float | None
    limit: float | None
    why: str


class PlanGroup(_Part, frozen=True, kw_only=True):
    """A fusion group; `nodes` are ONNX node names."""

    id: str
    nodes: tuple[str, ...]
    mode: Literal["whole-map", "partial-map"]
    sram_tile: SramTile
    tiling: TilingDoc
    halo: Literal["recompute"]
    placement: Placement
    ops: tuple[PlanOp, ...]
    dram_bytes: int
    cycles: int
    energy_j: float
    bound_by: Literal["dram", "compute", "on-chip"]
    rules: tuple[RuleVerdict, ...]
    boundary: tuple[BoundaryDoc, ...]


class PlanSegment(_Part, frozen=True, kw_only=True):
    """A segment: one executable on the chip, or ops that stay on the host with the reason."""

    id: str
    kind: Literal["chip", "host"]
    nodes: tuple[str, ...]
    reason: str | None
    groups: tuple[PlanGroup, ...]


class Plan(_Part, frozen=True, kw_only=True):
    """plan.json: what was fused, why it stopped there, and how far it is from the physical limit.

    `options` are all options that decide the plan, defaults included. `folded` are nodes evaluated at compile time,
    or needed by no output; every other node is in exactly one group.
    """

    schema: Literal["tessera.plan/1"]
    model: ModelRef
    profile: ProfileRef
    options: dict[str, Any]
    compiler_version: str
    totals: Totals
    baseline: Baseline
    folded: tuple[str, ...]
    segments: tuple[PlanSegment, ...]


class LevelTraffic(_Part, frozen=True, kw_only=True):
    """Bytes read from and written to one memory level."""

    read_bytes: int
    written_bytes: int


class GroupReport(_Part, frozen=True, kw_only=True):
    """The price of one group in parts; cycles of transfers, on-chip transfers and computation before overlapping."""

    id: str
    dram_read_bytes: int
    dram_write_bytes: int
    weight_read_bytes: int
    sram: LevelTraffic
    nram: LevelTraffic
    wram: LevelTraffic
    exchanged_bytes: int
    dram_cycles: int
    onchip_cycles: int
    compute_cycles: int
    cycles: int
    macs: int
    vector_operations: int
    energy_j: float


class Report(_Part, frozen=True, kw_only=True):
    """report.json: the figures behind the plan, and the assumptions they rest on."""

    schema: Literal["tessera.report/1"]
    model: ModelRef
    profile: ProfileRef
    compiler_version: str
    totals: Totals
    baseline: Baseline
    values_checked: bool
    op_counts: dict[str, int]
    weight_bytes: int
    groups: tuple[GroupReport, ...]
    assumptions: tuple[str, ...]


def plan_json(plan: Plan) -> bytes:
    """The plan's canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    return _document(plan)


def report_json(report: Report) -> bytes:
    """The report's canonical bytes."""
    return _document(report)


def _document(value: object) -> bytes:
    return json.dumps(msgspec.to_builtins(value), indent=2, ensure_ascii=False).encode() + b"\n"
