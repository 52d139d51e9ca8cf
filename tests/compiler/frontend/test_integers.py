"""What the pass turns into integer ops, what it leaves in floats, and what its ops come from (IMPORT-9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.frontend.integers import RunInIntegers
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.ir.verify import verify_graph
from compiler.options import parse_options
from compiler.profile import builtin_profile
from tests.models import import_graph
from tests.quantised.forms import FORMS, Net, form
from tests.quantised.graphs import quantised_graph

Make = Callable[[Net], None]


def rewritten(data: bytes, arrays: Sequence[str] = ("int8",)) -> Graph:
    """The graph of a model after the pass, verified."""
    graph = RunInIntegers(source=ModelSource.from_bytes(data), arrays=tuple(arrays)).run(import_graph(data))
    verify_graph(graph)
    return graph


def graph_of(make: Make, arrays: Sequence[str] = ("int8",)) -> Graph:
    """The same of a model that a function makes."""
    net = Net()
    make(net)
    return rewritten(net.model().SerializeToString(), arrays)


def kinds_of(graph: Graph) -> list[str]:
    """The kinds of a graph's ops, in order."""
    return [op.kind for op in graph.ops]


def the(graph: Graph, kind: str) -> Op:
    """The only op of a kind."""
    (op,) = (op for op in graph.ops if op.kind == kind)
    return op


def attributes(graph: Graph, kind: str) -> dict[str, Any]:
    """The attributes of the only op of a kind."""
    return dict(the(graph, kind).attributes)


def _data(net: Net, *shape: int, zero: int = 7, kind: Any = np.int8) -> str:
    return net.dq(net.input(*shape, kind=kind), 0.03, zero, kind)


def _product(net: Net) -> str:
    return net.node("Conv", _data(net, 1, 4, 6, 6), net.weight(5, 4, 3, 3), net.bias(5))


def test_a_graph_without_conversions_is_returned_itself() -> None:
    net = Net()
    net.result(net.node("Relu", net.input(2, 3)), TensorProto.FLOAT)
    data = net.model().SerializeToString()
    graph = import_graph(data)
    assert RunInIntegers(source=ModelSource.from_bytes(data), arrays=("int8",)).run(graph) is graph


def test_a_product_takes_up_its_conversions_and_limits() -> None:
    def make(net: Net) -> None:
        net.result(net.q(net.node("Clip", _product(net), net.constant(0.0), net.constant(6.0)), 0.05, -100))

    graph = graph_of(make)
    assert kinds_of(graph) == ["QuantisedConv"]
    own = attributes(graph, "QuantisedConv")
    assert (own["least"], own["most"], own["result_zero"], own["result_type"]) == (-100, 20, -100, "int8")
    assert own["input_zeros"] == (7, 0)
    data, weight, bias, scales = (graph.tensors[name] for name in the(graph, "QuantisedConv").inputs)
    assert (data.dtype, weight.dtype, bias.dtype, scales.dtype) == ("int8", "int8", "float32", "float32")
    assert scales.shape == (5,)


@pytest.mark.parametrize("second", ["a reader", "the output", "two conversions"])
def test_a_product_that_several_read_gives_floats(second: str) -> None:
    """The rounding of its integers would be seen by the others."""

    def make(net: Net) -> None:
        product = _product(net)
        net.result(net.q(product, 0.05))
        if second == "a reader":
            net.result(net.node("Exp", product), TensorProto.FLOAT)
        elif second == "the output":
            net.result(product, TensorProto.FLOAT)
        else:
            net.result(net.q(product, 0.1))

    graph = graph_of(make)
    assert attributes(graph, "QuantisedConv")["result_scale"] == 0
    assert graph.tensors[the(graph, "QuantisedConv").output].dtype == "float32"
    assert kinds_of(graph).count("QuantizeLinear") == (2 if second == "two conversions" else 1)


def test_a_rectified_product_that_is_an_output_too_gives_floats() -> None:
    def make(net: Net) -> None:
        rectified = net.node("Relu", _product(net))
        net.result(rectified, TensorProto.FLOAT)
        net.result(net.q(rectified, 0.05))

    graph = graph_of(make)
    assert attributes(graph, "QuantisedConv")["result_scale"] == 0
    assert kinds_of(graph) == ["QuantisedConv", "Relu", "QuantizeLinear"]


def _weight_zeros(net: Net) -> None:
    zeros = net.constant([0, 1, 2, 3, 4], np.int8)
    integers, scales = net.constant(net.integers(5, 4, 3, 3), np.int8), net.constant(net.scales(5))
    weight = net.node("DequantizeLinear", integers, scales, zeros, axis=0)
    net.result(net.q(net.node("Conv", _data(net, 1, 4, 6, 6), weight), 0.05))


def _weight_scales_of_inputs(net: Net) -> None:
    net.result(net.q(net.node("Conv", _data(net, 1, 4, 6, 6), net.weight(5, 4, 3, 3, axis=1)), 0.05))


def _matmul_scales_of_rows(net: Net) -> None:
    net.result(net.q(net.node("MatMul", _data(net, 3, 8), net.weight(8, 5, axis=0)), 0.05))


def _grouped_transposed_by_channel(net: Net) -> None:
    weight = net.weight(4, 3, 2, 2, axis=1)
    net.result(net.q(net.node("ConvTranspose", _data(net, 1, 4, 5, 5), weight, group=2), 0.05))


def _data_scales(net: Net) -> None:
    scales, zeros = net.constant(net.scales(4)), net.constant(np.zeros(4), np.int8)
    x = net.node("DequantizeLinear", net.input(1, 4, 6, 6, kind=np.int8), scales, zeros, axis=1)
    net.result(net.q(net.node("Conv", x, net.weight(5, 4, 3, 3)), 0.05))


def _scale_of_the_run(net: Net) -> None:
    x = net.node("DequantizeLinear", net.input(3, 8, kind=np.int8), net.input(), net.constant(0, np.int8))
    net.result(net.q(net.node("MatMul", x, net.weight(8, 5, axis=1)), 0.05))


def _float_weight(net: Net) -> None:
    net.result(net.q(net.node("MatMul", _data(net, 3, 8), net.constant(net.random.uniform(-1, 1, (8, 5)))), 0.05))


def _float_data(net: Net) -> None:
    net.result(net.q(net.node("MatMul", net.input(3, 8), net.weight(8, 5, axis=1)), 0.05))


def _scaled_gemm(net: Net) -> None:
    net.result(net.q(net.node("Gemm", _data(net, 3, 8), net.weight(8, 5, axis=1), alpha=0.5), 0.05))


def _too_deep(net: Net) -> None:
    x, weight = (
        _data(net, 1, 33_026, zero=0, kind=np.uint8),
        net.constant(net.integers(33_026, 1, kind=np.uint8), np.uint8),
    )
    net.result(net.q(net.node("MatMul", x, net.dq(weight, 1e-4, 0, np.uint8)), 0.05))


@pytest.mark.parametrize(
    "make",
    [
        _weight_zeros,
        _weight_scales_of_inputs,
        _matmul_scales_of_rows,
        _grouped_transposed_by_channel,
        _data_scales,
        _scale_of_the_run,
        _float_weight,
        _float_data,
        _scaled_gemm,
        _too_deep,
    ],
)
def test_a_product_that_no_integer_sum_is_stays_in_floats(make: Make) -> None:
    kinds = set(kinds_of(graph_of(make)))
    assert kinds & {"Conv", "ConvTranspose", "MatMul", "Gemm"}
    assert not kinds & {"QuantisedConv", "QuantisedConvTranspose", "QuantisedMatMul", "QuantisedGemm"}


def test_sums_that_just_fit_an_accumulator_of_32_bits_are_integers() -> None:
    """255 · 255 · 33,025 < 2^31 ≤ 255 · 255 · 33,026."""

    def make(net: Net) -> None:
        x = _data(net, 1, 33_025, zero=0, kind=np.uint8)
        weight = net.constant(net.integers(33_025, 1, kind=np.uint8), np.uint8)
        net.result(net.q(net.node("MatMul", x, net.dq(weight, 1e-4, 0, np.uint8)), 0.05))

    assert kinds_of(graph_of(make)) == ["QuantisedMatMul"]


@pytest.mark.parametrize(
    ("scale", "dtype"), [(0.03 * 0.008, "int32"), (0.03 * 0.008 * (1 + 5e-7), "int32"), (0.03 * 0.0081, "float32")]
)
def test_a_bias_is_an_integer_where_it_counts_in_units_of_the_sum(scale: float, dtype: str) -> None:
    def make(net: Net) -> None:
        bias = net.node("DequantizeLinear", net.constant(np.arange(1, 6) * 99, np.int32), net.constant(scale))
        net.result(net.q(net.node("Conv", _data(net, 1, 4, 6, 6), net.weight(5, 4, 3, 3, axis=None), bias), 0.05))

    graph = graph_of(make)
    assert graph.tensors[the(graph, "QuantisedConv").inputs[2]].dtype == dtype


def test_a_bias_that_leaves_an_accumulator_of_32_bits_does_not_join_the_sums() -> None:
    def make(net: Net) -> None:
        scale = np.float32(0.03) * np.float32(0.008)
        bias = net.node("DequantizeLinear", net.constant([2**31 - 1] * 5, np.int32), net.constant(scale))
        net.result(net.q(net.node("Gemm", _data(net, 3, 8), net.weight(8, 5, axis=None), bias), 0.05))

    graph = graph_of(make)
    joined = [op for op in graph.ops if op.kind == "QuantisedGemm" and graph.tensors[op.inputs[2]].dtype == "int32"]
    assert joined == []


def test_a_chip_without_an_array_of_integers_multiplies_floats() -> None:
    def make(net: Net) -> None:
        pooled = net.node("AveragePool", net.qdq(_product(net), 0.05), kernel_shape=[2, 2])
        net.result(net.q(pooled, 0.05))

    assert kinds_of(graph_of(make, ("float32",))) == [
        "DequantizeLinear",
        "Conv",
        "QuantizeLinear",
        "QuantisedAveragePool",
    ]


def test_limits_of_the_run_stay_an_op() -> None:
    def make(net: Net) -> None:
        net.result(net.q(net.node("Clip", _product(net), net.input(), net.constant(6.0)), 0.05))

    graph = graph_of(make)
    assert kinds_of(graph)[0] == "QuantisedConv"
    assert attributes(graph, "QuantisedConv")["result_scale"] == 0
    assert "Clip" in kinds_of(graph)[1]


def test_a_result_of_scales_by_channel_is_rounded_by_an_op_of_its_own() -> None:
    def make(net: Net) -> None:
        scales, zeros = net.constant(net.scales(5)), net.constant(np.zeros(5), np.int8)
        net.result(net.node("QuantizeLinear", _product(net), scales, zeros, axis=1))

    assert kinds_of(graph_of(make)) == ["QuantisedConv", "QuantizeLinear"]


@pytest.mark.parametrize(
    ("op_type", "given"),
    [
        ("MaxPool", {"kernel_shape": [2, 2]}),
        ("Transpose", {"perm": [0, 2, 3, 1]}),
        ("Flatten", {"axis": 1}),
        ("DepthToSpace", {"blocksize": 2}),
    ],
)
@pytest.mark.parametrize("rounds", [False, True])
def test_what_moves_elements_moves_integers(op_type: str, given: dict[str, Any], rounds: bool) -> None:
    """Between conversions of one scale nothing else remains; without the second the floats come behind."""

    def make(net: Net) -> None:
        moved = net.node(op_type, _data(net, 1, 4, 6, 6), **given)
        net.result(net.q(moved, 0.03, 7) if rounds else moved, TensorProto.INT8 if rounds else TensorProto.FLOAT)

    graph = graph_of(make)
    kinds = kinds_of(graph)
    assert kinds[1:] == ([] if rounds else ["DequantizeLinear"])
    assert graph.tensors[graph.ops[0].output].dtype == "int8"
    assert not kinds[0].startswith("Quantised")


def test_integers_move_up_to_a_product() -> None:
    def make(net: Net) -> None:
        x = net.node(
            "Reshape", net.node("Transpose", _data(net, 1, 4, 6, 6), perm=[0, 2, 3, 1]), net.constant([36, 4], np.int64)
        )
        net.result(net.q(net.node("MatMul", x, net.weight(4, 5, axis=1)), 0.05))

    assert kinds_of(graph_of(make)) == ["Transpose", "Reshape", "QuantisedMatMul"]


@pytest.mark.parametrize(("zero", "kind"), [(7, "Concat"), (8, "QuantisedConcat")])
def test_a_concat_of_one_scale_only_moves(zero: int, kind: str) -> None:
    def make(net: Net) -> None:
        both = net.node("Concat", _data(net, 2, 3), _data(net, 2, 3, zero=zero), axis=1)
        net.result(net.q(both, 0.03, 7))

    assert kinds_of(graph_of(make)) == [kind]


def test_weights_stay_integers_however_they_are_moved() -> None:
    def make(net: Net) -> None:
        weight = net.node("Transpose", net.weight(5, 8), perm=[1, 0])
        net.result(net.q(net.node("MatMul", _data(net, 3, 8), weight), 0.05))

    graph = graph_of(make)
    op = the(graph, "QuantisedMatMul")
    weight, scales = graph.tensors[op.inputs[1]], graph.tensors[op.inputs[3]]
    assert (weight.dtype, weight.stored_dtype, weight.shape) == ("int8", "int8", (8, 5))
    assert scales.shape == (5,)


def test_a_dynamic_zero_point_is_an_operand() -> None:
    def make(net: Net) -> None:
        values, scale, zero = net.nodes_out("DynamicQuantizeLinear", 3, net.input(3, 8))
        sums = net.node("MatMulInteger", values, net.constant(net.integers(8, 5), np.int8), zero)
        net.result(net.node("Mul", net.node("Cast", sums, to=TensorProto.FLOAT), scale), TensorProto.FLOAT)

    graph = graph_of(make)
    op = the(graph, "QuantisedMatMul")
    assert len(op.inputs) == 5
    assert graph.tensors[op.inputs[4]].constant is None


@pytest.mark.parametrize("scale", [0.0, float("inf"), float("nan"), -0.1])
def test_a_scale_that_is_no_positive_number_is_left_alone(scale: float) -> None:
    """What it means is the conversion's own affair."""

    def make(net: Net) -> None:
        net.result(net.q(_product(net), scale))

    graph = graph_of(make)
    assert kinds_of(graph) == ["QuantisedConv", "QuantizeLinear"]


def several(graph: Graph, data: bytes) -> dict[str, int]:
    """Of the nodes of a model those that are not in the origin of exactly one op, nor folded, and of how many.

    Floats that are made of integers for those that read no integers do not count where another op has the node: what
    takes up a conversion, or what moves the integers.
    """
    names = [node.name for node in onnx.load_from_string(data).graph.node if node.op_type != "Constant"]
    counts = Counter(node for op in graph.ops for node in op.origin if op.kind != "DequantizeLinear")
    alone = Counter(node for op in graph.ops for node in op.origin if op.kind == "DequantizeLinear")
    found = {name: counts[name] or alone[name] for name in names if name not in graph.folded}
    return {name: count for name, count in found.items() if count != 1}


def _assert_one_origin(data: bytes) -> None:
    before = several(import_graph(data), data)
    for name, count in several(rewritten(data), data).items():
        assert 1 < count <= before[name]  # what the import had made several ops of


@pytest.mark.parametrize("name", sorted(FORMS))
def test_every_node_of_a_form_is_the_origin_of_one_op_or_folded(name: str) -> None:
    _assert_one_origin(form(name).model().SerializeToString())


@pytest.mark.parametrize("seed", range(40))
def test_every_node_of_a_random_graph_is_the_origin_of_one_op_or_folded(seed: int) -> None:
    _assert_one_origin(quantised_graph(seed).model.SerializeToString())


def _with_a_float_product(net: Net) -> None:
    x = net.node("Tanh", net.qdq(_product(net), 0.05))
    net.result(net.q(net.node("Conv", x, net.constant(net.random.uniform(-1, 1, (3, 5, 1, 1)))), 0.05))


def test_a_chip_of_integers_leaves_float_products_to_the_host_with_the_reason() -> None:
    net = Net()
    _with_a_float_product(net)
    data = net.model().SerializeToString()
    plan = compile_model(data, builtin_profile("polar4x4"), parse_options({"fusion": "rules"})).plan
    (host,) = (segment for segment in plan.segments if segment.kind == "host")
    reasons = [node.reason for node in host.host]
    assert reasons == ["the profile has no matrix array for element type float32 (it has int8)"]
    assert set(plan.arithmetic.macs) == {"int8"}
    with pytest.raises(ModelError, match="strict"):
        compile_model(data, builtin_profile("polar4x4"), parse_options({"strict": True}))
