"""What the report says of programs, of the bytes they move, of memory over time, and of the value check."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import Compilation, compile_model
from compiler.options import parse_options
from compiler.profile import Profile, builtin_profile, parse_profile, profile_json
from compiler.profile.load import profile_from_values
from compiler.program.encoding.sizes import program_sizes
from compiler.program.executable import ChipSegment
from compiler.program.loops.instances import Instances
from compiler.program.program import Level, Opcode
from compiler.report.headline import verified_text
from compiler.report.plan import report_json
from compiler.report.programs import dram_bytes, values_report
from compiler.simulator.compare import compare
from compiler.simulator.value_check import ValueCheck
from tests.compiler.program.loops.expander import expanded
from tests.models import Model
from tests.profiles import profile_values


def network() -> Model:
    """Two convolutions with an activation between them."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 3, 16, 16], "x"), 3, 8, name="first"), name="act")
    model.output(model.conv(x, 8, 4, name="second"))
    return model


def embedding(count: int) -> Model:
    """Rows of a table of 50, as many as are named."""
    model = Model()
    ids = model.input([count], "ids", TensorProto.INT64)
    model.output(model.node("Gather", [model.weight(50, 16), ids], axis=0))
    return model


def compiled(model: Model, profile: str | Profile = "edge4", **options: Any) -> Compilation:
    hardware = builtin_profile(profile) if isinstance(profile, str) else profile
    return compilation_of(model.data(), profile_json(hardware), json.dumps(options))


@cache
def compilation_of(model: bytes, profile: bytes, options: str) -> Compilation:
    """A compilation, once per test process."""
    return compile_model(model, parse_profile(profile), parse_options(json.loads(options)))


def programs_of(compilation: Any) -> list[Any]:
    return [segment.program for segment in compilation.executable.segments if isinstance(segment, ChipSegment)]


def test_the_report_says_how_values_were_checked() -> None:
    """SIM-1: the judge, the seed, the largest error and where it stands, and the limit."""
    report = compiled(network()).report
    values = report.values
    assert report.values_checked is values.checked is True
    assert (values.reason, values.seed, values.skipped) == (None, 5, ())
    assert values.judge is not None
    assert values.judge.startswith("ONNX Runtime ")
    (output,) = values.outputs
    assert (values.tensor, values.max_error, values.limit, values.where) == (
        output.tensor,
        output.max_error,
        output.limit,
        output.where,
    )
    assert output.max_error is not None
    assert 0 <= output.max_error <= output.limit == 1e-4
    assert len(output.where) == 4
    assert output.holds
    assert any("executed on simulated memories" in text and values.judge in text for text in report.assumptions)


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"verify": "none"}, "option verify"),
        ({"precision": "int8"}, "precision=int8 is a what-if"),
        ({"batch": 2}, "option batch"),
    ],
)
def test_a_plan_that_was_not_executed_says_so(options: dict[str, Any], reason: str) -> None:
    """SIM-1."""
    report = compiled(network(), **options).report
    assert report.values_checked is report.values.checked is False
    assert reason in (report.values.reason or "")
    assert (report.values.judge, report.values.max_error, report.values.tensor) == (None, None, None)
    assert any("it was not executed" in text and reason in text for text in report.assumptions)
    assert len(report.programs) == 1


def test_a_profile_that_programs_cannot_serve_has_no_programs_and_says_why() -> None:
    values = profile_values("edge4")
    values["weights"]["compression"] = 0.5
    found = compiled(network(), profile_from_values(values))
    assert found.executable is None
    assert found.report.programs == ()
    assert found.plan.segments[0].program_bytes is None
    assert "compressed" in (found.report.values.reason or "")
    assert any("No program was generated" in text for text in found.report.assumptions)


def test_the_worst_output_stands_first_and_what_is_not_finite_is_null() -> None:
    worse = compare("b", np.array([1.0, np.inf], np.float32), np.array([1.0, 2.0], np.float32))
    fine = compare("a", np.ones(2, np.float32), np.ones(2, np.float32))
    check = ValueCheck(seed=1, judge="j", reason="", comparisons=(fine, worse), skipped=("c",))
    found = values_report(check)
    assert (found.tensor, found.max_error, found.where, found.skipped) == ("b", None, (1,), ("c",))
    assert [output.holds for output in found.outputs] == [True, False]


@pytest.mark.parametrize(
    ("got", "expected", "words"),
    [
        (np.array([3, 5], np.int8), np.array([3, 5], np.int8), ": equal"),
        (np.array([3, 6], np.int8), np.array([3, 5], np.int8), ": 1 step off at most, allowed 1 (b[1])"),
        (np.array([1, 1], np.float32), np.array([1, 1], np.float32), ": largest relative error 0, allowed 0.0001"),
    ],
)
def test_the_headline_counts_differences_of_integers_in_steps(got: Any, expected: Any, words: str) -> None:
    """IMPORT-9: a difference of integers is no relative error."""
    found = compiled(network())
    comparison = compare("b", got, expected, step=1.0 if got.dtype == np.int8 else 0.0)
    values = values_report(ValueCheck(seed=1, judge="j", reason="", comparisons=(comparison,)))
    text = verified_text(found.plan, msgspec.structs.replace(found.report, values=values))
    assert text == f"1 output compared with j on random inputs{words}"


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["edge4", "cluster4x4", "manycore2x64"])
def test_commands_are_simulated_in_time_beside_the_estimate(profile: str) -> None:
    """SIM-2, SIM-3: never faster than the roofline, and groups add up to the whole."""
    found = compiled(network(), profile, verify="none")
    (report,) = found.report.programs
    clock_hz = builtin_profile(profile).clock_hz
    bound = found.plan.totals.latency_bound_s * clock_hz
    assert report.simulated_cycles >= bound > 0
    assert list(report.simulated_group_cycles) == [group.id for group in found.plan.segments[0].groups]
    assert list(report.alone_group_cycles) == list(report.simulated_group_cycles)
    # each group begins before the one before it has ended, so that by itself it takes no less
    assert sum(report.alone_group_cycles.values()) >= report.simulated_cycles
    assert all(alone > 0 for alone in report.alone_group_cycles.values())
    # each is rounded by itself
    rounding = len(report.simulated_group_cycles)
    assert abs(sum(report.simulated_group_cycles.values()) - report.simulated_cycles) <= rounding
    assert report.estimated_cycles == sum(group.cycles for group in found.plan.segments[0].groups)
    assert report.estimate_ratio == report.estimated_cycles / report.simulated_cycles
    assert any("event simulation" in text for text in found.report.assumptions)


@pytest.mark.parametrize("profile", ["edge4", "cluster4x4", "manycore2x64"])
def test_programs_are_counted_as_they_are(profile: str) -> None:
    """PROG-1, PROG-3: commands by opcode, bytes as stored, peaks within every level."""
    found = compiled(network(), profile, verify="none")
    (program,) = programs_of(found)
    (report,) = found.report.programs
    sizes, statements = program_sizes(program), program.commands
    counts = Instances(program).counts
    assert (report.statements, report.units) == (len(statements), len(program.units))
    assert (report.commands, report.calls) == (counts.sum(), counts[statements["call"] >= 0].sum())
    assert report.opcodes == {
        opcode.name.lower(): count for opcode in Opcode if (count := int(counts[statements["opcode"] == opcode].sum()))
    }
    assert (report.program_bytes, report.table_bytes, report.unit_bytes) == (
        sizes.program_bytes,
        sizes.table_bytes,
        sum(sizes.unit_bytes),
    )
    assert found.plan.segments[0].program_bytes == sizes.program_bytes
    assert set(report.peaks) == {place.level.value for place in program.places}
    memory = found.plan.segments[0].groups[0].memory
    for level, peak in report.peaks.items():
        assert 0 < peak.used_bytes <= peak.capacity_bytes
        assert peak.planned_bytes == (memory[level].peak_bytes if level in memory else None)
    assert report.plan_dram_bytes == found.plan.totals.dram_bytes
    assert report.dram_ratio == (report.dram_read_bytes + report.dram_write_bytes) / report.plan_dram_bytes


def tables_of(compilation: Compilation) -> int:
    """Bytes of address tables that the plan says are read (ADDR-5)."""
    groups = [group for segment in compilation.plan.segments for group in segment.groups]
    return sum(op.addresses.read_bytes for group in groups for op in group.ops if op.addresses is not None)


def test_groups_of_equal_content_have_address_tables_each() -> None:
    """A choice that is remembered for equal groups tells of each group's own ops."""
    model = Model()
    x = model.input([1, 8, 12, 12], "x")
    for name in ("first", "second", "third"):
        x = model.conv(x, 8, 8, name=name)
    model.output(x)
    plan = compiled(model, fusion="none").plan
    ops = [op for segment in plan.segments for group in segment.groups for op in group.ops]
    assert [op.node for op in ops] == ["first", "second", "third"]
    assert all(op.addresses is not None and op.addresses == ops[0].addresses for op in ops)


def test_the_bytes_of_the_dram_are_those_that_commands_move() -> None:
    """On one core chain every tensor crosses once: input and weights in, the output out."""
    compilation = compiled(network(), verify="none", fusion="rules")
    (report,) = compilation.report.programs
    weights = 4 * (8 * 3 * 9 + 4 * 8 * 9)
    assert report.dram_write_bytes == 4 * 4 * 16 * 16
    assert report.dram_read_bytes == 4 * 3 * 16 * 16 + weights
    assert report.table_read_bytes == tables_of(compilation) > 0
    assert report.dram_ratio == 1.0


def test_a_multicast_is_read_once_and_written_to_each() -> None:
    (whole,) = programs_of(compiled(network(), verify="none"))
    program = expanded(whole)
    read, written, tables = dram_bytes(whole)
    commands = program.commands.copy()
    of_tables = [program.regions[found.region].address for found in program.addresses]
    of_data = (commands["opcode"] == Opcode.LOAD) & ~np.isin(commands["source_address"], of_tables)
    row = int(np.flatnonzero(of_data)[0])
    commands["targets"][row] = 3
    assert dram_bytes(replace(program, commands=commands)) == (read, written, tables)
    commands["counts"][row][-1] *= 2
    size = int(program.commands["run_bytes"][row] * program.commands["counts"][row].prod())
    assert dram_bytes(replace(program, commands=commands)) == (read + size, written, tables)


@pytest.mark.parametrize("count", [4, 12])
def test_of_a_gathered_table_only_the_rows_that_are_read_count(count: int) -> None:
    (program,) = programs_of(compiled(embedding(count), verify="none"))
    commands = expanded(program).commands
    loads = commands[commands["opcode"] == Opcode.LOAD]
    loaded = int((loads["run_bytes"] * loads["counts"].prod(axis=1)).sum())
    # rows of 64 bytes of a table of 3200; the indices that name them, of 8 bytes, are loaded
    assert loaded >= count * 8
    assert dram_bytes(program) == (loaded + count * 64, count * 64, 0)


@pytest.mark.parametrize("profile", ["cluster4x4", "manycore2x64"])
def test_memory_is_a_map_of_addresses_over_time(profile: str) -> None:
    """PROG-2: no two live buffers overlap, and the peak is the highest byte in use."""
    found = compiled(network(), profile, verify="none")
    for group in found.report.groups:
        assert group.memory
        for level in group.memory:
            assert level.peak_bytes == max(buffer.address + buffer.size_bytes for buffer in level.buffers)
            assert level.peak_bytes <= level.capacity_bytes
            assert all(0 <= buffer.begin < buffer.end <= level.steps for buffer in level.buffers)
            use = found.plan.segments[0].groups[0].memory[level.level]
            assert (use.peak_bytes, use.capacity_bytes) == (level.peak_bytes, level.capacity_bytes)
    names = {buffer.name for level in found.report.groups[0].memory for buffer in level.buffers}
    assert any(name.startswith("tile ") for name in names)
    assert any(name.startswith("weights ") for name in names)


def test_buffers_that_are_live_at_once_do_not_share_bytes() -> None:
    """PROG-2; a result made in place takes over its operand's bytes in the step that makes it."""
    found = compiled(network(), verify="none")
    for group in found.report.groups:
        for level in group.memory:
            for number, one in enumerate(level.buffers):
                for other in level.buffers[:number]:
                    apart = one.address + one.size_bytes <= other.address or (
                        other.address + other.size_bytes <= one.address
                    )
                    both_live = min(one.end, other.end) - max(one.begin, other.begin)
                    assert apart or both_live <= 0 or (both_live == 1 and one.address == other.address)


def test_stationary_weights_are_no_traffic_but_lie_under_the_planned_buffers() -> None:
    compilation = compiled(network(), "manycore2x64", verify="none")
    (report,) = compilation.report.programs
    assert report.dram_read_bytes == 4 * 3 * 16 * 16
    # two of the ops' tables are one, which the second op finds where the first has left it, or in a peer
    assert 0 < report.table_read_bytes <= tables_of(compilation)
    assert report.peaks["nram"].used_bytes > (report.peaks["nram"].planned_bytes or 0)


def test_the_report_is_json_that_anybody_reads() -> None:
    text = report_json(compiled(network()).report).decode()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["programs"][0]["segment"] == "s0"
    assert Level.DRAM.value in json.loads(text)["programs"][0]["peaks"]
