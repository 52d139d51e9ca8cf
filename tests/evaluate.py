"""Runs a graph of the compiler op by op: chip ops by their definitions, host nodes by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import helper

from compiler.frontend.functions import captured
from compiler.frontend.source import ModelSource
from compiler.frontend.values import materialise
from compiler.ir.constant import Opaque
from compiler.ir.graph import HOST, Graph, HostNode
from compiler.ops import call_of, definition

Value = NDArray[Any]


def run_graph(graph: Graph, source: ModelSource, feeds: Mapping[str, Value]) -> dict[str, Value]:
    """The value of every tensor, for values of the inputs; asserts that shapes and types are as the graph says."""
    known: dict[str, Value] = {name: feeds[name] for name in graph.inputs}
    for name, tensor in graph.tensors.items():
        if tensor.constant is not None and not isinstance(tensor.constant.data, Opaque):
            known[name] = np.asarray(materialise(tensor.constant, source))
    results: dict[str, list[Value]] = {}
    for op in graph.ops:
        if op.kind == HOST:
            attributes = dict(op.attributes)
            key = str(attributes["node"])
            if key not in results:
                results[key] = _run_host(graph.host[key], known)
            value = results[key][int(str(attributes["result"]))]
        else:
            arrays = tuple(known[name] if name else None for name in op.inputs)
            made = definition(op).evaluate(call_of(graph, op), arrays)
            assert made is not None, f"{op.kind} has no evaluation"
            value = np.asarray(made)
        tensor = graph.tensors[op.output]
        if tensor.is_known:
            assert (value.shape, value.dtype.name) == (tensor.shape, tensor.dtype), f"{op.kind} {op.node}"
        known[op.output] = value
    return known


def _run_host(host: HostNode, known: Mapping[str, Value]) -> list[Value]:
    """The results of a host node, all of them, by position."""
    node = onnx.NodeProto.FromString(host.node)
    names = [*node.input, *captured(node)]
    assert len(names) == len(host.inputs)
    feeds = {name: known[source] for name, source in zip(names, host.inputs, strict=True) if name}
    outputs = [name for name in node.output if name]
    graph = helper.make_graph(
        [node],
        "host",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feeds.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid(domain, version) for domain, version in host.opsets],
        functions=[onnx.FunctionProto.FromString(function) for function in host.functions],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(
        onnx.shape_inference.infer_shapes(model).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    made = dict(zip(outputs, session.run(outputs, feeds), strict=True))
    return [np.asarray(made[name]) if name else np.empty(0) for name in node.output]
