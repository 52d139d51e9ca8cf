"""Figures of one point of a sweep: the values in its table."""

from __future__ import annotations

import msgspec

from compiler.profile import Profile
from compiler.profile.fields import on_chip_bytes
from compiler.report.execution import Part
from compiler.report.plan import NativeShare, Plan, Report


class Figures(Part, frozen=True, kw_only=True):
    """A compilation in figures, for the whole batch.

    `estimated_latency_s` is the planner's closed form; `simulated_latency_s` is that of the commands, segment after
    segment, None without a program. `on_chip_bytes` is the capacity of all memories on the chips together. `degraded`
    lists defects that the plan works around; a degraded plan is in no front and reaches no target. `native` is how much
    of the model the accelerator runs, which depends on the profile; None in figures stored before there was `native`.
    """

    estimated_latency_s: float
    simulated_latency_s: float | None
    latency_bound_s: float
    energy_j: float
    dram_bytes: int
    dram_bytes_floor: int
    on_chip_bytes: int
    groups: int
    degraded: int = 0
    native: NativeShare | None = None

    @property
    def latency_s(self) -> float:
        """The best known latency."""
        return self.estimated_latency_s if self.simulated_latency_s is None else self.simulated_latency_s


def figures_of(plan: Plan, report: Report, profile: Profile) -> Figures:
    """The figures of a compilation for a profile."""
    cycles = sum(program.simulated_cycles for program in report.programs)
    return Figures(
        estimated_latency_s=plan.totals.latency_s,
        simulated_latency_s=cycles / profile.clock_hz if report.programs else None,
        latency_bound_s=plan.totals.latency_bound_s,
        energy_j=plan.totals.energy_j,
        dram_bytes=plan.totals.dram_bytes,
        dram_bytes_floor=plan.totals.dram_bytes_floor,
        on_chip_bytes=on_chip_bytes(profile),
        groups=sum(len(segment.groups) for segment in plan.segments),
        degraded=len(plan.degraded),
        native=plan.native,
    )


def figures_json(figures: Figures) -> str:
    """The figures as JSON for a record."""
    return msgspec.json.encode(figures).decode()
