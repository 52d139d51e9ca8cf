"""Figures of plans that several tests compare, and options of tests that need any plan."""

from __future__ import annotations

from typing import Final

from compiler.options import Options
from compiler.report.plan import Plan

# For tests that need programs, but no particular plan: `search` simulates rivals, which takes most of a compilation.
BY_RULES: Final = Options(fusion="rules")


def objective_of(plan: Plan, objective: str) -> float:
    """The objective's value of a plan: seconds, bytes, joules, or joules times seconds."""
    totals = plan.totals
    return {
        "latency": totals.latency_s,
        "dram_bytes": float(totals.dram_bytes),
        "energy": totals.energy_j,
        "edp": totals.energy_j * totals.latency_s,
    }[objective]
