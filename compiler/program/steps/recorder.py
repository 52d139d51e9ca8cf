"""Takes down what a lowering emits, without waits (SCHED-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compiler.ops.slab import lengths
from compiler.program.emitter import Box, Held, Machine
from compiler.program.moves import Moves, moves_of
from compiler.program.program import Opcode
from compiler.program.slots import Slot
from compiler.program.steps.action import Action, Bound, Call, Copy, Numbers

# Of a table and an entry of it: the entry's box, the rest of it, and how many times as large as the result's elements
# those are that are written: of sums that do not end.
EntryOf = Callable[[int, int], tuple[Box, Numbers, int]]


@dataclass(slots=True)
class Recorder:
    """Stands where an emitter stands; `actions` are what was emitted since they were taken last."""

    machine: Machine
    entry: EntryOf
    step: int = 0
    actions: list[Action] = field(default_factory=list)
    _moves: dict[tuple[object, ...], Moves] = field(default_factory=dict)

    def taken(self) -> list[Action]:
        """The actions since the last time."""
        found, self.actions = self.actions, []
        return found

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
        start, to, sides = source.at(box), target.at(box), lengths(box)
        key = (sides, source.strides, target.strides, element_bytes)
        known = self._moves.get(key)
        if known is None:
            known = self._moves[key] = moves_of(*key)
        places = source.slot.place, target.slot.place, 1 + len(also)
        for runs, skip, jump in known:
            kind = Copy(int(opcode), queue, self.step, *places, runs)
            self.actions.append(Action(kind, (start + skip, to + jump)))

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
        box, rest, scale = self.entry(table, entry)
        numbers, bound = [start for start, _ in box], []
        for operand, held in operands:
            sides, address = lengths(held.box), held.at(held.box)
            numbers += [address, *(start for start, _ in held.box)]
            bound.append(Bound(operand, held.slot.place, sides, held.strides))
        kind = Call(int(opcode), queue, self.step, table, lengths(box), rest, scale, tuple(bound))
        self.actions.append(Action(kind, tuple(numbers)))
