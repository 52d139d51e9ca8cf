"""Which part of an output each tile hands out: every position of it is in exactly one tile's (TILE-1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from compiler.program.emitter import Box, is_empty
from compiler.program.tiles import Index, Tiles
from compiler.tiling.tile import HaloMode


class StoredRange(NamedTuple):
    """What tiles hand out along one axis of a tensor, by the counter that it depends on; None: all the same."""

    counter: str | None
    ranges: Sequence[tuple[int, int]]


class StoredBoxes:
    """The part of one output that each tile stores: a product of ranges; each range depends on one counter.

    With `blocks` (the first core tile of each SRAM tile, by axis) what a core tile hands out of its SRAM tile's box.
    """

    def __init__(self, tiles: Tiles, name: str, blocks: Mapping[str, Sequence[int]] | None = None) -> None:
        geometry, walk = tiles.frustums.geometry, tiles.frustums.tiles
        tensor, primary = geometry.facts.tensors[name], geometry.output
        dims = tiles.dims(name)
        again = {axis for axis in walk if walk[axis].mode is HaloMode.RECOMPUTE}
        # what is recomputed is cut as the output is, axis by axis of the same name; the first tile has what is not cut
        followed = {dim.axis for dim in dims} - again | again.intersection(tensor.axes)
        begins = {axis: (0,) if blocks is None else blocks[axis] for axis in walk}
        # by counter the tiles along it that hand out anything
        self.firsts = {axis: frozenset(begins[axis]) for axis in tiles.order if axis not in followed}
        self.ranges: list[StoredRange] = []
        for axis, extent, dim in zip(tensor.axes, tensor.shape, dims, strict=True):
            alone = blocks is None and dim.axis == axis and (dim.firsts, dim.lasts) == (dim.starts, dim.stops)
            if axis in again or alone:
                basis = primary.shape[primary.axes.index(axis)]
                cuts = zip(walk[axis].starts.tolist(), walk[axis].stops.tolist(), strict=True)
                its = [(start * extent // basis, stop * extent // basis) for start, stop in cuts]
                self.ranges.append(StoredRange(axis, its))
            elif dim.axis is None or dim.axis in again:
                self.ranges.append(StoredRange(None, [(0, extent)]))
            else:
                its = _parted(dim.starts, dim.firsts, dim.lasts, begins[dim.axis])
                self.ranges.append(StoredRange(dim.axis, its))

    def of(self, index: Index) -> Box | None:
        """The part that a tile hands out; None if it is none."""
        if any(index[axis] not in firsts for axis, firsts in self.firsts.items()):
            return None
        box = tuple([its[0 if counter is None else index[counter]] for counter, its in self.ranges])
        return None if is_empty(box) else box


def _parted(
    starts: Sequence[int], firsts: Sequence[int], lasts: Sequence[int], begins: Sequence[int]
) -> list[tuple[int, int]]:
    """What each tile along an axis hands out of its own range.

    Several tiles make the same where units or cores begin anew, or where ranges do not rise: each hands out what no
    tile that begins before it does; in the order of beginnings, not of the walk, that is one range.
    """
    found = [(0, 0)] * len(starts)
    for begin, end in zip(begins, [*begins[1:], len(starts)], strict=True):
        before = 0
        for number in sorted(range(begin, end), key=lambda number: (starts[number], number)):
            found[number] = max(firsts[number], before), lasts[number]
            before = max(before, lasts[number])
    return found
