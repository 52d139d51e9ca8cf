"""Turns varying extents into plain integers for later stages (ir/symbol.py)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from compiler.ir.graph import Tensor
from compiler.ir.symbol import Dim, Expression, expression_of, is_dropped, symbols_of


def fixed_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape as plain integers."""
    return tuple(int(extent) for extent in shape)


def fixed_value(value: Any) -> Any:
    """An attribute with varying extents replaced by their value at the maxima."""
    if isinstance(value, tuple):
        return tuple(fixed_value(item) for item in value)
    return int(value) if isinstance(value, Dim) else value


def attribute_symbols(attributes: Mapping[str, Any]) -> tuple[tuple[str, int, Expression], ...]:
    """The varying elements of attributes, with their expressions."""
    return tuple(
        (name, position, expression)
        for name, value in sorted(attributes.items())
        for position, item in enumerate(value if isinstance(value, tuple) else (value,))
        if isinstance(item, int) and (expression := expression_of(item)) is not None
    )


def has_dropped(values: Iterable[Any]) -> bool:
    """Whether a shape or attributes vary in an unknown way."""
    return any(is_dropped(item) for value in values for item in (value if isinstance(value, tuple) else (value,)))


def settled(tensor: Tensor) -> Tensor:
    """The tensor for later stages: plain integer extents, with the varying axes listed in `symbols`."""
    symbols = symbols_of(tensor.shape)
    if not any(isinstance(extent, Dim) for extent in tensor.shape):
        return tensor
    unknown = tensor.at_maxima or has_dropped(tensor.shape)
    return replace(tensor, shape=fixed_shape(tensor.shape), symbols=symbols, at_maxima=unknown)
