"""Quantised products in terms of DequantizeLinear and QuantizeLinear (IMPORT-5).

Quantised tensors keep their 8-bit types, so they cross memories at their real size; between the two conversions values
are floats. ConvInteger and MatMulInteger subtract zero points with a scale of 1: their float32 sums are exact up to
2^24.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from compiler.frontend.decompose.build import NodeList
from compiler.ops.base import Call

_EIGHT_BITS = ("int8", "uint8")


def _is_quantised(call: Call, *positions: int) -> bool:
    return all(call.tensor(position).dtype in _EIGHT_BITS for position in positions)


def _convert(nodes: NodeList, kind: str, inputs: Sequence[str], *, axis: int | None, out: str | None = None) -> str:
    """A QuantizeLinear or DequantizeLinear; `axis` is what its scale follows, None for a scale of one element."""
    attributes = {} if axis is None else {"axis": axis}
    return nodes.add(kind, *inputs, out=out, **attributes)


def _along(call: Call, scale: int, axis: int) -> int | None:
    """The axis that the scale in input `scale` follows: `axis` if it has several elements."""
    return axis if call.tensor(scale).elements > 1 else None


def qlinear_conv(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QLinearConv: dequantise data and weight (per tensor or filter), convolve, quantise.

    The bias counts in units of input scale × weight scale.
    """
    if not _is_quantised(call, 0, 3, 7) or any(len(call.tensor(position).shape) > 1 for position in (1, 4, 6)):
        return False
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.input[:8]
    inputs = [
        _convert(nodes, "DequantizeLinear", (x, x_scale, x_zero), axis=_along(call, 1, 1)),
        _convert(nodes, "DequantizeLinear", (w, w_scale, w_zero), axis=_along(call, 4, 0)),
    ]
    if call.has(8):
        units = nodes.add("Mul", x_scale, w_scale)
        inputs.append(_convert(nodes, "DequantizeLinear", (node.input[8], units), axis=_along(call, 4, 0)))
    product = nodes.add("Conv", *inputs)
    nodes.nodes[-1].attribute.extend(node.attribute)
    _convert(nodes, "QuantizeLinear", (product, y_scale, y_zero), axis=_along(call, 6, 1), out=node.output[0])
    return True


def qlinear_matmul(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """QLinearMatMul: scales per tensor, per row of the first factor and the result, per column of the second."""
    if not _is_quantised(call, 0, 3, 7) or any(len(call.tensor(position).shape) > 1 for position in (1, 4, 6)):
        return False
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input[:8]
    rows, columns = max(0, len(call.tensor(0).shape) - 2), len(call.tensor(3).shape) - 1
    product = nodes.add(
        "MatMul",
        _convert(nodes, "DequantizeLinear", (a, a_scale, a_zero), axis=_along(call, 1, rows)),
        _convert(nodes, "DequantizeLinear", (b, b_scale, b_zero), axis=_along(call, 4, columns)),
    )
    result_rows = max(0, max(len(call.tensor(0).shape), len(call.tensor(3).shape)) - 2)
    _convert(nodes, "QuantizeLinear", (product, y_scale, y_zero), axis=_along(call, 6, result_rows), out=node.output[0])
    return True


def _shifted(node: onnx.NodeProto, call: Call, nodes: NodeList, data: int, zero: int, axis: int) -> str | None:
    """Data minus its zero point, as float32; None if the zero point follows more than one axis."""
    if not call.has(zero):
        return nodes.add("DequantizeLinear", node.input[data], nodes.number(1, "float32"))
    shape = call.tensor(zero).shape
    if len(shape) > 1:
        return None
    ones = nodes.constant(np.ones(tuple(map(int, shape)), dtype=np.float32))
    return _convert(
        nodes, "DequantizeLinear", (node.input[data], ones, node.input[zero]), axis=_along(call, zero, axis)
    )


def conv_integer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """ConvInteger: zero points subtracted, convolved, the sums as int32."""
    if not _is_quantised(call, 0, 1):
        return False
    data, weight = _shifted(node, call, nodes, 0, 2, 1), _shifted(node, call, nodes, 1, 3, 0)
    if data is None or weight is None:
        return False
    product = nodes.add("Conv", data, weight)
    nodes.nodes[-1].attribute.extend(node.attribute)
    nodes.cast(product, "int32", out=node.output[0])
    return True


def matmul_integer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> bool:
    """MatMulInteger: zero points (per tensor, row or column) subtracted, multiplied, the sums as int32."""
    if not _is_quantised(call, 0, 1):
        return False
    rows, columns = max(0, len(call.tensor(0).shape) - 2), len(call.tensor(1).shape) - 1
    left, right = _shifted(node, call, nodes, 0, 2, rows), _shifted(node, call, nodes, 1, 3, columns)
    if left is None or right is None:
        return False
    nodes.cast(nodes.add("MatMul", left, right), "int32", out=node.output[0])
    return True
