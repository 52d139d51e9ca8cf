"""Files for the corpus: small models, models edited after the fact, and protobuf written field by field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
from onnx import AttributeProto, TensorProto, helper

from tests.corpus.case import Build
from tests.models import Model

# Field numbers of onnx.proto.
IR_VERSION: Final = 1
GRAPH: Final = 7
OPSET_IMPORT: Final = 8
NODE: Final = 1
INITIALIZER: Final = 5
INPUT: Final = 11
OUTPUT: Final = 12


def written(fill: Callable[[Model], object], *, opset: int = 17, ir_version: int = 8) -> Build:
    """The file of a model that `fill` fills."""

    def build() -> bytes:
        model = Model(opset=opset, ir_version=ir_version)
        fill(model)
        return model.data()

    return build


def edited(
    change: Callable[[onnx.ModelProto], object],
    fill: Callable[[Model], object] | None = None,
    *,
    opset: int = 17,
) -> Build:
    """The file of a model (by default `small_network`) after a change to its protobuf message."""

    def build() -> bytes:
        model = Model(opset=opset)
        (fill or small_network)(model)
        proto = model.proto()
        change(proto)
        return bytes(proto.SerializeToString())

    return build


def small_network(model: Model) -> None:
    """Input x of 1x3x8x8, a convolution `conv` with weight `w`, a `relu`, output `y`."""
    x = model.input([1, 3, 8, 8], "x")
    weight = model.constant(model.random.standard_normal((4, 3, 3, 3)).astype("float32"), "w")
    c = model.node("Conv", [x, weight], out="c", name="conv", kernel_shape=[3, 3], pads=[1] * 4)
    model.output(model.node("Relu", [c], out="y", name="relu"))


def small_file() -> bytes:
    """The file of `small_network`."""
    return written(small_network)()


def one_node(
    op_type: str,
    shapes: Sequence[Sequence[int]],
    *,
    opset: int = 17,
    domain: str = "",
    **attributes: Any,
) -> Build:
    """A model of one node `node` whose inputs are graph inputs of the given shapes."""

    def fill(model: Model) -> None:
        inputs = [model.input(shape) for shape in shapes]
        model.output(model.node(op_type, inputs, name="node", domain=domain, **attributes))

    return written(fill, opset=opset)


def varint(value: int) -> bytes:
    """An integer as protobuf writes it; negative ones in 64 bits."""
    value &= 2**64 - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def entry(number: int, value: int | bytes | str) -> bytes:
    """One protobuf field: an integer as a varint, bytes and text with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def raw_node(
    op_type: str,
    inputs: Sequence[str | bytes],
    outputs: Sequence[str | bytes],
    name: str | bytes = b"",
    *,
    attributes: bytes = b"",
) -> bytes:
    """The bytes of a NodeProto field of a graph; names may be any bytes."""
    parts = [entry(1, value) for value in inputs] + [entry(2, value) for value in outputs]
    return entry(NODE, b"".join([*parts, entry(3, name), entry(4, op_type), attributes]))


def raw_integer(name: str, value: int) -> bytes:
    """The bytes of an integer attribute's field of a node."""
    return entry(5, entry(1, name) + entry(3, value) + entry(20, AttributeProto.INT))


def raw_tensor_type(name: str | bytes, shape: Sequence[int], dtype: int = TensorProto.FLOAT) -> bytes:
    """The bytes of a ValueInfoProto."""
    dims = b"".join(entry(1, entry(1, extent)) for extent in shape)
    return entry(1, name) + entry(2, entry(1, entry(1, dtype) + entry(2, dims)))


def raw_model(
    nodes: bytes,
    *,
    inputs: Sequence[bytes] = (),
    outputs: Sequence[bytes] = (),
    initializers: bytes = b"",
    opset: int = 17,
    more: bytes = b"",
) -> bytes:
    """A model file from the bytes of its fields, without building the message in memory."""
    graph = b"".join(
        [
            nodes,
            entry(2, "raw"),
            initializers,
            *(entry(INPUT, value) for value in inputs),
            *(entry(OUTPUT, value) for value in outputs),
        ]
    )
    return entry(IR_VERSION, 8) + entry(GRAPH, graph) + entry(OPSET_IMPORT, entry(2, opset)) + more


def value_info(
    name: str, shape: Sequence[int | str | None] | None, dtype: int = TensorProto.FLOAT
) -> onnx.ValueInfoProto:
    """A typed value."""
    return helper.make_tensor_value_info(name, dtype, None if shape is None else list(shape))
