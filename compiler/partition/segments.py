"""Partition of the graph into segments by output taps (PART-1, PART-2)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from compiler.errors import InternalError
from compiler.ir.graph import Graph


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A convex part of the graph that becomes one executable; ops in execution order, by index."""

    id: str
    ops: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedGraph:
    """A graph and its segments, in execution order."""

    graph: Graph
    segments: tuple[Segment, ...]


def target_ops(graph: Graph) -> tuple[int, ...]:
    """Ops whose result is a graph output and also the input of later ops, in execution order (PART-1)."""
    outputs = set(graph.outputs)
    return tuple(index for index, op in enumerate(graph.ops) if op.output in outputs and graph.consumers.get(op.output))


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionByOutputTaps:
    """Pass: cut after each target op; the result is a chain of segments in execution order (PART-2)."""

    name: str = "partition"

    def run(self, graph: Graph) -> PartitionedGraph:
        """The partitioned graph; a graph without ops has no segments."""
        cuts = [0, *(index + 1 for index in target_ops(graph)), len(graph.ops)]
        ranges = [(a, b) for a, b in pairwise(cuts) if a < b]
        return PartitionedGraph(
            graph=graph,
            segments=tuple(Segment(id=f"s{number}", ops=tuple(range(a, b))) for number, (a, b) in enumerate(ranges)),
        )


def verify_partition(partitioned: PartitionedGraph) -> None:
    """Raises InternalError unless segments cover each op once and their order is an execution order."""
    graph = partitioned.graph
    place = {op: number for number, segment in enumerate(partitioned.segments) for op in segment.ops}
    covered = sorted(op for segment in partitioned.segments for op in segment.ops)
    if covered != list(range(len(graph.ops))):
        raise InternalError("segments do not cover each op exactly once", stage="partition")
    for index, op in enumerate(graph.ops):
        for name in op.inputs:
            producer = graph.producer.get(name)
            if producer is not None and place[producer] > place[index]:
                raise InternalError("a segment reads what a later one makes", stage="partition", node=op.node)
