"""Running executables: inputs made up or given, the proof before the run, the report on it (PROG-4, SIM-1)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from app.errors import UnavailableError
from app.simulations.inputs import fitted_inputs, made_up_inputs
from app.simulations.listings import Wanted, lines, pieces
from app.simulations.report import simulation_json
from app.simulations.simulate import Judge, Watcher, checked_read, run_and_describe, simulate
from app.store import document_store
from compiler.errors import CompilationCancelledError, InternalError, RequestError
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.program.encoding.blob import Blob
from compiler.program.errors import ExecutableError, ProgramError
from compiler.program.executable import Executable, HostConstant, HostSegment
from compiler.simulator.run import run_executable
from tests.compiler.program.loops.executables import executable_of, sample_executable
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.loops.mutants import with_number
from tests.compiler.program.loops.samples import sample
from tests.models import Model
from tests.service.executables import embedding, executable, file_of, unsafe
from tests.service.models import network

DIGEST = "0" * 64


@pytest.fixture(scope="module")
def small() -> Executable:
    return executable(network())


def run(data: bytes, seed: int = 5, **more: Any) -> Any:
    return simulate(data, DIGEST, given=None, seed=seed, **more)


def test_a_run_gives_the_outputs_of_the_model_and_says_what_ran(small: Executable) -> None:
    source = ModelSource.from_bytes(network().data())
    found = run(file_of(small), judge=Judge(source=source, limits={}))
    report = found.report
    assert report.comparison is not None
    assert report.comparison.holds
    assert report.comparison.outputs[0].limit == 1e-4
    (segment,) = report.segments
    assert segment.commands == sum(segment.opcodes.values()) > 0
    assert 0 < segment.used_bytes["nram"] <= segment.capacity_bytes["nram"]
    (output,) = report.outputs
    values = found.outputs[output.name]
    assert output.shape == values.shape
    assert output.max == values.max()
    assert output.mean == pytest.approx(values.mean(dtype=np.float64))
    assert output.rms == pytest.approx(np.sqrt(np.square(values, dtype=np.float64).mean()))
    assert (report.seed, report.mode) == (5, "values")


def test_a_program_that_loops_runs_and_its_statements_and_commands_are_told_apart() -> None:
    """PROG-5: what is stored, and what it stands for."""
    executable_, x = sample_executable(), np.linspace(-3, 5, 96, dtype=np.float32).reshape(12, 8)
    found = simulate(file_of(executable_), DIGEST, given={"x": x}, seed=5)
    np.testing.assert_array_equal(found.outputs["z"], np.maximum(x, 0))
    (segment,) = found.report.segments
    plain = run_and_describe(
        executable_of(expanded(sample()), executable_.profile), DIGEST, given={"x": x}, seed=5
    ).report.segments[0]
    assert (segment.statements, segment.commands, plain.statements, plain.commands) == (10, 46, 46, 46)
    assert segment.commands == sum(segment.opcodes.values())
    assert msgspec.structs.replace(segment, statements=46) == plain


def test_a_looped_program_that_is_unsafe_at_one_tile_is_refused_with_statement_and_tile() -> None:
    """PROG-4: the loads of the last rows, and no others, would leave the DRAM."""
    far = with_number(sample(), "terms", 0, "coefficient", (1 << 20) // 5)
    begun: list[str] = []
    watcher = Watcher(lambda name, *_: begun.append(name), lambda: False)
    executable_ = executable_of(far, builtin_profile("edge4"))
    with pytest.raises(ProgramError, match="segment s0: command 0 at tile 5, 1: ") as caught:
        run(file_of(executable_), watcher=watcher)
    problem = caught.value.to_dict()
    assert (problem["command"], problem["tile"], problem["violation"]) == (0, [5, 1], "address")
    assert begun == ["read", "verify"]


def test_a_listing_of_statements_is_short_however_many_commands_run() -> None:
    text = "\n".join(lines(sample_executable(), Wanted(head=2, tail=1)))
    assert "statements: 10, for 46 commands" in text
    assert "for i = 0..5; j = 0..1 of s0" in text


def test_a_comparison_that_fails_says_so(small: Executable) -> None:
    model = network().proto()
    tensor = next(tensor for tensor in model.graph.initializer if tensor.name == "v")
    values = onnx.numpy_helper.to_array(tensor).copy()
    values[0, 0, 0, 0] += 1
    tensor.CopyFrom(onnx.numpy_helper.from_array(values, "v"))
    found = run(file_of(small), judge=Judge(source=ModelSource.from_bytes(model.SerializeToString()), limits={}))
    assert found.report.comparison.holds is False
    assert found.report.comparison.outputs[0].max_error > 1e-4


def test_a_model_that_takes_other_inputs_is_not_compared(small: Executable) -> None:
    found = run(file_of(small), judge=Judge(source=ModelSource.from_bytes(embedding().data()), limits={}))
    assert found.report.comparison.holds is None
    assert "no input 'x'" in found.report.comparison.reason


def test_equal_runs_give_equal_reports_and_another_seed_other_outputs(small: Executable) -> None:
    data = file_of(small)
    first, second, other = run(data), run(data), run(data, seed=6)
    assert simulation_json(first.report) == simulation_json(second.report)
    assert (first.outputs["v3"] != other.outputs["v3"]).any()


def test_an_unsafe_mutant_is_refused_with_segment_command_and_violation(small: Executable) -> None:
    """PROG-4: nothing of it runs."""
    mutant, command = unsafe(small)
    begun: list[str] = []
    watcher = Watcher(lambda name, *_: begun.append(name), lambda: False)
    with pytest.raises(ProgramError) as caught:
        run(file_of(mutant), watcher=watcher)
    problem = caught.value.to_dict()
    assert (problem["code"], problem["command"], problem["violation"]) == ("invalid_program", command, "address")
    assert f"segment s0: command {command}: " in caught.value.message
    assert begun == ["read", "verify"]


def test_a_damaged_file_is_refused_with_section_and_byte(small: Executable) -> None:
    data = bytearray(file_of(small))
    data[200] ^= 1
    with pytest.raises(ExecutableError, match="byte"):
        run(bytes(data))
    with pytest.raises(ExecutableError, match="byte"):
        run(b"\x89TSRX")


def test_places_for_listings_are_given_back_when_one_was_read_given_up_or_failed(
    small: Executable, tmp_path: Path
) -> None:
    """24 at once took the API to 690 MB: each holds a program."""
    store, makers = document_store(tmp_path), BoundedSemaphore(1)
    digest = store.put(file_of(small))
    held = pieces(store, digest, Wanted(), makers)
    with pytest.raises(UnavailableError, match="too many listings"):
        pieces(store, digest, Wanted(), makers)
    list(held)
    pieces(store, digest, Wanted(), makers).close()
    for missing in ("0" * 64, store.put(b"nothing of ours")):
        with pytest.raises((InternalError, ExecutableError)):
            pieces(store, missing, Wanted(), makers)
    assert list(pieces(store, digest, Wanted(), makers))


def outside(name: str) -> onnx.TensorProto:
    tensor = onnx.TensorProto(name=name, data_type=onnx.TensorProto.FLOAT, dims=[1], raw_data=bytes(4))
    onnx.external_data_helper.set_external_data(tensor, "secret.bin")
    tensor.ClearField("raw_data")
    return tensor


def with_node_that_reads_a_file() -> Executable:
    """An executable whose host node holds, deep inside, a tensor in a file."""
    model = Model()
    model.output(model.relu(model.node("Det", [model.input([2, 3, 3], "x")], name="host")))
    found = executable(model)
    segment = next(segment for segment in found.segments if isinstance(segment, HostSegment))
    inner = onnx.helper.make_graph([], "inner", [], [], [outside("w")])
    node = onnx.NodeProto.FromString(segment.nodes[0].node)
    node.attribute.append(onnx.helper.make_attribute("body", inner))
    changed = replace(segment, nodes=(replace(segment.nodes[0], node=node.SerializeToString()),))
    return replace(found, segments=tuple(changed if one is segment else one for one in found.segments))


def with_constant_in_a_file(small: Executable) -> Executable:
    data = Blob.of(outside("c").SerializeToString())
    constant = HostConstant(name="c", dtype="float32", shape=(1,), form="tensor", data=data)
    return replace(small, constants=(constant,))


@pytest.mark.parametrize("where", ["node", "constant"])
def test_an_executable_that_names_files_is_refused(small: Executable, where: str) -> None:
    """API-7: an upload never makes the host open a file."""
    bad = with_node_that_reads_a_file() if where == "node" else with_constant_in_a_file(small)
    with pytest.raises(ExecutableError) as caught:
        checked_read(file_of(bad))
    assert caught.value.code == "external_data"
    with pytest.raises(ExecutableError) as caught:
        run_executable(bad, {value.name: np.zeros(value.shape or (), np.float32) for value in bad.inputs})
    assert caught.value.code == "external_data"


def test_a_cancelled_run_stops_before_its_next_phase(small: Executable) -> None:
    asked = iter([False, True])
    with pytest.raises(CompilationCancelledError, match="verify"):
        run(file_of(small), watcher=Watcher(lambda *_: None, lambda: next(asked)))


def test_made_up_indices_stay_inside_the_tables_they_name() -> None:
    found = executable(embedding())
    inputs = made_up_inputs(found, 3)
    assert {name: (values.dtype.name, values.shape) for name, values in inputs.items()} == {
        "ids": ("int64", (2, 6)),
        "gain": ("float32", (8,)),
    }
    assert 0 <= inputs["ids"].min() < inputs["ids"].max() < 4
    judge = Judge(source=ModelSource.from_bytes(embedding().data()), limits={})
    assert run(file_of(found), judge=judge).report.comparison.holds
    again = made_up_inputs(found, 3)
    assert all((again[name] == inputs[name]).all() for name in inputs)


@pytest.mark.parametrize(
    ("arrays", "code", "names"),
    [
        ({"ids": np.zeros((2, 6), np.int64)}, "missing_input", "'gain'"),
        (
            {"ids": np.zeros((2, 6), np.int64), "gain": np.zeros(8, np.float32), "z": np.zeros(1)},
            "unknown_input",
            "'z'",
        ),
        ({"ids": np.zeros((2, 5), np.int64), "gain": np.zeros(8, np.float32)}, "wrong_input", "'ids'"),
        ({"ids": np.zeros((2, 6), np.int32), "gain": np.zeros(8, np.float32)}, "wrong_input", "'ids'"),
    ],
)
def test_given_inputs_that_do_not_fit_are_refused_by_name(arrays: dict[str, Any], code: str, names: str) -> None:
    with pytest.raises(RequestError) as caught:
        fitted_inputs(executable(embedding()), arrays)
    assert caught.value.code == code
    assert names in caught.value.message
    assert caught.value.limit


def groups_of(text: Iterator[str]) -> set[str]:
    return {line.split(",")[0].removeprefix("group ") for line in text if line.startswith("group ")}


def test_a_listing_is_of_all_segments_or_of_the_one_that_has_the_group(tmp_path: Any) -> None:
    model = Model()
    x = model.relu(model.input([1, 4, 8, 8], "x"), name="first")
    model.output(model.relu(model.node("Det", [x], name="host"), name="last"))
    found = executable(model)
    whole = list(lines(found, Wanted()))
    assert [line.split(" ")[1] for line in whole if line.startswith("segment ")] == ["s0", "s1", "s2"]
    assert any("on the host: 1 nodes" in line for line in whole)
    assert groups_of(iter(whole)) == {"s0.g0", "s2.g0"}
    part = list(lines(found, Wanted(group="s2.g0")))
    assert groups_of(iter(part)) == {"s2.g0"}
    assert sum(line.startswith("segment ") for line in part) == 1
    with pytest.raises(RequestError, match="no group 's9'") as caught:
        lines(found, Wanted(group="s9"))
    assert caught.value.limit == "s0.g0, s2.g0"
    store = document_store(tmp_path)
    digest = store.put(file_of(found))
    assert b"".join(pieces(store, digest, Wanted(), BoundedSemaphore(1))).decode().splitlines() == whole
    assert b"".join(store.pieces(digest)) == file_of(found)
    assert store.size_bytes(digest) == len(file_of(found))


def test_a_file_that_is_read_back_gives_the_same_outputs_as_what_was_compiled(small: Executable) -> None:
    data = file_of(small)
    assert file_of(checked_read(data)) == data
    assert io.BytesIO(data).read(5) == b"\x89TSRX"
