"""SIM-1: parts of sums store boxes of whole sums, and calls after them what stays on the chip; no fault is hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from compiler.program.executable import Executable
from compiler.program.program import Opcode, Program
from compiler.simulator.compare import agree_within_rounding
from compiler.simulator.inputs import random_inputs
from compiler.simulator.run import MadeOf, run_executable
from compiler.simulator.value_check import SEED, check_values
from tests.compiler.program.builder import changed
from tests.compiler.program.loops.expander import expanded
from tests.compiler.simulator.faults import (
    FAULTS,
    Fault,
    checked,
    compiled,
    find_faults,
    kernels_run,
    program_of,
    with_program,
    wrong_box,
    wrong_table,
)

# the tests are about what a plan chosen by simulation keeps on the chip
pytestmark = pytest.mark.chosen

# The network has no activation that is another op, and no call of it has a part of the rows.
OF_ANY_PROGRAM: Final = tuple(fault for fault in FAULTS if fault not in (wrong_table, wrong_box))


def added_parts(program: Program) -> Any:
    """The commands of calls that add a part to a sum; all commands are listed."""
    calls = program.calls[program.commands["call"]]
    adds = [program.tables[call["table"]].entries[call["entry"]]["begins"] == 0 for call in calls]
    return np.flatnonzero((program.commands["opcode"] == Opcode.COMPUTE) & np.array(adds))


def wrong_channels(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A call takes its data to begin one channel earlier: it reads each from where the next one lies."""
    return wrong_box(executable, pick, axis=1)


def missing_part(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A part of a sum is not added."""
    program = program_of(executable)
    row = pick(added_parts(program))
    return with_program(executable, changed(program, commands=(row, "opcode", int(Opcode.BARRIER))))


def other_part(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A part of a sum is added in place of another one."""
    program = program_of(executable)
    parts = added_parts(program)
    call = int(program.commands["call"][pick(parts)])
    return with_program(executable, changed(program, commands=(pick(parts), "call", call)))


def begun_anew(executable: Executable, pick: Callable[[Any], int]) -> Executable:
    """A part that is to be added begins the sum."""
    program = program_of(executable)
    call = program.calls[int(program.commands["call"][pick(added_parts(program))])]
    tables = list(program.tables)
    entries = tables[call["table"]].entries.copy()
    entries["begins"][call["entry"]] = 1
    tables[call["table"]] = replace(tables[call["table"]], entries=entries)
    return with_program(executable, replace(program, tables=tuple(tables)))


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize(
    "fault",
    [*OF_ANY_PROGRAM, wrong_channels, missing_part, other_part, begun_anew],
    ids=lambda fault: str(fault.__name__),
)
def test_the_check_finds_faults_of_sums_in_parts(fault: Fault) -> None:
    """So it does where most calls make parts of sums, and the group after them reads what they left on the chip."""
    find_faults(fault, *checked("edge4", in_parts=True))


def test_few_parts_of_sums_run_their_kernels_and_none_that_reads_them_on_the_chip_runs_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In loops and listed; what all kernels make is the same to rounding."""
    for executable, graph, source in (compiled("edge4", in_parts=True), checked("edge4", in_parts=True)):
        program = program_of(executable)
        listed = expanded(program)
        steps = {step.tensor: step.group for step in program.steps}
        assert len(set(steps.values())) == 2
        # of the two results of the first group neither has a region
        assert {"v2", "v3"} <= steps.keys() - {region.name for region in program.regions}
        assert len(added_parts(listed)) > 50
        inputs = random_inputs(graph, SEED)
        kernels = run_executable(executable, inputs)
        with monkeypatch.context() as patch:
            ran = kernels_run(patch)
            found = run_executable(executable, inputs, made_of=MadeOf(graph=graph))
        assert len(ran) < int((listed.commands["opcode"] == Opcode.COMPUTE).sum()) / 2
        assert all(agree_within_rounding(found[name], values) for name, values in kernels.items())
        assert check_values(executable, graph, source).holds


def test_sums_whose_parts_are_too_many_to_keep_run_their_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their ends store whole results all the same, so calls after them need not compute."""
    executable, graph, _ = compiled("edge4", in_parts=True)
    inputs = random_inputs(graph, SEED)
    ran = kernels_run(monkeypatch)
    kept = run_executable(executable, inputs, made_of=MadeOf(graph=graph))
    few = len(ran)
    monkeypatch.setattr("compiler.simulator.whole_tensors.WholeTensors._cuts", lambda *_: [])
    found = run_executable(executable, inputs, made_of=MadeOf(graph=graph))
    assert all(agree_within_rounding(found[name], values) for name, values in kept.items())
    assert len(ran) - few >= len(added_parts(expanded(program_of(executable)))) > few
