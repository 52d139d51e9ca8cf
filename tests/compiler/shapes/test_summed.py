"""Costs by dimensions that the result does not have: those that calls sum over (SHAPE-6)."""

from __future__ import annotations

import pytest

from compiler.ops.op_facts import graph_facts
from compiler.profile import builtin_profile
from compiler.shapes.extents import Range
from compiler.shapes.instance import graph_at
from compiler.shapes.modelled import CallModel
from compiler.shapes.routine import RoutineGeometry
from compiler.shapes.summed import sampled_extents
from tests.compiler.shapes.dynamic import Compiled
from tests.compiler.shapes.dynamic_networks import encoder_layer
from tests.models import Model


def product() -> Compiled:
    """A product that sums over a dynamic dimension."""
    model = Model()
    a, b = model.input(["rows", "depth"], "a"), model.input(["depth", 24], "b")
    model.output(model.node("MatMul", [a, b], name="product"))
    return Compiled.of(model, {"rows": (1, 48), "depth": (1, 256)})


def test_a_problem_is_the_results_shape_and_what_is_summed_over() -> None:
    of = product()
    (library,) = of.model.libraries
    assert library.summed == ("depth",)
    problem = of.model.problem(0, {"rows": 7, "depth": 90})
    assert problem == (7, 24, 90)
    assert of.model.result_shape(0, problem) == (7, 24)


@pytest.mark.parametrize("depth", [1, 4, 16, 64, 256])
def test_costs_at_a_sampled_extent_are_those_of_the_graph_there(depth: int) -> None:
    of = product()
    (library,) = of.model.libraries
    cost = of.model.cost_at(0, (48, 24, depth))
    there = graph_facts(graph_at(of.model.graph, {"rows": 48, "depth": depth}, of.values))
    model = CallModel(RoutineGeometry(there, library.routine.ops), builtin_profile("edge4"))
    for tile in library.tiles:
        lengths = [tile[axis] for axis in library.routine.tiled]
        tabulated, asked = cost.work_cycles(lengths, 0) - cost.call_cycles, model.compute_cycles(tile)
        if depth == 1:  # ratios of the reference tile do not hold for tiles of two columns: these are priced too high
            assert asked <= tabulated <= 4 * asked
        else:
            assert tabulated == pytest.approx(asked, rel=0.02)
        for name, operand in zip(model.moved, cost.operands, strict=True):
            assert operand.cycles(lengths) - operand.start_cycles == pytest.approx(model.move_cycles(name, tile))


def test_costs_between_the_samples_lie_between_theirs() -> None:
    of = product()
    by_depth = [of.model.cost_at(0, (48, 24, depth)).compute_cycles for depth in range(1, 257)]
    assert by_depth == sorted(by_depth)
    assert by_depth[0] < by_depth[99] < by_depth[255]


def test_tables_for_little_to_sum_are_chosen_and_priced_for_that() -> None:
    of = product()
    short, long = (of.model.simple_table(0, of.model.problem(0, {"rows": 48, "depth": depth})) for depth in (2, 256))
    assert short is not None
    assert long is not None
    assert short.cost_cycles < long.cost_cycles / 4


def test_a_routine_whose_result_shows_all_that_varies_sums_over_nothing() -> None:
    model = Model()
    x = model.input(["n", 3, "h", 16], "x")
    model.output(model.relu(model.conv(x, 3, 8, 3)))
    of = Compiled.of(model, {"n": (1, 4), "h": (5, 40)})
    assert [library.summed for library in of.model.libraries] == [()]


def test_of_very_long_dimensions_costs_are_those_of_the_maximum() -> None:
    """x is read along its longest axis in steps, so that what is summed over is short."""
    model = Model()
    x = model.input(["rows", "long"], "x")
    cut = model.node("Slice", [x, model.ints(0), model.ints(2**31), model.ints(1), model.ints(1 << 17)])
    model.output(model.node("ReduceSum", [cut, model.ints(1)], keepdims=0))
    found = [
        Compiled.of(model, {"rows": (1, 8), "long": (1, high)}, verify="none").model for high in (1 << 20, 1 << 21)
    ]
    assert [[library.summed for library in one.libraries][-1] for one in found] == [("long",), ()]


def test_attention_sums_over_the_length() -> None:
    of = Compiled.of(encoder_layer(), {"batch": (1, 3), "length": (1, 64)})
    assert {name for library in of.model.libraries for name in library.summed} == {"length"}
    assert of.misses({"batch": 2, "length": 9}) == []


def test_extents_at_which_a_table_is_read_by_rows_are_no_samples_of_reading_it_whole() -> None:
    """Forty rows of a table of six are more than the table, three are less; a call makes all of them."""
    model = Model()
    ids = model.input(["length"], "ids", dtype=7)
    rows = model.node("Gather", [model.weight(6, 8), ids], axis=0)
    model.output(model.node("CumSum", [rows, model.constant(0)]))
    of = Compiled.of(model, {"length": (3, 40)})
    (library,) = of.model.libraries
    assert library.summed == ("length",)
    assert [miss for length in (3, 7, 40) for miss in of.misses({"length": length})] == []


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (Range(low=1, high=1, step=1), []),
        (Range(low=1, high=256, step=1), [64, 16, 4, 1]),
        (Range(low=3, high=4096, step=5), [1023, 253, 63, 13, 3]),
        (Range(low=100, high=120, step=10), [100]),
    ],
)
def test_samples_are_extents_of_the_range(one: Range, expected: list[int]) -> None:
    assert sampled_extents(one) == expected
    assert all((extent - one.low) % one.step == 0 for extent in expected)
