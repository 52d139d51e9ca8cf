"""Segments whose programs exceed a limit are cut; an op alone whose program does is refused by name (PART-3)."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import pytest

from compiler.compile import Compilation, compile_model
from compiler.errors import LimitError
from compiler.options import parse_options
from compiler.profile.load import profile_from_values
from compiler.program.errors import ProgramError
from compiler.program.loops.proof import ProvedProgram, prove
from compiler.program.lower import LoweredSegment, LowerSegments
from compiler.program.program import Program
from compiler.program.steps.assemble import GroupStatements
from compiler.program.steps.segment import SegmentSteps
from compiler.program.steps.waits import NoCommonOrderError
from compiler.report.plan import Plan
from tests.models import Model
from tests.profiles import profile_values


def chain(count: int) -> Model:
    """Convolutions, one after another."""
    model = Model()
    x = model.input([1, 4, 8, 8], "x")
    for _ in range(count):
        x = model.conv(x, 4, 4)
    model.output(x)
    return model


def compiled(count: int, fusion: str = "rules", **limits: Any) -> Compilation:
    """The chain on a chip with limits of an executable; its values are checked."""
    values = profile_values("edge4")
    values["limits"] = limits
    return compile_model(chain(count).data(), profile_from_values(values), parse_options({"fusion": fusion}))


def test_a_segment_of_too_many_commands_is_cut_until_its_programs_keep_the_limit() -> None:
    whole = compiled(4)
    (program,) = whole.report.programs
    cut = compiled(4, commands=program.commands - 1)
    assert len(cut.report.programs) > 1
    assert all(part.commands < program.commands for part in cut.report.programs)
    assert cut.report.values_checked


def test_a_program_that_exceeds_a_limit_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made to choose a plan is not made again to be refused."""
    (program,) = compiled(4, "search").report.programs
    made: list[Program] = []
    within_limits = LowerSegments.within_limits

    def noted(self: LowerSegments, steps: Callable[[], SegmentSteps], actions_max: float = inf) -> LoweredSegment:
        found = within_limits(self, steps, actions_max)
        assert found.program is not None
        made.append(found.program)
        return found

    monkeypatch.setattr(LowerSegments, "within_limits", noted)
    cut = compiled(4, "search", commands=program.commands - 1)
    assert len(cut.report.programs) > 1
    exceeding = [its.commands.tobytes() for its in made if len(its.commands) >= len(made[0].commands)]
    assert len(exceeding) == 1


def test_an_op_whose_program_is_too_long_alone_is_refused_with_the_field_to_raise() -> None:
    with pytest.raises(LimitError) as caught:
        compiled(1, commands=2)
    assert (caught.value.code, caught.value.limit) == ("program_too_long", 2)
    assert "limits.commands" in str(caught.value)


def test_what_is_too_long_however_it_is_cut_is_refused_with_the_node_and_the_field(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """PART-3: the graph is partitioned anew as often as is stated, and no more."""
    monkeypatch.setattr("compiler.pipeline._CUTS_MAX", 1)
    with pytest.raises(LimitError) as caught:
        compiled(4, commands=2)
    assert caught.value.code == "program_too_long"
    assert caught.value.node is not None
    assert "limits.commands" in str(caught.value)
    assert "however its segment was cut" in caught.value.message


def test_the_plan_is_told_once_and_passes_that_went_back_are_timed() -> None:
    (program,) = compiled(4).report.programs
    values = profile_values("edge4")
    values["limits"] = {"commands": program.commands - 1}
    told: list[Plan] = []
    found = compile_model(
        chain(4).data(), profile_from_values(values), parse_options({"fusion": "rules"}), announce=told.append
    )
    assert len(told) == 1
    assert [timing.name for timing in found.timings].count("program") > 1


def test_a_program_whose_statements_do_not_hold_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROG-4, PROG-7: what the proof refuses is lowered again, command by command."""
    refused: list[Program] = []

    def judged(program: Program, **others: Any) -> ProvedProgram:
        if not refused:
            refused.append(program)
            raise ProgramError("refused on purpose", violation="dependency")
        return prove(program, **others)

    monkeypatch.setattr("compiler.program.lower.prove", judged)
    found = compiled(2)
    assert refused
    assert found.report.values_checked
    assert not found.plan.degraded


def test_a_group_without_an_order_that_all_iterations_have_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(group: GroupStatements, _: object) -> None:
        raise NoCommonOrderError("refused on purpose", group.number)

    monkeypatch.setattr(SegmentSteps.lowered, "__defaults__", (0, inf))
    monkeypatch.setattr("compiler.program.steps.segment.inside_of", refuse)
    found = compiled(2)
    (program,) = found.report.programs
    assert program.statements == program.commands
    assert found.report.values_checked
    assert not found.plan.degraded
