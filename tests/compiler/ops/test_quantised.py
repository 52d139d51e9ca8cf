"""Quantised forms of ops: whole, box by box, in parts of sums and through windows, equal to the exact reference."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from compiler.errors import InternalError
from compiler.frontend.constant_values import materialise
from compiler.frontend.integers import RunInIntegers
from compiler.frontend.source import ModelSource
from compiler.ir.verify import verify_graph
from compiler.ops import ALL_KINDS, call_of
from compiler.ops.base import Call, OpKind
from compiler.ops.contraction import Product
from compiler.ops.quantised import DATA_ZERO, PREFIX, WEIGHT_SCALE, QuantisedProduct
from compiler.ops.slab import Box, Slab, inside
from compiler.ops.windows import windows
from tests.compiler.ops.calls import Values
from tests.compiler.ops.test_boxes import boxes
from tests.models import import_graph
from tests.quantised.forms import Net
from tests.quantised.reference import run

Attributes = Mapping[str, Any]
_INT8, _UINT8 = np.int8, np.uint8


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One op in its quantised form: its call, its operands by input (None if omitted) and what the reference gives."""

    kind: OpKind
    call: Call
    operands: tuple[Values | None, ...]
    expected: Values

    @property
    def result(self) -> Values:
        """The whole result by the definition."""
        return np.asarray(self.kind.compute(self.call, tuple(array for array in self.operands if array is not None)))

    def slabs(self, box: Box) -> tuple[Slab | None, ...]:
        """The operands' boxes that a box of the result demands, and nothing else of them."""
        demanded = self.kind.demanded(self.call, box)
        return tuple(
            None
            if array is None or ranges is None or any(a >= b for a, b in ranges)
            else Slab(ranges, array[tuple(slice(*r) for r in ranges)].copy())
            for array, ranges in zip(self.operands, demanded, strict=True)
        )


def case_of(make: Callable[[Net], None]) -> Case:
    """The only op of a model after the pass, with the reference's result."""
    net = Net()
    make(net)
    model = net.model()
    onnx.checker.check_model(model)
    data = model.SerializeToString()
    source = ModelSource.from_bytes(data)
    graph = RunInIntegers(source=source, arrays=("int8",)).run(import_graph(data))
    verify_graph(graph)
    (op,) = graph.ops
    (name,) = graph.outputs
    assert op.kind.startswith(PREFIX)
    operands = []
    for given_name in op.inputs:
        constant = graph.tensors[given_name].constant if given_name else None
        held = materialise(constant, source) if constant is not None else net.inputs.get(given_name)
        operands.append(None if held is None else np.asarray(held))
    return Case(
        kind=ALL_KINDS[op.kind],
        call=call_of(graph, op),
        operands=tuple(operands),
        expected=run(model, net.inputs)[name],
    )


def _data(net: Net, *shape: int, zero: int = 7, kind: Any = _INT8, scale: float = 0.03) -> str:
    return net.dq(net.input(*shape, kind=kind), scale, zero, kind)


def _end(net: Net, product: str, *, step: float = 0.09, zero: int = -11, kind: Any = _INT8) -> None:
    net.result(net.q(product, step, zero, kind), TensorProto.UINT8 if kind == _UINT8 else TensorProto.INT8)


def _int32_bias(net: Net, count: int, weight_scale: float = 0.008) -> str:
    values = net.constant(net.random.integers(-4000, 4000, count), np.int32)
    return net.node("DequantizeLinear", values, net.constant(np.float32(0.03) * np.float32(weight_scale)))


def _conv(shape: tuple[int, ...], weights: tuple[int, ...], **attributes: Any) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        weight = net.weight(*weights)
        _end(net, net.node("Conv", _data(net, *shape), weight, net.bias(weights[0]), **attributes))

    return make


def _conv_of_one_scale(net: Net) -> None:
    """Weights of uint8 about 128, an int32 bias in units of the sums."""
    weight = net.weight(5, 3, 3, 3, axis=None, kind=_UINT8)
    x = _data(net, 1, 3, 6, 7, zero=200, kind=_UINT8)
    _end(net, net.node("Conv", x, weight, _int32_bias(net, 5), pads=[2, 0, 1, 1]), zero=100, kind=_UINT8)


def _transposed(group: int, **attributes: Any) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        weight = net.weight(4, 3, 3, 2, axis=1 if group == 1 else None)
        x = _data(net, 2, 4, 3, 4)
        _end(net, net.node("ConvTranspose", x, weight, net.bias(3 * group), group=group, **attributes))

    return make


def _gemm(bias: tuple[int, ...] | None, *, turn_a: int = 0, turn_b: int = 0) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        x = _data(net, *((9, 5) if turn_a else (5, 9)))
        weight = net.weight(*((6, 9) if turn_b else (9, 6)), axis=0 if turn_b else 1)
        third = [] if bias is None else [net.constant(net.random.uniform(-1, 1, bias))]
        _end(net, net.node("Gemm", x, weight, *third, transA=turn_a, transB=turn_b))

    return make


def _gemm_int32_bias(net: Net) -> None:
    _end(net, net.node("Gemm", _data(net, 5, 9), net.weight(9, 6, axis=None), _int32_bias(net, 6)))


def _matmul(*shapes: tuple[int, ...], axis: int | None = None) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        _end(net, net.node("MatMul", _data(net, *shapes[0]), net.weight(*shapes[1], axis=axis)))

    return make


def _matmul_of_activations(net: Net) -> None:
    other = _data(net, 2, 9, 4, zero=130, kind=_UINT8, scale=0.02)
    _end(net, net.node("MatMul", _data(net, 2, 5, 9), other), step=0.2)


def _float_result(net: Net) -> None:
    product = net.node("Conv", _data(net, 1, 3, 5, 5), net.weight(4, 3, 3, 3), net.bias(4), pads=[1] * 4)
    net.result(product, TensorProto.FLOAT)


def _sums(net: Net) -> None:
    x, weight = net.input(1, 3, 5, 5, kind=_UINT8), net.constant(net.integers(4, 3, 3, 3), _INT8)
    zeros = net.constant(9, _UINT8), net.constant(-3, _INT8)
    net.result(net.node("ConvInteger", x, weight, *zeros, pads=[1] * 4), TensorProto.INT32)


def _sums_of_a_zero_point_given(net: Net) -> None:
    x, zero = net.input(5, 9, kind=_UINT8), net.input(kind=_UINT8)
    net.inputs[zero] = np.array(131, np.uint8)
    weight = net.constant(net.integers(9, 6), _INT8)
    net.result(net.node("MatMulInteger", x, weight, zero), TensorProto.INT32)


def _limited(low: float, high: float) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        product = net.node("Conv", _data(net, 1, 3, 5, 5), net.weight(4, 3, 3, 3), net.bias(4))
        _end(net, net.node("Clip", product, net.constant(low), net.constant(high)))

    return make


def _rectified(net: Net) -> None:
    _end(net, net.node("Relu", net.node("MatMul", _data(net, 5, 9), net.weight(9, 6, axis=1))), zero=-128)


PRODUCTS: Final[Mapping[str, Callable[[Net], None]]] = {
    "Conv padded": _conv((2, 3, 6, 7), (5, 3, 3, 3), pads=[1, 2, 0, 1]),
    "Conv strided and dilated": _conv((1, 3, 9, 8), (4, 3, 3, 2), pads=[2, 1, 2, 1], strides=[2, 3], dilations=[2, 1]),
    "Conv depthwise": _conv((1, 4, 6, 5), (8, 1, 3, 3), pads=[1] * 4, group=4, strides=[2, 1]),
    "Conv of groups": _conv((2, 6, 7), (9, 2, 3), pads=[2, 1], group=3),
    "Conv far in the padding": _conv((1, 2, 3, 3), (2, 2, 2, 1), pads=[4, 3, 5, 2], strides=[1, 2]),
    "Conv of one position": _conv((1, 5, 4, 4), (6, 5, 1, 1)),
    "Conv of one scale": _conv_of_one_scale,
    "ConvTranspose": _transposed(1, strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 0]),
    "ConvTranspose of groups": _transposed(2, strides=[2, 2], dilations=[2, 1]),
    "Gemm": _gemm(None),
    "Gemm transA": _gemm((6,), turn_a=1),
    "Gemm transB": _gemm((6,), turn_b=1),
    "Gemm transA transB": _gemm((1, 6), turn_a=1, turn_b=1),
    "Gemm with one number": _gemm(()),
    "Gemm with one element": _gemm((1,)),
    "Gemm with a column": _gemm((5, 1)),
    "Gemm with a matrix": _gemm((5, 6)),
    "Gemm with an int32 bias": _gemm_int32_bias,
    "MatMul": _matmul((5, 9), (9, 6)),
    "MatMul by column": _matmul((2, 5, 9), (9, 6), axis=1),
    "MatMul in batches": _matmul((3, 5, 9), (3, 9, 6), axis=2),
    "MatMul of a vector": _matmul((9,), (9, 6), axis=1),
    "MatMul by a vector": _matmul((5, 9), (9,)),
    "MatMul of activations": _matmul_of_activations,
    "Relu behind": _rectified,
    "Clip behind": _limited(-4.0, 6.0),
    "Clip of nothing behind": _limited(0.3, -0.2),
    "float result": _float_result,
    "sums": _sums,
    "sums of a zero point that the run gives": _sums_of_a_zero_point_given,
}


def _of(
    op_type: str, *shapes: tuple[int, ...], end: Attributes | None = None, **attributes: Any
) -> Callable[[Net], None]:
    def make(net: Net) -> None:
        read = [
            _data(net, *shape, zero=9 * number - 5, scale=0.02 + 0.01 * number) for number, shape in enumerate(shapes)
        ]
        _end(net, net.node(op_type, *read, **attributes), **(end or {"step": 0.04, "zero": 3}))

    return make


def _resized(net: Net) -> None:
    scales = net.constant(np.array([1, 1, 2, 1.5], np.float32))
    _end(net, net.node("Resize", _data(net, 1, 2, 3, 4), "", scales, mode="linear"), step=0.04)


def _added_to_floats(net: Net) -> None:
    _end(net, net.node("Add", net.input(3, 4), _data(net, 3, 4)), step=0.04)


def _dequantised_alone(net: Net) -> None:
    net.result(net.node("Mul", _data(net, 3, 4), _data(net, 4)), TensorProto.FLOAT)


def _quantised_alone(net: Net) -> None:
    _end(net, net.node("Add", net.input(3, 4), net.input(3, 1)), step=0.04)


OTHERS: Final[Mapping[str, Callable[[Net], None]]] = {
    "Add of two scales": _of("Add", (2, 3, 4), (3, 1)),
    "Mul to uint8": _of("Mul", (2, 3, 4), (2, 3, 4), end={"step": 0.05, "zero": 90, "kind": _UINT8}),
    "Relu": _of("Relu", (3, 5)),
    "Sigmoid": _of("Sigmoid", (3, 5), end={"step": 1 / 255, "zero": -128}),
    "AveragePool": _of("AveragePool", (1, 2, 6, 5), kernel_shape=[3, 2], pads=[1, 1, 1, 0], strides=[2, 1]),
    "AveragePool with padding": _of(
        "AveragePool", (1, 2, 6, 5), kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1, strides=[2, 2]
    ),
    "GlobalAveragePool": _of("GlobalAveragePool", (2, 3, 4, 4)),
    "Concat of two scales": _of("Concat", (2, 3, 4), (2, 2, 4), axis=1),
    "Resize": _resized,
    "Add of floats and integers": _added_to_floats,
    "floats from integers": _dequantised_alone,
    "integers from floats": _quantised_alone,
}
ALL: Final = {**PRODUCTS, **OTHERS}


def assert_equal(found: Values, expected: Values) -> None:
    """Integers to the bit, floats up to rounding."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind in "iu":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", sorted(ALL))
def test_an_op_on_integers_equals_the_reference(name: str) -> None:
    case = case_of(ALL[name])
    assert_equal(case.result, case.expected)
    if case.expected.size > 6 and "nothing" not in name:
        assert len(np.unique(case.expected)) > 4


@pytest.mark.matrix(first=14, rest=14)
@pytest.mark.parametrize("name", sorted(ALL))
@settings(max_examples=12)
@given(data=st.data())
def test_a_box_of_an_op_on_integers_is_that_box_of_the_whole(name: str, data: st.DataObject) -> None:
    """Operands cut to what access demands, scales per channel and biases among them."""
    case = case_of(ALL[name])
    for _ in range(4):
        box = data.draw(boxes(case.expected.shape))
        found = case.kind.compute_box(case.call, box, case.slabs(box))
        assert_equal(found, case.expected[tuple(slice(*r) for r in box)])


@pytest.mark.parametrize("name", sorted(ALL))
def test_every_element_of_an_op_on_integers_is_computed_alone(name: str) -> None:
    case = case_of(ALL[name])
    for element in itertools.islice(np.ndindex(case.expected.shape), 40):
        box = tuple((at, at + 1) for at in element)
        found = case.kind.compute_box(case.call, box, case.slabs(box))
        assert_equal(found, case.expected[tuple(slice(*r) for r in box)])


@pytest.mark.matrix(first=10, rest=10)
@pytest.mark.parametrize("name", sorted(PRODUCTS))
@settings(max_examples=10)
@given(data=st.data())
def test_parts_of_integer_sums_add_up_in_int32(name: str, data: st.DataObject) -> None:
    """The bias, the scales and the rounding come once, at the end."""
    case = case_of(PRODUCTS[name])
    kind, call = case.kind, case.call
    assert isinstance(kind, Product)
    axes = kind.summed(call)
    box = data.draw(boxes(case.expected.shape))
    slabs = case.slabs(box)
    if axes is None:
        assert call.integer("group", 1) > 1 or call.has(DATA_ZERO)
        with pytest.raises(InternalError, match="groups"):
            kind.compute_box(call, box, slabs, partial=True)
        return
    operands = case.operands[1]
    assert operands is not None
    of_data, of_weight = axes
    assert of_data is not None
    assert of_weight is not None
    extent = operands.shape[of_weight]
    bounds = sorted({0, extent, *data.draw(st.lists(st.integers(0, extent), max_size=3))})
    found = []
    for part in itertools.pairwise(bounds):
        cut = []
        for slab, axis in zip(slabs[:2], (of_data, of_weight), strict=True):
            ranges = () if slab is None else (*slab.ranges[:axis], part, *slab.ranges[axis + 1 :])
            cut.append(None if slab is None else Slab(ranges, slab.values[inside(ranges, slab.ranges)]))
        found.append(kind.compute_box(call, box, (*cut, *slabs[2:]), partial=True))
    assert {part.dtype.name for part in found} == {"int32"}
    total = np.asarray(np.sum(found, axis=0, dtype=np.int32))
    assert_equal(kind.finish(call, box, total, slabs[2:]), case.expected[tuple(slice(*r) for r in box)])


@pytest.mark.parametrize("name", [name for name in sorted(PRODUCTS) if name.startswith("Conv ")])
@settings(max_examples=10)
@given(data=st.data())
def test_windows_read_the_zero_point_as_padding(name: str, data: st.DataObject) -> None:
    """What address tables gather: the padding value that the kind names stands around the data."""
    case = case_of(PRODUCTS[name])
    kind, call, (x, weight, *_) = case.kind, case.call, case.operands
    assert x is not None
    assert weight is not None
    assert kind.padding_value(call) == (200 if x.dtype == _UINT8 else 7)
    met = windows(x, call, weight.shape[2:], case.expected.shape[2:], kind.padding_value(call))
    box = data.draw(boxes(case.expected.shape))
    slabs = case.slabs(box)
    demanded = kind.demanded(call, box)[0]
    assert demanded is not None
    whole_taps = (slice(None) for _ in range(len(weight.shape) - 2))
    at = (slice(*box[0]), slice(*demanded[1]), *whole_taps, *(slice(*r) for r in box[2:]))
    whole = replace(call, met=np.ascontiguousarray(met[at]))
    found = kind.compute_box(whole, box, (None, *slabs[1:]))
    assert_equal(found, case.expected[tuple(slice(*r) for r in box)])


def test_a_pool_reads_the_zero_point_as_padding() -> None:
    case = case_of(OTHERS["AveragePool with padding"])
    assert case.kind.padding_value(case.call) == -5


def test_steps_halfway_are_rounded_to_even() -> None:
    values = np.arange(-9, 11, dtype=np.int8).reshape(-1, 1)

    def make(net: Net) -> None:
        name = net.input(*values.shape, kind=np.int8)
        net.inputs[name] = values
        weight = net.node("DequantizeLinear", net.constant([[1, 1]], np.int8), net.constant(1.0))
        net.result(net.q(net.node("MatMul", net.dq(name, 0.5), weight), 1.0, 1))

    case = case_of(make)
    steps = [round(int(value) / 2) + 1 for value in values.reshape(-1)]
    assert case.result.T.tolist() == case.expected.T.tolist() == [steps, steps]


def test_sums_beyond_float32_are_exact() -> None:
    """Above 2^24 a float32 has no odd numbers; the sum is divided so that each unit shows."""
    depth = 2000

    def make(net: Net) -> None:
        name = net.input(1, depth, kind=_INT8)
        net.inputs[name][:] = 127
        net.inputs[name][0, 0] = 126
        weight = net.node("DequantizeLinear", net.constant(np.full((depth, 1), 127), _INT8), net.constant(1.0))
        bias = net.node("DequantizeLinear", net.constant([-depth * 127 * 127], np.int32), net.constant(1.0))
        net.result(net.q(net.node("Gemm", net.dq(name, 1.0), weight, bias), 1.0))

    case = case_of(make)
    assert case.result.tolist() == case.expected.tolist() == [[-127]]
    assert depth * 127 * 127 > 2**24


def test_a_form_with_scales_by_channel_names_where_they_lie() -> None:
    case = case_of(PRODUCTS["Conv padded"])
    assert isinstance(case.kind, QuantisedProduct)
    maps = case.kind.access(case.call)
    scales = case.operands[WEIGHT_SCALE]
    assert scales is not None
    assert scales.shape == (5,)
    assert maps[WEIGHT_SCALE] is not None
    assert case.kind.demanded(case.call, ((0, 1), (2, 4), (0, 1), (0, 1)))[WEIGHT_SCALE] == ((2, 4),)
    assert len(case.operands) <= DATA_ZERO


def test_every_kind_of_product_has_a_quantised_form_that_is_tested() -> None:
    tested = {case_of(make).kind.kind for make in PRODUCTS.values()}
    assert tested == {kind.kind for kind in ALL_KINDS.values() if isinstance(kind, QuantisedProduct)}
