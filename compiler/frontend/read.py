"""Reading a model file: bytes to protobuf structure, with weights left in place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import onnx
from google.protobuf.message import DecodeError

from compiler.errors import LimitError, ModelError
from compiler.frontend.source import ModelSource
from compiler.frontend.wire import split_weights

MAX_FILE_BYTES: Final = 2**31 - 1
MAX_NODES: Final = 200_000
_DEFAULT_DOMAINS: Final = ("", "ai.onnx")


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """A parsed model: the structure, its opset, and where large weights lie (initialiser position -> span)."""

    source: ModelSource
    proto: onnx.ModelProto
    opset: int
    weights: dict[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """Pass: file to protobuf structure (IMPORT-1)."""

    name: str = "read"

    def run(self, source: ModelSource) -> OnnxModel:
        """Raises ModelError if the file is not an ONNX model of a known version, LimitError if it is too large."""
        size = source.size_bytes
        if size == 0:
            raise ModelError(
                "the model file is empty",
                code="empty_model",
                stage="import",
                actual="0 bytes",
                limit="at least 1 byte",
            )
        if size > MAX_FILE_BYTES:
            raise LimitError(
                "the model file is too large",
                code="model_too_large",
                stage="import",
                actual=size,
                limit=MAX_FILE_BYTES,
            )
        split = split_weights(source.view(0, size))
        proto = onnx.ModelProto()
        try:
            proto.ParseFromString(split.structure)
        except DecodeError as error:
            raise ModelError(
                "the file is not an ONNX model: its bytes do not parse",
                code="not_onnx",
                stage="import",
                actual=str(error),
                hint="Give a file written by onnx.save or an exporter",
            ) from None
        return OnnxModel(source=source, proto=proto, opset=_check(proto), weights=split.weights)


def _check(proto: onnx.ModelProto) -> int:
    """The opset of the default domain, after the checks that come before anything else."""
    if not proto.HasField("graph") or not proto.graph.node:
        raise ModelError(
            "the file holds no graph with nodes",
            code="not_onnx" if not proto.opset_import else "empty_graph",
            stage="import",
            actual=f"{len(proto.graph.node)} nodes",
            limit="at least 1 node",
            hint="Give a file written by onnx.save or an exporter",
        )
    if len(proto.graph.node) > MAX_NODES:
        raise LimitError(
            "the graph has too many nodes",
            code="too_many_nodes",
            stage="import",
            actual=len(proto.graph.node),
            limit=MAX_NODES,
        )
    if not 1 <= proto.ir_version <= onnx.IR_VERSION:
        raise ModelError(
            "the model's IR version is not known",
            code="unsupported_ir_version",
            stage="import",
            actual=proto.ir_version,
            limit=f"1 to {onnx.IR_VERSION}",
        )
    versions = [entry.version for entry in proto.opset_import if entry.domain in _DEFAULT_DOMAINS]
    opset = versions[0] if versions else 1
    if len(versions) > 1:
        raise ModelError(
            "the model imports the default opset more than once",
            code="duplicate_opset",
            stage="import",
            actual=", ".join(map(str, versions)),
            limit="one version",
        )
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise ModelError(
            "the model's opset is not known",
            code="unsupported_opset",
            stage="import",
            actual=opset,
            limit=f"1 to {newest}",
            hint=f"Convert the model to opset {newest} or older",
        )
    return opset
