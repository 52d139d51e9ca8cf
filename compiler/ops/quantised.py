"""Ops on quantised tensors: a kind of ours between the integers of its operands and of its result (IMPORT-9).

A quantised tensor holds integers q that stand for (q − zero)·scale. What an op means stands in its own definition; the
kinds here put the integers before it and behind it:

- *Products* (Conv, ConvTranspose, Gemm, MatMul) sum integers exactly, (data − zero)·(weight − zero) and an int32 bias.
  The finished sum is scaled in float64 by data scale · weight scale / result scale, rounded half to even, moved by the
  result's zero point and limited, all in the pass over the accumulator. In float64 a sum of integers is exact below
  2^53, so a sum is the one of the kind's own definition on integers held as floats. A weight of 4 bits lies packed,
  two numbers in a byte.
- *All others* compute in the floats of their scales between the two conversions: what ONNX says of DequantizeLinear,
  the op and QuantizeLinear one after another, without the floats ever lying in a memory.

Scales and zero points of a whole tensor are attributes; scales by output channel are an operand, sliced as a bias is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from compiler.ir.box import WHOLE, same
from compiler.ir.graph import Attribute, Tensor
from compiler.ops.base import Access, Array, Call, Inferred, MatrixShape, OpKind, Window, Work, default_axes
from compiler.ops.compute_types import Values, narrowed, widened
from compiler.ops.contraction import Product, by_input
from compiler.ops.packed import stored_access, whole_box, whole_shape, whole_weight
from compiler.ops.quantise import dequantised
from compiler.ops.slab import Box
from compiler.units import numpy_dtype

# What the kinds here are called: this and the name of the kind that they wrap.
PREFIX: Final = "Quantised"
# The element types of what products multiply as integers, how far two of them lie apart at most, and the type of the
# array that does it.
EIGHT_BITS: Final = ("int8", "uint8")
LARGEST_DIFFERENCE: Final = 255
ARRAY_TYPE: Final = "int8"
ACCUMULATOR: Final = "int32"
# Where the operands of a quantised product stand behind data, weight and bias.
WEIGHT_SCALE: Final = 3
DATA_ZERO: Final = 4
WEIGHT_ZERO: Final = 5
_OWN: Final = frozenset(
    {"input_scales", "input_zeros", "result_scale", "result_zero", "result_type", "least", "most", "floats", "packed"}
)


def name_of(kind: str) -> str:
    """The name of the quantised form of a kind."""
    return f"{PREFIX}{kind}"


def base_kind(kind: str) -> str:
    """The kind that an op's kind wraps; a kind that wraps none is its own."""
    return kind.removeprefix(PREFIX)


def _numbers(call: Call, name: str) -> tuple[float, ...]:
    value = call.attributes.get(name, ())
    if not isinstance(value, tuple) or not all(isinstance(item, int | float) for item in value):
        call.fail(f"attribute {name} must be a list of numbers", actual=value)
    return tuple(float(item) for item in value)


def _parameters(call: Call, number: int) -> tuple[Values, Values] | None:
    """Scale and zero point of an input; None where it is not quantised."""
    scale = _numbers(call, "input_scales")[number]
    if not scale:
        return None
    zero = (call.integers("input_zeros") or ())[number]
    return np.asarray(scale, dtype=np.float32), np.asarray(zero, dtype=np.int32)


def _given(call: Call) -> list[int]:
    """The positions of the inputs that are given."""
    return [number for number, tensor in enumerate(call.inputs) if tensor is not None]


def inner_attributes(attributes: Mapping[str, Attribute]) -> dict[str, Attribute]:
    """The attributes of the wrapped kind."""
    return {name: value for name, value in attributes.items() if name not in _OWN}


def _wrapped(call: Call, inputs: Sequence[Tensor | None], *, quantised_inputs: Sequence[float]) -> Call:
    """The call of the wrapped kind: on floats, where integers stand for them."""
    floats = call.text("floats", "float32")
    scales = (*quantised_inputs, *(0.0 for _ in inputs))
    typed = tuple(
        replace(tensor, dtype=floats) if tensor is not None and scale else tensor
        for tensor, scale in zip(inputs, scales, strict=False)
    )
    output = call.output
    if output is not None and call.number("result_scale", 0.0):
        output = replace(output, dtype=floats)
    return replace(call, attributes=inner_attributes(call.attributes), inputs=typed, output=output, maps=None)


def _op_call(call: Call) -> Call:
    return _wrapped(call, call.inputs, quantised_inputs=_numbers(call, "input_scales"))


def _product_call(call: Call) -> Call:
    """The same of a product, whose factors and bias all become floats; the weight is unpacked."""
    inputs = list(call.inputs[:WEIGHT_SCALE])
    layout, weight = _layout(call), call.tensor(1)
    if layout:
        inputs[1] = replace(weight, shape=whole_shape(layout, weight.shape), axes=default_axes(len(layout)))
    return _wrapped(call, inputs, quantised_inputs=[1.0] * len(inputs))


def _layout(call: Call) -> tuple[int, ...]:
    """How a product's weight lies packed (compiler.ops.packed); empty if it has a byte per number."""
    return call.integers("packed") or ()


def is_rounded(call: Call) -> bool:
    """True if a quantised form gives integers that it has rounded to: neither floats nor sums."""
    return bool(call.number("result_scale", 0.0))


def rounded(call: Call, steps: Values) -> Array:
    """A result's integers from its steps: rounded half to even, moved by the zero point, within the limits."""
    bounds: Any = np.iinfo(numpy_dtype(call.result.dtype))
    least, most = call.integer("least", int(bounds.min)), call.integer("most", int(bounds.max))
    moved = np.rint(steps) + call.integer("result_zero", 0)
    return narrowed(np.clip(np.nan_to_num(moved, nan=0.0), least, most), call.result.dtype)


class QuantisedOp(OpKind):
    """An op that is no product, from integers to integers; the floats between lie in no memory.

    Inputs and attributes are those of the wrapped kind, and: `input_scales` and `input_zeros` by input (a scale of 0
    where an input is not quantised), `floats`, the type that it computes in, `result_scale` (0 where the result is not
    quantised), `result_zero`, and `least` and `most`, the limits of the result's integers.
    """

    def __init__(self, inner: OpKind) -> None:
        """The quantised form of `inner`."""
        super().__init__(name_of(inner.kind))
        self.inner = inner
        self.op_class, self.in_place, self.is_local = inner.op_class, inner.in_place, inner.is_local  # type: ignore[misc]
        self.constant_inputs = inner.constant_inputs

    def infer(self, call: Call) -> Inferred:
        found = self.inner.infer(_op_call(call))
        own = {name: value for name, value in call.attributes.items() if name in _OWN}
        dtype = call.text("result_type", found.dtype)
        return replace(found, dtype=dtype, kind=self.kind, attributes={**found.attributes, **own})

    def access(self, call: Call) -> Access:
        return self.inner.access(_op_call(call))

    def work(self, call: Call) -> Work:
        """The wrapped op's, and two operations for each integer read and four for each one made."""
        found, elements = self.inner.work(_op_call(call)), max(1, call.result.elements)
        read = sum(
            tensor.elements
            for tensor, scale in zip(call.inputs, _numbers(call, "input_scales"), strict=True)
            if tensor is not None and scale
        )
        made = 4 if call.number("result_scale", 0.0) else 0
        return replace(found, vector_ops=found.vector_ops + Fraction(2 * read, elements) + made)

    def overlap(self, call: Call) -> tuple[int, ...]:
        return self.inner.overlap(_op_call(call))

    def window(self, call: Call) -> Window | None:
        return self.inner.window(_op_call(call))

    def padding_value(self, call: Call) -> float:
        """The integer that stands for the value which the wrapped kind reads outside, limited to its type."""
        scale, zero, tensor = (
            _numbers(call, "input_scales")[0],
            (call.integers("input_zeros") or (0,))[0],
            call.tensor(0),
        )
        value = self.inner.padding_value(_op_call(call))
        if not scale:
            return value
        bounds: Any = np.iinfo(numpy_dtype(tensor.dtype))
        return int(min(max(value / scale + zero, bounds.min), bounds.max))

    def gathered(self, call: Call) -> tuple[int, ...]:
        return self.inner.gathered(_op_call(call))

    def enclosing(self, call: Call, box: Box) -> Box:
        return self.inner.enclosing(_op_call(call), box)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        return {**call.attributes, **self.inner.local_attributes(_op_call(call), box, needed)}

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return rounded(call, self.unrounded(call, arrays)) if is_rounded(call) else self._made(call, arrays)

    def unrounded(self, call: Call, arrays: tuple[Array, ...]) -> Values:
        """The result in steps of its integers, before it is rounded and moved by the zero point."""
        scale = np.asarray(call.number("result_scale", 0.0), dtype=np.float32)
        return np.asarray(widened(self._made(call, arrays)).astype(np.float32) / scale)

    def _made(self, call: Call, arrays: tuple[Array, ...]) -> Values:
        floats = call.text("floats", "float32")
        read = []
        for array, number in zip(arrays, _given(call), strict=True):
            parameters = _parameters(call, number)
            read.append(array if parameters is None else dequantised(array, *parameters, floats))
        inner, first = _op_call(call), _parameters(call, 0)
        if call.met is not None and first is not None:
            inner = replace(inner, met=dequantised(call.met, *first, floats))
        return self.inner.compute(inner, tuple(read))


class QuantisedProduct(Product):
    """A product of integers with its sums, scaled, rounded and limited in the pass over the accumulator.

    Inputs: data, weight, bias (int32 in units of the sums, or floats), scales of the weight by output channel, the zero
    point of data where it is not known before the run, and zero points of the weight: of the run, or int32 by output
    channel. Attributes beside those of the wrapped kind: `input_scales` and `input_zeros` of data and weight (0 where
    an input has them), `result_scale`, `result_zero`, `least` and `most`. Without a `result_scale` the result is the
    sum itself, as int32, or scaled, as floats. With `packed` the weight has 4 bits without sign and lies packed in this
    layout (compiler.ops.packed); it is unpacked on its way into the array, and sums are not made in parts.
    """

    def __init__(self, inner: Product, channel_axis: int) -> None:
        """The quantised form of `inner`, whose output channels lie on axis `channel_axis` of its result."""
        super().__init__(name_of(inner.kind))
        self.inner = inner
        self.op_class, self.is_local = inner.op_class, inner.is_local  # type: ignore[misc]
        self._channel_axis = channel_axis

    def infer(self, call: Call) -> Inferred:
        found = self.inner.infer(_product_call(call))
        own = {name: value for name, value in call.attributes.items() if name in _OWN}
        dtype = call.text("result_type", found.dtype)
        inputs = tuple(range(len(call.inputs)))
        return replace(found, dtype=dtype, kind=self.kind, inputs=inputs, attributes={**found.attributes, **own})

    def access(self, call: Call) -> Access:
        maps = list(self.inner.access(_product_call(call)))
        maps += [None] * (len(call.inputs) - len(maps))
        weight, layout = maps[1], _layout(call)
        if layout and weight is not None:
            maps[1] = stored_access(layout, weight)
        for number in (WEIGHT_SCALE, DATA_ZERO, WEIGHT_ZERO):
            if call.has(number):
                by_channel = number != DATA_ZERO and call.tensor(number).elements > 1
                channels = same(self._channel_axis % len(call.result.shape)) if by_channel else WHOLE
                maps[number] = tuple(channels for _ in call.tensor(number).shape)
        return tuple(maps)

    def array_type(self, call: Call) -> str:
        del call
        return ARRAY_TYPE

    def accumulator(self, call: Call) -> str:
        del call
        return ACCUMULATOR

    def work(self, call: Call) -> Work:
        return self.inner.work(_product_call(call))

    def matrix(self, call: Call) -> MatrixShape | None:
        return self.inner.matrix(_product_call(call))

    def overlap(self, call: Call) -> tuple[int, ...]:
        return self.inner.overlap(_product_call(call))

    def window(self, call: Call) -> Window | None:
        return self.inner.window(_product_call(call))

    def padding_value(self, call: Call) -> float:
        return self._zeros(call)[0]

    def enclosing(self, call: Call, box: Box) -> Box:
        return self.inner.enclosing(_product_call(call), box)

    def local_attributes(self, call: Call, box: Box, needed: tuple[Box | None, ...]) -> Mapping[str, Attribute]:
        weight, layout = needed[1], _layout(call)
        if layout and weight is not None:
            needed = (needed[0], whole_box(layout, weight), *needed[2:])
        return {**call.attributes, **self.inner.local_attributes(_product_call(call), box, needed)}

    def summed(self, call: Call) -> tuple[int | None, ...] | None:
        # parts of a sum read no more than the two factors, along an axis of both
        is_whole = call.has(DATA_ZERO) or call.has(WEIGHT_ZERO) or _layout(call)
        return None if is_whole else self.inner.summed(_product_call(call))

    def compute(self, call: Call, arrays: tuple[Array, ...]) -> Array:
        return self.finished(call, self._sums(call, arrays), by_input(call, arrays)[2:])

    def sums(self, call: Call, given: Sequence[Array]) -> Values:
        return self._sums(call, tuple(given))

    def _sums(self, call: Call, arrays: tuple[Array, ...]) -> Values:
        """The exact sums of products, as float64."""
        data, weight = arrays[:2]
        given: Sequence[Array | None] = by_input(call, arrays) if len(arrays) > 2 else arrays
        zero, by_channel = (*given[DATA_ZERO:], None, None)[:2]
        data_zero, weight_zero = self._zeros(call)
        layout = _layout(call)
        numbers = whole_weight(layout, weight) if layout else weight
        factors = np.asarray(numbers, dtype=np.float64) - weight_zero
        inner = _product_call(call)
        if by_channel is not None:
            known = by_channel.astype(np.float64).reshape(-1)
            if known.size > 1:
                known = known.reshape(-1, *(1,) * (factors.ndim - self._weight_axis(inner) - 1))
            factors -= known
        if call.met is None:
            origin: Any = data_zero if zero is None else zero.astype(np.float64).reshape(-1)
            return self.inner.sums(inner, (np.asarray(data, dtype=np.float64) - origin, factors))
        sums = self.inner.sums(inner, (data, factors))
        if zero is not None:
            # what windows read has 0 for padding: the zero point counts as often as there are taps on data
            ones = np.ones(call.tensor(0).shape)
            return sums - float(zero.reshape(-1)[0]) * self.inner.sums(replace(inner, met=None), (ones, factors))
        # here padding is the zero point too, so it counts as often as there are taps
        if not data_zero:
            return sums
        axes = tuple(range(1, factors.ndim))
        return sums - self._by_channel(call, data_zero * factors.sum(axis=axes))

    def unrounded(self, call: Call, arrays: tuple[Array, ...]) -> Values:
        """The result in steps of its integers, before it is rounded and moved by the zero point."""
        return self._scaled(call, self._sums(call, arrays), by_input(call, arrays)[2:])

    def finished(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Array:
        made = self._scaled(call, sums, others)
        return rounded(call, made) if is_rounded(call) else narrowed(made, call.result.dtype)

    def _scaled(self, call: Call, sums: Values, others: Sequence[Array | None]) -> Values:
        """Finished sums with their bias: in steps of the result's integers, or of the scale of the factors' product."""
        bias, by_channel = (*others, None, None)[:2]
        data_scale, weight_scale = _numbers(call, "input_scales")[:2]
        units: Any = data_scale * weight_scale
        if by_channel is not None:
            units = data_scale * self._by_channel(call, by_channel.astype(np.float64))
        total: Values = np.asarray(sums, dtype=np.float64)
        along = None
        if bias is not None:
            first = self._channel_axis == 1 and sums.ndim > 2
            along = self._by_channel(call, bias).astype(np.float64) if first else bias.astype(np.float64)
            if bias.dtype.kind == "i":
                total, along = total + along, None
        if call.result.dtype == ACCUMULATOR:
            return total
        step = call.number("result_scale", 0.0) or 1.0
        scaled = total * (units / step)
        return scaled if along is None else np.asarray(scaled + along / step)

    def _by_channel(self, call: Call, values: Values) -> Values:
        """Values by output channel as they broadcast over the result."""
        axis = self._channel_axis % len(call.result.shape)
        return values.reshape(-1, *(1,) * (len(call.result.shape) - axis - 1))

    def _weight_axis(self, inner: Call) -> int:
        """The axis of the weight that output channels lie on; it is asked for where one follows them alone."""
        channels, weight = self._channel_axis % len(inner.result.shape), self.inner.access(inner)[1] or ()
        return next(axis for axis, one in enumerate(weight) if one.is_identity and one.axis == channels)

    @staticmethod
    def _zeros(call: Call) -> tuple[int, int]:
        data, weight = (call.integers("input_zeros") or (0, 0))[:2]
        return data, weight
