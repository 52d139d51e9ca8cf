"""Resize by cubic polynomials: along each axis a product with the weights of four positions per result.

The weights are constants, so that this costs more arithmetic than the four positions need; the matrix unit does it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call
from compiler.ops.resize import is_cubic, sampled_axes
from compiler.units import numpy_dtype

# Extents of an axis before and after, multiplied: beyond it the weights take more than 4 MB.
_MOST_WEIGHTS: Final = 1 << 20


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, value = call.tensor(0), node.input[0]
    rank, dtype = len(data.shape), numpy_dtype(data.dtype)
    for axis in reversed(range(rank)):
        source, target, sampling = sampled_axes(call)[axis]
        if _is_kept(source, target, sampling):
            continue
        weights = _weights(call, int(source), int(target), sampling).astype(dtype)
        if axis == rank - 2:
            value = nodes.add("MatMul", nodes.constant(weights), value)
        elif axis == rank - 1:
            value = nodes.add("MatMul", value, nodes.constant(weights.T))
        else:
            turn = [other for other in range(rank) if other != axis] + [axis]
            value = nodes.add("MatMul", nodes.transpose(value, turn), nodes.constant(weights.T))
            value = nodes.transpose(value, [turn.index(other) for other in range(rank)])
    nodes.add("Identity", value, out=node.output[0])


def _is_kept(source: int, target: int, sampling: tuple[int, int, int]) -> bool:
    """Whether nothing happens along an axis: of one position each only one can be read."""
    return source == target and (sampling == (1, 0, 1) or source == 1)


def _weights(call: Call, source: int, target: int, sampling: tuple[int, int, int]) -> NDArray[Any]:
    """The weight of each position for each result, [target, source]; positions outside count as those at the border."""
    steepness = call.number("cubic_coeff_a", -0.75)
    scale, offset, divisor = sampling
    places = np.arange(target) * scale + offset
    first = places // divisor
    part = (places - first * divisor) / divisor
    found = np.zeros((target, source))
    for tap in range(-1, 3):
        positions, weights = first + tap, _polynomial(np.abs(part - tap), steepness)
        if call.integer("exclude_outside", 0):
            weights = np.where((positions < 0) | (positions >= source), 0, weights)
        np.add.at(found, (np.arange(target), np.clip(positions, 0, source - 1)), weights)
    return np.asarray(found / found.sum(axis=1, keepdims=True))


def _polynomial(distance: NDArray[Any], a: float) -> NDArray[Any]:
    """The weight of a position at a distance of up to 2."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return np.asarray(np.where(distance <= 1, near, far))


def _other(_: onnx.NodeProto, call: Call) -> object | None:
    return None if call.opset >= 11 and is_cubic(call) and call.tensor(0).dtype in FLOATS else "another mode"


def _varies(_: onnx.NodeProto, call: Call) -> object | None:
    if any(index not in call.values for index in (2, 3) if call.has(index)):
        return "known at run time"
    for source, target, sampling in sampled_axes(call):
        if _is_kept(source, target, sampling):
            continue
        if isinstance(source, Dim) or isinstance(target, Dim) or source * target > _MOST_WEIGHTS:
            return f"{source} to {target}"
        if call.integer("antialias", 0) and target < source:
            return "antialias"
    return None


CUBIC_RESIZE: Final = Decomposition(
    op_type="Resize",
    replace=_replace,
    limits=(Limit("mode is cubic", _other), Limit("extents are fixed, and antialias is 0", _varies)),
)
