"""The mapping graph: a graph's ops as placed on hardware nodes, built before partition (PART-6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType

from compiler.ops.base import OpClass
from compiler.ops.facts import GraphFacts
from compiler.profile.schema import Profile


class Unit(StrEnum):
    """The kinds of hardware nodes: a core's matrix and vector unit, the chip's DMA engines, the host."""

    MATRIX = "matrix"
    VECTOR = "vector"
    DMA = "dma"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """One op's part on one kind of hardware node.

    `cores` of a chip take part in it; `amount` is MACs on a matrix unit, vector operations on a vector unit, bytes on
    DMA engines (what the op loads from or stores to DRAM if nothing is fused), ops on the host.
    """

    op: int
    unit: Unit
    cores: int
    amount: int


@dataclass(frozen=True, kw_only=True)
class MappingGraph:
    """Nodes in execution order (an op's loads, matrix part, vector part, store) and edges between node indices."""

    nodes: tuple[MappingNode, ...]
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def by_op(self) -> Mapping[int, tuple[int, ...]]:
        """Op -> its nodes."""
        table: dict[int, list[int]] = {}
        for index, node in enumerate(self.nodes):
            table.setdefault(node.op, []).append(index)
        return MappingProxyType({op: tuple(found) for op, found in table.items()})

    def part(self, ops: Iterable[int]) -> MappingGraph:
        """A segment's mapping graph: the nodes of its ops and the edges among them."""
        kept = sorted(index for op in ops for index in self.by_op.get(op, ()))
        number = {index: position for position, index in enumerate(kept)}
        edges = ((number[a], number[b]) for a, b in self.edges if a in number and b in number)
        return MappingGraph(nodes=tuple(self.nodes[index] for index in kept), edges=tuple(edges))

    def count(self, ops: Iterable[int], unit: Unit) -> int:
        """How many nodes of a kind the ops have; of vector-unit nodes PART-4 speaks."""
        return sum(self.nodes[index].unit is unit for op in ops for index in self.by_op.get(op, ()))

    def counts(self, ops: Iterable[int]) -> dict[str, int]:
        """How many nodes of each kind the ops have."""
        found = Counter(self.nodes[index].unit.value for op in ops for index in self.by_op.get(op, ()))
        return dict(sorted(found.items()))


def mapping_graph(facts: GraphFacts, profile: Profile) -> MappingGraph:
    """Every op on its hardware nodes: matrix products on matrix units, the rest of its work on vector units, data
    that only moves and what crosses the chip's edge on DMA engines."""
    graph = facts.graph
    outputs = set(graph.chip_outputs)
    entering = {-1, *graph.on_host}
    nodes: list[MappingNode] = []
    edges: list[tuple[int, int]] = []
    ready: dict[int, int] = {}

    def add(op: int, unit: Unit, amount: int, after: Iterable[int]) -> int:
        cores = 0 if unit is Unit.HOST else profile.cores
        nodes.append(MappingNode(op=op, unit=unit, cores=cores, amount=amount))
        edges.extend((source, len(nodes) - 1) for source in after)
        return len(nodes) - 1

    for index, op in enumerate(graph.ops):
        before = sorted({ready[graph.producer[name]] for name in op.inputs if name in graph.producer})
        if index in graph.on_host:
            ready[index] = add(index, Unit.HOST, 1, before)
            continue
        fact = facts.ops[index]
        # constants, graph inputs, and what the host makes; each once
        names = dict.fromkeys(operand.tensor for operand in fact.operands)
        from_dram = [facts.tensor_bytes(name) for name in names if graph.producer.get(name, -1) in entering]
        if from_dram:
            before = [*before, add(index, Unit.DMA, sum(from_dram), ())]
        last: int | None = None
        elements = graph.tensors[op.output].elements
        if fact.matrix is not None:
            last = add(index, Unit.MATRIX, fact.total_macs, before)
        if fact.op_class is OpClass.MOVEMENT:
            last = add(index, Unit.DMA, facts.tensor_bytes(op.output), before)
        elif fact.vector_ops:
            last = add(index, Unit.VECTOR, int(fact.vector_ops * elements), before if last is None else (last,))
        if last is None:
            # a view: its readers wait for what it reads
            last = add(index, Unit.DMA, 0, before)
        if op.output in outputs:
            add(index, Unit.DMA, facts.tensor_bytes(op.output), (last,))
        ready[index] = last
    return MappingGraph(nodes=tuple(nodes), edges=tuple(edges))
