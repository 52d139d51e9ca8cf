"""Where groups start and how they grow: FUSE-A, FUSE-B, FUSE-1 to FUSE-3, on AlexNet (G-6) and on blocks."""

from __future__ import annotations

import pytest

from compiler.fusion.rules.growth import fuse_1, fuse_2, fuse_a, fuse_b
from compiler.fusion.rules.structure import fuse_6
from compiler.fusion.segment_graph import SegmentGraph, mask_of
from compiler.ops.op_facts import graph_facts
from tests.models import Model, group_of, import_graph, light_path, whole_segment


@pytest.fixture(scope="module")
def alexnet() -> SegmentGraph:
    """AlexNet; op n of G-6 has index n − 1."""
    return whole_segment(graph_facts(import_graph(light_path("bvlc_alexnet").read_bytes())))


def numbers(*ops: int) -> int:
    """A group by the op numbers of G-6."""
    return mask_of(op - 1 for op in ops)


def test_alexnet_has_the_ops_of_the_worked_example(alexnet: SegmentGraph) -> None:
    """G-6."""
    kinds = [op.kind for op in alexnet.facts.ops[:15]]
    assert " ".join(kinds) == ("Conv Relu LRN MaxPool Conv Relu LRN MaxPool Conv Relu Conv Relu Conv Relu MaxPool")


def test_start_rule_a_takes_the_earliest_free_op(alexnet: SegmentGraph) -> None:
    """G-6: start rule A (FUSE-A) after 1 to 5: 6 (relu)."""
    assert fuse_a(alexnet, alexnet.all & ~numbers(1, 2, 3, 4, 5)) == 6 - 1


def test_start_rule_b_takes_the_earliest_free_convolution_or_pooling(alexnet: SegmentGraph) -> None:
    """G-6: rule B (FUSE-B) after 1 to 9: 11."""
    assert fuse_b(alexnet, alexnet.all & ~numbers(*range(1, 10))) == 11 - 1


def test_start_rules_answer_nothing_where_nothing_is_free(alexnet: SegmentGraph) -> None:
    assert fuse_a(alexnet, 0) is None
    assert fuse_b(alexnet, numbers(2, 3)) is None


def test_start_rule_b_leaves_matrix_products_out(alexnet: SegmentGraph) -> None:
    """FUSE-B speaks of convolutions and poolings only."""
    gemm = next(i for i, op in enumerate(alexnet.facts.ops) if op.kind == "Gemm")
    assert fuse_b(alexnet, mask_of([gemm])) is None
    assert fuse_a(alexnet, mask_of([gemm])) == gemm


def test_pool_conv_relu_satisfies_fuse_6(alexnet: SegmentGraph) -> None:
    """G-6: ops 4, 5, 6."""
    assert fuse_6(alexnet, numbers(4, 5, 6)).holds
    assert not fuse_6(alexnet, numbers(5, 6)).holds


def test_fuse_2_first_grows_backwards_and_then_forwards(alexnet: SegmentGraph) -> None:
    """G-6: from start 5 with 1 and 2 grouped, 4, 3, then 6, 7."""
    free = alexnet.all & ~numbers(1, 2)
    group, tried = numbers(5), []
    for direction in (fuse_2, fuse_1):
        for _ in range(2):
            unit = next(direction(alexnet, group, free & ~group))
            tried.append(unit.bit_length())
            assert unit.bit_count() == 1
            group |= unit
        if direction is fuse_2:
            assert list(fuse_2(alexnet, group, free & ~group)) == []
    assert tried == [4, 3, 6, 7]


def test_fuse_1_leaves_free_ops_before_the_start_out(alexnet: SegmentGraph) -> None:
    """FUSE-1: growth only in the direction of execution."""
    units = list(fuse_1(alexnet, numbers(5), alexnet.all & ~numbers(5)))
    assert units == [numbers(6)]


def test_fuse_1_does_not_take_ops_that_are_grouped(alexnet: SegmentGraph) -> None:
    assert list(fuse_1(alexnet, numbers(5), alexnet.all & ~numbers(5, 6))) == []


def test_fuse_1_stops_at_a_result_that_leaves_the_segment() -> None:
    model = Model()
    tapped = model.output(model.relu(model.input([1, 4, 8, 8]), name="a"))
    model.output(model.relu(tapped, name="b"))
    graph = whole_segment(model.facts())
    assert list(fuse_1(graph, mask_of([0]), graph.all & ~1)) == []


def block() -> SegmentGraph:
    """A block between two activations, and a convolution behind it."""
    model = Model()
    x = model.relu(model.input([1, 4, 8, 8]), name="open")
    left = model.conv(model.conv(x, 4, 4, name="l1"), 4, 4, name="l2")
    right = model.conv(x, 4, 4, name="r1")
    x = model.node("Add", [left, right], name="close")
    model.output(model.conv(x, 4, 4, name="behind"))
    return whole_segment(model.facts())


def test_fuse_3_offers_the_whole_block_before_its_ops() -> None:
    graph = block()
    start = group_of(graph.facts, "open")
    units = list(fuse_1(graph, start, graph.all & ~start))
    assert units[0] == group_of(graph.facts, "l1", "l2", "r1", "close")
    assert units[1:] == [group_of(graph.facts, "l1"), group_of(graph.facts, "r1")]


def test_fuse_3_offers_single_ops_where_part_of_the_block_is_grouped() -> None:
    graph = block()
    start = group_of(graph.facts, "open")
    free = graph.all & ~start & ~group_of(graph.facts, "l2")
    assert list(fuse_1(graph, start, free)) == [group_of(graph.facts, "l1"), group_of(graph.facts, "r1")]


def test_fuse_3_switched_off_offers_single_ops_only() -> None:
    graph = block()
    start = group_of(graph.facts, "open")
    units = list(fuse_1(graph, start, graph.all & ~start, False))
    assert all(unit.bit_count() == 1 for unit in units)


def test_fuse_3_takes_whole_blocks_backwards_too() -> None:
    """FUSE-2 with FUSE-3."""
    graph = block()
    start = group_of(graph.facts, "close")
    units = list(fuse_2(graph, start, graph.all & ~start))
    assert units[0] == group_of(graph.facts, "open", "l1", "l2", "r1")


def test_fuse_2_offers_the_op_before_a_chain() -> None:
    graph = block()
    start = group_of(graph.facts, "behind")
    assert next(fuse_2(graph, start, graph.all & ~start)) & group_of(graph.facts, "close")


def test_fuse_2_offers_the_latest_op_before_the_group_first() -> None:
    model = Model()
    first = model.conv(model.input([1, 4, 8, 8]), 4, 4, name="first")
    second = model.conv(model.input([1, 4, 8, 8]), 4, 4, name="second")
    model.output(model.node("Add", [first, second], name="add"))
    graph = whole_segment(model.facts())
    start = group_of(graph.facts, "add")
    units = list(fuse_2(graph, start, graph.all & ~start))
    assert units == [group_of(graph.facts, "second"), group_of(graph.facts, "first")]
