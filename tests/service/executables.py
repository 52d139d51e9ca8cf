"""Executables for tests: small compiled models as files, and mutants of them that must not run."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
from onnx import TensorProto

from compiler.compile import Compilation, compile_model
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.executable import ChipSegment, Executable, write_to
from tests.models import Model


def embedding() -> Model:
    """Rows of a table named by `ids`, scaled by `gain`: a gather from DRAM, integers and floats as inputs."""
    model = Model()
    ids, gain = model.input([2, 6], "ids", TensorProto.INT64), model.input([8], "gain")
    rows = model.node("Gather", [model.weight(4, 8), ids], name="rows", axis=0)
    model.output(model.node("Mul", [rows, gain], name="scale"))
    return model


def compiled(model: Model, profile: str = "edge4", **options: object) -> Compilation:
    """The compilation of a model, without the value check unless it is asked for."""
    source = ModelSource.from_bytes(model.data(), name="net.onnx")
    return compile_model(source, builtin_profile(profile), parse_options({"verify": "none", **options}))


def executable(model: Model, profile: str = "edge4", **options: object) -> Executable:
    """Its executable."""
    found = compiled(model, profile, **options).executable
    assert found is not None
    return found


def file_of(found: Executable) -> bytes:
    """The bytes of the file."""
    file = io.BytesIO()
    write_to(found, file)
    return file.getvalue()


def unsafe(found: Executable) -> tuple[Executable, int]:
    """A mutant whose first load writes beyond its core's memory, and the number of that command."""
    number, segment = next(
        (number, segment) for number, segment in enumerate(found.segments) if isinstance(segment, ChipSegment)
    )
    program = segment.program
    commands = program.commands.copy()
    row = int(np.flatnonzero(commands["call"] < 0)[0])
    commands["target_address"][row] = program.places[commands["target"][row]].capacity_bytes
    broken = replace(segment, program=replace(program, commands=commands))
    segments = (*found.segments[:number], broken, *found.segments[number + 1 :])
    return replace(found, segments=segments), row
