"""Our prices beside published ones: N-1, the pinned part of N-2, N-4, and how long a price takes (SPEC section 14)."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import onnx

from compiler.compile import Compilation, compile_model
from compiler.errors import LimitError
from compiler.frontend.source import ModelSource
from compiler.fusion.groups import FusedGraph
from compiler.options import parse_options
from compiler.pipeline import SilentObserver, build_pipeline, run_passes
from compiler.profile import builtin_profile
from compiler.tiling.price import price_groups
from tests.models import light_path
from tests.networks import fsrcnn, mc_cnn, vgg_e_head

_MEASURED: Final = Path(__file__).parents[1] / "data" / "published" / "depth_first.json"
_ROUNDS: Final = 15
_IMAGES: Final = 16
# N-2: what is pinned, then energy in mJ, cycles in millions and DRAM bytes as published.
_FUSED: Final = {"60 x 72": ({"W": 60, "H": 72}, 2.155, 20.188), "4 x 72": ({"W": 4, "H": 72}, 1.814, 18.485)}
_FUSED_BYTES: Final = 539_596 + 8_294_400 + 15_992
_LAYERS: Final = (20.265, 29.008, 205.19e6)


def run() -> None:
    """Print every table."""
    _kept_rows()
    _depth_first()
    _depth_first_grid()
    _batched_classifiers()
    _pricing_time()


def compiled(model: onnx.ModelProto | Path, profile: str, **options: Any) -> Compilation:
    """The plan of a model for a built-in profile."""
    data = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    return compile_model(data, builtin_profile(profile), parse_options(options))


def pinned(
    model: onnx.ModelProto, tile: dict[str, int], halo: dict[str, str], placement: dict[str, Any] | None = None
) -> dict[str, Any]:
    """A schedule that fuses all nodes of a model, with tile, halo modes and placement pinned."""
    group: dict[str, Any] = {"nodes": [node.name for node in model.graph.node if node.op_type != "ConstantOfShape"]}
    group |= {"tiling": {"tile": tile}, "halo": halo}
    return {"groups": [group | ({"placement": placement} if placement else {})]}


def _kept_rows() -> None:
    """N-1: VGG-E's first five convolutions with their poolings, fused by full-width tiles with kept rows."""
    model = vgg_e_head()
    schedule = pinned(model, {"H": 1, "W": 56}, {"H": "cached"}, {"units": 1, "spread": "single"})
    plan = compiled(model, "cluster4x4", schedule=schedule).plan
    (group,) = plan.segments[0].groups
    weights = sum(op.weight_bytes * op.weight_loads for op in group.ops)
    once = sum(op.weight_bytes for op in group.ops)
    reference, fused = plan.totals.dram_bytes_reference - once, plan.totals.dram_bytes - weights
    print("\n### N-1: VGG-E's first five convolutions and two poolings, float32 maps, cluster4x4, rows kept\n")
    print("| quantity | published | ours | ratio |\n|---|---:|---:|---:|")
    rows = (
        ("layer by layer, MiB (86.32 from the shapes)", 86.32, reference / 2**20),
        ("fused, MiB (input and result alone: 3.637)", 3.637, fused / 2**20),
        ("kept rows, bytes (two of each convolution's input)", 349_440, group.tiling.kept_bytes),
    )
    for what, published, ours in rows:
        print(f"| {what} | {published:,} | {ours:,.3f} | {ours / published:.4f} |")
    print(f"\nKept rows may take 362 KB; the tile worked on holds {group.sram_tile.bytes:,} B of input beside them.")


def _depth_first() -> None:
    """N-2: FSRCNN as published, as pinned schedules."""
    model = fsrcnn()
    print("\n### N-2: FSRCNN 960 x 540, int8, metaproto-df, pinned\n")
    print("| schedule | energy mJ: published | ours | ratio | Mcycles: published | ours | ratio | DRAM bytes | exact |")
    print("|---|" + "---:|" * 8)
    layers = {"groups": [{"nodes": [n.name]} for n in model.graph.node if n.op_type == "Conv"]}
    both = {"H": "cached", "W": "cached"}
    cases = [("layer by layer", layers, _LAYERS)]
    cases += [
        (f"cached {name}", pinned(model, tile, both), (mj, mc, _FUSED_BYTES)) for name, (tile, mj, mc) in _FUSED.items()
    ]
    notes = []
    for name, schedule, (energy, cycles, moved) in cases:
        plan = compiled(model, "metaproto-df", schedule=schedule, precision="int8", objective="energy").plan
        ours = plan.totals.energy_j * 1e3, sum(s.cycles for s in plan.segments) / 1e6
        exact = "yes" if plan.totals.dram_bytes == moved else f"{plan.totals.dram_bytes / moved:.4f}"
        print(
            f"| {name} | {energy} | {ours[0]:.3f} | {ours[0] / energy:.3f} | {cycles} | {ours[1]:.3f} "
            f"| {ours[1] / cycles:.3f} | {plan.totals.dram_bytes:,} | {exact} |"
        )
        stalls: dict[str, int] = {}
        for group in plan.segments[0].groups:
            for cause, count in group.stalls.items():
                stalls[cause] = stalls.get(cause, 0) + count
        notes.append(f"{name}: " + ", ".join(f"{cause} {count:,}" for cause, count in stalls.items()))
    print("\nArray utilisation alone: 18,294,204 cycles. Stalls in cycles: " + "; ".join(notes) + ".")


def _depth_first_grid() -> None:
    """Other tiles and halo modes of the same tool, as measured with it; what exceeds the chip is refused by us."""
    networks = {"fsrcnn": fsrcnn(), "mccnn": mc_cnn()}
    ratios: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    refused = 0
    for network, width, height, columns, rows, energy, cycles in json.loads(_MEASURED.read_text())["points"]:
        model = networks[network]
        halo = {"W": columns, "H": rows}
        schedule = pinned(model, {"W": width, "H": height}, halo)
        try:
            plan = compiled(model, "metaproto-df", schedule=schedule, precision="int8", objective="energy").plan
        except LimitError:
            refused += 1
            continue
        ours = plan.totals.energy_j * 1e3 / energy, sum(s.cycles for s in plan.segments) / cycles
        ratios.setdefault((network, f"{columns}, {rows}"), []).append((*ours, f"{width} x {height}"))
    print("\n### Other tiles and halo modes, measured with the same tool, metaproto-df\n")
    head = "network | halo of columns, rows | points | energy: least | median | most (tile) | cycles: least (tile)"
    print(f"| {head} | median | most |")
    print("|---|---|" + "---:|" * 7)
    for (network, mode), found in ratios.items():
        energies, cycles_ = sorted(found), sorted((c, t) for _, c, t in found)
        print(
            f"| {network} | {mode} | {len(found)} | {energies[0][0]:.3f} | {median(e for e, _, _ in found):.3f} "
            f"| {energies[-1][0]:.3f} ({energies[-1][2]}) | {cycles_[0][0]:.3f} ({cycles_[0][1]}) "
            f"| {median(c for _, c, _ in found):.3f} | {cycles_[-1][0]:.3f} |"
        )
    print(f"\n{refused} points keep intermediates in DRAM in the tool; a group may not, so they are refused.")


def _batched_classifiers() -> None:
    """N-4: weight traffic with classifiers read as in the plan of the batch; alone every image reads all weights."""
    print(f"\n### N-4: classifier weights batched, {_IMAGES} images, cluster4x4\n")
    print("| model | classifier share | 15/16 of it | classifiers batched | saving | our plan of the batch | saving |")
    print("|---|" + "---:|" * 6)
    for name in ("bvlc_alexnet", "vgg19"):
        path = light_path(name)
        plan = compiled(path, "cluster4x4", fusion="none", batch=_IMAGES)
        one, many = _weights(plan, once=True), _weights(plan, once=False)
        alone = _IMAGES * sum(one.values())
        batched = _IMAGES * one["others"] + many["classifiers"]
        share = one["classifiers"] / sum(one.values())
        print(
            f"| {name} | {share:.1%} | {share * (_IMAGES - 1) / _IMAGES:.1%} "
            f"| {batched / 1e6:,.1f} MB of {alone / 1e6:,.1f} | {1 - batched / alone:.1%} "
            f"| {sum(many.values()) / 1e6:,.1f} MB | {1 - sum(many.values()) / alone:.1%} |"
        )


def _weights(compilation: Compilation, *, once: bool) -> dict[str, int]:
    """Weight bytes of classifiers (products that are no convolutions) and of all others: once, or as read from DRAM."""
    found = {"classifiers": 0, "others": 0}
    for segment in compilation.plan.segments:
        for group in segment.groups:
            for op in group.ops:
                kind = "classifiers" if op.kind in ("Gemm", "MatMul") else "others"
                found[kind] += op.weight_bytes * (1 if once else op.weight_loads)
    return found


def _pricing_time() -> None:
    """How long one schedule of ResNet-50 takes to price: all groups of a plan, nothing remembered."""
    print("\n### Pricing one schedule of light_resnet50\n")
    print("| profile | strategy | groups | ops | ms, median | least | most |\n|---|---|" + "---:|" * 5)
    for profile_name in ("cluster4x4", "edge4"):
        for fusion in ("none", "rules"):
            profile = builtin_profile(profile_name)
            source = ModelSource.from_bytes(light_path("resnet50").read_bytes())
            passes = build_pipeline(source, profile, parse_options({"fusion": fusion}))
            stop = next(number for number, step in enumerate(passes) if step.name == "fuse") + 1
            fused: FusedGraph = run_passes(passes[:stop], source, SilentObserver())[0]
            groups = [(group.ops, group.choice.tiling) for s in fused.segments for group in s.groups]
            times = []
            for _ in range(_ROUNDS):
                begin = perf_counter()
                costs = price_groups(fused.facts, profile, groups)
                times.append((perf_counter() - begin) * 1e3)
            planned = [group.choice.cost.cycles for s in fused.segments for group in s.groups]
            if [cost.cycles for cost in costs] != planned:
                raise AssertionError("the price of a schedule is not that of its plan")
            ops = sum(len(ops) for ops, _ in groups)
            print(
                f"| {profile_name} | {fusion} | {len(groups)} | {ops} | {median(times):.1f} | {min(times):.1f} "
                f"| {max(times):.1f} |"
            )
