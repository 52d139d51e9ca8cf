"""Partition by output taps (PART-1, PART-2): the worked example G-1 and random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from compiler.errors import InternalError
from compiler.ir.graph import Graph
from compiler.partition.segments import (
    PartitionByOutputTaps,
    PartitionedGraph,
    Segment,
    target_ops,
    verify_partition,
)
from tests.models import Model
from tests.strategies import models


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
    partitioned = PartitionByOutputTaps().run(graph)
    verify_partition(partitioned)
    return [[node for op in segment.ops for node in graph.ops[op].origin] for segment in partitioned.segments]


def test_worked_example_with_identity_sinks_gives_four_segments() -> None:
    """G-1: segments {1,2,3}, {4,5}, {6,7}, {8,9}."""
    assert nodes(example(sinks=True)) == [["1", "2", "3"], ["4", "5"], ["6", "7"], ["8", "9"]]


def test_worked_example_without_sink_nodes_gives_four_segments() -> None:
    """G-1, outputs named directly."""
    assert nodes(example(sinks=False)) == [["1", "2"], ["4"], ["6"], ["8"]]


@pytest.mark.parametrize("sinks", [True, False])
def test_targets_of_the_worked_example_are_2_4_and_6(sinks: bool) -> None:
    """PART-1: op 8 has no consumer that computes further."""
    graph = example(sinks=sinks)
    assert [graph.ops[index].node for index in target_ops(graph)] == ["2", "4", "6"]


def test_an_output_that_nothing_reads_is_no_target() -> None:
    """PART-1."""
    model = Model()
    model.output(model.relu(model.input([1, 4])))
    assert target_ops(model.graph()) == ()
    assert len(PartitionByOutputTaps().run(model.graph()).segments) == 1


def test_an_op_read_twice_but_not_output_is_no_target() -> None:
    """PART-1."""
    model = Model()
    x = model.relu(model.input([1, 4]))
    model.output(model.relu(x))
    model.output(model.node("Neg", [x]))
    assert target_ops(model.graph()) == ()


def test_a_graph_without_ops_has_no_segments() -> None:
    model = Model()
    model.output(model.node("Identity", [model.input([1, 4])]))
    assert PartitionByOutputTaps().run(model.graph()).segments == ()


@settings(max_examples=150)
@given(models(max_ops=10))
def test_partition_is_convex_complete_and_executable_in_order(model: Model) -> None:
    """PART-2: every path that leaves a segment leaves it for good."""
    graph = model.graph()
    segments = PartitionByOutputTaps().run(graph).segments
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
    cuts = [graph.ops[segment.ops[-1]].output for segment in segments[:-1]]
    assert cuts == [graph.ops[index].output for index in target_ops(graph)]


def test_verifier_refuses_a_segment_that_misses_an_op() -> None:
    graph = example(sinks=False)
    with pytest.raises(InternalError, match="exactly once"):
        verify_partition(PartitionedGraph(graph=graph, segments=(Segment(id="s0", ops=(0, 1, 2)),)))


def test_verifier_refuses_segments_out_of_order() -> None:
    graph = example(sinks=False)
    count = len(graph.ops)
    segments = (Segment(id="s0", ops=tuple(range(2, count))), Segment(id="s1", ops=(0, 1)))
    with pytest.raises(InternalError, match="later one makes"):
        verify_partition(PartitionedGraph(graph=graph, segments=segments))
