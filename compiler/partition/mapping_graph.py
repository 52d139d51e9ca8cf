"""The mapping graph: a graph's ops as placed on hardware nodes, built before partition (PART-6).

Before partition no chip and no tiling is known, so the ops are dealt out to the chips by their work, in execution
order, and each op lies on the cores that its weights or its output can occupy. Once segments have their chips,
`on_chips` gives the nodes theirs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.ops.base import OpClass
from compiler.ops.op_facts import FACTORS, GraphFacts, OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.stationary import channel_axis, cores_of_channels


class Unit(StrEnum):
    """The kinds of hardware nodes: a core's matrix and vector unit, the chip's DMA engines, the host."""

    MATRIX = "matrix"
    VECTOR = "vector"
    DMA = "dma"
    HOST = "host"


# DMA engines only move.
_COMPUTES: Final = frozenset({Unit.MATRIX, Unit.VECTOR})


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingNode:
    """One op's part on one kind of hardware node.

    `chip` is None and `cores` is empty on the host; else `cores` are the cores of the chip on which the work lies.
    `amount` is MACs on a matrix unit, vector operations on a vector unit, bytes on DMA engines (what the op loads from
    or stores to DRAM if nothing is fused), ops on the host. `cycles` is how long the units of these cores compute at
    their full rate; 0 on DMA engines and on the host.
    """

    op: int
    unit: Unit
    chip: int | None
    cores: tuple[int, ...]
    amount: int
    cycles: float


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

    def on_chips(self, chip_of: Mapping[int, int | None]) -> MappingGraph:
        """The same graph, with each op's nodes on another chip: `chip_of` has every op, None where it is the host's."""
        nodes = tuple(replace(node, chip=chip_of[node.op]) for node in self.nodes)
        return MappingGraph(nodes=nodes, edges=self.edges)

    def cycles(self, ops: Iterable[int]) -> float:
        """How long a chip computes on the ops, one after another, at full rate."""
        return sum(self.nodes[index].cycles for op in ops for index in self.by_op.get(op, ()))

    def cores(self, ops: Iterable[int]) -> dict[str, int]:
        """On how many cores of their chip nodes of each kind lie, which kinds are on the chip."""
        found: dict[str, set[int]] = {}
        for node in (self.nodes[index] for op in ops for index in self.by_op.get(op, ())):
            if node.unit is not Unit.HOST:
                found.setdefault(node.unit.value, set()).update(node.cores)
        return {unit: len(cores) for unit, cores in sorted(found.items())}

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
    places = _Cores(facts, profile)
    nodes: list[MappingNode] = []
    edges: list[tuple[int, int]] = []
    ready: dict[int, int] = {}

    def add(op: int, unit: Unit, amount: int, after: Iterable[int]) -> int:
        cores = () if unit is Unit.HOST else places.of(op)
        cycles = amount / (_rate(facts.ops[op], unit, profile) * len(cores)) if unit in _COMPUTES else 0.0
        nodes.append(MappingNode(op=op, unit=unit, chip=None, cores=cores, amount=amount, cycles=cycles))
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
    mapping = MappingGraph(nodes=tuple(nodes), edges=tuple(edges))
    return mapping.on_chips(_dealt(mapping, facts, profile.chips))


def _rate(op: OpFacts, unit: Unit, profile: Profile) -> float:
    """What one core's unit does per cycle: MACs or vector operations; MACs of a type without an array on the lanes."""
    array = profile.matrix.arrays.get(op.dtype) if unit is Unit.MATRIX else None
    return array.k * array.c * array.ox * array.oy if array is not None else profile.vector.lanes


def _dealt(mapping: MappingGraph, facts: GraphFacts, chips: int) -> dict[int, int | None]:
    """A chip for each op that is not the host's: in execution order, as much work for each chip as comes near."""
    after = np.cumsum([mapping.cycles((op.index,)) for op in facts.ops])
    before = np.concatenate(([0.0], after[:-1]))
    total = float(after[-1]) if len(after) else 0.0
    middle = (before + after) / 2 * chips / total if total else np.zeros(len(after))
    dealt = np.minimum(middle.astype(np.int64), chips - 1).tolist()
    return {index: None if index in facts.graph.on_host else chip for index, chip in enumerate(dealt)}


class _Cores:
    """On which cores of a chip the ops lie; equal ones share a tuple."""

    def __init__(self, facts: GraphFacts, profile: Profile) -> None:
        self._facts = facts
        self._profile = profile
        self._by_channels: dict[int, tuple[int, ...]] = {}
        self._first: dict[int, tuple[int, ...]] = {}

    def of(self, op: int) -> tuple[int, ...]:
        """Where stationary weights of a product lie; else as many cores as the output has elements for, all at most."""
        fact, cores = self._facts.ops[op], self._profile.cores
        channels = self._channels(fact)
        if channels is not None:
            if channels not in self._by_channels:
                self._by_channels[channels] = cores_of_channels(channels, self._profile)
            return self._by_channels[channels]
        count = max(1, min(cores, self._facts.graph.tensors[fact.output].elements))
        return self._first.setdefault(count, tuple(range(count)))

    def _channels(self, fact: OpFacts) -> int | None:
        """The channels that stationary weights of a product are shared out by; None where there are none."""
        if not self._profile.is_stationary or fact.matrix is None:
            return None
        for operand in fact.operands[:FACTORS]:
            shape = self._facts.tensors[operand.tensor].shape
            axis = channel_axis(fact, operand, shape) if operand.constant else None
            if axis is not None:
                return shape[axis]
        return None
