"""Strategy `none`: each main op with the element-wise ops that follow it (FUSE-N)."""

from __future__ import annotations

from compiler.fusion.evaluate import Evaluator
from compiler.fusion.segment_graph import SegmentGraph, bits, mask_of
from compiler.ops.base import OpClass


def main_chains(graph: SegmentGraph, free: int) -> list[int]:
    """Main ops with the chain of element-wise ops behind them, capacity ignored; all other ops alone (FUSE-N).

    Each op of a chain is the sole consumer of the one before. An op reached by several chains joins the latest main
    op: later mains claim first.
    """
    groups = []
    left = free
    for main in reversed(list(bits(free))):
        if graph.facts.ops[main].op_class is not OpClass.MAIN:
            continue
        chain = 1 << main
        left &= ~chain
        last = main
        while (following := _sole_reader(graph, last)) is not None and left >> following & 1:
            if not _is_elementwise(graph, following):
                break
            chain |= 1 << following
            left &= ~(1 << following)
            last = following
        groups.append(chain)
    groups.extend(1 << op for op in bits(left))
    return sorted(groups, key=lambda group: group & -group)


def _sole_reader(graph: SegmentGraph, op: int) -> int | None:
    if graph.leaves[op] or len(graph.successors[op]) != 1:
        return None
    return graph.successors[op][0]


def _is_elementwise(graph: SegmentGraph, op: int) -> bool:
    return graph.facts.ops[op].in_place


def none_groups(evaluator: Evaluator, graph: SegmentGraph, free: int) -> list[int]:
    """The groups of strategy `none` for the free ops, in execution order; chains are cut where they do not fit."""
    groups: list[int] = []
    for chain in main_chains(graph, free):
        groups.extend(_fitting_parts(evaluator, graph, chain))
    return groups


def _fitting_parts(evaluator: Evaluator, graph: SegmentGraph, chain: int) -> list[int]:
    """The longest head of the chain that obeys rules 4, 8, 9 and the capacity rules; what is left is alone."""
    ops = list(bits(chain))
    for count in range(len(ops), 1, -1):
        head = mask_of(ops[:count])
        if all(c.holds for c in evaluator.chain_rules(graph, head)) and evaluator.chain_fits(head):
            return [head, *(1 << op for op in ops[count:])]
    return [1 << op for op in ops]
