"""A graph at given extents of its dynamic dimensions: the same ops on other shapes, nothing decided anew (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.errors import printable
from compiler.ir.constant import Constant, Derived, Literal, Splat
from compiler.ir.graph import Attribute, Graph, Op, Tensor
from compiler.ir.ties import UnequalExtentsError
from compiler.shapes.extents import InputShape
from compiler.shapes.legal import check_view, checked_shape

# The elements of a constant.
Values = Callable[[Constant], NDArray[Any]]


def graph_at(graph: Graph, dims: Mapping[str, int], values: Values) -> Graph:
    """The graph with every extent, attribute and constant as it is at `dims`, by dimension of the model.

    Constants are their leading parts; `values` gives the elements of one. Raises RequestError for dimensions at which
    the model has no meaning.
    """
    found = replace(
        graph,
        ops=tuple(_op_at(op, dims) if op.symbols else op for op in graph.ops),
        tensors=MappingProxyType(
            {
                name: _tensor_at(tensor, dims, values) if tensor.symbols or tensor.element_symbols else tensor
                for name, tensor in graph.tensors.items()
            }
        ),
        dims=MappingProxyType(dict(dims)),
        unread=tuple(_unread_at(tensor, dims) for tensor in graph.unread),
    )
    for op in found.ops:
        if op.kind == "Reshape":
            check_view(op, found.tensors[op.inputs[0]].shape, found.tensors[op.output].shape, dims)
    return found


def refuse_what_is_at_maxima(graph: Graph) -> None:
    """Raises ModelError naming an op or a constant of which nobody knows what it is below the maxima."""
    for op in graph.ops:
        for name in (*op.inputs, op.output):
            if name in graph.tensors and graph.tensors[name].at_maxima:
                raise _known_at_maxima_only(graph, name, op)
    for name in graph.output_tensors:
        if graph.tensors[name].at_maxima:
            raise _known_at_maxima_only(graph, name, None)


def _known_at_maxima_only(graph: Graph, name: str, op: Op | None) -> UnequalExtentsError:
    tensor = graph.tensors[name]
    what = "the form of" if tensor.constant is None else "constant"
    read = () if op is None or name != op.output else tuple(graph.tensors[one] for one in op.inputs if one)
    operands = ", ".join(str(InputShape.of(one)) for one in read)
    hint = "Give the dimension a fixed extent"
    if len({expression for one in read for _, expression in one.symbols}) > 1:
        hint += "; dimensions that are always equal may have one name in the model"
    return UnequalExtentsError(
        f"{what} {printable(name, 120)!r} depends on a dynamic dimension in a way that is known at its maximum only",
        code="known_at_maxima_only",
        stage="shapes",
        node=None if op is None else op.node,
        op_type=None if op is None else op.kind,
        actual=printable(tensor.why_at_maxima or (f"made of {operands}" if operands else name), 300),
        limit="positions, sums and products of dimensions",
        hint=hint,
        ties=graph.ties,
    )


def _op_at(op: Op, dims: Mapping[str, int]) -> Op:
    attributes: dict[str, Attribute] = dict(op.attributes)
    for name, position, expression in op.symbols:
        value = attributes[name]
        if isinstance(value, tuple):
            items = list(value)
            items[position] = expression.value(dims)
            attributes[name] = tuple(items)  # type: ignore[assignment]
        else:
            attributes[name] = expression.value(dims)
    return replace(op, attributes=tuple(sorted(attributes.items())), symbols=())


def _tensor_at(tensor: Tensor, dims: Mapping[str, int], values: Values) -> Tensor:
    shape = checked_shape(tensor, dims)
    constant = tensor.constant
    if constant is not None:
        constant = _constant_at(constant, tensor, shape, dims, values)
    return replace(tensor, shape=shape, constant=constant, symbols=(), element_symbols=())


def _unread_at(tensor: Tensor, dims: Mapping[str, int]) -> Tensor:
    """An input that no op needs; extents of its own, which nobody knows, stay at the maxima."""
    known = tuple((axis, expression) for axis, expression in tensor.symbols if expression.symbols <= set(dims))
    return replace(tensor, shape=checked_shape(replace(tensor, symbols=known), dims), symbols=())


def _constant_at(
    constant: Constant, tensor: Tensor, shape: tuple[int, ...], dims: Mapping[str, int], values: Values
) -> Constant:
    if tensor.element_symbols:
        elements = np.array(values(constant)).reshape(-1)
        for position, expression in tensor.element_symbols:
            elements[position] = expression.value(dims)
        leading = elements.reshape(constant.shape)[tuple(slice(0, extent) for extent in shape)]
        data = Literal(data=np.ascontiguousarray(leading).tobytes())
        return Constant(shape=shape, dtype=constant.dtype, data=data)
    if isinstance(constant.data, Splat):
        return replace(constant, shape=shape)
    rank = len(shape)
    cut = Derived(function="Slice", inputs=(constant,), attributes=(("begin", (0,) * rank), ("step", (1,) * rank)))
    return Constant(shape=shape, dtype=constant.dtype, data=cut)
