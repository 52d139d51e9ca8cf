"""Orders neighbouring groups together: an engine may begin a group while it waits for results of the one before.

Groups whose commands are listed one by one need not come one after another. Engines that wait for the last results of a
group may go on with the first loads of the next one, where these meet nothing in a memory that is still in use. As in a
single group a simulation in which engines take what is ready gives the order; it is kept where the groups then take
less than one after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from compiler.program.program import Program
from compiler.program.steps.assemble import OrderedGroup, OrderedSegment
from compiler.program.steps.commands import different, spread
from compiler.program.steps.conflicts import Conflicts
from compiler.program.timing.demands import Demands
from compiler.program.timing.order import fastest, ready_first
from compiler.program.timing.ticks import Ints

# So many steps at most are ordered together, since an engine looks at all of them whenever it takes a command. With 128
# mamba2 gains nothing and ResNet-50 1.6 %, with 512 they gain 8 and 2 %, on cluster4x4; either takes below a second.
_STEPS_MAX: Final = 512


def interleaved(
    groups: Sequence[OrderedGroup], program: Program, demands: Demands, conflicts: Conflicts
) -> OrderedSegment:
    """The groups of a segment in the fastest order. `program`: a command of each kind, `demands` theirs."""
    parts, nests, ordered, begin = list[Ints](), list[int](), list[OrderedGroup](), 0
    for nest, run in enumerate(_runs(groups, conflicts)):
        sizes = [len(its.order) for its in run]
        count = sum(sizes)
        order = np.arange(count) if len(run) == 1 else _fastest(run, program, demands, conflicts)
        places = np.empty(count, dtype=np.int64)
        places[order] = np.arange(count)
        for its, own in zip(run, np.split(places, np.cumsum(sizes)[:-1]), strict=True):
            # what stands in another order now stands in that in its group, too
            turns = np.argsort(own)
            ordered.append(replace(its, order=its.order[turns]))
            parts.append(begin + own[turns])
            nests.append(nest)
        begin += count
    return OrderedSegment(groups=ordered, nests=np.array(nests, dtype=np.int64), places=np.concatenate(parts))


def _runs(groups: Sequence[OrderedGroup], conflicts: Conflicts) -> Iterator[Sequence[OrderedGroup]]:
    """Neighbours that are listed, with at most so many steps; each other group by itself."""
    numbers = conflicts.nodes.group_steps
    run, steps = list[OrderedGroup](), 0
    for its in groups:
        size = len(np.unique(numbers[conflicts.nodes.slice(its.group.number)]))
        is_listed = bool(run) and run[-1].group.is_listed and its.group.is_listed
        if run and not (is_listed and steps + size <= _STEPS_MAX):
            yield run
            run, steps = [], 0
        run.append(its)
        steps += size
    if run:
        yield run


def _fastest(run: Sequence[OrderedGroup], program: Program, demands: Demands, conflicts: Conflicts) -> Ints:
    """The fastest order of listed neighbours: places of their commands in the order of one group after another."""
    first, end = int(conflicts.firsts[run[0].group.number]), int(conflicts.firsts[run[-1].group.number + 1])
    starts = [int(conflicts.firsts[its.group.number]) - first for its in run]
    order = np.concatenate([start + its.order for start, its in zip(starts, run, strict=True)])
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    nodes = conflicts.node_of[first:end][order]
    inside = (conflicts.before >= first) & (conflicts.after < end)
    through_dram = _waits_through_dram(nodes, conflicts)
    names, owners = (
        np.concatenate([places[column[inside] - first], its])
        for column, its in zip((conflicts.before, conflicts.after), through_dram, strict=True)
    )
    keys = different(owners * len(order) + names)
    owners, names = np.divmod(keys, len(order))
    offsets = np.append(0, np.cumsum(np.bincount(owners, minlength=len(order))))
    samples = np.concatenate([its.group.samples[its.order] for its in run])
    program = program.once(program.commands[samples], offsets.astype(np.int32), names.astype(np.int32))
    demands = demands.ordered(samples)
    steps = conflicts.nodes.group_steps[nodes]
    order, _ = fastest(program, demands, ready_first(program, demands, steps - steps.min()))
    return order


def _waits_through_dram(nodes: Ints, conflicts: Conflicts) -> tuple[Ints, Ints]:
    """Which commands wait for which because of tensors in the DRAM: two arrays of equal length, awaited and waiting.

    Each command of a node that reads such a tensor waits for the last command of the node that writes it. `nodes`: by
    command.
    """
    by_node = np.argsort(nodes, kind="stable")
    starts = np.searchsorted(nodes[by_node], np.arange(len(conflicts.nodes.codes) + 1))
    counts = np.diff(starts)
    here = (counts[conflicts.writers] > 0) & (counts[conflicts.readers] > 0)
    writers, readers = conflicts.writers[here], conflicts.readers[here]
    owners, numbers = spread(counts[readers])
    return by_node[starts[writers + 1] - 1][owners], by_node[starts[readers][owners] + numbers]
