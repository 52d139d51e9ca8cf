"""DFT and STFT as products with cosines and sines: what precedes speech networks, and mixes Fourier operators.

The last axis of signals and spectra holds the real and the imaginary part. A transform of so many points is a product
with a matrix; of frames of a real signal it is a convolution whose stride is the step between frames.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray

from compiler.frontend.decompose.node_builder import Decomposition, Limit, NodeList
from compiler.ir.symbol import Dim
from compiler.ops.base import FLOATS, Call
from compiler.units import numpy_dtype

# Complex factors of a transform's matrix at most: those of one side of a real signal of 1024 points, usual in front of
# speech networks. They take 4 MB in float32, and each such node of a model has its own.
_MOST_FACTORS: Final = 1024 * (1024 // 2 + 1)
# From this operator set on the axis of a DFT is an input.
_AXIS_AS_INPUT: Final = 20
_Matrix = NDArray[Any]


def _waves(points: int, results: int) -> tuple[_Matrix, _Matrix]:
    """Cosines and sines, [points, results]; whole turns are taken off in integers, so that angles stay small."""
    angles = 2 * np.pi / points * (np.outer(np.arange(points), np.arange(results)) % points)
    return np.cos(angles), np.sin(angles)


def _results(call: Call, points: int) -> int:
    return points // 2 + 1 if call.integer("onesided", 0 if call.op_type == "DFT" else 1) else points


def _dft(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, axis, points = call.tensor(0), _axis(call), _points(call)
    parts, rank = int(data.shape[-1]), len(data.shape)
    if parts not in (1, 2):
        call.fail("the last axis must hold a real and at most an imaginary part", actual=parts, limit="1 or 2")
    if parts == 2 and call.integer("onesided", 0):
        call.fail("a spectrum of one side must be of a real signal", actual=f"{parts} parts", limit="1 part")
    results, given = _results(call, points), min(int(data.shape[axis]), points)
    cosines, sines = (wave[:given] for wave in _waves(points, results))
    if call.integer("inverse", 0):
        cosines, sines = cosines / points, -sines / points
    matrix = np.zeros((given, parts, results, 2))
    matrix[:, 0, :, 0], matrix[:, 0, :, 1] = cosines, -sines
    if parts == 2:
        matrix[:, 1, :, 0], matrix[:, 1, :, 1] = sines, cosines
    value = node.input[0] if given == data.shape[axis] else nodes.slice(node.input[0], axis, 0, given)
    turn = [other for other in range(rank - 1) if other != axis] + [axis, rank - 1]
    moved = turn != list(range(rank))
    value = nodes.transpose(value, turn) if moved else value
    outer = [data.shape[other] for other in turn[:-2]]
    value = nodes.reshape(value, (*outer, given * parts))
    factors = nodes.constant(matrix.reshape(given * parts, results * 2).astype(numpy_dtype(data.dtype)))
    value = nodes.add("MatMul", value, factors)
    if not moved:
        nodes.reshape(value, (*outer, results, 2), out=node.output[0])
    else:
        back = [turn.index(other) for other in range(rank)]
        nodes.transpose(nodes.reshape(value, (*outer, results, 2)), back, out=node.output[0])


def _axis(call: Call) -> int:
    rank = len(call.tensor(0).shape)
    if rank < 2:
        call.fail("a signal must have an axis of points before that of its parts", actual=rank, limit="2 axes or more")
    if call.opset < _AXIS_AS_INPUT:
        axis = call.axis("axis", 1, rank)
    else:
        axis = call.within(int(call.value(2, "axis").reshape(-1)[0]), rank) if call.has(2) else rank - 2
    if axis >= rank - 1:
        call.fail("axis must not be that of real and imaginary parts", actual=axis, limit=rank - 2)
    return axis


def _points(call: Call) -> int:
    return int(call.value(1, "dft_length").reshape(-1)[0] if call.has(1) else call.tensor(0).shape[_axis(call)])


def _stft(node: onnx.NodeProto, call: Call, nodes: NodeList) -> None:
    data, step = call.tensor(0), int(call.value(1, "frame_step").reshape(-1)[0])
    length = _frame(call)
    results = _results(call, length)
    cosines, sines = _waves(length, results)
    waves = np.stack((cosines, -sines), axis=-1)
    window = np.asarray(call.values[2].tolist(), dtype=np.float64) if call.has(2) else np.ones(length)
    if window.shape != (length,) or step < 1:
        call.fail("window and frame_length must agree, and frame_step be positive", actual=window.shape, limit=length)
    kernels = (waves * window.reshape(-1, 1, 1)).reshape(length, -1).T
    weight = nodes.constant(kernels.reshape(2 * results, 1, length).astype(numpy_dtype(data.dtype)))
    signal = nodes.reshape(node.input[0], (data.shape[0], 1, data.shape[1]))
    spectra = nodes.transpose(nodes.add("Conv", signal, weight, strides=[step]), (0, 2, 1))
    frames = (data.shape[1] - length) // step + 1
    nodes.reshape(spectra, (data.shape[0], frames, results, 2), out=node.output[0])


def _frame(call: Call) -> int:
    return int(call.value(3, "frame_length").reshape(-1)[0] if call.has(3) else call.tensor(2).shape[0])


def _long(_: onnx.NodeProto, call: Call) -> object | None:
    axis = call.tensor(0).shape[_axis(call)]
    if isinstance(axis, Dim) or isinstance(call.tensor(0).shape[-1], Dim):
        return str(axis)
    points = _points(call)
    return _too_many(call, points, min(int(axis), points) * int(call.tensor(0).shape[-1]))


def _long_frame(_: onnx.NodeProto, call: Call) -> object | None:
    return _too_many(call, _frame(call), _frame(call))


def _too_many(call: Call, points: int, given: int) -> str | None:
    """How many points are transformed, if there are none or too many for a matrix of `given` rows."""
    fits = points >= 1 and given * _results(call, points) <= _MOST_FACTORS
    return None if fits else f"{points} points"


def _half_inverse(_: onnx.NodeProto, call: Call) -> object | None:
    return "inverse" if call.integer("inverse", 0) and call.integer("onesided", 0) else None


def _complex(_: onnx.NodeProto, call: Call) -> object | None:
    """ONNX Runtime, and torch's exporter, take signals without an axis of parts as real ones."""
    shape = call.tensor(0).shape
    return None if len(shape) == 2 or (len(shape) == 3 and shape[2] == 1) else str(shape)


_INTEGERS: Final = ("int32", "int64")
FOURIER: Final = (
    Decomposition(
        op_type="DFT",
        replace=_dft,
        dtypes=MappingProxyType({0: FLOATS, 1: _INTEGERS, 2: _INTEGERS}),
        constant_inputs=MappingProxyType({1: "dft_length", 2: "axis"}),
        limits=(
            Limit("a spectrum of one side is not transformed back", _half_inverse),
            Limit(f"the points are of fixed number, and factors at most {_MOST_FACTORS}", _long),
        ),
    ),
    Decomposition(
        op_type="STFT",
        replace=_stft,
        dtypes=MappingProxyType({0: FLOATS, 1: _INTEGERS, 2: FLOATS, 3: _INTEGERS}),
        constant_inputs=MappingProxyType({1: "frame_step", 2: "window", 3: "frame_length"}),
        limits=(
            Limit("the signal is real", _complex),
            Limit(f"frames have points, and factors are at most {_MOST_FACTORS}", _long_frame),
        ),
    ),
)
