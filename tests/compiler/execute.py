"""The values of a lowered graph: chip ops by their definitions, host nodes by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.frontend.functions import captured
from compiler.frontend.source import ModelSource
from compiler.frontend.values import materialise
from compiler.ir.constant import Constant, Opaque
from compiler.ir.graph import HOST, Graph, HostNode, Op
from compiler.ops import call_of, definition
from tests.models import Model, import_graph, run_reference


def by_onnx(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """A model's outputs by ONNX's own reference evaluation, which takes what ONNX Runtime does not."""
    return list(ReferenceEvaluator(proto).run(None, dict(feeds)))


def values_of_constant(constant: Constant, source: ModelSource) -> Any:
    """A constant's values, those that only the host understands included."""
    if isinstance(constant.data, Opaque):
        return numpy_helper.to_array(onnx.TensorProto.FromString(constant.data.tensor))
    return materialise(constant, source)


def execute(graph: Graph, source: ModelSource, feeds: Mapping[str, Any]) -> list[Any]:
    """The values of the graph's outputs, in the order in which the model names them."""
    values: dict[str, Any] = dict(feeds)
    for name, tensor in graph.tensors.items():
        if tensor.constant is not None:
            values[name] = values_of_constant(tensor.constant, source)
    results: dict[str, list[Any]] = {}
    for op in graph.ops:
        values[op.output] = _host(graph, op, values, results) if op.kind == HOST else _chip(graph, op, values)
    return [values[name] for name in graph.outputs]


def _chip(graph: Graph, op: Op, values: Mapping[str, Any]) -> Any:
    with np.errstate(all="ignore"):
        arrays = tuple(values[name] if name else None for name in op.inputs)
        result = definition(op).evaluate(call_of(graph, op), arrays)
    assert result is not None, op
    tensor = graph.tensors[op.output]
    assert (result.shape, result.dtype.name) == (tensor.shape, tensor.dtype), (op, result.shape, result.dtype)
    return np.asarray(result)


def _host(graph: Graph, op: Op, values: Mapping[str, Any], results: dict[str, list[Any]]) -> Any:
    attributes = dict(op.attributes)
    key = str(attributes["node"])
    if key not in results:
        results[key] = run_host_node(graph.host[key], values)
    number = attributes["result"]
    assert isinstance(number, int)
    found = results[key][number]
    tensor = graph.tensors[op.output]
    if tensor.is_known:
        assert found.shape == tensor.shape, (op, found.shape)
    return found


def run_host_node(host: HostNode, values: Mapping[str, Any]) -> list[Any]:
    """The results of a host node from what the graph says that it needs and nothing else."""
    node = onnx.NodeProto.FromString(host.node)
    names = [*node.input, *captured(node)]
    assert len(names) == len(host.inputs)
    feeds = {name: values[given] for name, given in zip(names, host.inputs, strict=True) if name}
    graph = helper.make_graph(
        [node],
        "host",
        [_value_info(name, value) for name, value in feeds.items()],
        [onnx.ValueInfoProto(name=name) for name in node.output if name],
    )
    opsets = [helper.make_opsetid(domain, version) for domain, version in host.opsets]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    model.functions.extend(onnx.FunctionProto.FromString(function) for function in host.functions)
    found = iter(run_reference(model, feeds, raw=True))
    return [next(found) if name else None for name in node.output]


def _value_info(name: str, value: Any) -> onnx.ValueInfoProto:
    if isinstance(value, list):
        code = helper.np_dtype_to_tensor_dtype(value[0].dtype)
        return helper.make_tensor_sequence_value_info(name, code, None)
    code = onnx.TensorProto.STRING if value.dtype.kind in "OUS" else helper.np_dtype_to_tensor_dtype(value.dtype)
    return helper.make_tensor_value_info(name, code, value.shape)


def feeds_for(proto: onnx.ModelProto, seed: int = 3) -> dict[str, Any]:
    """Random values for the inputs of a model with fixed shapes."""
    random = np.random.default_rng(seed)
    constants = {tensor.name for tensor in proto.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in proto.graph.input:
        if value.name in constants:
            continue
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        if dtype == np.bool_ or np.issubdtype(dtype, np.integer):
            feeds[value.name] = random.integers(0, 2, shape).astype(dtype)
        else:
            feeds[value.name] = random.standard_normal(shape).astype(dtype)
    return feeds


def same_values(
    model: Model | onnx.ModelProto,
    feeds: Mapping[str, Any] | None = None,
    *,
    tolerance: float = 1e-5,
    run: Callable[[onnx.ModelProto, Mapping[str, Any]], list[Any]] | None = None,
) -> Graph:
    """The lowered graph, after checking that it computes what ONNX Runtime (or `run`) computes of the model."""
    proto = model.proto() if isinstance(model, Model) else model
    data = proto.SerializeToString()
    graph = import_graph(data, fold=False)
    feeds = feeds_for(proto) if feeds is None else feeds
    expected = run_reference(proto, feeds, raw=True) if run is None else run(proto, feeds)
    found = execute(graph, ModelSource.from_bytes(data), feeds)
    # no output of such a model is another one under a second name
    for value, wanted in zip(found, expected, strict=True):
        assert np.asarray(value).dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(value, wanted, rtol=tolerance, atol=tolerance)
    return graph
