"""Weights are separated from structure without being copied, and broken bytes are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from compiler.errors import ModelError
from compiler.frontend.protobuf_weights import KEEP_BYTES, split_weights
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from tests.models import Model, error_of, import_graph


def weights_of(*sizes: int) -> Model:
    """A model whose initialisers have the given numbers of float32 elements."""
    model = Model()
    x = model.input([1])
    for index, size in enumerate(sizes):
        x = model.node("Add", [x, model.constant(np.arange(size, dtype=np.float32) + index, f"w{index}")])
    model.output(x)
    return model


@settings(max_examples=40)
@given(st.lists(st.integers(1, 1200), max_size=6))
def test_offsets_point_at_the_weights_in_the_file(sizes: list[int]) -> None:
    data = weights_of(*sizes).data()
    split = split_weights(memoryview(data))
    large = {index for index, size in enumerate(sizes) if 4 * size > KEEP_BYTES}
    assert set(split.weights) == large
    for index, (offset, count) in split.weights.items():
        found = np.frombuffer(data[offset : offset + count], dtype=np.float32)
        assert found.tolist() == (np.arange(sizes[index]) + index).tolist()


@settings(max_examples=40)
@given(st.lists(st.integers(1, 1200), max_size=6))
def test_structure_is_the_model_without_its_large_weights(sizes: list[int]) -> None:
    model = weights_of(*sizes)
    split = split_weights(memoryview(model.data()))
    found, expected = onnx.ModelProto(), model.proto()
    found.ParseFromString(split.structure)
    for index in split.weights:
        expected.graph.initializer[index].ClearField("raw_data")
    assert found == expected


def test_weights_are_not_in_the_structure() -> None:
    model = weights_of(100_000)
    assert len(split_weights(memoryview(model.data())).structure) < 1000


def test_repeated_graph_fields_are_merged_with_positions_counted_on() -> None:
    """Protobuf merges repeated occurrences of a message field; so must the walker."""
    data = weights_of(500).data()
    extra = onnx.ModelProto()
    extra.graph.initializer.append(numpy_helper.from_array(np.arange(700, dtype=np.float32), "second"))
    both = data + extra.SerializeToString()
    split = split_weights(memoryview(both))
    assert set(split.weights) == {0, 1}
    offset, count = split.weights[1]
    assert np.frombuffer(both[offset : offset + count], dtype=np.float32).tolist() == list(range(700))
    merged = onnx.ModelProto()
    merged.ParseFromString(split.structure)
    assert [tensor.name for tensor in merged.graph.initializer] == ["w0", "second"]


def test_raw_data_given_twice_in_one_tensor_keeps_the_last() -> None:
    """The last occurrence of a scalar field counts in protobuf."""
    tensor = numpy_helper.from_array(np.zeros(400, dtype=np.float32), "w")
    twice = (
        tensor.SerializeToString()
        + onnx.TensorProto(raw_data=np.ones(400, dtype=np.float32).tobytes()).SerializeToString()
    )
    graph = b"\x2a" + varint(len(twice)) + twice
    data = b"\x3a" + varint(len(graph)) + graph
    offset, count = split_weights(memoryview(data)).weights[0]
    assert np.frombuffer(data[offset : offset + count], dtype=np.float32).tolist() == [1.0] * 400


def varint(value: int) -> bytes:
    """A protobuf varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff" * 40,  # a varint that does not end
        b"\x3a\xff\xff\xff\xff\x0f",  # a length beyond the file
        b"\x3a\x05\x0a",  # cut inside a field
        b"\x00\x01",  # field number 0
        b"\x0b",  # a group, which no ONNX message has
        b"\x09\x01\x02",  # a fixed64 that ends early
        b"plain text that is not a model",
    ],
)
def test_broken_bytes_are_no_onnx_model(data: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        ReadModel().run(ModelSource.from_bytes(data))
    assert caught.value.code == "not_onnx"
    assert caught.value.hint


@settings(max_examples=300)
@given(st.binary(max_size=80))
def test_no_bytes_crash_the_reader(data: bytes) -> None:
    error = error_of(lambda: ReadModel().run(ModelSource.from_bytes(data)))
    known = "not_onnx empty_model empty_graph unsupported_ir_version unsupported_opset invalid_archive"
    assert error is None or error.code in known.split()


@settings(max_examples=200)
@given(st.data())
def test_a_file_cut_or_changed_anywhere_is_refused_or_read_but_never_crashes(data: st.DataObject) -> None:
    """IMPORT-4."""
    whole = bytearray(weights_of(3, 400).data())
    at = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        whole = whole[:at]
    else:
        whole[at] = data.draw(st.integers(0, 255))
    error = error_of(lambda: import_graph(bytes(whole)))
    assert error is None or error.code != "internal_error"
