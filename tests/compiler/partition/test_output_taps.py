"""Partition by output taps (PART-1, PART-2): the worked example G-1 and random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given

from compiler.errors import InternalError
from compiler.ir.graph import Graph
from compiler.ops.op_facts import graph_facts
from compiler.options import Options
from compiler.partition.cuts import output_taps
from compiler.partition.mapping_graph import mapping_graph
from compiler.partition.segments import (
    Cut,
    CutKind,
    PartitionedGraph,
    Segment,
    SegmentKind,
    verify_partition,
)
from compiler.profile import builtin_profile
from tests.matrices import tries
from tests.models import Model, partition_of
from tests.strategies import models

UNMERGED = Options(merge="none")


def example(*, sinks: bool) -> Graph:
    """G-1: 1 -> 2 -> (3), 4 -> (5), 6 -> (7), 8 -> (9); outputs are Identity nodes or the results themselves."""
    model = Model()
    x = model.input([1, 2, 4, 4])
    x = model.relu(x, name="1")
    for number in (2, 4, 6, 8):
        x = model.relu(x, name=str(number))
        if sinks:
            model.output(model.node("Identity", [x], name=str(number + 1)))
        else:
            model.output(x)
    return model.graph()


def nodes(graph: Graph) -> list[list[str]]:
    """The ONNX nodes of each segment."""
    partitioned = partition_of(graph, options=UNMERGED)
    return [[node for op in segment.ops for node in graph.ops[op].origin] for segment in partitioned.segments]


def targets(graph: Graph) -> list[str]:
    """The nodes of the target ops."""
    ops = tuple(range(len(graph.ops)))
    return [graph.ops[position - 1].node for position in output_taps(graph, ops)]


def test_worked_example_with_identity_sinks_gives_four_segments() -> None:
    """G-1: segments {1,2,3}, {4,5}, {6,7}, {8,9}."""
    assert nodes(example(sinks=True)) == [["1", "2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]


def test_worked_example_without_sink_nodes_gives_four_segments() -> None:
    """G-1, outputs named directly."""
    assert nodes(example(sinks=False)) == [["1", "2"], ["4"], ["6"], ["8"]]


@pytest.mark.parametrize("sinks", [True, False])
def test_targets_of_the_worked_example_are_2_4_and_6(sinks: bool) -> None:
    """PART-1: op 8 has no consumer that computes further."""
    assert targets(example(sinks=sinks)) == ["2", "4", "6"]


def test_segments_of_the_worked_example_begin_after_its_targets() -> None:
    """PART-2: why a segment begins, and what crosses."""
    graph = example(sinks=False)
    cuts = [segment.cut for segment in partition_of(graph, options=UNMERGED).segments]
    assert [cut.kind for cut in cuts] == [CutKind.BEGIN, *[CutKind.OUTPUT_TAP] * 3]
    assert [graph.ops[cut.after].node for cut in cuts if cut.after is not None] == ["2", "4", "6"]
    assert [cut.crossing_bytes for cut in cuts] == [0, *[4 * 2 * 4 * 4] * 3]


def test_an_output_that_nothing_reads_is_no_target() -> None:
    """PART-1."""
    model = Model()
    model.output(model.relu(model.input([1, 4])))
    assert targets(model.graph()) == []
    assert len(partition_of(model.graph(), options=UNMERGED).segments) == 1


def test_an_op_read_twice_but_not_output_is_no_target() -> None:
    """PART-1."""
    model = Model()
    x = model.relu(model.input([1, 4]))
    model.output(model.relu(x))
    model.output(model.node("Neg", [x]))
    assert targets(model.graph()) == []


def test_a_graph_without_ops_has_no_segments() -> None:
    model = Model()
    model.output(model.node("Identity", [model.input([1, 4])]))
    assert partition_of(model.graph(), options=UNMERGED).segments == ()


@tries(first=25, rest=150)
@given(models(max_ops=10))
def test_partition_is_convex_complete_and_executable_in_order(model: Model) -> None:
    """PART-2: every path that leaves a segment leaves it for good."""
    graph = model.graph()
    segments = partition_of(graph, options=UNMERGED).segments
    assert sorted(op for segment in segments for op in segment.ops) == list(range(len(graph.ops)))
    home = {op: number for number, segment in enumerate(segments) for op in segment.ops}
    # reachable[op]: segments on some path after op
    later: dict[int, set[int]] = {}
    for op in reversed(range(len(graph.ops))):
        users = graph.consumers.get(graph.ops[op].output, ())
        later[op] = {home[user] for user in users}.union(*(later[user] for user in users))
        assert all(home[op] <= number for number in later[op])
    for op in range(len(graph.ops)):
        for user in graph.consumers.get(graph.ops[op].output, ()):
            if home[user] != home[op]:
                assert home[op] not in later[user]
    assert [graph.ops[segment.ops[-1]].node for segment in segments[:-1]] == targets(graph)


def hand_made(graph: Graph, *parts: tuple[int, ...]) -> PartitionedGraph:
    """A partition into the given ops."""
    cut = Cut(kind=CutKind.BEGIN, after=None, crossing_bytes=0)
    facts = graph_facts(graph)
    return PartitionedGraph(
        graph=graph,
        facts=facts,
        mapping=mapping_graph(facts, builtin_profile("edge4")),
        segments=tuple(Segment(id=f"s{n}", kind=SegmentKind.CHIP, ops=ops, cut=cut) for n, ops in enumerate(parts)),
    )


def test_verifier_accepts_segments_that_cover_each_op_in_order() -> None:
    verify_partition(hand_made(example(sinks=False), (0, 1), (2, 3, 4)))


def test_verifier_refuses_a_segment_that_misses_an_op() -> None:
    with pytest.raises(InternalError, match="exactly once"):
        verify_partition(hand_made(example(sinks=False), (0, 1, 2)))


def test_verifier_refuses_an_op_in_two_segments() -> None:
    with pytest.raises(InternalError, match="exactly once"):
        verify_partition(hand_made(example(sinks=False), (0, 1, 2), (2, 3, 4)))


def test_verifier_refuses_segments_out_of_order() -> None:
    with pytest.raises(InternalError, match="later one makes"):
        verify_partition(hand_made(example(sinks=False), (2, 3, 4), (0, 1)))


def test_verifier_refuses_ops_of_a_segment_out_of_order() -> None:
    with pytest.raises(InternalError, match="not in execution order"):
        verify_partition(hand_made(example(sinks=False), (1, 0), (2, 3, 4)))


def test_verifier_refuses_a_segment_of_chip_and_host() -> None:
    """IMPORT-6."""
    model = Model()
    x = model.relu(model.input([1, 4]))
    model.output(model.node("Det", [model.node("Reshape", [x, model.ints(2, 2)])]))
    graph = model.graph()
    assert len(graph.on_host) == 1
    with pytest.raises(InternalError, match="chip and host"):
        verify_partition(hand_made(graph, tuple(range(len(graph.ops)))))
