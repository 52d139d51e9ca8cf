"""Boxes of tensors behind tiles, each computed once for all groups that ask (TILE-1, TILE-3).

Which boxes a tensor has depends on the tiles and on the ops between it and the tiled output, not on what else is in
the group. So for given tiles boxes hang together as a tree: from a box, each way of reading leads to the box read.
Groups that have readers in common walk the same branches of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import prod
from operator import is_
from typing import Final

import numpy as np

from compiler.ir.box import AxisMap, Ints, hull
from compiler.lazy import lazy
from compiler.ops.op_facts import TensorFacts
from compiler.tiling.axis_tiles import AxisTiles, Share
from compiler.tiling.ranges import TILES_KEPT, AxisRange, AxisRanges, Held
from compiler.tiling.tile import HaloMode
from compiler.units import ceil_div

Box = tuple[AxisRange, ...]
# By two ranges the smallest that contains both.
Hulls = dict[tuple[AxisRange, AxisRange], AxisRange]

# Array elements and boxes that are kept; beyond it all is forgotten between groups.
_HELD_MAX: Final = 1 << 24
_BOX: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Reading:
    """A way of reading a tensor: where, and the shape of what is read; equal ones are the same object."""

    access: tuple[AxisMap, ...]
    shape: tuple[int, ...]


class Volume:
    """Bytes of a tensor under the tiles of a projection: `constant`, times what `shares` say along each axis.

    `constant`: bytes of what no axis of the walk cuts.
    """

    def __init__(self, constant: int, shares: dict[str, Share]) -> None:
        """`needed_bytes` and `made_bytes` (anew) over all tiles, `largest_made` of one."""
        self.constant = constant
        self.shares = shares
        self.needed_bytes = self.made_bytes = self.largest_made = constant
        for share in shares.values():
            self.needed_bytes *= share.needed_sum
            self.made_bytes *= share.made_sum
            self.largest_made *= share.made_most

    def not_kept(self, kept: Collection[str]) -> int:
        """Bytes of the largest box that are not kept: along the axes `kept` only what is made anew."""
        return self.constant * prod(s.made_most if axis in kept else s.needed_most for axis, s in self.shares.items())

    @lazy
    def usual_needed(self) -> tuple[int, float]:
        """Bytes of the usual box, and the part of all that tiles need which lies in larger boxes."""
        size, usual = self.constant, 1.0
        for share in self.shares.values():
            middle = int(np.sort(share.needed)[len(share.needed) // 2])
            size *= middle
            total = share.needed_sum
            usual *= int(share.needed[share.needed <= middle].sum()) / total if total else 1.0
        return size, 1.0 - usual

    @lazy
    def kept_along(self) -> dict[str, int]:
        """Bytes that wait for later tiles of a unit's walk, by the axis along which they are shared.

        Along an outer axis what waits spans the whole walk of the axes inside it; along an inner one the rows that the
        current tile needs: what waits in both ways has to be kept in the inner one's store, since the outer one's
        takes up what comes next. What neighbours pass each other both ways is there for one tile at a time.
        """
        found = {}
        axes, shares = list(self.shares), self.shares
        for number, axis in enumerate(axes):
            waiting = shares[axis].kept
            if waiting:
                # core tiles that lie in several SRAM tiles along this axis wait for all of them across it
                in_step = shares[axis].both_ways
                across = shares[axis].block_count > 1 and not in_step
                outer = prod(s.needed_in_block if across else s.needed_most for s in (shares[a] for a in axes[:number]))
                inner = prod(s.made_most if in_step else s.union for s in (shares[a] for a in axes[number + 1 :]))
                found[axis] = self.constant * outer * waiting * inner
        return found

    @lazy
    def kept_bytes(self) -> int:
        """Bytes that wait for later tiles of a unit's walk, along all axes."""
        return sum(self.kept_along.values())

    @lazy
    def reused_along(self) -> dict[str, int]:
        """Bytes that tiles need and do not make anew, over all tiles, by the axis along which they waited.

        They add up to what is needed less what is made.
        """
        found = {}
        axes, shares = list(self.shares), self.shares
        for number, axis in enumerate(axes):
            reused = shares[axis].needed_sum - shares[axis].made_sum
            if reused:
                outer = prod(shares[other].made_sum for other in axes[:number])
                inner = prod(shares[other].needed_sum for other in axes[number + 1 :])
                found[axis] = self.constant * outer * reused * inner
        return found


class TensorBoxes:
    """The boxes that one or more tensors have under the tiles of a projection, and what follows from them.

    `needed`: the boxes that are read to make these whole, by way of reading; `known`: figures by what decides them.
    """

    def __init__(self, projection: Projection, ranges: Box) -> None:
        self.projection = projection
        self.ranges = ranges
        self.needed: dict[Reading, TensorBoxes] = {}
        self.known: dict[object, object] = {}
        self._joined: dict[TensorBoxes, TensorBoxes] = {}
        self._volumes: dict[int, Volume] = {}

    def read(self, reading: Reading) -> TensorBoxes:
        """The boxes that are read to make these."""
        found = self.needed.get(reading)
        if found is None:
            projection, own, boxes = self.projection, self.ranges, []
            for axis_map, extent in zip(reading.access, reading.shape, strict=True):
                if axis_map.axis is None:
                    boxes.append(projection.whole(extent))
                elif axis_map.is_identity:
                    boxes.append(own[axis_map.axis])
                else:
                    entry = own[axis_map.axis]
                    boxes.append(projection.axes[entry[0]].reached(axis_map, entry, extent))
            found = projection.boxes(tuple(boxes))
            if projection.is_kept:
                self.needed[reading] = found
        return found

    def joined(self, other: TensorBoxes) -> TensorBoxes:
        """The smallest boxes that contain these and others."""
        found = self._joined.get(other)
        if found is None:
            hulls = tuple(map(self.projection.hull, self.ranges, other.ranges))
            found = self.projection.boxes(hulls)
            if self.projection.is_kept:
                self._joined[other] = found
        return found

    @lazy
    def anew(self) -> TensorBoxes:
        """Of these boxes what each tile makes anew."""
        axes = self.projection.axes
        made = tuple([axes[entry[0]].made(entry) for entry in self.ranges])
        return self if all(map(is_, made, self.ranges)) else self.projection.boxes(made)

    def volume(self, element_bytes: int) -> Volume:
        """Bytes of a tensor that has these boxes."""
        found = self._volumes.get(element_bytes)
        if found is None:
            constant, followed, projection = element_bytes, self.followed, self.projection
            for entry in self.ranges:
                if entry[0] is None:
                    constant *= projection.axes[None].longest(entry)
            shares = {
                axis: projection.axes[axis].share(followed[axis])
                if axis in followed
                else projection.axes[axis].unfollowed
                for axis in projection.tiles
            }
            found = self._volumes[element_bytes] = Volume(constant, shares)
        return found

    def read_bytes(self, reading: Reading, element_bytes: int, *, largest: bool) -> int:
        """Bytes of an operand that are read to make what is made anew, over all tiles, or of the largest box."""
        key = (reading, element_bytes, largest)
        found = self.known.get(key)
        if not isinstance(found, int):
            found = self.known[key] = self._read_bytes(reading, element_bytes, largest=largest)
        return found

    def _read_bytes(self, reading: Reading, element_bytes: int, *, largest: bool) -> int:
        read = self.anew.read(reading)
        volume = read.volume(element_bytes)
        total = volume.constant
        for axis, share in volume.shares.items():
            if axis in read.followed:
                total *= share.needed_most if largest else share.needed_sum
            elif not largest:
                # an operand that does not follow this axis is read by every tile that makes anything
                times = self.projection.tiles[axis].times
                total *= max(1, self.volume(1).shares[axis].making) if times is None else times
        return total

    def steps(self, channel: int | None, parts: tuple[tuple[int, int], ...]) -> int:
        """Array steps of positions, over all tiles; `channel` is the axis of channels, which are no positions.

        `parts`: for each axis, into how many parts cores cut it in each tile, and the array's lanes along it; the
        steps are those of one such part.
        """
        key = (channel, parts)
        found = self.known.get(key)
        if not isinstance(found, int):
            found = self.known[key] = self._steps(channel, parts)
        return found

    def _steps(self, channel: int | None, parts: tuple[tuple[int, int], ...]) -> int:
        total = 1
        by_grid: dict[str, list[tuple[AxisRange, int, int]]] = {}
        axes = self.projection.axes
        for number, (entry, (cut, lane)) in enumerate(zip(self.ranges, parts, strict=True)):
            if number == channel:
                continue
            if entry[0] is None:
                total *= ceil_div(ceil_div(axes[None].longest(entry), cut), lane)
            else:
                by_grid.setdefault(entry[0], []).append((entry, cut, lane))
        followed = None if channel is None else self.ranges[channel][0]
        for axis, share in self.volume(1).shares.items():
            if axis in by_grid:
                total *= axes[axis].steps(by_grid[axis])
            elif self.projection.tiles[axis].times is None and (axis != followed or axis != "C"):
                total *= share.making
        return total

    @lazy
    def followed(self) -> dict[str, list[AxisRange]]:
        """The ranges that follow an axis of the walk, by that axis."""
        found: dict[str, list[AxisRange]] = {}
        for entry in self.ranges:
            if entry[0] is not None:
                found.setdefault(entry[0], []).append(entry)
        return found

    @lazy
    def lengths(self) -> tuple[int, ...]:
        """The longest range per axis."""
        return tuple([self.projection.axes[entry[0]].longest(entry) for entry in self.ranges])

    @lazy
    def fresh_lengths(self) -> tuple[int, ...]:
        """The longest range per axis of what a tile makes anew."""
        return self.anew.lengths

    @lazy
    def rising(self) -> frozenset[str | None]:
        """Axes of the walk along which ranges rise from tile to tile, so that tiles make anew what they need more."""
        fresh = self.projection.fresh
        return frozenset(entry[0] for entry in self.ranges if fresh(entry)[0] is not entry[1])

    @lazy
    def falling(self) -> frozenset[str | None]:
        """Axes of the walk whose halo is not recomputed and along which some range falls back all the same."""
        found: set[str | None] = set()
        for entry in self.ranges:
            if entry[0] is not None and self.projection.tiles[entry[0]].mode is not HaloMode.RECOMPUTE:
                found |= {entry[0]} if self.projection.fresh(entry)[0] is entry[1] else set()
        return frozenset(found)


class Projection:
    """All boxes behind the same tiles.

    Equal ranges are the same object, equal boxes too, so that what is known of them is found by identity; where there
    are so many tiles that nothing is kept (`is_kept`), all is worked out anew.
    """

    def __init__(
        self,
        tiles: Mapping[str, AxisTiles],
        grids: Mapping[str, tuple[Ints, Ints]] | None = None,
        owner: Projections | None = None,
    ) -> None:
        """`tiles` by axis of the output, outermost of the walk first; or only `grids`, their starts and stops."""
        # what is not cut needs no arrays
        self.tiles = {axis: found for axis, found in tiles.items() if found.count > 1}
        self.grids = {axis: (t.starts, t.stops) for axis, t in self.tiles.items()} if grids is None else grids
        self._owner = owner
        self.is_kept = max((len(starts) for starts, _ in self.grids.values()), default=0) <= TILES_KEPT
        self.is_recomputed = all(found.mode is HaloMode.RECOMPUTE for found in self.tiles.values())
        # by axis of the walk, and None, the ranges that follow it
        own = AxisRanges if owner is None else owner.ranges
        self.axes: dict[str | None, AxisRanges] = {None: own(None)}
        for axis, (starts, _) in self.grids.items():
            self.axes[axis] = own(axis, self.tiles.get(axis), len(starts))
        self._boxes: dict[Box, TensorBoxes] = {}
        self._outputs: dict[tuple[object, ...], TensorBoxes] = {}
        self.whole = self.axes[None].whole
        self._hulls: Hulls = {} if owner is None else owner.hulls

    def boxes(self, ranges: Box) -> TensorBoxes:
        """The boxes of these ranges, which are from this projection."""
        if not self.is_kept:
            return TensorBoxes(self, ranges)
        found = self._boxes.get(ranges)
        if found is None:
            found = self._boxes[ranges] = TensorBoxes(self, ranges)
            if self._owner is not None:
                self._owner.held.elements += _BOX
        return found

    def output(self, tensor: TensorFacts, primary: TensorFacts, *, is_cut: bool = True) -> TensorBoxes:
        """The boxes of an output of a group whose last output is `primary`; whole ones if it is not cut."""
        key = (tensor.axes, tensor.shape, primary.axes, primary.shape, is_cut)
        found = self._outputs.get(key)
        if found is None:
            grids = self.grids if is_cut else {}
            ranges: list[AxisRange] = []
            for axis, extent in zip(tensor.axes, tensor.shape, strict=True):
                grid = grids.get(axis)
                if grid is None or axis not in primary.axes:
                    ranges.append(self.whole(extent))
                    continue
                basis = primary.shape[primary.axes.index(axis)]
                # A second output is cut at the same fractions of its own axis.
                starts, stops = grid if extent == basis else (grid[0] * extent // basis, grid[1] * extent // basis)
                ranges.append(self.axes[axis].known(starts, stops))
            found = self._outputs[key] = self.boxes(tuple(ranges))
        return found

    def hull(self, a: AxisRange, b: AxisRange) -> AxisRange:
        """The smallest range that contains both."""
        if a is b:
            return a
        known = self._hulls.get((a, b))
        if known is not None:
            return known
        axis, starts, stops = _hull_axis(a, b)
        found = self.axes[axis].known(starts, stops)
        if self.axes[a[0]].is_kept and self.axes[b[0]].is_kept:
            self._hulls[a, b] = found
        return found

    def fresh(self, entry: AxisRange) -> tuple[Ints, Ints, Ints]:
        """For an axis of a box: where what each tile makes anew starts and stops, and how much of it waited before."""
        return self.axes[entry[0]].fresh(entry)


class Projections:
    """The projections of one graph, by tiles, and what else its groups share; bounded.

    Lives as long as one compilation.
    """

    def __init__(self) -> None:
        self.known: dict[tuple[object, ...], object] = {}
        self.held = Held()
        self.hulls: Hulls = {}
        self._ranges: dict[tuple[object, ...], AxisRanges] = {}
        self._by_tiles: dict[tuple[object, ...], Projection] = {}
        self._by_identity: dict[tuple[tuple[str, AxisTiles], ...], Projection] = {}
        self._readings: dict[tuple[tuple[AxisMap, ...], tuple[int, ...]], Reading] = {}

    def of(self, tiles: Mapping[str, AxisTiles]) -> Projection:
        """The projection of tiles by axis of the output, outermost of the walk first; axes not named are whole."""
        cut = tuple([(axis, found) for axis, found in tiles.items() if found.count > 1])
        same = self._by_identity.get(cut)
        if same is None:
            key = tuple((axis, *found.key) for axis, found in cut)
            same = self._by_tiles.get(key)
            if same is None:
                same = self._by_tiles[key] = Projection(dict(cut), owner=self)
            self._by_identity[cut] = same
            self.held.elements += _BOX
        return same

    def reading(self, access: tuple[AxisMap, ...], shape: tuple[int, ...]) -> Reading:
        """The way of reading a tensor of this shape."""
        found = self._readings.get((access, shape))
        if found is None:
            found = self._readings[access, shape] = Reading(access=access, shape=shape)
        return found

    def ranges(self, axis: str | None, tiles: AxisTiles | None = None, count: int = 1) -> AxisRanges:
        """The ranges that follow an axis with these tiles, in all projections."""
        key = (axis, *(() if tiles is None else tiles.key))
        found = self._ranges.get(key)
        if found is None:
            found = self._ranges[key] = AxisRanges(axis, tiles, count, self.held)
        return found

    def trim(self) -> None:
        """Forget everything if there is too much of it."""
        if self.held.elements + _BOX * len(self.known) > _HELD_MAX:
            self.forget()

    def forget(self) -> None:
        """Forget everything: what is asked again is worked out again."""
        self.known.clear()
        # what is in use still knows its own
        self.hulls, self._ranges = {}, {}
        self._by_tiles.clear()
        self._by_identity.clear()
        self._readings.clear()
        self.held = Held()


def _hull_axis(a: AxisRange, b: AxisRange) -> tuple[str | None, Ints, Ints]:
    for same, other in ((a, b), (b, a)):
        follows = same[0] is not None or other[0] is None
        if not follows and same[1][0] <= other[1].min() and same[2][0] >= other[2].max():
            # one reader needs it all for every tile: then it follows no axis
            return same
    if a[0] is None or b[0] is None or a[0] == b[0]:
        starts, stops = hull((a[1], a[2]), (b[1], b[2]))
        return a[0] or b[0], starts, stops
    # Two readers cut this axis along different axes of the output: every tile needs their union over all tiles.
    low = min(int(a[1].min()), int(b[1].min()))
    high = max(int(a[2].max()), int(b[2].max()))
    return None, np.array([low], dtype=np.int64), np.array([high], dtype=np.int64)
