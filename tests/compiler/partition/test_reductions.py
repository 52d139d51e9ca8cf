"""Reductions of more than a core holds: axis by axis, only where they have to be, and with the same values (TILE-2)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.reductions import SplitReductions
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model

# 360 KiB of a position's input, where a core of edge4 has 256 KiB.
LARGE = 300
POOLS = {"GlobalAveragePool": ["ReduceMean", "GlobalAveragePool"], "GlobalMaxPool": ["ReduceMax", "GlobalMaxPool"]}
REDUCTIONS = {
    "ReduceL1": ["ReduceL1"] * 2,
    "ReduceL2": ["ReduceL2"] * 2,
    "ReduceLogSum": ["ReduceSum", "ReduceLogSum"],
    "ReduceLogSumExp": ["ReduceLogSumExp"] * 2,
    "ReduceMax": ["ReduceMax"] * 2,
    "ReduceMean": ["ReduceMean"] * 2,
    "ReduceMin": ["ReduceMin"] * 2,
    "ReduceProd": ["ReduceProd"] * 2,
    "ReduceSum": ["ReduceSum"] * 2,
    "ReduceSumSquare": ["ReduceSumSquare", "ReduceSum"],
}


def split(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile("edge4")
    found = SplitReductions(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def reduction(kind: str, extents: list[int], axes: tuple[int, ...], keep: int, dtype: int = TensorProto.FLOAT) -> Model:
    """A reduction called `wide` of an input."""
    model = Model(opset=13)
    x = model.input(extents, "x", dtype)
    if kind == "ReduceLogSum":
        x = model.node("Abs", [x])
    given: dict[str, Any] = {"keepdims": keep, "name": "wide"}
    inputs = [x, model.ints(*axes)] if kind == "ReduceSum" else [x]
    if kind != "ReduceSum":
        given["axes"] = list(axes)
    model.output(model.node(kind, inputs, **given), dtype)
    return model


@pytest.mark.matrix(first=3, rest=5)
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
def test_a_wide_reduction_is_taken_axis_by_axis_with_the_same_values(kind: str, keep: int) -> None:
    model = reduction(kind, [2, LARGE, LARGE], (1, 2), keep)
    found = split(model.graph())
    assert [op.kind for op in found.ops if op.kind != "Abs"] == REDUCTIONS[kind]
    first = next(op for op in found.ops if op.kind != "Abs")
    assert found.tensors[first.output].shape == (2, LARGE, 1)
    # compiling runs the program and compares it with ONNX Runtime
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


@pytest.mark.parametrize("kind", sorted(POOLS))
def test_a_pool_over_all_of_an_image_of_any_size_has_units(kind: str) -> None:
    model = Model()
    x = model.input([1, 6, "h", "w"])
    model.output(model.node(kind, [model.relu(x)]))
    fixed = Model()
    fixed.output(fixed.node(kind, [fixed.input([1, 6, 513, 513])]))
    assert [op.kind for op in split(fixed.graph()).ops] == POOLS[kind]
    assert not misses(model, {"h": (33, 513), "w": (33, 513)}, count=2)


def test_axes_in_the_front_and_three_of_them_are_taken_one_after_another() -> None:
    model = reduction("ReduceMax", [80, 90, 4, 100], (0, 1, 3), 0)
    found = split(model.graph())
    assert [found.tensors[op.output].shape for op in found.ops] == [(80, 90, 4, 1), (4,)]
    compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    longer = reduction("ReduceMax", [300, 301, 4, 100], (0, 1, 3), 0)
    found = split(longer.graph())
    assert [found.tensors[op.output].shape for op in found.ops] == [(300, 301, 4, 1), (300, 1, 4, 1), (4,)]


@pytest.mark.matrix(first=2, rest=5)
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("kind", ["ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceSum"])
def test_an_axis_that_is_too_long_alone_is_seen_as_rows(kind: str, keep: int) -> None:
    model = reduction(kind, [3, 100_000, 2], (1,), keep)
    found = split(model.graph())
    kinds = ["Reshape", *REDUCTIONS[kind], *["Reshape"] * keep]
    assert [op.kind for op in found.ops] == kinds
    assert [found.tensors[op.output].shape for op in found.ops[:2]] == [(3, 250, 400, 2), (3, 250, 1, 2)]
    assert found.tensors[found.outputs[0]].shape == ((3, 1, 2) if keep else (3, 2))
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert all(output.holds for output in report.values.outputs)


@pytest.mark.matrix(first=2, rest=4)
@pytest.mark.parametrize("kind", sorted(REDUCTIONS))
@pytest.mark.parametrize(("extent", "keep"), [(100_003, 1), (2 * 100_003, 0)])
def test_an_axis_of_prime_length_is_cut_in_two_with_the_same_values(kind: str, extent: int, keep: int) -> None:
    model = reduction(kind, [2, 1, extent], (1, 2), keep)
    found = split(model.graph())
    assert "Concat" in [op.kind for op in found.ops]
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_a_mean_of_large_numbers_over_a_prime_axis_stays_within_its_type() -> None:
    model = reduction("ReduceMean", [1, 100_003], (1,), 1, TensorProto.FLOAT16)
    executable = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).executable
    assert executable is not None
    (found,) = run_executable(executable, {"x": np.full((1, 100_003), 49_152, np.float16)}).values()
    np.testing.assert_allclose(np.asarray(found, np.float64), [[49_152.0]], rtol=2e-3)


@pytest.mark.parametrize("kind", sorted(POOLS))
def test_a_pool_over_a_prime_number_of_positions_compiles(kind: str) -> None:
    """Without the cut in two this is refused: a pool is a main op, which the host does not run instead."""
    model = Model()
    model.output(model.node(kind, [model.input([1, 2, 100_003])], name="wide"))
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_parts_of_whole_numbers_have_no_mean() -> None:
    graph = reduction("ReduceMean", [2, 100_003], (1,), 1, TensorProto.INT32).graph()
    assert split(graph) is graph


def test_several_axes_of_which_one_is_too_long() -> None:
    model = reduction("ReduceMax", [3, 4, 100_000], (0, 2), 0)
    found = split(model.graph())
    assert [op.kind for op in found.ops] == ["Reshape", "ReduceMax", "ReduceMax", "Reshape", "ReduceMax"]
    compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    pool = Model()
    pool.output(pool.node("GlobalAveragePool", [pool.input([2, 3, 100_000])]))
    assert [op.kind for op in split(pool.graph()).ops] == ["Reshape", "ReduceMean", "GlobalAveragePool", "Reshape"]
    compile_model(pool.data(), builtin_profile("edge4"), BY_RULES)


def test_what_fits_is_left_as_it_is() -> None:
    for extents in ([2, 16, 16], [2, 90, 90], [64, 120, 130]):
        graph = reduction("ReduceMean", extents, (1, 2), 1).graph()
        assert split(graph) is graph


@pytest.mark.parametrize(
    ("kind", "extents", "dtype"),
    [
        # of integers: results of rows would be cut off
        ("ReduceMean", [2, LARGE, LARGE], TensorProto.INT32),
        ("ReduceL2", [2, LARGE, LARGE], TensorProto.INT32),
        ("ReduceLogSumExp", [2, LARGE, LARGE], TensorProto.INT64),
        # results of rows may be beyond float16 where those of all are not
        ("ReduceSum", [2, 2 * LARGE, LARGE], TensorProto.FLOAT16),
        ("ReduceLogSum", [2, 2 * LARGE, LARGE], TensorProto.FLOAT16),
        ("ReduceProd", [2, 2 * LARGE, LARGE], TensorProto.FLOAT16),
    ],
)
def test_what_axes_one_by_one_do_not_cure_is_left_to_be_refused(kind: str, extents: list[int], dtype: int) -> None:
    model = reduction(kind, extents, (1, 2), 1, dtype)
    graph = model.graph()
    assert split(graph) is graph
    with pytest.raises(LimitError) as caught:
        compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    assert caught.value.node == "wide"


@pytest.mark.parametrize("kind", ["ReduceL1", "ReduceMax", "ReduceSum"])
def test_whole_numbers_are_taken_axis_by_axis_where_rows_are_whole_numbers_too(kind: str) -> None:
    model = reduction(kind, [2, LARGE, LARGE], (1, 2), 1, TensorProto.INT32)
    assert [op.kind for op in split(model.graph()).ops] == REDUCTIONS[kind]
    assert compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values_checked
