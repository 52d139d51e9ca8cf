"""Quantised weights: what lies in memory, and how it becomes numbers (IMPORT-5)."""

from __future__ import annotations

import numpy as np

from compiler.frontend.constant_values import literal, materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived
from compiler.ir.graph import Graph
from compiler.ops.base import Array
from compiler.program.program import Decode
from compiler.units import numpy_dtype


class Decoders:
    """How the constants of a graph are decoded whose elements are stored in another type than they are read as."""

    def __init__(self, graph: Graph, source: ModelSource) -> None:
        self._graph = graph
        self._source = source
        self._known: dict[str, Decode] = {}

    def of(self, name: str) -> Decode | None:
        """The decoding of a tensor; None if its elements are stored as they are read."""
        tensor = self._graph.tensors[name]
        if tensor.constant is None or tensor.stored_dtype == tensor.dtype:
            return None
        found = self._known.get(name)
        if found is None:
            scale, zero = _parameters(tensor.constant, self._source)
            scale, zero = _narrow(scale, zero)
            found = self._known[name] = Decode(
                scale=np.ascontiguousarray(scale).tobytes(),
                zero=np.ascontiguousarray(zero).tobytes(),
                shape=tuple(scale.shape),
                dtype=scale.dtype.name,
            )
        return found


def stored_constant(constant: Constant) -> Constant:
    """The constant as its elements are stored: without the dequantisation, moved as the values are."""
    data = constant.data
    if constant.stored_dtype == constant.dtype or not isinstance(data, Derived):
        return constant
    inner = stored_constant(data.inputs[0])
    if data.function == "DequantizeLinear":
        return inner
    moved = Derived(function=data.function, inputs=(inner, *data.inputs[1:]), attributes=data.attributes)
    return Constant(shape=constant.shape, dtype=inner.dtype, data=moved)


def _parameters(constant: Constant, source: ModelSource) -> tuple[Array, Array]:
    """Scale and zero point of every element, broadcast over the constant's shape."""
    data = constant.data
    assert isinstance(data, Derived)
    if data.function != "DequantizeLinear":
        moved = []
        for values in _parameters(data.inputs[0], source):
            part = literal(np.ascontiguousarray(values), values.dtype.name)
            moving = Derived(function=data.function, inputs=(part, *data.inputs[1:]), attributes=data.attributes)
            moved.append(materialise(Constant(shape=constant.shape, dtype=part.dtype, data=moving), source))
        return moved[0], moved[1]
    scale = materialise(data.inputs[1], source)
    stored = data.inputs[0]
    zero = (
        materialise(data.inputs[2], source) if len(data.inputs) > 2 else np.zeros((), dtype=numpy_dtype(stored.dtype))
    )
    axis = dict(data.attributes).get("axis")
    shape = [1] * len(constant.shape)
    if isinstance(axis, int) and scale.size > 1:
        shape[axis] = scale.size
    full = constant.shape
    zeros = zero.reshape(shape) if zero.size == scale.size and zero.size > 1 else zero.reshape([1] * len(full))
    return np.broadcast_to(scale.reshape(shape), full), np.broadcast_to(zeros, full)


def _narrow(scale: Array, zero: Array) -> tuple[Array, Array]:
    """Both without what repeats: axes along which neither changes keep one position."""
    for axis in range(scale.ndim):
        first = [slice(None)] * scale.ndim
        first[axis] = slice(0, 1)
        at = tuple(first)
        if all(bool((values == values[at]).all()) for values in (scale, zero)):
            scale, zero = scale[at], zero[at]
    return scale, zero
