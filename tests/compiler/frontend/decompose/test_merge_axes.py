"""IMPORT-7: ops on tensors of any rank run on the accelerator, on merged axes, with the values of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.frontend.source import ModelSource
from compiler.ir.graph import HOST, MAX_AXES
from compiler.profile import builtin_profile
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import reference_of_graph, run_reference
from tests.compiler.planning import BY_RULES
from tests.models import Model

Make = Callable[[Model, list[int]], str]


def one(op_type: str, **attributes: Any) -> Make:
    return lambda m, s: m.node(op_type, [m.input(s, "x")], **attributes)


def reshaped(m: Model, s: list[int]) -> str:
    seen = m.node("Reshape", [m.input([prod(s) // 4, 4], "x"), m.ints(*s)])
    moved = m.node("Transpose", [seen], perm=[0, 2, 1, 4, 3, *range(5, len(s))])
    return m.node("Reshape", [moved, m.ints(-1, 6)])


def stretched(m: Model, s: list[int]) -> str:
    small = m.input([1, *s[1:-1], 1], "y")
    return m.node("Relu", [m.node("Add", [m.node("Add", [m.input(s, "x"), small]), m.weight(*s[-3:])])])


def sliced(m: Model, s: list[int]) -> str:
    return m.node("Slice", [m.input(s, "x"), m.ints(1, -1), m.ints(3, -5), m.ints(1, -1), m.ints(1, -1)])


def expanded(m: Model, s: list[int]) -> str:
    return m.node("Expand", [m.input([3, *[1] * (len(s) - 3), 2], "x"), m.ints(*s)])


def gathered(m: Model, s: list[int]) -> str:
    return m.node("Gather", [m.input(s, "x"), m.constant(np.array([[0, 2], [1, 1]], np.int64))], axis=1)


def padded(m: Model, s: list[int]) -> str:
    return m.node("Pad", [m.input(s, "x"), m.ints(0, 1, *[0] * (2 * len(s) - 3), 2)])


def split(m: Model, s: list[int]) -> str:
    first, second = m.nodes_out("Split", [m.input(s, "x"), m.ints(1, 2)], ["first", "second"], axis=1)
    return m.node("Add", [m.node("ReduceMax", [second], axes=[1], keepdims=1), first])


def product(m: Model, s: list[int]) -> str:
    return m.node("MatMul", [m.input(s, "x"), m.input([*s[3:-1], s[-1], 5], "y")])


def normalised(m: Model, s: list[int]) -> str:
    return m.node("LayerNormalization", [m.input(s, "x"), m.weight(*s[-2:]), m.weight(*s[-2:])], axis=-2)


def quantised(m: Model, s: list[int]) -> str:
    scale, zero = m.constant([0.1, 0.2, 0.3], dtype=np.float32), m.constant([0, 1, 2], dtype=np.uint8)
    return m.node(
        "DequantizeLinear", [m.node("QuantizeLinear", [m.input(s, "x"), scale, zero], axis=1), scale, zero], axis=1
    )


OPS: dict[str, Make] = {
    "transpose": lambda m, s: m.node("Transpose", [m.input(s, "x")], perm=[*range(2, len(s)), 1, 0]),
    "transpose of all axes": one("Transpose"),
    "reshape, transpose, reshape": reshaped,
    "broadcast": stretched,
    "clip": lambda m, s: m.node("Clip", [m.input(s, "x"), m.constant(np.float32(-0.5))]),
    "reduce": lambda m, s: m.node("ReduceSum", [m.input(s, "x"), m.ints(1, 2, -1)], keepdims=0),
    "reduce and keep": lambda m, s: m.node("ReduceSum", [m.input(s, "x"), m.ints(0, -2)], keepdims=1),
    "reduce all": one("ReduceMean", keepdims=0),
    "reduce an axis of one": lambda m, s: m.node("ReduceSum", [m.input(s, "x"), m.ints(len(s) // 2)], keepdims=0),
    "concat": lambda m, s: m.node("Concat", [m.input(s, "x"), m.input(s, "y")], axis=-2),
    "slice": sliced,
    "split": split,
    "softmax": one("Softmax", axis=1),
    "argmax": one("ArgMax", axis=1, keepdims=0),
    "cumsum": lambda m, s: m.node("CumSum", [m.input(s, "x"), m.constant(np.int64(-1))], reverse=1),
    "gather": gathered,
    "expand": expanded,
    "tile": lambda m, s: m.node("Tile", [m.input(s, "x"), m.ints(1, 2, *[1] * (len(s) - 2))]),
    "pad": padded,
    "matmul": product,
    "layer normalisation": normalised,
    "quantise by channel": quantised,
}


def model_of(make: Make, rank: int) -> Model:
    shape = [2] * rank
    shape[1], shape[rank // 2] = 3, 1
    model = Model()
    made = make(model, shape)
    model.output(made, 7 if make is OPS["argmax"] else 1)
    return model


@pytest.mark.parametrize("rank", [9, 12])
@pytest.mark.parametrize("name", OPS)
def test_an_op_of_any_rank_is_native_with_the_values_of_onnx_runtime(name: str, rank: int) -> None:
    model = model_of(OPS[name], rank)
    graph = model.graph()
    hosts = [node for node in graph.host.values() if node.op_type != "Reshape"]
    assert not hosts, hosts[0].reason
    for op in graph.ops:
        if op.kind != HOST:
            assert max(len(graph.tensors[value].shape) for value in (*op.inputs, op.output)) <= MAX_AXES
    source = ModelSource.from_bytes(model.data())
    inputs = random_inputs(graph, 3)
    expected = run_reference(source, inputs)
    assert expected.judge.startswith("ONNX Runtime")
    got = reference_of_graph(graph, source, inputs)
    for output, tensor in zip(graph.output_names, graph.output_tensors, strict=True):
        np.testing.assert_allclose(got[tensor], expected.values[output], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("profile", ["edge4", "cluster4x4"])
def test_a_tensor_of_nine_axes_between_two_views_never_leaves_the_chip(profile: str) -> None:
    """A Transpose of nine axes was an internal error of the program pass."""
    plan = compile_model(model_of(reshaped, 9).data(), builtin_profile(profile), BY_RULES).plan
    assert [segment.kind for segment in plan.segments] == ["chip"]


def test_a_wide_input_is_renamed_on_the_host_and_the_op_is_native() -> None:
    compilation = compile_model(model_of(one("Transpose"), 10).data(), builtin_profile("edge4"), BY_RULES)
    assert [segment.kind for segment in compilation.plan.segments] == ["host", "chip", "host"]
    assert all(output.holds for output in compilation.report.values.outputs)


def test_axes_merge_where_a_dimension_is_open() -> None:
    model = Model()
    model.output(model.node("Transpose", [model.input(["batch", *[2] * 8], "x")], perm=[0, *range(8, 0, -1)]))
    graph = model.graph({"batch": 4})
    assert {node.op_type for node in graph.host.values()} == {"Reshape"}
    inner = [graph.tensors[op.output] for op in graph.ops if op.kind == "Transpose"]
    assert inner
    assert all(tensor.symbols for tensor in inner)


def test_an_op_whose_axes_do_not_merge_is_left_to_the_host_with_the_reason() -> None:
    model = Model()
    shape = [2] * 10
    bias = [extent if axis % 2 else 1 for axis, extent in enumerate(shape)]
    model.output(model.node("Add", [model.input(shape, "x"), model.input(bias, "y")]))
    (reason,) = {node.reason for node in model.graph().host.values()}
    assert reason == "a tensor has 10 axes, and they do not merge into 8"
