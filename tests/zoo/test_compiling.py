"""The compile step keeps its results, resumes, and says honestly what became of a model."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from onnx import TensorProto, helper

from compiler.report.execution import OutputCheck, ValuesReport
from tests.zoo.children import Outcome
from tests.zoo.compiling import (
    A_FIFTH_ON,
    EVERY_MODEL_ON,
    Result,
    chips_for,
    compile_all,
    error_over_limit,
    result_of,
    results_of,
)
from tests.zoo.compiling import _text as degraded_text


def _record(folder: Path, name: str, data: bytes) -> dict[str, Any]:
    (folder / f"{name}.onnx").write_bytes(data)
    return {
        "name": name, "family": "made up", "reason": None, "dims": {}, "nodes": 1, "exporter": "by hand",
        "sha256": hashlib.sha256(data).hexdigest(),
    }  # fmt: skip


def _relu() -> bytes:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4, 8, 8]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], "relu")], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data: bytes = model.SerializeToString()
    return data


@pytest.fixture
def records(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """Export records of a model that compiles, of a file that is not a model, and of a failed export."""
    return {
        "fine": _record(tmp_path, "fine", _relu()),
        "broken": _record(tmp_path, "broken", b"no model"),
        "missing": {"name": "missing", "family": "made up", "reason": "no exporter writes it"},
    }


def _compile(records: dict[str, dict[str, Any]], folder: Path) -> list[Result]:
    compile_all(records, folder, folder / "results", again=False, workers=2, chips=[EVERY_MODEL_ON])
    digest = json.loads(next((folder / "results").iterdir()).read_text())["compiler"]
    return [
        result
        for result in results_of(folder / "results", list(records.values()), digest)
        if result.chip == EVERY_MODEL_ON
    ]


def test_compiled_and_refused_models_are_kept_and_not_done_twice(
    records: dict[str, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, fine = sorted(_compile(records, tmp_path), key=lambda result: result.name)
    assert (fine.state, fine.host_nodes, fine.groups, fine.message) == ("ok", 0, 1, "")
    assert fine.values is not None
    assert fine.values <= 1
    assert broken.state == "not_onnx"
    assert broken.message
    capsys.readouterr()
    assert _compile(records, tmp_path) == [fine, broken]
    assert capsys.readouterr().out == ""
    assert results_of(tmp_path / "results", list(records.values()), "another compiler") == []


def test_every_model_goes_on_one_chip_and_about_a_fifth_on_all() -> None:
    chosen = [chips_for(f"network {index}") for index in range(1000)]
    assert set(chosen) == {(EVERY_MODEL_ON,), (EVERY_MODEL_ON, *A_FIFTH_ON)}
    assert 150 < sum(len(chips) > 1 for chips in chosen) < 250


@pytest.mark.parametrize(
    ("ended", "state"), [("failed", "crash"), ("time", "time"), ("memory", "memory"), ("died", "died")]
)
def test_a_child_that_did_not_answer_is_a_row_of_its_own_state(ended: Any, state: str) -> None:
    outcome = Outcome(ended=ended, value=None, detail="said so\nat length", cpu_s=1.5)
    result = result_of({"name": "n", "family": "f", "nodes": 3}, "edge4", "abc", outcome)
    assert (result.state, result.message, result.cpu_s) == (state, "said so", 1.5)


def test_a_degraded_entry_becomes_one_line_whatever_fields_it_has() -> None:
    @dataclass
    class Entry:
        __struct_fields__ = ("group", "reason")
        group: str = "g3"
        reason: str = "proof failed"

    assert degraded_text(Entry()) == "group: g3; reason: proof failed"
    assert degraded_text("plain") == "plain"


@pytest.mark.parametrize(
    ("error", "limit", "between", "expected"),
    [(1e-5, 1e-4, None, 0.1), (0.0, 0.0, None, 0.0), (None, None, 5e-5, 0.5), (None, None, None, None)],
)
def test_outputs_that_rounding_decides_are_told_by_what_groups_hand_on(
    error: float | None, limit: float | None, between: float | None, expected: float | None
) -> None:
    check = None if between is None else OutputCheck(tensor="t", max_error=between, limit=1e-4, where=(), holds=True)
    values = ValuesReport(
        checked=True, reason=None, judge="", seed=5, max_error=error, limit=limit, where=None, tensor=None,
        outputs=(), skipped=(), between=check,
    )  # fmt: skip
    assert error_over_limit(values) == (None if expected is None else pytest.approx(expected))
