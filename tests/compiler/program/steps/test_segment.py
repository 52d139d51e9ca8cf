"""Groups lowered to looped programs: well formed and proved, with transfers and values as the unrolled lowering has."""

from __future__ import annotations

from collections import Counter
from typing import Any

import hypothesis
import pytest
from hypothesis import assume

from compiler.errors import LimitError
from compiler.program.loops.form import check_loops
from compiler.program.loops.loops import LoopedProgram
from compiler.program.loops.proof import prove
from compiler.program.loops.time import time_of
from compiler.program.program import Opcode, Program
from compiler.program.segment import lower_segment
from compiler.program.steps.segment import SegmentSteps
from compiler.program.verify import verify
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import mc_cnn
from tests.compiler.program.lowered import Lowered, segment_of
from tests.compiler.program.test_lowering_random import _REFUSED, KINDS, Case, cases


def looped_of(segment: tuple[Any, ...]) -> LoopedProgram:
    """The looped program of a segment."""
    return SegmentSteps(*segment).lowered(lambda looped: time_of(looped, segment[1]).ticks)


def moved(program: Program) -> Counter[tuple[Opcode, int]]:
    """By opcode and bytes how many commands there are."""
    rows = program.commands
    sizes = rows["run_bytes"] * rows["counts"].prod(axis=1)
    return Counter((Opcode(opcode), size) for opcode, size in zip(rows["opcode"], sizes.tolist(), strict=True))


def check(case: Case) -> None:
    """Lower both ways; a refusal that is stated is no case."""
    segment = segment_of(case.network, *case.groups, resident_bytes=case.resident_bytes, profile=case.profile)
    try:
        plain = lower_segment(*segment).program
    except LimitError as error:
        assume(error.code not in _REFUSED)
        raise
    looped = looped_of(segment)
    check_loops(looped)
    proved = prove(looped, shared=case.profile.engines.shared)
    ours = expanded(looped)
    verified = verify(ours, shared=case.profile.engines.shared)
    assert (proved.peak_bytes, proved.commands) == (verified.peak_bytes, verified.commands)
    assert moved(ours) == moved(plain)
    Lowered(network=case.network, groups=case.groups, program=ours, verified=verified).check_values()


def examine(found: hypothesis.strategies.SearchStrategy[Case], count: int) -> None:
    """Check that many cases; the first that fails is told as it is, since shrinking takes minutes."""

    @hypothesis.settings(max_examples=count, phases=[hypothesis.Phase.generate])
    @hypothesis.given(found)
    def every(case: Case) -> None:
        check(case)

    every()


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_lowered_to_looped_programs(kind: str) -> None:
    """SCHED-2, PROG-5, PROG-7: flat, nested and staged ones; the test marked `full` takes many more."""
    examine(cases(kind=kind), 6)


def test_groups_that_follow_one_another_wait_for_each_other() -> None:
    """PROG-5: a nest each, with waits from nest to nest."""
    examine(cases(groups=2), 6)


@pytest.mark.full
@pytest.mark.parametrize("groups", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_many_groups_are_lowered_to_looped_programs(kind: str, groups: int) -> None:
    examine(cases(kind=kind, groups=groups), 100)


@pytest.mark.slow
def test_as_many_statements_for_a_large_map_as_for_a_small_one() -> None:
    """SCHED-2: MC-CNN (N-6), four and eight rows of tiles, three and five in a row."""
    small, profile = mc_cnn(180, 96, {"W": 60, "H": 24})
    large, _ = mc_cnn(300, 192, {"W": 60, "H": 24})
    assert len(large.program.commands) <= 1.1 * len(small.program.commands)
    assert time_of(large, profile).commands > 2 * time_of(small, profile).commands
