"""Small models with dynamic dimensions, and their values at given ones both ways that packages are run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from compiler.compile import compile_shapes
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant
from compiler.options import parse_options
from compiler.profile import Profile, builtin_profile, parse_profile, profile_json
from compiler.program.executable import ChipSegment, Executable
from compiler.program.program import Program
from compiler.shapes.direct import run_directly
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import ShapeModel
from compiler.shapes.package import read_package, stored_values, write_package
from compiler.simulator.compare import compare, limits_of
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import run_reference
from compiler.simulator.value_check import check_values
from tests.models import Model

Ranges = Mapping[str, tuple[int, int]]


class Compiled:
    """A model compiled for ranges of its dimensions, beside its source."""

    def __init__(
        self, source: ModelSource, ranges: Ranges, profile: str | Profile = "edge4", **options: object
    ) -> None:
        dims = {name: {"min": low, "max": high} for name, (low, high) in ranges.items()}
        self.source = source
        self.profile = builtin_profile(profile) if isinstance(profile, str) else profile
        assert not source.files
        self.model = _shape_model(
            bytes(source.data), source.name, profile_json(self.profile), json.dumps({"dims": dims, **options})
        )
        self.has_host = any(part.is_host for part in self.model.parts)

    @classmethod
    def of(cls, model: Model, ranges: Ranges, profile: str | Profile = "edge4", **options: object) -> Compiled:
        """A model built by a test."""
        return cls(ModelSource.from_bytes(model.data()), ranges, profile, **options)

    def values(self, constant: Constant) -> NDArray[Any]:
        """The elements of a constant of the model."""
        return materialise(constant, opened(self.model.graph.source, self.source))

    def package(self) -> bytes:
        """The model's package without tables."""
        return b"".join(bytes(piece) for piece in write_package(self.model, [], self.values))

    def executable(self, dims: Mapping[str, int]) -> Executable:
        """The executable at given dimensions, by simple tables."""
        source = opened(self.model.graph.source, self.source)
        return instantiate(self.model, dims, simple_tables(self.model, dims), source)

    def programs(self, dims: Mapping[str, int]) -> list[Program]:
        """The programs of its segments on chips."""
        return [one.program for one in self.executable(dims).segments if isinstance(one, ChipSegment)]

    def misses(self, dims: Mapping[str, int], seed: int = 1) -> list[str]:
        """What differs from the model itself at given dimensions: by the program, and by the tables alone."""
        graph = graph_at(self.model.graph, dims, self.values)
        check = check_values(self.executable(dims), graph, self.source, seed)
        found = [] if check.has_run else [f"{dict(dims)}: nothing was compared: {check.reason}"]
        if not check.holds:
            found.append(f"{dict(dims)}: the program's {check.worst}")
        return found if self.has_host else found + self._direct_misses(dims, seed)

    def _direct_misses(self, dims: Mapping[str, int], seed: int) -> list[str]:
        package = read_package(memoryview(self.package()))
        values = stored_values(package.data)
        graph = graph_at(package.model.graph, dims, values)
        # the package's own graph does not say which indices its constants allow
        inputs = random_inputs(graph_at(self.model.graph, dims, self.values), seed)
        expected = run_reference(self.source, inputs).values
        limits = limits_of(graph)
        tensor_of = dict(zip(graph.output_names, graph.output_tensors, strict=True))
        misses = []
        for name, array in run_directly(package.model, values, inputs).items():
            found = compare(name, array, expected[name], limit=limits.get(tensor_of[name]))
            if array.shape != expected[name].shape or not found.holds:
                misses.append(f"{dict(dims)}: by tables alone {found}, {array.shape} for {expected[name].shape}")
        return misses


@cache
def _shape_model(model: bytes, name: str, profile: bytes, options: str) -> ShapeModel:
    """A model's units and costs, made once per test process: many tests ask about the same few networks."""
    source = ModelSource.from_bytes(model, name=name)
    return compile_shapes(source, parse_profile(profile), parse_options(json.loads(options)))


def corners_and(ranges: Ranges, count: int, seed: int = 0) -> list[dict[str, int]]:
    """Both ends of all ranges, and `count` random dimensions in between."""
    random = np.random.default_rng(seed)
    ends = [{name: ends[side] for name, ends in ranges.items()} for side in (0, 1)]
    return ends + [
        {name: int(random.integers(low, high + 1)) for name, (low, high) in ranges.items()} for _ in range(count)
    ]


def misses(model: Model, ranges: Ranges, *, count: int = 3, profile: str | Profile = "edge4") -> list[str]:
    """What differs from ONNX Runtime at the ends of the ranges and at `count` random dimensions."""
    compiled = Compiled.of(model, ranges, profile)
    return [miss for dims in corners_and(ranges, count) for miss in compiled.misses(dims)]
