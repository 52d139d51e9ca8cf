"""Inlining of functions: each call is replaced by the function's body, with fresh names (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx

from compiler.errors import LimitError, ModelError
from compiler.frontend.node_attributes import node_names
from compiler.frontend.read import plain_domain
from compiler.ops.base import Call

# Largest number of nodes after inlining ...
MAX_EXPANDED_NODES: Final = 200_000
# ... and largest depth of functions that call each other.
MAX_CALL_DEPTH: Final = 64
Key = tuple[str, str, str]


def function_key(node: onnx.NodeProto) -> Key:
    """The key of a node's function in the function table."""
    return (plain_domain(node.domain), node.op_type, node.overload)


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionTable:
    """The model's own functions."""

    functions: Mapping[Key, onnx.FunctionProto]

    @classmethod
    def of_model(cls, model: onnx.ModelProto) -> FunctionTable:
        """Raises ModelError if two functions have one name."""
        table: dict[Key, onnx.FunctionProto] = {}
        for function in model.functions:
            key = (plain_domain(function.domain), function.name, function.overload)
            if key in table:
                raise ModelError(
                    f"function {function.name!r} is defined twice",
                    code="duplicate_function",
                    stage="import",
                    actual=function.name,
                )
            table[key] = function
        return cls(functions=table)

    def find(self, node: onnx.NodeProto) -> onnx.FunctionProto | None:
        """The function that a node calls; None for an operator."""
        return self.functions.get(function_key(node)) if self.functions else None

    def check_expansion(self, graph: onnx.GraphProto) -> int:
        """The number of nodes after inlining; raises if functions recurse, nest too deep or expand too far."""
        sizes: dict[Key, int] = {}
        path: dict[Key, None] = {}

        def size(key: Key) -> int:
            if key in sizes:
                return sizes[key]
            if key in path:
                raise ModelError(
                    f"function {key[1]!r} calls itself",
                    code="recursive_function",
                    stage="import",
                    actual=" -> ".join([*(k[1] for k in path), key[1]]),
                    limit="functions without recursion",
                )
            if len(path) >= MAX_CALL_DEPTH:
                raise LimitError(
                    "functions call each other too deep",
                    code="nesting_too_deep",
                    stage="import",
                    node=key[1],
                    actual=f"more than {MAX_CALL_DEPTH}",
                    limit=MAX_CALL_DEPTH,
                )
            path[key] = None
            total = count(self.functions[key].node)
            del path[key]
            sizes[key] = total
            return total

        def count(nodes: Iterable[onnx.NodeProto]) -> int:
            total = 0
            for node in all_nodes(nodes):
                key = function_key(node)
                total += size(key) if key in self.functions else 1
            return total

        total = count(graph.node)
        if total > MAX_EXPANDED_NODES:
            raise LimitError(
                "with its functions inlined the graph has too many nodes",
                code="expansion_too_large",
                stage="import",
                actual=total,
                limit=MAX_EXPANDED_NODES,
            )
        return total

    def called_in(self, node: onnx.NodeProto) -> tuple[bytes, ...]:
        """The functions that a node's subgraphs call, directly or indirectly, serialised."""
        found: dict[Key, onnx.FunctionProto] = {}
        todo = [inner for inner in all_nodes([node]) if inner is not node]
        while todo:
            key = function_key(todo.pop())
            if key in self.functions and key not in found:
                found[key] = self.functions[key]
                todo.extend(all_nodes(self.functions[key].node))
        return tuple(found[key].SerializeToString(deterministic=True) for key in sorted(found))


def all_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.NodeProto]:
    """The nodes and all nodes in their subgraphs, at any depth."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        for graph in subgraphs(node):
            todo.extend(graph.node)


def subgraphs(node: onnx.NodeProto) -> Iterable[onnx.GraphProto]:
    """The graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        elif attribute.type == onnx.AttributeProto.GRAPHS:
            yield from attribute.graphs


def inner_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterable[onnx.TensorProto]:
    """The tensors among the nodes' attributes and in their subgraphs, at any depth."""
    for node in all_nodes(nodes):
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
        for graph in subgraphs(node):
            yield from graph.initializer


def names_files(node: onnx.NodeProto) -> bool:
    """True if the node or its subgraphs have data in other files, which ONNX Runtime would open."""
    return any(tensor.external_data or tensor.data_location for tensor in inner_tensors([node]))


def _constants(graph: onnx.GraphProto) -> Iterable[str]:
    """The names of a graph's initializers, including sparse ones."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (sparse.values.name for sparse in graph.sparse_initializer)


def captured(node: onnx.NodeProto) -> tuple[str, ...]:
    """The values that a node's subgraphs read from outside, in order of first use."""
    found: dict[str, None] = {}
    todo: list[tuple[onnx.GraphProto, frozenset[str]]] = [(graph, frozenset()) for graph in subgraphs(node)]
    while todo:
        graph, outer = todo.pop()
        known = set(outer)
        known.update(value.name for value in graph.input)
        known.update(_constants(graph))
        for inner in graph.node:
            found.update(dict.fromkeys(name for name in inner.input if name and name not in known))
            todo.extend((deeper, frozenset(known)) for deeper in subgraphs(inner))
            known.update(inner.output)
        found.update(dict.fromkeys(value.name for value in graph.output if value.name not in known))
    return tuple(found)


def instantiate(
    function: onnx.FunctionProto, node: onnx.NodeProto, name: str, fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """The function's nodes for the call `node` (called `name`).

    Inputs and outputs take the caller's names, inner values get fresh names, attributes take the call's values or the
    function's defaults. Raises ModelError if the call has more inputs or outputs than the function.
    """
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            f"the call of function {function.name!r} has more inputs or outputs than the function",
            code="invalid_model",
            stage="import",
            node=name,
            op_type=node.op_type,
            actual=f"{len(node.input)} inputs, {len(node.output)} outputs",
            limit=f"{len(function.input)} inputs, {len(function.output)} outputs",
        )
    names: dict[str, str] = dict.fromkeys(function.input, "")
    names.update(zip(function.input, node.input, strict=False))
    for formal, actual in zip(function.output, node.output, strict=False):
        if actual:
            names.setdefault(formal, actual)
    given = {attribute.name: attribute for attribute in function.attribute_proto}
    given.update({attribute.name: attribute for attribute in node.attribute})
    result = []
    for inner, called in zip(function.node, node_names(function), strict=True):
        for output in inner.output:
            if output and output not in names:
                names[output] = fresh(f"{name}/{output}")
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = f"{name}/{called}"
        _substitute(copy, given)
        rename(copy, names)
        result.append(copy)
    for formal, actual in zip(function.output, node.output, strict=False):
        # an output that is also an input or another output needs an Identity for its second name
        if actual and names[formal] not in ("", actual):
            result.append(onnx.helper.make_node("Identity", [names[formal]], [actual], name=f"{name}/{formal}"))
    return result


def _substitute(node: onnx.NodeProto, given: Mapping[str, onnx.AttributeProto]) -> None:
    """Replaces references to function attributes by the given attributes; drops references to missing ones."""
    kept = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            value = given.get(attribute.ref_attr_name)
            if value is None:
                continue
            copy = onnx.AttributeProto()
            copy.CopyFrom(value)
            copy.name = attribute.name
            kept.append(copy)
        else:
            for graph in [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs:
                for inner in graph.node:
                    _substitute(inner, given)
            kept.append(attribute)
    if len(kept) != len(node.attribute) or any(a is not b for a, b in zip(kept, node.attribute, strict=True)):
        copies = [onnx.AttributeProto.FromString(attribute.SerializeToString()) for attribute in kept]
        del node.attribute[:]
        node.attribute.extend(copies)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Renames the node's values and those that its subgraphs capture; inner values keep their names."""
    node.input[:] = [names.get(value, value) if value else "" for value in node.input]
    node.output[:] = [names.get(value, value) if value else "" for value in node.output]
    for graph in subgraphs(node):
        _rename_graph(graph, names)


def _rename_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames the values that a graph captures; its own values are renamed if they would hide a new name."""
    own = {value.name for value in graph.input} | set(_constants(graph))
    own.update(output for node in graph.node for output in node.output)
    inside = {name: new for name, new in names.items() if name not in own}
    arriving = set(inside.values())
    taken = own | arriving | {name for node in all_nodes(graph.node) for name in (*node.input, *node.output)}
    for hidden in sorted((own & arriving) - {""}):
        new = hidden
        while new in taken:
            new += "'"
        inside[hidden] = new
        taken.add(new)
    for node in graph.node:
        rename(node, inside)
    for value in (*graph.input, *graph.initializer, *(s.values for s in graph.sparse_initializer), *graph.output):
        value.name = inside.get(value.name, value.name)


def branch_nodes(
    graph: onnx.GraphProto, node: onnx.NodeProto, name: str, fresh: Callable[[str], str]
) -> list[onnx.NodeProto]:
    """The nodes of the taken branch of an If with a known condition, as nodes of the outer graph.

    Raises ModelError if the branch and the If differ in their number of outputs.
    """
    if len(graph.output) != len(node.output):
        raise ModelError(
            "the branch has another number of outputs than the If",
            code="invalid_model",
            stage="import",
            node=name,
            op_type=node.op_type,
            actual=len(graph.output),
            limit=len(node.output),
        )
    names: dict[str, str] = {}
    constants = []
    values = [(tensor.name, {"value": tensor}) for tensor in graph.initializer]
    values += [(sparse.values.name, {"sparse_value": sparse}) for sparse in graph.sparse_initializer]
    for constant, value in values:
        node_name = f"{name}/{constant}"
        names[constant] = fresh(node_name)
        constants.append(onnx.helper.make_node("Constant", [], [names[constant]], name=node_name, **value))
    made = {output for inner in graph.node for output in inner.output if output}
    for value, actual in zip(graph.output, node.output, strict=True):
        if value.name in made and value.name not in names:
            names[value.name] = actual or fresh(f"{name}/{value.name}")
    names.update({output: fresh(f"{name}/{output}") for output in sorted(made) if output not in names})
    result = [*constants]
    for inner, called in zip(graph.node, node_names(graph), strict=True):
        copy = onnx.NodeProto()
        copy.CopyFrom(inner)
        copy.name = f"{name}/{called}"
        rename(copy, names)
        result.append(copy)
    for value, actual in zip(graph.output, node.output, strict=True):
        if actual and names.get(value.name, value.name) != actual:
            source = names.get(value.name, value.name)
            result.append(onnx.helper.make_node("Identity", [source], [actual], name=f"{name}/{actual}"))
    return result


def has_function(schema: Any) -> bool:
    """True if the operator set defines the operator as a function of others."""
    return bool(schema.has_function or schema.has_context_dependent_function)


def with_defaults(node: onnx.NodeProto, schema: Any) -> onnx.NodeProto:
    """The node with the operator's defaults for missing attributes."""
    given = {attribute.name for attribute in node.attribute}
    missing = [
        attribute.default_value
        for name, attribute in sorted(schema.attributes.items())
        if name not in given and attribute.default_value is not None and attribute.default_value.name
    ]
    if not missing:
        return node
    result = onnx.NodeProto()
    result.CopyFrom(node)
    result.attribute.extend(missing)
    return result


def schema_function(node: onnx.NodeProto, call: Call, schema: Any, version: int) -> onnx.FunctionProto | None:
    """The operator's function body for these input types; None if there is none."""
    if schema.has_function:
        body: onnx.FunctionProto = schema.function_body
        return body
    types = []
    for tensor in call.inputs:
        kind = onnx.TypeProto()
        if tensor is not None:
            code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)) if tensor.dtype != "bfloat16" else 16
            kind = onnx.helper.make_tensor_type_proto(code, [int(extent) for extent in tensor.shape])
        types.append(kind.SerializeToString())
    try:
        if version in schema.context_dependent_function_opset_versions:
            data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        else:
            data = schema.get_context_dependent_function(node.SerializeToString(), types)
    except (RuntimeError, ValueError):
        return None
    function = onnx.FunctionProto.FromString(data) if data else None
    return function if function is not None and len(function.node) > 0 else None
