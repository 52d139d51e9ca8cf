"""Graphs with dynamic dimensions as plain values and back: what a package says of a model (SHAPE-10).

Constants are pieces of the package itself: `write` is given each one's bytes and says where they will lie. Reading
believes nothing: whatever is not as written ends in ExecutableError.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Any, Final

from compiler.ir.constant import Constant, Derived, Literal, Opaque, Splat, Stored
from compiler.ir.graph import Graph, HostNode, Op, Tensor
from compiler.ir.symbol import Compound, Expression

Plain = dict[str, Any]
# Where a constant's bytes will lie in the package: offset and size.
Write = Callable[[Constant], tuple[int, int]]
# Functions of constants that stay functions, so that elements keep their stored type.
_KEPT: Final = ("DequantizeLinear",)
# Expressions and constants are nested no deeper than import makes them.
_MAX_DEPTH: Final = 64


def graph_values(graph: Graph, write: Write) -> Plain:
    """A graph as plain values."""
    return {
        "name": graph.name,
        "opset": graph.opset,
        "dims": dict(graph.dims),
        "tied": {name: expression_values(one) for name, one in graph.tied.items()},
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "output_names": graph.output_names,
        "output_tensors": graph.output_tensors,
        "ops": [_op_values(op) for op in graph.ops],
        "tensors": [_tensor_values(tensor, write) for tensor in graph.tensors.values()],
        "host": {key: _host_values(node) for key, node in graph.host.items()},
        "unread": [_tensor_values(tensor, write) for tensor in graph.unread],
    }


def graph_of(values: Plain, base: int) -> Graph:
    """The graph that plain values say; `base`: where in the package its constants begin.

    Raises KeyError, TypeError or ValueError for values that no graph has.
    """
    tensors = [_tensor_of(one, base) for one in values["tensors"]]
    graph = Graph(
        name=str(values["name"]),
        opset=_whole(values["opset"]),
        dims=MappingProxyType({str(name): _whole(extent) for name, extent in values["dims"].items()}),
        tied=MappingProxyType({str(name): expression_of_values(one) for name, one in values.get("tied", {}).items()}),
        inputs=_names(values["inputs"]),
        outputs=_names(values["outputs"]),
        output_names=_names(values["output_names"]),
        output_tensors=_names(values["output_tensors"]),
        ops=tuple(_op_of(one) for one in values["ops"]),
        tensors=MappingProxyType({tensor.name: tensor for tensor in tensors}),
        host=MappingProxyType({str(key): _host_of(node) for key, node in values["host"].items()}),
        unread=tuple(_tensor_of(one, base) for one in values["unread"]),
    )
    made = set(graph.inputs) | {name for name, tensor in graph.tensors.items() if tensor.constant is not None}
    for op in graph.ops:
        for name in op.inputs:
            if name and name not in made:
                raise ValueError(f"op {op.node} reads {name}, which nothing makes before it")
        if op.output in made or op.output not in graph.tensors:
            raise ValueError(f"op {op.node} makes {op.output}, which is made already or is no tensor")
        made.add(op.output)
    if len(graph.output_names) != len(graph.output_tensors):
        raise ValueError("not every output has a name and a tensor")
    if not made >= {*graph.outputs, *graph.output_tensors}:
        raise ValueError("an output is made by nothing")
    return graph


def expression_values(expression: Expression) -> list[Any]:
    """An expression as its constant and its terms: atom, factor."""
    return [expression.constant, [[_atom_values(atom), factor] for atom, factor in expression.terms]]


def expression_of_values(values: Sequence[Any], depth: int = 0) -> Expression:
    """The expression that plain values say."""
    if depth > _MAX_DEPTH:
        raise ValueError("an expression is nested too deep")
    constant, terms = values
    return Expression(
        terms=tuple((_atom_of(atom, depth), _whole(factor)) for atom, factor in terms), constant=_whole(constant)
    )


def _atom_values(atom: str | Compound) -> Any:
    if isinstance(atom, str):
        return atom
    return [atom.operator, expression_values(atom.left), expression_values(atom.right)]


def _atom_of(values: Any, depth: int) -> str | Compound:
    if isinstance(values, str):
        return values
    operator, left, right = values
    if operator not in ("*", "//", "%"):
        raise ValueError(f"no operator {operator!r}")
    a, b = expression_of_values(left, depth + 1), expression_of_values(right, depth + 1)
    return Compound(operator=operator, left=a, right=b, size=1 + a.size + b.size, depth=1 + max(a.depth, b.depth))


def _op_values(op: Op) -> list[Any]:
    symbols = [[name, position, expression_values(expression)] for name, position, expression in op.symbols]
    return [op.kind, op.inputs, op.output, op.origin, [[name, value] for name, value in op.attributes], symbols]


def _op_of(values: Sequence[Any]) -> Op:
    kind, inputs, output, origin, attributes, symbols = values
    if not origin:
        raise ValueError(f"op {kind} has no origin")
    return Op(
        kind=str(kind),
        inputs=_names(inputs),
        output=str(output),
        origin=_names(origin),
        attributes=tuple((str(name), tuple(value) if isinstance(value, list) else value) for name, value in attributes),
        symbols=tuple((str(name), _whole(at), expression_of_values(value)) for name, at, value in symbols),
    )


def _tensor_values(tensor: Tensor, write: Write) -> Plain:
    return {
        "name": tensor.name,
        "shape": tensor.shape,
        "dtype": tensor.dtype,
        "axes": tensor.axes,
        "symbols": [[axis, expression_values(expression)] for axis, expression in tensor.symbols],
        "elements": [[position, expression_values(expression)] for position, expression in tensor.element_symbols],
        "known": tensor.is_known,
        "constant": None if tensor.constant is None else _constant_values(tensor.constant, write),
    }


def _tensor_of(values: Plain, base: int) -> Tensor:
    constant = values["constant"]
    shape = tuple(_whole(extent) for extent in values["shape"])
    if len(values["axes"]) != len(shape) or any(extent < 0 for extent in shape):
        raise ValueError(f"tensor {values['name']} has no shape")
    return Tensor(
        name=str(values["name"]),
        shape=shape,
        dtype=str(values["dtype"]),
        axes=_names(values["axes"]),
        symbols=tuple((_whole(axis), expression_of_values(value)) for axis, value in values["symbols"]),
        element_symbols=tuple((_whole(at), expression_of_values(value)) for at, value in values["elements"]),
        is_known=bool(values["known"]),
        constant=None if constant is None else _constant_of(constant, base, 0),
    )


def _constant_values(constant: Constant, write: Write) -> Plain:
    """A constant: one value everywhere, a function of constants that keeps their stored type, or a piece of bytes."""
    found: Plain = {"shape": constant.shape, "dtype": constant.dtype}
    data = constant.data
    if isinstance(data, Splat):
        return found | {"splat": _text(data.value)}
    if isinstance(data, Derived) and (data.function in _KEPT or constant.stored_dtype != constant.dtype):
        inputs = [_constant_values(part, write) for part in data.inputs]
        return found | {"function": data.function, "inputs": inputs, "attributes": [list(x) for x in data.attributes]}
    if isinstance(data, Opaque):
        return found | {"opaque": _text(data.tensor)}
    return found | {"piece": write(constant)}


def _constant_of(values: Plain, base: int, depth: int) -> Constant:
    if depth > _MAX_DEPTH:
        raise ValueError("a constant is nested too deep")
    shape, dtype = tuple(_whole(extent) for extent in values["shape"]), str(values["dtype"])
    data: Splat | Stored | Literal | Derived | Opaque
    if "splat" in values:
        data = Splat(value=_bytes(values["splat"]))
    elif "function" in values:
        if values["function"] not in (*_KEPT, "Reshape", "Transpose", "Slice"):
            raise ValueError(f"no constant is made by {values['function']!r}")
        data = Derived(
            function=str(values["function"]),
            inputs=tuple(_constant_of(part, base, depth + 1) for part in values["inputs"]),
            attributes=tuple(
                (str(name), tuple(value) if isinstance(value, list) else value) for name, value in values["attributes"]
            ),
        )
    elif "opaque" in values:
        data = Opaque(tensor=_bytes(values["opaque"]))
    else:
        offset, size = values["piece"]
        if _whole(offset) < 0 or _whole(size) < 0:
            raise ValueError("a piece lies nowhere")
        data = Stored(offset=base + offset, size_bytes=size)
    return Constant(shape=shape, dtype=dtype, data=data)


def _host_values(node: HostNode) -> Plain:
    return {
        "name": node.name,
        "op_type": node.op_type,
        "domain": node.domain,
        "reason": node.reason,
        "node": _text(node.node),
        "inputs": node.inputs,
        "outputs": node.outputs,
        "opsets": [list(one) for one in node.opsets],
        "functions": [_text(function) for function in node.functions],
    }


def _host_of(values: Plain) -> HostNode:
    return HostNode(
        name=str(values["name"]),
        op_type=str(values["op_type"]),
        domain=str(values["domain"]),
        reason=str(values["reason"]),
        node=_bytes(values["node"]),
        inputs=_names(values["inputs"]),
        outputs=_names(values["outputs"]),
        opsets=tuple((str(name), _whole(version)) for name, version in values["opsets"]),
        functions=tuple(_bytes(function) for function in values["functions"]),
    )


def whole_numbers(values: Sequence[Any]) -> tuple[int, ...]:
    """A list of whole numbers; raises TypeError for anything else."""
    return tuple(map(_whole, values))


def _names(values: Sequence[Any]) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list of names")
    return tuple(str(name) for name in values)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no whole number")
    return value


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
