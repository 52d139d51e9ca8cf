"""Dequantised constants: the integers that are stored, and the scales and zero points that make them numbers."""

from __future__ import annotations

import numpy as np

from compiler.frontend.constant_values import literal, materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived
from compiler.ops.base import Array
from compiler.ops.quantise import spread_blocks
from compiler.units import numpy_dtype


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


def scale_and_zero(constant: Constant, source: ModelSource) -> tuple[Array, Array]:
    """Scale and zero point of a dequantised constant, of its rank; one position along axes on which neither changes."""
    return _narrow(*_parameters(constant, source))


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
    axis, block = dict(data.attributes).get("axis"), dict(data.attributes).get("block_size", 0)
    if isinstance(axis, int) and isinstance(block, int) and block:
        extent, full = constant.shape[axis], constant.shape
        scale = spread_blocks(scale, axis, block, extent)
        return scale, np.broadcast_to(zero if zero.ndim == 0 else spread_blocks(zero, axis, block, extent), full)
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
