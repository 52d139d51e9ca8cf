"""Takes down what a lowering emits, without waits (SCHED-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from compiler.ops.slab import lengths
from compiler.program.emitter import Box, Held, Machine
from compiler.program.known import Known
from compiler.program.moves import Moves, Runs, moves_of
from compiler.program.program import Opcode
from compiler.program.slots import Slot
from compiler.program.steps.action import Action, Bound, Call, Copy, Numbers

# Of a table and an entry of it: where its box and its part of a sum start, how long the box is, the rest of the entry
# (as `Call.part`), and how many times as large as the result's elements those are that are written: of sums that do not
# end.
EntryOf = Callable[[int, int], tuple[Numbers, Numbers, Numbers, int]]
# Of a table and an operand of it: bytes of an element.
ElementOf = Callable[[int, int], int]
# What Action(...) comes to, in a third of the time.
_action: Final = tuple.__new__


@dataclass(slots=True)
class Recorder:
    """Stands where an emitter stands; `actions` are what was emitted since they were taken last.

    Equal keys of actions are one object: there are few of them.
    """

    machine: Machine
    entry: EntryOf
    element: ElementOf
    step: int = 0
    actions: list[Action] = field(default_factory=list)
    # transfers by all that their addresses do not matter for: key, and where they begin on either side
    _copies: dict[tuple[object, ...], list[tuple[Copy, int, int]]] = field(default_factory=dict)
    _keys: dict[tuple[object, ...], Copy] = field(default_factory=dict)
    _calls: dict[tuple[object, ...], Call] = field(default_factory=dict)
    # what is the same for all cores: runs by lengths, strides and element size, starts and lengths by box
    _moves: Known[tuple[Numbers, Numbers, Numbers, int], Moves] = field(default_factory=lambda: Known(_moves_of))
    _sides: Known[Box, tuple[Numbers, Numbers]] = field(default_factory=lambda: Known(_sides_of))

    def taken(self) -> list[Action]:
        """The actions since the last time."""
        found, self.actions = self.actions, []
        return found

    def forget(self) -> None:
        """Drop the keys: later ones differ from them, so whoever kept answers with these has to drop them, too."""
        self._copies.clear()
        self._keys.clear()
        self._calls.clear()
        self._moves.clear()
        self._sides.clear()

    def copy(
        self,
        opcode: Opcode,
        queue: int,
        source: Held,
        target: Held,
        box: Box,
        element_bytes: int,
        also: Sequence[Slot] = (),
        *,
        is_ahead: bool = False,
    ) -> None:
        """A transfer of a box, as few of these as it takes."""
        del is_ahead
        starts, sides = self._sides[box]
        # most begin where the box does
        start = source.address if source.origin == starts else source.at(box)
        to = target.address if target.origin == starts else target.at(box)
        from_, to_ = source.strides, target.strides
        places = source.slot.place, target.slot.place, 1 + len(also)
        kind = (opcode, queue, self.step, places, sides, from_, to_, element_bytes)
        known = self._copies.get(kind)
        if known is None:
            moves, its = self._moves[sides, from_, to_, element_bytes], (int(opcode), queue, self.step, *places)
            known = self._copies[kind] = [(self._key(its, runs), skip, jump) for runs, skip, jump in moves]
        for key, skip, jump in known:
            self.actions.append(_action(Action, (key, (start + skip, to + jump))))

    def _key(self, kind: tuple[int, int, int, int, int, int], runs: Runs) -> Copy:
        found = self._keys.get((kind, runs))
        if found is None:
            found = self._keys[kind, runs] = Copy(*kind, runs)
        return found

    def call(
        self,
        queue: int,
        table: int,
        entry: int,
        operands: Sequence[tuple[int, Held]],
        reads: Sequence[Slot],
        writes: Sequence[Slot],
        opcode: Opcode = Opcode.COMPUTE,
    ) -> None:
        """A call of a unit."""
        del reads, writes
        starts_of, sides, part, scale = self.entry(table, entry)
        numbers, bound, of_boxes = [*starts_of], list[Any](), self._sides
        for operand, (slot, address, origin, strides, box) in operands:
            starts, its_lengths = of_boxes[box]
            if starts != origin:
                for start, first, stride in zip(starts, origin, strides, strict=True):
                    if start != first:
                        address += (start - first) * stride
            numbers.append(address)
            numbers += starts
            bound += (operand, slot.place, its_lengths, strides)
        kind = (opcode, queue, self.step, table, sides, part, *bound)
        key = self._calls.get(kind)
        if key is None:
            its = zip(*(iter(bound),) * 4, strict=True)
            held = tuple(Bound(*found, self.element(table, found[0])) for found in its)
            key = Call(int(opcode), queue, self.step, table, sides, part, scale, held)
            self._calls[kind] = key
        self.actions.append(_action(Action, (key, tuple(numbers))))


def _moves_of(key: tuple[Numbers, Numbers, Numbers, int]) -> Moves:
    return moves_of(*key)


def _sides_of(box: Box) -> tuple[Numbers, Numbers]:
    return tuple([start for start, _ in box]), lengths(box)
