"""LpNormalization as a reduction and a division, with ONNX Runtime's values."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph


@pytest.mark.parametrize("opset", [7, 11, 18])
@pytest.mark.parametrize(("order", "axis"), [(1, 1), (2, -1), (2, 0)])
def test_a_normalised_vector_is_divided_by_its_length(order: int, axis: int, opset: int) -> None:
    model = Model(opset=opset)
    x = model.node("Mul", [model.input([3, 4, 5]), model.constant(np.array([[[1]], [[0]], [[2]]], dtype=np.float32))])
    model.output(model.node("LpNormalization", [x], p=order, axis=axis))
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)
