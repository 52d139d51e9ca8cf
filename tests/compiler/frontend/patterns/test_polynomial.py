"""Values as polynomials of two others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from compiler.frontend.constant_values import derive, literal
from compiler.frontend.patterns.graph_queries import Lookup
from compiler.frontend.patterns.polynomial import Expansion
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Opaque
from compiler.ir.graph import Tensor
from compiler.ops.base import default_axes
from tests.compiler.frontend.patterns.harness import (
    lowered,
    s,
    values_of,
)
from tests.models import Model

# Kind and operands: a and b are earlier values, c a constant, 2 the number.
ARITHMETIC = (
    ("Add", "ab"),
    ("Add", "ca"),
    ("Sub", "ab"),
    ("Sub", "cb"),
    ("Mul", "ab"),
    ("Mul", "ac"),
    ("Div", "ac"),
    ("Div", "ab"),
    ("Neg", "a"),
    ("Pow", "a2"),
    ("Sum", "abc"),
)


def arithmetic(random: np.random.Generator) -> Model:
    """Seven random nodes on x and t."""
    model = Model()
    known = [model.input([4], "x"), model.input([4], "t")]
    for _ in range(7):
        kind, operands = ARITHMETIC[int(random.integers(len(ARITHMETIC)))]
        chosen = {name: known[int(random.integers(len(known)))] for name in "ab"}
        chosen |= {"c": s(model, float(random.choice([-2.0, 0.5, 3.0]))), "2": s(model, 2)}
        known.append(model.node(kind, [chosen[name] for name in operands]))
    model.output(known[-1])
    return model


@pytest.mark.parametrize(("count", "expands"), [(16, True), (17, False)])
def test_an_expansion_ends_after_sixteen_ops(count: int, expands: bool) -> None:
    model = Model()
    y = model.input([4], "x")
    for _ in range(count):
        y = model.node("Add", [y, s(model, 1)])
    model.output(y)
    graph = lowered(model.data())
    lookup = Lookup(graph, ModelSource.from_bytes(model.data()))
    assert (Expansion(lookup, "x").of(graph.outputs[0]) is not None) == expands


def test_only_constants_made_of_single_elements_are_read() -> None:
    """What is derived from a large weight is not computed to see whether it is a number that is looked for."""
    model = Model()
    model.output(model.relu(model.input([4], "x")))
    data = model.data()
    one = literal(np.full((1,), 3.0), "float32")
    large = literal(np.full((8,), 3.0), "float32")
    parts = {
        "one": one,
        "viewed": derive("Reshape", (one,), (), {"shape": ()}),
        "expanded": derive("Expand", (one,), (2,)),
        "reduced": derive("ReduceMax", (large,), (1,), {"axes": (0,), "keepdims": 1}),
        "opaque": Constant(shape=(1,), dtype="string", data=Opaque(tensor=b"")),
    }
    graph = lowered(data)
    tensors = {
        name: Tensor(name=name, shape=part.shape, dtype=part.dtype, axes=default_axes(len(part.shape)), constant=part)
        for name, part in parts.items()
    }
    lookup = Lookup(replace(graph, tensors={**graph.tensors, **tensors}), ModelSource.from_bytes(data))
    assert {name: lookup.scalar(name) for name in parts} == {
        "one": 3.0,
        "viewed": 3.0,
        "expanded": None,
        "reduced": None,
        "opaque": None,
    }


def test_a_polynomial_has_the_values_of_the_nodes_it_stands_for() -> None:
    """Random arithmetic, expanded and evaluated, against the ops themselves."""
    random = np.random.default_rng(3)
    expanded = 0
    for _ in range(100):
        data = arithmetic(random).data()
        graph = lowered(data)
        if graph.inputs != ("x", "t"):
            continue
        found = Expansion(Lookup(graph, ModelSource.from_bytes(data)), "x", "t").of(graph.outputs[0])
        if found is None:
            continue
        expanded += 1
        feeds = {name: (1 + random.random(4)).astype(np.float32) for name in graph.inputs}
        x, t = (feeds[name].astype(np.float64) for name in graph.inputs)
        values = sum((factor * x**i * t**j for (i, j), factor in found.terms.items()), np.zeros(4))
        np.testing.assert_allclose(values, values_of(graph, data, feeds)[0], rtol=1e-4, atol=1e-3)
        assert found.ops == frozenset(range(len(graph.ops)))
    assert expanded > 20
