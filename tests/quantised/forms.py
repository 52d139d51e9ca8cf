"""Small quantised models in the forms that other tools write: exporters of PyTorch and TensorFlow, other quantisers.

Each function of `FORMS` makes one. They are written by hand after what those tools export.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]
_IR_VERSION: Final = 10
_INT8, _UINT8 = np.int8, np.uint8


class Net:
    """A model under construction, with inputs to run it on."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.random = np.random.default_rng(28)
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: dict[str, Array] = {}
        self.results: list[onnx.ValueInfoProto] = []
        self.constants_are_nodes = False
        self._count = 0

    def fresh(self, stem: str) -> str:
        """A name that nothing has."""
        self._count += 1
        return f"{stem}{self._count}"

    def input(self, *shape: int, kind: Any = np.float32) -> str:
        """A graph input: floats from -2 to 3, or any integers of 8 bits."""
        name = self.fresh("input")
        values = self.random.uniform(-2, 3, shape).astype(kind)
        if np.dtype(kind).kind in "iu":
            limits = np.iinfo(kind)
            values = self.random.integers(max(limits.min, -128), min(limits.max, 255), shape).astype(kind)
        self.inputs[name] = values
        return name

    def constant(self, values: Any, kind: Any = np.float32) -> str:
        """A constant: an initialiser, or the result of a Constant node."""
        name, array = self.fresh("k"), np.asarray(values, kind)
        tensor = numpy_helper.from_array(array, name)
        if self.constants_are_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.tensors.append(tensor)
        return name

    def node(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """A node of one output."""
        return self.nodes_out(op_type, 1, *inputs, **attributes)[0]

    def nodes_out(self, op_type: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        """A node of several outputs."""
        outputs = [self.fresh(op_type.lower()) for _ in range(count)]
        self.nodes.append(helper.make_node(op_type, list(inputs), outputs, name=f"node_{outputs[0]}", **attributes))
        return outputs

    def q(self, x: str, scale: float = 0.03, zero: int = 0, kind: Any = _INT8) -> str:
        """Integers of one scale."""
        return self.node("QuantizeLinear", x, self.constant(scale), self.constant(zero, kind))

    def dq(self, x: str, scale: float = 0.03, zero: int = 0, kind: Any = _INT8) -> str:
        """Floats of one scale."""
        return self.node("DequantizeLinear", x, self.constant(scale), self.constant(zero, kind))

    def qdq(self, x: str, scale: float = 0.03, zero: int = 0, kind: Any = _INT8) -> str:
        """Floats rounded to integers of a scale."""
        return self.dq(self.q(x, scale, zero, kind), scale, zero, kind)

    def scales(self, count: int) -> Array:
        """A scale per channel."""
        return self.random.uniform(0.004, 0.012, count).astype(np.float32)

    def integers(self, *shape: int, kind: Any = _INT8) -> Array:
        """Weights of all 8 bits."""
        limits = np.iinfo(kind)
        return self.random.integers(max(limits.min, -127), limits.max + 1, shape).astype(kind)

    def weight(self, *shape: int, axis: int | None = 0, kind: Any = _INT8) -> str:
        """Dequantised weights of a scale per channel of an axis, or of one scale."""
        integers = self.constant(self.integers(*shape, kind=kind), kind)
        zero = 0 if kind == _INT8 else 128
        if axis is None:
            return self.dq(integers, 0.008, zero, kind)
        scales = self.constant(self.scales(shape[axis]))
        zeros = self.constant(np.full(shape[axis], zero), kind)
        return self.node("DequantizeLinear", integers, scales, zeros, axis=axis)

    def four_bits(self, *shape: int, axis: int | None = 0, signed: bool = True, zero: int = 0) -> str:
        """Dequantised weights of 4 bits with one zero point, of a scale per channel of an axis or of one scale."""
        kind, low = (ml_dtypes.int4, -8) if signed else (ml_dtypes.uint4, 0)
        integers = self.constant(self.random.integers(low, low + 16, shape), kind)
        if axis is None:
            return self.dq(integers, 0.02, zero, kind)
        scales, zeros = 10 * self.scales(shape[axis]), np.full(shape[axis], zero)
        return self.node("DequantizeLinear", integers, self.constant(scales), self.constant(zeros, kind), axis=axis)

    def bias(self, count: int) -> str:
        """A bias of floats."""
        return self.constant(self.random.uniform(-1, 1, count))

    def result(self, name: str, kind: int = TensorProto.INT8, *, shape: Sequence[int] | None = None) -> None:
        """A graph output; a shape that cannot be inferred is given."""
        self.results.append(helper.make_tensor_value_info(name, kind, shape))

    def model(self) -> onnx.ModelProto:
        """The model, with the shapes that inference finds."""
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        graph = helper.make_graph(self.nodes, "form", given, self.results, self.tensors)
        opsets = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)
        return onnx.shape_inference.infer_shapes(model)


def _image(net: Net) -> str:
    return net.qdq(net.input(1, 4, 8, 8))


def _rows(net: Net, kind: Any = _INT8) -> str:
    return net.qdq(net.input(5, 16), 0.03, 128 if kind == _UINT8 else 3, kind)


def weights_rounded_in_the_graph(net: Net) -> None:
    """Fake quantisation of PyTorch for TensorRT: float weights, QuantizeLinear and DequantizeLinear, a float bias."""
    scales = net.scales(6)
    floats = net.constant(net.random.standard_normal((6, 4, 3, 3)) / 6)
    zeros, scale = net.constant(np.zeros(6), _INT8), net.constant(scales)
    weight = net.node(
        "DequantizeLinear", net.node("QuantizeLinear", floats, scale, zeros, axis=0), scale, zeros, axis=0
    )
    net.result(net.q(net.node("Relu", net.node("Conv", _image(net), weight, net.bias(6), pads=[1] * 4)), 0.05, -128))


def linear_with_a_turned_weight(net: Net) -> None:
    """PyTorch's nn.Linear by pt2e: DequantizeLinear along axis 0, Transpose, MatMul, Add of a float bias."""
    weight = net.node("Transpose", net.weight(10, 16), perm=[1, 0])
    net.result(net.q(net.node("Add", net.node("MatMul", _rows(net), weight), net.bias(10)), 0.1))


def linear_with_a_turned_weight_rounded_in_the_graph(net: Net) -> None:
    """The same with QuantizeLinear of float weights, as AIMET exports it."""
    scale, zeros = net.constant(net.scales(10)), net.constant(np.zeros(10), _INT8)
    floats = net.constant(net.random.standard_normal((10, 16)) / 4)
    rounded = net.node("QuantizeLinear", floats, scale, zeros, axis=0)
    weight = net.node("Transpose", net.node("DequantizeLinear", rounded, scale, zeros, axis=0), perm=[1, 0])
    net.result(net.q(net.node("Add", net.node("MatMul", _rows(net), weight), net.bias(10)), 0.1))


def linear_with_a_turned_weight_of_one_scale(net: Net) -> None:
    """Per tensor."""
    weight = net.node("Transpose", net.weight(10, 16, axis=None), perm=[1, 0])
    net.result(net.q(net.node("MatMul", _rows(net), weight), 0.1))


def gemm_of_a_classifier(net: Net) -> None:
    """Flatten behind DequantizeLinear, Gemm with transB, a float bias, a float result."""
    x = net.node("Flatten", _image(net))
    net.result(net.node("Gemm", x, net.weight(10, 256), net.bias(10), transB=1), TensorProto.FLOAT)


def reshaped_data(net: Net) -> None:
    """Reshape between DequantizeLinear and MatMul."""
    x = net.node("Reshape", _image(net), net.constant([1, 16, 16], np.int64))
    net.result(net.q(net.node("MatMul", x, net.weight(16, 10, axis=1)), 0.1))


def residual_of_a_float_product(net: Net) -> None:
    """TensorRT's placement: the sum of a dequantised branch and a product that was never rounded, then Relu."""
    x = _image(net)
    product = net.node("Conv", x, net.weight(4, 4, 3, 3), net.bias(4), pads=[1] * 4)
    net.result(net.q(net.node("Relu", net.node("Add", product, x)), 0.05, -128))


def residual_of_two_rounded_branches(net: Net) -> None:
    """Both branches rounded, Relu behind the sum, read by two."""
    x = _image(net)
    product = net.qdq(net.node("Conv", x, net.weight(4, 4, 3, 3), net.bias(4), pads=[1] * 4), 0.06, 5)
    y = net.qdq(net.node("Relu", net.node("Add", product, x)), 0.05, -128)
    net.result(net.q(net.node("Conv", y, net.weight(2, 4, 1, 1)), 0.05))
    net.result(net.q(net.node("Conv", y, net.weight(3, 4, 3, 3), strides=[2, 2]), 0.05))


def axes_from_the_end(net: Net) -> None:
    """Scales along a negative axis."""
    integers = net.constant(net.integers(6, 4, 3, 3), _INT8)
    weight = net.node(
        "DequantizeLinear", integers, net.constant(net.scales(6)), net.constant(np.zeros(6), _INT8), axis=-4
    )
    y = net.qdq(net.node("Conv", _image(net), weight), 0.1)
    columns = net.constant(net.integers(6, 5), _INT8)
    last = net.node("DequantizeLinear", columns, net.constant(net.scales(5)), net.constant(np.zeros(5), _INT8), axis=-1)
    net.result(net.q(net.node("MatMul", net.node("Transpose", y, perm=[0, 2, 3, 1]), last), 0.2))


def everything_from_constant_nodes(net: Net) -> None:
    """TorchScript: scales, zero points, weights and the limits of a Clip are results of Constant nodes."""
    net.constants_are_nodes = True
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6))
    net.result(net.q(net.node("Clip", product, net.constant(0.0), net.constant(6.0)), 6 / 255, -128))


def unsigned_everything(net: Net) -> None:
    """TensorFlow Lite of old: uint8 data and weights with zero points, an int32 bias, Relu6."""
    x = net.qdq(net.input(1, 4, 8, 8), 0.02, 100, _UINT8)
    weight = net.weight(6, 4, 3, 3, axis=None, kind=_UINT8)
    integers = net.constant(net.random.integers(-2000, 2000, 6), np.int32)
    scale = np.float32(0.02) * np.float32(0.008)
    bias = net.node("DequantizeLinear", integers, net.constant(scale), net.constant(0, np.int32))
    y = net.node("Clip", net.node("Conv", x, weight, bias, pads=[1] * 4), net.constant(0.0), net.constant(6.0))
    net.result(net.q(y, 6 / 255, 0, _UINT8), TensorProto.UINT8)


def channels_last(net: Net) -> None:
    """tf2onnx: Transposes around the convolution, weights turned behind DequantizeLinear."""
    x = net.node("Transpose", net.qdq(net.input(1, 8, 8, 4)), perm=[0, 3, 1, 2])
    weight = net.node("Transpose", net.weight(3, 3, 4, 6, axis=3), perm=[3, 2, 0, 1])
    y = net.node(
        "Transpose", net.node("Relu", net.node("Conv", x, weight, net.bias(6), pads=[0, 0, 1, 1])), perm=[0, 2, 3, 1]
    )
    net.result(net.q(y, 0.05, -128))


def channels_last_depthwise(net: Net) -> None:
    """The same of a depthwise convolution, whose weights are reshaped too."""
    x = net.node("Transpose", net.qdq(net.input(1, 8, 8, 4)), perm=[0, 3, 1, 2])
    weight = net.node("Transpose", net.weight(1, 3, 3, 4, axis=3), perm=[3, 0, 1, 2])
    y = net.node("Conv", x, weight, net.bias(4), pads=[1] * 4, group=4)
    net.result(net.q(net.node("Transpose", y, perm=[0, 2, 3, 1]), 0.05))


def shared_weights(net: Net) -> None:
    """Two convolutions of one DequantizeLinear, as detection heads have them."""
    weight = net.weight(6, 4, 3, 3)
    a, b = net.qdq(net.input(1, 4, 8, 8)), net.qdq(net.input(1, 4, 6, 6), 0.02, 9)
    for x in (a, b):
        net.result(net.q(net.node("Conv", x, weight, net.bias(6)), 0.05))


def scales_through_other_nodes(net: Net) -> None:
    """A scale that comes through Identity, another through a Cast from float16."""
    scale = net.node("Identity", net.constant(0.03))
    half = net.node("Cast", net.constant(0.05, np.float16), to=TensorProto.FLOAT)
    zero = net.constant(0, _INT8)
    x = net.node("DequantizeLinear", net.node("QuantizeLinear", net.input(1, 4, 8, 8), scale, zero), scale, zero)
    net.result(net.node("QuantizeLinear", net.node("Conv", x, net.weight(6, 4, 3, 3)), half, zero))


def scales_of_one_element(net: Net) -> None:
    """Scales and zero points of shape (1,)."""
    scale, zero = net.constant([0.03]), net.constant([3], _INT8)
    x = net.node("DequantizeLinear", net.node("QuantizeLinear", net.input(5, 16), scale, zero), scale, zero)
    weight = net.node(
        "DequantizeLinear", net.constant(net.integers(16, 6), _INT8), net.constant([0.01]), net.constant([0], _INT8)
    )
    net.result(net.node("QuantizeLinear", net.node("MatMul", x, weight), net.constant([0.1]), zero))


def no_zero_points(net: Net) -> None:
    """QuantizeLinear without a zero point gives uint8; DequantizeLinear of int8 without one."""
    scale = net.constant(0.02)
    x = net.node("DequantizeLinear", net.node("QuantizeLinear", net.node("Relu", net.input(5, 16)), scale), scale)
    weight = net.node("DequantizeLinear", net.constant(net.integers(16, 6), _INT8), net.constant(net.scales(6)), axis=1)
    net.result(net.node("QuantizeLinear", net.node("Relu", net.node("MatMul", x, weight)), scale), TensorProto.UINT8)


def clipped_integers(net: Net) -> None:
    """Brevitas's QCDQ: a Clip on the integers of data and of weights (narrow range)."""
    low, high = net.constant(-127, _INT8), net.constant(127, _INT8)
    x = net.dq(net.node("Clip", net.q(net.input(1, 4, 8, 8)), low, high))
    integers = net.node("Clip", net.constant(net.integers(6, 4, 3, 3), _INT8), low, high)
    weight = net.node(
        "DequantizeLinear", integers, net.constant(net.scales(6)), net.constant(np.zeros(6), _INT8), axis=0
    )
    y = net.node("Clip", net.q(net.node("Conv", x, weight, net.bias(6)), 0.05), low, high)
    net.result(net.dq(y, 0.05), TensorProto.FLOAT)


def added_bias(net: Net) -> None:
    """A fully connected layer of TensorFlow Lite: the int32 bias is added by a node of its own."""
    integers = net.constant(net.random.integers(-2000, 2000, 6), np.int32)
    bias = net.node("DequantizeLinear", integers, net.constant(np.float32(0.03) * np.float32(0.008)))
    product = net.node("MatMul", _rows(net), net.weight(16, 6, axis=None))
    net.result(net.q(net.node("Relu", net.node("Add", product, bias)), 0.05, -128))


def padded_data(net: Net) -> None:
    """Zeros around the floats by a Pad of its own."""
    x = net.node("Pad", net.qdq(net.input(1, 4, 8, 8), 0.03, 7), net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64))
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3, 3), net.bias(6)), 0.05))


def padded_by_a_number(net: Net) -> None:
    """A Pad with a number that one of the integers stands for, and one that repeats the edge."""
    number = net.constant(np.float32(-30) * np.float32(0.03))
    x = net.node(
        "Pad", net.qdq(net.input(1, 4, 8, 8), 0.03, 7), net.constant([0, 0, 1, 0, 0, 0, 1, 0], np.int64), number
    )
    x = net.node("Pad", x, net.constant([0, 0, 0, 1, 0, 0, 0, 1], np.int64), mode="edge")
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3, 3), net.bias(6)), 0.05))


def padded_by_no_integer(net: Net) -> None:
    """A Pad with a number between two integers' numbers."""
    pads, number = net.constant([0, 0, 1, 1, 0, 0, 1, 1], np.int64), net.constant(0.05)
    x = net.node("Pad", net.qdq(net.input(1, 4, 8, 8), 0.03, 7), pads, number)
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3, 3), net.bias(6)), 0.05))


def limited_data(net: Net) -> None:
    """A Relu between DequantizeLinear and Conv."""
    x = net.node("Relu", net.qdq(net.input(1, 4, 8, 8), 0.03, -5))
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3, 3), net.bias(6)), 0.05))


def product_of_several_readers(net: Net) -> None:
    """A product rounded for one reader and read in floats by another and as an output."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6))
    y = net.qdq(product, 0.05)
    net.result(net.q(net.node("Conv", y, net.weight(2, 6, 1, 1)), 0.05))
    net.result(net.q(net.node("Tanh", product), 1 / 127))
    net.result(product, TensorProto.FLOAT)


def normalised(net: Net) -> None:
    """Normalisations, LogSoftmax and reductions between conversions, then a product."""
    parameters = [net.constant(net.random.uniform(0.5, 1.5, 4)), net.bias(4)]
    x = net.qdq(net.node("InstanceNormalization", _image(net), *parameters), 0.03, 2)
    x = net.qdq(net.node("LRN", x, size=3), 0.03, 1)
    rows = net.node("Reshape", x, net.constant([1, 16, 16], np.int64))
    rows = net.qdq(net.node("LayerNormalization", rows, net.bias(16), net.bias(16)), 0.02, 3)
    net.result(net.q(net.node("ReduceL2", rows, axes=[2], keepdims=0), 0.03))
    net.result(net.q(net.node("LogSoftmax", rows, axis=-1), 0.05, 100))
    net.result(net.q(net.node("MatMul", rows, net.weight(16, 10, axis=1)), 0.1))


def pools_between(net: Net) -> None:
    """MaxPool between DequantizeLinear and Conv, GlobalAveragePool behind another."""
    x = net.node("MaxPool", _image(net), kernel_shape=[2, 2], strides=[2, 2])
    y = net.qdq(net.node("Conv", x, net.weight(6, 4, 3, 3), net.bias(6), pads=[1] * 4), 0.05)
    z = net.node("Flatten", net.qdq(net.node("GlobalAveragePool", y), 0.02))
    net.result(net.q(net.node("Gemm", z, net.weight(10, 6), net.bias(10), transB=1), 0.02))


def hard_swish(net: Net) -> None:
    """MobileNetV3: HardSwish behind a convolution before anything is rounded."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6))
    net.result(net.q(net.node("HardSwish", product), 0.05))


def silu_of_a_float_product(net: Net) -> None:
    """YOLO by TensorRT: a product read by Sigmoid and Mul, then rounded."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6))
    net.result(net.q(net.node("Mul", product, net.node("Sigmoid", product)), 0.05))


def unfolded_normalisation(net: Net) -> None:
    """Training with quantisation leaves a BatchNormalization behind the convolution."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3))
    parameters = [net.constant(net.random.uniform(0.5, 1.5, 6)), net.bias(6), net.bias(6)]
    y = net.node("BatchNormalization", product, *parameters, net.constant(net.random.uniform(0.5, 1.5, 6)))
    net.result(net.q(net.node("Relu", y), 0.05, -128))


def concatenated_data(net: Net) -> None:
    """Concat of branches of one scale, whose result nobody rounds again."""
    x = _image(net)
    a = net.qdq(net.node("Conv", x, net.weight(3, 4, 3, 3), pads=[1] * 4), 0.05)
    b = net.qdq(net.node("Conv", x, net.weight(5, 4, 1, 1)), 0.05)
    net.result(net.q(net.node("Conv", net.node("Concat", a, b, axis=1), net.weight(6, 8, 3, 3)), 0.1))


def concatenated_data_of_two_scales(net: Net) -> None:
    """Concat of branches of two scales, whose result nobody rounds again."""
    x = _image(net)
    a = net.qdq(net.node("Conv", x, net.weight(3, 4, 3, 3), pads=[1] * 4), 0.05)
    b = net.qdq(net.node("Conv", x, net.weight(5, 4, 1, 1)), 0.06)
    net.result(net.q(net.node("Conv", net.node("Concat", a, b, axis=1), net.weight(6, 8, 3, 3)), 0.1))


def concatenated_with_zeros(net: Net) -> None:
    """Channels of constant zeros beside data."""
    x = net.node("Concat", _image(net), net.constant(np.zeros((1, 2, 8, 8))), axis=1)
    net.result(net.q(net.node("Conv", x, net.weight(6, 6, 3, 3)), 0.1))


def attention(net: Net) -> None:
    """Two products of activations with a Mul and a Softmax between."""
    x = net.qdq(net.input(2, 6, 8))
    keys = net.node("Transpose", net.qdq(net.input(2, 6, 8), 0.02, 4), perm=[0, 2, 1])
    scores = net.qdq(net.node("Mul", net.node("MatMul", x, keys), net.constant(8**-0.5)), 0.1)
    shares = net.qdq(net.node("Softmax", scores, axis=-1), 1 / 255, 0, _UINT8)
    net.result(net.q(net.node("MatMul", shares, net.qdq(net.input(2, 6, 8))), 0.02))


def split_data(net: Net) -> None:
    """Split behind DequantizeLinear, each part multiplied."""
    parts = net.nodes_out("Split", 2, _image(net), net.constant([1, 3], np.int64), axis=1)
    for part, channels in zip(parts, (1, 3), strict=True):
        net.result(net.q(net.node("Conv", part, net.weight(2, channels, 3, 3)), 0.03))


def leaky(net: Net) -> None:
    """LeakyRelu between a convolution and its rounding."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6))
    net.result(net.q(net.node("LeakyRelu", product, alpha=0.1), 0.05))


def one_map_rounded_twice(net: Net) -> None:
    """TensorRT's placement: each reader has a pair of conversions of its own."""
    x = net.node("Relu", net.input(1, 4, 8, 8))
    net.result(net.q(net.node("Conv", net.qdq(x), net.weight(6, 4, 3, 3)), 0.05))
    net.result(net.q(net.node("Conv", net.qdq(x), net.weight(6, 4, 1, 1)), 0.05))


def other_ranks(net: Net) -> None:
    """A convolution of one axis, and of three."""
    x, y = net.qdq(net.input(1, 4, 12), 0.03, 5), net.qdq(net.input(1, 2, 4, 5, 6), 0.03, -5)
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3), net.bias(6), pads=[1, 1]), 0.05))
    net.result(net.q(net.node("Conv", y, net.weight(3, 2, 3, 3, 3), net.bias(3), pads=[1] * 6), 0.05))


def weights_in_batches(net: Net) -> None:
    """MatMul with a weight per head, scaled along its last axis."""
    x = net.qdq(net.input(3, 5, 8))
    net.result(net.q(net.node("MatMul", x, net.weight(3, 8, 6, axis=2)), 0.05))


def embedding(net: Net) -> None:
    """Rows of an int8 table, dequantised before and behind the Gather."""
    words = net.input(1, 6, kind=np.int64)
    net.inputs[words] = np.array([[3, 0, 7, 9, 2, 2]])
    before = net.node("Gather", net.weight(10, 16, axis=None), words)
    behind = net.dq(net.node("Gather", net.constant(net.integers(10, 16), _INT8), words), 0.008)
    total = net.qdq(net.node("Add", before, behind), 0.02)
    net.result(net.q(net.node("MatMul", total, net.weight(16, 6, axis=1)), 0.02))


def mean_over_a_map(net: Net) -> None:
    """TensorFlow's global pool: ReduceMean over both axes."""
    y = net.qdq(net.node("Conv", _image(net), net.weight(6, 4, 3, 3), net.bias(6)), 0.05)
    mean = net.qdq(net.node("ReduceMean", y, axes=[2, 3], keepdims=0), 0.02)
    net.result(net.q(net.node("MatMul", mean, net.weight(6, 10, axis=1)), 0.02))


def integers_at_the_doors(net: Net) -> None:
    """uint8 image in, class out."""
    x = net.dq(net.input(1, 4, 8, 8, kind=_UINT8), 0.01, 120, _UINT8)
    y = net.node("Gemm", net.node("Flatten", x), net.weight(10, 256), net.bias(10), transB=1)
    net.result(net.node("ArgMax", net.qdq(y, 0.2), axis=1), TensorProto.INT64)


def dynamic_shared(net: Net) -> None:
    """ONNX Runtime's dynamic quantiser: one DynamicQuantizeLinear, products of three weights with zero points."""
    values, scale, zero = net.nodes_out("DynamicQuantizeLinear", 3, net.input(1, 5, 16))
    for _ in range(3):
        weight, weight_scale = net.constant(net.integers(16, 8), _INT8), net.constant(net.scales(8))
        sums = net.node("MatMulInteger", values, weight, zero, net.constant(np.zeros(8), _INT8))
        floats = net.node("Mul", net.node("Cast", sums, to=TensorProto.FLOAT), net.node("Mul", scale, weight_scale))
        net.result(net.node("Add", net.bias(8), floats), TensorProto.FLOAT)


def operators_on_integers(net: Net) -> None:
    """QOperator format: QLinearConv, its result dequantised, pooled and rounded, QLinearMatMul."""
    one, zero = net.constant(0.03), net.constant(3, _INT8)
    x = net.node("QuantizeLinear", net.input(1, 4, 8, 8), one, zero)
    weight = [
        net.constant(net.integers(6, 4, 3, 3), _INT8),
        net.constant(net.scales(6)),
        net.constant(np.zeros(6), _INT8),
    ]
    out = net.constant(0.05)
    y = net.node(
        "QLinearConv", x, one, zero, *weight, out, zero, net.constant(net.random.integers(-900, 900, 6), np.int32)
    )
    pooled = net.node("GlobalAveragePool", net.node("DequantizeLinear", y, out, zero))
    z = net.node("Flatten", net.node("QuantizeLinear", pooled, one, zero))
    last = [net.constant(net.integers(6, 5), _INT8), net.constant(0.01), net.constant(0, _INT8)]
    net.result(net.node("QLinearMatMul", z, one, zero, *last, out, zero))


def half_floats(net: Net) -> None:
    """Scales in float16, as exports of half precision have them."""
    scale, zero = net.constant(0.03, np.float16), net.constant(3, _INT8)
    x = net.node(
        "DequantizeLinear", net.node("QuantizeLinear", net.input(5, 16, kind=np.float16), scale, zero), scale, zero
    )
    scales = net.constant(net.scales(6), np.float16)
    weight = net.node(
        "DequantizeLinear", net.constant(net.integers(16, 6), _INT8), scales, net.constant(np.zeros(6), _INT8), axis=1
    )
    net.result(net.node("QuantizeLinear", net.node("MatMul", x, weight), net.constant(0.1, np.float16), zero))


def turned_back_gemm(net: Net) -> None:
    """MatMul with data turned behind DequantizeLinear, a bias row of two axes."""
    x = net.node("Transpose", net.qdq(net.input(16, 5)), perm=[1, 0])
    net.result(
        net.q(net.node("Gemm", x, net.weight(16, 6, axis=1), net.constant(net.random.uniform(-1, 1, (1, 6)))), 0.1)
    )


def wide_activations(net: Net) -> None:
    """int16 data (A16W8): no array multiplies it."""
    x = net.qdq(net.input(5, 16), 1e-4, 0, np.int16)
    net.result(net.q(net.node("MatMul", x, net.weight(16, 6, axis=1)), 2e-4, 0, np.int16), TensorProto.INT16)


def zero_points_by_channel(net: Net) -> None:
    """Weights with a zero point of their own per channel: of windows with padding, of groups, of a matrix."""

    def weight(*shape: int, axis: int) -> str:
        zeros, scales = net.constant(net.random.integers(-9, 9, shape[axis]), _INT8), net.scales(shape[axis])
        integers = net.constant(net.integers(*shape), _INT8)
        return net.node("DequantizeLinear", integers, net.constant(scales), zeros, axis=axis)

    made = net.node("Conv", _image(net), weight(6, 4, 3, 3, axis=0), net.bias(6), pads=[1, 1, 1, 1])
    made = net.qdq(made, 0.05, 7)
    made = net.qdq(net.node("Conv", made, weight(6, 1, 3, 3, axis=0), group=6), 0.04, -3)
    made = net.qdq(net.node("ConvTranspose", made, weight(6, 5, 2, 2, axis=1), strides=[2, 2]), 0.05, 2)
    rows = net.node("Flatten", made, axis=3)
    net.result(net.q(net.node("MatMul", rows, weight(12, 7, axis=1)), 0.1))


def omitted_inputs(net: Net) -> None:
    """An empty name for the bias, and for the lower limit of a Clip."""
    product = net.node("Conv", _image(net), net.weight(6, 4, 3, 3), "")
    net.result(net.q(net.node("Clip", product, "", net.constant(2.0)), 0.05))


def channel_gate(net: Net) -> None:
    """Squeeze and excitation of MobileNetV3: a map times a gate per channel."""
    x = _image(net)
    pooled = net.qdq(net.node("GlobalAveragePool", x), 0.02)
    narrow = net.qdq(net.node("Relu", net.node("Conv", pooled, net.weight(2, 4, 1, 1), net.bias(2))), 0.02, -128)
    wide = net.node("HardSigmoid", net.node("Conv", narrow, net.weight(4, 2, 1, 1), net.bias(4)))
    net.result(net.q(net.node("Mul", x, net.qdq(wide, 1 / 255, -128)), 0.03))


def masked_attention(net: Net) -> None:
    """Scores divided and masked in floats between two products."""
    scores = net.qdq(net.node("MatMul", net.qdq(net.input(2, 6, 8)), net.qdq(net.input(2, 8, 6), 0.02, 4)), 0.1, 10)
    mask = net.constant(np.triu(np.full((6, 6), -1e9), 1))
    masked = net.node("Add", net.node("Div", scores, net.constant(8**0.5)), mask)
    shares = net.qdq(net.node("Softmax", masked, axis=-1), 1 / 255, -128)
    net.result(net.q(net.node("MatMul", shares, net.qdq(net.input(2, 6, 8))), 0.02))


def gated_product(net: Net) -> None:
    """A product and its bias split into two halves, one a gate of the other, as in recurrent cells."""
    product = net.node("Add", net.node("MatMul", net.qdq(net.input(2, 8)), net.weight(8, 16, axis=1)), net.bias(16))
    gate, value = net.nodes_out("Split", 2, product, axis=1)
    net.result(net.q(net.node("Mul", net.node("Sigmoid", gate), net.node("Tanh", value)), 1 / 127))


def resized_data(net: Net) -> None:
    """Resize between DequantizeLinear and Conv, its result not rounded."""
    scales = net.constant([1, 1, 2, 2])
    given: dict[str, Any] = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = net.node("Resize", _image(net), "", scales, **given)
    net.result(net.q(net.node("Conv", x, net.weight(6, 4, 3, 3)), 0.05))


def constant_data(net: Net) -> None:
    """A constant as first factor of activations."""
    constant = net.dq(net.constant(net.integers(5, 16), _INT8), 0.01, 2)
    x = net.node("Transpose", net.qdq(net.input(7, 16)), perm=[1, 0])
    net.result(net.q(net.node("MatMul", constant, x), 0.05))


def conversions_of_microsoft(net: Net) -> None:
    """ONNX Runtime's own QuantizeLinear and DequantizeLinear, which of 8 bits mean the standard's."""
    scale, zero, domain = net.constant(0.03), net.constant(3, _INT8), "com.microsoft"
    rounded = net.node("QuantizeLinear", net.input(5, 16), scale, zero, domain=domain)
    x = net.node("DequantizeLinear", rounded, scale, zero, domain=domain)
    net.result(net.q(net.node("MatMul", x, net.weight(16, 6, axis=1)), 0.1), shape=(5, 6))


# Weights of 4 bits with data of 8


def convolutions_of_4_bits(net: Net) -> None:
    """One group with an odd number of numbers per filter, several groups, one channel per group; padding."""
    x = net.qdq(net.input(1, 3, 9, 9), 0.03, 11)
    y = net.qdq(net.node("Conv", x, net.four_bits(8, 3, 3, 3), net.bias(8), pads=[1] * 4), 0.2, -3)
    z = net.qdq(net.node("Conv", y, net.four_bits(12, 2, 3, 3, signed=False, zero=7), pads=[1] * 4, group=4), 0.5)
    w = net.node("Conv", z, net.four_bits(24, 1, 5, 5, axis=None, zero=-2), net.bias(24), pads=[2] * 4, group=12)
    net.result(net.q(w, 2.0, 1))


def transposed_convolutions_of_4_bits(net: Net) -> None:
    """One group with a scale per channel, and two groups with one scale."""
    x = net.qdq(net.input(1, 5, 6, 6), 0.03, 11)
    y = net.qdq(net.node("ConvTranspose", x, net.four_bits(5, 6, 3, 3, axis=1), net.bias(6), strides=[2, 2]), 0.1, 4)
    weight = net.four_bits(6, 3, 3, 3, axis=None, signed=False, zero=9)
    net.result(net.q(net.node("ConvTranspose", y, weight, net.bias(6), strides=[2, 2], group=2), 0.5))


def products_of_4_bits(net: Net) -> None:
    """Gemm with the weight either way, MatMul of a weight turned as nn.Linear has it, and of one per head."""
    x = net.qdq(net.input(5, 15), 0.03, 3, _UINT8)
    net.result(net.q(net.node("Gemm", x, net.four_bits(6, 15), net.bias(6), transB=1), 0.05))
    net.result(net.q(net.node("Gemm", x, net.four_bits(15, 6, axis=1, zero=3), net.bias(6)), 0.05))
    turned = net.node("Transpose", net.four_bits(7, 15, signed=False, zero=8), perm=[1, 0])
    net.result(net.q(net.node("MatMul", x, turned), 0.05))
    heads = net.qdq(net.input(3, 5, 9), 0.03, 5)
    net.result(net.q(net.node("MatMul", heads, net.four_bits(3, 9, 6, axis=2)), 0.05))


# Models larger than a chip's memories, so that they are tiled


def large_separable(net: Net) -> None:
    """A strided, a depthwise and a pointwise convolution with a residual."""
    x = net.qdq(net.input(1, 32, 40, 40), 0.03, -7)
    first = net.node("Conv", x, net.weight(80, 32, 3, 3), net.bias(80), pads=[1] * 4, strides=[2, 2])
    y = net.qdq(net.node("Relu", first), 0.3, -128)
    z = net.qdq(net.node("Conv", y, net.weight(80, 1, 5, 5), net.bias(80), pads=[2] * 4, group=80), 0.5, 9)
    last = net.qdq(net.node("Conv", z, net.weight(80, 80, 1, 1), net.bias(80)), 0.6, -20)
    net.result(net.q(net.node("Relu", net.node("Add", last, y)), 0.5, -128))


def large_depth(net: Net) -> None:
    """Sums of 4,608 products, with padding on two sides only."""
    x = net.qdq(net.input(1, 512, 9, 9), 0.03, 11)
    y = net.qdq(net.node("Conv", x, net.weight(320, 512, 3, 3), net.bias(320), pads=[0, 1, 1, 0]), 3.0, -3)
    net.result(net.q(net.node("Conv", y, net.weight(64, 320, 1, 1)), 9.0))


def large_groups(net: Net) -> None:
    """A dilated convolution of groups and a transposed one."""
    x = net.qdq(net.input(2, 48, 20, 20), 0.03, 100, _UINT8)
    given: dict[str, Any] = {"pads": [2] * 4, "dilations": [2, 2], "group": 4}
    y = net.qdq(net.node("Conv", x, net.weight(96, 12, 3, 3), net.bias(96), **given), 0.3, 30, _UINT8)
    net.result(net.q(net.node("ConvTranspose", y, net.weight(96, 40, 2, 2, axis=1), net.bias(40), strides=[2, 2]), 0.6))


def large_perceptron(net: Net) -> None:
    """Two products of a transformer with SiLU between and a residual."""
    x = net.qdq(net.input(1, 128, 256), 0.03, 5)
    h = net.qdq(net.node("Add", net.node("MatMul", x, net.weight(256, 600, axis=1)), net.bias(600)), 0.3, 2)
    gated = net.qdq(net.node("Mul", h, net.node("Sigmoid", h)), 0.3, -90)
    net.result(net.q(net.node("Add", net.node("MatMul", gated, net.weight(600, 256, axis=1)), x), 1.0, 3))


def large_attention(net: Net) -> None:
    """Four heads, which Reshape and Transpose of floats part and join."""

    def heads(name: str) -> str:
        parted = net.node("Reshape", name, net.constant([1, 96, 4, 32], np.int64))
        return net.node("Transpose", parted, perm=[0, 2, 1, 3])

    x = net.qdq(net.input(1, 96, 128), 0.03, 5)
    q, k, v = (net.qdq(net.node("MatMul", x, net.weight(128, 128, axis=1)), 0.15, 3) for _ in range(3))
    keys = net.node("Transpose", heads(k), perm=[0, 1, 3, 2])
    scores = net.qdq(net.node("Mul", net.node("MatMul", heads(q), keys), net.constant(32**-0.5)), 1.0, 1)
    shares = net.qdq(net.node("Softmax", scores, axis=-1), 1 / 255, -128)
    mixed = net.node("Transpose", net.qdq(net.node("MatMul", shares, heads(v)), 0.15, 1), perm=[0, 2, 1, 3])
    joined = net.node("Reshape", mixed, net.constant([1, 96, 128], np.int64))
    net.result(net.q(net.node("MatMul", joined, net.weight(128, 128, axis=1)), 1.0))


def large_normalisations(net: Net) -> None:
    """Normalisations and a mean over more than a core holds of floats."""
    x = net.qdq(net.input(1, 3, 300, 310), 0.02, 3)
    parameters = [net.constant(net.random.uniform(0.5, 1.5, 3)), net.bias(3)]
    y = net.qdq(net.node("InstanceNormalization", x, *parameters), 0.03, 2)
    mean = net.qdq(net.node("ReduceMean", y, axes=[2, 3], keepdims=0), 0.01)
    net.result(net.q(net.node("MatMul", mean, net.weight(3, 8, axis=1)), 0.001))
    net.result(net.q(net.node("Softmax", net.qdq(net.input(2, 90_000), 0.05), axis=-1), 1e-6))


def large_classifier(net: Net) -> None:
    """Weights of six million bytes; a second product whose result stays float."""
    x = net.qdq(net.input(1, 2048), 0.03, 3)
    net.result(net.q(net.node("Gemm", x, net.weight(3000, 2048), net.bias(3000), transB=1), 1.0))
    net.result(net.node("Gemm", x, net.weight(100, 2048), net.bias(100), transB=1), TensorProto.FLOAT)


def large_weights_of_4_bits(net: Net) -> None:
    """Sums of 4,608 products, strides, one channel per group, and a classifier of a million weights."""
    x = net.qdq(net.input(1, 512, 9, 9), 0.03, 11)
    y = net.qdq(net.node("Conv", x, net.four_bits(320, 512, 3, 3), net.bias(320), pads=[0, 1, 1, 0]), 3.0, -3)
    z = net.qdq(net.node("Conv", y, net.four_bits(320, 1, 3, 3), pads=[1] * 4, strides=[2, 2], group=320), 3.0, 2)
    flat = net.node("Flatten", z)
    net.result(net.q(net.node("Gemm", flat, net.four_bits(130, 5120), net.bias(130), transB=1), 9.0))


# By name: what makes the form, and the ONNX opset that it is written in.
FORMS: Final[Mapping[str, tuple[Callable[[Net], None], int]]] = MappingProxyType(
    {
        **{
            make.__name__: (make, 17)
            for make in (
                weights_rounded_in_the_graph,
                linear_with_a_turned_weight,
                linear_with_a_turned_weight_rounded_in_the_graph,
                linear_with_a_turned_weight_of_one_scale,
                gemm_of_a_classifier,
                reshaped_data,
                residual_of_a_float_product,
                residual_of_two_rounded_branches,
                axes_from_the_end,
                everything_from_constant_nodes,
                unsigned_everything,
                channels_last,
                channels_last_depthwise,
                shared_weights,
                scales_through_other_nodes,
                scales_of_one_element,
                no_zero_points,
                clipped_integers,
                added_bias,
                padded_data,
                padded_by_a_number,
                padded_by_no_integer,
                limited_data,
                product_of_several_readers,
                normalised,
                pools_between,
                hard_swish,
                silu_of_a_float_product,
                unfolded_normalisation,
                concatenated_data,
                concatenated_data_of_two_scales,
                concatenated_with_zeros,
                attention,
                split_data,
                leaky,
                one_map_rounded_twice,
                other_ranks,
                weights_in_batches,
                embedding,
                mean_over_a_map,
                integers_at_the_doors,
                dynamic_shared,
                operators_on_integers,
                turned_back_gemm,
                zero_points_by_channel,
                omitted_inputs,
                channel_gate,
                masked_attention,
                gated_product,
                resized_data,
                constant_data,
                conversions_of_microsoft,
                large_separable,
                large_depth,
                large_groups,
                large_perceptron,
                large_attention,
                large_normalisations,
                large_classifier,
            )
        },
        "half_floats": (half_floats, 21),
        "convolutions_of_4_bits": (convolutions_of_4_bits, 21),
        "transposed_convolutions_of_4_bits": (transposed_convolutions_of_4_bits, 21),
        "products_of_4_bits": (products_of_4_bits, 21),
        "large_weights_of_4_bits": (large_weights_of_4_bits, 21),
        "wide_activations": (wide_activations, 21),
    }
)


def form(name: str) -> Net:
    """The form of a name, with its model and inputs."""
    make, opset = FORMS[name]
    net = Net(opset)
    make(net)
    return net
