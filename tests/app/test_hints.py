"""Every error that a user can cure says what to do (house rule 10): a hint of its own, or that of its class."""

from __future__ import annotations

import ast
import importlib
import json
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

import app
import compiler
from app.cli.main import cli
from app.client.errors import ServiceError
from compiler.compile import compile_model
from compiler.errors import TesseraError
from compiler.frontend.source import ModelSource
from compiler.option_descriptions import DESCRIPTIONS
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import Model

ROOT: Final = Path(__file__).parents[2]
# Rooms whose errors a user of the command line meets first: each states its own hint.
OWN_HINTS: Final = (
    "app/cli",
    "app/client",
    "app/input_files.py",
    "app/limits.py",
    "app/supervisor",
    "app/sweeps",
    "compiler/report/explain.py",
    "compiler/options.py",
    "compiler/profile/fields.py",
    "compiler/profile/quantities.py",
)


def kinds(kind: type[TesseraError] = TesseraError) -> Iterator[type[TesseraError]]:
    for child in kind.__subclasses__():
        yield child
        yield from kinds(child)


def test_every_class_of_errors_has_a_hint_for_errors_without_one() -> None:
    for package in (app, compiler):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    ours = [kind for kind in kinds() if kind.__module__.startswith(("app.", "compiler.")) and kind is not ServiceError]
    assert len(ours) > 10
    assert [kind.__name__ for kind in ours if not kind.default_hint] == []


def files() -> Iterator[Path]:
    for name in OWN_HINTS:
        path = ROOT / name
        yield from [path] if path.is_file() else sorted(path.rglob("*.py"))


def test_errors_of_the_command_line_and_of_options_state_hints_of_their_own() -> None:
    names = {kind.__name__ for kind in kinds()} - {"ServiceError", "InternalError"}
    without = []
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                given = {keyword.arg for keyword in node.keywords}
                if not given & {"hint", None}:
                    without.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert without == []


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a model, a folder that was compiled, and a truncated model."""
    monkeypatch.chdir(tmp_path)
    model = Model(name="small")
    x = model.input(["batch", 4, 8, 8], "image")
    model.output(model.relu(model.conv(x, 4, 4, 3, name="conv0")))
    Path("m.onnx").write_bytes(model.data())
    Path("cut.onnx").write_bytes(model.data()[:-40])


@pytest.fixture
def compiled() -> None:
    answer = tessera("plan", "m.onnx", "-p", "edge4", "--set", "dims.batch=1", "--out", "out")
    assert answer.exit_code == 0, answer.output


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    ("words", "said", "hint"),
    [
        (["compare", "m.onnx", "m.onnx"], "is an ONNX model, not a plan", "Give the folder of `tessera compile --out`"),
        (["plan", "out", "-p", "edge4"], "shown as it is", "Leave out --profile"),
        (["explain", "out/report.json"], "is a report of a compilation", "give out"),
        (["explain", "out", "--group", "s0.g9"], "no group or segment", "Did you mean s0.g0?"),
        (["listing", "missing.tsx"], "no file missing.tsx", "or of an executable"),
        (["plan", "m.onnx", "-p", "edge4", "--set", "dims.Batch=1"], "'Batch'", "Did you mean batch?"),
        (["plan", "cut.onnx", "-p", "edge4"], "cut.onnx: the file ends early", "Copy or download it again"),
        (["serve", "--host", "192.0.2.1", "--port", "0", "--data-dir", "data"], "192.0.2.1", "--host, such as"),
        (["serve", "--data-dir", "m.onnx", "--port", "0"], "m.onnx cannot be used", "Choose another with --data-dir"),
    ],
)
def test_a_wrong_argument_is_refused_with_the_step_that_cures_it(words: list[str], said: str, hint: str) -> None:
    answer = tessera(*words)
    assert answer.exit_code in (2, 3), answer.output
    text = " ".join(answer.stderr.split())
    assert said in text
    assert hint in text.partition(" hint ")[2]


@pytest.mark.usefixtures("compiled")
def test_a_folder_with_files_of_others_is_not_overwritten_and_one_of_ours_is() -> None:
    words = ["plan", "m.onnx", "-p", "edge4", "--set", "dims.batch=1", "--out"]
    assert tessera(*words, "out").exit_code == 0
    for name in ("plan.json", "report.html", "listing.txt"):
        Path("theirs").mkdir(exist_ok=True)
        Path("theirs", name).write_text("mine")
        answer = tessera(*words, "theirs")
        assert (answer.exit_code, "file_exists" in answer.stderr) == (2, True), answer.output
        assert Path("theirs", name).read_text() == "mine"
        Path("theirs", name).unlink()
    assert list(Path("theirs").iterdir()) == []


def test_a_wrong_name_of_a_dimension_is_not_kept_in_the_command_to_paste() -> None:
    source = ModelSource.from_buffer(Path("m.onnx").read_bytes(), name="m.onnx")
    with pytest.raises(TesseraError) as caught:
        compile_model(source, builtin_profile("edge4"), parse_options({"dims": {"Batch": 1}}))
    assert caught.value.code == "unknown_dim"


def test_options_are_shown_with_values_and_meaning_and_one_alone_with_rules() -> None:
    everything = tessera("options").stdout
    for name in DESCRIPTIONS:
        assert f"{name}: " in everything
    assert "objective: latency, dram_bytes, energy, edp" in everything
    assert "fits SRAM as a whole (FUSE-13)" in tessera("options", "rules").stdout
    assert json.loads(tessera("options", "batch", "--json").stdout)["batch"]["example"] == "batch=4"
    assert "Did you mean objective?" in tessera("options", "objectiv").stderr


def test_help_names_the_options_and_the_command_that_explains_them_without_all_rules() -> None:
    text = " ".join(tessera("plan", "--help").stdout.replace("│", " ").split())
    assert "tessera options" in text
    assert "memory_limit_bytes" in text
    assert "FUSE-13" not in text


@pytest.mark.parametrize("words", [["--no-verify"], ["--set", "precision=int8"]])
def test_what_does_not_compare_outputs_does_not_announce_it(words: list[str]) -> None:
    answer = tessera("compile", "m.onnx", "-p", "edge4", "--set", "dims.batch=1", *words)
    assert answer.exit_code == 0, answer.output
    assert "now made, proved safe and simulated.\n" in answer.stdout
    assert "against the model" not in answer.stdout
    assert "verifying" not in answer.stderr
    assert "converted to floats" not in answer.stdout
    assert "Verified     no: " in answer.stdout


def test_what_compares_outputs_announces_it() -> None:
    answer = tessera("compile", "m.onnx", "-p", "edge4", "--set", "dims.batch=1")
    assert "proved safe, simulated, and run against the model.\n" in answer.stdout
    assert "verifying outputs" in answer.stderr
