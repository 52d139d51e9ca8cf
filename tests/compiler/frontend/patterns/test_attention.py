"""Attention is recorded where it is, and nowhere else (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.compile import plan_model
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.ir.pattern import Pattern
from compiler.profile import builtin_profile
from tests.compiler.frontend.patterns.harness import (
    lowered,
    recognised,
    s,
)
from tests.models import Model


def test_a_second_run_finds_nothing_new() -> None:
    data = attention(scores=divided).data()
    graph = recognised(data)
    assert len(graph.patterns) == 1
    assert RecognisePatterns(source=ModelSource.from_bytes(data)).run(graph) == graph


def attention(
    *,
    rows: int = 16,
    width: int = 32,
    heads: int = 4,
    scores: Callable[[Model, str], str] | None = None,
    weights: Callable[[Model, str], str] | None = None,
    scaled: bool = False,
    axis: int = -1,
    projected: bool = True,
) -> Model:
    """Self-attention as encoders write it; `scores` and `weights` are what lies before and behind the softmax."""
    model = Model(seed=2)
    depth = width // heads
    x = model.input([1, rows, width], "x")

    def project(name: str, perm: list[int]) -> str:
        y = model.node("MatMul", [x, model.weight(width, width)], name=name)
        y = model.node("Reshape", [y, model.ints(1, rows, heads, depth)], name=f"{name}.heads")
        return model.node("Transpose", [y], perm=perm, name=f"{name}.order")

    q, k = project("q", [0, 2, 1, 3]), project("k", [0, 2, 3, 1])
    v = project("v", [0, 2, 1, 3]) if projected else model.weight(1, heads, rows, depth)
    if scaled:
        q = model.node("Mul", [q, s(model, depth**-0.25, shape=(1,))], name="q.scale")
        k = model.node("Mul", [k, s(model, depth**-0.25, shape=(1,))], name="k.scale")
    y = model.node("MatMul", [q, k], name="scores")
    y = model.node("Softmax", [scores(model, y) if scores else y], axis=axis, name="softmax")
    y = model.node("MatMul", [weights(model, y) if weights else y, v], name="context")
    y = model.node("Transpose", [y], perm=[0, 2, 1, 3], name="merge")
    y = model.node("Reshape", [y, model.ints(1, rows, width)], name="rows")
    model.output(model.node("MatMul", [y, model.weight(width, width)], name="out"))
    return model


def divided_and_masked(m: Model, y: str) -> str:
    y = m.node("Div", [y, s(m, sqrt(8))], name="scale")
    return m.node("Add", [y, m.input([1, 1, 1, 16], "mask")], name="mask.add")


def divided(m: Model, y: str) -> str:
    return m.node("Div", [y, s(m, sqrt(8))], name="scale")


def masked_first(m: Model, y: str) -> str:
    y = m.node("Add", [m.input([1, 1, 16, 16], "mask"), y], name="mask.add")
    return m.node("Mul", [s(m, 8**-0.5), y], name="scale")


def chosen(m: Model, y: str) -> str:
    """GPT-2: what the future would say is replaced."""
    y = m.node("Mul", [y, s(m, 8**-0.5)], name="scale")
    mask = m.constant(np.tril(np.ones((16, 16))), dtype=np.bool_)
    return m.node("Where", [mask, y, s(m, -1e9)], name="causal")


def subtracted(m: Model, y: str) -> str:
    return m.node("Sub", [y, m.input([1, 1, 1, 16], "mask")], name="mask.sub")


def capped(m: Model, y: str) -> str:
    y = m.node("Tanh", [m.node("Div", [y, s(m, 50)], name="small")], name="cap")
    return m.node("Mul", [y, s(m, 50)], name="large")


def viewed(m: Model, y: str) -> str:
    """Batched products of three axes, masked in four."""
    y = m.node("Reshape", [y, m.ints(4, 1, 16, 16)], name="split")
    y = m.node("Add", [y, m.input([1, 1, 1, 16], "mask")], name="mask.add")
    return m.node("Reshape", [y, m.ints(1, 4, 16, 16)], name="join")


def without_nan(m: Model, y: str) -> str:
    return m.node("Where", [m.node("IsNaN", [y], name="nan"), s(m, 0), y], name="zero")


def converted(m: Model, y: str) -> str:
    y = m.node("Cast", [y], to=TensorProto.FLOAT16, name="narrow")
    return m.node("Cast", [y], to=TensorProto.FLOAT, name="wide")


def names_of(graph: Graph, pattern: Pattern) -> list[str]:
    return [graph.ops[graph.producer[name]].node for name in pattern.ops]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (attention(), ["scores", "softmax", "context"]),
        (attention(scores=divided_and_masked), ["scores", "scale", "mask.add", "softmax", "context"]),
        (attention(scores=masked_first), ["scores", "mask.add", "scale", "softmax", "context"]),
        (attention(scores=chosen), ["scores", "scale", "causal", "softmax", "context"]),
        (attention(scores=subtracted), ["scores", "mask.sub", "softmax", "context"]),
        (attention(scores=capped), ["scores", "small", "cap", "large", "softmax", "context"]),
        (attention(scores=viewed), ["scores", "split", "mask.add", "join", "softmax", "context"]),
        (attention(scaled=True), ["q.scale", "k.scale", "scores", "softmax", "context"]),
        (attention(weights=without_nan), ["scores", "softmax", "nan", "zero", "context"]),
        (attention(weights=converted), ["scores", "softmax", "narrow", "wide", "context"]),
    ],
    ids=lambda value: "" if isinstance(value, Model) else "-".join(value),
)
def test_attention_is_recorded_and_left_as_it_is(model: Model, expected: list[str]) -> None:
    data = model.data()
    graph = recognised(data)
    assert graph.ops == lowered(data).ops
    (pattern,) = graph.patterns
    assert pattern.kind == "attention"
    assert names_of(graph, pattern) == expected
    assert pattern.nodes == tuple(expected)


def test_a_softmax_written_out_is_the_softmax_of_attention() -> None:
    model = attention()
    softmax_node = next(node for node in model.nodes if node.op_type == "Softmax")
    index = model.nodes.index(softmax_node)
    x, y = softmax_node.input[0], softmax_node.output[0]
    model.nodes[index : index + 1] = [
        helper.make_node("Exp", [x], ["e"], name="e"),
        helper.make_node("ReduceSum", ["e", model.ints(3)], ["total"], keepdims=1, name="total"),
        helper.make_node("Div", ["e", "total"], [y], name="quotient"),
    ]
    graph = recognised(model.data())
    assert [pattern.kind for pattern in graph.patterns] == ["softmax", "attention"]
    assert graph.patterns[1].nodes == ("scores", "e", "total", "quotient", "context")


def weights_are_output(model: Model) -> None:
    model.output(next(node.output[0] for node in model.nodes if node.op_type == "Softmax"))


def weights_have_a_reader(model: Model) -> None:
    weights = next(node.output[0] for node in model.nodes if node.op_type == "Softmax")
    model.output(model.node("ReduceMax", [weights], axes=[3]))


def scores_have_a_reader(model: Model) -> None:
    model.output(model.relu(next(node.output[0] for node in model.nodes if node.name == "scores")))


def product_turned(model: Model) -> None:
    node = next(node for node in model.nodes if node.name == "context")
    node.input[:] = reversed(node.input)
    right = next(node for node in model.nodes if node.name == "v.order")
    right.attribute[0].ints[:] = [0, 2, 3, 1]


@pytest.mark.parametrize("spoil", [weights_are_output, weights_have_a_reader, scores_have_a_reader, product_turned])
def test_attention_whose_inner_values_are_wanted_elsewhere_is_not_recorded(spoil: Callable[[Model], None]) -> None:
    model = attention(scores=divided_and_masked)
    assert len(recognised(model.data()).patterns) == 1
    spoil(model)
    assert recognised(model.data()).patterns == ()


def by_vector(m: Model, y: str) -> str:
    return m.node("Mul", [y, m.weight(16)], name="scale")


def through_function(m: Model, y: str) -> str:
    return m.node("Abs", [y], name="abs")


def across_rows(m: Model, y: str) -> str:
    return m.node("Transpose", [y], perm=[0, 1, 3, 2], name="turn")


def inverted(m: Model, y: str) -> str:
    return m.node("Div", [s(m, 1), y], name="scale")


def regrouped_back(m: Model, y: str) -> str:
    y = m.node("Reshape", [y, m.ints(1, 4, 8, 32)], name="regroup")
    return m.node("Reshape", [y, m.ints(1, 4, 16, 16)], name="back")


def chosen_of_two(m: Model, y: str) -> str:
    mask = m.constant(np.tril(np.ones((16, 16))), dtype=np.bool_)
    return m.node("Where", [mask, y, m.input([1, 4, 16, 16], "other")], name="either")


def nan_by_another(m: Model, y: str) -> str:
    return m.node("Where", [m.node("IsNaN", [y], name="nan"), m.input([1, 4, 16, 16], "other"), y], name="else")


def only_nan(m: Model, y: str) -> str:
    """What is NaN is replaced by what the mask says, so IsNaN has a reader of its own."""
    nan = m.node("IsNaN", [y], name="nan")
    model_mask = m.input([1, 4, 16, 16], "flags", TensorProto.BOOL)
    y = m.node("Where", [model_mask, y, s(m, 0)], name="zero")
    m.output(nan, TensorProto.BOOL)
    return y


def head_mask(m: Model, y: str) -> str:
    return m.node("Mul", [y, m.input([1, 4, 1, 1], "heads")], name="heads")


NO_ATTENTION = {
    "softmax over queries": lambda: attention(axis=2),
    "constant values": lambda: attention(projected=False),
    "scaled by a vector": lambda: attention(scores=by_vector),
    "absolute": lambda: attention(scores=through_function),
    "turned before": lambda: attention(scores=across_rows),
    "turned after": lambda: attention(weights=across_rows),
    "divided by the scores": lambda: attention(scores=inverted),
    "rows regrouped before": lambda: attention(scores=regrouped_back),
    "rows regrouped after": lambda: attention(weights=regrouped_back),
    "one of two scores": lambda: attention(scores=chosen_of_two),
    "NaN replaced by a computed value": lambda: attention(weights=nan_by_another),
    "NaN wanted elsewhere": lambda: attention(weights=only_nan),
    "weighted heads": lambda: attention(weights=head_mask),
}


@pytest.mark.parametrize("build", NO_ATTENTION.values(), ids=NO_ATTENTION)
def test_what_only_looks_like_attention_is_not_recorded(build: Callable[[], Model]) -> None:
    assert recognised(build().data()).patterns == ()


def test_a_mask_that_repeats_the_scores_keeps_attention_from_being_recorded() -> None:
    model = Model()
    q, k, v = (model.input(shape, name) for name, shape in (("q", [1, 4, 8]), ("k", [1, 8, 4]), ("v", [2, 4, 8])))
    y = model.node("Add", [model.node("MatMul", [q, k]), model.input([2, 4, 4], "mask")])
    model.output(model.node("MatMul", [model.node("Softmax", [y], axis=-1), v]))
    assert recognised(model.data()).patterns == ()


def test_a_product_with_a_vector_is_no_attention() -> None:
    model = Model()
    y = model.node("MatMul", [model.input([4, 8], "k"), model.input([8], "q")])
    model.output(model.node("MatMul", [model.node("Softmax", [y], axis=-1), model.input([4, 8], "v")]))
    assert recognised(model.data()).patterns == ()


def test_a_scaling_that_somebody_else_reads_is_no_part_of_attention() -> None:
    model = attention(scaled=True)
    model.output(model.relu(next(node.output[0] for node in model.nodes if node.name == "q.scale")))
    (pattern,) = recognised(model.data()).patterns
    assert pattern.nodes == ("k.scale", "scores", "softmax", "context")


def test_two_layers_of_constant_weights_are_no_attention() -> None:
    model = Model()
    y = model.node("MatMul", [model.input([4, 8]), model.weight(8, 6)])
    model.output(model.node("MatMul", [model.node("Softmax", [y], axis=-1), model.weight(6, 8)]))
    assert recognised(model.data()).patterns == ()


def test_a_decomposed_attention_is_recorded_under_its_one_node() -> None:
    model = Model(opset=23, ir_version=11)
    q, k, v = (model.input([1, 4, 16, 8], name) for name in "qkv")
    model.output(model.node("Attention", [q, k, v], name="attention"))
    (pattern,) = recognised(model.data()).patterns
    assert pattern.nodes == ("attention",)
    assert len(pattern.ops) >= 3


@pytest.mark.slow
def test_on_cluster4x4_attention_is_one_group_and_each_core_works_on_some_of_its_rows() -> None:
    data = attention(rows=128, width=64, heads=2, scores=divided).data()
    (pattern,) = recognised(data).patterns
    plan = plan_model(data, builtin_profile("cluster4x4")).plan
    groups = [group for segment in plan.segments for group in segment.groups]
    (home,) = [group for group in groups if set(pattern.nodes) & set(group.nodes)]
    assert set(pattern.nodes) <= set(home.nodes)
    rows = dict(zip(home.tiling.axes, home.tiling.core_tile, strict=True))["H"]
    assert rows < 128
