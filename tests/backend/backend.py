"""Tessera as a backend of ONNX's own test suite: compile for a simulated chip, run there, hand the outputs back.

The suite's stored outputs are the judge, so the compiler's own check against ONNX Runtime is off. A model is compiled
for the shapes it is given: dynamic dimensions get their extents from the first inputs, and others mean a new
compilation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cache
from typing import Any, Final

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

from compiler.compile import compile_model
from compiler.options import Options
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.program.executable import ChipSegment, Executable
from compiler.program.program import Opcode
from compiler.simulator.run import run_executable
from tests.profiles import profile_values

# Where the native ops of the executables that a test runs are noted: one entry per run. Nobody listens by default.
NATIVE_OPS: Final[ContextVar[list[int] | None]] = ContextVar("native_ops", default=None)


class TesseraModel(BackendRep):
    """A model that is compiled when the shapes of its inputs are known."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._data = model.SerializeToString()
        defaults = {tensor.name for tensor in model.graph.initializer}
        defaults |= {tensor.values.name for tensor in model.graph.sparse_initializer}
        self._inputs = [value for value in model.graph.input if value.name not in defaults]
        self._outputs = [value.name for value in model.graph.output]
        self._executables: dict[tuple[tuple[str, int], ...], Executable] = {}

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs in the model's order; arrays have a shape even where they are scalars.

        Raises TesseraError as compiling and running do.
        """
        feeds = {value.name: given for value, given in zip(self._inputs, inputs, strict=True)}
        executable = self._executable(dims_of(self._inputs, feeds))
        heard = NATIVE_OPS.get()
        if heard is not None:
            heard.append(native_ops(executable))
        # inputs that no output depends on are none of the executable's
        wanted = {value.name for value in executable.inputs}
        found = run_executable(executable, {name: value for name, value in feeds.items() if name in wanted})
        return tuple(found[name] for name in self._outputs)

    def _executable(self, dims: Mapping[str, int]) -> Executable:
        key = tuple(sorted(dims.items()))
        if key not in self._executables:
            options = Options(verify="none", dims=dict(dims))
            executable = compile_model(self._data, suite_profile(), options).executable
            assert executable is not None, "the profile describes what programs can do"
            self._executables[key] = executable
        return self._executables[key]


class TesseraBackend(Backend):
    """What `onnx.backend.test` asks of a backend."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **_: Any) -> TesseraModel:
        """The model, to be compiled with its first inputs."""
        assert cls.supports_device(device)
        return TesseraModel(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """The suite knows CPU and CUDA; the simulated chip answers to the first."""
        return device == "CPU"


@cache
def suite_profile() -> Profile:
    """`cluster4x4` whose cores multiply matrices of bfloat16 as they do those of float16: the suite has them."""
    values = profile_values("cluster4x4")
    matrix = values["matrix"]
    for table in (matrix["arrays"], matrix["pj_per_mac"]):
        table["bfloat16"] = table["float16"]
    values["name"] = "cluster4x4-bfloat16"
    return profile_from_values(values)


def dims_of(declared: Sequence[onnx.ValueInfoProto], feeds: Mapping[str, Any]) -> dict[str, int]:
    """The named dynamic dimensions of the inputs, with the extents that the given arrays have."""
    return {
        dim.dim_param: extent
        for value in declared
        if isinstance(feeds[value.name], np.ndarray)
        for dim, extent in zip(value.type.tensor_type.shape.dim, feeds[value.name].shape, strict=False)
        if dim.dim_param
    }


def native_ops(executable: Executable) -> int:
    """Ops that a unit of the simulated chip computes: steps with a call; not ops that only move, nor the host's."""
    calls = (Opcode.COMPUTE, Opcode.GATHER)
    commands = [segment.program.commands for segment in executable.segments if isinstance(segment, ChipSegment)]
    return sum(len(np.unique(rows["step"][np.isin(rows["opcode"], calls)])) for rows in commands)
