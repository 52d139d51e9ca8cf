"""How import and partition grow with the number of nodes, how networks are split and merged, and what merging means for
two chips (PART-3 to PART-5).
"""

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
from tests.models import Model, light_path

LENGTHS = (1000, 3000, 10_000)
SPLIT = ("resnet50", "vgg19")
# Channels and extents of maps; of 340 channels seven convolutions fill a chip, of 384 six do.
CHAINS = ((340, 7), (340, 10), (384, 14))


def run() -> None:
    """Print all tables."""
    _growth("cluster4x4")
    _growth("manycore2x64")
    _splits("manycore2x64")
    run_chips()


def run_chips() -> None:
    """Print what two chips make of eight convolutions by merge strategy, simulated."""
    hardware = builtin_profile("manycore2x64")
    print("\n### Eight 3 × 3 convolutions, `manycore2x64`, simulated\n")
    print("| channels | map | merge | convolutions on chip 0, 1 | images/s | latency, µs |")
    print("|---:|---|---|---|---:|---:|")
    for channels, extent in CHAINS:
        for strategy in ("forward-greedy", "optimal"):
            data = _convolutions(8, channels, extent)
            compilation = compile_model(data, hardware, parse_options({"merge": strategy, "verify": "none"}))
            stream = compilation.report.stream
            assert stream is not None
            on_chips = [sum(len(s.nodes) for s in compilation.plan.segments if s.chip == chip) for chip in (0, 1)]
            print(
                f"| {channels} | {extent} × {extent} | {strategy} | {on_chips[0]}, {on_chips[1]} |"
                f" {stream.images_per_s:,.0f} | {stream.latency_s * 1e6:,.0f} |"
            )


def _convolutions(count: int, channels: int, extent: int) -> bytes:
    """A chain of 3×3 convolutions."""
    model = Model()
    x = model.input([1, channels, extent, extent])
    for index in range(count):
        x = model.conv(x, channels, channels, name=f"c{index}")
    model.output(x)
    return model.data()


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
