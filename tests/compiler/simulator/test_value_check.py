"""When the value check does not run the model, and what it says then (SIM-1, IMPORT-4)."""

from __future__ import annotations

import pytest

from compiler.compile import compile_model
from compiler.frontend import runtimes
from compiler.frontend.runtimes import run_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.value_check import MAX_CHECKED_BYTES
from tests.compiler.planning import BY_RULES
from tests.models import Model


def test_a_model_of_a_tensor_too_large_to_check_compiles_and_says_which() -> None:
    """A file of some bytes whose output takes 4 GiB: its plan is made, and nobody needs the memory."""
    model = Model()
    y = model.output(model.node("ConstantOfShape", [model.ints(2**30)]))
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert not values.checked
    assert values.reason == f"tensor '{y}' has {2**32} bytes; limit {MAX_CHECKED_BYTES}"


def test_a_runtime_without_memory_is_one_that_could_not_run_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def exhausted(*_: object) -> None:
        raise MemoryError("Unable to allocate 4.00 TiB")

    monkeypatch.setattr(runtimes, "with_data", exhausted)
    model = Model()
    model.output(model.relu(model.input([1], "x")))
    found = run_model(model.proto(), {}, runtimes=("onnx.reference",))
    assert found.values is None
    assert "Unable to allocate 4.00 TiB" in found.reason


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_recurrent_ops_without_elements_are_not_run(kind: str) -> None:
    """ONNX Runtime ends the process at some of them."""
    gates = {"LSTM": 12, "GRU": 9, "RNN": 3}[kind]
    model = Model()
    x = model.input([2, "batch", 4])
    model.output(model.node(kind, [x, model.weight(1, gates, 4), model.weight(1, gates, 3)], hidden_size=3))
    values = compile_model(model.data(), builtin_profile("edge4"), parse_options({"dims": {"batch": 0}})).report.values
    assert not values.checked
    assert kind in str(values.reason)


@pytest.mark.parametrize("chip", ["edge4", "cluster4x4"])
@pytest.mark.parametrize("kind", ["ReduceMean", "ReduceMax", "ReduceProd", "ReduceL2"])
def test_reductions_of_nothing_are_those_of_onnx_runtime(kind: str, chip: str) -> None:
    model = Model()
    reduced = model.node(kind, [model.input([2, "length", 4])], axes=[1])
    model.output(model.node("Add", [reduced, model.input([2, 1, 4])]))
    values = compile_model(model.data(), builtin_profile(chip), parse_options({"dims": {"length": 0}})).report.values
    assert values.checked
