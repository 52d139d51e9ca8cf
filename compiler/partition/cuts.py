"""Positions at which a set of ops can be cut into parts that run one after another (PART-1, PART-3).

The set is a tuple of op indices in execution order; the ops need not be neighbours in the graph. A cut is a position
1..n-1 of the tuple: it lies before the op at that position. Cutting a convex set at any position gives convex parts in
a valid order. All functions return ascending positions. They read only the ops of the set and their edges; `named_cuts`
also searches the graph for a name that is not in the set.

A tensor crosses a position if the part before holds it and a later op of the set reads it. It was made before the
position, or it enters the set (a graph input, another segment's result) and is read on both sides, so that a cut loads
it twice. Constants never cross. A result that only ops outside the set read does not cross either, because it is stored
in any case.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from compiler.errors import InternalError, RequestError
from compiler.ir.graph import Graph

_Ints = NDArray[np.int64]
# Larger than any sum of bytes, and half of the int64 range, so that adding bytes to it cannot overflow.
_NEVER: Final = 2**62
# The largest sum of shares is below 2 to the power of this, in units of the rounding, so sums are exact.
_SHARE_BITS: Final = 52


def output_taps(graph: Graph, ops: Sequence[int]) -> tuple[int, ...]:
    """Positions after target ops: ops whose result is a graph output and also the input of other ops (PART-1)."""
    outputs = set(graph.outputs)
    results = [graph.ops[index].output for index in ops]
    return tuple(p for p, name in enumerate(results[:-1], 1) if name in outputs and graph.consumers.get(name))


def articulation_cuts(graph: Graph, ops: Sequence[int]) -> tuple[int, ...]:
    """The positions that exactly one tensor crosses (PART-3)."""
    begin, end, _ = _lifetimes(graph, ops)
    return tuple(np.flatnonzero(_crossing(len(ops), begin, end, np.ones_like(begin)) == 1).tolist())


def crossing_bytes(graph: Graph, ops: Sequence[int]) -> NDArray[np.int64]:
    """Bytes of the tensors that cross each position 0..n; no tensor crosses the first and the last."""
    return _crossing(len(ops), *_lifetimes(graph, ops))


def named_cuts(graph: Graph, ops: Sequence[int], names: Iterable[str]) -> tuple[int, ...]:
    """Positions after the ONNX nodes that the user named (PART-3).

    A node that became several ops ends with the last of them in the set; a node without ops in the set makes no cut.
    Raises RequestError (unknown_node) for a name that belongs to no op of the graph.
    """
    last = {node: p for p, index in enumerate(ops, 1) for node in graph.ops[index].origin}
    wanted = tuple(dict.fromkeys(names))
    missing = [name for name in wanted if name not in last]
    if missing:
        known = set(chain.from_iterable(op.origin for op in graph.ops))
        for name in missing:
            if name not in known:
                _refuse_name(graph, name)
    return tuple(sorted({last[name] for name in wanted if name in last} - {len(ops)}))


def _refuse_name(graph: Graph, name: str) -> NoReturn:
    was_folded = name in graph.folded
    raise RequestError(
        "a cut is asked for after a node that "
        + ("needs no op: it was evaluated at compile time or no output needs it" if was_folded else "does not exist"),
        code="unknown_node",
        stage="partition",
        node=name,
        hint="Name a node that computes" if was_folded else "Name a node of the model",
    )


def balanced_cuts(graph: Graph, ops: Sequence[int], shares: ArrayLike, parts: int) -> tuple[int, ...]:
    """Cuts into `parts` parts (one per op if there are fewer ops) with the smallest largest resource share.

    `shares` is [ops, resources]: the use of each resource by each op, as a share of its limit. A part's share is the
    sum over its ops, so weights shared by two of its ops count for each. Among the best cuts, those with the fewest
    crossing bytes (summed over cuts) win, then the earliest (lexicographically).

    Exact, with shares rounded to 2^-51 of the largest sum of a resource. Source: PART-3. O(parts · n log n) time,
    O(parts · n) memory.
    """
    size = len(ops)
    parts = min(parts, size)
    if parts <= 1:
        return ()
    sums = _share_sums(shares, size)
    bound = _smallest_bound(sums, parts)
    # farthest[i]: the latest end of a part that begins at i
    ends = [np.searchsorted(column, column[:-1] + bound, side="right") - 1 for column in sums]
    farthest: _Ints = np.minimum.reduce(ends)
    bytes_at = crossing_bytes(graph, ops)
    # rest[k][i]: fewest bytes over the cuts that split the ops from i on into k + 1 parts
    rest = [np.where(farthest == size, 0, _NEVER)]
    for _ in range(parts - 1):
        rest.append(_window_minima(_after_cut(bytes_at, rest[-1]), farthest))
    cuts: list[int] = []
    begin = 0
    for k in range(parts - 1, 0, -1):
        window = slice(begin + 1, int(farthest[begin]) + 1)
        begin += 1 + int(np.argmin(_after_cut(bytes_at, rest[k - 1])[window]))
        cuts.append(begin)
    return tuple(cuts)


def _lifetimes(graph: Graph, ops: Sequence[int]) -> tuple[_Ints, _Ints, _Ints]:
    """For each tensor that an op of the set reads: its first position, the position of its last reader, its bytes."""
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    for place, index in enumerate(ops):
        op = graph.ops[index]
        for tensor in graph.activations(op):
            first.setdefault(tensor.name, place)
            last[tensor.name] = place
        first.setdefault(op.output, place)
    return (
        np.array([first[name] for name in last], dtype=np.int64),
        np.array(list(last.values()), dtype=np.int64),
        np.array([graph.tensors[name].size_bytes for name in last], dtype=np.int64),
    )


def _crossing(size: int, begin: _Ints, end: _Ints, amount: _Ints) -> _Ints:
    """Per position 0..n, the sum of the amounts of the tensors alive across it: begin < position <= end."""
    change = np.zeros(size + 2, dtype=np.int64)
    np.add.at(change, begin + 1, amount)
    np.subtract.at(change, end + 1, amount)
    alive: _Ints = np.cumsum(change)[: size + 1]
    return alive


def _share_sums(shares: ArrayLike, size: int) -> list[_Ints]:
    """Per resource, the shares summed over the ops before each position, as integers so that equal sums are equal."""
    table = np.asarray(shares, dtype=np.float64)
    with np.errstate(over="ignore"):
        largest = table.sum(axis=0).max(initial=0.0) if table.ndim == 2 else np.nan
    if len(table) != size or not np.isfinite(largest) or (table < 0).any():
        raise InternalError("resource shares are not one finite row per op, none negative", stage="partition")
    _, exponent = np.frexp(largest)
    units = np.rint(np.ldexp(table, _SHARE_BITS - int(exponent))).astype(np.int64)
    return [np.concatenate([[0], np.cumsum(column)]) for column in units.T] or [np.zeros(size + 1, dtype=np.int64)]


def _smallest_bound(sums: list[_Ints], parts: int) -> int:
    """The smallest bound under which at most `parts` parts cover all ops, by bisection over a greedy test."""
    columns: list[list[int]] = [column.tolist() for column in sums]
    high = max(column[-1] for column in columns)
    low = -(-high // parts)
    while low < high:
        middle = (low + high) // 2
        if _parts_needed(columns, middle, parts) <= parts:
            high = middle
        else:
            low = middle + 1
    return low


def _parts_needed(columns: list[list[int]], bound: int, most: int) -> int:
    """The number of parts if each takes as many ops as the bound allows; stops counting beyond `most`."""
    begin, count, size = 0, 0, len(columns[0]) - 1
    while begin < size and count <= most:
        begin = min(bisect_right(column, column[begin] + bound, begin) for column in columns) - 1
        count += 1
    return count


def _after_cut(bytes_at: _Ints, rest: _Ints) -> _Ints:
    """Per position 0..n-1, the bytes of a cut there and of all later cuts."""
    after: _Ints = np.minimum(bytes_at[:-1] + rest, _NEVER)
    return after


def _window_minima(values: _Ints, farthest: _Ints) -> _Ints:
    """Per i, the minimum of values[i+1..farthest[i]] within n; _NEVER for an empty window.

    Each window is covered by two windows whose length is a power of two, so one table of their minima serves all.
    """
    size = len(values)
    first = np.arange(1, size + 1)
    past = np.minimum(farthest + 1, size)
    length = np.maximum(past - first, 1)
    level = np.frexp(length)[1] - 1
    table = np.full((int(level.max()) + 1, size + 1), _NEVER, dtype=np.int64)
    table[0, :size] = values
    for k in range(1, len(table)):
        half = 1 << (k - 1)
        table[k, : size + 1 - half] = np.minimum(table[k - 1, : size + 1 - half], table[k - 1, half:])
    minima: _Ints = np.minimum(table[level, first], table[level, np.maximum(past - (1 << level), first)])
    return minima
