"""Ops whose stationary weights exceed a chip, cut by output channels into the fewest parts that fit (PART-3)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Final

from compiler.errors import LimitError
from compiler.frontend.constant_values import derive
from compiler.ir.constant import Constant, Splat, Stored
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops import call_of, channel_axes
from compiler.ops.base import default_axes
from compiler.ops.op_facts import graph_facts
from compiler.partition.alone import refused_alone
from compiler.partition.partition import CandidateFactory, Refused
from compiler.profile.schema import Profile
from compiler.tiling.stationary import WeightTable
from compiler.units import ceil_div

_PARTS_MAX: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitWeights:
    """Pass: every op that does not fit a chip alone, beside its weights, becomes near-equal ops and a Concat.

    Convolutions (transposed ones too) without groups, Gemm and MatMul by a constant are cut; others are left for
    partition to refuse.
    """

    name: str = "split-weights"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced; raises LimitError where not even the smallest part of one compiles."""
        if not self.profile.is_stationary:
            return graph
        facts = graph_facts(graph)
        capacity, weights = self.profile.resident_capacity_bytes, WeightTable(facts, self.profile)
        compiler = self.candidates(facts)
        large = {}
        for index in range(len(graph.ops)):
            resident = weights.resident_bytes_per_core((index,))
            # weights that fit may still leave less than the smallest tile needs
            if resident > capacity or (2 * resident > capacity and compiler.refusal((index,)) is not None):
                large[index] = max(2, ceil_div(resident, capacity))
        if not large:
            return graph
        cutter = _Cutter(graph)
        ops: list[Op] = []
        for index, op in enumerate(graph.ops):
            axes = _channel_axes(graph, op) if index in large else None
            ops.extend([op] if axes is None else cutter.cut(op, axes, self._count(graph, op, axes, large[index])))
        names = {name for op in ops for name in (*op.inputs, op.output) if name} | set(graph.outputs)
        kept = {name: tensor for name, tensor in cutter.tensors.items() if name in names}
        return replace(graph, ops=tuple(ops), tensors=MappingProxyType(kept))

    def _count(self, graph: Graph, op: Op, axes: tuple[int, int], at_least: int) -> int:
        """The fewest near-equal parts of which the largest compiles alone; smaller parts never fit worse."""
        channels = graph.tensors[op.output].shape[axes[1]]
        most = min(channels, _PARTS_MAX)
        refused = self._refused(graph, op, axes, most)
        if refused is not None:
            raise _no_part_fits(op, most, refused.error)
        counts = range(min(at_least, most), most + 1)
        return counts[bisect_left(counts, True, key=lambda count: self._refused(graph, op, axes, count) is None)]

    def _refused(self, graph: Graph, op: Op, axes: tuple[int, int], count: int) -> Refused | None:
        """Why the largest of `count` parts does not compile alone; None if it does."""
        cutter = _Cutter(graph)
        part = cutter.part(op, axes, 0, ceil_div(graph.tensors[op.output].shape[axes[1]], count))[-1]
        return refused_alone(self.candidates, cutter.tensors, part, graph)


def _no_part_fits(op: Op, parts: int, error: LimitError) -> LimitError:
    return LimitError(
        f"an op's stationary weights exceed a chip, and cut by output channels into {parts} parts none fits:"
        f" {error.message}",
        code="op_too_large",
        stage="partition",
        node=op.node,
        op_type=op.kind,
        actual=error.actual,
        limit=error.limit,
        hint=error.hint,
    )


def _channel_axes(graph: Graph, op: Op) -> tuple[int, int] | None:
    """The axes of weight and output that output channels lie on; None if the op cannot be cut along them."""
    weight = graph.tensors[op.inputs[1]] if len(op.inputs) > 1 and op.inputs[1] else None
    if weight is None or weight.constant is None or dict(op.attributes).get("group", 1) != 1:
        return None
    return channel_axes(op, call_of(graph, op))


class _Cutter:
    """Cuts ops of one graph; tensors that are made stand beside the graph's, equal slices of one tensor once."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = dict(graph.tensors)
        self._slices: dict[tuple[str, int, int, int], str] = {}

    def cut(self, op: Op, axes: tuple[int, int], count: int) -> list[Op]:
        """`count` ops over near-equal ranges of output channels, the largest first, and the Concat that joins them."""
        base, more = divmod(self.graph.tensors[op.output].shape[axes[1]], count)
        lengths = [base + (number < more) for number in range(count)]
        ops: list[Op] = []
        made = []
        for begin, length in zip(accumulate([0, *lengths[:-1]]), lengths, strict=True):
            ops.extend(self.part(op, axes, begin, length))
            made.append(ops[-1].output)
        joined = Op(
            kind="Concat", inputs=tuple(made), output=op.output, origin=op.origin, attributes=(("axis", axes[1]),)
        )
        return [*ops, joined]

    def part(self, op: Op, axes: tuple[int, int], begin: int, length: int) -> list[Op]:
        """The op for one range of output channels, last; before it what slices a bias that is computed."""
        output = self.graph.tensors[op.output]
        channels = output.shape[axes[1]]
        ops: list[Op] = []
        inputs = [op.inputs[0], self._constant(op.inputs[1], axes[0], begin, length)]
        for name in op.inputs[2:]:
            bias = self.graph.tensors[name] if name else None
            if bias is None or not bias.shape or bias.shape[-1] != channels:
                inputs.append(name)
            elif bias.constant is not None:
                inputs.append(self._constant(name, len(bias.shape) - 1, begin, length))
            else:
                ops.append(self._computed(op, bias, begin, length))
                inputs.append(ops[-1].output)
        made = self._fresh(f"{op.output}/from{begin}")
        shape = tuple(length if axis == axes[1] else extent for axis, extent in enumerate(output.shape))
        symbols = tuple((axis, expression) for axis, expression in output.symbols if axis != axes[1])
        self.tensors[made] = replace(output, name=made, shape=shape, symbols=symbols)
        return [*ops, replace(op, inputs=tuple(inputs), output=made)]

    def _constant(self, name: str, axis: int, begin: int, length: int) -> str:
        key = (name, axis, begin, length)
        if key not in self._slices:
            constant = self.graph.tensors[name].constant
            if constant is None:
                raise AssertionError(name)
            made = self._slices[key] = self._fresh(f"{name}/from{begin}")
            sliced = _sliced(constant, axis, begin, length)
            self.tensors[made] = Tensor(
                name=made,
                shape=sliced.shape,
                dtype=sliced.dtype,
                axes=default_axes(len(sliced.shape)),
                constant=sliced,
            )
        return self._slices[key]

    def _computed(self, op: Op, bias: Tensor, begin: int, length: int) -> Op:
        """The Slice of a bias that is no constant, along its last axis."""
        made = self._fresh(f"{bias.name}/from{begin}")
        rank = len(bias.shape)
        symbols = tuple((axis, expression) for axis, expression in bias.symbols if axis != rank - 1)
        self.tensors[made] = replace(bias, name=made, shape=(*bias.shape[:-1], length), symbols=symbols)
        attributes = (("begin", (*(0,) * (rank - 1), begin)), ("step", (1,) * rank))
        return Op(kind="Slice", inputs=(bias.name,), output=made, origin=op.origin, attributes=attributes)

    def _fresh(self, name: str) -> str:
        while name in self.tensors:
            name += "'"
        return name


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
    return derive("Slice", (constant,), shape, {"begin": starts, "step": (1,) * len(shape)}, constant.dtype)
