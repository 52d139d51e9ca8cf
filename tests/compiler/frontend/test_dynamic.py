"""Dynamic dimensions: what a graph says of its tensors at other extents is what importing it at those gives."""

from __future__ import annotations

import json
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import ModelError, RequestError
from compiler.ir.graph import Graph, Tensor
from compiler.option_words import parse_assignments
from compiler.options import DimRange, Options
from tests.models import Model, import_graph

FOLDER = Path(__file__).parents[2] / "data" / "exported"


@cache
def entries() -> dict[str, Any]:
    """The entries of the manifest by file name."""
    files = json.loads((FOLDER / "manifest.json").read_text())["files"]
    return {entry["file"].removesuffix(".onnx"): entry for entry in files}


def lowered(name: str, dims: dict[str, int]) -> Graph:
    """An exported network at the given extents."""
    return import_graph((FOLDER / f"{name}.onnx").read_bytes(), dims)


def at(tensor: Tensor, dims: dict[str, int]) -> tuple[int, ...]:
    """The shape that a tensor claims to have at other extents."""
    symbols = dict(tensor.symbols)
    return tuple(symbols[axis].value(dims) if axis in symbols else size for axis, size in enumerate(tensor.shape))


@pytest.mark.matrix(first=4, rest=8)
@pytest.mark.parametrize("name", sorted(entries()))
def test_shapes_at_other_extents_are_those_of_an_import_there(name: str) -> None:
    """IMPORT-2: symbolic dims are kept as symbols."""
    dims = dict(entries()[name]["dims"])
    # a second choice of maxima, so that no extent hides behind an equal one of the network
    for maxima in (dims, {symbol: extent - (extent > 8) * 5 for symbol, extent in dims.items()}):
        smaller = {symbol: min(extent, maxima[symbol]) for symbol, extent in entries()[name]["other_dims"].items()}
        graph, there = lowered(name, maxima), lowered(name, smaller)
        compared = 0
        for tensor in graph.tensors.values():
            found = there.tensors.get(tensor.name)
            if found is not None and found.is_known and tensor.is_known:
                assert at(tensor, smaller) == found.shape, f"{tensor.name}: {tensor.symbols}"
                compared += 1
        assert compared > len(graph.ops) / 2
        assert graph.dims == dict(sorted(maxima.items()))


def symbols(model: Model, name: str, dims: dict[str, int]) -> dict[int, str]:
    """The axes of a tensor that vary, with their expressions as text."""
    return {axis: str(expression) for axis, expression in model.graph(dims).tensors[name].symbols}


def test_a_strided_convolution_of_a_varying_image_varies_by_formula() -> None:
    model = Model()
    x = model.input(["n", 3, "rows", 8])
    y = model.output(model.conv(x, 3, 4, 3, stride=2))
    assert symbols(model, y, {"n": 2, "rows": 9}) == {0: "n", 2: "((rows + 1) // (2))"}


@pytest.mark.parametrize("mode", ["pytorch_half_pixel", "half_pixel_symmetric"])
def test_a_resize_that_depends_on_an_extent_of_one_samples_as_at_the_maxima(mode: str) -> None:
    """What is unknown at other extents is planned, and verified, as it is at the maxima."""

    def resized(rows: int | str) -> Graph:
        model = Model()
        x = model.input([1, 2, rows, 6])
        smaller = model.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        sizes = model.node("Shape", [x])
        attributes: dict[str, Any] = {"mode": "linear", "coordinate_transformation_mode": mode}
        model.output(model.node("Resize", [smaller, "", "", sizes], **attributes))
        return import_graph(model.data(), {"rows": 9} if rows == "rows" else {})

    varying, fixed = (dict(graph.ops[-1].attributes) for graph in (resized("rows"), resized(9)))
    for name in ("scale", "offset", "divisor"):
        assert varying[name] == fixed[name]


def test_a_reshape_by_computed_shape_varies() -> None:
    """Shape, Gather, Mul, Concat and Reshape are folded, and the result knows what it stands for."""
    model = Model()
    x = model.input(["n", "rows", 6])
    shape = model.node("Shape", [x])
    first, second = (model.node("Gather", [shape, model.ints(axis)], axis=0) for axis in (0, 1))
    target = model.node("Concat", [model.node("Mul", [first, second]), model.ints(-1)], axis=0)
    y = model.output(model.relu(model.node("Reshape", [x, target])))
    assert symbols(model, y, {"n": 2, "rows": 5}) == {0: "((n) * (rows))"}
    assert model.graph({"n": 2, "rows": 5}).tensors[y].shape == (10, 6)


@pytest.mark.parametrize(("kind", "expected", "extent"), [("Prod", "((n) * (rows))", 30), ("Sum", "n + rows", 11)])
def test_a_reduction_of_a_shape_varies(kind: str, expected: str, extent: int) -> None:
    model = Model()
    x = model.input(["n", "rows"])
    count = model.node("ReduceProd", [model.node("Shape", [x])], keepdims=1)
    if kind == "Sum":
        count = model.node("ReduceSum", [model.node("Shape", [x])], keepdims=1)
    row = model.node("ConstantOfShape", [count])
    y = model.output(model.node("Mul", [row, model.node("ReduceMax", [x], keepdims=0)]))
    assert symbols(model, y, {"n": 6, "rows": 5}) == {0: expected}
    assert model.graph({"n": 6, "rows": 5}).tensors[y].shape == (extent,)


def test_a_constant_cut_to_a_varying_length_varies() -> None:
    """Position tables: the slice is a constant, but not of the same length everywhere."""
    model = Model()
    x = model.input([1, "rows", 6])
    length = model.node("Gather", [model.node("Shape", [x]), model.ints(1)], axis=0)
    table = model.node("Slice", [model.weight(1, 16, 6), model.ints(0), length, model.ints(1)])
    y = model.output(model.node("Add", [x, table]))
    for rows in (5, 16):
        assert symbols(model, y, {"rows": rows}) == {1: "rows"}


def test_a_range_up_to_a_varying_length_varies() -> None:
    model = Model()
    x = model.input(["rows"], dtype=7)
    length = model.node("Squeeze", [model.node("Shape", [x])])
    indices = model.node(
        "Range", [model.constant(1), model.node("Add", [length, model.constant(4)]), model.constant(2)]
    )
    y = model.output(
        model.relu(
            model.node("Cast", [model.node("Gather", [x, model.node("Mod", [indices, model.constant(2)])])], to=1)
        )
    )
    found = model.graph({"rows": 8}).tensors[y]
    assert (found.shape, [expression.value({"rows": 7}) for _, expression in found.symbols]) == ((6,), [5])


def test_a_view_that_changes_nothing_at_the_maxima_only_is_an_op() -> None:
    """Elsewhere [n, 4] and [4, n] are different shapes."""
    model = Model()
    x = model.relu(model.input(["n", 4]))
    target = model.node("Concat", [model.ints(4), model.node("Shape", [x], end=1)], axis=0)
    y = model.output(model.node("Reshape", [x, target], name="view"))
    assert symbols(model, y, {"n": 4}) == {1: "n"}
    assert [op.kind for op in model.graph({"n": 4}).ops] == ["Relu", "Reshape"]


def test_what_does_not_vary_has_no_symbols() -> None:
    model = Model()
    x = model.input(["n", 3, 8, 8])
    y = model.output(model.node("ReduceSum", [x, model.ints(0)], keepdims=0))
    assert symbols(model, y, {"n": 4}) == {}


def test_weights_and_later_stages_see_plain_integers() -> None:
    model = Model()
    model.output(model.conv(model.input(["n", 3, 8, 8]), 3, 4))
    graph = model.graph({"n": 3})
    extents = [extent for tensor in graph.tensors.values() for extent in tensor.shape]
    assert all(type(extent) is int for extent in extents)
    for op in graph.ops:
        numbers = [number for _, value in op.attributes if isinstance(value, tuple) for number in value]
        assert all(type(number) in (int, float) for number in numbers)


def test_the_text_of_a_graph_shows_what_varies() -> None:
    model = Model()
    model.output(model.relu(model.input(["n", 4])))
    assert "[N=3 (n),C=4]" in model.graph({"n": 3}).text()


def test_a_name_that_no_input_has_is_refused_with_those_that_they_have() -> None:
    model = Model()
    model.output(model.relu(model.input(["batch", "rows"])))
    with pytest.raises(RequestError) as caught:
        model.graph({"batch": 1, "rows": 2, "columns": 3})
    assert (caught.value.code, caught.value.actual, caught.value.limit) == ("unknown_dim", "columns", "batch, rows")


def test_every_dimension_without_a_maximum_is_named() -> None:
    model = Model()
    model.output(model.node("Add", [model.input(["batch", "rows"], "x"), model.input([None, "rows"], "y")]))
    with pytest.raises(ModelError) as caught:
        model.graph({"rows": 2})
    error = caught.value
    assert (error.code, error.actual) == ("dynamic_dim", "batch, y.0")
    assert "'batch' (input 'x', axis 0); 'y.0' (input 'y', axis 0)" in error.message
    assert error.hint is not None
    assert '"dims": {"batch": 1, "y.0": 1}' in error.hint
    assert error.hint.endswith("--set dims.batch=1 --set dims.y.0=1")


def test_the_hint_for_dimensions_with_unusual_names_can_be_pasted() -> None:
    """IMPORT-10."""
    names = ["past length", "a=b", "it's", "Länge", "plain"]
    model = Model()
    model.output(model.relu(model.input(names, "x")))
    with pytest.raises(ModelError) as caught:
        model.graph({})
    assert caught.value.hint is not None
    words = shlex.split(caught.value.hint.partition("--set ")[2])
    options = parse_assignments(word for word in words if word != "--set")
    assert options.dims == {name: 64 if axis else 1 for axis, name in enumerate(names)}


def test_a_dimension_may_be_given_as_a_range_and_counts_by_its_maximum() -> None:
    """SPEC section 13: dims."""
    model = Model()
    y = model.output(model.relu(model.input(["batch", 4])))
    options = Options(dims={"batch": DimRange(min=2, max=9, step=1)})
    assert model.graph(options.maxima).tensors[y].shape == (9, 4)


def test_an_op_that_cannot_be_empty_is_refused_with_the_dimension_that_is() -> None:
    model = Model()
    model.output(model.node("Conv", [model.input([1, 3, "height", 8]), model.weight(4, 3, 3, 3)]))
    with pytest.raises(ModelError) as caught:
        model.graph({"height": 0})
    assert "--set dims.height=0" in str(caught.value.hint)
    with pytest.raises(ModelError) as caught:
        model.graph({"height": 1})
    assert "without elements" not in str(caught.value.hint)


def test_an_empty_past_leaves_what_comes_after_it() -> None:
    """IMPORT-10: a dimension fixed at 0; the input has no elements, and nothing reads it."""
    model = Model()
    past, new = model.input([1, 2, "past", 4], "past"), model.input([1, 2, "new", 4], "new")
    keys = model.node("Concat", [past, new], axis=2)
    scores = model.node("MatMul", [new, model.node("Transpose", [keys], perm=[0, 1, 3, 2])])
    model.output(model.node("MatMul", [model.node("Softmax", [scores], axis=-1), keys]))
    empty, full = (model.graph({"past": past, "new": 5}) for past in (0, 3))
    assert (empty.inputs, full.inputs) == (("new",), ("past", "new"))
    assert empty.tensors[empty.ops[-1].inputs[1]].shape[-2:] == (5, 4)


def test_extents_that_contradict_each_other_are_named_with_the_op_that_they_do_not_suit() -> None:
    """The request is at fault as likely as the model; without extents the model alone is."""
    model = Model()
    model.output(model.node("Add", [model.input(["n", 4]), model.input(["a row", 4])]))
    with pytest.raises(ModelError) as caught:
        model.graph({"n": 3, "a row": 5})
    hint = str(caught.value.hint)
    assert hint.startswith("Check the extents that the request gives (--set dims.n=3 --set 'dims={\"a row\": 5}')")
    fixed = Model()
    fixed.output(fixed.node("Add", [fixed.input([3, 4]), fixed.input([5, 4])]))
    with pytest.raises(ModelError) as caught:
        fixed.graph()
    assert caught.value.hint == ModelError.default_hint
