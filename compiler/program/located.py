"""Where everything of a group lies: the places of its units and cores, tiles in their buffers, stores (PROG-2)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

from compiler.address.table import ENTRY_BYTES
from compiler.address.unit import block_of, is_addressable, unit_read
from compiler.errors import InternalError
from compiler.ir.layout import memory_order, strides_of
from compiler.ops import call_of, definition
from compiler.ops.contraction import Product
from compiler.ops.op_facts import OpFacts
from compiler.program.buffers import Buffers, in_slot, inputs_in, pieces_of
from compiler.program.context import Context, Operand
from compiler.program.emitter import Box, Held, is_empty
from compiler.program.program import ADDRESSES, Level
from compiler.program.rounds import Owners, rounds_of
from compiler.program.slots import Slot
from compiler.program.tiles import Index, Store, StoreShape, Tiles
from compiler.program.twins import Twins
from compiler.tiling.memory import KEPT, LEAVING, TILE, memory_of
from compiler.tiling.tile import Spread
from compiler.tiling.tiled import TiledGroup, root_of
from compiler.units import ceil_div

_SPARE_ALIGNMENT: Final = 64


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a product sums over: its range (None: all of it), and whether the sum begins and ends here.

    `turn`: how many parts its unit has worked on before, in the same tile.
    """

    range: tuple[int, int] | None
    begins: bool
    ends: bool
    turn: int = 0


class Located(ABC):
    """One group's memory, while it is lowered."""

    def __init__(self, context: Context, group: TiledGroup, steps: Mapping[int, int]) -> None:
        """`steps`: the number of each op's step in the program."""
        self.context = context
        self.emitter = context.emitter
        self.machine = context.machine
        self.group = group
        self.geometry = group.geometry
        self.configuration = group.configuration
        self.profile = group.profile
        self.step_of = steps
        self.tiles = Tiles(group.frustums)
        self.tensors = self.geometry.facts.tensors
        self.units = 1 if self.configuration.spread is Spread.SINGLE else self.configuration.units
        self.level = Level(self.profile.units.level)
        self.buffers = Buffers(self.machine, memory_of(group))
        self.gathered = {o.gathered for op in self.geometry.ops for o in context.operands(op.index) if o.gathered}
        self.takes_over = self.taken_over()
        self._strides: dict[str, tuple[int, ...]] = {}
        self._needs: dict[tuple[Operand, Box], Box] = {}
        self._roots: dict[str, str] = {}
        self._dense: dict[tuple[str, tuple[int, ...]], tuple[int, ...]] = {}
        self._core_places: dict[tuple[int, int], int] = {}
        self._summed: dict[tuple[int, int], int | None] = {}
        self._parts_of: dict[int, list[Part]] = {}
        self._shared: dict[str, bool] = {}
        self._unit_stores: dict[tuple[str, int], list[Store]] = {}
        self._readers: dict[tuple[int, str], list[tuple[OpFacts, Operand]]] = {}
        self.owners = Owners(group, self.tiles)
        self.rounds = rounds_of(self.tiles, self.owners)
        # by whether slices of the channels share a tile: the numbers of each unit's tiles, in its order
        self._numbers: dict[bool, dict[tuple[int, ...], int]] = {}
        # which buffers the tiles of results use in turn
        self._output_turns: dict[str, tuple[int, ...]] = {}
        # inputs that lie in their stores from the start, by unit, name and tile
        self._in_stores: dict[tuple[int, str, tuple[int, ...]], Held] = {}
        self._twins: dict[Level, Twins] = {}
        # where tiles lie, as long as they do
        self._tiles_held: dict[tuple[object, ...], Held | None] = {}
        self._address_tables: dict[int, dict[tuple[int, ...], Operand]] = {}

    def forget(self) -> None:
        """Drop what is kept of tiles and rounds: it is worked out again when it is asked for."""
        self._tiles_held.clear()
        self._needs.clear()
        self.tiles.forget()

    # --- memory ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def lay_out(self, unit: int) -> None:
        """Make the slots of a unit and its cores."""

    def taken_over(self) -> dict[str, str]:
        """Results that are written over an operand where tensors' tiles lie."""
        return self.group.taken_over(self.group.volumes(self.group.frustums))

    def place(self, unit: int) -> int:
        """The place that holds a unit's tiles."""
        return self.buffers.place(self.level, unit)

    def core_place(self, unit: int, core: int) -> int:
        """The activation memory of a unit's core."""
        found = self._core_places.get((unit, core))
        if found is None:
            found = self._core_places[unit, core] = self.buffers.place(Level.NRAM, self.core_number(unit, core))
        return found

    def core_number(self, unit: int, core: int) -> int:
        """The number of a unit's core on the chip."""
        return unit * self.profile.units.cores + core

    def cores_of(self, unit: int) -> range:
        """The numbers of a unit's cores on the chip."""
        first = self.core_number(unit, 0)
        return range(first, first + self.configuration.cores)

    def queue(self, engine: str, number: int) -> int:
        """The queue of an engine."""
        return self.machine.queue_of[engine, number]

    def spare_bytes(self, level: Level) -> int:
        """How much may pass through a memory at once on its way to the cores: what no buffer of the group takes."""
        return self.twins(level).left_bytes

    def twins(self, level: Level) -> Twins:
        """What the plan leaves free at the end of a memory, and the twins of buffers that lie there."""
        found = self._twins.get(level)
        if found is None:
            memory = self.buffers.levels.get(level.value)
            place = self.machine.places[self.buffers.place(level, 0)]
            end = place.capacity_bytes if memory is None else memory.capacity_bytes
            found = self._twins[level] = Twins(self.buffers, self._peak(level), end)
        return found

    def _peak(self, level: Level) -> int:
        found = self.buffers.levels.get(level.value)
        return -(-found.allocation.peak_bytes // _SPARE_ALIGNMENT) * _SPARE_ALIGNMENT if found is not None else 0

    def element(self, name: str) -> int:
        """Bytes of one element of a tensor as it lies on the chip."""
        return self.context.element_bytes(name)

    def unit_tensors(self, unit: int, names: tuple[str, ...]) -> None:
        """Slots for the tiles and stores of tensors in a unit's memory."""
        place, level = self.place(unit), self.level.value
        # the widest elements first: then each lies where its type may, one after the other without a gap
        inputs = sorted((name for name in self.geometry.inputs if name in names), key=lambda n: -self.element(n))
        sizes = {name: self.buffers.size(level, TILE + name) for name in inputs}
        inputs_in(self.buffers, place, level, sizes, TILE)
        for name in names:
            size = self.buffers.size(level, TILE + name)
            if name not in sizes and size:
                source = self.takes_over.get(name)
                self.buffers.take(place, level, TILE + name, ("tile", name, 0))
                if source is not None and (place, ("tile", source, 1)) in self.buffers.slots:
                    other = self.buffers.slots[place, ("tile", source, 1)]
                    self.buffers.add(place, ("tile", name, 1), other.address, min(size, other.size_bytes))
            if self.buffers.size(level, KEPT + name):
                self.buffers.stores(self.tiles, name, self.tiles.stores(name), place, level)
        at = 0
        for root, size in sorted(self.group.leaving.items(), key=lambda entry: -self.element(entry[0])):
            for name in self.lying_in(root):
                its = self.buffers.slots[place, ("tile", name, 0)].size_bytes
                self.buffers.take(place, level, LEAVING, ("tile", name, 1), at, its)
            at += size

    def lying_in(self, root: str) -> list[str]:
        """The tensors that have a tile in the space of one in the unit's memory, itself among them."""
        place = self.place(0)
        names = (name for name in self.geometry.lifetimes[0] if self.turn_root(name) == root)
        return [name for name in names if (place, ("tile", name, 0)) in self.buffers.slots]

    # --- address tables ---------------------------------------------------------------------------------------------

    @abstractmethod
    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The byte strides of the buffers in which an op finds its input in a core, the most usual ones first."""

    def stores_read(self, name: str, shapes: Iterable[StoreShape]) -> list[tuple[int, ...]]:
        """The byte strides of a tensor's stores."""
        order, element = memory_order(self.tensors[name].axes), self.element(name)
        return [strides_of(shape.lengths, order, element) for shape in shapes]

    def address_tables(self, op: OpFacts) -> list[Operand]:
        """The address tables of an op with a window: one for each kind of buffer, as far as the plan has room."""
        found = self._address_tables.get(op.index)
        if found is None:
            found = self._address_tables[op.index] = self._new_address_tables(op)
        return list(found.values())

    def _new_address_tables(self, op: OpFacts) -> dict[tuple[int, ...], Operand]:
        found: dict[tuple[int, ...], Operand] = {}
        room = self.group.weights[self.geometry.ops.index(op)].table_bytes
        data = next((o for o in self.context.operands(op.index) if o.number == 0), None)
        if op.window is None or not room or data is None or data.constant or data.gathered is not None:
            return found
        block = block_of(self.tensors[op.output].shape)
        element = self.element(data.tensor)
        for strides in self.buffers_read(data.tensor, op):
            if strides in found or strides[1] != element:
                continue
            read = unit_read(op.window, block, strides, element)
            if not is_addressable(read):
                continue
            name = self.context.address_table(read)
            size = prod(self.context.shape(name)) * ENTRY_BYTES
            known = next((table for table in found.values() if table.tensor == name), None)
            if known is None and size > room:
                break
            room -= size if known is None else 0
            number = self.context.address_tables[name]
            found[strides] = known or Operand(ADDRESSES - number, name, (), constant=True)
        return found

    def with_tables(self, op: OpFacts, operands: list[tuple[int, Held]]) -> list[tuple[int, Held]]:
        """A call's operands with those of its address tables that it needs; none where a piece fits no table."""
        tables = self._address_tables.get(op.index)
        if not tables:
            return operands
        wanted = set()
        for number, held in operands:
            if number == 0:
                table = tables.get(held.strides)
                if table is None:
                    return [entry for entry in operands if entry[0] > ADDRESSES]
                wanted.add(table.number)
        return [entry for entry in operands if entry[0] > ADDRESSES or entry[0] in wanted]

    # --- tiles in the unit's memory ---------------------------------------------------------------------------------

    def first_slice(self, name: str, index: Index) -> bool:
        """False for a tensor that all slices of the channels share, at the slices after the first of a unit."""
        return not self._is_shared_by_slices(name) or index["C"] % self._slice_count == 0

    @property
    def _slice_count(self) -> int:
        units = self.units if self.configuration.spread is Spread.CHANNELS else 1
        return ceil_div(self.tiles.counts["C"], units)

    def last_slice(self, name: str, index: Index) -> bool:
        """True where a tile is the last one of its unit that reads what slices of the channels share."""
        if not self._is_shared_by_slices(name):
            return True
        return index["C"] % self._slice_count == self._slice_count - 1 or index["C"] == self.tiles.counts["C"] - 1

    def _follows_channels(self, name: str) -> bool:
        return any(dim.axis == "C" for dim in self.tiles.dims(name))

    def made(self, name: str, index: Index) -> Box:
        """What a tile makes anew of a tensor."""
        return self.tiles.fresh(name, index)

    def tile(self, name: str, unit: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a tile's new part of a tensor lies in its unit's memory; None if it makes none.

        `part`: of what is summed in parts, the one at hand.
        """
        key = (name, unit, part if name in self.group.reduced else None, *index.values())
        try:
            return self._tiles_held[key]
        except KeyError:
            found = self._tiles_held[key] = self._new_tile(name, unit, index, part)
            return found

    def _new_tile(self, name: str, unit: int, index: Index, part: Part | None) -> Held | None:
        in_store = self._in_stores.get((unit, name, self._turn_key(name, index))) if self._in_stores else None
        if in_store is not None:
            return in_store
        box = self.made(name, index)
        if name in self.group.reduced:
            box, turn = self.part_box(name, box, part), 0 if part is None else part.turn
        if is_empty(box):
            return None
        place = self.place(unit)
        if name not in self.group.reduced:
            root = self._roots.get(name)
            if root is None:
                root = self._roots[name] = self.turn_root(name)
            turn = self._buffer_of(root, unit, index)
        slot = self.buffers.slots.get((place, ("tile", name, turn))) or self.buffers.slots[place, ("tile", name, 0)]
        return self._in_slot(name, slot, box)

    def _buffer_of(self, root: str, unit: int, index: Index) -> int:
        """Which of its buffers a tile of a tensor uses: by the tile's number."""
        turns = (0, 1) if root in self.geometry.inputs else self._output_turns.get(root, (0,))
        return turns[self._number(root, unit, index) % len(turns)]

    def _number(self, name: str, unit: int, index: Index) -> int:
        """How many tiles of a tensor a unit works on before this one; slices of the channels may share them."""
        shared = self._is_shared_by_slices(name)
        known = self._numbers.get(shared)
        if known is None:
            known, counts = self._numbers.setdefault(shared, {}), [0] * self.units
            for jobs in self.rounds:
                for worker, tile in jobs:
                    key = (worker, *self._turn_key(name, tile))
                    if key not in known:
                        known[key] = counts[worker]
                        counts[worker] += 1
        return known[unit, *self._turn_key(name, index)]

    def turn_root(self, name: str) -> str:
        """The input of the group in whose buffer a tensor's tiles lie, if they do; else the tensor itself."""
        return self._root(name)

    def _turn_key(self, name: str, index: Index) -> tuple[int, ...]:
        """What names a tile of an input: slices of the channels share what does not follow these."""
        if not self._is_shared_by_slices(name):
            return tuple(index.values())
        return tuple([number for axis, number in index.items() if axis != "C"])

    def _is_shared_by_slices(self, name: str) -> bool:
        """True if all slices of the channels use the same tile of a tensor."""
        found = self._shared.get(name)
        if found is None:
            has_slices = "C" in self.tiles.counts and not self.configuration.slices_outer
            found = self._shared[name] = has_slices and not self._follows_channels(name)
        return found

    def _in_slot(self, name: str, slot: Slot, box: Box) -> Held:
        strides = self._strides.get(name)
        if strides is None:
            strides = self._strides[name] = self.strides(name)
        return in_slot(slot, strides, box)

    def strides(self, name: str) -> tuple[int, ...]:
        """Byte strides of a tensor's tiles in the unit's memory; of one that lies over another, that one's."""
        if name in self.group.reduced:
            return strides_of(self._part_lengths(name), memory_order(self.tensors[name].axes), self.element(name))
        basis = self._root(name)
        lengths = self.group.frustums.lengths(basis)
        # what is written over an operand lies as the operand does, whatever its own axes are called
        return strides_of(lengths, memory_order(self.tensors[basis].axes), self.element(basis))

    def dense_strides(self, name: str, lengths: tuple[int, ...]) -> tuple[int, ...]:
        """Byte strides of a tensor's box of these lengths that lies by itself."""
        key = (name, lengths)
        found = self._dense.get(key)
        if found is None:
            order = memory_order(self.tensors[name].axes)
            found = self._dense[key] = strides_of(lengths, order, self.element(name))
        return found

    def part_box(self, name: str, box: Box, part: Part | None) -> Box:
        """Of a box of an input that is summed in parts, the part at hand; empty if there is none."""
        axis = self._reduced_axis(name)
        return (*box[:axis], (0, 0) if part is None or part.range is None else part.range, *box[axis + 1 :])

    def _reduced_axis(self, name: str) -> int:
        product = self.geometry.product
        operands = () if product is None else self.context.operands(product.index)
        for operand in operands:
            axis = self.summed_axis(product, operand) if product is not None and operand.tensor == name else None
            if axis is not None:
                return axis
        raise InternalError("an input that is summed in parts has no summed axis", stage="lower", node=name)

    def _part_lengths(self, name: str) -> tuple[int, ...]:
        lengths, axis = list(self.group.frustums.lengths(name)), self._reduced_axis(name)
        lengths[axis] = ceil_div(self.geometry.summed_extent, self.group.input_parts)
        return tuple(lengths)

    def _root(self, name: str) -> str:
        return root_of(name, self.takes_over)

    def pieces(self, name: str, unit: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies in a unit's memory."""
        stores = self._unit_stores.get((name, unit))
        if stores is None:
            place, axes = self.place(unit), [shape.axis for shape in self.tiles.stores(name)]
            stores = [store for axis in axes if (store := self.buffers.store(place, name, axis))]
            self._unit_stores[name, unit] = stores
        return pieces_of(self.tiles, name, index, box, self.tile(name, unit, index, part), stores)

    def summed_axis(self, op: OpFacts, operand: Operand) -> int | None:
        """The axis of an operand that a product sums over; None for other operands and ops."""
        if operand.number < 0:
            return None
        key = (op.index, operand.number)
        if key not in self._summed:
            node = self.context.graph.ops[op.index]
            kind = definition(node)
            axes = kind.summed(call_of(self.context.graph, node)) if isinstance(kind, Product) else None
            self._summed[key] = None if axes is None or operand.number >= len(axes) else axes[operand.number]
        return self._summed[key]

    def op_of(self, name: str) -> OpFacts:
        """The op of the group that makes a tensor."""
        return next(op for op in self.geometry.ops if op.output == name)
