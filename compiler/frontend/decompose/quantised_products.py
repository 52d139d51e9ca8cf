"""Quantised products as DequantizeLinear, a float product and QuantizeLinear (IMPORT-5).

Quantised tensors keep their 8-bit types. The pass that runs networks in integers (`frontend/integers.py`) takes the
conversions up again; what it leaves computes floats between them. ConvInteger and MatMulInteger subtract zero points
with a scale of 1: where they stay floats, their sums are exact up to 2^24.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ops.base import Call
from compiler.ops.quantised import EIGHT_BITS

_FLOATS: Final = ("float32", "float16", "bfloat16")


def _one_axis(*positions: int) -> Limit:
    """The limit that scales or zero points follow at most one axis."""

    def check(_: onnx.NodeProto, call: Call) -> object | None:
        shapes = (call.tensor(position).shape for position in positions if call.has(position))
        return next((shape for shape in shapes if len(shape) > 1), None)

    return Limit("scales and zero points have at most one axis", check)


def _convert(nodes: NodeList, kind: str, inputs: Sequence[str], *, axis: int | None, out: str | None = None) -> str:
    """A QuantizeLinear or DequantizeLinear; `axis` is the axis of its scale, None for a scale of one element."""
    attributes = {} if axis is None else {"axis": axis}
    return nodes.add(kind, *inputs, out=out, **attributes)


def _along(call: Call, scale: int, axis: int) -> int | None:
    """The axis of the scale in input `scale`: `axis` if it has several elements, else None."""
    return axis if call.tensor(scale).elements > 1 else None


def _qlinear_conv(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """QLinearConv: dequantises data and weight (per tensor or filter), convolves, quantises.

    The bias counts in units of input scale × weight scale.
    """
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


def _qlinear_matmul(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """QLinearMatMul: scales per tensor, per row of the first factor and the result, per column of the second."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.input[:8]
    rows, columns = max(0, len(call.tensor(0).shape) - 2), len(call.tensor(3).shape) - 1
    product = nodes.add(
        "MatMul",
        _convert(nodes, "DequantizeLinear", (a, a_scale, a_zero), axis=_along(call, 1, rows)),
        _convert(nodes, "DequantizeLinear", (b, b_scale, b_zero), axis=_along(call, 4, columns)),
    )
    result_rows = max(0, max(len(call.tensor(0).shape), len(call.tensor(3).shape)) - 2)
    _convert(nodes, "QuantizeLinear", (product, y_scale, y_zero), axis=_along(call, 6, result_rows), out=node.output[0])


def _shifted(node: onnx.NodeProto, call: Call, nodes: NodeList, data: int, zero: int, axis: int) -> str:
    """Data minus its zero point, as float32."""
    if not call.has(zero):
        return nodes.add("DequantizeLinear", node.input[data], nodes.number(1, "float32"))
    ones = nodes.constant(np.ones(tuple(map(int, call.tensor(zero).shape)), dtype=np.float32))
    return _convert(
        nodes, "DequantizeLinear", (node.input[data], ones, node.input[zero]), axis=_along(call, zero, axis)
    )


def _conv_integer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """ConvInteger: subtracts zero points, convolves, converts the sums to int32."""
    data, weight = _shifted(node, call, nodes, 0, 2, 1), _shifted(node, call, nodes, 1, 3, 0)
    product = nodes.add("Conv", data, weight)
    nodes.nodes[-1].attribute.extend(node.attribute)
    nodes.cast(product, "int32", out=node.output[0])


def _matmul_integer(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """MatMulInteger: subtracts zero points (per tensor, row or column), multiplies, converts the sums to int32."""
    rows, columns = max(0, len(call.tensor(0).shape) - 2), len(call.tensor(1).shape) - 1
    left, right = _shifted(node, call, nodes, 0, 2, rows), _shifted(node, call, nodes, 1, 3, columns)
    nodes.cast(nodes.add("MatMul", left, right), "int32", out=node.output[0])


_QLINEAR: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(
    {**dict.fromkeys((0, 2, 3, 5, 7), EIGHT_BITS), **dict.fromkeys((1, 4, 6), _FLOATS)}
)
_INTEGER: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType(dict.fromkeys(range(4), EIGHT_BITS))
QLINEAR_CONV: Final = Decomposition(
    op_type="QLinearConv", replace=_qlinear_conv, dtypes=_QLINEAR, limits=(_one_axis(1, 4, 6),)
)
QLINEAR_MATMUL: Final = Decomposition(
    op_type="QLinearMatMul", replace=_qlinear_matmul, dtypes=_QLINEAR, limits=(_one_axis(1, 4, 6),)
)
CONV_INTEGER: Final = Decomposition(
    op_type="ConvInteger", replace=_conv_integer, dtypes=_INTEGER, limits=(_one_axis(2, 3),)
)
MATMUL_INTEGER: Final = Decomposition(
    op_type="MatMulInteger", replace=_matmul_integer, dtypes=_INTEGER, limits=(_one_axis(2, 3),)
)
