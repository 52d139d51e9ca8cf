"""`tessera plan --compare`: plans the same model and options once per fusion strategy, figures side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, get_args, get_type_hints

import msgspec
from rich.console import Console

from app.cli import compiling
from app.client.output_folder import write
from compiler.errors import RequestError, printable
from compiler.option_words import parse_assignments
from compiler.options import Options
from compiler.report.plan import ModelRef, NativeShare, Plan, ProfileRef

# The compared figures, by the names of options' objectives; less is better for each.
FIGURES: Final = ("dram_bytes", "latency", "energy", "edp")


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """DRAM bytes, seconds, joules and joules × seconds of a plan, for the whole batch; or ratios of them."""

    dram_bytes: float
    latency: float
    energy: float
    edp: float


class StrategyRow(msgspec.Struct, frozen=True, kw_only=True):
    """One strategy's plan. `ratios` are its figures divided by the best of all strategies; 1 if both are 0.

    `above_floor_percent` is for DRAM bytes; None if the floor is 0. `planning_s` is wall time, from reading the model
    to its mapping on chips; None if a service planned, which does not report it. It is no part of any plan.
    """

    strategy: str
    groups: int
    figures: Figures
    ratios: Figures
    above_floor_percent: float | None
    planning_s: float | None


class Yardsticks(msgspec.Struct, frozen=True, kw_only=True):
    """Reference figures for the plans (SPEC 5.1): the floor, the roofline's latency, and the reference."""

    floor_dram_bytes: int
    bound_latency_s: float
    reference_dram_bytes: int


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The strategies in the order given, and their common objective; `native` is that of the first plan."""

    model: ModelRef
    profile: ProfileRef
    objective: str
    strategies: tuple[StrategyRow, ...]
    yardsticks: Yardsticks
    native: NativeShare


def known_strategies() -> tuple[str, ...]:
    """The values of option `fusion`."""
    return tuple(str(value) for value in get_args(get_type_hints(Options)["fusion"]))


def parse_strategies(text: str) -> tuple[str, ...]:
    """The strategies of a list with commas, each once; raises RequestError for an unknown one."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    known = known_strategies()
    for name in names:
        if name not in known:
            raise RequestError(
                f"there is no fusion strategy {printable(name, 60)!r} to compare",
                code="invalid_option",
                actual=printable(name, 60),
                limit=", ".join(known),
                hint="Name strategies with commas between them, such as --compare rules,none",
            )
    return names


def compare(
    model: Path,
    profile: str,
    settings: Sequence[str],
    strategies: Sequence[str],
    console: Console,
    *,
    server: str | None = None,
    out: Path | None = None,
) -> Comparison:
    """Plans once per strategy, everything else equal, here or with one job each on a service.

    With `out`, the documents of each plan go to a folder named after its strategy. Raises RequestError if the settings
    choose a strategy themselves.
    """
    options = parse_assignments(settings)
    if any(word.partition("=")[0] == "fusion" for word in settings):
        raise RequestError(
            "option fusion and --compare both choose strategies",
            code="invalid_request",
            actual=f"fusion={options.fusion} with --compare {','.join(strategies)}",
            hint="Leave out one of the two",
        )
    found: list[tuple[str, Plan, float | None]] = []
    for strategy in strategies:
        words = [*settings, f"fusion={strategy}"]
        compiled = compiling.compiled(model, profile, words, console, server, only_plan=True)
        if out is not None:
            write(compiled, out / strategy)
        found.append((strategy, compiled.plan_document(), compiled.planning_s))
    return comparison_of(found, options.objective)


def comparison_of(plans: Sequence[tuple[str, Plan, float | None]], objective: str) -> Comparison:
    """Puts the plans of strategies with their planning times side by side; yardsticks are those of the first."""
    figures = [_figures(plan) for _, plan, _ in plans]
    best = Figures(**{name: min(getattr(entry, name) for entry in figures) for name in FIGURES})
    first = plans[0][1]
    return Comparison(
        model=first.model,
        profile=first.profile,
        objective=objective,
        strategies=tuple(
            StrategyRow(
                strategy=strategy,
                groups=sum(len(segment.groups) for segment in plan.segments),
                figures=own,
                ratios=Figures(**{name: _ratio(getattr(own, name), getattr(best, name)) for name in FIGURES}),
                above_floor_percent=_above_floor(plan),
                planning_s=planning_s,
            )
            for (strategy, plan, planning_s), own in zip(plans, figures, strict=True)
        ),
        yardsticks=Yardsticks(
            floor_dram_bytes=first.totals.dram_bytes_floor,
            bound_latency_s=first.totals.latency_bound_s,
            reference_dram_bytes=first.totals.dram_bytes_reference,
        ),
        native=first.native,
    )


def _figures(plan: Plan) -> Figures:
    totals = plan.totals
    return Figures(
        dram_bytes=totals.dram_bytes,
        latency=totals.latency_s,
        energy=totals.energy_j,
        edp=totals.energy_j * totals.latency_s,
    )


def _above_floor(plan: Plan) -> float | None:
    totals = plan.totals
    return 100 * (totals.dram_bytes / totals.dram_bytes_floor - 1) if totals.dram_bytes_floor else None


def _ratio(value: float, best: float) -> float:
    return value / best if best else 1.0
