"""The tiles along one axis, and what they need and make of a tensor along it (TILE-1, TILE-3)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import Ints
from compiler.tiling.tile import HaloMode


def _constant(value: int | bool) -> NDArray[Any]:
    array = np.array([value])
    array.setflags(write=False)
    return array


NONE: Final = _constant(0)
_FIRST: Final = _constant(True)
# Longer ranges are told apart by a digest: an axis of millions has megabytes of them, and many keys name them.
_DIGESTED_BYTES: Final = 1 << 10


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisTiles:
    """The tiles along one axis of the group's output, in the order in which they are walked.

    `starts` and `stops` are their ranges; `begins` is True where a unit's walk begins, so that nothing is kept from
    the tile before. `times`: how often what does not follow this axis is needed; None: by each of its tiles.
    `blocks`: for core tiles, the first of each SRAM tile. `interleaved`: a unit has several runs at once.
    `both_ways`: units (or cores) have one tile each, and neighbours pass each other halos both ways.
    """

    starts: Ints
    stops: Ints
    begins: NDArray[np.bool_]
    mode: HaloMode
    times: int | None = None
    blocks: Ints | None = None
    interleaved: bool = False
    both_ways: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the frustums of these tiles."""
        blocks = None if self.blocks is None else len(self.blocks)
        arrays = (self.starts, self.stops, self.begins, *(() if self.blocks is None else (self.blocks,)))
        ranges = b"".join([its.tobytes() for its in arrays])
        if len(ranges) > _DIGESTED_BYTES:
            ranges = blake2b(ranges).digest()
        return (ranges, len(self.starts), blocks, self.mode, self.times, self.interleaved, self.both_ways)

    @property
    def restarts(self) -> NDArray[np.bool_]:
        """Where nothing made before is at hand: where a walk begins, in exchange mode only at the axis's beginning."""
        if self.mode is not HaloMode.EXCHANGE:
            return self.begins
        begins = np.zeros_like(self.begins)
        begins[0] = True
        return begins

    @property
    def count(self) -> int:
        """Number of tiles along the axis."""
        return len(self.starts)

    @classmethod
    def of_size(
        cls, extent: int, size: int, mode: HaloMode, *, runs: NDArray[np.bool_] | None = None, times: int | None = None
    ) -> AxisTiles:
        """The axis cut into ranges of `size`, the last one clipped; `runs` are `begins`, one run if not given."""
        if size >= extent and runs is None:
            return cls(starts=NONE, stops=np.array([extent]), begins=_FIRST, mode=mode, times=times)
        starts = np.arange(0, extent, size, dtype=np.int64)
        begins = np.zeros(len(starts), dtype=np.bool_)
        begins[0] = True
        if runs is not None:
            begins |= runs
        return cls(starts=starts, stops=np.minimum(starts + size, extent), begins=begins, mode=mode, times=times)


class Share:
    """What the tiles along one axis need and make of a tensor, as factors of its volume.

    Values tile by tile: `needed`, `made` anew, and `waiting` before it for it or later tiles, of that `behind` what
    tiles behind it make. Of these sums and largest values (`_sum`, `_most`; `kept` of what waits). `union`: the
    most that one run of tiles makes in all.
    """

    __slots__ = (
        "_making",
        "_tiles",
        "_union",
        "behind",
        "kept",
        "made",
        "made_most",
        "made_sum",
        "needed",
        "needed_most",
        "needed_sum",
        "waiting",
    )
    needed_sum: int
    needed_most: int
    made_sum: int
    made_most: int
    kept: int

    def __init__(self, needed: Ints, made: Ints, waiting: Ints, tiles: AxisTiles, behind: Ints = NONE) -> None:
        """The values tile by tile, and the tiles."""
        # imported where it is used alone: it brings a compiler with it
        from compiler.tiling.kernels import sums_of

        self.needed, self.made, self.waiting, self.behind = needed, made, waiting, behind
        self.needed_sum, self.needed_most = self.made_sum, self.made_most = sums_of(needed)
        self.kept = 0
        if made is not needed:
            self.made_sum, self.made_most = sums_of(made)
            self.kept = sums_of(waiting)[1]
        self._tiles = tiles
        self._union: int | None = None
        self._making: int | None = None

    @property
    def union(self) -> int:
        """The most that the runs of one unit make in all, as far as they are walked at the same time."""
        if self._union is None:
            if self._tiles.interleaved:
                self._union = self.made_sum
            else:
                self._union = int(np.add.reduceat(self.made, np.flatnonzero(self._tiles.begins)).max())
        return self._union

    @property
    def both_ways(self) -> bool:
        """True if neighbours pass each other halos both ways."""
        return self._tiles.both_ways

    @property
    def making(self) -> int:
        """Tiles that make anything."""
        if self._making is None:
            self._making = int(np.count_nonzero(self.made))
        return self._making

    @property
    def needed_in_block(self) -> int:
        """Of core tiles: the most that those of one SRAM tile need, one after another; else of the largest tile."""
        if self._tiles.blocks is None:
            return self.needed_most
        return int(np.add.reduceat(self.needed, self._tiles.blocks).max())

    @property
    def block_count(self) -> int:
        """SRAM tiles along the axis that core tiles lie in."""
        return 1 if self._tiles.blocks is None else len(self._tiles.blocks)


def fresh_ranges(starts: Ints, stops: Ints, begins: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Where each range's new part starts and stops, and how many positions before its stop waited for it.

    Ranges that do not rise (slices put together in another order) share nothing that could be told by their ends.
    """
    # imported where it is used alone: it brings a compiler with it
    from compiler.tiling.kernels import fresh_positions

    rises, first, waiting = fresh_positions(starts, stops, begins)
    return (first, stops, waiting) if rises else (starts, stops, np.zeros_like(starts))


def even_ranges(starts: Ints, stops: Ints, tiles: AxisTiles) -> tuple[Ints, Ints, Ints, Ints] | None:
    """Where each range's new part starts and stops if neighbours pass each other the rest, so that all make alike much.

    The border between two of them lies at the same part of the tensor as between their tiles in the output, or as near
    to that as what both need lets it. Also how many positions of each come from others, and how many of these from
    tiles behind. None where ranges do not rise; empty ones are left out of that, and nothing is made of them.
    """
    filled = stops > starts
    low, high = starts, stops
    if not filled.all():
        # an empty range lies where the ones before it end
        high = np.where(filled, stops, np.maximum.accumulate(np.where(filled, stops, 0)))
        low = np.where(filled, starts, high)
    if bool((low[1:] < low[:-1]).any() or (high[1:] < high[:-1]).any()):
        return None
    begin, extent = int(low[0]), int(tiles.stops[-1])
    borders = begin - (begin - int(high[-1])) * tiles.stops[:-1] // extent
    borders = np.clip(borders, low[1:], np.maximum(low[1:], high[:-1]))
    both = low[1:] < high[:-1]
    first, last = starts.copy(), stops.copy()
    first[1:] = np.where(both, borders, starts[1:])
    last[:-1] = np.where(both, borders, stops[:-1])
    behind = stops - last
    return first, last, first - starts + behind, behind


def unfollowed(tiles: AxisTiles) -> Share:
    """The share of a tensor that is the same for every tile along an axis."""
    if tiles.times is not None:
        one = np.ones(1, dtype=np.int64)
        share = Share(one, one, NONE, replace(tiles, begins=_FIRST, blocks=None))
        share.needed_sum = share.made_sum = tiles.times
        return share
    needed = np.ones(tiles.count, dtype=np.int64)
    if tiles.mode is HaloMode.RECOMPUTE:
        return Share(needed, needed, NONE, tiles)
    made = np.zeros(tiles.count, dtype=np.int64)
    if tiles.mode is HaloMode.CACHED:
        made[tiles.begins] = 1
    else:
        made[0] = 1
    return Share(needed, made, 1 - made, tiles)
