"""How groups start and grow: FUSE-A, FUSE-B, and FUSE-1 to FUSE-3."""

from __future__ import annotations

from collections.abc import Iterator

from compiler.fusion.segment_graph import SegmentGraph, bits
from compiler.ops.base import OpClass
from compiler.ops.quantised import base_kind

_START_B = OpClass.MAIN
_NOT_STARTING = ("MatMul", "Gemm")


def fuse_a(graph: SegmentGraph, free: int) -> int | None:
    """FUSE-A: the earliest op not yet in a group."""
    return next(bits(free & graph.all), None)


def fuse_b(graph: SegmentGraph, free: int) -> int | None:
    """FUSE-B: the earliest convolution or pooling not yet in a group."""
    return next(
        (
            op
            for op in bits(free & graph.all)
            if graph.facts.ops[op].op_class is _START_B and base_kind(graph.facts.ops[op].kind) not in _NOT_STARTING
        ),
        None,
    )


def fuse_1(graph: SegmentGraph, group: int, free: int, blocks: bool = True) -> Iterator[int]:
    """FUSE-1: what to add in the direction of execution; units in order of preference, largest first.

    Without `blocks` (FUSE-3 switched off) units are single ops.
    """
    for op in graph.outputs_of(group):
        if graph.leaves[op]:
            continue
        readers = [user for user in graph.successors[op] if not group >> user & 1]
        if not readers:
            continue
        yield from fuse_3(group, graph.block_after(op) if blocks else None, readers, free)


def fuse_2(graph: SegmentGraph, group: int, free: int, blocks: bool = True) -> Iterator[int]:
    """FUSE-2, its backward half: unfused ops before the group, the latest first.

    Without `blocks` (FUSE-3 switched off) units are single ops.
    """
    before = sorted(
        {source for op in bits(group) for source in graph.predecessors[op] if not group >> source & 1},
        reverse=True,
    )
    for source in before:
        if not free >> source & 1:
            continue
        closing = next(op for op in bits(group) if source in graph.predecessors[op])
        branches = len(graph.predecessors[closing]) > 1 or len(graph.successors[source]) > 1
        block = graph.block_before(closing) if branches and blocks else None
        yield from fuse_3(group, block, [source], free)


def fuse_3(group: int, block: int | None, ops: list[int], free: int) -> Iterator[int]:
    """FUSE-3: the whole block where there is one; if it does not fit, its ops one by one.

    Yields units of ops to add, the first that is accepted is taken. A block is offered only if all of it is still
    free or in the group; single ops are offered after it.
    """
    if block is not None and not block & ~(free | group) and block & ~group:
        yield block & ~group
    for op in ops:
        if free >> op & 1 and (block is None or block & ~group != 1 << op):
            yield 1 << op
