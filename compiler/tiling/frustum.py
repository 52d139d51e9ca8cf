"""One tiling of a group in full: every tile's boxes, what each tile makes anew, keeps and needs (TILE-1, TILE-3).

A *walk* goes over the tiles axis by axis, outermost first. Along an axis whose halo is recomputed every tile makes all
that it needs. Along one whose halo is cached or exchanged it makes only what no tile before it made. Both are ranges
per axis, so a box made anew is a product of ranges too: a position is new if it is new along every such axis.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from compiler.ir.box import AxisMap, Ints
from compiler.ops.facts import Operand, OpFacts
from compiler.tiling.geometry import AxisRange, Box, GroupGeometry
from compiler.tiling.tile import HaloMode
from compiler.units import ceil_div


def _constant(value: int | bool) -> NDArray[Any]:
    array = np.array([value])
    array.setflags(write=False)
    return array


_ONE: Final = _constant(1)
_NONE: Final = _constant(0)
_FIRST: Final = _constant(True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AxisTiles:
    """The tiles along one axis of the group's output, in the order in which they are walked.

    `starts` and `stops` are their ranges; `begins` is True where a unit's walk begins, so that nothing is kept from
    the tile before. `times`: how often what does not follow this axis is needed; None: by each of its tiles.
    `blocks`: for core tiles, the first of each SRAM tile. `interleaved`: a unit has several runs at once.
    """

    starts: Ints
    stops: Ints
    begins: NDArray[np.bool_]
    mode: HaloMode
    times: int | None = None
    blocks: Ints | None = None
    interleaved: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """What decides the frustums of these tiles."""
        blocks = None if self.blocks is None else self.blocks.tobytes()
        ranges = (self.starts.tobytes(), self.stops.tobytes(), self.begins.tobytes(), blocks)
        return (*ranges, self.mode, self.times, self.interleaved)

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
            return cls(starts=_NONE, stops=np.array([extent]), begins=_FIRST, mode=mode, times=times)
        starts = np.arange(0, extent, size, dtype=np.int64)
        begins = np.zeros(len(starts), dtype=np.bool_)
        begins[0] = True
        if runs is not None:
            begins |= runs
        return cls(starts=starts, stops=np.minimum(starts + size, extent), begins=begins, mode=mode, times=times)


class Share:
    """What the tiles along one axis need and make of a tensor, as factors of its volume.

    Values tile by tile: `needed`, `made` anew, and `waiting` before it for it or later tiles. Of these sums and largest
    values (`_sum`, `_most`; `kept` of what waits). `union`: the most that one run of tiles makes in all.
    """

    __slots__ = (
        "_tiles",
        "_union",
        "kept",
        "made",
        "made_most",
        "made_sum",
        "needed",
        "needed_most",
        "needed_sum",
        "waiting",
    )

    def __init__(self, needed: Ints, made: Ints, waiting: Ints, tiles: AxisTiles) -> None:
        """The values tile by tile, and the tiles."""
        self.needed, self.made, self.waiting = needed, made, waiting
        self.needed_sum, self.needed_most = int(needed.sum()), int(needed.max())
        if made is needed:
            self.made_sum, self.made_most, self.kept = self.needed_sum, self.needed_most, 0
        else:
            self.made_sum, self.made_most, self.kept = int(made.sum()), int(made.max()), int(waiting.max())
        self._tiles = tiles
        self._union: int | None = None

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
    def needed_in_block(self) -> int:
        """Of core tiles: the most that those of one SRAM tile need, one after another; else of the largest tile."""
        if self._tiles.blocks is None:
            return self.needed_most
        return int(np.add.reduceat(self.needed, self._tiles.blocks).max())

    @property
    def block_count(self) -> int:
        """SRAM tiles along the axis that core tiles lie in."""
        return 1 if self._tiles.blocks is None else len(self._tiles.blocks)


class Frustums:
    """All frustums of a group under one tiling; sizes in bytes, over all tiles or of the largest."""

    def __init__(self, geometry: GroupGeometry, tiles: Mapping[str, AxisTiles]) -> None:
        """`tiles` by axis of the group's output, outermost of the walk first; axes not named are whole."""
        self.geometry = geometry
        # what is not cut needs no arrays
        self.tiles = {axis: found for axis, found in tiles.items() if found.count > 1}
        self._fresh: dict[tuple[str, int, int], tuple[Ints, Ints, Ints]] = {}
        self._shares: dict[tuple[str, tuple[int, ...]], Share] = {}
        self._factors: dict[str, tuple[int, dict[str, Share]]] = {}
        grids = {axis: (found.starts, found.stops) for axis, found in self.tiles.items()}
        recomputed = all(found.mode is HaloMode.RECOMPUTE for found in self.tiles.values())
        self.boxes: Mapping[str, Box] = geometry.project(grids, None if recomputed else self._made)
        self._unfollowed = {axis: _unfollowed(found) for axis, found in self.tiles.items()}

    def factors(self, name: str) -> tuple[int, dict[str, Share]]:
        """Bytes of a tensor that no axis of the walk cuts, and its shares along each axis."""
        known = self._factors.get(name)
        if known is None:
            constant = self.geometry.facts.tensors[name].element_bytes
            followed: dict[str, list[AxisRange]] = {}
            for entry in self.boxes[name]:
                if entry[0] is None:
                    constant *= max(0, int(entry[2][0]) - int(entry[1][0]))
                else:
                    followed.setdefault(entry[0], []).append(entry)
            shares = {
                axis: self._share(axis, followed[axis]) if axis in followed else self._unfollowed[axis]
                for axis in self.tiles
            }
            known = self._factors[name] = (constant, shares)
        return known

    def fresh(self, entry: AxisRange) -> tuple[Ints, Ints, Ints]:
        """For an axis of a box: where what each tile makes anew starts and stops, and how much of it waited before."""
        axis, starts, stops = entry
        if axis is None or self.tiles[axis].mode is HaloMode.RECOMPUTE:
            return starts, stops, _NONE
        key = (axis, id(starts), id(stops))
        known = self._fresh.get(key)
        if known is None:
            known = self._fresh[key] = _fresh(starts, stops, self._restarts(axis))
        return known

    def _made(self, entry: AxisRange) -> AxisRange:
        if entry[0] is None:
            return entry
        starts, stops, _ = self.fresh(entry)
        return entry if starts is entry[1] else (entry[0], starts, stops)

    def _restarts(self, axis: str) -> NDArray[np.bool_]:
        """Where along an axis nothing made before is at hand: in exchange mode only at its beginning."""
        tiles = self.tiles[axis]
        if tiles.mode is not HaloMode.EXCHANGE:
            return tiles.begins
        begins = np.zeros_like(tiles.begins)
        begins[0] = True
        return begins

    def _share(self, axis: str, entries: list[AxisRange]) -> Share:
        key = (axis, tuple(id(array) for entry in entries for array in entry[1:]))
        known = self._shares.get(key)
        if known is None:
            tiles = self.tiles[axis]
            needed = _product([np.maximum(stops - starts, 0) for _, starts, stops in entries])
            if tiles.mode is HaloMode.RECOMPUTE:
                known = Share(needed, needed, _NONE, tiles)
            else:
                fresh = [self.fresh(entry) for entry in entries]
                at_hand = _product([first - entry[1] for entry, (first, _, _) in zip(entries, fresh, strict=True)])
                waiting = _product([f[2] for f in fresh])
                known = Share(needed, needed - np.minimum(at_hand, needed), waiting, tiles)
            self._shares[key] = known
        return known

    def needed_bytes(self, name: str) -> int:
        """Bytes of a tensor that tiles need, over all tiles."""
        constant, shares = self.factors(name)
        return constant * prod(share.needed_sum for share in shares.values())

    def made_bytes(self, name: str) -> int:
        """Bytes of a tensor that tiles make anew (of an input: load), over all tiles."""
        constant, shares = self.factors(name)
        return constant * prod(share.made_sum for share in shares.values())

    def largest_made(self, name: str) -> int:
        """Bytes that a tile makes anew at most."""
        constant, shares = self.factors(name)
        return constant * prod(share.made_most for share in shares.values())

    def core_volume(self, name: str, kept: Collection[str]) -> int:
        """Bytes of a tensor's largest box that are not kept: along the axes `kept` only what is made anew."""
        constant, shares = self.factors(name)
        return constant * prod(s.made_most if axis in kept else s.needed_most for axis, s in shares.items())

    def usual_needed(self, name: str) -> tuple[int, float]:
        """Bytes of a tensor's usual box, and the part of all that tiles need which lies in larger boxes.

        The first tile of a walk is larger than the others where halos are kept.
        """
        constant, shares = self.factors(name)
        size, usual = constant, 1.0
        for share in shares.values():
            middle = int(np.sort(share.needed)[len(share.needed) // 2])
            size *= middle
            total = share.needed_sum
            usual *= int(share.needed[share.needed <= middle].sum()) / total if total else 1.0
        return size, 1.0 - usual

    def kept_along(self, name: str) -> dict[str, int]:
        """Bytes of a tensor that wait for later tiles of a unit's walk, by the axis along which they are shared.

        Along an outer axis what waits spans the whole walk of the axes inside it; along an inner one the rows that the
        current tile needs: what waits in both ways has to be kept in the inner one's store, since the outer one's
        takes up what comes next.
        """
        constant, shares = self.factors(name)
        found = {}
        axes = list(self.tiles)
        for number, axis in enumerate(axes):
            waiting = shares[axis].kept
            if waiting:
                # core tiles that lie in several SRAM tiles along this axis wait for all of them across it
                across = shares[axis].block_count > 1
                outer = prod(s.needed_in_block if across else s.needed_most for s in (shares[a] for a in axes[:number]))
                inner = prod(shares[other].union for other in axes[number + 1 :])
                found[axis] = constant * outer * waiting * inner
        return found

    def kept_bytes(self, name: str) -> int:
        """Bytes of a tensor that wait for later tiles of a unit's walk, along all axes."""
        return sum(self.kept_along(name).values())

    def reused_along(self, name: str) -> dict[str, int]:
        """Bytes of a tensor that tiles need and do not make anew, over all tiles, by the axis along which they waited.

        They add up to what is needed less what is made.
        """
        constant, shares = self.factors(name)
        found = {}
        axes = list(self.tiles)
        for number, axis in enumerate(axes):
            reused = shares[axis].needed_sum - shares[axis].made_sum
            if reused:
                outer = prod(shares[other].made_sum for other in axes[:number])
                inner = prod(shares[other].needed_sum for other in axes[number + 1 :])
                found[axis] = constant * outer * reused * inner
        return found

    def read_bytes(self, op: OpFacts, operand: Operand) -> int:
        """Bytes of an operand that an op reads to make what it makes anew, over all tiles, box by box."""
        return self._operand(op, operand, largest=False)

    def largest_read(self, op: OpFacts, operand: Operand) -> int:
        """Bytes of an operand that an op reads for its largest box."""
        return self._operand(op, operand, largest=True)

    def _operand(self, op: OpFacts, operand: Operand, *, largest: bool) -> int:
        box = self.boxes[op.output]
        tensor = self.geometry.facts.tensors[operand.tensor]
        total = tensor.element_bytes
        lengths: dict[str, Ints] = {}
        for axis_map, extent in zip(operand.access, tensor.shape, strict=True):
            entry = box[axis_map.axis] if axis_map.axis is not None else None
            if entry is None or entry[0] is None:
                length = extent if entry is None else _span(axis_map, entry, extent)
                total *= length
                continue
            starts, stops, _ = self.fresh(entry)
            begin, end = axis_map.project(starts, stops, extent)
            length_array = np.maximum(end - begin, 0)
            axis = entry[0]
            lengths[axis] = lengths[axis] * length_array if axis in lengths else length_array
        _, shares = self.factors(op.output)
        for axis, share in shares.items():
            if axis in lengths:
                total *= int(lengths[axis].max() if largest else lengths[axis].sum())
            elif axis in self.tiles and not largest:
                # an operand that does not follow this axis is read by every tile that makes anything
                times = self.tiles[axis].times
                total *= max(1, int(np.count_nonzero(share.made))) if times is None else times
        return total

    def steps(self, op: OpFacts, lanes: Mapping[str, int], divide: Mapping[str, int]) -> int:
        """Array steps of an op's output positions, over all tiles.

        `lanes` are the array's lanes by axis, `divide` into how many parts cores cut an axis of each tile; the steps
        are those of one such part.
        """
        output = self.geometry.facts.tensors[op.output]
        total = 1
        by_grid: dict[str, Ints] = {}
        for number, (axis, entry) in enumerate(zip(output.axes, self.boxes[op.output], strict=True)):
            if number == op.channel_axis:
                continue
            parts, lane = divide.get(axis, 1), lanes.get(axis, 1)
            if entry[0] is None:
                total *= ceil_div(ceil_div(max(0, int(entry[2][0]) - int(entry[1][0])), parts), lane)
            else:
                starts, stops, _ = self.fresh(entry)
                length = np.maximum(stops - starts, 0)
                if parts * lane > 1:
                    length = -(-length // parts)
                    length = -(-length // lane)
                by_grid[entry[0]] = by_grid[entry[0]] * length if entry[0] in by_grid else length
        _, shares = self.factors(op.output)
        for axis, share in shares.items():
            if axis in by_grid:
                total *= int(by_grid[axis].sum())
            elif self.tiles[axis].times is None and not self._is_channel(op, axis):
                total *= int(np.count_nonzero(share.made))
        return total

    def _is_channel(self, op: OpFacts, axis: str) -> bool:
        """True if the op's channels follow this axis of the walk."""
        return op.channel_axis is not None and self.boxes[op.output][op.channel_axis][0] == axis

    def positions(self, op: OpFacts) -> int:
        """Output positions of an op over all tiles, channels apart."""
        return self.steps(op, {}, {})

    def channels(self, op: OpFacts) -> int:
        """Output channels of an op in its largest box."""
        if op.channel_axis is None:
            return 1
        _, starts, stops = self.boxes[op.output][op.channel_axis]
        return max(0, int((stops - starts).max()))

    def lengths(self, name: str) -> tuple[int, ...]:
        """The longest range per axis of what a tile makes anew of a tensor."""
        result = []
        for entry in self.boxes[name]:
            starts, stops, _ = self.fresh(entry)
            result.append(max(0, int((stops - starts).max())))
        return tuple(result)

    def box_lengths(self, name: str) -> tuple[int, ...]:
        """The longest range per axis of a tensor's boxes."""
        return tuple(max(0, int((stops - starts).max())) for _, starts, stops in self.boxes[name])


def _span(axis_map: AxisMap, entry: AxisRange, extent: int) -> int:
    begin, end = axis_map.project_one(int(entry[1][0]), int(entry[2][0]), extent)
    return end - begin


def _product(arrays: list[Ints]) -> Ints:
    result = arrays[0]
    for array in arrays[1:]:
        result = result * array
    return result


def _fresh(starts: Ints, stops: Ints, begins: NDArray[np.bool_]) -> tuple[Ints, Ints, Ints]:
    """Where each range's new part starts and stops, and how many positions before its stop waited for it.

    Ranges that do not rise (slices put together in another order) share nothing that could be told by their ends.
    """
    if _falls(starts, stops, begins):
        return starts, stops, np.zeros_like(starts)
    span = int(stops.max()) + 1
    run = np.cumsum(begins) * span
    reached = np.maximum.accumulate(stops + run)
    before = np.empty_like(stops)
    before[0] = 0
    before[1:] = reached[:-1] - run[1:]
    before[begins] = 0
    empty = stops <= starts
    first = np.where(empty, stops, np.maximum(starts, np.minimum(before, stops)))
    waiting = np.where(empty, 0, np.maximum(before - starts, 0))
    return first, stops, waiting


def _falls(starts: Ints, stops: Ints, begins: NDArray[np.bool_]) -> bool:
    """True if within a run a range starts or stops before the one before it."""
    filled = stops > starts
    if not filled.all():
        starts, stops, run = starts[filled], stops[filled], np.cumsum(begins)[filled]
        within = run[1:] == run[:-1]
    else:
        within = ~begins[1:]
    return bool((within & ((starts[1:] < starts[:-1]) | (stops[1:] < stops[:-1]))).any())


def _unfollowed(tiles: AxisTiles) -> Share:
    """The share of a tensor that is the same for every tile along an axis."""
    if tiles.times is not None:
        share = Share(_ONE, _ONE, _NONE, replace(tiles, begins=_FIRST, blocks=None))
        share.needed_sum = share.made_sum = tiles.times
        return share
    needed = np.ones(tiles.count, dtype=np.int64)
    if tiles.mode is HaloMode.RECOMPUTE:
        return Share(needed, needed, _NONE, tiles)
    made = np.zeros(tiles.count, dtype=np.int64)
    if tiles.mode is HaloMode.CACHED:
        made[tiles.begins] = 1
    else:
        made[0] = 1
    return Share(needed, made, 1 - made, tiles)
