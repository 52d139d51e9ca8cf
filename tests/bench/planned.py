"""Plans of the networks that benchmarks lower: what each segment's program is made from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from compiler.frontend.precision import SetPrecision
from compiler.fusion.candidate import SegmentCompilers
from compiler.fusion.fuse import FuseSegments
from compiler.options import parse_options
from compiler.profile.load import builtin_profile
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup
from tests.bench.light_models import light_models
from tests.models import import_graph, partition_of
from tests.networks import NETWORKS

# The built-in chips, and the precision of those that compute in eight bits only.
CHIPS: Final = {"edge4": "", "cluster4x4": "", "manycore2x64": "", "polar4x4": "int8", "metaproto-df": "int8"}


def models() -> Mapping[str, Callable[[], bytes]]:
    """Networks by name: those of tests/networks.py, and `light_` with the name of a light model of onnx."""
    light = {f"light_{name}": lambda data=data: data for name, data in light_models().items()}
    return {**{name: lambda build=build: build().SerializeToString() for name, build in NETWORKS.items()}, **light}


def segments(name: str, chip: str) -> Iterator[tuple[Any, ...]]:
    """What each segment of a network's plan is lowered from, under the default options."""
    profile, graph = builtin_profile(chip), import_graph(models()[name]())
    options = parse_options({"precision": CHIPS[chip]} if CHIPS[chip] else {})
    if CHIPS[chip]:
        graph = SetPrecision(precision=CHIPS[chip]).run(graph)
    compilers = SegmentCompilers(profile, options)
    fused = FuseSegments(options=options, compilers=compilers).run(partition_of(graph, profile, options))
    for segment in fused.segments:
        if segment.groups:
            planned = [
                PlannedGroup(name=f"{segment.segment.id}.g{number}", ops=group.ops, tiling=group.choice.tiling)
                for number, group in enumerate(segment.groups)
            ]
            outputs = handed_out(fused.facts, segment.segment.ops)
            resident = compilers.of(fused.facts).resident_bytes(segment.segment.ops)
            yield fused.facts, profile, segment.segment.id, planned, outputs, resident
