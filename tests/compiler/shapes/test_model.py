"""Instances of small networks at random dimensions: values, and what is refused (SHAPE-8, SHAPE-9, SHAPE-11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.compile import compile_shapes
from compiler.errors import InternalError, ModelError, RequestError
from compiler.frontend.source import ModelSource, opened
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.program.errors import ExecutableError
from compiler.shapes.direct import run_directly
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.model import MAX_CHOOSERS
from compiler.shapes.package import read_package, stored_values
from compiler.simulator.inputs import random_inputs
from tests.compiler.shapes.dynamic import Compiled, Ranges, corners_and
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.models import Model

NETWORKS: dict[str, tuple[Callable[[], Model], Ranges]] = {
    "residual": (residual_network, {"batch": (1, 3), "height": (4, 25), "width": (4, 21)}),
    "encoder": (encoder_layer, {"batch": (1, 3), "length": (1, 17)}),
}


@cache
def compiled(name: str, profile: str = "edge4") -> Compiled:
    """A network of the list, compiled once."""
    build, ranges = NETWORKS[name]
    return Compiled.of(build(), ranges, profile)


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize("profile", ["edge4", "cluster4x4"])
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_values_at_any_dimensions_are_those_of_the_model(name: str, profile: str) -> None:
    """Ends of the ranges and in between, by the simulated program and by the tables alone."""
    ranges: Ranges = NETWORKS[name][1]
    of = compiled(name, profile)
    assert [miss for dims in corners_and(ranges, 4) for miss in of.misses(dims)] == []


@settings(max_examples=8)
@given(st.data())
@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_values_at_random_dimensions(name: str, data: st.DataObject) -> None:
    dims = {key: data.draw(st.integers(low, high)) for key, (low, high) in NETWORKS[name][1].items()}
    assert compiled(name).misses(dims, seed=data.draw(st.integers(0, 9))) == []


def test_ops_of_the_host_run_between_tables() -> None:
    model = Model()
    x = model.input(["batch", "length"])
    middle = model.node("Tan", [model.relu(x)])
    model.output(model.node("Softmax", [model.node("Add", [x, middle])], axis=-1))
    of = Compiled.of(model, {"batch": (1, 4), "length": (1, 9)})
    assert of.has_host
    assert [m for dims in corners_and({"batch": (1, 4), "length": (1, 9)}, 3) for m in of.misses(dims)] == []
    with pytest.raises(RequestError, match="runs on the host"):
        run_directly(of.model, of.values, {"x1": np.zeros((1, 1), dtype=np.float32)})


def test_a_dimension_that_nothing_depends_on_need_not_be_given() -> None:
    """Only an input that nothing reads has it, and that one is no input of the graph."""
    model = Model()
    x = model.input(["rows", 8])
    model.input(["others", 2])
    model.output(model.relu(x))
    of = Compiled.of(model, {"rows": (1, 9), "others": (1, 4)})
    assert list(of.model.ranges) == ["rows"]
    executable = instantiate(of.model, {"rows": 5}, simple_tables(of.model, {"rows": 5}), of.source)
    assert [value.shape for value in executable.outputs] == [(5, 8)]
    given = {"x1": np.full((3, 8), 2, dtype=np.float32)}
    (made,) = run_directly(of.model, of.values, given).values()
    assert np.array_equal(made, given["x1"])
    # but may be: the model declares that input
    package = read_package(memoryview(of.package()))
    both = {**given, "x2": np.zeros((7, 2), dtype=np.float32)}
    (made,) = run_directly(package.model, stored_values(package.data), both).values()
    assert np.array_equal(made, given["x1"])
    with pytest.raises(RequestError, match="another number of axes"):
        run_directly(of.model, of.values, {**given, "x2": np.zeros(7, dtype=np.float32)})


def test_an_instance_is_the_same_every_time() -> None:
    of = compiled("encoder")
    dims = {"batch": 2, "length": 7}
    source = opened(of.model.graph.source, of.source)
    first, second = (instantiate(of.model, dims, simple_tables(of.model, dims), source) for _ in range(2))
    for mine, its in zip(first.segments, second.segments, strict=True):
        assert mine.program.commands.tobytes() == its.program.commands.tobytes()  # type: ignore[union-attr]


def test_an_instance_of_a_package_is_that_of_the_model() -> None:
    of = compiled("residual")
    read = read_package(memoryview(of.package()))
    dims = {"batch": 2, "height": 8, "width": 5}
    values = stored_values(read.data)
    mine, its = graph_at(of.model.graph, dims, of.values), graph_at(read.model.graph, dims, values)
    inputs = random_inputs(mine, 3)
    for name, array in run_directly(of.model, of.values, inputs).items():
        np.testing.assert_array_equal(run_directly(read.model, values, inputs)[name], array)
    assert [op.attributes for op in mine.ops] == [op.attributes for op in its.ops]
    assert {name: t.shape for name, t in mine.tensors.items()} == {name: t.shape for name, t in its.tensors.items()}


@pytest.mark.parametrize("dims", [{"batch": 49, "length": 1}, {"batch": 1}, {"batch": 1, "length": 0}])
def test_dimensions_out_of_range_make_no_instance(dims: dict[str, int]) -> None:
    of = compiled("encoder")
    with pytest.raises(RequestError):
        simple_tables(of.model, dims)
    with pytest.raises(RequestError):
        instantiate(of.model, dims, (), opened(of.model.graph.source, of.source))


@pytest.mark.parametrize(
    ("shape", "dtype", "code"),
    [((1, 3), np.int32, "wrong_input"), ((1,), np.int64, "wrong_rank"), ((49, 3), np.int64, "extent_out_of_range")],
)
def test_inputs_that_the_model_does_not_take_are_refused(shape: tuple[int, ...], dtype: type, code: str) -> None:
    of = compiled("encoder")
    with pytest.raises(RequestError) as caught:
        run_directly(of.model, of.values, {"ids": np.zeros(shape, dtype=dtype)})
    assert caught.value.code == code


def test_a_model_that_is_none_at_some_extents_is_refused_with_the_extents() -> None:
    model = Model()
    x = model.input([1, 3, "rows", 8])
    model.output(model.conv(x, 3, 4, 5, pad=0))
    with pytest.raises(ModelError) as caught:
        Compiled.of(model, {"rows": (1, 9)})
    assert caught.value.code == "illegal_extents"
    assert "rows = 1" in caught.value.message
    assert Compiled.of(model, {"rows": (5, 9)}).misses({"rows": 5}) == []


def test_extents_that_no_check_foresaw_are_refused_when_they_are_asked_for() -> None:
    """A graph that says of some extents what cannot be: no instance, and the node is named."""
    model = Model()
    x = model.input(["rows", 6])
    model.output(model.relu(model.node("Reshape", [x, model.ints(-1, 3)])))
    of = Compiled.of(model, {"rows": (1, 9)})
    graph = of.model.graph
    wrong = replace(
        graph,
        tensors={name: replace(t, symbols=()) if name not in graph.inputs else t for name, t in graph.tensors.items()},
    )
    with pytest.raises(RequestError) as caught:
        graph_at(wrong, {"rows": 4}, of.values)
    assert caught.value.code == "illegal_extents"
    assert caught.value.op_type == "Reshape"


def test_tables_of_another_shape_or_of_other_units_make_no_instance() -> None:
    of = compiled("residual")
    dims, other = {"batch": 2, "height": 9, "width": 8}, {"batch": 2, "height": 16, "width": 8}
    source = opened(of.model.graph.source, of.source)
    good = simple_tables(of.model, dims)
    renamed = [None if t is None else replace(t, units=tuple(f"{one}?" for one in t.units)) for t in good]
    for tables in (simple_tables(of.model, other), renamed, [None] * len(good)):
        with pytest.raises(RequestError) as caught:
            instantiate(of.model, dims, tables, source)
        assert caught.value.code == "wrong_table"


def test_a_table_without_calls_makes_no_program_that_is_safe() -> None:
    """Nobody makes what the next routine reads: the proof says so, and lowering does not stumble over it."""
    of = compiled("residual")
    dims = {"batch": 1, "height": 4, "width": 4}
    tables = list(simple_tables(of.model, dims))
    assert tables[0] is not None
    tables[0] = replace(tables[0], runs=tables[0].runs[:0])
    with pytest.raises(InternalError, match="not safe"):
        instantiate(of.model, dims, tables, opened(of.model.graph.source, of.source))


def test_what_is_kept_for_tables_is_bounded() -> None:
    """A sum along an axis that varies: every extent of it has costs of its own."""
    model = Model()
    x = model.input(["rows", 3, "columns"])
    model.output(model.node("CumSum", [x, model.constant(np.int64(2))]))
    of = Compiled.of(model, {"rows": (1, 4), "columns": (1, 3000)})
    for columns in range(1, MAX_CHOOSERS + 100):
        simple_tables(of.model, {"rows": 3, "columns": columns})
    assert len(of.model.choosers) == MAX_CHOOSERS
    assert of.misses({"rows": 3, "columns": 5}) == []


def test_a_damaged_constant_is_found_before_it_is_used() -> None:
    data = bytearray(compiled("encoder").package())
    data[-100] ^= 1
    with pytest.raises(ExecutableError):
        read_package(memoryview(bytes(data)))


def test_a_dimension_of_one_extent_does_not_vary() -> None:
    """A table of positions that depends on it is a constant like any; nothing says that it is known there only."""
    model = Model()
    x = model.input(["batch", "length", 6], "x")
    length = model.node("Gather", [model.node("Shape", [x]), model.ints(1)], axis=0)
    places = model.node("Cast", [model.node("Range", [model.constant(0), length, model.constant(1)])], to=1)
    angles = model.node("Cos", [model.node("Unsqueeze", [places, model.ints(1)])])
    model.output(model.node("Mul", [x, angles]))
    source = ModelSource.from_bytes(model.data())
    options = {"dims": {"batch": {"min": 1, "max": 3}, "length": 4}}
    found = compile_shapes(source, builtin_profile("edge4"), parse_options(options))
    assert list(found.ranges) == ["batch"]
    assert found.inputs[0].extents[1:] == (4, 6)


@pytest.mark.parametrize("index", [-10_000, 10_000])
def test_an_index_outside_of_its_table_names_the_op(index: int) -> None:
    of = compiled("encoder")
    with pytest.raises(
        RequestError, match=rf"an index is outside .*op Gather.* index {index} is out of bounds"
    ) as caught:
        run_directly(of.model, of.values, {"ids": np.array([[0, index, 1]], dtype=np.int64)})
    assert (caught.value.code, caught.value.node is not None) == ("index_out_of_range", True)
