"""Trilu, OneHot and Hardmax as comparisons with small index constants, EyeLike as a constant.

Of comparisons no constant is as large as the result.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.frontend.constant_values import type_label
from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.frontend.fold import FOLD_ELEMENTS
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, NATIVE_DTYPES, NUMBERS, Call
from compiler.units import numpy_dtype

# Before this operator set Hardmax takes all axes from its own on as one.
_ONE_AXIS: Final = 13
# Largest constant of positions; longer axes are left to the host.
_MOST_POSITIONS: Final = 1 << 20


def _too_many_rows(_: onnx.NodeProto, call: Call) -> object | None:
    longest = max(call.tensor(0).shape[-2:], default=0)
    return int(longest) if longest > _MOST_POSITIONS else None


def _too_deep(_: onnx.NodeProto, call: Call) -> object | None:
    depth = int(call.value(1, "depth").reshape(-1)[0])
    return depth if depth > _MOST_POSITIONS else None


def _trilu(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """Keeps elements on the chosen side of the (moved) diagonal, 0 elsewhere."""
    data = call.tensor(0)
    if len(data.shape) < 2:
        call.fail("input must be at least a matrix", actual=data.shape, limit="at least 2 axes")
    rows, columns = data.shape[-2:]
    row = nodes.unsqueeze(nodes.positions(rows, node.input[0], -2), 1)
    if call.has(1):
        row = nodes.add("Add", row, node.input[1])
    column = nodes.unsqueeze(nodes.positions(columns, node.input[0], -1), 0)
    upper = call.integer("upper", 1)
    kept = nodes.add("GreaterOrEqual" if upper else "LessOrEqual", column, row)
    nodes.add("Where", kept, node.input[0], nodes.number(0, data.dtype), out=node.output[0])


def _one_hot(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """OneHot of constant depth: the on-value where the position equals the index (negative ones count from the end)."""
    indices, values = call.tensor(0), call.tensor(2)
    if values.shape != (2,):
        call.fail("values must be the off-value and the on-value", actual=values.shape, limit=(2,))
    depth, rank = int(call.value(1, "depth").reshape(-1)[0]), len(indices.shape)
    if depth < 1:
        call.fail("depth must be positive", actual=depth, limit="at least 1")
    axis = call.axis("axis", -1, rank + 1)
    index = node.input[0] if indices.dtype == "int64" else nodes.cast(node.input[0], "int64")
    wrapped = nodes.add("Add", index, nodes.number(depth, "int64"))
    index = nodes.add("Where", nodes.add("Less", index, nodes.number(0, "int64")), wrapped, index)
    positions = nodes.constant(np.arange(depth, dtype=np.int64).reshape(-1, *(1,) * (rank - axis)))
    hot = nodes.add("Equal", nodes.unsqueeze(index, axis), positions)
    off, on = (nodes.add("Gather", node.input[2], nodes.number(which, "int64"), axis=0) for which in (0, 1))
    nodes.add("Where", hot, on, off, out=node.output[0])


def _hardmax(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """1 at the first of the largest elements along the axis, 0 elsewhere."""
    data = call.tensor(0)
    shape, value = [int(extent) for extent in data.shape], node.input[0]
    axis = call.axis("axis", -1 if call.opset >= _ONE_AXIS else 1, len(shape))
    if call.opset < _ONE_AXIS:
        value = nodes.reshape(value, (prod(shape[:axis]), prod(shape[axis:])))
        rank, along, extent = 2, 1, prod(shape[axis:])
    else:
        rank, along, extent = len(shape), axis, shape[axis]
    positions = nodes.constant(np.arange(extent, dtype=np.int64).reshape(-1, *(1,) * (rank - along - 1)))
    largest = nodes.add("ArgMax", value, axis=along, keepdims=1)
    found = nodes.cast(nodes.add("Equal", largest, positions), data.dtype)
    nodes.reshape(found, shape, out=node.output[0])


def _eye_like(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    """1 on the diagonal number `k` of a matrix, 0 elsewhere; only the extents of the input are read."""
    data = call.tensor(0)
    if len(data.shape) != 2:
        call.fail("input must be a matrix", actual=data.shape, limit="2 axes")
    code = call.integer("dtype", 0)
    dtype = helper.tensor_dtype_to_np_dtype(code) if code else numpy_dtype(data.dtype)
    ones = np.eye(int(data.shape[0]), int(data.shape[1]), k=call.integer("k", 0))
    nodes.add("Constant", value=numpy_helper.from_array(ones.astype(dtype)), out=node.output[0])


def _not_fixed(_: onnx.NodeProto, call: Call) -> object | None:
    shape = call.tensor(0).shape
    varying = next((str(extent) for extent in shape if isinstance(extent, Dim)), None)
    return varying or (None if call.tensor(0).elements else 0)


def _other_type(_: onnx.NodeProto, call: Call) -> object | None:
    code = call.integer("dtype", 0)
    return None if not code or type_label(code) in NATIVE_DTYPES else type_label(code) or code


def _large_or_varying(node: onnx.NodeProto, call: Call) -> object | None:
    elements = call.tensor(0).elements
    return _not_fixed(node, call) or (elements if elements > FOLD_ELEMENTS else None)


def _long(_: onnx.NodeProto, call: Call) -> object | None:
    return call.tensor(0).elements if call.tensor(0).elements > _MOST_POSITIONS else None


TRILU: Final = Decomposition(
    op_type="Trilu",
    replace=_trilu,
    dtypes=MappingProxyType({1: ("int64",)}),
    limits=(Limit(f"the matrix has at most {_MOST_POSITIONS} rows and columns", _too_many_rows),),
)
ONE_HOT: Final = Decomposition(
    op_type="OneHot",
    replace=_one_hot,
    dtypes=MappingProxyType({0: NUMBERS, 1: (*NUMBERS, "float64", "int16", "uint16", "uint32", "uint64")}),
    constant_inputs=MappingProxyType({1: "depth"}),
    limits=(Limit(f"depth is at most {_MOST_POSITIONS}", _too_deep),),
)
HARDMAX: Final = Decomposition(
    op_type="Hardmax",
    replace=_hardmax,
    dtypes=MappingProxyType({0: FLOATS}),
    limits=(
        Limit("extents are fixed and not 0", _not_fixed),
        Limit(f"there are {_MOST_POSITIONS} elements at most", _long),
    ),
)
EYE_LIKE: Final = Decomposition(
    op_type="EyeLike",
    replace=_eye_like,
    limits=(
        Limit(f"extents are fixed and not 0, with {FOLD_ELEMENTS} elements at most", _large_or_varying),
        Limit("the matrix is of an element type that the accelerator has", _other_type),
    ),
)
