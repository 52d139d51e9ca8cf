"""Shapes, attributes and operands that disagree with each other: each is refused, and the message names the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import TensorProto

from tests.corpus.build import written
from tests.corpus.case import Case, case, either, reject
from tests.models import Model

Fill = Callable[[Model], str]
_SMALLEST: Final = -(2**63)


def _conv(shape: tuple[int, ...], weight: tuple[int, ...], **attributes: Any) -> Fill:
    return lambda m: m.node("Conv", [m.input(shape), m.weight(*weight)], name="node", **attributes)


def _of(op_type: str, *shapes: tuple[int, ...], **attributes: Any) -> Fill:
    return lambda m: m.node(op_type, [m.input(shape) for shape in shapes], name="node", **attributes)


def _with_ints(op_type: str, shape: tuple[int, ...], *operands: tuple[int, ...], **attributes: Any) -> Fill:
    """An op on an input whose other operands are constant int64."""
    return lambda m: m.node(op_type, [m.input(shape), *(m.ints(*v) for v in operands)], name="node", **attributes)


def _two_outputs(shape: tuple[int, ...], sizes: tuple[int, ...], **attributes: Any) -> Fill:
    def fill(model: Model) -> str:
        inputs = [model.input(shape), model.ints(*sizes)]
        return model.nodes_out("Split", inputs, ["left", "right"], name="node", **attributes)[0]

    return fill


def _reshape_by_floats(model: Model) -> str:
    return model.node("Reshape", [model.input([4]), model.constant([np.nan, 4.0], dtype="float32")], name="node")


def _divide_by_zero(model: Model) -> str:
    """The target of a Reshape is the extent of the input divided by zero."""
    x = model.input([4, 4], "x")
    shape = model.node("Shape", [x])
    quotient = model.node("Div", [shape, model.ints(0)], name="quotient")
    return model.node("Reshape", [x, quotient], name="node")


def _overflowing_arithmetic(model: Model) -> str:
    """The target of a Reshape overflows 64 bits on the way and comes out small."""
    x = model.input([4], "x")
    large = model.node("Mul", [model.ints(2**62), model.ints(4)])
    return model.node("Reshape", [x, model.node("Add", [large, model.ints(5)])], name="node")


def _resize(scales: tuple[float, ...] | None, sizes: tuple[int, ...] | None = None, **attributes: Any) -> Fill:
    def fill(model: Model) -> str:
        inputs = [model.input([1, 1, 4, 4]), ""]
        inputs.append("" if scales is None else model.constant(scales, dtype="float32"))
        if sizes is not None:
            inputs.append(model.ints(*sizes))
        return model.node("Resize", inputs, name="node", **attributes)

    return fill


def _slice(starts: int, ends: int, axis: int, step: int) -> Fill:
    return _with_ints("Slice", (4, 4), (starts,), (ends,), (axis,), (step,))


def _norm(channels: int, statistics: int) -> Fill:
    def fill(model: Model) -> str:
        parameters = [model.weight(statistics) for _ in range(4)]
        return model.node("BatchNormalization", [model.input([1, channels, 4, 4]), *parameters], name="node")

    return fill


def _gather(index: int) -> Fill:
    return lambda m: m.node("Gather", [m.input([4, 4]), m.ints(index)], name="node", axis=0)


def _as_float(fill: Fill) -> Fill:
    """The result as float32, which the output is declared to be."""
    return lambda m: m.node("Cast", [fill(m)], to=TensorProto.FLOAT)


_IMAGE: Final = (1, 4, 8, 8)

IMPOSSIBLE: Final[Mapping[str, Fill]] = MappingProxyType(
    {
        "convolution: channels differ from the weight": _conv(_IMAGE, (8, 3, 3, 3)),
        "convolution: groups do not divide the channels": _conv(_IMAGE, (6, 1, 3, 3), group=3),
        "convolution: groups do not divide the filters": _conv(_IMAGE, (7, 2, 3, 3), group=2),
        "convolution: group is 0": _conv(_IMAGE, (8, 4, 3, 3), group=0),
        "convolution: group is negative": _conv(_IMAGE, (8, 4, 3, 3), group=-1),
        "convolution: kernel larger than the padded input": _conv(_IMAGE, (8, 4, 11, 11), pads=[1] * 4),
        "convolution: kernel_shape differs from the weight": _conv(_IMAGE, (8, 4, 3, 3), kernel_shape=[5, 5]),
        "convolution: kernel of extent 0": _conv(_IMAGE, (8, 4, 0, 0)),
        "convolution: kernel_shape of extent 0": _conv(_IMAGE, (8, 4, 3, 3), kernel_shape=[0, 0]),
        "convolution: stride 0": _conv(_IMAGE, (8, 4, 3, 3), strides=[0, 0]),
        "convolution: stride is negative": _conv(_IMAGE, (8, 4, 3, 3), strides=[-1, -1]),
        "convolution: dilation 0": _conv(_IMAGE, (8, 4, 3, 3), dilations=[0, 0]),
        "convolution: dilation beyond the input": _conv(_IMAGE, (8, 4, 3, 3), dilations=[2**40, 1]),
        "convolution: too few pads": _conv(_IMAGE, (8, 4, 3, 3), pads=[1, 1]),
        "convolution: pads are negative beyond the input": _conv(_IMAGE, (8, 4, 3, 3), pads=[-9] * 4),
        "convolution: too many strides": _conv(_IMAGE, (8, 4, 3, 3), strides=[1, 1, 1, 1]),
        "convolution: weight of another rank": _conv(_IMAGE, (8, 4, 3)),
        "convolution: input of rank 1": _conv((4,), (8, 4, 3, 3)),
        "convolution: input of rank 0": _conv((), (8, 4, 3, 3)),
        "convolution: auto_pad of no meaning": _conv(_IMAGE, (8, 4, 3, 3), auto_pad="SIDEWAYS"),
        "convolution: bias of another length": lambda m: m.node(
            "Conv", [m.input(_IMAGE), m.weight(8, 4, 3, 3), m.weight(7)], name="node"
        ),
        "convolution: the smallest integers everywhere": _conv(
            _IMAGE,
            (8, 4, 3, 3),
            pads=[_SMALLEST] * 4,
            strides=[_SMALLEST] * 2,
            dilations=[_SMALLEST] * 2,
            group=_SMALLEST,
        ),
        "transposed convolution: channels differ from the weight": lambda m: m.node(
            "ConvTranspose", [m.input(_IMAGE), m.weight(3, 8, 3, 3)], name="node"
        ),
        "transposed convolution: pads eat the output": lambda m: m.node(
            "ConvTranspose", [m.input(_IMAGE), m.weight(4, 8, 3, 3)], name="node", pads=[99] * 4
        ),
        "pooling: kernel 0": _of("AveragePool", _IMAGE, kernel_shape=[0, 0]),
        "pooling: stride 0": _of("MaxPool", _IMAGE, kernel_shape=[2, 2], strides=[0, 0]),
        "pooling: kernel is negative": _of("MaxPool", _IMAGE, kernel_shape=[-2, -2]),
        "pooling: no kernel": _of("MaxPool", _IMAGE),
        "pooling: kernel of another rank": _of("MaxPool", _IMAGE, kernel_shape=[2, 2, 2]),
        "matmul: inner extents differ": _of("MatMul", (4, 5), (6, 7)),
        "matmul: batch extents differ": _of("MatMul", (2, 4, 5), (3, 5, 7)),
        "matmul: a scalar": _of("MatMul", (), (5, 7)),
        "gemm: rank 3": _of("Gemm", (2, 4, 5), (5, 7)),
        "gemm: inner extents differ": _of("Gemm", (4, 5), (4, 7)),
        "gemm: inner extents differ when transposed": _of("Gemm", (5, 4), (4, 7), transA=0, transB=1),
        "gemm: the addend does not broadcast": _of("Gemm", (4, 5), (5, 7), (3, 3)),
        "add: shapes do not broadcast": _of("Add", (4, 5), (4, 6)),
        "add: shapes do not broadcast in front": _of("Mul", (2, 3, 4), (3, 3, 4)),
        "where: condition does not broadcast": lambda m: m.node(
            "Where", [m.input([3], dtype=TensorProto.BOOL), m.input([4]), m.input([4])], name="node"
        ),
        "concat: extents off the axis differ": _of("Concat", (2, 4), (2, 5), axis=0),
        "concat: ranks differ": _of("Concat", (2, 4), (2, 4, 1), axis=0),
        "concat: of nothing": lambda m: m.node("Concat", [], name="node", axis=0),
        "concat: axis out of range": _of("Concat", (2, 4), (2, 4), axis=2),
        "concat: axis is the smallest integer": _of("Concat", (2, 4), (2, 4), axis=_SMALLEST),
        "reshape: element counts differ": _with_ints("Reshape", (4, 5), (3, 7)),
        "reshape: two unknown extents": _with_ints("Reshape", (4, 5), (-1, -1)),
        "reshape: an extent of -2": _with_ints("Reshape", (4, 5), (-2, 10)),
        "reshape: an extent copied from no axis": _with_ints("Reshape", (4, 5), (4, 5, 0)),
        "reshape: an unknown extent beside 0": _with_ints("Reshape", (4, 5), (-1, 0), allowzero=1),
        "reshape: unknown extent does not divide": _with_ints("Reshape", (4, 5), (-1, 3)),
        "reshape: extents overflow to the right count": _with_ints("Reshape", (4, 5), (2**62, 2**62, 20)),
        "reshape: a target of rank 2": lambda m: m.node(
            "Reshape", [m.input([4]), m.constant([[2, 2]], dtype="int64")], name="node"
        ),
        "reshape: a target of NaN": _reshape_by_floats,
        "reshape: the smallest integers": _with_ints("Reshape", (4, 5), (_SMALLEST, _SMALLEST)),
        "transpose: an axis twice": _of("Transpose", (2, 3, 4), perm=[0, 1, 1]),
        "transpose: an axis out of range": _of("Transpose", (2, 3, 4), perm=[0, 1, 3]),
        "transpose: too few axes": _of("Transpose", (2, 3, 4), perm=[1, 0]),
        "transpose: negative axes": _of("Transpose", (2, 3, 4), perm=[-1, -2, -4]),
        "softmax: axis out of range": _of("Softmax", (2, 3), axis=5),
        "flatten: axis out of range": _of("Flatten", (2, 3), axis=7),
        "squeeze: an axis of extent 3": _with_ints("Squeeze", (1, 3), (1,)),
        "squeeze: axis out of range": _with_ints("Squeeze", (1, 3), (5,)),
        "unsqueeze: an axis twice": _with_ints("Unsqueeze", (1, 3), (0, 0)),
        "unsqueeze: axis out of range": _with_ints("Unsqueeze", (1, 3), (9,)),
        "split: parts do not add up": _two_outputs((4, 4), (1, 2)),
        "split: a part is negative": _two_outputs((4, 4), (-1, 5)),
        "split: as many sizes as no outputs": _two_outputs((4, 4), (1, 1, 2)),
        "split: axis out of range": _two_outputs((4, 4), (2, 2), axis=2),
        "slice: step 0": _slice(0, 4, 0, 0),
        "slice: axis out of range": _slice(0, 4, 3, 1),
        "slice: ends without as many starts": lambda m: m.node(
            "Slice", [m.input([4, 4]), m.ints(0, 0), m.ints(4)], name="node"
        ),
        "gather: index out of range": _gather(4),
        "gather: index out of range at the front": _gather(-5),
        "gather: index is the smallest integer": _gather(_SMALLEST),
        "pad: extents turn negative": _with_ints("Pad", (4,), (-3, -3)),
        "pad: too few pads": _with_ints("Pad", (4, 4), (1, 1)),
        "pad: the smallest integers": _with_ints("Pad", (4,), (_SMALLEST, _SMALLEST)),
        "expand: shapes do not broadcast": _with_ints("Expand", (4, 5), (4, 6)),
        "expand: a negative extent": _with_ints("Expand", (1,), (-4,)),
        "tile: a negative count": _with_ints("Tile", (4,), (-2,)),
        "tile: counts for another rank": _with_ints("Tile", (4,), (2, 2)),
        "resize: neither scales nor sizes": _resize(None),
        "resize: scales of another rank": _resize((2.0, 2.0)),
        "resize: scale is NaN": _resize((1.0, 1.0, float("nan"), 1.0)),
        "resize: scale is infinite": _resize((1.0, 1.0, float("inf"), 1.0)),
        "resize: scale is negative": _resize((1.0, 1.0, -2.0, 1.0)),
        "resize: scale 0": _resize((1.0, 1.0, 0.0, 1.0)),
        "resize: sizes are negative": _resize(None, (1, 1, -4, 4)),
        "resize: a mode of no meaning": _resize((1.0, 1.0, 2.0, 2.0), mode="magic"),
        "depth to space: block does not divide the channels": _of("DepthToSpace", (1, 3, 4, 4), blocksize=2),
        "depth to space: block 0": _of("DepthToSpace", (1, 4, 4, 4), blocksize=0),
        "depth to space: block is negative": _of("DepthToSpace", (1, 4, 4, 4), blocksize=-2),
        "space to depth: block does not divide the map": _of("SpaceToDepth", (1, 1, 5, 4), blocksize=2),
        "reduce: axis out of range": _of("ReduceMean", (4, 4), axes=[5]),
        "reduce: an axis of constant input out of range": _with_ints("ReduceSum", (4, 4), (-9,)),
        "arg max: axis out of range": _as_float(_of("ArgMax", (4, 4), axis=4)),
        "batch normalisation: statistics of another length": _norm(4, 5),
        "layer normalisation: axis out of range": lambda m: m.node(
            "LayerNormalization", [m.input([4, 4]), m.weight(4)], name="node", axis=7
        ),
        "layer normalisation: scale of another length": lambda m: m.node(
            "LayerNormalization", [m.input([4, 4]), m.weight(5)], name="node"
        ),
        "local response normalisation: size 0": _of("LRN", _IMAGE, size=0),
        "einsum: extents differ": _of("Einsum", (4, 5), (6, 7), equation="ij,jk->ik"),
        "einsum: too many terms": _of("Einsum", (4, 5), equation="ij,jk->ik"),
        "einsum: an output letter from nowhere": _of("Einsum", (4, 5), equation="ij->iz"),
        "einsum: an equation of no meaning": _of("Einsum", (4, 5), equation=">-,;()"),
        "top k: more than there are": lambda m: m.nodes_out(
            "TopK", [m.input([4]), m.ints(9)], ["values", "places"], name="node"
        )[0],
        "arithmetic on shapes divides by zero": _divide_by_zero,
        "arithmetic on shapes overflows": _overflowing_arithmetic,
    }
)

# ONNX says nothing, or a result without elements.
OPEN: Final[Mapping[str, Fill]] = MappingProxyType(
    {
        "convolution: no filters": _conv(_IMAGE, (0, 4, 3, 3)),
        "pooling: kernel larger than the input": _of("MaxPool", _IMAGE, kernel_shape=[9, 9]),
        "convolution: the largest integers everywhere": _conv(
            _IMAGE, (8, 4, 3, 3), pads=[2**63 - 1] * 4, strides=[2**63 - 1] * 2, dilations=[2**63 - 1] * 2
        ),
        "slice: negative steps": _slice(3, -9, 0, -1),
        "slice: the smallest integers": _slice(_SMALLEST, _SMALLEST, 0, _SMALLEST),
        "slice: nothing is left": _slice(3, 1, 0, 1),
        "slice: an axis twice": _with_ints("Slice", (4, 4), (0, 1), (2, 3), (0, 0)),
        "reshape: to no elements": _with_ints("Reshape", (0, 5), (0, 7)),
        "tile: no times": _with_ints("Tile", (4,), (0,)),
        "expand: to no elements": _with_ints("Expand", (1,), (0,)),
        "split: a part of extent 0": _two_outputs((4, 4), (0, 4)),
        "pad: negative pads crop": _with_ints("Pad", (8,), (-2, -2)),
        "pad: reflected beyond the input": _with_ints("Pad", (3,), (7, 7), mode="reflect"),
        "batch of extent 0": _conv((0, 4, 8, 8), (8, 4, 3, 3)),
        "matmul: inner extent 0": _of("MatMul", (4, 0), (0, 4)),
        "reduce: over no elements": _of("ReduceMax", (0, 4), axes=[0]),
        "leaky relu: slope is NaN": _of("LeakyRelu", (4,), alpha=float("nan")),
        "clip: minimum above maximum": lambda m: m.node(
            "Clip", [m.input([4]), m.constant(5.0, dtype="float32"), m.constant(-5.0, dtype="float32")], name="node"
        ),
        "normalisation: epsilon is negative": lambda m: m.norm(m.conv(m.input(_IMAGE), 4, 4), 4, epsilon=-99.0),
        "dropout in training mode": lambda m: m.node(
            "Dropout", [m.input([4]), m.constant(0.5, dtype="float32"), m.constant(True)], name="node"
        ),
        "dropout with a ratio above 1": lambda m: m.node(
            "Dropout", [m.input([4]), m.constant(7.5, dtype="float32")], name="node"
        ),
        "batch normalisation in training mode": lambda m: m.nodes_out(
            "BatchNormalization",
            [m.input(_IMAGE), *(m.weight(4) for _ in range(4))],
            ["value", "mean", "variance"],
            name="node",
            training_mode=1,
        )[0],
        "division by a constant zero": lambda m: m.node("Div", [m.input([4]), m.constant([0.0], dtype="float32")]),
        "remainder by a constant zero of integers": _as_float(
            lambda m: m.node("Mod", [m.ints(5), m.ints(0)], name="node")
        ),
        "power of integers overflows": _as_float(lambda m: m.node("Pow", [m.ints(10), m.ints(400)], name="node")),
        "the smallest integer divided by -1": _as_float(
            lambda m: m.node("Div", [m.ints(_SMALLEST), m.ints(-1)], name="node")
        ),
        "the absolute value of the smallest integer": _as_float(
            lambda m: m.node("Abs", [m.ints(_SMALLEST)], name="node")
        ),
        "shift by 200": _as_float(
            lambda m: m.node(
                "BitShift",
                [m.constant([1], dtype="uint64"), m.constant([200], dtype="uint64")],
                name="node",
                direction="LEFT",
            )
        ),
        "a cast of NaN to an integer": _as_float(
            lambda m: m.node(
                "Cast", [m.constant([np.nan, np.inf, 1e300], dtype="float64")], name="node", to=TensorProto.INT32
            )
        ),
        "logarithms of negative constants": lambda m: m.node("Log", [m.constant([-1.0, 0.0], dtype="float32")]),
    }
)


def _output(fill: Fill) -> Callable[[Model], object]:
    return lambda model: model.output(fill(model))


def _slug(text: str) -> str:
    return text.replace(":", "").replace(",", "").replace(" ", "-")


CASES: Final[tuple[Case, ...]] = (
    *(
        case(
            _slug(name),
            written(_output(fill)),
            reject("invalid_shape invalid_model invalid_type", "node"),
            f"impossible {name}",
        )
        for name, fill in IMPOSSIBLE.items()
    ),
    *(
        case(_slug(name), written(_output(fill)), either("invalid_shape invalid_model dynamic_dim"), f"legal? {name}")
        for name, fill in OPEN.items()
    ),
)
