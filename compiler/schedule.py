"""Pinned schedules as JSON: the groups that a plan prints, whole or in part, in one canonical form (TILE-9).

Whatever way a schedule is written (a plan document or groups alone, extents as a list or by axis, groups and nodes in
any order), equal schedules have one canonical form. It stands in the options, so the cache key does not see the way
of writing, and it is itself a schedule as one may be given.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, get_args

import msgspec

from compiler.errors import RequestError, printable

SpreadName = Literal["single", "images", "bands", "channels", "input-channels"]
HaloName = Literal["recompute", "cached", "exchange"]
PlacementName = Literal["bands", "columns", "blocks", "quadrants", "checkerboard", "row-major", "z-order"]
WeightModeName = Literal["none", "stationary", "resident", "once-through", "streamed"]
OrderName = Literal["depth-first", "breadth-first"]
LoopName = Literal["tiles", "slices"]

# The most groups, nodes, and pairs of nodes.
AMOUNT_MAX: Final = 20_000
JSON_BYTES_MAX: Final = 8 * 2**20

# What the fields take that are names.
_NAMES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "schema": ("tessera.plan/1",),
        "spread": get_args(SpreadName),
        "core_spread": get_args(SpreadName),
        "halo": get_args(HaloName),
        "placement": get_args(PlacementName),
        "weight_mode": get_args(WeightModeName),
        "order": get_args(OrderName),
        "outer_loop": get_args(LoopName),
    }
)

Extent = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
HeldBytes = Annotated[int, msgspec.Meta(ge=0, le=2**53 - 1)]
NodeName = Annotated[str, msgspec.Meta(min_length=1, max_length=4096)]
AxisName = Annotated[str, msgspec.Meta(min_length=1, max_length=16)]


class _Pinned(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A part of a schedule; what is left out is open."""


class PinnedTiling(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Extents of the SRAM tile and the core tile by axis of the group's output, and the order of loops."""

    tile: dict[AxisName, Extent] = {}
    core_tile: dict[AxisName, Extent] = {}
    channel_slices: Extent | None = None
    input_slices: Extent | None = None
    outer_loop: LoopName | None = None
    order: OrderName | None = None
    double_buffered: bool | None = None
    weights_in_sram: bool | None = None


class PinnedPlacement(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What units and cores share out, how tiles are dealt to units, and in which order a unit walks them."""

    units: Extent | None = None
    spread: SpreadName | None = None
    cores: Extent | None = None
    core_spread: SpreadName | None = None
    placement: PlacementName | None = None
    walk: tuple[AxisName, ...] | None = None


class PinnedTensor(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor that stays on the chip between groups, as a plan's `handover` has it."""

    tensor: NodeName
    axis: AxisName
    share: Extent
    before_end: HeldBytes


class PinnedHandover(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What stays on the chip between a group and others."""

    hands: PinnedTensor | None = None
    takes: tuple[PinnedTensor, ...] = ()
    held_bytes: HeldBytes = 0


class PinnedOp(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How the weights of an op are read; `part`: which of the ops that its node became, None: all of them."""

    node: NodeName
    part: Annotated[int, msgspec.Meta(ge=0)] | None = None
    weight_mode: WeightModeName | None = None


class PinnedGroup(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A group by its ONNX nodes, sorted, and what of its tiling is pinned; `halo` is the mode by axis."""

    nodes: tuple[NodeName, ...]
    tiling: PinnedTiling | None = None
    halo: dict[AxisName, HaloName] = {}
    placement: PinnedPlacement | None = None
    handover: PinnedHandover | None = None
    ops: tuple[PinnedOp, ...] = ()


Edge = tuple[NodeName, NodeName]


class Schedule(_Pinned, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Pinned groups, pairs of nodes that have to end in one group, and pairs that may not (TILE-9).

    All in canonical order: groups by their nodes, pairs and the names in them sorted, nothing twice.
    """

    groups: tuple[PinnedGroup, ...] = ()
    fuse: tuple[Edge, ...] = ()
    apart: tuple[Edge, ...] = ()


# As above, with the fields that a plan derives from what is pinned: those are read over.
class _TilingIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    axes: tuple[AxisName, ...] | None = None
    tile: tuple[Extent, ...] | dict[AxisName, Extent] = {}
    core_tile: tuple[Extent, ...] | dict[AxisName, Extent] = {}
    channel_slices: Extent | None = None
    input_slices: Extent | None = None
    outer_loop: LoopName | None = None
    order: OrderName | None = None
    double_buffered: bool | None = None
    weights_in_sram: bool | None = None
    tiles: Any = None
    core_tiles: Any = None
    rounds: Any = None
    kept_bytes: Any = None


class _OpIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    node: NodeName
    part: Annotated[int, msgspec.Meta(ge=0)] | None = None
    weight_mode: WeightModeName | None = None
    kind: Any = None
    weight_bytes: Any = None
    weight_loads: Any = None
    weight_home: Any = None
    weight_slices: Any = None
    addresses: Any = None


class _GroupIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    nodes: tuple[NodeName, ...] = ()
    tiling: _TilingIn | None = None
    halo: dict[AxisName, HaloName] | None = None
    placement: PinnedPlacement | None = None
    handover: PinnedHandover | None = None
    ops: tuple[_OpIn, ...] = ()
    id: Any = None
    mode: Any = None
    sram_tile: Any = None
    dram_bytes: Any = None
    cycles: Any = None
    energy_j: Any = None
    bound_by: Any = None
    stalls: Any = None
    memory: Any = None
    rules: Any = None
    boundary: Any = None


class _ScheduleIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    groups: tuple[_GroupIn, ...] = ()
    fuse: tuple[Edge, ...] = ()
    apart: tuple[Edge, ...] = ()


class _SegmentIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    groups: tuple[_GroupIn, ...] = ()
    id: Any = None
    kind: Any = None
    chip: Any = None
    cut: Any = None
    nodes: Any = None
    continues: Any = None
    macs: Any = None
    weight_bytes: Any = None
    resident_bytes_per_core: Any = None
    program_bytes: Any = None
    cycles: Any = None
    units: Any = None
    unit_cores: Any = None
    host: Any = None
    search: Any = None
    simulated: Any = None


class _PlanIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: Literal["tessera.plan/1"]
    segments: tuple[_SegmentIn, ...]
    model: Any = None
    profile: Any = None
    options: Any = None
    compiler_version: Any = None
    totals: Any = None
    baseline: Any = None
    gap: Any = None
    native: Any = None
    arithmetic: Any = None
    dims: Any = None
    ranges: Any = None
    folded: Any = None
    patterns: Any = None
    partition: Any = None
    degraded: Any = None
    rules: Any = None
    provisional: Any = None


def parse_schedule(value: object) -> Schedule:
    """The canonical schedule of plain values: a plan document, or an object of groups, fuse and apart (TILE-9).

    Raises RequestError naming the field, its value and what was expected, or the bound that is exceeded.
    """
    _check_size(value)
    is_plan = isinstance(value, Mapping) and ("schema" in value or "segments" in value)
    try:
        if is_plan:
            plan = msgspec.convert(value, _PlanIn)
            given = _ScheduleIn(groups=tuple(group for segment in plan.segments for group in segment.groups))
        else:
            given = msgspec.convert(value, _ScheduleIn)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `")
        raise _invalid(path.rstrip("`"), value, message) from None
    amounts = {
        "groups": len(given.groups),
        "nodes": sum(max(len(group.nodes), len(group.ops)) for group in given.groups),
        "pairs of nodes": len(given.fuse) + len(given.apart),
    }
    for what, count in amounts.items():
        if count > AMOUNT_MAX:
            raise RequestError(
                f"option schedule names too many {what}", code="invalid_schedule", actual=count, limit=AMOUNT_MAX
            )
    where = "segments[...].groups" if is_plan else "groups"
    groups = [_group(group, f"{where}[{number}]") for number, group in enumerate(given.groups)]
    return Schedule(
        groups=tuple(sorted(groups, key=_order)),
        fuse=_edges(given.fuse, "fuse"),
        apart=_edges(given.apart, "apart"),
    )


def _order(group: PinnedGroup) -> tuple[object, ...]:
    return group.nodes, tuple((op.node, -1 if op.part is None else op.part) for op in group.ops)


def _check_size(value: object) -> None:
    try:
        size = len(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError):
        raise RequestError(
            "option schedule is not plain JSON",
            code="invalid_schedule",
            actual=printable(type(value).__name__),
            limit="an object as a plan prints it",
        ) from None
    if size > JSON_BYTES_MAX:
        raise RequestError(
            "option schedule is too large", code="invalid_schedule", actual=f"{size} bytes", limit=JSON_BYTES_MAX
        )


def _group(given: _GroupIn, where: str) -> PinnedGroup:
    """One group in canonical form; an op of which nothing is pinned is no more than its node."""
    nodes = sorted({*given.nodes, *(op.node for op in given.ops)})
    if not nodes:
        raise _wrong(where, "no nodes", "at least one ONNX node in `nodes`")
    modes: dict[tuple[str, int | None], WeightModeName | None] = {}
    parts: dict[str, set[bool]] = {}
    for number, op in enumerate(given.ops):
        mode = None if op.weight_mode == "none" else op.weight_mode
        key = (op.node, op.part)
        parts.setdefault(op.node, set()).add(op.part is None)
        if len(parts[op.node]) > 1:
            raise _wrong(f"{where}.ops[{number}]", op.node, "a node either whole or in parts")
        if modes.get(key) not in (None, mode) and mode is not None:
            raise _wrong(f"{where}.ops[{number}].weight_mode", mode, f"one mode for {printable(op.node, 60)}")
        modes[key] = mode if mode is not None else modes.get(key)
    ops = [
        PinnedOp(node=node, part=part, weight_mode=mode)
        for (node, part), mode in modes.items()
        if part is not None or mode is not None
    ]
    ops.sort(key=lambda op: (op.node, -1 if op.part is None else op.part))
    placement = given.placement
    return PinnedGroup(
        nodes=tuple(nodes),
        tiling=None if given.tiling is None else _tiling(given.tiling, f"{where}.tiling"),
        halo=dict(sorted((given.halo or {}).items())),
        placement=None if placement == PinnedPlacement() else placement,
        handover=None if given.handover == PinnedHandover() else given.handover,
        ops=tuple(ops),
    )


def _tiling(given: _TilingIn, where: str) -> PinnedTiling | None:
    tiling = PinnedTiling(
        tile=_extents(given.tile, given.axes, f"{where}.tile"),
        core_tile=_extents(given.core_tile, given.axes, f"{where}.core_tile"),
        channel_slices=given.channel_slices,
        input_slices=given.input_slices,
        outer_loop=given.outer_loop,
        order=given.order,
        double_buffered=given.double_buffered,
        weights_in_sram=given.weights_in_sram,
    )
    return None if tiling == PinnedTiling() else tiling


def _extents(given: tuple[int, ...] | dict[str, int], axes: tuple[str, ...] | None, where: str) -> dict[str, int]:
    """Extents by axis, however they are written."""
    if isinstance(given, dict):
        return dict(sorted(given.items()))
    if not given:
        return {}
    if axes is None or len(axes) != len(given) or len(set(axes)) != len(axes):
        raise _wrong(where, list(given), "an object of axis to extent, or one extent for each of `axes`")
    return dict(sorted(zip(axes, given, strict=True)))


def _edges(given: tuple[Edge, ...], where: str) -> tuple[Edge, ...]:
    for number, (first, second) in enumerate(given):
        if first == second:
            raise _wrong(f"{where}[{number}]", [first, second], "two different nodes")
    return tuple(sorted({(min(edge), max(edge)) for edge in given}))


def _invalid(path: str, value: object, message: str) -> RequestError:
    """The error for what has the wrong form, with the value that stands there as far as the path leads to it."""
    found: Any = value
    for key, index in re.findall(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]", path):
        if index == "...":
            break
        try:
            found = found[int(index)] if index else found[key]
        except (KeyError, IndexError, TypeError):
            break
    unknown = re.search(r"unknown field `(.*)`", message)
    names = re.findall(r"\.([^.\[\]]+)", path)
    if message.startswith("Invalid enum") and names and names[-1] in _NAMES:
        message = f"one of {', '.join(_NAMES[names[-1]])}"
    return _wrong(path.removeprefix("$").removeprefix("."), unknown[1] if unknown else found, message)


def _wrong(path: str, value: object, expected: str) -> RequestError:
    where = "schedule" + ("" if not path else f".{path}" if not path.startswith("[") else path)
    return RequestError(
        f"option schedule is not valid at {printable(where, 200)}: {printable(expected, 200)}",
        code="invalid_schedule",
        stage="options",
        actual=printable(msgspec.json.encode(value).decode(), 200),
        limit=printable(expected, 200),
    )
