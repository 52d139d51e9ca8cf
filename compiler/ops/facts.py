"""What the passes after import need to know of each op, computed once per graph from the definitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from compiler.ir.box import AxisMap
from compiler.ir.graph import Graph
from compiler.ops import call_of, definition
from compiler.ops.base import MatrixShape, OpClass
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One input of an op: the tensor, its access by axis, and whether it is a constant."""

    tensor: str
    access: tuple[AxisMap, ...]
    constant: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op as the planner sees it; work is per output element, as exact fractions."""

    index: int
    kind: str
    op_class: OpClass
    in_place: bool
    operands: tuple[Operand, ...]
    output: str
    macs: Fraction
    vector_ops: Fraction
    matrix: MatrixShape | None
    overlap: tuple[int, ...]
    weight_bytes: int
    total_macs: int
    channel_axis: int | None
    dtype: str
    signature: tuple[object, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """One tensor's geometry."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    element_bytes: int
    constant: bool


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """All ops of a graph, by index, and its tensors, by name."""

    graph: Graph
    ops: tuple[OpFacts, ...]
    tensors: Mapping[str, TensorFacts]


def graph_facts(graph: Graph) -> GraphFacts:
    """The facts of every op of `graph`."""
    tensors = {
        name: TensorFacts(
            shape=tensor.shape,
            axes=tensor.axes,
            element_bytes=element_bytes(tensor.dtype),
            constant=tensor.constant is not None,
        )
        for name, tensor in graph.tensors.items()
    }
    return GraphFacts(graph=graph, ops=tuple(_op_facts(graph, i) for i in range(len(graph.ops))), tensors=tensors)


def _op_facts(graph: Graph, index: int) -> OpFacts:
    op = graph.ops[index]
    kind, call = definition(op), call_of(graph, op)
    output = graph.tensors[op.output]
    operands = []
    for name, access in zip(op.inputs, kind.access(call), strict=True):
        if name and access is not None:
            operands.append(Operand(tensor=name, access=access, constant=graph.tensors[name].constant is not None))
    work = kind.work(call)
    # a data movement passes every element through the core once
    vector_ops = Fraction(1) if kind.op_class is OpClass.MOVEMENT else work.vector_ops
    types = tuple(
        (graph.tensors[o.tensor].shape, graph.tensors[o.tensor].dtype, o.constant, o.access) for o in operands
    )
    return OpFacts(
        index=index,
        kind=op.kind,
        op_class=kind.op_class,
        in_place=kind.in_place,
        operands=tuple(operands),
        output=op.output,
        macs=work.macs,
        vector_ops=vector_ops,
        matrix=kind.matrix(call),
        overlap=kind.overlap(call),
        weight_bytes=sum(graph.tensors[o.tensor].size_bytes for o in operands if o.constant),
        total_macs=int(work.macs * output.elements),
        channel_axis=output.axes.index("C") if "C" in output.axes else None,
        dtype=graph.tensors[operands[0].tensor].dtype if operands else output.dtype,
        signature=(op.kind, types, output.shape, output.axes, output.dtype, op.attributes),
    )
