"""Units in a folder: found by compilations without a service, and proved by building them again (SHAPE-1)."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.units.unit_folder import UnitFolder
from compiler.cache_key import UNIT_FORMAT
from compiler.errors import RequestError
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.shapes.rebuild_units import rebuilt
from compiler.shapes.unit_bundle import decode_bundle, encode_bundle
from compiler.shapes.unit_encoding import decode_library
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.compiler.shapes.test_canonical_routine import IMAGES, WORDS
from tests.compiler.shapes.test_shared_libraries import compiled
from tests.models import Model


@pytest.mark.parametrize("profile", ["edge4", "manycore2x64"])
@pytest.mark.parametrize(
    ("model", "ranges"), [(residual_network(), IMAGES), (encoder_layer(), WORDS)], ids=["images", "encoder"]
)
def test_libraries_of_a_folder_are_found_and_built_again_byte_for_byte(
    tmp_path: Path, model: Model, ranges: dict[str, tuple[int, int]], profile: str
) -> None:
    source = ModelSource.from_bytes(model.data())
    first = compiled(source, ranges, UnitFolder(tmp_path), profile)
    files = {one.name: one.read_bytes() for one in tmp_path.iterdir()}
    assert first == compiled(source, ranges, UnitFolder(tmp_path), profile) == compiled(source, ranges, None, profile)
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
    assert UnitFolder(units).libraries()
