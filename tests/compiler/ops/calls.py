"""One ONNX node as a definition sees it, and its values by the definition alone: what several test files share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.node_attributes import attributes_of
from compiler.ir.constant import Constant, Literal
from compiler.ir.graph import Tensor
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, Inferred, default_axes

Values = NDArray[Any]


def tensor_of(name: str, array: Values, *, constant: bool = False) -> Tensor:
    """A tensor with the type of an array."""
    shape, dtype = tuple(map(int, array.shape)), array.dtype.name
    description = Constant(shape=shape, dtype=dtype, data=Literal(data=array.tobytes())) if constant else None
    return Tensor(name=name, shape=shape, dtype=dtype, axes=default_axes(len(shape)), constant=description)


def call_of_node(
    node: onnx.NodeProto,
    values: Mapping[str, Values],
    opset: int,
    *,
    constants: Sequence[int] | None = None,
) -> Call:
    """The call of a node; inputs at positions `constants` (by default those that must be) are constants."""
    kind = OP_KINDS.get(node.op_type)
    if constants is None:
        constants = tuple(kind.constant_inputs) if kind else ()
    inputs = tuple(
        tensor_of(name, values[name], constant=position in constants) if name else None
        for position, name in enumerate(node.input)
    )
    return Call(
        op_type=node.op_type,
        node=node.name or node.op_type,
        attributes=attributes_of(node, node.name or node.op_type),
        inputs=inputs,
        opset=opset,
        values={i: values[name] for i, name in enumerate(node.input) if name and i in constants},
    )


def resolved(call: Call, inferred: Inferred) -> Call:
    """The call of the op of the IR that a call becomes."""
    return Call(
        op_type=inferred.kind,
        node=call.node,
        attributes=inferred.attributes,
        inputs=tuple(call.inputs[i] if i < len(call.inputs) else None for i in inferred.inputs),
        opset=call.opset,
        output=Tensor(name="y", shape=inferred.shape, dtype=inferred.dtype, axes=inferred.axes),
    )


def evaluated(node: onnx.NodeProto, call: Call, values: Mapping[str, Values]) -> Values:
    """The first output's values by the definition; its type is checked against what was inferred."""
    inferred = OP_KINDS[node.op_type].infer(call)
    arrays = [values[name] if name else None for name in node.input]
    if inferred.source is not None:
        result: Any = arrays[inferred.source]
    else:
        kept = tuple(arrays[i] if i < len(arrays) else None for i in inferred.inputs)
        result = OP_KINDS[inferred.kind].evaluate(resolved(call, inferred), kept)
    assert result is not None, f"{node.op_type} has no evaluation"
    found = (tuple(result.shape), result.dtype.name)
    assert found == (inferred.shape, inferred.dtype), f"values {found}, inferred {inferred.shape} {inferred.dtype}"
    return np.asarray(result)
