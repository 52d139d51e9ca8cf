"""Short recurrent layers as their steps, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN = 5


def layer(
    kind: str,
    *,
    steps: int = 3,
    batch: Any = 2,
    begins: bool = False,
    bias: bool = True,
    lengths: int | None = None,
    peepholes: bool = False,
    opset: int = 14,
    **attributes: Any,
) -> Model:
    """A recurrent layer of 4 inputs; `begins`: its states are inputs of the model."""
    model = Model(opset=opset)
    ways = 2 if attributes.get("direction") == "bidirectional" else 1
    given = [model.input([steps, batch, 4], "x")]
    given += [model.weight(ways, GATES[kind] * HIDDEN, extent) for extent in (4, HIDDEN)]
    given.append(model.weight(ways, 2 * GATES[kind] * HIDDEN) if bias else "")
    given.append("" if lengths is None else model.constant(np.full(batch, lengths, dtype=np.int32)))
    states = ["h", "c"][: 2 if kind == "LSTM" else 1]
    given += [model.input([ways, batch, HIDDEN], name) if begins else "" for name in states]
    if peepholes:
        given.append(model.weight(ways, 3 * HIDDEN))
    outputs = ["y", "y_h", "y_c"][: len(states) + 1]
    for name in model.nodes_out(kind, given, outputs, hidden_size=HIDDEN, **attributes):
        model.output(name)
    return model


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}),
    "lstm from a state, backwards": ("LSTM", {"begins": True, "direction": "reverse"}),
    "lstm both ways": ("LSTM", {"begins": True, "direction": "bidirectional", "lengths": 3}),
    "lstm with peepholes": ("LSTM", {"begins": True, "peepholes": True, "bias": False}),
    "lstm with peepholes from zero": ("LSTM", {"peepholes": True}),
    "lstm of other functions": ("LSTM", {"activations": ["Sigmoid", "softsign", "Relu"], "begins": True}),
    "one step of an old lstm": ("LSTM", {"steps": 1, "opset": 7, "begins": True}),
    "gru": ("GRU", {}),
    "gru from a state": ("GRU", {"begins": True}),
    "gru that resets the product": ("GRU", {"linear_before_reset": 1}),
    "gru that resets the product, from a state": ("GRU", {"linear_before_reset": 1, "begins": True}),
    "gru without bias": ("GRU", {"linear_before_reset": 1, "bias": False, "direction": "bidirectional"}),
    "rnn": ("RNN", {}),
    "rnn both ways": ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"], "begins": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_short_recurrent_layer_runs_on_the_chip(case: str) -> None:
    kind, more = CASES[case]
    model = layer(kind, **more)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize("kind", GATES)
def test_its_batch_may_vary(kind: str) -> None:
    assert not misses(layer(kind, batch="n", steps=2), {"n": (1, 4)}, count=2)


def test_a_long_layer_stays_on_the_host_and_the_reason_says_how_long_it_may_be() -> None:
    (host,) = import_graph(layer("LSTM", steps=17).data()).host.values()
    assert "at most 16 in all directions together (here 17)" in host.reason
