"""Dependences between steps: how many iterations apart two steps touch common bytes, one of them writing.

A *node* is a step of a group on an engine. A shadow of the memories keeps for each word its last writer, with the
iteration, and when each node has read it since. Not all iterations are walked through, only the first and last values
of each run (`walked`): values in between behave as these do. The proof of the program tells whether that was enough.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from typing import Any, Final, NamedTuple

import numpy as np

from compiler.machine_code import compiled
from compiler.program.iteration import PERIOD_MAX
from compiler.program.steps.action import Touch
from compiler.program.steps.cells import Cells

# How many values of a run are walked through at its begin (a period, and all uses of two buffers), and at its end.
_AT_BEGIN: Final = PERIOD_MAX + 2
_AT_END: Final = 2
_NOBODY: Final = -1
# The place that is the DRAM.
_DRAM: Final = 0
# Before every iteration, that of what is done once included.
_NEVER: Final = -2
_NO_DISTANCE: Final = np.iinfo(np.int64).max
# Dimensions of what one command touches.
_DIMS: Final = 6


class Node(NamedTuple):
    """A step of a group on one engine."""

    group: int
    step: int
    queue: int


# By pairs of nodes (before, after) the least distance in iterations. Of nodes of different groups it counts from
# the last iteration of the group before; of what is done once it is 0.
Distances = dict[tuple[Node, Node], int]


def walked(cells: Cells) -> list[tuple[int, int]]:
    """The iterations and steps that are walked through, in order: where counters of any step are at ends of runs."""
    found: set[int] = set()
    steps = cells.steps
    looping = [step for step, is_once in enumerate(steps.once) if not is_once]
    for step in looping:
        for unit in steps.spaces(step):
            for space, runs, _ in cells.products(step, unit):
                kept = ({*run.values[:_AT_BEGIN], *run.values[-_AT_END:]} for run in runs)
                found |= {space.iteration(counters) for counters in product(*kept)}
    once = [(-1, step) for step, is_once in enumerate(steps.once) if is_once]
    return [*once, *((iteration, step) for iteration in sorted(found) for step in looping)]


def distances_of(groups: Sequence[Cells], regions: Sequence[tuple[int, int]]) -> Distances:
    """The distances of the groups of a segment, which are worked on one after another.

    `regions`: begin and end of those of the DRAM that one group writes and others read; they are waited for whole.
    """
    numbers: dict[Node, int] = {}
    rows: list[Any] = []
    for group, cells in enumerate(groups):
        rows += _touched(group, cells, numbers)
    nodes = list(numbers)
    found = _through_dram(nodes, [row for row in rows if row[2] == _DRAM], regions)
    rows = [row for row in rows if row[2] != _DRAM]
    distances = np.full((len(nodes), len(nodes)), _NO_DISTANCE, dtype=np.int64)
    table = np.array(rows, dtype=_TOUCH)
    group_of = np.array([node.group for node in nodes], dtype=np.int64)
    last_iterations = np.array([cells.steps.iterations - 1 for cells in groups], dtype=np.int64)
    known: dict[bytes, Any] = {}
    for place in np.unique(table["place"]).tolist():
        mine = table[table["place"] == place]
        word, low, size = _words_of(mine)
        # cores mostly do the same, each with engines of its own: nodes are numbered as they come
        names, first, number = np.unique(mine["node"], return_index=True, return_inverse=True)
        order = np.argsort(first)
        local = np.argsort(order)[number].ravel()
        firsts, its_groups = (mine["address"] - low) // word, group_of[names[order]]
        given = (local, mine["iteration"], mine["is_write"], firsts, mine["counts"], mine["strides"])
        columns: list[Any] = [np.ascontiguousarray(its) for its in given]
        key = b"".join(its.tobytes() for its in (*columns, its_groups)) + f"{word} {size}".encode()
        found_here = known.get(key)
        if found_here is None:
            found_here = np.full((len(names), len(names)), _NO_DISTANCE, dtype=np.int64)
            meet(*columns, word, size, its_groups, last_iterations, found_here)
            known[key] = found_here
        here = np.ix_(names[order], names[order])
        distances[here] = np.minimum(distances[here], found_here)
    pairs = np.argwhere(distances < _NO_DISTANCE).tolist()
    for one, other in pairs:
        found.setdefault((nodes[one], nodes[other]), int(distances[one, other]))
    return found


def _through_dram(nodes: Sequence[Node], rows: Sequence[Any], regions: Sequence[tuple[int, int]]) -> Distances:
    """Who reads in DRAM what nodes of a group before have written: all of it comes before."""
    begins = [begin for begin, _ in regions]
    writers: dict[int, set[Node]] = defaultdict(set)
    found: Distances = {}
    for node, _, _, is_write, address, *_ in rows:
        region = bisect_right(begins, address) - 1
        if region < 0 or address >= regions[region][1]:
            continue
        if is_write:
            writers[region].add(nodes[node])
            continue
        for writer in writers[region]:
            if writer.group != nodes[node].group:
                found[writer, nodes[node]] = 0
    return found


_TOUCH: Final = np.dtype(
    [
        ("node", "<i8"),
        ("iteration", "<i8"),
        ("place", "<i8"),
        ("is_write", "<i8"),
        ("address", "<i8"),
        ("counts", "<i8", (_DIMS,)),
        ("strides", "<i8", (_DIMS,)),
    ]
)


def _touched(group: int, cells: Cells, numbers: dict[Node, int]) -> list[Any]:
    """What is touched where a group is walked through, in order; new nodes are numbered."""
    rows: list[Any] = []
    for iteration, step in walked(cells):
        for action in cells.steps.at(step, iteration):
            node = numbers.setdefault(Node(group, step, action.queue), len(numbers))
            # it reads all before it writes
            touches = sorted(action.touches, key=lambda touch: touch.is_write)
            rows += [(node, iteration, t.place, int(t.is_write), *_dims_of(t)) for t in touches]
    return rows


def _dims_of(touch: Touch) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """The first byte, and counts and strides of as many dimensions as a row has."""
    low, dims = touch.address, []
    for count, stride in zip(touch.counts, touch.strides, strict=True):
        if count > 1:
            low += min(0, (count - 1) * stride)
            dims.append((count, abs(stride)))
    while len(dims) > _DIMS:
        # more than a row holds: the innermost two as one that covers both
        (count, stride), (inner, step) = dims[-2:]
        dims[-2:] = [((count - 1) * stride + (inner - 1) * step + 1, 1)]
    rest = _DIMS - len(dims)
    return low, (*(c for c, _ in dims), *(1,) * rest), (*(s for _, s in dims), *(0,) * rest)


def _words_of(rows: Any) -> tuple[int, int, int]:
    """Word size in bytes (every touched range is a multiple of it), the first byte, and the number of words."""
    counts, strides = rows["counts"], rows["strides"]
    low = int(rows["address"].min())
    stop = int((rows["address"] + ((counts - 1) * strides).sum(axis=1)).max()) + 1
    is_run = (strides == 1) & (counts > 1)
    if not is_run.any(axis=1).all():
        return 1, low, stop - low
    steps = np.where(is_run, counts, strides)[counts > 1]
    word = int(np.gcd(np.gcd.reduce(steps), np.gcd.reduce(rows["address"] - low)))
    return word, low, -(-(stop - low) // word)


@compiled()
def _enter(distances: Any, before: int, then: int, after: int, now: int, group_of: Any, last_iterations: Any) -> None:
    """A node that met another one's words of the iteration `then`."""
    if before == after:
        return
    gap = now - then
    if then < 0:
        gap = 0
    elif group_of[before] != group_of[after]:
        gap = last_iterations[group_of[before]] - then
    if gap < distances[before, after]:
        distances[before, after] = gap


@compiled(
    "void(int64[::1], int64[::1], int64[::1], int64[::1], int64[:, ::1], int64[:, ::1], int64, int64, int64[::1], "
    "int64[::1], int64[:, ::1])"
)
def meet(
    nodes: Any,
    iterations: Any,
    writes: Any,
    firsts: Any,
    counts: Any,
    strides: Any,
    word: int,
    size: int,
    group_of: Any,
    last_iterations: Any,
    distances: Any,
) -> None:
    """Enter the least distances of pairs of nodes that meet in one memory of `size` words; touches come in order.

    Whoever reads has waited for the writer, so a write waits for readers since, and for the writer if there are none.
    distances: shape (nodes, nodes), [before, after].
    """
    node_count = len(distances)
    writer, written = np.full(size, _NOBODY, dtype=np.int32), np.full(size, _NEVER, dtype=np.int32)
    column, columns = np.full(node_count, _NOBODY, dtype=np.int64), 0
    for i in range(len(nodes)):
        if not writes[i] and column[nodes[i]] == _NOBODY:
            column[nodes[i]] = columns
            columns += 1
    owner = np.empty(columns, dtype=np.int64)
    for node in range(node_count):
        if column[node] != _NOBODY:
            owner[column[node]] = node
    read, read_by = np.full((size, columns), _NEVER, dtype=np.int32), np.zeros(size, dtype=np.int32)
    place = np.zeros(_DIMS, dtype=np.int64)
    for i in range(len(nodes)):
        node, now, is_write, mine = nodes[i], iterations[i], writes[i] != 0, column[nodes[i]]
        before, then = _NOBODY, _NEVER
        place[:] = 0
        while True:
            at, run = firsts[i], 1
            for d in range(_DIMS):
                if strides[i, d] == 1 and counts[i, d] > 1:
                    run = counts[i, d] // word
                else:
                    at += place[d] * (strides[i, d] // word)
            for w in range(at, at + run):
                if is_write and read_by[w]:
                    read_by[w] = 0
                    for c in range(columns):
                        if read[w, c] != _NEVER:
                            # neighbouring words mostly tell the same
                            if read[w, c] != then or owner[c] != before:
                                before, then = owner[c], read[w, c]
                                _enter(distances, before, then, node, now, group_of, last_iterations)
                            read[w, c] = _NEVER
                elif writer[w] != _NOBODY and (writer[w] != before or written[w] != then):
                    before, then = writer[w], written[w]
                    _enter(distances, before, then, node, now, group_of, last_iterations)
                if is_write:
                    writer[w], written[w] = node, now
                else:
                    read_by[w] += read[w, mine] == _NEVER
                    read[w, mine] = now
            d = _DIMS - 1
            while d >= 0:
                if counts[i, d] > 1 and strides[i, d] != 1:
                    place[d] += 1
                    if place[d] < counts[i, d]:
                        break
                    place[d] = 0
                d -= 1
            if d < 0:
                break
