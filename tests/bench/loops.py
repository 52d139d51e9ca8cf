"""Looped programs beside unrolled ones, and MC-CNN as one group (issue 26): docs/benchmarks/0026-loops.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import process_time
from typing import Any

from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.options import Options
from compiler.profile.load import builtin_profile
from compiler.program.loops.loops import LoopedProgram
from compiler.program.loops.proof import prove
from compiler.program.loops.time import time_of
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup, lower_segment
from compiler.program.steps.segment import SegmentSteps
from compiler.program.verify import verify
from tests.compiler.program.loops.groups import mc_cnn
from tests.models import import_graph, partition_of
from tests.networks import NETWORKS

CHIPS = ("edge4", "cluster4x4", "manycore2x64")
# Width and height of the last map of MC-CNN, and of a tile.
MAPS = ((60, 72, 60, 24), (480, 120, 60, 24), (480, 240, 60, 24), (1242, 376, 54, 16), (1242, 376, 60, 24))


def run(*names: str) -> None:
    """All tables, or those named: `mobilenet_v1`, another network of tests/networks.py, `mc_cnn`."""
    for name in names or ("mobilenet_v1", "mc_cnn"):
        if name == "mc_cnn":
            _maps()
            continue
        for chip in CHIPS:
            _network(name, chip)


def _segments(name: str, chip: str) -> Iterator[tuple[Any, ...]]:
    """What each group of a network's plan is lowered from."""
    profile, options = builtin_profile(chip), Options()
    compilers = SegmentCompilers(profile, options)
    graph = import_graph(NETWORKS[name]().SerializeToString())
    fused = FuseSegments(options=options, compilers=compilers).run(partition_of(graph, profile, options))
    for segment in fused.segments:
        resident = compilers.of(fused.facts).resident_bytes(segment.segment.ops)
        for group in segment.groups:
            planned = [PlannedGroup(name="g", ops=group.ops, tiling=group.choice.tiling)]
            yield fused.facts, profile, "g", planned, handed_out(fused.facts, group.ops), resident


def _network(name: str, chip: str) -> None:
    print(f"\n### {name} on {chip}, group by group\n")
    print(
        "| group | commands | statements | cycles, looped / unrolled | lowering, unrolled s | looped s |"
        " time ms | iterations | jumped | verify ms | prove ms | jumped |"
    )
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    totals = [0, 0]
    for number, segment in enumerate(_segments(name, chip)):
        profile = segment[1]
        begin = process_time()
        plain = lower_segment(*segment)
        middle = process_time()
        looped = SegmentSteps(*segment).lowered(lambda looped, profile=profile: time_of(looped, profile).ticks)  # type: ignore[misc]
        end = process_time()
        verify(plain.program, shared=profile.engines.shared)
        verified = process_time()
        found = _judged(looped, profile)
        totals = [totals[0] + found["ticks"], totals[1] + plain.ticks]
        print(
            f"| {number} | {len(plain.program.commands):,} | {len(looped.program.commands):,} |"
            f" {found['ticks'] / plain.ticks:.3f} | {middle - begin:.2f} | {end - middle:.2f} | {found['time']:.0f} |"
            f" {found['iterations']:,} | {found['jumped']:,} | {1e3 * (verified - end):.0f} | {found['prove']:.0f} |"
            f" {found['proved']:,} |"
        )
    print(f"\nCycles of all, looped / unrolled: {totals[0] / totals[1]:.4f}")


def _judged(looped: LoopedProgram, profile: Any) -> dict[str, Any]:
    begin = process_time()
    time = time_of(looped, profile)
    middle = process_time()
    proof = prove(looped, shared=profile.engines.shared)
    return {
        "ticks": time.ticks,
        "commands": time.commands,
        "iterations": int(time.iterations.sum()),
        "jumped": int(time.jumped.sum()),
        "time": 1e3 * (middle - begin),
        "prove": 1e3 * (process_time() - middle),
        "proved": proof.jumped,
    }


def _maps(maps: Sequence[tuple[int, int, int, int]] = MAPS) -> None:
    print("\n### MC-CNN (N-6) on metaproto-df, one group\n")
    print("| last map | tile | commands | statements | time ms | iterations | jumped | prove ms | jumped |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
    for width, height, across, down in maps:
        looped, profile = mc_cnn(width, height, {"W": across, "H": down})
        found = _judged(looped, profile)
        print(
            f"| {width} × {height} | {across} × {down} | {found['commands']:,} | {len(looped.program.commands):,} |"
            f" {found['time']:.0f} | {found['iterations']:,} | {found['jumped']:,} | {found['prove']:.0f} |"
            f" {found['proved']:,} |"
        )
