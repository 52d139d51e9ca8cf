"""Normalisations over more than a core holds: by element and by mean, only where they have to be (TILE-2)."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.normalisations import SplitNormalisations
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model
from tests.profiles import changed_profile


def split(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile("edge4")
    found = SplitNormalisations(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def instance(height: int | str, width: int | str, *, computed: bool = False, dtype: int = TensorProto.FLOAT) -> Model:
    """An instance normalisation called `wide` of three channels."""
    model = Model()
    x = model.input([2, 3, height, width], "x", dtype)
    scale, bias = model.weight(3), model.weight(3)
    if computed:
        scale = model.node("Add", [model.input([3], "s"), scale])
    if dtype != TensorProto.FLOAT:
        scale, bias = (model.node("Cast", [one], to=dtype) for one in (scale, bias))
    model.output(model.node("InstanceNormalization", [x, scale, bias], name="wide", epsilon=1e-3), dtype)
    return model


def test_an_instance_normalisation_of_a_large_image_is_taken_apart_with_the_same_values() -> None:
    model = instance(300, 310)
    found = split(model.graph())
    kinds = ["ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Sub", "Div", "Mul", "Add"]
    assert [op.kind for op in found.ops] == kinds
    assert {op.origin for op in found.ops} == {("wide",)}
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


@pytest.mark.parametrize("opset", [18, 21])
def test_a_group_norm_of_a_large_image_is_taken_apart_with_the_same_values(opset: int) -> None:
    """IMPORT-8: the mean of a group is that of its channels' means, so no view has more than a value a channel."""
    model = Model(opset=opset)
    x, width = model.input([2, 6, 200, 210], "x"), 6 if opset > 20 else 3
    model.output(
        model.node("GroupNormalization", [x, model.weight(width), model.weight(width)], name="wide", num_groups=3)
    )
    found = split(model.graph())
    mean = ["ReduceMean", "Reshape", "ReduceMean", "Expand", "Reshape"]
    assert [op.kind for op in found.ops] == [*mean, "Sub", "Mul", *mean, "Add", "Sqrt", "Sub", "Div", "Mul", "Add"]
    assert all(found.tensors[op.output].elements == 12 for op in found.ops if op.kind in ("Reshape", "Expand"))
    if opset < 21:  # the harder one: its values have to be spread over channels
        report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
        assert report.values_checked
        assert all(output.holds for output in report.values.outputs)


@pytest.mark.slow
def test_it_has_units_for_images_of_any_size() -> None:
    assert not misses(instance("h", "w"), {"h": (33, 400), "w": (33, 400)}, count=2)


@pytest.mark.slow
def test_scale_and_bias_follow_channels_that_vary() -> None:
    """Both are the leading elements of constants: by slices of as many as there are channels, and by the count."""
    model = Model()
    x = model.input([2, "c", 260, 260], "x")
    channels = model.node("Slice", [model.node("Shape", [x]), model.ints(1), model.ints(2)])
    scale = model.node("Slice", [model.weight(8), model.ints(0), channels])
    bias = model.node("Expand", [model.node("Cast", [channels], to=TensorProto.FLOAT), channels])
    model.output(model.node("InstanceNormalization", [x, scale, bias]))
    assert len(split(model.graph({"c": 5})).ops) > 1
    assert not misses(model, {"c": (1, 5)}, count=1)


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("with_bias", [False, True])
def test_a_layer_normalisation_over_all_but_the_batch_is_taken_apart(with_bias: bool) -> None:
    model = Model(opset=17)
    x = model.input([2, 6, 100, 120], "x")
    parameters = [model.weight(6, 100, 120), model.weight(100, 120)][: 1 + with_bias]
    model.output(model.node("LayerNormalization", [x, *parameters], axis=1))
    assert len(split(model.graph()).ops) == 9 + with_bias
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert all(output.holds for output in report.values.outputs)


def test_what_fits_and_what_cannot_be_taken_apart_are_left() -> None:
    small = instance(90, 90).graph()
    assert split(small) is small
    for model in (instance(400, 400, computed=True), instance(600, 600, dtype=TensorProto.FLOAT16)):
        graph = model.graph()
        assert split(graph) is graph
        with pytest.raises(LimitError) as caught:
            compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
        assert caught.value.node == "wide"


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    ("kind", "shape", "axis", "dims"),
    [
        ("Softmax", [2, 128_256], -1, {}),
        ("LogSoftmax", [2, 128_256], -1, {}),
        ("Softmax", ["n", 70_000, 2], 1, {"n": (1, 3)}),
    ],
)
def test_a_softmax_over_more_than_a_core_holds_is_taken_apart_with_the_same_values(
    kind: str, shape: list[int | str], axis: int, dims: dict[str, tuple[int, int]]
) -> None:
    """As over the words of a large vocabulary."""
    model = Model()
    model.output(model.node(kind, [model.input(shape, "x")], axis=axis, name="wide"))
    found = split(model.graph({name: most for name, (_, most) in dims.items()}))
    last = ["Sub", "Log", "Sub"] if kind == "LogSoftmax" else ["Sub", "Exp", "Div"]
    kinds = ["ReduceMax", "Sub", "Exp", "ReduceSum", *last]
    assert [op.kind for op in found.ops] == kinds
    assert {op.origin for op in found.ops} == {("wide",)}
    if dims:
        assert not misses(model, dims, count=2)
    else:
        report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
        assert report.values_checked
        assert all(output.holds for output in report.values.outputs)


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax", "InstanceNormalization"])
def test_what_statistics_are_taken_of_is_computed_again_and_not_written(kind: str) -> None:
    """Two statistics and the result read the data once each, and the result is written: twice the floor."""
    model = Model()
    parameters = [model.weight(1), model.weight(1)] if kind == "InstanceNormalization" else []
    model.output(model.node(kind, [model.input([1, 1, 200_000]), *parameters]))
    totals = compile_model(model.data(), builtin_profile("edge4")).plan.totals
    assert totals.dram_bytes <= 2.02 * totals.dram_bytes_floor


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("kind", ["Softmax", "LayerNormalization"])
def test_a_prime_number_of_elements_is_normalised_on_the_chip(kind: str) -> None:
    model = Model(opset=17)
    parameters = [model.input([100_003])] if kind == "LayerNormalization" else []
    model.output(model.node(kind, [model.input([1, 100_003]), *parameters]))
    compilation = compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    assert all(output.holds for output in compilation.report.values.outputs)
    assert not [node for segment in compilation.plan.segments for node in segment.host]


def test_a_softmax_of_a_long_row_that_fits_is_left_as_it_is() -> None:
    model = Model()
    model.output(model.node("Softmax", [model.input([4, 50_257])], axis=-1))
    graph = model.graph()
    assert split(graph) is graph


def test_what_lies_between_is_cut_into_segments_where_the_dram_does_not_hold_it_all() -> None:
    model = Model()
    # of a prime length, for exponentials of rows are not written at all
    model.output(model.node("Softmax", [model.input([1, 200_003])], axis=-1))
    compilation = compile_model(model.data(), changed_profile("edge4", dram__capacity_bytes=1_700_000))
    assert len(compilation.plan.segments) == 2
    assert all(output.holds for output in compilation.report.values.outputs)
