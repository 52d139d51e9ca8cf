"""The measure of values: max |a − b| relative to the root mean square, limits by roundings, exact integers (SIM-1)."""

from __future__ import annotations

from math import inf, sqrt
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.options import Options
from compiler.partition.normalisations import SplitNormalisations
from compiler.partition.positions import SplitPositions
from compiler.partition.reductions import SplitReductions
from compiler.profile import builtin_profile
from compiler.simulator.compare import FLOOR, Comparison, compare, limit_of_type, limits_of, relative_error
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import evaluated, run_reference
from tests.models import Model, import_graph

NAN = float("nan")


def reference(*shape: int, seed: int = 0) -> Any:
    """Random float32 values of root mean square 1."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return values / np.sqrt(np.mean(np.square(values)), dtype=np.float32)


# The measure


def test_the_error_is_the_largest_difference_over_the_root_mean_square_of_the_reference() -> None:
    """rms of (3, 4, 0, 0) is 2.5; the largest difference is 0.5, at the last element."""
    expected = np.array([[3, 4], [0, 0]], np.float32)
    got = expected + np.array([[0.25, 0], [0, -0.5]], np.float32)
    assert compare("t", got, expected) == Comparison(
        tensor="t",
        max_error=0.2,
        limit=1e-4,
        where=(1, 1),
        got=-0.5,
        expected=0.0,
        holds=False,
        differing=2,
        is_relative=True,
    )
    assert relative_error(got, expected) == 0.2


@pytest.mark.parametrize(("factor", "holds"), [(0.9, True), (1.1, False)])
def test_the_limit_in_float32_is_one_in_ten_thousand(factor: float, holds: bool) -> None:
    expected = reference(64, 64).astype(np.float64).astype(np.float32)
    got = expected.copy()
    got[3, 5] += factor * 1e-4
    found = compare("t", got, expected)
    assert found.where == (3, 5)
    assert found.holds is holds
    assert found.limit == FLOOR == 1e-4


def test_an_element_that_is_small_itself_may_be_off_by_the_limit_of_the_whole_tensor() -> None:
    expected = np.array([1000.0, 1e-6], np.float32)
    assert compare("t", np.array([1000.0, 0.05], np.float32), expected).holds
    assert not compare("t", np.array([1000.0, 0.1], np.float32), expected).holds


def test_a_constant_reference_is_measured_by_its_magnitude() -> None:
    expected = np.full(10, 5, np.float32)
    assert compare("t", expected * np.float32(1.00005), expected).holds
    assert not compare("t", expected * np.float32(1.0002), expected).holds


def test_where_the_reference_is_all_zeros_only_zeros_hold() -> None:
    zeros = np.zeros(4, np.float32)
    assert compare("t", -zeros, zeros).holds
    found = compare("t", np.array([0, 0, 1e-30, 0], np.float32), zeros)
    assert (found.holds, found.max_error, found.where) == (False, inf, (2,))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_values_at_the_ends_of_the_range_of_floats_are_measured(scale: float) -> None:
    expected = np.array([1, -2, 3], np.float32) * np.float32(scale)
    assert compare("t", expected, expected).max_error == 0
    assert relative_error(expected * np.float32(1.5), expected) == pytest.approx(1.5 / sqrt(14 / 3), rel=1e-5)


# Infinities and NaN


def test_infinities_and_nan_hold_in_the_same_places_and_count_nothing_in_the_root_mean_square() -> None:
    expected = np.array([1, inf, -inf, NAN], np.float32)
    assert compare("t", expected, expected) == Comparison(
        tensor="t", max_error=0, limit=1e-4, where=(0,), got=1.0, expected=1.0, holds=True, is_relative=True
    )
    assert relative_error(np.array([2, inf, -inf, NAN]), expected) == 1


@pytest.mark.parametrize(
    ("got", "expected"),
    [(NAN, 1.0), (1.0, NAN), (inf, 1.0), (1.0, inf), (-inf, inf), (inf, NAN), (NAN, inf), (3.4e38, inf)],
)
def test_what_is_not_finite_holds_nowhere_else(got: float, expected: float) -> None:
    found = compare("t", np.array([1, got], np.float32), np.array([1, expected], np.float32))
    assert (found.holds, found.max_error, found.where) == (False, inf, (1,))


# Other types


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.int64, np.bool_])
def test_integers_and_booleans_agree_exactly(dtype: Any) -> None:
    expected = np.array([[0, 1, 1]], dtype)
    assert compare("t", expected.copy(), expected).holds
    found = compare("t", np.array([[0, 1, 0]], dtype), expected)
    assert (found.holds, found.limit, found.where, found.got, found.expected) == (False, 0, (0, 2), 0, 1)


def test_large_integers_that_floats_cannot_tell_apart_differ() -> None:
    assert not compare("t", np.array([2**62]), np.array([2**62 + 1])).holds


def test_text_agrees_exactly() -> None:
    expected = np.array(["a", "b"], object)
    assert compare("t", np.array(["a", "b"]), expected).holds
    found = compare("t", np.array(["a", "c"], object), expected)
    assert (found.holds, found.got, found.expected) == (False, "c", "b")


def test_another_type_or_shape_never_holds_and_is_named() -> None:
    expected = np.zeros((2, 3), np.float32)
    found = compare("t", np.zeros((3, 2), np.float32), expected)
    assert (found.holds, found.got, found.expected) == (False, "float32[3, 2]", "float32[2, 3]")
    assert not compare("t", np.zeros((2, 3), np.float16), expected).holds
    assert not compare("t", np.zeros(0, np.float32), np.zeros((0, 2), np.float32)).holds
    assert relative_error(np.zeros((3, 2)), expected) == inf


def test_tensors_without_elements_hold() -> None:
    assert compare("t", np.zeros((0, 2), np.float32), np.zeros((0, 2), np.float32)).holds


def test_a_scalar_has_an_empty_index() -> None:
    found = compare("t", np.float32(2), np.float32(1))
    assert (found.holds, found.where, found.got, found.expected) == (False, (), 2.0, 1.0)


def test_sequences_agree_element_by_element_and_the_worst_is_told() -> None:
    expected = [np.ones(2, np.float32), np.ones(3, np.float32)]
    assert compare("t", [array.copy() for array in expected], expected).holds
    found = compare("t", [expected[0], np.array([1, 2, 1], np.float32)], expected)
    assert (found.holds, found.where, found.got) == (False, (1, 1), 2.0)
    assert not compare("t", expected[:1], expected).holds
    assert not compare("t", expected[0], expected).holds


def test_maps_have_equal_keys_and_values_within_the_limit() -> None:
    expected = [{"cat": 0.25, "dog": 0.75}, {"cat": 0.5, "dog": 0.5}]
    rounded = [{"dog": 0.75 + 1e-7, "cat": 0.25}, {"cat": 0.5, "dog": 0.5}]
    assert compare("t", rounded, expected, limit=1e-4).holds
    found = compare("t", [expected[0], {"cat": 0.5, "dog": 0.6}], expected, limit=1e-4)
    assert (found.holds, found.where, found.got, found.expected) == (False, (1, 1), 0.6, 0.5)
    named = compare("t", {"cat": 1.0}, {"dog": 1.0})
    assert (named.holds, named.got, named.expected) == (False, "map of cat", "map of dog")
    assert not compare("t", np.ones(1), {0: 1.0}).holds
    assert compare("t", {1: "a"}, {1: "a"}).holds


def test_an_empty_optional_equals_only_an_empty_one() -> None:
    assert compare("t", None, None).holds
    assert not compare("t", np.ones(1), None).holds
    assert not compare("t", None, np.ones(1)).holds


# Limits


def test_sequences_and_maps_of_floats_have_the_limit_of_what_they_are_made_of() -> None:
    model = Model()
    y = model.node("MatMul", [model.input([4, 16]), model.weight(16, 8)])
    parts = model.node("SplitToSequence", [y], axis=0)
    lengths = model.node("SplitToSequence", [model.node("Cast", [y], to=TensorProto.INT64)], axis=0)
    model.outputs += [
        helper.make_tensor_sequence_value_info(parts, TensorProto.FLOAT, None),
        helper.make_tensor_sequence_value_info(lengths, TensorProto.INT64, None),
    ]
    limits = limits_of(model.graph())
    assert (limits[parts], limits[lengths]) == (1e-4, 0.0)


def test_the_limit_of_a_type_is_that_of_one_rounding_into_it() -> None:
    assert limit_of_type("float32") == 1e-4
    assert limit_of_type("float16") == 8 * 2**-11
    assert limit_of_type("bfloat16") == 8 * 2**-8
    assert limit_of_type("float64") == 1e-10
    assert limit_of_type("int8") == 0


def test_in_float32_the_limit_grows_only_with_hundreds_of_thousands_of_operations() -> None:
    """9 u² per operation: 16 products of 4096 terms are 65,536 of them, 64 are 262,144, 256 a million."""
    limits = {}
    for count in (16, 64, 256):
        model = Model()
        x = model.input([2, 4096])
        weight = model.node("ConstantOfShape", [model.ints(4096, 4096)])
        for _ in range(count):
            x = model.node("MatMul", [x, weight])
        model.output(x)
        limits[count] = limits_of(model.graph())[x]
    assert limits[16] == limits[64] == 1e-4
    assert limits[256] == pytest.approx(3 * 2**-24 * sqrt(256 * 4096), rel=1e-2)


@pytest.mark.parametrize("kind", ["Softmax", "LayerNormalization", "CumSum"])
def test_a_node_is_judged_as_one_sum_whatever_it_was_cut_into(kind: str) -> None:
    """9 u² for each of 10^6 terms, which the program takes in thousand rows and a runtime one after another."""
    model = Model(opset=17)
    x = model.input([3, 1_000_000])
    others = {"LayerNormalization": [model.weight(1)], "CumSum": [model.constant(1, dtype="int64")]}.get(kind, [])
    model.output(model.node(kind, [x, *others], out="y"))
    graph = model.graph()
    profile = builtin_profile("edge4")
    candidates = SegmentCompilers(profile, Options()).of
    cut = SplitNormalisations(profile=profile, candidates=candidates).run(graph)
    cut = SplitReductions(profile=profile, candidates=candidates).run(
        SplitPositions(profile=profile, candidates=candidates).run(cut)
    )
    assert len(cut.ops) > len(graph.ops)
    expected = pytest.approx(3 * 2**-24 * sqrt(1_000_000), rel=1e-2)
    assert limits_of(graph)["y"] == expected
    assert limits_of(cut)["y"] == expected


def test_the_longest_chain_counts_and_not_the_sum_over_branches() -> None:
    """Three products of 4096 terms in float16: two in a row count, the one beside them does not."""
    model = Model()
    x = model.input([1, 64], dtype=TensorProto.FLOAT16)
    weight = model.constant(np.zeros((64, 64), np.float16))
    row = model.node("MatMul", [model.node("MatMul", [x, weight]), weight])
    beside = model.node("MatMul", [x, weight])
    model.output(model.node("Concat", [row, beside], out="both", axis=1), TensorProto.FLOAT16)
    limits = limits_of(model.graph())
    assert limits["both"] == limits[row] == pytest.approx(8 * 2**-11 * sqrt(2), rel=1e-4)
    assert limits[beside] == pytest.approx(8 * 2**-11, rel=1e-4)


def test_what_only_moves_or_selects_is_not_rounded_and_conversions_are() -> None:
    model = Model()
    x = model.input([4, 4], "x", dtype=TensorProto.FLOAT)
    moved = model.relu(model.node("Transpose", [x], perm=[1, 0]))
    half = model.node("Cast", [moved], to=TensorProto.FLOAT16)
    model.output(model.node("Cast", [half], out="back", to=TensorProto.FLOAT))
    limits = limits_of(model.graph())
    assert limits["x"] == limits[moved] == 1e-4
    # a float32 value that was once a float16 one is as coarse as that
    assert limits[half] == pytest.approx(8 * 2**-11, rel=1e-6)
    assert limits["back"] == pytest.approx(8 * 2**-11, rel=1e-6)


def test_selecting_among_values_that_were_rounded_adds_nothing() -> None:
    """A Relu of the exact input is exact, hence at the floor; one of a sum is as coarse as the sum."""
    model = Model()
    x = model.input([4, 4], "x", dtype=TensorProto.FLOAT16)
    model.output(model.node("Relu", [x], out="exact"), TensorProto.FLOAT16)
    total = model.node("Add", [x, x])
    model.output(model.node("Relu", [total], out="kept"), TensorProto.FLOAT16)
    limits = limits_of(model.graph())
    assert limits["exact"] == 1e-4
    assert limits["kept"] == limits[total] > 3e-3


def test_a_float64_value_that_was_once_float32_is_held_to_the_limit_of_that() -> None:
    model = Model()
    x = model.input([4, 4], "x")
    model.output(model.node("Cast", [model.node("Add", [x, x])], out="wide", to=TensorProto.DOUBLE), TensorProto.DOUBLE)
    assert limits_of(model.graph())["wide"] == 1e-4


def test_integers_keep_limit_zero_whatever_they_come_from() -> None:
    model = Model()
    model.output(model.node("ArgMax", [model.relu(model.input([4, 4]))], out="where", axis=1), TensorProto.INT64)
    assert limits_of(model.graph())["where"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_two_implementations_of_a_float16_network_agree_within_the_limits_and_use_up_a_tenth_of_them(seed: int) -> None:
    """Limits are not looser than needed."""
    half = TensorProto.FLOAT16
    model = Model(seed=seed)
    x = model.input([1, 8, 16, 16], "x", half)
    for layer in range(6):
        weight = model.constant(model.random.standard_normal((8, 8, 3, 3)) / 6, dtype=np.float16)
        y = model.node("Conv", [x, weight], kernel_shape=[3, 3], pads=[1] * 4)
        x = model.relu(model.node("Add", [y, x]) if layer % 2 else y)
    model.output(x, half)
    graph, source = import_graph(model.data()), ModelSource.from_bytes(model.data())
    inputs = random_inputs(graph, seed)
    made = [op.output for op in graph.ops]
    expected = run_reference(source, inputs, wanted=made)
    assert expected.reason == ""
    limits = limits_of(graph)
    found = [compare(n, v, expected.values[n], limit=limits[n]) for n, v in evaluated(graph, source, inputs)]
    assert [c for c in found if not c.holds] == []
    assert max(c.max_error / c.limit for c in found) > 0.1


def test_bfloat16_is_compared_as_the_numbers_that_it_holds() -> None:
    expected = np.array([1, 2, 4], ml_dtypes.bfloat16)
    assert compare("t", np.array([1, 2.015625, 4], ml_dtypes.bfloat16), expected).holds
    found = compare("t", np.array([1, 2.125, 4], ml_dtypes.bfloat16), expected)
    assert (found.holds, found.where, found.got) == (False, (1,), 2.125)
