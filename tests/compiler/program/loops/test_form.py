"""Loops of untrusted programs are well formed, or refused (PROG-4, PROG-5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances
from compiler.program.loops.loops import BINDING_ADDRESS, BINDING_FIELDS, ENTRY_START
from compiler.program.program import Program
from tests.compiler.program.loops.expander import expanded, instances_of
from tests.compiler.program.loops.mutants import mutants, with_number
from tests.compiler.program.loops.samples import sample
from tests.compiler.program.tiled import tiled_program

SAMPLE = sample()
LIMITS = ProgramLimits(looped_commands=2000)


def test_loops_that_are_well_formed_are_accepted() -> None:
    check_loops(SAMPLE)
    check_loops(tiled_program(cores=2, layers=2, rows=3, columns=3))


@pytest.mark.parametrize(
    ("name", "row", "field", "value", "message"),
    [
        ("spaces", 1, "nest", 3, "nests of spaces"),
        ("spaces", 0, "nest", 1, "nests of spaces"),
        ("spaces", 0, "counters", 9, "counters"),
        ("spaces", 0, "base", 1 << 40, "base"),
        ("spaces", 0, "extents.1", 0, "extents"),
        ("spaces", 0, "extents.5", 2, "extents"),
        ("spaces", 0, "strides.1", 0, "strides"),
        ("spaces", 0, "strides.2", 1, "strides"),
        ("spaces", 0, "strides.0", 1, "do not nest"),
        ("spaces", 0, "extents.0", (1 << 40) - 1, "too many tiles"),
        ("statements", 2, "space", 3, "space is not there"),
        ("statements", 0, "space", 1, "nests of statements do not ascend"),
        ("statements", 0, "stage", -(1 << 40), "stage"),
        ("run_offsets", 1, "", 1, "one per counter"),
        ("run_offsets", 10, "", 9, "cut their list"),
        ("term_offsets", 1, "", 50, "cut their list"),
        ("runs", 0, "first", -1, "first"),
        ("runs", 0, "step", 0, "step"),
        ("runs", 0, "count", 0, "count"),
        ("runs", 0, "count", 7, "extent"),
        ("terms", 0, "counter", 2, "counter"),
        ("terms", 0, "field", ENTRY_START, "field"),
        ("terms", 2, "field", ENTRY_START + 2, "field"),
        ("terms", 7, "field", BINDING_ADDRESS + 2 * BINDING_FIELDS, "field"),
        ("terms", 0, "counter", 1, "ascend by field and counter"),
        ("terms", 0, "coefficient", 1 << 60, "beyond reason"),
        ("rings", 0, "modulus", 0, "length"),
        ("rings", 0, "size", 1 << 60, "beyond reason"),
        ("rings", 0, "base", 1 << 60, "turns"),
        ("rings", 0, "coefficients.1", 1 << 60, "turns"),
        ("rings", 0, "coefficients.2", 1, "counter"),
        ("rings", 1, "field", BINDING_ADDRESS + BINDING_FIELDS, "ascend by field"),
        ("distances", 0, "", -1, "distance"),
        ("distances", 6, "", 1, "no distance"),
        ("waits", 0, "", 10, "not there"),
        ("waits", 0, "", 4, "not before it"),
        ("distances", 0, "", 0, "not before it"),
        ("waits", 1, "", 3, "do not ascend"),
    ],
)
def test_what_interpreters_rely_on_is_checked(name: str, row: int, field: str, value: int, message: str) -> None:
    with pytest.raises(ProgramError, match=message) as caught:
        check_loops(with_number(SAMPLE, name, row, field, value))
    assert caught.value.limit is not None or caught.value.command is not None or caught.value.actual is not None


def test_what_is_done_once_is_waited_for_only_after_it() -> None:
    """A space without counters has its own iteration: commands of earlier ones cannot wait for it."""
    later = with_number(SAMPLE, "spaces", 1, "base", 1)
    with pytest.raises(ProgramError, match="command 4: waits for a command that is not before it"):
        check_loops(later)


def test_loops_that_make_too_many_commands_are_refused() -> None:
    check_loops(SAMPLE, ProgramLimits(looped_commands=46))
    with pytest.raises(ProgramError, match="too many commands"):
        check_loops(SAMPLE, ProgramLimits(looped_commands=45))


@given(mutants(SAMPLE))
@settings(max_examples=400)
def test_changed_loops_are_refused_or_can_be_expanded(changed: Program) -> None:
    try:
        check_loops(changed, LIMITS)
    except ProgramError:
        return
    found = instances_of(changed)
    program = expanded(changed)
    waiting = np.repeat(np.arange(len(found)), np.diff(program.wait_offsets))
    assert (program.waits < waiting).all()
    assert [len(window) for window in Instances(changed).windows(1 << 20)]
    assert Instances(changed).total == len(found) == len(program.commands)


@given(st.integers(0, 3), st.data())
@settings(max_examples=50)
def test_lists_of_other_lengths_are_refused(cut: int, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(("statements", "run_offsets", "runs", "terms", "rings", "distances")))
    rows = getattr(SAMPLE.loops, name)
    rows = rows[: len(rows) - cut] if cut else np.concatenate([rows, rows[-1:]])
    with pytest.raises(ProgramError, match=r"as many|per statement|parts"):
        check_loops(replace(SAMPLE, loops=replace(SAMPLE.loops, **{name: rows})))
