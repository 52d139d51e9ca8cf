"""Facts of each op for the passes after import, computed once per graph from the definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import Final

from compiler.ir.box import AxisMap, same
from compiler.ir.graph import HOST, Graph, Op
from compiler.ir.layout import memory_order
from compiler.ops import call_of, definition
from compiler.ops.base import Call, MatrixShape, OpClass, OpKind, Window
from compiler.ops.contraction import Product
from compiler.units import DTYPE_NAMES, element_bytes

# A product multiplies its first two operands; a third one is added to the finished sum.
FACTORS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One input of an op: the tensor, its access by axis, whether it is a weight, and whether an axis is summed."""

    tensor: str
    access: tuple[AxisMap, ...]
    constant: bool
    is_summed: bool = False

    def is_positionwise(self, rank: int) -> bool:
        """True if each output position of `rank` axes needs only the same position of this operand."""
        maps = enumerate(self.access)
        return len(self.access) == rank and all(m.is_identity and m.axis == axis for axis, m in maps)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpFacts:
    """One op as the planner sees it; work is per output element, in exact fractions."""

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
    window: Window | None = None
    # As in `Work`; `sums_in_parts`: true for a product whose sums may be made in parts; `sum_bytes`: of one of these.
    summing: Fraction = Fraction(0)
    joining: Fraction = Fraction(0)
    sums_in_parts: bool = False
    sum_bytes: int = 0

    @property
    def channels_apart(self) -> bool:
        """True if a part of the channels takes that part of the work; else each repeats what all have in common."""
        return not self.joining


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFacts:
    """One tensor's geometry; `order`: its axes from outermost to innermost in memory."""

    shape: tuple[int, ...]
    axes: tuple[str, ...]
    order: tuple[int, ...]
    element_bytes: int
    constant: bool


@dataclass(frozen=True, kw_only=True)
class GraphFacts:
    """All ops of a graph, by index, and its tensors, by name."""

    graph: Graph
    ops: tuple[OpFacts, ...]
    tensors: Mapping[str, TensorFacts]

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """One number per op; two ops share a number exactly if their signatures are equal."""
        known: dict[tuple[object, ...], int] = {}
        return tuple(known.setdefault(op.signature, len(known)) for op in self.ops)

    @cached_property
    def _by_operands(self) -> tuple[tuple[int, int], ...]:
        """Numbers of operands that ops have, each with these ops as a set of bits."""
        found: dict[int, int] = {}
        for op in self.ops:
            found[len(op.operands)] = found.get(len(op.operands), 0) | 1 << op.index
        return tuple(found.items())

    def operands_of(self, group: int) -> int:
        """How many operands the ops of a set of bits have together."""
        return sum([number * (group & ops).bit_count() for number, ops in self._by_operands])

    @cached_property
    def weight_entries(self) -> tuple[tuple[tuple[int, int, bool], ...], ...]:
        """The weights of each op, as (bytes, extent along the output channels, is_factor).

        The extent is 1 if no axis of the weight follows the output channels. is_factor is true if the op is a product
        and the weight one of its factors.
        """
        return tuple(
            tuple(self._weight_entry(op, name) for name in dict.fromkeys(o.tensor for o in op.operands if o.constant))
            for op in self.ops
        )

    @cached_property
    def weight_numbers(self) -> tuple[int | None, ...]:
        """One number per op with weights: equal for equal ops that read the same ones; None for ops without."""
        known: dict[tuple[object, ...], int] = {}
        keys = [(self.numbers[op.index], *(o.tensor for o in op.operands if o.constant)) for op in self.ops]
        return tuple([known.setdefault(key, len(known)) if key[1:] else None for key in keys])

    def _weight_entry(self, op: OpFacts, name: str) -> tuple[int, int, bool]:
        shape, channels, is_factor = self.tensors[name].shape, 1, False
        for number, operand in enumerate(op.operands):
            if operand.tensor == name:
                is_factor |= op.matrix is not None and number < FACTORS
                for axis_map, extent in zip(operand.access, shape, strict=True):
                    if axis_map.is_identity and axis_map.axis == op.channel_axis:
                        channels = max(channels, extent)
        return self.tensor_bytes(name), channels, is_factor

    def tensor_bytes(self, name: str) -> int:
        """Bytes of all elements of a tensor."""
        tensor = self.tensors[name]
        return prod(tensor.shape) * tensor.element_bytes

    def weights_of(self, ops: Iterable[int]) -> tuple[str, ...]:
        """The constants that ops read whole, without repeats."""
        return tuple(dict.fromkeys(o.tensor for op in ops for o in self.ops[op].operands if o.constant))

    def weight_bytes(self, ops: Iterable[int]) -> int:
        """Bytes of the constants that ops read whole, without repeats."""
        return sum(map(self.tensor_bytes, self.weights_of(ops)))


def graph_facts(graph: Graph) -> GraphFacts:
    """The facts of every op of `graph`."""
    tensors = {
        name: TensorFacts(
            shape=tensor.shape,
            axes=tensor.axes,
            order=memory_order(tensor.axes, graph.layout),
            element_bytes=element_bytes(tensor.stored_dtype),
            constant=tensor.constant is not None,
        )
        for name, tensor in graph.tensors.items()
        if tensor.is_known and tensor.dtype in DTYPE_NAMES
    }
    ops = tuple(_op_facts(graph, index) for index in range(len(graph.ops)))
    for op in ops:
        name = gathered_name(graph, op.output)
        if any(operand.tensor == name for operand in op.operands):
            tensors[name] = replace(tensors[op.output], constant=False)
    return GraphFacts(graph=graph, ops=ops, tensors=tensors)


def gathered_name(graph: Graph, output: str) -> str:
    """The name of the tensor that stands for the elements an op reads of a table through indices.

    It has the shape of the op's output. It is in `GraphFacts.tensors` and in operands, but not in the graph: it has
    no producer and is no graph input.
    """
    name = f"{output}:gathered"
    while name in graph.tensors:
        name += "'"
    return name


def _op_facts(graph: Graph, index: int) -> OpFacts:
    op = graph.ops[index]
    if op.kind == HOST:
        return _host_facts(op, index)
    kind, call = definition(op), call_of(graph, op)
    output = graph.tensors[op.output]
    operands = []
    gathered, streamed, summed = kind.gathered(call), streamed_inputs(kind, call), _summed(kind, call)
    for position, (name, access) in enumerate(zip(op.inputs, kind.access(call), strict=True)):
        if position in gathered and graph.tensors[name].elements > output.elements:
            exact = tuple(same(axis) for axis in range(len(output.shape)))
            operands.append(Operand(tensor=gathered_name(graph, op.output), access=exact, constant=False))
        elif name and access is not None:
            is_constant = graph.tensors[name].constant is not None and position not in streamed
            operands.append(Operand(tensor=name, access=access, constant=is_constant, is_summed=position in summed))
    read = [graph.tensors.get(o.tensor, output) for o in operands]
    types = tuple(
        (tensor.shape, tensor.dtype, tensor.stored_dtype, o.constant, o.access)
        for tensor, o in zip(read, operands, strict=True)
    )
    return _facts(
        kind,
        call,
        tuple(operands),
        index=index,
        weight_bytes=sum(graph.tensors[o.tensor].size_bytes for o in operands if o.constant),
        signature=(op.kind, types, output.shape, output.axes, output.dtype, op.attributes),
    )


def call_facts(kind: OpKind, call: Call, constants: Sequence[bool]) -> OpFacts:
    """The facts of a call outside any graph: operands are named after its inputs, `constants` marks constants."""
    summed = _summed(kind, call)
    operands = tuple(
        Operand(tensor=tensor.name, access=access, constant=constant, is_summed=position in summed)
        for position, (tensor, access, constant) in enumerate(
            zip(call.inputs, kind.access(call), constants, strict=True)
        )
        if tensor is not None and access is not None
    )
    return _facts(kind, call, operands, index=0, weight_bytes=0, signature=())


def _facts(
    kind: OpKind,
    call: Call,
    operands: tuple[Operand, ...],
    *,
    index: int,
    weight_bytes: int,
    signature: tuple[object, ...],
) -> OpFacts:
    work, output = kind.work(call), call.result
    # a data movement passes every element through the core at least once
    vector_ops = max(Fraction(1), work.vector_ops) if kind.op_class is OpClass.MOVEMENT else work.vector_ops
    return OpFacts(
        index=index,
        kind=call.op_type,
        op_class=kind.op_class,
        in_place=kind.in_place,
        operands=operands,
        output=output.name,
        macs=work.macs,
        vector_ops=vector_ops,
        matrix=kind.matrix(call),
        overlap=kind.overlap(call),
        weight_bytes=weight_bytes,
        total_macs=int(work.macs * output.elements),
        channel_axis=output.axes.index("C") if "C" in output.axes else None,
        dtype=kind.array_type(call) if call.inputs and call.inputs[0] is not None else output.dtype,
        signature=signature,
        window=kind.window(call),
        summing=work.summing,
        joining=work.joining,
        sums_in_parts=isinstance(kind, Product) and kind.summed(call) is not None,
        sum_bytes=element_bytes(kind.accumulator(call)) if isinstance(kind, Product) else 0,
    )


def streamed_inputs(kind: OpKind, call: Call) -> tuple[int, ...]:
    """As `Product.streamed`, of any kind."""
    return kind.streamed(call) if isinstance(kind, Product) else ()


def _summed(kind: OpKind, call: Call) -> frozenset[int]:
    """Positions of the inputs that have a summed axis."""
    axes = (kind.summed(call) if isinstance(kind, Product) else None) or ()
    return frozenset(number for number, axis in enumerate(axes) if axis is not None)


def _host_facts(op: Op, index: int) -> OpFacts:
    """The facts of an op on the host, which the planner does not plan."""
    return OpFacts(
        index=index,
        kind=op.kind,
        op_class=OpClass.MOVEMENT,
        in_place=False,
        operands=(),
        output=op.output,
        macs=Fraction(0),
        vector_ops=Fraction(0),
        matrix=None,
        overlap=(),
        weight_bytes=0,
        total_macs=0,
        channel_axis=None,
        dtype="",
        signature=(op.kind, index),
    )
