"""What the tests of patterns share: a model of one pattern, before and after the pass, and its values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from compiler.frontend.constant_values import materialise
from compiler.frontend.lower import LowerModel
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops import call_of, definition
from tests.models import Model, Values, run_reference

SHAPE = (2, 5, 8)


Build = Callable[[Model, str], str]


def lowered(data: bytes) -> Graph:
    """A model as the pass gets it."""
    return LowerModel().run(ReadModel().run(ModelSource.from_bytes(data)))


def recognised(data: bytes) -> Graph:
    """A model after the pass, verified."""
    graph = RecognisePatterns(source=ModelSource.from_bytes(data)).run(lowered(data))
    verify_graph(graph)
    return graph


def values_of(graph: Graph, data: bytes, feeds: Mapping[str, Values]) -> list[Values]:
    """The graph's outputs by the ops' own definitions."""
    source = ModelSource.from_bytes(data)
    known: dict[str, Any] = dict(feeds)
    for name, tensor in graph.tensors.items():
        if tensor.constant is not None:
            known[name] = materialise(tensor.constant, source)
    with np.errstate(all="ignore"):
        for op in graph.ops:
            result = definition(op).evaluate(call_of(graph, op), tuple(known[name] for name in op.inputs))
            assert result is not None, op.kind
            known[op.output] = result
    return [np.asarray(known[name]) for name in graph.outputs]


def model_of(build: Build, dtype: int = TensorProto.FLOAT, *, opset: int = 17) -> onnx.ModelProto:
    """A model of one pattern: input x of SHAPE, its result as output; nodes are named n0, n1..."""
    model = Model(opset=opset, seed=5)
    model.output(build(model, model.input(SHAPE, "x", dtype)), dtype)
    for index, node in enumerate(model.nodes):
        node.name = f"n{index}"
    return model.proto()


def feed(proto: onnx.ModelProto) -> dict[str, Values]:
    """Random values for all inputs, in their element types."""
    random = np.random.default_rng(11)
    found = {}
    for value in proto.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        found[value.name] = (2 * random.standard_normal(shape)).astype(dtype)
    return found


def assert_same_values(proto: onnx.ModelProto, graph: Graph, tolerance: float = 1e-4) -> None:
    """The graph computes what ONNX Runtime computes of the original, NaN included."""
    feeds = feed(proto)
    expected = run_reference(proto, feeds)
    found = values_of(graph, proto.SerializeToString(), feeds)
    for a, b in zip(expected, found, strict=True):
        assert a.dtype == b.dtype
        scale = np.sqrt(np.mean(np.square(a[np.isfinite(a)], dtype=np.float64))) if np.isfinite(a).any() else 1.0
        np.testing.assert_allclose(b, a, rtol=tolerance, atol=tolerance * max(scale, 1e-6), equal_nan=True)


def s(model: Model, value: float, dtype: Any = np.float32, shape: tuple[int, ...] = ()) -> str:
    return model.constant(np.full(shape, value), dtype=dtype)


def exposed(proto: onnx.ModelProto) -> Iterator[tuple[str, onnx.ModelProto]]:
    """The model with each inner value read by somebody else, or handed out."""
    inner = [node.output[0] for node in proto.graph.node if node.output[0] != proto.graph.output[0].name]
    for name in inner:
        handed = copy.deepcopy(proto)
        handed.graph.output.append(onnx.ValueInfoProto(name=name))
        yield name, handed
        read = copy.deepcopy(proto)
        read.graph.node.append(helper.make_node("Neg", [name], ["other"], name="other"))
        read.graph.output.append(onnx.ValueInfoProto(name="other"))
        yield name, read


def mutants(proto: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Near misses: the inputs of one node swapped, one kind exchanged, one constant off by a twentieth."""
    other = {"Add": "Sub", "Sub": "Add", "Mul": "Div", "Div": "Mul", "Erf": "Tanh", "Tanh": "Erf", "Sqrt": "Exp"}
    for index, node in enumerate(proto.graph.node):
        if len(node.input) == 2 and node.op_type in other:
            swapped = copy.deepcopy(proto)
            swapped.graph.node[index].input[:] = reversed(node.input)
            yield swapped
        if node.op_type in other:
            exchanged = copy.deepcopy(proto)
            exchanged.graph.node[index].op_type = other[node.op_type]
            yield exchanged
        if node.op_type.startswith("Reduce") and len(node.attribute) == 2:
            turned = copy.deepcopy(proto)
            turned.graph.node[index].attribute[0].ints[:] = [0]
            yield turned
    for index, tensor in enumerate(proto.graph.initializer):
        array = numpy_helper.to_array(tensor)
        if array.size == 1 and array.dtype == np.float32:
            changed = copy.deepcopy(proto)
            changed.graph.initializer[index].CopyFrom(numpy_helper.from_array(array * np.float32(1.05), tensor.name))
            yield changed
