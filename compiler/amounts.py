"""Amounts as people read them: bytes, seconds, joules, shares and counts. Documents carry the raw numbers."""

from __future__ import annotations

from typing import Final

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_PREFIXES: Final = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"))


def bytes_text(size: float) -> str:
    """Bytes with a binary unit: 6.86 MiB, 806.4 KiB."""
    unit = 0
    while abs(size) >= 1024 and unit < len(_BYTE_UNITS) - 1:
        size /= 1024
        unit += 1
    if unit == 0:
        return f"{size:.0f} B"
    return f"{size:.{2 if abs(size) < 99.995 else 1}f} {_BYTE_UNITS[unit]}"


def si_text(value: float, unit: str) -> str:
    """A quantity with three digits and a prefix: 38.1 µs."""
    rounded = float(f"{value:.3g}")  # first: 999.9 µs are 1 ms
    if not rounded or abs(rounded) >= 1000:
        return f"{rounded:,.0f} {unit}"
    factor, prefix = next((one for one in _PREFIXES if abs(rounded) >= one[0]), _PREFIXES[-1])
    return f"{rounded / factor:.3g} {prefix}{unit}"


def cycles_text(cycles: float, cycle_s: float) -> str:
    """A time with its cycles: 22.9 µs (18,345 cycles)."""
    return f"{si_text(cycles * cycle_s, 's')} ({cycles:,.0f} cycles)"


def count_text(number: int, what: str) -> str:
    """A number and what is counted: 1 group, 2,048 groups."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def share_text(part: float, whole: float) -> str:
    """A share in percent; with two digits below one percent."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 1 or not share else f"{share:.2g} %"


def number_text(value: float) -> str:
    """A number in text: whole numbers in full, others with six digits."""
    return f"{int(value):,}" if float(value).is_integer() else f"{value:.6g}"


def rate_text(value: float) -> str:
    """A rate with four digits at least: 4,209 or 3.142."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
