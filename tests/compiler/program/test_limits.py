"""Segments whose programs exceed a limit are cut; an op alone whose program does is refused by name (PART-3)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.compile import Compilation, compile_model
from compiler.errors import LimitError
from compiler.options import parse_options
from compiler.profile.load import profile_from_values
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


def test_search_finds_shorter_programs_before_a_segment_is_cut() -> None:
    (program,) = compiled(4, "search").report.programs
    (shorter,) = compiled(4, "search", commands=program.commands - 1).report.programs
    assert shorter.commands < program.commands


def test_an_op_whose_program_is_too_long_alone_is_refused_with_the_field_to_raise() -> None:
    with pytest.raises(LimitError) as caught:
        compiled(1, commands=2)
    assert (caught.value.code, caught.value.limit) == ("program_too_long", 2)
    assert "limits.commands" in str(caught.value)
