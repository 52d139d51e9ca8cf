"""Floats that vary with extents, such as the half of a height (SHAPE-9).

What rounds such a float to an extent is an expression where that agrees with the arithmetic of floats at all extents:
these are few enough to be tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.symbol import Dim, Expression, bounds_of, expression_of, is_dropped

Floats = NDArray[np.floating[Any]]
# Largest number of combinations of extents that are tried.
_MOST: Final = 1 << 20
# A float that equals a quotient of integers up to this size after rounding is taken as that quotient.
_LARGEST_TERM: Final = 4096
# Bound of numerators and denominators.
_LARGEST: Final = 2**62
_OPERATIONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = MappingProxyType(
    {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
)
ROUNDINGS: Final[Mapping[str, Callable[[Any], Any]]] = MappingProxyType(
    {"Floor": np.floor, "Ceil": np.ceil, "Round": np.rint, "Cast": np.trunc}
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VaryingFloat:
    """A quotient of extents, but for rounding: `values` are the floats it is at all extents of `limits`.

    `values` has an axis for each dimension, in order of their names. The denominator is positive.
    """

    numerator: int
    denominator: int
    limits: tuple[tuple[str, int, int], ...]
    values: Floats

    def __str__(self) -> str:
        """The number, or between which numbers it lies."""
        least, largest = f"{self.values.min():g}", f"{self.values.max():g}"
        return least if least == largest else f"{least} to {largest}"

    def __float__(self) -> float:
        """The value at the maxima."""
        return float(self.values[(-1,) * self.values.ndim])


def varying_float(item: Any, dtype: np.dtype[Any]) -> VaryingFloat | None:
    """A whole number, an extent or a float in an element type; None where it is of unknown expression or too large."""
    if isinstance(item, VaryingFloat):
        return VaryingFloat(
            numerator=item.numerator,
            denominator=item.denominator,
            limits=item.limits,
            values=item.values.astype(dtype, copy=False),
        )
    if not isinstance(item, Dim):
        if not np.isfinite(item):
            return None
        ratio = rational(float(item))
        value = np.asarray(item, dtype=dtype)
        return VaryingFloat(numerator=ratio.numerator, denominator=ratio.denominator, limits=(), values=value)
    expression = expression_of(item)
    if expression is None or not expression.symbols <= set(item.limits):
        return None
    limits = tuple((name, *item.limits[name]) for name in sorted(expression.symbols))
    values = _tried(expression, limits)
    if values is None:
        return None
    return VaryingFloat(numerator=item, denominator=1, limits=limits, values=values.astype(dtype))


def calculated(kind: str, a: VaryingFloat, b: VaryingFloat) -> VaryingFloat | None:
    """The sum, difference, product or quotient of two floats of one element type.

    None where nothing is known of it: where it may be divided by 0, or 63 bits do not hold its terms.
    """
    limits = tuple(sorted({*a.limits, *b.limits}))
    if len({name for name, _, _ in limits}) < len(limits) or _count(limits) > _MOST:
        return None
    if kind in ("Add", "Sub"):
        other = b.numerator * a.denominator
        numerator = a.numerator * b.denominator + (other if kind == "Add" else -other)
        denominator = a.denominator * b.denominator
    elif kind == "Mul":
        numerator, denominator = a.numerator * b.numerator, a.denominator * b.denominator
    else:
        numerator, denominator = a.numerator * b.denominator, a.denominator * b.numerator
    if not _are_small(numerator, denominator) or bounds_of(denominator)[0] <= 0:
        return None
    with np.errstate(all="ignore"):
        values = _OPERATIONS[kind](_spread(a, limits), _spread(b, limits))
    return VaryingFloat(numerator=numerator, denominator=denominator, limits=limits, values=values)


def rounded(kind: str, number: VaryingFloat) -> int | None:
    """What a float is rounded to, by Floor, Ceil, Round or a Cast to integers; None where no expression says it."""
    over, under = number.numerator, number.denominator
    if kind == "Ceil":
        found = -(-over // under)
    elif kind == "Round":
        found = (2 * over + under) // (2 * under)
    else:
        found = over // under
    return found if _is_everywhere(found, number, ROUNDINGS[kind](number.values)) else None


def whole(number: VaryingFloat) -> int | None:
    """The extent that a float is, if it is one without being rounded."""
    found = number.numerator // number.denominator
    is_exact = not isinstance(found * number.denominator - number.numerator, Dim)
    return found if is_exact and _is_everywhere(found, number, number.values) else None


def ratio_of(scale: VaryingFloat, source: int) -> int | None:
    """The extent of which a scale is the quotient by `source`, as floats are divided and multiplied.

    None where an extent is not scaled to that one, or where the scale is another float than the quotient.
    """
    dtype = scale.values.dtype
    extent = varying_float(source, dtype)
    scaled = None if extent is None else calculated("Mul", scale, extent)
    target = None if scaled is None else rounded("Cast", scaled)
    if target is None or extent is None or isinstance(target * scale.denominator - scale.numerator * source, Dim):
        return None
    quotient = varying_float(target, dtype)
    again = None if quotient is None else calculated("Div", quotient, extent)
    return target if again is not None and np.all(_spread(scale, again.limits) == again.values) else None


def at_all_extents(numbers: tuple[int, ...]) -> list[NDArray[np.int64]] | None:
    """The values of numbers at all extents of the dimensions of any of them, flat; None if unknown or too many."""
    bounds: dict[str, tuple[int, int]] = {}
    expressions = []
    for number in numbers:
        expression = expression_of(number)
        if isinstance(number, Dim) and (expression is None or not expression.symbols <= set(number.limits)):
            return None
        bounds |= (
            {name: number.limits[name] for name in expression.symbols} if isinstance(number, Dim) and expression else {}
        )
        expressions.append(expression or Expression(constant=number))
    limits = tuple((name, *bounds[name]) for name in sorted(bounds))
    found = [_tried(expression, limits) for expression in expressions]
    shape = tuple(high - low + 1 for _, low, high in limits)
    known = [np.broadcast_to(values, shape).reshape(-1) for values in found if values is not None]
    return known if len(known) == len(numbers) else None


def rational(scale: float) -> Fraction:
    """A float32 as the simplest fraction that rounds to it."""
    simple = Fraction(scale).limit_denominator(_LARGEST_TERM)
    return simple if np.float32(float(simple)) == np.float32(scale) else Fraction(scale)


def _are_small(*numbers: int) -> bool:
    """Whether 63 bits hold numbers at all extents, and their expressions are known."""
    return not any(map(is_dropped, numbers)) and all(
        -_LARGEST < bound < _LARGEST for number in numbers for bound in bounds_of(number)
    )


def _is_everywhere(found: int, number: VaryingFloat, values: Floats) -> bool:
    """Whether an extent equals floats at all extents."""
    expression = expression_of(found) if isinstance(found, Dim) else Expression(constant=found)
    tried = None if expression is None else _tried(expression, number.limits)
    return tried is not None and bool(np.all(tried == values))


def _tried(expression: Expression, limits: tuple[tuple[str, int, int], ...]) -> NDArray[np.int64] | None:
    """The values of an expression at all extents; None where these are too many."""
    if _count(limits) > _MOST or not expression.symbols <= {name for name, _, _ in limits}:
        return None
    every = np.meshgrid(
        *(np.arange(low, high + 1, dtype=np.int64) for _, low, high in limits), indexing="ij", sparse=True
    )
    symbols = dict(zip((name for name, _, _ in limits), every, strict=True))
    try:
        return np.asarray(expression.value(symbols), dtype=np.int64)  # type: ignore[arg-type]
    except OverflowError:
        return None


def _count(limits: tuple[tuple[str, int, int], ...]) -> int:
    return prod(high - low + 1 for _, low, high in limits)


def _spread(number: VaryingFloat, limits: tuple[tuple[str, int, int], ...]) -> Floats:
    """The values with an axis for each of the limits, among which are its own."""
    if not number.limits:
        return number.values.reshape((1,) * len(limits))
    return number.values.reshape(
        [high - low + 1 if (name, low, high) in number.limits else 1 for name, low, high in limits]
    )
