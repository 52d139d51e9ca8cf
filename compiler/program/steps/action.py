"""What a group does with one tile: commands as functions of the tile's counters (SCHED-2, SCHED-3)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from compiler.program.program import OUTPUT
from compiler.program.steps.axis_runs import Run

# Positions of a box's axes, counts or byte strides.
Numbers = tuple[int, ...]


class Bound(NamedTuple):
    """What a call's binding has at all tiles: operand, place, lengths and byte strides of its box, element size."""

    operand: int
    place: int
    lengths: Numbers
    strides: Numbers
    element_bytes: int


# Keys are asked for with every command, and are large: whoever makes them makes equal ones once, so that one is equal
# to itself alone.


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """What a transfer has at all tiles; its numbers are source and target address."""

    opcode: int
    queue: int
    step: int
    source: int
    target: int
    targets: int
    runs: tuple[int, Numbers, Numbers, Numbers]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """What a call has at all tiles; its numbers are where its entry's box and its part of the summed axis start, then
    address and starts by binding.

    `part`: how much of the summed axis the entry has, and whether it begins and ends sums. `scale`: how many times as
    large as the result's elements those are that are written: of sums that do not end.
    """

    opcode: int
    queue: int
    step: int
    table: int
    lengths: Numbers
    part: Numbers
    scale: int
    bound: tuple[Bound, ...]

    @property
    def own(self) -> int:
        """How many numbers are its entry's."""
        return len(self.lengths) + 1


class Touch(NamedTuple):
    """Bytes of some places, at one address in all, that a command reads or writes: which of its numbers is the first
    one's address, and counts with strides of the others.
    """

    places: range
    is_write: bool
    number: int
    counts: Numbers
    strides: Numbers


class Action(NamedTuple):
    """One command of one tile: what it has at all tiles, and its numbers at this one."""

    key: Copy | Call
    numbers: Numbers

    @property
    def queue(self) -> int:
        """Its engine."""
        return self.key.queue


def touches_of(key: Copy | Call) -> Iterator[Touch]:
    """What commands of one kind touch."""
    if isinstance(key, Copy):
        run, counts, strides, jumps = key.runs
        yield Touch(range(key.source, key.source + 1), False, 0, (*counts, run), (*strides, 1))
        yield Touch(range(key.target, key.target + key.targets), True, 1, (*counts, run), (*jumps, 1))
        return
    number = key.own
    for operand, place, sides, strides, element in key.bound:
        times = key.scale if operand == OUTPUT else 1
        dims = (*sides, element * times), (*(stride * times for stride in strides), 1)
        yield Touch(range(place, place + 1), operand == OUTPUT, number, *dims)
        number += 1 + len(sides)


class Space(NamedTuple):
    """Counters of a unit, outermost first: how many values each has, and by how many iterations these are apart.

    `base`: the iteration at which all are 0.
    """

    counts: Numbers
    strides: Numbers
    base: int

    def iteration(self, counters: Sequence[int]) -> int:
        """The iteration of these counters."""
        found = self.base
        for counter, stride in zip(counters, self.strides, strict=True):
            found += counter * stride
        return found

    def iterations(self, counters: Sequence[Collection[int]]) -> set[int]:
        """The iterations of all products of these counters."""
        found = {self.base}
        for values, stride in zip(counters, self.strides, strict=True):
            found = {first + value * stride for first in found for value in values}
        return found


class Inner(NamedTuple):
    """A loop inside a tile: how often it is gone through there, and how many iterations lie between two times."""

    times: int
    stride: int


class Steps(Protocol):
    """A group as steps: each says what it does in any iteration, whatever was asked before.

    What is done once comes before all iterations and is asked for as iteration -1.
    """

    @property
    def iterations(self) -> int:
        """How many there are; in each, every unit that has something to do goes on."""

    @property
    def once(self) -> Sequence[bool]:
        """By step, in the order of a tile: whether it is done once."""

    def doing(self, iteration: int) -> Sequence[int]:
        """The steps that may do something in an iteration, in order."""

    def works(self, step: int) -> bool:
        """False for a step that never does anything."""

    def spaces(self, step: int) -> Mapping[int, Space]:
        """By unit the counters of its tiles; `base`: the step's first iteration in the first of them."""

    def runs(self, unit: int) -> Sequence[Sequence[Run]]:
        """By counter of a unit's tiles the runs in which steps may do the same with numbers that go up evenly."""

    def inner(self, step: int, unit: int, counters: Numbers) -> Sequence[Inner]:
        """The loops around a step inside one tile of a unit, outermost first."""

    def unit_of(self, queue: int) -> int:
        """The unit that an engine belongs to."""

    def at(self, step: int, iteration: int) -> Sequence[Action]:
        """What a step does in an iteration."""
