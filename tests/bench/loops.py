"""What lowering makes of networks, and of MC-CNN as one group (issue 26): docs/benchmarks/0026-loops.md."""

from __future__ import annotations

from collections.abc import Sequence
from time import process_time
from typing import Any

from compiler.profile.load import builtin_profile
from compiler.program.encoding.sizes import program_sizes
from compiler.program.loops.proof import prove
from compiler.program.loops.time import time_of
from compiler.program.program import Program
from compiler.program.steps.segment import SegmentSteps
from tests.bench.planned import segments
from tests.compiler.program.loops.groups import METAPROTO, mc_cnn, pinned_group
from tests.networks import fsrcnn

CHIPS = ("edge4", "cluster4x4", "manycore2x64")
SOME = ("mobilenet_v1", "fsrcnn", "light_resnet50")
# Width and height of the last map of MC-CNN, and of a tile.
MAPS = ((60, 72, 60, 24), (480, 120, 60, 24), (480, 240, 60, 24), (1242, 376, 54, 16), (1242, 376, 60, 24))


def run(*names: str) -> None:
    """Some networks on three chips, MC-CNN and FSRCNN as one group each, or what is named.

    `mc_cnn`, a network of tests/networks.py, `light_` and a light model of onnx.
    """
    columns = "commands | statements | cycles | lowering s | time s | iterations | jumped | proof s | jumped"
    print(f"| network | chip | {columns} |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name in [name for name in names or SOME if name != "mc_cnn"]:
        for chip in CHIPS:
            _network(name, chip)
    if not names or "mc_cnn" in names:
        _maps()
    if not names or "fsrcnn" in names:
        _heights()


def _network(name: str, chip: str) -> None:
    profile, totals = builtin_profile(chip), dict[str, float]()
    for segment in segments(name, chip):
        begin = process_time()
        program = SegmentSteps(*segment).lowered()
        found = {"lowering": process_time() - begin, **_judged(program, profile)}
        totals = {key: totals.get(key, 0) + value for key, value in found.items()}
    print(
        f"| {name} | {chip} | {totals['commands']:,} | {totals['statements']:,} | {totals['cycles']:,.0f} |"
        f" {totals['lowering']:.1f} | {totals['time']:.2f} | {totals['iterations']:,} | {totals['jumped']:,} |"
        f" {totals['prove']:.2f} | {totals['proved']:,} |"
    )


def _judged(program: Program, profile: Any) -> dict[str, float]:
    begin = process_time()
    time = time_of(program, profile)
    middle = process_time()
    proof = prove(program, shared=profile.engines.shared)
    return {
        "cycles": time.cycles,
        "commands": time.commands,
        "statements": len(program.commands),
        "iterations": int(time.iterations.sum()),
        "jumped": int(time.jumped.sum()),
        "time": middle - begin,
        "prove": process_time() - middle,
        "proved": proof.jumped,
    }


def _maps(maps: Sequence[tuple[int, int, int, int]] = MAPS) -> None:
    print("\n### MC-CNN (N-6) on metaproto-df, one group\n")
    print("| last map | tile | commands | statements | cycles | time ms | iterations | jumped | proof ms | jumped |")
    print("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for width, height, across, down in maps:
        program, profile = mc_cnn(width, height, {"W": across, "H": down})
        found = _judged(program, profile)
        print(
            f"| {width} × {height} | {across} × {down} | {found['commands']:,} | {found['statements']:,} |"
            f" {found['cycles']:,.0f} | {1e3 * found['time']:.0f} | {found['iterations']:,} | {found['jumped']:,} |"
            f" {1e3 * found['prove']:.0f} | {found['proved']:,} |"
        )


def _heights(heights: Sequence[int] = (270, 540, 1080, 2160)) -> None:
    print("\n### FSRCNN on metaproto-df, one group, tile 72 × 4, halos cached\n")
    print("| lines | commands | statements | program bytes | lowering s | time s | proof s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for height in heights:
        steps = pinned_group(fsrcnn(height), {"W": 72, "H": 4})
        begin = process_time()
        program = steps.lowered()
        lowering = process_time() - begin
        found = _judged(program, METAPROTO)
        print(
            f"| {height} | {found['commands']:,} | {found['statements']:,} | {program_sizes(program).program_bytes:,} |"
            f" {lowering:.2f} | {found['time']:.3f} | {found['prove']:.2f} |"
        )
