"""What a model makes of rounding is measured and allowed for, and no more of a program is let through (SIM-1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import InternalError
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Op
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.execution import ValuesReport
from compiler.simulator import value_check
from compiler.simulator.compare import compare, limits_of
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import evaluated
from compiler.simulator.rounding_amplification import Amplified, Judged, Verdict, judge_again
from tests.models import Model, import_graph

Fault = Callable[[Any], Any]


def logits(scale: float) -> tuple[Model, str]:
    """A convolution, then logits that should be equal, of about the size `scale`."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 24, 24], "x"), 4, 8))
    x = model.node("Reshape", [model.node("GlobalAveragePool", [x]), model.ints(1, 8)])
    return model, model.node("MatMul", [x, model.constant(np.full((8, 16), scale, dtype=np.float32))])


def saturated(scale: float = 1e18) -> Model:
    """Where logits are large, one roundoff decides a softmax of them."""
    model, x = logits(scale)
    model.output(model.node("Softmax", [x], axis=-1))
    return model


def chosen() -> Model:
    """The index of the largest of equal logits."""
    model, x = logits(1.0)
    model.output(model.node("ArgMax", [x], axis=1), TensorProto.INT64)
    return model


def cancelled() -> Model:
    """A small difference of large values: rounding carries it a little beyond the plain limit."""
    model = Model()
    x = model.input([1, 8, 16, 16], "x")
    y = model.conv(x, 8, 8)
    large = model.node("Add", [y, model.constant(np.full((1, 8, 1, 1), 20000, dtype=np.float32))])
    z = model.node("Add", [large, model.constant(np.full((1, 8, 1, 1), -20000, dtype=np.float32))])
    model.output(model.conv(z, 8, 8))
    return model


def spreads_of(model: Model) -> dict[str, float]:
    """The spreads of all results, by op kind: measured with every one of them missing its limit."""
    graph, source = import_graph(model.data()), ModelSource.from_bytes(model.data())
    kinds = {op.output: op.kind for op in graph.ops}
    inputs = random_inputs(graph, 1)
    missed = {name: compare(name, values * 9 + 1, values) for name, values in evaluated(graph, source, inputs)}
    found = judge_again(graph, source, inputs, {}, missed).outputs
    return {kinds[name]: judged.spread or 0.0 for name, judged in found.items()}


def checked(monkeypatch: pytest.MonkeyPatch, model: Model, **faults: Fault) -> ValuesReport:
    """The value check of a program without fusion that hands out what `faults` make of results of a kind of op."""
    graph = import_graph(model.data())
    fault_of = {op.output: faults[op.kind] for op in graph.ops if op.kind in faults}
    names = {name: fault_of.get(tensor) for name, tensor in zip(graph.output_names, graph.output_tensors, strict=True)}
    before: Any = vars(value_check)["run_executable"]

    def faulty(executable: Any, inputs: Any, results: Any = None, **others: Any) -> dict[str, Any]:
        def tell(name: str, value: Any) -> None:
            results(name, fault_of[name](value) if name in fault_of else value)

        outputs = before(executable, inputs, results=tell if results else None, **others)
        return {name: fault(value) if (fault := names[name]) else value for name, value in outputs.items()}

    monkeypatch.setattr("compiler.simulator.value_check.run_executable", faulty)
    return compile_model(model.data(), builtin_profile("edge4"), parse_options({"fusion": "none"})).report.values


def test_a_softmax_of_huge_equal_logits_spreads_and_its_logits_do_not() -> None:
    found = spreads_of(saturated())
    assert 0 < found["MatMul"] < 1e-5
    assert found["Softmax"] > 0.9


def test_a_model_that_amplifies_nothing_has_the_spread_of_its_roundings() -> None:
    assert 0 < max(spreads_of(saturated(scale=0.1)).values()) < 1e-5


def test_results_that_are_among_their_inputs_are_not_disturbed() -> None:
    model = Model()
    model.output(model.relu(model.node("Transpose", [model.input([2, 3], "x")], perm=[1, 0])))
    assert set(spreads_of(model).values()) == {0.0}


@dataclass(slots=True)
class Implementation:
    """Another implementation: every result rounded otherwise, and those of some kinds of ops faulty."""

    faults: dict[str, Fault]

    def __call__(self, op: Op, value: Any, steps: object) -> Any:
        del steps
        if value.dtype.kind == "f" and op.kind not in ("Relu", "Reshape"):
            random = np.random.default_rng([7, *op.output.encode()])
            value = np.nextafter(value, np.where(random.random(value.shape) < 0.5, -np.inf, np.inf).astype(value.dtype))
        return self.faults[op.kind](value) if op.kind in self.faults else value


def judged(model: Model, **faults: Fault) -> tuple[Judged, Amplified]:
    """What is found of another implementation that hands out all results: of its output, and in all."""
    graph, source = import_graph(model.data()), ModelSource.from_bytes(model.data())
    inputs = random_inputs(graph, 1)
    got = dict(evaluated(graph, source, inputs, disturb=Implementation(faults)))
    (output,) = graph.output_tensors
    expected = dict(evaluated(graph, source, inputs))[output]
    missed = compare(output, got[output], expected, limit=limits_of(graph)[output])
    assert not missed.holds
    found = judge_again(graph, source, inputs, got, {output: missed})
    return found.outputs[output], found


@pytest.mark.parametrize("build", [saturated, chosen])
def test_what_rounding_decides_is_not_judged_but_what_led_there_is(build: Callable[[], Model]) -> None:
    output, found = judged(build())
    assert output.verdict is Verdict.UNDECIDED
    assert output.holds
    assert output.comparison.limit < 1e-3, "the limit is not widened"
    assert found.between is not None
    assert found.between.holds
    assert found.undecided == (), "each result follows from the values before it"


def test_what_rounding_carries_a_little_too_far_has_a_limit_of_its_own() -> None:
    output, found = judged(cancelled())
    assert output.verdict is Verdict.WIDENED
    assert output.spread is not None
    assert output.comparison.limit == 4 * output.spread < 0.1
    assert output.holds
    assert found.between is not None
    assert found.between.holds


FAULTS: dict[str, tuple[Callable[[], Model], dict[str, Fault]]] = {
    "before what amplifies": (saturated, {"MatMul": lambda x: x * np.float32(1.001)}),
    "in the first layer": (saturated, {"GlobalAveragePool": lambda x: x * np.float32(1.001)}),
    "in what amplifies": (saturated, {"Softmax": lambda x: x * np.float32(0.5)}),
    "in what amplifies, all zeros": (saturated, {"Softmax": np.zeros_like}),
    "in what amplifies, not a number": (saturated, {"Softmax": lambda x: x * np.float32(np.nan)}),
    "in values that are compared": (chosen, {"MatMul": lambda x: x + np.arange(16, dtype=np.float32)}),
    "in integers": (chosen, {"ArgMax": lambda x: x + 99}),
    "in what cancels": (cancelled, {"Add": lambda x: x + np.float32(0.5)}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_where_it_is_made(fault: str) -> None:
    build, faults = FAULTS[fault]
    output, found = judged(build(), **faults)
    assert found.between is not None
    assert not (output.holds and found.between.holds)
    assert not found.between.holds


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize(
    "fault",
    [
        lambda x: x * np.float32(0.999),
        lambda x: x * np.float32(np.nan),
        lambda x: x.astype(np.float16),
        lambda x: x[:, :3],
    ],
    ids=["a factor", "not a number", "another type", "another shape"],
)
def test_a_faulty_output_fails_the_compilation(monkeypatch: pytest.MonkeyPatch, fault: Fault) -> None:
    for scale in (0.1, 1e18):
        with pytest.raises(InternalError, match="computes other values"):
            checked(monkeypatch, saturated(scale), Softmax=fault)


def test_a_model_that_cannot_be_evaluated_disturbed_is_judged_by_its_plain_limits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disturbed index leaves its table."""
    model = Model()
    x = model.node("Exp", [model.input([4, 6], "x")])
    top = model.node("ReduceMax", [x], keepdims=1)
    index = model.node("Cast", [model.node("Ceil", [model.node("Div", [x, top])])], to=TensorProto.INT64)
    picked = model.node("Gather", [model.constant(np.arange(4, dtype=np.float32).reshape(2, 2)), index], axis=0)
    model.output(model.relu(picked))
    with pytest.raises(InternalError, match="computes other values"):
        checked(monkeypatch, model, Relu=lambda x: x + np.float32(1))


def test_the_report_says_what_was_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logits of which one is a roundoff larger, and the softmax of these: right, and nothing like the reference's."""

    def raised(x: Any) -> Any:
        found = x.copy()
        found[:, 3] = np.nextafter(found[:, 3], np.float32(np.inf))
        return found

    def one_hot(x: Any) -> Any:
        found = np.zeros_like(x)
        found[:, 3] = 1
        return found

    values = checked(monkeypatch, saturated(), MatMul=raised, Softmax=one_hot)
    (output,) = values.outputs
    assert (output.holds, output.verdict) == (None, Verdict.UNDECIDED)
    assert (values.max_error, values.limit, values.tensor) == (None, None, None)
    assert values.between is not None
    assert values.between.holds
    assert values.undecided == ()
