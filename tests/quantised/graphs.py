"""Small random quantised graphs and their inputs, the same for a seed on every machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.quantised.builder import LARGEST_EXTENT, Builder, Quantised

Array = NDArray[Any]
_MOST_OPS: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedGraph:
    """A model, its inputs, and what to know when results are compared.

    `ops` are the kinds drawn, in order. `is_exact`: the rules of reference.py settle every bit (no float sum or
    function whose rounding is left to implementations). `needs_vnni`: ONNX Runtime's integer kernels multiply mixed
    signs with weights of 8 bits, which saturates on processors without VNNI.
    """

    seed: int
    model: onnx.ModelProto
    inputs: dict[str, Array]
    ops: tuple[str, ...]
    is_exact: bool
    needs_vnni: bool

    @property
    def quantised(self) -> tuple[str, ...]:
        """The values that nodes round to integers, in the order of the nodes."""
        kinds = ("QuantizeLinear", "QLinearConv", "QLinearMatMul", "DynamicQuantizeLinear")
        return tuple(node.output[0] for node in self.model.graph.node if node.op_type in kinds)

    @property
    def constants(self) -> dict[str, Array]:
        """What is stored, in initialisers or Constant nodes."""
        tensors = {tensor.name: tensor for tensor in self.model.graph.initializer}
        nodes = [node for node in self.model.graph.node if node.op_type == "Constant"]
        tensors |= {node.output[0]: node.attribute[0].t for node in nodes}
        return {name: onnx.numpy_helper.to_array(tensor) for name, tensor in tensors.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An op the generator can draw: its input ranks, first opset, relative frequency, and the function that adds it."""

    name: str
    make: Callable[[Builder, Quantised], Quantised | None]
    ranks: tuple[int, ...]
    opset: int = 13
    often: int = 2
    is_exact: bool = True


# Products


def _conv_geometry(b: Builder, space: Sequence[int]) -> dict[str, Any]:
    """Kernel, strides, dilations and padding that fit a map."""
    kernel = [min(b.pick((1, 2, 3, 3, 5)), extent) for extent in space]
    dilations = [b.pick((1, 1, 1, 2)) for _ in space]
    dilations = [d if (k - 1) * d < extent else 1 for k, d, extent in zip(kernel, dilations, space, strict=True)]
    result: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [b.pick((1, 1, 2, 3)) for _ in space],
        "dilations": dilations,
    }
    if b.chance(0.15) and dilations == [1] * len(space):
        result["auto_pad"] = b.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif b.chance(0.7):
        reach = [(k - 1) * d for k, d in zip(kernel, dilations, strict=True)] * 2
        result["pads"] = [b.whole(0, most) for most in reach]
    return result


def _groups(b: Builder, channels: int) -> tuple[int, int]:
    """Groups and filters: one group, some, or depthwise with a multiplier."""
    form = b.pick(("one", "one", "some", "depthwise"))
    groups = {"one": 1, "some": 2 if channels % 2 == 0 else 1, "depthwise": channels}[form]
    return groups, groups * b.whole(1, 3 if groups > 1 else 8)


def _conv(b: Builder, x: Quantised, data: str = "") -> Quantised | None:
    """A convolution of `data`, floats of the scale of x, or of x itself."""
    data = data or b.dequantise(x)
    channels, *space = b.array(data).shape[1:]
    geometry = _conv_geometry(b, space)
    groups, filters = _groups(b, channels)
    shape = (filters, channels // groups, *geometry["kernel_shape"])
    w = b.weight(shape, 0, int(np.prod(shape[1:])))
    inputs = [data, b.weight_floats(w, 0), *b.bias(x, w, filters)]
    return b.finish(b.node("Conv", *inputs, group=groups, **geometry))


def _conv_transpose(b: Builder, x: Quantised) -> Quantised | None:
    channels, *space = b.shape(x)[1:]
    if max(space) * 2 > LARGEST_EXTENT:
        return x
    kernel = [b.whole(1, 3) for _ in space]
    strides = [b.whole(1, 2) for _ in space]
    dilations = [b.pick((1, 1, 2)) for _ in space]
    pads = [b.whole(0, (k - 1) * d // 2) for k, d in zip(kernel, dilations, strict=True)] * 2
    extra = [b.whole(0, stride - 1) for stride in strides]
    groups, filters = _groups(b, channels)
    shape = (channels, filters // groups, *kernel)
    w = b.weight(shape, 1, max(int(np.prod(kernel)) * channels // groups // int(np.prod(strides)), 1))
    inputs = [b.dequantise(x), b.weight_floats(w, 1), *b.bias(x, w, filters)]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    if b.chance(0.3):
        # as large as the input and the strides say, with a padding that may be uneven
        attributes["output_shape"] = [extent * stride for extent, stride in zip(space, strides, strict=True)]
        attributes["auto_pad"] = b.pick(("NOTSET", "SAME_UPPER", "SAME_LOWER"))
    else:
        attributes |= {"pads": pads, "output_padding": extra}
    return b.finish(b.node("ConvTranspose", *inputs, group=groups, kernel_shape=kernel, **attributes))


def _matmul(b: Builder, x: Quantised, data: str = "") -> Quantised | None:
    """A matrix product of `data`, floats of the scale of x, or of x itself."""
    data = data or b.dequantise(x)
    depth, columns = b.array(data).shape[-1], b.whole(1, 12)
    w = b.weight((depth, columns), 1, depth)
    return b.finish(b.node("MatMul", data, b.weight_floats(w, 1)))


def _gemm(b: Builder, x: Quantised) -> Quantised | None:
    columns = b.whole(1, 12)
    turn_a, turn_b = int(b.chance(0.3)), int(b.chance(0.5))
    depth = b.shape(x)[0 if turn_a else 1]
    axis = 0 if turn_b else 1
    w = b.weight((columns, depth) if turn_b else (depth, columns), axis, depth)
    inputs = [b.dequantise(x), b.weight_floats(w, axis), *b.bias(x, w, columns)]
    return b.finish(b.node("Gemm", *inputs, transA=turn_a, transB=turn_b))


def _matmul_activations(b: Builder, x: Quantised) -> Quantised | None:
    rank = len(b.shape(x))
    other = b.partner(x, rank - 2)
    order = [*range(rank - 2), rank - 1, rank - 2]
    turned = b.keep(b.node("Transpose", other.name, perm=order), other.scale, other.zero_point)
    if b.chance(0.5):
        turned = b.quantise(b.node("Transpose", b.dequantise(other), perm=order))
    return b.finish(b.node("MatMul", b.dequantise(x), b.dequantise(turned)))


def _weight_only(b: Builder, x: Quantised) -> Quantised | None:
    """Integers as weights of a float product: stays float."""
    depth, columns = b.shape(x)[-1], b.whole(1, 12)
    w = b.weight((depth, columns), 1, depth)
    floats = b.node("Tanh", b.dequantise(x))
    return b.finish(b.node("MatMul", floats, b.weight_floats(w, 1)))


def _float_conv(b: Builder, x: Quantised) -> Quantised | None:
    """A convolution whose weights stay float."""
    channels = b.shape(x)[1]
    w = b.constant((b.random.standard_normal((4, channels, 1, 1)) / sqrt(channels)).astype(np.float32), "w")
    return b.finish(b.node("Conv", b.dequantise(x), w))


# Products of what was moved between DequantizeLinear and the product


def _number(b: Builder, x: Quantised) -> np.float32:
    """The number of one of x's integers, or rarely of none."""
    zero = int(b.array(x.zero_point)) if x.zero_point else 0
    limits = np.iinfo(b.array(x.name).dtype)
    steps = b.pick((0, 0, int(limits.min), int(limits.max), b.whole(zero - 20, zero + 20))) - zero
    if b.chance(0.1):
        return np.float32(b.random.uniform(-1, 1))
    return np.float32(steps) * np.float32(b.array(x.scale).reshape(()))


def _padded(b: Builder, x: Quantised, data: str) -> str:
    shape = b.array(data).shape
    mode = b.pick(("constant", "constant", "constant", "edge", "reflect"))
    most = [0 if at < 2 and len(shape) > 2 else min(2, extent - 1) for at, extent in enumerate(shape)] * 2
    value = [b.constant(_number(b, x))] if mode == "constant" and b.chance(0.6) else []
    return b.node("Pad", data, b.ints(*(b.whole(0, extent) for extent in most)), *value, mode=mode)


def _joined(b: Builder, x: Quantised, data: str) -> str:
    """A Concat with what has the same scale, another scale, or is constant."""
    shape = b.array(data).shape
    axis = 1 if len(shape) == 4 else len(shape) - 1
    form = b.pick(("same", "same", "same", "another zero", "zeros", "numbers", "other"))
    if form in ("same", "another zero"):
        zero = [x.zero_point] if x.zero_point else []
        if form == "another zero":
            zero = [b.constant(np.array(b.whole(1, 9), b.array(x.name).dtype))]
        shifted = b.node("Mul", data, b.constant(np.float32(b.random.uniform(0.2, 1))))
        rounded = b.node("QuantizeLinear", shifted, x.scale, *zero)
        other = b.node("DequantizeLinear", rounded, x.scale, *zero)
    elif form == "other":
        floats = b.node("Mul", data, b.constant(np.float32(b.random.uniform(0.2, 1))))
        other = b.dequantise(b.quantise(floats))
    else:
        number = np.float32(0) if form == "zeros" else _number(b, x)
        other = b.constant(np.full(shape, number))
    return b.node("Concat", *((data, other) if b.chance(0.7) else (other, data)), axis=axis)


def _enlarged(b: Builder, x: Quantised, data: str) -> str:
    """A Resize to the nearest, of maps."""
    del x
    shape = b.array(data).shape
    if len(shape) != 4 or max(shape[2:]) * 2 > LARGEST_EXTENT:
        return data
    given = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    return b.node("Resize", data, "", b.constant(np.array([1, 1, 2, 2], np.float32)), **given)


def _limited(b: Builder, x: Quantised, data: str) -> str:
    """A Relu, or a Clip to numbers that integers have."""
    if b.chance(0.5):
        return b.node("Relu", data)
    return b.node("Clip", data, *(b.constant(bound) for bound in sorted((_number(b, x), _number(b, x)))))


def _rearranged(b: Builder, x: Quantised, data: str) -> str:
    """A Transpose of the last axes, a Slice, a MaxPool or the largest along the last axis."""
    del x
    shape = b.array(data).shape
    form = b.pick(("Transpose", "Slice", "MaxPool", "ReduceMax"))
    if form == "Slice":
        axis = len(shape) - 1
        return b.node("Slice", data, b.ints(shape[axis] // 3), b.ints(shape[axis]), b.ints(axis))
    if form == "MaxPool" and len(shape) > 2:
        return b.node("MaxPool", data, kernel_shape=[min(2, extent) for extent in shape[2:]])
    if form == "ReduceMax":
        return _reduced(b, "ReduceMax", data, len(shape) - 1)
    return b.node("Transpose", data, perm=[*range(len(shape) - 2), len(shape) - 1, len(shape) - 2])


_MOVES: Final = (_padded, _joined, _enlarged, _limited, _rearranged)


def _behind_moves(product: Callable[[Builder, Quantised, str], Quantised | None]) -> Any:
    def make(b: Builder, x: Quantised) -> Quantised | None:
        data = b.dequantise(x)
        for _ in range(b.whole(1, 3)):
            data = b.pick(_MOVES)(b, x, data)
        return product(b, x, data)

    return make


def _reduced(b: Builder, op_type: str, data: str, axis: int) -> str:
    """A reduction along an axis, which stays with one position; where axes stand depends on op and opset."""
    as_input = b.opset >= 18 or op_type == "ReduceSum"
    return b.node(op_type, data, b.ints(axis)) if as_input else b.node(op_type, data, axes=[axis])


# Ops that are float inside


def _reduction(op_type: str) -> Callable[[Builder, Quantised], Quantised | None]:
    """Along one axis, quantised again or not."""
    return lambda b, x: b.quantise(_reduced(b, op_type, b.dequantise(x), b.whole(1, len(b.shape(x)) - 1)))


def _position(b: Builder, x: Quantised) -> Quantised | None:
    """Positions of the largest, which are outputs."""
    op_type, axis = b.pick(("ArgMax", "ArgMin")), b.whole(0, len(b.shape(x)) - 1)
    b.outputs.append(b.node(op_type, b.dequantise(x), axis=axis, keepdims=b.whole(0, 1)))
    return x


def _by_channel(b: Builder, x: Quantised, op_type: str, count: int) -> Quantised | None:
    """A normalisation with parameters by channel: scale, bias, and where statistics are given mean and variance."""
    channels = b.shape(x)[1]
    ranges = ((0.5, 2.0), (-1.0, 1.0), (-0.5, 0.5), (0.5, 2.0))[:count]
    parameters = [b.constant(b.random.uniform(low, high, channels).astype(np.float32)) for low, high in ranges]
    return b.quantise(b.node(op_type, b.dequantise(x), *parameters, epsilon=1e-3))


def _running_sum(b: Builder, x: Quantised) -> Quantised | None:
    return b.quantise(b.node("CumSum", b.dequantise(x), b.constant(np.int64(len(b.shape(x)) - 1))))


def _rms_norm(b: Builder, x: Quantised) -> Quantised | None:
    """As exporters write it before opset 23: x / √(mean of squares + epsilon) · gain."""
    floats = b.dequantise(x)
    squares = b.node("Pow", floats, b.constant(np.float32(2)))
    mean = b.node("Add", _reduced(b, "ReduceMean", squares, len(b.shape(x)) - 1), b.constant(np.float32(1e-3)))
    gain = b.constant(b.random.uniform(0.5, 2, b.shape(x)[-1]).astype(np.float32))
    return b.quantise(b.node("Mul", b.node("Div", floats, b.node("Sqrt", mean)), gain))


def _binary(op_type: str) -> Callable[[Builder, Quantised], Quantised | None]:
    def make(b: Builder, x: Quantised) -> Quantised | None:
        result = b.node(op_type, b.dequantise(x), b.dequantise(b.partner(x)))
        return b.quantise(b.node("Relu", result) if b.chance(0.3) else result)

    return make


def _unary(op_type: str, **attributes: Any) -> Callable[[Builder, Quantised], Quantised | None]:
    return lambda b, x: b.quantise(b.node(op_type, b.dequantise(x), **attributes))


def _concat(b: Builder, x: Quantised) -> Quantised | None:
    axis = 1 if len(b.shape(x)) == 4 else len(b.shape(x)) - 1
    if b.shape(x)[axis] > LARGEST_EXTENT:
        return x
    return b.quantise(b.node("Concat", b.dequantise(x), b.dequantise(b.partner(x, axis)), axis=axis))


def _pool(op_type: str) -> Callable[[Builder, Quantised], Quantised | None]:
    def make(b: Builder, x: Quantised) -> Quantised | None:
        space = b.shape(x)[2:]
        kernel = [min(b.whole(1, 3), extent) for extent in space]
        attributes: dict[str, Any] = {"kernel_shape": kernel, "strides": [b.whole(1, 2) for _ in space]}
        attributes["pads"] = [b.whole(0, extent // 2) for extent in kernel] * 2
        if op_type == "AveragePool":
            attributes["count_include_pad"] = b.whole(0, 1)
        result = b.node(op_type, b.dequantise(x), **attributes)
        if op_type == "MaxPool" and b.chance(0.5):  # the scale stays, as quantisers write it
            zero = [x.zero_point] if x.zero_point else []
            return b.keep(b.node("QuantizeLinear", result, x.scale, *zero), x.scale, x.zero_point)
        return b.quantise(result)

    return make


def _sum(b: Builder, x: Quantised) -> Quantised | None:
    others = [b.dequantise(b.partner(x)) for _ in range(2)]
    return b.quantise(b.node("Sum", b.dequantise(x), *others))


def _clip(b: Builder, x: Quantised) -> Quantised | None:
    bounds = [b.constant(np.float32(bound)) for bound in sorted(b.random.uniform(-2, 3, 2))]
    return b.quantise(b.node("Clip", b.dequantise(x), *bounds))


def _pad(b: Builder, x: Quantised) -> Quantised | None:
    """Zeros around a map or rows: in integers they are the zero point."""
    rank = len(b.shape(x))
    if max(b.shape(x)) > LARGEST_EXTENT:
        return x
    pads = [b.whole(0, 2) if at > 1 else 0 for at in range(rank)] * 2
    return b.quantise(b.node("Pad", b.dequantise(x), b.ints(*pads)))


def _slice(b: Builder, x: Quantised) -> Quantised | None:
    axis = b.whole(0, len(b.shape(x)) - 1)
    extent = b.shape(x)[axis]
    start = b.whole(0, (extent - 1) // 2)
    return _moved(b, x, "Slice", b.ints(start), b.ints(extent), b.ints(axis), b.ints(b.whole(1, 2)))


def _split(b: Builder, x: Quantised) -> Quantised | None:
    """Two parts in the same scale or each in its own; both may be used."""
    extent = b.shape(x)[1]
    if extent < 2:
        return x
    first = b.whole(1, extent - 1)
    parts = b.nodes_out("Split", [b.dequantise(x), b.ints(first, extent - first)], 2, axis=1)
    b.quantise(parts[0])
    return b.quantise(parts[1])


def _resize(mode: str) -> Callable[[Builder, Quantised], Quantised | None]:
    def make(b: Builder, x: Quantised) -> Quantised | None:
        if max(b.shape(x)[2:]) * 2 > LARGEST_EXTENT:
            return x
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": "asymmetric"}
        if mode == "nearest":
            attributes["nearest_mode"] = "floor"
        return b.quantise(b.node("Resize", b.dequantise(x), "", scales, **attributes))

    return make


def _layer_norm(b: Builder, x: Quantised) -> Quantised | None:
    width = b.shape(x)[-1]
    gain = b.constant(b.random.uniform(0.5, 2, width).astype(np.float32))
    shift = b.constant(b.random.uniform(-1, 1, width).astype(np.float32))
    return b.quantise(b.node("LayerNormalization", b.dequantise(x), gain, shift, axis=-1, epsilon=1e-3))


def _moved(b: Builder, x: Quantised, op_type: str, *inputs: str, **attributes: Any) -> Quantised:
    """An op that moves elements: between conversions, or on the integers themselves."""
    if b.chance(0.3):
        return b.keep(b.node(op_type, x.name, *inputs, **attributes), x.scale, x.zero_point)
    return b.quantise(b.node(op_type, b.dequantise(x), *inputs, **attributes))


def _flatten(b: Builder, x: Quantised) -> Quantised | None:
    return _moved(b, x, "Flatten", axis=1)


def _reshape(b: Builder, x: Quantised) -> Quantised | None:
    """Maps become rows of positions, or rows are cut in two."""
    shape = b.shape(x)
    if len(shape) == 4:
        return _moved(b, x, "Reshape", b.ints(shape[0], shape[1], -1))
    if len(shape) == 3:
        return _moved(b, x, "Reshape", b.ints(-1, shape[2]))
    return _moved(b, x, "Reshape", b.ints(1, *shape))


def _transpose(b: Builder, x: Quantised) -> Quantised | None:
    rank = len(b.shape(x))
    return _moved(b, x, "Transpose", perm=[0, *range(2, rank), 1] if rank > 2 else [1, 0])


# Integer ops


def _integer_weight(b: Builder, x: Quantised, shape: Sequence[int], axis: int, depth: int) -> Quantised:
    """Weights that ONNX Runtime's integer kernels take: signed with signed data, one zero point."""
    is_signed = b.array(x.name).dtype == np.int8
    kind = np.int8 if is_signed else b.pick((np.int8, np.uint8))
    bits = b.pick((7, 8))
    b.needs_vnni |= bits == 8 and not is_signed and kind == np.int8
    return b.weight(shape, axis, depth, kind=kind, bits=bits, one_zero_point=True)


def _eight_bits(b: Builder, x: Quantised) -> Quantised:
    """The value itself, or requantised to 8 bits if it is of a wider type; with a zero point."""
    if b.array(x.name).dtype.itemsize == 1 and x.zero_point:
        return x
    kind = b.pick(b.activations)
    floats = b.dequantise(x)
    scale, zero = b.fitting(b.array(floats), kind)
    names = b.constant(np.float32(scale)), b.constant(np.array(zero, kind))
    return b.keep(b.node("QuantizeLinear", floats, *names), *names)


def _result(b: Builder, floats: Array, kind: Any) -> tuple[str, str]:
    """Scale and zero point for the result of an op that rounds by itself."""
    scale, zero = b.fitting(floats, kind)
    return b.constant(np.float32(scale)), b.constant(np.array(zero, kind))


def _qlinear_conv(b: Builder, x: Quantised) -> Quantised | None:
    x = _eight_bits(b, x)
    channels, *space = b.shape(x)[1:]
    geometry = _conv_geometry(b, space)
    groups, filters = _groups(b, channels)
    shape = (filters, channels // groups, *geometry["kernel_shape"])
    depth = int(np.prod(shape[1:]))
    w = _integer_weight(b, x, shape, 0, depth)
    bias = []
    if b.chance(0.6):
        scale = b.array(x.scale) * b.array(w.scale)
        bias = [b.constant(np.rint(b.random.uniform(-1, 1, filters) / scale).astype(np.int32), "bias")]
    spread = float(np.std(b.array(x.name).astype(np.float64)) * b.array(x.scale) * 3) + 1
    names = _result(b, np.array([-spread, spread]), b.array(x.name).dtype)
    inputs = [x.name, x.scale, x.zero_point, w.name, w.scale, w.zero_point, *names, *bias]
    return b.keep(b.node("QLinearConv", *inputs, group=groups, **geometry), *names)


def _qlinear_matmul(b: Builder, x: Quantised) -> Quantised | None:
    x = _eight_bits(b, x)
    depth, columns = b.shape(x)[-1], b.whole(1, 12)
    w = _integer_weight(b, x, (depth, columns), 1, depth)
    spread = float(np.std(b.array(x.name).astype(np.float64)) * b.array(x.scale) * 3) + 1
    names = _result(b, np.array([-spread, spread]), b.array(x.name).dtype)
    inputs = [x.name, x.scale, x.zero_point, w.name, w.scale, w.zero_point, *names]
    return b.keep(b.node("QLinearMatMul", *inputs), *names)


def _scaled(b: Builder, sums: str, scale: str, bias: str | None) -> Quantised | None:
    """What dynamic quantisers write behind integer sums: a cast, the scale, the bias."""
    floats = b.node("Mul", b.node("Cast", sums, to=TensorProto.FLOAT), scale)
    return b.finish(floats if bias is None else b.node("Add", floats, bias))


def _conv_integer(b: Builder, x: Quantised) -> Quantised | None:
    x = _eight_bits(b, x)
    channels, *space = b.shape(x)[1:]
    geometry = _conv_geometry(b, space)
    groups, filters = _groups(b, channels)
    shape = (filters, channels // groups, *geometry["kernel_shape"])
    w = _integer_weight(b, x, shape, 0, int(np.prod(shape[1:])))
    w_zero = b.constant(b.array(w.zero_point).reshape(-1)[0])
    sums = b.node("ConvInteger", x.name, w.name, x.zero_point, w_zero, group=groups, **geometry)
    scale = b.constant(np.asarray(b.array(x.scale) * b.array(w.scale).reshape(-1)[0], np.float32))
    bias = b.random.uniform(-1, 1, (1, filters, 1, 1)).astype(np.float32)
    return _scaled(b, sums, scale, b.constant(bias, "bias") if b.chance(0.5) else None)


def _matmul_integer(b: Builder, x: Quantised) -> Quantised | None:
    x = _eight_bits(b, x)
    depth, columns = b.shape(x)[-1], b.whole(1, 12)
    w = _integer_weight(b, x, (depth, columns), 1, depth)
    sums = b.node("MatMulInteger", x.name, w.name, x.zero_point, w.zero_point)
    scale = b.constant(np.asarray(b.array(x.scale) * b.array(w.scale), np.float32))
    return _scaled(b, sums, scale, None)


def _dynamic_matmul(b: Builder, x: Quantised) -> Quantised | None:
    """A matrix product as ONNX Runtime's dynamic quantiser writes it."""
    depth, columns = b.shape(x)[-1], b.whole(1, 12)
    values, scale, zero = b.nodes_out("DynamicQuantizeLinear", [b.dequantise(x)], 3)
    dynamic = Quantised(name=values, scale=scale, zero_point=zero)
    w = _integer_weight(b, dynamic, (depth, columns), 1, depth)
    sums = b.node("MatMulInteger", values, w.name, zero, w.zero_point)
    bias = b.constant(b.random.uniform(-1, 1, columns).astype(np.float32), "bias") if b.chance(0.6) else None
    return _scaled(b, sums, b.node("Mul", scale, w.scale), bias)


OPS: Final = (
    Op(name="Conv", make=_conv, ranks=(3, 4), often=9),
    Op(name="ConvTranspose", make=_conv_transpose, ranks=(3, 4)),
    Op(name="MatMul", make=_matmul, ranks=(2, 3), often=5),
    Op(name="Gemm", make=_gemm, ranks=(2,), often=6),
    Op(name="MatMul of activations", make=_matmul_activations, ranks=(2, 3), often=3),
    Op(name="weight only", make=_weight_only, ranks=(2, 3), often=1, is_exact=False),
    Op(name="float Conv", make=_float_conv, ranks=(4,), often=1, is_exact=False),
    Op(name="Add", make=_binary("Add"), ranks=(2, 3, 4), often=3),
    Op(name="Mul", make=_binary("Mul"), ranks=(2, 3, 4)),
    Op(name="Sub", make=_binary("Sub"), ranks=(2, 3, 4), often=1),
    Op(name="Sum", make=_sum, ranks=(2, 3, 4), often=1, is_exact=False),
    Op(name="Concat", make=_concat, ranks=(2, 3, 4)),
    Op(name="MaxPool", make=_pool("MaxPool"), ranks=(3, 4)),
    Op(name="AveragePool", make=_pool("AveragePool"), ranks=(3, 4), is_exact=False),
    Op(name="GlobalAveragePool", make=_unary("GlobalAveragePool"), ranks=(4,), often=1, is_exact=False),
    Op(name="Resize nearest", make=_resize("nearest"), ranks=(4,), often=1),
    Op(name="Resize linear", make=_resize("linear"), ranks=(4,), often=1, is_exact=False),
    Op(name="Pad", make=_pad, ranks=(3, 4), often=1),
    Op(name="Slice", make=_slice, ranks=(2, 3, 4), often=1),
    Op(name="Split", make=_split, ranks=(2, 3, 4), often=1),
    Op(name="Relu", make=_unary("Relu"), ranks=(2, 3, 4), often=1),
    Op(name="Clip", make=_clip, ranks=(2, 3, 4), often=1),
    Op(name="LeakyRelu", make=_unary("LeakyRelu", alpha=0.1), ranks=(2, 3, 4), often=1),
    Op(name="Sigmoid", make=_unary("Sigmoid"), ranks=(2, 3, 4), often=1, is_exact=False),
    Op(name="Gelu", make=_unary("Gelu"), ranks=(2, 3, 4), opset=20, often=1, is_exact=False),
    Op(name="Softmax", make=_unary("Softmax", axis=-1), ranks=(2, 3, 4), often=1, is_exact=False),
    Op(name="LayerNormalization", make=_layer_norm, ranks=(2, 3, 4), opset=17, often=1, is_exact=False),
    Op(name="LogSoftmax", make=_unary("LogSoftmax", axis=-1), ranks=(2, 3), often=1, is_exact=False),
    Op(name="RMSNormalization", make=_rms_norm, ranks=(2, 3), often=1, is_exact=False),
    Op(
        name="InstanceNormalization",
        make=lambda b, x: _by_channel(b, x, "InstanceNormalization", 2),
        ranks=(3, 4),
        often=1,
        is_exact=False,
    ),
    Op(
        name="BatchNormalization",
        make=lambda b, x: _by_channel(b, x, "BatchNormalization", 4),
        ranks=(3, 4),
        often=1,
        is_exact=False,
    ),
    Op(name="LRN", make=_unary("LRN", size=3), ranks=(4,), often=1, is_exact=False),
    Op(name="CumSum", make=_running_sum, ranks=(2, 3), often=1, is_exact=False),
    Op(name="ReduceMean", make=_reduction("ReduceMean"), ranks=(2, 3, 4), often=1, is_exact=False),
    Op(name="ReduceSum", make=_reduction("ReduceSum"), ranks=(2, 3, 4), often=1, is_exact=False),
    Op(name="ReduceL2", make=_reduction("ReduceL2"), ranks=(2, 3), often=1, is_exact=False),
    Op(name="ReduceMax", make=_reduction("ReduceMax"), ranks=(2, 3, 4), often=1),
    Op(name="ArgMax", make=_position, ranks=(2, 3, 4), often=1),
    Op(name="Conv behind moves", make=_behind_moves(_conv), ranks=(3, 4), often=6),
    Op(name="MatMul behind moves", make=_behind_moves(_matmul), ranks=(2, 3), often=4),
    Op(name="Flatten", make=_flatten, ranks=(4,)),
    Op(name="Reshape", make=_reshape, ranks=(2, 3, 4)),
    Op(name="Transpose", make=_transpose, ranks=(2, 3, 4), often=1),
    Op(name="QLinearConv", make=_qlinear_conv, ranks=(3, 4), often=2),
    Op(name="QLinearMatMul", make=_qlinear_matmul, ranks=(2, 3), often=2),
    Op(name="ConvInteger", make=_conv_integer, ranks=(4,), often=1),
    Op(name="MatMulInteger", make=_matmul_integer, ranks=(2, 3), often=2),
    Op(name="DynamicQuantizeLinear", make=_dynamic_matmul, ranks=(2, 3), often=3),
)


# The ops with a quantised weight as a second factor.
_BY_WEIGHTS: Final = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def quantised_graph(seed: int, *, four_bits: bool = False) -> QuantisedGraph:
    """The graph of a seed: 1 to 6 ops, each on the latest value or an older one.

    With `four_bits` weights have 4 bits, and the first op has one.
    """
    b = Builder(seed, four_bits=four_bits)
    x = _first(b)
    for number in range(b.whole(1, _MOST_OPS)):
        rank = len(b.shape(x))
        allowed = [op for op in OPS if rank in op.ranks and op.opset <= b.opset]
        if four_bits and not number:
            allowed = [op for op in allowed if op.name in _BY_WEIGHTS]
        op = b.pick([op for op in allowed for _ in range(op.often)])
        b.ops.append(op.name)
        b.is_exact &= op.is_exact
        made = op.make(b, x)
        x = b.pick(b.pool) if made is None or b.chance(0.1) else made
    return _finished(b, seed)


def _first(b: Builder) -> Quantised:
    """The input: a map or rows, as floats or as integers."""
    shape = b.pick(
        (
            (b.whole(1, 2), b.whole(1, 8), b.whole(4, 9), b.whole(4, 9)),
            (b.whole(1, 2), b.whole(1, 8), b.whole(4, 9), b.whole(4, 9)),
            (b.whole(1, 2), b.whole(2, 8), b.whole(2, 16)),
            (b.whole(1, 6), b.whole(2, 24)),
        )
    )
    floats = b.random.uniform(-2, 3, shape).astype(np.float32)
    if b.chance(0.6):
        return b.quantise(b.input(floats))
    kind = b.pick(b.activations)
    scale, zero = b.fitting(floats, kind)
    limits = np.iinfo(kind)
    integers = b.random.integers(int(limits.min), int(limits.max) + 1, shape).astype(kind)
    return b.keep(b.input(integers), b.constant(np.float32(scale)), b.constant(np.array(zero, kind)))


def _finished(b: Builder, seed: int) -> QuantisedGraph:
    """The model, whose outputs are all values that nothing reads, and some others."""
    read = {name for node in b.nodes for name in node.input}
    made = [name for node in b.nodes if node.op_type != "Constant" for name in node.output]
    for name in made:
        if name not in read and name not in b.outputs:
            floats = b.chance(0.5) and next((x for x in b.pool if x.name == name), None)
            b.outputs.append(b.dequantise(floats) if floats else name)
    inner = [x.name for x in b.pool if x.name in made and x.name in read and x.name not in b.outputs]
    if inner and b.chance(0.3):
        b.outputs.append(b.pick(inner))
    if not b.outputs:  # nothing but the input's integers
        b.outputs.append(b.dequantise(b.pool[0]))
    graph = b.model.graph
    graph.node.extend(b.nodes)
    graph.input.extend(_described(b.inputs))
    graph.output.extend(_described({name: b.array(name) for name in dict.fromkeys(b.outputs)}))
    return QuantisedGraph(
        seed=seed,
        model=b.model,
        inputs=b.inputs,
        ops=tuple(b.ops),
        is_exact=b.is_exact,
        needs_vnni=b.needs_vnni,
    )


def _described(arrays: Mapping[str, Array]) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in arrays.items()
    ]
