"""Trilu, OneHot and Hardmax as comparisons with small constants, EyeLike as one (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.compiler.frontend.decompose.replacing import agree, replacement, results
from tests.compiler.ops.calls import Values
from tests.models import Model, import_graph, run_reference


@pytest.mark.matrix(first=20, rest=20)
@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, -2, 0, 1, 9])
@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "bfloat16"])
@pytest.mark.parametrize("is_known", [True, False])
def test_trilu_keeps_one_side_of_a_diagonal(upper: int, diagonal: int | None, dtype: str, is_known: bool) -> None:
    target = np.dtype(getattr(ml_dtypes, dtype)) if dtype == "bfloat16" else np.dtype(dtype)
    feeds: dict[str, Values] = {"x": np.arange(1, 25).reshape(2, 3, 4).astype(target)}
    if diagonal is not None:
        feeds["k"] = np.array(diagonal, dtype=np.int64)
    node = helper.make_node("Trilu", list(feeds), ["y"], upper=upper)
    values, _ = results(node, feeds, 14, (1,) if diagonal is not None and is_known else ())
    function = np.triu if upper else np.tril
    expected = function(np.ones((3, 4), bool), diagonal or 0)
    agree(values["y"], np.where(expected, feeds["x"], np.zeros((), target)))


@pytest.mark.matrix(first=12, rest=12)
@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
@pytest.mark.parametrize("opset", [9, 11, 13])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_one_hot_counts_negative_indices_from_the_end_and_ignores_others(axis: int, opset: int, dtype: str) -> None:
    feeds = {
        "i": np.array([[0, 2, -1], [-3, 7, -9]]).astype(dtype),
        "depth": np.array(3, dtype=np.int64),
        "values": np.array([2.0, 5.0], dtype=np.float32),
    }
    node = helper.make_node("OneHot", list(feeds), ["y"], axis=axis)
    values, _ = results(node, feeds, opset, (1,))
    hot = np.array([[[1, 0, 0], [0, 0, 1], [0, 0, 1]], [[1, 0, 0], [0, 0, 0], [0, 0, 0]]])
    agree(values["y"], np.moveaxis(np.where(hot, 5.0, 2.0).astype(np.float32), -1, axis))


@pytest.mark.parametrize(
    ("opset", "attributes"),
    [(13, {}), (13, {"axis": 0}), (13, {"axis": -2}), (11, {}), (11, {"axis": 2}), (9, {"axis": 0})],
)
def test_hardmax_is_1_at_the_first_of_the_largest_elements(opset: int, attributes: dict[str, Any]) -> None:
    model = Model(opset=opset)
    model.output(model.node("Hardmax", [model.input([2, 3, 4], "x")], **attributes))
    x = model.random.integers(0, 3, (2, 3, 4)).astype(np.float32)
    node = model.proto().graph.node[0]
    found, _ = results(node, {"x": x}, opset, ())
    agree(found[node.output[0]], run_reference(model.proto(), {"x": x})[0])


@pytest.mark.parametrize(("opset", "attributes"), [(9, {}), (22, {"k": -1, "dtype": TensorProto.INT64})])
def test_eye_like_of_fixed_extents_is_a_constant(opset: int, attributes: dict[str, Any]) -> None:
    model = Model(opset=opset)
    eye = model.node("EyeLike", [model.input([3, 4], "x")], **attributes)
    model.output(eye, attributes.get("dtype", TensorProto.FLOAT))
    graph = import_graph(model.data())
    assert not graph.host
    assert not graph.ops
    node = model.proto().graph.node[0]
    (expected,) = run_reference(model.proto(), {"x": np.zeros((3, 4), np.float32)})
    agree(results(node, {"x": np.zeros((3, 4), np.float32)}, opset, ())[0][eye], expected)


def test_a_depth_that_is_known_only_at_run_time_is_left_to_the_host() -> None:
    feeds: dict[str, Values] = {"x": np.ones((3, 3), np.int64), "k": np.array(2, np.int64), "v": np.ones(2, np.float32)}
    node = helper.make_node("OneHot", list(feeds), ["y"])
    assert replacement(node, feeds, 14, ()) is None
