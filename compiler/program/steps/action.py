"""What a group does with one tile: commands as functions of the tile's counters (SCHED-2, SCHED-3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

# Positions of a box's axes, counts or byte strides.
Numbers = tuple[int, ...]


class Ring(NamedTuple):
    """Which of several buffers of one size is used: `size` x ((base + sum(counter x coefficient)) mod `modulus`)."""

    size: int
    modulus: int
    coefficients: Numbers
    base: int


class Bound(NamedTuple):
    """What a call's binding has at all tiles: operand, place, lengths and byte strides of its box, its buffers."""

    operand: int
    place: int
    lengths: Numbers
    strides: Numbers
    ring: Ring | None


class Copy(NamedTuple):
    """What a transfer has at all tiles; its numbers are source and target address, rings left out."""

    opcode: int
    queue: int
    step: int
    source: int
    target: int
    targets: int
    runs: tuple[int, Numbers, Numbers, Numbers]
    source_ring: Ring | None
    target_ring: Ring | None


class Call(NamedTuple):
    """What a call has at all tiles; its numbers are where its entry's box starts, then address and starts by binding.

    `rest`: the entry's range of the summed axis, and whether it begins and ends sums.
    """

    opcode: int
    queue: int
    step: int
    table: int
    lengths: Numbers
    rest: Numbers
    bound: tuple[Bound, ...]


class Touch(NamedTuple):
    """Bytes of a place on the chip that a command reads or writes: the first, and counts with strides of the others.

    The address is the one at the tile, rings included.
    """

    place: int
    is_write: bool
    address: int
    counts: Numbers
    strides: Numbers


class Action(NamedTuple):
    """One command of one tile: what it has at all tiles, and its numbers at this one."""

    key: Copy | Call
    numbers: Numbers
    touches: tuple[Touch, ...]

    @property
    def queue(self) -> int:
        """Its engine."""
        return self.key.queue


@dataclass(frozen=True, slots=True)
class UnitTiles:
    """A unit's tiles: along each axis the first and how many, and the round of the first of all."""

    firsts: Numbers
    counts: Numbers
    lag: int

    def strides(self) -> Numbers:
        """By axis how many tiles lie between neighbours, in the unit's own order."""
        found, stride = [0] * len(self.counts), 1
        for axis in reversed(range(len(self.counts))):
            found[axis] = stride
            stride *= self.counts[axis]
        return tuple(found)

    def round_of(self, counters: Sequence[int]) -> int:
        """The round of a tile, given by its counters (from 0 on along each axis)."""
        return self.lag + sum(c * s for c, s in zip(counters, self.strides(), strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """All that what is done depends on along one axis, tile by tile.

    `even`: what may go up evenly from tile to tile, `same`: what has to stay the same for tiles to be a run; shapes
    (tiles, columns).
    """

    even: NDArray[np.int64]
    same: NDArray[np.int64]


class Steps(Protocol):
    """A group as steps: each says for the tiles of any round what it does, whatever was asked before."""

    @property
    def units(self) -> Mapping[int, UnitTiles]:
        """The units that have tiles."""

    @property
    def rounds(self) -> int:
        """How many rounds there are: in each, every unit that has one works on its next tile."""

    @property
    def once(self) -> Sequence[bool]:
        """By step, in the order of a tile: whether it is done once, before all tiles (round -1)."""

    @property
    def columns(self) -> Sequence[Columns]:
        """By axis of the tiles what is done along it depends on."""

    def unit_of(self, queue: int) -> int:
        """The unit that an engine belongs to."""

    def at(self, step: int, number: int) -> Sequence[Action]:
        """What a step does in a round."""
