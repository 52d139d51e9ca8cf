"""Lookups and writes at positions that are known at run time only, as one Gather and as a chain of Wheres.

A position is looked up in a table of positions counted from the front, which holds what the position adds to the flat
one; so negative positions need no arithmetic. Writes follow one another, as ONNX Runtime makes them: of two at one
position the later one counts, and a reduction takes both in their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.frontend.decompose.node_builder import NodeList

# What reductions of updates with the data are.
REDUCTIONS: Final = MappingProxyType({"add": "Add", "mul": "Mul", "min": "Min", "max": "Max"})
# What is looked up lies whole in a core: so many bytes at most, half of what a core of edge4 holds.
LOOKED_UP_BYTES: Final = 1 << 17
# ... and so many positions in the data, of 8 bytes each like those in tables of positions.
MOST_LOOKED_UP: Final = LOOKED_UP_BYTES // 8
# Writes at most, each a few ops over the data: what a mixture of experts, or a cache of keys and values, writes.
MOST_WRITES: Final = 32
# Elements that several writes of a node pass at most: a few element-wise passes over 4 MB, below a millisecond on
# edge4. One write is one pass, and never dearer than handing the data to the host and back.
MOST_WRITTEN: Final = 1 << 20


def strides_of(extents: Sequence[int]) -> list[int]:
    """By axis how far one position is from the next in the flat data."""
    return [prod(extents[number + 1 :]) for number in range(len(extents))]


def along(axis: int, extent: int, strides: Sequence[int]) -> NDArray[np.int64]:
    """What the positions along one axis add to the flat position."""
    return (np.arange(extent, dtype=np.int64) * strides[axis]).reshape(-1, *(1,) * (len(strides) - axis - 1))


def look_up_elements(
    nodes: NodeList, data: str, extents: Sequence[int], positions: str, counts: Sequence[int], *, axis: int, out: str
) -> None:
    """GatherElements: `extents` of the data, `counts` of the positions, which are as many at most beside `axis`."""
    for other, (extent, count) in enumerate(zip(extents, counts, strict=True)):
        if other != axis and count < extent:
            data = nodes.slice(data, other, 0, count)
    inside = [extents[axis] if other == axis else count for other, count in enumerate(counts)]
    strides = strides_of(inside)
    begins = np.zeros([1] * len(inside), dtype=np.int64)
    for other, count in enumerate(counts):
        if other != axis:
            begins = begins + along(other, count, strides)
    flat = _from_front(nodes, positions, extents[axis], strides[axis])
    flat = nodes.add("Add", flat, nodes.constant(begins)) if begins.any() else flat
    nodes.add("Gather", nodes.reshape(data, (-1,)), flat, out=out, axis=0)


def look_up_rows(
    nodes: NodeList,
    data: str,
    shape: Sequence[int],
    positions: str,
    counts: Sequence[int],
    *,
    batches: int,
    out: str,
) -> None:
    """GatherND: `shape` of the data, `counts` of the positions, whose last axis holds coordinates behind `batches`."""
    coordinates = counts[-1]
    extents = list(shape[batches : batches + coordinates])
    count = prod(shape[:batches])
    flat = _flat(nodes, positions, counts, extents)
    if count > 1:
        offsets = np.arange(count, dtype=np.int64) * prod(extents)
        offsets = offsets.reshape((*shape[:batches], *(1,) * (len(counts) - 1 - batches)))
        flat = nodes.add("Add", flat, nodes.constant(offsets))
    rows = nodes.reshape(data, (count * prod(extents), *shape[batches + coordinates :]))
    nodes.add("Gather", rows, flat, out=out, axis=0)


def write_elements(
    nodes: NodeList, data: str, positions: str, updates: str, *, axis: int, extent: int, rank: int, count: int, how: str
) -> str:
    """ScatterElements along `axis` of so many `count` positions; beside it all extents are those of the data."""
    places = nodes.constant(np.arange(extent, dtype=np.int64).reshape(-1, *(1,) * (rank - axis - 1)))
    front = _from_front(nodes, positions, extent, 1)
    for number in range(count):
        mine, update = front, updates
        if count > 1:
            mine, update = (nodes.slice(value, axis, number, number + 1) for value in (front, updates))
        data = _written(nodes, data, nodes.add("Equal", mine, places), update, how)
    return data


def write_rows(
    nodes: NodeList,
    data: str,
    shape: Sequence[int],
    positions: str,
    updates: str,
    counts: Sequence[int],
    *,
    how: str,
    out: str,
) -> None:
    """ScatterND: `shape` of the data, `counts` of the positions, whose last axis holds the first coordinates."""
    extents, rest = list(shape[: counts[-1]]), shape[counts[-1] :]
    writes = prod(counts[:-1])
    front = nodes.reshape(_flat(nodes, positions, counts, extents), (writes,))
    rows = nodes.reshape(data, (prod(extents), *rest))
    updates = nodes.reshape(updates, (writes, *rest))
    places = nodes.constant(np.arange(prod(extents), dtype=np.int64).reshape(-1, *(1,) * len(rest)))
    for number in range(writes):
        mine = nodes.slice(front, 0, number, number + 1) if writes > 1 else front
        update = nodes.slice(updates, 0, number, number + 1) if writes > 1 else updates
        rows = _written(nodes, rows, nodes.add("Equal", mine, places), update, how)
    nodes.reshape(rows, shape, out=out)


def _written(nodes: NodeList, data: str, here: str, update: str, how: str) -> str:
    update = update if how == "none" else nodes.add(REDUCTIONS[how], data, update)
    return nodes.add("Where", here, update, data)


def _flat(nodes: NodeList, positions: str, counts: Sequence[int], extents: Sequence[int]) -> str:
    """Flat positions in axes of these extents; the last axis of the positions, which is dropped, holds coordinates."""
    parts = []
    for number, (extent, stride) in enumerate(zip(extents, strides_of(extents), strict=True)):
        mine = positions if len(extents) == 1 else nodes.slice(positions, len(counts) - 1, number, number + 1)
        mine = nodes.reshape(mine, counts[:-1])
        parts.append(_from_front(nodes, mine, extent, stride))
    flat = parts[0]
    for part in parts[1:]:
        flat = nodes.add("Add", flat, part)
    return flat


def _from_front(nodes: NodeList, positions: str, extent: int, stride: int) -> str:
    """What positions along an axis add to the flat position, in int64."""
    table = nodes.constant(np.arange(extent, dtype=np.int64) * stride)
    return nodes.add("Gather", table, positions, axis=0)
