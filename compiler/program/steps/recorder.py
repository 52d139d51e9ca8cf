"""Takes down what a lowering emits, without waits (SCHED-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from compiler.ops.slab import lengths
from compiler.program.emitter import Box, Held, Machine
from compiler.program.moves import moves_of
from compiler.program.program import Opcode
from compiler.program.slots import Slot
from compiler.program.steps.action import Action, Bound, Call, Copy, Numbers

# Of a table and an entry of it: where its box starts, how long that is, the rest of the entry, and how many times as
# large as the result's elements those are that are written: of sums that do not end.
EntryOf = Callable[[int, int], tuple[Numbers, Numbers, Numbers, int]]


@dataclass(slots=True)
class Recorder:
    """Stands where an emitter stands; `actions` are what was emitted since they were taken last.

    Equal keys of actions are one object: there are few of them.
    """

    machine: Machine
    entry: EntryOf
    step: int = 0
    actions: list[Action] = field(default_factory=list)
    # transfers by all that their addresses do not matter for: key, and where they begin on either side
    _copies: dict[tuple[object, ...], list[tuple[Copy, int, int]]] = field(default_factory=dict)
    _calls: dict[Call, Call] = field(default_factory=dict)

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
        start, to = source.at(box), target.at(box)
        laid = (lengths(box), source.strides, target.strides, element_bytes)
        kind = (int(opcode), queue, self.step, source.slot.place, target.slot.place, 1 + len(also))
        known = self._copies.get((*kind, *laid))
        if known is None:
            known = [(Copy(*kind, runs), skip, jump) for runs, skip, jump in moves_of(*laid)]
            self._copies[*kind, *laid] = known
        for key, skip, jump in known:
            self.actions.append(Action(key, (start + skip, to + jump)))

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
        begins, sides, rest, scale = self.entry(table, entry)
        numbers, bound = [*begins], []
        for operand, held in operands:
            numbers.append(held.at(held.box))
            numbers += [start for start, _ in held.box]
            # what Bound(...) comes to, in a third of the time
            bound.append(tuple.__new__(Bound, (operand, held.slot.place, lengths(held.box), held.strides)))
        key = Call(int(opcode), queue, self.step, table, sides, rest, scale, tuple(bound))
        self.actions.append(Action(self._calls.setdefault(key, key), tuple(numbers)))
