"""BatchNormalization that computes its statistics, as in convolutions with standardised weights (IMPORT-5)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.replacing import agree, replacement, results
from tests.compiler.ops.calls import Values
from tests.compiler.planning import BY_RULES
from tests.models import Model


def feeds(shape: tuple[int, ...]) -> dict[str, Values]:
    """Random values of the five inputs."""
    random = np.random.default_rng(3)
    vectors = {name: random.uniform(0.5, 2, shape[1]).astype(np.float32) for name in ("s", "b", "m", "v")}
    return {"x": random.standard_normal(shape).astype(np.float32) * 3 + 1, **vectors}


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (1, 6, 7), (5, 2)])
@pytest.mark.parametrize("opset", [15, 18])
def test_statistics_of_the_batch_are_computed_and_the_running_ones_move(shape: tuple[int, ...], opset: int) -> None:
    given = feeds(shape)
    node = helper.make_node(
        "BatchNormalization", list(given), ["y", "mean", "variance"], training_mode=1, momentum=0.75, epsilon=1e-3
    )
    values, _ = results(node, given, opset, ())
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    x = given["x"]
    mean, variance = x.mean(axis=axes), x.var(axis=axes)
    by_channel = [part.reshape(-1, *[1] * (len(shape) - 2)) for part in (mean, variance, given["s"], given["b"])]
    agree(values["y"], (x - by_channel[0]) / np.sqrt(by_channel[1] + 1e-3) * by_channel[2] + by_channel[3])
    agree(values["mean"], 0.75 * given["m"] + 0.25 * mean)
    agree(values["variance"], 0.75 * given["v"] + 0.25 * variance)


@pytest.mark.parametrize("half", ["xsb", "x", "xsbmv"])
def test_statistics_of_halves_are_computed_in_float32(half: str) -> None:
    """Squares of a few hundred leave the range of float16, and a mean of many loses its digits."""
    given = {name: v.astype(np.float16) if name in half else v for name, v in feeds((4, 8, 5, 5)).items()}
    given["x"] = (given["x"] * 100).astype(np.float16)
    node = helper.make_node("BatchNormalization", list(given), ["y", "mean", "variance"], training_mode=1)
    values, _ = results(node, given, 15, ())
    x, axes = given["x"].astype(np.float64), (0, 2, 3)
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    scale, bias = (given[name].astype(np.float64).reshape(-1, 1, 1) for name in "sb")
    assert values["y"].dtype == np.float16
    np.testing.assert_allclose(values["y"], (x - mean) / np.sqrt(variance + 1e-5) * scale + bias, rtol=4e-3, atol=4e-3)
    assert values["variance"].dtype == given["v"].dtype
    expected = 0.9 * given["v"].astype(np.float64) + 0.1 * variance.reshape(-1)
    np.testing.assert_allclose(values["variance"], expected.astype(given["v"].dtype), rtol=2e-3)


def test_results_left_out_between_others_end_no_process() -> None:
    """ONNX Runtime writes the running mean whether it is wanted or not."""
    model = Model(opset=15)
    x = model.input([1, 8, 4, 4])
    vectors = [model.constant(np.full(8, value), dtype=np.float32) for value in (1, 0, 0, 1)]
    y, _, variance = model.nodes_out(
        "BatchNormalization", [x, *vectors], ["y", "", "variance"], training_mode=1, momentum=0.5
    )
    model.output(y)
    model.output(variance)
    report = compile_model(model.data(), builtin_profile("cluster4x4"), BY_RULES).report
    assert report.values.judge is not None
    assert all(found.holds for found in report.values.outputs)


def test_given_statistics_stay_one_op() -> None:
    assert replacement(helper.make_node("BatchNormalization", list("xsbmv"), ["y"]), feeds((2, 3, 4)), 15, ()) is None


def test_weights_that_are_standardised_in_the_model_are_constants_of_the_convolution() -> None:
    """Larger than what is folded to values: a description of the stored weight."""
    model = Model()
    x = model.input([1, 96, 12, 12])
    flat = model.weight(1, 96, 96 * 9)
    vectors = [model.constant(np.full(96, value), dtype=np.float32) for value in (1, 0, 0, 1)]
    standard = model.node("BatchNormalization", [flat, *vectors], training_mode=1)
    model.output(model.node("Conv", [x, model.node("Reshape", [standard, model.ints(96, 96, 3, 3)])]))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Conv"]
