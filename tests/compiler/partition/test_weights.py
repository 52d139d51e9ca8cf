"""Ops whose stationary weights exceed a chip: cut by output channels, seldom, and nothing is lost (PART-3)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from compiler.compile import plan_model
from compiler.errors import LimitError
from compiler.frontend.source import ModelSource
from compiler.fusion.candidate import SegmentCompilers
from compiler.ir.constant import Derived, Splat, Stored
from compiler.ir.graph import Graph
from compiler.ir.verify import verify_graph
from compiler.ops.op_facts import graph_facts
from compiler.options import Options
from compiler.partition.weights import SplitWeights
from compiler.profile.schema import Profile
from compiler.tiling.stationary import WeightTable
from tests.compiler.execute import execute, feeds_for
from tests.compiler.partition.graphs import limited, stationary
from tests.models import Model, error_of

# Four cores of 4 KiB: 16 KiB of weights, less what tiles need.
SMALL = stationary(nram_bytes=4096)


def split(graph: Graph, profile: Profile = SMALL) -> Graph:
    """The graph after the pass, verified."""
    compilers = SegmentCompilers(profile, Options())
    found = SplitWeights(profile=profile, candidates=compilers.of).run(graph)
    verify_graph(found)
    return found


def kinds(graph: Graph) -> list[str]:
    """The ops' kinds."""
    return [op.kind for op in graph.ops]


def product(rows: int, inner: int, columns: int) -> Model:
    """A matrix product by a constant, called `big`, between two Relus."""
    model = Model()
    x = model.relu(model.input([rows, inner]), name="before")
    y = model.node("MatMul", [x, model.weight(inner, columns)], name="big")
    model.output(model.relu(y, name="after"))
    return model


def gemm(columns: int, bias: tuple[int, ...], *, computed: bool = False, transposed: bool = False) -> Model:
    """A Gemm called `big` of [4, 64] by [64, columns] with a bias of a shape, constant or computed."""
    model = Model()
    x = model.input([4, 64])
    added = model.relu(model.input(bias), name="bias") if computed else model.weight(*bias)
    weight = model.weight(columns, 64) if transposed else model.weight(64, columns)
    model.output(model.node("Gemm", [x, weight, added], name="big", alpha=0.5, beta=2.0, transB=int(transposed)))
    return model


def convolution(channels: int, filters: int, *, bias: bool = True) -> Model:
    """A convolution called `big`."""
    model = Model()
    model.output(model.conv(model.input([1, channels, 6, 6]), channels, filters, bias=bias, name="big"))
    return model


def widths(graph: Graph, kind: str) -> list[int]:
    """The output channels of the ops of a kind."""
    return [graph.tensors[op.output].shape[1 if kind.startswith("Conv") else -1] for op in graph.ops if op.kind == kind]


# An op of any number of output channels, and the number in the test.
CASES: dict[str, tuple[str, Callable[[int], Model], int]] = {
    "product": ("MatMul", lambda n: product(4, 64, n), 150),
    "product with a batch": ("MatMul", lambda n: batched(n), 140),
    "gemm, transposed": ("Gemm", lambda n: gemm(n, (n,), transposed=True), 150),
    "convolution": ("Conv", lambda n: convolution(16, n), 60),
    "convolution without bias": ("Conv", lambda n: convolution(16, n, bias=False), 61),
    "transposed convolution": ("ConvTranspose", lambda n: transposed(n), 60),
    "gemm whose bias is computed": ("Gemm", lambda n: gemm(n, (n,), computed=True), 150),
    "gemm with one bias for all": ("Gemm", lambda n: gemm(n, (1,)), 150),
    "gemm with a bias per row": ("Gemm", lambda n: gemm(n, (4, 1)), 150),
    "gemm with a whole matrix of biases": ("Gemm", lambda n: gemm(n, (4, n)), 150),
}


def transposed(filters: int) -> Model:
    """A transposed convolution called `big`."""
    model = Model()
    inputs = [model.input([1, 16, 6, 6]), model.weight(16, filters, 3, 3), model.weight(filters)]
    model.output(model.node("ConvTranspose", inputs, strides=[2, 2], name="big"))
    return model


def batched(columns: int) -> Model:
    """A product of [2, 3, 64] by a constant."""
    model = Model()
    model.output(model.node("MatMul", [model.input([2, 3, 64]), model.weight(64, columns)], name="big"))
    return model


@cache
def graphs(case: str) -> tuple[Graph, Graph]:
    """A case before and after the pass, once per test process."""
    _, build, channels = CASES[case]
    before = build(channels).graph()
    return before, split(before)


@pytest.mark.matrix(first=4, rest=6)
@pytest.mark.parametrize("case", CASES)
def test_an_op_beyond_a_chip_becomes_near_equal_parts_and_a_concat_of_its_name(case: str) -> None:
    """PART-3."""
    kind, (before, after) = CASES[case][0], graphs(case)
    (large,) = [op for op in before.ops if op.node == "big"]
    parts = [op for op in after.ops if op.kind == kind and op.node == "big"]
    (joined,) = [op for op in after.ops if op.kind == "Concat"]
    assert len(parts) > 1
    assert {op.origin for op in (*parts, joined)} == {large.origin}
    found = widths(after, kind)
    assert sum(found) == widths(before, kind)[0]
    assert max(found) - min(found) <= 1
    assert found == sorted(found, reverse=True)
    assert joined.inputs == tuple(part.output for part in parts)
    assert joined.output == large.output
    assert {part.attributes for part in parts} == {large.attributes}


@pytest.mark.parametrize("case", CASES)
def test_the_parts_compute_what_the_op_computes(case: str) -> None:
    """PART-3: by the definitions of the ops."""
    _, build, channels = CASES[case]
    model = build(channels)
    source = ModelSource.from_bytes(model.data())
    feeds = feeds_for(model.proto())
    (expected,), (found,) = (execute(graph, source, feeds) for graph in graphs(case))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_each_part_fits_a_chip_and_fewer_would_not(case: str) -> None:
    """PART-3: the fewest near-equal ops; of one part fewer the largest does not compile alone."""
    kind, build, channels = CASES[case]
    _, after = graphs(case)
    compiler = SegmentCompilers(SMALL, Options()).of(graph_facts(after))
    assert all(compiler.refusal((index,)) is None for index in range(len(after.ops)))
    fewer = build(-(-channels // (len(widths(after, kind)) - 1))).graph()
    alone = SegmentCompilers(SMALL, Options()).of(graph_facts(fewer))
    (index,) = [i for i, op in enumerate(fewer.ops) if op.node == "big"]
    assert alone.refusal((index,)) is not None


@settings(max_examples=25)
@given(
    st.integers(1, 6), st.integers(8, 90), st.integers(2, 260), st.integers(1, 6), st.sampled_from([2000, 4096, 9000])
)
def test_any_product_is_cut_exactly_where_its_weights_leave_it_no_room(
    rows: int, inner: int, columns: int, cores: int, nram_bytes: int
) -> None:
    """PART-3: beyond a chip, or so near to it that no tile has room beside them."""
    profile = stationary(nram_bytes=nram_bytes, cores=cores)
    before = product(rows, inner, columns).graph()
    weights = WeightTable(graph_facts(before), profile).resident_bytes_per_core((1,))
    has_room = SegmentCompilers(profile, Options()).of(graph_facts(before)).refusal((1,)) is None
    made: list[Graph] = []
    error = error_of(lambda: made.append(split(before, profile)))
    if error is not None:
        assert (error.code, error.node) == ("op_too_large", "big")
        return
    (after,) = made
    assert (kinds(after) != kinds(before)) == (not has_room and 2 * weights > nram_bytes)
    assert sum(widths(after, "MatMul")) == columns
    compiler = SegmentCompilers(profile, Options()).of(graph_facts(after))
    if kinds(after) != kinds(before):
        parts = [index for index, op in enumerate(after.ops) if op.kind == "MatMul"]
        assert all(compiler.refusal((index,)) is None for index in parts)


def test_parts_may_lie_in_different_segments_and_the_node_in_the_plan_once() -> None:
    """PART-3."""
    plan = plan_model(product(4, 64, 400).data(), SMALL).plan
    homes = [s.id for s in plan.segments for group in s.groups for op in group.ops if op.node == "big"]
    assert len(set(homes)) > 1
    assert [node for s in plan.segments for node in s.nodes] == ["before", "big", "after"]
    assert plan.totals.macs == 4 * 64 * 400
    assert sum(s.weight_bytes for s in plan.segments) == 4 * 64 * 400
    assert all(s.resident_bytes_per_core <= SMALL.nram.capacity_bytes for s in plan.segments)


# Weights stay descriptions


def pieces(graph: Graph) -> list[object]:
    """Where the weights of the parts lie."""
    found: list[object] = []
    for op in graph.ops:
        constant = graph.tensors[op.inputs[1]].constant if len(op.inputs) > 1 else None
        if op.node == "big" and op.kind != "Concat" and constant is not None:
            found.append(constant.data)
    return found


def test_rows_of_a_stored_weight_are_spans_of_the_file() -> None:
    """Nothing is copied: neighbouring spans that cover the weight."""
    before = convolution(16, 60).graph()
    weight = before.tensors[before.ops[0].inputs[1]].constant
    assert weight is not None
    assert isinstance(weight.data, Stored)
    found = pieces(split(before))
    spans = [(p.offset, p.offset + p.size_bytes) for p in found if isinstance(p, Stored)]
    assert len(spans) == len(found) > 1
    assert (spans[0][0], spans[-1][1]) == (weight.data.offset, weight.data.offset + weight.data.size_bytes)
    assert all(a[1] == b[0] for a, b in pairwise(spans))


def test_columns_of_a_stored_weight_are_slices_to_be_computed() -> None:
    found = pieces(split(product(4, 64, 150).graph()))
    assert all(isinstance(piece, Derived) and piece.function == "Slice" for piece in found)


def test_parts_of_a_splat_are_splats() -> None:
    model = Model()
    value = helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25])
    w = model.node("ConstantOfShape", [model.ints(64, 150)], value=value)
    model.output(model.node("MatMul", [model.input([4, 64]), w], name="big"))
    found = pieces(split(model.graph()))
    assert len(found) > 1
    assert {piece.value for piece in found if isinstance(piece, Splat)} == {np.float32(0.25).tobytes()}


# What is left alone


def test_streamed_weights_are_never_cut() -> None:
    graph = product(4, 64, 4000).graph()
    profile = limited()
    assert SplitWeights(profile=profile, candidates=SegmentCompilers(profile, Options()).of).run(graph) is graph


def test_a_graph_whose_ops_all_fit_stays_the_object_it_is() -> None:
    graph = product(4, 8, 8).graph()
    assert split(graph) is graph


def test_weights_that_fit_but_leave_no_room_for_a_tile_are_cut_too() -> None:
    """PART-3: 4 cores of 4 KiB hold 16,352 bytes of weights, but then not one sum and its part of the input."""
    graph = product(1, 146, 28).graph()
    weights = WeightTable(graph_facts(graph), SMALL).resident_bytes_per_core((1,))
    assert weights == 4088 < 4096
    assert kinds(split(graph)) == ["Relu", "MatMul", "MatMul", "Concat", "Relu"]


def test_a_product_of_two_computed_matrices_has_no_weights() -> None:
    model = Model()
    model.output(model.node("MatMul", [model.input([4, 64]), model.input([64, 400])], name="big"))
    graph = model.graph()
    assert split(graph) is graph


@pytest.mark.parametrize("group", [2, 16])
def test_a_convolution_in_groups_is_left_for_partition_to_refuse(group: int) -> None:
    """PART-3: the error then names that op, the limit and the amount."""
    model = Model()
    model.output(model.conv(model.input([1, 16, 6, 6]), 16, 512, group=group, kernel=5, name="big"))
    graph = split(model.graph())
    assert kinds(graph) == ["Conv"]
    with pytest.raises(LimitError) as caught:
        plan_model(model.data(), SMALL)
    error = caught.value
    assert (error.code, error.node, error.op_type, error.limit) == ("op_too_large", "big", "Conv", 4096)
    assert isinstance(error.actual, int)
    assert error.actual > 4096


def test_an_op_of_which_not_even_one_channel_fits_is_refused_with_the_op() -> None:
    """PART-3."""
    with pytest.raises(LimitError) as caught:
        split(product(4, 5000, 8).graph())
    error = caught.value
    assert (error.code, error.node, error.op_type) == ("op_too_large", "big", "MatMul")
    assert "8 parts" in error.message
