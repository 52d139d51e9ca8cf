"""The graph: its text form, and who reads and makes what."""

from __future__ import annotations

from collections.abc import Callable

from compiler.ir.graph import Graph
from tests.models import Model


def small() -> Graph:
    """A convolution with folded normalisation, a branch, a split, and two names for one output."""
    model = Model(name="small")
    x = model.input([1, 3, 8, 8], "image")
    y = model.norm(model.conv(x, 3, 4, stride=2, name="conv"), 4, name="norm")
    y = model.relu(y, name="relu")
    model.nodes_out("Split", [y, model.ints(1, 3)], ["low", "high"], name="split", axis=1)
    total = model.node("ReduceMean", ["high"], name="mean", axes=[2, 3])
    model.output(model.node("Mul", ["high", total], name="scale"))
    model.output(model.node("Identity", [model.node("Flatten", ["low"], name="flat")], name="alias"))
    return model.graph()


def test_graph_text(golden: Callable[[str], None]) -> None:
    golden(small().text())


def test_consumers_are_each_op_once_in_order() -> None:
    model = Model()
    x = model.input([1, 4], "x")
    model.output(model.node("Add", [x, x]))
    model.output(model.relu(x))
    graph = model.graph()
    assert graph.consumers["x"] == (0, 1)


def test_producers_are_the_ops_that_make_a_tensor() -> None:
    graph = small()
    assert all(graph.ops[index].output == name for name, index in graph.producer.items())
    assert len(graph.producer) == len(graph.ops)


def test_activations_and_weights_share_out_an_ops_inputs() -> None:
    graph = small()
    conv = graph.ops[0]
    assert [tensor.name for tensor in graph.activations(conv)] == ["image"]
    assert [tensor.shape for tensor in graph.weights(conv)] == [(4, 3, 3, 3), (4,)]


def test_tensor_sizes_are_elements_times_element_bytes() -> None:
    tensor = small().tensors["image"]
    assert (tensor.elements, tensor.size_bytes) == (192, 768)
