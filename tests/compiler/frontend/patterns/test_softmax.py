"""What is a softmax written out, and what is not."""

from __future__ import annotations

import pytest

from tests.compiler.frontend.patterns.harness import (
    Build,
    assert_same_values,
    model_of,
    recognised,
)
from tests.models import Model


def softmax_over_two(m: Model, x: str) -> str:
    e = m.node("Exp", [x])
    return m.node("Div", [e, m.node("ReduceSum", [e, m.ints(1, 2)], keepdims=1)])


def softmax_axis_lost(m: Model, x: str) -> str:
    y = m.node("Reshape", [m.node("Slice", [x, m.ints(0), m.ints(4), m.ints(1)]), m.ints(8, 8)])
    e = m.node("Exp", [y])
    return m.node("Div", [e, m.node("ReduceSum", [e, m.ints(1)], keepdims=0)])


def softmax_turned(m: Model, x: str) -> str:
    e = m.node("Exp", [x])
    return m.node("Div", [m.node("ReduceSum", [e, m.ints(1)], keepdims=1), e])


@pytest.mark.parametrize("build", [softmax_over_two, softmax_axis_lost, softmax_turned])
def test_what_is_no_softmax_stays(build: Build) -> None:
    assert recognised(model_of(build).SerializeToString()).patterns == ()


def test_a_difference_that_somebody_else_reads_stays_before_the_softmax() -> None:
    def build(m: Model, x: str) -> str:
        shifted = m.node("Sub", [x, m.node("ReduceMax", [x], axes=[1], keepdims=1)])
        e = m.node("Exp", [shifted])
        y = m.node("Div", [e, m.node("ReduceSum", [e, m.ints(1)], keepdims=1)])
        return m.node("Add", [y, shifted])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["ReduceMax", "Sub", "Softmax", "Add"]
    assert_same_values(proto, graph)


def test_only_the_own_maximum_is_part_of_a_softmax() -> None:
    def build(m: Model, x: str) -> str:
        top = m.node("ReduceMax", [m.node("Abs", [x])], axes=[1], keepdims=1)
        e = m.node("Exp", [m.node("Sub", [x, top])])
        return m.node("Div", [e, m.node("ReduceSum", [e, m.ints(1)], keepdims=1)])

    graph = recognised(model_of(build).SerializeToString())
    assert [op.kind for op in graph.ops] == ["Abs", "ReduceMax", "Sub", "Softmax"]
