"""Rules about what a group consists of: an accepting and a refusing case each (FUSE-4 to FUSE-9, FUSE-19)."""

from __future__ import annotations

import pytest

from compiler.fusion.rules.structure import fuse_4, fuse_5, fuse_6, fuse_7, fuse_8, fuse_9, fuse_19
from compiler.fusion.segment_graph import SegmentGraph, mask_of
from tests.models import Model, group_of, whole_segment


def block() -> SegmentGraph:
    """G-5: 1 -> {2 -> 3, 4 -> 5} -> 6."""
    model = Model()
    one = model.relu(model.input([1, 4, 8, 8]), name="1")
    three = model.relu(model.conv(one, 4, 4, name="2"), name="3")
    five = model.relu(model.conv(one, 4, 4, name="4"), name="5")
    model.output(model.node("Add", [three, five], name="6"))
    return whole_segment(model.facts())


def test_a_group_with_two_loose_branches_breaks_fuse_4() -> None:
    """G-5: {1..5} has two outputs."""
    graph = block()
    check = fuse_4(graph, group_of(graph.facts, "1", "2", "3", "4", "5"))
    assert (check.rule, check.holds, check.actual, check.limit) == ("FUSE-4", False, 2, 1)


def test_a_group_that_joins_its_branches_satisfies_fuse_4() -> None:
    """G-5: {1..6} has one output."""
    graph = block()
    check = fuse_4(graph, graph.all)
    assert check.holds
    assert check.actual == 1


def test_a_result_that_is_also_a_graph_output_counts_as_an_output_of_the_group() -> None:
    """FUSE-4."""
    model = Model()
    tapped = model.output(model.relu(model.input([1, 4, 8, 8]), name="a"))
    model.output(model.relu(tapped, name="b"))
    graph = whole_segment(model.facts())
    assert not fuse_4(graph, graph.all).holds


def chain(*kinds: str) -> SegmentGraph:
    """A chain of ops by kind, named by position."""
    model = Model()
    x = model.input([1, 4, 16, 16])
    for index, kind in enumerate(kinds):
        name = str(index)
        if kind == "Conv":
            x = model.conv(x, 4, 4, name=name)
        elif kind == "MaxPool":
            x = model.pool(x, 2, 1, name=name)
        elif kind in ("Mul", "Add", "Sub", "Div"):
            x = model.node(kind, [x, model.weight(4, 1, 1)], name=name)
        elif kind == "Reshape":
            x = model.node("Reshape", [x, model.ints(1, 4, -1, 1)], name=name)
        else:
            x = model.node(kind, [x], name=name)
    model.output(x)
    return whole_segment(model.facts())


@pytest.mark.parametrize(
    ("kinds", "mains"), [(("Conv", "Relu"), 1), (("Conv", "MaxPool"), 2), (("Conv", "Relu", "Conv"), 2)]
)
def test_fuse_5_counts_main_ops(kinds: tuple[str, ...], mains: int) -> None:
    graph = chain(*kinds)
    check = fuse_5(graph, graph.all, 2)
    assert check.holds == (mains >= 2)
    assert (check.rule, check.actual, check.limit) == ("FUSE-5", mains, 2)


@pytest.mark.parametrize(
    ("kinds", "holds"),
    [
        (("Conv", "MaxPool", "Relu"), True),
        (("Relu", "Conv", "Conv", "Relu"), True),
        (("Conv", "Relu", "Conv", "Relu"), False),
        (("Conv", "Conv"), False),
        (("Conv", "Relu", "Relu"), False),
        (("Conv", "Conv", "Reshape", "Relu"), True),
    ],
)
def test_fuse_6_wants_main_main_and_another_in_direct_succession(kinds: tuple[str, ...], holds: bool) -> None:
    graph = chain(*kinds)
    assert fuse_6(graph, graph.all).holds == holds


def test_fuse_6_looks_only_at_ops_of_the_group() -> None:
    graph = chain("Conv", "Conv", "Relu")
    assert not fuse_6(graph, mask_of([0, 1])).holds
    assert not fuse_6(graph, mask_of([1, 2])).holds


@pytest.mark.parametrize(
    ("kinds", "holds"),
    [
        (("Mul", "Relu"), True),
        (("Add", "Sigmoid"), True),
        (("Sub", "Relu"), True),
        (("Relu", "Mul"), False),
        (("Mul", "Conv", "Relu"), False),
        (("Div", "Relu"), False),
    ],
)
def test_fuse_7_wants_a_scalar_op_directly_followed_by_a_vector_op(kinds: tuple[str, ...], holds: bool) -> None:
    graph = chain(*kinds)
    check = fuse_7(graph, graph.all)
    assert check.rule == "FUSE-7"
    assert check.holds == holds


def computed_weight() -> SegmentGraph:
    """A convolution whose weight another op makes."""
    model = Model()
    x, w = model.input([1, 4, 8, 8]), model.input([4, 4, 3, 3])
    model.output(model.relu(model.node("Conv", [x, model.relu(w, name="w")], name="conv"), name="relu"))
    return whole_segment(model.facts())


def test_fuse_8_refuses_a_convolution_whose_weight_is_computed() -> None:
    graph = computed_weight()
    check = fuse_8(graph, group_of(graph.facts, "conv", "relu"))
    assert (check.rule, check.holds, check.actual, check.limit) == ("FUSE-8", False, 1, 0)


def test_fuse_8_accepts_a_convolution_whose_weight_is_a_constant() -> None:
    graph = chain("Conv", "Relu")
    assert fuse_8(graph, graph.all).holds


def test_fuse_8_accepts_a_weight_that_is_a_graph_input() -> None:
    model = Model()
    x, w = model.input([1, 4, 8, 8]), model.input([4, 4, 3, 3])
    model.output(model.relu(model.node("Conv", [x, w])))
    graph = whole_segment(model.facts())
    assert fuse_8(graph, graph.all).holds


def shared_weight(*, shared: bool) -> SegmentGraph:
    """Two convolutions, of one weight or of two."""
    model = Model()
    x = model.input([1, 4, 8, 8])
    first = model.weight(4, 4, 1, 1)
    second = first if shared else model.weight(4, 4, 1, 1)
    model.output(model.node("Conv", [model.node("Conv", [x, first]), second]))
    return whole_segment(model.facts())


def test_fuse_9_refuses_convolutions_that_share_a_weight() -> None:
    graph = shared_weight(shared=True)
    check = fuse_9(graph, mask_of([0]))
    assert (check.rule, check.holds, check.actual) == ("FUSE-9", False, 1)


def test_fuse_9_accepts_convolutions_with_weights_of_their_own() -> None:
    graph = shared_weight(shared=False)
    assert fuse_9(graph, graph.all).holds


def overlaps(*layers: tuple[int, int]) -> SegmentGraph:
    """Convolutions of (kernel, stride) in a chain."""
    model = Model()
    x = model.input([1, 4, 64, 64])
    for kernel, stride in layers:
        x = model.conv(x, 4, 4, kernel, stride=stride, pad=0)
    model.output(x)
    return whole_segment(model.facts())


@pytest.mark.parametrize(
    ("layers", "total", "holds"),
    [
        (((3, 1), (3, 1)), 4, True),
        (((3, 1), (3, 1), (2, 1)), 5, False),
        (((3, 1), (3, 1), (1, 2)), 3, True),
        (((7, 2),), 5, False),
    ],
)
def test_fuse_19_sums_kernel_minus_stride(layers: tuple[tuple[int, int], ...], total: int, holds: bool) -> None:
    graph = overlaps(*layers)
    check = fuse_19(graph, graph.all, 4)
    assert (check.rule, check.holds, check.actual, check.limit) == ("FUSE-19", holds, total, 4)


def test_fuse_19_sums_each_axis_for_itself() -> None:
    model = Model()
    x = model.input([1, 2, 16, 16])
    x = model.node("Conv", [x, model.weight(2, 2, 5, 1)])
    model.output(model.node("Conv", [x, model.weight(2, 2, 1, 5)]))
    graph = whole_segment(model.facts())
    assert fuse_19(graph, graph.all, 4).actual == 4


def test_fuse_19_is_ignored_where_a_whole_multi_branch_block_is_taken_in() -> None:
    model = Model()
    x = model.relu(model.input([1, 4, 32, 32]), name="in")
    a = model.conv(model.conv(x, 4, 4, name="a1"), 4, 4, name="a2")
    b = model.conv(x, 4, 4, name="b")
    x = model.node("Add", [a, b], name="out")
    model.output(model.conv(x, 4, 4, name="after"))
    graph = whole_segment(model.facts())
    assert fuse_19(graph, graph.all, 4).holds
    assert not fuse_19(graph, group_of(graph.facts, "a1", "a2", "out", "after"), 4).holds
