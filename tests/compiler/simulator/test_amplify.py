"""What a model makes of rounding is measured, allowed for, and hides no fault of a program (SIM-1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.compile import Compilation, compile_model
from compiler.errors import InternalError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator import check
from compiler.simulator.amplify import spreads
from compiler.simulator.inputs import random_inputs
from tests.models import Model, import_graph


def saturated(scale: float = 1e18) -> Model:
    """A convolution, then logits that should be equal and are so large that one roundoff decides a softmax of them."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 24, 24], "x"), 4, 8))
    x = model.node("Reshape", [model.node("GlobalAveragePool", [x]), model.ints(1, 8)])
    w = model.constant(np.full((8, 16), scale, dtype=np.float32))
    model.output(model.node("Softmax", [model.node("MatMul", [x, w])], axis=-1))
    return model


def spread_of(model: Model) -> dict[str, float]:
    """The spreads of all results, by op kind."""
    graph = import_graph(model.data())
    kinds = {op.output: op.kind for op in graph.ops}
    source = ModelSource.from_bytes(model.data())
    return {kinds[s.tensor]: s.spread for s in spreads(graph, source, random_inputs(graph, 1), set(kinds))}


def compiled(model: Model) -> Compilation:
    """Compiled without fusion: every result passes the DRAM."""
    return compile_model(model.data(), builtin_profile("edge4"), parse_options({"fusion": "none"}))


def test_a_softmax_of_huge_equal_logits_spreads_and_its_logits_do_not() -> None:
    found = spread_of(saturated())
    assert 0 < found["MatMul"] < 1e-5
    assert found["Softmax"] > 0.9


def test_a_model_that_amplifies_nothing_has_the_spread_of_its_roundings() -> None:
    assert 0 < max(spread_of(saturated(scale=0.1)).values()) < 1e-5


def test_results_that_are_among_their_inputs_are_not_disturbed() -> None:
    model = Model()
    model.output(model.relu(model.node("Transpose", [model.input([2, 3], "x")], perm=[1, 0])))
    assert set(spread_of(model).values()) == {0.0}


def test_an_output_that_rounding_decides_is_allowed_to_differ_and_the_report_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here every result is off by one roundoff or so, as another order of summation makes it."""
    _scaled(monkeypatch, "Softmax", np.float32(0.5))
    values = compiled(saturated()).report.values
    assert values.checked
    (output,) = values.outputs
    assert output.spread is not None
    assert output.spread > 0.1
    assert output.limit == pytest.approx(4 * output.spread)
    assert output.holds
    assert values.between is not None
    assert values.between.holds
    assert values.between.limit is not None
    assert values.between.limit < 1e-3


def test_a_fault_before_what_amplifies_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    _scaled(monkeypatch, "Softmax", np.float32(0.5))
    _scaled(monkeypatch, "MatMul", np.float32(1.001))
    with pytest.raises(InternalError, match="computes other values"):
        compiled(saturated())


def test_a_fault_in_a_model_that_amplifies_nothing_earns_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    _scaled(monkeypatch, "Softmax", np.float32(0.999))
    with pytest.raises(InternalError, match="computes other values"):
        compiled(saturated(scale=0.1))


def _scaled(monkeypatch: pytest.MonkeyPatch, kind: str, factor: Any) -> None:
    """Make programs hand out a tensor, that an op of `kind` makes in `saturated`, times a factor."""
    graph = import_graph(saturated().data())
    wanted = next(op.output for op in graph.ops if op.kind == kind)
    names = dict(zip(graph.output_tensors, graph.output_names, strict=True))
    before: Any = vars(check)["run_executable"]

    def faulty(executable: Any, inputs: Any, results: Any = None) -> dict[str, Any]:
        def tell(name: str, value: Any) -> None:
            results(name, value * factor if name == wanted else value)

        outputs = before(executable, inputs, results=tell if results else None)
        return {name: value * factor if name == names.get(wanted) else value for name, value in outputs.items()}

    monkeypatch.setattr("compiler.simulator.check.run_executable", faulty)
