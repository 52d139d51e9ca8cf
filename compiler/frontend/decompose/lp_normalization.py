"""LpNormalization: divides by the sum of absolute values, or by the root of the sum of squares, along an axis."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ops.base import FLOATS, Call

_REDUCTIONS: Final = MappingProxyType({1: "ReduceL1", 2: "ReduceL2"})
# The first operator sets with Where, and with Equal of floats.
_SELECTS: Final = 11


def divided(nodes: NodeList, data: str, reduction: str, axis: int, dtype: str, out: str) -> None:
    """Data over a reduction of it along an axis; a reduction of 0 divides nothing."""
    size = nodes.reduce(reduction, data, axis)
    nothing = nodes.add("Equal", size, nodes.number(0, dtype))
    nodes.add("Div", data, nodes.add("Where", nothing, nodes.number(1, dtype), size), out=out)


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    tensor, axis = call.tensor(0), call.integer("axis", -1)
    rank = len(tensor.shape)
    if not -rank <= axis < rank:
        call.fail("axis is none of the input's", actual=axis, limit=f"{-rank} to {rank - 1}")
    divided(nodes, node.input[0], _REDUCTIONS[call.integer("p", 2)], axis % rank, tensor.dtype, node.output[0])


def _order(_: onnx.NodeProto, call: Call) -> object | None:
    order = call.integer("p", 2)
    return None if order in _REDUCTIONS else order


LP_NORMALIZATION: Final = Decomposition(
    op_type="LpNormalization",
    replace=_replace,
    dtypes=MappingProxyType({0: FLOATS}),
    limits=(
        Limit("p is 1 or 2", _order),
        Limit("the operator set is 11 or newer", lambda _, call: call.opset if call.opset < _SELECTS else None),
    ),
)
