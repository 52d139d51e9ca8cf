"""Dilated convolutions of which no tile fits a core, as ones without gaps over rows of equal phase (TILE-1, TILE-2).

What a position reads lies as far apart as the dilation, and a tile is the box around it. Rows whose numbers leave the
same remainder by the dilation only meet each other: seen with the remainder as an axis of its own, they are read by a
kernel without gaps. That is a view; what is no multiple of the dilation is padded, and cut off in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Final

from compiler.ir.graph import Graph, Op, Tensor
from compiler.ops.base import spatial_axes
from compiler.ops.quantised import DATA_ZERO, base_kind
from compiler.partition.alone import refused_alone, replace_refused
from compiler.partition.made import Made, opened, reshape
from compiler.partition.partition import CandidateFactory
from compiler.profile.schema import Profile
from compiler.units import ceil_div, element_bytes

# Axes of a convolution's tensors in front of the spatial ones.
_FRONT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDilations:
    """Pass: dilated convolutions that fit no core get an axis of phases beside one of theirs, the widest gaps first."""

    name: str = "split-dilations"
    profile: Profile
    candidates: CandidateFactory = field(repr=False)

    def run(self, graph: Graph) -> Graph:
        """The graph with such convolutions replaced."""
        split = partial(self._split, graph)
        return replace_refused(graph, self.candidates, self._dilated, split)

    def _dilated(self, graph: Graph, op: Op) -> list[int]:
        """The spatial axes that can be split, the one of the largest gaps first; none of what is small."""
        if base_kind(op.kind) != "Conv" or len(op.inputs) > DATA_ZERO:
            # what stands for padding has to be known
            return []
        kernel, strides, dilations = (_per_axis(op, name) for name in ("kernel_shape", "strides", "dilations"))
        weight, data = graph.tensors[op.inputs[1]], graph.tensors[op.inputs[0]]
        box = (_layout(op) or weight.shape)[1] * prod((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
        if 4 * box * element_bytes(data.dtype) < self.profile.nram.capacity_bytes:
            return []
        varying = {axis - _FRONT for axis, _ in (*data.symbols, *weight.symbols)}
        # a view reads all phases of a row, and what lies behind them, at once
        rows = [prod(data.shape[_FRONT + 1 + axis :]) * element_bytes(data.dtype) for axis in range(len(kernel))]
        fitting = [
            axis
            for axis, (k, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True))
            if k > 1 and stride == 1 and dilation > 1 and axis not in varying
            if dilation * rows[axis] <= self.profile.nram.capacity_bytes
        ]
        return sorted(fitting, key=lambda axis: (1 - kernel[axis]) * dilations[axis])

    def _split(self, graph: Graph, made: Made, op: Op, axes: Sequence[int]) -> list[Op]:
        """The ops in place of one, with phases along the first of some axes with which the convolution fits."""
        for axis in axes:
            tried = Made(made.tensors)
            before, inner, after = _by_phase(tried, op, axis)
            if refused_alone(self.candidates, tried.tensors, inner, graph) is None:
                made.accept(tried)
                return [*before, inner, *after]
        return [op]


def _layout(op: Op) -> tuple[int, ...]:
    """How a weight of 4 bits lies packed; empty for any other."""
    return _per_axis(op, "packed") if "packed" in dict(op.attributes) else ()


def _per_axis(op: Op, name: str) -> tuple[int, ...]:
    values = dict(op.attributes)[name]
    assert isinstance(values, tuple)
    return tuple(int(value) for value in values)


def _by_phase(made: Made, op: Op, axis: int) -> tuple[list[Op], Op, list[Op]]:
    """A convolution with phases as one more spatial axis behind `axis`; what is done before and after it."""
    own, rank = _FRONT + axis, len(_per_axis(op, "kernel_shape"))
    dilation, kernel = _per_axis(op, "dilations")[axis], _per_axis(op, "kernel_shape")[axis]
    pads, output = _per_axis(op, "pads"), made.tensors[op.output]
    extent = made.tensors[op.inputs[0]].shape[own]
    # whole rows of phases are padded by the convolution, the rest beforehand
    above, begin = divmod(pads[axis], dilation)
    rows = ceil_div(begin + extent, dilation)
    end = rows * dilation - begin - extent
    below = max(0, ceil_div(pads[rank + axis] - end, dilation))
    before: list[Op] = []
    data = _padded(made, before, op, own, (begin, end))
    view = _phases(made.tensors[data], own, (rows, dilation))
    layout, weight = _layout(op), op.inputs[1]
    if not layout:
        weight = made.view(before, op, weight, _phases(made.tensors[weight], own, (kernel, 1)))
    inputs = (made.view(before, op, data, view), weight, *op.inputs[_FRONT:])
    steps = above + rows + below - kernel + 1
    result = made.add(_phases(output, own, (steps, dilation)))
    attributes = {
        **dict(op.attributes),
        "kernel_shape": _inserted(_per_axis(op, "kernel_shape"), axis, (kernel, 1)),
        "strides": _inserted(_per_axis(op, "strides"), axis, (1, 1)),
        "dilations": _inserted(_per_axis(op, "dilations"), axis, (1, 1)),
        "pads": (*_inserted(pads[:rank], axis, (above, 0)), *_inserted(pads[rank:], axis, (below, 0))),
        **({"packed": _inserted(layout, own, (kernel, 1))} if layout else {}),
    }
    symbols = tuple((name, _beside(at, axis, rank), expression) for name, at, expression in op.symbols)
    inner = replace(op, inputs=inputs, output=result, attributes=tuple(attributes.items()), symbols=symbols)
    if steps * dilation == output.shape[own]:
        return before, inner, [reshape(op, result, output)]
    shape = _inserted(output.shape, own, (steps * dilation,))
    whole = made.add(replace(output, name=f"{output.name}/whole", shape=shape))
    cut = (("begin", (0,) * len(shape)), ("step", (1,) * len(shape)))
    kept = Op(kind="Slice", inputs=(whole,), output=output.name, origin=op.origin, attributes=cut)
    return before, inner, [reshape(op, result, made.tensors[whole]), kept]


def _padded(made: Made, ops: list[Op], op: Op, axis: int, amounts: tuple[int, int]) -> str:
    """The name of a convolution's input with what it reads for padding at both ends of an axis."""
    name = op.inputs[0]
    if not any(amounts):
        return name
    data = made.tensors[name]
    zeros = dict(op.attributes).get("input_zeros", (0,))
    assert isinstance(zeros, tuple)
    shape = _inserted(data.shape, axis, (sum(amounts) + data.shape[axis],))
    pads = [0] * (2 * len(shape))
    pads[axis], pads[len(shape) + axis] = amounts
    padded = made.add(replace(data, name=f"{name}/padded", shape=shape, constant=None))
    attributes = (("pads", tuple(pads)), ("mode", "constant"), ("value", zeros[0]))
    ops.append(Op(kind="Pad", inputs=(name,), output=padded, origin=op.origin, attributes=attributes))
    return padded


def _beside(at: int, axis: int, rank: int) -> int:
    """Where an amount of padding of a kernel of `rank` axes stands when there is one more axis behind `axis`."""
    side, own = divmod(at, rank)
    return side * (rank + 1) + own + (own > axis)


def _phases(tensor: Tensor, axis: int, extents: tuple[int, int]) -> Tensor:
    """A convolution's tensor with one axis as two."""
    seen = opened(tensor, axis, extents)
    return replace(seen, axes=spatial_axes(len(seen.shape)))


def _inserted(values: tuple[int, ...], at: int, new: tuple[int, ...]) -> tuple[int, ...]:
    """A list with the value at a position replaced by others."""
    return (*values[:at], *new, *values[at + 1 :])
