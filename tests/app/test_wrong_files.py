"""UI-1: what is wrong with a file or a URL that the command line names is said as what it is."""

from __future__ import annotations

import http.server
import io
import re
import threading
from importlib.resources import files
from pathlib import Path

import msgspec
import numpy as np
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.sweeps.target import Target, parse_target
from compiler.errors import RequestError
from compiler.options import Options
from compiler.profile import builtin_profile, profile_json
from tests.service.models import network

PROFILE = ("-p", "edge4")


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with a file of each kind in it."""
    monkeypatch.chdir(tmp_path)
    model = network().data()
    tensors = io.BytesIO()
    np.savez(tensors, image=np.zeros((1, 3, 8, 8), np.float32))
    profile = profile_json(builtin_profile("edge4"))
    contents = {
        "net.onnx": model,
        "cut.onnx": model[:-100],
        "in.npz": tensors.getvalue(),
        "cut.npz": tensors.getvalue()[:200],
        "p.json": profile,
        "p.yaml": b"schema: tessera.profile/1\nname: p\n",
        "plan.json": b'{"schema": "tessera.plan/1"}',
        "x.tsx": b"\x89TSRX and more",
        "x.tsp": b"\x89TSRP and more",
        "report.html": files("app.report_page").joinpath("assets/page.html").read_bytes(),
    }
    for name, data in contents.items():
        Path(name).write_bytes(data)
    Path("folder").mkdir()


@pytest.mark.matrix(first=8, rest=8)
@pytest.mark.parametrize(
    ("words", "exit_code", "said"),
    [
        (["plan", "folder", *PROFILE], 2, "there is no file folder/plan.json"),
        (["plan", "none.onnx", *PROFILE], 2, "there is no file none.onnx"),
        (["plan", "cut.onnx", *PROFILE], 3, "the file ends early: it is cut short"),
        (["plan", "p.json", *PROFILE], 2, "p.json is a hardware profile, not a plan"),
        (["plan", "p.yaml", *PROFILE], 2, "p.yaml is a hardware profile, not an ONNX model"),
        (["plan", "in.npz", *PROFILE], 2, "in.npz is an .npz file of tensors, not an ONNX model"),
        (["compile", "plan.json", *PROFILE], 2, "plan.json is a plan, not an ONNX model"),
        (["plan", "x.tsx", *PROFILE], 2, "x.tsx is an executable, not an ONNX model"),
        (["plan", "x.tsp", *PROFILE], 2, "x.tsp is a package, not an ONNX model"),
        (["plan", "net.onnx", "-p", "net.onnx"], 2, "net.onnx is an ONNX model, not a hardware profile"),
        (["plan", "net.onnx", "-p", "plan.json"], 2, "plan.json is a plan, not a hardware profile"),
        (["plan", "net.onnx", "-p", "folder"], 2, "folder is a folder, not a file"),
        (["plan", "net.onnx", "-p", "none.yaml"], 2, "there is no file none.yaml"),
        (["plan", "net.onnx", *PROFILE, "--set", "schedule=folder"], 2, "folder is a folder, not a file"),
        (["run", "net.onnx", *PROFILE, "--inputs", "folder"], 2, "folder is a folder, not a file"),
        (["run", "net.onnx", *PROFILE, "--inputs", "none.npz"], 2, "there is no file none.npz"),
        (["run", "net.onnx", *PROFILE, "--inputs", "p.json"], 2, "is a hardware profile, not an .npz file"),
        (["run", "net.onnx", *PROFILE, "--inputs", "cut.npz"], 2, "the .npz file is cut short or damaged"),
        (["run", "net.onnx", *PROFILE, "--against", "p.json"], 2, "p.json is a hardware profile, not an ONNX model"),
        (["simulate", "net.onnx"], 2, "net.onnx is an ONNX model, not an executable"),
        (["compare", "folder", "folder"], 2, "there is no file folder/plan.json"),
        (["compare", "net.onnx", "net.onnx"], 2, "net.onnx is an ONNX model, not a plan"),
        (["plan", "net.onnx", *PROFILE, "--server", "127.0.0.1:8080"], 2, "127.0.0.1:8080 is not the URL of a service"),
        (["plan", "net.onnx", *PROFILE, "--server", "ftp://host"], 2, "ftp://host is not the URL of a service"),
    ],
)
def test_what_stands_in_the_place_of_a_file_is_named(words: list[str], exit_code: int, said: str) -> None:
    answer = CliRunner().invoke(cli, words)
    assert said in answer.stderr
    assert answer.exit_code == exit_code


@pytest.mark.parametrize("words", [["explain"], ["plan", *PROFILE], ["compile", *PROFILE], ["run", *PROFILE]])
def test_a_report_page_is_named_with_the_folder_to_give(words: list[str]) -> None:
    for place in (".", "folder"):
        Path(place, "report.html").write_bytes(Path("report.html").read_bytes())
        answer = CliRunner().invoke(cli, [words[0], f"{place}/report.html", *words[1:]])
        assert answer.exit_code == 2
        assert "report.html is a report page, not an ONNX model" in answer.stderr
        assert ("show the folder it is in: give ." in answer.stderr) == (place == ".")


@pytest.mark.parametrize("command", ["plan", "explain"])
@pytest.mark.parametrize("target", ["saved", "saved/plan.json"])
def test_a_service_is_not_asked_about_what_is_saved_here_and_that_is_said(command: str, target: str) -> None:
    made = CliRunner().invoke(cli, ["plan", "net.onnx", *PROFILE, "--out", "saved"])
    assert made.exit_code == 0, made.output
    answer = CliRunner().invoke(cli, [command, target, "--server", "http://127.0.0.1:1"])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert f"--server with {target}" in answer.stderr
    assert CliRunner().invoke(cli, [command, target]).exit_code == 0


def test_a_server_that_is_not_tessera_is_named() -> None:
    class Silent(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *values: object) -> None: ...  # noqa: A002 - the name of the base class

    with http.server.HTTPServer(("127.0.0.1", 0), Silent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        answer = CliRunner().invoke(cli, ["profiles", "--server", f"http://127.0.0.1:{server.server_port}"])
        server.shutdown()
    assert answer.exit_code == 2
    assert "is not a service of Tessera" in answer.stderr


@pytest.mark.parametrize(
    ("text", "figure", "limit", "of_floor"),
    [
        ("2ms", "latency", 0.002, False),
        ("3MiB", "dram_bytes", 3 * 2**20, False),
        ("5 mJ", "energy", 0.005, False),
        ("1.05xfloor", "dram_bytes", 1.05, True),
        ("latency=2ms", "latency", 0.002, False),
    ],
)
def test_the_unit_of_a_target_says_its_figure(text: str, figure: str, limit: float, of_floor: bool) -> None:
    assert parse_target(text) == Target(figure=figure, limit=limit, of_floor=of_floor)


@pytest.mark.parametrize("text", ["1.5GHz", "ms", "2", "latency=3MiB"])
def test_a_target_whose_unit_is_no_figures_is_refused(text: str) -> None:
    with pytest.raises(RequestError):
        parse_target(text)


@pytest.mark.parametrize("command", ["compile", "plan", "run", "sweep", "size", "package", "table", "explain"])
def test_the_help_lists_the_options_of_set(command: str) -> None:
    text = CliRunner().invoke(cli, [command, "--help"]).stdout
    assert {field.name for field in msgspec.structs.fields(Options)} <= set(re.findall(r"\w+", text))
