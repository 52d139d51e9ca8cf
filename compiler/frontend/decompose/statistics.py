"""BatchNormalization in training mode: the statistics of the batch are computed, as in standardised weights."""

from __future__ import annotations

from typing import Final

import onnx

from compiler.frontend.decompose.build import Decomposition, Limit, NodeList
from compiler.ops.base import Call

# From here on the results are the normalised batch and the running statistics, and training is an attribute.
_TRAINING_MODE: Final = 14


def _given_statistics(_: onnx.NodeProto, call: Call) -> object | None:
    return None if call.opset >= _TRAINING_MODE and call.integer("training_mode", 0) else "training_mode 0"


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Mean and variance over all axes but the channels'; running statistics move towards them by the momentum."""
    data, dtype = node.input[0], call.tensor(0).dtype
    rank = len(call.tensor(0).shape)
    if rank < 2:
        call.fail("input must have a channel axis", actual=call.tensor(0).shape, limit="at least 2 axes")
    axes = [axis for axis in range(rank) if axis != 1]
    mean = nodes.reduce_mean(data, *axes)
    centred = nodes.add("Sub", data, mean)
    variance = nodes.reduce_mean(nodes.add("Mul", centred, centred), *axes)
    epsilon = nodes.number(call.number("epsilon", 1e-5), dtype)
    standardised = nodes.add("Div", centred, nodes.add("Sqrt", nodes.add("Add", variance, epsilon)))
    scale, bias = (nodes.reshape(name, [-1, *[1] * (rank - 2)]) for name in node.input[1:3])
    nodes.add("Add", nodes.add("Mul", standardised, scale), bias, out=node.output[0])
    momentum = call.number("momentum", 0.9)
    for out, running, current in zip(node.output[1:3], node.input[3:5], (mean, variance), strict=False):
        if out:
            kept = nodes.add("Mul", running, nodes.number(momentum, call.tensor(3).dtype))
            flat = nodes.cast(nodes.reshape(current, [-1]), call.tensor(3).dtype)
            moved = nodes.add("Mul", flat, nodes.number(1 - momentum, call.tensor(3).dtype))
            nodes.add("Add", kept, moved, out=out)


BATCH_STATISTICS: Final = Decomposition(
    op_type="BatchNormalization",
    replace=_replace,
    limits=(Limit("statistics are computed (training_mode is 1, from opset 14 on)", _given_statistics),),
)
