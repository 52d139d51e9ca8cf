"""What partition makes of a graph: a chain of segments, why each begins where it does, and what was tried."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from compiler.errors import InternalError
from compiler.ir.graph import Graph
from compiler.ops.op_facts import GraphFacts
from compiler.partition.mapping_graph import MappingGraph


class SegmentKind(StrEnum):
    """Where a segment runs."""

    CHIP = "chip"
    HOST = "host"


class CutKind(StrEnum):
    """Why a segment begins where it does (PART-2, PART-3, IMPORT-6)."""

    BEGIN = "begin"
    HOST = "host"
    NAMED = "named"
    OUTPUT_TAP = "output-tap"
    ARTICULATION = "articulation"
    BALANCED = "balanced"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The beginning of a segment: what kind of cut made it, after which op, and the bytes that cross it."""

    kind: CutKind
    after: int | None
    crossing_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A convex part of the graph that becomes one executable, or stays on the host; ops by index, ascending."""

    id: str
    kind: SegmentKind
    ops: tuple[int, ...]
    cut: Cut


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedCompile:
    """A segment that did not compile whole, why, how it was cut, and into how many parts (PART-3)."""

    first: int
    last: int
    code: str
    why: str
    by: CutKind
    parts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeAttempt:
    """A merge of neighbours that was tried: its first and last op, how many segments, and why it failed if it did."""

    first: int
    last: int
    members: int
    compiled: bool
    why: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Two neighbouring chip segments that merging left apart: the later one's number, and why."""

    segment: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionedGraph:
    """A graph, its facts, and its segments in execution order, with how they came about."""

    graph: Graph
    facts: GraphFacts
    mapping: MappingGraph
    segments: tuple[Segment, ...]
    failed: tuple[FailedCompile, ...] = ()
    merges: tuple[MergeAttempt, ...] = ()
    apart: tuple[Apart, ...] = ()
    unmerged: int = 0


def verify_partition(partitioned: PartitionedGraph) -> None:
    """Raises InternalError unless segments cover each op once, on its side, in an order of execution.

    In such an order every segment is convex: a path that leaves one comes to later ones only.
    """
    graph = partitioned.graph
    place = {op: number for number, segment in enumerate(partitioned.segments) for op in segment.ops}
    covered = sorted(op for segment in partitioned.segments for op in segment.ops)
    if covered != list(range(len(graph.ops))):
        raise InternalError("segments do not cover each op exactly once", stage="partition")
    for segment in partitioned.segments:
        if any((op in graph.on_host) != (segment.kind is SegmentKind.HOST) for op in segment.ops):
            raise InternalError("a segment holds ops of chip and host", stage="partition")
        if list(segment.ops) != sorted(segment.ops):
            raise InternalError("a segment's ops are not in execution order", stage="partition")
    for index, op in enumerate(graph.ops):
        for name in op.inputs:
            producer = graph.producer.get(name)
            if producer is not None and place[producer] > place[index]:
                raise InternalError("a segment reads what a later one makes", stage="partition", node=op.node)
