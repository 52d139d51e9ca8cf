"""The result of strategy `search` for a segment, and of choosing by simulation, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from compiler.amounts import count_text
from compiler.report.plan_search import SearchDoc, SimulatedDoc, SimulatedPlanDoc


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


_ORIGINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "price": "the plan of least price",
        "simulation": "the best of groups simulated one by one",
        "rules": "the plan of strategy rules",
        "none": "the plan of strategy none",
    }
)


def simulated_line(segment: str, found: SimulatedDoc, cycles: Callable[[float], str]) -> str:
    """One line: which plan was taken, what it takes beside the others, and how much was simulated for that."""

    def one(plan: SimulatedPlanDoc) -> str:
        return f"{_ORIGINS[plan.origin]} ({cycles(plan.simulated_cycles)}, {plan.simulated_energy_j * 1e3:.4g} mJ)"

    first, *others = found.plans
    beside = f", beside {', '.join(map(one, others))}" if others else ""
    out = [_ORIGINS[origin] for origin in found.excluded]
    excluded = f"; not simulated whole, behind or too long: {' and '.join(out)}" if out else ""
    return (
        f"Chosen for {segment} by simulation: {one(first)}{beside}{excluded}; {count_text(found.tried, 'group')} tried"
    )
