"""The first cut of a graph: alternating chip and host segments (IMPORT-6), each in execution order."""

from __future__ import annotations

import heapq

from compiler.ir.graph import Graph


def alternating_parts(graph: Graph) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """Splits the ops into alternating runs for the host (True) and for the chip (False), in execution order.

    Each run takes every op that is ready, so runs are few. The first run belongs to the side that gives fewer runs, to
    the chip if both give as many. Near-linear.
    """
    if not graph.ops:
        return ()
    if not graph.on_host:
        return ((False, tuple(range(len(graph.ops)))),)
    return min((_runs(graph, first) for first in (False, True)), key=len)


def _runs(graph: Graph, host_first: bool) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    needs = [len({graph.producer[name] for name in op.inputs if name in graph.producer}) for op in graph.ops]
    ready: dict[bool, list[int]] = {False: [], True: []}
    for index, count in enumerate(needs):
        if not count:
            ready[index in graph.on_host].append(index)
    side = host_first
    runs: list[tuple[bool, tuple[int, ...]]] = []
    while ready[False] or ready[True]:
        run = []
        queue = ready[side]
        heapq.heapify(queue)
        while queue:
            index = heapq.heappop(queue)
            run.append(index)
            for user in graph.consumers.get(graph.ops[index].output, ()):
                needs[user] -= 1
                if not needs[user]:
                    heapq.heappush(ready[user in graph.on_host], user)
        if run:
            runs.append((side, tuple(sorted(run))))
        side = not side
    return tuple(runs)
