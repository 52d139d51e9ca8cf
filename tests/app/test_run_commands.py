"""UI-1: `run`, `simulate` and `listing`, and the program that `compile` writes, without a server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.simulations.arrays import read_arrays
from compiler.program.loops.instances import Instances
from compiler.program.timing.trace import trace_of
from tests.compiler.simulator.test_host_bound import BY_VALUE, looping
from tests.models import Model
from tests.service.executables import embedding, executable, file_of, unsafe
from tests.service.models import lstm, network, saved

TESSERA = Path(sys.executable).with_name("tessera")


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def problem(*words: str, exit_code: int) -> dict[str, Any]:
    """The problem that a command ends with."""
    answer = tessera(*words, "--json")
    assert (answer.exit_code, answer.stdout) == (exit_code, ""), answer.output
    return dict(json.loads(answer.stderr))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, and what compiling it wrote."""
    path = tmp_path_factory.mktemp("run")
    saved(path / "net.onnx", network())
    answer = tessera("compile", str(path / "net.onnx"), "--profile", "edge4", "--out", str(path))
    assert answer.exit_code == 0, answer.output
    assert "Verified     1 output compared with ONNX Runtime" in answer.stdout
    assert "Wrote plan.json, report.json, report.html, executable.tsx, listing.txt" in " ".join(answer.stdout.split())
    return path


def test_compiling_writes_the_program_and_says_how_values_were_checked(folder: Path) -> None:
    text = (folder / "listing.txt").read_text()
    assert text.startswith("segment s0 on chip 0\nprogram s0 for profile edge4\n")
    assert "group s0.g0, v1 of first" in text
    report = json.loads((folder / "report.json").read_text())
    assert report["values"]["checked"] is True
    assert (folder / "executable.tsx").read_bytes() == file_of(executable_of_folder(folder))


def executable_of_folder(folder: Path) -> Any:
    from compiler.program.executable import read

    return read((folder / "executable.tsx").read_bytes())


@pytest.mark.parametrize("word", [["--no-verify"], ["--set", "verify=none"]])
def test_a_compilation_without_the_check_says_so(folder: Path, word: list[str]) -> None:
    answer = tessera("compile", str(folder / "net.onnx"), "--profile", "edge4", *word)
    assert answer.exit_code == 0
    assert "Verified     no: option verify is none (--no-verify)" in answer.stdout


def test_a_model_runs_on_given_inputs_and_gives_what_onnx_runtime_gives(folder: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((1, 3, 16, 16)).astype(np.float32)
    np.savez(tmp_path / "in.npz", x=x)
    words = [
        "run",
        str(folder / "net.onnx"),
        "--profile",
        "cluster4x4",
        "--inputs",
        str(tmp_path / "in.npz"),
        "--check",
    ]
    answer = tessera(*words, "--outputs", str(tmp_path / "out.npz"))
    assert answer.exit_code == 0, answer.output
    assert "All compared outputs agree with ONNX Runtime" in answer.stdout
    assert "Ran on 1 input given" in answer.stdout
    (expected,) = network().run({"x": x})
    with np.load(tmp_path / "out.npz") as file:
        found = dict(file)
    assert list(found) == ["v3"]
    np.testing.assert_allclose(found["v3"], expected, rtol=1e-4, atol=1e-4)


def test_values_for_an_input_that_nothing_reads_are_accepted(tmp_path: Path) -> None:
    """The model declares it; what it does not declare stays unknown. The same of a model with open dimensions."""
    model = Model()
    x = model.input(["n", 8], "x")
    model.input(["n", 3], "spare")
    model.output(model.relu(x))
    (tmp_path / "model.onnx").write_bytes(model.data())
    arrays: dict[str, Any] = {
        name: np.ones((2, width), np.float32) for name, width in (("x", 8), ("spare", 3), ("other", 1))
    }
    for names, code in ((("x",), None), (("x", "spare"), None), (("x", "spare", "other"), "unknown_input")):
        np.savez(tmp_path / "in.npz", **{name: arrays[name] for name in names})
        for dims in ("dims.n=2", 'dims.n={"min":1,"max":4}'):
            words = ("--profile", "edge4", "--set", dims, "--inputs", str(tmp_path / "in.npz"), "--check", "--json")
            ran = tessera("run", str(tmp_path / "model.onnx"), *words)
            assert ran.exit_code == (2 if code else 0), ran.output
            assert (json.loads(ran.stderr)["code"] if code else None) == code


def test_a_model_and_its_executable_run_to_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    files = []
    for words in (["net.onnx", "--profile", "edge4"], ["executable.tsx"]):
        out = tmp_path / f"{words[0]}.npz"
        answer = tessera("run", str(folder / words[0]), *words[1:], "--seed", "9", "--outputs", str(out), "--json")
        assert answer.exit_code == 0, answer.output
        report = json.loads(answer.stdout)
        assert report["seed"] == 9
        files.append((out.read_bytes(), report["outputs"], report["executable_sha256"]))
    assert files[0] == files[1]


def test_an_executable_is_compared_with_the_model_that_is_named(folder: Path, tmp_path: Path) -> None:
    answer = tessera("run", str(folder / "executable.tsx"), "--against", str(folder / "net.onnx"))
    assert answer.exit_code == 0, answer.output
    assert "agree with ONNX Runtime" in answer.stdout
    changed = network().proto()
    changed.graph.node[0].attribute[0].CopyFrom(onnx.helper.make_attribute("pads", [0, 0, 2, 2]))
    (tmp_path / "other.onnx").write_bytes(changed.SerializeToString())
    answer = tessera("run", str(folder / "executable.tsx"), "--against", str(tmp_path / "other.onnx"))
    assert answer.exit_code == 3, answer.output
    assert "values_differ" in answer.stderr
    assert "differ from ONNX Runtime" in answer.stdout


def test_a_comparison_that_cannot_be_made_is_no_success(folder: Path, tmp_path: Path) -> None:
    path = saved(tmp_path / "other.onnx", embedding())
    answer = tessera("run", str(folder / "executable.tsx"), "--against", path)
    assert answer.exit_code == 2
    assert "not_compared" in answer.stderr
    assert "Not compared: " in answer.stdout


def test_simulating_proves_the_programs_and_shows_what_they_take(folder: Path) -> None:
    answer = tessera("simulate", str(folder / "executable.tsx"))
    assert answer.exit_code == 0, answer.output
    for words in ("Every program is proved safe", "chip 0", "NRAM used", "values only, time is not simulated"):
        assert words in answer.stdout
    report = json.loads(tessera("simulate", str(folder / "executable.tsx"), "--json").stdout)
    program = executable_of_folder(folder).segments[0].program
    assert report["segments"][0]["statements"] == len(program.commands)
    assert report["segments"][0]["commands"] == Instances(program).total


def test_an_unsafe_mutant_is_refused_with_command_and_violation(tmp_path: Path) -> None:
    """PROG-4."""
    mutant, command = unsafe(executable(network()))
    path = tmp_path / "mutant.tsx"
    path.write_bytes(file_of(mutant))
    for name in ("run", "simulate"):
        found = problem(name, str(path), exit_code=3)
        assert (found["code"], found["command"], found["violation"]) == ("invalid_program", command, "address")
    answer = tessera("run", str(path))
    assert f"command {command}" in answer.stderr
    assert "violates address" in answer.stderr


def test_a_listing_is_of_a_model_or_of_an_executable_and_may_be_cut(folder: Path) -> None:
    whole = tessera("listing", str(folder / "executable.tsx"))
    assert whole.exit_code == 0, whole.output
    assert whole.stdout == tessera("listing", str(folder / "net.onnx"), "--profile", "edge4").stdout
    cut = tessera("listing", str(folder / "executable.tsx"), "--head", "2", "--tail", "1").stdout
    assert "  ..." in cut
    assert len(cut.splitlines()) < len(whole.stdout.splitlines())
    summary = tessera("listing", str(folder / "executable.tsx"), "--summary", "--group", "s0.g0").stdout
    assert "commands by opcode" in summary
    found = problem("listing", str(folder / "executable.tsx"), "--group", "s7", exit_code=2)
    assert (found["code"], found["limit"]) == ("unknown_group", "s0.g0")
    lines = json.loads(tessera("listing", str(folder / "executable.tsx"), "--json").stdout)["listing"]
    assert "\n".join(lines) + "\n" == whole.stdout


def test_a_trace_is_of_a_model_or_of_an_executable_and_may_be_cut(folder: Path, tmp_path: Path) -> None:
    """SIM-4."""
    paths = [tmp_path / f"{name}.perfetto-trace" for name in ("executable", "model", "cut")]
    words = (
        (str(folder / "executable.tsx"),),
        (str(folder / "net.onnx"), "--profile", "edge4"),
        (str(folder / "executable.tsx"), "--commands", "2"),
    )
    for path, word in zip(paths, words, strict=True):
        answer = tessera("trace", *word, "--out", str(path))
        assert (answer.exit_code, answer.stdout.replace("\n", "")) == (0, f"wrote {path}"), answer.output
    whole, same, cut = (path.read_bytes() for path in paths)
    assert whole == same == b"".join(trace_of(executable_of_folder(folder)))
    assert cut == b"".join(trace_of(executable_of_folder(folder), limit=2))
    assert problem("compile", str(folder / "net.onnx"), "-p", "edge4", "--trace", exit_code=2)["actual"] == "--trace"


def test_the_traced_program_is_proved_safe_first(tmp_path: Path) -> None:
    mutant, command = unsafe(executable(network()))
    (tmp_path / "mutant.tsx").write_bytes(file_of(mutant))
    answer = tessera("trace", str(tmp_path / "mutant.tsx"), "--out", str(tmp_path / "t"))
    assert answer.exit_code == 3
    assert f"command {command}" in answer.stderr
    assert not (tmp_path / "t").exists()


@pytest.mark.slow
def test_a_reader_of_a_listing_may_stop_reading(folder: Path) -> None:
    command = f"{TESSERA} listing {folder / 'executable.tsx'} | head -n 1"
    answer = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)  # noqa: S602
    assert answer.stdout == "segment s0 on chip 0\n"
    assert answer.stderr == ""


def test_a_model_with_host_nodes_runs(tmp_path: Path) -> None:
    answer = tessera("run", lstm(tmp_path / "lstm.onnx"), "--profile", "edge4", "--check", "--json")
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert [segment["kind"] for segment in report["segments"]] == ["host", "chip"]
    assert report["comparison"]["holds"] is True


def test_a_loop_without_end_is_planned_and_not_run(tmp_path: Path) -> None:
    """Issue 22: of 2^40 trips; and one of a condition that stays true, which a time limit ends while it runs."""
    endless = [str(tmp_path / "endless.onnx"), "--profile", "edge4"]
    onnx.save(looping(2**40), endless[0])
    answer = tessera("compile", *endless)
    assert answer.exit_code == 0, answer.output
    assert "Verified     no: host node 'loop' takes at least" in answer.stdout
    found = problem("run", *endless, exit_code=3)
    assert (found["code"], found["node"]) == ("host_run_too_long", "loop")
    onnx.save(looping(None, body=BY_VALUE), endless[0])
    assert problem("run", *endless, "--set", "time_limit_s=2", exit_code=3)["code"] == "time_limit"


def test_indices_are_made_up_within_their_table(tmp_path: Path) -> None:
    words = ["run", saved(tmp_path / "net.onnx", embedding()), "--profile", "edge4", "--check", "--json"]
    assert json.loads(tessera(*words).stdout)["comparison"]["holds"] is True


def bad_inputs(folder: Path, tmp_path: Path) -> dict[str, str]:
    np.savez(tmp_path / "named.npz", y=np.zeros(3))
    np.savez(tmp_path / "shape.npz", x=np.zeros((1, 3, 16, 15), np.float32))
    np.savez(tmp_path / "pickle.npz", x=np.array([{}], dtype=object))
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "cut.tsx").write_bytes((folder / "executable.tsx").read_bytes()[:-8])
    return {name: str(tmp_path / name) for name in ("named.npz", "shape.npz", "pickle.npz", "text.npz", "cut.tsx")}


@pytest.mark.parametrize(
    ("words", "exit_code", "code"),
    [
        (["run", "net.onnx"], 2, "no_profile"),
        (["run", "nonesuch.onnx", "--profile", "edge4"], 2, "no_such_file"),
        (["run", "executable.tsx", "--inputs", "named.npz"], 2, "unknown_input"),
        (["run", "executable.tsx", "--inputs", "shape.npz"], 2, "wrong_input"),
        (["run", "executable.tsx", "--inputs", "pickle.npz"], 2, "invalid_inputs"),
        (["run", "executable.tsx", "--inputs", "text.npz"], 2, "invalid_inputs"),
        (["run", "executable.tsx", "--inputs", "none.npz"], 2, "no_such_file"),
        (["run", "executable.tsx", "--inputs", "shape.npz", "--seed", "3"], 2, "invalid_request"),
        (["run", "executable.tsx", "--check"], 2, "invalid_request"),
        (["run", "executable.tsx", "--set", "objective=energy"], 2, "invalid_option"),
        (["run", "executable.tsx", "--profile", "cluster4x4"], 2, "wrong_profile"),
        (["run", "executable.tsx", "--set", "time_limit_s=0.000001"], 3, "time_limit"),
        (["run", "cut.tsx"], 3, "invalid_executable"),
        (["run", "net.onnx", "--profile", "edge4", "--set", "precision=int8"], 2, "no_values"),
        (["simulate", "net.onnx"], 2, "invalid_request"),
        (["listing", "net.onnx", "--profile", "edge4", "--group", "s9"], 2, "unknown_group"),
    ],
)
def test_wrong_requests_are_one_block_and_an_exit_code(
    folder: Path, tmp_path: Path, words: list[str], exit_code: int, code: str
) -> None:
    made = {**bad_inputs(folder, tmp_path), **{name: str(folder / name) for name in ("net.onnx", "executable.tsx")}}
    found = problem(*(made.get(word, word) for word in words), exit_code=exit_code)
    assert found["code"] == code


def test_given_text_and_sequences_are_kept_in_npz(tmp_path: Path) -> None:
    """Outputs that are no plain tensors: a host node makes a sequence of two."""
    model = Model()
    x = model.input([4, 3], "x")
    model.output(model.node("SplitToSequence", [model.relu(x)], axis=0, name="split"))
    proto = model.proto()
    path = tmp_path / "parts.onnx"
    proto.graph.output[0].ClearField("type")
    path.write_bytes(proto.SerializeToString())
    answer = tessera("run", str(path), "--profile", "edge4", "--outputs", str(tmp_path / "out.npz"))
    assert answer.exit_code == 0, answer.output
    with (tmp_path / "out.npz").open("rb") as file:
        found = read_arrays(file)
    assert [array.shape for array in found.values()] == [(1, 3)] * 4
    assert all(name.startswith("v") and "/" in name for name in found)
