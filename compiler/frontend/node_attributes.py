"""Names of ONNX nodes, and their attributes as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import onnx

from compiler.frontend.constant_values import element_type
from compiler.ir.graph import Attribute


def node_names(graph: onnx.GraphProto | onnx.FunctionProto) -> list[str]:
    """A unique name per node: its own, or `OpType_index` if it has none or shares it."""
    taken: set[str] = {node.name for node in graph.node if node.name}
    seen: set[str] = set()
    names = []
    for index, node in enumerate(graph.node):
        name = node.name
        if not name or name in seen:
            name = f"{node.op_type}_{index}"
            while name in taken or name in seen:
                name += "_"
        seen.add(name)
        names.append(name)
    return names


def attributes_of(node: onnx.NodeProto, name: str) -> Mapping[str, Attribute]:
    """The node's attributes as plain values, without graphs and tensors."""
    result: dict[str, Attribute] = {}
    for attribute in node.attribute:
        match attribute.type:
            case onnx.AttributeProto.INT:
                result[attribute.name] = int(attribute.i)
            case onnx.AttributeProto.FLOAT:
                result[attribute.name] = float(attribute.f)
            case onnx.AttributeProto.STRING:
                result[attribute.name] = attribute.s.decode("utf-8", "replace")
            case onnx.AttributeProto.INTS:
                result[attribute.name] = tuple(int(v) for v in attribute.ints)
            case onnx.AttributeProto.FLOATS:
                result[attribute.name] = tuple(float(v) for v in attribute.floats)
            case onnx.AttributeProto.STRINGS:
                result[attribute.name] = tuple(v.decode("utf-8", "replace") for v in attribute.strings)
    if node.op_type in ("Cast", "CastLike") and isinstance(result.get("to"), int):
        result["to"] = element_type(int(str(result["to"])), node=name, what="attribute to")
    return MappingProxyType(result)
