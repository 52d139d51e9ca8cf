"""UI-1: the command line without a server: outputs, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.cli.plan_table import quantity_bytes, quantity_si
from app.supervisor.lock import DirectoryLock
from compiler.profile import builtin_profile, profile_json
from tests.service.harness import light_model

SQUEEZENET = str(light_model("squeezenet"))


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def test_compiling_here_writes_both_documents_and_shows_the_plan(tmp_path: Path) -> None:
    answer = tessera("compile", SQUEEZENET, "--profile", "cluster4x4", "--out", str(tmp_path / "out"))
    assert answer.exit_code == 0, answer.output
    plan = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert plan["model"]["name"] == "light_squeezenet.onnx"
    assert (tmp_path / "out" / "report.json").exists()
    for word in ("group", "layer by layer", "floor", "latency", "energy", plan["segments"][0]["groups"][0]["id"]):
        assert word in answer.stdout


def test_json_output_is_the_plan_and_nothing_else() -> None:
    answer = tessera("compile", SQUEEZENET, "--profile", "edge4", "--set", "fusion=none", "--json")
    assert answer.exit_code == 0
    plan = json.loads(answer.stdout)
    assert plan["options"]["fusion"] == "none"
    assert plan["profile"]["name"] == "edge4"


def test_the_table_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    answer = tessera("compile", SQUEEZENET, "--profile", "cluster4x4")
    assert max(len(line) for line in answer.stdout.splitlines()) <= 80


def test_a_profile_may_be_a_file(tmp_path: Path) -> None:
    values = {**json.loads(profile_json(builtin_profile("edge4"))), "name": "mine"}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(values))
    answer = tessera("compile", SQUEEZENET, "--profile", str(path), "--json")
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
        (SQUEEZENET, "cluster4x4", "time_limit_s=0.01", 3, "time_limit"),
    ],
)
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
        assert answer.stderr.startswith("error: ")


def test_a_memory_limit_bounds_a_local_compilation() -> None:
    program = "from app.cli.main import run; run()"
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


def test_the_profiles_are_listed() -> None:
    assert {"cluster4x4", "edge4"} <= {row["name"] for row in json.loads(tessera("profiles", "--json").stdout)}
    assert "cluster4x4" in tessera("profiles").stdout


def test_quantities_are_printed_with_their_units() -> None:
    assert [quantity_bytes(value) for value in (0, 1023, 1024, 3 * 2**20)] == ["0 B", "1023 B", "1.00 KiB", "3.00 MiB"]
    assert [quantity_si(value, "J") for value in (0, 1.5, 0.0123, 4e-6, 5e-9, 6e-12)] == [
        "0 pJ",
        "1.5 J",
        "12.3 mJ",
        "4 µJ",
        "5 nJ",
        "6 pJ",
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
