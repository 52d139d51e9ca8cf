"""How import and partition grow with the number of nodes, and how networks are split and merged (PART-3, PART-4)."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import get_args

from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.options import Merge, Options, parse_options
from compiler.pipeline import Pass, SilentObserver, build_pipeline, run_passes
from compiler.profile import Profile, builtin_profile
from tests.bench.scaling import chain
from tests.models import light_path

LENGTHS = (1000, 3000, 10_000)
SPLIT = ("resnet50", "vgg19")


def run() -> None:
    """Print both tables."""
    _growth("cluster4x4")
    _growth("manycore2x64")
    _splits("manycore2x64")


def _growth(profile: str) -> None:
    print(f"\n### Seconds of import and partition, chain of convolutions and Relus, `{profile}`\n")
    passes = "read | validate | lower | batchnorm, patterns | split-weights | partition"
    print(f"| nodes | {passes} | total | ÷ (n·log2 n), µs |")
    print("|---:|" + "---:|" * 8)
    for length in LENGTHS:
        source = ModelSource.from_bytes(chain(length))
        _, timings = run_passes(_until_partition(source, builtin_profile(profile), Options()), source, SilentObserver())
        seconds = {timing.name: timing.duration_s for timing in timings}
        total = sum(seconds.values())
        columns = [
            seconds["read"],
            seconds["validate"],
            seconds["lower"],
            seconds["fold-batchnorm"] + seconds["patterns"],
            seconds["split-weights"],
            seconds["partition"],
            total,
        ]
        per_node = total / (length * log2(length)) * 1e6
        print(f"| {length} | " + " | ".join(f"{s:.3f}" for s in columns) + f" | {per_node:.2f} |")


def _until_partition(source: ModelSource, profile: Profile, options: Options) -> Sequence[Pass]:
    passes = build_pipeline(source, profile, options)
    last = next(index for index, entry in enumerate(passes) if entry.name == "partition")
    return passes[: last + 1]


def _splits(profile: str) -> None:
    hardware = builtin_profile(profile)
    print(f"\n### Segments by merge strategy, `{profile}`, stationary float32 weights\n")
    print("| network | merge | before | executables | fullest core | candidates tried | seconds |")
    print("|---|---|---:|---:|---:|---:|---:|")
    for name in SPLIT:
        data = light_path(name).read_bytes()
        for strategy in get_args(Merge):
            options = parse_options({"merge": strategy, "fusion": "none"} | _thresholds(strategy))
            compilation = compile_model(data, hardware, options)
            plan = compilation.plan
            fullest = max(s.resident_bytes_per_core for s in plan.segments) / hardware.nram.capacity_bytes
            seconds = sum(timing.duration_s for timing in compilation.timings)
            print(
                f"| {name} | {strategy} | {plan.partition.segments_before_merge} | {len(plan.segments)} |"
                f" {fullest:.3f} | {len(plan.partition.merges)} | {seconds:.2f} |"
            )


def _thresholds(strategy: str) -> dict[str, object]:
    """What `thresholds` needs: runs of at most 28 MiB of weights."""
    return {"max_weight_bytes": 28 << 20} if strategy == "thresholds" else {}
