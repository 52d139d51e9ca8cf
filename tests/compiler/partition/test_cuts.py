"""Where a set of ops may be cut (PART-1, PART-3): small graphs by hand, random ones by definition and brute force."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError, RequestError
from compiler.ir.graph import Graph, Op, Tensor
from compiler.partition.cuts import articulation_cuts, balanced_cuts, crossing_bytes, named_cuts, output_taps
from tests.models import Model
from tests.strategies import models


def whole(graph: Graph) -> tuple[int, ...]:
    """All ops of a graph."""
    return tuple(range(len(graph.ops)))


def place_after(graph: Graph, node: str) -> int:
    """The position after the op that comes from a node."""
    return next(index for index, op in enumerate(graph.ops) if node in op.origin) + 1


def chain(sizes: Sequence[int]) -> Graph:
    """Relus in a row; sizes[i] are the bytes that cross position i + 1, sizes[-1] those of the output."""
    tensors = {f"v{i}": Tensor(name=f"v{i}", shape=(size,), dtype="int8", axes=("C",)) for i, size in enumerate(sizes)}
    tensors["x"] = Tensor(name="x", shape=(1,), dtype="int8", axes=("C",))
    ops = tuple(
        Op(kind="Relu", inputs=(f"v{i - 1}" if i else "x",), output=f"v{i}", origin=(f"n{i}",))
        for i in range(len(sizes))
    )
    return Graph(name="chain", ops=ops, tensors=tensors, inputs=("x",), outputs=(f"v{len(sizes) - 1}",))


def block() -> Graph:
    """a -> (b -> c, d) -> e: a block of two branches between two single tensors."""
    model = Model()
    a = model.relu(model.input([1, 2, 4, 4]), name="a")
    c = model.relu(model.relu(a, name="b"), name="c")
    d = model.node("Neg", [a], name="d")
    model.output(model.relu(model.node("Add", [c, d], name="e"), name="f"))
    return model.graph()


# -- output taps --------------------------------------------------------------------------------------------------


def test_output_taps_lie_after_targets_by_their_place_in_the_set() -> None:
    """PART-1, PART-3."""
    model = Model()
    x = model.input([1, 4])
    for name in ("p", "q", "r"):
        x = model.relu(x, name=name)
        model.output(x)
    model.output(model.relu(x))
    graph = model.graph()
    assert output_taps(graph, whole(graph)) == (1, 2, 3)
    assert output_taps(graph, (1, 3)) == (1,)


def test_a_target_at_the_end_of_the_set_and_a_plain_output_are_no_taps() -> None:
    """PART-1: the set ends there anyway; an output that nothing reads is no target."""
    model = Model()
    x = model.input([1, 4])
    model.output(model.relu(x, name="plain"))
    y = model.output(model.node("Neg", [x], name="target"))
    model.output(model.relu(y))
    graph = model.graph()
    assert output_taps(graph, (0, 1)) == ()
    assert output_taps(graph, whole(graph)) == (2,)


# -- articulation cuts and crossing bytes -------------------------------------------------------------------------


def test_articulation_cuts_lie_before_and_behind_a_block_not_inside() -> None:
    """PART-3."""
    graph = block()
    assert articulation_cuts(graph, whole(graph)) == (place_after(graph, "a"), place_after(graph, "e"))


def test_every_inner_position_of_a_chain_is_an_articulation() -> None:
    """PART-3."""
    assert articulation_cuts(chain([5, 5, 5]), (0, 1, 2)) == (1, 2)
    assert articulation_cuts(chain([5]), (0,)) == ()


def test_two_independent_chains_have_no_articulation_where_one_ends() -> None:
    """PART-3: nothing crosses there; exactly one tensor has to."""
    model = Model()
    for _ in range(2):
        model.output(model.relu(model.relu(model.input([1, 4]))))
    graph = model.graph()
    assert articulation_cuts(graph, whole(graph)) == (1, 3)
    assert crossing_bytes(graph, whole(graph)).tolist() == [0, 16, 0, 16, 0]


def test_an_input_read_on_both_sides_crosses_and_one_read_later_only_does_not() -> None:
    """PART-3: a cut makes the first be loaded twice, the second once as before."""
    model = Model()
    x, late = model.input([1, 4]), model.input([1, 4])
    y = model.relu(model.relu(x))
    model.output(model.node("Add", [model.node("Add", [y, x]), late]))
    graph = model.graph()
    assert crossing_bytes(graph, whole(graph)).tolist() == [0, 32, 32, 16, 0]
    assert articulation_cuts(graph, whole(graph)) == (3,)


def test_a_constant_read_on_both_sides_does_not_cross() -> None:
    """PART-3."""
    model = Model()
    weight = model.weight(4)
    y = model.node("Mul", [model.input([1, 4]), weight])
    model.output(model.node("Mul", [model.relu(y), weight]))
    graph = model.graph()
    assert articulation_cuts(graph, whole(graph)) == (1, 2)


def test_a_result_that_only_other_segments_read_does_not_cross() -> None:
    """PART-2: it is stored when its segment has run, with or without a cut."""
    graph = block()
    b, c, d = (place_after(graph, node) - 1 for node in "bcd")
    inside = tuple(sorted((b, c, d)))
    # of the set b, c, d the result of a enters b and d; those of c and d leave
    shared = {"bcd": [0, 256, 128, 0], "bdc": [0, 256, 128, 0], "dbc": [0, 128, 128, 0]}
    order = "".join(graph.ops[index].node for index in inside)
    assert crossing_bytes(graph, inside).tolist() == shared[order]


@settings(max_examples=150)
@given(models(max_ops=10), st.data())
def test_crossing_tensors_are_those_held_before_and_read_behind(model: Model, data: st.DataObject) -> None:
    """PART-3, by the definition, for any set of ops."""
    graph = model.graph()
    ops = tuple(sorted(data.draw(st.sets(st.sampled_from(whole(graph)))))) if graph.ops else ()
    amounts, single = [], []
    for position in range(len(ops) + 1):
        before = [graph.ops[index] for index in ops[:position]]
        held = {op.output for op in before} | {t.name for op in before for t in graph.activations(op)}
        read = {t.name for index in ops[position:] for t in graph.activations(graph.ops[index])}
        amounts.append(sum(graph.tensors[name].size_bytes for name in held & read))
        if len(held & read) == 1:
            single.append(position)
    assert crossing_bytes(graph, ops).tolist() == amounts
    assert articulation_cuts(graph, ops) == tuple(single)


# -- balanced cuts ------------------------------------------------------------------------------------------------


def test_balanced_cuts_halve_the_largest_share() -> None:
    """PART-3."""
    assert balanced_cuts(chain([1] * 4), range(4), [[0.5], [0.25], [0.25], [0.5]], 2) == (2,)
    assert balanced_cuts(chain([1] * 4), range(4), [[0.25], [0.25], [0.25], [0.75]], 2) == (3,)


def test_balanced_cuts_weigh_the_resource_that_is_scarcest() -> None:
    """PART-3: the second resource has one heavy op at the front."""
    assert balanced_cuts(chain([1] * 3), range(3), [[0.1, 2.0], [0.1, 0.5], [0.4, 0.0]], 2) == (1,)


def test_balanced_cuts_prefer_fewer_bytes_among_equal_balance() -> None:
    """PART-3: the heaviest op alone decides the balance."""
    shares = [[1.0], [0.25], [0.25], [0.25], [1.0]]
    assert balanced_cuts(chain([9, 7, 3, 9, 1]), range(5), shares, 3) == (1, 4)
    assert balanced_cuts(chain([9, 7, 3, 9, 1]), range(5), [[1.0], [0.0], [0.0], [0.0], [1.0]], 2) == (3,)


def test_balanced_cuts_take_the_earliest_of_equals() -> None:
    """PART-3."""
    assert balanced_cuts(chain([4] * 6), range(6), [[1.0], [0.0], [0.0], [0.0], [0.0], [1.0]], 3) == (1, 2)
    assert balanced_cuts(chain([4] * 6), range(6), np.zeros((6, 0)), 3) == (1, 2)


def test_equal_blocks_with_awkward_shares_are_split_equally() -> None:
    """Sums are exact: thirds and tenths in another order weigh the same, so bytes decide."""
    shares = [[0.1], [0.7], [1 / 3], [1 / 3], [0.7], [0.1]] * 3
    sizes = [9, 9, 2, 9, 9, 9] * 3
    assert balanced_cuts(chain(sizes), range(18), shares, 6) == (3, 6, 9, 12, 15)


def test_more_parts_than_ops_give_each_op_a_part() -> None:
    assert balanced_cuts(chain([1, 1, 1]), range(3), [[1.0]] * 3, 8) == (1, 2)
    assert balanced_cuts(chain([1, 1, 1]), range(3), [[1.0]] * 3, 1) == ()
    assert balanced_cuts(chain([1, 1, 1]), (), np.zeros((0, 1)), 2) == ()


@pytest.mark.parametrize("shares", [[[1.0]], [[1.0], [-0.5]], [[1.0], [np.inf]], [1.0, 1.0], [[np.nan], [1.0]]])
def test_shares_that_are_no_finite_row_per_op_are_refused(shares: list[list[float]]) -> None:
    with pytest.raises(InternalError, match="one finite row per op"):
        balanced_cuts(chain([1, 1]), range(2), shares, 2)


@settings(max_examples=300)
@given(st.data())
def test_balanced_cuts_equal_the_best_of_all_cuts(data: st.DataObject) -> None:
    """PART-3: largest share, then bytes, then the earliest, of all ways to cut into so many parts."""
    size = data.draw(st.integers(2, 9))
    parts = data.draw(st.integers(2, size))
    resources = data.draw(st.integers(1, 3))
    graph = chain(data.draw(st.lists(st.integers(1, 4), min_size=size, max_size=size)))
    row = st.lists(st.sampled_from([0, 0, 1, 2, 3, 5, 8]), min_size=resources, max_size=resources)
    shares = np.array(data.draw(st.lists(row, min_size=size, max_size=size))) / 8
    bytes_at = crossing_bytes(graph, range(size))

    def judge(cuts: tuple[int, ...]) -> tuple[float, int, tuple[int, ...]]:
        parts_of = list(pairwise((0, *cuts, size)))
        return max(shares[b:e].sum(axis=0).max() for b, e in parts_of), int(bytes_at[list(cuts)].sum()), cuts

    best = min((judge(cuts) for cuts in combinations(range(1, size), parts - 1)), key=lambda judged: judged)
    assert balanced_cuts(graph, range(size), shares, parts) == best[2]


@settings(max_examples=60)
@given(models(max_ops=10), st.data())
def test_balanced_cuts_of_random_graphs_equal_the_best_of_all_cuts(model: Model, data: st.DataObject) -> None:
    """PART-3, with branches and inputs read on both sides."""
    graph = model.graph()
    ops = whole(graph)[:9]
    parts = data.draw(st.integers(2, 4))
    shares = np.array([[data.draw(st.integers(0, 3)) / 4, 0.25] for _ in ops]).reshape(len(ops), 2)
    bytes_at = crossing_bytes(graph, ops)
    best = min(
        combinations(range(1, len(ops)), min(parts, len(ops)) - 1) if ops else [()],
        key=lambda cuts: (
            max((shares[b:e].sum(axis=0).max() for b, e in pairwise((0, *cuts, len(ops))) if b < e), default=0),
            int(bytes_at[list(cuts)].sum()) if cuts else 0,
            cuts,
        ),
    )
    assert balanced_cuts(graph, ops, shares, parts) == best


# -- named cuts ---------------------------------------------------------------------------------------------------


def test_named_cuts_lie_after_the_nodes_in_order_and_once() -> None:
    """PART-3."""
    graph = block()
    expected = tuple(sorted((place_after(graph, "a"), place_after(graph, "d"))))
    assert named_cuts(graph, whole(graph), ["d", "a", "d"]) == expected


def test_a_named_cut_after_the_last_op_or_outside_the_set_cuts_nothing() -> None:
    """PART-3: the set ends there; the node lies in another segment."""
    graph = block()
    assert named_cuts(graph, whole(graph), ["f"]) == ()
    assert named_cuts(graph, (1, 2, 3), ["a"]) == ()


def test_a_node_that_became_several_ops_is_cut_after_the_last() -> None:
    """PART-3."""
    model = Model()
    halves = model.nodes_out("Split", [model.input([1, 4]), model.ints(2, 2)], ["left", "right"], name="split", axis=1)
    model.output(model.node("Add", list(halves), name="sum"))
    graph = model.graph()
    assert [op.node for op in graph.ops] == ["split", "split", "sum"]
    assert named_cuts(graph, whole(graph), ["split"]) == (2,)


def test_a_folded_normalisation_is_cut_after_its_convolution() -> None:
    """PART-3: any node of an op's origin names it."""
    model = Model()
    y = model.norm(model.conv(model.input([1, 2, 4, 4]), 2, 2, name="conv"), 2, name="norm")
    model.output(model.relu(y))
    graph = model.graph()
    assert named_cuts(graph, whole(graph), ["norm"]) == (place_after(graph, "conv"),)


def test_an_unknown_node_is_refused_by_name() -> None:
    """PART-3."""
    graph = block()
    with pytest.raises(RequestError, match="does not exist") as caught:
        named_cuts(graph, whole(graph), ["a", "nowhere"])
    assert (caught.value.code, caught.value.node) == ("unknown_node", "nowhere")


def test_a_node_evaluated_at_compile_time_is_refused_with_the_reason() -> None:
    """PART-3."""
    model = Model()
    model.output(model.node("Add", [model.input([1, 4]), model.node("Neg", [model.weight(4)], name="folded")]))
    graph = model.graph()
    assert "folded" in graph.folded
    with pytest.raises(RequestError, match="evaluated at compile time") as caught:
        named_cuts(graph, whole(graph), ["folded"])
    assert (caught.value.code, caught.value.node) == ("unknown_node", "folded")
