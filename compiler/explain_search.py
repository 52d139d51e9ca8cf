"""What strategy `search` knows of a segment, in words."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from compiler.plan import SearchDoc

_UNITS: Final = MappingProxyType(
    {"latency": "cycles", "dram_bytes": "bytes of DRAM traffic", "energy": "pJ", "edp": "pJ x cycles"}
)


def search_line(segment: str, found: SearchDoc, objective: str) -> str:
    """One line: groups tried and priced, the least partition found, and what none of the class is below."""
    unit = _UNITS[objective]
    groups = "1 single-output group" if found.candidates == 1 else f"{found.candidates:,} single-output groups"
    tried = f"search in {segment}: {groups} tried, {found.priced:,} priced; with the largest tiles that fit"
    if found.is_least:
        return f"{tried} no partition into them has fewer {unit} than the one found, {_amount(found.value)}."
    if found.bound is None:
        return f"{tried} the least partition found has {_amount(found.value)} {unit}; no bound is known."
    return (
        f"{tried} the least partition found has {_amount(found.value)} {unit}, and none has fewer than"
        f" {_amount(found.bound)}."
    )


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value < 1e15 else f"{value:.4g}"
