"""Dynamic extents: integers at their maximum that carry a symbolic expression.

Shape inference and shape arithmetic are written for integers. A `Dim` is an integer, so they work on it unchanged;
each operation also builds an expression in the model's symbols. Expressions have one canonical form, a sum of atoms
with integer factors plus a constant, so equal sums are equal objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd, prod
from typing import Any, Final

import numpy as np

# A larger expression is dropped: it is useless. Every expression that would contain it is dropped too.
_MAX_TERMS: Final = 16
_MAX_DEPTH: Final = 12
_MAX_SIZE: Final = 64
_WRAPS: Final = 2**63
# Largest number of combinations of extents tried to find the bounds of an expression.
_MAX_TRIED: Final = 1 << 16
_INFINITE: Final = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class Compound:
    """An atom made of two expressions: their product, floor quotient or remainder.

    `size` counts its atoms as written, `depth` the nesting of compounds. Both are stored, since parts may be shared
    many times.
    """

    operator: str
    left: Expression
    right: Expression
    size: int
    depth: int

    def __str__(self) -> str:
        return f"({self.left}) {self.operator} ({self.right})"


Atom = str | Compound


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """`constant` + the sum of factor × atom; terms sorted by their text."""

    terms: tuple[tuple[Atom, int], ...] = ()
    constant: int = 0

    def value(self, symbols: Mapping[str, int]) -> int:
        """The value for given values of the symbols; raises KeyError for a missing symbol."""
        return self.constant + sum(factor * _atom_value(atom, symbols) for atom, factor in self.terms)

    @property
    def symbols(self) -> frozenset[str]:
        """The names of its symbols."""
        found: set[str] = set()
        for atom, _ in self.terms:
            found |= {atom} if isinstance(atom, str) else atom.left.symbols | atom.right.symbols
        return frozenset(found)

    @property
    def depth(self) -> int:
        """The nesting depth of its compounds."""
        return max((atom.depth for atom, _ in self.terms if isinstance(atom, Compound)), default=0)

    @property
    def size(self) -> int:
        """The number of its atoms as written."""
        return sum(atom.size if isinstance(atom, Compound) else 1 for atom, _ in self.terms)

    def __str__(self) -> str:
        parts = []
        for atom, factor in self.terms:
            text = str(atom) if isinstance(atom, str) else f"({atom})"
            parts.append(text if factor == 1 else f"-{text}" if factor == -1 else f"{factor}*{text}")
        if self.constant or not parts:
            parts.append(str(self.constant))
        return " + ".join(parts).replace("+ -", "- ")


_DROPPED: Final = Expression(terms=(("?", 1),))


# The smallest and the largest value of each symbol.
Limits = Mapping[str, tuple[int, int]]


# Two expressions that would have to be equal at all extents.
Tie = tuple[Expression, Expression]


class Dim(int):
    """A varying extent: its value at the maxima, its expression, and the bounds of its symbols.

    One that varies in an unknown way may have `ties`: were these expressions equal, it would be `tied`; and say `why`.
    """

    expression: Expression
    limits: Limits
    ties: tuple[Tie, ...] = ()
    tied: Expression | None = None
    why: str = ""

    @classmethod
    def symbol(cls, name: str, maximum: int, minimum: int = 1) -> Dim:
        """The extent called `name`."""
        return cls._of(maximum, Expression(terms=((name, 1),)), {name: (minimum, maximum)})

    @classmethod
    def _of(cls, value: int, expression: Expression, limits: Limits) -> Dim:
        result = cls(value)
        result.expression = expression
        result.limits = limits
        return result

    def __add__(self, other: Any) -> Any:
        return _combined(self, other, int(self) + other, _sum)

    def __sub__(self, other: Any) -> Any:
        return _combined(self, other, int(self) - other, _difference)

    def __mul__(self, other: Any) -> Any:
        return _combined(self, other, int(self) * other, _product)

    def __floordiv__(self, other: Any) -> Any:
        return _combined(self, other, int(self) // other, _quotient)

    def __mod__(self, other: Any) -> Any:
        return _combined(self, other, int(self) % other, _remainder)

    def __radd__(self, other: Any) -> Any:
        return _combined(other, self, other + int(self), _sum)

    def __rsub__(self, other: Any) -> Any:
        return _combined(other, self, other - int(self), _difference)

    def __rmul__(self, other: Any) -> Any:
        return _combined(other, self, other * int(self), _product)

    def __rfloordiv__(self, other: Any) -> Any:
        return _combined(other, self, other // int(self), _quotient)

    def __rmod__(self, other: Any) -> Any:
        return _combined(other, self, other % int(self), _remainder)

    def __neg__(self) -> Any:
        return _combined(self, -1, -int(self), _product)

    def __pos__(self) -> Any:
        return self


def expression_of(extent: int) -> Expression | None:
    """The expression of a varying extent; None for a fixed extent or a dropped expression."""
    if not isinstance(extent, Dim) or extent.expression is _DROPPED:
        return None
    return extent.expression if extent.expression.terms else None


def unknown_extent(value: int, ties: tuple[Tie, ...] = (), *, why: str = "") -> Dim:
    """An extent that may vary in an unknown way; it is `value` at the maxima."""
    found = Dim._of(value, _DROPPED, {})
    found.ties = ties
    found.why = why
    return found


def tied_extent(a: int, b: int) -> Dim:
    """The extent that two numbers would be if they were equal at all extents, which they are not; `a` at the maxima."""
    found = unknown_extent(int(a), tuple(dict.fromkeys((*ties_in((a, b)), *ties_of(a, b)))))
    found.tied = _once_tied(a if isinstance(a, Dim) else b)
    return found


def _once_tied(value: int) -> Expression | None:
    """The expression of a number, if its ties hold; None for one that varies in an unknown way even so."""
    return value.tied if isinstance(value, Dim) and value.expression is _DROPPED else _as_expression(value)


def ties_of(a: int, b: int) -> tuple[Tie, ...]:
    """What would have to hold, beside their own ties, for two numbers to be equal at all extents.

    Nothing if neither may vary, or if one varies in an unknown way.
    """
    left, right = _once_tied(a), _once_tied(b)
    if left is None or right is None or not (left.terms or right.terms):
        return ()
    return ((left, right),) if left != right else ()


def ties_in(extents: tuple[int, ...]) -> tuple[Tie, ...]:
    """What would have to be equal for the extents of a shape to be known."""
    return tuple(dict.fromkeys(tie for extent in extents if isinstance(extent, Dim) for tie in extent.ties))


def bounds_of(value: int) -> tuple[float, float]:
    """The bounds of a number over all extents, both included; at least as tight as interval arithmetic."""
    if not isinstance(value, Dim):
        return value, value
    expression = value.expression
    found = interval_of(expression, value.limits)
    if all(isinstance(atom, str) for atom, _ in expression.terms) or not max(map(abs, found)) < _WRAPS // 2:
        return found
    ends = [value.limits[name] for name in sorted(expression.symbols)]
    if prod(high - low + 1 for low, high in ends) > _MAX_TRIED:
        return found
    every = np.meshgrid(*(np.arange(low, high + 1, dtype=np.int64) for low, high in ends), sparse=True)
    try:
        tried = np.asarray(expression.value(dict(zip(sorted(expression.symbols), every, strict=True))))  # type: ignore[arg-type]
    except OverflowError:
        return found  # a number of the expression has more than 64 bits
    return int(tried.min()), int(tried.max())


def is_always_least(value: int, other: int) -> bool | None:
    """True if `value` is at most `other` at all extents, False if at none, None if that depends on the extents."""
    difference = value - other
    if is_dropped(difference):
        return None
    low, high = bounds_of(difference)
    return True if high <= 0 else False if low > 0 else None


def lesser(a: int, b: int) -> int:
    """The smaller number; of unknown expression if the extents decide which one it is."""
    least = is_always_least(a, b)
    if least is None:
        return b if is_always_least(b, a) else unknown_extent(int(min(a, b)))
    return a if least else b


def greater(a: int, b: int) -> int:
    """The larger number; of unknown expression if the extents decide which one it is."""
    least = is_always_least(a, b)
    if least is None:
        return a if is_always_least(b, a) else unknown_extent(int(max(a, b)))
    return b if least else a


def is_dropped(value: object) -> bool:
    """True for an extent that varies in an unknown way."""
    return isinstance(value, Dim) and value.expression is _DROPPED


def symbols_of(extents: tuple[int, ...]) -> tuple[tuple[int, Expression], ...]:
    """The varying axes of a shape, with their expressions."""
    found = ((axis, expression_of(extent)) for axis, extent in enumerate(extents))
    return tuple((axis, expression) for axis, expression in found if expression is not None)


def _combined(left: Any, right: Any, value: Any, rule: Any) -> Any:
    """`value` with the combined expression; unchanged if an operand or the result is not an integer."""
    a, b = _as_expression(left), _as_expression(right)
    if a is None or b is None or value != int(value):
        return value
    if not -_WRAPS <= value < _WRAPS:
        # wraps as the 64-bit arithmetic of the model would; no expression describes that
        return unknown_extent((int(value) + _WRAPS) % (2 * _WRAPS) - _WRAPS)
    if a is _DROPPED or b is _DROPPED:
        return unknown_extent(int(value))
    expression = _shorter(rule(a, b))
    if len(expression.terms) > _MAX_TERMS or expression.depth > _MAX_DEPTH or expression.size > _MAX_SIZE:
        return unknown_extent(int(value))
    limits: Limits = {**getattr(left, "limits", {}), **getattr(right, "limits", {})}
    return Dim._of(int(value), expression, limits) if expression.terms else int(value)


def _as_expression(value: Any) -> Expression | None:
    if isinstance(value, Dim):
        return value.expression
    if isinstance(value, bool) or value != value or value in (float("inf"), float("-inf")):
        return None
    return Expression(constant=int(value)) if value == int(value) else None


def _shorter(a: Expression) -> Expression:
    """The normal form of a sum that has compounds, if that has fewer atoms: what cancels out is gone."""
    if not a.depth or len(a.terms) == 1:
        return a
    normal = _normal(a)
    return normal if normal.size < a.size else a


def _collected(terms: list[tuple[Atom, int]], constant: int) -> Expression:
    total: dict[Atom, int] = {}
    for atom, factor in terms:
        total[atom] = total.get(atom, 0) + factor
    kept = [(atom, factor) for atom, factor in total.items() if factor]
    return Expression(terms=tuple(sorted(kept, key=lambda term: str(term[0]))), constant=constant)


def _sum(a: Expression, b: Expression) -> Expression:
    return _collected([*a.terms, *b.terms], a.constant + b.constant)


def _difference(a: Expression, b: Expression) -> Expression:
    return _sum(a, _scaled(b, -1))


def _scaled(a: Expression, factor: int) -> Expression:
    return _collected([(atom, own * factor) for atom, own in a.terms], a.constant * factor)


def _product(a: Expression, b: Expression) -> Expression:
    if not a.terms:
        return _scaled(b, a.constant)
    if not b.terms:
        return _scaled(a, b.constant)
    first, second = _single(a), _single(b)
    if first is not None and second is not None:
        # factors are moved out of the product, so that equal products are equal atoms
        factors = sorted((Expression(terms=((first[0], 1),)), Expression(terms=((second[0], 1),))), key=str)
        return _scaled(_compound("*", *factors), first[1] * second[1])
    return _compound("*", *sorted((a, b), key=str))


def _quotient(a: Expression, b: Expression) -> Expression:
    if not b.terms and b.constant:
        return _floor(a, b.constant) if b.constant > 0 else _floor(_scaled(a, -1), -b.constant)
    if _normal(_difference(a, b)) == Expression():
        return Expression(constant=1)
    over, under = _single(a), _single(b)
    if over is not None and under is not None and over[1] % under[1] == 0:
        # extents are not 0, so common factors cancel
        rest = _without(over[0], under[0])
        if rest is not None:
            return _scaled(rest, over[1] // under[1])
    return _compound("//", a, b)


def _floor(a: Expression, divisor: int, *, is_normal: bool = False) -> Expression:
    """The floor of `a` over a positive number: whole multiples move out, common factors cancel, floors join.

    floor((d·x + y) / d) = x + floor(y / d); floor((g·y + c) / (g·d)) = floor((y + floor(c / g)) / d);
    floor((floor(x / e) + c) / d) = floor((x + e·c) / (e·d)). With `is_normal` equal floors become one object, which
    may have looser bounds by interval arithmetic.
    """
    rounded = _nearest if is_normal else _toward_zero
    multiples = [(atom, rounded(factor, divisor)) for atom, factor in a.terms]
    whole = _collected(multiples, a.constant // divisor)
    inside = _difference(a, _scaled(whole, divisor))
    if not inside.terms:
        return whole
    common = gcd(divisor, *(factor for _, factor in inside.terms))
    terms = tuple((atom, factor // common) for atom, factor in inside.terms)
    constant, divisor = inside.constant // common, divisor // common
    joined = _floor_of_floor(*terms[0], constant, divisor, is_normal=is_normal) if len(terms) == 1 else None
    if joined is not None:
        return _sum(whole, joined)
    rest = Expression(terms=terms, constant=constant)
    if is_normal and terms[0][1] < 0:
        # floor((c - y) / d) = -floor((y - c + d - 1) / d)
        turned = _sum(_scaled(rest, -1), Expression(constant=divisor - 1))
        return _difference(whole, _floor(turned, divisor, is_normal=True))
    if is_normal and divisor == 2 and constant:
        # floor((y + 1) / 2) = y - floor(y / 2)
        halved = Expression(terms=terms)
        return _difference(_sum(whole, halved), _floor(halved, 2, is_normal=True))
    return _sum(whole, _compound("//", rest, Expression(constant=divisor)))


def _floor_of_floor(atom: Atom, factor: int, constant: int, divisor: int, *, is_normal: bool) -> Expression | None:
    """The floor of (`factor` · `atom` + `constant`) over a divisor as one floor; None if `atom` is no floor."""
    if not isinstance(atom, Compound) or atom.operator != "//" or factor not in (1, -1):
        return None
    inner = atom.right.constant
    if atom.right.terms or inner <= 0:
        return None
    # minus a floor is the floor of minus what is divided, after rounding up
    over = atom.left if factor == 1 else _sum(_scaled(atom.left, -1), Expression(constant=inner - 1))
    if max(inner * divisor, abs(inner * constant)) >= _WRAPS // 2:
        return None  # bounds are told in 64 bits
    return _floor(_sum(over, Expression(constant=inner * constant)), inner * divisor, is_normal=is_normal)


def _toward_zero(factor: int, divisor: int) -> int:
    """The quotient rounded towards 0: all parts of a term keep its sign, so that bounds stay as tight."""
    return factor // divisor if factor >= 0 else -(-factor // divisor)


def _nearest(factor: int, divisor: int) -> int:
    """The nearest whole quotient, the lower of two."""
    return -((divisor - 2 * factor) // (2 * divisor))


def _remainder(a: Expression, b: Expression) -> Expression:
    """The remainder beside the floor quotient; what is a multiple of a positive divisor is left out."""
    if b.terms or b.constant <= 0:
        return _compound("%", a, b)
    divisor = b.constant
    total = Expression(constant=a.constant)
    for atom, factor in a.terms:
        part = Expression(terms=((atom, 1),))
        if isinstance(atom, Compound) and atom.operator == "%" and not atom.right.terms:
            # (x % e) and x differ by a multiple of e
            part = atom.left if factor * atom.right.constant % divisor == 0 else part
        total = _sum(total, _scaled(part, factor))
    kept = [(atom, factor - divisor * _nearest(factor, divisor)) for atom, factor in total.terms]
    rest = _collected(kept, total.constant % divisor)
    return _compound("%", rest, b) if rest.terms else rest


def _normal(a: Expression) -> Expression:
    """The form in which equal sums of products, and of floors and remainders by numbers, are equal objects.

    What would have more atoms than an expression may have stays as it is written: products of sums of products grow
    without end. Bounds by interval arithmetic may be looser than those of `a`.
    """
    total = Expression(constant=a.constant)
    for atom, factor in a.terms:
        total = _sum(total, _scaled(_normal_atom(atom), factor))
    return total if total.size <= _MAX_SIZE else a


def _normal_atom(atom: Atom) -> Expression:
    plain = Expression(terms=((atom, 1),))
    if isinstance(atom, str):
        return plain
    left, right = _normal(atom.left), _normal(atom.right)
    if atom.operator == "*":
        products = left.size * max(1, len(right.terms)) + right.size * max(1, len(left.terms))
        return _distributed(left, right) if products <= _MAX_SIZE else plain
    if atom.operator in ("//", "%") and not right.terms and right.constant > 0:
        floor = _floor(left, right.constant, is_normal=True)
        found = floor if atom.operator == "//" else _difference(left, _scaled(floor, right.constant))
    else:
        found = _compound(atom.operator, left, right)
    return found if found.size <= _MAX_SIZE else plain


def _distributed(a: Expression, b: Expression) -> Expression:
    """The product of two sums as a sum of products, whose factors are in order."""
    products: list[tuple[Atom, int]] = []
    for first, own in a.terms:
        for second, other in b.terms:
            factors = sorted([*_factors(first), *_factors(second)], key=str)
            product = Expression(terms=((factors[0], 1),))
            for factor in factors[1:]:
                product = _compound("*", product, Expression(terms=((factor, 1),)))
            products.append((product.terms[0][0], own * other))
    rest = _sum(_scaled(Expression(terms=a.terms), b.constant), _scaled(Expression(terms=b.terms), a.constant))
    return _sum(_collected(products, a.constant * b.constant), rest)


def _factors(atom: Atom) -> list[Atom]:
    if isinstance(atom, Compound) and atom.operator == "*":
        left, right = _single(atom.left), _single(atom.right)
        if left is not None and right is not None and left[1] == right[1] == 1:
            return [*_factors(left[0]), *_factors(right[0])]
    return [atom]


def _single(a: Expression) -> tuple[Atom, int] | None:
    """The only term of an expression without a constant; None for any other expression."""
    return a.terms[0] if len(a.terms) == 1 and not a.constant else None


def _without(atom: Atom, factor: Atom) -> Expression | None:
    """The atom divided by one of its factors; None if `factor` does not divide it."""
    if atom == factor:
        return Expression(constant=1)
    if isinstance(atom, Compound) and atom.operator == "*":
        for part, other in ((atom.left, atom.right), (atom.right, atom.left)):
            single = _single(part)
            if single is not None and single[1] == 1:
                rest = _without(single[0], factor)
                if rest is not None:
                    return _product(rest, other)
    return None


def _compound(operator: str, a: Expression, b: Expression) -> Expression:
    size, depth = 1 + a.size + b.size, 1 + max(a.depth, b.depth)
    return Expression(terms=((Compound(operator=operator, left=a, right=b, size=size, depth=depth), 1),))


def _atom_value(atom: Atom, symbols: Mapping[str, int]) -> int:
    if isinstance(atom, str):
        return symbols[atom]
    left, right = atom.left.value(symbols), atom.right.value(symbols)
    match atom.operator:
        case "*":
            return left * right
        case "//":
            return left // right
        case _:
            return left % right


def interval_of(expression: Expression, limits: Limits) -> tuple[float, float]:
    """The bounds of an expression by interval arithmetic; the true range may be narrower."""
    low: float = expression.constant
    high: float = expression.constant
    for atom, factor in expression.terms:
        ends = sorted(factor * end for end in _atom_bounds(atom, limits))
        low, high = low + ends[0], high + ends[1]
    return low, high


def _atom_bounds(atom: Atom, limits: Limits) -> tuple[float, float]:
    if isinstance(atom, str):
        return limits.get(atom, (-_INFINITE, _INFINITE))
    left, right = interval_of(atom.left, limits), interval_of(atom.right, limits)
    if _INFINITE in (*left, *right) or -_INFINITE in (*left, *right):
        return -_INFINITE, _INFINITE
    if atom.operator == "*":
        found = [a * b for a in left for b in right]
    elif right[0] <= 0:
        return -_INFINITE, _INFINITE
    elif atom.operator == "//":
        found = [a // b for a in left for b in right]
    else:
        found = [0, right[1] - 1]
    return min(found), max(found)
