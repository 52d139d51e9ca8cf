"""Plans chosen by simulation beside those of least price: docs/benchmarks/0027-chosen.md.

`python -m tests.bench chosen [NETWORK/CHIP/OBJECTIVE ...]`, where `*` matches any name, compiles and prints a row per
plan: what the chosen plan takes in the objective, also beside the one by price and those of `rules` and `none`, as far
as their whole programs were simulated; its DRAM bytes beside the floor; its cycles by price beside the simulated ones,
and of how many groups both lie within a tenth of each other where each is simulated by itself; seconds of
fusion and of choosing. Then means by chip, and why plans by `dram_bytes` lie above the floor. Values are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from itertools import product
from math import exp, log
from typing import Any, Final, Literal

from compiler.compile import compile_model
from compiler.cost.objective import Totals, objective_value
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan_search import SimulatedPlanDoc
from tests.bench.estimates import CHIPS, Compared
from tests.bench.plans import OBJECTIVES, networks
from tests.bench.search import above_floor

_ORIGINS: Final[tuple[Literal["price", "rules", "none"], ...]] = ("price", "rules", "none")
# A price is near where it is within this of what was simulated.
_NEAR: Final = (0.9, 1.1)
# So far above its floor a plan by `dram_bytes` is explained.
_ABOVE: Final = 1.05


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A plan: its row, chosen / by price, price / simulated cycles of the whole and of groups by themselves."""

    row: str
    ratio: float
    whole: float
    groups: tuple[float, ...]
    above: str | None


def run(*cases: str) -> None:
    """A row per plan, means by chip and objective, prices beside simulations by chip, and what lies above floors."""
    print("| plan | groups | chosen | takes | / price | / rules | / none | / floor | price / simulated | near ", end="")
    print("| tried | fuse s | choose s |")
    print("|---|---:|---|" + "---:|" * 10)
    found: dict[tuple[str, str], list[_Found]] = {}
    models = networks()
    for chip, network, objective in product(CHIPS, models, OBJECTIVES):
        name = f"{network}/{chip}/{objective}"
        if not any(fnmatch(name, case) for case in cases or ("*/*/*",)):
            continue
        try:
            one = _found(name, *models[network])
        except TesseraError as error:
            print(f"| {name} | {error.code} |", flush=True)
            continue
        print(one.row, flush=True)
        found.setdefault((chip, objective), []).append(one)
    _print_means(found)


def _print_means(found: Mapping[tuple[str, str], list[_Found]]) -> None:
    print("\n| chip | objective | plans | changed | geometric mean | least |\n|---|---|---:|---:|---:|---:|")
    for (chip, objective), plans in found.items():
        ratios = [one.ratio for one in plans]
        mean = exp(sum(map(log, ratios)) / len(ratios))
        changed = sum(ratio < 1 for ratio in ratios)
        print(f"| {chip} | {objective} | {len(ratios)} | {changed} | {mean:.4f} | {min(ratios):.4f} |")
    print("\n| chip | groups | near | least | most | whole, least | most |\n|---|---:|---:|---:|---:|---:|---:|")
    for chip in dict.fromkeys(chip for chip, _ in found):
        plans = [one for (its, _), ones in found.items() if its == chip for one in ones]
        groups = [ratio for one in plans for ratio in one.groups]
        wholes = [one.whole for one in plans]
        if not groups:
            continue
        print(
            f"| {chip} | {len(groups)} | {_near(groups):.0%} | {min(groups):.2f} | {max(groups):.2f} "
            f"| {min(wholes):.3f} | {max(wholes):.3f} |"
        )
    print("\n| plan | above the floor |\n|---|---|")
    for row in [one.above for ones in found.values() for one in ones if one.above is not None]:
        print(row)


def _near(ratios: Sequence[float]) -> float:
    low, high = _NEAR
    return sum(low <= ratio <= high for ratio in ratios) / max(1, len(ratios))


def _found(name: str, data: bytes, options: dict[str, Any]) -> _Found:
    _, chip, objective = name.split("/")
    profile, source = builtin_profile(chip), ModelSource.from_bytes(data)
    precision = {"precision": CHIPS[chip]} if CHIPS[chip] else {}
    parsed = parse_options({**options, "objective": objective, "verify": "none", **precision})
    found = compile_model(source, profile, parsed)
    plan, its = found.plan, Compared.of(found.plan, found.report)
    seconds = {name: sum(one.duration_s for one in found.timings if one.name == name) for name in ("fuse", "choose")}
    compared = [segment.simulated for segment in plan.segments if segment.simulated is not None]
    by_origin = [{one.origin: _totals(one) for one in segment.plans} for segment in compared]
    chosen = sum((_totals(segment.plans[0]) for segment in compared), start=Totals())
    origins = {
        origin: sum((totals[origin] for totals in by_origin), start=Totals())
        for origin in _ORIGINS
        if by_origin and all(origin in totals for totals in by_origin)
    }
    taken = dict.fromkeys(segment.plans[0].origin for segment in compared)
    tried = sum(segment.tried for segment in compared)
    own = float(objective_value(objective, chosen))
    by = {origin: own / float(objective_value(objective, totals)) for origin, totals in origins.items()}
    columns = [f"{by[origin]:.4f}" if origin in by else "" for origin in _ORIGINS]
    of_floor = plan.totals.dram_bytes / plan.totals.dram_bytes_floor
    row = (
        f"| {name} | {len(its.ratios)} | {', '.join(taken)} | {own:.6g} | {' | '.join(columns)} | {of_floor:.3f} "
        f"| {its.ratio:.3f} | {_near(its.ratios):.0%} | {tried} | {seconds['fuse']:.1f} | {seconds['choose']:.1f} |"
    )
    is_above = objective == "dram_bytes" and of_floor > _ABOVE
    return _Found(
        row=row,
        ratio=by.get("price", 1.0),
        whole=its.ratio,
        groups=its.ratios,
        above=f"| {name} | {above_floor(plan)} |" if is_above else None,
    )


def _totals(plan: SimulatedPlanDoc) -> Totals:
    """What a plan takes when simulated."""
    energy_pj = plan.simulated_energy_j * 1e12
    return Totals(dram_bytes=plan.dram_bytes, cycles=plan.simulated_cycles, energy_pj=energy_pj)
