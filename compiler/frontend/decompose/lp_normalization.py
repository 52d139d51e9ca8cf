"""LpNormalization: divides by the sum of absolute values, or by the root of the sum of squares, along an axis."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ops.base import FLOATS, Call

_REDUCTIONS: Final = MappingProxyType({1: "ReduceL1", 2: "ReduceL2"})
# From this operator set on the bounds of Clip are inputs instead of attributes.
_BOUNDS_AS_INPUTS: Final = 11
# The smallest number above 0 of float16, and what float32 and bfloat16 hold in full: lengths are no smaller, or 0.
_SMALLEST: Final = MappingProxyType({"float16": 2.0**-24, "bfloat16": 2.0**-126, "float32": 2.0**-126})


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Vectors of zeros stay zeros: what divides is kept above 0."""
    tensor, axis = call.tensor(0), call.integer("axis", -1)
    rank = len(tensor.shape)
    if not -rank <= axis < rank:
        call.fail("axis is none of the input's", actual=axis, limit=f"{-rank} to {rank - 1}")
    length = nodes.reduce(_REDUCTIONS[call.integer("p", 2)], node.input[0], axis % rank)
    least = _SMALLEST[tensor.dtype]
    if nodes.opset < _BOUNDS_AS_INPUTS:
        length = nodes.add("Clip", length, min=least)
    else:
        length = nodes.add("Clip", length, nodes.number(least, tensor.dtype))
    nodes.add("Div", node.input[0], length, out=node.output[0])


def _order(_: onnx.NodeProto, call: Call) -> object | None:
    order = call.integer("p", 2)
    return None if order in _REDUCTIONS else order


LP_NORMALIZATION: Final = Decomposition(
    op_type="LpNormalization",
    replace=_replace,
    dtypes=MappingProxyType({0: FLOATS}),
    limits=(Limit("p is 1 or 2", _order),),
)
