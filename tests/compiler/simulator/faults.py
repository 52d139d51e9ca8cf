"""Small networks compiled for the value check, and faults of their programs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, Final

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.ir.graph import Graph
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.program.encoding.blob import Blob
from compiler.program.errors import ProgramError
from compiler.program.executable import ChipSegment, Executable
from compiler.program.program import OUTPUT, Opcode, Program
from compiler.simulator import value_check
from compiler.simulator.calls import CallRunner
from compiler.simulator.inputs import random_inputs
from compiler.simulator.run import run_executable
from compiler.simulator.value_check import SEED, ValueCheck, check_values
from tests.compiler.planning import BY_RULES
from tests.compiler.program.builder import changed
from tests.compiler.program.loops.expander import expanded
from tests.models import Model


def kernels_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The commands of calls that run their kernels from now on."""
    ran: list[int] = []
    before = CallRunner.run

    def run(self: CallRunner, command: int, *rest: Any) -> None:
        ran.append(command)
        before(self, command, *rest)

    monkeypatch.setattr(CallRunner, "run", run)
    return ran


def of_two_maps() -> Model:
    """Two convolutions beside each other, and one on their pooled result."""
    model = Model(seed=3)
    x = model.input([1, 3, 24, 24], "x")
    for channels, filters in ((3, 8), (8, 8)):
        x = model.relu(model.conv(x, channels, filters, bias=True))
    model.output(model.conv(model.pool(x), 8, 12))
    return model


def of_many_channels() -> Model:
    """A convolution whose channels are summed in parts on `edge4`; its result stays on the chip for the next group."""
    model = Model(seed=3)
    x = model.relu(model.conv(model.input([1, 512, 7, 7], "x"), 512, 32))
    model.output(model.conv(x, 32, 32))
    return model


@cache
def checked(chip: str, *, in_parts: bool = False) -> tuple[Executable, Graph, Any]:
    """The executable of a small network on a chip, its graph and its source, as the value check gets them.

    All commands are listed.
    """
    executable, graph, source = compiled(chip, in_parts=in_parts)
    return with_program(executable, expanded(program_of(executable))), graph, source


@cache
def compiled(chip: str, *, in_parts: bool) -> tuple[Executable, Graph, Any]:
    """As `checked`, with its loops."""
    asked: list[Any] = []

    def note(*arguments: Any, **named: Any) -> ValueCheck:
        asked.append(arguments)
        return check_values(*arguments, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_check, "check_values", note)
        model, options = (of_many_channels(), Options()) if in_parts else (of_two_maps(), BY_RULES)
        compile_model(model.data(), builtin_profile(chip), options)
    ((executable, graph, source),) = asked
    return executable, graph, source


def with_program(executable: Executable, program: Program) -> Executable:
    """An executable of one segment with another program."""
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    return replace(executable, segments=(replace(segment, program=program),))


def wrong_address(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A call reads its data one element further."""
    program = program_of(executable)
    row = pick(np.flatnonzero(program.bindings["operand"] == 0))
    return with_program(
        executable, changed(program, bindings=(row, "address", int(program.bindings["address"][row]) + 4))
    )


def wrong_place_of_a_result(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A call stores its result one element further."""
    program = program_of(executable)
    row = pick(np.flatnonzero(program.bindings["operand"] == OUTPUT))
    return with_program(
        executable, changed(program, bindings=(row, "address", int(program.bindings["address"][row]) + 4))
    )


def wrong_box(executable: Executable, pick: Callable[[Any], int], axis: int = 2) -> Executable:
    """A call takes its data to begin one position (row) earlier: it reads each from where the next one lies."""
    program = program_of(executable)
    row = pick(np.flatnonzero((program.bindings["operand"] == 0) & (program.bindings["starts"][:, axis] > 0)))
    bindings = program.bindings.copy()
    bindings["starts"][row, axis] -= 1
    bindings["lengths"][row, axis] += 1
    return with_program(executable, replace(program, bindings=bindings))


def stale_data(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A transfer to the chip does not happen."""
    program = program_of(executable)
    row = pick(np.flatnonzero(program.commands["opcode"] <= Opcode.EXCHANGE))
    return with_program(executable, changed(program, commands=(row, "opcode", int(Opcode.BARRIER))))


def wrong_rows(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A load brings what lies 32 bytes further in the DRAM."""
    program = program_of(executable)
    row = pick(np.flatnonzero(program.commands["opcode"] == Opcode.LOAD))
    at = int(program.commands["source_address"][row])
    return with_program(executable, changed(program, commands=(row, "source_address", at + 32)))


def wrong_table(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A table is one of another unit: the op is another one."""
    program = program_of(executable)
    units = list(program.units)
    row = pick(np.array([number for number, unit in enumerate(units) if unit.kind == "Relu"]))
    units[row] = replace(units[row], kind="Abs")
    return with_program(executable, replace(program, units=tuple(units)))


def wrong_weight(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """One weight is another one."""
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    row = pick(np.arange(len(segment.weights)))
    weights = list(segment.weights)
    values = np.frombuffer(bytes(weights[row].data.view()), dtype=np.float32).copy()
    values[pick(np.arange(len(values)))] += 1.0
    weights[row] = replace(weights[row], data=Blob.of(values.tobytes()))
    return replace(executable, segments=(replace(segment, weights=tuple(weights)),))


def program_of(executable: Executable) -> Program:
    """The program of an executable of one segment."""
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    return segment.program


Fault = Callable[[Executable, Callable[[Any], int]], Executable]
FAULTS: Final[tuple[Fault, ...]] = (
    wrong_address,
    wrong_place_of_a_result,
    wrong_box,
    stale_data,
    wrong_rows,
    wrong_table,
    wrong_weight,
)


def find_faults(fault: Fault, executable: Executable, graph: Graph, source: Any) -> None:
    """Put the fault in at random places until four give other outputs (one at least): the check finds each of these."""
    inputs = random_inputs(graph, SEED)
    right = run_executable(executable, inputs)
    random, ran = np.random.default_rng(7), 0
    for _ in range(40):
        try:
            other = fault(executable, lambda rows: int(random.choice(rows)))
            outputs = run_executable(other, inputs)
            found = check_values(other, graph, source)
        except ProgramError:
            continue
        if all(outputs[name].tobytes() == array.tobytes() for name, array in right.items()):
            continue
        ran += 1
        assert not found.holds, fault.__name__
        if ran == 4:
            break
    assert ran
