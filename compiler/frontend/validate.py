"""Validation beyond onnx.checker, and the bounds of every part of a model (IMPORT-4).

These checks need no shapes: sizes, names, order, producers of values, operators, attributes, recursion. Lowering checks
shapes and types, where they are known.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

import onnx

from compiler.errors import LimitError, ModelError, printable
from compiler.frontend.control_flow import check_bodies
from compiler.frontend.inline_functions import FunctionTable, captured, function_key, subgraphs
from compiler.frontend.lowering_errors import data_elsewhere, unmade_value
from compiler.frontend.node_attributes import node_names
from compiler.frontend.protobuf_weights import MAX_NODES, MAX_VALUES
from compiler.frontend.read import OnnxModel, function_opsets, plain_domain
from compiler.frontend.signature import Signatures, check_node, is_foreign

MAX_NESTING: Final = 16
MAX_NAME_BYTES: Final = 4096
MAX_INPUTS: Final = 20_000
MAX_RANK: Final = 64
MAX_ELEMENTS: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateModel:
    """Pass: validates the model and puts its nodes in execution order (IMPORT-4)."""

    name: str = "validate"

    def run(self, model: OnnxModel) -> OnnxModel:
        """Raises ModelError or LimitError naming the node or value."""
        try:
            return _validated(model)
        except UnicodeDecodeError as error:
            raise ModelError(
                "a name in the model is not UTF-8 text",
                code="invalid_model",
                stage="import",
                actual=f"byte {error.object[error.start]:#04x} at position {error.start} of a name",
                limit="UTF-8",
            ) from None


def _validated(model: OnnxModel) -> OnnxModel:
    proto = model.proto
    _bounded_graphs(proto)
    table = FunctionTable.of_model(proto)
    signatures = Signatures()
    names = node_names(proto.graph)
    _check_nodes(list(zip(names, proto.graph.node, strict=True)), model.opsets, table, signatures)
    for function in proto.functions:
        versions = function_opsets(function, model.opsets)
        inner = [(f"{function.name}/{node.name or node.op_type}", node) for node in function.node]
        _check_nodes(inner, versions, table, signatures)
        if len(set(function.input)) < len(function.input):
            raise _duplicate("function input", function.name)
        order = execution_order(function.node, [i[0] for i in inner], set(function.input))
        if order is not None:
            _reorder(function.node, order)
    table.check_expansion(proto.graph)
    for tensor in proto.graph.initializer:
        _check_tensor(tensor, f"initializer {tensor.name!r}", None, one_place=False)
    for sparse in proto.graph.sparse_initializer:
        _check_sparse(sparse, f"initializer {sparse.values.name!r}", None)
    known = _known_values(proto.graph)
    order = execution_order(proto.graph.node, names, known)
    if order is None:
        return model
    sorted_proto = onnx.ModelProto()
    sorted_proto.CopyFrom(proto)
    for index, name in enumerate(names):
        sorted_proto.graph.node[index].name = name
    _reorder(sorted_proto.graph.node, order)
    return replace(model, proto=sorted_proto)


def _bounded_graphs(proto: onnx.ModelProto) -> None:
    """Checks counts, nesting and names of every graph and function."""
    nodes = values = 0
    todo: list[tuple[onnx.GraphProto | onnx.FunctionProto, int]] = [(proto.graph, 0)]
    todo.extend((function, 0) for function in proto.functions)
    while todo:
        graph, depth = todo.pop()
        if depth > MAX_NESTING:
            raise LimitError(
                "subgraphs are nested too deep",
                code="nesting_too_deep",
                stage="import",
                actual=f"more than {MAX_NESTING}",
                limit=MAX_NESTING,
            )
        nodes += len(graph.node)
        _check_name(graph.name, "graph")
        if isinstance(graph, onnx.GraphProto):
            values += len(graph.initializer) + len(graph.value_info) + len(graph.input) + len(graph.output)
            for value in (*graph.input, *graph.output):
                _check_name(value.name, "value")
                for dim in value.type.tensor_type.shape.dim[: MAX_RANK + 1]:
                    _check_name(dim.dim_param, "dimension")
            for tensor in graph.initializer:
                _check_name(tensor.name, "initializer")
        if nodes > MAX_NODES or values > MAX_VALUES:
            raise LimitError(
                "the model has too many nodes" if nodes > MAX_NODES else "the model has too many values",
                code="too_many_nodes" if nodes > MAX_NODES else "too_many_values",
                stage="import",
                actual=nodes if nodes > MAX_NODES else values,
                limit=MAX_NODES if nodes > MAX_NODES else MAX_VALUES,
            )
        for node in graph.node:
            _check_node_names(node)
            todo.extend((inner, depth + 1) for inner in subgraphs(node))


def _check_node_names(node: onnx.NodeProto) -> None:
    _check_name(node.name, "node")
    _check_name(node.op_type, "op type")
    _check_name(node.domain, "domain")
    _check_name(node.overload, "overload")
    for attribute in node.attribute:
        _check_name(attribute.name, "attribute")
        _check_name(attribute.ref_attr_name, "attribute")
    if len(node.input) > MAX_INPUTS or len(node.output) > MAX_INPUTS:
        raise LimitError(
            "a node has too many inputs or outputs",
            code="too_many_values",
            stage="import",
            node=node.name,
            op_type=node.op_type,
            actual=max(len(node.input), len(node.output)),
            limit=MAX_INPUTS,
        )
    for value in node.input:
        _check_name(value, "value")
    for value in node.output:
        _check_name(value, "value")


def _check_name(name: str | bytes, what: str) -> None:
    if isinstance(name, bytes):
        raise ModelError(
            f"the name of a {what} is not UTF-8 text",
            code="invalid_model",
            stage="import",
            actual=printable(repr(name), 120),
            limit="UTF-8",
        )
    if len(name) > MAX_NAME_BYTES:
        raise LimitError(
            f"the name of a {what} is too long",
            code="name_too_long",
            stage="import",
            actual=f"{len(name)} characters: {printable(name, 40)}",
            limit=MAX_NAME_BYTES,
        )


def _check_nodes(
    nodes: Sequence[tuple[str, onnx.NodeProto]],
    versions: Mapping[str, int],
    table: FunctionTable,
    signatures: Signatures,
) -> None:
    """Checks operators, attributes and tensors of the nodes and their subgraphs."""
    todo = [(name, node, False) for name, node in nodes]
    while todo:
        name, node, inside = todo.pop()
        if function_key(node) not in table.functions:
            domain = plain_domain(node.domain)
            known, version = signatures.standard_form(node, versions.get(domain, 1))
            signature = signatures.find(known.op_type, domain, version)
            if signature is not None or not is_foreign(node):
                check_node(known, name, signature, version)
            check_bodies(node, name)
        for attribute in node.attribute:
            if attribute.HasField("t"):
                one_place = inside or node.op_type != "Constant"
                _check_tensor(attribute.t, f"attribute {attribute.name!r}", name, one_place=one_place)
            for tensor in attribute.tensors:
                _check_tensor(tensor, f"attribute {attribute.name!r}", name)
            if attribute.HasField("sparse_tensor"):
                _check_sparse(attribute.sparse_tensor, f"attribute {attribute.name!r}", name)
            for sparse in attribute.sparse_tensors:
                _check_sparse(sparse, f"attribute {attribute.name!r}", name)
        for graph in subgraphs(node):
            for tensor in graph.initializer:
                what = f"initializer {tensor.name!r}"
                _check_tensor(tensor, what, name)
                if tensor.external_data:
                    raise data_elsewhere(f"{what} of a subgraph", name, "a subgraph", node.op_type)
            for sparse in graph.sparse_initializer:
                _check_sparse(sparse, f"initializer {sparse.values.name!r}", name)
            todo.extend((f"{name}/{inner.name or inner.op_type}", inner, True) for inner in graph.node)


def _check_sparse(sparse: onnx.SparseTensorProto, what: str, node: str | None) -> None:
    """Checks that a sparse tensor's dims are within bounds and its data lies inside the model."""
    for tensor in (onnx.TensorProto(dims=sparse.dims), sparse.values, sparse.indices):
        _check_tensor(tensor, what, node)
        if tensor.external_data or tensor.data_location:
            raise data_elsewhere(what, node, "a sparse tensor")


def _check_tensor(tensor: onnx.TensorProto, what: str, node: str | None, *, one_place: bool = True) -> None:
    """Checks that dims are within bounds and, with `one_place`, that values stand in one field only.

    Initializers and constants of the graph are exempt: ONNX Runtime reads their bytes, else the field of their type.
    """

    def fail(message: str, code: str, actual: object, limit: object) -> ModelError:
        return ModelError(f"{what}: {message}", code=code, stage="import", node=node, actual=actual, limit=limit)

    dims = tuple(tensor.dims[: MAX_RANK + 1])
    if len(dims) > MAX_RANK:
        raise fail("too many axes", "invalid_shape", len(tensor.dims), MAX_RANK)
    if any(extent < 0 for extent in dims):
        raise fail("negative extent", "invalid_shape", dims, "at least 0")
    if prod(dims) > MAX_ELEMENTS:
        raise LimitError(
            f"{what} has too many elements",
            code="tensor_too_large",
            stage="import",
            node=node,
            actual=f"{prod(dims)} elements in {dims}",
            limit=MAX_ELEMENTS,
        )
    fields = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data", "raw_data")
    places = [field for field in fields if len(getattr(tensor, field))] if one_place else []
    if len(places) > 1:
        raise fail("its values are given in several places", "invalid_tensor", " and ".join(places), "one of them")


def _known_values(graph: onnx.GraphProto) -> set[str]:
    """Values known before the first node: inputs and initialisers; raises ModelError for duplicates."""
    known: set[str] = set()
    for value in graph.input:
        if not value.name or value.name in known:
            raise _duplicate("input", value.name)
        known.add(value.name)
    initialisers: set[str] = set()
    for tensor in [*graph.initializer, *(sparse.values for sparse in graph.sparse_initializer)]:
        if not tensor.name or tensor.name in initialisers:
            raise _duplicate("initializer", tensor.name)
        initialisers.add(tensor.name)
    return known | initialisers


def _duplicate(what: str, name: str) -> ModelError:
    why = "is given twice" if name else "has no name"
    return ModelError(
        f"{what} {printable(name, 120)!r} {why}",
        code="duplicate_value" if name else "invalid_model",
        stage="import",
        actual=printable(name, 120),
        limit="a name of its own",
    )


def execution_order(nodes: Sequence[onnx.NodeProto], names: Sequence[str], known: set[str]) -> list[int] | None:
    """None if the nodes are in execution order, else an execution order that keeps theirs where possible.

    Raises ModelError if a value is made twice, read but never made, or depends on itself. The time is linear, apart
    from sorting nodes that are ready at the same time.
    """
    producer: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for output in node.output:
            if not output:
                continue
            if output in producer or output in known:
                raise ModelError(
                    f"value {printable(output, 120)!r} is produced twice",
                    code="duplicate_value",
                    stage="import",
                    node=names[index],
                    op_type=node.op_type,
                    actual=printable(output, 120),
                    limit="one node that makes it",
                )
            producer[output] = index
    needs: list[set[int]] = []
    is_sorted = True
    for index, node in enumerate(nodes):
        sources = set()
        for value in _reads(node):
            if value in producer:
                sources.add(producer[value])
            elif value and value not in known:
                raise unmade_value(node, names[index], value)
        needs.append(sources)
        is_sorted = is_sorted and all(source < index for source in sources)
    return None if is_sorted else _sorted(nodes, names, needs)


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
        return (*node.input, *captured(node))
    return tuple(node.input)


def _sorted(nodes: Sequence[onnx.NodeProto], names: Sequence[str], needs: list[set[int]]) -> list[int]:
    users: list[list[int]] = [[] for _ in nodes]
    for index, sources in enumerate(needs):
        for source in sources:
            users[source].append(index)
    open_needs = [len(sources) for sources in needs]
    ready = [index for index, count in enumerate(open_needs) if not count]
    heapq.heapify(ready)
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            open_needs[user] -= 1
            if not open_needs[user]:
                heapq.heappush(ready, user)
    if len(order) < len(nodes):
        index = _on_cycle(needs, open_needs)
        raise ModelError(
            f"value {printable(nodes[index].output[0], 120)!r} depends on itself: the graph has a cycle",
            code="cycle",
            stage="import",
            node=names[index],
            op_type=nodes[index].op_type,
            actual=printable(nodes[index].output[0], 120),
            limit="a graph without cycles",
        )
    return order


def _on_cycle(needs: list[set[int]], open_needs: list[int]) -> int:
    """A node on a cycle, found by following unmet needs backwards until a node repeats."""
    index = next(i for i, count in enumerate(open_needs) if count)
    seen: set[int] = set()
    while index not in seen:
        seen.add(index)
        index = min(source for source in needs[index] if open_needs[source])
    return index


def _reorder(nodes: object, order: list[int]) -> None:
    """Put a repeated protobuf field into another order."""
    copies = [onnx.NodeProto.FromString(nodes[i].SerializeToString()) for i in order]  # type: ignore[index]
    del nodes[:]  # type: ignore[attr-defined]
    nodes.extend(copies)  # type: ignore[attr-defined]
