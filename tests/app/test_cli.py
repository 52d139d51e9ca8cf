"""UI-1: the command line without a server: outputs, errors, exit codes."""

from __future__ import annotations

import ast
import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.failures import USAGE_CODES
from app.cli.main import cli
from app.input_files import packed
from app.limits import bounded
from app.supervisor.lock import DirectoryLock
from compiler.amounts import bytes_text, si_text
from compiler.errors import LimitError, RequestError
from compiler.profile import builtin_profile, profile_json
from tests.corpus.archives import external_model
from tests.corpus.external import LOCATIONS
from tests.service.harness import light_model
from tests.service.models import SIDECARS, dynamic, lstm, network, saved, written

ROOT = Path(__file__).parents[2]
SQUEEZENET = str(light_model("squeezenet"))


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.mark.slow
def test_compiling_here_writes_both_documents_and_shows_the_plan(tmp_path: Path) -> None:
    words = ["--profile", "cluster4x4", "--set", "fusion=rules", "--out", str(tmp_path / "out")]
    answer = tessera("compile", SQUEEZENET, *words)
    assert answer.exit_code == 0, answer.output
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["model"]["name"] == "light_squeezenet.onnx"
    assert (tmp_path / "out" / "report.json").exists()
    for word in ("group", "layer by layer", "minimum", "Latency", "Energy", plan["segments"][0]["groups"][0]["id"]):
        assert word in answer.stdout


def test_json_output_is_the_plan_with_the_report_in_it(tmp_path: Path) -> None:
    answer = tessera(
        "compile", saved(tmp_path / "net.onnx", network()), "--profile", "edge4", "--set", "fusion=none", "--json"
    )
    assert answer.exit_code == 0
    plan = json.loads(answer.stdout)
    assert plan["options"]["fusion"] == "none"
    assert plan["profile"]["name"] == "edge4"
    report = plan["report"]
    assert (report["schema"], report["values"]["checked"]) == ("tessera.report/1", True)
    assert report["values"]["max_error"] <= report["values"]["limit"]
    assert report["stream"]["images_per_s"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["plan", "m.onnx", "--profil", "edge4"], "--profil"),
        (["compile", "m.onnx"], "--profile"),
        (["planet"], "planet"),
        (["profiles", "sho", "edge4"], "sho"),
        (["listing", "m.onnx", "--head", "x"], "--head"),
    ],
)
def test_wrong_usage_is_json_too_where_json_is_asked_for(words: list[str], said: str) -> None:
    answer = tessera(*words, "--json")
    problem = json.loads(answer.stderr)
    assert (answer.exit_code, problem["code"], answer.stdout) == (2, "invalid_usage", "")
    assert said in problem["message"]
    assert "--help` shows" in problem["hint"]
    boxed = tessera(*words)
    assert (boxed.exit_code, "Usage: " in boxed.stderr) == (2, True)


@pytest.mark.slow
def test_a_profile_may_be_saved(tmp_path: Path) -> None:
    values = {**json.loads(profile_json(builtin_profile("edge4"))), "name": "mine"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    answer = tessera("plan", SQUEEZENET, "--profile", str(path), "--set", "fusion=none", "--json")
    assert json.loads(answer.stdout)["profile"]["name"] == "mine"


def files(folder: Path) -> dict[str, str]:
    values = json.loads(profile_json(builtin_profile("edge4")))
    values["nram"]["capacity_bytes"] = -5
    texts = {"text.onnx": b"hello, this is text", "empty.onnx": b"", "bad.json": json.dumps(values).encode()}
    for name, data in texts.items():
        (folder / name).write_bytes(data)
    return {name: str(folder / name) for name in texts}


@pytest.mark.parametrize(
    ("model", "profile", "setting", "exit_code", "names"),
    [
        ("text.onnx", "cluster4x4", None, 3, "ONNX"),
        ("empty.onnx", "cluster4x4", None, 3, "empty"),
        ("/no/such/model.onnx", "cluster4x4", None, 2, "/no/such/model.onnx"),
        (SQUEEZENET, "nonesuch", None, 2, "nonesuch"),
        (SQUEEZENET, "bad.json", None, 3, "nram.capacity_bytes"),
        (SQUEEZENET, "cluster4x4", "colour=red", 2, "colour"),
        (SQUEEZENET, "cluster4x4", "objective=speed", 2, "objective"),
        (SQUEEZENET, "cluster4x4", "nonsense", 2, "nonsense"),
        (SQUEEZENET, "cluster4x4", "time_limit_s=0.25", 3, "time_limit"),
    ],
)
# a time limit that passes while garbage is collected is raised in a callback of hypothesis, swallowed, and raised again
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("as_json", [False, True])
def test_wrong_input_is_one_block_that_names_the_thing_and_its_exit_code(
    tmp_path: Path, model: str, profile: str, setting: str | None, exit_code: int, names: str, as_json: bool
) -> None:
    made = files(tmp_path)
    words = ["compile", made.get(model, model), "--profile", made.get(profile, profile)]
    words += ["--set", setting] if setting else []
    answer = tessera(*words, *(["--json"] if as_json else []))
    assert (answer.exit_code, answer.stdout) == (exit_code, "")
    assert names in answer.stderr
    assert "Traceback" not in answer.output
    if as_json:
        problem: dict[str, Any] = json.loads(answer.stderr)
        assert {"code", "message"} <= problem.keys()
    else:
        said = [line for line in answer.stderr.splitlines() if not line.endswith(": planning")]
        assert said[0].startswith("error: ")


def test_a_memory_limit_bounds_a_local_compilation() -> None:
    program = "from app.cli.console_script import run; run()"
    words = ["compile", SQUEEZENET, "--profile", "cluster4x4", "--set", "memory_limit_bytes=1"]
    answer = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=60)
    assert answer.returncode == 3
    assert "memory_limit" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_an_unexpected_failure_is_exit_code_1_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("compiler.compile.compile_model", broken)
    answer = tessera("compile", SQUEEZENET, "--profile", "cluster4x4")
    assert answer.exit_code == 1
    assert "internal_error" in answer.stderr
    assert "Traceback" not in answer.output


def test_unknown_commands_and_missing_words_are_usage_errors() -> None:
    assert tessera("nonesuch").exit_code == 2
    assert tessera("compile", SQUEEZENET).exit_code == 2


def test_no_service_at_the_url_is_said_in_one_block() -> None:
    answer = tessera("compile", SQUEEZENET, "--profile", "edge4", "--server", "http://127.0.0.1:9")
    assert answer.exit_code == 2
    assert "http://127.0.0.1:9" in answer.stderr


def test_quantities_are_printed_with_their_units() -> None:
    assert [bytes_text(value) for value in (0, 1023, 1024, 3 * 2**20)] == ["0 B", "1023 B", "1.00 KiB", "3.00 MiB"]
    assert [si_text(value, "J") for value in (0, 1.5, 0.0123, 4e-6, 5e-9, 6e-12, 999.9e-6, 1234)] == [
        "0 J",
        "1.5 J",
        "12.3 mJ",
        "4 µJ",
        "5 nJ",
        "6 pJ",
        "1 mJ",
        "1,230 J",
    ]


def test_a_wrong_setting_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSERA_LEASE_S", "-1")
    answer = tessera("serve")
    assert answer.exit_code == 2
    assert "TESSERA_LEASE_S" in answer.stderr


def test_a_data_directory_in_use_is_one_block(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    lock.acquire()
    answer = tessera("serve", "--port", "0", "--data-dir", str(tmp_path))
    lock.release()
    assert answer.exit_code == 2
    assert f"in use by process {os.getpid()}" in answer.stderr


# what the plan says


def compiled(*words: str, exit_code: int = 0) -> dict[str, Any]:
    """The plan of a model for `edge4`, or the problem if another exit code is expected."""
    answer = tessera("compile", *words, "--profile", "edge4", "--json")
    assert answer.exit_code == exit_code, answer.output
    assert "Traceback" not in answer.output
    found = dict(json.loads(answer.stdout if exit_code == 0 else answer.stderr))
    return {name: value for name, value in found.items() if name != "report"}


def explained(*words: str, exit_code: int = 0) -> str:
    answer = tessera("explain", *words, "--profile", "edge4")
    assert answer.exit_code == exit_code, answer.output
    return answer.stdout if exit_code == 0 else answer.stderr


def test_an_explanation_names_segments_cuts_and_why_nodes_stay_on_the_host(tmp_path: Path) -> None:
    """UI-1."""
    text = explained(lstm(tmp_path / "lstm.onnx"))
    assert "lstm.onnx on edge4: 1 group in 1 segment" in text
    assert "Host         runs 1 of 2 nodes" in text
    assert "cell (LSTM) stays on the host: not run by the accelerator unless the number of steps is fixed" in text
    assert "begins after cell: host and chip take turns here" in text


def test_one_group_or_one_segment_is_explained_by_its_id(tmp_path: Path) -> None:
    path = str(written(tmp_path))
    words = [path, "--set", 'partition=["relu"]']
    groups = [explained(*words, "--group", group) for group in ("s0.g0", "s1.g0")]
    segment = explained(*words, "--group", "s1")
    assert groups[0].startswith("Group s0.g0 of segment s0 on chip 0: 2 ops, partial-map mode.\n")
    assert "ONNX nodes: first, relu.\n" in groups[0]
    assert "ONNX nodes: second.\n" in groups[1]
    assert segment.startswith("Segment s1 on chip 0: 1 node: second\n  begins after relu: option partition names")
    assert groups[1].partition("Price:")[0] in segment
    assert "Group s0.g0" not in segment
    answer = tessera("explain", *words, "--group", "s1", "--profile", "edge4", "--json")
    assert json.loads(answer.stdout) == {"explanation": segment.splitlines()}


def test_an_unknown_group_is_a_usage_error_that_names_the_known_ones(tmp_path: Path) -> None:
    said = explained(str(written(tmp_path)), "--set", 'partition=["relu"]', "--group", "s7.g1", exit_code=2)
    for word in ("unknown_group", "'s7.g1'", "s0.g0", "s1.g0"):
        assert word in said


def test_strict_refuses_a_node_of_the_host_by_its_name_and_reason(tmp_path: Path) -> None:
    """IMPORT-6."""
    path = lstm(tmp_path / "lstm.onnx")
    assert [node["node"] for node in compiled(path)["segments"][0]["host"]] == ["cell"]
    problem = compiled(path, "--strict", exit_code=3)
    assert (problem["code"], problem["node"], problem["op_type"]) == ("unsupported_op", "cell", "LSTM")
    assert "the number of steps is fixed, and at most 97" in problem["message"]
    assert "unsupported_op" in explained(path, "--strict", exit_code=3)


def test_dimensions_are_set_by_a_number_or_a_range(tmp_path: Path) -> None:
    path = dynamic(tmp_path / "net.onnx")
    words = ["--set", 'dims.batch={"min":1,"max":8}', "--set", "dims.height=6", "--set", "dims.width=7"]
    plan = compiled(path, *words)
    assert plan["dims"] == {"batch": 8, "height": 6, "width": 7}
    fixed = compiled(dynamic(tmp_path / "fixed.onnx", (8, 3, 6, 7)))
    assert plan["segments"][0]["macs"] == fixed["segments"][0]["macs"] == 8 * 6 * 7 * 4 * 3 * 3 * 3


@pytest.mark.parametrize(
    ("settings", "exit_code", "code", "names"),
    [
        (["dims.height=4"], 3, "dynamic_dim", ["batch", "width", "--set dims.batch=1 --set dims.width=64"]),
        (['dims={"batch":1,"height":4,"width":4,"depth":4}'], 2, "unknown_dim", ["depth", "batch, height"]),
        (["dims.batch=-1"], 2, "invalid_option", ["dims", "-1"]),
        (['dims.batch={"min":0,"max":4}'], 2, "invalid_option", ["dims.batch.min", "apart with --set dims.batch=0"]),
        (["dims.batch.min=1", "dims.batch.max=4"], 2, "unknown_dim", ["one object", "dims.batch={"]),
        (['dims.batch={"min":5,"max":4}'], 2, "invalid_option", ["dims.batch", "5 to 4"]),
        (["dims.batch=four"], 2, "invalid_option", ["dims", "four"]),
    ],
)
def test_missing_unknown_and_wrong_dimensions_are_all_named(
    tmp_path: Path, settings: list[str], exit_code: int, code: str, names: list[str]
) -> None:
    words = [word for setting in settings for word in ("--set", setting)]
    problem = compiled(dynamic(tmp_path / "net.onnx"), *words, exit_code=exit_code)
    assert problem["code"] == code
    for name in names:
        assert name in json.dumps(problem, ensure_ascii=False)


def test_cuts_and_the_merging_of_segments_are_chosen(tmp_path: Path) -> None:
    """PART-3, PART-4."""
    path = saved(tmp_path / "net.onnx", network())
    assert [segment["nodes"] for segment in compiled(path)["segments"]] == [["first", "relu", "second"]]
    at_node = compiled(path, "--set", 'partition=["relu"]', "--set", "merge=none")
    assert [segment["nodes"] for segment in at_node["segments"]] == [["first", "relu"], ["second"]]
    assert compiled(path, "--set", "merge=optimal")["partition"]["strategy"] == "optimal"


def test_a_cut_after_a_node_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    problem = compiled(str(written(tmp_path)), "--set", 'partition=["nonesuch"]', exit_code=2)
    assert (problem["code"], problem["node"]) == ("unknown_node", "nonesuch")


# external data beside a model


def test_external_data_beside_a_model_is_found(tmp_path: Path) -> None:
    """IMPORT-1."""
    split = compiled(str(written(tmp_path)))
    single = compiled(saved(tmp_path / "single.onnx", network()))
    assert split.pop("model") != single.pop("model")
    assert split == single


def test_a_link_within_the_folder_is_followed(tmp_path: Path) -> None:
    path = written(tmp_path)
    (tmp_path / SIDECARS["w"]).rename(tmp_path / "elsewhere.bin")
    plain = compiled(str(path), exit_code=3)
    (tmp_path / SIDECARS["w"]).symlink_to("elsewhere.bin")
    assert (plain["code"], compiled(str(path))["folded"]) == ("external_data", [])


@pytest.mark.parametrize("target", ["../outside.bin", "{folder}/../outside.bin", "/dev/zero", "../nothing"])
def test_a_link_that_leads_out_of_the_folder_is_refused(tmp_path: Path, target: str) -> None:
    """IMPORT-4."""
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(folder)
    (folder / SIDECARS["w"]).rename(tmp_path / "outside.bin")
    (folder / SIDECARS["w"]).symlink_to(target.format(folder=folder))
    problem = compiled(str(path), exit_code=3)
    assert problem["code"] == "external_data_path"
    assert SIDECARS["w"] in problem["message"]


def test_a_folder_that_is_a_link_out_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    path = written(folder)
    (folder / "more").rename(tmp_path / "more")
    (folder / "more").symlink_to("../more")
    assert compiled(str(path), exit_code=3)["code"] == "external_data_path"


@pytest.mark.parametrize("instead", ["nothing", "an empty file", "a folder", "a link to itself", "a pipe"])
def test_a_missing_file_of_a_model_is_named(tmp_path: Path, instead: str) -> None:
    path = written(tmp_path)
    lost = tmp_path / SIDECARS["v"]
    lost.unlink()
    if instead == "an empty file":
        lost.touch()
    elif instead == "a folder":
        lost.mkdir()
    elif instead == "a link to itself":
        lost.symlink_to(lost.name)
    elif instead == "a pipe":
        os.mkfifo(lost)
    problem = compiled(str(path), exit_code=3)
    assert (problem["code"], problem["actual"]) == ("external_data", SIDECARS["v"])


@pytest.mark.parametrize("where", LOCATIONS)
def test_a_location_that_is_no_file_beside_the_model_is_refused(tmp_path: Path, where: str) -> None:
    """IMPORT-4: absolute paths, `..`, devices, addresses: of each only the text is looked at."""
    (tmp_path / "weights.bin").write_bytes(bytes(1200))
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "net.onnx"
    path.write_bytes(external_model(LOCATIONS[where]))
    problem = compiled(str(path), exit_code=3)
    assert problem["code"] in ("external_data", "external_data_path")


def test_equal_files_are_packed_to_equal_bytes_whatever_their_times(tmp_path: Path) -> None:
    path = written(tmp_path)
    files: Mapping[str, Path] = {location: tmp_path / location for location in SIDECARS.values()}
    first = packed(path, files, tmp_path / "first.zip").read_bytes()
    for file in (path, *files.values()):
        os.utime(file, (0, 0))  # before the first date that a zip can hold
    assert packed(path, files, tmp_path / "second.zip").read_bytes() == first
    plan, direct = compiled(str(tmp_path / "second.zip")), compiled(str(path))
    assert plan.pop("model") != direct.pop("model")
    assert plan == direct


@pytest.mark.slow
def test_what_a_request_can_have_wrong_has_one_exit_code_here_and_on_a_service() -> None:
    """A service's problem carries no class of error, so its code has to be known."""
    codes = set()
    for path in (ROOT / "compiler").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "RequestError":
                words = [word.value for word in call.keywords if word.arg == "code"]
                texts = [node.value for word in words for node in ast.walk(word) if isinstance(node, ast.Constant)]
                codes |= {text for text in texts if isinstance(text, str)}
    assert {"unknown_node", "unknown_dim", "invalid_option"} <= codes
    assert codes - {"unknown_group"} <= USAGE_CODES  # groups are looked up in the plan, here


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "no memory"),
        ImportError("failed to map segment"),
        ValueError("of a library"),
    ],
)
def test_what_fails_for_want_of_memory_is_said_to_whatever_it_calls_itself(error: Exception) -> None:
    with pytest.raises(LimitError) as caught, bounded(None, 1):
        raise error
    assert caught.value.code == "memory_limit"
    with pytest.raises(ValueError, match="plenty"), bounded(None, 2**30):
        raise ValueError("with plenty left")
    with pytest.raises(RequestError), bounded(None, 1):
        raise RequestError("an answer of ours", code="invalid_request")
