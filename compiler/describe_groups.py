"""From a fused group to its part of the plan."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from compiler import plan as doc
from compiler.describe_addresses import address_tables
from compiler.fusion.groups import Boundary, FusedGraph, Group
from compiler.ir.graph import Graph
from compiler.ops.facts import GraphFacts
from compiler.schedule import HaloName
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import OpWeights


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
            doc.RuleVerdict(id=c.rule, holds=bool(c.holds), actual=float(c.actual), limit=float(c.limit))
            for c in group.checks
        ),
        boundary=tuple(
            doc.BoundaryDoc(
                tensor=reason.tensor,
                consumer=None if reason.consumer is None else graph.ops[reason.consumer].node,
                consumer_group=None if reason.consumer is None else naming.homes.get(reason.consumer),
                rule=reason.rule,
                actual=reason.actual,
                limit=reason.limit,
                why=reason.why,
            )
            for reason in reasons
        ),
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


def _op(
    graph: Graph, index: int, part: int | None, weights: OpWeights | None, addresses: doc.AddressTables | None
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
