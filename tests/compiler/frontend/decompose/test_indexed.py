"""Lookups and writes at positions in several axes, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.frontend.source import ModelSource
from compiler.profile import builtin_profile
from compiler.simulator.reference import reference_of_graph
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph

INT = 7
DATA = [3, 4, 5]


def model_of(kind: str, positions: Any, updates: list[int] | None, **attributes: Any) -> Model:
    """One such node; `positions`: an array that is known, or the shape of an input."""
    model = Model(opset=18)
    given = [model.input(DATA, "x")]
    given.append(
        model.constant(positions) if isinstance(positions, np.ndarray) else model.input(positions, "positions", INT)
    )
    given += [] if updates is None else [model.input(updates, "updates")]
    model.output(model.node("Neg", [model.node(kind, given, **attributes)]))
    return model


def box(*ends: tuple[int, int]) -> Any:
    """The positions of a box of the data."""
    return np.stack(np.meshgrid(*(np.arange(*end) for end in ends), indexing="ij"), axis=-1).astype(np.int64)


CASES: dict[str, tuple[str, Any, list[int] | None, dict[str, Any]]] = {
    "rows": ("GatherND", np.array([[0, 1], [2, -1]]), None, {}),
    "single elements": ("GatherND", np.array([[[0, 1, 2]], [[-3, 3, -5]]]), None, {}),
    "elements of an axis": ("GatherElements", np.tile(np.array([[3], [-4]]), (3, 1, 5)), None, {"axis": 1}),
    "a row": ("ScatterND", np.array([[1]]), [1, 4, 5], {}),
    "rows in another order": ("ScatterND", np.array([[2], [0]]), [2, 4, 5], {}),
    "a row twice": ("ScatterND", np.array([[2], [2]]), [2, 4, 5], {}),
    "columns": ("ScatterND", box((0, 3), (0, 4), (1, 3)), [3, 4, 2], {}),
    "a box within": ("ScatterND", box((1, 3), (1, 2)), [2, 1, 5], {}),
    "the whole": ("ScatterND", box((0, 3)), [3, 4, 5], {}),
    "every second element": ("ScatterElements", np.tile(np.array([0, 2, -1]), (3, 4, 1)), [3, 4, 3], {"axis": -1}),
    "rows of batches": ("GatherND", np.array([[[1], [-1]], [[0], [3]], [[2], [2]]]), None, {"batch_dims": 1}),
    "one element of each batch": ("GatherND", np.array([[[0], [1], [-5], [4]]] * 3), None, {"batch_dims": 2}),
    "sums": ("ScatterND", np.array([[2], [0]]), [2, 4, 5], {"reduction": "add"}),
    "larger ones": ("ScatterND", box((0, 2), (1, 3)), [2, 2, 5], {"reduction": "max"}),
    "products": ("ScatterElements", np.full((3, 1, 5), -4), [3, 1, 5], {"axis": 1, "reduction": "mul"}),
    "one column": ("ScatterElements", np.full((3, 1, 5), -4), [3, 1, 5], {"axis": 1}),
}


@pytest.mark.parametrize("opset", [9, 10])
@pytest.mark.parametrize("is_known", [True, False])
def test_the_scatter_of_old_models_needs_no_host(opset: int, is_known: bool) -> None:
    model = Model(opset=opset)
    positions = model.constant([[1, 0]], dtype="int64") if is_known else model.input([1, 2], "positions", INT)
    model.output(model.node("Scatter", [model.input([4, 3], "x"), positions, model.input([1, 2], "u")]))
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize("case", CASES)
def test_positions_in_several_axes_are_positions_in_one(case: str) -> None:
    kind, positions, updates, attributes = CASES[case]
    model = model_of(kind, positions.astype(np.int64), updates, **attributes)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def test_a_box_is_written_by_joining_what_lies_around_it() -> None:
    graph = import_graph(model_of("ScatterND", box((0, 3), (1, 3)), [3, 2, 5]).data())
    assert sorted(op.kind for op in graph.ops) == ["Concat", "Neg", "Slice", "Slice"]


def test_a_reduction_at_a_position_that_comes_twice_stays_on_the_host() -> None:
    (host,) = import_graph(
        model_of("ScatterND", np.array([[1], [-2]]), [2, 4, 5], reduction="add").data()
    ).host.values()
    assert "positions differ" in host.reason


AT_RUN_TIME: dict[str, tuple[str, list[int], list[int] | None, dict[str, Any]]] = {
    "elements of an axis": ("GatherElements", [2, 6, 5], None, {"axis": 1}),
    "elements of the first axis": ("GatherElements", [7, 4, 3], None, {}),
    "rows": ("GatherND", [2, 1], None, {}),
    "elements": ("GatherND", [2, 2, 3], None, {}),
    "rows of batches": ("GatherND", [3, 2, 1], None, {"batch_dims": 1}),
    "writes along an axis": ("ScatterElements", [3, 2, 5], [3, 2, 5], {"axis": 1}),
    "sums in a part": ("ScatterElements", [2, 4, 3], [2, 4, 3], {"axis": -1, "reduction": "add"}),
    "written rows": ("ScatterND", [2, 1], [2, 4, 5], {}),
    "the largest": ("ScatterND", [2, 2, 2], [2, 2, 5], {"reduction": "max"}),
}


@pytest.mark.parametrize("case", AT_RUN_TIME)
def test_positions_that_are_known_at_run_time_only_need_no_host(case: str) -> None:
    kind, positions, updates, attributes = AT_RUN_TIME[case]
    data = model_of(kind, positions, updates, **attributes).data()
    assert not import_graph(data).host
    values = compile_model(data, builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize(
    ("kind", "positions", "updates"), [("ScatterElements", [3, 4, 5], [3, 4, 5]), ("ScatterND", [3, 1], [3, 4, 5])]
)
def test_of_two_writes_at_one_position_the_later_counts_and_negative_ones_count_from_the_end(
    kind: str, positions: list[int], updates: list[int]
) -> None:
    model = model_of(kind, positions, updates)
    rows = np.array([-1, 2, 1], dtype=np.int64).reshape(3, *(1,) * (len(positions) - 1))
    given = {
        "x": model.random.standard_normal(DATA).astype(np.float32),
        "positions": np.broadcast_to(rows, positions).copy(),
        "updates": model.random.standard_normal(updates).astype(np.float32),
    }
    graph = import_graph(model.data())
    ours = reference_of_graph(graph, ModelSource.from_bytes(model.data()), given)
    session = onnxruntime.InferenceSession(model.data(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(ours[graph.outputs[0]], session.run(None, given)[0])


@pytest.mark.parametrize(
    ("kind", "positions", "updates"), [("ScatterND", [33, 3], [33]), ("ScatterElements", [33, 4, 5], [33, 4, 5])]
)
def test_many_writes_at_run_time_stay_on_the_host(kind: str, positions: list[int], updates: list[int]) -> None:
    (host,) = import_graph(model_of(kind, positions, updates).data()).host.values()
    assert "at most 32" in host.reason


@pytest.mark.parametrize(
    ("kind", "positions", "updates", "why"),
    [
        ("GatherND", np.array(1), None, "axis of coordinates"),
        ("GatherND", np.array([[0, 1, 2, 0]]), None, "at most one coordinate per axis"),
        ("ScatterND", np.array([[0, 1, 2, 0]]), [1], "at most one coordinate per axis"),
        ("ScatterND", np.array([[0], [1]]), [2, 5, 4], "updates .* of another shape"),
        ("ScatterND", np.array([[0, 1]]), [1, 5, 1], "updates .* of another shape"),
        ("ScatterElements", np.zeros((1, 2, 2)), [2, 2, 1], "updates .* of another shape"),
        ("ScatterElements", np.zeros((1, 2)), [1, 2], "as many axes as the data"),
        ("GatherElements", np.zeros(3), None, "as many axes as the data"),
        ("GatherElements", np.zeros((1, 5, 1)), None, "not be longer than the data on axis 1"),
    ],
)
def test_illegal_positions_and_updates_are_refused_with_their_cause(
    kind: str, positions: Any, updates: list[int] | None, why: str
) -> None:
    with pytest.raises(ModelError, match=why):
        import_graph(model_of(kind, positions.astype(np.int64), updates).data())
