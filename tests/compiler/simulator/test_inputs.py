"""Made-up inputs: repeatable, of the right type, and never outside what the graph can take (SIM-1)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from compiler.errors import LimitError, RequestError
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.simulator.indices import LARGEST, index_range
from compiler.simulator.inputs import random_inputs
from compiler.simulator.reference import run_reference
from tests.compiler.frontend.decompose.test_grouped_query import Form
from tests.compiler.test_values import graph_of
from tests.exported import ExportedModel, exported_models
from tests.models import Model

FLOAT, INT, INT32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL


def made(model: Model, seed: int = 0, **dims: int) -> dict[str, Any]:
    """Inputs of a model of our own."""
    return random_inputs(model.graph(dims or None), seed)


def largest_index(graph: Graph, name: str) -> int | None:
    """The largest value of an input that indexes from 0 on; None if it indexes nothing."""
    found = index_range(graph, name)
    assert found is None or found.low == 0
    return None if found is None else found.high


# Repeatable


def test_the_same_seed_gives_the_same_bytes_and_another_one_others() -> None:
    model = Model()
    model.output(model.node("Add", [model.input([2, 3], "x"), model.input([2, 3], "y")]))
    first, again, other = made(model, 5), made(model, 5), made(model, 6)
    assert {n: a.tobytes() for n, a in first.items()} == {n: a.tobytes() for n, a in again.items()}
    assert first["x"].tobytes() != other["x"].tobytes()
    assert first["x"].tobytes() != first["y"].tobytes()


def test_an_input_does_not_depend_on_the_other_inputs_of_the_graph() -> None:
    alone, together = Model(), Model()
    alone.output(alone.relu(alone.input([4], "x")))
    together.output(together.node("Add", [together.input([4], "first"), together.input([4], "x")]))
    assert made(alone)["x"].tobytes() == made(together)["x"].tobytes()


def test_types_and_shapes_are_the_graphs() -> None:
    model = Model()
    types = {
        "f": (FLOAT, np.float32), "h": (TensorProto.FLOAT16, np.float16), "b": (BOOL, np.bool_),
        "i": (INT, np.int64), "j": (INT32, np.int32), "u": (TensorProto.UINT8, np.uint8),
    }  # fmt: skip
    for name, (code, _) in types.items():
        model.output(model.node("Neg" if name in "fhij" else "Identity", [model.input([2, 1, 3], name, code)]), code)
    found = made(model)
    assert {name: (array.dtype, array.shape) for name, array in found.items()} == {
        name: (np.dtype(dtype), (2, 1, 3)) for name, (_, dtype) in types.items() if name in found
    }
    assert set(found) >= set("fhij")


def test_dynamic_dimensions_take_their_maxima_or_what_is_asked_for() -> None:
    model = Model()
    model.output(model.relu(model.input(["batch", 3, "rows"], "x")))
    graph = model.graph({"batch": 4, "rows": 8})
    assert random_inputs(graph, 0)["x"].shape == (4, 3, 8)
    assert random_inputs(graph, 0, dims={"batch": 2})["x"].shape == (2, 3, 8)


def test_floats_are_standard_normal() -> None:
    model = Model()
    model.output(model.relu(model.input([100, 100], "x")))
    x = made(model)["x"]
    assert abs(float(x.mean())) < 0.05
    assert abs(float(x.std()) - 1) < 0.05


@pytest.mark.parametrize(
    ("op_type", "low", "high"),
    [("Log", 0.1, 10), ("Sqrt", 0.1, 10), ("Acos", -1, 1), ("Atanh", -1, 1), ("Acosh", 1, 10), ("Exp", -10, 0)],
)
def test_floats_lie_in_the_domain_of_what_reads_them(op_type: str, low: float, high: float) -> None:
    """Exp, which is defined everywhere, gets negative numbers too."""
    model = Model()
    moved = model.node("Transpose", [model.input([10, 10], "x")], perm=[1, 0])
    model.output(model.node(op_type, [moved]))
    x = made(model)["x"]
    assert low <= x.min() < high
    assert np.isfinite(model.run({"x": x})[0]).all()
    assert bool(x.min() < 0) is (op_type in ("Acos", "Atanh", "Exp"))


def test_no_row_of_a_boolean_mask_is_all_false() -> None:
    model = Model()
    mask = model.input([50, 3], "mask", BOOL)
    model.output(model.node("Where", [mask, model.input([50, 3], "x"), model.constant(np.float32(0))]))
    found = made(model)["mask"]
    assert found.any(axis=-1).all()
    assert not found.all()


def test_bytes_use_their_whole_range() -> None:
    model = Model()
    model.output(model.node("Cast", [model.input([4096], "x", TensorProto.UINT8)], to=FLOAT))
    x = made(model)["x"]
    assert (int(x.min()), int(x.max())) == (0, 255)


# Integers that index


def embedding(rows: int, *, dtype: int = INT) -> tuple[Model, str, str]:
    """A model, its token input and a table."""
    model = Model()
    return model, model.input([2, 40], "tokens", dtype), model.weight(rows, 4)


@pytest.mark.parametrize("rows", [1, 2, 7, 1000, 10**5])
def test_an_index_stays_in_its_table_and_reaches_its_end(rows: int) -> None:
    model, tokens, table = embedding(rows)
    model.output(model.node("Gather", [table, tokens]))
    assert largest_index(model.graph(), "tokens") == min(rows - 1, LARGEST)
    tokens_made = made(model)["tokens"]
    assert tokens_made.min() >= 0
    assert tokens_made.max() < rows
    assert rows == 1 or tokens_made.max() > 0.8 * min(rows, LARGEST) - 1


def test_the_smallest_of_several_tables_bounds_an_index() -> None:
    model, tokens, table = embedding(50)
    model.output(model.node("Gather", [table, tokens]))
    model.output(model.node("Gather", [model.weight(4, 9), tokens], axis=1))
    assert largest_index(model.graph(), "tokens") == 8


@pytest.mark.parametrize(
    ("op_type", "number", "largest"),
    [("Add", 2, 47), ("Sub", 30, 79), ("Mul", 7, 7), ("Mod", 50, LARGEST), ("Mod", 51, 49), ("Min", 49, LARGEST)],
)
def test_integer_arithmetic_on_the_way_to_the_table_moves_the_bound(op_type: str, number: int, largest: int) -> None:
    """Of a table of 50 rows; a remainder by 50 is never outside, one by 51 is as soon as 50 itself comes in.

    Indices from −50 to −1 count from the end.
    """
    model, tokens, table = embedding(50)
    moved = model.node("Cast", [model.node(op_type, [tokens, model.constant(number, dtype=np.int64)])], to=INT32)
    model.output(model.node("Gather", [table, model.node("Transpose", [moved], perm=[1, 0])]))
    assert largest_index(model.graph(), "tokens") == largest


def test_wrapping_of_negative_indices_is_seen_through() -> None:
    """Where(i < 0, i + n, i): no index from 0 on is ever moved."""
    model, tokens, table = embedding(50)
    negative = model.node("Less", [tokens, model.constant(0, dtype=np.int64)])
    wrapped = model.node("Where", [negative, model.node("Add", [tokens, model.ints(50)]), tokens])
    model.output(model.node("Gather", [table, wrapped]))
    assert largest_index(model.graph(), "tokens") == 49


def test_negative_indices_that_are_found_by_comparing_floats_are_seen_through() -> None:
    """TensorFlow's exporter compares integers as floats."""
    model = Model()
    x = model.input([16], "x", INT32)
    below = model.node("Less", [model.node("Cast", [x], to=FLOAT), model.constant(0.0, dtype="float32")])
    wrapped = model.node("Add", [x, model.constant(30, dtype="int32")])
    model.output(model.node("Gather", [model.weight(30, 4), model.node("Where", [below, wrapped, x])]))
    assert largest_index(model.graph(), "x") == 29


def test_indices_that_are_read_out_of_a_table_are_that_tables_values() -> None:
    """The ends of a graph's edges: a row of the input for each end."""
    model = Model()
    edges = model.input([2, 30], "edges", TensorProto.INT64)
    ends = [model.node("Gather", [edges, model.constant(row, dtype="int64")], axis=0) for row in (0, 1)]
    nodes = [model.node("Gather", [model.weight(rows, 4), end]) for rows, end in zip((12, 20), ends, strict=True)]
    model.output(model.node("Add", nodes))
    assert largest_index(model.graph(), "edges") == 11


def test_where_either_branch_may_be_taken_both_bound_the_index() -> None:
    model, tokens, table = embedding(50)
    which = model.input([2, 40], "which", BOOL)
    moved = model.node("Where", [which, model.node("Add", [tokens, model.ints(20)]), tokens])
    model.output(model.node("Gather", [table, moved]))
    assert largest_index(model.graph(), "tokens") == 29


@pytest.mark.parametrize(
    ("op_type", "data", "indices", "attributes", "largest"),
    [
        ("GatherElements", [6, 9], [6, 4], {"axis": 1}, 8),
        ("GatherElements", [6, 9], [3, 9], {"axis": 0}, 5),
        ("GatherND", [6, 9, 3], [4, 2], {}, 5),
        ("GatherND", [4, 9, 3], [4, 1], {"batch_dims": 1}, 8),
    ],
)
def test_indices_of_the_hosts_operators_stay_in_their_tensors(
    op_type: str, data: list[int], indices: list[int], attributes: dict[str, Any], largest: int
) -> None:
    model = Model()
    x, i = model.input(data, "x"), model.input(indices, "i", INT)
    model.output(model.node(op_type, [x, i], **attributes))
    assert largest_index(model.graph(), "i") == largest
    feeds = made(model)
    assert feeds["i"].max() <= largest
    assert run_reference(ModelSource.from_bytes(model.data()), feeds).reason == ""


def test_integers_that_index_nothing_are_flags_counts_or_small_numbers() -> None:
    model = Model()
    flags, counts, numbers = (model.input([1000], name, INT) for name in ("flags", "counts", "numbers"))
    model.output(model.node("Cast", [flags], to=FLOAT))
    model.output(model.node("Identity", [model.node("Add", [numbers, numbers])]), INT)
    model.output(model.node("Unique", [counts]), INT)
    assert [largest_index(model.graph(), name) for name in ("flags", "counts", "numbers")] == [None] * 3
    found = made(model)
    assert set(found["flags"].tolist()) == {0, 1}
    assert set(found["numbers"].tolist()) == set(range(8))
    assert set(found["counts"].tolist()) == {1, 2}


def token_models() -> list[ExportedModel]:
    """Exports with integer inputs, one of each network."""
    found: dict[str, ExportedModel] = {}
    for model in exported_models():
        if any("values_below" in entry for entry in model.inputs.values()):
            found.setdefault(model.network, model)
    return list(found.values())


@pytest.mark.parametrize("dtype", [INT, INT32, BOOL])
def test_rows_of_a_mask_whose_sum_is_compared_with_positions_are_ones_and_then_zeros(dtype: int) -> None:
    """Three tokens come behind a past, so no row counts fewer."""
    model = Model()
    mask, other = model.input([4, 8], "mask", dtype), model.input([3, 40], "other", INT)
    counted = mask if dtype == INT else model.node("Cast", [mask], to=INT)
    total = model.node("ReduceSum", [counted, model.ints(1)], keepdims=1)
    own = model.node("Add", [model.node("Sub", [total, model.ints(3)]), model.constant(np.arange(3))])
    columns = model.constant(np.arange(8).reshape(8, 1, 1))
    model.output(model.node("LessOrEqual", [columns, own]), BOOL)
    model.output(model.node("ReduceSum", [other, model.ints(1)], keepdims=1), INT)
    found = made(model)
    rows = found["mask"].astype(int)
    assert (np.sort(rows)[:, ::-1] == rows).all()
    assert len(set(rows.sum(axis=1))) == 4
    assert set(rows.sum(axis=1)) <= set(range(3, 9))
    assert rows[0].sum() < 8
    assert len(set(found["other"].ravel())) > 2


def test_indices_that_are_also_summed_stay_in_their_table() -> None:
    model, tokens, table = embedding(1)
    total = model.node("ReduceSum", [tokens, model.ints(1)], keepdims=1)
    model.output(model.node("Min", [total, model.ints(9)]), INT)
    model.output(model.node("Gather", [table, tokens]))
    assert set(made(model)["tokens"].ravel()) == {0}


@pytest.mark.parametrize(
    ("form", "low", "high"),
    [
        (Form(lasts=[3, 5], past=3, total=4, turned=16), 0, 3),
        (Form(lasts=[3, 5], past=3, total=4), 0, 3),
        (Form(lasts=[3], queries=3, past=9, total=8, turned=16), 2, 8),
        (Form(lasts=[5, 5], queries=6, past=None), 0, 5),
        (Form(lasts=[5, 5], queries=6, past=None, attributes={"causal": 0}), 0, 5),
    ],
)
def test_what_says_where_keys_end_stays_within_their_places(form: Form, low: int, high: int) -> None:
    found = index_range(form.model().graph(), "lasts")
    assert found is not None
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("model", token_models(), ids=lambda model: str(model.network))
def test_tokens_of_exported_networks_stay_below_what_the_manifest_says(model: ExportedModel) -> None:
    source = ModelSource.from_bytes(model.read())
    found = random_inputs(graph_of(source, model.dims), 1)
    for name, entry in model.inputs.items():
        if name in found and "values_below" in entry:
            assert found[name].min() >= 0
            assert found[name].max() < entry["values_below"]
            assert found[name].max() > 0.8 * entry["values_below"] - 1 or entry["values_below"] == 2
    assert run_reference(source, found, zeros_for_missing=True).has_run


def test_of_joined_indices_each_part_is_bounded() -> None:
    model, tokens, table = embedding(50)
    both = model.node("Concat", [tokens, model.input([2, 8], "others", INT)], axis=1)
    model.output(model.node("Gather", [table, both]))
    assert largest_index(model.graph(), "tokens") == largest_index(model.graph(), "others") == 49


# What cannot be made up


def test_inputs_that_are_too_large_are_refused() -> None:
    model = Model()
    model.output(model.relu(model.input([2**15, 2**15], "x")))
    with pytest.raises(LimitError, match="too large") as caught:
        made(model)
    assert caught.value.actual == "4294967296 bytes"


def test_an_input_that_is_no_tensor_has_to_be_given() -> None:
    model = Model()
    model.inputs.append(helper.make_tensor_sequence_value_info("s", FLOAT, None))
    model.output(model.node("SequenceLength", ["s"]), INT)
    with pytest.raises(RequestError, match="'s'") as caught:
        made(model)
    assert caught.value.actual == "seq(tensor(float))"


def test_text_is_made_up_too() -> None:
    model = Model()
    model.output(model.node("StringConcat", [model.input([3], "t", TensorProto.STRING)] * 2), TensorProto.STRING)
    model.opset = 20
    text = made(model)["t"]
    assert text.shape == (3,)
    assert all(isinstance(word, str) and word for word in text)
