"""Core tiles of a depth-first group: which core works on which when, and where they lie (TILE-8, PROG-2).

What enters and leaves the tile of a unit lies in its SRAM, all between in its cores.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from itertools import product, zip_longest

import numpy as np

from compiler.ops.op_facts import OpFacts
from compiler.program.buffers import Key, in_slot, pieces_of
from compiler.program.emitter import Box, Held, empty_box, is_empty
from compiler.program.known import Known, Recent
from compiler.program.located import Located
from compiler.program.parts import ChannelParts, channel_part, channels_of
from compiler.program.program import Level
from compiler.program.rounds import in_step
from compiler.program.steps.commands import ranks_of
from compiler.program.tile_kinds import kind_of, kinds_along, kinds_of_rounds
from compiler.program.tiles import Index, Store, Tiles
from compiler.program.unit_calls import OperandBoxes, Part
from compiler.program.unit_tiles import UnitTiles
from compiler.program.weight_reach import Core
from compiler.tiling.memory import KEPT, NEXT, STORES, TILE, WAITING
from compiler.tiling.tile import Spread
from compiler.tiling.tiled import TiledGroup, root_of
from compiler.units import ceil_div

# A core's work: its unit, the unit's tile, the core, the core tile.
Work = tuple[int, Index, int, dict[str, int]]
# The core tiles that are worked on at the same time: unit and index of each.
Together = frozenset[tuple[int, ...]]
# What is done at the same time, and the core tiles of that.
CoreRound = tuple[list[Work], Together]


class CoreRounds:
    """The core tiles of a group, dealt to the cores of all units."""

    def __init__(self, located: Located, channels: ChannelParts) -> None:
        self._located = located
        self._channels = channels
        frustums, configuration = located.group.core_frustums, located.configuration
        self.core_tiles = Tiles(frustums)
        blocks = {axis: tiles.blocks for axis, tiles in frustums.tiles.items()}
        # by axis the first core tile of each of the units' tiles
        self.blocks = {axis: [0] if found is None else found.tolist() for axis, found in blocks.items()}
        # cores or units make parts of the channels of a common core tile
        self.are_parted = located.group.channel_parts > 1 and not located.group.channels_are_free
        self._by_channels = configuration.core_spread is Spread.CHANNELS
        self.cores_share = self.are_parted and self._by_channels
        self._shared = Known(partial(located.is_shared_by_slices, self.core_tiles))
        # by round its core rounds, and by unit and tile
        self._known_rounds = Recent(1, self._new_of_round)
        self._known_core_rounds = Recent(configuration.units, self._new_of_tile)
        self._known_before = Recent(configuration.units, self._new_before)

    def forget(self) -> None:
        """Drop who works on what when, and the boxes of core tiles."""
        self._known_rounds.clear()
        self._known_core_rounds.clear()
        self._known_before.clear()
        self.core_tiles.forget()

    def of_round(self, number: int) -> list[CoreRound]:
        """The core rounds of a round of tiles."""
        return self._known_rounds[number]

    def _new_of_round(self, number: int) -> list[CoreRound]:
        of_units = [self.of_tile(unit, index) for unit, index in self._located.rounds[number]]
        waits = self._located.group.exchanges and not self._located.tiles.both_ways
        if waits and not self._channels.are_of_units and not self._located.shares_sums:
            found = [work for its in of_units for work in its]
        else:
            rows = zip_longest(*of_units)
            found = [[entry for its in row if its is not None for entry in its] for row in rows]
        sets = (frozenset((unit, *index.values()) for unit, _, _, index in work) for work in found)
        return list(zip(found, sets, strict=True))

    def of_tile(self, unit: int, index: Index) -> list[list[Work]]:
        """What the cores of a unit do in turn with one of its tiles."""
        return self._known_core_rounds[unit, *index.values()]

    def _new_of_tile(self, key: tuple[int, ...]) -> list[list[Work]]:
        unit, index = key[0], dict(zip(self._located.tiles.order, key[1:], strict=True))
        ranges = []
        for axis in self.core_tiles.order:
            blocks, number = self.blocks[axis], index.get(axis, 0)
            end = blocks[number + 1] if number + 1 < len(blocks) else self.core_tiles.counts[axis]
            ranges.append(range(blocks[number], end))
        indices = [dict(zip(self.core_tiles.order, numbers, strict=True)) for numbers in product(*ranges)]
        if self.cores_share:
            cores = range(self._located.configuration.cores)
            return [[(unit, index, core, found) for core in cores] for found in indices]
        queues: dict[int, list[dict[str, int]]] = {}
        for found in indices:
            queues.setdefault(self._core_of(found), []).append(found)
        rounds = in_step(self.core_tiles, queues, indices)
        return [[(unit, index, core, found) for core, found in jobs] for jobs in rounds]

    def _core_of(self, index: Index) -> int:
        """The core that works on a core tile: bands of rows, or parts of the channels."""
        cores, axis = self._located.configuration.cores, "C" if self._by_channels else self._located.group.walk.rows
        if cores == 1 or axis is None or axis not in self.core_tiles.counts:
            return 0
        blocks = self.blocks[axis]
        block = bisect_right(blocks, index[axis]) - 1
        longest = max(b - a for a, b in zip(blocks, [*blocks[1:], self.core_tiles.counts[axis]], strict=True))
        return (index[axis] - blocks[block]) // ceil_div(longest, cores)

    def workers_of(self, index: Index) -> list[Core]:
        """The unit and core that work on a core tile."""
        outer = {}
        for axis in self._located.tiles.order:
            blocks = self.blocks.get(axis, [0])
            outer[axis] = bisect_right(blocks, index[axis]) - 1 if axis in index else 0
        core = self._core_of(index)
        return [(unit, core) for unit in self._located.owners.of(outer)]

    def before(self, name: str, work: Work) -> Work | None:
        """What a core works on before a core tile: of the same tile, or of the slice before if these share a tensor."""
        unit, tile, core, index = work
        found = self._known_before[unit, *tile.values()][core, *index.values()]
        if found is None and not self._located.first_slice(name, tile):
            return self._last_of({**tile, "C": tile["C"] - 1}, unit, core)
        return found

    def _new_before(self, key: tuple[int, ...]) -> dict[tuple[int, ...], Work | None]:
        """Of a unit's tile, by core and core tile, what the core works on before that one."""
        found: dict[tuple[int, ...], Work | None] = {}
        last: dict[int, Work] = {}
        for its in self._known_core_rounds[key]:
            for work in its:
                _, _, core, index = work
                found.setdefault((core, *index.values()), last.get(core))
                last[core] = work
        return found

    def _last_of(self, tile: Index, unit: int, core: int) -> Work | None:
        """The last core tile of a unit's tile that a core works on."""
        works = (found for its in reversed(self.of_tile(unit, tile)) for found in its)
        return next((found for found in works if found[2] == core), None)

    def part(self, op: OpFacts, core: Core, box: Box) -> Box:
        """The part of a core tile's box that a core makes where cores or units share out its channels."""
        if not self.are_parted:
            return box
        cores = self._located.configuration.cores if self._by_channels else 1
        units = self._located.units if self._located.configuration.spread is Spread.CHANNELS else 1
        return channel_part(op, channel_part(op, box, core[0], units), core[1], cores)

    def is_first(self, name: str, index: Index) -> bool:
        """False for what all slices of the channels share, at slices after the core's first."""
        return self._by_channels or not self._shared[name] or index["C"] in self.blocks["C"]

    def is_last(self, name: str, index: Index) -> bool:
        """False for what all slices of the channels share, at slices before the core's last."""
        ends = (*self.blocks["C"][1:], self.core_tiles.counts["C"]) if self._shared[name] else ()
        return self._by_channels or not ends or index["C"] + 1 in ends

    def unit_channels(self, op: OpFacts, unit: int, tile: Index) -> tuple[int, int]:
        """The channels of an op that a unit's cores work on together."""
        return channels_of(op, self._channels.of_unit(op, unit, self._located.tiles.needed(op.output, tile)))

    # --- rounds of one kind -------------------------------------------------------------------------------------------

    @cached_property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: units work on tiles of the same kinds."""
        return kinds_of_rounds(self._located.rounds, self._kinds)

    def _kind_of(self, tile: Index) -> list[int]:
        """The kind of a unit's tile: those of one kind are cut alike, and make the same channels of all tensors."""
        return kind_of(tile, self._kinds)

    @cached_property
    def _kinds(self) -> Mapping[str, Sequence[int]]:
        located = self._located
        return kinds_along(self.core_tiles, located.geometry.ops, located.tiles.counts, self.blocks)

    # --- second buffers -----------------------------------------------------------------------------------------------

    def turn(self, unit: int, core: int, index: Index) -> int:
        """Which of two buffers a core tile uses: by its number among the core's; slices of the channels share it."""
        return self._turns[self._turn_key(unit, core, index)]

    @cached_property
    def _turns(self) -> bytes:
        """By key of a core's tile its turn."""
        jobs, key_of = [job for its in self._located.rounds for job in its], self._turn_key
        alike: dict[tuple[int, ...], list[int]] = {}
        for number, (unit, tile) in enumerate(jobs):
            alike.setdefault((unit, *self._kind_of(tile)), []).append(number)
        sizes, ways = np.zeros(len(jobs), dtype=np.int64), []
        for numbers in alike.values():
            unit, tile = jobs[numbers[0]]
            way = [key_of(unit, core, index) for its in self.of_tile(unit, tile) for _, _, core, index in its]
            begins = np.array([key_of(unit, 0, self._first_core_tile(jobs[number][1])) for number in numbers])
            ways.append((numbers, begins[:, None] + np.array(way, dtype=np.int64) - begins[0]))
            sizes[numbers] = len(way)
        keys, starts = np.empty(sizes.sum(), dtype=np.int64), np.cumsum(sizes) - sizes
        for numbers, its_keys in ways:
            keys[starts[numbers][:, None] + np.arange(its_keys.shape[1])] = its_keys
        # in order, each once
        keys = keys[np.sort(np.unique(keys, return_index=True)[1])]
        span, _ = self._turn_strides
        turns = np.zeros(span * self._located.units * self._located.configuration.cores, dtype=np.uint8)
        turns[keys] = ranks_of(keys // span) % 2
        return turns.tobytes()

    def _turn_key(self, unit: int, core: int, index: Index) -> int:
        span, strides = self._turn_strides
        key = (unit * self._located.configuration.cores + core) * span
        for number, stride in zip(index.values(), strides, strict=True):
            key += number * stride
        return key

    @cached_property
    def _turn_strides(self) -> tuple[int, list[int]]:
        """How far the keys of two cores lie apart, and those of neighbouring core tiles along each axis."""
        span, strides = 1, []
        for axis, count in reversed(self.core_tiles.counts.items()):
            is_shared = axis == "C" and not self._located.configuration.slices_outer
            strides.append(0 if is_shared else span)
            span *= 1 if is_shared else count
        return span, strides[::-1]

    def _first_core_tile(self, tile: Index) -> dict[str, int]:
        """The first core tile along each axis of a unit's tile."""
        return {axis: self.blocks[axis][tile.get(axis, 0)] for axis in self.core_tiles.order}


def result_over_input(group: TiledGroup) -> dict[str, str]:
    """Of a depth-first group that works in place, its result and the input that this lies over in the SRAM."""
    geometry = group.geometry
    if not geometry.is_in_place:
        return {}
    name = geometry.outputs[0]
    size, tensors = group.frustums.largest_made(name), geometry.facts.tensors
    for other in geometry.inputs:
        same = group.held_bytes(group.frustums, other) == size
        if same and tensors[other].element_bytes == tensors[name].element_bytes:
            return {name: other}
    return {name: geometry.inputs[0]}


class CoreMemory:
    """The slots and stores of a depth-first group, and where a core tile's boxes lie in them."""

    def __init__(self, located: Located, operands: OperandBoxes, tiles: UnitTiles, rounds: CoreRounds) -> None:
        """`tiles`: those in the units' memories."""
        self._located = located
        self._group, self._geometry = located.group, located.geometry
        self._buffers = located.buffers
        self._operands = operands
        self._tiles = tiles
        self._rounds = rounds
        self._core_tiles = rounds.core_tiles
        self._strides = Known(self._new_strides)
        self._alone = Known(self._new_alone)
        # tensors that have a second buffer in the cores
        self._doubled: set[str] = set()
        self._core_boxes = Known(self._new_core_box)
        self._core_held: dict[tuple[object, ...], Held | None] = {}
        self._core_stores: dict[tuple[int, int, str, str], Store] = {}
        if not self._geometry.is_in_place:
            tiles.lay_out((*self._geometry.inputs, *(self._geometry.outputs or (self._geometry.primary,))))
        for unit in range(located.units):
            if self._geometry.is_in_place:
                self._lay_out_in_place(unit)
            self._lay_out(unit)

    def forget(self) -> None:
        """Drop the boxes of core tiles, and where they lie."""
        self._core_boxes.clear()
        self._core_held.clear()

    def _lay_out(self, unit: int) -> None:
        """The slots of one cluster's cores, and in its SRAM for what waits there."""
        place, waiting = self._located.place(unit), 0
        for core in range(self._located.configuration.cores):
            where = self._located.core_place(unit, core)
            for name in self._geometry.lifetimes[0]:
                if self._buffers.size(Level.NRAM.value, TILE + name):
                    self._buffers.take(where, Level.NRAM.value, TILE + name, ("core tile", name))
            at = 0
            # wide elements first, so that all stay aligned
            for name in sorted(self._group.core_resident, key=lambda name: -self._located.element(name)):
                for shape in self._core_tiles.stores(name):
                    if shape.axis in self._group.core_kept_axes:
                        slot = self._buffers.take(
                            where, Level.NRAM.value, STORES, ("store", name, shape.axis), at, shape.size_bytes
                        )
                        at += shape.size_bytes
                    else:
                        key = ("store", core, name, shape.axis)
                        slot = self._buffers.take(
                            place, self._located.level.value, WAITING, key, waiting, shape.size_bytes
                        )
                        waiting += shape.size_bytes
                    self._core_stores[unit, core, name, shape.axis] = Store.at(self._core_tiles, name, shape, slot)

    def _lay_out_in_place(self, unit: int) -> None:
        """The group's result lies over the input of its size; other inputs behind it."""
        place, level, geometry = self._located.place(unit), self._located.level.value, self._geometry
        output = geometry.outputs[0]
        size = self._group.frustums.largest_made(output)
        sizes = {name: self._group.held_bytes(self._group.frustums, name) for name in geometry.inputs}
        source = self._tiles.turn_root(output)
        for parity, buffer in enumerate((TILE + geometry.inputs[0], NEXT)):
            at = 0
            for name in sorted(geometry.inputs, key=lambda n: n != source):
                if sizes[name] and self._buffers.size(level, buffer):
                    slot = self._buffers.take(place, level, buffer, ("tile", name, parity), at, sizes[name])
                    at += sizes[name]
                    if name == source:
                        self._buffers.add(place, ("tile", output, parity), slot.address, size)
        for name in geometry.inputs:
            if self._buffers.size(level, KEPT + name):
                self._buffers.stores(self._located.tiles, name, self._located.tiles.stores(name), place, level)

    def double(self) -> None:
        """A second buffer in the cores for each tensor of a core tile, or for what enters and leaves it."""
        first, twins = self._located.core_place(0, 0), self._located.twins(Level.NRAM)
        places = self._located.core_places()
        slots = {
            name: slot
            for name in self._geometry.lifetimes[0]
            if (slot := self._buffers.slots.get((first, ("core tile", name)))) is not None
        }
        several = [axis for axis, count in self._core_tiles.counts.items() if count > 1 and axis != "C"]
        if not slots or not several or any(not {*several} <= {*self._core_tiles.followed(name)} for name in slots):
            # what one tile makes for others has to stay where it is
            return
        begin = min(slot.address for slot in slots.values())
        whole = twins.take(max(slot.address + slot.size_bytes for slot in slots.values()) - begin)
        ends = [name for name in (*self._geometry.inputs, *self._geometry.outputs) if name in slots]
        for name in slots if whole is not None else filter(self._is_alone, ends):
            address = whole + slots[name].address - begin if whole is not None else twins.take(slots[name].size_bytes)
            if address is not None:
                twins.add(places, ("core tile", name), ("core tile", name, 1), address)
                self._doubled.add(name)

    def _is_alone(self, name: str) -> bool:
        """True if a tensor's tiles lie over no other's, nor another's over its."""
        return self._tiles.turn_root(name) == name and name not in self._located.written_over

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The core tile's, and those of the stores that lie in the core."""
        del op
        shapes = () if name in self._geometry.inputs else self._core_tiles.stores(name)
        kept = [shape for shape in shapes if shape.axis in self._group.core_kept_axes]
        return [self._strides[name], *self._located.strides_of_stores(name, kept)]

    # --- core tiles ---------------------------------------------------------------------------------------------------

    def tile(self, name: str, unit: int, core: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a core tile's part of a tensor lies in NRAM; `part`: of what is summed in parts, the one at hand."""
        key = (name, unit, core, part if name in self._group.reduced else None, *index.values())
        if key not in self._core_held:
            self._core_held[key] = self._new_core_tile(name, unit, core, index, part)
        return self._core_held[key]

    def _new_core_tile(self, name: str, unit: int, core: int, index: Index, part: Part | None) -> Held | None:
        box = self._core_part(name, self._core_box(name, index), part)
        if is_empty(box):
            return None
        key: Key = ("core tile", name)
        if name in self._doubled and self._rounds.turn(unit, core, index):
            key = (*key, 1)
        slot = self._buffers.slots[self._located.core_place(unit, core), key]
        root = root_of(name, self._located.takes_over)
        origin = self._core_part(root, self._core_box(root, index), part)
        return in_slot(slot, self._strides[name], origin).part(box)

    def _core_box(self, name: str, index: Index) -> Box:
        """What a core's buffer of a tensor holds for a core tile: of inputs all, else what is not in stores."""
        return self._core_boxes[name, tuple(index.values())]

    def _new_core_box(self, key: tuple[str, tuple[int, ...]]) -> Box:
        name, index = key[0], dict(zip(self._core_tiles.order, key[1], strict=True))
        kept = () if name in self._geometry.inputs else self._group.core_kept_axes
        if name not in self._geometry.inputs and self._core_tiles.waits_along(name, index) in kept:
            return empty_box(len(self._core_tiles.dims(name)))
        box = []
        for dim in self._core_tiles.dims(name):
            if dim.axis is None:
                box.append((dim.starts[0], dim.stops[0]))
            else:
                box.append(dim.made(index[dim.axis]) if dim.axis in kept else dim.needed(index[dim.axis]))
        return tuple(box)

    def _core_part(self, name: str, box: Box, part: Part | None) -> Box:
        """Of a box of an input that is summed in parts, the part at hand."""
        return self._operands.part_box(name, box, part) if name in self._group.reduced else box

    def _new_strides(self, name: str) -> tuple[int, ...]:
        root = root_of(name, self._located.takes_over)
        return self._located.dense_strides(root, self._lengths(root))

    def _lengths(self, name: str) -> tuple[int, ...]:
        kept = () if name in self._geometry.inputs else self._group.core_kept_axes
        longest = [
            max(
                max(0, stop - start)
                for start, stop in zip(
                    *((dim.firsts, dim.lasts) if dim.axis in kept else (dim.starts, dim.stops)), strict=True
                )
            )
            for dim in self._core_tiles.dims(name)
        ]
        if name in self._group.reduced:
            parts = self._group.input_parts
            longest[self._operands.reduced_axis(name)] = ceil_div(self._geometry.summed_extent, parts)
        return tuple(longest)

    def pieces(self, name: str, unit: int, core: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies in a core."""
        shapes = () if name in self._geometry.inputs else self._core_tiles.stores(name)
        kept = (shape.axis for shape in shapes if shape.axis in self._group.core_kept_axes)
        stores = [store for axis in kept if (store := self._core_stores.get((unit, core, name, axis)))]
        return pieces_of(self._core_tiles, name, index, box, self.tile(name, unit, core, index, part), stores)

    def store(self, name: str, unit: int, core: int, axis: str) -> Store | None:
        """The store of a tensor for an axis: in the core, or in the SRAM for it."""
        return self._core_stores.get((unit, core, name, axis))

    def stays_between(self, name: str) -> bool:
        """True if no other buffer of the group shares bytes with that of an input in a core."""
        return self._alone[name]

    def _new_alone(self, name: str) -> bool:
        place, key = self._located.core_place(0, 0), ("core tile", name)
        slots = [slot for its in (key, (*key, 1)) if (slot := self._buffers.slots.get((place, its))) is not None]
        return self._buffers.are_alone(slots)
