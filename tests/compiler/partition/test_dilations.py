"""Dilated convolutions of which no tile fits: by rows of equal phase, with the same values (TILE-1, TILE-2)."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.options import Options
from compiler.partition.dilations import SplitDilations
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model
from tests.profiles import changed_profile

# Less than one channel of what a position reads, where that is 50 rows and columns.
TINY = changed_profile("edge4", nram__capacity_bytes=8192)


def split(graph: Graph) -> Graph:
    """The graph after the pass, verified."""
    found = SplitDilations(profile=TINY, candidates=SegmentCompilers(TINY, Options()).of).run(graph)
    verify_graph(found)
    return found


def dilated(
    shape: list[int | str], filters: int, kernel: list[int], dilations: list[int], pads: list[int], group: int = 1
) -> Model:
    """A convolution called `wide`, with a bias."""
    model = Model()
    assert isinstance(shape[1], int)
    weights = [model.weight(filters, shape[1] // group, *kernel), model.weight(filters)]
    x = model.input(shape)
    model.output(model.node("Conv", [x, *weights], name="wide", dilations=dilations, pads=pads, group=group))
    return model


def holds(model: Model) -> None:
    """It compiles, and its values are those of ONNX Runtime."""
    report = compile_model(model.data(), TINY, BY_RULES).report
    assert report.values_checked
    assert all(output.holds for output in report.values.outputs)


def test_rows_of_equal_phase_are_an_axis_and_nothing_is_copied_where_they_are_whole() -> None:
    found = split(dilated([1, 4, 75, 60], 8, [3, 3], [25, 25], [25] * 4).graph())
    assert [op.kind for op in found.ops] == ["Reshape", "Conv", "Reshape"]
    inner = found.ops[1]
    assert found.tensors[inner.inputs[0]].shape == (1, 4, 3, 25, 60)
    assert found.tensors[inner.inputs[1]].shape == (8, 4, 3, 1, 3)
    assert found.tensors[inner.output].shape == (1, 8, 3, 25, 60)
    attributes = dict(inner.attributes)
    assert attributes["dilations"] == (1, 1, 25)
    assert attributes["pads"] == (1, 0, 25, 1, 0, 25)
    assert {op.origin for op in found.ops} == {("wide",)}


def test_what_is_no_multiple_is_padded_and_cut_off() -> None:
    model = dilated([1, 4, 65, 60], 8, [3, 3], [25, 25], [7, 25, 31, 25])
    found = split(model.graph())
    assert [op.kind for op in found.ops] == ["Pad", "Reshape", "Conv", "Reshape", "Slice"]
    # 7 rows above are no whole step of 25; 72 rows are three steps less 3, and 31 below are these 3 and two steps
    assert [found.tensors[op.output].shape[2] for op in found.ops] == [75, 3, 3, 75, 53]
    assert dict(found.ops[2].attributes)["pads"] == (0, 0, 25, 2, 0, 25)
    holds(model)


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize(
    ("shape", "filters", "kernel", "dilations", "pads"),
    [
        ([1, 8, 65, 65], 24, [3, 3], [28, 28], [28] * 4),
        ([2, 5, 90, 70], 4, [2, 3], [70, 30], [5, 0, 40, 9]),
        ([1, 12, 60, 80], 6, [3, 4], [26, 20], [0, 0, 0, 0]),
        ([1, 2, 3, 75, 60], 3, [2, 3, 3], [1, 25, 25], [1, 25, 25, 0, 25, 25]),
    ],
)
def test_values_are_those_of_the_reference(
    shape: list[int | str], filters: int, kernel: list[int], dilations: list[int], pads: list[int]
) -> None:
    holds(dilated(shape, filters, kernel, dilations, pads))


def test_a_grouped_one_and_one_of_half_precision() -> None:
    model = dilated([1, 8, 75, 60], 4, [3, 3], [25, 25], [25] * 4, group=2)
    assert [op.kind for op in split(model.graph()).ops] == ["Reshape", "Conv", "Reshape"]
    holds(model)
    half = Model()
    x = half.input([1, 2, 105, 105], dtype=TensorProto.FLOAT16)
    weight = half.node("Cast", [half.weight(2, 2, 3, 3)], to=TensorProto.FLOAT16)
    half.output(half.node("Conv", [x, weight], dilations=[35, 35], pads=[35] * 4), TensorProto.FLOAT16)
    assert "Reshape" in [op.kind for op in split(half.graph()).ops]
    holds(half)


def test_a_batch_and_a_width_that_vary_are_left_to_vary() -> None:
    model = dilated(["n", 3, 75, "w"], 2, [3, 3], [25, 25], [25] * 4)
    found = split(model.graph({"n": 2, "w": 70}))
    assert [op.kind for op in found.ops] == ["Reshape", "Conv", "Reshape"]
    inner = found.ops[1]
    assert [(axis, str(one)) for axis, one in found.tensors[inner.output].symbols] == [(0, "n"), (4, "w")]
    assert not misses(model, {"n": (1, 2), "w": (40, 70)}, profile=TINY, count=2)


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize("strides", [[1, 2], [2, 1]])
def test_pads_that_follow_from_an_extent_that_varies(strides: list[int]) -> None:
    model = Model()
    rows: int | str = 75 if strides[0] == 1 else "h"
    x = model.input(["n", 2, rows, "w" if rows == 75 else 75])
    weight = model.weight(2, 2, 3, 3)
    model.output(model.node("Conv", [x, weight], auto_pad="SAME_UPPER", strides=strides, dilations=[25, 25]))
    dims = {"n": (1, 2), "w" if rows == 75 else "h": (30, 70)}
    assert not misses(model, dims, profile=TINY, count=2)


def test_rows_too_long_to_be_seen_at_once_are_left_as_they_are() -> None:
    """A hundred rows of 300 columns are more than a core holds, a hundred columns of one row are not."""
    found = split(dilated([1, 1, 300, 300], 1, [3, 3], [100, 100], [100] * 4).graph())
    assert found.tensors[found.ops[0].output].shape == (1, 1, 300, 3, 100)


def test_what_fits_or_has_no_gaps_is_left_as_it_is() -> None:
    for model in (
        dilated([1, 16, 48, 48], 8, [3, 3], [2, 2], [2] * 4),
        dilated([1, 1, 60, 60], 1, [50, 50], [1, 1], [0] * 4),
    ):
        graph = model.graph()
        assert split(graph) is graph
