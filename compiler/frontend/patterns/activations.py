"""Written-out activations: Gelu (both forms), SiLU and its relatives, HardSigmoid, HardSwish (IMPORT-2).

Each has a core t = core(u), with u a polynomial of the input x, and a result that is a polynomial of x and t:

    gelu           t = erf(x/√2)                          x/2 + x·t/2
    gelu (tanh)    t = tanh(√(2/π)·(x + 0.044715·x³))     x/2 + x·t/2
    silu, swish    t = sigmoid(alpha·x)                   x·t            as Swish(alpha); SiLU where alpha is 1
    hard-swish     t = HardSigmoid(x; 1/6, 1/2)           x·t
    hard-swish     t = clip(a·x + b, 0, m)                c·x·t          with c·a = 1/6, c·b = 1/2, c·m = 1
    hard-sigmoid   t = clip(a·x + b, 0, m)                c·t            with c·b = 1/2, c·m = 1, alpha = c·a
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import isclose, pi, sqrt
from types import MappingProxyType
from typing import Final

from compiler.frontend.patterns.graph_queries import Lookup, Replacement, Rewrite, is_near
from compiler.frontend.patterns.polynomial import Expansion, Polynomial, Terms
from compiler.ir.graph import Attribute, Op

# Largest number of ops between the core and the result, and between x and its use in the core or the result.
_AFTER: Final = 4
_BEFORE: Final = 3

_ONE: Final = (0, 0)
_X: Final = (1, 0)
_T: Final = (0, 1)
_XT: Final = (1, 1)
_CUBE: Final = (3, 0)
_HALVES: Final[Terms] = MappingProxyType({_X: 0.5, _XT: 0.5})
_ERF: Final[Terms] = MappingProxyType({_X: 1 / sqrt(2)})
_TANH: Final[Terms] = MappingProxyType({_X: sqrt(2 / pi), _CUBE: sqrt(2 / pi) * 0.044715})

# The pattern's name, the kind of the replacing op, and its attributes.
Verdict = tuple[str, str, Mapping[str, Attribute]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Core:
    """A kind of core op: its allowed inputs, and the pattern that it forms with a result.

    `accepts` gets the core, the polynomial of its input and the element type; `verdict` also gets the result's
    polynomial.
    """

    accepts: Callable[[Op, Polynomial, str], bool]
    verdict: Callable[[Op, Polynomial, Polynomial, str], Verdict | None]


def _gelu(inner: Terms, approximate: str) -> _Core:
    def accepts(core: Op, found: Polynomial, dtype: str) -> bool:
        del core
        return found.equals(inner, dtype)

    def verdict(core: Op, found: Polynomial, result: Polynomial, dtype: str) -> Verdict | None:
        del core, found, dtype
        return ("gelu", "Gelu", {"approximate": approximate}) if _is_exactly(result, _HALVES) else None

    return _Core(accepts=accepts, verdict=verdict)


def _is_linear(core: Op, inner: Polynomial, dtype: str) -> bool:
    del core, dtype
    return inner.terms.keys() == {_X}


def _swish(core: Op, inner: Polynomial, result: Polynomial, dtype: str) -> Verdict | None:
    del core
    alpha = inner.terms[_X]
    if not _is_exactly(result, {_XT: 1.0}):
        return None
    return "silu" if is_near(alpha, 1.0, dtype) else "swish", "Swish", {"alpha": alpha}


def _is_sixth(core: Op, inner: Polynomial, dtype: str) -> bool:
    alpha, beta = _number(core, "alpha", 0.2), _number(core, "beta", 0.5)
    return not inner.ops and is_near(alpha, 1 / 6, dtype) and is_near(beta, 0.5, dtype)


def _gated(core: Op, inner: Polynomial, result: Polynomial, dtype: str) -> Verdict | None:
    del core, inner, dtype
    return ("hard-swish", "HardSwish", {}) if _is_exactly(result, {_XT: 1.0}) else None


def _is_shifted(core: Op, inner: Polynomial, dtype: str) -> bool:
    del dtype
    return inner.terms.keys() == {_X, _ONE} and _number(core, "min", float("-inf")) == 0


def _clipped(core: Op, inner: Polynomial, result: Polynomial, dtype: str) -> Verdict | None:
    if len(result.terms) != 1:
        return None
    ((powers, factor),) = result.terms.items()
    top = factor * _number(core, "max", float("inf"))
    alpha, beta = factor * inner.terms[_X], factor * inner.terms[_ONE]
    if not is_near(top, 1.0, dtype) or not is_near(beta, 0.5, dtype):
        return None
    if powers == _T:
        return "hard-sigmoid", "HardSigmoid", {"alpha": alpha, "beta": 0.5}
    return ("hard-swish", "HardSwish", {}) if powers == _XT and is_near(alpha, 1 / 6, dtype) else None


def _is_exactly(polynomial: Polynomial, wanted: Terms) -> bool:
    """True if the terms are `wanted`; no element type rounds coefficients such as 1 and 1/2."""
    terms = polynomial.terms
    return terms.keys() == wanted.keys() and all(isclose(terms[k], wanted[k], rel_tol=1e-6) for k in wanted)


def _number(op: Op, name: str, default: float) -> float:
    value = dict(op.attributes).get(name, default)
    return float(value) if isinstance(value, int | float) else default


def _rewrite(sort: _Core) -> Rewrite:
    """The rewrite at a core op: the pattern that covers the most ops."""

    def rewrite(lookup: Lookup, index: int) -> Replacement | None:
        core = lookup.graph.ops[index]
        best = None
        for x in _candidates(lookup, core):
            inner, dtype = Expansion(lookup, x).of(core.inputs[0]), lookup.tensor(x).dtype
            if inner is None or not sort.accepts(core, inner, dtype):
                continue
            for result in _continuations(lookup, core, x):
                verdict = sort.verdict(core, inner, result, dtype)
                ops = tuple(sorted(inner.ops | result.ops | {index}))
                if verdict is None or not lookup.is_closed(ops) or (best is not None and len(ops) <= len(best.ops)):
                    continue
                pattern, kind, attributes = verdict
                best = Replacement(pattern=pattern, ops=ops, kind=kind, inputs=(x,), attributes=attributes)
        return best

    return rewrite


def _candidates(lookup: Lookup, core: Op) -> Iterator[str]:
    """Candidates for x: the factor multiplied with the core's result, and its sources; for Clip, its input."""
    start = core.inputs[0] if core.kind == "Clip" else _partner(lookup, core.output)
    for _ in range(_BEFORE):
        if start is None:
            return
        yield start
        maker = lookup.maker(start, "Mul", "Div", "Add", "Sub")
        split = lookup.split(lookup.graph.ops[maker]) if maker is not None else None
        start = split[0] if split is not None else None


def _partner(lookup: Lookup, name: str) -> str | None:
    """The first computed value that multiplies `name`, after arithmetic with constants; None if there is none."""
    for _ in range(_AFTER):
        reader = lookup.sole_reader(name, "Mul", "Div", "Add", "Sub", "Sum")
        if reader is None:
            return None
        op = lookup.graph.ops[reader]
        if lookup.split(op) is None:
            others = [other for other in op.inputs if other != name]
            return others[0] if op.kind == "Mul" and others else None
        name = op.output
    return None


def _continuations(lookup: Lookup, core: Op, x: str) -> Iterator[Polynomial]:
    """The core's result and the following values computed from x and it alone."""
    name, expansion = core.output, Expansion(lookup, x, core.output)
    for _ in range(_AFTER + 1):
        result = expansion.of(name)
        if result is None:
            return
        yield result
        reader = lookup.sole_reader(name)
        if reader is None:
            return
        name = lookup.graph.ops[reader].output


ACTIVATIONS: Final[Mapping[str, Rewrite]] = MappingProxyType(
    {
        "Erf": _rewrite(_gelu(_ERF, "none")),
        "Tanh": _rewrite(_gelu(_TANH, "tanh")),
        "Sigmoid": _rewrite(_Core(accepts=_is_linear, verdict=_swish)),
        "HardSigmoid": _rewrite(_Core(accepts=_is_sixth, verdict=_gated)),
        "Clip": _rewrite(_Core(accepts=_is_shifted, verdict=_clipped)),
    }
)
