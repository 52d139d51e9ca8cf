"""Normalisations over more than a core holds, as means and what is done with them (TILE-2, SHAPE-1).

An instance normalisation needs all of an image's channel at once. Its mean and its variance are reductions, which may
be taken axis by axis (`reductions.py`); the rest works on one element at a time. So it is with the largest value and
the sum of a softmax. A group's mean is the mean of its channels' means.

What statistics are taken of (differences, exponentials) is computed again for the result. Else it would have to be
written to DRAM and read again, for no core holds it until the statistics are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Final

import numpy as np

from compiler.frontend.constant_values import derive
from compiler.ir.constant import Constant, Literal
from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import default_axes
from compiler.partition.alone import replace_refused
from compiler.partition.made import Made, opened, reshape
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile
from compiler.units import numpy_dtype

_SUMMED: Final = ("Softmax", "LogSoftmax")
# These have one value of scale and bias for each channel, or for each group of channels.
_BY_CHANNEL: Final = ("GroupNormalization", "InstanceNormalization")
_KINDS: Final = (*_BY_CHANNEL, "LayerNormalization", "RMSNormalization", *_SUMMED)
# In less precision what lies between would be rounded to it, which the op at once does not.
_DTYPE: Final = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitNormalisations:
    """Pass: normalisations that fit no core become reductions (a mean, a mean of squares) and ops by element."""

    name: str = "split-normalisations"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such ops replaced."""
        return replace_refused(graph, self.candidates, self._is_large, lambda made, op, _: _Parts(graph, made).of(op))

    def _is_large(self, graph: Graph, op: Op) -> bool:
        """Whether it is one that can be taken apart and that needs more than half a core's memory for a position."""
        if op.kind not in _KINDS or graph.tensors[op.output].dtype != _DTYPE:
            return False
        if op.kind in _BY_CHANNEL and any(graph.tensors[name].constant is None for name in op.inputs[1:]):
            return False  # whoever computes them would have to give them other axes
        data = graph.tensors[op.inputs[0]]
        if op.kind == "GroupNormalization" and any(axis == 1 for axis, _ in data.symbols):
            return False  # how many channels a group has is not known
        elements = _width(graph, op) * prod(data.shape[axis] for axis in _axes(graph, op))
        return 2 * elements * numpy_dtype(graph.tensors[op.output].dtype).itemsize > self.profile.nram.capacity_bytes


def _axes(graph: Graph, op: Op) -> tuple[int, ...]:
    """The axes that an op takes its statistics over."""
    attributes = dict(op.attributes)
    if op.kind in _SUMMED:
        axes = attributes["axes"]
        assert isinstance(axes, tuple)
        return tuple(int(axis) for axis in axes)
    first = attributes.get("axis", 2)
    assert isinstance(first, int)
    return tuple(range(first, len(graph.tensors[op.inputs[0]].shape)))


def _width(graph: Graph, op: Op) -> int:
    """The channels that statistics are taken over together."""
    groups = dict(op.attributes).get("num_groups")
    return graph.tensors[op.inputs[0]].shape[1] // groups if isinstance(groups, int) else 1


class _Parts:
    """The ops that normalisations become; the tensors between them are added to the graph's."""

    def __init__(self, graph: Graph, made: Made) -> None:
        self._graph, self._made, self.tensors = graph, made, made.tensors

    def of(self, op: Op) -> list[Op]:
        """The ops of one normalisation, in order."""
        return self._by_sum(op) if op.kind in _SUMMED else self._by_mean(op)

    def _by_sum(self, op: Op) -> list[Op]:
        """A softmax: differences to the largest, their exponentials, and what these sum to."""
        data, axes = op.inputs[0], _axes(self._graph, op)
        ops: list[Op] = []
        largest = self._add(ops, op, "ReduceMax", (data,), "largest", axes)
        shifted = self._add(ops, op, "Sub", (data, largest), "shifted to sum")
        powers = self._add(ops, op, "Exp", (shifted,), "powers to sum")
        total = self._add(ops, op, "ReduceSum", (powers,), "total", axes)
        shifted = self._add(ops, op, "Sub", (data, largest), "shifted")
        if op.kind == "LogSoftmax":
            total = self._add(ops, op, "Log", (total,), "logarithm", axes)
            return [*ops, Op(kind="Sub", inputs=(shifted, total), output=op.output, origin=op.origin)]
        powers = self._add(ops, op, "Exp", (shifted,), "powers")
        return [*ops, Op(kind="Div", inputs=(powers, total), output=op.output, origin=op.origin)]

    def _by_mean(self, op: Op) -> list[Op]:
        data, axes = op.inputs[0], _axes(self._graph, op)
        epsilon = self._epsilon(op)
        ops: list[Op] = []
        mean = "" if op.kind == "RMSNormalization" else self._mean(ops, op, data, "mean", axes)
        centred = self._add(ops, op, "Sub", (data, mean), "centred to sum") if mean else data
        squares = self._add(ops, op, "Mul", (centred, centred), "squares")
        variance = self._mean(ops, op, squares, "variance", axes)
        shifted = self._add(ops, op, "Add", (variance, epsilon), "shifted", axes)
        deviation = self._add(ops, op, "Sqrt", (shifted,), "deviation", axes)
        centred = self._add(ops, op, "Sub", (data, mean), "centred") if mean else data
        result = self._add(ops, op, "Div", (centred, deviation), "normal")
        parameters = [self._parameter(op, name) for name in op.inputs[1:] if name]
        for kind, parameter in zip(("Mul", "Add"), parameters, strict=False):
            result = self._add(ops, op, kind, (result, parameter), "scaled" if kind == "Mul" else "moved")
        del self.tensors[result]
        return [*ops[:-1], replace(ops[-1], output=op.output)]

    def _mean(self, ops: list[Op], op: Op, data: str, what: str, axes: tuple[int, ...]) -> str:
        """The mean over the axes, of a group norm also over the channels of a group, for each channel."""
        mean, width = self._add(ops, op, "ReduceMean", (data,), what, axes), _width(self._graph, op)
        if width == 1:
            return mean
        channels = self.tensors[mean]
        grouped = opened(channels, 1, (channels.shape[1] // width, width))
        one = replace(grouped, shape=(*grouped.shape[:2], 1, *grouped.shape[3:]))
        seen, reduced, spread = (self._made.add(tensor) for tensor in (grouped, one, grouped))
        result = self._made.add(replace(channels, name=f"{op.output}/{what} of groups"))
        made = (
            reshape(op, mean, self.tensors[seen]),
            Op(
                kind="ReduceMean",
                inputs=(seen,),
                output=reduced,
                origin=op.origin,
                attributes=(("axes", (2,)), ("keepdims", 1)),
            ),
            Op(kind="Expand", inputs=(reduced,), output=spread, origin=op.origin),
            reshape(op, spread, self.tensors[result]),
        )
        ops += made
        return result

    def _add(
        self, ops: list[Op], op: Op, kind: str, inputs: tuple[str, ...], what: str, reduced: tuple[int, ...] = ()
    ) -> str:
        """One more op, whose result is of the normalisation's shape but for the axes that are reduced."""
        whole = self.tensors[op.inputs[0]]
        result = Tensor(
            name=f"{op.output}/{what}",
            shape=tuple(1 if axis in reduced else extent for axis, extent in enumerate(whole.shape)),
            dtype=self.tensors[op.output].dtype,
            axes=whole.axes,
            symbols=tuple((axis, expression) for axis, expression in whole.symbols if axis not in reduced),
        )
        name = self._made.add(result)
        attributes = (("axes", reduced), ("keepdims", 1)) if kind.startswith("Reduce") else ()
        ops.append(Op(kind=kind, inputs=inputs, output=name, origin=op.origin, attributes=attributes))
        return name

    def _parameter(self, op: Op, name: str) -> str:
        """Scale or bias as it broadcasts: one value for each channel there is where `_BY_CHANNEL` says so."""
        given, data = self.tensors[name], self.tensors[op.inputs[0]]
        if op.kind not in _BY_CHANNEL or given.constant is None:
            return name
        constant = given.constant
        channels = given.shape if given.symbols else data.shape[1:2]
        if channels != given.shape:  # one value for each group
            column = derive("Reshape", (constant,), (*given.shape, 1))
            constant = derive("Expand", (column,), (*given.shape, channels[0] // given.shape[0]))
        shape = (*channels, *(1,) * (len(data.shape) - 2))
        constant = derive("Reshape", (constant,), shape)
        # axis and positions of what varies stay what they are
        return self._made.add(
            replace(given, name=f"{name}/by-channel", shape=shape, axes=default_axes(len(shape)), constant=constant)
        )

    def _epsilon(self, op: Op) -> str:
        value, dtype = dict(op.attributes)["epsilon"], self.tensors[op.output].dtype
        assert isinstance(value, int | float)
        data = Literal(data=np.array(value, dtype=numpy_dtype(dtype)).tobytes())
        constant = Constant(shape=(), dtype=dtype, data=data)
        return self._made.add(Tensor(name=f"{op.output}/epsilon", shape=(), dtype=dtype, axes=(), constant=constant))
