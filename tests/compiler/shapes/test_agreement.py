"""The check of a graph against its model at other extents: it finds what deduction got wrong (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import numpy as np
import pytest

from compiler.errors import ModelError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Literal
from compiler.ir.graph import Graph
from compiler.shapes.agreement import difference, tried_dims
from compiler.shapes.extents import Range
from compiler.shapes.instance import graph_at
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model


def small() -> tuple[Model, Compiled]:
    """A product, a constant that varies, a cut and a sum."""
    model = Model()
    x = model.input(["rows", 6])
    length = model.node("Gather", [model.node("Shape", [x]), model.ints(0)], axis=0)
    table = model.node("Slice", [model.weight(9, 6), model.ints(0), length, model.ints(0)])
    joined = model.node("Add", [x, table])
    cut = model.node("Slice", [joined, model.ints(1), model.ints(5), model.ints(1)])
    model.output(model.relu(model.node("MatMul", [cut, model.weight(4, 3)])))
    return model, Compiled.of(model, {"rows": (1, 9)})


def test_a_graph_is_like_its_model_imported_there() -> None:
    model, of = small()
    for rows in range(1, 10):
        assert (
            difference(graph_at(of.model.graph, {"rows": rows}, of.values), model.graph({"rows": rows}), of.values)
            is None
        )


def test_a_transformer_is_like_itself_at_extents_of_one() -> None:
    model = encoder_layer()
    of = Compiled.of(model, {"batch": (1, 3), "length": (1, 9)})
    for dims in ({"batch": 1, "length": 1}, {"batch": 3, "length": 1}, {"batch": 1, "length": 9}):
        assert difference(graph_at(of.model.graph, dims, of.values), model.graph(dims), of.values) is None


def other_shape(graph: Graph) -> Graph:
    """One row more everywhere."""
    tensors = {name: replace(t, shape=(t.shape[0] + 1, *t.shape[1:])) for name, t in graph.tensors.items()}
    return replace(graph, tensors=MappingProxyType(tensors))


def other_attribute(graph: Graph) -> Graph:
    """A cut that begins elsewhere."""
    ops = tuple(
        replace(op, attributes=(("begin", (0, 2)), ("step", (1, 1)))) if op.kind == "Slice" else op for op in graph.ops
    )
    return replace(graph, ops=ops)


def other_kind(graph: Graph) -> Graph:
    """Another function of the same operand."""
    return replace(graph, ops=tuple(replace(op, kind="Tanh") if op.kind == "Relu" else op for op in graph.ops))


def other_constant(graph: Graph) -> Graph:
    """One element of a constant is another."""
    tensors = dict(graph.tensors)
    name = next(name for op in graph.ops if op.kind == "MatMul" for name in op.inputs if tensors[name].constant)
    constant = tensors[name].constant
    assert constant is not None
    data = Literal(data=np.arange(12, dtype=np.float32).tobytes())
    tensors[name] = replace(tensors[name], constant=replace(constant, data=data))
    return replace(graph, tensors=MappingProxyType(tensors))


@pytest.mark.parametrize("change", [other_shape, other_attribute, other_kind, other_constant])
def test_what_differs_is_named(change: Callable[[Graph], Graph]) -> None:
    model, of = small()
    graph = graph_at(of.model.graph, {"rows": 4}, of.values)
    found = difference(change(graph), model.graph({"rows": 4}), of.values)
    assert found in graph.tensors


def test_tried_are_the_lower_ends_and_more_but_never_the_maxima() -> None:
    ranges = {"batch": Range(low=1, high=4), "rows": Range(low=8, high=32, step=8)}
    tried = tried_dims(ranges, 9)
    assert tried[0] == {"batch": 1, "rows": 8}
    assert {"batch": 1, "rows": 32} in tried
    assert {"batch": 4, "rows": 8} in tried
    assert {"batch": 4, "rows": 32} not in tried
    assert all(extent in ranges[name] for dims in tried for name, extent in dims.items())
    assert tried == tried_dims(ranges, 9)
    assert tried_dims({"batch": Range(low=3, high=3)}, 9) == []


def chosen_by(taken: list[bool] | None) -> Graph:
    """A Relu of x where a constant says so, 0 elsewhere; None leaves the choice out."""
    model = Model()
    x = model.input([2, 3])
    hidden = model.relu(x)
    if taken is not None:
        condition = model.constant(np.array(taken).reshape(1, 3))
        hidden = model.node("Where", [condition, hidden, model.constant(np.float32(0))])
    model.output(model.node("Sigmoid", [hidden]))
    return model.graph()


@pytest.mark.parametrize(
    ("taken", "is_alike"), [([True, True, True], True), ([True, False, True], False), ([False, False, False], False)]
)
def test_a_choice_that_constants_make_is_no_difference(taken: list[bool], is_alike: bool) -> None:
    graph, plain = chosen_by(taken), chosen_by(None)
    assert isinstance(graph.source, ModelSource)
    values = partial(materialise, source=graph.source)
    assert any(op.kind == "Where" for op in graph.ops)
    assert (difference(graph, plain, values) is None) is is_alike
    assert (difference(plain, graph, values) is None) is is_alike


def test_a_view_at_extents_at_which_the_model_is_none_is_the_extents_fault() -> None:
    model = Model()
    x = model.input(["rows"], "x")
    model.output(model.node("Reshape", [x, model.ints(2, -1)]))
    with pytest.raises(ModelError) as caught:
        Compiled.of(model, {"rows": (1, 8)})
    assert caught.value.code == "illegal_extents"
