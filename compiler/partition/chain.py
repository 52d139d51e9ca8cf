"""The first cut of a graph: chip and host segments in turns (IMPORT-6), each in an order of execution."""

from __future__ import annotations

import heapq

from compiler.ir.graph import Graph


def alternating_parts(graph: Graph) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """The ops in runs that are all the host's (True) or all the chip's (False), in an order of execution.

    Each run takes everything that is ready, so runs are few; of the two sides to begin with, the one that gives
    fewer runs is chosen, the chip where both give as many. Near-linear.
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
