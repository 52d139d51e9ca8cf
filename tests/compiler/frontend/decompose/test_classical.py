"""Operators of ai.onnx.ml that are arithmetic: written as operators of the standard, with ONNX Runtime's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph


class Pipeline(Model):
    """A model with operators of ai.onnx.ml."""

    def proto(self) -> onnx.ModelProto:
        """The finished model."""
        proto = super().proto()
        proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
        return proto


COEFFICIENTS = [float(value) for value in np.random.default_rng(0).standard_normal(12)]
FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
# Operator, shapes and types of inputs, types of outputs, attributes.
CASES: list[tuple[str, list[tuple[list[int], int]], list[int], dict[str, Any]]] = [
    ("Scaler", [([3, 4], FLOAT)], [FLOAT], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [0.5, 1.5, 2.5, 3.5]}),
    ("Scaler", [([3, 4], INT)], [FLOAT], {"offset": [1.0], "scale": [0.5]}),
    ("Binarizer", [([3, 4], FLOAT)], [FLOAT], {"threshold": 0.1}),
    ("Normalizer", [([3, 4], FLOAT)], [FLOAT], {"norm": "MAX"}),
    ("Normalizer", [([3, 4], FLOAT)], [FLOAT], {"norm": "L1"}),
    ("Normalizer", [([3, 4], FLOAT)], [FLOAT], {"norm": "L2"}),
    ("FeatureVectorizer", [([3, 4], FLOAT), ([3, 2], FLOAT)], [FLOAT], {"inputdimensions": [4, 2]}),
    ("LinearRegressor", [([2, 4], FLOAT)], [FLOAT],
     {"coefficients": COEFFICIENTS, "intercepts": [1.0, 2.0, 3.0], "targets": 3}),
    ("LinearClassifier", [([5, 4], FLOAT)], [INT, FLOAT],
     {"coefficients": COEFFICIENTS, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [7, 2, 5], "multi_class": 1,
      "post_transform": "SOFTMAX"}),
    ("LinearClassifier", [([5, 4], FLOAT)], [INT, FLOAT],
     {"coefficients": COEFFICIENTS, "intercepts": [0.1, 0.2, 0.3], "classlabels_ints": [7, 2, 5],
      "post_transform": "LOGISTIC"}),
]  # fmt: skip


def agrees(model: Model) -> None:
    """Nothing is left to the host, and values are ONNX Runtime's."""
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def model_of(
    op_type: str, inputs: list[tuple[list[int], int]], outputs: list[int], opset: int, attributes: dict[str, Any]
) -> Model:
    """A model of the operator alone."""
    model = Pipeline(opset=opset)
    names = [model.input(shape, dtype=dtype) for shape, dtype in inputs]
    results = [f"y{number}" for number in range(len(outputs))]
    model.nodes.append(helper.make_node(op_type, names, results, domain="ai.onnx.ml", name="it", **attributes))
    for name, dtype in zip(results, outputs, strict=True):
        model.output(name, dtype)
    return model


@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize(("op_type", "inputs", "outputs", "attributes"), CASES)
def test_an_operator_that_is_arithmetic_runs_on_the_chip(
    op_type: str, inputs: list[tuple[list[int], int]], outputs: list[int], attributes: dict[str, Any], opset: int
) -> None:
    agrees(model_of(op_type, inputs, outputs, opset, attributes))


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_a_row_of_zeros_is_left_as_it_is(norm: str) -> None:
    model = Pipeline(opset=13)
    x = model.node("Mul", [model.input([2, 3]), model.constant(np.array([[0.0], [1.0]], dtype=np.float32))])
    model.output(model.node("Normalizer", [x], domain="ai.onnx.ml", norm=norm))
    agrees(model)


@pytest.mark.parametrize("gap", [float("nan"), -1.0])
def test_gaps_are_filled_by_column(gap: float) -> None:
    model = Pipeline(opset=13)
    gaps = model.constant(np.array([[False, True, False]] * 2))
    x = model.node("Where", [gaps, model.constant(np.float32(gap)), model.input([2, 3])])
    filled: dict[str, Any] = {"imputed_value_floats": [5.0, 6.0, 7.0], "replaced_value_float": gap}
    model.output(model.node("Imputer", [x], domain="ai.onnx.ml", **filled))
    agrees(model)


@pytest.mark.parametrize("shape", [[5], [2, 5]])
def test_columns_are_chosen_by_positions(shape: list[int]) -> None:
    model = Pipeline(opset=13)
    places = model.node("ArgMax", [model.input([3, 4])], axis=1)
    x = model.input(shape)
    model.output(model.node("ArrayFeatureExtractor", [x, places], domain="ai.onnx.ml"))
    agrees(model)


def test_a_network_behind_a_scaler_runs_on_the_chip() -> None:
    """ONNX infers no shape of a Scaler: left to the host, it took all that follows with it."""
    model = Pipeline(opset=13)
    x = model.node("Scaler", [model.input([3, 4])], domain="ai.onnx.ml", offset=[1.0], scale=[2.0])
    model.output(model.relu(model.node("MatMul", [x, model.weight(4, 5)])))
    agrees(model)


def test_a_classifier_of_two_classes_stays_on_the_host() -> None:
    attributes = {"coefficients": COEFFICIENTS[:8], "intercepts": [0.1, 0.2], "classlabels_ints": [0, 1]}
    graph = import_graph(model_of("LinearClassifier", [([5, 4], FLOAT)], [INT, FLOAT], 13, attributes).data())
    assert {host.op_type for host in graph.host.values()} == {"LinearClassifier"}
