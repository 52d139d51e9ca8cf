"""ReverseSequence as slices, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.profile import builtin_profile
from tests.compiler.frontend.decompose.replacing import results
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph


@pytest.mark.parametrize("axes", [(1, 0), (0, 1)], ids=str)
@pytest.mark.parametrize("lengths", [(5, 5, 5), (3, 3, 3), (1, 4, 4), (0, 1, 5)], ids=str)
def test_rows_are_reversed_as_far_as_their_lengths_say(lengths: tuple[int, ...], axes: tuple[int, int]) -> None:
    batch, time = axes
    shape = [3, 5, 2] if batch == 0 else [5, 3, 2]
    feeds = {"x": np.arange(30, dtype=np.float32).reshape(shape), "n": np.array(lengths)}
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], batch_axis=batch, time_axis=time)
    found, used = results(node, feeds, 10, (1,))
    (expected,) = ReferenceEvaluator(node).run(None, feeds)
    np.testing.assert_array_equal(found["y"], np.asarray(expected))
    assert set(used) <= {"Slice", "Concat", "Identity"}


def test_a_reversed_text_stays_on_the_chip() -> None:
    model = Model(opset=11)
    x = model.relu(model.input([6, 2, 8]))
    model.output(model.relu(model.node("ReverseSequence", [x, model.ints(6, 6)])))
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert all(output.holds for output in values.outputs)
    assert values.checked


def reversed_whole(*shape: int | str) -> Model:
    """A whole text reversed, as TensorFlow's exporter writes it: the length expanded to the batch."""
    model = Model(opset=13)
    x = model.input(shape, "x")
    extents = [model.node("Gather", [model.node("Shape", [x]), model.ints(axis)]) for axis in (0, 1)]
    model.output(model.node("ReverseSequence", [model.relu(x), model.node("Expand", extents)]))
    return model


def test_the_batch_may_vary() -> None:
    model = reversed_whole(6, "n", 8)
    assert not model.graph({"n": 4}).host
    assert not misses(model, {"n": (1, 5)}, count=2)


def test_a_length_that_varies_leaves_it_to_the_host() -> None:
    (host,) = reversed_whole("n", 2, 8).graph({"n": 6}).host.values()
    assert "neither lengths nor the axis that they reverse vary" in host.reason


def test_rows_of_a_text_whose_length_varies_are_left_to_the_host() -> None:
    """Where the text has the length of its rows nothing is left behind them, which no slice says of every extent."""
    model = Model(opset=11)
    model.output(model.node("ReverseSequence", [model.input(["n", 2], "x"), model.ints(3, 3)]))
    (host,) = model.graph({"n": 6}).host.values()
    assert "neither lengths nor the axis that they reverse vary" in host.reason


def test_lengths_have_one_axis() -> None:
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"])
    with pytest.raises(ModelError, match="lengths have one axis"):
        results(node, {"x": np.ones((6, 2), np.float32), "n": np.array([[1], [2]])}, 10, (1,))


def test_lengths_that_are_not_known_leave_it_to_the_host() -> None:
    model = Model(opset=11)
    model.output(model.node("ReverseSequence", [model.input([6, 2, 8]), model.input([2], dtype=7)]))
    assert [host.op_type for host in import_graph(model.data()).host.values()] == ["ReverseSequence"]


@pytest.mark.parametrize("lengths", [(7, 1), (1, 1, 1)], ids=str)
def test_each_row_has_a_length_within_the_time_axis(lengths: tuple[int, ...]) -> None:
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"])
    with pytest.raises(ModelError, match="each row of the batch needs a length"):
        results(node, {"x": np.ones((6, 2), np.float32), "n": np.array(lengths)}, 10, (1,))
