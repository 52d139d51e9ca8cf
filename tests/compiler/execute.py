"""The values of a lowered graph: chip ops by their definitions, host nodes by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.simulator.reference import reference_of_graph
from tests.models import Model, import_graph, run_reference


def by_onnx(proto: onnx.ModelProto, feeds: Mapping[str, Any]) -> list[Any]:
    """A model's outputs by ONNX's own reference evaluation, which takes what ONNX Runtime does not."""
    return list(ReferenceEvaluator(proto).run(None, dict(feeds)))


def execute(graph: Graph, source: ModelSource, feeds: Mapping[str, Any]) -> list[Any]:
    """The values of the graph's outputs, in the order in which the model names them."""
    given = {name: feeds[name] for name in graph.inputs}
    values = reference_of_graph(graph, source, given, wanted=set(graph.outputs))
    return [values[name] for name in graph.outputs]


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
