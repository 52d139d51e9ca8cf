"""BatchNormalization in training mode: computes the statistics of the batch, as weight standardisation does."""

from __future__ import annotations

from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ops.base import Call

# From this opset on the results are the batch and the running statistics, and training is an attribute.
_TRAINING_MODE: Final = 14
_HALVES: Final = frozenset(("float16", "bfloat16"))


def _given_statistics(_: onnx.NodeProto, call: Call) -> object | None:
    return None if call.opset >= _TRAINING_MODE and call.integer("training_mode", 0) else "training_mode 0"


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Mean and variance over all axes except channels; running statistics follow them by the momentum.

    16-bit floats are computed in float32, as ONNX defines: squares of a few hundred overflow float16.
    """
    dtype, running_dtype = _computed(call, 0), _computed(call, 3)
    data, scale, bias = (_as(nodes, call, index, dtype) for index in range(3))
    rank = len(call.tensor(0).shape)
    if rank < 2:
        call.fail("input must have a channel axis", actual=call.tensor(0).shape, limit="at least 2 axes")
    axes = [axis for axis in range(rank) if axis != 1]
    mean = nodes.reduce_mean(data, *axes)
    centred = nodes.add("Sub", data, mean)
    variance = nodes.reduce_mean(nodes.add("Mul", centred, centred), *axes)
    epsilon = nodes.number(call.number("epsilon", 1e-5), dtype)
    standardised = nodes.add("Div", centred, nodes.add("Sqrt", nodes.add("Add", variance, epsilon)))
    scale, bias = (nodes.reshape(name, [-1, *[1] * (rank - 2)]) for name in (scale, bias))
    _put(nodes, nodes.add("Mul", standardised, scale), bias, dtype, call.tensor(0).dtype, node.output[0])
    momentum = call.number("momentum", 0.9)
    for out, index, current in zip(node.output[1:3], (3, 4), (mean, variance), strict=False):
        if out:
            running = _as(nodes, call, index, running_dtype)
            kept = nodes.add("Mul", running, nodes.number(momentum, running_dtype))
            flat = nodes.cast(nodes.reshape(current, [-1]), running_dtype)
            moved = nodes.add("Mul", flat, nodes.number(1 - momentum, running_dtype))
            _put(nodes, kept, moved, running_dtype, call.tensor(index).dtype, out)


def _computed(call: Call, index: int) -> str:
    """The computation type of an input."""
    dtype = call.tensor(index).dtype
    return "float32" if dtype in _HALVES else dtype


def _as(nodes: NodeList, call: Call, index: int, dtype: str) -> str:
    """An input in another element type; unchanged if it already has that type."""
    tensor = call.tensor(index)
    return tensor.name if tensor.dtype == dtype else nodes.cast(tensor.name, dtype)


def _put(nodes: NodeList, one: str, other: str, dtype: str, wanted: str, out: str) -> None:
    """Adds two values of type `dtype` into result `out` of type `wanted`."""
    if dtype == wanted:
        nodes.add("Add", one, other, out=out)
    else:
        nodes.cast(nodes.add("Add", one, other), wanted, out=out)


BATCH_STATISTICS: Final = Decomposition(
    op_type="BatchNormalization",
    replace=_replace,
    limits=(Limit("statistics are computed (training_mode is 1, from opset 14 on)", _given_statistics),),
)
