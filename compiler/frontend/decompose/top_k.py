"""TopK of few elements: each element's rank is the number of those that come before it.

The element of rank r is result r; NaN comes last, so that no two ranks are equal. All comparisons are made at once, so
that mixtures of experts need no host.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call

# Pairs of elements that are compared at most: a few element-wise passes over 4 MB, below a millisecond on edge4.
_MOST_PAIRS: Final = 1 << 20
# From this operator set on k is an input; older models have an attribute.
_K_AS_INPUT: Final = 10
# ... and from this one on there are Where and IsNaN.
_OLDEST: Final = 9


def _top_k(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Equal elements keep their order; NaN counts as the element that comes last, ±infinity."""
    data, count = call.tensor(0), _count(call)
    rank = len(data.shape)
    axis = call.axis("axis", -1, rank)
    extent = int(data.shape[axis])
    if not 0 <= count <= extent:
        call.fail("k must be within the axis", actual=count, limit=extent)
    turn = [other for other in range(rank) if other != axis] + [axis]
    value = node.input[0] if turn[axis] == axis else nodes.transpose(node.input[0], turn)
    better, worse, last = ("Greater", "Less", -np.inf) if call.integer("largest", 1) else ("Less", "Greater", np.inf)
    key = value
    if data.dtype in FLOATS:
        key = nodes.add("Where", nodes.add("IsNaN", value), nodes.number(last, data.dtype), value)
    mine, others = nodes.unsqueeze(key, rank), nodes.unsqueeze(key, rank - 1)
    earlier = nodes.constant(np.tri(extent, k=-1, dtype=np.bool_))
    equal = nodes.add("And", nodes.add("Not", nodes.add(worse, others, mine)), earlier)
    before = nodes.add("Or", nodes.add(better, others, mine), equal)
    ranks = nodes.reduce_sum(nodes.cast(before, "int32"), rank)
    results = nodes.constant(np.arange(count, dtype=np.int32).reshape(-1, 1))
    chosen = nodes.add("Equal", nodes.unsqueeze(ranks, rank - 1), results)
    positions = nodes.constant(np.arange(extent, dtype=np.int64))
    elements = nodes.unsqueeze(value, rank - 1)
    for out, its, dtype in zip(node.output, (elements, positions), (data.dtype, "int64"), strict=False):
        if out:
            found = nodes.reduce_sum(nodes.add("Where", chosen, its, nodes.number(0, dtype)), rank)
            if turn[axis] == axis:
                nodes.add("Identity", found, out=out)
            else:
                nodes.transpose(found, [turn.index(other) for other in range(rank)], out=out)


def _count(call: Call) -> int:
    """k, which may vary; raises ModelError unless it is a list of one number."""
    if call.opset < _K_AS_INPUT:
        return call.integer("k", 0)
    given = call.value(1, "k")
    if given.shape != (1,):
        call.fail("k must be a list of one number", actual=given.shape, limit="(1,)")
    count = given.tolist()[0]
    return count if isinstance(count, Dim) else int(count)


def _many(_: onnx.NodeProto, call: Call) -> object | None:
    shape = call.tensor(0).shape
    if not shape:
        return None
    extent, count = shape[call.axis("axis", -1, len(shape))], _count(call)
    if isinstance(extent, Dim) or isinstance(count, Dim):
        return str(extent)
    pairs = prod(map(int, shape)) * int(extent)
    return f"k is {count}" if count < 1 else pairs if pairs > _MOST_PAIRS else None


def _old(_: onnx.NodeProto, call: Call) -> object | None:
    return None if call.opset >= _OLDEST else call.opset


def _unsorted(_: onnx.NodeProto, call: Call) -> object | None:
    return None if call.integer("sorted", 1) else 0


TOP_K: Final = Decomposition(
    op_type="TopK",
    replace=_top_k,
    dtypes=MappingProxyType({0: (*FLOATS, "int32", "int64"), 1: ("int64",)}),
    constant_inputs=MappingProxyType({1: "k"}),
    limits=(
        Limit(f"the operator set is {_OLDEST} or later", _old),
        Limit("sorted is 1", _unsorted),
        Limit(f"k and the axis are fixed and not empty, and pairs along it are at most {_MOST_PAIRS}", _many),
    ),
)
