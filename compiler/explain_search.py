"""The result of strategy `search` for a segment, in words."""

from __future__ import annotations

from compiler.amounts import count_text
from compiler.boundaries import OBJECTIVE_UNITS
from compiler.plan import SearchDoc


def search_line(segment: str, found: SearchDoc, objective: str) -> str:
    """One line: how good the partition is within the class that is searched, and how many groups were priced."""
    unit = OBJECTIVE_UNITS[objective]
    value = f"{_amount(found.value)} {unit} before tiles are refined"
    groups = f"{count_text(found.priced, 'group')} priced of {found.candidates:,} possible"
    if found.is_least:
        return f"Search in {segment}: optimal among partitions into single-output groups ({value}; {groups})"
    if found.bound is None:
        return f"Search in {segment}: {value}; no lower bound is known ({groups})"
    above = f"{100 * (found.value / found.bound - 1):.1f} % above the lower bound" if found.bound else "lower bound 0"
    return f"Search in {segment}: {value}, at most {above} of the search, {_amount(found.bound)} {unit} ({groups})"


def _amount(value: float) -> str:
    return f"{value:,.0f}" if value < 1e15 else f"{value:.4g}"
