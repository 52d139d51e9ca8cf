"""From extents that vary to plain integers: what later stages see (ir/symbol.py)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, symbols_of


def fixed_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape as plain integers."""
    return tuple(int(extent) for extent in shape)


def fixed_value(value: Any) -> Any:
    """An attribute without extents that vary: their value at the maxima."""
    if isinstance(value, tuple):
        return tuple(fixed_value(item) for item in value)
    return int(value) if isinstance(value, Dim) else value


def settled(tensor: Tensor) -> Tensor:
    """The tensor as later stages see it: extents are plain integers, what varies stands beside them."""
    symbols = symbols_of(tensor.shape)
    varies = any(isinstance(extent, Dim) for extent in tensor.shape)
    return replace(tensor, shape=fixed_shape(tensor.shape), symbols=symbols) if varies else tensor
