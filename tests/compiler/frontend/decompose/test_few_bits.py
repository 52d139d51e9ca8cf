"""Weights and tables of 2, 4 and 8 bits of com.microsoft: products and rows looked up, as ONNX Runtime has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from compiler.frontend.source import ModelSource
from compiler.simulator.reference import reference_of_graph
from tests.compiler.frontend.decompose.test_contributed_fused import Contributed
from tests.models import Model

FLOAT_TYPES: Mapping[str, int] = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


def ops_that_agree(model: Model, feeds: dict[str, NDArray[Any]], tolerance: float = 2e-6) -> list[str]:
    """The kinds of the graph's ops; nothing is the host's, and values are ONNX Runtime's."""
    graph = model.graph()
    assert not graph.host
    made = reference_of_graph(graph, ModelSource.from_bytes(model.data()), feeds, wanted=set(graph.output_tensors))
    for name, expected in zip(graph.output_tensors, model.run(feeds), strict=True):
        found = made[name]
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        largest = np.abs(expected).max(initial=0)
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * largest)
    return [op.kind for op in graph.ops]


def product(
    bits: int,
    zeros: str,
    *,
    bias: bool,
    shape: tuple[int, ...] = (5,),
    inner: int = 72,
    block: int = 32,
    **attributes: Any,
) -> Contributed:
    """A product of [2, 3, inner] by a weight of 5 columns in blocks."""
    model, columns = Contributed(opset=21, ir_version=10), 5
    blocks = -(-inner // block)
    data = model.random.integers(0, 256, (columns, blocks, block * bits // 8), dtype=np.uint8)
    scales = model.random.uniform(0.1, 1, (columns, blocks))
    inputs = [model.input([2, 3, inner], "x"), model.constant(data), model.constant(scales, dtype=np.float32)]
    if zeros == "integers":
        inputs.append(model.constant(model.random.integers(0, 256, (columns, -(-blocks * bits // 8)), dtype=np.uint8)))
    else:
        inputs.append(model.weight(columns, blocks) if zeros == "floats" else "")
    if bias:
        inputs += ["", model.weight(*shape)]
    given = {"K": inner, "N": columns, "bits": bits, "block_size": block, **attributes}
    model.output(model.node("MatMulNBits", inputs, domain="com.microsoft", **given))
    return model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("bits", "zeros"),
    [(bits, zeros) for bits in (2, 4, 8) for zeros in ("", "integers", "floats") if (bits, zeros) != (8, "floats")],
)
def test_a_product_reads_weights_of_few_bits(bits: int, zeros: str, *, bias: bool) -> None:
    model = product(bits, zeros, bias=bias)
    feeds: dict[str, NDArray[Any]] = {"x": np.random.default_rng(1).standard_normal((2, 3, 72)).astype(np.float32)}
    assert ops_that_agree(model, feeds) == ["MatMulNBits", "Add"][: 1 + bias]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (product(8, "floats", bias=False), "zero points of weights of 8 bits are integers"),
        (product(4, "", bias=True, weight_prepacked=1), "weight_prepacked is 0"),
        (product(4, "", bias=True, shape=(3, 5)), "the bias has another shape"),
        (product(4, "", bias=True, shape=(1,)), "the bias has another shape"),
        (product(4, "", bias=False, block=8), "a power of 2 from 16 on"),
        (product(4, "", bias=False, block=48), "a power of 2 from 16 on"),
        (product(4, "", bias=False, more=1), "its attributes are among"),
    ],
)
def test_a_product_that_is_not_read_so_says_why(model: Contributed, reason: str) -> None:
    (host,) = model.graph().host.values()
    assert reason in host.reason


@pytest.mark.parametrize(
    ("kind", "blocks", "zeros", "indices", "dtype"),
    [
        ("2", 3, True, (2, 3), "float32"),
        ("4", 2, True, (3,), "float16"),
        ("4", 3, True, (), "float32"),
        ("4", 2, False, (2, 1, 2), "float32"),
        ("8", 2, True, (2, 3), "float32"),
        ("8", 1, False, (3,), "float32"),
        ("4", 3, True, (0,), "float32"),
        ("int4", 2, True, (2, 0), "float32"),
        ("int4", 2, True, (2, 3), "float32"),
        ("uint4", 3, False, (2,), "float32"),
    ],
)
def test_rows_of_a_table_of_few_bits_become_floats(
    kind: str, blocks: int, zeros: bool, indices: tuple[int, ...], dtype: str
) -> None:
    model, rows, block = Contributed(opset=17, ir_version=10), 7, 16

    def table(name: str, count: int) -> str:
        if kind in "248":
            size = -(-count * int(kind) // 8)
            return model.constant(model.random.integers(0, 256, (rows, size), dtype=np.uint8), name)
        low, code = (-8, TensorProto.INT4) if kind == "int4" else (0, TensorProto.UINT4)
        numbers = model.random.integers(low, low + 16, rows * count)
        model.initializers.append(helper.make_tensor(name, code, (rows, count), numbers))
        return name

    scales = model.constant(model.random.uniform(0.1, 1, (rows, blocks)), dtype=dtype)
    inputs = [table("table", blocks * block), model.input(indices, "ids", TensorProto.INT64), scales]
    inputs += [table("zeros", blocks)] if zeros else []
    attributes: dict[str, Any] = {"block_size": block, "gather_axis": 0, "quantize_axis": -1}
    attributes |= {"bits": int(kind)} if kind in "248" else {}
    made = model.node("GatherBlockQuantized", inputs, domain="com.microsoft", **attributes)
    model.output(made, FLOAT_TYPES[dtype])
    ids = np.random.default_rng(1).integers(0, rows, indices)
    kinds = ops_that_agree(model, {"ids": np.asarray(ids)}, 1e-3 if dtype == "float16" else 2e-6)
    assert ("Gather" in kinds) is (0 not in indices)


@pytest.mark.parametrize(
    ("scales", "zeros", "block", "reason"),
    [
        ((1, 2), None, 16, "scales are one for each whole block"),
        ((9, 2), None, 16, "scales are one for each whole block"),
        ((7, 4), None, 8, "block_size is a power of 2"),
        ((7, 2), (1, 1), 16, "zero points are one for each block"),
        ((7, 2), (7, 2), 16, "zero points are one for each block"),
    ],
)
def test_a_table_that_does_not_fit_its_scales_says_so(
    scales: tuple[int, int], zeros: tuple[int, int] | None, block: int, reason: str
) -> None:
    model = Contributed(opset=21, ir_version=10)
    table = model.constant(np.zeros((7, 16), np.uint8))
    inputs = [table, model.input([2], "ids", TensorProto.INT64), model.weight(*scales)]
    inputs += [model.constant(np.zeros(zeros, np.uint8))] if zeros else []
    attributes: dict[str, Any] = {"block_size": block, "gather_axis": 0, "quantize_axis": 1, "bits": 4}
    model.output(model.node("GatherBlockQuantized", inputs, domain="com.microsoft", **attributes))
    (host,) = model.graph().host.values()
    assert reason in host.reason


def test_a_table_read_along_another_axis_is_the_hosts() -> None:
    model = Contributed(opset=21, ir_version=10)
    model.initializers.append(helper.make_tensor("table", TensorProto.INT4, (16, 4), [1] * 64))
    inputs = ["table", model.input([2], "ids", TensorProto.INT64), model.weight(1, 4)]
    attributes: dict[str, Any] = {"block_size": 16, "gather_axis": 1, "quantize_axis": 0}
    model.output(model.node("GatherBlockQuantized", inputs, domain="com.microsoft", **attributes))
    assert [host.op_type for host in model.graph().host.values()] == ["GatherBlockQuantized"]
