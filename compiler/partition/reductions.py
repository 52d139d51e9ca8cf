"""Reductions over what no core holds all of, taken axis by axis and row by row (TILE-2, SHAPE-1).

A mean over all of an image needs the image: one position of its result may be more than a core has room for. Over one
axis it needs a row; a row that is too long is seen as several, and what is left of it is reduced beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isqrt, prod
from types import MappingProxyType
from typing import Final

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import FLOATS
from compiler.partition.alone import refused_alone
from compiler.partition.made import Made, opened, reshape
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
_MEANS: Final = frozenset({"GlobalAveragePool", "ReduceMean"})
# What a row of integers gives is no whole number, and would be cut off.
_FRACTIONS: Final = frozenset({"ReduceL2", "ReduceLogSumExp", "ReduceMean"})
# What a row gives may be beyond float16 where the whole result is not: sums cancel, logarithms are small.
_LARGER: Final = frozenset({"ReduceLogSum", "ReduceProd", "ReduceSum"})
# Ops whose position takes less than this part of a core's memory fit, whatever lies beside them.
_SMALL: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitReductions:
    """Pass: reductions that fit no core become several, the innermost axis first, where each of these fits.

    An axis that is too long alone is seen as rows, as long as they are many. One without divisors, or with small ones
    only, is cut in two, and the first part has better ones.

    A mean of means is the mean, for all rows are equally long. What lies between has the op's element type: left are
    ops whose rows this does not hold.
    """

    name: str = "split-reductions"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced."""
        made = Made(graph.tensors)
        ops: list[Op] = []
        for op in graph.ops:
            if self._is_small(made.tensors, op):
                ops.append(op)
                continue
            tried = Made(made.tensors)
            stages = self._stages(tried, op, graph)
            ops += stages or [op]
            made = tried if stages else made
        return made.graph(graph, ops)

    def _stages(self, made: Made, op: Op, graph: Graph) -> list[Op] | None:
        """Ops that do what an op does, each of which fits: itself if it does; None if there are none."""
        if refused_alone(self.candidates, made.tensors, op, graph) is None:
            return [op]
        axes = _long_axes(made.tensors, op)
        if len(axes) < 2:
            return self._along_one(made, op, axes[0], graph) if axes else None
        first, rest = _split(made, op, axes[-1])
        along, over = self._stages(made, first, graph), self._stages(made, rest, graph)
        return None if along is None or over is None else [*along, *over]

    def _along_one(self, made: Made, op: Op, axis: int, graph: Graph) -> list[Op] | None:
        """The same of an op along one axis; None if it varies, or is too short to have parts."""
        if any(own == axis for own, _ in made.tensors[op.inputs[0]].symbols):
            return None
        for way in (self._in_rows, self._in_two):
            tried = Made(made.tensors)
            stages = way(tried, op, axis, graph)
            if stages is not None:
                made.accept(tried)
                return stages
        return None

    def _in_rows(self, made: Made, op: Op, axis: int, graph: Graph) -> list[Op] | None:
        """The same of an op along one axis, which is seen as rows of equal length; None if a row fits no core."""
        data, output = made.tensors[op.inputs[0]], made.tensors[op.output]
        count = largest_divisor(data.shape[axis])
        if count == 1:
            return None
        ops: list[Op] = []
        rows = (count, data.shape[axis] // count)
        inputs = (made.view(ops, op, op.inputs[0], opened(data, axis, rows)), *op.inputs[1:])
        if any(refused_alone(self.candidates, made.tensors, view, graph) is not None for view in ops):
            return None
        attributes = dict(op.attributes)
        given = attributes.get("axes")
        if isinstance(given, tuple):
            attributes["axes"] = tuple(sorted({axis + 1, *(int(own) + (int(own) > axis) for own in given)}))
        if len(output.shape) < len(data.shape):
            seen = replace(op, inputs=inputs, attributes=tuple(attributes.items()))
            stages = self._stages(made, seen, graph)
            return None if stages is None else [*ops, *stages]
        result = made.add(opened(output, axis, (1, 1)))
        seen = replace(op, inputs=inputs, output=result, attributes=tuple(attributes.items()))
        stages = self._stages(made, seen, graph)
        return None if stages is None else [*ops, *stages, reshape(op, result, output)]

    def _in_two(self, made: Made, op: Op, axis: int, graph: Graph) -> list[Op] | None:
        """The same of an op along an axis without divisors: as many equal rows as they are long, and what is left."""
        extent = made.tensors[op.inputs[0]].shape[axis]
        front = extent - extent % isqrt(extent)
        if front == extent:
            return None  # rows of it fit no core, or it is a few positions
        first, rest = _STAGES[op.kind]
        ops: list[Op] = []
        parts: list[str] = []
        for begin, end in ((0, front), (front, extent)):
            cut = made.along(ops, op, op.inputs[0], axis, begin, end)
            along = replace(op, kind=first, inputs=(cut,), attributes=(("axes", (axis,)), ("keepdims", 1)))
            part = made.add(_over(made, op, cut, axis, 1))
            stages = self._stages(made, replace(along, output=part), graph)
            if stages is None:
                return None
            ops += stages
            parts.append(part)
        both = made.add(_over(made, op, op.inputs[0], axis, 2))
        ops.append(Op(kind="Concat", inputs=tuple(parts), output=both, origin=op.origin, attributes=(("axis", axis),)))
        if rest in _MEANS:
            # what either has of the mean: none is larger than the type holds if the data are not
            both = made.scaled(ops, op, both, axis, (front / extent, (extent - front) / extent))
            axes = dict(op.attributes).get("axes", tuple(range(2, len(made.tensors[both].shape))))
            attributes = (("axes", axes), ("keepdims", dict(op.attributes).get("keepdims", 1)))
            last = replace(op, kind="ReduceSum", inputs=(both, *op.inputs[1:]), attributes=attributes)
            return [*ops, last]
        over = self._stages(made, replace(op, kind=rest, inputs=(both, *op.inputs[1:])), graph)
        return None if over is None else [*ops, *over]

    def _is_small(self, tensors: Mapping[str, Tensor], op: Op) -> bool:
        axes = _long_axes(tensors, op)
        if not axes:
            return True
        data = tensors[op.inputs[0]]
        size = prod(data.shape[axis] for axis in axes) * element_bytes(data.dtype)
        return _SMALL * size < self.profile.nram.capacity_bytes


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


def _split(made: Made, op: Op, axis: int) -> tuple[Op, Op]:
    """An op as one along an axis and one over all that is left; the tensor between is added."""
    first, rest = _STAGES[op.kind]
    name = made.add(_over(made, op, op.inputs[0], axis, 1))
    along = (("axes", (axis,)), ("keepdims", 1))
    return (
        Op(kind=first, inputs=(op.inputs[0],), output=name, origin=op.origin, attributes=along),
        replace(op, kind=rest, inputs=(name, *op.inputs[1:])),
    )


def _over(made: Made, op: Op, data: str, axis: int, extent: int) -> Tensor:
    """What an op leaves of a tensor along an axis: so many positions."""
    whole = made.tensors[data]
    return Tensor(
        name=f"{op.output}/over{axis}",
        shape=(*whole.shape[:axis], extent, *whole.shape[axis + 1 :]),
        dtype=made.tensors[op.output].dtype,
        axes=whole.axes,
        symbols=tuple((own, expression) for own, expression in whole.symbols if own != axis),
    )


def largest_divisor(extent: int) -> int:
    """The largest divisor of an extent that is no larger than its root."""
    return next(count for count in range(isqrt(extent), 0, -1) if extent % count == 0)
