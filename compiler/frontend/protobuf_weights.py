"""Separates weights from structure at the protobuf wire level, so that weights are never copied.

The protobuf library copies every `raw_data` when it parses, so a model of several hundred MB would be in memory twice.
This walker finds the payloads of `graph.initializer[*].raw_data` and returns the file without them, which is small
enough to parse. The weights stay in the (memory-mapped) file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from compiler.errors import LimitError, ModelError

# Field numbers of onnx.proto: ModelProto.graph, GraphProto.node, GraphProto.initializer, TensorProto.raw_data.
_MODEL_GRAPH = 7
_GRAPH_NODE = 1
_GRAPH_INITIALIZER = 5
_TENSOR_RAW_DATA = 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# Bounds checked before parsing: fields of one kind in the graph, and bytes of structure in total.
MAX_NODES: Final = 200_000
MAX_VALUES: Final = 400_000
MAX_STRUCTURE_BYTES: Final = 1 << 30
# Smaller payloads stay in the structure: they are shapes, axes and the like, needed for folding.
KEEP_BYTES = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitModel:
    """The model without its large weights, and their positions: initialiser position -> (offset, bytes)."""

    structure: bytes
    weights: dict[int, tuple[int, int]]


def split_weights(data: memoryview) -> SplitModel:
    """Splits a serialised ModelProto; raises ModelError if the bytes are not protobuf."""
    weights: dict[int, tuple[int, int]] = {}
    out = bytearray()
    position = 0
    for count, (number, begin, body, end) in enumerate(_fields(data, 0, len(data))):
        if count >= MAX_VALUES:
            raise _too_many(0)
        if number == _MODEL_GRAPH:
            graph, position = _split_graph(data, body, end, weights, position)
            _append_message(out, _MODEL_GRAPH, graph)
        else:
            out += data[begin:end]
        if len(out) > MAX_STRUCTURE_BYTES:
            raise LimitError(
                "the model's structure, large weights apart, is too large",
                code="model_too_large",
                stage="import",
                actual=f"more than {MAX_STRUCTURE_BYTES} bytes",
                limit=MAX_STRUCTURE_BYTES,
                hint="Keep weights as initializers with raw data",
            )
    return SplitModel(structure=bytes(out), weights=weights)


def _split_graph(
    data: memoryview, start: int, stop: int, weights: dict[int, tuple[int, int]], position: int
) -> tuple[bytearray, int]:
    """Splits one occurrence of `graph`; protobuf merges repeated ones, so initialiser positions continue."""
    out = bytearray()
    seen: Counter[int] = Counter()
    for number, begin, body, end in _fields(data, start, stop):
        seen[number] += 1
        if seen[number] > (MAX_NODES if number == _GRAPH_NODE else MAX_VALUES):
            raise _too_many(number)
        if number == _GRAPH_INITIALIZER:
            if end - body > KEEP_BYTES:
                tensor, span = _strip_tensor(data, body, end)
                _append_message(out, _GRAPH_INITIALIZER, tensor)
                if span is not None:
                    weights[position] = span
            else:
                out += data[begin:end]
            position += 1
        else:
            out += data[begin:end]
    return out, position


def _strip_tensor(data: memoryview, start: int, stop: int) -> tuple[bytearray, tuple[int, int] | None]:
    out = bytearray()
    span = None
    for number, begin, body, end in _fields(data, start, stop):
        if number == _TENSOR_RAW_DATA and end - body > KEEP_BYTES:
            span = (body, end - body)
        else:
            out += data[begin:end]
    return out, span


def _fields(data: memoryview, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
    """The fields in [start, stop): (number, begin of tag, begin of payload, end of payload)."""
    position = start
    while position < stop:
        begin = position
        tag, position = _varint(data, position, stop)
        number, wire = tag >> 3, tag & 7
        body = position
        if wire == _VARINT:
            _, position = _varint(data, position, stop)
        elif wire == _FIXED64:
            position += 8
        elif wire == _FIXED32:
            position += 4
        elif wire == _BYTES:
            size, body = _varint(data, position, stop)
            position = body + size
        else:
            raise _broken(begin)
        if number == 0 or position > stop:
            raise _cut(stop, position) if number and begin and stop == len(data) else _broken(begin)
        yield number, begin, body, position


def _varint(data: memoryview, position: int, stop: int) -> tuple[int, int]:
    value = shift = 0
    begin = position
    while position < stop and shift < 70:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise _broken(begin)


def _append_message(out: bytearray, number: int, payload: bytearray) -> None:
    for value in (number << 3 | _BYTES, len(payload)):
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    out += payload


def _too_many(number: int) -> LimitError:
    nodes = number == _GRAPH_NODE
    return LimitError(
        "the graph has too many nodes" if nodes else "the graph has too many values",
        code="too_many_nodes" if nodes else "too_many_values",
        stage="import",
        actual=f"more than {MAX_NODES if nodes else MAX_VALUES}",
        limit=MAX_NODES if nodes else MAX_VALUES,
    )


def _cut(size_bytes: int, announced_bytes: int) -> ModelError:
    return ModelError(
        "the file ends early: it is cut short, or is not an ONNX model",
        code="not_onnx",
        stage="import",
        actual=f"{size_bytes} bytes",
        limit=f"at least {announced_bytes} bytes, by its own length fields",
        hint="Copy or download it again",
    )


def _broken(offset: int) -> ModelError:
    return ModelError(
        "the file is not an ONNX model: its bytes are not a protobuf message",
        code="not_onnx",
        stage="import",
        actual=f"broken at byte {offset}",
        hint="Give a file written by onnx.save or an exporter",
    )
