"""Amounts with units as people write them: 256KiB, 12.8GB/s, 1.2ms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from compiler.errors import RequestError, printable

_PREFIXES: Final[Mapping[str, Fraction]] = MappingProxyType(
    {"p": Fraction(1, 10**12), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "µ": Fraction(1, 10**6)}
    | {"m": Fraction(1, 10**3), "": Fraction(1), "k": Fraction(10**3), "K": Fraction(10**3)}
    | {letter: Fraction(10 ** (3 * power)) for power, letter in enumerate("MGT", 2)}
    | {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGT", 1)}
)
_UNITS: Final = ("B", "B/s", "B/cycle", "s", "J", "Hz", "W")
_TEXT_LENGTH_MAX: Final = 40
_QUANTITY: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([-+]?\d{1,2}))?\s*([A-Za-zµ/]*)")


def quantity(value: object, unit: str) -> int | float:
    """A number, or a text such as 256KiB, in `unit` (one of B, B/s, B/cycle, s, J, Hz, W, or "" for a mere number).

    A unit left out is the field's own. Whole amounts are integers. Raises RequestError for anything else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _TEXT_LENGTH_MAX else None
    factor = None if match is None else _factor(match[3], unit)
    if match is None or factor is None:
        raise RequestError(
            f"{printable(str(value), _TEXT_LENGTH_MAX)!r} is not an amount" + (f" in {unit}" if unit else ""),
            code="invalid_quantity",
            stage="request",
            actual=printable(str(value), _TEXT_LENGTH_MAX),
            limit=f"a number{f', with or without a unit of {unit}' if unit else ''}",
            hint="Write 262144, 256KiB, 12.8GB/s, 800MHz or 1.2ms",
        )
    exact = Fraction(match[1]) * Fraction(10) ** int(match[2] or 0) * factor
    return exact.numerator if exact.denominator == 1 else float(exact)


def _factor(given: str, unit: str) -> Fraction | None:
    """How many of `unit` the given unit is; None if it is of another kind."""
    if not given:
        return Fraction(1)
    if unit not in _UNITS or not given.endswith(unit):
        return None
    return _PREFIXES.get(given.removesuffix(unit))
