"""Figures of plans that several tests compare."""

from __future__ import annotations

from compiler.report.plan import Plan


def objective_of(plan: Plan, objective: str) -> float:
    """The objective's value of a plan: seconds, bytes, joules, or joules times seconds."""
    totals = plan.totals
    return {
        "latency": totals.latency_s,
        "dram_bytes": float(totals.dram_bytes),
        "energy": totals.energy_j,
        "edp": totals.energy_j * totals.latency_s,
    }[objective]
