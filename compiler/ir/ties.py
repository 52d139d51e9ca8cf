"""Dimensions of a model that its ops force to be equal to others (SHAPE-9).

Exporters name the batch of every input apart (`unk__10`, `unk__11`), or the length of a mask apart from those of the
texts that it covers. Ops that take the inputs together say which of them are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from math import gcd
from typing import Any, Final

from compiler.errors import ModelError
from compiler.ir.symbol import Dim, Expression, Tie, expression_of

# The value at which expressions are compared; any large one does.
_LARGE: Final = 1 << 20


class UnequalExtentsError(ModelError):
    """The model means nothing, or nothing known, at extents where the two expressions of a tie differ."""

    def __init__(self, message: str, *, ties: tuple[Tie, ...], **parts: Any) -> None:
        super().__init__(message, **parts)
        self.ties = ties


def equal_dimensions(ties: Iterable[Tie]) -> dict[str, Expression]:
    """By name, the dimensions that are said by others if the two sides of each tie are equal.

    A dimension is another one, or a sum of others without negative parts. Of two the one whose name comes first stays.
    One that would have a single extent is left: whoever asks for more should hear that there are none. A tie of
    compounds, such as `h // 2` and `k // 2`, makes two dimensions equal if that makes its sides equal: this asks for
    more than the op does. Ties that give no dimension are left out.
    """
    found: dict[str, Expression] = {}
    for tie in ties:
        left, right = (_replaced(side, found) for side in tie)
        solved = None if left is None or right is None else _solved(left, right)
        if solved is not None:
            name, expression = solved
            others = {other: _replaced(one, {name: expression}) for other, one in found.items()}
            varying = {other: one for other, one in others.items() if one is not None and one.terms}
            if len(varying) == len(found):
                found = {**varying, name: expression}
    return found


def _solved(left: Expression, right: Expression) -> tuple[str, Expression] | None:
    """A dimension and what it is where two expressions are equal; None if they are anyway, or say no dimension."""
    difference = _dim(left) - _dim(right)
    if not isinstance(difference, Dim):
        return None
    expression = expression_of(difference)
    for name, factor in reversed(() if expression is None else expression.terms):
        assert expression is not None
        others = tuple(term for term in expression.terms if term[0] != name)
        rest = Expression(terms=others, constant=expression.constant)
        if isinstance(name, str) and name not in rest.symbols:
            found = _divided(rest, -factor)
            if found is not None and found.terms:
                return name, found
    for kept, name in combinations(sorted(left.symbols | right.symbols), 2):
        same = {name: Expression(terms=((kept, 1),))}
        one, other = _replaced(left, same), _replaced(right, same)
        if one is not None and other is not None and not isinstance(_dim(one) - _dim(other), Dim):
            return (name, same[name]) if _dim(one) == _dim(other) else None
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
    symbols = {name: _dim(known[name]) if name in known else _symbol(name) for name in expression.symbols}
    try:
        found = expression.value(symbols)
    except ZeroDivisionError:
        return None
    return expression_of(found) if isinstance(found, Dim) else Expression(constant=found)


def _dim(expression: Expression) -> int:
    return expression.value({name: _symbol(name) for name in expression.symbols})


def _symbol(name: str) -> int:
    return Dim.symbol(name, _LARGE)
