"""Quantised products between conversions: values by the definitions against ONNX Runtime (IMPORT-5).

Weights are of 7 bits: on processors without VNNI ONNX Runtime adds pairs of 8-bit products in 16 bits, which saturate.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.compiler.frontend.decompose.replacing import agree, results
from tests.compiler.ops.calls import Values
from tests.models import run_reference


def by_runtime(node: onnx.NodeProto, feeds: Mapping[str, Values], opset: int, dtype: int) -> Values:
    """The node's output by ONNX Runtime."""
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()],
        [helper.make_tensor_value_info(node.output[0], dtype, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    result: Values = run_reference(model, feeds)[0]
    return result


def almost(found: Values, expected: Values) -> None:
    """Equal up to one unit where a quotient lies between two integers."""
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    gap = np.abs(found.astype(np.int32) - expected.astype(np.int32))
    assert gap.max() <= 1
    assert (gap > 0).mean() <= 0.02


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("by_filter", [True, False])
def test_a_quantised_convolution_keeps_its_values(bias: bool, by_filter: bool) -> None:
    """IMPORT-5: the tensors between the conversions are of 8 bits, so they cross memories at their real size."""
    random = np.random.default_rng(9)
    count = (4,) if by_filter else ()
    feeds: dict[str, Values] = {
        "x": random.integers(0, 256, (1, 2, 7, 6)).astype(np.uint8),
        "xs": np.array(0.02, np.float32),
        "xz": np.array(120, np.uint8),
        "w": random.integers(-64, 64, (4, 2, 3, 3)).astype(np.int8),
        "ws": np.asarray(random.random(count) * 0.02 + 0.01, dtype=np.float32),
        "wz": np.zeros(count, np.int8),
        "ys": np.array(0.11, np.float32),
        "yz": np.array(101, np.uint8),
    }
    if bias:
        feeds["b"] = random.integers(-900, 900, 4).astype(np.int32)
    node = helper.make_node("QLinearConv", list(feeds), ["y"], strides=[2, 1], pads=[1, 0, 0, 1])
    values, used = results(node, feeds, 13)
    almost(values["y"], by_runtime(node, feeds, 13, onnx.TensorProto.UINT8))
    assert (used["DequantizeLinear"], used["QuantizeLinear"], used["Conv"]) == (3 if bias else 2, 1, 1)


@pytest.mark.parametrize("by_column", [True, False])
def test_a_quantised_product_keeps_its_values(by_column: bool) -> None:
    random = np.random.default_rng(4)
    count = (5,) if by_column else ()
    feeds: dict[str, Values] = {
        "a": random.integers(0, 256, (2, 3, 8)).astype(np.uint8),
        "as": np.array(0.01, np.float32),
        "az": np.array(100, np.uint8),
        "b": random.integers(-64, 64, (8, 5)).astype(np.int8),
        "bs": np.asarray(random.random(count) * 0.02 + 0.01, dtype=np.float32),
        "bz": np.asarray(random.integers(-5, 5, count), dtype=np.int8),
        "ys": np.array(0.05, np.float32),
        "yz": np.array(90, np.uint8),
    }
    node = helper.make_node("QLinearMatMul", list(feeds), ["y"])
    values, _ = results(node, feeds, 13)
    almost(values["y"], by_runtime(node, feeds, 13, onnx.TensorProto.UINT8))


@pytest.mark.parametrize("zeros", [0, 1, 2])
def test_integer_products_keep_their_sums(zeros: int) -> None:
    random = np.random.default_rng(6)
    feeds: dict[str, Values] = {
        "a": random.integers(0, 256, (3, 40)).astype(np.uint8),
        "b": random.integers(0, 256, (40, 5)).astype(np.uint8),
        "az": np.array(7, np.uint8),
        "bz": random.integers(0, 256, 5).astype(np.uint8),
    }
    node = helper.make_node("MatMulInteger", list(feeds)[: 2 + zeros], ["y"])
    feeds = {name: feeds[name] for name in node.input}
    values, _ = results(node, feeds, 13)
    agree(values["y"], by_runtime(node, feeds, 13, onnx.TensorProto.INT32), 0)
    feeds = {"x": random.integers(0, 256, (1, 2, 5, 5)).astype(np.uint8), "w": feeds["b"][:18].reshape(5, 2, 3, 3)}
    feeds |= dict(list({"xz": np.array(7, np.uint8), "wz": np.array(3, np.uint8)}.items())[:zeros])
    node = helper.make_node("ConvInteger", list(feeds), ["y"], pads=[1, 1, 1, 1])
    values, _ = results(node, feeds, 13)
    agree(values["y"], by_runtime(node, feeds, 13, onnx.TensorProto.INT32), 0)
