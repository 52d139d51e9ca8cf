"""Extents that are longer where a dimension is shorter: what is left of 40 rows beside the first ones (SHAPE-9)."""

from __future__ import annotations

import pytest

from compiler.errors import ModelError
from tests.compiler.shapes.dynamic import Compiled, corners_and
from tests.models import Model

RANGES = {"rows": (1, 30)}


def rest(model: Model) -> str:
    """Those of 40 rows that lie behind as many as x has."""
    x, all_rows = model.input(["rows", 4], "x"), model.input([40, 4], "all_rows")
    model.output(model.relu(x))
    first = model.node("Slice", [model.node("Shape", [x]), model.ints(0), model.ints(1), model.ints(0)])
    return model.node("Slice", [all_rows, first, model.ints(40), model.ints(0)])


def test_tables_divide_an_axis_however_long_it_is() -> None:
    model = Model()
    model.output(model.node("MatMul", [rest(model), model.weight(4, 6)]))
    of = Compiled.of(model, RANGES)
    assert [miss for dims in corners_and(RANGES, 2) for miss in of.misses(dims)] == []


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["edge4", "manycore2x64", "cluster4x4"])
def test_units_have_room_for_the_longest_sum(profile: str) -> None:
    """Calls of a product sum over 39 rows where there is one, and over ten at the largest extent."""
    model = Model()
    behind = rest(model)
    model.output(model.node("MatMul", [model.node("Transpose", [behind], perm=[1, 0]), model.relu(behind)]))
    of = Compiled.of(model, RANGES, profile)
    assert [miss for dims in corners_and(RANGES, 2) for miss in of.misses(dims)] == []


def test_a_whole_axis_that_is_longer_than_at_the_maxima_is_refused_by_node() -> None:
    model = Model()
    model.output(model.node("Softmax", [rest(model)], axis=0, name="shares"))
    with pytest.raises(ModelError) as caught:
        Compiled.of(model, RANGES)
    error = caught.value
    assert (error.code, error.node) == ("longer_below_maxima", "shares")
    assert (error.actual, error.limit) == ("39x4 at rows = 1", "10x4")
