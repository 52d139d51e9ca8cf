"""What is evaluated while lowering, what stays a description, and what is never expanded (IMPORT-2)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler.errors import LimitError, ModelError, TesseraError
from compiler.frontend.constant_values import materialise
from compiler.frontend.fold import FOLD_ELEMENTS, MAX_DERIVATION, symbolic_result
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Constant, Derived, Literal, Splat, Stored
from compiler.ir.graph import Graph
from compiler.ir.symbol import Dim, expression_of
from tests.compiler.execute import same_values
from tests.models import Model, import_graph

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def constant_of(graph: Graph, name: str) -> Constant:
    """The constant behind a tensor."""
    found = graph.tensors[name].constant
    assert found is not None, f"{name} is not constant"
    return found


def refused(model: Model) -> TesseraError:
    """The error that importing gives."""
    with pytest.raises(TesseraError) as caught:
        model.graph()
    assert caught.value.code != "internal_error"
    return caught.value


# Ops of the host


@pytest.mark.parametrize(
    ("build", "kind"),
    [
        (lambda m: m.node("NonZero", [m.ints(0, 3, 0, 5)]), INT),
        (lambda m: m.node("ScatterND", [m.weight(4, 3), m.constant([[2]]), m.weight(1, 3)]), FLOAT),
        (lambda m: m.node("ScatterElements", [m.weight(4), m.ints(2, 0), m.weight(2)], axis=0), FLOAT),
        (lambda m: m.node("GatherND", [m.weight(4, 3), m.constant([[2, 1], [0, 0]])]), FLOAT),
        (lambda m: m.node("GatherElements", [m.weight(4), m.ints(3, 3, 0)], axis=0), FLOAT),
        (lambda m: m.node("Compress", [m.weight(4), m.constant([True, False, True, True])], axis=0), FLOAT),
        (lambda m: m.nodes_out("TopK", [m.weight(7), m.ints(3)], ["best", "places"])[0], FLOAT),
        (lambda m: m.nodes_out("TopK", [m.weight(7), m.ints(3)], ["best", "places"])[1], INT),
        (lambda m: m.node("Tan", [m.weight(5)]), FLOAT),
        (lambda m: m.node("EyeLike", [m.weight(3, 4)], k=1), FLOAT),
        (lambda m: m.node("Det", [m.weight(3, 3)]), FLOAT),
        (lambda m: m.node("IsNaN", [m.constant([1.0, np.nan], dtype=np.float32)]), BOOL),
    ],
)
def test_an_op_of_the_host_on_small_constants_is_evaluated(build: Callable[[Model], str], kind: int) -> None:
    """IMPORT-7: ONNX Runtime evaluates single nodes."""
    model = Model()
    model.output(build(model), kind)
    graph = same_values(model, {})
    assert graph.ops == ()


def test_an_op_of_the_host_on_a_computed_value_is_not() -> None:
    model = Model()
    model.output(model.node("Tan", [model.input([4])], name="tan"))
    assert [op.kind for op in model.graph().ops] == ["Host"]


def test_an_evaluation_that_fails_leaves_the_node_to_the_host() -> None:
    """IMPORT-7: it never refuses a model."""
    model = Model()
    model.output(model.node("GatherND", [model.weight(4), model.ints(9)], name="it"))
    graph = model.graph()
    assert [(op.kind, op.node) for op in graph.ops] == [("Host", "it")]


def test_constants_that_onnx_runtime_refuses_to_compute_with_have_no_value() -> None:
    """The reference evaluator gives one for an index out of range; it is asked only where there is no kernel."""
    model = Model()
    model.output(model.node("GatherElements", [model.weight(2), model.ints(5)], name="it"))
    assert [(op.kind, op.node) for op in model.graph().ops] == [("Host", "it")]


def test_gather_elements_of_constants_of_different_lengths_is_evaluated() -> None:
    """The reference evaluator raises on it, ONNX Runtime gives the values (IMPORT-7)."""
    model = Model()
    positions = model.constant(np.arange(512)[None], dtype=np.int64)
    taken = model.constant(np.arange(128)[None, ::-1], dtype=np.int64)
    gathered = model.node("GatherElements", [positions, taken], axis=1)
    model.output(model.node("Add", [model.input([1, 128], "x", INT), gathered]), INT)
    graph = same_values(model, {"x": np.ones((1, 128), np.int64)})
    assert [op.kind for op in graph.ops] == ["Add"]


def test_a_constant_output_that_has_to_be_computed_whole_is_bounded() -> None:
    """IMPORT-4: doubled 30 times by a file of a few hundred bytes; the error names node, size and limit."""
    model = Model()
    value = model.constant([1.0], dtype=np.float32)
    for number in range(30):
        value = model.node("Concat", [value, value], axis=0, name=f"double{number}")
    model.output(value)
    error = refused(model)
    assert (error.code, error.node, error.limit) == ("tensor_too_large", "double29", f"{2**31} bytes")


def peak_bytes(action: Callable[[], object]) -> int:
    """The most memory that an action holds at once."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.node(
            "GatherND", [m.constant(np.zeros((1, 4096), np.float32)), m.constant(np.zeros((4096, 1), np.int64))]
        ),
        lambda m: m.node("OneHot", [m.ints(*range(4096)), m.constant(4096), m.constant([0, 1], dtype=np.float32)]),
        lambda m: m.node("Tile", [m.constant(np.arange(60_000, dtype=np.float32)), m.ints(200)]),
        lambda m: m.node("Expand", [m.constant(np.arange(60_000, dtype=np.float32)), m.ints(200, 60_000)]),
        lambda m: m.node("Gather", [m.constant(np.arange(4096.0)[None]), m.constant(np.zeros(4096, np.int64))], axis=0),
    ],
)
def test_a_constant_that_grows_is_not_computed_while_importing(build: Callable[[Model], str]) -> None:
    """IMPORT-2, IMPORT-4: each result has 12 to 16 million elements, 48 MB and more."""
    model = Model()
    big = build(model)
    model.output(model.node("ReduceMax", [big], keepdims=0, name="reader"), FLOAT)
    data = model.data()
    assert peak_bytes(lambda: import_graph(data)) < 12_000_000


@pytest.mark.parametrize("kind", [np.int64, np.float32])
def test_a_range_that_is_too_long_to_evaluate_is_left_to_the_host(kind: type) -> None:
    """IMPORT-7: ONNX Runtime runs it."""
    model = Model()
    ends = [model.constant(value, dtype=kind) for value in (0, FOLD_ELEMENTS + 1, 1)]
    model.output(model.node("Range", ends, name="range"), helper.np_dtype_to_tensor_dtype(np.dtype(kind)))
    (op,) = same_values(model.proto()).ops
    assert (op.kind, op.node) == ("Host", "range")


def test_a_range_that_is_too_long_and_varies_is_refused() -> None:
    """The host would make all of it, whatever the extents are."""
    model = Model()
    length = model.node("Squeeze", [model.node("Shape", [model.input(["n"])])])
    model.output(model.node("Range", [model.constant(0), length, model.constant(1)], name="range"), INT)
    with pytest.raises(LimitError) as caught:
        model.graph({"n": 2**20 + 1})
    error = caught.value
    assert (error.code, error.node, error.actual, error.limit) == ("expansion_too_large", "range", 2**20 + 1, 2**20)


@pytest.mark.parametrize(("start", "limit", "step"), [(0, 10, 0), (0, np.inf, 1), (np.nan, 1, 1)])
def test_a_range_without_an_end_is_refused(start: float, limit: float, step: float) -> None:
    """IMPORT-4."""
    model = Model()
    ends = [model.constant(value, dtype=np.float32) for value in (start, limit, step)]
    model.output(model.node("Range", ends, name="range"))
    error = refused(model)
    assert (error.code, error.node) == ("invalid_model", "range")


def test_a_range_known_at_run_time_only_stays_on_the_host() -> None:
    model = Model()
    end = model.input([], "end", INT)
    model.output(model.node("Range", [model.constant(0), end, model.constant(1)], name="range"), INT)
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Host"]
    assert not graph.tensors[graph.outputs[0]].is_known


# Constants and shapes


def test_a_constant_of_a_kind_that_only_the_host_reads_stays_its() -> None:
    model = Model()
    text = model.node("Constant", [], value_string="word", name="word")
    model.output(model.node("StringNormalizer", [model.node("Unsqueeze", [text, model.ints(0)])]), TensorProto.STRING)
    assert {op.kind for op in model.graph().ops} == {"Host"}


@pytest.mark.parametrize(
    ("attributes", "expected", "dtype"),
    [
        ({"value_float": 1.5}, 1.5, "float32"),
        ({"value_floats": [1.5, 2.5]}, [1.5, 2.5], "float32"),
        ({"value_int": 3}, 3, "int64"),
        ({"value_ints": [3, 4]}, [3, 4], "int64"),
        ({"value": helper.make_tensor("t", TensorProto.INT8, [2], [5, 6])}, [5, 6], "int8"),
    ],
)
def test_a_constant_node_gives_its_one_value(attributes: dict[str, Any], expected: Any, dtype: str) -> None:
    model = Model()
    model.output(model.node("Constant", [], **attributes))
    graph = model.graph()
    found = constant_of(graph, graph.outputs[0])
    assert found.dtype == dtype
    assert materialise(found, ModelSource.from_bytes(b"")).tolist() == expected


def test_a_constant_node_without_a_value_is_refused() -> None:
    model = Model()
    model.output(model.node("Constant", [], name="it"))
    assert (refused(model).code, refused(model).node) == ("invalid_model", "it")


def test_the_size_of_an_activation_is_known() -> None:
    model = Model()
    model.output(model.node("Size", [model.relu(model.input([2, 3, 4]))]), INT)
    graph = same_values(model)
    assert graph.ops == ()
    assert graph.folded == ("Relu_0", "Size_1")


def test_a_splat_of_several_values_is_refused() -> None:
    model = Model()
    value = helper.make_tensor("v", FLOAT, [2], [1.0, 2.0])
    model.output(model.node("ConstantOfShape", [model.ints(3)], value=value, name="it"))
    assert (refused(model).code, refused(model).node) == ("invalid_model", "it")


def test_a_splat_of_a_shape_known_at_run_time_only_stays_on_the_host() -> None:
    model = Model()
    model.output(model.node("ConstantOfShape", [model.input([2], dtype=INT)], name="it"))
    assert [op.kind for op in model.graph().ops] == ["Host"]


@pytest.mark.parametrize("kind", [np.int64, np.int32])
def test_constant_division_of_integers_by_zero_is_refused(kind: type) -> None:
    """IMPORT-4: the result would be whatever the machine says."""
    model = Model()
    model.output(
        model.node("Div", [model.constant([4, 2], dtype=kind), model.constant([2, 0], dtype=kind)], name="div")
    )
    error = refused(model)
    assert (error.code, error.node) == ("invalid_model", "div")


# Descriptions


def large(model: Model) -> str:
    """A weight of more elements than are folded."""
    return model.constant(np.arange(512 * 300, dtype=np.float32).reshape(512, 300), "w")


MOVES: dict[str, Callable[[Model, str], str]] = {
    "transpose": lambda m, w: m.node("Transpose", [w], perm=[1, 0]),
    "reshape": lambda m, w: m.node("Reshape", [w, m.ints(300, 512)]),
    "slice": lambda m, w: m.node("Slice", [w, m.ints(3), m.ints(500), m.ints(0)]),
    "cast": lambda m, w: m.node("Cast", [m.node("Cast", [w], to=TensorProto.FLOAT16)], to=FLOAT),
    "scale": lambda m, w: m.node("Mul", [w, m.constant(0.5, dtype=np.float32)]),
    "sum of two": lambda m, w: m.node("Add", [w, m.node("Neg", [w])]),
    "concat": lambda m, w: m.node("Concat", [w, w], axis=0),
}


@pytest.mark.parametrize("move", MOVES)
def test_what_is_computed_from_large_constants_is_described_and_has_their_values(move: str) -> None:
    """IMPORT-2: weights are never copied around; whoever needs the values computes them."""
    model = Model()
    y = MOVES[move](model, large(model))
    model.output(y)
    data = model.data()
    graph = same_values(model, {}, tolerance=1e-3)
    assert graph.ops == ()
    assert isinstance(constant_of(graph, graph.outputs[0]).data, Derived)
    assert peak_bytes(lambda: import_graph(data)) < 400_000


def test_a_description_holds_where_the_weights_lie_not_what_they_are() -> None:
    model = Model()
    y = model.output(MOVES["transpose"](model, large(model)))
    data = constant_of(model.graph(), y).data
    assert isinstance(data, Derived)
    (source,) = data.inputs
    assert isinstance(source.data, Stored)


@pytest.mark.parametrize("length", [MAX_DERIVATION, MAX_DERIVATION + 3])
def test_a_description_is_so_deep_and_no_deeper(length: int) -> None:
    """What goes on from there is computed by the accelerator."""
    model = Model()
    x = large(model)
    for _ in range(length):
        x = model.node("Neg", [x])
    model.output(model.node("MatMul", [model.input([1, 512]), x]))
    kinds = [op.kind for op in model.graph().ops]
    assert kinds == ["Neg"] * (length - MAX_DERIVATION) + ["MatMul"]


@pytest.mark.parametrize("move", ["transpose", "reshape", "slice"])
def test_a_splat_that_is_moved_stays_a_splat(move: str) -> None:
    model = Model()
    value = helper.make_tensor("v", FLOAT, [1], [0.25])
    w = model.node("ConstantOfShape", [model.ints(512, 300)], value=value)
    model.output(MOVES[move](model, w))
    graph = same_values(model, {})
    assert isinstance(constant_of(graph, graph.outputs[0]).data, Splat)


def test_a_single_value_is_held_whatever_it_was_computed_from() -> None:
    """Patterns compare single values."""
    model = Model()
    y = model.node("ReduceMax", [large(model)], keepdims=0)
    model.output(model.node("Mul", [model.input([4]), y], name="mul"))
    graph = same_values(model)
    (op,) = graph.ops
    held = constant_of(graph, op.inputs[1])
    assert (op.kind, held.shape) == ("Mul", ())
    assert isinstance(held.data, Literal)


def test_what_holds_no_elements_is_a_constant() -> None:
    """Legal in ONNX: nothing is computed for it."""
    model = Model()
    x = model.input([2, 4])
    empty = model.node("Slice", [x, model.ints(2), model.ints(2), model.ints(1)])
    model.output(model.node("Concat", [model.relu(x), empty], axis=1))
    graph = model.graph()
    assert graph.tensors[graph.outputs[0]].shape == (2, 4)


# Extents that vary


def symbolic(kind: str, first: list[Any], second: list[Any], result: list[Any]) -> list[str | None] | None:
    """The expressions of a folded result's elements."""
    found = symbolic_result(
        kind,
        [np.array(first, dtype=object), np.array(second, dtype=object)],
        np.array(result),
        lambda arrays: arrays[0],
    )
    return None if found is None else [str(expression_of(item)) for item in found.tolist()]


N = Dim.symbol("n", 12)


@pytest.mark.parametrize(
    ("dividend", "divisor", "result", "expected"),
    [
        (-N, 8, 4, "((-n) % (8))"),
        (-1, N, 11, "n - 1"),
        (0, N, 0, "None"),
        (N - 1, N, 11, "n - 1"),
        (5 - N, 4, 1, "((-n + 1) % (4))"),
    ],
)
def test_a_remainder_with_the_sign_of_its_divisor_is_known_for_any_dividend(
    dividend: Any, divisor: Any, result: int, expected: str
) -> None:
    """Padding to a multiple is (-n) mod 8, and a roll by one starts at (-1) mod n."""
    operands = [np.array([one], dtype=object) for one in (dividend, divisor)]
    found = symbolic_result("Mod", operands, np.array([result]), lambda arrays: arrays[0], fmod=0)
    assert found is not None
    assert str(expression_of(found.item())) == expected


@pytest.mark.parametrize(("kind", "expected"), [("Neg", "n - 20"), ("Abs", "-n + 20")])
def test_the_sign_of_what_varies_is_followed(kind: str, expected: str) -> None:
    below = np.array([20 - N], dtype=object)
    result = np.array([-8 if kind == "Neg" else 8])
    found = symbolic_result(kind, [below], result, lambda arrays: arrays[0])
    assert found is not None
    assert str(expression_of(found.item())) == expected


@pytest.mark.parametrize(
    ("kind", "first", "second", "result", "expected"),
    [
        ("Add", [N, 3], [1, 4], [13, 7], ["n + 1", "None"]),
        ("Sub", [N, 3], [N, N], [0, -9], ["None", "-n + 3"]),
        ("Mul", [N], [2], [24], ["2*n"]),
        ("Div", [N], [4], [3], ["((n) // (4))"]),
        ("Mod", [N], [5], [2], ["((n) % (5))"]),
        # -n is never positive, and rounding towards 0 rounds it up
        ("Div", [-N], [4], [-3], ["-((n) // (4))"]),
        ("Max", [N], [1], [12], ["n"]),
        ("Max", [N + 2], [N], [14], ["n + 2"]),
        # an extent is at most its maximum; below 3 the larger one would be another
        ("Max", [N], [20], [20], ["None"]),
        ("Max", [N], [3], [12], None),
        ("Min", [N], [20], [12], ["n"]),
        ("Min", [N], [3], [3], None),
        ("Equal", [N, N], [-1, N], [False, True], ["None", "None"]),
        ("Equal", [N], [5], [False], None),
        # ONNX rounds towards 0, which is the floor above 0 and not below: 5 - n is on either side
        ("Div", [5 - N], [2], [-3], None),
        # the rule for a remainder of another sign is not Python's: better none than a wrong one
        ("Mod", [5 - N], [4], [-3], None),
        ("Add", [3], [4], [7], ["None"]),
        ("Pow", [N], [2], [144], None),
    ],
)
def test_arithmetic_on_extents_keeps_what_they_stand_for(
    kind: str, first: list[Any], second: list[Any], result: list[Any], expected: list[str] | None
) -> None:
    assert symbolic(kind, first, second, result) == expected


@st.composite
def expressions(draw: st.DrawFn) -> tuple[Model, str]:
    """A model whose output's length is computed from two extents by shape arithmetic."""
    model = Model()
    x = model.input(["a", "b"], "x")
    shape = model.node("Shape", [x])
    known = [model.node("Gather", [shape, model.ints(axis)], axis=0) for axis in (0, 1)]
    for _ in range(draw(st.integers(1, 5))):
        first = draw(st.sampled_from(known))
        kind = draw(st.sampled_from(["Add", "Mul", "Div", "Mod", "Max", "detour"]))
        number = model.ints(draw(st.integers(1, 5)))
        if kind == "detour":
            pair = model.node("Concat", [first, number], axis=0)
            pair = model.node("Reshape", [model.node("Cast", [pair], to=TensorProto.INT32), model.ints(2, 1)])
            pair = model.node("Squeeze", [model.node("Cast", [pair], to=INT), model.ints(1)])
            known.append(model.node("Slice", [pair, model.ints(0), model.ints(1)]))
        elif kind == "Max":
            # the larger of an extent and one that is never larger
            known.append(model.node("Max", [model.node("Add", [first, number]), first]))
        else:
            second = number if kind in ("Div", "Mod") else draw(st.sampled_from([number, *known]))
            known.append(model.node(kind, [first, second]))
    length = model.node("Add", [model.node("Mod", [known[-1], model.ints(61)]), model.ints(1)])
    row = model.node("ConstantOfShape", [length], value=helper.make_tensor("v", FLOAT, [1], [1.0]))
    total = model.node("ReduceSum", [x], keepdims=0)
    return model, model.output(model.node("Mul", [row, total]))


@settings(max_examples=80)
@given(expressions(), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40), st.integers(1, 40))
def test_computed_extents_are_right_at_other_extents(built: tuple[Model, str], a: int, b: int, c: int, d: int) -> None:
    """At the maxima by evaluation, below them by expression; both as an import there says."""
    model, name = built
    maxima, other = {"a": max(a, c), "b": max(b, d)}, {"a": min(a, c), "b": min(b, d)}
    tensor, there = model.graph(maxima).tensors[name], model.graph(other).tensors[name]
    found = [expression.value(other) for _, expression in tensor.symbols] or list(tensor.shape)
    # an extent of at most 1 is 1 everywhere below its maximum, and so needs no symbol
    assert found == list(there.shape)


def test_an_error_on_constants_names_the_node() -> None:
    model = Model()
    model.output(model.node("Reshape", [model.weight(4), model.ints(3)], name="it"))
    with pytest.raises(ModelError) as caught:
        model.graph()
    assert caught.value.node == "it"
