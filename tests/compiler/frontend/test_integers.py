"""What the pass turns into integer ops, what it leaves in floats, and what its ops come from (IMPORT-9)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.frontend.integers import RunInIntegers
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.ir.verify import verify_graph
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.models import import_graph
from tests.quantised.forms import FORMS, Net, form
from tests.quantised.graphs import quantised_graph
from tests.quantised.reference import run

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


def _weight_zeros_of_inputs(net: Net) -> None:
    zeros = net.constant([0, 1, 2, 3], np.int8)
    integers, scales = net.constant(net.integers(5, 4, 3, 3), np.int8), net.constant(np.full(4, 0.1, np.float32))
    weight = net.node("DequantizeLinear", integers, scales, zeros, axis=1)
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
        _weight_zeros_of_inputs,
        _weight_scales_of_inputs,
        _matmul_scales_of_rows,
        _grouped_transposed_by_channel,
        _data_scales,
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


_MAP_PADS = [0, 0, 1, 1, 0, 0, 1, 1]


def _padded(net: Net, value: float, zero: int = 7) -> str:
    return net.node("Pad", _data(net, 1, 4, 6, 6, zero=zero), net.constant(_MAP_PADS, np.int64), net.constant(value))


@pytest.mark.parametrize(
    ("value", "integer"),
    [
        (0.0, 7),
        (np.float32(-30) * np.float32(0.03), -23),
        (np.float32(120) * np.float32(0.03), 127),
        (np.float32(121) * np.float32(0.03), None),
        (0.05, None),
        (-0.0, None),
        (float("inf"), None),
    ],
)
def test_a_pad_before_a_product_moves_integers_if_its_value_is_that_of_one(value: float, integer: int | None) -> None:
    def make(net: Net) -> None:
        net.result(net.q(net.node("Conv", _padded(net, value), net.weight(5, 4, 3, 3)), 0.05))

    graph = graph_of(make)
    if integer is None:
        assert kinds_of(graph) == ["QuantisedPad", "Conv", "QuantizeLinear"]
    else:
        assert kinds_of(graph) == ["Pad", "QuantisedConv"]
        assert attributes(graph, "Pad")["value"] == integer


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_a_pad_of_its_own_elements_moves_integers(mode: str) -> None:
    def make(net: Net) -> None:
        x = net.node("Pad", _data(net, 1, 4, 6, 6), net.constant(_MAP_PADS, np.int64), mode=mode)
        net.result(net.q(net.node("Conv", x, net.weight(5, 4, 3, 3)), 0.05))

    net = Net(19)
    make(net)
    assert kinds_of(rewritten(net.model().SerializeToString())) == ["Pad", "QuantisedConv"]


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_resize_before_a_product_moves_integers_if_it_takes_the_nearest(mode: str) -> None:
    def make(net: Net) -> None:
        given = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
        x = net.node("Resize", _data(net, 1, 4, 6, 6), "", net.constant([1, 1, 2, 2]), **given)
        net.result(net.q(net.node("Conv", x, net.weight(5, 4, 3, 3)), 0.05))

    kinds = kinds_of(graph_of(make))
    assert kinds == (
        ["Resize", "QuantisedConv"] if mode == "nearest" else ["QuantisedResize", "Conv", "QuantizeLinear"]
    )


@pytest.mark.parametrize(
    ("beside", "moves"),
    [("data", True), ("zeros", True), ("halves", False), ("another zero", False), ("floats", False)],
)
def test_a_concat_before_a_product_moves_integers_of_one_meaning(beside: str, moves: bool) -> None:
    def make(net: Net) -> None:
        other = {
            "data": lambda: _data(net, 3, 4),
            "zeros": lambda: net.constant(np.zeros((3, 4))),
            "halves": lambda: net.constant(np.full((3, 4), 0.015)),
            "another zero": lambda: _data(net, 3, 4, zero=8),
            "floats": lambda: net.input(3, 4),
        }[beside]()
        both = net.node("Concat", _data(net, 3, 4), other, axis=1)
        net.result(net.q(net.node("MatMul", both, net.weight(8, 5, axis=1)), 0.05))

    kinds = kinds_of(graph_of(make))
    assert kinds == (["Concat", "QuantisedMatMul"] if moves else ["QuantisedConcat", "MatMul", "QuantizeLinear"])


@pytest.mark.parametrize(("op_type", "kind"), [("Transpose", "QuantisedTranspose"), ("MaxPool", "MaxPool")])
def test_what_moves_to_another_scale_converts_where_it_reads_no_more_than_it_makes(op_type: str, kind: str) -> None:
    given: dict[str, Any] = {"perm": [0, 2, 3, 1]} if op_type == "Transpose" else {"kernel_shape": [2, 2]}

    def make(net: Net) -> None:
        net.result(net.q(net.node(op_type, _data(net, 1, 4, 6, 6), **given), 0.05))

    conversions = [] if op_type == "Transpose" else ["DequantizeLinear", "QuantizeLinear"]
    assert kinds_of(graph_of(make)) == [kind, *conversions]


@pytest.mark.parametrize(
    ("limits", "moves"), [(None, True), ((0.0, 3.0), True), ((-100.0, 100.0), True), ((0.0, 2.99), False)]
)
def test_limits_before_a_product_keep_integers_if_each_has_one(limits: tuple[float, float] | None, moves: bool) -> None:
    def make(net: Net) -> None:
        bounds = [net.constant(round(bound / 0.03, 4) * np.float32(0.03)) for bound in limits or ()]
        limited = net.node("Clip" if limits else "Relu", _data(net, 3, 8), *bounds)
        net.result(net.q(net.node("MatMul", limited, net.weight(8, 5, axis=1)), 0.05))

    kind = "QuantisedClip" if limits else "QuantisedRelu"
    assert kinds_of(graph_of(make)) == [kind, *(["QuantisedMatMul"] if moves else ["MatMul", "QuantizeLinear"])]


def test_limits_that_no_product_reads_give_floats() -> None:
    def make(net: Net) -> None:
        net.result(net.node("Relu", _data(net, 3, 8)), TensorProto.FLOAT)

    assert kinds_of(graph_of(make)) == ["QuantisedRelu"]


@pytest.mark.parametrize("op_type", ["ArgMax", "ArgMin"])
def test_positions_are_found_among_integers(op_type: str) -> None:
    def make(net: Net) -> None:
        net.result(net.node(op_type, _data(net, 3, 8), axis=1), TensorProto.INT64)

    assert kinds_of(graph_of(make)) == [op_type]


def test_positions_are_found_among_floats_if_unequal_integers_stand_for_equal_ones() -> None:
    """Numbers below the least float of 32 bits are 0."""

    def make(net: Net) -> None:
        net.result(net.node("ArgMax", net.dq(net.input(3, 8, kind=np.int8), 1e-45, 7), axis=1), TensorProto.INT64)
        net.result(
            net.node("ArgMax", net.dq(net.input(3, 8, kind=np.int8), float(2**127), 7), axis=1), TensorProto.INT64
        )

    assert kinds_of(graph_of(make)).count("DequantizeLinear") == 1


@pytest.mark.parametrize(
    ("op_type", "given", "parameters"),
    [
        ("Softmax", {"axis": 1}, 0),
        ("LogSoftmax", {"axis": 1}, 0),
        ("LayerNormalization", {"axis": 3}, 0),
        ("InstanceNormalization", {}, 2),
        ("LRN", {"size": 3}, 0),
        ("ReduceMean", {"axes": [1]}, 0),
        ("ReduceL2", {"axes": [2, 3]}, 0),
        ("GlobalAveragePool", {}, 0),
    ],
)
def test_normalisations_and_reductions_take_up_both_conversions(
    op_type: str, given: dict[str, Any], parameters: int
) -> None:
    """Floats inside, integers outside."""

    def make(net: Net) -> None:
        gains = [net.bias(4) for _ in range(parameters)] if parameters else []
        gains += [net.bias(6)] if op_type == "LayerNormalization" else []
        net.result(net.q(net.node(op_type, _data(net, 1, 4, 6, 6), *gains, **given), 0.05, 3))

    graph = graph_of(make)
    assert kinds_of(graph) == [f"Quantised{op_type}"]
    assert {graph.tensors[name].dtype for name in (graph.ops[0].inputs[0], graph.ops[0].output)} == {"int8"}


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


def _scales_of_the_run(kind: str, *, same: bool = False) -> onnx.ModelProto:
    """Products whose scales and zero points are inputs of the model, as its operators allow."""
    floats = TensorProto.FLOAT16 if kind.endswith("16") else TensorProto.FLOAT
    inputs: list[tuple[str, int, tuple[int, ...]]] = [
        ("a", TensorProto.UINT8, (2, 6, 8)),
        ("b", TensorProto.UINT8, (2, 8, 5)),
    ]
    scales = ["as", "as" if same else "bs"]
    inputs += [(name, floats, (1,)) for name in dict.fromkeys(scales)] + [("ys", floats, (1,))]
    inputs += [(name, TensorProto.UINT8, (1,)) for name in ("az", "bz", "yz")]
    if kind == "MatMulInteger":
        node = helper.make_node(kind, ["a", "b", "az", "bz"], ["y"])
    else:
        node = helper.make_node("QLinearMatMul", ["a", scales[0], "az", "b", scales[1], "bz", "ys", "yz"], ["y"])
    used = set(node.input)
    result = TensorProto.INT32 if kind == "MatMulInteger" else TensorProto.UINT8
    graph = helper.make_graph(
        [node],
        "run",
        [helper.make_tensor_value_info(*its) for its in inputs if its[0] in used],
        [helper.make_tensor_value_info("y", result, (2, 6, 5))],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("kind", ["MatMulInteger", "QLinearMatMul", "QLinearMatMul16"])
@pytest.mark.parametrize("chip", ["edge4", "polar4x4"])
def test_products_by_scales_of_the_run_sum_integers(chip: str, kind: str, *, same: bool) -> None:
    data = _scales_of_the_run(kind, same=same).SerializeToString()
    made = compile_model(data, builtin_profile(chip), parse_options({"fusion": "rules", "verify": "none"}))
    assert dict(made.plan.arithmetic.macs) == {"int8": 2 * 6 * 5 * 8}
    random, floats = np.random.default_rng(7), np.float16 if kind.endswith("16") else np.float32
    feeds = {name: random.integers(0, 256, shape, np.uint8) for name, shape in (("a", (2, 6, 8)), ("b", (2, 8, 5)))}
    feeds |= {"az": np.array([131], np.uint8), "bz": np.array([119], np.uint8), "yz": np.array([100], np.uint8)}
    feeds |= {"as": np.array([0.25], floats), "bs": np.array([0.5], floats), "ys": np.array([64], floats)}
    assert made.executable is not None
    names = {value.name for value in made.executable.inputs}
    found = run_executable(made.executable, {name: value for name, value in feeds.items() if name in names})["y"]
    sums = np.matmul(feeds["a"].astype(np.int64) - 131, feeds["b"].astype(np.int64) - 119)
    if kind != "MatMulInteger":
        # scales are powers of two: floats of 32 bits have every product
        steps = np.rint(sums * (0.25 * (0.25 if same else 0.5)) / 64) + 100
        sums = np.clip(steps, 0, 255)
    # what is quantised by scales of float16 is a float16
    assert np.abs(found.astype(np.int64) - sums.astype(np.int64)).max() <= (1 if kind.endswith("16") else 0)
    assert len(np.unique(found)) > 20


def test_a_scale_of_the_run_comes_behind_sums_by_scales_of_channels() -> None:
    assert kinds_of(graph_of(_scale_of_the_run))[:2] == ["QuantisedMatMul", "QuantisedMul"]


def _zero_points_of_channels_of_the_run(net: Net) -> None:
    """ConvInteger whose weight and zero points by channel are inputs, with padding."""
    x, w = net.input(1, 3, 6, 6, kind=np.uint8), net.input(4, 3, 3, 3, kind=np.uint8)
    zeros = [net.input(kind=np.uint8), net.input(4, kind=np.uint8)]
    net.result(net.node("ConvInteger", x, w, *zeros, pads=[1] * 4), TensorProto.INT32)


def _a_weight_of_the_run(net: Net) -> None:
    """A weight that is an input, dequantised by constant scales and zero points by column."""
    zeros = net.constant(net.random.integers(-9, 9, 5), np.int8)
    w = net.node("DequantizeLinear", net.input(8, 5, kind=np.int8), net.constant(net.scales(5)), zeros, axis=1)
    net.result(net.q(net.node("MatMul", _data(net, 3, 8), w), 0.05))


def _ranges_of_the_run(net: Net, shape: tuple[int, ...]) -> str:
    integers, scale, zero = net.nodes_out("DynamicQuantizeLinear", 3, net.input(*shape))
    return net.node("DequantizeLinear", integers, scale, zero)


def _a_vector_of_the_run(net: Net) -> None:
    data, weight = _ranges_of_the_run(net, (6, 17)), _ranges_of_the_run(net, (17,))
    net.result(net.q(net.node("MatMul", data, weight), 0.3))


def _groups_of_the_run(net: Net) -> None:
    data, weight = _ranges_of_the_run(net, (1, 4, 5, 5)), _ranges_of_the_run(net, (4, 3, 3, 3))
    net.result(net.q(net.node("ConvTranspose", data, weight, group=2), 0.3))


@pytest.mark.parametrize("make", [_a_vector_of_the_run, _groups_of_the_run])
def test_a_zero_point_of_the_run_needs_no_axis_of_channels(make: Make) -> None:
    net = Net()
    make(net)
    data = net.model().SerializeToString()
    made = compile_model(data, builtin_profile("edge4"), parse_options({"fusion": "rules"}))
    assert set(made.plan.arithmetic.macs) == {"int8"}
    assert [output.holds for output in made.report.values.outputs] == [True]


@pytest.mark.parametrize("make", [_zero_points_of_channels_of_the_run, _a_weight_of_the_run])
@pytest.mark.parametrize("chip", ["edge4", "polar4x4"])
def test_a_second_factor_that_is_dequantised_by_channel_need_not_be_a_constant(chip: str, make: Make) -> None:
    net = Net()
    make(net)
    model = net.model()
    made = compile_model(model.SerializeToString(), builtin_profile(chip), parse_options({"fusion": "rules"}))
    assert set(made.plan.arithmetic.macs) == {"int8"}
    assert made.executable is not None
    found = run_executable(made.executable, net.inputs)
    for name, expected in run(model, net.inputs).items():
        np.testing.assert_array_equal(found[name], expected)
        assert len(np.unique(expected)) > 5


@pytest.mark.parametrize(("kind", "attributes"), [("MaxPool", {"kernel_shape": [6, 6]}), ("ReduceMax", {})])
def test_a_scale_of_the_run_below_zero_turns_a_choice_round(kind: str, attributes: dict[str, object]) -> None:
    net = Net()
    scale = net.input()
    net.inputs[scale] = np.asarray(-0.25, np.float32)
    x = net.node("DequantizeLinear", net.input(1, 3, 6, 6, kind=np.int8), scale, net.constant(3, np.int8))
    net.result(net.node(kind, x, **attributes), TensorProto.FLOAT)
    data = net.model().SerializeToString()
    made = compile_model(data, builtin_profile("edge4"), parse_options({"fusion": "rules", "verify": "none"}))
    assert made.executable is not None
    (found,) = run_executable(made.executable, net.inputs).values()
    integers = next(array for array in net.inputs.values() if array.dtype == np.int8)
    numbers = (integers.astype(np.float32) - 3) * -0.25
    expected = numbers.max(axis=(2, 3) if kind == "MaxPool" else None, keepdims=True)
    np.testing.assert_array_equal(found, expected)
