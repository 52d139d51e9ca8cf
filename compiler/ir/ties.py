"""Dimensions of a model that its ops force to be equal to others (SHAPE-9).

Exporters name the batch of every input apart (`unk__10`, `unk__11`), or the length of a mask apart from those of the
texts that it covers. Ops that take the inputs together say which of them are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, islice
from math import gcd
from types import MappingProxyType
from typing import Any, Final

from compiler.errors import ModelError
from compiler.ir.symbol import Dim, Expression, Tie, expression_of

# The value of every symbol while expressions are rewritten. A prime, since few remainders of it are 0, by which nothing
# can be divided; products of several stay below the 64 bits beyond which no expression is kept.
_VALUE: Final = 1009
# A tie of more dimensions than this says none by making two of them equal: there are too many pairs to try.
_MOST_NAMES: Final = 8
# Ties of one refusal that are solved. What the others say comes with the next refusal.
_MOST_TIES: Final = 128


class UnequalExtentsError(ModelError):
    """The model means nothing, or nothing known, at extents where the two expressions of a tie differ."""

    def __init__(self, message: str, *, ties: tuple[Tie, ...], **parts: Any) -> None:
        super().__init__(message, **parts)
        self.ties = ties


def equal_dimensions(
    ties: Iterable[Tie], known: Mapping[str, Expression] = MappingProxyType({})
) -> dict[str, Expression]:
    """By name, the dimensions that are said by others if the two sides of each tie are equal, with those `known`.

    A dimension is what a tie says of it alone: another one, or a sum of others and of floors, products and remainders
    of others (`a + b`, `h // 2`, `a // b`). No term is taken away from it, but a floor or a remainder may be 0 or less
    at some extents: whoever knows the ranges refuses these. Of two dimensions the one whose name comes first stays.
    One that would have a single extent is left: whoever asks for more should hear that there are none. A tie of
    compounds, such as `h // 2` and `k // 2`, makes two dimensions equal if that makes its sides equal: this asks for
    more than the op does, and is tried for ties of a few dimensions. Ties that give no dimension are left out, and all
    after the first 128.
    """
    found = dict(known)
    for tie in islice(ties, _MOST_TIES):
        left, right = (_replaced(side, found) for side in tie)
        if left is None or right is None:
            continue
        solved = _summand(left, right) or _pair(left, right)
        if solved is not None:
            name, expression = solved
            others = {other: _replaced(one, {name: expression}) for other, one in found.items()}
            varying = {other: one for other, one in others.items() if one is not None and one.terms}
            if len(varying) == len(found):
                found = {**varying, name: expression}
    return found


def _summand(left: Expression, right: Expression) -> tuple[str, Expression] | None:
    """A dimension that is a term of two expressions, and what it is where they are equal; None if there is none."""
    expression = _difference(left, right)
    for name, factor in reversed(() if expression is None else expression.terms):
        assert expression is not None
        others = tuple(term for term in expression.terms if term[0] != name)
        rest = Expression(terms=others, constant=expression.constant)
        if isinstance(name, str) and name not in rest.symbols:
            found = _divided(rest, -factor)
            if found is not None and found.terms:
                return name, found
    return None


def _pair(left: Expression, right: Expression) -> tuple[str, Expression] | None:
    """A dimension and another one that it is if this makes two expressions equal; None for two that are anyway."""
    names, difference = sorted(left.symbols | right.symbols), _difference(left, right)
    if len(names) > _MOST_NAMES or (difference is not None and not difference.terms):
        return None
    for kept, name in combinations(names, 2):
        same = {name: Expression(terms=((kept, 1),))}
        one, other = _replaced(left, same), _replaced(right, same)
        if one is not None and other is not None:
            difference = _difference(one, other)
            if difference is not None and not difference.terms:
                return None if difference.constant else (name, same[name])
    return None


def _divided(expression: Expression, divisor: int) -> Expression | None:
    """The quotient, if it is whole and none of its parts is negative."""
    numbers = [expression.constant, *(factor for _, factor in expression.terms)]
    if gcd(divisor, *numbers) != abs(divisor) or any(number * divisor < 0 for number in numbers):
        return None
    terms = tuple((atom, factor // divisor) for atom, factor in expression.terms)
    return Expression(terms=terms, constant=expression.constant // divisor)


def _replaced(expression: Expression, known: Mapping[str, Expression]) -> Expression | None:
    """An expression with some dimensions said by others; None for one that grows too large."""
    if expression.symbols.isdisjoint(known):
        return expression
    return _rewritten(
        lambda: expression.value({n: _dim(known[n]) if n in known else _symbol(n) for n in expression.symbols})
    )


def _difference(left: Expression, right: Expression) -> Expression | None:
    """The difference of two expressions; None for one that grows too large."""
    return _rewritten(lambda: _dim(left) - _dim(right))


def _rewritten(value: Callable[[], int]) -> Expression | None:
    """The expression of a number that dimensions are made into; None if it has none, or divides by 0."""
    try:
        found = value()
    except ZeroDivisionError:
        return None
    return expression_of(found) if isinstance(found, Dim) else Expression(constant=found)


def _dim(expression: Expression) -> int:
    return expression.value({name: _symbol(name) for name in expression.symbols})


def _symbol(name: str) -> int:
    return Dim.symbol(name, _VALUE)
