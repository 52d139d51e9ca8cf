"""A second judge of programs without loops, byte by byte, for tests of the proof (PROG-4).

It shares no code with `compiler/program/loops`. It relies on `check` for whether a command is fit by itself (fields,
engines, calls) and for the boxes that a call needs of its operands, where these lie, and which it may overwrite. Which
bytes these are, and those of transfers, it works out by itself. The rules:

1. A command waits for earlier ones alone. It starts when these, and the command before it in its queue, have ended.
   It reads all that it reads before it writes. It writes no byte twice, and a call writes no byte of an operand that
   it may not overwrite.
2. Inputs, weights and residents are there before the program runs, and are never written.
3. Every byte that is read has been written, by a command that has ended.
4. On the chip: whoever wrote or read a byte has ended when it is written again.
5. In the DRAM: no byte is written twice, and all bytes of every output's elements are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from compiler.program.checked import CheckedProgram, check
from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, is_transfer
from compiler.program.pieces import Pieces
from compiler.program.program import Level, Program, Role
from compiler.units import element_bytes

# Who wrote a byte: nobody, what was there before the program, or a command; those count from 1.
_NOBODY = -1
_GIVEN = 0


class Access(NamedTuple):
    """Elements of a place: `counts` along each stride, of so many bytes."""

    place: int
    address: int
    counts: Sequence[int]
    strides: Sequence[int]
    size: int

    def bytes(self) -> Any:
        """The number of every byte; of one that belongs to several elements as often."""
        found = np.array([self.address])
        for count, stride in zip((*self.counts, self.size), (*self.strides, 1), strict=True):
            found = (found[:, None] + np.arange(count) * stride).ravel()
        return found


class Touched(NamedTuple):
    """What a command reads, what of that it may overwrite, and what it writes."""

    reads: list[Access]
    overwritten: list[Access]
    writes: list[Access]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainProof:
    """All that is wrong with a program: the violation, and the command at fault (None: no single one).

    `peak_bytes` and `touched_bytes` as `ProvedProgram` has them.
    """

    faults: tuple[tuple[str, int | None], ...]
    peak_bytes: tuple[int, ...] = ()
    touched_bytes: int = 0


def judge(program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> PlainProof:
    """What is wrong with a program; of one with unfit commands only the first of these."""
    try:
        checked = check(program, limits, shared)
    except ProgramError as error:
        return PlainProof(faults=((error.violation, error.command),))
    offsets = program.wait_offsets.tolist()
    if offsets != sorted(offsets) or offsets[0] != 0 or offsets[-1] != len(program.waits):
        return PlainProof(faults=(("waits", None),))
    for number, (begin, end) in enumerate(pairwise(offsets)):
        if not all(0 <= wait < number for wait in program.waits[begin:end].tolist()):
            return PlainProof(faults=(("waits", number),))
    touched = touched_by(checked)
    is_dram = [place.level == Level.DRAM for place in program.places]
    given, residents = _given(program)
    peaks = [0] * len(program.places)
    accesses = [access for its in touched for part in its for access in part]
    for access in (*residents, *accesses):
        peaks[access.place] = max(peaks[access.place], int(access.bytes().max()) + 1)
    peaks[is_dram.index(True)] = max((region.address + region.size_bytes for region in program.regions), default=0)
    memories = _Memories(program, peaks, clocks_of(program))
    memories.give(given)
    memories.give(residents)
    # nothing is written to the DRAM twice: who writes a byte there is known before all is judged
    for number, its in enumerate(touched, start=1):
        memories.write_once(number, [access for access in its.writes if is_dram[access.place]])
    for number, its in enumerate(touched, start=1):
        writes = [access for access in its.writes if not is_dram[access.place]]
        if not is_transfer(program.commands["opcode"][number - 1]) and _meet(its.reads, writes):
            memories.fault("overlap", number)
        memories.read(number, (*its.reads, *its.overwritten))
        memories.write(number, writes)
    for region in program.regions:
        if region.role == Role.OUTPUT and 0 not in region.shape:
            size = element_bytes(region.dtype)
            memories.check_written(Access(is_dram.index(True), region.address, region.shape, region.strides, size))
    sizes = [prod(n for n, s in zip(its.counts, its.strides, strict=True) if s) * its.size for its in accesses]
    return PlainProof(faults=tuple(memories.faults), peak_bytes=tuple(peaks), touched_bytes=sum(sizes))


def touched_by(checked: CheckedProgram) -> list[Touched]:
    """What each command touches."""
    program, pieces, tables = checked.program, checked.pieces, checked.addressed
    found = [Touched([], [], []) for _ in program.commands]
    for its, row in zip(found, program.commands, strict=True):
        if is_transfer(row["opcode"]):
            counts, size = row["counts"].tolist(), int(row["run_bytes"])
            source, address, strides = int(row["source"]), int(row["source_address"]), row["source_strides"].tolist()
            its.reads.append(Access(source, address, counts, strides, size))
            target, address, strides = int(row["target"]), int(row["target_address"]), row["target_strides"].tolist()
            for place in range(target, target + int(row["targets"])):
                its.writes.append(Access(place, address, counts, strides, size))
    if pieces is not None:
        for row in range(len(pieces.commands)):
            _touch_piece(program, pieces, row, found[pieces.commands[row]])
    if tables is not None:
        for command, place, address, size in zip(
            tables.commands.tolist(),
            tables.places.tolist(),
            tables.addresses.tolist(),
            tables.sizes.tolist(),
            strict=True,
        ):
            found[command].reads.append(Access(place, address, (), (), size))
    return found


def _touch_piece(program: Program, pieces: Pieces, row: int, its: Touched) -> None:
    """Add what a call touches of one binding."""
    base, address, size, scale = (
        int(of[row]) for of in (pieces.bases, pieces.addresses, pieces.element_bytes, pieces.scales)
    )
    counts, strides = (pieces.stops - pieces.starts)[row].tolist(), pieces.strides[row].tolist()
    access = Access(int(pieces.places[row]), address, counts, strides, size)
    if pieces.slots[row] > 0:
        (its.overwritten if pieces.in_place[row] else its.reads).append(access)
        return
    entry = program.tables[pieces.tables[row]].entries[pieces.entries[row]]
    if not entry["begins"]:
        its.overwritten.append(access)
        if entry["ends"]:
            # sums become elements, which are smaller by `scale` and lie closer together
            strides = [stride // scale for stride in strides]
            access = Access(access.place, base + (address - base) // scale, counts, strides, size // scale)
    its.writes.append(access)


def _given(program: Program) -> tuple[list[Access], list[Access]]:
    """What is in the DRAM and on the chip before the program runs."""
    dram = next(number for number, place in enumerate(program.places) if place.level == Level.DRAM)
    is_given = {Role.INPUT, Role.WEIGHT, Role.ADDRESSES}
    # regions may name the same bytes
    hulls = {(region.address, region.size_bytes) for region in program.regions if region.role in is_given}
    sizes = [element_bytes(program.regions[its.region].dtype) for its in program.residents]
    return [Access(dram, address, (), (), size) for address, size in sorted(hulls)], [
        Access(its.place, its.address, its.lengths, its.strides, size)
        for its, size in zip(program.residents, sizes, strict=True)
    ]


def clocks_of(program: Program) -> Any:
    """Per command and queue the last command of that queue that has ended when it starts, and the command itself."""
    clocks = np.zeros((len(program.commands) + 1, len(program.queues)), dtype=np.int64)
    last = [0] * len(program.queues)
    waits = [program.waits[a:b].tolist() for a, b in pairwise(program.wait_offsets.tolist())]
    for number, (queue, its) in enumerate(zip(program.commands["queue"].tolist(), waits, strict=True), start=1):
        clocks[number] = clocks[[last[queue], *(wait + 1 for wait in its)]].max(axis=0)
        clocks[number, queue] = last[queue] = number
    return clocks


def _meet(some: list[Access], others: list[Access]) -> bool:
    """Whether a byte is among both."""
    return any(
        np.isin(one.bytes(), other.bytes()).any() for one in some for other in others if one.place == other.place
    )


class _Memories:
    """Byte by byte who wrote it last, and by queue who read it since."""

    def __init__(self, program: Program, sizes: list[int], clocks: Any) -> None:
        self.faults: list[tuple[str, int | None]] = []
        self._clocks = clocks
        self._queues = np.concatenate([[0], program.commands["queue"]])
        self._writers = [np.full(size, _NOBODY) for size in sizes]
        self._readers: list[dict[int, Any]] = [{} for _ in sizes]

    def fault(self, violation: str, number: int) -> None:
        """Note what is wrong with a command."""
        self.faults.append((violation, number - 1))

    def give(self, given: list[Access]) -> None:
        """Put down what is there before the program runs."""
        for access in given:
            its = access.bytes()
            if len(np.unique(its)) < len(its) or (self._writers[access.place][its] == _GIVEN).any():
                self.faults.append(("twice", None))
            self._writers[access.place][its] = _GIVEN

    def write_once(self, number: int, writes: list[Access]) -> None:
        """A command writes bytes that nobody else writes."""
        for access in writes:
            its = access.bytes()
            before = self._writers[access.place][its]
            if (before != _NOBODY).any():
                self.fault("read-only" if (before == _GIVEN).any() else "write-once", number)
            self._writers[access.place][its] = number

    def read(self, number: int, reads: tuple[Access, ...]) -> None:
        """A command reads bytes that were written before."""
        for access in reads:
            its, readers = access.bytes(), self._readers[access.place]
            writers = self._writers[access.place]
            if (writers[its] == _NOBODY).any():
                self.fault("unwritten", number)
            self._check_ended(number, writers[its])
            readers.setdefault(self._queues[number], np.zeros_like(writers))[its] = number

    def write(self, number: int, writes: list[Access]) -> None:
        """A command writes bytes that nobody is writing or reading any more."""
        for access in writes:
            its = access.bytes()
            writers, readers = self._writers[access.place], self._readers[access.place]
            if (writers[its] == _GIVEN).any():
                self.fault("read-only", number)
            if (writers[its] == number).any():
                self.fault("twice", number)
            self._check_ended(number, writers[its])
            for numbers in readers.values():
                self._check_ended(number, numbers[its])
                numbers[its] = 0
            writers[its] = number

    def check_written(self, access: Access) -> None:
        """All that is read of an output has been written."""
        if (self._writers[access.place][access.bytes()] == _NOBODY).any():
            self.faults.append(("incomplete", None))

    def _check_ended(self, number: int, others: Any) -> None:
        """All of these commands have ended when this one starts, or are itself."""
        others = np.unique(others[others > 0])
        if (self._clocks[number][self._queues[others]] < others).any():
            self.fault("dependency", number)
