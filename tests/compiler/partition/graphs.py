"""Graphs for tests of partition: ops moved to the host, small limits."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any

from compiler.ir.graph import HOST, Graph, HostNode
from compiler.ir.verify import verify_graph
from compiler.partition.segments import PartitionedGraph, SegmentKind
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.models import Model
from tests.profiles import profile_values


def on_host(graph: Graph, moved: Collection[int]) -> Graph:
    """The graph with some of its ops left to the host."""
    ops, hosts = list(graph.ops), {}
    for index in moved:
        op = ops[index]
        key = f"host{index}"
        ops[index] = replace(op, kind=HOST, attributes=(("node", key), ("result", 0)))
        hosts[key] = HostNode(
            name=op.node,
            op_type=op.kind,
            domain="",
            reason="moved",
            node=b"",
            inputs=op.inputs,
            outputs=(op.output,),
            opsets=(("", 17),),
            functions=(),
            macs=0,
        )
    moved_graph = replace(graph, ops=tuple(ops), host=hosts)
    verify_graph(moved_graph)
    return moved_graph


def limited(name: str = "edge4", **limits: Any) -> Profile:
    """A built-in profile with other limits of an executable."""
    values = profile_values(name)
    values["limits"] |= limits
    return profile_from_values(values)


def stationary(*, nram_bytes: int, cores: int = 4, chips: int = 2, compression: float = 1.0) -> Profile:
    """An accelerator with stationary weights and little memory, whose units count addresses by strides."""
    values = profile_values("manycore2x64")
    values["name"] = "stationary"
    values["addressing"] = "strides"
    values["cores_per_cluster"] = cores
    values["chips"] = chips
    values["nram"]["capacity_bytes"] = nram_bytes
    values["weights"]["compression"] = compression
    return profile_from_values(values)


def convolutions(count: int, *, channels: int = 4, extent: int = 8, taps: Collection[int] = ()) -> Model:
    """A chain of convolutions c0, c1...; those in `taps` are outputs too."""
    model = Model()
    x = model.input([1, channels, extent, extent])
    for index in range(count):
        x = model.conv(x, channels, channels, name=f"c{index}")
        if index in taps:
            model.output(x)
    if count - 1 not in taps:
        model.output(x)
    return model


def nodes_of(partitioned: PartitionedGraph) -> list[list[str]]:
    """The nodes that give the ops of each segment their kind."""
    return [[partitioned.graph.ops[op].node for op in segment.ops] for segment in partitioned.segments]


def assert_valid(partitioned: PartitionedGraph) -> None:
    """Complete, pure, executable in order and convex: recomputed by walking paths, not by the compiler's verifier."""
    graph = partitioned.graph
    home: dict[int, int] = {}
    for number, segment in enumerate(partitioned.segments):
        assert segment.ops
        assert segment.id == f"s{number}"
        for op in segment.ops:
            assert op not in home
            home[op] = number
            assert (graph.ops[op].kind == HOST) == (segment.kind is SegmentKind.HOST)
    assert len(home) == len(graph.ops)
    # for each op the segments that lie on some path behind it
    behind: dict[int, set[int]] = {}
    for op in reversed(range(len(graph.ops))):
        users = list(_users(graph, op))
        behind[op] = {home[user] for user in users}.union(*(behind[user] for user in users))
        assert all(number >= home[op] for number in behind[op])
    for op in range(len(graph.ops)):
        for user in _users(graph, op):
            if home[user] != home[op]:
                assert home[op] not in behind[user], "a path leaves a segment and comes back"


def _users(graph: Graph, op: int) -> Iterator[int]:
    name = graph.ops[op].output
    return (index for index, other in enumerate(graph.ops) if name in other.inputs)
