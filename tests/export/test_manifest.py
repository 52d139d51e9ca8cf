"""The exported networks are what their manifest says, and run."""

from __future__ import annotations

import hashlib
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.export.checks import run
from tests.export.network import Input

FOLDER = Path(__file__).parent.parent / "data" / "exported"
LARGEST_TOTAL_BYTES = 20_000_000
MACHINE_PATH = re.compile(rb"/(?:root|home|tmp|work|usr|opt|Users|site-packages)/|[A-Z]:\\\\|\.py\b")


@cache
def entries() -> tuple[dict[str, Any], ...]:
    """The manifest's entries, one per file."""
    return tuple(json.loads((FOLDER / "manifest.json").read_text())["files"])


FILES = [entry["file"] for entry in entries()]
SAMPLE = [FILES[index] for index in np.random.default_rng(2026).choice(len(FILES), 3, replace=False)]


def entry_of(file: str) -> dict[str, Any]:
    """The manifest's entry for a file."""
    return next(entry for entry in entries() if entry["file"] == file)


def test_manifest_lists_exactly_the_files_that_are_there() -> None:
    assert sorted(FILES) == sorted(path.name for path in FOLDER.glob("*.onnx"))


def test_exported_files_together_stay_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < LARGEST_TOTAL_BYTES


@pytest.mark.parametrize("file", FILES)
def test_file_has_the_size_hash_and_structure_of_its_entry(file: str) -> None:
    entry = entry_of(file)
    data = (FOLDER / file).read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (entry["bytes"], entry["sha256"])
    model = onnx.load_model_from_string(data)
    shapes = {
        value.name: [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in model.graph.input
    }
    assert shapes == {name: described["shape"] for name, described in entry["inputs"].items()}
    assert {axis for shape in shapes.values() for axis in shape if isinstance(axis, str)} == set(entry["dims"])
    assert len(model.graph.node) == entry["nodes"]
    assert {opset.domain: opset.version for opset in model.opset_import}[""] == entry["opset"] <= 23
    assert model.ir_version == entry["ir_version"] <= 13


@pytest.mark.parametrize("file", FILES)
def test_file_names_no_path_of_the_machine_it_was_made_on(file: str) -> None:
    found = MACHINE_PATH.search(_without_weights((FOLDER / file).read_bytes()))
    assert found is None, found


def test_path_search_finds_what_an_exporter_would_leave() -> None:
    assert MACHINE_PATH.search(b"x\x00File /home/someone/model\x00")
    assert MACHINE_PATH.search(b"layer.py:3")


@pytest.mark.parametrize("file", SAMPLE)
def test_sampled_file_runs_at_the_suggested_dims(file: str) -> None:
    entry = entry_of(file)
    random = np.random.default_rng(7)
    inputs = {
        name: Input(name=name, shape=tuple(described["shape"]), high=described.get("values_below")).values(
            entry["dims"], random
        )
        for name, described in entry["inputs"].items()
    }
    outputs = run((FOLDER / file).read_bytes(), inputs)
    assert [list(output.shape) for output in outputs] == list(entry["outputs"].values())
    assert all(np.isfinite(output).all() for output in outputs)


def _without_weights(data: bytes) -> bytes:
    """The file with the values of its weights left out, in which any bytes may occur by chance."""
    model = onnx.load_model_from_string(data)
    for tensor in model.graph.initializer:
        tensor.ClearField("raw_data")
    stripped: bytes = model.SerializeToString()
    return stripped
