"""Plans of networks × chips × objectives, each group simulated by itself: docs/benchmarks/0026-plans.md.

`python -m tests.bench plans FIGURES [BEFORE] [NETWORK/CHIP/OBJECTIVE ...]`, where `*` matches any name, makes what the
file FIGURES does not hold yet and adds it. With BEFORE, a file that the same command wrote with an older planner, it
prints both side by side. Simulations are compared, for an older planner has older prices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from hashlib import sha256
from itertools import product
from math import exp, log
from pathlib import Path
from time import process_time
from typing import Any, Final

from compiler.cost.objective import Totals, objective_value
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.groups import FusedGraph
from compiler.options import parse_options
from compiler.pipeline import SilentObserver, build_pipeline, run_passes
from compiler.profile import Profile, builtin_profile
from compiler.program.loops.time import time_of
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup
from compiler.program.steps.segment import SegmentSteps
from compiler.program.timing.energy import energy_by_level
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.price import group_of
from tests.bench.estimates import CHIPS
from tests.exported import exported_models
from tests.models import LIGHT_NAMES, light_path
from tests.networks import fsrcnn, mc_cnn

OBJECTIVES: Final = ("latency", "dram_bytes", "energy", "edp")
# A plan counts as worse where its objective is so much above the older plan's.
_WORSE: Final = 1.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """A group simulated by itself; `seconds`: what lowering and simulating it took. `estimated`: cycles by price."""

    estimated: int
    dram_bytes: int
    cycles: float
    energy_pj: float
    statements: int
    commands: int
    seconds: float


def networks() -> dict[str, tuple[bytes, dict[str, Any]]]:
    """The light models, the exported networks, FSRCNN and MC-CNN: bytes and options of each."""
    found: dict[str, tuple[bytes, dict[str, Any]]] = {name: (light_path(name).read_bytes(), {}) for name in LIGHT_NAMES}
    for model in exported_models():
        if model.exporter == "dynamo":
            found[model.network] = (model.read(), {"dims": model.dims})
    return found | {name: (make().SerializeToString(), {}) for name, make in (("fsrcnn", fsrcnn), ("mc_cnn", mc_cnn))}


def run(figures: str, *others: str) -> None:
    """Add to the file `figures` what is missing in it, and compare with an older file if one is named."""
    cases = [name for name in others if "/" in name and not Path(name).is_file()] or ["*/*/*"]
    path = Path(figures)
    known = json.loads(path.read_text()) if path.exists() else {"plans": {}, "groups": {}}
    models = networks()
    for chip, network, objective in product(CHIPS, models, OBJECTIVES):
        name = f"{network}/{chip}/{objective}"
        if name in known["plans"] or not any(fnmatch(name, case) for case in cases):
            continue
        try:
            known["plans"][name] = _plan(name, *models[network], known["groups"])
        except TesseraError as error:
            known["plans"][name] = {"error": f"{error.code}: {error.message}"}
        path.write_text(json.dumps(known))
    for before in (name for name in others if Path(name).is_file()):
        _print(json.loads(Path(before).read_text()), known, cases)


def _plan(name: str, data: bytes, options: Mapping[str, Any], groups: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """One plan: the keys of its groups in `groups`, its price, and the processor seconds that fusion took."""
    network, chip, objective = name.split("/")
    profile, source = builtin_profile(chip), ModelSource.from_bytes(data)
    parsed = parse_options({**options, "objective": objective, **({"precision": CHIPS[chip]} if CHIPS[chip] else {})})
    passes = build_pipeline(source, profile, parsed)
    stop = next(number for number, step in enumerate(passes) if step.name == "fuse")
    partitioned, _ = run_passes(passes[:stop], source, SilentObserver())
    begin = process_time()
    fused: FusedGraph = run_passes(passes[stop : stop + 1], partitioned, SilentObserver())[0]
    seconds = process_time() - begin
    keys = []
    costs = [group.choice.cost for segment in fused.segments for group in segment.groups]
    groups_alone = _alone(network, fused, profile, SegmentCompilers(profile, parsed))
    for cost, (key, alone) in zip(costs, groups_alone, strict=True):
        keys.append(key)
        if key not in groups:
            groups[key] = asdict(_simulated(alone, profile, cost.cycles))
    return {"groups": keys, "price": float(objective_value(objective, Totals.of(costs))), "seconds": seconds}


def _alone(
    network: str, fused: FusedGraph, profile: Profile, compilers: SegmentCompilers
) -> Iterator[tuple[str, SegmentSteps]]:
    """Each group of a plan as a segment of its own, by a key that is equal where what is lowered is."""
    compiler = compilers.of(fused.facts)
    for segment in fused.segments:
        resident = compiler.resident_bytes(segment.segment.ops) if segment.groups else 0
        for group in segment.groups:
            tiling, geometry = group.choice.tiling, GroupGeometry(fused.facts, group.ops)
            tiled = group_of(geometry, profile.beside(resident), tiling)
            what = (
                network,
                profile.name,
                resident,
                geometry.content(),
                tiling.configuration,
                tiling.tile,
                tiling.core_tile,
            )
            key = sha256(repr((*what, tiled.stages, tiled.weights)).encode()).hexdigest()[:24]
            planned = [PlannedGroup(name="g", ops=group.ops, tiling=tiling)]
            outputs = handed_out(fused.facts, group.ops)
            yield key, SegmentSteps(fused.facts, profile, "s", planned, outputs, resident)


def _simulated(steps: SegmentSteps, profile: Profile, estimated: int) -> Simulated:
    begin = process_time()
    looped = steps.lowered()
    time = time_of(looped, profile)
    seconds = process_time() - begin
    moved = time.moved().memories["dram"]
    return Simulated(
        estimated=int(estimated),
        dram_bytes=moved.read + moved.written,
        cycles=time.cycles,
        energy_pj=sum(energy_by_level(time, profile, time.moved()).values()),
        statements=len(looped.commands),
        commands=time.commands,
        seconds=seconds,
    )


def _value(figures: Mapping[str, Any], name: str) -> float:
    """A plan's objective by simulation."""
    totals = Totals()
    for key in figures["plans"][name]["groups"]:
        its = figures["groups"][key]
        totals += Totals(dram_bytes=its["dram_bytes"], cycles=its["cycles"], energy_pj=its["energy_pj"])
    return float(objective_value(name.rsplit("/", 1)[1], totals))


def _print(before: Mapping[str, Any], after: Mapping[str, Any], cases: list[str]) -> None:
    """By chip and objective: plans, those that differ, geometric mean, least and most; then all that are worse."""
    both = [name for name in before["plans"] if name in after["plans"] and any(fnmatch(name, case) for case in cases)]
    both = [name for name in both if not any("error" in side["plans"][name] for side in (before, after))]
    ratios = {name: _value(after, name) / _value(before, name) for name in both}
    print("| chip | objective | plans | equal | better | worse | geometric mean | best | worst |")
    print("|---|---|" + "---:|" * 7)
    for chip, objective in [*product(CHIPS, OBJECTIVES), ("*", "*")]:
        found = [ratio for name, ratio in ratios.items() if fnmatch(name, f"*/{chip}/{objective}")]
        if found:
            worse, better = sum(r > _WORSE for r in found), sum(r < 1 / _WORSE for r in found)
            mean = exp(sum(map(log, found)) / len(found))
            print(
                f"| {chip} | {objective} | {len(found)} | {len(found) - worse - better} | {better} | {worse} "
                f"| {mean:.4f} | {min(found):.3f} | {max(found):.3f} |"
            )
    _print_estimates(after, both)
    print(f"\nWorse than before by more than {_WORSE - 1:.1%}:\n\n| plan | ratio | by price |\n|---|---:|---:|")
    for name, ratio in sorted(ratios.items(), key=lambda pair: -pair[1]):
        if ratio > _WORSE:
            price = after["plans"][name]["price"] / before["plans"][name]["price"]
            print(f"| {name} | {ratio:.4f} | {price:.4f} |")
    seconds = [sum(side["plans"][name]["seconds"] for name in both) for side in (before, after)]
    print(f"\nFusion took {seconds[0]:.0f} s before, {seconds[1]:.0f} s now (processor seconds of {len(both)} plans).")
    slowest = max(after["groups"].values(), key=lambda its: its["seconds"])
    print(f"The slowest group to lower took {slowest['seconds']:.1f} s for {slowest['commands']:,} commands.")


def _print_estimates(figures: Mapping[str, Any], names: list[str]) -> None:
    """By chip: how far estimated cycles are from simulated ones, of all groups and of the plans as sums of theirs."""
    print("\nEstimated / simulated cycles, groups alone:\n")
    print("| chip | groups | within 0.9 to 1.1 | least | median | most | plans, least to most |")
    print("|---|" + "---:|" * 6)
    for chip in CHIPS:
        plans = [figures["plans"][name]["groups"] for name in names if name.split("/")[1] == chip]
        groups = sorted({key for keys in plans for key in keys})
        if not groups:
            continue

        def ratio(keys: list[str]) -> float:
            its = [figures["groups"][key] for key in keys]
            return float(sum(one["estimated"] for one in its) / sum(one["cycles"] for one in its))

        found, totals = sorted(ratio([key]) for key in groups), sorted(map(ratio, plans))
        within = sum(0.9 <= one <= 1.1 for one in found) / len(found)
        print(
            f"| {chip} | {len(found)} | {within:.0%} | {found[0]:.2f} | {found[len(found) // 2]:.2f} | {found[-1]:.2f} "
            f"| {totals[0]:.2f} to {totals[-1]:.2f} |"
        )
