"""TopK as ranks, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.replacing import results
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph


@pytest.mark.parametrize("attributes", [{}, {"axis": 1}, {"axis": 0, "largest": 0}], ids=str)
def test_the_largest_elements_are_found_on_the_chip(attributes: dict[str, Any]) -> None:
    model = Model(opset=11)
    given = [model.input([3, 8, 6]), model.ints(3)]
    values_out, positions = model.nodes_out("TopK", given, ["values", "positions"], **attributes)
    model.output(values_out)
    model.output(positions, TensorProto.INT64)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def test_equal_and_infinite_elements_keep_their_order() -> None:
    x = np.array([[-np.inf, 2, -np.inf, 2, -np.inf]], dtype=np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["values", "positions"])
    found, _ = results(node, {"x": x, "k": np.array([4])}, 11, (1,))
    assert found["values"].tolist() == [[2, 2, -np.inf, -np.inf]]
    assert found["positions"].tolist() == [[1, 3, 0, 2]]


@pytest.mark.parametrize(("largest", "expected"), [(1, [2, 0, 3, 4, 1, 5]), (0, [4, 3, 0, 2, 1, 5])])
def test_nan_comes_last_and_no_two_elements_share_a_rank(largest: int, expected: list[int]) -> None:
    x = np.array([2, np.nan, 5, 1, -3, np.nan], dtype=np.float32)
    node = helper.make_node("TopK", ["x", "k"], ["values", "positions"], largest=largest)
    found, _ = results(node, {"x": x, "k": np.array([6])}, 11, (1,))
    assert found["positions"].tolist() == expected
    np.testing.assert_array_equal(found["values"], x[expected])


def test_the_k_of_an_old_model_is_an_attribute() -> None:
    model = Model(opset=9)
    values, indices = model.nodes_out("TopK", [model.input([3, 5], "x")], ["values", "indices"], k=2)
    model.output(values)
    model.output(indices, TensorProto.INT64)
    assert not import_graph(model.data()).host
    checked = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(checked.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in checked.outputs)


@pytest.mark.parametrize("k", [3, [], [2, 3]], ids=str)
def test_k_is_a_list_of_one_number(k: Any) -> None:
    node = helper.make_node("TopK", ["x", "k"], ["values", "positions"])
    with pytest.raises(ModelError, match="k must be a list of one number"):
        results(node, {"x": np.ones(4, np.float32), "k": np.array(k, dtype=np.int64)}, 11, (1,))
