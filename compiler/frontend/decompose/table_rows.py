"""Gather of rows of a constant table that follow one another from a row that varies: one Slice.

That is how learned positions behind a past of varying length are looked up. As a Slice its first row may be another one
at every extent; the indices of a Gather are constants, which have to be known at all extents.
"""

from __future__ import annotations

from math import prod
from typing import Final

import onnx

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim, is_always_least
from compiler.ops.base import Call

# From this operator set on the ends of a Slice are inputs, which may vary.
_POSITIONS_AS_INPUTS: Final = 10


def _replace(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, indices = call.tensor(0), call.tensor(1)
    axis = call.axis("axis", 0, len(data.shape))
    first = call.values[1].reshape(-1).tolist()[0]
    ends = (nodes.shape((row,)) for row in (first, first + prod(indices.shape)))
    rows = nodes.add("Slice", node.input[0], *ends, nodes.integers([axis]))
    nodes.reshape(rows, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]), out=node.output[0])


def _scattered(_: onnx.NodeProto, call: Call) -> object | None:
    """None if the rows are rows of the table, one behind the other, at all extents."""
    data, indices = call.tensor(0), call.tensor(1)
    if (
        call.opset < _POSITIONS_AS_INPUTS
        or data.constant is None
        or data.at_maxima
        or 1 not in call.values
        or indices.at_maxima
        or not data.shape
    ):
        return "no constants"
    rows = call.values[1].reshape(-1).tolist()
    extent = data.shape[call.axis("axis", 0, len(data.shape))]
    if not rows or not isinstance(rows[0], Dim) or isinstance(extent, Dim):
        return "no row that varies"
    behind = (isinstance(row, Dim) and _is_same(row - number, rows[0]) for number, row in enumerate(rows))
    last = rows[0] + prod(indices.shape)
    is_inside = is_always_least(0, rows[0]) and is_always_least(last, extent)
    return None if is_inside and all(behind) else "other rows"


def _is_same(one: int, other: int) -> bool:
    """Whether two numbers are equal at all extents."""
    return bool(is_always_least(one, other) and is_always_least(other, one))


TABLE_ROWS: Final = Decomposition(
    op_type="Gather",
    replace=_replace,
    limits=(Limit("rows of a constant table follow one another from one that varies", _scattered),),
)
