"""Where a depth-first group lies: what enters and leaves its tiles in the SRAM, all between in the cores (PROG-2)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from compiler.ir.layout import memory_order, strides_of
from compiler.ops.op_facts import OpFacts
from compiler.program.buffers import Key, in_slot, pieces_of
from compiler.program.context import Context
from compiler.program.emitter import Box, Held, empty_box, is_empty
from compiler.program.group import GroupLowering
from compiler.program.located import Part
from compiler.program.program import Level
from compiler.program.recent import Recent
from compiler.program.steps.commands import ranks_of
from compiler.program.stored_boxes import StoredBoxes
from compiler.program.tiles import Index, Store, Tiles
from compiler.tiling.memory import KEPT, NEXT, STORES, TILE, WAITING
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div

# A core's work: its unit, the unit's tile, the core, the core tile.
Work = tuple[int, Index, int, dict[str, int]]
# The core tiles that are worked on at the same time: unit and index of each.
Together = frozenset[tuple[int, ...]]
# What is done at the same time, and the core tiles of that.
CoreRound = tuple[list[Work], Together]


class NestedMemory(GroupLowering):
    """The slots and stores of a depth-first group, and where a core tile's boxes lie in them."""

    def __init__(self, context: Context, group: TiledGroup, steps: Mapping[int, int]) -> None:
        """As any group's."""
        self.core_tiles = Tiles(group.core_frustums)
        self._lengths: dict[str, tuple[int, ...]] = {}
        self._core_strides: dict[str, tuple[int, ...]] = {}
        # by round its core rounds, and by unit and tile
        self._known_rounds = Recent[int, list[CoreRound]](1)
        self._known_core_rounds = Recent[tuple[int, ...], list[list[Work]]](group.configuration.units)
        self._alone: dict[str, bool] = {}
        self._drained: dict[str, StoredBoxes] = {}
        self._core_boxes: dict[tuple[object, ...], Box] = {}
        self._core_held: dict[tuple[object, ...], Held | None] = {}
        self._core_stores: dict[tuple[int, int, str, str], Store] = {}
        blocks = {axis: tiles.blocks for axis, tiles in group.core_frustums.tiles.items()}
        self._blocks = {axis: [0] if found is None else found.tolist() for axis, found in blocks.items()}
        super().__init__(context, group, steps)

    def forget(self) -> None:
        """Drop the boxes of core tiles, where they lie, and who works on them when, too."""
        super().forget()
        self._known_rounds.clear()
        self._known_core_rounds.clear()
        self._core_boxes.clear()
        self._core_held.clear()
        self.core_tiles.forget()

    def core_walks(self) -> list[tuple[Tiles, Mapping[str, Sequence[int]]]]:
        """The core tiles."""
        return [(self.core_tiles, self._blocks)]

    def lay_out(self, unit: int) -> None:
        """The slots of one cluster and its cores."""
        outputs = self.geometry.outputs or (self.geometry.primary,)
        place = self.place(unit)
        if self.geometry.is_in_place:
            self._lay_out_in_place(unit)
        else:
            self.unit_tensors(unit, (*self.geometry.inputs, *outputs))
        waiting = 0
        for core in range(self.configuration.cores):
            where = self.core_place(unit, core)
            for name in self.geometry.lifetimes[0]:
                if self.buffers.size(Level.NRAM.value, TILE + name):
                    self.buffers.take(where, Level.NRAM.value, TILE + name, ("core tile", name))
            at = 0
            # wide elements first, so that all stay aligned
            for name in sorted(self.group.core_resident, key=lambda name: -self.element(name)):
                for shape in self.core_tiles.stores(name):
                    if shape.axis in self.group.core_kept_axes:
                        slot = self.buffers.take(
                            where, Level.NRAM.value, STORES, ("store", name, shape.axis), at, shape.size_bytes
                        )
                        at += shape.size_bytes
                    else:
                        key = ("store", core, name, shape.axis)
                        slot = self.buffers.take(place, self.level.value, WAITING, key, waiting, shape.size_bytes)
                        waiting += shape.size_bytes
                    self._core_stores[unit, core, name, shape.axis] = Store.at(self.core_tiles, name, shape, slot)

    def double(self) -> None:
        """A second buffer in the cores for each tensor of a core tile, or for what enters and leaves it."""
        self._doubled: set[str] = set()
        first, twins = self.core_place(0, 0), self.twins(Level.NRAM)
        places = [self.core_place(u, c) for u in range(self.units) for c in range(self.configuration.cores)]
        slots = {
            name: slot
            for name in self.geometry.lifetimes[0]
            if (slot := self.buffers.slots.get((first, ("core tile", name)))) is not None
        }
        several = [axis for axis, count in self.core_tiles.counts.items() if count > 1 and axis != "C"]
        if not slots or not several or any(not {*several} <= {*self.core_tiles.followed(name)} for name in slots):
            # what one tile makes for others has to stay where it is
            return
        begin = min(slot.address for slot in slots.values())
        whole = twins.take(max(slot.address + slot.size_bytes for slot in slots.values()) - begin)
        ends = [name for name in (*self.geometry.inputs, *self.geometry.outputs) if name in slots]
        for name in slots if whole is not None else filter(self._is_alone, ends):
            address = whole + slots[name].address - begin if whole is not None else twins.take(slots[name].size_bytes)
            if address is not None:
                twins.add(places, ("core tile", name), ("core tile", name, 1), address)
                self._doubled.add(name)

    def core_turn(self, unit: int, core: int, index: Index) -> int:
        """Which of two buffers a core tile uses: by its number among the core's; slices of the channels share it."""
        return self._core_turns[self._core_turn_key(unit, core, index)]

    @cached_property
    def _core_turns(self) -> bytes:
        """By key of a core's tile its turn."""
        jobs, key_of = [job for its in self.rounds for job in its], self._core_turn_key
        alike: dict[tuple[int, ...], list[int]] = {}
        for number, (unit, tile) in enumerate(jobs):
            alike.setdefault((unit, *self._kind_of(tile)), []).append(number)
        sizes, ways = np.zeros(len(jobs), dtype=np.int64), []
        for numbers in alike.values():
            unit, tile = jobs[numbers[0]]
            way = [key_of(unit, core, index) for its in self.core_rounds(unit, tile) for _, _, core, index in its]
            begins = np.array([key_of(unit, 0, self._first_core_tile(jobs[number][1])) for number in numbers])
            ways.append((numbers, begins[:, None] + np.array(way, dtype=np.int64) - begins[0]))
            sizes[numbers] = len(way)
        keys, starts = np.empty(sizes.sum(), dtype=np.int64), np.cumsum(sizes) - sizes
        for numbers, its_keys in ways:
            keys[starts[numbers][:, None] + np.arange(its_keys.shape[1])] = its_keys
        # in order, each once
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
        span, _ = self._turn_strides
        turns = np.zeros(span * self.units * self.configuration.cores, dtype=np.uint8)
        turns[keys] = ranks_of(keys // span) % 2
        return turns.tobytes()

    def _core_turn_key(self, unit: int, core: int, index: Index) -> int:
        span, strides = self._turn_strides
        key = (unit * self.configuration.cores + core) * span
        for number, stride in zip(index.values(), strides, strict=True):
            key += number * stride
        return key

    @cached_property
    def _turn_strides(self) -> tuple[int, list[int]]:
        """How far the keys of two cores lie apart, and those of neighbouring core tiles along each axis."""
        span, strides = 1, []
        for axis, count in reversed(self.core_tiles.counts.items()):
            is_shared = axis == "C" and not self.configuration.slices_outer
            strides.append(0 if is_shared else span)
            span *= 1 if is_shared else count
        return span, strides[::-1]

    def _first_core_tile(self, tile: Index) -> dict[str, int]:
        """The first core tile along each axis of a unit's tile."""
        return {axis: self._blocks[axis][tile.get(axis, 0)] for axis in self.core_tiles.order}

    @abstractmethod
    def core_rounds(self, unit: int, index: Index) -> list[list[Work]]:
        """What the cores of a unit do in turn with one of its tiles."""

    @cached_property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: units work on tiles of the same kinds."""
        known: dict[object, int] = {}
        kinds = (tuple([(unit, *self._kind_of(tile)) for unit, tile in jobs]) for jobs in self.rounds)
        return [known.setdefault(kind, len(known)) for kind in kinds]

    def _kind_of(self, tile: Index) -> list[int]:
        """The kind of a unit's tile: those of one kind are cut alike, and make the same channels of all tensors."""
        return [self._kinds[axis][number] for axis, number in tile.items()]

    @cached_property
    def _kinds(self) -> dict[str, list[int]]:
        """By axis of the units' walk and tile along it a number: equal where core tiles make something anew alike."""
        tiles, ops = self.core_tiles, self.geometry.ops
        told_apart = {"C", *(tiles.dims(op.output)[op.channel_axis].axis for op in ops if op.channel_axis is not None)}
        found = {}
        for axis, count in self.tiles.counts.items():
            known: dict[object, int] = {}
            if axis in told_apart or axis not in tiles.counts:
                found[axis] = list(range(count))
                continue
            its = tiles.frustums.tiles[axis]
            columns = [its.begins, np.arange(its.count) == 0]
            for dim in (dim for op in ops for dim in tiles.dims(op.output) if dim.axis == axis):
                starts, stops, firsts = (np.array(ranges) for ranges in (dim.starts, dim.stops, dim.firsts))
                columns += [stops > starts, stops > firsts]
            of_tiles = [row.tobytes() for row in np.stack(columns, axis=1)]
            blocks = pairwise([*self._blocks[axis], its.count])
            found[axis] = [known.setdefault(tuple(of_tiles[begin:end]), len(known)) for begin, end in blocks]
        return found

    def taken_over(self) -> dict[str, str]:
        """Results that are written over an operand in a core."""
        return self.group.taken_over(self.group.core_volumes)

    def _lay_out_in_place(self, unit: int) -> None:
        """The group's result lies over the input of its size; other inputs behind it."""
        place, level, geometry = self.place(unit), self.level.value, self.geometry
        output = geometry.outputs[0]
        size = self.group.frustums.largest_made(output)
        sizes = {name: self.group.held_bytes(self.group.frustums, name) for name in geometry.inputs}
        source = self.turn_root(output)
        for parity, buffer in enumerate((TILE + geometry.inputs[0], NEXT)):
            at = 0
            for name in sorted(geometry.inputs, key=lambda n: n != source):
                if sizes[name] and self.buffers.size(level, buffer):
                    slot = self.buffers.take(place, level, buffer, ("tile", name, parity), at, sizes[name])
                    at += sizes[name]
                    if name == source:
                        self.buffers.add(place, ("tile", output, parity), slot.address, size)
        for name in geometry.inputs:
            if self.buffers.size(level, KEPT + name):
                self.buffers.stores(self.tiles, name, self.tiles.stores(name), place, level)

    def turn_root(self, name: str) -> str:
        """Of a group that works in place, the input that its result lies over in the SRAM."""
        geometry = self.geometry
        if not geometry.is_in_place or name != geometry.outputs[0]:
            return name
        size = self.group.frustums.largest_made(name)
        for other in geometry.inputs:
            same = self.group.held_bytes(self.group.frustums, other) == size
            if same and self.element(other) == self.element(name):
                return other
        return geometry.inputs[0]

    def strides(self, name: str) -> tuple[int, ...]:
        """As any group's; nothing in the SRAM lies over another but the group's result over its input."""
        if name in self.group.reduced:
            return super().strides(name)
        return strides_of(self.group.frustums.lengths(name), memory_order(self.tensors[name].axes), self.element(name))

    def _core_box(self, name: str, index: Index) -> Box:
        """What a core's buffer of a tensor holds for a core tile: of inputs all, else what is not in stores."""
        key = (name, *index.values())
        found = self._core_boxes.get(key)
        if found is None:
            found = self._core_boxes[key] = self._new_core_box(name, index)
        return found

    def _new_core_box(self, name: str, index: Index) -> Box:
        kept = () if name in self.geometry.inputs else self.group.core_kept_axes
        if name not in self.geometry.inputs and self.core_tiles.waits_along(name, index) in kept:
            return empty_box(len(self.core_tiles.dims(name)))
        box = []
        for dim in self.core_tiles.dims(name):
            if dim.axis is None:
                box.append((dim.starts[0], dim.stops[0]))
            else:
                number = index[dim.axis]
                box.append((dim.firsts[number] if dim.axis in kept else dim.starts[number], dim.stops[number]))
        return tuple(box)

    def _core_part(self, name: str, box: Box, part: Part | None) -> Box:
        """Of a box of an input that is summed in parts, the part at hand."""
        return self.part_box(name, box, part) if name in self.group.reduced else box

    def _core_lengths(self, name: str) -> tuple[int, ...]:
        found = self._lengths.get(name)
        if found is None:
            kept = () if name in self.geometry.inputs else self.group.core_kept_axes
            longest = (
                max(
                    max(0, stop - (first if dim.axis in kept else start))
                    for start, stop, first in zip(dim.starts, dim.stops, dim.firsts, strict=True)
                )
                for dim in self.core_tiles.dims(name)
            )
            found = tuple(longest)
            if name in self.group.reduced:
                axis = self._reduced_axis(name)
                part = ceil_div(self.geometry.summed_extent, self.group.input_parts)
                found = (*found[:axis], part, *found[axis + 1 :])
            self._lengths[name] = found
        return found

    def _core_tile(self, name: str, unit: int, core: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a core tile's part of a tensor lies in NRAM; `part`: of what is summed in parts, the one at hand."""
        key = (name, unit, core, part if name in self.group.reduced else None, *index.values())
        if key not in self._core_held:
            self._core_held[key] = self._new_core_tile(name, unit, core, index, part)
        return self._core_held[key]

    def _new_core_tile(self, name: str, unit: int, core: int, index: Index, part: Part | None) -> Held | None:
        box = self._core_part(name, self._core_box(name, index), part)
        if is_empty(box):
            return None
        key: Key = ("core tile", name)
        if name in self._doubled and self.core_turn(unit, core, index):
            key = (*key, 1)
        slot = self.buffers.slots[self.core_place(unit, core), key]
        root = self._root(name)
        origin = self._core_part(root, self._core_box(root, index), part)
        return in_slot(slot, self._strides_in_core(name), origin).part(box)

    def _strides_in_core(self, name: str) -> tuple[int, ...]:
        strides = self._core_strides.get(name)
        if strides is None:
            root = self._root(name)
            order = memory_order(self.tensors[root].axes)
            strides = self._core_strides[name] = strides_of(self._core_lengths(root), order, self.element(root))
        return strides

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The core tile's, and those of the stores that lie in the core."""
        del op
        shapes = () if name in self.geometry.inputs else self.core_tiles.stores(name)
        kept = [shape for shape in shapes if shape.axis in self.group.core_kept_axes]
        return [self._strides_in_core(name), *self.stores_read(name, kept)]

    def _core_pieces(
        self, name: str, unit: int, core: int, index: Index, box: Box, part: Part | None = None
    ) -> list[Held]:
        """Where a box of a tensor lies in a core."""
        shapes = () if name in self.geometry.inputs else self.core_tiles.stores(name)
        kept = (shape.axis for shape in shapes if shape.axis in self.group.core_kept_axes)
        stores = [store for axis in kept if (store := self._core_stores.get((unit, core, name, axis)))]
        return pieces_of(self.core_tiles, name, index, box, self._core_tile(name, unit, core, index, part), stores)
