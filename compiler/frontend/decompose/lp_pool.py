"""LpPool and GlobalLpPool: roots of sums of powers over windows or whole maps.

Powers and their sums are float32: those of float16 would overflow where their root does not. ONNX Runtime has no kernel
of float16 either, and converts.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ops.base import FLOATS, Call

# From this operator set on a mean may count the padding.
_COUNTS_PADDING: Final = 7
# Axes before the maps.
_OUTER: Final = 2
# The type of powers and sums.
_WIDE: Final = "float32"


def _lp_pool(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """A mean over each window, with what of it lies in the padding, times the window's size."""
    mean = nodes.add("AveragePool", _powers(call, nodes, node.input[0]), count_include_pad=1)
    copied = ("auto_pad", "kernel_shape", "pads", "strides")
    nodes.nodes[-1].attribute.extend(item for item in node.attribute if item.name in copied)
    size = nodes.number(prod(call.integers("kernel_shape") or ()), _WIDE)
    _root(call, nodes, nodes.add("Mul", mean, size), node.output[0])


def _global_lp_pool(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    axes = range(_OUTER, len(call.tensor(0).shape))
    # none of the powers is negative
    sums = nodes.reduce("ReduceL1", _powers(call, nodes, node.input[0]), *axes)
    _root(call, nodes, sums, node.output[0])


def _powers(call: Call, nodes: NodeList, data: str) -> str:
    """Amounts to the power p, float32."""
    order = call.number("p", 2)
    data = data if call.tensor(0).dtype == _WIDE else nodes.cast(data, _WIDE)
    if order == 2:
        return nodes.add("Mul", data, data)
    amounts = nodes.add("Abs", data)
    return amounts if order == 1 else nodes.add("Pow", amounts, nodes.number(order, _WIDE))


def _root(call: Call, nodes: NodeList, sums: str, out: str) -> None:
    """The p-th root of sums of powers, of the input's type."""
    order, dtype = call.number("p", 2), call.tensor(0).dtype
    wide = out if dtype == _WIDE else nodes.fresh(f"{nodes.stem}/root")
    if order == 1:
        nodes.add("Identity", sums, out=wide)
    elif order == 2:
        nodes.add("Sqrt", sums, out=wide)
    else:
        nodes.add("Pow", sums, nodes.number(1 / order, _WIDE), out=wide)
    if wide != out:
        nodes.cast(wide, dtype, out=out)


def _other_order(_: onnx.NodeProto, call: Call) -> object | None:
    order = call.number("p", 2)
    return None if order >= 1 else order


def _without_padding(_: onnx.NodeProto, call: Call) -> object | None:
    return call.opset if call.opset < _COUNTS_PADDING else None


def _beyond_padding(_: onnx.NodeProto, call: Call) -> object | None:
    return call.integer("ceil_mode", 0) or None


def _spread(_: onnx.NodeProto, call: Call) -> object | None:
    found = call.integers("dilations") or ()
    return found if any(step != 1 for step in found) else None


def _without_maps(_: onnx.NodeProto, call: Call) -> object | None:
    shape = call.tensor(0).shape
    return None if len(shape) > _OUTER else shape


_ORDERS: Final = Limit("p is at least 1", _other_order)

LP_POOL: Final = (
    Decomposition(
        op_type="LpPool",
        replace=_lp_pool,
        dtypes=MappingProxyType({0: FLOATS}),
        limits=(
            _ORDERS,
            Limit("the operator set is 7 or newer", _without_padding),
            Limit("ceil_mode is 0", _beyond_padding),
            Limit("dilations are 1", _spread),
        ),
    ),
    Decomposition(
        op_type="GlobalLpPool",
        replace=_global_lp_pool,
        dtypes=MappingProxyType({0: FLOATS}),
        limits=(
            _ORDERS,
            Limit("the input has maps", _without_maps),
        ),
    ),
)
