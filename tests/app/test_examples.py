"""The shell examples of the documents: commands run, show what the documents show, and ask for what the API has.

A fence `sh` has commands for a folder with a `model.onnx` and arrays for its input in `in.npz`, in order. A fence
`console` has commands for the root of the repository with their output in a terminal, `...` for lines that are left
out. A fence `http` has calls of curl.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from tests.exported import exported_models
from tests.service.harness import conv_chain

# plans are shown as they are chosen, in samples too
pytestmark = pytest.mark.chosen

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ("README.md", "docs/plan.md", "docs/sweeps.md", "docs/packages.md", "docs/quantise.md")
METHODS: Final = ("get", "post", "delete")
TERMINAL: Final = {"TTY_COMPATIBLE": "1", "TERM": "dumb", "COLUMNS": "96", "LINES": "50"}
# Examples that take 10 s and more: they plan large networks, or many times.
LONG: Final = ("explain", "sweep", "size", "docs/packages.md")
# The version of the judge, and errors of the last digit, are the machine's.
_JUDGED: Final = r"with ONNX Runtime \S+ on random inputs: largest relative error \S+, allowed (\S+) \(\S+\[[\d, ]+\]\)"
# Errors of a quantised model are those of the machine's float arithmetic.
_QUANTISED: Final = r"(\w+ float32) \S+ \S+ \S+ dB \S+ %"


def examples(page: str, kind: str) -> list[str]:
    """The fenced examples of one kind in a document."""
    return re.findall(rf"^```{kind}\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def output(command: str, *, terminal: bool = False) -> str:
    program, *words = shlex.split(command, comments=True)
    if program == "python":
        return subprocess.run([sys.executable, *words], check=True, capture_output=True, text=True).stdout
    assert program == "tessera"
    result = CliRunner().invoke(cli, words, env=TERMINAL if terminal else {})
    assert result.exit_code == 0, (command, result.output)
    return result.stdout


def marked(cases: Iterable[tuple[str, Any]]) -> list[Any]:
    """Parameters by their names: those of examples that take long in `make test-all` alone, the others `slow`."""
    found = ((name, case, pytest.mark.full if name in LONG else pytest.mark.slow) for name, case in cases)
    return [pytest.param(case, id=name, marks=mark) for name, case, mark in found]


def plain(text: str) -> str:
    """A text without its line breaks, and without what depends on the machine."""
    text = re.sub(_JUDGED, r"with ONNX Runtime: limit \1", " ".join(text.split()))
    return re.sub(r"ONNX Runtime [\d.]+", "ONNX Runtime", re.sub(_QUANTISED, r"\1", text))


@pytest.mark.parametrize("page", marked((page, page) for page in PAGES))
def test_commands_of_a_document_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if page == "docs/packages.md":  # about models with open dimensions
        (model,) = [model for model in exported_models() if model.file == "keyword_dynamo.onnx"]
        Path("model.onnx").write_bytes(model.read())
        np.savez("in.npz", audio=np.linspace(-1, 1, 3 * 4000, dtype=np.float32).reshape(3, 1, 4000))
    else:
        Path("model.onnx").write_bytes(conv_chain(3, channels=5))
        np.savez("in.npz", x=np.random.default_rng(0).standard_normal((2, 1, 5, 32, 32), np.float32))
    commands = [line for example in examples(page, "sh") for line in example.splitlines() if line.strip()]
    assert commands
    for command in commands:
        output(command)


def shown() -> list[list[tuple[str, str]]]:
    """Commands with the output that documents show, by fence."""
    blocks = [block for page in PAGES for block in examples(page, "console")]
    parts = [re.split(r"^\$ ", block, flags=re.MULTILINE)[1:] for block in blocks]
    return [[(command, text) for command, _, text in (part.partition("\n") for part in block)] for block in parts]


@pytest.mark.parametrize("block", marked((block[0][0].split()[1], block) for block in shown()))
def test_commands_show_what_a_document_shows(
    block: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tests").symlink_to(ROOT / "tests")
    for command, text in block:
        found = plain(output(command, terminal=True))
        parts = [plain(part) for part in re.split(r"^\.\.\.$", text, flags=re.MULTILINE)]
        assert re.fullmatch(".*".join(map(re.escape, parts)), found), found


def test_calls_of_the_documents_are_in_the_api() -> None:
    paths = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
    known = {
        method: [re.sub(r"\{[^}]*\}", "[^/]+", path) for path in paths if method in paths[path]] for method in METHODS
    }
    calls = [line for page in PAGES for example in examples(page, "http") for line in example.splitlines()]
    assert calls
    for call in calls:
        method = re.search(r"-X (\S+)", call)
        name = method[1].lower() if method else "post" if re.search(r"curl -[Fd] ", call) else "get"
        path = re.search(r"http://127\.0\.0\.1:8080([^\s?']+)", call)
        assert path, call
        assert any(re.fullmatch(one, path[1]) for one in known[name]), call
