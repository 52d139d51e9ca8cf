"""The committed networks of the zoo compile whole, are proved and compute what ONNX Runtime computes (IMPORT-7)."""

from __future__ import annotations

import hashlib

import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.zoo.kept import FOLDER, KEPT, record_of


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("chip", ["cluster4x4", "edge4"])
@pytest.mark.parametrize("name", KEPT)
def test_a_network_of_a_model_library_compiles_with_its_values(name: str, chip: str) -> None:
    data = (FOLDER / f"{name}.onnx").read_bytes()
    found = compile_model(data, builtin_profile(chip), parse_options({"dims": record_of(name)["dims"]}))
    native = found.plan.native
    assert native.chip_macs > 0.99 * (native.chip_macs + native.host_macs)
    assert found.report.values_checked
    assert all(output.holds for output in found.report.values.outputs)


def test_kept_files_are_those_of_their_records() -> None:
    assert {path.stem for path in FOLDER.glob("*.onnx")} == set(KEPT)
    for name in KEPT:
        assert hashlib.sha256((FOLDER / f"{name}.onnx").read_bytes()).hexdigest() == record_of(name)["sha256"]
