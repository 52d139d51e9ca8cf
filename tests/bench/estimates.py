"""What the planner thinks a program takes, and what the simulation of its commands finds (SIM-3).

`python -m tests.bench estimates [CHIP ...]`: the nine light models on five chips, or on some of them. A group's price
is compared with the group simulated by itself, for prices add up as if groups ran one after another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from compiler.compile import compile_model
from compiler.errors import TesseraError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import Plan, Report
from tests.models import LIGHT_NAMES, light_source

# Chips that compute in eight bits only get the planning what-if.
CHIPS: Final = {"cluster4x4": "", "edge4": "", "manycore2x64": "", "polar4x4": "int8", "metaproto-df": "int8"}
_WITHIN: Final = (0.85, 1.15)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A compilation's cycles as planned and as simulated, and by group planned over simulated alone."""

    estimated: int
    simulated: int
    ratios: tuple[float, ...]

    @classmethod
    def of(cls, plan: Plan, report: Report) -> Compared:
        """From the documents of a compilation."""
        programs = report.programs
        planned = {group.id: group.cycles for segment in plan.segments for group in segment.groups}
        ratios = [
            planned[name] / cycles
            for program in programs
            for name, cycles in program.alone_group_cycles.items()
            if cycles
        ]
        return cls(
            estimated=sum(program.estimated_cycles for program in programs),
            simulated=sum(program.simulated_cycles for program in programs),
            ratios=tuple(ratios),
        )

    @property
    def ratio(self) -> float:
        """Estimate / simulation, of the whole."""
        return self.estimated / self.simulated


def compared(model: str, chip: str, fusion: str) -> Compared:
    """A light model compiled for a chip under a strategy."""
    options: dict[str, object] = {"fusion": fusion, "verify": "none"}
    if CHIPS[chip]:
        options["precision"] = CHIPS[chip]
    found = compile_model(light_source(model), builtin_profile(chip), parse_options(options))
    return Compared.of(found.plan, found.report)


def run(names: tuple[str, ...] = ()) -> None:
    """Print one row per network and chip, and the sums."""
    low, high = _WITHIN
    print(f"\n### Estimate over simulation, objective latency; within: {low} to {high}\n")
    print("| network | chip | groups | within | estimated | simulated | ratio | rules simulated | search / rules |")
    print("|---|---|" + "---:|" * 7)
    groups: list[float] = []
    totals: list[float] = []
    for chip in names or CHIPS:
        for model in LIGHT_NAMES:
            try:
                search, rules = compared(model, chip, "search"), compared(model, chip, "rules")
            except TesseraError as error:
                print(f"| {model} | {chip} | {error.code}: {error.message} |", flush=True)
                continue
            within = np.mean([low <= ratio <= high for ratio in search.ratios])
            groups += search.ratios
            totals.append(search.ratio)
            print(
                f"| {model} | {chip} | {len(search.ratios)} | {within:.0%} | {search.estimated:,} "
                f"| {search.simulated:,} | {search.ratio:.3f} | {rules.simulated:,} "
                f"| {search.simulated / rules.simulated:.3f} |",
                flush=True,
            )
    for what, ratios in (("groups", groups), ("totals", totals)):
        found = np.array(ratios)
        inside = ((found >= low) & (found <= high)).mean()
        quantiles = ", ".join(f"{value:.2f}" for value in np.quantile(found, [0.05, 0.25, 0.5, 0.75, 0.95]))
        print(f"\n{len(found)} {what}: {inside:.0%} within; 5, 25, 50, 75 and 95 % lie below {quantiles}.")
