"""Which boxes a tile needs, makes anew and has waiting, and where all that lies in one memory (TILE-1, TILE-3).

A tensor's tile has one buffer for what the tile makes anew, and per axis whose halo is kept a *store* for what earlier
tiles made. A position that waits is served by the store of the innermost axis along which it is not new:

- along its own axis a store is a ring of as many positions as ever wait;
- along axes outside, it spans what the tile needs (of all core tiles of an SRAM tile, one after another);
- along axes inside, what the walk of these axes makes, one tile after another.

Where neighbours pass each other halos both ways, each has one tile along the axis: its store has no ring, what comes
from the tile before lies before what comes from the tile behind, and along axes inside it spans one tile.

So nothing that waits is moved while it waits, and a position that is written takes the place of one that no later
tile needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from compiler.ir.layout import strides_of
from compiler.program.emitter import Box, Held, empty_box, held_at, is_empty
from compiler.program.slots import Slot
from compiler.tiling.frustum import Frustums
from compiler.tiling.tile import HaloMode

Index = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Dim:
    """One axis of a tensor: the walk's axis that it follows, and its ranges and new ranges tile by tile.

    `waits`: what earlier tiles made of a range; of a tile that needs nothing, what the next one that does finds.
    New is what begins at `firsts` and ends at `lasts`; what lies between there and the range's end tiles behind make.
    """

    axis: str | None
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    firsts: tuple[int, ...]
    lasts: tuple[int, ...]
    waits: tuple[tuple[int, int], ...]

    def needed(self, number: int) -> tuple[int, int]:
        """The range of a tile."""
        return self.starts[number], self.stops[number]

    def made(self, number: int) -> tuple[int, int]:
        """What is new of the range of a tile."""
        return self.firsts[number], self.lasts[number]

    def behind(self, number: int) -> tuple[int, int]:
        """What tiles behind make of the range of a tile."""
        return self.lasts[number], self.stops[number]

    @property
    def both_ways(self) -> bool:
        """True if some tile needs what a tile behind it makes."""
        return self.lasts != self.stops


@dataclass(frozen=True, slots=True)
class StoreShape:
    """The store of one tensor for one axis of the walk: its extents, and where a tile's ranges lie in it.

    `offsets` by dimension: for dimensions outside and inside of `axis`, where each tile's range begins; None for the
    ring, and for dimensions that no axis of the walk cuts. `ring`: the dimension along `axis`; `both_ways`: it is no
    ring, but holds what the neighbours of one tile make.
    """

    axis: str
    lengths: tuple[int, ...]
    ring: int | None
    offsets: tuple[tuple[int, ...] | None, ...]
    size_bytes: int
    both_ways: bool = False


class Tiles:
    """The boxes of one walk over tiles, and the stores of every tensor, by name."""

    def __init__(self, frustums: Frustums) -> None:
        self.frustums = frustums
        self.order = tuple(frustums.tiles)
        self.ranks = {axis: rank for rank, axis in enumerate(self.order)}
        self.counts = {axis: tiles.count for axis, tiles in frustums.tiles.items()}
        self._dims: dict[str, tuple[_Dim, ...]] = {}
        self._unfollowed: dict[str, tuple[str, ...]] = {}
        self._followed: dict[str, tuple[str, ...]] = {}
        self._needed: dict[tuple[object, ...], Box] = {}
        self._fresh: dict[tuple[object, ...], Box] = {}
        self._waiting: dict[tuple[object, ...], tuple[Box, ...]] = {}
        self._saved: dict[tuple[object, ...], Box | None] = {}
        self._stores: dict[str, tuple[StoreShape, ...]] = {}
        self._stored_axes: dict[str, tuple[str, ...]] = {}
        # the axes along which neighbours pass each other halos both ways
        self.both_ways = frozenset(axis for axis, tiles in frustums.tiles.items() if tiles.both_ways)
        self._begins = {axis: tiles.begins.tolist() for axis, tiles in frustums.tiles.items()}
        self._restarts = {
            axis: [number == 0 for number in range(tiles.count)]
            if tiles.mode is HaloMode.EXCHANGE
            else self._begins[axis]
            for axis, tiles in frustums.tiles.items()
        }

    def forget(self) -> None:
        """Drop the boxes of single tiles."""
        for known in (self._needed, self._fresh, self._waiting, self._saved):
            known.clear()

    def dims(self, name: str) -> tuple[_Dim, ...]:
        """A tensor's axes with their ranges."""
        found = self._dims.get(name)
        if found is None:
            entries = []
            for axis, starts, stops in self.frustums.boxes[name]:
                first, last, _ = self.frustums.fresh((axis, starts, stops))
                ranges = (_ints(starts), _ints(stops), _ints(first))
                begins = [] if axis is None else self._restarts[axis]
                waits = () if axis is None else _waits(*ranges, begins)
                entries.append(_Dim(axis, *ranges, _ints(last), waits))
            found = self._dims[name] = tuple(entries)
            followed = {dim.axis for dim in found}
            self._unfollowed[name] = tuple(axis for axis in self.order if axis not in followed)
        return found

    def needed(self, name: str, index: Index) -> Box:
        """The box of a tensor that a tile needs."""
        key = (name, *[index[axis] for axis in self.followed(name)])
        found = self._needed.get(key)
        if found is None:
            found = self._needed[key] = tuple(d.needed(0 if d.axis is None else index[d.axis]) for d in self.dims(name))
        return found

    def fresh(self, name: str, index: Index) -> Box:
        """The box of a tensor that a tile makes anew; empty where it makes none."""
        key = (name, *index.values())
        found = self._fresh.get(key)
        if found is None:
            found = self._fresh[key] = self._new_fresh(name, index)
        return found

    def _new_fresh(self, name: str, index: Index) -> Box:
        dims = self.dims(name)
        if self._unfollowed[name] and not self.is_made(name, index):
            return empty_box(len(dims))
        return tuple(d.needed(0) if d.axis is None else d.made(index[d.axis]) for d in dims)

    def followed(self, name: str) -> tuple[str, ...]:
        """The axes of the walk that a tensor's boxes follow."""
        found = self._followed.get(name)
        if found is None:
            found = self._followed[name] = tuple(dict.fromkeys(d.axis for d in self.dims(name) if d.axis is not None))
        return found

    def is_made(self, name: str, index: Index) -> bool:
        """False where a tensor is the same for all tiles along an axis, and this is not the first of them."""
        return self.waits_along(name, index) is None

    def waits_along(self, name: str, index: Index) -> str | None:
        """The innermost axis along which a tensor is the same for all tiles and an earlier one made it, if any."""
        self.dims(name)
        return next((axis for axis in reversed(self._unfollowed[name]) if self.waits_whole(axis, index)), None)

    def waits_whole(self, axis: str, index: Index) -> bool:
        """True if a tensor that does not follow an axis was made by an earlier tile along it."""
        tiles = self.frustums.tiles[axis]
        if tiles.mode is HaloMode.RECOMPUTE:
            return False
        if tiles.mode is HaloMode.CACHED:
            return not self._begins[axis][index[axis]]
        return index[axis] > 0

    def successor(self, axis: str, index: Index) -> Index | None:
        """The next tile along an axis that has something waiting from this one; None if there is none."""
        tiles, number = self.frustums.tiles[axis], index[axis] + 1
        if tiles.mode is HaloMode.RECOMPUTE or number >= tiles.count:
            return None
        if tiles.mode is HaloMode.CACHED and self._begins[axis][number]:
            return None
        return {**index, axis: number}

    def receivers(self, axis: str, index: Index) -> list[Index]:
        """The neighbours along an axis that a tile may make something for: the next, both ways the one before, too."""
        later = self.successor(axis, index)
        found = [] if later is None else [later]
        return [*found, {**index, axis: index[axis] - 1}] if axis in self.both_ways and index[axis] else found

    def ways(self, name: str) -> list[tuple[tuple[str, ...], bool]]:
        """In which order neighbours of a round pass each other what they need of a tensor: along which axes, and back?

        In step one axis after the other, the outermost first, and along each to the tiles behind before the way back:
        so what comes along an axis has what came along those outside, and from further away.
        """
        axes = self.stored_axes(name)
        if not self.both_ways:
            return [(axes, False)]
        steps = [((axis,), back) for axis in reversed(axes) for back in (False, True)]
        return [step for step in steps if not step[1] or step[0][0] in self.both_ways]

    def old_along(self, name: str, axis: str, index: Index) -> tuple[int, int] | None:
        """The positions along an axis that wait for a tile; (0, 0) if all of a tensor that does not follow it does."""
        for dim in self.dims(name):
            if dim.axis == axis:
                start, first = dim.waits[index[axis]]
                return (start, first) if first > start else None
        return (0, 0) if self.waits_whole(axis, index) else None

    def waiting(self, name: str, index: Index, axis: str, *, back: bool | None = None) -> tuple[Box, ...]:
        """What waits for a tile in the store of an axis: old along it, new along the axes inside.

        What the tiles before have made, and what those behind have; or one of these (`back`).
        """
        key = (name, axis, back, *index.values())
        try:
            return self._waiting[key]
        except KeyError:
            found = self._waiting[key] = self._new_waiting(name, index, axis, back)
            return found

    def _new_waiting(self, name: str, index: Index, axis: str, back: bool | None) -> tuple[Box, ...]:
        rank = self.ranks[axis]
        if self._waits_inside(name, rank, index):
            return ()
        along = [self.old_along(name, axis, index)] if back is not True else []
        along += [self._behind(name, axis, index)] if back is not False else []
        cells = [self._across(name, index, axis, old) for old in along if old is not None]
        return tuple([cell for cell in cells if not is_empty(cell)])

    def _behind(self, name: str, axis: str, index: Index) -> tuple[int, int] | None:
        """The positions along an axis that tiles behind a tile make for it; None if they make none."""
        found = next((dim.behind(index[axis]) for dim in self.dims(name) if dim.axis == axis), (0, 0))
        return found if found[1] > found[0] else None

    def _across(self, name: str, index: Index, axis: str, along: tuple[int, int]) -> Box:
        """The box of some positions along an axis: new along the axes inside, needed along those outside."""
        rank = self.ranks[axis]
        box = []
        for dim in self.dims(name):
            if dim.axis is None:
                box.append(dim.needed(0))
            elif dim.axis == axis:
                box.append(along)
            else:
                number = index[dim.axis]
                box.append(dim.made(number) if self.ranks[dim.axis] > rank else dim.needed(number))
        return tuple(box)

    def _waits_inside(self, name: str, rank: int, index: Index) -> bool:
        """True if a tensor does not follow an axis inside, and was made earlier along it: then it waits there."""
        followed = self.followed(name)
        return any(other not in followed and self.waits_whole(other, index) for other in self.order[rank + 1 :])

    def saved(self, name: str, index: Index, later: Index, axis: str, *, whole: bool) -> Box | None:
        """What the store of an axis has to take in when a tile is done, for `later`, a receiver of it; None if nothing.

        With `whole` all that the next tile finds waiting, since it is another unit's; else what is new of it.
        """
        key = (name, axis, whole, later[axis], *index.values())
        try:
            return self._saved[key]
        except KeyError:
            found = self._saved[key] = self._new_saved(name, index, later, axis, whole=whole)
            return found

    def _new_saved(self, name: str, index: Index, later: Index, axis: str, *, whole: bool) -> Box | None:
        is_before = later[axis] < index[axis]
        old = self._behind(name, axis, later) if is_before else self.old_along(name, axis, later)
        if old is None:
            return None
        for dim in self.dims(name):
            if dim.axis == axis and not is_before:
                first = min(dim.starts[index[axis]], dim.waits[index[axis]][0]) if whole else dim.firsts[index[axis]]
                old = (max(old[0], first), old[1])
        box = self._across(name, index, axis, old)
        if axis not in self.followed(name) and not whole and self.waits_whole(axis, index):
            return None
        return None if is_empty(box) or self._waits_inside(name, self.ranks[axis], index) else box

    def stores(self, name: str) -> tuple[StoreShape, ...]:
        """The stores of a tensor, outermost axis first."""
        found = self._stores.get(name)
        if found is None:
            found = self._stores[name] = tuple(
                shape for number in range(len(self.order)) if (shape := self._store(name, number)) is not None
            )
        return found

    def stored_axes(self, name: str) -> tuple[str, ...]:
        """The axes along which something of a tensor is stored, innermost first."""
        found = self._stored_axes.get(name)
        if found is None:
            found = self._stored_axes[name] = tuple(shape.axis for shape in reversed(self.stores(name)))
        return found

    def _store(self, name: str, number: int) -> StoreShape | None:
        axis = self.order[number]
        # along an axis whose tiles overlap nothing waits of a tensor that no tile needs along another one
        if not self.frustums.kept_along(name).get(axis):
            return None
        _, shares = self.frustums.factors(name)
        outside, in_step = set(self.order[:number]), axis in self.both_ways
        both_ways = False
        lengths: list[int] = []
        offsets: list[tuple[int, ...] | None] = []
        ring = None
        for place, dim in enumerate(self.dims(name)):
            if dim.axis is None:
                lengths.append(dim.stops[0] - dim.starts[0])
                offsets.append(None)
            elif dim.axis == axis:
                ring, both_ways = place, dim.both_ways
                ranges = zip(dim.starts, dim.firsts, dim.lasts, dim.stops, strict=True)
                lengths.append(max((f - s + stop - last for s, f, last, stop in ranges), default=0))
                offsets.append(None)
            elif dim.axis in outside:
                across = shares[axis].block_count > 1 and not in_step
                begins = self.frustums.tiles[dim.axis].blocks if across else None
                spans = [max(0, stop - start) for start, stop in zip(dim.starts, dim.stops, strict=True)]
                length, starts = _one_after_another(spans, _marks(len(spans), begins))
                lengths.append(length)
                offsets.append(starts)
            else:
                spans = [max(0, last - first) for first, last in zip(dim.firsts, dim.lasts, strict=True)]
                runs = self.frustums.tiles[dim.axis]
                begins = np.zeros(1, dtype=np.int64) if runs.interleaved else np.flatnonzero(runs.begins)
                length, starts = _one_after_another(spans, _marks(len(spans), None if in_step else begins))
                lengths.append(length)
                offsets.append(starts)
        element = self.frustums.geometry.facts.tensors[name].element_bytes
        return StoreShape(axis, tuple(lengths), ring, tuple(offsets), prod(lengths) * element, both_ways)


def _waits(
    starts: Sequence[int], stops: Sequence[int], firsts: Sequence[int], begins: Sequence[bool]
) -> tuple[tuple[int, int], ...]:
    """What waits for each range: of an empty one what waits for the next of its run, so that it is not lost."""
    found: list[tuple[int, int]] = []
    following = (0, 0)
    for start, stop, first, begin in reversed(list(zip(starts, stops, firsts, begins, strict=True))):
        if stop > start:
            following = (start, min(first, stop))
        found.append(following)
        if begin:
            following = (0, 0)
    return tuple(reversed(found))


def _ints(values: np.ndarray) -> tuple[int, ...]:
    return tuple(values.tolist())


def _marks(count: int, begins: np.ndarray | None) -> list[bool]:
    """Where a sum begins anew: at `begins`; everywhere if not given."""
    if begins is None:
        return [True] * count
    marks = [False] * count
    for begin in begins.tolist():
        marks[begin] = True
    return marks


def _one_after_another(spans: Sequence[int], begins: Sequence[bool]) -> tuple[int, tuple[int, ...]]:
    """Ranges laid one after another from each beginning on: the longest such row, and where each range begins."""
    starts, at, longest = [], 0, 0
    for span, begin in zip(spans, begins, strict=True):
        if begin:
            at = 0
        starts.append(at)
        at += span
        longest = max(longest, at)
    return longest, tuple(starts)


@dataclass(slots=True)
class Store:
    """A store in one memory."""

    shape: StoreShape
    slot: Slot
    address: int
    strides: tuple[int, ...]

    @classmethod
    def at(cls, tiles: Tiles, name: str, shape: StoreShape, slot: Slot) -> Store:
        """The store laid densely into a slot."""
        tensor = tiles.frustums.geometry.facts.tensors[name]
        strides = strides_of(shape.lengths, tensor.order, tensor.element_bytes)
        return cls(shape, slot, slot.address, strides)

    def pieces(self, tiles: Tiles, name: str, index: Index, box: Box) -> list[Held]:
        """Where a box of the tensor lies that waits, or shall wait, for the tile `index`; a ring may cut it in two."""
        shape, origin = self.shape, []
        ring_range = (0, 1)
        for place, (dim, offsets) in enumerate(zip(tiles.dims(name), shape.offsets, strict=True)):
            if place == shape.ring:
                ring_range = box[place]
                origin.append(0)
            elif offsets is None or dim.axis is None:
                origin.append(dim.starts[0])
            else:
                number = index[dim.axis]
                outside = tiles.ranks[dim.axis] < tiles.ranks[shape.axis]
                basis = dim.starts[number] if outside else dim.firsts[number]
                origin.append(basis - offsets[number])
        if shape.both_ways and shape.ring is not None:
            dim, number = tiles.dims(name)[shape.ring], index[shape.axis]
            # what the tile makes anew lies elsewhere
            made = 0 if ring_range[1] <= dim.firsts[number] else dim.lasts[number] - dim.firsts[number]
            origin[shape.ring] = dim.starts[number] + made
        if shape.ring is None or shape.both_ways:
            return [held_at(self.slot, self.address, tuple(origin), self.strides, box)]
        found, length = [], shape.lengths[shape.ring]
        start, stop = ring_range
        while start < stop:
            turn = start // length * length
            end = min(stop, turn + length)
            origin[shape.ring] = turn
            part = (*box[: shape.ring], (start, end), *box[shape.ring + 1 :])
            found.append(held_at(self.slot, self.address, tuple(origin), self.strides, part))
            start = end
        return found
