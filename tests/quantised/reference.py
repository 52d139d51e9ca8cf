"""An exact interpreter of quantised ONNX models, to judge compiled ones by (IMPORT-9).

It shares no code with compiler/. Its rules:

1. A Conv, ConvTranspose, Gemm (alpha = beta = 1) or MatMul of two dequantised tensors is a product of integers: the sum
   of (x - zero point) * (w - zero point), exactly. Data is quantised per tensor, weights per tensor or output channel.
2. An int32 bias whose scale is that of the product (to a part in a million) is added to that sum; any other bias is
   a real number, added to the scaled sum.
3. A product, and the Relu and Clip behind it, is a real number. If its only reader is a QuantizeLinear, that number is
   divided by the output scale and rounded once, half to even, without an error; else it is rounded once to a float.
4. QLinearConv, QLinearMatMul, ConvInteger and MatMulInteger follow the standard, exactly.
5. QuantizeLinear, DequantizeLinear and DynamicQuantizeLinear of floats follow the standard, in float arithmetic.
6. What moves or chooses elements of dequantised tensors gives a dequantised tensor of their scale and zero point, if
   they have one together; constants among them, and the value of a Pad, must be exactly that of an integer. So does a
   Relu or Clip that takes each number of an integer to one.
7. Any other node is computed alone by ONNX Runtime without optimisation, in the float types of its operands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import inf
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, inliner, numpy_helper

from tests.quantised.runtime import run_unfused
from tests.quantised.sums import conv_sums, conv_transpose_sums, largest, matrix_sums

Array = NDArray[Any]
Operands = Sequence["Value | None"]
Attributes = Mapping[str, Any]
# Two float64 operations, and as much again: what an estimate may be off, against the size of its terms.
_ERROR: Final = 2.0**-50
_BIAS_SCALE_TOLERANCE: Final = 1e-6
_NARROW_BITS: Final = 16
_SMALL_INTEGERS: Final = tuple(
    np.dtype(kind) for kind in (ml_dtypes.int2, ml_dtypes.uint2, ml_dtypes.int4, ml_dtypes.uint4)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dequantised:
    """The result of a DequantizeLinear: integers with their scale and zero point, per tensor, axis or block."""

    integers: Array
    scale: Array
    zero_point: Array
    axis: int
    block_size: int

    @property
    def per_tensor(self) -> bool:
        """Whether one scale holds for all integers."""
        return self.scale.size == 1

    @property
    def is_narrow(self) -> bool:
        """Whether the integers have at most 16 bits."""
        kind = self.integers.dtype
        return _is_integer(kind) and _limits(kind).bits <= _NARROW_BITS

    def steps(self) -> Array:
        """Integers minus zero point, int64."""
        zero_point = _spread(self.zero_point, self.integers.shape, self.axis, self.block_size)
        return self.integers.astype(np.int64) - zero_point.astype(np.int64)

    def steps_of(self, value: Value | None, *, is_known: bool) -> Array | None:
        """Another value in steps of this one, which is per tensor; None if it has other steps, or a known one others.

        What is known before the run may be any numbers that integers of this type stand for.
        """
        if isinstance(value, Dequantised) and self.means_the_same(value):
            return value.steps()
        if value is None or not is_known:
            return None
        array = _array(value)
        if array.dtype != self.scale.dtype:
            return None
        numbers = self.numbers()
        at = np.clip(np.searchsorted(numbers, array), 0, numbers.size - 1)
        is_exact = np.array_equal(numbers[at], array) and not np.signbit(array[array == 0]).any()
        return np.asarray(at + self._least()) if is_exact else None

    def means_the_same(self, other: Dequantised) -> bool:
        """Whether the other's integers stand for the same numbers."""
        return (
            other.per_tensor
            and not other.block_size
            and other.integers.dtype == self.integers.dtype
            and other.scale.dtype == self.scale.dtype
            and float(other.scale.reshape(())) == float(self.scale.reshape(()))
            and int(other.zero_point.reshape(())) == int(self.zero_point.reshape(()))
        )

    def from_steps(self, steps: Array) -> Dequantised:
        """Other steps, with this one's scale and zero point."""
        integers = steps.astype(np.int64) + int(self.zero_point.reshape(()))
        return replace(self, integers=_saturate(integers, self.integers.dtype), axis=0)

    def numbers(self) -> Array:
        """The number of each integer, of the scale's type, the least first."""
        every = np.arange(self._least(), self._least() + 2 ** _limits(self.integers.dtype).bits)
        return np.asarray(every.astype(self.scale.dtype) * self.scale.reshape(()))

    def _least(self) -> int:
        """The steps of the least integer."""
        return int(_limits(self.integers.dtype).min) - int(self.zero_point.reshape(()))

    def limited(self, low: float, high: float) -> Dequantised | None:
        """The numbers after max(x, low), then min(x, high); None if one of them has no integer."""
        if not self.is_narrow or not self.per_tensor or self.block_size:
            return None
        numbers = self.numbers()
        found = np.minimum(np.maximum(numbers, numbers.dtype.type(low)), numbers.dtype.type(high))
        steps = self.steps_of(found, is_known=True)
        return None if steps is None else self.from_steps(steps[self.steps() - self._least()])

    def array(self) -> Array:
        """The floats, of the scale's type."""
        scale = _spread(self.scale, self.integers.shape, self.axis, self.block_size)
        if not _is_integer(self.integers.dtype):  # float8 and its like
            zero_point = _spread(self.zero_point, self.integers.shape, self.axis, self.block_size)
            return np.asarray((self.integers.astype(scale.dtype) - zero_point.astype(scale.dtype)) * scale)
        return np.asarray(self.steps().astype(scale.dtype) * scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Real numbers sums * scale + bias between low and high, not rounded yet; `kind` is the float type they stand for.

    `sums` is int64; `scale` and `bias` are float64, exact, and broadcast to it.
    """

    sums: Array
    scale: Array
    bias: Array | None
    kind: np.dtype[Any]
    low: float = -inf
    high: float = inf

    def array(self) -> Array:
        """The nearest floats."""
        value, error = self._estimate()
        with np.errstate(over="ignore"):
            below, above = (value - error).astype(self.kind), (value + error).astype(self.kind)
        for index in zip(*np.nonzero(below != above), strict=True):
            below[index] = _nearest(self._exact(index), self.kind)
        return np.asarray(np.clip(below, self.kind.type(self.low), self.kind.type(self.high)))

    def quantised(self, step: Array, zero_point: Array, kind: np.dtype[Any]) -> Array:
        """The numbers in steps, rounded half to even, plus the zero point, saturated."""
        value, error = self._estimate()
        step = np.broadcast_to(step.astype(np.float64), value.shape)
        scaled = value / step
        error = error / step + np.abs(scaled) * _ERROR
        # an int64 holds any value that is far outside the narrow type's range
        below, above = (np.rint(np.clip(x, -(2.0**40), 2.0**40)) for x in (scaled - error, scaled + error))
        for index in zip(*np.nonzero(below != above), strict=True):
            below[index] = round(self._exact(index) / Fraction(float(step[index])))
        return _saturate(below.astype(np.int64) + zero_point.astype(np.int64), kind)

    def clipped(self, low: float, high: float) -> Product:
        """The numbers after max(x, low), then min(x, high)."""
        return replace(self, low=min(max(self.low, low), high), high=min(max(self.high, low), high))

    def _estimate(self) -> tuple[Array, Array]:
        """Float64 values within the bounds, and what they may be off."""
        value = self.sums * self.scale
        size = np.abs(value)
        if self.bias is not None:
            value = value + self.bias
            size = size + np.abs(self.bias)
        return np.clip(value, self.low, self.high), size * _ERROR

    def _exact(self, index: tuple[Any, ...]) -> Fraction:
        """One of the numbers within the bounds."""
        value = int(self.sums[index]) * Fraction(float(np.broadcast_to(self.scale, self.sums.shape)[index]))
        if self.bias is not None:
            value += Fraction(float(np.broadcast_to(self.bias, self.sums.shape)[index]))
        if value < self.low:
            return Fraction(self.low)
        return Fraction(self.high) if value > self.high else value


Value = Array | Dequantised | Product


def run(
    model: onnx.ModelProto,
    inputs: Mapping[str, Array],
    *,
    outputs: Sequence[str] | None = None,
    given: Mapping[str, Array] | None = None,
) -> dict[str, Array]:
    """The values of a model's outputs, or of any values named, by their names.

    `given` values stand for what the nodes would compute. Raises NotImplementedError for nodes with subgraphs and for
    a standard op that is used outside the rules above where these demand exactness.
    """
    interpreter = _run(model, inputs, given or {})
    names = [value.name for value in model.graph.output] if outputs is None else outputs
    return {name: interpreter.array(name) for name in names}


def run_from(model: onnx.ModelProto, inputs: Mapping[str, Array], given: Mapping[str, Array]) -> dict[str, Array]:
    """What nodes compute for the values in `given`, each from the given values of the nodes before it.

    A step that another implementation rounds the other way then shows once, and does not grow from node to node.
    """
    return {name: _array(value) for name, value in _run(model, inputs, given).replaced.items()}


def _run(model: onnx.ModelProto, inputs: Mapping[str, Array], given: Mapping[str, Array]) -> Interpreter:
    if model.functions:
        model = inliner.inline_local_functions(model)
    interpreter = Interpreter(model, given)
    interpreter.values.update({name: np.asarray(array) for name, array in inputs.items()})
    for node in model.graph.node:
        interpreter.compute(node)
    return interpreter


class Interpreter:
    """Computes one node after the other.

    `values` has what is known by then; `replaced` has the results in whose place given values stand.
    """

    def __init__(self, model: onnx.ModelProto, given: Mapping[str, Array] | None = None) -> None:
        graph = model.graph
        self.opsets = list(model.opset_import)
        self.opset = next((item.version for item in self.opsets if item.domain in ("", "ai.onnx")), 1)
        self.ir_version = model.ir_version
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.values: dict[str, Value] = {name: numpy_helper.to_array(item) for name, item in self.constants.items()}
        self.given = given or {}
        self.replaced: dict[str, Value] = {}
        # what is known without the inputs
        self.known = set(self.constants)
        self.readers = Counter(name for node in graph.node for name in node.input)
        self.readers.update(value.name for value in graph.output)

    def compute(self, node: onnx.NodeProto) -> None:
        """Compute a node's outputs."""
        operands = [self.values[name] if name else None for name in node.input]
        # a product that several read is a float for all of them
        for position, (name, operand) in enumerate(zip(node.input, operands, strict=True)):
            if isinstance(operand, Product) and self.readers[name] > 1:
                operands[position] = self.values[name] = operand.array()
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        rule = _RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
        results = rule(operands, attributes) if rule is not None else None
        if results is None and node.domain in ("", "ai.onnx") and node.op_type in _MOVING:
            results = self._moved(node, operands)
        if all(name in self.known for name in node.input if name):
            self.known.update(node.output)
        if results is None:
            results = self._alone(node, operands)
        for name, result in zip(node.output, results, strict=False):
            if name in self.given:
                self.replaced[name], result = result, np.asarray(self.given[name])
            if name:
                self.values[name] = result

    def array(self, name: str) -> Array:
        """A value as an array; a product in floats."""
        return _array(self.values[name])

    def _moved(self, node: onnx.NodeProto, operands: Operands) -> Sequence[Value] | None:
        """The node's outputs as dequantised tensors (rule 6): it moves the numbers of steps; None if it cannot."""
        count = len(node.input) if node.op_type == "Concat" else 1
        pairs = list(zip(node.input[:count], operands[:count], strict=True))
        first = next((value for name, value in pairs if name not in self.known), pairs[0][1])
        if not isinstance(first, Dequantised) or not first.is_narrow or not first.per_tensor or first.block_size:
            return None
        moved = list(operands)
        renamed = onnx.NodeProto()
        renamed.CopyFrom(node)
        attributes = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Resize" and attributes.get("mode", b"nearest") != b"nearest":
            return None
        # the value of a Resize that extrapolates, and of a Pad below opset 11, is an attribute of floats
        if attributes.get("coordinate_transformation_mode") == b"tf_crop_and_resize":
            return None
        if node.op_type == "Pad" and "pads" in attributes:
            return None
        for position, (name, value) in enumerate(pairs):
            steps = first.steps_of(value, is_known=name in self.known)
            if steps is None:
                return None
            moved[position], renamed.input[position] = np.asarray(steps, np.float32), f"steps of {position}"
        if (
            node.op_type == "Pad"
            and attributes.get("mode", b"constant") == b"constant"
            and _operand(operands, 2) is not None
        ):
            steps = first.steps_of(operands[2], is_known=True)
            if steps is None:
                return None
            moved[2], renamed.input[2] = np.asarray(steps, np.float32), "steps of the value"
        return [first.from_steps(steps) for steps in self._alone(renamed, moved)]

    def _alone(self, node: onnx.NodeProto, operands: Operands) -> Sequence[Array]:
        """The node's outputs by ONNX Runtime, in a model of its own."""
        if any(item.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for item in node.attribute):
            raise NotImplementedError(f"node {node.name!r} ({node.op_type}) has subgraphs")
        constants = [self.constants[name] for name in dict.fromkeys(node.input) if name in self.constants]
        feeds = {
            name: _array(operand)
            for name, operand in zip(node.input, operands, strict=True)
            if operand is not None and name not in self.constants
        }
        graph = helper.make_graph(
            [node],
            "node",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in feeds.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in node.output if name],
            constants,
        )
        model = helper.make_model(graph, opset_imports=self.opsets, ir_version=self.ir_version)
        results = iter(run_unfused(model, feeds).values())
        return [next(results) if name else np.empty(0) for name in node.output]


def _array(value: Value) -> Array:
    # a number alone is none of numpy's arrays
    return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else value.array()


def _operand(operands: Operands, position: int) -> Array | None:
    """An optional operand's array; None if it is absent."""
    value = operands[position] if position < len(operands) else None
    return None if value is None else _array(value)


def _needed(operands: Operands, position: int) -> Array:
    value = _operand(operands, position)
    assert value is not None, f"operand {position} is absent"
    return value


# Products of dequantised tensors


def _convolution(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """Conv of two dequantised tensors; None if it is none."""
    return _recognised(operands, lambda x, w: conv_sums(x, w, attributes), weight_axis=0, channels_at=1)


def _transposed_convolution(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """ConvTranspose of two dequantised tensors; None if it is none. Scales per channel repeat for each group."""
    repeats = attributes.get("group", 1)

    def sums(x: Array, w: Array) -> Array:
        return conv_transpose_sums(x, w, attributes)

    return _recognised(operands, sums, weight_axis=1, channels_at=1, repeats=repeats)


def _gemm(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """Gemm of two dequantised tensors; None if it is none, or alpha or beta is not 1."""
    if attributes.get("alpha", 1.0) != 1 or attributes.get("beta", 1.0) != 1:
        return None
    turn_a, turn_b = attributes.get("transA", 0), attributes.get("transB", 0)

    def sums(a: Array, b: Array) -> Array:
        return matrix_sums(a.T if turn_a else a, b.T if turn_b else b)

    return _recognised(operands, sums, weight_axis=0 if turn_b else 1, channels_at=-1)


def _matmul(operands: Operands, _: Attributes) -> Sequence[Value] | None:
    """MatMul of two dequantised tensors; None if it is none."""
    weight = operands[1]
    rank = weight.integers.ndim if isinstance(weight, Dequantised) else 0
    if rank < 2 and isinstance(weight, Dequantised) and not weight.per_tensor:
        return None
    return _recognised(operands, matrix_sums, weight_axis=rank - 1, channels_at=-1)


def _recognised(
    operands: Operands,
    sums_of: Callable[[Array, Array], Array],
    *,
    weight_axis: int,
    channels_at: int,
    repeats: int = 1,
) -> Sequence[Value] | None:
    """The product of two dequantised tensors (rules 1 to 3); None if it cannot be computed in integers.

    The weight's output channels lie along `weight_axis`, the result's along `channels_at`.
    """
    data, weight = operands[:2]
    if not isinstance(data, Dequantised) or not isinstance(weight, Dequantised):
        return None
    if not (data.is_narrow and weight.is_narrow and data.per_tensor and data.block_size == weight.block_size == 0):
        return None
    if not weight.per_tensor and weight.axis != weight_axis:
        return None
    sums = sums_of(data.steps(), weight.steps())
    by_weight = weight.scale.reshape(-1) if weight.per_tensor else np.tile(weight.scale, repeats)
    scale = by_weight.astype(np.float64) * float(data.scale.reshape(()))
    channels = (-1, *(1,) * (sums.ndim - 2)) if channels_at == 1 else (-1,)
    bias = operands[2] if len(operands) > 2 else None
    real_bias: Array | None = None
    if isinstance(bias, Dequantised) and _has_scale_of_product(bias, scale):
        sums = sums + _at_channels(bias.integers.astype(np.int64), channels)
    elif bias is not None:
        real_bias = _at_channels(_array(bias).astype(np.float64), channels)
    return [Product(sums=sums, scale=_at_channels(scale, channels), bias=real_bias, kind=data.scale.dtype)]


def _has_scale_of_product(bias: Dequantised, scale: Array) -> bool:
    """Whether an int32 bias counts in the product's units. Its zero point is 0 by the standard."""
    if bias.integers.dtype != np.int32 or bias.block_size or bias.zero_point.any():
        return False
    own = bias.scale.reshape(-1).astype(np.float64)
    if own.size not in (1, scale.size):
        return False
    return bool((np.abs(own - scale) <= _BIAS_SCALE_TOLERANCE * scale).all())


def _at_channels(item: Array, channels: tuple[int, ...]) -> Array:
    """A vector along the output channels; scalars, and matrices of a Gemm, broadcast as they are."""
    return item.reshape(()) if item.size == 1 else item.reshape(channels) if item.ndim == 1 else item


def _relu(operands: Operands, _: Attributes) -> Sequence[Value] | None:
    """Relu of a product or of a dequantised tensor; None for one of floats."""
    (x,) = operands
    return _between(x, 0.0, inf)


def _clip(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """Clip of a product or of a dequantised tensor; None for one of floats."""
    low, high = (_operand(operands, position) for position in (1, 2))
    return _between(
        operands[0],
        float(attributes.get("min", -inf) if low is None else low.reshape(())),
        float(attributes.get("max", inf) if high is None else high.reshape(())),
    )


def _between(x: Value | None, low: float, high: float) -> Sequence[Value] | None:
    if isinstance(x, Product):
        return [x.clipped(low, high)]
    limited = x.limited(low, high) if isinstance(x, Dequantised) else None
    return None if limited is None else [limited]


# Conversions


def _quantize_linear(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """QuantizeLinear; None for types other than integers."""
    x, scale, zero_point = operands[0], _needed(operands, 1), _operand(operands, 2)
    if zero_point is None:
        kind = attributes.get("output_dtype", 0)
        zero_point = np.zeros(scale.shape, helper.tensor_dtype_to_np_dtype(kind) if kind else np.uint8)
    if x is None or not _is_integer(zero_point.dtype):
        return None
    shape = x.sums.shape if isinstance(x, Product) else _array(x).shape
    axis, block_size = attributes.get("axis", 1), attributes.get("block_size", 0)
    step, zero = (_spread(item, shape, axis, block_size) for item in (scale, zero_point))
    if isinstance(x, Product):
        return [x.quantised(step, zero, zero_point.dtype)]
    # halves are divided in float32, so that the quotient is rounded once
    wide = np.promote_types(step.dtype, np.float32)
    rounded = np.rint(_array(x).astype(step.dtype).astype(wide) / step.astype(wide)).astype(np.float64)
    rounded = np.clip(rounded, -(2.0**40), 2.0**40)
    return [_saturate(rounded.astype(np.int64) + zero.astype(np.int64), zero_point.dtype)]


def _dequantize_linear(operands: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """DequantizeLinear, whose floats are computed when something reads them."""
    integers, scale, zero_point = _needed(operands, 0), _needed(operands, 1), _operand(operands, 2)
    return [
        Dequantised(
            integers=integers,
            scale=scale,
            zero_point=np.zeros(scale.shape, integers.dtype) if zero_point is None else zero_point,
            axis=attributes.get("axis", 1) % max(integers.ndim, 1),
            block_size=attributes.get("block_size", 0),
        )
    ]


def _dynamic_quantize_linear(operands: Operands, _: Attributes) -> Sequence[Value]:
    """DynamicQuantizeLinear in float32: uint8 over the range of the data and 0. Data of zeros have the scale 1."""
    x = _needed(operands, 0)
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    scale = (high - low) / np.float32(255) if high > low else np.float32(1)
    zero_point = np.rint(np.clip(-low / scale, 0, 255)).astype(np.uint8)
    y = _saturate(np.rint(x / scale).astype(np.int64) + int(zero_point), np.dtype(np.uint8))
    return [y, np.asarray(scale, np.float32), np.asarray(zero_point)]


def _constant(_: Operands, attributes: Attributes) -> Sequence[Value] | None:
    """Constant of a tensor; None for other forms. ONNX Runtime cannot return 4-bit integers."""
    return [numpy_helper.to_array(attributes["value"])] if "value" in attributes else None


# Integer ops


def _qlinear_conv(operands: Operands, attributes: Attributes) -> Sequence[Value]:
    """QLinearConv, rounded once."""
    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = (_needed(operands, index) for index in range(8))
    sums = conv_sums(_minus(x, x_zero), _minus(w, _along(w_zero, w.ndim, 0)), attributes)
    bias = _operand(operands, 8)
    if bias is not None:
        sums = sums + _along(bias.astype(np.int64), sums.ndim, 1)
    scale = _along(w_scale.astype(np.float64), sums.ndim, 1) * float(x_scale.reshape(()))
    real = Product(sums=sums, scale=scale, bias=None, kind=x_scale.dtype)
    return [real.quantised(y_scale.reshape(()), y_zero.reshape(()), y_zero.dtype)]


def _qlinear_matmul(operands: Operands, _: Attributes) -> Sequence[Value]:
    """QLinearMatMul, rounded once; the scales of a and y may be per row, that of b per column."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (_needed(operands, index) for index in range(8))
    sums = matrix_sums(_minus(a, _rows(a_zero)), _minus(b, _columns(b_zero)))
    scale = _rows(a_scale).astype(np.float64) * _columns(b_scale).astype(np.float64)
    real = Product(sums=sums, scale=scale, bias=None, kind=a_scale.dtype)
    return [real.quantised(_rows(y_scale), _rows(y_zero), y_zero.dtype)]


def _conv_integer(operands: Operands, attributes: Attributes) -> Sequence[Value]:
    """ConvInteger."""
    x, w = _needed(operands, 0), _needed(operands, 1)
    x_zero, w_zero = (_operand(operands, index) for index in (2, 3))
    w_zero = None if w_zero is None else _along(w_zero, w.ndim, 0)
    return [_to_int32(conv_sums(_minus(x, x_zero), _minus(w, w_zero), attributes))]


def _matmul_integer(operands: Operands, _: Attributes) -> Sequence[Value]:
    """MatMulInteger."""
    a, b = _needed(operands, 0), _needed(operands, 1)
    a_zero, b_zero = (_operand(operands, index) for index in (2, 3))
    a_zero = None if a_zero is None else _rows(a_zero)
    return [_to_int32(matrix_sums(_minus(a, a_zero), _minus(b, b_zero)))]


_RULES: Final[Mapping[str, Callable[[Operands, Attributes], Sequence[Value] | None]]] = {
    "Constant": _constant,
    "Conv": _convolution,
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Relu": _relu,
    "Clip": _clip,
    "QuantizeLinear": _quantize_linear,
    "DequantizeLinear": _dequantize_linear,
    "DynamicQuantizeLinear": _dynamic_quantize_linear,
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "ConvInteger": _conv_integer,
    "MatMulInteger": _matmul_integer,
}


# Nodes that move or choose elements of their first operand, a Concat of all.
_MOVING: Final = frozenset(
    {
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Transpose", "Slice", "Split", "Expand", "Tile"),
        *("Gather", "DepthToSpace", "SpaceToDepth", "MaxPool", "ReduceMax", "ReduceMin", "Concat", "Pad", "Resize"),
    }
)


# Small helpers


def _minus(x: Array, zero_point: Array | None) -> Array:
    return x.astype(np.int64) if zero_point is None else x.astype(np.int64) - zero_point.astype(np.int64)


def _rows(item: Array) -> Array:
    """A quantity per tensor, or per row if it is a vector, as it broadcasts to a matrix."""
    return item.reshape(()) if item.size == 1 else item.reshape(-1, 1) if item.ndim == 1 else item


def _columns(item: Array) -> Array:
    """A quantity per tensor, or per column, as it broadcasts to a matrix."""
    return item.reshape(()) if item.size == 1 else item


def _along(item: Array, rank: int, axis: int) -> Array:
    """A quantity per tensor, or per position of an axis, as it broadcasts to a tensor of that rank."""
    return item.reshape(()) if item.size == 1 else item.reshape([-1 if at == axis else 1 for at in range(rank)])


def _spread(item: Array, shape: Sequence[int], axis: int, block_size: int) -> Array:
    """Scales or zero points per tensor, axis or block, as they broadcast to the tensor."""
    if block_size:
        return np.repeat(item, block_size, axis)[tuple(slice(extent) for extent in shape)]
    return _along(item, len(shape), axis % max(len(shape), 1))


def _is_integer(kind: np.dtype[Any]) -> bool:
    return kind.kind in "iu" or kind in _SMALL_INTEGERS


def _limits(kind: np.dtype[Any]) -> Any:
    return ml_dtypes.iinfo(kind)  # type: ignore[no-untyped-call]


def _saturate(x: Array, kind: np.dtype[Any]) -> Array:
    limits = _limits(kind)
    return np.clip(x, int(limits.min), int(limits.max)).astype(kind)


def _to_int32(x: Array) -> Array:
    if largest(x) >= 2**31:
        raise NotImplementedError("a sum is beyond int32; the standard does not say what becomes of it")
    return x.astype(np.int32)


def _nearest(value: Fraction, kind: np.dtype[Any]) -> Any:
    """The float nearest to a number; of two equally near ones the one with an even last bit."""
    middle = kind.type(float(value))
    bits = np.dtype(f"u{kind.itemsize}")
    around = [np.nextafter(middle, kind.type(-inf)), middle, np.nextafter(middle, kind.type(inf))]
    finite = [item for item in around if np.isfinite(item)]
    return min(finite, key=lambda item: (abs(Fraction(float(item)) - value), int(item.view(bits)) & 1))
