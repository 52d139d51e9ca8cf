"""IR ops as host nodes, which the host runs by the op's own definition (IMPORT-7).

IR ops have attributes and forms that ONNX lacks. Such a node carries them in a domain of its own; a host segment
evaluates it by `OpKind.evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

from compiler.errors import ModelError
from compiler.ir.graph import Attribute, Graph, HostNode, Op, Tensor
from compiler.ops import ALL_KINDS, call_of, definition
from compiler.ops.base import Array, Call, default_axes
from compiler.units import numpy_dtype

DOMAIN: Final = "tessera.ir"
_VERSION: Final = 1
_SHAPE, _DTYPE, _OPSET = "result shape", "result dtype", "opset"


def host_node_of(graph: Graph, op: Op, reason: str) -> HostNode:
    """The op as a host node; its result has its extents in this graph."""
    output = graph.tensors[op.output]
    node = helper.make_node(op.kind, list(op.inputs), [op.output], name=op.node, domain=DOMAIN)
    for name, value in op.attributes:
        kind = onnx.AttributeProto.INTS if value == () else None
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    node.attribute.append(helper.make_attribute(_SHAPE, output.shape, attr_type=onnx.AttributeProto.INTS))
    node.attribute.append(helper.make_attribute(_DTYPE, output.dtype))
    node.attribute.append(helper.make_attribute(_OPSET, graph.opset))
    return HostNode(
        name=op.node,
        op_type=op.kind,
        domain=DOMAIN,
        reason=reason,
        node=node.SerializeToString(deterministic=True),
        inputs=op.inputs,
        outputs=(op.output,),
        opsets=(("", graph.opset), (DOMAIN, _VERSION)),
        macs=int(definition(op).work(call_of(graph, op)).macs * output.elements),
    )


def with_hosts_at(graph: Graph) -> Graph:
    """A graph of other extents than it was made at, with host nodes that `host_node_of` made for results of these."""
    hosts = {
        key: _host_node_at(host, graph.tensors[host.outputs[0]].shape) if host.domain == DOMAIN else host
        for key, host in graph.host.items()
    }
    return replace(graph, host=MappingProxyType(hosts))


def _host_node_at(host: HostNode, shape: tuple[int, ...]) -> HostNode:
    node = onnx.NodeProto.FromString(host.node)
    for attribute in node.attribute:
        if attribute.name == _SHAPE:
            attribute.ints[:] = shape
    return replace(host, node=node.SerializeToString(deterministic=True))


def standard_node_of(graph: Graph, op: Op, attributes: Mapping[str, Attribute], reason: str) -> HostNode:
    """The op as the ONNX operator of its kind's name, which the host runs at any extents."""
    node = helper.make_node(op.kind, list(op.inputs), [op.output], name=op.node)
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    return HostNode(
        name=op.node,
        op_type=op.kind,
        domain="",
        reason=reason,
        node=node.SerializeToString(deterministic=True),
        inputs=op.inputs,
        outputs=(op.output,),
        opsets=(("", graph.opset),),
        macs=int(definition(op).work(call_of(graph, op)).macs * graph.tensors[op.output].elements),
    )


def evaluate_host_node(node: onnx.NodeProto, name: str, arrays: Sequence[Array | None]) -> Array:
    """The values of the node's result; raises ModelError naming the node if they cannot be computed."""
    attributes: dict[str, Any] = {attribute.name: _value(attribute) for attribute in node.attribute}
    try:
        shape, dtype, opset = (attributes.pop(key) for key in (_SHAPE, _DTYPE, _OPSET))
        call = Call(
            op_type=node.op_type,
            node=name,
            attributes=attributes,
            inputs=tuple(
                None if array is None else _tensor(n, array) for n, array in zip(node.input, arrays, strict=True)
            ),
            opset=opset,
            output=Tensor(name=node.output[0], shape=shape, dtype=dtype, axes=default_axes(len(shape))),
        )
        result = ALL_KINDS[node.op_type].evaluate(call, tuple(arrays))
        if result is not None and (result.shape, result.dtype) == (shape, numpy_dtype(dtype)):
            return result
        reason = "the result is of another type than the node says"
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
    raise ModelError(
        "the host could not run the op",
        code="host_node_failed",
        stage="simulate",
        node=name,
        op_type=node.op_type,
        actual=reason,
        hint="Compile the model again with this version of Tessera",
    )


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return tuple(item.decode() if isinstance(item, bytes) else item for item in value)
    return value


def _tensor(name: str, array: Array) -> Tensor:
    array = np.asarray(array)
    return Tensor(name=name, shape=array.shape, dtype=array.dtype.name, axes=default_axes(array.ndim))
