"""Patterns that exporters write out: what they become computes the same, and near misses stay (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.patterns.graph_queries import Lookup
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph, Op
from compiler.ir.pattern import Pattern
from tests.compiler.frontend.patterns.forms import (
    FORMS,
    gelu_as_sum,
    gelu_half_last,
    gelu_half_on_sum,
    gelu_tanh_factored,
    gelu_tanh_power,
    hard_swish_by_hand,
    layer_norm,
    layer_norm_twice,
    quick_gelu,
    silu,
    softmax,
)
from tests.compiler.frontend.patterns.harness import (
    Build,
    assert_same_values,
    exposed,
    lowered,
    model_of,
    mutants,
    recognised,
    s,
)
from tests.models import Model

every_form = pytest.mark.parametrize("build", FORMS, ids=lambda build: build.__name__)


@every_form
def test_a_pattern_becomes_one_op_of_the_same_values(build: Build) -> None:
    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    name, kind, attributes = FORMS[build]
    (op,) = graph.ops
    assert (op.kind, op.inputs[0]) == (kind, "x")
    found = dict(op.attributes)
    assert set(attributes) <= set(found)
    for key, value in attributes.items():
        assert found[key] == (pytest.approx(value, rel=1e-6) if isinstance(value, float) else value)
    assert op.origin == tuple(f"n{index}" for index in range(len(proto.graph.node)))
    assert graph.patterns == (Pattern(kind=name, ops=(op.output,), nodes=op.origin),)
    assert set(graph.tensors) == {*op.inputs, op.output}
    assert_same_values(proto, graph)


@every_form
def test_a_value_that_somebody_else_reads_stays(build: Build) -> None:
    for name, proto in exposed(model_of(build)):
        graph = recognised(proto.SerializeToString())
        assert name in {op.output for op in graph.ops}
        assert_same_values(proto, graph)


@every_form
def test_a_near_miss_keeps_its_values(build: Build) -> None:
    """Wrong constants, orders, kinds and axes: it is left as it is, or what it is recognised as has its values."""
    left = 0
    for proto in mutants(model_of(build)):
        data = proto.SerializeToString()
        graph = recognised(data)
        if graph.patterns:
            assert_same_values(proto, graph)
        else:
            assert graph == lowered(data)
            left += 1
    assert left >= 1


def test_what_follows_a_pattern_is_not_taken_for_a_part_of_it() -> None:
    def build(m: Model, x: str) -> str:
        y = gelu_half_last(m, m.node("Abs", [x]))
        return m.node("Div", [y, m.node("Add", [m.nodes[0].output[0], s(m, 1)])])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Abs", "Gelu", "Add", "Div"]
    assert_same_values(proto, graph)


def test_the_input_of_a_pattern_may_have_other_readers() -> None:
    def build(m: Model, x: str) -> str:
        y = m.node("Abs", [x])
        return m.node("Add", [y, gelu_half_last(m, y)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Abs", "Gelu", "Add"]
    assert_same_values(proto, graph)


def test_a_chain_of_patterns_is_recognised_link_by_link() -> None:
    def build(m: Model, x: str) -> str:
        for _ in range(3):
            x = layer_norm(m, gelu_tanh_power(m, silu(m, x)))
        return x

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == 3 * ["Swish", "Gelu", "LayerNormalization"]
    assert [pattern.kind for pattern in graph.patterns] == 3 * ["silu", "gelu", "layer-norm"]
    assert_same_values(proto, graph)


def test_a_graph_without_patterns_is_left_as_it_is() -> None:
    def build(m: Model, x: str) -> str:
        return m.node("Relu", [m.node("Sqrt", [m.node("Tanh", [x])])])

    data = model_of(build).SerializeToString()
    graph = lowered(data)
    assert RecognisePatterns(source=ModelSource.from_bytes(data)).run(graph) == graph


def test_graph_before_and_after_recognition(golden: Callable[[str], None]) -> None:
    model = Model(name="block", seed=1)
    x = model.input([1, 4, 8], "x")
    y = layer_norm(model, x)
    y = gelu_half_on_sum(model, model.node("MatMul", [y, model.weight(8, 16)], name="up"))
    model.output(model.node("Add", [model.node("MatMul", [y, model.weight(16, 8)], name="down"), x], name="residual"))
    for index, node in enumerate(model.nodes):
        node.name = node.name or f"{node.op_type.lower()}{index}"
    data = model.data()
    graph = recognised(data)
    golden(lowered(data).text() + graph.text() + "".join(f"{pattern}\n" for pattern in graph.patterns))


def questions(monkeypatch: pytest.MonkeyPatch, graph: Graph) -> int:
    """How often the pass asks for a maker, a reader or a value."""
    asked = 0

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            nonlocal asked
            asked += 1
            return function(*arguments)

        return call

    with monkeypatch.context() as patch:
        for name in ("maker", "readers", "sole_reader", "scalar", "is_closed"):
            patch.setattr(Lookup, name, counted(getattr(Lookup, name)))
        RecognisePatterns(source=ModelSource.from_bytes(b"")).run(graph)
    return asked


@pytest.mark.parametrize(
    "link",
    [silu, quick_gelu, gelu_tanh_factored, gelu_as_sum, hard_swish_by_hand, layer_norm_twice, softmax],
)
def test_the_work_grows_with_the_graph_and_not_with_its_square(monkeypatch: pytest.MonkeyPatch, link: Build) -> None:
    def chain(count: int) -> Graph:
        def build(m: Model, x: str) -> str:
            for _ in range(count):
                x = link(m, x)
            return x

        return lowered(model_of(build).SerializeToString())

    some, more, most = (questions(monkeypatch, chain(count)) for count in (10, 20, 40))
    assert most - more <= 2 * (more - some)


def test_the_pass_is_the_same_for_a_renamed_graph() -> None:
    """No decision hangs on a name."""
    data = model_of(layer_norm).SerializeToString()
    graph = lowered(data)
    turned = {name: f"z{len(graph.tensors) - i}" for i, name in enumerate(sorted(graph.tensors))}
    renamed = replace(
        graph,
        ops=tuple(
            Op(
                kind=op.kind,
                inputs=tuple(turned[name] for name in op.inputs),
                output=turned[op.output],
                origin=op.origin,
                attributes=op.attributes,
            )
            for op in graph.ops
        ),
        tensors={turned[name]: replace(tensor, name=turned[name]) for name, tensor in graph.tensors.items()},
        inputs=tuple(turned[name] for name in graph.inputs),
        outputs=tuple(turned[name] for name in graph.outputs),
    )
    source = ModelSource.from_bytes(data)
    plain, other = (RecognisePatterns(source=source).run(g) for g in (graph, renamed))
    assert [(op.kind, op.attributes, op.origin) for op in plain.ops] == [
        (op.kind, op.attributes, op.origin) for op in other.ops
    ]
