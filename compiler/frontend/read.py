"""Reads a model (bytes, or an archive with external data) into its protobuf structure (IMPORT-1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import onnx
from google.protobuf.message import DecodeError

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.archive import SiblingFiles, open_archive, safe_path
from compiler.frontend.protobuf_weights import split_weights
from compiler.frontend.source import ModelSource

MAX_FILE_BYTES: Final = 2**31 - 1
DEFAULT_DOMAIN: Final = ""
# The default domain's version in models that import only other domains: the newest that ONNX Runtime knows.
UNSAID_OPSET: Final = 26


@dataclass(frozen=True, slots=True, kw_only=True)
class OnnxModel:
    """A parsed model: its structure, and the position of large weights (initialiser position -> span).

    `source` is the model file with the files beside it; `opsets` are the imported versions by domain (the default
    domain is "").
    """

    source: ModelSource
    proto: onnx.ModelProto
    opsets: Mapping[str, int]
    weights: Mapping[int, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """Pass: file or archive to protobuf structure (IMPORT-1)."""

    name: str = "read"

    def run(self, source: ModelSource) -> OnnxModel:
        """Raises ModelError if the file is not an ONNX model of a known version, LimitError if it is too large."""
        try:
            return self._read(source)
        except ModelError as error:
            error.message = f"{printable(source.name, 120)}: {error.message}"
            raise

    def _read(self, source: ModelSource) -> OnnxModel:
        if source.size_bytes == 0:
            raise ModelError(
                "the model file is empty",
                code="empty_model",
                stage="import",
                actual="0 bytes",
                limit="at least 1 byte",
            )
        archive = open_archive(source)
        if archive is not None:
            name = archive.model_name()
            folder = name[: name.rfind("/") + 1]
            files = SiblingFiles(archive, folder)
            source = ModelSource(name=source.name, data=archive.read(name), sha256=source.sha256, files=files)
        size = source.size_bytes
        if size > MAX_FILE_BYTES:
            raise LimitError(
                "the model file is too large",
                code="model_too_large",
                stage="import",
                actual=size,
                limit=MAX_FILE_BYTES,
                hint="Keep large weights as external data",
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
        opsets = _opsets(proto)
        weights = _without_replaced(proto, split.weights)
        return OnnxModel(source=source, proto=proto, opsets=opsets, weights=MappingProxyType(weights))


def _without_replaced(proto: onnx.ModelProto, weights: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """Drops initializers replaced by a later one of the same name and type, as ONNX Runtime does, and their spans."""
    tensors = proto.graph.initializer
    last = {tensor.name: position for position, tensor in enumerate(tensors)}
    if len(last) == len(tensors):
        return weights
    types = [(tensor.name, tensor.data_type, tuple(tensor.dims)) for tensor in tensors]
    kept = [at for at, kind in enumerate(types) if at == last[kind[0]] or kind != types[last[kind[0]]]]
    copies = [onnx.TensorProto.FromString(tensors[position].SerializeToString()) for position in kept]
    del tensors[:]
    tensors.extend(copies)
    return {new: weights[old] for new, old in enumerate(kept) if old in weights}


def external_paths(source: ModelSource) -> tuple[str, ...]:
    """The external files that a model's constants name, sorted; raises as ReadModel does, and for unsafe paths.

    An archive contains its files, so it names none outside.
    """
    if source.size_bytes == 0 or open_archive(source) is not None:
        return ()
    proto = ReadModel().run(source).proto
    tensors = list(proto.graph.initializer)
    todo = [*proto.graph.node, *(node for function in proto.functions for node in function.node)]
    while todo:
        for attribute in todo.pop().attribute:
            tensors.extend([attribute.t, *attribute.tensors])
            for graph in (attribute.g, *attribute.graphs):
                tensors.extend(graph.initializer)
                todo.extend(graph.node)
    locations = {entry.value for tensor in tensors for entry in tensor.external_data if entry.key == "location"}
    return tuple(sorted({safe_path(location, what="the location of external data") for location in locations}))


def _opsets(proto: onnx.ModelProto) -> Mapping[str, int]:
    """The opset versions by domain, after the first checks of the model."""
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise ModelError(
            "the file holds no graph with nodes",
            code="not_onnx" if not proto.opset_import else "empty_graph",
            stage="import",
            actual=f"{len(proto.graph.node)} nodes",
            limit="at least 1 node",
            hint="Give a file written by onnx.save or an exporter",
        )
    if not proto.HasField("ir_version") or proto.ir_version > onnx.IR_VERSION:
        raise ModelError(
            "the model's IR version is not known",
            code="unsupported_ir_version",
            stage="import",
            actual=proto.ir_version if proto.HasField("ir_version") else "no ir_version",
            limit=f"at most {onnx.IR_VERSION}",
        )
    if not proto.opset_import:
        raise ModelError(
            "the model imports no opset, so its ops are undefined",
            code="missing_opset",
            stage="import",
            actual="no opset_import",
            limit="the version of each operator set that the model uses",
            hint="Export the model again, or set its opset_import",
        )
    return opset_versions(proto.opset_import, what="the model")


def opset_versions(imports: object, *, what: str) -> Mapping[str, int]:
    """Versions by domain; raises ModelError for versions that the pinned onnx does not know.

    As in ONNX Runtime, the last of several versions of one domain counts. If only other domains are imported, the
    default domain has the version that ONNX Runtime assumes.
    """
    result: dict[str, int] = {}
    for entry in imports:  # type: ignore[attr-defined]
        if isinstance(entry.domain, bytes):
            raise ModelError(
                f"{what} imports an opset whose domain is not UTF-8 text",
                code="invalid_model",
                stage="import",
                actual=repr(entry.domain)[:80],
                limit="UTF-8",
            )
        result[plain_domain(entry.domain)] = int(entry.version)
    opset = result.setdefault(DEFAULT_DOMAIN, UNSAID_OPSET)
    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise ModelError(
            f"{what}'s opset is not known",
            code="unsupported_opset",
            stage="import",
            actual=opset,
            limit=f"1 to {newest}",
            hint=f"Convert the model to opset {newest} or older",
        )
    return MappingProxyType(result)


def function_opsets(function: onnx.FunctionProto, model: Mapping[str, int]) -> Mapping[str, int]:
    """The versions for a function's nodes: the model's version where both import a domain, else the function's.

    ONNX requires an op to mean the same in both versions; where it does not, ONNX Runtime uses the model's version.
    """
    own = opset_versions(function.opset_import, what=f"function {printable(function.name, 80)!r}")
    return MappingProxyType({domain: model.get(domain, version) for domain, version in own.items()})


def plain_domain(domain: str) -> str:
    """The domain, with the alias "ai.onnx" resolved to the default domain."""
    return DEFAULT_DOMAIN if domain == "ai.onnx" else domain
