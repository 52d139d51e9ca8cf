"""Small models for the tests of service and command line: weights beside the file, a node of the host, open extents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx.external_data_helper import set_external_data

from tests.models import Model

SIDECARS = {"w": "weights.bin", "v": "more/weights.bin"}
_OFFSET = 100


def network() -> Model:
    """Two convolutions `first` and `second` with weights `w` and `v`, and a `relu` between them."""
    model = Model()
    x = model.input([1, 3, 16, 16], "x")
    w = model.constant(model.random.standard_normal((8, 3, 3, 3)), "w", np.float32)
    v = model.constant(model.random.standard_normal((4, 8, 3, 3)), "v", np.float32)
    first = model.node("Relu", [model.node("Conv", [x, w], name="first", pads=[1] * 4)], name="relu")
    model.output(model.node("Conv", [first, v], name="second", pads=[1] * 4))
    return model


def move_out(tensor: onnx.TensorProto, location: str) -> bytes:
    """Let a tensor's data lie in a file from byte 100 on; returns the contents of the file."""
    data = tensor.raw_data
    set_external_data(tensor, location, offset=_OFFSET, length=len(data))
    tensor.ClearField("raw_data")
    return bytes(_OFFSET) + data


def split_network() -> tuple[bytes, dict[str, bytes]]:
    """The file of `network` with its weights outside, and the files that hold them by their location."""
    proto = network().proto()
    tensors = {tensor.name: tensor for tensor in proto.graph.initializer}
    files = {location: move_out(tensors[name], location) for name, location in SIDECARS.items()}
    return bytes(proto.SerializeToString()), files


def written(folder: Path) -> Path:
    """`net.onnx` in a folder with its files beside it."""
    model, files = split_network()
    for name, data in {"net.onnx": model, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder / "net.onnx"


def saved(path: Path, model: Model) -> str:
    """Write a model; its path as a word of a command."""
    path.write_bytes(model.data())
    return str(path)


def lstm(path: Path, hidden: int = 16) -> str:
    """A recurrent `cell` of more steps than are written out, which only the host can run, and a `relu`."""
    model = Model()
    x = model.input([100, 1, 8], "x")
    inputs = [x, model.weight(1, 4 * hidden, 8), model.weight(1, 4 * hidden, hidden)]
    y = model.node("LSTM", inputs, name="cell", hidden_size=hidden)
    model.output(model.node("Relu", [y], name="relu"))
    return saved(path, model)


def dynamic(path: Path, shape: Sequence[int | str] = ("batch", 3, "height", "width")) -> str:
    """A convolution of an input whose extents are open."""
    model = Model()
    x = model.input(shape, "x")
    model.output(model.node("Conv", [x, model.weight(4, 3, 3, 3)], name="conv", pads=[1] * 4))
    return saved(path, model)


def images(channels: int = 8) -> bytes:
    """A convolution and a Relu of images of any number `n` and extents `h` and `w`."""
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    conv = model.node("Conv", [x, model.weight(channels, 3, 3, 3)], name="conv", pads=[1] * 4)
    model.output(model.node("Relu", [conv], name="relu"))
    return model.data()


def sentences() -> bytes:
    """A matrix product of sequences `x` and an addition of `y`, which has the same length `t`."""
    model = Model()
    x, y = model.input(["t", 16], "x"), model.input(["t", 8], "y")
    product = model.node("MatMul", [x, model.weight(16, 8)], name="product")
    model.output(model.node("Add", [product, y], name="sum"))
    return model.data()


def attention() -> bytes:
    """Weighted means of all `t` rows."""
    model = Model()
    x = model.input(["t", 8], "x")
    scores = model.node("MatMul", [x, model.node("Transpose", [x], perm=[1, 0])], name="scores")
    model.output(model.node("MatMul", [model.node("Softmax", [scores], axis=-1), x], name="means"))
    return model.data()


def rarely_none() -> bytes:
    """Rows of 1 in `1 + t // 99` columns: a model for up to 100 rows `t` but 99, which nobody sees who tries a few."""
    model = Model()
    x = model.input(["t", 1], "x")
    rows = model.node("Shape", [x], start=0, end=1)
    columns = model.node("Add", [model.node("Div", [rows, model.ints(99)]), model.ints(1)])
    shape = model.node("Concat", [model.ints(-1), columns], axis=0)
    model.output(model.node("Relu", [model.node("Reshape", [x, shape], name="fold")], name="relu"))
    return model.data()
