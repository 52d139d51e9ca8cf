"""What graphs say of smaller extents than the maxima: it is right, or it is refused (SHAPE-9)."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from compiler.errors import ModelError
from tests.compiler.shapes import (  # noqa: F401 - they note their models
    varying_computed,
    varying_layers,
    varying_refused,
    varying_shapes,
)
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.varying_models import REFUSED, SERVED
from tests.models import Model


def tried(ranges: dict[str, tuple[int, int]]) -> list[dict[str, int]]:
    """The ends of the ranges, what is next to them, and the middle; of many combinations some."""
    extents = [sorted({low, low + 1, (low + high) // 2, high - 1, high}) for low, high in ranges.values()]
    every = list(product(*extents))
    chosen = np.random.default_rng(0).permutation(len(every))[:4]
    return [dict(zip(ranges, dims, strict=True)) for dims in {every[0], every[-1], *(every[i] for i in chosen)}]


@pytest.mark.matrix(first=5, rest=10)
@pytest.mark.parametrize("name", sorted(SERVED))
def test_values_at_smaller_extents_are_those_of_the_model(name: str) -> None:
    """By the program of an instance, and by the tables alone (SHAPE-9, SHAPE-8)."""
    build, ranges = SERVED[name]
    model = Model()
    build(model)
    compiled = Compiled.of(model, ranges)
    assert [miss for dims in tried(dict(ranges)) for miss in compiled.misses(dims)] == []


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_what_is_known_at_the_maxima_only_is_refused(name: str) -> None:
    build, ranges, code = REFUSED[name]
    model = Model()
    build(model)
    with pytest.raises(ModelError) as caught:
        Compiled.of(model, ranges)
    assert caught.value.code == code


def test_a_refusal_shows_what_the_op_reads() -> None:
    """Twice one length and three times another: neither is said by the other."""
    model = Model()
    x, y = model.input(["s", 4], "x"), model.input(["t", 4], "y")
    twice, thrice = model.node("Concat", [x, x], axis=0), model.node("Concat", [y, y, y], axis=0)
    model.output(model.node("Add", [twice, thrice]))
    with pytest.raises(ModelError) as caught:
        Compiled.of(model, {"s": (1, 6), "t": (1, 4)})
    assert caught.value.actual == f"made of {twice}[2*s, 4], {thrice}[3*t, 4]"
    assert "dimensions that are always equal may have one name" in str(caught.value)


def test_what_has_no_expression_and_is_no_shape_is_computed_by_the_chip() -> None:
    """Angles of positions behind a varying past, and which positions hide which."""
    model = Model()
    x, past = model.input(["s", 12], "x"), model.input(["p", 12], "past")
    length, before = (
        model.node("Squeeze", [model.node("Gather", [model.node("Shape", [one]), model.ints(0)])]) for one in (x, past)
    )
    end = model.node("Add", [before, length])
    positions = model.node("Range", [before, end, model.constant(np.array(1))])
    column = model.node("Unsqueeze", [positions, model.ints(1)])
    rates = model.constant(np.linspace(0.1, 1.0, 12, dtype=np.float32).reshape(1, 12))
    turned = model.node("Cos", [model.node("Mul", [model.node("Cast", [column], to=1), rates])])
    hidden = model.node("Greater", [column, model.constant(np.arange(12).reshape(1, 12) * 2)])
    zero = model.constant(np.zeros((1, 1), dtype=np.float32))
    model.output(model.node("Where", [hidden, model.node("Mul", [x, turned]), zero]))
    model.output(model.node("ReduceSum", [past], keepdims=0))
    compiled = Compiled.of(model, {"s": (3, 9), "p": (2, 11)})
    every = [{"s": s, "p": p} for s in (3, 4, 9) for p in (2, 7, 11)]
    assert [miss for dims in every for miss in compiled.misses(dims)] == []


@pytest.mark.parametrize("name", ["slice_x_clamped", "squeeze_all", "slice_x_last1", "eq_one_and_more"])
def test_a_range_within_which_nothing_has_to_be_chosen_is_served(name: str) -> None:
    """The same models as are refused from 1 on, where the smallest extent decides."""
    model = Model()
    if name == "eq_one_and_more":
        x = model.input([3, "s"])
        length = model.node("Gather", [model.node("Shape", [x]), model.ints(1)], axis=0)
        chosen = model.node("Where", [model.node("Equal", [length, model.ints(1)]), model.ints(7), model.ints(2)])
        model.output(model.node("Mul", [x, model.node("Cast", [chosen], to=1)]))
    else:
        REFUSED[name][0](model)
    compiled = Compiled.of(model, {"s": (5, 8)})
    assert [miss for extent in range(5, 9) for miss in compiled.misses({"s": extent})] == []
