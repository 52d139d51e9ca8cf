"""Small uses of every op kind: each name starts with the kind (compared by brute force and with ONNX Runtime)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from tests.models import Model

Build = Callable[[Model], str]
_CODES: Final = MappingProxyType(
    {
        "float32": TensorProto.FLOAT,
        "float16": TensorProto.FLOAT16,
        "int8": TensorProto.INT8,
        "uint8": TensorProto.UINT8,
        "int32": TensorProto.INT32,
        "int64": TensorProto.INT64,
        "bool": TensorProto.BOOL,
    }
)


def use(
    kind: str,
    *shapes: Sequence[int] | Mapping[str, Any] | None,
    dtype: str = "float32",
    dtypes: Mapping[int, str] = MappingProxyType({}),
    **attributes: Any,
) -> Build:
    """A node whose inputs have the given shapes; a mapping {"is": values} is a constant, None an omitted input."""

    def build(model: Model) -> str:
        inputs = []
        for position, shape in enumerate(shapes):
            if shape is None:
                inputs.append("")
            elif isinstance(shape, Mapping):
                inputs.append(model.constant(shape["is"]))
            else:
                inputs.append(model.input(shape, dtype=_CODES[dtypes.get(position, dtype)]))
        return model.node(kind, inputs, **attributes)

    return build


def ints(*values: int) -> Mapping[str, Any]:
    """A constant list of int64."""
    return {"is": np.array(values, dtype=np.int64)}


def scalar(value: Any) -> Mapping[str, Any]:
    """A constant number of its own type."""
    return {"is": np.asarray(value)}


def small(*values: int) -> Mapping[str, Any]:
    """A constant list of int8."""
    return {"is": np.array(values, dtype=np.int8)}


def floats(*values: float) -> Mapping[str, Any]:
    """A constant list of float32."""
    return {"is": np.array(values, dtype=np.float32)}


IMAGE: Final = (1, 2, 5, 4)
_UNARY: Final = """Neg Abs Sign Sqrt Reciprocal Exp Log Sin Cos Floor Ceil Round Erf Relu LeakyRelu ThresholdedRelu Elu
Celu Selu Sigmoid HardSigmoid HardSwish Mish Tanh Softplus Softsign Gelu IsNaN IsInf Swish"""
_BINARY: Final = "Add Sub Mul Div Mod Pow Max Min Sum Mean PRelu Equal Less LessOrEqual Greater GreaterOrEqual"
_REDUCTIONS: Final = "Mean Sum Max Min Prod L1 L2 SumSquare LogSum LogSumExp"

CASES: Final[Mapping[str, Build]] = MappingProxyType(
    {
        **{kind: use(kind, (2, 3)) for kind in _UNARY.split()},
        **{f"{kind} broadcast": use(kind, (2, 3, 4), (3, 1)) for kind in _BINARY.split() if kind != "Mod"},
        "Mod broadcast": use("Mod", (2, 3, 4), (3, 1), dtype="int32"),
        "Mod fmod": use("Mod", (2, 3, 4), (3, 1), fmod=1),
        "Sum of three": use("Sum", (2, 1), (3,), (1, 1)),
        "Gelu tanh": use("Gelu", (2, 3), approximate="tanh"),
        "Clip": use("Clip", (2, 3), scalar(np.float32(-0.5)), scalar(np.float32(0.5))),
        "Clip at run time": use("Clip", (2, 3), (), (1,)),
        "Clip below at run time": use("Clip", (2, 3), scalar(np.float32(-0.5)), ()),
        "Cast": use("Cast", (2, 3), to=TensorProto.INT32),
        "Where": use("Where", (3, 1), (2, 3, 4), (4,), dtypes={0: "bool"}),
        **{f"{kind} of truths": use(kind, (2, 3), (3,), dtype="bool") for kind in ("And", "Or", "Xor")},
        "Not": use("Not", (2, 3), dtype="bool"),
        **{f"Reduce{kind}": use(f"Reduce{kind}", (2, 3, 4), ints(1)) for kind in _REDUCTIONS.split()},
        "ReduceSum over two": use("ReduceSum", (2, 3, 4), ints(0, -1), keepdims=0),
        "ReduceSumSquare over none": use("ReduceSumSquare", (2, 3), noop_with_empty_axes=1),
        "ArgMax": use("ArgMax", (2, 3, 4), axis=1),
        "ArgMin last": use("ArgMin", (2, 3, 4), axis=-1, keepdims=0, select_last_index=1),
        "CumSum": use("CumSum", (2, 4), scalar(np.int64(1))),
        "CumSum reversed": use("CumSum", (2, 4), scalar(np.int64(0)), exclusive=1, reverse=1),
        "Softmax": use("Softmax", (2, 3, 4), axis=1),
        "LogSoftmax": use("LogSoftmax", (2, 3, 4)),
        "LRN": use("LRN", (1, 5, 2, 2), size=3),
        "LRN even": use("LRN", (5, 5, 1, 2), size=4, alpha=0.5, bias=2.0),
        "BatchNormalization": use("BatchNormalization", IMAGE, (2,), (2,), (2,), floats(0.5, 2)),
        "InstanceNormalization": use("InstanceNormalization", IMAGE, (2,), (2,)),
        "LayerNormalization": use("LayerNormalization", (2, 3, 4), (3, 4), (3, 4), axis=1),
        "LayerNormalization broadcast": use("LayerNormalization", (2, 3, 4), (3, 1), (4,), axis=1),
        "RMSNormalization": use("RMSNormalization", (2, 3, 4), (4,)),
        "GroupNormalization": use("GroupNormalization", (2, 4, 3), (4,), (4,), num_groups=2),
        "QuantizeLinear": use("QuantizeLinear", (2, 3), scalar(np.float32(0.1)), scalar(np.uint8(7))),
        "QuantizeLinear by axis": use("QuantizeLinear", (2, 3), floats(0.1, 0.2, 0.3), small(1, 2, 3)),
        "DequantizeLinear": use("DequantizeLinear", (2, 3), (), (), dtype="uint8", dtypes={1: "float32"}),
        "DequantizeLinear by axis": use("DequantizeLinear", (2, 3), floats(0.5, 2), small(1, -2), dtype="int8", axis=0),
        "Conv": use("Conv", IMAGE, (3, 2, 3, 2), (3,), strides=[2, 1], pads=[1, 0, 0, 1]),
        "Conv grouped": use("Conv", (1, 4, 4), (6, 2, 2), group=2, dilations=[2]),
        "Conv volume": use("Conv", (1, 1, 3, 3, 3), (2, 1, 2, 2, 2), auto_pad="SAME_UPPER"),
        "ConvTranspose": use("ConvTranspose", (1, 2, 3, 3), (2, 3, 3, 2), (3,), strides=[2, 1], pads=[1, 0, 0, 1]),
        "ConvTranspose grouped": use(
            "ConvTranspose", (1, 4, 3), (4, 1, 2), group=2, dilations=[2], strides=[2], output_padding=[1]
        ),
        "ConvTranspose to a shape": use("ConvTranspose", (1, 1, 3), (1, 1, 2), strides=[2], output_shape=[5]),
        "MatMul": use("MatMul", (2, 1, 3, 2), (3, 2, 4)),
        "MatMul by vector": use("MatMul", (2, 3), (3,)),
        "MatMul of integers": use("MatMul", (2, 3), (3, 2), dtype="int32"),
        "Gemm": use("Gemm", (3, 2), (4, 3), (1, 4), transA=1, transB=1, alpha=0.5, beta=2.0),
        "MaxPool": use("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]),
        "MaxPool dilated": use("MaxPool", IMAGE, kernel_shape=[2, 2], pads=[1, 0, 1, 1], dilations=[3, 2]),
        "MaxPool ceil": use("MaxPool", IMAGE, kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1),
        "MaxPool beyond its input": use("MaxPool", IMAGE, kernel_shape=[9, 3], strides=[5, 2], dilations=[1, 2]),
        "AveragePool beyond its input": use("AveragePool", IMAGE, kernel_shape=[1280, 1280], strides=[1280, 1280]),
        "AveragePool beyond its padded input": use(
            *("AveragePool", IMAGE),
            kernel_shape=[9, 9],
            strides=[4, 9],
            pads=[1, 0, 1, 1],
            ceil_mode=1,
            count_include_pad=1,
        ),
        "AveragePool": use("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "AveragePool counting padding": use(
            "AveragePool",
            IMAGE,
            kernel_shape=[3, 3],
            strides=[2, 2],
            pads=[1, 1, 1, 1],
            count_include_pad=1,
            ceil_mode=1,
        ),
        "GlobalAveragePool": use("GlobalAveragePool", IMAGE),
        "GlobalMaxPool": use("GlobalMaxPool", (1, 2, 5)),
        "Reshape": use("Reshape", (2, 3, 4), ints(0, -1, 2)),
        "Flatten": use("Flatten", (2, 3, 4)),
        "Squeeze": use("Squeeze", (2, 1, 3), ints(1)),
        "Unsqueeze": use("Unsqueeze", (2, 3), ints(0, -1)),
        "Identity": use("Identity", (2, 3)),
        "Dropout": use("Dropout", (2, 3)),
        "Transpose": use("Transpose", (2, 3, 4), perm=[2, 0, 1]),
        "Concat": use("Concat", (2, 3), (2, 1), (2, 2), axis=-1),
        "Slice": use("Slice", (5, 6), ints(1, -5), ints(9, -1), ints(0, 1), ints(2, 1)),
        "Slice backwards": use("Slice", (5, 6), ints(-1, 4), ints(-9, 0), ints(0, 1), ints(-1, -2)),
        "Pad": use("Pad", (3, 4), ints(1, -1, 0, 2), scalar(np.float32(7))),
        "Pad edge": use("Pad", (3, 4), ints(1, -1, 2, 0), None, mode="edge"),
        "Pad reflect": use("Pad", (3, 4), ints(2, 1, 1, 3), None, mode="reflect"),
        "Pad wrap": use("Pad", (3, 4), ints(2, 1), None, ints(-1), mode="wrap"),
        "Expand": use("Expand", (3, 1), ints(2, 1, 4)),
        "Tile": use("Tile", (2, 3), ints(1, 3)),
        "Gather": use("Gather", (2, 3, 4), (2, 2), axis=1, dtypes={1: "int64"}),
        "Gather one position": use("Gather", (2, 3, 4), {"is": np.int64(-1)}, axis=1),
        "Gather the first": use("Gather", (3, 2), {"is": np.int64(0)}),
        "Gather every second": use("Gather", (2, 5), ints(0, 2, 4), axis=1),
        "Gather scattered": use("Gather", (2, 5), ints(3, 0, 4), axis=1),
        "DepthToSpace": use("DepthToSpace", (1, 8, 2, 3), blocksize=2),
        "DepthToSpace CRD": use("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
        "SpaceToDepth": use("SpaceToDepth", (1, 2, 4, 6), blocksize=2),
        "Resize": use("Resize", (1, 1, 3, 4), None, None, ints(1, 1, 6, 6)),
        "Resize linear": use("Resize", (1, 3, 4), None, floats(1, 2, 0.6), mode="linear"),
        "Upsample": use("Resize", (1, 3, 4), None, floats(1, 2, 2)),
    }
)


def built(build: Build, *, opset: int = 23) -> Model:
    """The model of one case, with its last node's result as the output."""
    model = Model(opset=opset, ir_version=10)
    model.output(build(model))
    return model


def feeds_of(model: Model, seed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """Random values for a model's inputs, within the range that its node's integers may have."""
    random = np.random.default_rng(seed)
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.inputs:
        code = value.type.tensor_type.elem_type
        dtype = next(np.dtype(name) for name, known in _CODES.items() if known == code)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        match dtype.kind:
            case "b":
                feeds[value.name] = random.random(shape) < 0.5
            case "i" | "u":
                indices = model.nodes[-1].op_type == "Gather"
                feeds[value.name] = random.integers(0 if indices else 1, 3 if indices else 9, shape).astype(dtype)
            case _:
                feeds[value.name] = np.asarray(random.random(shape) * 2 + 0.25, dtype=dtype)
    return feeds
