"""From a fused group to its part of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, Literal

from compiler.fusion.groups import Boundary, FusedGraph, Group
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.report import plan as doc
from compiler.report.addresses import address_tables
from compiler.report.plan_group_parts import AddressTables, HandedDoc, HandoverDoc
from compiler.report.plan_rules import BoundaryDoc, RuleUse, RuleVerdict
from compiler.rules import BY_ID, LIMITED_RULES, RULES, rule_name, second_id
from compiler.schedule import HaloName
from compiler.tiling.figures import Check
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.handed import handed_tensors, taken_tensors
from compiler.tiling.tile import NOTHING_HANDED, Handed, OpWeights


class Naming:
    """Names in one plan: of each op its group's id and its number among the ops of its node; each node given once."""

    def __init__(self, fused: FusedGraph) -> None:
        self._graph: Final = fused.partitioned.graph
        self.homes: Final = {
            op: f"{found.segment.id}.g{number}"
            for found in fused.segments
            for number, group in enumerate(found.groups)
            for op in group.ops
        }
        self.parts: Final = _parts(self._graph)
        self.seen: Final[set[str]] = set()

    def nodes(self, ops: Iterable[int]) -> tuple[str, ...]:
        """The ONNX nodes of ops that have not been given before."""
        names = [node for index in ops for node in self._graph.ops[index].origin]
        new = tuple(dict.fromkeys(name for name in names if name not in self.seen))
        self.seen.update(new)
        return new


def group_doc(
    facts: GraphFacts, naming: Naming, name: str, group: Group, reasons: tuple[Boundary, ...]
) -> doc.PlanGroup:
    """A group as the plan has it, its nodes named with the first group that runs anything of them."""
    graph = facts.graph
    tiling, cost = group.choice.tiling, group.choice.cost
    configuration = tiling.configuration
    weights, tables = {entry.op: entry for entry in tiling.weights}, address_tables(group.choice.tables)
    return doc.PlanGroup(
        id=name,
        nodes=naming.nodes(group.ops),
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
            input_slices=configuration.input_slices,
            outer_loop="slices" if configuration.slices_outer else "tiles",
            order=configuration.order.value,
            double_buffered=configuration.double_buffered and tiling.rounds * configuration.channel_slices > 1,
            weights_in_sram=configuration.weights_in_sram,
            kept_bytes=tiling.kept_bytes,
        ),
        halo=_halo(facts, group),
        placement=doc.Placement(
            units=configuration.units,
            spread=configuration.spread.value,
            cores=configuration.cores,
            core_spread=configuration.core_spread.value,
            placement=configuration.placement.value,
            walk=configuration.walk,
        ),
        handover=_handover(facts, group),
        ops=tuple(
            _op(graph, index, naming.parts.get(index), weights.get(index), tables.get(index)) for index in group.ops
        ),
        dram_bytes=cost.dram_bytes,
        cycles=cost.cycles,
        energy_j=cost.energy_pj * 1e-12,
        bound_by=cost.bound_by,
        stalls=dict(cost.stalls),
        memory={
            use.level: doc.LevelUseDoc(
                capacity_bytes=use.capacity_bytes,
                peak_bytes=use.peak_bytes,
                lower_bound_bytes=use.lower_bound_bytes,
            )
            for use in tiling.memory
        },
        rules=tuple(
            RuleVerdict(
                id=c.rule,
                name=rule_name(c.rule),
                also=second_id(c.rule),
                holds=bool(c.holds),
                actual=float(c.actual),
                limit=float(c.limit),
                outcome=_outcome(c, group),
            )
            for c in group.checks
        ),
        boundary=tuple(
            BoundaryDoc(
                tensor=reason.tensor,
                consumer=None if reason.consumer is None else graph.ops[reason.consumer].node,
                consumer_group=None if reason.consumer is None else naming.homes.get(reason.consumer),
                rule=reason.rule,
                rule_name=None if reason.rule is None else rule_name(reason.rule),
                actual=reason.actual,
                limit=reason.limit,
                why=reason.why,
            )
            for reason in reasons
        ),
    )


def _outcome(check: Check, group: Group) -> Literal["bound", "held anyway", "fails", "not asked"]:
    """Whether a check decided the group, held anyway, fails, or was not asked in the group's mode."""
    if check.rule in group.bound:
        return "bound"
    if not check.holds:
        return "fails"
    rule = BY_ID.get(check.rule)
    if rule is None or rule.kind not in ("structure", "capacity"):
        return "held anyway"
    is_excepted = check.actual > check.limit or group.choice.tiling.mode.value not in rule.maps
    return "not asked" if is_excepted else "held anyway"


def rule_uses(fused: FusedGraph, options: Options) -> tuple[RuleUse, ...]:
    """What each rule and check did in the plan, in the order of the catalogue; added rules last.

    Those that were asked or bound anything, and those that are switched off.
    """
    bound: dict[str, list[str]] = {}
    held: Counter[str] = Counter()
    for found in fused.segments:
        for number, group in enumerate(found.groups):
            for rule_id in group.bound:
                bound.setdefault(rule_id, []).append(f"{found.segment.id}.g{number}")
            held.update(check.rule for check in group.checks if _outcome(check, group) == "held anyway")
    settings = options.rule_settings
    off = [rule_id for rule_id, setting in settings.items() if not setting.enabled]
    asked = {BY_ID[word].id if word in BY_ID else word for word in (*bound, *held, *off)}
    known = [rule.id for rule in RULES if rule.id in asked]
    added = [rule_id for rule_id in settings if rule_id in asked and rule_id not in BY_ID]
    return tuple(
        RuleUse(
            id=rule_id,
            name=rule_name(rule_id),
            also=second_id(rule_id),
            enabled=rule_id not in off,
            limit=options.rule_limit(rule_id) if rule_id in LIMITED_RULES else None,
            bound=tuple(bound.get(rule_id, ())),
            held_anyway=held[rule_id],
        )
        for rule_id in (*known, *added)
    )


def _halo(facts: GraphFacts, group: Group) -> dict[str, HaloName]:
    """The halo mode of every axis with more than one tile or core tile; channels have no neighbours."""
    tiling = group.choice.tiling
    extents = facts.tensors[GroupGeometry(facts, group.ops).primary].shape
    axes = zip(tiling.axes, extents, tiling.tile, tiling.core_tile, strict=True)
    return {
        axis: tiling.configuration.halo_of(axis).value
        for axis, extent, tile, core in axes
        if axis != "C" and min(tile, core) < extent
    }


def _handover(facts: GraphFacts, group: Group) -> HandoverDoc | None:
    """What stays on the chip between the group and others; None: nothing."""
    handover = group.choice.tiling.configuration.handover
    if handover == NOTHING_HANDED:
        return None
    geometry = GroupGeometry(facts, group.ops)

    def named(tensors: Mapping[str, Handed]) -> list[HandedDoc]:
        return [
            HandedDoc(tensor=name, axis=its.axis, share=its.share, before_end=its.before_end)
            for name, its in tensors.items()
        ]

    return HandoverDoc(
        hands=next(iter(named(handed_tensors(geometry, handover))), None),
        takes=tuple(named(taken_tensors(geometry, handover))),
        held_bytes=handover.held_bytes,
    )


def _op(
    graph: Graph, index: int, part: int | None, weights: OpWeights | None, addresses: AddressTables | None
) -> doc.PlanOp:
    return doc.PlanOp(
        node=graph.ops[index].node,
        part=part,
        kind=graph.ops[index].kind,
        weight_bytes=weights.size_bytes if weights else 0,
        weight_loads=weights.loads if weights else 0,
        weight_mode=weights.kind.value if weights else "none",
        weight_home=weights.home.value if weights else "none",
        weight_slices=weights.slices if weights else 0,
        addresses=addresses,
    )


def _parts(graph: Graph) -> dict[int, int]:
    """Of every op whose node became several ops its number among them."""
    ops: dict[str, list[int]] = {}
    for index, op in enumerate(graph.ops):
        ops.setdefault(op.node, []).append(index)
    return {index: number for found in ops.values() if len(found) > 1 for number, index in enumerate(found)}
