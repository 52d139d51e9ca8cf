"""Files that are no model: nothing, cut short, mangled on the way, or of another kind altogether."""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from typing import Final

import onnx
from google.protobuf import json_format, text_format
from onnx import TensorProto, helper

from tests.corpus.build import (
    GRAPH,
    IR_VERSION,
    OPSET_IMPORT,
    entry,
    raw_model,
    raw_node,
    raw_tensor_type,
    small_file,
    varint,
)
from tests.corpus.case import Build, Case, accept, case, either, reject

_NO_MODEL: Final = reject("not_onnx empty_graph unsupported_ir_version invalid_model")
_BROKEN: Final = reject("not_onnx")


def _constant(data: bytes) -> Build:
    return lambda: data


def _changed(change: Callable[[bytes], bytes]) -> Build:
    return lambda: change(small_file())


def _random_bytes(count: int) -> Build:
    return lambda: random.Random(7).randbytes(count)


def _flipped(data: bytes, position: int, mask: int = 0x10) -> bytes:
    changed = bytearray(data)
    changed[position] ^= mask
    return bytes(changed)


def _weights_flipped(data: bytes) -> bytes:
    """A bit of a weight: any value is a valid float."""
    weight = onnx.load_from_string(data).graph.initializer[0].raw_data
    return _flipped(data, data.index(weight) + 40)


def _length_flipped(data: bytes) -> bytes:
    """A bit of the length of the graph, whose field begins with its tag."""
    return _flipped(data, data.index(bytes([GRAPH << 3 | 2])) + 1)


def _split_graph(data: bytes) -> bytes:
    """The graph in two fields of one number, which protobuf merges."""
    proto = onnx.load_from_string(data)
    nodes, rest = onnx.GraphProto(), onnx.GraphProto()
    rest.CopyFrom(proto.graph)
    nodes.node.extend(rest.node)
    del rest.node[:]
    return b"".join(
        [
            entry(IR_VERSION, proto.ir_version),
            entry(GRAPH, rest.SerializeToString()),
            entry(GRAPH, nodes.SerializeToString()),
            entry(OPSET_IMPORT, proto.opset_import[0].SerializeToString()),
        ]
    )


def _deep_sequence_type(depth: int) -> Build:
    """An input whose type is a sequence of sequences of sequences..."""

    def build() -> bytes:
        element = entry(1, entry(1, TensorProto.FLOAT))
        for _ in range(depth):
            element = entry(4, entry(1, element))
        value = entry(1, "deep") + entry(2, element)
        nodes = raw_node("Relu", ["x"], ["y"])
        return raw_model(nodes, inputs=[raw_tensor_type("x", [4]), value], outputs=[raw_tensor_type("y", [4])])

    return build


def _deep_unknown_field() -> bytes:
    """A field that no version knows, nested without end: parsers that descend into anything overflow their stack."""
    inner = b""
    for _ in range(3_000):
        inner = entry(999, inner)
    return small_file() + inner


def _graph_only() -> bytes:
    return bytes(onnx.load_from_string(small_file()).graph.SerializeToString())


def _tensor_only() -> bytes:
    return bytes(onnx.load_from_string(small_file()).graph.initializer[0].SerializeToString())


def _function_only() -> bytes:
    node = helper.make_node("Relu", ["x"], ["y"])
    function = helper.make_function("local", "f", ["x"], ["y"], [node], [helper.make_opsetid("", 17)])
    return bytes(function.SerializeToString())


def _descriptor() -> bytes:
    """The description of the ONNX messages themselves: protobuf, but of another schema."""
    return bytes(onnx.ModelProto.DESCRIPTOR.file.serialized_pb)


_PNG: Final = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x08\2\0\0\0\x90wS\xde\0\0\0\0IEND\xaeB`\x82"
_POINTER: Final = (
    b"version https://git-lfs.github.com/spec/v1\n"
    b"oid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 102442450\n"
)

CASES: Final[tuple[Case, ...]] = (
    case(
        "a-file-of-0-bytes", _constant(b""), reject("empty_model"), "an empty upload; the library loads it as a model"
    ),
    case("one-byte", _constant(b"\x08"), _BROKEN, "a tag whose value is missing"),
    case("one-valid-field", _constant(b"\x08\x08"), _NO_MODEL, "a version and nothing else"),
    case("a-model-cut-in-half", _changed(lambda d: d[: len(d) // 2]), _BROKEN, "an upload that broke off"),
    case("a-model-cut-at-a-quarter", _changed(lambda d: d[: len(d) // 4]), _BROKEN, "an upload that broke off early"),
    case("a-model-without-its-last-byte", _changed(lambda d: d[:-1]), _BROKEN, "off by one at the end"),
    case("a-model-without-its-first-byte", _changed(lambda d: d[1:]), _NO_MODEL, "off by one at the beginning"),
    case("a-bit-flipped-in-a-weight", _changed(_weights_flipped), accept(), "damage that no reader can see"),
    case("a-bit-flipped-in-a-length", _changed(_length_flipped), _NO_MODEL, "damage to the framing"),
    case("line-ends-converted", _changed(lambda d: d.replace(b"\n", b"\r\n")), _NO_MODEL, "a transfer in text mode"),
    case("high-bits-stripped", _changed(lambda d: bytes(b & 0x7F for b in d)), _NO_MODEL, "a transfer in 7 bits"),
    case(
        "read-as-text-and-written-back",
        _changed(lambda d: d.decode("utf-8", "replace").encode()),
        _NO_MODEL,
        "bytes that are no UTF-8 replaced",
    ),
    case(
        "a-byte-order-mark-in-front", _changed(lambda d: b"\xef\xbb\xbf" + d), _NO_MODEL, "an editor's byte order mark"
    ),
    case("random-bytes", _random_bytes(4_096), _NO_MODEL, "noise"),
    case("16-mebibytes-of-random-bytes", _random_bytes(2**24), _NO_MODEL, "noise, much of it"),
    case("zeros", _constant(bytes(2**20)), _BROKEN, "a file allocated but never written"),
    case("ones", _constant(b"\xff" * 2**20), _BROKEN, "an integer without an end"),
    case("only-continuation-bytes", _constant(b"\x80" * 2**22), _BROKEN, "an integer of four million bytes"),
    case("a-length-beyond-64-bits", _constant(b"\x3a" + b"\xff" * 9 + b"\x7f" + bytes(64)), _BROKEN, "length overflow"),
    case("a-length-of-2-to-63", _constant(b"\x3a" + varint(2**63) + bytes(64)), _BROKEN, "length that turns negative"),
    case("a-length-of-2-gibibytes", _constant(b"\x3a" + varint(2**31) + bytes(64)), _BROKEN, "length beyond the file"),
    case("a-group-never-closed", _constant(b"\x3b\x0b" * 50_000), _BROKEN, "wire type 3, nested without end"),
    case("a-wire-type-that-does-not-exist", _constant(b"\x0f" * 100), _BROKEN, "wire type 7"),
    case(
        "empty-fields-a-million-times",
        lambda: small_file() + entry(20, b"") * 1_000_000,
        either("not_onnx invalid_model model_too_large too_many_values"),
        "training information, all of it empty",
    ),
    case("text", _constant(b"This is not a model.\n" * 200), _NO_MODEL, "prose"),
    case("text-of-wide-characters", lambda: ("Modell ohne Gewähr" * 99).encode("utf-16"), _NO_MODEL, "UTF-16"),
    case(
        "a-web-page",
        _constant(b"<!DOCTYPE html><html><body>404 Not Found</body></html>"),
        _NO_MODEL,
        "an error page saved as the model",
    ),
    case("a-pointer-of-large-file-storage", _constant(_POINTER), _NO_MODEL, "a clone without the large files"),
    case(
        "json",
        lambda: json_format.MessageToJson(onnx.load_from_string(small_file())).encode(),
        _NO_MODEL,
        "the model, but as JSON",
    ),
    case(
        "text-format",
        lambda: text_format.MessageToString(onnx.load_from_string(small_file())).encode(),
        _NO_MODEL,
        "the model, but as protobuf text",
    ),
    case("a-picture", _constant(_PNG), _NO_MODEL, "PNG"),
    case("an-executable", _constant(b"\x7fELF\2\1\1" + bytes(4096)), _NO_MODEL, "ELF"),
    case(
        "a-pickle",
        _constant(b"\x80\x04\x95\x1c\0\0\0\0\0\0\0\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R."),
        _NO_MODEL,
        "a pickle that would run a command when loaded",
    ),
    case("a-flat-buffer", _constant(b"\x1c\0\0\0TFL3" + bytes(1024)), _NO_MODEL, "the format of another runtime"),
    case(
        "safe-tensors",
        _constant(varint(64) + bytes(7) + b'{"w":{"dtype":"F32","shape":[4],"data_offsets":[0,16]}}'),
        _NO_MODEL,
        "weights without a graph",
    ),
    case(
        "a-compressed-model", lambda: gzip.compress(small_file(), mtime=0), reject("not_onnx invalid_archive"), "gzip"
    ),
    case(
        "a-compressed-bomb",
        lambda: gzip.compress(bytes(2**28), 9, mtime=0),
        reject("not_onnx invalid_archive archive_too_large"),
        "256 MiB of zeros in gzip",
    ),
    case("a-bare-graph", _graph_only, _NO_MODEL, "GraphProto instead of ModelProto"),
    case("a-bare-tensor", _tensor_only, _NO_MODEL, "TensorProto instead of ModelProto"),
    case("a-bare-function", _function_only, _NO_MODEL, "FunctionProto instead of ModelProto"),
    case("a-description-of-messages", _descriptor, _NO_MODEL, "protobuf of another schema"),
    case("garbage-after-the-model", _changed(lambda d: d + b"\0" * 100), _BROKEN, "padding at the end"),
    case(
        "a-model-twice-in-one-file",
        _changed(lambda d: d + d),
        reject("duplicate_value duplicate_opset invalid_model not_onnx"),
        "protobuf merges what is concatenated",
    ),
    case(
        "a-graph-in-two-fields", _changed(_split_graph), either("invalid_model not_onnx"), "legal protobuf: parts merge"
    ),
    case(
        "fields-that-nobody-knows",
        _changed(lambda d: d + entry(998, b"future") + entry(997, 5)),
        accept(),
        "a newer version's fields",
    ),
    case(
        "unknown-fields-3000-deep",
        _deep_unknown_field,
        either("not_onnx nesting_too_deep"),
        "nesting that nobody reads",
    ),
    case(
        "sequence-types-50-deep",
        _deep_sequence_type(50),
        either("unsupported_dtype not_onnx nesting_too_deep invalid_model"),
        "recursion over types",
    ),
    case(
        "sequence-types-20000-deep",
        _deep_sequence_type(20_000),
        reject("not_onnx nesting_too_deep unsupported_dtype invalid_model"),
        "recursion until the stack is full",
    ),
    case(
        "a-description-of-50-megabytes",
        lambda: small_file() + entry(6, b"x" * 50_000_000),
        either("model_too_large name_too_long not_onnx invalid_model"),
        "a doc_string that is most of the file",
    ),
    case(
        "a-hundred-thousand-properties",
        lambda: small_file() + entry(14, entry(1, "k") + entry(2, "v")) * 100_000,
        either("invalid_model model_too_large"),
        "one metadata key many times",
    ),
)
