"""Short recurrent layers as their steps, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.frontend import unrolled
from compiler.frontend.decompose.node_builder import MAX_UNROLLED
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.simulator.reference import reference_of_graph
from tests.compiler.frontend.decompose.replacing import replacement
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph, run_reference

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
    "lstm of keras, with functions of parameters": (
        "LSTM",
        {"activations": ["HardSigmoid", "Tanh", "Tanh"], "activation_alpha": [0.25], "activation_beta": [0.4]},
    ),
    "gru of hard functions both ways": (
        "GRU",
        {"activations": ["HardSigmoid", "Tanh", "Sigmoid", "hardsigmoid"], "direction": "bidirectional"}
        | {"activation_alpha": [0.3, 0.1], "activation_beta": [0.4]},
    ),
    "one step of an old lstm": ("LSTM", {"steps": 1, "opset": 7, "begins": True}),
    "gru": ("GRU", {}),
    "gru from a state": ("GRU", {"begins": True}),
    "gru that resets the product": ("GRU", {"linear_before_reset": 1}),
    "gru that resets the product, from a state": ("GRU", {"linear_before_reset": 1, "begins": True}),
    "gru without bias": ("GRU", {"linear_before_reset": 1, "bias": False, "direction": "bidirectional"}),
    "rnn": ("RNN", {}),
    "rnn both ways": ("RNN", {"direction": "bidirectional", "activations": ["Relu", "Tanh"], "begins": True}),
}


@pytest.mark.matrix(first=3, rest=3)
@pytest.mark.parametrize("case", CASES)
def test_a_short_recurrent_layer_runs_on_the_chip(case: str) -> None:
    kind, more = CASES[case]
    model = layer(kind, **more)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("kind", GATES)
def test_sequences_may_end_early_at_lengths_known_at_run_time(kind: str, direction: str, begins: bool) -> None:
    model = layer(kind, batch=3, begins=begins, direction=direction)
    node = model.nodes[0]
    node.input[4] = model.input([3], "lengths", TensorProto.INT32)
    graph = import_graph(model.data())
    assert not graph.host
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.inputs}
    given = {name: model.random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    given["lengths"] = np.array([2, 0, 3], np.int32)
    ours = reference_of_graph(graph, ModelSource.from_bytes(model.data()), given)
    for name, expected in zip(graph.output_tensors, run_reference(model.proto(), given), strict=True):
        np.testing.assert_allclose(ours[name], expected, rtol=1e-5, atol=1e-6)


def test_sequences_may_end_early_at_known_lengths() -> None:
    model = layer("GRU", lengths=2)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert all(output.holds for output in values.outputs)


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("kind", GATES)
def test_its_batch_may_vary(kind: str) -> None:
    assert not misses(layer(kind, batch="n", steps=2), {"n": (1, 4)}, count=2)


def test_a_long_layer_stays_on_the_host_and_the_reason_says_how_long_it_may_be() -> None:
    (both,) = import_graph(layer("LSTM", steps=50, direction="bidirectional").data()).host.values()
    assert "(here 50 in 2 directions)" in both.reason
    (host,) = import_graph(layer("LSTM", steps=98).data()).host.values()
    assert "at most 97 in all directions together (here 98)" in host.reason


@pytest.mark.parametrize(
    ("kind", "steps", "attributes", "peepholes"),
    [
        ("LSTM", 97, {}, False),
        ("LSTM", 75, {}, True),
        ("GRU", 120, {}, False),
        ("GRU", 120, {"linear_before_reset": 1}, False),
        ("RNN", 512, {}, False),
    ],
)
def test_steps_of_the_longest_layers_are_as_many_nodes_as_are_written_out(
    kind: str, steps: int, attributes: dict[str, Any], peepholes: bool
) -> None:
    gates = GATES[kind]
    feeds = {name: np.ones((1, gates, 1), np.float32) for name in "wr"} | {"b": np.ones((1, 2 * gates), np.float32)}
    states = {name: np.ones((1, 1, 1), np.float32) for name in ("h", "c")[: 2 if kind == "LSTM" else 1]}
    lengths = {"": np.zeros(0)}
    more = {"p": np.ones((1, 3), np.float32)} if peepholes else {}

    def nodes(count: int) -> int | None:
        given = {"x": np.ones((count, 1, 1), np.float32)} | feeds | lengths | states | more
        node = helper.make_node(kind, list(given), ["y"], hidden_size=1, **attributes)
        found = replacement(node, given, 14, ())
        return None if found is None else sum(made.op_type != "Constant" for made in found)

    longest, two, three = nodes(steps), nodes(2), nodes(3)
    assert longest is not None
    assert two is not None
    assert three is not None
    step = three - two
    assert longest - two == (steps - 2) * step
    assert steps * step <= MAX_UNROLLED
    assert nodes(steps + 1) is None


@pytest.mark.parametrize(
    ("index", "shape", "why"),
    [
        (3, (1, 41), "input 3 must fit"),
        (5, (1, 3, HIDDEN), "input 5 must fit"),
        (6, (1, HIDDEN), "input 6 must fit"),
        (7, (2, 3 * HIDDEN), "input 7 must fit"),
    ],
)
def test_what_does_not_fit_the_other_inputs_is_refused(index: int, shape: tuple[int, ...], why: str) -> None:
    model = layer("LSTM", begins=True, peepholes=True)
    model.nodes[0].input[index] = model.weight(*shape)
    with pytest.raises(ModelError, match=why):
        import_graph(model.data())


def test_lengths_of_other_sequences_are_refused() -> None:
    model = layer("LSTM", batch=2)
    model.nodes[0].input[4] = model.input([3], "lengths", TensorProto.INT32)
    with pytest.raises(ModelError, match="input 4 must fit"):
        import_graph(model.data())


def test_the_layers_of_a_model_are_written_out_up_to_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    given = [model.input([12, 1, 4], "x"), model.weight(1, 20, 4), model.weight(1, 20, 5)]
    for number in range(3):
        model.output(model.nodes_out("LSTM", given, [f"y{number}"], name=f"layer {number}", hidden_size=5)[0])
    assert not import_graph(model.data()).host
    monkeypatch.setattr(unrolled, "WRITTEN_IN_MODEL", 800)
    (host,) = import_graph(model.data()).host.values()
    assert host.name == "layer 2"
    assert "nodes together" in host.reason


def test_another_hidden_size_is_refused() -> None:
    model = layer("LSTM")
    (size,) = (its for its in model.nodes[0].attribute if its.name == "hidden_size")
    size.i = HIDDEN + 1
    with pytest.raises(ModelError, match="hidden_size must be"):
        import_graph(model.data())


@pytest.mark.parametrize(
    ("kind", "attributes", "why"),
    [
        ("LSTM", {"activations": ["Sigmoid"]}, "activations must be as many as"),
        ("LSTM", {"activations": ["Sigmoid", "Tanh", "Tanh"], "direction": "bidirectional"}, "activations must be"),
        ("GRU", {"activations": ["Sigmoid", "Tanh", "Tanh"]}, "activations must be"),
        ("RNN", {"direction": "Reverse"}, "direction is unknown"),
    ],
)
def test_an_illegal_layer_is_refused_with_its_cause(kind: str, attributes: dict[str, Any], why: str) -> None:
    with pytest.raises(ModelError, match=why):
        import_graph(layer(kind, **attributes).data())
