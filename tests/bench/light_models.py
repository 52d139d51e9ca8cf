"""The nine light models on built-in float32 profiles: plans against floor, reference and baseline, and time."""

from __future__ import annotations

import statistics
from pathlib import Path
from time import perf_counter

import onnx

from compiler.compile import Compilation, compile_model
from compiler.frontend.source import ModelSource
from compiler.options import Options, parse_options
from compiler.profile import Profile, builtin_names, builtin_profile

_LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
_OBJECTIVES = ("latency", "dram_bytes", "energy", "edp")
_RUNS = 3
_MIB = 2**20


def light_models() -> dict[str, bytes]:
    """The light models of the onnx package, by name."""
    return {path.stem.removeprefix("light_"): path.read_bytes() for path in sorted(_LIGHT.glob("*.onnx"))}


def _profiles() -> list[str]:
    """The built-in profiles that compute in float32, as the light models do."""
    return [name for name in builtin_names() if "float32" in builtin_profile(name).matrix.arrays]


def timed(name: str, data: bytes, profile: Profile, options: Options, runs: int) -> tuple[Compilation, list[float]]:
    """Compile `runs` times; the compilation and the seconds of each run."""
    seconds = []
    for _ in range(runs):
        begin = perf_counter()
        compilation = compile_model(ModelSource.from_bytes(data, name=name), profile, options)
        seconds.append(perf_counter() - begin)
    return compilation, seconds


def run() -> None:
    """Print one table per profile for the default objective with times, then one for all objectives."""
    models = light_models()
    for profile_name in _profiles():
        profile = builtin_profile(profile_name)
        print(f"\n### Light models on `{profile_name}`, objective latency, strategy rules\n")
        print(
            "| model | ops | groups | plan MiB | baseline MiB | reference MiB | floor MiB | plan / floor "
            "| plan / baseline | latency ms | baseline ms | roofline ms | energy mJ | compile s (median of "
            f"{_RUNS}) |"
        )
        print("|---|" + "---:|" * 13)
        for name, data in models.items():
            compilation, seconds = timed(f"light_{name}.onnx", data, profile, Options(), _RUNS)
            plan = compilation.plan
            totals, baseline = plan.totals, plan.baseline
            ops = sum(len(group.ops) for segment in plan.segments for group in segment.groups)
            groups = sum(len(segment.groups) for segment in plan.segments)
            print(
                f"| {name} | {ops} | {groups} | {totals.dram_bytes / _MIB:.2f} | {baseline.dram_bytes / _MIB:.2f} "
                f"| {totals.dram_bytes_reference / _MIB:.2f} | {totals.dram_bytes_floor / _MIB:.2f} "
                f"| {totals.dram_gap_to_floor:.3f} | {totals.dram_bytes / baseline.dram_bytes:.3f} "
                f"| {totals.latency_s * 1e3:.3f} | {baseline.latency_s * 1e3:.3f} | {totals.latency_bound_s * 1e3:.3f} "
                f"| {totals.energy_j * 1e3:.2f} | {statistics.median(seconds):.2f} |"
            )
    print("\n### Every objective: the objective's value, plan / baseline (strategy none)\n")
    print("| model | profile | " + " | ".join(_OBJECTIVES) + " |")
    print("|---|---|" + "---:|" * len(_OBJECTIVES))
    for name, data in models.items():
        for profile_name in _profiles():
            row = []
            for objective in _OBJECTIVES:
                options = parse_options({"objective": objective})
                compilation, _ = timed(name, data, builtin_profile(profile_name), options, 1)
                totals, baseline = compilation.plan.totals, compilation.plan.baseline
                row.append(
                    {
                        "latency": totals.latency_s / baseline.latency_s,
                        "dram_bytes": totals.dram_bytes / baseline.dram_bytes,
                        "energy": totals.energy_j / baseline.energy_j,
                        "edp": totals.energy_j * totals.latency_s / (baseline.energy_j * baseline.latency_s),
                    }[objective]
                )
            print(f"| {name} | {profile_name} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
