"""Models compiled once and asked for many shapes: table times, values, memory (SHAPE-6, SHAPE-7, SHAPE-9).

`python -m tests.bench shapes`. An encoder over token ids of free batch and length, and a convolutional network with
residuals over images of free height and width. Simple tables are those of all routines of a model together.
"""

from __future__ import annotations

import cProfile
import pstats
import resource
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final

import numpy as np

from compiler.shapes.direct import run_directly
from compiler.shapes.extents import dims_of
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import simple_tables
from compiler.simulator.compare import compare, limits_of
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import run_reference
from tests.compiler.shapes.dynamic import Compiled, Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model

_SHAPES: Final = 1_000
_CHECKED: Final = 50
_MANY: Final = 10_000
# Instances are simulated command by command up to this product of extents, larger ones run by their tables alone.
_SIMULATED: Final = {"encoder": 96, "images": 90 * 90}
_MILLION: Final = 1e6


def run() -> None:
    """Print the figures of both models."""
    models: dict[str, tuple[Callable[[], Model], Ranges]] = {
        "encoder": (lambda: encoder_layer(hidden=64, heads=4, layers=2, words=1000, places=512), _ENCODER),
        "images": (residual_images, _IMAGES),
    }
    for name, (build, ranges) in models.items():
        begin = perf_counter()
        of = Compiled.of(build(), ranges, "cluster4x4")
        seconds = perf_counter() - begin
        units = sum(len(library.tiles) for library in of.model.libraries)
        print(f"\n### {name}: {len(of.model.graph.ops)} ops, {len(of.model.libraries)} routines, {units} units\n")
        print(f"Compiled once in {seconds:.1f} s; package of {len(of.package()) / _MILLION:.2f} MB.\n")
        shapes = drawn(ranges, _SHAPES)
        _print_times(of, shapes)
        _print_calls(of, shapes)
        _print_memory(of, drawn(ranges, _MANY, seed=1))
        _print_values(of, name, shapes[:_CHECKED])


_ENCODER: Final[Ranges] = {"batch": (1, 8), "length": (1, 512)}
_IMAGES: Final[Ranges] = {"height": (33, 513), "width": (33, 513)}


def residual_images() -> Model:
    """Strided convolutions, pooling and two residual blocks over one image of free height and width."""
    model = Model()
    x = model.input([1, 3, "height", "width"], "image")
    x = model.pool(model.relu(model.norm(model.conv(x, 3, 8, 3, stride=2), 8)))
    for channels in (8, 16):
        if channels > 8:
            x = model.relu(model.norm(model.conv(x, 8, channels, 3, stride=2), channels))
        inner = model.relu(model.norm(model.conv(x, channels, channels, 3), channels))
        x = model.relu(model.node("Add", [model.norm(model.conv(inner, channels, channels, 3), channels), x]))
    model.output(
        model.node("Gemm", [model.node("Flatten", [model.node("GlobalAveragePool", [x])]), model.weight(16, 10)])
    )
    return model


def drawn(ranges: Ranges, count: int, seed: int = 0) -> list[dict[str, int]]:
    """Dimensions drawn evenly within the ranges."""
    random = np.random.default_rng(seed)
    return [{name: int(random.integers(low, high + 1)) for name, (low, high) in ranges.items()} for _ in range(count)]


def _print_times(of: Compiled, shapes: list[dict[str, int]]) -> None:
    """Microseconds from the shapes of the inputs to the tables of all routines, of the process and on the clock."""
    asked = [_input_shapes(of, dims) for dims in shapes]
    times = []
    for given in asked:
        begin, wall = process_time(), perf_counter()
        simple_tables(of.model, dims_of(of.model.inputs, of.model.ranges, given, partial=False))
        times.append((process_time() - begin, perf_counter() - wall))
    spent = np.array(times) * _MILLION
    rows = [spent[0], *np.percentile(spent[1:], [50, 99, 100], axis=0)]
    print(f"| {_SHAPES:,} shapes, µs | of the process | on the clock |\n|---|---:|---:|")
    for label, (process, clock) in zip(("first, which makes what serves all", "p50", "p99", "max"), rows, strict=True):
        print(f"| {label} | {process:,.0f} | {clock:,.0f} |")
    print()


def _input_shapes(of: Compiled, dims: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    return {
        one.name: tuple(extent if isinstance(extent, int) else extent.value(dims) for extent in one.extents)
        for one in of.model.inputs
        if one.is_read
    }


def _print_calls(of: Compiled, shapes: list[dict[str, int]]) -> None:
    """What ran for all shapes: how often a pass or a choice of units did, and what took most."""
    profile = cProfile.Profile()
    profile.enable()
    for dims in shapes:
        simple_tables(of.model, dims)
    profile.disable()
    found: Any = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    compiling = sum(
        calls
        for (file, _, _), (_, calls, *_) in found.items()
        if Path(file).name in ("pipeline.py", "compile.py", "build.py", "choose.py", "library.py", "lower.py")
    )
    total = sum(own for _, _, own, *_ in found.values())
    most = sorted(found.items(), key=lambda item: -item[1][2])[:4]
    shares = ", ".join(f"`{function}` {own / total:.0%}" for (_, _, function), (_, _, own, *_) in most)
    print(f"Calls of compiling code for {len(shapes):,} shapes: {compiling}. Own time, profiled: {shares}.\n")


def _print_values(of: Compiled, name: str, shapes: list[dict[str, int]]) -> None:
    """How many sampled shapes have the values of ONNX Runtime, and how they were run."""
    tried = {"simulated": 0, "by tables alone": 0}
    right = dict(tried)
    for dims in shapes:
        if np.prod(list(dims.values())) <= _SIMULATED[name]:
            tried["simulated"] += 1
            right["simulated"] += not of.misses(dims)
            continue
        tried["by tables alone"] += 1
        graph = graph_at(of.model.graph, dims, of.values)
        inputs = random_inputs(graph, 1)
        expected = run_reference(of.source, inputs).values
        limits = limits_of(graph)
        tensor_of = dict(zip(graph.output_names, graph.output_tensors, strict=True))
        made = run_directly(of.model, of.values, inputs)
        right["by tables alone"] += all(
            compare(key, array, expected[key], limit=limits.get(tensor_of[key])).holds for key, array in made.items()
        )
    for way, count in tried.items():
        print(f"Values as ONNX Runtime's, {way}: {right[way]} of {count}.")
    print()


def _print_memory(of: Compiled, shapes: list[dict[str, int]]) -> None:
    """Resident memory while tables of ever more shapes are made and dropped; what is kept is counted."""
    print("| shapes | resident MB | choosers kept |\n|---:|---:|---:|")
    for number, dims in enumerate(shapes, start=1):
        simple_tables(of.model, dims)
        if number in (1, 100, 1_000, 2_000, 5_000, _MANY):
            print(f"| {number:,} | {_resident_mb():.1f} | {len(of.model.choosers)} |")
    print()


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / _MILLION
