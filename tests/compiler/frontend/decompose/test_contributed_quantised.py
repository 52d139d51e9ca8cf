"""Quantised operators of com.microsoft under older operator sets of the standard (IMPORT-9)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.test_contributed_fused import Contributed
from tests.compiler.frontend.decompose.test_few_bits import ops_that_agree
from tests.compiler.planning import BY_RULES
from tests.models import import_graph


def product(opset: int, *, bias: bool = True) -> bytes:
    """DynamicQuantizeMatMul by a matrix of int8 with one scale, and with a bias or none."""
    model = Contributed(opset=opset)
    matrix = model.constant(model.random.integers(-60, 60, (16, 12)).astype(np.int8))
    scale, zero = model.constant(np.array(0.02, np.float32)), model.constant(np.array(0, np.int8))
    inputs = [model.input([5, 16], "x"), matrix, scale, zero, *([model.weight(12)] if bias else [])]
    model.output(model.node("DynamicQuantizeMatMul", inputs, domain="com.microsoft"))
    return model.data()


@pytest.mark.parametrize("opset", [11, 12, 13])
def test_a_bias_of_a_product_needs_no_conversion_along_an_axis(opset: int) -> None:
    """Scales along an axis came with operator set 13; a bias is none of them."""
    assert not import_graph(product(opset)).host
    values = compile_model(product(opset), builtin_profile("edge4"), BY_RULES).report.values
    assert values.checked
    assert all(output.holds for output in values.outputs)


def test_a_product_that_quantises_stays_on_the_host_where_the_standard_cannot_yet() -> None:
    assert {node.op_type for node in import_graph(product(10, bias=False)).host.values()} == {"DynamicQuantizeMatMul"}


# Lengths or marks of keys, positions of a past, whether scales and zero points are of columns, attributes.
ATTENTIONS: list[tuple[list[Any] | None, int, bool, dict[str, Any]]] = [
    (None, 0, False, {}),
    ([5, 2], 0, True, {"unidirectional": 1}),
    ([[1, 1, 0, 1, 1], [1, 0, 1, 1, 0]], 0, True, {"mask_filter_value": -4.0, "scale": 0.3}),
    ([[1] * 8, [1, 0] * 4], 3, False, {"unidirectional": 1}),
]


@pytest.mark.parametrize(("mask", "past", "by_column", "attributes"), ATTENTIONS)
def test_attention_of_integers_is_a_product_and_attention(
    mask: list[Any] | None, past: int, by_column: bool, attributes: dict[str, Any]
) -> None:
    """Weights are small: ONNX Runtime's sums of large ones saturate on some processors (see frontend/runnable.py)."""
    model, (texts, tokens, heads, size) = Contributed(opset=14), (2, 5, 2, 4)
    columns = 3 * heads * size
    feeds: dict[str, NDArray[Any]] = {"x": model.random.integers(0, 256, (texts, tokens, 8), dtype=np.uint8)}
    each = (columns,) if by_column else ()
    inputs = [
        "x",
        model.constant(model.random.integers(-60, 60, (8, columns), dtype=np.int8)),
        model.weight(columns),
        model.constant(np.array(0.02, np.float32)),
        model.constant(model.random.uniform(0.002, 0.01, each), dtype=np.float32),
        "",
        model.constant(np.array(100, np.uint8)),
        model.constant(model.random.integers(-3, 3, each, dtype=np.int8)),
    ]
    if mask is not None:
        inputs[5], feeds["mask"] = "mask", np.array(mask, np.int32)
    if past:
        inputs.append("past")
        feeds["past"] = model.random.standard_normal((2, texts, heads, past, size)).astype(np.float32)
    for name, values in feeds.items():
        model.input(values.shape, name, helper.np_dtype_to_tensor_dtype(values.dtype))
    names = ["y", "present"][: 1 + bool(past)]
    node = helper.make_node("QAttention", inputs, names, domain="com.microsoft", num_heads=heads, **attributes)
    model.nodes.append(node)
    for name in names:
        model.output(name, TensorProto.FLOAT)
    assert "Softmax" in ops_that_agree(model, feeds, 1e-5)


@pytest.mark.parametrize(
    ("dtype", "attributes", "reason"),
    [
        (np.int8, {}, "data is of uint8"),
        (np.uint8, {"qkv_hidden_sizes": [8, 8, 8]}, "its attributes are among"),
        (np.uint8, {"do_rotary": 1}, "nothing is turned"),
    ],
)
def test_an_attention_of_integers_in_another_form_says_why_it_stays(
    dtype: type[np.generic], attributes: dict[str, Any], reason: str
) -> None:
    model = Contributed(opset=17)
    data = model.input([1, 3, 8], dtype=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    scale = model.constant(np.float32(0.01))
    inputs = [data, model.constant(np.ones((8, 24), np.uint8)), model.weight(24), scale, scale]
    model.output(model.node("QAttention", inputs, domain="com.microsoft", num_heads=2, **attributes))
    (host,) = model.graph().host.values()
    assert reason in host.reason
