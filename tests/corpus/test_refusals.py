"""Every refusal of a file that ONNX Runtime runs rests on a limit of ours, and the list of these is kept (IMPORT-7)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from tests.backend.skips import SKIPS
from tests.corpus.case import Accept, Case
from tests.corpus.cases import CASES
from tests.corpus.refusals import LIMITS, File, limit_of
from tests.corpus.runtime import ask
from tests.corpus.sandbox import Sandbox
from tests.exported import exported_models
from tests.models import Model

LIST = Path(__file__).parents[2] / "docs" / "benchmarks" / "0019-refusals.md"


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as started:
        yield started


@pytest.mark.matrix(first=2, rest=6)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.name, marks=[pytest.mark.full] * case.slow)
        for case in CASES
        if not isinstance(case.expected, Accept)
    ],
)
def test_a_refusal_is_onnx_runtimes_too_or_rests_on_a_limit_of_ours(case: Case, sandbox: Sandbox) -> None:
    file = File(name=case.name, data=case.build(), options=case.options)
    outcome = sandbox.compile(file.data, file.options)
    if outcome.ended == "rejected" and not limit_of(outcome.code, outcome.message):
        assert ask(file.data, file.extents).came != "ran", f"{outcome.code}: {outcome.message}"


def test_the_list_of_refusals_names_files_that_exist_and_limits_that_hold() -> None:
    rows = [line.strip("| ").split(" | ") for line in LIST.read_text().splitlines() if line.startswith("| ")][1:]
    known = {case.name for case in CASES} | set(SKIPS) | {network.file for network in exported_models()}
    assert len(rows) > 10
    for name, code, limit in rows:
        assert name in known
        assert limit in {text for (coded, _), text in LIMITS.items() if coded == code}


def test_onnx_runtime_is_asked_with_inputs_that_the_model_can_take() -> None:
    """Extents of free dimensions come from the options, or are tried, as ranks and numbers are."""
    model = Model()
    model.output(model.node("Reshape", [model.input(["n", 3, None], "x"), model.ints(7, -1)]))
    model.inputs.append(helper.make_tensor_value_info("any", TensorProto.FLOAT, None))
    model.output(model.node("Reshape", ["any", model.ints(2, 2)]))
    assert ask(model.data(), {"n": 7}).came == "ran"
    assert ask(model.data(), {"n": 4}).came == "loaded"
    assert ask(b"no model", {}).came == "refused"
