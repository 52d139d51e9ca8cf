"""Tables made beforehand: the best there are for the shapes that are named, run as any others (SHAPE-9, 10, 11)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from compiler.cache_key import routine_key
from compiler.compile import compile_package
from compiler.errors import RequestError
from compiler.frontend.source import opened
from compiler.options import Options, parse_options
from compiler.profile import builtin_profile
from compiler.shapes.direct import run_directly
from compiler.shapes.instance import graph_at
from compiler.shapes.instantiate import instantiate, simple_tables
from compiler.shapes.make_tables import MakeTables
from compiler.shapes.package import read_package, stored_values, write_package
from compiler.shapes.prepared import MAX_RUNS_IN_ALL, PreparedModel, check_prepared, tables_for
from compiler.shapes.table import TableError
from compiler.simulator.inputs import random_inputs
from compiler.simulator.value_check import check_values
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model

RANGES = {"batch": (1, 3), "length": (1, 40)}
SHAPES = [{"batch": 2, "length": 37}, {"batch": 1, "length": 1}]


@cache
def compiled() -> Compiled:
    return Compiled.of(encoder_layer(), RANGES)


def prepared(of: Compiled, *shapes: dict[str, int]) -> PreparedModel:
    dims = {name: {"min": one.low, "max": one.high, "step": one.step} for name, one in of.model.ranges.items()}
    return MakeTables(options=parse_options({"dims": dims, "tables": list(shapes)})).run(of.model)


def test_every_routine_gets_the_best_table_of_each_shape_that_is_named() -> None:
    made = prepared(compiled(), *SHAPES)
    assert [dict(one.dims) for one in made.tables] == SHAPES
    for one in made.tables:
        for table, cycles, simple in zip(
            one.tables, one.simple_cycles, simple_tables(made.model, one.dims), strict=True
        ):
            assert (table is None) == (simple is None)
            if table is not None and simple is not None:
                assert table.kind == "optimised"
                assert table.cost_cycles <= cycles == simple.cost_cycles


def test_a_shape_named_twice_has_tables_once_and_one_that_is_not_named_has_none() -> None:
    made = prepared(compiled(), SHAPES[0], SHAPES[1], SHAPES[0])
    assert [dict(one.dims) for one in made.tables] == SHAPES
    assert tables_for(made.tables, {"length": 37, "batch": 2}) is made.tables[0].tables
    assert tables_for(made.tables, {"batch": 2, "length": 36}) is None


def test_dimensions_that_nothing_depends_on_and_fixed_ones_need_not_be_told_apart() -> None:
    model = Model()
    x = model.input(["rows", "columns"])
    model.input(["others", 2])
    model.output(model.relu(x))
    dims = {"rows": {"min": 1, "max": 9}, "columns": 8, "others": {"min": 1, "max": 4}}
    for shape in ({"rows": 5, "others": 3}, {"rows": 5, "others": 3, "columns": 8}):
        options = parse_options({"dims": dims, "tables": [shape]})
        made = compile_package(model.data(), builtin_profile("edge4"), options)
        assert [dict(one.dims) for one in made.tables] == [{"rows": 5}]


def test_values_by_tables_made_beforehand_are_those_of_the_model() -> None:
    """By the simulated program and by the tables alone, out of a package."""
    of = compiled()
    made = prepared(of, *SHAPES)
    package = read_package(memoryview(b"".join(bytes(p) for p in write_package(of.model, made.tables, of.values))))
    values = stored_values(package.data)
    for dims in SHAPES:
        graph = graph_at(of.model.graph, dims, of.values)
        tables = tables_for(package.tables, dims)
        assert tables is not None
        executable = instantiate(of.model, dims, tables, opened(of.model.graph.source, of.source))
        check = check_values(executable, graph, of.source)
        assert check.has_run
        assert check.holds
        inputs = random_inputs(graph, 1)
        simple = run_directly(package.model, values, inputs)
        for name, array in run_directly(package.model, values, inputs, package.tables).items():
            np.testing.assert_allclose(array, simple[name], rtol=1e-5, atol=1e-6)


def test_the_loader_takes_the_tables_of_the_package() -> None:
    """Tables without calls show that they were taken."""
    of = compiled()
    made = prepared(of, SHAPES[0])
    cut = [None if table is None else replace(table, runs=table.runs[:0]) for table in made.tables[0].tables]
    wrong = replace(made.tables[0], tables=tuple(cut))
    inputs = random_inputs(graph_at(of.model.graph, SHAPES[0], of.values), 1)
    right = run_directly(of.model, of.values, inputs, made.tables)
    lost = run_directly(of.model, of.values, inputs, [wrong])
    assert any(not np.allclose(right[name], lost[name]) for name in right)
    with pytest.raises(TableError):
        check_prepared(of.model, [wrong])


def test_equal_routines_share_their_tables_and_others_do_not() -> None:
    """Alike is what has equal keys: units and costs, not units alone."""
    model = Model()
    x = model.input(["rows", 32])
    for _ in range(3):
        model.output(model.node("MatMul", [x, model.weight(32, 32)]))
    of = Compiled.of(model, {"rows": (1, 64)})
    libraries = of.model.libraries
    assert of.model.alike == (0,) * len(libraries)
    dear = replace(libraries[1], cost=replace(libraries[1].cost, call_cycles=1e6))
    other = replace(of.model, libraries=(libraries[0], dear, libraries[2]))
    assert other.alike == (0, 1, 0)
    assert [routine_key(other, n) == routine_key(other, 0) for n in range(3)] == [True, False, True]
    tables = simple_tables(other, {"rows": 50})
    alone = other.simple_table(1, (50, 32))
    assert alone is not None
    assert tables[1] is not None
    assert tables[1].cost_cycles == alone.cost_cycles > 1e6
    assert tables[0] is tables[2]


def test_tables_of_more_runs_than_a_package_may_hold_are_refused() -> None:
    of = compiled()
    (made,) = prepared(of, SHAPES[0]).tables
    count = MAX_RUNS_IN_ALL + 1
    long = [None if table is None else replace(table, runs=np.repeat(table.runs, count)) for table in made.tables]
    with pytest.raises(ValueError, match=f"more than {MAX_RUNS_IN_ALL}"):
        check_prepared(of.model, [replace(made, tables=tuple(long))])


def test_a_shape_at_which_the_model_is_none_is_refused() -> None:
    model = Model()
    x = model.input(["rows", 6])
    model.output(model.relu(model.node("Reshape", [x, model.ints(-1, 4)])))
    options = parse_options({"dims": {"rows": {"min": 2, "max": 100, "step": 2}}})
    made = compile_package(model.data(), builtin_profile("edge4"), options).model
    every = {"rows": replace(made.ranges["rows"], step=1)}
    wider = replace(made, ranges=every, reach=every)
    with pytest.raises(RequestError) as caught:
        MakeTables(options=Options(tables=({"rows": 5},))).run(wider)
    assert caught.value.code == "illegal_extents"
