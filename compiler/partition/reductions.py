"""Reductions over several axes that no core holds all of, taken axis by axis (TILE-2, SHAPE-1).

A mean over all of an image needs the image: one position of its result may be more than a core has room for. Over one
axis it needs a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Final

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import FLOATS
from compiler.partition.alone import refused_alone
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile
from compiler.units import element_bytes

# What is done along the first axis, and over all that is left: the same function as the op over all at once.
_STAGES: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "GlobalAveragePool": ("ReduceMean", "GlobalAveragePool"),
        "GlobalMaxPool": ("ReduceMax", "GlobalMaxPool"),
        "ReduceL1": ("ReduceL1", "ReduceL1"),
        "ReduceL2": ("ReduceL2", "ReduceL2"),
        "ReduceLogSum": ("ReduceSum", "ReduceLogSum"),
        "ReduceLogSumExp": ("ReduceLogSumExp", "ReduceLogSumExp"),
        "ReduceMax": ("ReduceMax", "ReduceMax"),
        "ReduceMean": ("ReduceMean", "ReduceMean"),
        "ReduceMin": ("ReduceMin", "ReduceMin"),
        "ReduceProd": ("ReduceProd", "ReduceProd"),
        "ReduceSum": ("ReduceSum", "ReduceSum"),
        "ReduceSumSquare": ("ReduceSumSquare", "ReduceSum"),
    }
)
# What a row of integers gives is no whole number, and would be cut off.
_FRACTIONS: Final = frozenset({"ReduceL2", "ReduceLogSumExp", "ReduceMean"})
# What a row gives may be beyond float16 where the whole result is not: sums cancel, logarithms are small.
_LARGER: Final = frozenset({"ReduceLogSum", "ReduceProd", "ReduceSum"})
# Ops whose position takes less than this part of a core's memory fit, whatever lies beside them.
_SMALL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReductions:
    """Pass: reductions that fit no core become several, the innermost axis first, where each of these fits.

    A mean of means is the mean, for all rows are equally long. What lies between has the op's element type: left are
    ops whose rows this does not hold.
    """

    name: str = "split-reductions"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced."""
        tensors = dict(graph.tensors)
        ops: list[Op] = []
        for op in graph.ops:
            ops += self._stages(tensors, op, graph.opset)
        if len(ops) == len(graph.ops):
            return graph
        return replace(graph, ops=tuple(ops), tensors=MappingProxyType(tensors))

    def _stages(self, tensors: dict[str, Tensor], op: Op, opset: int) -> list[Op]:
        """The ops that do what an op does, each of which fits; the op alone where it does, or they do not."""
        if self._is_small(tensors, op) or self._fits(tensors, op, opset):
            return [op]
        stages, made = [op], dict(tensors)
        while not self._fits(made, stages[-1], opset):
            axes = _long_axes(made, stages[-1])
            if len(axes) < 2:
                return [op]
            first, rest = _split(made, stages.pop(), axes[-1])
            if not self._fits(made, first, opset):
                return [op]
            stages += (first, rest)
        tensors.update(made)
        return stages

    def _is_small(self, tensors: Mapping[str, Tensor], op: Op) -> bool:
        axes = _long_axes(tensors, op)
        if len(axes) < 2:
            return True
        data = tensors[op.inputs[0]]
        size = prod(data.shape[axis] for axis in axes) * element_bytes(data.dtype)
        return _SMALL * size < self.profile.nram.capacity_bytes

    def _fits(self, tensors: Mapping[str, Tensor], op: Op, opset: int) -> bool:
        """Whether an op alone has a tile on the profile."""
        return refused_alone(self.candidates, tensors, op, opset) is None


def _long_axes(tensors: Mapping[str, Tensor], op: Op) -> tuple[int, ...]:
    """The axes that an op reduces and that have more than one position; none of what is no reduction in stages."""
    if op.kind not in _STAGES or not tensors[op.inputs[0]].is_known:
        return ()
    data = tensors[op.inputs[0]]
    if op.kind in (_LARGER if data.dtype == "float16" else () if data.dtype in FLOATS else _FRACTIONS):
        return ()
    axes = dict(op.attributes).get("axes", tuple(range(2, len(data.shape))))
    assert isinstance(axes, tuple)
    return tuple(axis for axis in axes if isinstance(axis, int) and data.shape[axis] > 1)


def _split(tensors: dict[str, Tensor], op: Op, axis: int) -> tuple[Op, Op]:
    """An op as one along an axis and one over all that is left; the tensor between is added."""
    data = tensors[op.inputs[0]]
    first, rest = _STAGES[op.kind]
    name = f"{op.output}/over{axis}"
    while name in tensors:
        name += "'"
    tensors[name] = Tensor(
        name=name,
        shape=(*data.shape[:axis], 1, *data.shape[axis + 1 :]),
        dtype=tensors[op.output].dtype,
        axes=data.axes,
        symbols=tuple((own, expression) for own, expression in data.symbols if own != axis),
    )
    along = (("axes", (axis,)), ("keepdims", 1))
    return (
        Op(kind=first, inputs=(op.inputs[0],), output=name, origin=op.origin, attributes=along),
        replace(op, kind=rest, inputs=(name, *op.inputs[1:])),
    )
