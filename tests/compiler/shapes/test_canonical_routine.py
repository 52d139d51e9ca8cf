"""Routines without names: equal signatures, units and table keys whatever a file calls and orders things (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.cache_key import routine_key, table_key
from compiler.frontend.source import ModelSource
from compiler.shapes.canonical_routine import canonical_routine
from compiler.shapes.extents import Range
from compiler.shapes.model import ShapeModel
from tests.compiler.shapes.dynamic import Compiled, Ranges
from tests.compiler.shapes.dynamic_networks import encoder_layer, residual_network
from tests.models import Model

IMAGES: Ranges = {"batch": (1, 3), "height": (4, 40), "width": (4, 17)}
WORDS: Ranges = {"batch": (1, 2), "length": (1, 40)}


def renamed(model: Model, dims: Mapping[str, str]) -> ModelSource:
    """The same network with other names of dimensions, tensors and nodes."""
    proto = onnx.load_from_string(model.data())
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return names.setdefault(name, f"z{997 - len(names)}") if name else ""

    for value in (*proto.graph.input, *proto.graph.output):
        value.name = other(value.name)
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = dims[dim.dim_param]
    for weight in proto.graph.initializer:
        weight.name = other(weight.name)
    for number, node in enumerate(proto.graph.node):
        node.name = f"op {len(proto.graph.node) - number}"
        node.input[:] = [other(name) for name in node.input]
        node.output[:] = [other(name) for name in node.output]
    return ModelSource.from_bytes(proto.SerializeToString())


def two_branches(*, is_swapped: bool) -> ModelSource:
    """Two convolutions of one input that are added; which one the file lists first changes nothing."""
    random = np.random.default_rng(0)
    weights = [
        helper.make_tensor(f"w{n}", 1, (8, 8, k, k), random.standard_normal(64 * k * k)) for n, k in ((0, 3), (1, 1))
    ]
    branches = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["c"]),
        helper.make_node("Conv", ["x", "w1"], ["b"]),
    ]
    ordered = [branches[2], *branches[:2]] if is_swapped else branches
    nodes = [*ordered, helper.make_node("Add", ["c", "b"], ["y"])]
    shape: list[str | int | None] = [1, 8, "H", "W"]
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", value[:1], value[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return ModelSource.from_bytes(made.SerializeToString())


def table_keys(model: ShapeModel, dims: Mapping[str, int]) -> set[str]:
    """The keys of the tables that a model needs at some dimensions."""
    return {table_key(routine_key(model, n), model.problem(n, dims)) for n in range(len(model.libraries))}


def unit_ids(model: ShapeModel) -> set[str]:
    """The units of all routines of a model."""
    return {one for library in model.libraries for one in library.units.ids}


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    ("model", "ranges", "dims"),
    [
        (residual_network(), IMAGES, {"batch": "A", "height": "Z", "width": "B"}),
        (encoder_layer(), WORDS, {"batch": "x9", "length": "a"}),
    ],
    ids=["images", "encoder"],
)
def test_a_renamed_model_has_the_same_units_and_every_table_of_the_first(
    model: Model, ranges: Ranges, dims: Mapping[str, str]
) -> None:
    first = Compiled.of(model, ranges).model
    second = Compiled(renamed(model, dims), {dims[name]: ends for name, ends in ranges.items()}).model
    assert unit_ids(first) == unit_ids(second)
    for share in (0.0, 0.3, 0.7, 1.0):
        at = {name: low + int(share * (high - low)) for name, (low, high) in ranges.items()}
        assert table_keys(first, at) == table_keys(second, {dims[name]: extent for name, extent in at.items()})


def test_the_order_of_ops_in_a_file_changes_no_unit_and_no_key() -> None:
    ranges = {"H": (4, 30), "W": (4, 50)}
    first, second = (Compiled(two_branches(is_swapped=swapped), ranges).model for swapped in (False, True))
    assert unit_ids(first) == unit_ids(second)
    assert table_keys(first, {"H": 9, "W": 21}) == table_keys(second, {"H": 9, "W": 21})


def test_ranges_of_one_size_class_share_units_and_tables() -> None:
    model = residual_network()
    first = Compiled.of(model, {"batch": (1, 3), "height": (4, 37), "width": (4, 13)}).model
    second = Compiled.of(model, {"batch": (1, 3), "height": (9, 45), "width": (5, 16)}).model
    assert unit_ids(first) == unit_ids(second)
    dims = {"batch": 2, "height": 30, "width": 11}
    assert table_keys(first, dims) == table_keys(second, dims)


def test_other_attributes_types_and_wiring_are_other_signatures() -> None:
    def signature(change: str) -> str:
        model = Model()
        x = model.input([1, 8, "H", "W"], "x")
        if change == "wiring":
            model.output(model.node("Add", [model.relu(x), x]))
        elif change == "kind":
            model.output(model.node("Sub", [x, model.relu(x)]))
        else:
            model.output(model.node("Add", [x, model.node("LeakyRelu", [x], alpha=0.1 if change else 0.2)]))
        graph = Compiled.of(model, {"H": (1, 9), "W": (1, 9)}).model.graph
        ranges = {name: Range(low=1, high=9) for name in ("H", "W")}
        return canonical_routine(graph, range(len(graph.ops)), ranges).signature

    assert len({signature(change) for change in ("", "wiring", "kind", "alpha")}) == 4
    assert signature("") == signature("")


def test_dimensions_that_are_first_met_together_are_told_apart_by_where_they_occur_later() -> None:
    def signature(first: str, second: str) -> str:
        model = Model()
        x = model.input([first, second, 4], "x")
        flat = model.node("Reshape", [x, model.ints(-1, 4)])
        model.output(model.relu(flat))
        graph = Compiled.of(model, {first: (1, 9), second: (1, 20)}).model.graph
        relu = len(graph.ops) - 1
        ranges = {first: Range(low=1, high=9), second: Range(low=1, high=20)}
        return canonical_routine(graph, (relu,), ranges).signature

    assert signature("a", "b") == signature("b", "a")


def test_interchangeable_dimensions_stand_in_the_order_of_the_inputs_in_every_process() -> None:
    """Sets of names are listed in another order in another process: five pairs would all have to agree by chance."""
    for first, second in [("a", "b"), ("b", "a"), ("rows", "columns"), ("x0", "x1"), ("height", "width")]:
        model = Model()
        flat = model.node("Reshape", [model.input([first, second, 4], "x"), model.ints(-1, 4)])
        model.output(model.relu(flat))
        graph = Compiled.of(model, {first: (1, 9), second: (1, 9)}).model.graph
        ranges = {first: Range(low=1, high=9), second: Range(low=1, high=9)}
        relu = len(graph.ops) - 1
        assert canonical_routine(graph, (relu,), ranges).dims == {"d0": first, "d1": second}


def test_a_routine_is_at_the_maxima_of_its_ranges_whatever_shapes_its_graph_says() -> None:
    model = Model()
    model.output(model.relu(model.input(["h", 4], "x")))
    graph = Compiled.of(model, {"h": (1, 50)}).model.graph
    routine = canonical_routine(graph, (0,), {"h": Range(low=1, high=31, step=30)})
    assert {tensor.shape for tensor in routine.graph.tensors.values()} == {(31, 4)}
