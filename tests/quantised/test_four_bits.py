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

from compiler.compile import Compilation, compile_model, plan_model
from compiler.errors import ModelError
from compiler.frontend.integers import RunInIntegers
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.models import Model, import_graph
from tests.quantised.forms import Net, form
from tests.quantised.four_bits import FORMS, four_bit_file
from tests.quantised.models import Form, dims, quantised_file
from tests.quantised.reference import run

# Positions of the decoder's weights, and blocks of 32 of them.
_WEIGHTS = 81_920
_BLOCKS = _WEIGHTS // 32


def compiled(data: bytes, chip: str = "edge4", **options: Any) -> Compilation:
    return compile_model(
        ModelSource.from_bytes(data), builtin_profile(chip), parse_options({"fusion": "rules", **options})
    )


@pytest.mark.matrix(first=1, rest=2)
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


@pytest.mark.matrix(first=8, rest=8)
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


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize(
    ("change", "value"), [("bits", 8), ("block_size", 16), ("K", 62), ("N", 65), ("block_size", 33), ("block_size", 0)]
)
def test_a_product_that_contradicts_its_attributes_is_the_hosts(change: str, value: int) -> None:
    model = onnx.load(four_bit_file("matmul_nbits"))
    node = next(node for node in model.graph.node if node.op_type == "MatMulNBits")
    next(item for item in node.attribute if item.name == change).i = value
    made = plan_model(
        ModelSource.from_bytes(model.SerializeToString()),
        builtin_profile("edge4"),
        parse_options({"fusion": "rules", "dims": dims("llama_dynamo")}),
    )
    assert made.plan.native.host_nodes == 1


# The bytes of a form's integers: each filter, column, or input channel of groups fills whole bytes, and a zero point is
# of each input that is rounded.
_FORMS_BYTES = {
    "convolutions_of_4_bits": 8 * 14 + 12 * 9 + 24 * 13 + 1,
    "transposed_convolutions_of_4_bits": 6 * 23 + 6 * 14 + 1,
    "products_of_4_bits": 6 * 8 + 6 * 8 + 7 * 8 + 3 * 6 * 5 + 2,
}


@pytest.mark.parametrize("name", sorted(_FORMS_BYTES))
def test_factors_of_integers_stay_packed(name: str) -> None:
    plan = compiled(form(name).model().SerializeToString(), "polar4x4").plan
    stored = plan.arithmetic.weight_bytes
    assert stored["uint8"] + stored["int8"] == _FORMS_BYTES[name]
    assert set(plan.arithmetic.macs) == {"int8"}


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("chip", ["edge4", "polar4x4"])
@pytest.mark.parametrize("network", ["bert_dynamo", "resnet_dynamo"])
def test_a_network_by_onnx_runtimes_static_quantiser_has_half_the_bytes_of_8_bits(
    network: str, chip: str, tmp_path: Path
) -> None:
    """Its conversions are ONNX Runtime's own, of constants of 4 bits that lie in the file."""

    def plan_of(form: Form) -> Any:
        made = compiled(quantised_file(network, form, tmp_path).read_bytes(), chip, dims=dims(network))
        assert [output.holds for output in made.report.values.outputs].count(False) == 0
        assert made.plan.native.host_nodes == 0
        assert set(made.plan.arithmetic.macs) == {"int8"}
        return made.plan

    eight, four = plan_of("int8"), plan_of("int4")
    stored = {key: dict(plan.arithmetic.weight_bytes) for key, plan in (("8", eight), ("4", four))}
    in_eight = stored["8"]["int8"] - stored["4"].get("int8", 0)
    assert 0 <= stored["4"]["uint8"] - in_eight / 2 <= 0.01 * in_eight
    assert four.totals.dram_bytes < eight.totals.dram_bytes - 0.4 * in_eight


def _gemm(inner: int, columns: int, turned: int, *, bias: bool, signed: bool = True) -> tuple[Net, str]:
    """A Gemm of floats by a weight of 4 bits with a scale per output channel; the name of its weight."""
    net = Net(21)
    shape, axis = ((columns, inner), 0) if turned else ((inner, columns), 1)
    weight = net.four_bits(*shape, axis=axis, signed=signed, zero=3)
    factors = [net.input(5, inner), weight, *([net.bias(columns)] if bias else [])]
    net.result(net.node("Gemm", *factors, transB=turned), TensorProto.FLOAT)
    return net, weight


@pytest.mark.parametrize("turned", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("inner", "columns"), [(15, 6), (300, 200)])
def test_a_gemm_of_floats_keeps_its_weight_packed(inner: int, columns: int, turned: int, *, bias: bool) -> None:
    net, _ = _gemm(inner, columns, turned, bias=bias, signed=not bias)
    data = net.model().SerializeToString()
    graph = RunInIntegers(source=ModelSource.from_bytes(data), arrays=("int8",)).run(import_graph(data))
    assert [op.kind for op in graph.ops] == ["MatMulNBits", "Add"][: 1 + bias]
    made = compiled(data)
    assert made.executable is not None
    assert made.plan.arithmetic.weight_bytes["uint8"] == columns * ceil(inner / 2) + columns  # a zero point each
    for name, expected in run(net.model(), net.inputs).items():
        got = run_executable(made.executable, net.inputs)[name]
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("attribute", [{"alpha": 2.0}, {"beta": 0.5}, {"transA": 1}])
def test_a_gemm_that_does_more_is_no_packed_product(attribute: dict[str, Any]) -> None:
    net = Net(21)
    product = net.node("Gemm", net.input(16, 16), net.four_bits(16, 6, axis=1), net.bias(6), **attribute)
    net.result(product, TensorProto.FLOAT)
    made = compiled(net.model().SerializeToString())
    assert "uint8" not in made.plan.arithmetic.weight_bytes
    assert [output.holds for output in made.report.values.outputs] == [True]


def test_weights_by_blocks_stay_packed_and_float_with_data_of_8_bits() -> None:
    """No sum of integers gives the product; the plan says so."""
    model = product(64, 24, 32, signed=True, zeros=False)
    graph = model.graph
    graph.initializer.append(numpy_helper.from_array(np.asarray(0.03, np.float32), "xs"))
    graph.initializer.append(numpy_helper.from_array(np.asarray(3, np.int8), "xz"))
    graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "xs", "xz"], ["q"]))
    graph.node.insert(1, helper.make_node("DequantizeLinear", ["q", "xs", "xz"], ["f"]))
    graph.node[-1].input[0] = "f"
    made = compiled(model.SerializeToString())
    assert made.plan.arithmetic.weight_bytes["uint8"] == 64 * 24 // 2
    (entry,) = made.plan.arithmetic.float_products
    assert "scales or zero points by block" in entry.reason
    assert [output.holds for output in made.report.values.outputs] == [True]


@pytest.mark.parametrize("data_bits", [8, 32])
def test_deep_sums_by_weights_of_4_bits_run_on_the_chip(data_bits: int) -> None:
    """Their sums are not made in parts, which the tiling has to know."""
    if data_bits == 32:
        model = product(9216, 1000, 0, signed=True, zeros=False)
    else:
        net = Net(21)
        x = net.qdq(net.input(2, 9216), 0.03, 3)
        net.result(net.q(net.node("MatMul", x, net.four_bits(9216, 1000, axis=1)), 9.0))
        model = net.model()
    made = compiled(model.SerializeToString())
    assert (made.plan.native.host_nodes, made.plan.degraded) == (0, ())
    assert [output.holds for output in made.report.values.outputs] == [True]


@pytest.mark.slow
def test_stationary_weights_of_4_bits_are_cut_by_output_channels() -> None:
    """PART-3: beyond a chip's memory, several products take their place."""
    net = Net(21)
    x = net.qdq(net.input(1, 9216), 0.03, 3)
    net.result(net.q(net.node("Gemm", x, net.four_bits(9000, 9216), net.bias(9000), transB=1), 9.0))
    made = compiled(net.model().SerializeToString(), "manycore2x64")
    assert len(made.plan.segments) == 2
    assert sum(segment.weight_bytes for segment in made.plan.segments) // 9000 == 9216 // 2 + 8  # bias and scale
    assert [output.holds for output in made.report.values.outputs] == [True]


@pytest.mark.parametrize("kind", ["int4", "uint4"])
def test_the_host_reads_constants_of_4_bits_that_lie_in_the_file(kind: str) -> None:
    values = np.random.default_rng(3).integers(0, 8, 5001).astype(getattr(ml_dtypes, kind))
    model = Model(opset=21, ir_version=10)
    model.initializers.append(numpy_helper.from_array(values, "w"))
    there = model.node("Gather", [model.node("Cast", ["w"], to=TensorProto.FLOAT), model.input([3], "i", 7)], out="y")
    model.output(there)
    made = compiled(model.data(), verify="none")
    assert made.executable is not None
    got = run_executable(made.executable, {"i": np.array([0, 77, 5000])})["y"]
    assert got.tolist() == values[[0, 77, 5000]].astype(np.float32).tolist()
