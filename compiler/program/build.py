"""From a lowered graph to the executable: programs with their weights, host nodes with what they read (PROG-3)."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import replace

import msgspec
import numpy as np
import onnx

from compiler.errors import InternalError
from compiler.frontend.constant_values import FOUR_BITS, ONNX_CODES, materialise, packed_bytes
from compiler.frontend.dequantised import stored_constant
from compiler.frontend.source import ModelSource, opened
from compiler.ir.constant import Constant, Opaque, Splat, Stored
from compiler.ir.graph import HOST, Graph, HostNode
from compiler.options import Options
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile
from compiler.program.encoding.blob import Blob
from compiler.program.executable import ChipSegment, Executable, HostConstant, HostSegment, Value, Weight
from compiler.program.lower import LoweredGraph
from compiler.program.program import Program, Region, Role
from compiler.units import element_bytes
from compiler.version import COMPILER_VERSION


def executable_of(lowered: LoweredGraph, source: ModelSource, profile: Profile, options: Options) -> Executable | None:
    """The executable of a lowered graph; None where it has no programs.

    Weights are read from the source when the executable is written or run, not before.
    """
    if lowered.reason:
        return None
    fused = lowered.mapped.fused
    graph = fused.partitioned.graph
    weights_of = opened(graph.source, source)
    has_values = options.precision == "model"
    segments: list[ChipSegment | HostSegment] = []
    for found, part, chip in zip(fused.segments, lowered.segments, lowered.mapped.chip_of, strict=True):
        if found.segment.kind is SegmentKind.HOST:
            segments.append(host_segment(graph, found.segment.id, found.segment.ops))
        elif part.program is not None:
            weights = stored_weights(graph, weights_of, part.program) if has_values else ()
            segments.append(ChipSegment(id=found.segment.id, chip=chip or 0, program=part.program, weights=weights))
    plain = msgspec.to_builtins(options)
    for bound in ("time_limit_s", "memory_limit_bytes"):
        plain.pop(bound)
    return Executable(
        compiler_version=COMPILER_VERSION,
        profile=profile,
        model_name=source.name,
        model_digest=source.sha256,
        options_digest=hashlib.sha256(msgspec.json.encode(plain, order="sorted")).hexdigest(),
        inputs=tuple(value_of(graph, name, name) for name in graph.inputs),
        outputs=tuple(
            value_of(graph, name, tensor) for name, tensor in zip(graph.output_names, graph.output_tensors, strict=True)
        ),
        segments=tuple(segments),
        constants=tuple(host_constants(graph, weights_of)) if has_values else (),
        has_values=has_values,
    )


def value_of(graph: Graph, name: str, tensor: str) -> Value:
    """An input or output of the model by its ONNX name."""
    found = graph.tensors[tensor]
    return Value(name=name, tensor=tensor, dtype=found.dtype, shape=found.shape if found.is_known else None)


def host_segment(graph: Graph, name: str, ops: Collection[int]) -> HostSegment:
    """The host nodes of a segment; their inputs and outputs go by the names of the graph's tensors."""
    made = {graph.ops[index].output for index in ops}
    nodes: dict[str, dict[int, str]] = {}
    for index in ops:
        op = graph.ops[index]
        attributes = dict(op.attributes)
        position = attributes["result"]
        if op.kind != HOST or not isinstance(position, int):
            raise InternalError("a host segment holds an op of the chip", stage="lower", node=op.node)
        nodes.setdefault(str(attributes["node"]), {})[position] = op.output
    reads = dict.fromkeys(name for index in ops for name in graph.ops[index].inputs if name and name not in made)
    outputs = sorted(
        name for name in made if name in graph.outputs or any(user not in ops for user in graph.consumers.get(name, ()))
    )
    return HostSegment(
        id=name,
        nodes=tuple(_named(graph.host[key], results) for key, results in nodes.items()),
        inputs=tuple(reads),
        outputs=tuple(outputs),
    )


def _named(node: HostNode, results: dict[int, str]) -> HostNode:
    """A host node whose outputs are the graph's tensors; "" for one that nobody reads."""
    outputs = tuple(results.get(position, "") for position in range(len(node.outputs)))
    return replace(node, outputs=outputs)


def stored_weights(graph: Graph, source: ModelSource, program: Program) -> tuple[Weight, ...]:
    """The bytes of every weight region of a program, read when they are needed."""
    return tuple(
        Weight(region=number, data=_blob(graph, source, region))
        for number, region in enumerate(program.regions)
        if region.role is Role.WEIGHT
    )


def _blob(graph: Graph, source: ModelSource, region: Region) -> Blob:
    """A weight's bytes as they lie in its region."""
    constant = graph.tensors[region.name].constant
    if constant is None:
        raise InternalError("a weight region has no constant", stage="lower", node=region.name)
    stored = stored_constant(constant)
    if isinstance(stored.data, Splat):
        return Blob.repeated(stored.data.value, region.size_bytes)
    long = [axis for axis in region.order if region.shape[axis] > 1]
    if isinstance(stored.data, Stored) and long == sorted(long):
        return Blob.of(source.view(stored.data.offset, stored.data.size_bytes, stored.data.file))
    return Blob.streamed(region.size_bytes, lambda: [_bytes(stored, source, region.order)])


def _bytes(constant: Constant, source: ModelSource, order: tuple[int, ...]) -> memoryview:
    values = np.ascontiguousarray(np.transpose(materialise(constant, source), order))
    return memoryview(values.reshape(-1).view(np.uint8).data)


def _of_four_bits(constant: Constant, source: ModelSource) -> bytes:
    """A constant of 4 bits as a message, for no array has such elements."""
    tensor = onnx.TensorProto(
        dims=constant.shape, data_type=ONNX_CODES[constant.dtype], raw_data=packed_bytes(constant, source)
    )
    return bytes(tensor.SerializeToString(deterministic=True))


def host_constants(graph: Graph, source: ModelSource) -> Iterable[HostConstant]:
    """Constants that host nodes read, and those that are outputs of the model."""
    names = dict.fromkeys(
        name for index in sorted(graph.on_host) for name in graph.ops[index].inputs if name in graph.tensors
    )
    names |= dict.fromkeys(graph.output_tensors)
    for name in names:
        tensor = graph.tensors[name]
        constant = tensor.constant
        if constant is None:
            continue
        if isinstance(constant.data, Opaque):
            data, form = Blob.of(constant.data.tensor), "tensor"
        elif constant.dtype in FOUR_BITS:
            data, form = Blob.of(_of_four_bits(constant, source)), "tensor"
        elif isinstance(constant.data, Splat):
            size = tensor.elements * element_bytes(constant.dtype)
            data, form = Blob.repeated(constant.data.value, size), "elements"
        else:
            size = tensor.elements * element_bytes(constant.dtype)
            order = tuple(range(len(constant.shape)))
            data = Blob.streamed(size, lambda c=constant, o=order: [_bytes(c, source, o)])  # type: ignore[misc]
            form = "elements"
        yield HostConstant(
            name=name,
            dtype=constant.dtype,
            shape=constant.shape,
            form="tensor" if form == "tensor" else "elements",
            data=data,
        )
