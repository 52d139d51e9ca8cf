"""Rules that a user adds: a comparison of two linear sums over the documented figures of a group's tiling.

No code is evaluated: a text of bounded length is split into numbers, names of figures and signs, and nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from compiler.errors import RequestError, did_you_mean, printable

# The longest text of a rule.
MAX_LENGTH: Final = 200
_LARGEST: Final = 1e18
_TOKEN: Final = re.compile(r"\s*(?:(\d+(?:\.\d+)?(?:[eE][+-]?\d{1,2})?)|([a-z_]+)|(<=|>=|[-+*]))")


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureName:
    """A figure that rules may name: its meaning, the field of `Figures` it is read from, and how steps are folded."""

    meaning: str
    field: str
    fold: Literal["none", "max", "count"] = "none"


# What added rules may name (SPEC section 5.1). All are known of candidate tiles, so that the search sees them too.
FIGURES: Final[Mapping[str, FigureName]] = MappingProxyType(
    {
        "ops": FigureName(meaning="ops of the group", field="step_outputs", fold="count"),
        "maps": FigureName(meaning="feature maps (images) in one SRAM tile", field="images"),
        "input_bytes": FigureName(meaning="bytes of the tile's input (IN)", field="inputs"),
        "output_bytes": FigureName(meaning="bytes of the tile's result (OUT)", field="outputs"),
        "staging_bytes": FigureName(
            meaning="bytes of the staging buffer for the next tile (IN2); 0 without double buffering", field="staging"
        ),
        "live_bytes": FigureName(meaning="the most that is live in the tile's memory at once", field="peak"),
        "weights_bytes": FigureName(meaning="what a core holds of weights at once", field="needed_weights"),
        "step_weights_bytes": FigureName(
            meaning="the most weights that one op needs in a core (W_i)", field="core_weights", fold="max"
        ),
        "sram_bytes": FigureName(
            meaning="the memory that a tile may use (S): the SRAM, or without one the core's memory", field="capacity"
        ),
        "core_bytes": FigureName(meaning="a core's activation memory", field="core_capacity"),
        "weight_memory_bytes": FigureName(meaning="what a core has for weights", field="weight_memory"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """A linear sum: a constant, and figures with their factors."""

    constant: float
    terms: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRule:
    """An added rule: `left` is at most `right`, or at least where `at_least`."""

    name: str
    left: Sum
    right: Sum
    at_least: bool


def bounded(name: str, figure: str, bound: float, *, at_least: bool) -> LinearRule:
    """A rule that bounds one figure; raises RequestError for a figure that does not exist."""
    _known(figure, name)
    return LinearRule(
        name=name,
        left=Sum(constant=0.0, terms=((figure, 1.0),)),
        right=Sum(constant=bound, terms=()),
        at_least=at_least,
    )


def parsed(name: str, text: str) -> LinearRule:
    """A rule from text such as `weights_bytes + input_bytes <= 0.5 * sram_bytes`; raises RequestError."""
    if len(text) > MAX_LENGTH:
        raise _refused(name, text, f"it has {len(text)} characters, at most {MAX_LENGTH} are read")
    tokens: list[str] = []
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise _refused(name, text, f"{printable(text[at:].strip(), 20)!r} is neither number, figure nor sign")
        tokens.append(found.group().strip())
        at = found.end()
    signs = [place for place, token in enumerate(tokens) if token in ("<=", ">=")]
    if len(signs) != 1:
        raise _refused(name, text, "it needs exactly one <= or >=")
    left, right = _sum(name, text, tokens[: signs[0]]), _sum(name, text, tokens[signs[0] + 1 :])
    if not left.terms and not right.terms:
        raise _refused(name, text, "it names no figure")
    return LinearRule(name=name, left=left, right=right, at_least=tokens[signs[0]] == ">=")


def _sum(name: str, text: str, tokens: list[str]) -> Sum:
    """One side of the comparison: terms with signs between them."""
    constant, factors = 0.0, dict[str, float]()
    rest = tokens if tokens[:1] in (["+"], ["-"]) else ["+", *tokens]
    while rest:
        sign, *rest = rest
        if sign not in "+-" or not rest:
            raise _refused(name, text, "terms stand between + and -, such as 2 * input_bytes + 100")
        product, count = [rest[0]], 1
        if rest[1:2] == ["*"] and len(rest) > 2:
            product, count = [rest[0], rest[2]], 3
        rest = rest[count:]
        factor, figure = -1.0 if sign == "-" else 1.0, None
        for word in product:
            if word[0].isdigit():
                factor *= float(word)
            elif figure is None and word not in "+-*":
                figure = _known(word, name)
            else:
                raise _refused(name, text, "a term is a number, a figure, or a number times a figure")
        if abs(factor) > _LARGEST:
            raise _refused(name, text, "a number is too large")
        if figure is None:
            constant += factor
        else:
            factors[figure] = factors.get(figure, 0.0) + factor
    return Sum(constant=constant, terms=tuple(factors.items()))


def _known(figure: str, rule: str) -> str:
    if figure not in FIGURES:
        raise RequestError(
            f"rule {printable(rule, 60)!r} names a figure that does not exist",
            code="invalid_option",
            actual=printable(figure, 60),
            limit=", ".join(FIGURES),
            hint=did_you_mean(figure, FIGURES) or "Name one of the figures in docs/rules.md",
        )
    return figure


def _refused(name: str, text: str, why: str) -> RequestError:
    return RequestError(
        f"rule {printable(name, 60)!r} cannot be read: {why}",
        code="invalid_option",
        actual=printable(text, 80),
        limit="a comparison of sums, such as weights_bytes + input_bytes <= 0.5 * sram_bytes",
        hint=f"Figures are {', '.join(FIGURES)}",
    )
