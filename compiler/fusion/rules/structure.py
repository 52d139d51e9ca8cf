"""Rules about what a group consists of: FUSE-4 to FUSE-9 and FUSE-19. They apply to groups of two or more ops."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from compiler.fusion.segment_graph import SegmentGraph
from compiler.ops.base import OpClass
from compiler.ops.quantised import base_kind
from compiler.tiling.figures import Check

_SCALAR_KINDS = ("Add", "Sub", "Mul", "Sum")


def fuse_4(graph: SegmentGraph, group: int) -> Check:
    """FUSE-4: the group has a single output tensor."""
    outputs = len(graph.outputs_of(group))
    return Check(rule="FUSE-4", holds=outputs <= 1, actual=outputs, limit=1)


def fuse_5(graph: SegmentGraph, group: int, limit: float) -> Check:
    """FUSE-5: at least 2 main ops."""
    mains = sum(1 for op in graph.members(group) if graph.facts.ops[op].op_class is OpClass.MAIN)
    return Check(rule="FUSE-5", holds=mains >= limit, actual=mains, limit=limit)


def fuse_6(graph: SegmentGraph, group: int) -> Check:
    """FUSE-6: contains main, main, non-main ops in direct succession (views between them do not count)."""
    main_pairs = set()
    main_to_other = []
    for first, second in _successions(graph, group):
        kinds = _classes(graph, first, second)
        if kinds == (True, True):
            main_pairs.add(second)
        elif kinds == (True, False):
            main_to_other.append(first)
    runs = sum(1 for middle in main_to_other if middle in main_pairs)
    return Check(rule="FUSE-6", holds=runs >= 1, actual=runs, limit=1)


def fuse_7(graph: SegmentGraph, group: int) -> Check:
    """FUSE-7: contains a scalar op (add, subtract, multiply) directly followed by a vector op."""
    pairs = sum(
        1
        for first, second in _successions(graph, group)
        if base_kind(graph.facts.ops[first].kind) in _SCALAR_KINDS
        and graph.facts.ops[second].op_class is OpClass.VECTOR
    )
    return Check(rule="FUSE-7", holds=pairs >= 1, actual=pairs, limit=1)


def fuse_8(graph: SegmentGraph, group: int) -> Check:
    """FUSE-8: no convolution's weight is the output of an op of the network."""
    computed = (group & graph.with_computed_weights).bit_count()
    return Check(rule="FUSE-8", holds=computed == 0, actual=computed, limit=0)


def fuse_9(graph: SegmentGraph, group: int) -> Check:
    """FUSE-9: no convolution's weight is shared with any other op."""
    shared = (group & graph.with_shared_weights).bit_count()
    return Check(rule="FUSE-9", holds=shared == 0, actual=shared, limit=0)


def fuse_19(graph: SegmentGraph, group: int, limit: float) -> Check:
    """FUSE-19: per axis, the sum over convolutions and poolings of (kernel − stride) is at most the limit.

    Ignored where the group takes in a whole multi-branch block.
    """
    overlaps = [graph.facts.ops[op].overlap for op in graph.members(group)]
    sums = [sum(axis) for axis in zip_longest(*overlaps, fillvalue=0)]
    worst = max(sums, default=0)
    ignored = graph.holds_whole_block(group)
    return Check(rule="FUSE-19", holds=ignored or worst <= limit, actual=worst, limit=limit)


def _successions(graph: SegmentGraph, group: int) -> Iterator[tuple[int, int]]:
    """Pairs of ops of the group where the second reads the first, views skipped."""
    for op in graph.members(group):
        if graph.facts.ops[op].op_class is OpClass.VIEW:
            continue
        pending = list(graph.successors[op])
        while pending:
            successor = pending.pop()
            if not group >> successor & 1:
                continue
            if graph.facts.ops[successor].op_class is OpClass.VIEW:
                pending.extend(graph.successors[successor])
            else:
                yield op, successor


def _classes(graph: SegmentGraph, *ops: int) -> tuple[bool, ...]:
    return tuple(graph.facts.ops[op].op_class is OpClass.MAIN for op in ops)
