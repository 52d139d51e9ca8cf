"""Extents within the ranges at which a model is none: found when tables are asked for (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_shapes
from compiler.errors import RequestError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.shapes.direct import run_directly
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import simple_tables
from compiler.shapes.legal import Doubts
from compiler.shapes.model import ShapeModel
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.models import Model, error_of


def quarters() -> Model:
    """Rows of six as rows of four: a model for even numbers of rows."""
    model = Model()
    x = model.input(["rows", 6], "x")
    model.output(model.relu(model.node("Reshape", [x, model.ints(-1, 4)])))
    return model


def widened(model: Model, dims: Mapping[str, Any], ranges: Mapping[str, tuple[int, int]]) -> ShapeModel:
    """A model whose ranges hold more than those it was compiled for: extents that no check of the compiler tried."""
    found = compile_shapes(model.data(), builtin_profile("edge4"), parse_options({"dims": dims}))
    wider = {name: replace(found.ranges[name], low=low, high=high, step=1) for name, (low, high) in ranges.items()}
    return replace(found, ranges={**found.ranges, **wider}, reach={**found.reach, **wider})


def test_a_view_of_another_number_of_elements_is_refused_when_tables_are_asked_for() -> None:
    model = widened(quarters(), {"rows": {"min": 2, "max": 100, "step": 2}}, {"rows": (2, 100)})
    assert model.dims_of_words(["x:50x6"]) == {"rows": 50}
    for action in (lambda: model.dims_of_words(["x:51x6"]), lambda: simple_tables(model, {"rows": 51})):
        with pytest.raises(RequestError) as caught:
            action()
        assert (caught.value.code, caught.value.node) == ("illegal_extents", "Reshape_0")
        assert "(76, 4) of (51, 6) at rows = 51" in str(caught.value.actual)


def test_what_the_instance_refuses_the_question_refuses_in_the_same_words() -> None:
    source = ModelSource.from_bytes(quarters().data())
    model = widened(quarters(), {"rows": {"min": 2, "max": 100, "step": 2}}, {"rows": (2, 100)})
    for rows in range(2, 101):
        at_once = error_of(lambda rows=rows: model.doubts.check({"rows": rows}))  # type: ignore[misc]
        later = error_of(
            lambda rows=rows: graph_at(  # type: ignore[misc]
                model.graph, {"rows": rows}, lambda one: materialise(one, opened(model.graph.source, source))
            )
        )
        assert str(at_once) == str(later)
        assert (at_once is None) == (rows % 2 == 0)


def test_an_extent_below_one_is_refused_when_tables_are_asked_for() -> None:
    model = Model()
    x = model.input([1, 3, "rows", 8], "x")
    model.output(model.conv(x, 3, 4, 5, pad=0))
    wide = widened(model, {"rows": {"min": 5, "max": 9}}, {"rows": (1, 9)})
    assert wide.dims_of_words(["x:1x3x5x8"]) == {"rows": 5}
    with pytest.raises(RequestError) as caught:
        wide.dims_of_words(["x:1x3x4x8"])
    assert caught.value.code == "illegal_extents"
    assert "1x4x0x4 at rows = 4" in str(caught.value.actual)


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("build", [residual_network, encoder_layer])
def test_nothing_is_left_to_ask_of_models_that_are_good_at_all_extents(build: Callable[[], Model]) -> None:
    ranges = {"batch": (1, 3), "height": (4, 17), "width": (4, 13), "length": (1, 40)}
    source = build()
    names = {dim.dim_param for value in source.inputs for dim in value.type.tensor_type.shape.dim if dim.dim_param}
    of = Compiled.of(source, {name: ends for name, ends in ranges.items() if name in names})
    doubts = Doubts.of(of.model.graph, {name: (one.low, one.high) for name, one in of.model.ranges.items()})
    assert doubts.tensors == ()
    assert doubts.views == ()


def test_factors_in_another_order_are_no_doubt() -> None:
    model = Model()
    x = model.input(["rows", "columns", 12], "x")
    shape = model.node("Concat", [model.node("Shape", [x], start=1, end=2), model.ints(3, -1)], axis=0)
    model.output(model.relu(model.node("Reshape", [x, shape])))
    found = _compiled(model.data())
    assert found.doubts.views == ()
    for rows, columns in product(range(1, 31), repeat=2):
        found.check({"rows": rows, "columns": columns})


def _compiled(data: bytes) -> ShapeModel:
    dims = {name: {"min": 1, "max": 30} for name in ("rows", "columns")}
    return compile_shapes(data, builtin_profile("edge4"), parse_options({"dims": dims, "verify": "none"}))


def test_empty_tensors_stand_beside_extents_that_vary() -> None:
    """What has no elements at any extents is no reason to refuse a model."""
    model = Model()
    x = model.input(["rows", 4])
    nothing = model.node("Slice", [x, model.ints(2), model.ints(2), model.ints(1)])
    model.output(model.node("Concat", [model.relu(nothing), model.relu(x)], axis=1))
    of = Compiled.of(model, {"rows": (1, 8)})
    assert [miss for rows in (1, 3, 8) for miss in of.misses({"rows": rows})] == []


def test_an_input_without_elements_is_accepted_and_says_how_long_dimensions_are() -> None:
    model = Model()
    x = model.input(["rows", 0], "x")
    model.output(model.relu(x))
    of = Compiled.of(model, {"rows": (1, 8)})
    assert of.model.dims_of_words(["x:3x0"]) == {"rows": 3}
    (made,) = run_directly(of.model, of.values, {"x": np.zeros((3, 0), dtype=np.float32)}).values()
    assert made.shape == (3, 0)
    with pytest.raises(RequestError) as caught:
        of.model.dims_of_words(["x:3x1"])
    assert caught.value.code == "extent_out_of_range"
