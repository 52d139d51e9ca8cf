"""Dequantised weights of 4 bits as what a MatMulNBits reads: packed bytes, scales and zero points (IMPORT-9)."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.frontend.constant_values import PACK, derive, is_packed, literal
from compiler.ir.constant import Constant, Derived
from compiler.ops.packed import HALF_OF_FOUR_BITS
from compiler.units import ceil_div, numpy_dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight [K, N]: bytes [N, blocks, block / 2], scales [N, blocks], zero points [N, bytes] unless all are 8."""

    block: int
    constants: tuple[Constant, ...]


def packed_weight(weight: Constant, dtype: str) -> PackedWeight | None:
    """A dequantised weight of 4 bits for data of some float type; None for any other weight.

    It is quantised whole, by output channel, or by blocks of the inner axis of an even number of positions.
    """
    data = weight.data
    if not isinstance(data, Derived) or data.function != "DequantizeLinear" or weight.dtype != dtype:
        return None
    numbers, scale, *zeros = data.inputs
    if not is_packed(numbers):
        return None
    inner, columns = weight.shape
    attributes = dict(data.attributes)
    axis, block = attributes.get("axis"), attributes.get("block_size", 0)
    assert isinstance(block, int)
    if block and (axis != 0 or block % 2):
        return None
    if not block and axis not in (None, 1):
        return None
    even = inner + inner % 2
    block = min(block, even) if block else even
    blocks = ceil_div(inner, block)
    add = HALF_OF_FOUR_BITS if numbers.dtype == "int8" else 0
    rows = blocks * block
    shape = (columns, blocks, block // 2)
    parts = [
        derive(PACK, (numbers,), shape, {"add": add, "rows": rows}, "uint8"),
        _by_column(scale, blocks, columns),
    ]
    if zeros or not add:
        given = zeros[0] if zeros else literal(np.zeros((), numpy_dtype(numbers.dtype)), numbers.dtype)
        pairs = blocks + blocks % 2
        by_block = _by_row(given, blocks, columns)
        parts.append(derive(PACK, (by_block,), (columns, pairs // 2), {"add": add, "rows": pairs}, "uint8"))
    return PackedWeight(block=block, constants=tuple(parts))


def _by_row(values: Constant, blocks: int, columns: int) -> Constant:
    """One number, or some by column or by block, as [blocks, N]."""
    if prod(values.shape) == 1:
        return derive("Expand", (_one(values),), (blocks, columns), {}, values.dtype)
    return derive("Reshape", (values,), (blocks, columns), {}, values.dtype)


def _by_column(values: Constant, blocks: int, columns: int) -> Constant:
    """The same as [N, blocks]."""
    rows = _by_row(values, blocks, columns)
    return derive("Transpose", (rows,), (columns, blocks), {"perm": (1, 0)}, values.dtype)


def _one(values: Constant) -> Constant:
    return derive("Reshape", (values,), (1, 1), {}, values.dtype)
