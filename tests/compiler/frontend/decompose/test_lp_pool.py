"""LpPool and GlobalLpPool, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from tests.compiler.frontend.decompose.test_few_bits import ops_that_agree
from tests.models import Model


def pool(kind: str, shape: list[int], **attributes: Any) -> Model:
    """A model of one pooling."""
    model = Model(opset=18)
    model.output(model.node(kind, [model.input(shape, "x")], **attributes))
    return model


@pytest.mark.parametrize(
    ("kind", "shape", "attributes"),
    [
        ("LpPool", [2, 3, 9, 8], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 2, 1]}),
        ("LpPool", [1, 2, 9], {"kernel_shape": [3], "auto_pad": "SAME_LOWER", "strides": [2], "p": 1}),
        ("LpPool", [2, 2, 6, 6], {"kernel_shape": [2, 2], "p": 3}),
        ("GlobalLpPool", [2, 3, 4, 5], {}),
        ("GlobalLpPool", [2, 3, 4, 5, 2], {"p": 1}),
    ],
)
def test_powers_are_summed_over_windows(kind: str, shape: list[int], attributes: dict[str, Any]) -> None:
    model = pool(kind, shape, **attributes)
    ops_that_agree(model, {"x": model.random.standard_normal(shape).astype("float32")}, 1e-5)


@pytest.mark.parametrize(
    ("kind", "attributes", "scale"),
    [
        ("LpPool", {"kernel_shape": [3, 3]}, 200),
        ("LpPool", {"kernel_shape": [3, 3]}, 1e-3),
        ("GlobalLpPool", {"p": 3}, 40),
        ("GlobalLpPool", {"p": 1}, 100),
    ],
)
def test_powers_beyond_float16_have_a_root_that_is_not(kind: str, attributes: dict[str, Any], scale: float) -> None:
    model = Model(opset=18)
    made = model.node(kind, [model.input([1, 2, 16, 16], "x", TensorProto.FLOAT16)], **attributes)
    model.output(made, TensorProto.FLOAT16)
    data = (scale * model.random.standard_normal([1, 2, 16, 16])).astype("float16")
    assert np.isfinite(model.run({"x": data})[0]).all()
    ops_that_agree(model, {"x": data}, 1e-3)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [({"ceil_mode": 1}, "ceil_mode is 0"), ({"dilations": [2, 1]}, "dilations are 1")],
)
def test_a_form_that_is_not_written_stays_on_the_host(attributes: dict[str, Any], reason: str) -> None:
    (host,) = pool("LpPool", [1, 2, 8, 8], kernel_shape=[2, 2], **attributes).graph().host.values()
    assert reason in host.reason
