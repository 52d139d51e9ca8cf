"""UI-1, SHAPE-9, SHAPE-10: models with dimensions left open from the command line, packages, and the small loader."""

from __future__ import annotations

import ast
import gc
import json
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner, Result

import app.loader.main
from app.cli.loader import loader_bytes, sources
from app.cli.main import cli
from compiler.frontend.source import ModelSource
from compiler.program.encoding.container import (
    EXECUTABLE,
    NO_SEGMENT,
    PACKAGE,
    Section,
    read_container,
    write_container,
)
from compiler.simulator.reference import run_reference
from tests.exported import FOLDER
from tests.models import Model
from tests.small_loader import load, written_loader

BERT = FOLDER / "bert_dynamo.onnx"
RANGES = ["--set", 'dims.batch={"min":1,"max":4}', "--set", 'dims.sequence={"min":1,"max":64}']
MADE = ["--profile", "cluster4x4", "--set", "verify=none", *RANGES]


def tessera(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("package") / "bert.package"
    answer = tessera("package", str(BERT), *MADE, "--out", str(path))
    assert answer.exit_code == 0, answer.output
    return path


@pytest.fixture(scope="module")
def loader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_loader(tmp_path_factory.mktemp("host"))


def inputs(batch: int, sequence: int, seed: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    mask = np.ones((batch, sequence), dtype=np.int64)
    mask[:, sequence - sequence // 4 :] = 0
    mask[:, 0] = 1
    return {
        "input_ids": random.integers(0, 90, (batch, sequence)),
        "attention_mask": mask,
        "token_type_ids": random.integers(0, 2, (batch, sequence)),
    }


def assert_as_onnx_runtime(given: dict[str, Any], path: Path) -> None:
    expected = run_reference(ModelSource.from_bytes(BERT.read_bytes()), given).values
    with np.load(path) as outputs:
        assert set(outputs.files) == set(expected)
        for name in outputs.files:
            wanted = np.asarray(expected[name])
            assert outputs[name].shape == wanted.shape
            assert np.abs(outputs[name] - wanted).max() <= 1e-4 * np.sqrt(np.mean(np.square(wanted)))


@pytest.mark.slow
def test_a_model_runs_at_a_shape_within_its_ranges() -> None:
    answer = tessera("run", str(BERT), *MADE, "--shape", "input_ids:3x17", "--check", "--json")
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert report["comparison"]["holds"] is True
    assert [one["shape"] for one in report["outputs"]] == [[3, 17, 64], [3, 64]]


def test_a_package_runs_on_the_simulated_chip_as_the_model_says(package: Path, tmp_path: Path) -> None:
    given = inputs(2, 31, 1)
    np.savez(tmp_path / "in.npz", **given)
    answer = tessera("run", str(package), "--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"))
    assert answer.exit_code == 0, answer.output
    assert_as_onnx_runtime(given, tmp_path / "out.npz")


def test_a_package_is_read_and_proved_at_both_ends(package: Path) -> None:
    answer = tessera("package", str(package), "--json")
    assert answer.exit_code == 0, answer.output
    found = json.loads(answer.stdout)
    assert [one["dims"] for one in found["proved"]] == [{"batch": 1, "sequence": 1}, {"batch": 4, "sequence": 64}]
    assert all(one["commands"] > 0 for one in found["proved"])
    assert found["dims"] == {
        name: {"min": 1, "max": most, "step": 1} for name, most in (("batch", 4), ("sequence", 64))
    }


@pytest.mark.slow
def test_tables_made_beforehand_travel_in_the_package(loader: Path, tmp_path: Path) -> None:
    path = tmp_path / "bert.package"
    shapes = ["--set", 'tables=[{"batch": 2, "sequence": 31}]']
    answer = tessera("package", str(BERT), *MADE, *shapes, "--out", str(path))
    assert answer.exit_code == 0, answer.output
    assert "tables made beforehand for batch = 2, sequence = 31" in answer.stdout
    for shape, said in (("2x31", ("hit", "optimised")), ("2x30", ("miss", "simple"))):
        shown = tessera("table", str(path), "--shape", f"input_ids:{shape}", "--no-cache", "--json")
        assert shown.exit_code == 0, shown.output
        document = json.loads(shown.stdout)
        assert (document["cache"], document["kind"]) == said
    proved = json.loads(tessera("package", str(path), "--json").stdout)["proved"]
    assert proved[2]["dims"] == {"batch": 2, "sequence": 31}
    given = inputs(2, 31, 1)
    np.savez(tmp_path / "in.npz", **given)
    words = ("--inputs", str(tmp_path / "in.npz"), "--outputs", str(tmp_path / "out.npz"))
    ran = tessera("run", str(path), *words)
    assert ran.exit_code == 0, ran.output
    assert_as_onnx_runtime(given, tmp_path / "out.npz")
    loaded = load(loader, path, *words)
    assert loaded.returncode == 0, loaded.stderr
    assert_as_onnx_runtime(given, tmp_path / "out.npz")
    assert "tables made beforehand for batch = 2, sequence = 31" in load(loader, path).stdout


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "--profile", "cluster4x4", "--out", "out"),
        ("explain", "--profile", "cluster4x4"),
        ("plan", "--profile", "cluster4x4"),
        ("listing",),
        ("trace", "--out", "net.trace"),
        ("run", "--server", "http://127.0.0.1:1"),
        ("compile", "--profile", "cluster4x4", "--out", "out", "--server", "http://127.0.0.1:1"),
        ("sweep", "--profile", "cluster4x4", "--grid", "nram=128KiB,256KiB"),
    ],
)
def test_a_package_where_a_model_is_wanted_is_named_as_one(package: Path, words: tuple[str, ...]) -> None:
    command, *rest = words
    answer = tessera(command, str(package), *rest)
    assert answer.exit_code == 2, answer.output
    assert "is a package, not an ONNX model" in " ".join(answer.stderr.split())
    assert "`tessera run`, `table` and `package` take packages" in " ".join(answer.stderr.split())


@pytest.mark.parametrize("words", [("table",), ("package", "--out", "any.package")])
def test_an_executable_where_a_model_is_wanted_is_named_as_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "net.tsx"
    path.write_bytes(EXECUTABLE + b"\0" * 200)
    command, *rest = words
    answer = tessera(command, str(path), *rest)
    assert answer.exit_code == 2, answer.output
    assert "is an executable, not an ONNX model" in " ".join(answer.stderr.split())


def test_a_package_has_no_model_to_be_checked_with(package: Path) -> None:
    answer = tessera("run", str(package), "--check")
    assert answer.exit_code == 2, answer.output
    assert "a package does not hold its model" in answer.stderr
    assert "--against MODEL" in answer.stderr


def test_what_was_given_is_said_where_an_input_is_missing(package: Path, tmp_path: Path) -> None:
    for given, said in (({}, "none"), ({"input_ids": inputs(2, 31, 1)["input_ids"]}, "input_ids")):
        np.savez(tmp_path / "few.npz", **given)
        answer = tessera("run", str(package), "--inputs", str(tmp_path / "few.npz"), "--json")
        problem = json.loads(answer.stdout or answer.stderr)
        assert (problem["code"], problem["actual"]) == ("missing_input", said)


@pytest.mark.slow
def test_equal_requests_make_equal_packages(package: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.package"
    assert tessera("package", str(BERT), *MADE, "--out", str(again)).exit_code == 0
    assert again.read_bytes() == package.read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "names"),
    [
        (["--shape", "input_ids:65x17"], "extent_out_of_range", "1 to 64"),
        (["--shape", "input_ids:2x65"], "extent_out_of_range", "1 to 64"),
        (["--shape", "input_ids:2x0"], "extent_out_of_range", "sequence = 1 to 64"),
        (["--shape", "input_ids:2x-3"], "extent_out_of_range", "sequence = 1 to 64"),
        (["--shape", "input_ids:2x3x4"], "wrong_rank", "input_ids[batch = 1 to 64, sequence = 1 to 64]"),
        (["--shape", "tokens:2x3"], "unknown_input", "input_ids"),
        (["--shape", "input_ids:2xmany"], "invalid_shape", "Write x:1x3x225x199"),
        (["--shape", "input_ids:2x3", "--shape", "attention_mask:2x4"], "contradicting_extents", "3 and 4"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_is_allowed(
    package: Path, words: list[str], code: str, names: str
) -> None:
    answer = tessera("run", str(package), *words, "--json")
    assert answer.exit_code == 2, answer.output
    problem = json.loads(answer.stderr)
    assert problem["code"] == code
    assert names in json.dumps(problem)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """A model of two inputs with open dimensions: the sum of `x` [batch, rows] and `bias` [rows]."""
    model = Model()
    model.output(model.node("Add", [model.input(["batch", "rows"], "x"), model.input(["rows"], "bias")]))
    path = tmp_path / "rows.onnx"
    path.write_bytes(model.data())
    return path


def test_a_run_takes_dimensions_from_its_inputs(rows: Path, tmp_path: Path) -> None:
    """IMPORT-10."""
    x, bias = np.arange(10, dtype=np.float32).reshape(2, 5), np.ones(5, np.float32)
    np.savez(tmp_path / "in.npz", x=x, bias=bias)
    words = ("run", str(rows), "--profile", "edge4", "--inputs", str(tmp_path / "in.npz"))
    answer = tessera(*words, "--outputs", str(tmp_path / "out.npz"), "--check")
    assert answer.exit_code == 0, answer.output
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_array_equal(outputs[outputs.files[0]], x + bias)


def test_a_run_whose_inputs_contradict_each_other_names_the_dimension(rows: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.zeros((2, 5), np.float32), bias=np.zeros(4, np.float32))
    answer = tessera("run", str(rows), "--profile", "edge4", "--inputs", str(tmp_path / "in.npz"), "--json")
    assert answer.exit_code == 2
    problem = json.loads(answer.stderr)
    assert (problem["code"], problem["actual"]) == ("contradicting_extents", "5 and 4 (axis 1 of x and axis 0 of bias)")


@pytest.mark.parametrize("command", ["run", "table"])
def test_shapes_need_no_option_dims_and_go_with_a_part_of_it(rows: Path, command: str) -> None:
    """IMPORT-10."""
    for settings in ((), ("--set", "dims.batch=2"), ("--set", 'dims.rows={"min":1,"max":8}')):
        answer = tessera(command, str(rows), "--profile", "edge4", *settings, "--shape", "x:2x5", "--json")
        assert answer.exit_code == 0, answer.output
        answered = json.loads(answer.stdout)
        assert (answered["outputs"] if command == "run" else answered["routines"])[0]["shape"] == [2, 5]


def test_dimensions_that_nothing_gives_are_all_named_with_a_command_to_paste(
    rows: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """IMPORT-10."""
    words = ["run", str(rows), "--profile", "edge4"]
    monkeypatch.setattr(sys, "argv", ["tessera", *words])
    answer = tessera(*words, "--json")
    assert answer.exit_code == 3
    problem = json.loads(answer.stderr)
    for name in ("'batch' (input 'x', axis 0)", "'rows' (input 'x', axis 1)"):
        assert name in problem["message"]
    command = problem["hint"][problem["hint"].index("tessera run") :]
    pasted = tessera(*shlex.split(command)[1:])
    assert pasted.exit_code == 0, pasted.output


def test_a_shape_is_no_option_of_an_executable(rows: Path, tmp_path: Path) -> None:
    made = tessera(
        "compile", str(rows), "--profile", "edge4", "--set", 'dims={"batch":1,"rows":3}', "-o", str(tmp_path)
    )
    assert made.exit_code == 0, made.output
    answer = tessera("run", str(tmp_path / "executable.tsx"), "--shape", "x:1x3")
    assert answer.exit_code == 2
    assert "shapes that it was compiled for" in answer.stderr


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("shape", [(1, 1), (3, 29), (4, 64)])
def test_the_loader_runs_a_package_with_numpy_alone(
    loader: Path, package: Path, tmp_path: Path, shape: tuple[int, int]
) -> None:
    given = inputs(*shape, seed=shape[1])
    np.savez(tmp_path / "in.npz", **given)
    moved = tmp_path / "moved.package"
    moved.write_bytes(package.read_bytes())
    ran = load(loader, moved, "--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out.npz")
    assert ran.returncode == 0, ran.stderr
    assert_as_onnx_runtime(given, tmp_path / "out.npz")


def test_the_loader_says_that_it_needs_numpy_where_there_is_none(loader: Path, package: Path) -> None:
    command = [sys.executable, "-S", str(loader), str(package)]
    ran = subprocess.run(command, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("error: the loader needs numpy")
    assert "Traceback" not in ran.stderr


def test_the_loader_says_what_a_package_is(loader: Path, package: Path) -> None:
    ran = load(loader, package)
    assert ran.returncode == 0, ran.stderr
    assert "cluster4x4" in ran.stdout
    assert "input input_ids[batch, sequence] int64" in ran.stdout
    assert "dimension sequence: 1 to 64" in ran.stdout


@pytest.mark.slow
def test_the_loader_refuses_another_profile_a_flipped_bit_and_another_version(
    loader: Path, package: Path, tmp_path: Path
) -> None:
    other = load(loader, package, "--profile", "0123456789ab")
    assert other.returncode == 2
    assert "made for another profile" in other.stderr
    data = bytearray(package.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    flipped = load(loader, tmp_path / "flipped")
    assert flipped.returncode == 2
    assert "damaged" in flipped.stderr
    older = tmp_path / "older.pyz"
    with zipfile.ZipFile(loader) as source, zipfile.ZipFile(older, "w") as target:
        for name in source.namelist():
            text = source.read(name)
            target.writestr(name, b'COMPILER_VERSION = "0.0.1"\n' if name == "compiler/version.py" else text)
    moved = loader.with_name("older.pyz")
    moved.write_bytes(older.read_bytes())
    refused = load(moved, package)
    assert refused.returncode == 2
    assert "another version of Tessera" in refused.stderr
    assert "0.0.1" in refused.stderr
    assert load(loader, BERT).returncode == 2


def test_the_loader_refuses_inputs_that_the_package_does_not_take(loader: Path, package: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "long.npz", **inputs(1, 65, 0))
    ran = load(loader, package, "--inputs", tmp_path / "long.npz")
    assert ran.returncode == 2
    assert "outside its range" in ran.stderr
    assert "1 to 64" in ran.stderr
    np.savez(tmp_path / "few.npz", input_ids=inputs(1, 5, 0)["input_ids"])
    assert "is missing" in load(loader, package, "--inputs", tmp_path / "few.npz").stderr
    (tmp_path / "no.npz").write_bytes(b"nothing")
    assert "no .npz file" in load(loader, package, "--inputs", tmp_path / "no.npz").stderr


def test_the_loader_refuses_inputs_whose_bytes_are_damaged(loader: Path, package: Path, tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "in.npz", **inputs(1, 5, 0))
    with zipfile.ZipFile(tmp_path / "in.npz") as archive:
        first = archive.infolist()[0]
    data = bytearray((tmp_path / "in.npz").read_bytes())
    begin = first.header_offset + 30 + len(first.filename)
    data[begin : begin + first.compress_size] = b"\xff" * first.compress_size
    (tmp_path / "damaged.npz").write_bytes(data)
    ran = load(loader, package, "--inputs", tmp_path / "damaged.npz")
    assert ran.returncode == 2
    assert "damaged" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_the_loader_writes_outputs_of_any_name_to_the_file_that_is_named(loader: Path, tmp_path: Path) -> None:
    """`file` is what a function that writes arrays may call its own argument, and names need not end in .npz."""
    model = Model()
    model.input(["n", 8], "x")
    model.nodes.append(helper.make_node("Relu", ["x"], ["file"]))
    model.outputs.append(helper.make_tensor_value_info("file", TensorProto.FLOAT, ["n", 8]))
    (tmp_path / "model.onnx").write_bytes(model.data())
    made = tessera(
        *("package", str(tmp_path / "model.onnx"), "--profile", "edge4", "--set", 'dims.n={"min":1,"max":40}'),
        *("--out", str(tmp_path / "model.package")),
    )
    assert made.exit_code == 0, made.output
    given = np.linspace(-1, 1, 24, dtype=np.float32).reshape(3, 8)
    np.savez(tmp_path / "in.npz", x=given)
    words = ("--inputs", tmp_path / "in.npz", "--outputs", tmp_path / "out")
    ran = load(loader, tmp_path / "model.package", *words)
    assert ran.returncode == 0, ran.stderr
    with np.load(tmp_path / "out") as outputs:
        assert np.array_equal(outputs["file"], np.maximum(given, 0))


def test_a_table_that_cannot_be_kept_leaves_nothing_behind(package: Path, tmp_path: Path) -> None:
    words = ("table", str(package), "--shape", "input_ids:1x3", "--cache", str(tmp_path))
    assert tessera(*words).exit_code == 0
    kept = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]
    for path in kept:
        path.unlink()
        path.mkdir()
    refused = tessera(*words, "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stderr)["code"] == "cache_not_writable"
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


@pytest.mark.slow
def test_a_package_may_take_the_place_of_its_model(package: Path, tmp_path: Path) -> None:
    """The model is mapped while the package is written: it must not be cut short under the reader."""
    path = tmp_path / "model"
    path.write_bytes(BERT.read_bytes())
    answer = tessera("package", str(path), *MADE, "--out", str(path))
    assert answer.exit_code == 0, answer.output
    assert abs(path.stat().st_size - package.stat().st_size) < 100  # names of models differ
    assert [one.name for one in sorted(tmp_path.iterdir())] == ["model"]
    assert tessera("package", str(path), "--json").exit_code == 0


@pytest.fixture
def heard() -> Iterator[None]:
    """Without callbacks of the garbage collector: the time limit's signal is lost in Hypothesis's."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks.extend(callbacks)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("command", ["run", "package", "table"])
def test_a_package_takes_no_options_but_bounds(package: Path, command: str) -> None:
    """What they decide was decided when it was made."""
    refused = tessera(command, str(package), "--set", "objective=energy", "--json")
    assert refused.exit_code == 2, refused.output
    problem = json.loads(refused.stderr)
    assert (problem["code"], problem["actual"]) == ("invalid_option", "objective")
    late = tessera(command, str(package), "--set", "time_limit_s=0.001", "--json")
    assert late.exit_code == 3, late.output
    assert json.loads(late.stderr)["code"] == "time_limit"


def test_units_of_another_batch_are_not_left_unchecked_in_silence(tmp_path: Path) -> None:
    model = Model()
    x = model.input([1, "rows", 8], "x")
    model.output(model.relu(x))
    (tmp_path / "model.onnx").write_bytes(model.data())
    words = ["--profile", "edge4", "--set", 'dims.rows={"min":1,"max":9}', "--set", "batch=3", "--json"]
    made = ("package", str(tmp_path / "model.onnx"), *words, "--out", str(tmp_path / "model.package"))
    refused = tessera(*made)
    assert refused.exit_code == 2, refused.output
    problem = json.loads(refused.stderr)
    assert (problem["code"], problem["actual"]) == ("invalid_option", "batch=3")
    assert tessera(*made, "--set", "verify=none").exit_code == 0


def test_the_loader_holds_nothing_that_compiles() -> None:
    """Its sources import the standard library and numpy; bfloat16 comes from ml_dtypes where that is there."""
    found = sources(Path(app.loader.main.__file__))
    allowed = set(sys.stdlib_module_names) | {"numpy", "app", "compiler", "ml_dtypes"}
    for path in (*found.values(), Path(app.loader.main.__file__)):
        for node in ast.walk(ast.parse(path.read_bytes())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            assert {name.split(".")[0] for name in names} <= allowed, path
    parts = {name.split("/")[1] for name in found if name.startswith("compiler/") and name.count("/") > 1}
    assert parts <= {"address", "ir", "ops", "program", "shapes"}
    of_app = {name for name in found if not name.startswith("compiler/")}
    assert of_app == {
        "app/__init__.py",
        "app/full_disk.py",
        "app/outputs.py",
        "app/simulations/__init__.py",
        "app/simulations/arrays.py",
        "app/units/__init__.py",
        "app/units/unit_folder.py",
    }


def test_the_loader_is_the_same_file_every_time() -> None:
    assert loader_bytes() == loader_bytes()


def strange(package: Path, path: Path, change: Callable[[dict[str, Any]], Any]) -> Path:
    """The package with another manifest, its checksums right."""
    container = read_container(memoryview(package.read_bytes()), kind=PACKAGE)
    manifest = json.loads(bytes(container.section("manifest")))
    change(manifest)
    contents = {name: bytes(container.section(name)) for name in ("manifest", "profile", "numbers", "constants")}
    contents["manifest"] = json.dumps(manifest).encode()
    sections = [Section(name=name, segment=NO_SEGMENT, pieces=(data,)) for name, data in contents.items()]
    path.write_bytes(b"".join(bytes(piece) for piece in write_container(sections, kind=PACKAGE)))
    return path


def op_of(manifest: dict[str, Any], kind: str) -> Any:
    return next(op for op in manifest["graph"]["ops"] if op[0] == kind)


def buffers(manifest: dict[str, Any]) -> list[Any]:
    return [buffer for one in manifest["libraries"] for unit in one["units"] for buffer in unit["buffers"].values()]


MEANINGLESS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "axes in an order that is none": lambda m: op_of(m, "Transpose").__setitem__(4, [["perm", [9, 9, 9, 9]]]),
    "no attributes": lambda m: op_of(m, "Transpose").__setitem__(4, []),
    "fewer operands": lambda m: op_of(m, "MatMul")[1].pop(),
    "buffers of one position": lambda m: [b.__setitem__(1, [1] * len(b[1])) for b in buffers(m)],
    "buffers of other ranks": lambda m: [b[1].append(1) for b in buffers(m)],
    "buffers at one address": lambda m: [b.__setitem__(2, [0] * len(b[2])) for b in buffers(m)],
    "buffers beyond the memory": lambda m: [b.__setitem__(2, [2**39] * len(b[2])) for b in buffers(m)],
    "no buffers": lambda m: [unit.update(buffers={}) for one in m["libraries"] for unit in one["units"]],
    "buffers in DRAM": lambda m: [b.__setitem__(0, "dram") for b in buffers(m)],
}


@pytest.mark.matrix(first=3, rest=6)
@pytest.mark.parametrize("name", sorted(MEANINGLESS))
def test_what_no_compiler_made_is_refused_by_whoever_runs_it(package: Path, tmp_path: Path, name: str) -> None:
    """The manifest is as they are written, and means nothing: the package is at fault, not Tessera."""
    path = strange(package, tmp_path / "strange", MEANINGLESS[name])
    for words in (["run", "--shape", "input_ids:2x33"], ["package"], ["table", "--no-cache"]):
        ran = tessera(words[0], str(path), *words[1:], "--json")
        if words[0] == "table" and ran.exit_code == 0:
            continue  # which asks of shapes and costs alone
        assert ran.exit_code in (2, 3), ran.output
        problem = json.loads(ran.stderr)
        assert problem["code"] != "internal_error"
        assert problem["message"]


def test_the_loader_says_why_it_cannot_run_what_no_compiler_made(loader: Path, package: Path, tmp_path: Path) -> None:
    """Axes in an order that is none: the manifest is as they are written, and means nothing."""
    strange(package, tmp_path / "strange", MEANINGLESS["axes in an order that is none"])
    np.savez(tmp_path / "in.npz", **inputs(1, 5, 0))
    ran = load(loader, tmp_path / "strange", "--inputs", tmp_path / "in.npz")
    assert ran.returncode == 2
    assert ran.stderr.startswith("error: the package cannot be run: ")
    assert "Traceback" not in ran.stderr
