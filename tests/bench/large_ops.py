"""Single ops whose weights and maps exceed a core many times: how near their plans come to what is possible."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

from compiler.compile import Compilation, compile_model
from compiler.errors import LimitError, RequestError
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model

CHIPS: Final = ("edge4", "cluster4x4", "manycore2x64")


def convolution(channels: int, extent: int, filters: int, kernel: int = 3, dilation: int = 1) -> Model:
    """A convolution that keeps its map's size."""
    model = Model()
    inputs = [model.input([1, channels, extent, extent]), model.weight(filters, channels, kernel, kernel)]
    pads = [kernel // 2 * dilation] * 4
    model.output(model.node("Conv", inputs, name="large", pads=pads, dilations=[dilation] * 2))
    return model


def product(rows: int, inner: int, columns: int, *, constant: bool = True) -> Model:
    """A matrix product by a constant, or of two inputs."""
    model = Model()
    x = model.input([rows, inner])
    y = model.weight(inner, columns) if constant else model.input([inner, columns])
    model.output(model.node("MatMul", [x, y], name="large"))
    return model


OPS: Final[dict[str, Callable[[], Model]]] = {
    "Conv 3 × 3, 512 to 256, 64 × 64": lambda: convolution(512, 64, 256),
    "Conv 3 × 3, 512 to 256, 96 × 96": lambda: convolution(512, 96, 256),
    "Conv 1 × 1, 2048 to 512, 64 × 64": lambda: convolution(2048, 64, 512, 1),
    "Conv 3 × 3, 256 to 256, 65 × 65, dilation 12": lambda: convolution(256, 65, 256, dilation=12),
    "MatMul 512 × 4096 × 4096": lambda: product(512, 4096, 4096),
    "MatMul 2048 × 4096 × 1024": lambda: product(2048, 4096, 1024),
    "MatMul 4096 × 512 × 4096, both computed": lambda: product(4096, 512, 4096, constant=False),
}


def run() -> None:
    """Print per op and chip the plan, and the same with sums that are taken at once (a pinned schedule)."""
    heads = "op", "chip", "parts", "DRAM / floor", "latency / bound", "simulated, ms", "compiled, s", "at once, ms", "s"
    print(f"| {' | '.join(heads)} |\n|---|---|{7 * '---:|'}")
    for name, build in OPS.items():
        data = build().data()
        for chip in CHIPS:
            found, seconds = _compiled(data, chip)
            whole, at_once = _compiled(data, chip, input_slices=1)
            row = (name, chip, _figures(found), f"{seconds:.1f}", _simulated(whole), f"{at_once:.1f}")
            print(f"| {' | '.join(row)} |", flush=True)


def _compiled(data: bytes, chip: str, **tiling: int) -> tuple[Compilation | None, float]:
    """A compilation without values and its seconds; None if it is refused, or cut where one op is pinned."""
    schedule = {"schedule": {"groups": [{"nodes": ["large"], "tiling": tiling}]}} if tiling else {}
    begun = perf_counter()
    try:
        found = compile_model(data, builtin_profile(chip), parse_options({"verify": "none", **schedule}))
    except (LimitError, RequestError):
        found = None
    return found, perf_counter() - begun


def _figures(found: Compilation | None) -> str:
    if found is None:
        return "none | | | "
    totals = found.plan.totals
    parts = max(group.tiling.input_slices for segment in found.plan.segments for group in segment.groups)
    ratios = f"{totals.dram_bytes / totals.dram_bytes_floor:.2f} | {totals.latency_gap_to_bound:.2f}"
    return f"{parts} | {ratios} | {_simulated(found)}"


def _simulated(found: Compilation | None) -> str:
    return "none" if found is None else f"{1e3 * (found.plan.totals.simulated_latency_s or 0):.2f}"
