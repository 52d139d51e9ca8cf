"""Resize by cubic polynomials as products, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.frontend.decompose import why_not_decomposed
from compiler.profile import builtin_profile
from tests.compiler.ops.calls import Values, call_of_node
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph


def resized(shape: list[Any], sizes: list[int], **attributes: Any) -> Model:
    """A cubic Resize to these extents, behind an op that makes its operand."""
    model = Model(opset=18)
    given = [model.relu(model.input(shape, "x")), "", "", model.constant(np.array(sizes))]
    model.output(model.node("Resize", given, mode="cubic", **attributes))
    return model


@pytest.mark.matrix(first=5, rest=5)
@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"coordinate_transformation_mode": "align_corners", "cubic_coeff_a": -0.5},
        {"coordinate_transformation_mode": "pytorch_half_pixel"},
        {"coordinate_transformation_mode": "asymmetric", "exclude_outside": 1},
    ],
    ids=str,
)
@pytest.mark.parametrize("sizes", [[9, 12], [3, 4], [1, 5]], ids=str)
def test_a_cubic_resize_is_a_product_along_each_axis(sizes: list[int], attributes: dict[str, Any]) -> None:
    model = resized([1, 2, 4, 5], [1, 2, *sizes], **attributes)
    graph = import_graph(model.data())
    assert not graph.host
    assert [op.kind for op in graph.ops].count("MatMul") == 1 + (sizes[1] != 5)
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def test_other_images_may_vary() -> None:
    model = Model(opset=18)
    x = model.input(["n", 2, 4, 5], "x")
    scales = model.constant(np.array([1, 1, 2, 1.5], dtype=np.float32))
    model.output(model.node("Resize", [x, "", scales], mode="cubic"))
    assert not misses(model, {"n": (1, 3)}, count=1)


def test_a_cubic_resize_that_shrinks_with_antialias_stays_on_the_host() -> None:
    (host,) = import_graph(resized([1, 2, 8, 8], [1, 2, 4, 4], antialias=1).data()).host.values()
    assert host.op_type == "Resize"


@pytest.mark.parametrize(("mode", "expected"), [("cubic", "extents are fixed, and antialias is 0"), ("linear", None)])
def test_the_limit_of_a_cubic_form_is_why_it_is_not_decomposed(mode: str, expected: str | None) -> None:
    feeds: dict[str, Values] = {
        "x": np.ones((1, 2, 8, 8), np.float32),
        "": np.zeros(0),
        " ": np.zeros(0),
        "sizes": np.array([1, 2, 4, 4]),
    }
    node = helper.make_node("Resize", [name.strip() for name in feeds], ["y"], mode=mode, antialias=1)
    found = why_not_decomposed(node, call_of_node(node, feeds, 18, constants=[3]))
    assert (None if found is None else found.reason) == expected


def test_extents_that_are_known_at_run_time_leave_it_to_the_host() -> None:
    model = Model(opset=18)
    given = [model.relu(model.input([1, 2, 4, 5], "x")), "", "", model.input([4], "sizes", TensorProto.INT64)]
    model.output(model.node("Resize", given, mode="cubic"))
    (host,) = import_graph(model.data()).host.values()
    assert host.op_type == "Resize"
