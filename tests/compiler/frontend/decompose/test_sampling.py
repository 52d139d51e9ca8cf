"""GridSample, AffineGrid and Col2Im on the accelerator, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.simulator.reference import reference_of_graph
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph, run_reference

CASES: dict[str, tuple[str, list[list[int]], list[Any], dict[str, Any]]] = {
    "zeros outside": ("GridSample", [[2, 3, 5, 4], [2, 3, 6, 2]], [], {}),
    "corners aligned": ("GridSample", [[1, 3, 5, 4], [1, 3, 6, 2]], [], {"align_corners": 1}),
    "border outside": ("GridSample", [[2, 1, 5, 4], [2, 3, 6, 2]], [], {"padding_mode": "border"}),
    "one row": ("GridSample", [[1, 2, 1, 7], [1, 3, 6, 2]], [], {"align_corners": 1}),
    "grid of an image": ("AffineGrid", [[2, 2, 3]], [[2, 1, 3, 4]], {}),
    "grid with corners": ("AffineGrid", [[1, 2, 3]], [[1, 1, 3, 2]], {"align_corners": 1}),
    "grid of a volume": ("AffineGrid", [[1, 3, 4]], [[1, 1, 2, 3, 4]], {"align_corners": 1}),
    "blocks side by side": ("Col2Im", [[1, 12, 20]], [[9, 11], [2, 2]], {"strides": [2, 2]}),
    "blocks that overlap": (
        "Col2Im",
        [[2, 18, 40]],
        [[9, 11], [3, 3]],
        {"strides": [2, 1], "pads": [1, 0, 2, 1], "dilations": [1, 2]},
    ),
    "blocks of a series": ("Col2Im", [[1, 6, 8]], [[10], [3]], {}),
}


def model_of(kind: str, inputs: list[list[int]], known: list[Any], attributes: dict[str, Any], opset: int) -> Model:
    """One such node; `known`: inputs behind the others that are constant."""
    model = Model(opset=opset)
    given = [model.input(shape) for shape in inputs] + [model.ints(*values) for values in known]
    model.output(model.node(kind, given, **attributes))
    return model


@pytest.mark.parametrize("case", CASES)
def test_images_and_positions_need_no_host(case: str) -> None:
    kind, inputs, known, attributes = CASES[case]
    model = model_of(kind, inputs, known, attributes, 20)
    graph = import_graph(model.data())
    assert not graph.host
    # some positions lie outside the image, some on its edges
    given = {
        name: np.round(model.random.standard_normal(shape), 1).astype(np.float32)
        for name, shape in zip(graph.inputs, inputs, strict=True)
    }
    ours = reference_of_graph(graph, ModelSource.from_bytes(model.data()), given)[graph.outputs[0]]
    (expected,) = run_reference(model.proto(), given)
    np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-6)


def test_outside_the_image_there_is_nothing_whatever_lies_at_its_edge() -> None:
    model = model_of("GridSample", [[1, 1, 3, 3], [1, 1, 3, 2]], [], {}, 16)
    graph = import_graph(model.data())
    image = np.ones((1, 1, 3, 3), np.float32)
    image[..., 2] = -np.inf
    places = np.array([3, 0, -1e6, 0, 0, 5], np.float32).reshape(1, 1, 3, 2)
    given = dict(zip(graph.inputs, (image, places), strict=True))
    found = reference_of_graph(graph, ModelSource.from_bytes(model.data()), given)[graph.outputs[0]]
    (expected,) = run_reference(model.proto(), given)
    np.testing.assert_array_equal(found, expected)
    assert not found.any()


def test_a_sampled_image_has_the_same_values_on_the_chip() -> None:
    model = model_of("GridSample", [[1, 2, 4, 3], [1, 2, 2, 2]], [], {}, 16)
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize(
    ("kind", "inputs", "known", "why"),
    [
        ("GridSample", [[1, 3, 5, 4], [2, 3, 6, 2]], [], "position of two numbers"),
        ("GridSample", [[1, 3, 5, 4], [1, 3, 6, 3]], [], "position of two numbers"),
        ("AffineGrid", [[2, 2, 3]], [[1, 1, 3, 4]], "a matrix per image"),
        ("Col2Im", [[1, 12, 21]], [[9, 11], [2, 2]], "as many as fit"),
    ],
)
def test_illegal_extents_are_refused_with_their_cause(
    kind: str, inputs: list[list[int]], known: list[Any], why: str
) -> None:
    with pytest.raises(ModelError, match=why):
        import_graph(model_of(kind, inputs, known, {}, 20).data())
