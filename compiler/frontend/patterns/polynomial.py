"""Values as polynomials of two others, so that the order of multiplications and additions does not matter.

0.5·x·(1 + t), (x·0.5)·(t + 1) and x/2 + x·t/2 are the same polynomial of x and t.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Final

from compiler.frontend.patterns.graph_queries import Lookup, is_near
from compiler.ir.graph import Op

# Exponents of the two variables.
Powers = tuple[int, int]
Terms = Mapping[Powers, float]
_DEGREE: Final = 4
_MAX_OPS: Final = 16
_ONE: Final[Powers] = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Polynomial:
    """Nonzero coefficients by powers, and the indices of the ops that compute it."""

    terms: Terms
    ops: frozenset[int]

    def equals(self, wanted: Terms, dtype: str) -> bool:
        """True if it has exactly the wanted terms, within the rounding of `dtype`."""
        if self.terms.keys() != wanted.keys():
            return False
        return all(is_near(self.terms[powers], factor, dtype) for powers, factor in wanted.items())


class Expansion:
    """Values as polynomials of `x` and `t`, which share shape and element type; remembers the expanded ops.

    Constants have one element and at most as many axes as x, so all values keep x's shape. Limits: 16 ops, degree 4.
    """

    def __init__(self, lookup: Lookup, x: str, t: str | None = None) -> None:
        self.lookup = lookup
        self.rank = len(lookup.tensor(x).shape)
        self.known: dict[str, Terms | None] = {x: {(1, 0): 1.0}}
        if t is not None:
            self.known[t] = {(0, 1): 1.0}
        self.ops: set[int] = set()

    def of(self, name: str) -> Polynomial | None:
        """`name` as a polynomial, with all ops passed so far; None if it is not a polynomial."""
        terms = self._terms(name)
        if terms is None or not all(isfinite(factor) for factor in terms.values()):
            return None
        return Polynomial(terms=terms, ops=frozenset(self.ops))

    def _terms(self, name: str) -> Terms | None:
        if name not in self.known:
            value = self.lookup.scalar(name)
            if value is None:
                self.known[name] = self._made(name)
            elif len(self.lookup.tensor(name).shape) <= self.rank:
                self.known[name] = {_ONE: value} if value else {}
            else:
                self.known[name] = None
        return self.known[name]

    def _made(self, name: str) -> Terms | None:
        index = self.lookup.maker(name, "Add", "Sum", "Sub", "Neg", "Mul", "Div", "Pow")
        if index is None or len(self.ops) == _MAX_OPS:
            return None
        self.ops.add(index)
        op = self.lookup.graph.ops[index]
        if op.kind == "Pow":
            return self._power(op)
        parts = [self._terms(part) for part in op.inputs]
        if any(part is None for part in parts):
            return None
        return _combined(op.kind, [part for part in parts if part is not None])

    def _power(self, op: Op) -> Terms | None:
        base, exponent = self._terms(op.inputs[0]), self.lookup.scalar(op.inputs[1])
        if base is None or exponent not in (1, 2, 3, 4):
            return None
        result: Terms | None = base
        for _ in range(int(exponent) - 1):
            result = _product(result, base) if result is not None else None
        return result


def _combined(kind: str, parts: list[Terms]) -> Terms | None:
    match kind:
        case "Add" | "Sum":
            return _sum([(part, 1.0) for part in parts])
        case "Sub":
            return _sum([(parts[0], 1.0), (parts[1], -1.0)])
        case "Neg":
            return _sum([(parts[0], -1.0)])
        case "Mul":
            return _product(parts[0], parts[1])
        case _:
            divisor = parts[1]
            if divisor.keys() != {_ONE}:
                return None
            return {powers: factor / divisor[_ONE] for powers, factor in parts[0].items()}


def _sum(parts: list[tuple[Terms, float]]) -> Terms:
    total: dict[Powers, float] = {}
    for terms, sign in parts:
        for powers, factor in terms.items():
            total[powers] = total.get(powers, 0.0) + sign * factor
    return {powers: factor for powers, factor in total.items() if factor}


def _product(left: Terms, right: Terms) -> Terms | None:
    total: dict[Powers, float] = {}
    for (a, b), factor in left.items():
        for (c, d), other in right.items():
            powers = (a + c, b + d)
            if sum(powers) > _DEGREE:
                return None
            total[powers] = total.get(powers, 0.0) + factor * other
    return {powers: factor for powers, factor in total.items() if factor}
