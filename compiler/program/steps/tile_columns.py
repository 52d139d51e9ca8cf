"""What a group's commands depend on along one axis of its tiles, tile by tile (TILE-1, TILE-3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from compiler.program.steps.axis_runs import Columns
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Tiles

_Column = NDArray[np.int64]
NO_SHARES: Final[Mapping[str, tuple[int, int]]] = MappingProxyType({})


def columns_of(
    tiles: Tiles,
    names: Iterable[str],
    axis: str,
    stored: Sequence[StoredBoxes] = (),
    shares: Mapping[str, tuple[int, int]] = NO_SHARES,
) -> Columns:
    """The columns of an axis, for a group that holds tensors of these names, and hands out what `stored` says.

    Per tensor: where the tile's range begins, how far from there lie its end, what is made anew and what waits, and
    what waits for the next tile; in rings how often each of these has gone around. Per output: what is handed out.
    `shares`: by tensor that passes from group to group on the chip the number of the axis along which units hold parts
    of it, and how many positions each; who holds what a tile needs, and from where on, follows no other rule.
    """
    count = tiles.counts[axis]
    along = tiles.frustums.tiles[axis]
    even: list[_Column] = [np.arange(count, dtype=np.int64)]
    same: list[_Column] = [np.asarray(along.begins, dtype=np.int64), _next(np.asarray(along.begins, dtype=np.int64))]
    # which have a tile before and after them
    same += [(even[0] == 0).astype(np.int64), (even[0] == count - 1).astype(np.int64)]
    for name in names:
        stores = tiles.stores(name)
        own = [shape for shape in stores if shape.axis == axis and shape.ring is not None and not shape.both_ways]
        rings = {shape.lengths[shape.ring] for shape in own if shape.ring is not None}
        for place, dim in enumerate(tiles.dims(name)):
            if dim.axis != axis:
                continue
            sides = (dim.starts, dim.stops, dim.firsts, dim.lasts)
            starts, stops, firsts, lasts = (np.array(its, dtype=np.int64) for its in sides)
            waits = np.array(dim.waits, dtype=np.int64).reshape(count, 2)
            offsets = [
                np.array(shape.offsets[place], dtype=np.int64) for shape in stores if shape.offsets[place] is not None
            ]
            even.append(starts)
            even += offsets
            same += [_next(offset) - offset for offset in offsets]
            others = [stops, firsts, *waits.T, *_next(waits).T]
            same += [other - starts for other in others]
            if name in shares and shares[name][0] == place:
                owners = firsts // shares[name][1], (stops - 1) // shares[name][1]
                same += [*owners, np.where(owners[0] == owners[1], -1, firsts)]
            if dim.both_ways:
                # of the tile, of the next one and of the one before: what is sent, and where it lies there
                ends = np.stack([stops, firsts, lasts])
                same += [*(ends - starts), *(np.roll(ends, -1, axis=1) - starts), *(np.roll(ends, 1, axis=1) - starts)]
            for length in rings:
                even += [other // length for other in (starts, *others)]
                same += [(stops - 1) // length - starts // length, (waits[:, 1] - 1) // length - waits[:, 0] // length]
    for boxes in stored:
        if axis in boxes.firsts:
            same.append(np.isin(even[0], sorted(boxes.firsts[axis])).astype(np.int64))
        for ranges in (np.array(its.ranges, dtype=np.int64) for its in boxes.ranges if its.counter == axis):
            even.append(ranges[:, 0])
            same.append(ranges[:, 1] - ranges[:, 0])
    return Columns(even=np.stack(even, axis=1), same=np.stack(same, axis=1))


def columns_of_blocks(
    tiles: Tiles, names: Iterable[str], axis: str, blocks: Sequence[int], stored: Sequence[StoredBoxes] = ()
) -> Columns:
    """The same of tiles that are cut again: of each what its own parts depend on; `blocks`: the first part of each."""
    its = columns_of(tiles, names, axis, stored)
    ends = [*blocks[1:], tiles.counts[axis]]
    longest = max(end - first for first, end in zip(blocks, ends, strict=True))
    even, same = [], []
    for first, end in zip(blocks, ends, strict=True):
        mine, rest = slice(first, end), longest - (end - first)
        even.append(its.even[first])
        # how the parts lie to the first of them
        inside = np.hstack([its.same[mine], its.even[mine] - its.even[first]])
        same.append([end - first, *np.pad(inside, ((0, rest), (0, 0)), constant_values=-1).ravel()])
    return Columns(even=np.array(even, dtype=np.int64), same=np.array(same, dtype=np.int64))


def _next(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """The values of the next tile each; of the last one its own."""
    return np.concatenate([values[1:], values[-1:]])
