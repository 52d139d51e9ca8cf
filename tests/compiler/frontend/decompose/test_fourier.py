"""DFT and STFT as products, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.replacing import replacement
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph


def agrees(model: Model) -> None:
    """Nothing is left to the host, and values are ONNX Runtime's."""
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize(
    ("shape", "length", "attributes"),
    [
        ([2, 12, 1], None, {"onesided": 1}),
        ([2, 12, 3, 2], None, {"axis": 1}),
        ([2, 12, 2], None, {"inverse": 1}),
        ([2, 12, 1], 16, {}),
        ([2, 12, 1], 7, {"onesided": 1}),
    ],
)
def test_a_transform_is_a_product(shape: list[int], length: int | None, attributes: dict[str, Any]) -> None:
    model = Model(opset=17)
    given = [model.input(shape, "x")] + ([] if length is None else [model.constant(np.array(length))])
    model.output(model.node("DFT", given, **attributes))
    agrees(model)


@pytest.mark.parametrize(
    ("onesided", "has_window", "parts"), [(1, True, [1]), (0, True, [1]), (1, False, [1]), (1, True, [])]
)
def test_frames_of_a_signal_are_a_convolution(onesided: int, has_window: bool, parts: list[int]) -> None:
    """A signal without an axis of parts, as torch's exporter writes it, is real."""
    model = Model(opset=17)
    given = [model.input([2, 40, *parts], "x"), model.constant(np.array(5))]
    given.append(model.constant(np.hanning(12).astype(np.float32)) if has_window else "")
    given.append(model.constant(np.array(12)))
    model.output(model.node("STFT", given, onesided=onesided))
    agrees(model)


@pytest.mark.parametrize(
    ("shape", "attributes", "opset", "why"),
    [
        ([1, 8, 3], {}, 17, "must hold a real and at most an imaginary part"),
        ([1, 8, 2], {"onesided": 1}, 17, "must be of a real signal"),
        ([2], {}, 20, "must have an axis of points"),
        ([2], {}, 17, "must have an axis of points"),
    ],
)
def test_an_illegal_transform_is_refused_with_its_cause(
    shape: list[int], attributes: dict[str, Any], opset: int, why: str
) -> None:
    model = Model(opset=opset)
    model.output(model.node("DFT", [model.input(shape, "x")], **attributes))
    with pytest.raises(ModelError, match=why):
        import_graph(model.data())


@pytest.mark.parametrize(
    ("points", "parts", "onesided", "is_replaced"),
    [(1024, 1, 1, True), (1025, 1, 1, False), (512, 2, 0, True), (1024, 2, 0, False), (1024, 1, 0, False)],
)
def test_a_matrix_takes_at_most_4_mb(points: int, parts: int, onesided: int, is_replaced: bool) -> None:
    node = helper.make_node("DFT", ["x"], ["y"], onesided=onesided)
    nodes = replacement(node, {"x": np.ones((1, points, parts), np.float32)}, 17, ())
    assert (nodes is not None) == is_replaced
    for made in nodes or ():
        assert made.op_type != "Constant" or len(made.attribute[0].t.raw_data) <= 4 * 1024 * 1026
