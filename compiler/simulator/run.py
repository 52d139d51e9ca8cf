"""Runs an executable: chip segments on simulated chips, host segments on the host, in order (SIM-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from compiler.errors import RequestError
from compiler.host_bound import HOST_BOUND, HostBound
from compiler.ir.graph import Graph
from compiler.program.executable import ChipSegment, Executable, HostConstant, HostSegment
from compiler.program.loops.proof import ProvedProgram
from compiler.program.program import Program, Role, Step
from compiler.simulator.external_files import refuse_outside
from compiler.simulator.values import Chip
from compiler.threads import one_thread
from compiler.units import DTYPE_NAMES, numpy_dtype

# Called after the last command of a step of a chip segment.
StepObserver = Callable[[str, int, Step, Chip], None]
# A program, and what its proof found.
Proved = tuple[Program, ProvedProgram]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeOf:
    """What a compilation knows of its executable: the graph, and by segment a program and what its proof found."""

    graph: Graph
    proofs: Mapping[str, Proved] = field(default_factory=dict)

    def proof(self, segment: ChipSegment) -> ProvedProgram | None:
        """What the proof of this very program found; None if the segment has another one, or none is proved."""
        program, proof = self.proofs.get(segment.id, (None, None))
        return proof if program is segment.program else None


def run_executable(
    executable: Executable,
    inputs: Mapping[str, Any],
    *,
    made_of: MadeOf | None = None,
    observer: StepObserver | None = None,
    results: Callable[[str, Any], None] | None = None,
    bound: HostBound = HOST_BOUND,
) -> dict[str, Any]:
    """Runs an executable on inputs by ONNX name and returns its outputs by ONNX name.

    With what it was `made_of`, calls on the chip take results from whole ops where that is the same (`whole_ops.py`);
    without it each computes its own. `results` is called with every tensor that a segment returns or
    passes from group to group. Raises RequestError for inputs that are missing, unknown or of another type or shape, or
    if the executable has no weights; ProgramError for an unsafe program; ModelError naming a host node that no runtime
    can run, HostBoundError naming one that takes longer than `bound`; ExecutableError if the host would open a file.
    """
    if not executable.has_values:
        raise RequestError(
            "an executable made under option precision has no values and cannot be run",
            code="no_values",
            hint="Compile without option precision to run the model",
        )
    refuse_outside(executable)
    with one_thread():
        return _run(executable, _given(executable, inputs), made_of, observer, results, bound)


def _run(
    executable: Executable,
    values: dict[str, Any],
    made_of: MadeOf | None,
    observer: StepObserver | None,
    results: Callable[[str, Any], None] | None,
    bound: HostBound,
) -> dict[str, Any]:
    """Runs all segments in order, from inputs and host constants by tensor name."""
    needed = _last_uses(executable)
    types = {value.tensor: value.dtype for value in executable.inputs}
    for number, segment in enumerate(executable.segments):
        if isinstance(segment, HostSegment):
            # imported for host nodes only: chip segments need nothing of the import
            from compiler.simulator.host import run_nodes

            made = run_nodes(segment.nodes, values, types=types, bound=bound)
            values |= {name: made[name] for name in segment.outputs if name in made}
        else:
            values |= _run_chip(executable, segment, values, made_of, observer, results)
        for name in [name for name in values if needed.get(name, -1) <= number]:
            del values[name]
    return {output.name: values[output.tensor] for output in executable.outputs}


def _given(executable: Executable, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Inputs and host constants by tensor name."""
    known = {value.name for value in executable.inputs}
    for name in inputs:
        if name not in known:
            raise RequestError(
                f"the model has no input {name!r}", code="unknown_input", actual=name, limit=", ".join(sorted(known))
            )
    values: dict[str, Any] = {constant.name: _constant(constant) for constant in executable.constants}
    for value in executable.inputs:
        if value.name not in inputs:
            raise RequestError(f"input {value.name!r} is missing", code="missing_input", limit=value.name)
        array = inputs[value.name]
        if value.shape is not None and isinstance(array, np.ndarray | np.generic):
            array = np.asarray(array)
            # only the host's runtime knows the other types
            is_other = value.dtype in DTYPE_NAMES and array.dtype != numpy_dtype(value.dtype)
            if array.shape != value.shape or is_other:
                raise RequestError(
                    f"input {value.name!r} is of another shape or element type",
                    code="wrong_input",
                    actual=f"{array.dtype}{list(array.shape)}",
                    limit=f"{value.dtype}{list(value.shape)}",
                )
        values[value.tensor] = array
    return values


def _last_uses(executable: Executable) -> dict[str, int]:
    """The last segment that reads each tensor; outputs are needed to the end."""
    last: dict[str, int] = {}
    for number, segment in enumerate(executable.segments):
        names = segment.inputs if isinstance(segment, HostSegment) else _reads(segment)
        for name in names:
            last[name] = number
    for output in executable.outputs:
        last[output.tensor] = len(executable.segments)
    return last


def _reads(segment: ChipSegment) -> tuple[str, ...]:
    return tuple(region.name for region in segment.program.regions if region.role is Role.INPUT)


def _constant(constant: HostConstant) -> Any:
    if constant.form == "tensor":
        return numpy_helper.to_array(onnx.TensorProto.FromString(bytes(constant.data.view())))
    values = np.empty(constant.data.size_bytes, dtype=np.uint8)
    constant.data.write_to(values)
    return values.view(numpy_dtype(constant.dtype)).reshape(constant.shape)


def _run_chip(
    executable: Executable,
    segment: ChipSegment,
    values: Mapping[str, Any],
    made_of: MadeOf | None,
    observer: StepObserver | None,
    results: Callable[[str, Any], None] | None,
) -> dict[str, Any]:
    """Runs one chip segment: loads inputs and weights, runs all commands, returns its outputs."""
    program = segment.program
    chip = Chip(
        program,
        shared=executable.profile.engines.shared,
        graph=None if made_of is None else made_of.graph,
        proof=None if made_of is None else made_of.proof(segment),
    )
    for weight in segment.weights:
        region = program.regions[weight.region]
        chip.write_bytes(region.name, weight.data.write_to)
    for region in program.regions:
        if region.role is Role.INPUT:
            chip.write(region.name, np.asarray(values[region.name]))
    told = None
    if observer is not None:
        watch = observer

        def told(number: int, step: Step, chip: Chip) -> None:
            watch(segment.id, number, step, chip)

    chip.run(told)
    if results is not None:
        for region in program.regions:
            if region.role in (Role.OUTPUT, Role.INTERMEDIATE):
                results(region.name, chip.read(region.name))
    return {region.name: chip.read(region.name) for region in program.regions if region.role is Role.OUTPUT}
