"""Lookups and writes at positions in several axes, with ONNX Runtime's values (IMPORT-5)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from compiler.compile import compile_model
from compiler.errors import ModelError
from compiler.profile import builtin_profile
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


def test_positions_that_are_written_at_run_time_stay_on_the_host() -> None:
    (host,) = import_graph(model_of("ScatterND", [2, 1], [2, 4, 5]).data()).host.values()
    assert "known at compile time" in host.reason


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
