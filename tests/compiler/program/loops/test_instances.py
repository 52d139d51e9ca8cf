"""The commands that statements stand for, window by window, are those that plain Python expands (PROG-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from compiler.program.errors import ProgramError
from compiler.program.fields import ProgramLimits
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances
from compiler.program.loops.proof import prove
from compiler.program.program import Program
from tests.compiler.program.loops.expander import expanded, instances_of
from tests.compiler.program.loops.groups import group_programs
from tests.compiler.program.loops.mutants import mutants, with_number
from tests.compiler.program.loops.samples import sample
from tests.compiler.program.tiled import tiled_program

SAMPLE = sample()


def assert_windows(program: Program, most: int) -> None:
    """Windows hold the commands of the expanded program, in its order."""
    whole, order, instances = expanded(program), instances_of(program), Instances(program)
    at = 0
    for window in instances.windows(most):
        assert window.first == at
        assert 0 < len(window) <= most
        its = order[at : at + len(window)]
        nests = instances.nests[window.statements].tolist()
        named = zip(nests, window.iterations.tolist(), window.statements.tolist(), strict=True)
        assert list(named) == [one[:3] for one in its]
        counters = instances.counters(window).tolist()
        assert [tuple(row[: len(one.counters)]) for row, one in zip(counters, its, strict=True)] == [
            one.counters for one in its
        ]
        assert_rows(instances.expanded(window), whole, at)
        at += len(window)
    assert at == len(order) == instances.total


def assert_rows(part: Program, whole: Program, at: int) -> None:
    """The commands of a part, with calls, entries and bindings, are those of the whole from one on."""
    rows = whole.commands[at : at + len(part.commands)]
    for name in rows.dtype.names or ():
        if name != "call":
            np.testing.assert_array_equal(part.commands[name], rows[name], err_msg=name)
    for mine, other in zip(part.commands["call"].tolist(), rows["call"].tolist(), strict=True):
        assert (mine < 0) == (other < 0)
        if mine >= 0:
            assert called(part, mine) == called(whole, other)


def called(program: Program, number: int) -> Any:
    """All that a call says."""
    call = program.calls[number]
    bound = program.bindings[call["first"] : call["first"] + call["count"]]
    return int(call["table"]), program.tables[call["table"]].entries[call["entry"]].tobytes(), bound.tobytes()


@pytest.mark.parametrize("most", [1, 5, 46, 1000])
def test_windows_are_the_expanded_program_in_parts(most: int) -> None:
    assert_windows(SAMPLE, most)


def test_the_sample_is_safe() -> None:
    prove(expanded(SAMPLE))


@pytest.mark.parametrize("most", [7, 1 << 20])
def test_a_program_without_loops_is_its_own_window(most: int) -> None:
    assert_windows(tiled_program(cores=2, layers=2, rows=3, columns=3), most)


@pytest.mark.parametrize("most", [50, 1 << 20])
def test_windows_of_groups_are_the_expanded_program(most: int) -> None:
    for program in group_programs(6):
        assert_windows(program, most)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("block", range(5))
def test_windows_of_many_groups_are_the_expanded_program(block: int) -> None:
    for program in group_programs(20, first=200 * block):
        assert_windows(program, 300)


@given(mutants(SAMPLE))
@settings(max_examples=200)
def test_windows_of_changed_programs_are_the_expanded_program(changed: Program) -> None:
    try:
        check_loops(changed, ProgramLimits(looped_commands=500))
    except ProgramError:
        return
    assert_windows(changed, 13)


def test_windows_reach_over_iterations_in_which_nothing_holds() -> None:
    """Of two tiles that lie 2^30 iterations apart each has its window, and nobody counts to 2^30."""
    far = with_number(SAMPLE, "spaces", 0, "strides.0", 1 << 30)
    check_loops(far)
    for most in (4, 1 << 40):
        windows = list(Instances(far).windows(most))
        assert sum(map(len, windows)) == 46
        assert max(int(window.iterations.max()) for window in windows) == 5 * (1 << 30) + 2


def test_an_error_in_a_window_names_statement_and_tile() -> None:
    instances = Instances(SAMPLE)
    (window,) = instances.windows(46)
    error = ProgramError("is wrong", violation="call", command=10, actual=3)
    moved = instances.at(error, window)
    statement, iteration = int(window.statements[10]), int(window.iterations[10])
    tile = iteration + int(SAMPLE.loops.statements["stage"][statement])
    assert (moved.command, moved.tile) == (statement, (tile // 2, tile % 2))
    assert str(moved).startswith(f"command {statement} at tile {tile // 2}, {tile % 2}: is wrong")
    assert instances.at(ProgramError("is wrong", violation="region"), window).command is None


def test_windows_that_bind_or_change_too_much_are_refused() -> None:
    once = expanded(SAMPLE)
    for program, message in ((SAMPLE, "change too many"), (once, "bind too much")):
        instances = Instances(program)
        window = next(instances.windows(1 << 20))
        instances.expanded(window, ProgramLimits(bindings=140))
        with pytest.raises(ProgramError, match=message):
            instances.expanded(window, ProgramLimits(bindings=20))


def test_windows_of_a_long_loop_stay_small_and_full() -> None:
    """PROG-6: memory by statements and window, not by iterations."""
    far = SAMPLE
    for name, row, field in (("spaces", 0, "extents.0"), *(("runs", row, "count") for row in (0, 2, 4))):
        far = with_number(far, name, row, field, 1 << 18)
    sizes = [len(window) for window in Instances(far).windows(1 << 12)]
    assert sum(sizes) == Instances(far).total == 6 * (1 << 18) + 10
    assert max(sizes) <= 1 << 12
    assert len(sizes) <= 3 * sum(sizes) / (1 << 12)
