"""Ops whose stationary weights exceed a chip, cut by output channels into the fewest parts that fit (PART-3)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from compiler.frontend.values import derive
from compiler.ir.constant import Constant, Splat, Stored
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import default_axes
from compiler.ops.facts import graph_facts
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile
from compiler.tiling.stationary import WeightTable
from compiler.units import ceil_div

# Kind -> the axis of the weight that output channels lie on, and that of the output; the bias follows its last axis.
_CUTTABLE: Final = ("Conv", "Gemm", "MatMul")
_PARTS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWeights:
    """Pass: every op that does not fit a chip alone, for its weights, becomes near-equal ops and a Concat."""

    name: str = "split-weights"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; one that cannot be cut is left for partition to refuse."""
        if not self.profile.is_stationary:
            return graph
        facts = graph_facts(graph)
        capacity, weights = self.profile.resident_capacity_bytes, WeightTable(facts, self.profile)
        large = {
            index: ceil_div(resident, capacity)
            for index in range(len(graph.ops))
            if (resident := weights.resident_bytes_per_core((index,))) > capacity
        }
        if not large:
            return graph
        tensors = dict(graph.tensors)
        ops: list[Op] = []
        for index, op in enumerate(graph.ops):
            parts = self._parts(graph, op, large[index]) if index in large else None
            if parts is None:
                ops.append(op)
            else:
                ops.extend(parts[0])
                tensors.update(parts[1])
        names = {name for op in ops for name in (*op.inputs, op.output) if name} | set(graph.outputs)
        kept = {name: tensor for name, tensor in tensors.items() if name in names}
        return replace(graph, ops=tuple(ops), tensors=MappingProxyType(kept))

    def _parts(self, graph: Graph, op: Op, at_least: int) -> tuple[list[Op], dict[str, Tensor]] | None:
        """The fewest near-equal parts of which the largest compiles alone; None if the op cannot be cut."""
        axes = _channel_axes(graph, op)
        if axes is None:
            return None
        channels = graph.tensors[op.output].shape[axes[1]]
        count = at_least
        while count <= min(channels, _PARTS_MAX):
            ops, tensors = _cut(graph, op, axes, count)
            if self._compiles(graph, ops[0], tensors):
                return ops, tensors
            count += 1
        return None

    def _compiles(self, graph: Graph, part: Op, tensors: dict[str, Tensor]) -> bool:
        names = [name for name in (*part.inputs, part.output) if name]
        known = {name: tensors.get(name) or graph.tensors[name] for name in names}
        alone = Graph(
            name=graph.name,
            ops=(part,),
            tensors=MappingProxyType(known),
            inputs=tuple(name for name in part.inputs if name and known[name].constant is None),
            outputs=(part.output,),
            opset=graph.opset,
        )
        return self.candidates(graph_facts(alone)).refusal((0,)) is None


def _channel_axes(graph: Graph, op: Op) -> tuple[int, int] | None:
    """The axes of weight and output that output channels lie on; None if the op cannot be cut along them."""
    attributes = dict(op.attributes)
    weight = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and op.inputs[1] else None
    if op.kind not in _CUTTABLE or weight is None or weight.constant is None:
        return None
    rank = len(graph.tensors[op.output].shape)
    match op.kind:
        case "Conv":
            return (0, 1) if attributes.get("group", 1) == 1 else None
        case "Gemm":
            return (0 if attributes.get("transB") else 1, 1)
        case _:
            return (len(weight.shape) - 1, rank - 1) if len(weight.shape) > 1 else None


def _cut(graph: Graph, op: Op, axes: tuple[int, int], count: int) -> tuple[list[Op], dict[str, Tensor]]:
    """`count` ops over near-equal ranges of output channels, the largest first, and the Concat that joins them."""
    output = graph.tensors[op.output]
    channels = output.shape[axes[1]]
    base, more = divmod(channels, count)
    tensors: dict[str, Tensor] = {}
    ops = []
    begin = 0
    for number in range(count):
        length = base + (number < more)
        inputs = [op.inputs[0], _slice(graph, op.inputs[1], axes[0], begin, length, number, tensors)]
        for name in op.inputs[2:]:
            bias = graph.tensors[name] if name else None
            follows = bias is not None and bias.shape and bias.shape[-1] == channels
            axis = len(bias.shape) - 1 if bias is not None else 0
            inputs.append(_slice(graph, name, axis, begin, length, number, tensors) if follows else name)
        made = _fresh(f"{op.output}/part{number}", graph, tensors)
        shape = tuple(length if axis == axes[1] else extent for axis, extent in enumerate(output.shape))
        tensors[made] = replace(output, name=made, shape=shape)
        ops.append(replace(op, inputs=tuple(inputs), output=made))
        begin += length
    joined = Op(
        kind="Concat",
        inputs=tuple(part.output for part in ops),
        output=op.output,
        origin=op.origin,
        attributes=(("axis", axes[1]),),
    )
    return [*ops, joined], tensors


def _slice(graph: Graph, name: str, axis: int, begin: int, length: int, number: int, tensors: dict[str, Tensor]) -> str:
    tensor = graph.tensors[name]
    if tensor.constant is None:
        return name
    constant = _sliced(tensor.constant, axis, begin, length)
    made = _fresh(f"{name}/part{number}", graph, tensors)
    tensors[made] = Tensor(
        name=made,
        shape=constant.shape,
        dtype=constant.dtype,
        axes=default_axes(len(constant.shape)),
        constant=constant,
    )
    return made


def _sliced(constant: Constant, axis: int, begin: int, length: int) -> Constant:
    """A range of one axis of a constant; nothing is computed."""
    shape = tuple(length if i == axis else extent for i, extent in enumerate(constant.shape))
    if isinstance(constant.data, Splat):
        return replace(constant, shape=shape)
    if isinstance(constant.data, Stored) and axis == 0:
        row = constant.data.size_bytes // constant.shape[0]
        data = replace(constant.data, offset=constant.data.offset + begin * row, size_bytes=length * row)
        return replace(constant, shape=shape, data=data)
    starts = tuple(begin if i == axis else 0 for i in range(len(shape)))
    return derive("Slice", (constant,), shape, {"begin": starts, "step": (1,) * len(shape)})


def _fresh(name: str, graph: Graph, tensors: dict[str, Tensor]) -> str:
    while name in graph.tensors or name in tensors:
        name += "'"
    return name
