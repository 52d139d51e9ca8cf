"""Plans chosen by simulation beside those of least price: docs/benchmarks/0027-chosen.md.

`python -m tests.bench chosen [NETWORK/CHIP/OBJECTIVE ...]`, where `*` matches any name, compiles up to the pass
`choose` and prints a row per plan: what the chosen plan takes in the objective, also beside the one by price and those
of `rules` and `none`, as far as their whole programs were simulated, and processor seconds of fusion and of choosing.
"""

from __future__ import annotations

from fnmatch import fnmatch
from itertools import product
from math import exp, log
from time import process_time
from typing import Any, Final

from compiler.cost.objective import Totals, objective_value
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource
from compiler.fusion.groups import FusedGraph, Origin
from compiler.options import parse_options
from compiler.pipeline import SilentObserver, build_pipeline, run_passes
from compiler.profile import builtin_profile
from tests.bench.estimates import CHIPS
from tests.bench.plans import OBJECTIVES, networks

_ORIGINS: Final[tuple[Origin, ...]] = ("price", "rules", "none")


def run(*cases: str) -> None:
    """A row per plan, then the geometric mean of chosen / by price, by chip and objective."""
    print("| plan | groups | chosen | takes | / price | / rules | / none | tried | fuse s | choose s |")
    print("|---|---:|---|---:|---:|---:|---:|---:|---:|---:|")
    ratios: dict[tuple[str, str], list[float]] = {}
    models = networks()
    for chip, network, objective in product(CHIPS, models, OBJECTIVES):
        name = f"{network}/{chip}/{objective}"
        if not any(fnmatch(name, case) for case in cases or ("*/*/*",)):
            continue
        try:
            ratio = _row(name, *models[network])
        except TesseraError as error:
            print(f"| {name} | {error.code} |", flush=True)
            continue
        ratios.setdefault((chip, objective), []).append(ratio)
    print("\n| chip | objective | plans | changed | geometric mean | least |\n|---|---|---:|---:|---:|---:|")
    for (chip, objective), found in ratios.items():
        mean = exp(sum(map(log, found)) / len(found))
        changed = sum(ratio < 1 for ratio in found)
        print(f"| {chip} | {objective} | {len(found)} | {changed} | {mean:.4f} | {min(found):.4f} |")


def _row(name: str, data: bytes, options: dict[str, Any]) -> float:
    _, chip, objective = name.split("/")
    profile, source = builtin_profile(chip), ModelSource.from_bytes(data)
    parsed = parse_options({**options, "objective": objective, **({"precision": CHIPS[chip]} if CHIPS[chip] else {})})
    passes = build_pipeline(source, profile, parsed)
    numbers = {step.name: number for number, step in enumerate(passes)}
    value, _ = run_passes(passes[: numbers["fuse"]], source, SilentObserver())
    begin = process_time()
    value, _ = run_passes(passes[numbers["fuse"] : numbers["choose"]], value, SilentObserver())
    middle = process_time()
    value, _ = run_passes(passes[numbers["choose"] : numbers["program"]], value, SilentObserver())
    end = process_time()
    fused: FusedGraph = value.fused
    compared = [segment.simulated for segment in fused.segments if segment.simulated is not None]
    by_origin = [{plan.origin: plan.simulated for plan in segment.plans} for segment in compared]
    chosen = sum((segment.plans[0].simulated for segment in compared), start=Totals())
    origins = {
        origin: sum((its[origin] for its in by_origin), start=Totals())
        for origin in _ORIGINS
        if by_origin and all(origin in its for its in by_origin)
    }
    taken = dict.fromkeys(segment.plans[0].origin for segment in compared)
    tried = sum(segment.tilings for segment in compared)
    own = float(objective_value(objective, chosen))
    by = {origin: own / float(objective_value(objective, totals)) for origin, totals in origins.items()}
    columns = [f"{by[origin]:.4f}" if origin in by else "" for origin in _ORIGINS]
    groups = sum(len(segment.groups) for segment in fused.segments)
    print(
        f"| {name} | {groups} | {', '.join(taken)} | {own:.6g} | {' | '.join(columns)} | {tried} "
        f"| {middle - begin:.1f} | {end - middle:.1f} |",
        flush=True,
    )
    return by.get("price", 1.0)
