"""What the summary of the backend suite counts, and when it fails a run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto

from tests.backend.backend import NATIVE_OPS, TesseraBackend, dims_of
from tests.backend.summary import MINIMUM_NATIVE, MINIMUM_PASSED, PROPERTY, SUITE_TESTS, Summary, summary_of
from tests.models import Model


def report(name: str, ops: list[int], when: str = "call", module: str = "test_backend") -> SimpleNamespace:
    """A test's report as pytest makes it."""
    nodeid = f"tests/backend/{module}.py::OnnxBackendNodeModelTest::{name}"
    return SimpleNamespace(nodeid=nodeid, when=when, user_properties=[(PROPERTY, ops)])


def test_the_summary_counts_tests_of_the_suite_by_outcome_and_those_with_native_ops() -> None:
    found = summary_of(
        {
            "passed": [report("a", [0, 2]), report("b", [0]), report("c", []), report("d", [3], module="test_summary")],
            "skipped": [report("e", [], when="setup")],
            "failed": [report("f", [1])],
            "error": [report("f", [1], when="teardown")],
            "": [report("a", [0, 2], when="setup")],
        }
    )
    assert found == Summary(passed=3, native=1, skipped=1, failed=1)
    assert str(found) == "3 passed, 1 of them with ops on the simulated chip, 1 skipped, 1 failed"


def test_a_run_without_tests_of_the_suite_has_no_summary() -> None:
    assert summary_of({"passed": [report("a", [], module="test_summary")]}) is None


@pytest.mark.parametrize(
    ("passed", "native", "whole", "holds"),
    [
        (MINIMUM_PASSED, MINIMUM_NATIVE, True, True),
        (MINIMUM_PASSED - 1, MINIMUM_NATIVE, True, False),
        (MINIMUM_PASSED, MINIMUM_NATIVE - 1, True, False),
        (MINIMUM_PASSED - 1, 0, False, True),
    ],
)
def test_only_a_run_of_the_whole_suite_has_to_reach_the_minima(
    passed: int, native: int, whole: bool, holds: bool
) -> None:
    others = SUITE_TESTS - passed if whole else 0
    assert Summary(passed=passed, native=native, skipped=others, failed=0).holds is holds


def test_an_op_is_native_if_a_unit_computes_it() -> None:
    """Three are computed; the host sorts out what is unique."""
    model = Model()
    x = model.input(["n", 3], "x")
    exponential = model.node("Exp", [model.node("Log", [model.relu(x)])])
    model.output(model.node("Unique", [exponential], out="y"))
    heard: list[int] = []
    token = NATIVE_OPS.set(heard)
    prepared = TesseraBackend.prepare(model.proto())
    (found,) = prepared.run([np.array([[1, -2, 3], [1, 1, 1]], np.float32)])
    NATIVE_OPS.reset(token)
    assert found.tolist() == pytest.approx([0, 1, 3])
    assert heard == [3]


def test_dynamic_dimensions_have_the_extents_of_the_inputs() -> None:
    model = Model()
    model.input(["n", 3, "w"], "x")
    model.input(["n"], "names", TensorProto.STRING)
    feeds = {"x": np.zeros((2, 3, 5)), "names": np.array(["a", "b"], object)}
    assert dims_of(model.inputs, feeds) == {"n": 2, "w": 5}
