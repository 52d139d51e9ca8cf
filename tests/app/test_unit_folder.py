"""Units in a folder: found by compilations without a service, and proved by building them again (SHAPE-1)."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.units.unit_folder import UnitFolder
from compiler.errors import RequestError
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.shapes.rebuild_units import rebuilt
from compiler.shapes.unit_bundle import decode_bundle, encode_bundle
from compiler.shapes.unit_encoding import decode_library
from compiler.unit_key import UNIT_FORMAT
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.compiler.shapes.test_canonical_routine import IMAGES, WORDS
from tests.compiler.shapes.test_shared_libraries import compiled
from tests.models import Model
from tests.small_loader import load, written_loader


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(
    ("model", "ranges", "profile"),
    [(residual_network(), IMAGES, "manycore2x64"), (encoder_layer(), WORDS, "edge4")],
    ids=["images", "encoder"],
)
def test_libraries_of_a_folder_are_found_and_built_again_byte_for_byte(
    tmp_path: Path, model: Model, ranges: dict[str, tuple[int, int]], profile: str
) -> None:
    source = ModelSource.from_bytes(model.data())
    first = compiled(source, ranges, UnitFolder(tmp_path), profile)
    files = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert files
    assert first == compiled(source, ranges, UnitFolder(tmp_path), profile)
    assert {one.name: one.read_bytes() for one in tmp_path.iterdir()} == files
    for name, data in files.items():
        key, values = decode_bundle(data)
        assert name == f"{key.rpartition(':')[2]}.units"
        assert encode_bundle(key, values) == data
        assert rebuilt(decode_library(values[key]), builtin_profile(profile)) == values


def test_other_files_and_damaged_ones_count_as_missing(tmp_path: Path) -> None:
    source = ModelSource.from_bytes(residual_network().data())
    first = compiled(source, IMAGES, UnitFolder(tmp_path))
    files = sorted(tmp_path.iterdir())
    sound = [one.read_bytes() for one in files]
    files[0].write_bytes(sound[1])
    files[1].write_bytes(sound[1][:-1])
    (tmp_path / "notes.txt").write_text("mine")
    assert compiled(source, IMAGES, UnitFolder(tmp_path)) == first
    assert [one.read_bytes() for one in files] == sound


def value(header: object = None, text: bytes | None = None, kind: bytes = b"TSRL") -> bytes:
    """A value with a right checksum, whatever its header says."""
    written = json.dumps(header).encode() if text is None else text
    return struct.pack("<4sHI32s", kind, UNIT_FORMAT, len(written), hashlib.sha256(written).digest()) + written


def bundled(*values: bytes) -> bytes:
    pieces = [struct.pack("<4sHH", b"TSRB", UNIT_FORMAT, len(values))]
    return b"".join([*pieces, *(struct.pack("<I", len(one)) + one for one in values)])


HEADER = {
    "signature": "s",
    "size": "",
    "profile": "p",
    "resident_bytes": 0,
    "graph": {"ops": [["Relu"]]},
    "dtype": "float32",
    "units": [],
}
HOSTILE = {
    "no JSON": value(text=b"{nope"),
    "no text": value(text=b"\xff\xfe\xff"),
    "nested": value(text=b"[" * 200_000),
    "a number of many digits": value(text=b'{"a":' + b"9" * 10_000 + b"}"),
    "no object": value([]),
    "infinite": value({**HEADER, "resident_bytes": float("inf")}),
    "units missing": value({**HEADER, "units": [[1]] * 3}),
    "a header without end": value({**HEADER, "units": [[]] * 1_000_000}),
    "no library": value(HEADER, kind=b"TSRU"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_bundles_made_to_do_harm_are_refused(name: str) -> None:
    assert decode_bundle(bundled(value(HEADER)))[0].startswith("library:")
    with pytest.raises(RequestError) as caught:
        decode_bundle(bundled(HOSTILE[name]))
    assert caught.value.code == "invalid_units"


@pytest.mark.parametrize("damage", [b"", b"TSRB", b"\0" * 100])
def test_bytes_that_are_no_bundle_are_refused(damage: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        decode_bundle(damage)
    assert caught.value.code == "invalid_units"


def test_the_package_command_uses_a_folder_and_adds_to_it(tmp_path: Path) -> None:
    model, units = tmp_path / "net.onnx", tmp_path / "units"
    model.write_bytes(residual_network().data())
    words = ["package", str(model), "--profile", "edge4", "--units", str(units), "--json"]
    words += [
        word for name, (low, high) in IMAGES.items() for word in ("--set", f'dims.{name}={{"min":{low},"max":{high}}}')
    ]
    for name in ("a.tsp", "b.tsp"):
        answer = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / name)])
        assert answer.exit_code == 0, answer.output
        assert json.loads(answer.stdout)["bytes"] > 0
    assert (tmp_path / "a.tsp").read_bytes() == (tmp_path / "b.tsp").read_bytes()
    assert list(UnitFolder(units).libraries())


@dataclass(frozen=True)
class Files:
    """A model, its packages with and without units, and the folder that has them."""

    model: Path
    full: Path
    small: Path
    units: Path


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("files")
    found = Files(folder / "net.onnx", folder / "full.package", folder / "small.package", folder / "units")
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    model.output(model.relu(model.conv(x, 3, 8, 3)))
    found.model.write_bytes(model.data())
    words = ["package", str(found.model), "--profile", "edge4"]
    words += [word for name in "nhw" for word in ("--set", f'dims.{name}={{"min":1,"max":20}}')]
    for more in (
        ["--out", str(found.full)],
        ["--out", str(found.small), "--without-units", "--units", str(found.units)],
    ):
        answer = CliRunner().invoke(cli, [*words, *more])
        assert answer.exit_code == 0, answer.output
    assert "it names 1 library of shape units and carries none" in answer.stdout
    return found


def asked(*words: object, units: Path | None = None) -> Result:
    """A command's answer, TESSERA_UNITS set or not."""
    environment = {"TESSERA_UNITS": None if units is None else str(units)}
    return CliRunner().invoke(cli, list(map(str, words)), env=environment)


def test_commands_answer_as_with_a_full_package(files: Files, tmp_path: Path) -> None:
    assert files.small.stat().st_size < files.full.stat().st_size
    for words in (["table", "--shape", "x:2x3x11x13", "--no-cache", "--json"], ["package"], ["package", "--json"]):
        command, *rest = words
        full = asked(command, files.full, *rest)
        assert full.exit_code == 0, full.output
        assert asked(command, files.small, *rest, "--units", files.units).stdout == full.stdout
        assert asked(command, files.small, *rest, units=files.units).stdout == full.stdout
    shape = ("--shape", "x:2x3x11x13", "--seed", "7")
    full = asked("run", files.full, *shape, "--outputs", tmp_path / "full.npz", "--json")
    small = asked("run", files.small, *shape, "--outputs", tmp_path / "small.npz", "--json", "--units", files.units)
    assert small.stdout == full.stdout != ""
    assert (tmp_path / "small.npz").read_bytes() == (tmp_path / "full.npz").read_bytes()


@pytest.mark.parametrize(
    "words", [("run", "--shape", "x:2x3x11x13"), ("table", "--shape", "x:2x3x11x13", "--no-cache"), ("package",)]
)
def test_commands_name_a_library_that_is_missing_or_damaged(
    files: Files, tmp_path: Path, words: tuple[str, ...]
) -> None:
    command, *rest = words
    ((library, data),) = UnitFolder(files.units).libraries()
    (tmp_path / f"{library}.units").write_bytes(data[:-1])
    for folder, code in ((tmp_path / "none", "missing_units"), (tmp_path, "invalid_units")):
        answer = asked(command, files.small, *rest, "--units", folder, "--json")
        problem = json.loads(answer.stderr)
        assert (answer.exit_code, problem["code"]) == (2, code)
        assert library in problem["message"] + str(problem["actual"])
        assert str(folder) in problem["message"]
        assert "tessera units pull" in problem["hint"]


def test_a_package_is_verified_with_what_it_carries(files: Files) -> None:
    answer = asked("package", files.full, "--without-units", "--json")
    assert (answer.exit_code, json.loads(answer.stderr)["code"]) == (2, "invalid_option")


@pytest.mark.parametrize("command", ["run", "table"])
def test_a_folder_of_units_is_for_work_done_here(files: Files, command: str) -> None:
    words = (command, files.model, "--profile", "edge4", "--units", files.units, "--server", "http://127.0.0.1:1")
    answer = asked(*words, "--json")
    assert (answer.exit_code, json.loads(answer.stderr)["code"]) == (2, "invalid_request")


def test_a_run_of_a_model_with_ranges_adds_its_units_to_the_folder(files: Files, tmp_path: Path) -> None:
    ranges = [word for name in "nhw" for word in ("--set", f'dims.{name}={{"min":1,"max":20}}')]
    answer = asked("run", files.model, "--profile", "edge4", *ranges, "--shape", "x:1x3x4x4", "--units", tmp_path)
    assert answer.exit_code == 0, answer.output
    assert list(UnitFolder(tmp_path).libraries()) == list(UnitFolder(files.units).libraries())


@pytest.mark.slow
def test_the_loader_finds_units_in_the_folder_that_is_named(files: Files, tmp_path: Path) -> None:
    loader = written_loader(tmp_path)
    np.savez(tmp_path / "in.npz", x=np.random.default_rng(1).standard_normal((2, 3, 9, 17), dtype=np.float32))
    words = ("--inputs", tmp_path / "in.npz", "--outputs")
    assert load(loader, files.full, *words, tmp_path / "full.npz").returncode == 0
    by_word = load(loader, files.small, *words, tmp_path / "word.npz", "--units", files.units)
    assert by_word.returncode == 0, by_word.stderr
    by_variable = load(loader, files.small, *words, tmp_path / "variable.npz", TESSERA_UNITS=str(files.units))
    assert by_variable.returncode == 0, by_variable.stderr
    outputs = [(tmp_path / f"{name}.npz").read_bytes() for name in ("full", "word", "variable")]
    assert outputs[0] == outputs[1] == outputs[2]
    without = load(loader, files.small)
    ((library, _),) = UnitFolder(files.units).libraries()
    assert without.returncode == 2
    assert "no folder of units was given" in without.stderr
    assert f"URL/v1/units/{library}" in without.stderr
