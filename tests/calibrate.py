"""The light models of the onnx package with weights that mean something (SIM-1).

Their own weights are the constant 0.02, made by ConstantOfShape: every output is one number, whatever the input. Here
each weight is random and stored. Convolutions and matrices keep the variance of activations (weights of 2 / fan-in).
Normalisation statistics are those of the activations that arrive there, and a convolution with a bias and no
normalisation is scaled and shifted likewise, over a few random images. Signals then neither die nor grow, and no layer
gives every image the same.

What a layer hands to its Relu has mean 1 and variance 1 per channel, for with mean 0 random networks are chaotic: each
layer makes a rounding error 1.2 times as large against the signal, which after 50 layers is 10,000 times (two correct
implementations then differ by 7e-4 on ResNet-50).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.runtimes import run_model
from tests.models import light_path

Array = NDArray[Any]
_SEED: Final = 20
_IMAGES: Final = 3
# The first version in which initializers need not be graph inputs is 4; this is one that all readers know.
_IR_VERSION: Final = 8
_VIEWS: Final = ("Reshape", "Unsqueeze")
# Statistics of a channel are taken over at least so many positions; a classifier's outputs have one each.
_POSITIONS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a weight is for: the node that computes with it, and as which of its inputs."""

    node: onnx.NodeProto
    position: int


@dataclass(slots=True, kw_only=True)
class _Walk:
    """One walk through a network, node by node, with the values of all calibration images."""

    opset: int
    weights: dict[str, Array]
    values: dict[str, list[Array]] = field(default_factory=dict)

    def arrays(self, name: str, image: int) -> Array:
        """A value of one image; weights are the same for all."""
        return self.weights[name] if name in self.weights else self.values[name][image]


def calibrated_file(name: str, folder: Path) -> Path:
    """The calibrated light model as a file in `folder`; written once."""
    path = folder / f"calibrated_{name}.onnx"
    if not path.exists():
        part = path.with_suffix(".part")
        with part.open("wb") as file:
            file.writelines(_pieces(*_calibrate(name)))
        part.rename(path)
    return path


def calibrated(name: str) -> bytes:
    """The calibrated light model's bytes: the same every time."""
    return b"".join(_pieces(*_calibrate(name)))


def weight_names(model: onnx.ModelProto) -> list[str]:
    """The weights of a calibrated model in the order in which nodes first compute with them."""
    floats = {tensor.name for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT}
    return list(dict.fromkeys(name for node in model.graph.node for name in node.input if name in floats))


def logits_name(model: onnx.ModelProto) -> str:
    """The value before the softmax, or the output of a network that has none."""
    (output,) = (value.name for value in model.graph.output)
    last = next(node for node in model.graph.node if output in node.output)
    return str(last.input[0]) if last.op_type == "Softmax" else output


def _calibrate(name: str) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The model without its weights, and the weights."""
    model = onnx.load(light_path(name))
    shapes = _weight_shapes(model)
    uses = _uses(model.graph, shapes)
    walk = _Walk(
        opset=model.opset_import[0].version,
        weights={weight: _initial(weight, shape, uses[weight]) for weight, shape in shapes.items() if weight in uses},
    )
    _strip(model, shapes)
    random = np.random.default_rng(_SEED)
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        walk.values[value.name] = [random.standard_normal(shape, dtype=np.float32) for _ in range(_IMAGES)]
    for tensor in model.graph.initializer:
        walk.values[tensor.name] = [numpy_helper.to_array(tensor)] * _IMAGES
    last = {value: index for index, node in enumerate(model.graph.node) for value in node.input}
    for index, node in enumerate(model.graph.node):
        _step(walk, node)
        for value in node.input:
            if last[value] == index:
                walk.values.pop(value, None)
    return model, walk.weights


def _weight_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """The weights: constants filled by ConstantOfShape, and the small ones that are stored."""
    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    shapes = {tensor.name: tuple(tensor.dims) for tensor in stored.values() if tensor.data_type == TensorProto.FLOAT}
    for node in model.graph.node:
        if node.op_type == "ConstantOfShape":
            extents = numpy_helper.to_array(stored[node.input[0]])
            shapes[node.output[0]] = tuple(int(extent) for extent in extents)
    return shapes


def _uses(graph: onnx.GraphProto, weights: Mapping[str, object]) -> dict[str, Use]:
    """The first node that computes with each weight, views in between left out."""
    behind = {name: name for name in weights}
    found: dict[str, Use] = {}
    for node in graph.node:
        for position, value in enumerate(node.input):
            if value not in behind:
                continue
            if node.op_type in _VIEWS and position == 0:
                behind[node.output[0]] = behind[value]
            else:
                found.setdefault(behind[value], Use(node=node, position=position))
    return found


def _initial(name: str, shape: tuple[int, ...], use: Use) -> Array:
    """Random values by what the weight is for."""
    random = np.random.default_rng([_SEED, *name.encode()])
    values = random.standard_normal(shape, dtype=np.float32)
    match use.node.op_type, use.position:
        case ("Conv", 1):
            values *= sqrt(2 / prod(shape[1:]))
        case ("Gemm", 1):
            transposed = any(attribute.name == "transB" and attribute.i for attribute in use.node.attribute)
            values *= sqrt(2 / shape[-1 if transposed else -2])
        case ("BatchNormalization", 1 | 4) | ("Mul", _):  # scales and variances are positive
            values = np.asarray(1 + 0.2 * np.tanh(values))
        case ("BatchNormalization" | "Conv", 2):
            values = np.asarray(1 + 0.25 * values)
        case _:
            values *= 0.25
    return values


def _strip(model: onnx.ModelProto, weights: Mapping[str, object]) -> None:
    """Take the weights, and what makes them, out of the model."""
    graph = model.graph
    kept = [node for node in graph.node if node.op_type != "ConstantOfShape"]
    read = {name for node in kept for name in node.input}
    stored = {tensor.name for tensor in graph.initializer}
    tensors = [tensor for tensor in graph.initializer if tensor.name in read and tensor.name not in weights]
    inputs = [value for value in graph.input if value.name not in stored]
    for items, remaining in ((graph.node, kept), (graph.initializer, tensors), (graph.input, inputs)):
        copies = [type(item).FromString(item.SerializeToString()) for item in remaining]
        del items[:]
        items.extend(copies)
    model.ir_version = _IR_VERSION


def _step(walk: _Walk, node: onnx.NodeProto) -> None:
    """Compute a node for all images, after bringing its weights in line with what arrives."""
    if node.op_type == "BatchNormalization":
        mean, variance = _moments(walk.values[node.input[0]])
        walk.weights[node.input[3]][:] = mean
        walk.weights[node.input[4]][:] = variance
    outputs = [_run(walk, node, image) for image in range(_IMAGES)]
    if node.op_type == "Conv" and len(node.input) == 3 and prod(outputs[0].shape[2:]) >= _POSITIONS:
        mean, variance = _moments(outputs)
        gain = (1 / np.sqrt(variance + 1e-6)).astype(np.float32)
        weight, bias = walk.weights[node.input[1]], walk.weights[node.input[2]]
        weight *= gain.reshape(-1, *(1,) * (weight.ndim - 1))
        shift = bias.copy()
        bias[:] = shift + (bias - mean) * gain
        outputs = [(x - _by_channel(mean, x)) * _by_channel(gain, x) + _by_channel(shift, x) for x in outputs]
    if node.op_type == "Gemm" and node.input[1] in walk.weights:
        # logits of large variance would leave all but a few classes a probability of 0
        scale = np.float32(sqrt(np.mean(np.square(outputs))))
        for name in node.input[1:]:
            walk.weights[name] /= scale
        outputs = [x / scale for x in outputs]
    if all(name in walk.weights for name in node.input[:1]) and node.op_type in _VIEWS:
        walk.weights[node.output[0]] = outputs[0]
    else:
        walk.values[node.output[0]] = outputs


def _run(walk: _Walk, node: onnx.NodeProto, image: int) -> Array:
    """The node's first output for one image, by ONNX Runtime."""
    feeds = {name: walk.arrays(name, image) for name in node.input if name}
    graph = helper.make_graph(
        [node],
        "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feeds.items()
        ],
        [onnx.ValueInfoProto(name=node.output[0])],
    )
    opsets = [helper.make_opsetid("", walk.opset)]
    run = run_model(helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION), feeds)
    assert run.values is not None, run.reason
    return np.asarray(run.values[0])


def _moments(arrays: Sequence[Array]) -> tuple[Array, Array]:
    """Mean and variance per channel (axis 1), over images and positions."""
    axes = tuple(axis for axis in range(arrays[0].ndim) if axis != 1)
    together = np.concatenate(arrays)
    return together.mean(axes), together.var(axes)


def _by_channel(values: Array, like: Array) -> Array:
    return values.reshape(1, -1, *(1,) * (like.ndim - 2))


def _pieces(model: onnx.ModelProto, weights: Mapping[str, Array]) -> Iterator[bytes | memoryview]:
    """The file in pieces: the weights are written from where they lie, never copied into a message."""
    read = {name for node in model.graph.node for name in node.input}
    graph = onnx.GraphProto()
    graph.CopyFrom(model.graph)
    model.ClearField("graph")
    records: list[bytes | memoryview] = []
    made = {name for node in graph.node for name in node.output}
    for name, array in sorted(weights.items()):
        if name in read and name not in made:
            head = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=array.shape).SerializeToString()
            data = np.ascontiguousarray(array).data.cast("B")
            tag = _key(TensorProto.RAW_DATA_FIELD_NUMBER, len(data))
            records += [_key(graph.INITIALIZER_FIELD_NUMBER, len(head) + len(tag) + len(data)), head, tag, data]
    structure = graph.SerializeToString(deterministic=True)
    size = len(structure) + sum(len(record) for record in records)
    yield model.SerializeToString(deterministic=True)
    yield _key(model.GRAPH_FIELD_NUMBER, size)
    yield structure
    yield from records


def _key(number: int, size: int) -> bytes:
    """What stands before a field of bytes in a protobuf message: its number, and its size."""
    out = bytearray()
    for value in (number << 3 | 2, size):
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)
