"""Batch normalisation folded into convolutions: the described weights give the values of the original (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Derived
from compiler.ir.graph import Graph
from tests.models import Model, run_reference


def rebuilt(graph: Graph, data: bytes) -> bytes:
    """The imported graph as an ONNX model again, with the values of its constants."""
    source = ModelSource.from_bytes(data)
    initializers = []
    for name, tensor in graph.tensors.items():
        if tensor.constant is not None:
            initializers.append(numpy_helper.from_array(np.array(materialise(tensor.constant, source)), name))
    nodes = []
    for op in graph.ops:
        attributes: dict[str, Any] = dict(op.attributes)
        nodes.append(helper.make_node(op.kind, list(op.inputs), [op.output], **attributes))
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, graph.tensors[name].shape) for name in graph.inputs
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in graph.outputs]
    proto = helper.make_model(
        helper.make_graph(nodes, "again", inputs, outputs, initializers),
        opset_imports=[helper.make_opsetid("", graph.opset)],
        ir_version=8,
    )
    return bytes(proto.SerializeToString())


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_a_folded_convolution_computes_what_the_two_ops_did(bias: bool, group: int, epsilon: float) -> None:
    model = Model(seed=3)
    x = model.input([2, 4, 6, 6], "x")
    y = model.norm(model.conv(x, 4, 8, group=group, bias=bias, name="conv"), 8, name="norm", epsilon=epsilon)
    model.output(y)
    data = model.data()
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Conv"]
    assert graph.ops[0].origin == ("conv", "norm")
    values = model.random.standard_normal((2, 4, 6, 6)).astype(np.float32)
    (expected,) = model.run({"x": values})
    (found,) = run_reference(onnx.load_from_string(rebuilt(graph, data)), {"x": values})
    error = np.abs(found - expected).max() / np.sqrt(np.mean(expected**2))
    assert error < 1e-5


def test_folding_describes_values_and_computes_nothing() -> None:
    model = Model()
    model.output(model.norm(model.conv(model.input([1, 16, 4, 4]), 16, 32), 32))
    graph = model.graph()
    for name in graph.ops[0].inputs[1:]:
        constant = graph.tensors[name].constant
        assert constant is not None
        assert isinstance(constant.data, Derived)


def test_folded_tensors_that_nothing_reads_are_gone() -> None:
    model = Model()
    model.output(model.norm(model.conv(model.input([1, 4, 4, 4]), 4, 4), 4))
    graph = model.graph()
    assert set(graph.tensors) == {graph.inputs[0], *graph.ops[0].inputs, graph.ops[0].output}


def two_readers(model: Model) -> None:
    y = model.conv(model.input([1, 4, 4, 4]), 4, 4)
    model.output(model.node("Add", [model.norm(y, 4), y]))


def is_output(model: Model) -> None:
    y = model.output(model.conv(model.input([1, 4, 4, 4]), 4, 4))
    model.output(model.norm(y, 4))


def shared_weight(model: Model) -> None:
    x, w = model.input([1, 4, 4, 4]), model.weight(4, 4, 1, 1)
    y = model.norm(model.node("Conv", [x, w]), 4)
    model.output(model.node("Conv", [y, w]))


def computed_weight(model: Model) -> None:
    x, w = model.input([1, 4, 4, 4]), model.input([4, 4, 1, 1])
    model.output(model.norm(model.node("Conv", [x, w]), 4))


def after_activation(model: Model) -> None:
    model.output(model.norm(model.relu(model.conv(model.input([1, 4, 4, 4]), 4, 4)), 4))


def computed_statistics(model: Model) -> None:
    y = model.conv(model.input([1, 4, 4, 4]), 4, 4)
    parameters = [model.input([4]) for _ in range(4)]
    model.output(model.node("BatchNormalization", [y, *parameters]))


@pytest.mark.parametrize(
    "build", [two_readers, is_output, shared_weight, computed_weight, after_activation, computed_statistics]
)
def test_a_normalisation_stays_where_folding_would_change_something_else(build: Callable[[Model], None]) -> None:
    """The conditions 1 to 3 of the pass, one broken at a time."""
    model = Model()
    build(model)
    assert "BatchNormalization" in [op.kind for op in model.graph().ops]


def test_splat_weights_and_statistics_fold_to_their_values() -> None:
    """The light models: every constant is one number everywhere."""
    model = Model()

    def splat(*shape: int) -> str:
        value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.02])
        return model.node("ConstantOfShape", [model.ints(*shape)], value=value)

    y = model.node("Conv", [model.input([1, 3, 4, 4]), splat(5, 3, 3, 3)])
    model.output(model.node("BatchNormalization", [y, splat(5), splat(5), splat(5), splat(5)]))
    graph = model.graph()
    constant = graph.tensors[graph.ops[0].inputs[1]].constant
    assert constant is not None
    found: Any = materialise(constant, ModelSource.from_bytes(b""))
    np.testing.assert_allclose(found, np.full((5, 3, 3, 3), 0.02 * 0.02 / np.sqrt(0.02 + 1e-5)), rtol=1e-6)
