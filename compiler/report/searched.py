"""From what fusion and simulation found of a segment to what `plan.json` says of it."""

from __future__ import annotations

from compiler.fusion.groups import Searched, Simulated
from compiler.report.plan_search import SearchDoc, SimulatedDoc, SimulatedPlanDoc


def search_doc(found: Searched) -> SearchDoc:
    """What strategy `search` knows of a segment."""
    return SearchDoc(
        candidates=found.candidates,
        priced=found.priced,
        value=found.value,
        bound=found.bound,
        is_least=found.is_least,
    )


def simulated_doc(found: Simulated) -> SimulatedDoc:
    """The plans of a segment that were simulated."""
    return SimulatedDoc(
        plans=tuple(
            SimulatedPlanDoc(
                origin=plan.origin,
                groups=plan.groups,
                dram_bytes=plan.simulated.dram_bytes,
                estimated_cycles=plan.estimated.cycles,
                simulated_cycles=plan.simulated.cycles,
                estimated_energy_j=plan.estimated.energy_pj * 1e-12,
                simulated_energy_j=plan.simulated.energy_pj * 1e-12,
            )
            for plan in found.plans
        ),
        tried=found.tilings,
        excluded=found.excluded,
    )
