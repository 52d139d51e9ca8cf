"""Where the tiles of a group lie in its units' memories: in buffers that take turns, and in stores (PROG-2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from compiler.ops.op_facts import OpFacts
from compiler.program.buffers import in_slot, inputs_in, pieces_of
from compiler.program.emitter import Box, Held, is_empty
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.program import Level
from compiler.program.slots import Slot
from compiler.program.tiles import Index, Store
from compiler.program.unit_calls import OperandBoxes, Part
from compiler.tiling.memory import KEPT, LEAVING, TILE
from compiler.tiling.tiled import root_of
from compiler.units import ceil_div


class HeldTiles(Protocol):
    """Where tiles of a group's tensors lie while units work on them."""

    def tile(self, name: str, unit: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a tile's new part of a tensor lies; None if it makes none."""

    def pieces(self, name: str, unit: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies."""


class UnitTiles:
    """Tiles and stores in the memory of each unit."""

    def __init__(self, located: Located, operands: OperandBoxes, lies_over: Mapping[str, str]) -> None:
        """`lies_over`: by result the tensor in whose tile's buffer it lies."""
        self._located = located
        self._group, self._geometry = located.group, located.geometry
        self._tiles, self._buffers = located.tiles, located.buffers
        self._operands = operands
        self._lies_over = lies_over
        self._strides = Known(self.strides)
        self._roots = Known(self.turn_root)
        self._unit_stores = Known(self._new_stores)
        # by whether slices of the channels share a tile: the numbers of each unit's tiles, in its order
        self._numbers = Known(self._new_numbers)
        # which buffers the tiles of results use in turn
        self._output_turns: dict[str, tuple[int, ...]] = {}
        # inputs that lie in their stores from the start, by unit, name and tile
        self._in_stores: dict[tuple[int, str, tuple[int, ...]], Held] = {}
        # where tiles lie, as long as they do
        self._tiles_held: dict[tuple[object, ...], Held | None] = {}

    def forget(self) -> None:
        """Drop where tiles lie."""
        self._tiles_held.clear()

    def lay_out(self, names: tuple[str, ...]) -> None:
        """Make the slots of all units for the tiles and stores of tensors."""
        for unit in range(self._located.units):
            self._lay_out(self._located.place(unit), names)

    def _lay_out(self, place: int, names: tuple[str, ...]) -> None:
        level = self._located.level.value
        # the widest elements first: then each lies where its type may, one after the other without a gap
        inputs = sorted(
            (name for name in self._geometry.inputs if name in names), key=lambda n: -self._located.element(n)
        )
        sizes = {name: self._buffers.size(level, TILE + name) for name in inputs}
        inputs_in(self._buffers, place, level, sizes, TILE)
        for name in names:
            size = self._buffers.size(level, TILE + name)
            if name not in sizes and size:
                source = self._lies_over.get(name)
                self._buffers.take(place, level, TILE + name, ("tile", name, 0))
                if source is not None and (place, ("tile", source, 1)) in self._buffers.slots:
                    other = self._buffers.slots[place, ("tile", source, 1)]
                    self._buffers.add(place, ("tile", name, 1), other.address, min(size, other.size_bytes))
            if self._buffers.size(level, KEPT + name):
                self._buffers.stores(self._tiles, name, self._tiles.stores(name), place, level)
        at = 0
        for root, size in sorted(self._group.leaving.items(), key=lambda entry: -self._located.element(entry[0])):
            for name in self.lying_in(root):
                its = self._buffers.slots[place, ("tile", name, 0)].size_bytes
                self._buffers.take(place, level, LEAVING, ("tile", name, 1), at, its)
            at += size

    def lying_in(self, root: str) -> list[str]:
        """The tensors that have a tile in the space of one in the unit's memory, itself among them."""
        place = self._located.place(0)
        names = (name for name in self._geometry.lifetimes[0] if self.turn_root(name) == root)
        return [name for name in names if (place, ("tile", name, 0)) in self._buffers.slots]

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The byte strides of the buffers in which an op finds its input: the tile's, and those of the stores."""
        del op
        return [self.strides(name), *self._located.strides_of_stores(name, self._tiles.stores(name))]

    # --- tiles --------------------------------------------------------------------------------------------------------

    def tile(self, name: str, unit: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a tile's new part of a tensor lies in its unit's memory; None if it makes none.

        `part`: of what is summed in parts, the one at hand.
        """
        key = (name, unit, part if name in self._group.reduced else None, *index.values())
        try:
            return self._tiles_held[key]
        except KeyError:
            found = self._tiles_held[key] = self._new_tile(name, unit, index, part)
            return found

    def _new_tile(self, name: str, unit: int, index: Index, part: Part | None) -> Held | None:
        in_store = self._in_stores.get((unit, name, self._turn_key(name, index))) if self._in_stores else None
        if in_store is not None:
            return in_store
        box = self._tiles.fresh(name, index)
        if name in self._group.reduced:
            box = self._operands.part_box(name, box, part)
            turn = self._turn_of_part(name, unit, index, part)
        if is_empty(box):
            return None
        place = self._located.place(unit)
        if name not in self._group.reduced:
            turn = self._buffer_of(self._roots[name], unit, index)
        slots = self._buffers.slots
        slot = slots.get((place, ("tile", name, turn))) or slots[place, ("tile", name, 0)]
        return in_slot(slot, self._strides[name], box)

    def _turn_of_part(self, name: str, unit: int, index: Index, part: Part | None) -> int:
        """Which of two buffers a part of a tile uses: parts alternate, over all tiles of a unit."""
        return 0 if part is None else (self._number(name, unit, index) * part.count + part.turn) % 2

    def _buffer_of(self, root: str, unit: int, index: Index) -> int:
        """Which of its buffers a tile of a tensor uses: by the tile's number."""
        turns = (0, 1) if root in self._geometry.inputs else self._output_turns.get(root, (0,))
        return turns[self._number(root, unit, index) % len(turns)]

    def _number(self, name: str, unit: int, index: Index) -> int:
        """How many tiles of a tensor a unit works on before this one; slices of the channels may share them."""
        return self._numbers[self._located.shared[name]][unit, *self._turn_key(name, index)]

    def _new_numbers(self, is_shared: bool) -> dict[tuple[int, ...], int]:
        found, counts = dict[tuple[int, ...], int](), [0] * self._located.units
        for unit, tile in (job for jobs in self._located.rounds for job in jobs):
            key = (unit, *_key_of(tile, is_shared))
            if key not in found:
                found[key] = counts[unit]
                counts[unit] += 1
        return found

    def turn_root(self, name: str) -> str:
        """The input of the group in whose buffer a tensor's tiles lie, if they do; else the tensor itself."""
        return root_of(name, self._lies_over)

    def _turn_key(self, name: str, index: Index) -> tuple[int, ...]:
        """What names a tile of an input: slices of the channels share what does not follow these."""
        return _key_of(index, self._located.shared[name])

    def strides(self, name: str) -> tuple[int, ...]:
        """Byte strides of a tensor's tiles in the unit's memory; of one that lies over another, that one's."""
        if name in self._group.reduced:
            return self._located.dense_strides(name, self._part_lengths(name))
        # what is written over an operand lies as the operand does, whatever its own axes are called
        basis = root_of(name, self._lies_over)
        return self._located.dense_strides(basis, self._group.frustums.lengths(basis))

    def _part_lengths(self, name: str) -> tuple[int, ...]:
        lengths, axis = list(self._group.frustums.lengths(name)), self._operands.reduced_axis(name)
        lengths[axis] = ceil_div(self._geometry.summed_extent, self._group.input_parts)
        return tuple(lengths)

    def pieces(self, name: str, unit: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies in a unit's memory."""
        tile = self.tile(name, unit, index, part)
        return pieces_of(self._tiles, name, index, box, tile, self.stores(name, unit))

    def stores(self, name: str, unit: int) -> list[Store]:
        """The stores of a tensor in a unit's memory."""
        return self._unit_stores[name, unit]

    def _new_stores(self, key: tuple[str, int]) -> list[Store]:
        name, place = key[0], self._located.place(key[1])
        axes = [shape.axis for shape in self._tiles.stores(name)]
        return [store for axis in axes if (store := self._buffers.store(place, name, axis))]

    # --- second buffers -----------------------------------------------------------------------------------------------

    def double(self, room: Callable[[Level], int]) -> None:
        """Say which buffers the tiles of results use; where the plan has one only, twins, as far as there is room.

        Inputs that are summed in parts get a second buffer, too. `room`: how many bytes of a memory others should
        find free beside the twins.
        """
        first = self._located.place(0)
        for name in self._group.reduced:
            if (first, ("tile", name, 1)) not in self._buffers.slots:
                self._has_twins([name], [self._buffers.slots[first, ("tile", name, 0)]], room)
        if len(self._located.rounds) == 1:
            return
        for root in dict.fromkeys(self.turn_root(name) for name in self._geometry.outputs):
            names = self.lying_in(root)
            if root in self._geometry.inputs or not names:
                continue
            slots = [self._buffers.slots[first, ("tile", name, 0)] for name in names]
            if root in self._group.leaving or self._has_twins(names, slots, room):
                # one that shares bytes with other tensors of the tile would keep these waiting
                self._output_turns[root] = (0, 1) if self._buffers.are_alone(slots) else (1,)

    def _has_twins(self, names: Sequence[str], slots: Sequence[Slot], room: Callable[[Level], int]) -> bool:
        """Make a second buffer for tensors that lie over one another, if there is room."""
        level = self._located.level
        twins, size = self._located.twins(level), max(slot.size_bytes for slot in slots)
        if twins.left_bytes - size < room(level):
            return False
        address = twins.take(size)
        if address is None:
            return False
        for name in names:
            places = map(self._located.place, range(self._located.units))
            twins.add(places, ("tile", name, 0), ("tile", name, 1), address)
        return True

    # --- inputs in their stores ---------------------------------------------------------------------------------------

    def load_to_stores(self) -> None:
        """Let an input lie in its store from the start where the unit's other tiles need all of it and nothing else.

        A normalisation over all rows, cut by rows, reads the same input for every tile: nothing is copied between them.
        """
        found: dict[tuple[int, str, tuple[int, ...]], Held] = {}
        elsewhere = {*self._located.written_over, *self._located.gathered, *self._group.reduced}
        for name in self._geometry.inputs:
            axes = self._tiles.stored_axes(name)
            if len(axes) != 1 or name in elsewhere:
                continue  # with several stores what waits in one is copied to another, and from there to the first
            for unit in range(self._located.units):
                loading = self._only_load(name, unit)
                held = self._in_store(name, unit, loading, axes[0]) if loading is not None else None
                if loading is not None and held is not None:
                    found[unit, name, self._turn_key(name, loading)] = held
        self._in_stores = found
        self._tiles_held.clear()

    def _in_store(self, name: str, unit: int, index: Index, axis: str) -> Held | None:
        """Where the input of the only tile of a unit that loads any of it lies in its store; None if it does not."""
        held = self.tile(name, unit, index)
        store = self._buffers.store(self._located.place(unit), name, axis)
        later = self._tiles.successor(axis, index)
        if held is None or store is None or later is None or store.shape.ring is not None:
            return None
        saved = self._tiles.saved(name, index, later, axis, whole=False)
        if saved != held.box or unit not in self._located.owners.of(later):
            return None
        return store.pieces(self._tiles, name, index, held.box)[0]

    def _only_load(self, name: str, unit: int) -> Index | None:
        """The only one of a unit's tiles that loads anything of an input; None if there are several, or none."""
        found: dict[tuple[int, ...], Index] = {}
        for jobs in self._located.rounds:
            for worker, index in jobs:
                if worker == unit and not is_empty(self._tiles.fresh(name, index)):
                    found.setdefault(self._turn_key(name, index), index)
        return next(iter(found.values())) if len(found) == 1 else None


def _key_of(index: Index, is_shared: bool) -> tuple[int, ...]:
    """A tile's numbers, but that of its slice of the channels where all slices share it."""
    return tuple([number for axis, number in index.items() if axis != "C"] if is_shared else index.values())
