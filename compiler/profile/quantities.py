"""Amounts with units as people write them: 256KiB, 12.8GB/s, 1.2ms."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Final

from compiler.errors import RequestError, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """A unit: its name in words, the base that takes prefixes, its size in that base, and an example amount."""

    words: str
    base: str
    scale: Fraction = Fraction(1)
    example: str

    @property
    def is_of_bytes(self) -> bool:
        """Whether amounts may have binary prefixes; bytes have no fractions."""
        return self.base.startswith("B")


UNITS: Final[Mapping[str, Unit]] = MappingProxyType(
    {
        "B": Unit(words="bytes", base="B", example="256KiB"),
        "B/s": Unit(words="bytes per second", base="B/s", example="12.8GB/s"),
        "B/cycle": Unit(words="bytes per cycle", base="B/cycle", example="64B/cycle"),
        "Hz": Unit(words="hertz", base="Hz", example="1.2GHz"),
        "s": Unit(words="seconds", base="s", example="1.2ms"),
        "ns": Unit(words="nanoseconds", base="s", scale=Fraction(1, 10**9), example="150ns"),
        "cycles": Unit(words="cycles", base="cycles", example="16cycles"),
        "J": Unit(words="joules", base="J", example="5mJ"),
        "pJ": Unit(words="picojoules", base="J", scale=Fraction(1, 10**12), example="0.4pJ"),
        "pJ/B": Unit(words="picojoules per byte", base="J/B", scale=Fraction(1, 10**12), example="1.6pJ/B"),
        "W": Unit(words="watts", base="W", example="1.5W"),
    }
)
_BELOW_ONE: Final[Mapping[str, Fraction]] = MappingProxyType(
    {letter: Fraction(1, 10**power) for letter, power in (("p", 12), ("n", 9), ("u", 6), ("µ", 6), ("m", 3))}
)
_DECIMAL: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        letter: Fraction(10**power)
        for letter, power in (("", 0), ("k", 3), ("K", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15))
    }
)
_BINARY: Final[Mapping[str, Fraction]] = MappingProxyType(
    {f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTP", 1)}
)
_TEXT_LENGTH_MAX: Final = 40
_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([-+]?[0-9]{1,2}))?\s*([A-Za-zµ/]*)")


def quantity(value: object, unit: str) -> int | float:
    """Reads a number, or a text such as 256KiB, in `unit`: one of UNITS, or "" for a plain number.

    Without a stated unit the field's own unit applies. Whole amounts are integers. Raises RequestError for anything
    else.
    """
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value) if isinstance(value, float) and value.is_integer() else value
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) and len(value) <= _TEXT_LENGTH_MAX else None
    factor = None if match is None else _factor(match[3], unit)
    if match is None or factor is None:
        named = UNITS[unit] if unit else None
        raise RequestError(
            f"{printable(str(value), _TEXT_LENGTH_MAX)!r} is not an amount" + (f" in {named.words}" if named else ""),
            code="invalid_quantity",
            stage="request",
            actual=printable(str(value), _TEXT_LENGTH_MAX),
            limit=f"a number of {named.words}, with or without its unit" if named else "a number without a unit",
            hint=f"Write a number, or an amount such as {named.example}" if named else "Write a number",
        )
    exact = Fraction(match[1]) * Fraction(10) ** int(match[2] or 0) * factor
    return exact.numerator if exact.denominator == 1 else float(exact)


def amount_text(value: float, unit: str, space: str = "") -> str:
    """Writes an amount as people do, exactly: `quantity` reads the same value from it."""
    plain = _digits(value)
    prefixes = {"B": _BINARY, "B/s": _DECIMAL, "B/cycle": _DECIMAL, "Hz": _DECIMAL}.get(unit, {})
    for prefix, factor in reversed([*prefixes.items()]):
        if prefix == "K" or value < factor or (prefixes is _BINARY and value % factor):
            continue
        text = _digits(value / int(factor))
        if quantity(text + prefix + unit, unit) == value and len(text) <= len(plain):
            return f"{text}{space}{prefix}{unit}"
    return f"{plain}{space}{unit}".rstrip()


def _digits(value: float) -> str:
    return str(int(value)) if float(value).is_integer() and abs(value) <= 1e15 else repr(value)


def _factor(given: str, unit: str) -> Fraction | None:
    """The factor from the given unit to `unit`; None for a unit of another kind."""
    if not given:
        return Fraction(1)
    meant = UNITS.get(unit)
    if meant is None or not given.endswith(meant.base):
        return None
    prefixes = {**_DECIMAL, **(_BINARY if meant.is_of_bytes else _BELOW_ONE)}
    factor = prefixes.get(given.removesuffix(meant.base))
    return None if factor is None else factor / meant.scale
