"""Large constants that are the same for all channels: taken by rows, only where they have to be (TILE-2)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.broadcasts import FoldChannels
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model

CHIPS = ("edge4", "cluster4x4", "manycore2x64")
# A mask of 1 MiB; a core of edge4 has 256 KiB, one of manycore2x64 512 KiB.
LARGE = 512


def folded(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    profile = builtin_profile("edge4")
    found = FoldChannels(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph)
    verify_graph(found)
    return found


def masked(kind: str, batch: int | str = 2) -> Model:
    """Scores of three heads to which a mask is applied."""
    model = Model()
    scores = model.input([batch, 3, LARGE, LARGE])
    seen = np.tril(np.ones((1, 1, LARGE, LARGE))) > 0
    if kind == "Where":
        inputs = [model.constant(seen), scores, model.constant(np.float32(-1e4))]
    else:
        inputs = [scores, model.constant(np.where(seen, 0.5, -1e4).astype(np.float32))]
    model.output(model.node(kind, inputs, name="masked"))
    return model


def holds(model: Model, chip: str) -> None:
    """It compiles, and its values are those of ONNX Runtime."""
    report = compile_model(model.data(), builtin_profile(chip), BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_a_mask_is_taken_by_rows_of_all_heads() -> None:
    found = folded(masked("Add").graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Add", "Reshape"]
    assert found.tensors[found.ops[1].inputs[1]].shape == (1, LARGE, LARGE)
    assert [found.tensors[op.output].shape for op in found.ops] == [
        (6, LARGE, LARGE),
        (6, LARGE, LARGE),
        (2, 3, LARGE, LARGE),
    ]
    assert {op.origin for op in found.ops} == {("masked",)}


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("kind", ["Add", "Mul", "Where"])
def test_masked_scores_compile_with_the_values_of_the_reference(kind: str, chip: str) -> None:
    holds(masked(kind), chip)


def test_operands_that_are_alike_for_all_heads_and_constants_of_them_all_are_seen_the_same_way() -> None:
    model = Model()
    x = model.input([2, 3, LARGE, LARGE])
    rows = model.input([1, 1, LARGE, 1])
    first = model.node("Mul", [rows, model.weight(1, LARGE, LARGE)], name="first")
    heads = model.constant(np.arange(6, dtype=np.float32).reshape(2, 3, 1, 1))
    model.output(model.node("Sum", [x, first, heads, model.weight(LARGE, LARGE), x], name="second"))
    found = folded(model.graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Mul", "Reshape", "Reshape", "Reshape", "Sum", "Reshape"]
    total = found.ops[5]
    shapes = [found.tensors[name].shape for name in total.inputs]
    assert shapes == [(6, LARGE, LARGE), (1, LARGE, LARGE), (6, 1, 1), (1, LARGE, LARGE), (6, LARGE, LARGE)]
    assert total.inputs[0] == total.inputs[4]
    holds(model, "edge4")


def test_images_and_heads_are_no_one_axis_where_an_operand_has_only_one_of_them() -> None:
    model = Model()
    scores, rows = model.input([2, 3, LARGE, LARGE]), model.input([2, 1, LARGE, LARGE])
    model.output(model.node("Sum", [scores, rows, model.weight(LARGE, LARGE)]))
    graph = model.graph()
    assert folded(graph) is graph


@pytest.mark.slow
def test_a_batch_that_varies_is_part_of_the_axis() -> None:
    model = masked("Add", batch="n")
    graph = model.graph({"n": 4})
    found = folded(graph)
    reshape, total, back = found.ops
    assert found.tensors[total.output].shape == (12, LARGE, LARGE)
    (axis, expression), *others = found.tensors[total.output].symbols
    assert (axis, str(expression), others) == (0, "3*n", [])
    assert [(name, at, str(one)) for name, at, one in reshape.symbols] == [("shape", 0, "3*n")]
    assert [(name, at, str(one)) for name, at, one in back.symbols] == [("shape", 0, "n")]
    assert not misses(model, {"n": (1, 4)}, count=2)


def test_what_fits_is_left_as_it_is() -> None:
    for shape in ([2, 3, 128, 128], [4, LARGE, LARGE]):
        model = Model()
        model.output(model.node("Add", [model.input(shape), model.weight(*shape[-2:])]))
        graph = model.graph()
        assert folded(graph) is graph


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    ("shape", "constant", "seen"),
    [
        ([1, 4, 600, 300], [1, 4, 600, 300], (1, 2400, 1, 300)),
        ([4, 3, 300, 300], [3, 300, 300], (4, 900, 1, 300)),
        ([100_000, 3], [100_000, 3], (1, 100_000, 1, 3)),
    ],
)
def test_rows_are_channels_where_a_channel_is_too_much(
    shape: list[int], constant: list[int], seen: tuple[int, ...]
) -> None:
    model = Model()
    model.output(model.node("Mul", [model.input(shape), model.weight(*constant)]))
    found = folded(model.graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Mul", "Reshape"]
    assert found.tensors[found.ops[1].output].shape == seen
    holds(model, "edge4")


def test_ops_of_the_host_are_left_to_it() -> None:
    model = Model()
    x = model.input([2, 3, LARGE, LARGE])
    total = model.node("Add", [x, model.weight(LARGE, LARGE)])
    model.output(model.nodes_out("TopK", [total, model.ints(5)], ["most", "where"])[0])
    assert [op.kind for op in folded(model.graph()).ops] == ["Reshape", "Add", "Reshape", "Host"]


def test_a_constant_of_each_image_has_images_for_channels() -> None:
    model = Model()
    model.output(model.node("Add", [model.input([4, 3, 160, 160]), model.weight(4, 1, 160, 160)], name="masked"))
    found = folded(model.graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Add", "Reshape"]
    assert found.tensors[found.ops[1].output].shape == (1, 4, 3, 160, 160)
    assert found.tensors[found.ops[1].inputs[1]].shape == (1, 4, 1, 160, 160)
    holds(model, "edge4")


@pytest.mark.slow
def test_a_constant_of_each_image_of_which_one_is_too_much_is_written_out_for_all_heads() -> None:
    model = Model()
    x = model.input([2, 3, LARGE, LARGE])
    model.output(model.node("Add", [x, model.weight(2, 1, LARGE, LARGE)], name="masked"))
    found = folded(model.graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Add", "Reshape"]
    assert [found.tensors[name].shape for name in found.ops[1].inputs] == [(1, 6 * LARGE, 1, LARGE)] * 2
    holds(model, "edge4")


def test_a_constant_is_not_written_out_along_a_batch_that_varies() -> None:
    model = Model()
    x = model.input(["n", 2, 3, LARGE, LARGE])
    model.output(model.node("Add", [x, model.weight(2, 1, LARGE, LARGE)], name="masked"))
    graph = model.graph({"n": 4})
    assert folded(graph) is graph
    with pytest.raises(LimitError) as caught:
        compile_model(model.data(), builtin_profile("edge4"), BY_RULES)
    assert caught.value.node == "masked"


def test_types_of_the_constant_do_not_matter() -> None:
    model = Model()
    x = model.input([2, 3, LARGE, LARGE], dtype=TensorProto.INT32)
    steps = np.arange(LARGE * LARGE, dtype=np.int32).reshape(LARGE, LARGE)
    model.output(model.node("Add", [x, model.constant(steps)]), TensorProto.INT32)
    holds(model, "edge4")
