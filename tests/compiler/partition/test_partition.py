"""The pass: host and chip in turns, cut until all compiles, merged within every limit (PART-2 to PART-4, IMPORT-6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.errors import LimitError, RequestError
from compiler.fusion.candidate import SegmentCompiler, SegmentCompilers
from compiler.ir.graph import Graph
from compiler.ir.pattern import Pattern
from compiler.ops.op_facts import GraphFacts, graph_facts
from compiler.options import Merge, Options, parse_options
from compiler.partition.chain import alternating_parts
from compiler.partition.mapping_graph import Unit, mapping_graph
from compiler.partition.partition import PartitionGraph, Refused
from compiler.partition.segments import CutKind, PartitionedGraph, SegmentKind, verify_partition
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from compiler.tiling.stationary import cores_of_channels, resident_boxes
from tests.compiler.partition.graphs import assert_valid, convolutions, limited, nodes_of, on_host, stationary
from tests.matrices import tries
from tests.models import Model, import_graph, light_path, partition_of
from tests.strategies import models

MERGES: tuple[Merge, ...] = get_args(Merge)
UNMERGED = Options(merge="none")
# Bytes of weights and multiply-accumulates of one convolution of `convolutions`.
WEIGHTS, MACS = 4 * 4 * 4 * 9, 4 * 4 * 9 * 64


def refused(graph: Graph, profile: Profile, options: Options = UNMERGED) -> LimitError:
    """The error that partition ends in."""
    with pytest.raises(LimitError) as caught:
        partition_of(graph, profile, options)
    return caught.value


def kinds(partitioned: PartitionedGraph) -> list[str]:
    """The kind of each segment."""
    return [segment.kind.value for segment in partitioned.segments]


# Host and chip


def test_host_and_chip_take_turns_and_each_takes_all_that_is_ready() -> None:
    """IMPORT-6."""
    model = Model()
    x = model.input([1, 4])
    a = model.relu(x, name="a")
    h = model.relu(a, name="h")
    b = model.relu(x, name="b")
    model.output(model.node("Add", [h, b], name="c"))
    partitioned = partition_of(on_host(model.graph(), [1]))
    assert nodes_of(partitioned) == [["a", "b"], ["h"], ["c"]]
    assert kinds(partitioned) == ["chip", "host", "chip"]
    assert [segment.cut.kind for segment in partitioned.segments] == [CutKind.BEGIN, CutKind.HOST, CutKind.HOST]
    assert [segment.cut.crossing_bytes for segment in partitioned.segments] == [0, 16, 32]
    assert [segment.cut.after for segment in partitioned.segments] == [None, 2, 1]


def test_the_host_begins_where_that_gives_fewer_segments() -> None:
    model = Model()
    x, y = model.input([1, 4]), model.input([1, 4])
    a = model.relu(x, name="a")
    h = model.relu(y, name="h")
    model.output(model.node("Add", [a, h], name="c"))
    partitioned = partition_of(on_host(model.graph(), [1]))
    assert nodes_of(partitioned) == [["h"], ["a", "c"]]


def test_a_graph_of_the_host_alone_is_one_segment() -> None:
    graph = convolutions(3).graph()
    partitioned = partition_of(on_host(graph, range(3)))
    assert kinds(partitioned) == ["host"]
    assert partitioned.segments[0].ops == (0, 1, 2)


def test_what_only_the_host_knows_the_size_of_crosses_between_its_segments() -> None:
    model = Model()
    found = model.node("NonZero", [model.input([4, 4])], name="unknown")
    x = model.relu(model.node("Det", [model.input([3, 2, 2])], name="det"), name="relu")
    model.output(model.node("Gather", [x, found], name="gather"))
    partitioned = partition_of(model.graph())
    assert nodes_of(partitioned) == [["unknown", "det"], ["relu"], ["gather"]]
    assert [segment.cut.crossing_bytes for segment in partitioned.segments] == [0, 12, 12]


@tries(first=20, rest=60)
@given(models(max_ops=10), st.data())
def test_any_ops_on_the_host_leave_segments_that_are_pure_convex_and_few(model: Model, data: st.DataObject) -> None:
    """IMPORT-6, PART-2. The fewest turns are the most changes of side on any path."""
    graph = model.graph()
    assume(graph.ops)
    moved = data.draw(st.sets(st.integers(0, len(graph.ops) - 1)))
    graph = on_host(graph, moved)
    assert_valid(partition_of(graph, options=UNMERGED))
    assert_valid(partition_of(graph))

    def turns(first: bool) -> int:
        level: dict[int, int] = {}
        for index, op in enumerate(graph.ops):
            side = index in moved
            before = [graph.producer[name] for name in op.inputs if name in graph.producer]
            level[index] = max((level[b] + ((b in moved) != side) for b in before), default=int(side != first))
            level[index] = max(level[index], int(side != first))
        return max(level.values()) + (min(level.values()) == 0)

    parts = alternating_parts(graph)
    assert len(parts) == min(turns(False), turns(True))
    assert all(a[0] != b[0] for a, b in pairwise(parts))


@tries(first=8, rest=25)
@given(models(max_ops=10), st.data())
def test_segments_with_hosts_merge_to_valid_ones_by_every_strategy(model: Model, data: st.DataObject) -> None:
    """PART-4: merging never reaches over a host segment."""
    graph = model.graph()
    assume(graph.ops)
    graph = on_host(graph, data.draw(st.sets(st.integers(0, len(graph.ops) - 1), max_size=3)))
    plain = partition_of(graph, options=UNMERGED)
    for merge in MERGES:
        merged = partition_of(graph, options=Options(merge=merge))
        assert_valid(merged)
        assert merged.unmerged == len(plain.segments) >= len(merged.segments)
        hosts = [segment.ops for segment in merged.segments if segment.kind is SegmentKind.HOST]
        assert hosts == [segment.ops for segment in plain.segments if segment.kind is SegmentKind.HOST]


# What does not compile is cut further


def test_output_taps_come_before_articulation_points() -> None:
    """PART-3. Named cuts replace the first cut at taps, so that taps are left to find."""
    graph = convolutions(4, taps=[1]).graph()
    partitioned = partition_of(graph, limited(weight_bytes=2 * WEIGHTS), replace_named())
    assert nodes_of(partitioned) == [["c0", "c1"], ["c2", "c3"]]
    (failed,) = partitioned.failed
    assert (failed.first, failed.last, failed.by, failed.parts) == (0, 3, CutKind.OUTPUT_TAP, 2)
    assert (failed.code, partitioned.segments[1].cut.kind) == ("segment_too_large", CutKind.OUTPUT_TAP)
    assert f"actual {4 * WEIGHTS}" in failed.why
    assert "limits.weight_bytes" in failed.why


def replace_named() -> Options:
    """Cuts by name at no place inside: after the last node."""
    return Options(merge="none", partition=("c3",))


def test_articulation_points_come_before_balanced_cuts() -> None:
    """PART-3: one tensor crosses between two convolutions, so all are cut apart at once."""
    partitioned = partition_of(convolutions(4).graph(), limited(macs=2 * MACS), UNMERGED)
    assert nodes_of(partitioned) == [["c0"], ["c1"], ["c2"], ["c3"]]
    (failed,) = partitioned.failed
    assert (failed.by, failed.parts) == (CutKind.ARTICULATION, 4)
    assert [segment.cut.kind for segment in partitioned.segments[1:]] == [CutKind.ARTICULATION] * 3
    assert {segment.cut.crossing_bytes for segment in partitioned.segments[1:]} == {4 * 4 * 64}


def parallel(count: int) -> Model:
    """Two chains side by side over one input, added up: at no point does one tensor alone cross."""
    model = Model()
    x = model.input([1, 4, 8, 8])
    lanes = [x, x]
    for index in range(count):
        lanes = [model.conv(x, 4, 4, name=f"{side}{index}") for side, x in zip("ab", lanes, strict=True)]
    model.output(model.node("Add", lanes, name="sum"))
    return model


def test_balanced_cuts_come_last_and_are_as_many_as_the_limit_asks() -> None:
    """PART-3: eight convolutions of which three are allowed together need three parts, 3 + 3 + 2."""
    partitioned = partition_of(parallel(4).graph(), limited(weight_bytes=3 * WEIGHTS), UNMERGED)
    (failed,) = partitioned.failed
    assert (failed.by, failed.parts) == (CutKind.BALANCED, 3)
    weights = [weight_bytes for _, weight_bytes, _ in figures(partitioned)]
    assert sorted(weights) == [2 * WEIGHTS, 3 * WEIGHTS, 3 * WEIGHTS]
    assert [segment.cut.kind for segment in partitioned.segments] == [CutKind.BEGIN, CutKind.BALANCED, CutKind.BALANCED]
    assert_valid(partitioned)


def test_ops_of_a_recorded_pattern_are_not_parted_by_articulation_cuts() -> None:
    """What belongs together is cut last, by balance."""
    graph = convolutions(4).graph()
    together = (graph.ops[1].output, graph.ops[2].output)
    graph = replace(graph, patterns=(Pattern(kind="attention", ops=together, nodes=("c1", "c2")),))
    partitioned = partition_of(graph, limited(macs=2 * MACS), UNMERGED)
    assert nodes_of(partitioned) == [["c0"], ["c1", "c2"], ["c3"]]
    again = partition_of(graph, limited(macs=MACS), UNMERGED)
    assert nodes_of(again) == [["c0"], ["c1"], ["c2"], ["c3"]]
    assert [failed.by for failed in again.failed] == [CutKind.ARTICULATION, CutKind.BALANCED]


@pytest.mark.parametrize(
    ("limits", "field", "actual", "limit"),
    [
        ({"weight_bytes": WEIGHTS - 1}, "limits.weight_bytes", WEIGHTS, WEIGHTS - 1),
        ({"macs": MACS - 1}, "limits.macs", MACS, MACS - 1),
    ],
)
def test_a_single_op_beyond_a_limit_is_named_with_limit_and_amount(
    limits: dict[str, Any], field: str, actual: int, limit: int
) -> None:
    """PART-3."""
    model = Model()
    x = model.relu(model.input([1, 4, 8, 8]), name="small")
    model.output(model.conv(x, 4, 4, name="large"))
    error = refused(model.graph(), limited(**limits))
    assert (error.code, error.node, error.op_type) == ("op_too_large", "large", "Conv")
    assert (error.actual, error.limit) == (actual, limit)
    assert error.hint is not None
    assert field in error.hint


def test_more_than_the_dram_holds_is_cut_too() -> None:
    """PART-3: what a segment hands on is stored, so fewer ops need less."""
    graph = convolutions(3).graph()
    profile = limited()
    tight = 4 * 4 * 64 * 2 + WEIGHTS
    small = profile_with_dram(profile, tight)
    assert nodes_of(partition_of(graph, small, UNMERGED)) == [["c0"], ["c1"], ["c2"]]
    error = refused(graph, profile_with_dram(profile, tight - 1))
    assert (error.code, error.actual, error.limit) == ("op_too_large", tight, tight - 1)


def profile_with_dram(profile: Profile, capacity_bytes: int) -> Profile:
    """The profile with another DRAM."""
    dram = msgspec.structs.replace(profile.dram, capacity_bytes=capacity_bytes)
    return msgspec.structs.replace(profile, dram=dram)


def test_an_op_that_no_smaller_segment_cures_is_refused_at_once() -> None:
    """Streamed weights take no room of other ops, so cutting would not help."""
    graph = convolutions(3, channels=64).graph()
    profile = limited()
    tiny = msgspec.structs.replace(profile, nram=msgspec.structs.replace(profile.nram, capacity_bytes=60))
    error = refused(graph, tiny)
    assert (error.code, error.node) == ("does_not_fit", "c0")


def test_stationary_weights_of_a_segment_share_one_chip() -> None:
    """PART-3: four cores hold a convolution's 2,304 bytes as 576 each; two of three leave too little for tiles.

    Two leave 40 bytes: one input channel of a 3×3 window in 8 parts, 36 bytes, and no room for the sums of two output
    channels beside it. One leaves 616.
    """
    graph = convolutions(3, channels=8).graph()
    one = 8 * 8 * 9 * 4 // 4
    roomy = partition_of(graph, stationary(nram_bytes=3 * one + 4096), UNMERGED)
    assert len(roomy.segments) == 1
    tight = partition_of(graph, stationary(nram_bytes=2 * one + 40), UNMERGED)
    assert nodes_of(tight) == [["c0"], ["c1"], ["c2"]]
    (failed,) = tight.failed
    assert failed.code == "segment_too_large"
    assert "nram.capacity_bytes" in failed.why


# The user's own cuts


def test_named_cuts_replace_those_at_taps() -> None:
    """PART-3: a list of node names given by the user."""
    graph = convolutions(5, taps=[0]).graph()
    partitioned = partition_of(graph, options=Options(merge="none", partition=("c1", "c3")))
    assert nodes_of(partitioned) == [["c0", "c1"], ["c2", "c3"], ["c4"]]
    assert [segment.cut.kind for segment in partitioned.segments[1:]] == [CutKind.NAMED] * 2


@pytest.mark.parametrize("merge", MERGES)
def test_named_cuts_survive_merging(merge: Merge) -> None:
    """PART-4: and parts between them that had to be cut further are merged again where they can."""
    graph = convolutions(6).graph()
    profile = limited(weight_bytes=2 * WEIGHTS)
    partitioned = partition_of(graph, profile, Options(merge=merge, partition=("c2",)))
    assert_valid(partitioned)
    begins = {segment.ops[0] for segment in partitioned.segments}
    assert 3 in begins
    if merge != "none":
        assert len(partitioned.segments) == 4
    (apart,) = [entry for entry in partitioned.apart if partitioned.segments[entry.segment].ops[0] == 3]
    assert apart.why == "option partition asks for a cut here"


def test_a_cut_after_the_last_node_or_inside_the_host_changes_nothing() -> None:
    graph = on_host(convolutions(4).graph(), [1])
    partitioned = partition_of(graph, options=Options(merge="none", partition=("c3", "c1")))
    assert nodes_of(partitioned) == [["c0"], ["c1"], ["c2", "c3"]]


def test_a_cut_after_a_node_that_does_not_exist_is_refused() -> None:
    with pytest.raises(RequestError) as caught:
        partition_of(convolutions(3).graph(), options=Options(partition=("c1", "nowhere")))
    assert (caught.value.code, caught.value.node) == ("unknown_node", "nowhere")


# Merging


def figures(partitioned: PartitionedGraph) -> list[tuple[int, int, int]]:
    """MACs, weight bytes and vector-unit nodes of each segment, from the ops themselves."""
    graph, facts = partitioned.graph, partitioned.facts
    found = []
    for segment in partitioned.segments:
        names = {n for op in segment.ops for n in graph.ops[op].inputs if n and graph.tensors[n].constant is not None}
        vector = [node for node in partitioned.mapping.nodes if node.op in segment.ops and node.unit is Unit.VECTOR]
        macs = sum(int(facts.ops[op].macs * graph.tensors[graph.ops[op].output].elements) for op in segment.ops)
        found.append((macs, sum(graph.tensors[name].size_bytes for name in names), len(vector)))
    return found


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("merge", [merge for merge in MERGES if merge != "none"])
@settings(max_examples=15)
@given(model=models(max_ops=10), data=st.data())
def test_merged_segments_keep_every_limit_and_lose_nothing(merge: Merge, model: Model, data: st.DataObject) -> None:
    """PART-4: the profile's limits bind every segment, the options' maxima those of several members."""
    graph = model.graph()
    assume(graph.ops)
    facts = graph_facts(graph)
    largest = max(op.weight_bytes for op in facts.ops), max(op.total_macs for op in facts.ops)
    profile = limited(
        weight_bytes=max(1, largest[0]) * data.draw(st.integers(1, 3)),
        macs=max(1, largest[1]) * data.draw(st.integers(1, 3)),
    )
    maxima = {
        "max_macs": data.draw(st.none() | st.integers(0, 4 * largest[1])),
        "max_weight_bytes": data.draw(st.none() | st.integers(0, 4 * largest[0])),
        "max_vector_nodes": data.draw(st.none() | st.integers(0, 6)),
    }
    plain = partition_of(graph, profile, UNMERGED)
    merged = partition_of(graph, profile, parse_options({"merge": merge, **maxima}))
    assert_valid(plain)
    assert_valid(merged)
    members = {segment.ops for segment in plain.segments}
    for segment, (macs, weight_bytes, vector_nodes) in zip(merged.segments, figures(merged), strict=True):
        assert macs <= (profile.limits.macs or 0)
        assert weight_bytes <= (profile.limits.weight_bytes or 0)
        if segment.ops not in members:
            found = {"max_macs": macs, "max_weight_bytes": weight_bytes, "max_vector_nodes": vector_nodes}
            # sums of members count a weight that two of them share twice, so only the rest is exact
            assert all(limit is None or found[name] <= limit for name, limit in maxima.items())
    assert len(merged.segments) <= len(plain.segments)


def test_no_candidate_is_compiled_twice() -> None:
    """PART-4: results are memoised by content."""
    asked: list[tuple[int, ...]] = []

    class Counting(SegmentCompiler):
        def _refusal(self, ops: tuple[int, ...]) -> Refused | None:
            asked.append(ops)
            return super()._refusal(ops)

    def candidates(facts: GraphFacts) -> SegmentCompiler:
        return Counting(facts, profile, options)

    graph = convolutions(9, taps=range(9)).graph()
    profile = limited(weight_bytes=3 * WEIGHTS)
    for merge in MERGES:
        asked.clear()
        options = Options(merge=merge)
        partitioned = PartitionGraph(profile=profile, options=options, candidates=candidates).run(graph)
        verify_partition(partitioned)
        assert asked
        assert len(asked) == len(set(asked))


def test_equal_ops_are_tiled_once_however_often_they_are_asked() -> None:
    """PART-4: candidates are compared by content; nine equal convolutions need one tiling."""
    graph = convolutions(9).graph()
    compiler = SegmentCompilers(limited(), Options()).of(graph_facts(graph))
    tiled: list[int] = []
    evaluator = compiler.evaluator(tuple(range(9)))
    search = evaluator.tiling

    def counting(group: int) -> Any:
        tiled.append(group)
        return search(group)

    object.__setattr__(evaluator, "tiling", counting)
    assert all(compiler.refusal(tuple(range(first, 9))) is None for first in range(9))
    assert len(tiled) == 1


def test_a_merge_that_fails_is_reported_with_its_reason() -> None:
    """PART-4."""
    graph = convolutions(3, taps=range(3)).graph()
    partitioned = partition_of(graph, limited(weight_bytes=2 * WEIGHTS), Options(merge="pairwise"))
    assert nodes_of(partitioned) == [["c0", "c1"], ["c2"]]
    (attempt,) = partitioned.merges
    assert (attempt.first, attempt.last, attempt.members, attempt.compiled, attempt.why) == (0, 1, 2, True, None)
    (apart,) = partitioned.apart
    assert f"actual {3 * WEIGHTS}; limit {2 * WEIGHTS}" in apart.why
    # two convolutions' weights fit one core, but leave less than the smallest tile needs
    tight = partition_of(graph, stationary(nram_bytes=2 * WEIGHTS + 120, cores=1), Options(merge="forward"))
    assert nodes_of(tight) == [["c0"], ["c1"], ["c2"]]
    assert [attempt.compiled for attempt in tight.merges] == [False, False]
    assert all(attempt.why is not None and "smallest tile" in attempt.why for attempt in tight.merges)


def test_neighbours_that_only_the_strategy_leaves_apart_say_so() -> None:
    """PART-4: pairs are not merged with each other."""
    partitioned = partition_of(convolutions(4, taps=range(4)).graph(), options=Options(merge="pairwise"))
    assert [entry.why for entry in partitioned.apart] == ["strategy pairwise leaves them apart"]


def test_merging_by_thresholds_counts_vector_units_nodes() -> None:
    """PART-4, PART-6."""
    model = Model()
    x = model.input([1, 4, 8, 8])
    for index in range(4):
        x = model.output(model.relu(model.conv(x, 4, 4, name=f"c{index}"), name=f"r{index}"))
    options = Options(merge="thresholds", min_vector_nodes=2, max_vector_nodes=2)
    assert [len(nodes) for nodes in nodes_of(partition_of(model.graph(), options=options))] == [4, 4]


# The mapping graph


def mapped() -> PartitionedGraph:
    """A convolution with bias and Relu, a transposition, a view, an op of the host, a product."""
    model = Model()
    x = model.relu(model.conv(model.input([1, 4, 8, 8]), 4, 8, name="conv"), name="relu")
    x = model.node("Transpose", [x], perm=[0, 2, 3, 1], name="move")
    x = model.node("Reshape", [x, model.ints(8, 8, 8)], name="view")
    x = model.node("Det", [x], name="det")
    model.output(model.node("Mul", [x, x], name="mul"))
    return partition_of(model.graph())


def test_each_op_lies_on_the_hardware_that_does_its_work() -> None:
    """PART-6: loads, matrix part, vector part, store."""
    partitioned = mapped()
    graph, mapping = partitioned.graph, partitioned.mapping
    found = {
        graph.ops[op].node: [(mapping.nodes[i].unit, mapping.nodes[i].amount) for i in indices]
        for op, indices in mapping.by_op.items()
    }
    dma, matrix, vector, host = Unit.DMA, Unit.MATRIX, Unit.VECTOR, Unit.HOST
    weights, image = 4 * 8 * 4 * 9, 4 * 4 * 64
    assert found["conv"] == [(dma, weights + image), (matrix, 8 * 4 * 9 * 64)]
    assert found["relu"] == [(vector, 8 * 64)]
    assert found["move"] == [(dma, 4 * 8 * 64)]
    # what the host reads is handed out
    assert found["view"] == [(dma, 0), (dma, 4 * 8 * 64)]
    assert found["det"] == [(host, 1)]
    # and what it makes is loaded, once although it is read twice
    assert found["mul"] == [(dma, 4 * 8), (vector, 8), (dma, 4 * 8)]


def test_nodes_know_their_chip_and_their_cores_before_partition() -> None:
    """PART-6: chips by work, in execution order; cores by channels of stationary weights, or by elements."""
    graph = convolutions(4, channels=6).graph()
    mapping = mapping_graph(graph_facts(graph), stationary(nram_bytes=1 << 20, cores=8))
    products = [node for node in mapping.nodes if node.unit is Unit.MATRIX]
    assert [node.chip for node in products] == [0, 0, 1, 1]
    assert [node.cores for node in products] == [tuple(range(6))] * 4
    macs = 6 * 6 * 9 * 64
    assert [node.cycles for node in products] == [pytest.approx(macs / (8 * 8) / 6)] * 4
    streamed = mapping_graph(graph_facts(graph), limited())
    assert {(node.chip, node.cores) for node in streamed.nodes} == {(0, (0, 1, 2, 3))}
    model = Model()
    model.output(model.relu(model.input([1, 1, 1, 3])))
    small = mapping_graph(graph_facts(model.graph()), limited())
    assert {node.cores for node in small.nodes} == {(0, 1, 2)}


@pytest.mark.parametrize("channels", [3, 5, 8, 21])
@pytest.mark.parametrize("name", ["cluster4x4", "manycore2x64"])
def test_cores_of_channels_are_those_that_hold_a_part_of_a_weight(name: str, channels: int) -> None:
    """PART-6: as `resident_boxes` shares a weight out, over clusters and then their cores."""
    profile = builtin_profile(name)
    facts = graph_facts(convolutions(1, channels=channels).graph())
    weight = next(operand for operand in facts.ops[0].operands if operand.constant)
    parts = resident_boxes(facts, facts.ops[0], weight, profile)
    holding = [core for core, part in enumerate(parts) if all(start < stop for start, stop in part)]
    assert cores_of_channels(channels, profile) == tuple(holding)


def test_nodes_lie_on_the_chips_of_their_segments_once_these_are_known() -> None:
    """PART-6: chips are given last."""
    graph = on_host(convolutions(4, taps=[0]).graph(), [2])
    mapping = partition_of(graph).mapping.on_chips({0: 1, 1: 0, 2: None, 3: 1})
    assert {(node.op, node.chip) for node in mapping.nodes} == {(0, 1), (1, 0), (2, None), (3, 1)}


@tries(first=15, rest=40)
@given(models(max_ops=8), st.data())
def test_edges_of_the_mapping_graph_follow_those_of_the_graph(model: Model, data: st.DataObject) -> None:
    """PART-6: every op waits for those that it reads from, and none for a later one."""
    graph = model.graph()
    assume(graph.ops)
    graph = on_host(graph, data.draw(st.sets(st.integers(0, len(graph.ops) - 1), max_size=3)))
    mapping = partition_of(graph).mapping
    assert {node.op for node in mapping.nodes} == set(range(len(graph.ops)))
    between = {(mapping.nodes[a].op, mapping.nodes[b].op) for a, b in mapping.edges}
    expected = {
        (graph.producer[name], index)
        for index, op in enumerate(graph.ops)
        for name in op.inputs
        if name in graph.producer
    }
    assert {edge for edge in between if edge[0] != edge[1]} == expected
    assert all(a < b for a, b in mapping.edges)
    assert all(node.amount >= 0 for node in mapping.nodes)
    assert all((not node.cores) == (node.chip is None) == (node.unit is Unit.HOST) for node in mapping.nodes)


# Candidates


def test_shares_of_ops_add_up_to_those_of_the_segment() -> None:
    """PART-3: what balanced cuts balance."""
    graph = convolutions(3).graph()
    facts = graph_facts(graph)
    streamed = SegmentCompilers(limited(weight_bytes=10 * WEIGHTS, macs=5 * MACS), Options()).of(facts)
    np.testing.assert_allclose(streamed.shares((0, 1, 2)), [[0.1, 0.2]] * 3)
    resident = SegmentCompilers(stationary(nram_bytes=1440), Options()).of(facts)
    np.testing.assert_allclose(resident.shares((0, 2)), [[WEIGHTS / 4 / 1440]] * 2)
    free = SegmentCompilers(limited(), Options()).of(facts)
    np.testing.assert_allclose(free.shares((0, 1, 2)).sum(axis=0), [1.0])


def test_a_refusal_says_how_many_parts_it_takes_at_least() -> None:
    graph = convolutions(5).graph()
    compiler = SegmentCompilers(limited(weight_bytes=2 * WEIGHTS), Options()).of(graph_facts(graph))
    found = compiler.refusal((0, 1, 2, 3, 4))
    assert found is not None
    assert (found.curable, found.share) == (True, 2.5)
    assert compiler.farthest([(0,), (1,), (2,), (3,), (4,)]) == [2, 3, 4, 5, 5]
    assert compiler.refusal((0, 1)) is None


def test_a_weight_that_two_ops_share_counts_once() -> None:
    model = Model()
    x, w = model.input([1, 4, 8, 8]), model.weight(4, 4, 1, 1)
    x = model.node("Conv", [x, w], name="a")
    model.output(model.node("Conv", [x, w], name="b"))
    facts = graph_facts(model.graph())
    compiler = SegmentCompilers(limited(weight_bytes=64), Options()).of(facts)
    assert compiler.refusal((0, 1)) is None


def test_the_compiler_of_one_graph_is_kept_for_it() -> None:
    compilers = SegmentCompilers(limited(), Options())
    first, second = graph_facts(convolutions(1).graph()), graph_facts(convolutions(1).graph())
    assert compilers.of(first) is compilers.of(first)
    assert compilers.of(second) is not compilers.of(first)


@pytest.mark.slow
def test_weights_leave_each_op_room_to_work() -> None:
    """Beside the weights of a longer segment one op of ResNet-50 would take 67 times as long."""
    profile, options = builtin_profile("manycore2x64"), Options()
    partitioned = partition_of(import_graph(light_path("resnet50").read_bytes()), profile, options)
    compiler = SegmentCompilers(profile, options).of(partitioned.facts)
    crowded = 0
    for segment in partitioned.segments:
        beside = compiler.evaluator(segment.ops)
        for op in segment.ops:
            taken, alone = beside.price(1 << op), compiler.evaluator((op,)).price(1 << op)
            assert taken is not None
            assert alone is not None
            assert taken.cycles <= 4 * alone.cycles
            crowded += taken.cycles > alone.cycles
    assert crowded
