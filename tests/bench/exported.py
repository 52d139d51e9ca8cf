"""The exported networks on `cluster4x4`: what share of them the accelerator runs (IMPORT-5, IMPORT-6)."""

from __future__ import annotations

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.exported import exported_models

PROFILE = "cluster4x4"


def run() -> None:
    """Print one line per network and exporter."""
    profile = builtin_profile(PROFILE)
    print(f"\n### Native share of the exported networks, `{PROFILE}`\n")
    columns = "file | nodes | folded | chip | host | native by nodes | MMACs | native by MACs | segments | groups | s"
    print(f"| {columns} |")
    print("|---|" + "---:|" * 10)
    for model in exported_models():
        compilation = compile_model(model.read(), profile, parse_options({"dims": model.dims}))
        plan, native = compilation.plan, compilation.plan.native
        nodes, macs = native.chip_nodes + native.host_nodes, native.chip_macs + native.host_macs
        share = f"{100 * native.chip_macs / macs:.2f} %" if macs else "–"
        if native.host_nodes_of_unknown_work:
            share += f" + {native.host_nodes_of_unknown_work} of unknown work"
        groups = sum(len(segment.groups) for segment in plan.segments)
        seconds = sum(timing.duration_s for timing in compilation.timings)
        print(
            f"| {model.file} | {model.nodes} | {len(plan.folded)} | {native.chip_nodes} | {native.host_nodes} |"
            f" {100 * native.chip_nodes / nodes:.1f} % | {macs / 1e6:.2f} | {share} | {len(plan.segments)} | {groups} |"
            f" {seconds:.2f} |"
        )
