"""Programs that loop go into executables and come back: proved, run, listed and told as they were (PROG-3, PROG-5)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings

from compiler.errors import InternalError, LimitError
from compiler.program.encoding.sizes import program_sizes, stream_of
from compiler.program.encoding.stream import encode_stream
from compiler.program.errors import ExecutableError, ProgramError
from compiler.program.executable import ChipSegment, Executable, read
from compiler.program.listing import listing
from compiler.program.loops.proof import prove
from compiler.program.program import Program, Role
from compiler.simulator.run import run_executable
from tests.compiler.program.loops.executables import executable_of, group_executable, sample_executable
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.groups import LoweredGroup, lowered_groups, mc_cnn
from tests.compiler.program.loops.mutants import mutants, with_number
from tests.compiler.program.test_executable import file_of, resealed, same


def program_of(executable: Executable) -> Program:
    """The program of an executable of one segment."""
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    return segment.program


SAMPLE = program_of(sample_executable())


def with_program(executable: Executable, program: Program) -> Executable:
    """The executable with another program."""
    (segment,) = executable.segments
    assert isinstance(segment, ChipSegment)
    return replace(executable, segments=(replace(segment, program=program),))


def assert_comes_back(executable: Executable) -> Program:
    """Written, read and written again it is the same; the proof takes what was read. Its program."""
    data = file_of(executable)
    found = read(data)
    assert same(found, executable)
    assert file_of(found) == data
    program = program_of(found)
    prove(program, shared=executable.profile.engines.shared)
    assert list(listing(program)) == list(listing(program_of(executable)))
    assert program_sizes(program) == program_sizes(program_of(executable))
    return program


def test_a_program_that_loops_comes_back_through_a_file() -> None:
    program = assert_comes_back(sample_executable())
    assert len(program.loops.runs) > 0


def test_groups_that_loop_come_back_and_compute_what_they_did() -> None:
    for group in lowered_groups(4):
        executable = group_executable(group)
        assert_comes_back(executable)
        assert_values(group, read(file_of(executable)))


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("block", range(3))
def test_many_groups_that_loop_come_back_and_compute_what_they_did(block: int) -> None:
    for group in lowered_groups(10, first=200 + 100 * block):
        executable = group_executable(group)
        assert_comes_back(executable)
        assert_values(group, read(file_of(executable)))


def assert_values(group: LoweredGroup, executable: Executable) -> None:
    """It gives what the program without loops gives, to the bit."""
    inputs = {value.name: group.network.values[value.name] for value in executable.inputs}
    weights = {r.name: group.network.constant(r.name) for r in group.program.regions if r.role is Role.WEIGHT}
    plain = executable_of(expanded(program_of(executable)), executable.profile, weights)
    found, expected = run_executable(executable, inputs), run_executable(plain, inputs)
    assert found.keys() == expected.keys()
    for name, values in found.items():
        np.testing.assert_array_equal(values, expected[name])


@pytest.mark.slow
def test_the_file_of_a_network_does_not_grow_with_its_map() -> None:
    """MC-CNN (N-6), two heights in whole tiles, with the same kinds of tiles: of three rows of them none is inside."""
    files = []
    for height in (144, 288):
        program, profile = mc_cnn(60, height, {"W": 60, "H": 24})
        weights = {r.name: np.zeros(r.shape, dtype=r.dtype) for r in program.regions if r.role is Role.WEIGHT}
        executable = executable_of(program, profile, weights)
        assert_comes_back(executable)
        files.append(program_sizes(program).program_bytes)
    assert files[1] < 1.1 * files[0]


def test_loops_that_are_not_well_formed_are_not_written_and_not_read() -> None:
    data = file_of(sample_executable())
    for name, row, field, value in (
        ("statements", 0, "space", 7),
        ("runs", 0, "count", 0),
        ("runs", 0, "first", 9),
        ("terms", 0, "field", 99),
        ("rings", 0, "modulus", 0),
        ("spaces", 0, "strides.0", 0),
    ):
        broken = with_number(SAMPLE, name, row, field, value)
        with pytest.raises(InternalError):
            file_of(with_program(sample_executable(), broken))
        stream = encode_stream(stream_of(broken), len(SAMPLE.queues)).data
        changed = resealed(data, lambda name, _, content, stream=stream: stream if name == "commands" else content)  # type: ignore[misc]
        with pytest.raises(ExecutableError, match="commands of segment 0"):
            read(changed)


@given(mutants(SAMPLE))
@settings(max_examples=100)
def test_a_changed_program_is_not_written_or_comes_back_as_it_is(changed: Program) -> None:
    executable = with_program(sample_executable(), changed)
    try:
        data = file_of(executable)
    except InternalError:
        return
    assert same(read(data), executable)


@pytest.mark.matrix(first=2, rest=4)
@pytest.mark.parametrize("seed", range(6))
def test_a_stream_with_a_byte_changed_is_refused_or_read_and_judged(seed: int) -> None:
    """The digests are right, as whoever means harm makes them: what is read is proved or refused by name."""
    data, random = file_of(sample_executable()), np.random.default_rng(seed)

    def damaged(content: bytes) -> bytes:
        at = int(random.integers(0, len(content)))
        return content[:at] + bytes([int(random.integers(0, 256))]) + content[at + 1 :]

    outcomes = set()
    for _ in range(40):
        changed = resealed(data, lambda name, _, content: damaged(content) if name == "commands" else content)
        try:
            again = read(changed)
        except (ExecutableError, LimitError):
            outcomes.add("refused")
            continue
        assert same(read(file_of(again)), again)
        try:
            prove(program_of(again))
        except ProgramError:
            outcomes.add("unsafe")
        else:
            outcomes.add("safe")
    assert "refused" in outcomes


def test_a_file_of_another_version_is_refused_by_name() -> None:
    """Version 2 knew no loops, in 3 fields had other numbers; such programs are not guessed at."""
    for version in (2, 3, 5):
        changed = resealed(
            file_of(sample_executable()),
            lambda name, _, content, version=version: (  # type: ignore[misc]
                content.replace(b'"schema":4', b'"schema":%d' % version) if name == "manifest" else content
            ),
        )
        with pytest.raises(ExecutableError, match="version") as caught:
            read(changed)
        error = caught.value
        assert (error.code, error.actual, error.limit) == ("executable_version", version, 4)
        assert "Compile the model again" in str(error.hint)
