"""The result of strategy `search` for a segment, in words."""

from __future__ import annotations

from compiler.amounts import count_text
from compiler.boundaries import OBJECTIVE_UNITS
from compiler.plan import SearchDoc


def search_line(segment: str, found: SearchDoc, objective: str) -> str:
    """One line: how good the partition is within the class that is searched, and how many groups were priced."""
    unit = OBJECTIVE_UNITS[objective]
    value = f"{_amount(found.value)} {unit} before tiles are refined"
    groups = f"{found.priced:,} of {count_text(found.candidates, 'possible group')} priced"
    if found.is_least:
        return f"Search in {segment}: optimal among partitions into single-output groups ({value}; {groups})"
    if found.bound is None:
        return f"Search in {segment}: {value}; no lower bound is known ({groups})"
    above = f", so at most {100 * (found.value / found.bound - 1):.1f} % above the least" if found.bound else ""
    return f"Search in {segment}: {value}; lower bound {_amount(found.bound)} {unit}{above} ({groups})"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value < 1e15 else f"{value:.4g}"
