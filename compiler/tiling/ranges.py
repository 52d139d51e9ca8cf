"""Ranges behind the tiles of one axis, each computed once for all boxes that have them (TILE-1, TILE-3).

Axis maps go axis by axis, so what ranges follow from ranges does not depend on how other axes are cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import AxisMap, Ints
from compiler.lazy import lazy
from compiler.tiling.axis_tiles import NONE, AxisTiles, Share, even_ranges, fresh_ranges, unfollowed
from compiler.tiling.tile import HaloMode


class AxisRange(tuple[str | None, Ints, Ints]):
    """One axis of a box: the grid it follows (None: the same range for every tile), and its starts and stops.

    Told apart by identity: equal ones are the same object where they are kept (`AxisRanges`).
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


# Byte counts as doubles: exact up to 2^53, and matrix products of them are fast.
Reals = NDArray[np.float64]

# Ranges of more tiles are not kept for others: one op may read a thousand tensors under ten thousand tiles.
TILES_KEPT: Final = 1 << 13


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """What the tiles of every candidate size of an axis need and make of a tensor along it (see `SizeTable`)."""

    largest: Reals
    needed: Reals
    kept: Reals
    total: Ints


@dataclass(slots=True)
class Held:
    """How many elements of arrays are kept, or as many as what else is kept takes."""

    elements: int = 0


class AxisRanges:
    """All ranges that follow one axis of the walk, or none.

    Equal ranges are the same object, so that what is known of them is found by identity; where there are so many tiles
    that nothing is kept (`is_kept`), all is worked out anew. `columns`: where the tiles are those of candidate sizes,
    by share what these need and make.
    """

    def __init__(
        self, axis: str | None, tiles: AxisTiles | None = None, count: int = 1, held: Held | None = None
    ) -> None:
        """`tiles` of the axis, or only how many ranges there are; `held` counts what is kept."""
        self.axis = axis
        self._held = Held() if held is None else held
        self.tiles = tiles
        self.is_recomputed = tiles is None or tiles.mode is HaloMode.RECOMPUTE
        self.is_kept = (count if tiles is None else tiles.count) <= TILES_KEPT
        self._ranges: dict[tuple[bytes, bytes], AxisRange] = {}
        self._reached: dict[tuple[object, ...], AxisRange] = {}
        self._anew: dict[AxisRange, tuple[Ints, Ints, Ints, AxisRange, Ints]] = {}
        self._shares: dict[tuple[AxisRange, ...], Share] = {}
        self.columns: dict[Share, Column] = {}
        self._longest: dict[AxisRange, int] = {}
        self._steps: dict[tuple[tuple[AxisRange, int, int], ...], int] = {}
        self._wholes: dict[int, AxisRange] = {}

    def known(self, starts: Ints, stops: Ints) -> AxisRange:
        """The range with these starts and stops."""
        if not self.is_kept:
            return AxisRange((self.axis, starts, stops))
        key = (starts.tobytes(), stops.tobytes())
        found = self._ranges.get(key)
        if found is None:
            found = self._ranges[key] = AxisRange((self.axis, starts, stops))
            self._held.elements += 4 * len(starts)
        return found

    def whole(self, extent: int) -> AxisRange:
        """A whole axis, of ranges that follow none."""
        found = self._wholes.get(extent)
        if found is None:
            found = self._wholes[extent] = self.known(np.zeros(1, dtype=np.int64), np.full(1, extent, dtype=np.int64))
        return found

    def reached(self, axis_map: AxisMap, entry: AxisRange, extent: int) -> AxisRange:
        """The range of an input axis that an op needs for a range of an axis of its output that it maps."""
        scaled = (axis_map.scale, axis_map.low, axis_map.high, axis_map.divisor, axis_map.block)
        key = (entry, *scaled, extent)
        known = self._reached.get(key)
        if known is not None:
            return known
        _, starts, stops = entry
        if self.axis is None:
            begin, end = axis_map.project_one(int(starts[0]), int(stops[0]), extent)
            found = self.known(np.array([begin], dtype=np.int64), np.array([end], dtype=np.int64))
        else:
            found = self.known(*axis_map.project(starts, stops, extent))
        if self.is_kept:
            self._reached[key] = found
        return found

    def fresh(self, entry: AxisRange) -> tuple[Ints, Ints, Ints]:
        """Where what each tile makes anew of a range starts and stops, and how much of it waited before."""
        if self.is_recomputed:
            return entry[1], entry[2], NONE
        return self._made_anew(entry)[:3]

    def made(self, entry: AxisRange) -> AxisRange:
        """Of a range, what each tile makes anew."""
        return entry if self.is_recomputed else self._made_anew(entry)[3]

    def _made_anew(self, entry: AxisRange) -> tuple[Ints, Ints, Ints, AxisRange, Ints]:
        """Where the halo is not recomputed: as `fresh`, the same as a range, and how much of what waits comes from
        tiles behind.
        """
        found = self._anew.get(entry)
        if found is None:
            assert self.tiles is not None
            first, last, waiting, behind = self._parted(entry)
            found = (first, last, waiting, entry if first is entry[1] else self.known(first, last), behind)
            if self.is_kept:
                self._anew[entry] = found
        return found

    def _parted(self, entry: AxisRange) -> tuple[Ints, Ints, Ints, Ints]:
        assert self.tiles is not None
        found = even_ranges(entry[1], entry[2], self.tiles) if self.tiles.both_ways else None
        return found or (*fresh_ranges(entry[1], entry[2], self._restarts), NONE)

    @lazy
    def _restarts(self) -> Any:
        assert self.tiles is not None
        return self.tiles.restarts

    def longest(self, entry: AxisRange) -> int:
        """The length of the longest range."""
        known = self._longest.get(entry)
        if known is not None:
            return known
        # imported where it is used alone: it brings a compiler with it
        from compiler.tiling.kernels import longest_of

        found: int = longest_of(entry[1], entry[2])
        if self.is_kept:
            self._longest[entry] = found
        return found

    def share(self, entries: list[AxisRange]) -> Share:
        """What tiles need and make along the axis of a tensor that has these ranges."""
        key = tuple(entries)
        known = self._shares.get(key)
        if known is not None:
            return known
        assert self.tiles is not None
        needed = product([np.maximum(stops - starts, 0) for _, starts, stops in entries])
        if self.is_recomputed:
            found = Share(needed, needed, NONE, self.tiles)
        else:
            fresh = [self._made_anew(entry) for entry in entries]
            pairs = zip(entries, fresh, strict=True)
            at_hand = product([first - entry[1] + behind for entry, (first, *_, behind) in pairs])
            waiting, behind = product([its[2] for its in fresh]), product([its[4] for its in fresh])
            found = Share(needed, needed - np.minimum(at_hand, needed), waiting, self.tiles, behind)
        if self.is_kept:
            self._shares[key] = found
        return found

    def steps(self, entries: list[tuple[AxisRange, int, int]]) -> int:
        """Array steps over what tiles make anew of a tensor that has these ranges, all tiles together.

        With each range into how many parts cores cut it, and the lanes of the array along it; those of one part.
        """
        key = tuple(entries)
        known = self._steps.get(key)
        if known is not None:
            return known
        # imported where it is used alone: it brings a compiler with it
        from compiler.tiling.kernels import steps_of

        counts = [steps_of(*self.fresh(entry)[:2], cut, lane) for entry, cut, lane in entries]
        found: int = counts[0][0] if len(counts) == 1 else int(product([its for _, its in counts]).sum())
        if self.is_kept:
            self._steps[key] = found
        return found

    @lazy
    def unfollowed(self) -> Share:
        """The share of a tensor that is the same for all tiles along the axis."""
        assert self.tiles is not None
        return unfollowed(self.tiles)


def product(arrays: list[Ints]) -> Ints:
    """The product of arrays, element by element."""
    result = arrays[0]
    for array in arrays[1:]:
        result = result * array
    return result
