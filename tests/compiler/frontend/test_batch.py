"""Option batch: a model for one image becomes one for several, or the op that mixes images is named (TILE-6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto

from compiler.errors import LimitError, RequestError
from compiler.frontend.batch import Rebatch
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.source import ModelSource
from compiler.ir.box import same
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops.elementwise import Vector
from compiler.ops.op_facts import graph_facts
from compiler.options import Options, parse_options
from compiler.pipeline import build_pipeline
from compiler.profile import builtin_profile
from tests.compiler.execute import execute
from tests.exported import ExportedModel, exported_models
from tests.models import LIGHT_NAMES, Model, error_of, import_graph, light_path, light_source

BATCH = 16
EXPORTED = {model.file: model for model in exported_models()}
# What the exported networks have that mixes images, by the op that is named.
MIXING = {"centernet": "TopK", "gru_tagger": "GRU", "lstm_tagger": "LSTM"} | dict.fromkeys(
    ("swin", "translator", "vit"), "Transpose"
)
VALUED = (
    "gpt2_dynamo.onnx",
    "keyword_torchscript.onnx",
    "quantised_resnet_torchscript.onnx",
    "unet_bilinear_dynamo.onnx",
)


def recognised(data: bytes, dims: dict[str, int] | None = None) -> Graph:
    """The graph as the pass gets it."""
    graph = RecognisePatterns(source=ModelSource.from_bytes(data)).run(import_graph(data, dims))
    verify_graph(graph)
    return graph


def rebatched(graph: Graph, batch: int = BATCH) -> Graph:
    """The graph for a batch, verified."""
    made = Rebatch(batch=batch).run(graph)
    verify_graph(made)
    return made


def types_of(graph: Graph) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and element type of every tensor."""
    return {name: (tensor.shape, tensor.dtype) for name, tensor in graph.tensors.items()}


def refusal(graph: Graph, batch: int = BATCH) -> RequestError:
    """The error that the pass ends in."""
    with pytest.raises(RequestError) as caught:
        Rebatch(batch=batch).run(graph)
    assert caught.value.code == "batch_not_possible"
    return caught.value


def for_one_image(model: ExportedModel) -> tuple[bytes, dict[str, int]]:
    """An exported network with its dynamic batch fixed at 1, and its other dynamic dimensions."""
    proto = onnx.load_from_string(model.read())
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param == "batch":
                dim.dim_value = 1
    dims = {name: extent for name, extent in model.dims.items() if name != "batch"}
    return bytes(proto.SerializeToString()), dims


def test_no_batch_and_the_batch_that_a_model_has_leave_the_graph_alone() -> None:
    graph = recognised(light_path("squeezenet").read_bytes())
    assert Rebatch().run(graph) is graph
    assert Rebatch(batch=1).run(graph) is graph
    made = rebatched(graph, 4)
    assert Rebatch(batch=4).run(made) is made


@pytest.mark.parametrize("name", LIGHT_NAMES)
def test_work_of_a_light_model_grows_with_the_batch_and_its_weights_do_not(name: str) -> None:
    graph = recognised(light_path(name).read_bytes())
    before, after = graph_facts(graph), graph_facts(rebatched(graph))
    assert [BATCH * op.total_macs for op in before.ops] == [op.total_macs for op in after.ops]
    everything = range(len(graph.ops))
    assert before.weight_bytes(everything) == after.weight_bytes(everything)
    activations = [name for name, tensor in graph.tensors.items() if tensor.constant is None]
    assert all(BATCH * before.tensor_bytes(name) == after.tensor_bytes(name) for name in activations)


@pytest.mark.parametrize("name", ["resnet50", "squeezenet", "inception_v1"])
@pytest.mark.parametrize("batch", [2, 5])
def test_a_rewritten_light_model_equals_the_import_of_one_that_was_edited(name: str, batch: int) -> None:
    proto = onnx.load(str(light_path(name)))
    graph = recognised(proto.SerializeToString())
    value = next(value for value in proto.graph.input if value.name == graph.inputs[0])
    value.type.tensor_type.shape.dim[0].dim_value = batch
    # its author wrote the batch into the targets of reshapes and into what the file says of its values
    del proto.graph.value_info[:]
    for output in proto.graph.output:
        output.type.tensor_type.ClearField("shape")
    for tensor in proto.graph.initializer:
        if tensor.data_type == TensorProto.INT64 and tensor.name in _targets(proto):
            target = onnx.numpy_helper.to_array(tensor).copy()
            target[0] = batch if target[0] == 1 else target[0]
            tensor.CopyFrom(onnx.numpy_helper.from_array(target, tensor.name))
    expected = recognised(proto.SerializeToString())
    made = rebatched(graph, batch)
    assert types_of(made) == types_of(expected)
    assert made.ops == expected.ops


def _targets(proto: onnx.ModelProto) -> set[str]:
    return {node.input[1] for node in proto.graph.node if node.op_type == "Reshape"}


@pytest.mark.matrix(first=18, rest=18)
@pytest.mark.parametrize("model", EXPORTED.values(), ids=EXPORTED)
def test_an_exported_network_is_rewritten_as_its_own_dynamic_batch_or_names_what_mixes_images(
    model: ExportedModel,
) -> None:
    data, dims = for_one_image(model)
    graph = recognised(data, dims)
    if model.network in MIXING:
        error = refusal(graph)
        assert error.op_type == MIXING[model.network]
        assert error.node in {node for op in graph.ops for node in op.origin}
        return
    made = rebatched(graph)
    expected = recognised(model.read(), {**dims, "batch": BATCH})

    def shapes(found: Graph) -> list[object]:
        return [(op.kind, found.tensors[op.output].shape) for op in found.ops]

    assert shapes(made) == shapes(expected)
    assert [made.tensors[name].shape for name in made.outputs] == [
        expected.tensors[name].shape for name in expected.outputs
    ]
    assert made.dims == graph.dims


@pytest.mark.parametrize("file", VALUED)
def test_several_images_at_once_have_the_values_of_each_alone(file: str) -> None:
    """The first has rows of all images in one axis, the third quantised weights, the last ones skips and resizing."""
    model, images = EXPORTED[file], 3
    data, dims = for_one_image(model)
    graph, source = recognised(data, dims), ModelSource.from_bytes(data)
    feeds = [
        {name: value[:1] for name, value in replace(model, dims={**model.dims, "batch": 1}).feeds(seed).items()}
        for seed in range(images)
    ]
    alone = [execute(graph, source, feed) for feed in feeds]
    stacked = {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}
    together = execute(rebatched(graph, images), source, stacked)
    for position, found in enumerate(together):
        expected = np.concatenate([values[position] for values in alone])
        assert not np.array_equal(expected[0], expected[1])
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_constant_joined_to_every_image_is_repeated_for_each() -> None:
    """A class token, before a transformer's patches."""
    model = Model(seed=1)
    x = model.input([1, 4, 8], "x")
    token = model.weight(1, 1, 8)
    model.output(model.node("Concat", [token, x, token], axis=1, name="join"))
    graph = model.graph()
    made = rebatched(graph, 3)
    assert [op.kind for op in made.ops] == ["Expand", "Concat"]
    assert {op.origin for op in made.ops} == {("join",)}
    images = model.random.standard_normal((3, 4, 8)).astype(np.float32)
    (found,) = execute(made, ModelSource.from_bytes(model.data()), {"x": images})
    for image, value in zip(images, found, strict=True):
        np.testing.assert_array_equal(value, model.run({"x": image[None]})[0][0])
    assert graph_facts(made).weight_bytes(range(2)) == graph_facts(graph).weight_bytes(range(1))


def test_rows_of_an_image_may_lie_beside_those_of_others_between_two_views() -> None:
    model = Model(seed=1)
    x = model.input([1, "rows", 8], "x")
    rows = model.node("Reshape", [x, model.ints(-1, 8)])
    product = model.node("Gemm", [rows, model.weight(8, 4), model.weight(4)])
    model.output(model.node("Reshape", [product, model.ints(1, -1, 4)]))
    made = rebatched(model.graph({"rows": 6}), 3)
    assert [made.tensors[op.output].shape for op in made.ops] == [(18, 8), (18, 4), (3, 6, 4)]
    assert dict(made.ops[0].attributes)["shape"] == (18, 8)
    assert [str(expression) for _, expression in made.tensors[made.ops[1].output].symbols] == ["3*rows"]
    assert made.dims == {"rows": 6}


def _on_rows(model: Model, x: str, build: Callable[[str], str]) -> str:
    """What is built on the rows of x, 8 of an image, brought back to one image."""
    return model.node("Reshape", [build(model.node("Reshape", [x, model.ints(8, 6)])), model.ints(1, -1)])


# Each builds an op that mixes images, or a value without an image axis, from x of 1 × 8 × 6.
Build = Callable[[Model, str], str]
REFUSED: dict[str, tuple[Build, str]] = {
    "a moved image axis": (lambda m, x: m.node("Transpose", [x], perm=[1, 0, 2], name="bad"), "Transpose"),
    "a reduction": (lambda m, x: m.node("ReduceMean", [x], axes=[0, 2], name="bad"), "ReduceMean"),
    "a lost axis": (lambda m, x: m.node("ReduceMax", [x], axes=[0, 1], keepdims=0, name="bad"), "ReduceMax"),
    "a softmax over images": (lambda m, x: m.node("Softmax", [x], axis=0, name="bad"), "Softmax"),
    "a running sum": (lambda m, x: m.node("CumSum", [x, m.ints(0)], name="bad"), "CumSum"),
    "a joined image": (lambda m, x: m.node("Concat", [x, m.weight(1, 8, 6)], axis=0, name="bad"), "Concat"),
    "a chosen image": (lambda m, x: m.node("Gather", [x, m.ints(0)], axis=0, name="bad"), "Gather"),
    "images turned round": (
        lambda m, x: m.node("Slice", [x, m.ints(-1, 0), m.ints(-9, 4), m.ints(0, 2), m.ints(-1, 1)], name="bad"),
        "Slice",
    ),
    "padding between images": (
        lambda m, x: m.node("Pad", [x, m.ints(0, 0, 0, 1, 0, 0)], name="bad"),
        "Pad",
    ),
    "several constants": (lambda m, x: m.node("Add", [x, m.weight(5, 8, 6)], name="bad"), "Add"),
    "an aligned axis that is none": (
        lambda m, x: m.node("Add", [m.node("Reshape", [x, m.ints(1, 48)]), m.weight(1, 3, 48)], name="bad"),
        "Add",
    ),
    "a constant on the left": (
        lambda m, x: m.node("MatMul", [m.weight(1, 8), m.node("Reshape", [x, m.ints(8, 6)])], name="bad"),
        "MatMul",
    ),
    "a transposed factor": (
        lambda m, x: m.node("Gemm", [m.node("Reshape", [x, m.ints(1, 48)]), m.weight(1, 1)], transA=1, name="bad"),
        "Gemm",
    ),
    "an image as the weight": (
        lambda m, x: m.node("MatMul", [m.weight(1, 1, 2, 8), m.node("Reshape", [x, m.ints(1, 8, 6)])], name="bad"),
        "MatMul",
    ),
    "no axis at all": (lambda m, x: m.node("ReduceMax", [x], keepdims=0, name="bad"), "ReduceMax"),
    "a constant for each row": (
        lambda m, x: _on_rows(m, x, lambda rows: m.node("Add", [rows, m.weight(8, 6)], name="bad")),
        "Add",
    ),
    "a constant beside each row": (
        lambda m, x: _on_rows(m, x, lambda rows: m.node("Concat", [rows, m.weight(8, 2)], axis=1, name="bad")),
        "Concat",
    ),
    "some rows of an image": (
        lambda m, x: _on_rows(
            m, x, lambda rows: m.node("Slice", [rows, m.ints(0, 1), m.ints(4, 3), m.ints(0, 1)], name="bad")
        ),
        "Slice",
    ),
    "rows of an image as an output": (lambda m, x: m.node("Squeeze", [x], name="bad"), "Reshape"),
    "an op of the host": (lambda m, x: m.node("NonZero", [x], name="bad"), "NonZero"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_an_op_that_mixes_images_is_named(case: str) -> None:
    build, op_type = REFUSED[case]
    model = Model(seed=2)
    model.output(build(model, model.input([1, 8, 6], "x")))
    error = refusal(model.graph())
    assert (error.node, error.op_type, error.stage) == ("bad", op_type, "rebatch")
    assert error.actual is not None
    assert error.hint


def test_a_constant_along_the_image_axis_is_named() -> None:
    model = Model(seed=2)
    x = model.node("Reshape", [model.input([1, 8], "x"), model.ints(8, 1)])
    table = model.constant(np.ones((8, 3), dtype=np.float32), "table")
    model.output(model.node("Reshape", [model.node("Concat", [x, table], axis=1), model.ints(1, -1)]))
    assert "'table', which all images share" in refusal(model.graph()).message


def test_an_op_that_reads_a_second_axis_along_the_images_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """No definition has such boxes today; one that gets them is not rewritten."""
    model = Model()
    model.output(model.relu(model.input([1, 8], "x"), "bad"))
    graph = model.graph()
    rebatched(graph)
    monkeypatch.setattr(Vector, "access", lambda *_: ((same(0), same(0)),))
    error = refusal(graph)
    assert (error.node, error.op_type) == ("bad", "Relu")
    assert "another axis of input 'x'" in error.message


def test_an_input_that_is_not_one_image_is_named() -> None:
    model = Model()
    images, table = model.input([1, 8], "images"), model.input([4, 8], "table")
    model.output(model.node("Add", [images, table]))
    error = refusal(model.graph())
    assert "'table'" in error.message
    assert error.actual == "(4, 8)"


def test_a_batch_that_divides_another_is_no_reason_to_rewrite() -> None:
    model = Model()
    model.output(model.relu(model.input([4, 8], "x")))
    assert refusal(model.graph(), 16).limit == "leading extent 1"


def test_an_input_without_axes_is_named() -> None:
    model = Model()
    model.output(model.node("Mul", [model.input([1, 8], "x"), model.input([], "scale")]))
    assert "'scale'" in refusal(model.graph()).message


def test_a_dynamic_batch_is_left_to_option_dims() -> None:
    model = Model()
    model.output(model.relu(model.input(["images", 8], "x")))
    error = refusal(model.graph({"images": 1}))
    assert "dims.images=16" in str(error.hint)
    there = model.graph({"images": 16})
    assert Rebatch(batch=16).run(there) is there


def test_a_batch_whose_tensors_would_be_too_large_ends_in_a_limit() -> None:
    model = Model()
    model.output(model.relu(model.input([1, 2**30], "x")))
    error = error_of(lambda: Rebatch(batch=65536).run(model.graph()))
    assert isinstance(error, LimitError)
    assert error.code == "tensor_too_large"


def test_what_sees_no_image_stays_as_it_is() -> None:
    model = Model(seed=1)
    x = model.input([1, 4], "x")
    model.output(model.node("MatMul", [x, model.weight(4, 3)]))
    model.output(model.node("Identity", [model.weight(2, 2)]))
    graph = model.graph()
    made = rebatched(graph, 7)
    assert [made.tensors[name].shape for name in made.outputs] == [(7, 3), (2, 2)]


LAYERS = ("conv", "pool", "resize", "pad", "slice", "norm", "softmax", "transpose", "bias", "mean", "views", "tile")


@given(layers=st.lists(st.sampled_from(LAYERS), max_size=6), batch=st.integers(2, 5))
def test_whatever_is_rewritten_computes_every_image_by_itself(layers: list[str], batch: int) -> None:
    model = Model(seed=len(layers))
    x = model.input([1, 4, 8, 8], "x")
    for layer in layers:
        x = _layer(model, x, layer)
    model.output(model.relu(x))
    graph, source = model.graph(), ModelSource.from_bytes(model.data())
    images = model.random.standard_normal((batch, 4, 8, 8)).astype(np.float32)
    (found,) = execute(rebatched(graph, batch), source, {"x": images})
    for image, value in zip(images, found, strict=True):
        (expected,) = execute(graph, source, {"x": image[None]})
        np.testing.assert_allclose(value, expected[0], rtol=1e-4, atol=1e-5)


def _layer(model: Model, x: str, layer: str) -> str:
    """A layer that takes [1, 4, 8, 8] to the same shape, image by image."""
    built: dict[str, Callable[[], Any]] = {
        "conv": lambda: model.conv(x, 4, 4, group=2, bias=True),
        "pool": lambda: model.node("AveragePool", [x], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "resize": lambda: model.pool(
            model.node("Resize", [x, "", model.constant([1, 1, 2, 2], dtype=np.float32)], mode="linear")
        ),
        "pad": lambda: model.pool(model.node("Pad", [x, model.ints(0, 0, 4, 4, 0, 0, 4, 4)])),
        "slice": lambda: model.node(
            "Concat",
            [model.node("Slice", [x, model.ints(b), model.ints(b + 4), model.ints(2)]) for b in (4, 0)],
            axis=2,
        ),
        "norm": lambda: model.node("InstanceNormalization", [x, model.weight(4), model.weight(4)]),
        "softmax": lambda: model.node("Softmax", [x], axis=1),
        "transpose": lambda: model.node("Transpose", [x], perm=[0, 1, 3, 2]),
        "bias": lambda: model.node("Add", [x, model.weight(1, 4, 1, 8)]),
        "mean": lambda: model.node("Sub", [x, model.node("ReduceMean", [x], axes=[2, 3])]),
        "views": lambda: model.node(
            "Reshape",
            [
                model.node("MatMul", [model.node("Reshape", [x, model.ints(32, 8)]), model.weight(8, 8)]),
                model.ints(1, 4, 8, 8),
            ],
        ),
        "tile": lambda: model.pool(model.node("Tile", [x, model.ints(1, 1, 2, 2)])),
    }
    return str(built[layer]())


def test_the_option_is_bounded_and_its_pass_stands_behind_the_patterns() -> None:
    assert Options().batch is None
    for value in (0, 65537, 1.5, "2"):
        error = error_of(lambda value=value: parse_options({"batch": value}))  # type: ignore[misc]
        assert error is not None
        assert error.code == "invalid_option"
    passes = build_pipeline(light_source("squeezenet"), builtin_profile("edge4"), parse_options({"batch": 16}))
    names = [step.name for step in passes]
    assert names[names.index("patterns") + 1 :][:4] == ["rebatch", "integers", "set-precision", "set-layout"]
    assert Rebatch(batch=16) in passes
