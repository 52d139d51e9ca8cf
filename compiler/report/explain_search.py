"""The result of strategy `search` for a segment, in words."""

from __future__ import annotations

from collections.abc import Callable

from compiler.amounts import count_text
from compiler.report.plan import SearchDoc


def search_line(segment: str, found: SearchDoc, amount: Callable[[float], str]) -> str:
    """One line: how good the partition is within the class that is searched, and how many groups were priced.

    `amount` writes a value of the objective with its unit.
    """
    value = f"{amount(found.value)} before tiles are refined"
    groups = f"{found.priced:,} of {count_text(found.candidates, 'possible group')} priced"
    if found.is_least:
        return f"Search in {segment}: optimal among partitions into single-output groups; {value}; {groups}"
    if found.bound is None:
        return f"Search in {segment}: {value}; no lower bound is known ({groups})"
    above = f", so at most {100 * (found.value / found.bound - 1):.1f} % above the least" if found.bound else ""
    return f"Search in {segment}: {value}; lower bound {amount(found.bound)}{above} ({groups})"
