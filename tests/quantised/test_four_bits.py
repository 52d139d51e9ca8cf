"""Weights of 4 bits stay packed: bytes, values, and forms that are refused (IMPORT-9)."""

from __future__ import annotations

from io import BytesIO
from math import ceil
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.compile import Compilation, compile_model
from compiler.errors import ModelError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.quantised.four_bits import FORMS, four_bit_file
from tests.quantised.models import dims

# Positions of the decoder's weights, and blocks of 32 of them.
_WEIGHTS = 81_920
_BLOCKS = _WEIGHTS // 32


def compiled(data: bytes, chip: str = "edge4", **options: Any) -> Compilation:
    return compile_model(
        ModelSource.from_bytes(data), builtin_profile(chip), parse_options({"fusion": "rules", **options})
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_decoder_of_4_bits_keeps_them_packed(form: str) -> None:
    """Half of the bytes of 8 bits, besides scales and zero points; values are those of the dequantised weights."""
    made = compiled(four_bit_file(form).read_bytes(), dims=dims("llama_dynamo"))
    stored = made.plan.arithmetic.weight_bytes
    zeros = 0 if form == "qdq_int4" else _BLOCKS // 2
    assert stored["uint8"] == _WEIGHTS // 2 + zeros
    assert made.plan.native.host_nodes == 0
    assert made.plan.degraded == ()
    assert [(output.holds, output.verdict) for output in made.report.values.outputs] == [(True, "plain")] * 5


def product(inner: int, columns: int, block: int, *, signed: bool, zeros: bool, rank: int = 2) -> onnx.ModelProto:
    """A product by a weight of 4 bits, quantised by blocks of the inner axis, by column (0) or whole (-1)."""
    random = np.random.default_rng([inner, columns, max(0, block)])
    kind = ml_dtypes.int4 if signed else ml_dtypes.uint4
    low, high = (-8, 8) if signed else (0, 16)
    shape = () if block < 0 else (columns,) if block == 0 else (ceil(inner / block), columns)
    arrays = {
        "w": random.integers(low, high, (inner, columns)).astype(kind),
        "s": random.uniform(0.01, 0.1, shape).astype(np.float32),
    }
    if zeros:
        arrays["z"] = random.integers(low, high, shape).astype(kind)
    attributes: dict[str, Any] = {"axis": 0, "block_size": block} if block > 0 else {"axis": 1}
    lead = [2, 3][: rank - 1]
    nodes = [
        helper.make_node("DequantizeLinear", list(arrays), ["d"], **attributes),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [*lead, inner])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [*lead, columns])],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize(
    ("inner", "columns", "block", "rank"),
    [(64, 24, 32, 2), (48, 7, 16, 3), (40, 5, 16, 2), (33, 9, 0, 2), (64, 20, -1, 3), (300, 300, 30, 2)],
)
def test_products_of_4_bits_equal_those_of_the_dequantised_weight(
    inner: int, columns: int, block: int, rank: int, *, signed: bool, zeros: bool
) -> None:
    model = product(inner, columns, block, signed=signed, zeros=zeros, rank=rank)
    made = compiled(model.SerializeToString())
    assert made.executable is not None
    assert made.plan.native.host_nodes == 0
    blocks = ceil(inner / block) if block > 0 else 1
    padded = blocks * block if block > 0 else inner + inner % 2
    packed = columns * padded // 2
    least = packed + (columns * ceil(blocks / 2) if zeros or not signed else 0)
    assert made.plan.arithmetic.weight_bytes["uint8"] == least
    x = np.random.default_rng(1).standard_normal([d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim])
    arrays = {item.name: numpy_helper.to_array(item).astype(np.float64) for item in model.graph.initializer}
    scale, zero = arrays["s"], arrays.get("z", np.zeros(()))
    if block > 0:
        scale, zero = (np.repeat(v, block, axis=0)[:inner] if v.ndim else v for v in (scale, zero))
    weight = ((arrays["w"] - zero) * scale).astype(np.float32)
    got = run_executable(made.executable, {"x": x.astype(np.float32)})["y"]
    expected = x.astype(np.float32).astype(np.float64) @ weight.astype(np.float64)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_weights_of_4_bits_come_from_external_data(tmp_path: Path) -> None:
    """Large ones lie beside the model or in its file; both are read as they lie."""
    model = product(512, 512, 32, signed=True, zeros=False)
    whole = compiled(model.SerializeToString())
    onnx.save(model, str(tmp_path / "model.onnx"), save_as_external_data=True, size_threshold=0, location="model.data")
    archive = BytesIO()
    with ZipFile(archive, "w") as zipped:
        for name in ("model.onnx", "model.data"):
            zipped.write(tmp_path / name, name)
    apart = compiled(archive.getvalue())
    assert apart.plan.arithmetic == whole.plan.arithmetic
    assert apart.report.values.outputs == whole.report.values.outputs


@pytest.mark.parametrize("count", [1, 2047, 2049])
def test_bytes_that_do_not_fit_the_shape_are_refused(count: int) -> None:
    model = product(64, 64, 32, signed=True, zeros=False)
    weight = next(item for item in model.graph.initializer if item.name == "w")
    weight.raw_data = bytes(count)
    with pytest.raises(ModelError, match="do not fit"):
        compiled(model.SerializeToString())


@pytest.mark.parametrize(
    ("change", "value"), [("bits", 8), ("block_size", 16), ("K", 62), ("N", 65), ("block_size", 33), ("block_size", 0)]
)
def test_a_product_that_contradicts_its_attributes_is_the_hosts(change: str, value: int) -> None:
    model = onnx.load(four_bit_file("matmul_nbits"))
    node = next(node for node in model.graph.node if node.op_type == "MatMulNBits")
    next(item for item in node.attribute if item.name == change).i = value
    made = compile_model(
        ModelSource.from_bytes(model.SerializeToString()),
        builtin_profile("edge4"),
        parse_options({"fusion": "rules", "dims": dims("llama_dynamo"), "verify": "none"}),
    )
    assert made.plan.native.host_nodes == 1
