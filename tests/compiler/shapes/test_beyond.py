"""Shapes beyond the ranges of a compilation: served by the same units, or refused with the cause (SHAPE-9)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import numpy_helper

from compiler.errors import RequestError
from compiler.ops.op_facts import graph_facts
from compiler.profile import builtin_profile
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import simple_tables
from compiler.shapes.package import read_package
from compiler.shapes.served import units_with_room
from compiler.shapes.size_class import size_class
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model


def convolutions() -> Model:
    """A fully convolutional network with a pooling and a skip."""
    model = Model()
    x = model.input(["n", 3, "h", "w"], "x")
    y = model.relu(model.conv(x, 3, 8))
    z = model.node("MaxPool", [y], kernel_shape=[2, 2], strides=[2, 2])
    model.output(model.relu(model.node("Add", [model.conv(z, 8, 8), z])))
    return model


RANGES = {"n": (1, 2), "h": (8, 24), "w": (8, 24)}


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("profile", ["edge4", "cluster4x4"])
def test_a_fully_convolutional_network_is_served_far_beyond_its_ranges(profile: str) -> None:
    of = Compiled.of(convolutions(), RANGES, profile)
    for dims in ({"n": 1, "h": 100, "w": 9}, {"n": 5, "h": 41, "w": 70}, {"n": 1, "h": 4, "w": 5}):
        assert of.model.beyond(dims)
        assert of.misses(dims) == []


def test_no_unit_is_called_for_more_than_its_buffers_hold() -> None:
    """A tile of the whole map needs no halo within the ranges, and one beyond them."""
    of = Compiled.of(convolutions(), RANGES)
    dims = {"n": 1, "h": 90, "w": 90}
    facts = graph_facts(graph_at(of.model.graph, dims, of.values))
    fewer = [
        number
        for number, library in enumerate(of.model.libraries)
        if len(units_with_room(of.model, number, facts)) < len(library.units)
    ]
    assert fewer, "some unit holds the whole map of the largest shape"
    assert of.programs(dims)  # proved


def test_what_a_call_takes_whole_is_no_longer_than_when_units_were_made() -> None:
    of = Compiled.of(attention(), {"batch": (1, 3), "length": (1, 17)})
    assert of.misses({"batch": 7, "length": 17}) == []
    # units are made for the size class of a range
    assert size_class(17) == 24
    assert of.misses({"batch": 1, "length": 24}) == []
    with pytest.raises(RequestError) as caught:
        simple_tables(of.model, {"batch": 1, "length": 25})
    error = caught.value
    assert (error.code, error.actual) == ("extent_out_of_range", 25)
    for word in ("'length'", "each call of node", "built for 24"):
        assert word in error.message
    assert "up to 25" in str(error.hint)


def attention() -> Model:
    """Weighted means of all rows."""
    model = Model()
    x = model.input(["batch", "length", 8], "x")
    scores = model.node("MatMul", [x, model.node("Transpose", [x], perm=[0, 2, 1])])
    model.output(model.node("MatMul", [model.node("Softmax", [scores], axis=-1), x]))
    return model


def test_what_a_graph_reads_of_a_table_is_the_limit_of_what_import_decided() -> None:
    """The encoder has 64 positions: twice the maximum was tried and holds, where its constants are too short."""
    of = Compiled.of(encoder_layer(), {"batch": (1, 3), "length": (1, 17)})
    assert of.model.reach["length"].high == 34
    with pytest.raises(RequestError, match=r"constant .* has 17 elements along axis 0"):
        simple_tables(of.model, {"batch": 1, "length": 18})
    with pytest.raises(RequestError, match="outside its range"):
        simple_tables(of.model, {"batch": 1, "length": 35})


def refused(model: Model, ranges: Mapping[str, tuple[int, int]], dims: Mapping[str, int]) -> RequestError:
    of = Compiled.of(model, ranges)
    with pytest.raises(RequestError) as caught:
        simple_tables(of.model, dims)
    return caught.value


def positions(rows: int) -> Model:
    """The leading rows of a table are added to the input."""
    model = Model()
    x = model.input(["rows", 6], "x")
    length = model.node("Gather", [model.node("Shape", [x]), model.ints(0)], axis=0)
    table = model.node("Slice", [model.weight(rows, 6), model.ints(0), length, model.ints(0)])
    model.output(model.node("Add", [x, table]))
    return model


def test_a_decision_of_the_import_that_would_change_is_the_limit() -> None:
    """A table of 9 rows is cut to those of the input: of 10 there would be none."""
    error = refused(positions(9), {"rows": (2, 9)}, {"rows": 10})
    assert (error.code, error.actual, error.limit) == ("extent_out_of_range", 10, "1 to 9")


def test_a_constant_that_has_no_more_elements_is_the_limit() -> None:
    """Of a table of 100 rows nine are in the package."""
    of = Compiled.of(positions(400), {"rows": (2, 9)})
    assert of.model.reach["rows"].high > 9
    with pytest.raises(RequestError, match=r"constant .* has 9 elements along axis 0") as caught:
        simple_tables(of.model, {"rows": 10})
    assert (caught.value.actual, caught.value.limit) == (10, "9")


@pytest.mark.parametrize("profile", ["edge4", "manycore2x64"])
def test_equal_elements_are_as_many_as_wanted_unless_they_lie_on_the_chip_beforehand(profile: str) -> None:
    model = Model()
    x, y = model.input(["n", 8], "x"), model.input(["n", "w"], "y")
    width = model.node("Gather", [model.node("Shape", [y]), model.ints(1)], axis=0)
    shape = model.node("Concat", [model.ints(8), width], axis=0)
    quarter = model.node("ConstantOfShape", [shape], value=numpy_helper.from_array(np.array([0.25], np.float32)))
    model.output(model.node("Add", [model.node("MatMul", [x, quarter]), y]))
    of = Compiled.of(model, {"n": (1, 9), "w": (3, 17)}, profile)
    assert of.misses({"n": 20, "w": 17}) == []
    if profile == "edge4":
        assert of.misses({"n": 5, "w": 60}) == []
        return
    with pytest.raises(RequestError, match=r"constant .* has 17 elements along axis 1") as caught:
        simple_tables(of.model, {"n": 5, "w": 24})
    assert (caught.value.actual, caught.value.limit) == (24, "17")


def test_steps_hold_beyond_the_ranges() -> None:
    model = Model()
    x = model.input(["n", 4, "h", 8], "x")
    model.output(model.relu(model.conv(x, 4, 4)))
    of = Compiled.of(model, {"n": (1, 1)}, dims={"n": 1, "h": {"min": 12, "max": 24, "step": 8}})
    assert str(of.model.ranges["h"]) == "12 to 20 in steps of 8"
    assert of.model.reach["h"].low == 4
    assert of.misses({"h": 44}) == []
    with pytest.raises(RequestError, match="outside its range"):
        of.model.check({"h": 45})


def test_a_package_knows_what_it_serves() -> None:
    of = Compiled.of(convolutions(), RANGES)
    package = read_package(memoryview(of.package()), profile_digest=of.model.profile_digest)
    assert package.model.reach == of.model.reach
    assert builtin_profile("edge4").name == package.model.profile_name
    assert package.model.dims_of_words(["x:1x3x300x8"]) == {"n": 1, "h": 300, "w": 8}
