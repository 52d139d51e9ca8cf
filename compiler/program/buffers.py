"""The buffers of a group in every memory that it uses, as the planner allocated them (PROG-2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from compiler.errors import InternalError
from compiler.program.emitter import Box, Held, Machine, held_at, overlap
from compiler.program.program import Level
from compiler.program.slots import Slot
from compiler.program.tiles import Index, Store, StoreShape, Tiles
from compiler.tiling.memory import KEPT, NEXT, LevelMemory

Key = tuple[object, ...]
_ALIGNMENT: Final = 64


class Buffers:
    """Slots by place and key, and the stores in them; all of one group."""

    def __init__(self, machine: Machine, levels: Iterable[LevelMemory]) -> None:
        self.machine = machine
        self.levels = {level.level: level for level in levels}
        self._sizes = {
            (level, buffer.name): buffer.size_bytes
            for level, memory in self.levels.items()
            for buffer in reversed(memory.buffers)
        }
        self.slots: dict[tuple[int, Key], Slot] = {}
        self._by_place: dict[int, list[Slot]] = {}
        self._stores: dict[tuple[int, str, str], Store] = {}

    def place(self, level: Level, number: int) -> int:
        """The number of a place."""
        return self.machine.place_of[level, number]

    def size(self, level: str, name: str) -> int:
        """Bytes of a buffer of the planner; 0 if there is none of this name."""
        return self._sizes.get((level, name), 0)

    def add(self, place: int, key: Key, address: int, size_bytes: int) -> Slot:
        """A slot of its own for part of a buffer."""
        slot = self.slots[place, key] = self.insert(place, address, size_bytes)
        return slot

    def take(self, place: int, level: str, name: str, key: Key, skip: int = 0, size_bytes: int | None = None) -> Slot:
        """The slot of a buffer of the planner, or of a part of it."""
        found = self.levels[level]
        size = self.size(level, name) if size_bytes is None else size_bytes
        if skip + size > self.size(level, name):
            raise InternalError("what lies in a buffer exceeds it", stage="lower", node=name, actual=skip + size)
        return self.add(place, key, found.allocation.addresses[name] + skip, size)

    def insert(self, place: int, address: int, size_bytes: int) -> Slot:
        """A slot over bytes that others may have too."""
        slot = Slot(place, address, size_bytes)
        self._by_place.setdefault(place, []).append(slot)
        return slot

    def are_alone(self, slots: Sequence[Slot]) -> bool:
        """True if slots of one place share bytes with no other slot there."""
        return not any(
            slot.address < other.address + other.size_bytes and other.address < slot.address + slot.size_bytes
            for slot in slots
            for other in self._by_place[slot.place]
            if other not in slots
        )

    def stores(
        self, tiles: Tiles, name: str, shapes: Iterable[StoreShape], place: int, level: str, skip: int = 0
    ) -> int:
        """Lay a tensor's stores into its buffer of what is kept; the bytes they take."""
        at = skip
        for shape in shapes:
            slot = self.take(place, level, KEPT + name, ("store", name, shape.axis), at, shape.size_bytes)
            self._stores[place, name, shape.axis] = Store.at(tiles, name, shape, slot)
            at += shape.size_bytes
        return at

    def store(self, place: int, name: str, axis: str) -> Store | None:
        """The store of a tensor for an axis in a place."""
        return self._stores.get((place, name, axis))


class Twins:
    """The free part of a memory, alike in all units or cores, and second buffers (*twins*) that lie at its begin.

    The planner gives every tensor of a tile one buffer, and inputs that are loaded ahead two. With a twin a tile need
    not wait until what lies where its own results shall lie has left. Nothing depends on them but time.
    """

    def __init__(self, buffers: Buffers, begin: int, end: int) -> None:
        """`begin` to `end`: the bytes beside all buffers of the plan."""
        self._buffers = buffers
        self.begin = begin
        self.end = end

    @property
    def left_bytes(self) -> int:
        """What is still free."""
        return max(0, self.end - self.begin)

    def take(self, size_bytes: int) -> int | None:
        """The address of so many bytes, None if they are not left."""
        if size_bytes > self.left_bytes:
            return None
        start, self.begin = self.begin, min(self.end, self.begin + align_to_line(size_bytes))
        return start

    def add(self, places: Iterable[int], key: Key, twin: Key, address: int) -> None:
        """A twin, of its own key, for the slot of a key in each of some places."""
        for place in places:
            slot = self._buffers.slots[place, key]
            self._buffers.add(place, twin, address, slot.size_bytes)


def align_to_line(size_bytes: int) -> int:
    """Bytes filled up so that a next slot begins where any element may lie."""
    return -(-size_bytes // _ALIGNMENT) * _ALIGNMENT


def inputs_in(buffers: Buffers, place: int, level: str, sizes: Mapping[str, int], prefix: str) -> None:
    """Slots of a group's inputs: one each for the tile at work, and one each for the next where they are buffered."""
    for name, size in sizes.items():
        if size:
            buffers.take(place, level, prefix + name, ("tile", name, 0), 0, size)
    if buffers.size(level, NEXT):
        at = 0
        for name, size in sizes.items():
            if size:
                buffers.take(place, level, NEXT, ("tile", name, 1), at, size)
                at += size


def in_slot(slot: Slot, strides: tuple[int, ...], box: Box, address: int | None = None) -> Held:
    """A box at the beginning of a slot, or at another address of it."""
    begin = slot.address if address is None else address
    return held_at(slot, begin, tuple([start for start, _ in box]), strides, box)


def pieces_of(
    tiles: Tiles, name: str, index: Index, box: Box, tile: Held | None, stores: Iterable[Store]
) -> list[Held]:
    """Where the positions of a box lie: in the tile's own buffer, and in stores those that wait."""
    found: list[Held] = []
    if tile is not None:
        part = overlap(box, tile.box)
        if part is not None:
            found.append(tile.part(part))
    for store in stores:
        for cell in tiles.waiting(name, index, store.shape.axis):
            part = overlap(box, cell)
            if part is not None:
                found.extend(store.pieces(tiles, name, index, part))
    return found
