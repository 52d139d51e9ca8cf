"""The units of a routine: tiles, where their operands lie, and what their calls cost (SHAPE-1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import overload

from compiler.program.program import Level
from compiler.shapes.cost import CallCost
from compiler.shapes.routine import Routine
from compiler.shapes.units import UnitSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """A tensor's buffer: the memory's level, its extents in elements, and its addresses, one per call in flight."""

    level: Level
    extents: tuple[int, ...]
    addresses: tuple[int, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitBuffers:
    """The buffers of all tensors of a routine for one tile, and what they take of activation and weight memory."""

    placed: Mapping[str, Placed]
    activation_bytes: int
    weight_bytes: int


class LazyBuffers(Sequence[UnitBuffers]):
    """The buffers of so many units, each made by its number when it is first asked for.

    Tables need no buffers, and buffers are most of what a package holds beside its constants.
    """

    def __init__(self, count: int, make: Callable[[int], UnitBuffers]) -> None:
        self._count = count
        self._make = make
        self._known: dict[int, UnitBuffers] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> UnitBuffers: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[UnitBuffers]: ...
    def __getitem__(self, index: int | slice) -> UnitBuffers | Sequence[UnitBuffers]:
        if isinstance(index, slice):
            return [self[one] for one in range(*index.indices(self._count))]
        number = range(self._count)[index]
        if number not in self._known:
            self._known[number] = self._make(number)
        return self._known[number]


def renamed_buffers(buffers: Sequence[UnitBuffers], names: Mapping[str, str]) -> LazyBuffers:
    """The buffers of units under other names of tensors."""

    def renamed(number: int) -> UnitBuffers:
        found = buffers[number]
        return replace(found, placed=MappingProxyType({names[name]: one for name, one in found.placed.items()}))

    return LazyBuffers(len(buffers), renamed)


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryUse:
    """A routine's use of a stored library: its id, and what the model calls its buffers and its dimensions."""

    library_id: str
    names: Mapping[str, str]
    dims: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Library:
    """The units of one routine: their tiles of the whole result, their buffers, and what their calls cost.

    `cost` is over all axes of the result and then the dimensions `summed`, which its shape does not show; `units` are
    over the tiled axes. `loaders`: how often what all calls read is read from DRAM.
    """

    routine: Routine
    units: UnitSet
    tiles: tuple[tuple[int, ...], ...]
    buffers: Sequence[UnitBuffers]
    cost: CallCost
    loaders: int
    summed: tuple[str, ...] = ()


def bound(library: Library, ops: tuple[int, ...], use: LibraryUse) -> Library:
    """A stored library as a model's routine of these ops uses it; raises KeyError where `use` lacks a dimension."""
    return replace(
        library,
        routine=Routine(ops=ops, tiled=library.routine.tiled),
        buffers=renamed_buffers(library.buffers, use.names),
        summed=tuple(use.dims[name] for name in library.summed),
    )
