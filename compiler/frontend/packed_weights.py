"""Weights of 4 bits as products read them: bytes, and scales and zero points of a MatMulNBits (IMPORT-9)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from compiler.frontend.constant_values import PACK, derive, is_packed, literal
from compiler.ir.constant import Constant, Derived
from compiler.ops.packed import HALF_OF_FOUR_BITS, stored_order
from compiler.units import ceil_div, numpy_dtype

# Functions that only move elements.
_MOVES: Final = ("Reshape", "Transpose", "Slice")


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight [K, N]: bytes [N, blocks, block / 2], scales [N, blocks], zero points [N, bytes] unless all are 8."""

    block: int
    constants: tuple[Constant, ...]


def has_four_bits(numbers: Constant) -> bool:
    """True for integers that the model stores in 4 bits, moved or not."""
    data = numbers.data
    if isinstance(data, Derived) and data.function in _MOVES:
        return has_four_bits(data.inputs[0])
    return is_packed(numbers)


def offset_of(dtype: str) -> int:
    """What is added to integers of 4 bits, held in `dtype`, so that none is negative."""
    return HALF_OF_FOUR_BITS if dtype == "int8" else 0


def packed_numbers(numbers: Constant, layout: Sequence[int]) -> Constant:
    """Integers of 4 bits as they lie packed in a layout (compiler.ops.packed)."""
    order, axes = stored_order(layout), range(len(layout))
    kept, inner = [numbers.shape[axis] for axis in axes if not layout[axis]], prod(filter(None, layout))
    turned = numbers
    if order != tuple(axes):
        shape = tuple(numbers.shape[axis] for axis in order)
        turned = derive("Transpose", (numbers,), shape, {"perm": order}, numbers.dtype)
    rows = derive("Reshape", (turned,), (*kept, inner), {}, numbers.dtype)
    return _packed(rows, inner + inner % 2)


def packed_weight(weight: Constant, dtype: str, inner_axis: int) -> PackedWeight | None:
    """A dequantised matrix of 4 bits as a factor of data of some float type; None for any other weight.

    It is quantised whole, by output channel, or by blocks of an even number of positions of the inner axis.
    """
    data = weight.data
    if not isinstance(data, Derived) or weight.dtype != dtype:
        return None
    attributes = dict(data.attributes)
    if data.function == "Transpose" and attributes.get("perm") == (1, 0):
        return packed_weight(data.inputs[0], dtype, 1 - inner_axis)
    if data.function != "DequantizeLinear" or not has_four_bits(data.inputs[0]):
        return None
    numbers, scale, *zeros = data.inputs
    inner, columns = weight.shape[inner_axis], weight.shape[1 - inner_axis]
    axis, block = attributes.get("axis"), attributes.get("block_size", 0)
    assert isinstance(block, int)
    if block and (axis != inner_axis or block % 2):
        return None
    if not block and prod(scale.shape) > 1 and axis != 1 - inner_axis:
        return None
    even = inner + inner % 2
    block = min(block, even) if block else even
    blocks = ceil_div(inner, block)
    rows = _by_column(numbers, inner, columns, inner_axis)
    parts = [
        _packed(rows, blocks * block, (columns, blocks, block // 2)),
        _by_column(scale, blocks, columns, inner_axis),
    ]
    if zeros or not offset_of(numbers.dtype):
        given = zeros[0] if zeros else literal(np.zeros((), numpy_dtype(numbers.dtype)), numbers.dtype)
        parts.append(_packed(_by_column(given, blocks, columns, inner_axis), blocks + blocks % 2))
    return PackedWeight(block=block, constants=tuple(parts))


def _packed(numbers: Constant, count: int, shape: tuple[int, ...] | None = None) -> Constant:
    """Integers of 4 bits, so many along the last axis, as bytes; what the last ones have beyond the numbers is 0."""
    shape = shape or (*numbers.shape[:-1], count // 2)
    return derive(PACK, (numbers,), shape, {"add": offset_of(numbers.dtype), "count": count}, "uint8")


def _by_column(values: Constant, rows: int, columns: int, inner_axis: int) -> Constant:
    """A matrix, one number by column, or one for all, as [N, rows]; `inner_axis` is the axis of the rows."""
    if prod(values.shape) == 1:
        one = derive("Reshape", (values,), (1, 1), {}, values.dtype)
        return derive("Expand", (one,), (columns, rows), {}, values.dtype)
    if inner_axis:
        return derive("Reshape", (values,), (columns, rows), {}, values.dtype)
    matrix = derive("Reshape", (values,), (rows, columns), {}, values.dtype)
    return derive("Transpose", (matrix,), (columns, rows), {"perm": (1, 0)}, values.dtype)
