"""Commands in the making: buffers, what lies in them, transfers between them, and what each command waits for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.ops.slab import lengths
from compiler.profile.schema import Profile
from compiler.program.engines import CLUSTER_LEVELS
from compiler.program.moves import Moves, Runs, moves_of
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    MAX_COUNTS,
    Level,
    Opcode,
    Place,
    Queue,
    Rows,
)
from compiler.program.slots import STREAMS, Marks, Slot, merged

Box = tuple[tuple[int, int], ...]
# Columns of what is collected command by command and binding by binding; the rest lies in tables of what is equal.
_COMMAND_COLUMNS: Final = ("opcode", "queue", "step", "source", "target", "targets", "source_address", "target_address")
_BINDING_COLUMNS: Final = ("operand", "place", "address")
_COMMAND_WIDTH: Final = len(_COMMAND_COLUMNS) + 2
_BINDING_WIDTH: Final = len(_BINDING_COLUMNS) + 1
_CALL_WIDTH: Final = len(CALL.names or ())
_IN, _WEIGHTS, _OUT, _BETWEEN = range(STREAMS)


class Held(NamedTuple):
    """A box of a tensor as it lies in a slot: `address` is that of position `origin`, strides in bytes per axis."""

    slot: Slot
    address: int
    origin: tuple[int, ...]
    strides: tuple[int, ...]
    box: Box

    def at(self, box: Box) -> int:
        """The address of a box's first position."""
        _, address, origin, strides, _ = self
        for (start, _), first, stride in zip(box, origin, strides, strict=True):
            if start != first:
                address += (start - first) * stride
        return address

    def part(self, box: Box) -> Held:
        """The same, for a box inside it."""
        slot, address, origin, strides, _ = self
        # as held_at, without a call
        return tuple.__new__(Held, (slot, address, origin, strides, box))


def held_at(slot: Slot, address: int, origin: tuple[int, ...], strides: tuple[int, ...], box: Box) -> Held:
    """What Held(...) comes to, in half of the time: it is asked for every operand of every call."""
    return tuple.__new__(Held, (slot, address, origin, strides, box))


# These three are asked for every command, hence loops where expressions would do.


def overlap(a: Box, b: Box) -> Box | None:
    """The box that two boxes have in common; None if there is none."""
    if a == b:
        return None if is_empty(a) else a
    found = []
    for mine, other in zip(a, b, strict=True):
        start, stop = mine
        # most axes are cut by neither
        if mine != other:
            low, high = other
            if low > start:
                start = low
            if high < stop:
                stop = high
            mine = (start, stop)
        if start >= stop:
            return None
        found.append(mine)
    return tuple(found)


def empty_box(rank: int) -> Box:
    """A box without a position; of a scalar, whose own box has no axes, along one axis that it does not have."""
    return ((0, 0),) * max(rank, 1)


def is_empty(box: Box) -> bool:
    """True if a box holds no position."""
    for start, stop in box:  # noqa: SIM110
        if start >= stop:
            return True
    return False


@dataclass(slots=True, kw_only=True)
class Machine:
    """The places and engines of one chip, by what a profile has."""

    places: tuple[Place, ...]
    place_of: Mapping[tuple[Level, int], int]
    queues: tuple[Queue, ...]
    queue_of: Mapping[tuple[str, int], int]
    profile: Profile

    def has(self, engine: str) -> bool:
        """True if the chip has such engines."""
        return (engine, 0) in self.queue_of


def machine_of(profile: Profile, dram_bytes: int = 0) -> Machine:
    """The places and queues of a profile's chip; engines that are one component share their queue (PROF-2)."""
    clusters, cores, per = profile.clusters_per_chip, profile.cores, profile.cores_per_cluster
    places = [Place(level=Level.DRAM, number=0, capacity_bytes=dram_bytes or profile.dram.capacity_bytes)]
    levels: list[tuple[Level, int, int | None]] = []
    if not profile.units.are_cores:
        levels += [(Level.SRAM, clusters, profile.units.memory.capacity_bytes)]
        levels += [(Level.SRAM_WEIGHTS, clusters, profile.units.weight_part_bytes)]
    levels += [(Level.NRAM, cores, profile.nram.capacity_bytes)]
    if profile.wram is not None:
        levels += [(Level.WRAM, cores, profile.wram.capacity_bytes)]
    elif profile.nram.weight_bytes is not None:
        levels += [(Level.NRAM_WEIGHTS, cores, profile.nram.weight_bytes)]
    for level, count, capacity in levels:
        if capacity is not None:
            places += [Place(level=level, number=number, capacity_bytes=capacity) for number in range(count)]
    engines = profile.engines
    counts = {
        "iodma": cores if engines.iodma is not None else 0,
        "gdma": clusters if engines.gdma is not None else 0,
        "mvdma": cores if engines.mvdma is not None else 0,
        "cdma": clusters if engines.cdma is not None else 0,
        "bus": clusters if engines.bus is not None else 0,
        "link": cores if engines.link is not None else 0,
        "core": cores,
    }
    queues: list[Queue] = []
    queue_of: dict[tuple[str, int], int] = {}
    per_core = {"iodma", "mvdma", "link", "core"}
    shared: dict[str, tuple[str, ...]] = {name: group for group in engines.shared for name in group}
    for name, count in counts.items():
        for number in range(count):
            others = (other for other in shared.get(name, ()) if other != name)
            partner = next((other for other in others if (other, 0) in queue_of), None)
            if partner is not None:
                its = number
                if name in per_core and partner not in per_core:
                    its = number // per
                elif name not in per_core and partner in per_core:
                    its = number * per
                queue_of[name, number] = queue_of[partner, its]
                continue
            queue_of[name, number] = len(queues)
            queues.append(Queue(engine=name, number=number))
    return Machine(
        places=tuple(places),
        place_of={(place.level, place.number): index for index, place in enumerate(places)},
        queues=tuple(queues),
        queue_of=queue_of,
        profile=profile,
    )


@dataclass(slots=True)
class Emitter:
    """Collects commands, calls and bindings in program order.

    Commands name their runs, and bindings their boxes, by numbers: there are few different ones of either.
    """

    machine: Machine
    step: int = 0
    _count: int = 0
    _commands: array[int] = field(default_factory=lambda: array("q"))
    _runs: dict[Runs, int] = field(default_factory=dict)
    _moves: dict[tuple[object, ...], tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    _waits: array[int] = field(default_factory=lambda: array("q"))
    _wait_counts: array[int] = field(default_factory=lambda: array("q"))
    _calls: array[int] = field(default_factory=lambda: array("q"))
    _bindings: array[int] = field(default_factory=lambda: array("q"))
    _boxes: dict[tuple[Box, tuple[int, ...]], int] = field(default_factory=dict)
    # what is bound: the number of its box, and the bytes from where its origin lies to the box
    _shapes: dict[tuple[Box, tuple[int, ...], tuple[int, ...]], tuple[int, int]] = field(default_factory=dict)

    def _wait(self, queue: int, reads: Iterable[Slot], writes: Iterable[Slot]) -> None:
        """Record what the next command waits for, and leave its mark on what it touches."""
        number = self._count
        self._count = number + 1
        found: Marks = {}
        known = found.get
        for slot in reads:
            for other, command in slot.writers.items():
                if known(other, -1) < command:
                    found[other] = command
            slot.touched[queue] = number
            if slot.span is not None:
                slot.span.touch(queue, number)
        for slot in writes:
            if not slot.served >> queue & 1:
                slot.served |= 1 << queue
                if slot.barrier:
                    found = merged(found, slot.barrier)
            if slot.span is not None:
                slot.span.touch(queue, number)
                if not slot.writers:
                    slot.span.unwritten.pop(slot, None)
            slot.touched[queue] = slot.writers[queue] = number
        if queue in found:
            del found[queue]
        if found:
            self._waits.extend(sorted(found.values()) if len(found) > 1 else found.values())
        self._wait_counts.append(len(found))

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
        """Commands that copy a box from where it lies to where it shall lie.

        `also` are slots of equal address in the places that follow the target's: they receive the same. `is_ahead`: it
        comes for a tile that is not worked on yet, so it need not come before what passes between cores now.
        """
        key = (lengths(box), source.strides, target.strides, element_bytes)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = self._numbered(moves_of(*key))
        start, to = source.at(box), target.at(box)
        reads, writes = (source.slot,), (target.slot, *also)
        places = (source.slot.place, target.slot.place, len(writes))
        stream = queue * STREAMS + self._stream(opcode, source.slot, target.slot, is_ahead=is_ahead)
        for runs, skip, jump in moves:
            self._wait(stream, reads, writes)
            self._commands.extend((opcode, stream, self.step, *places, start + skip, to + jump, runs, -1))

    def _stream(self, opcode: Opcode, source: Slot, target: Slot, *, is_ahead: bool) -> int:
        """Which of its engine's streams a transfer belongs to."""
        if target.content is not None:
            return _WEIGHTS
        if opcode in (Opcode.EXCHANGE, Opcode.BROADCAST) or source.place == target.place:
            return _IN if is_ahead else _BETWEEN
        places = self.machine.places
        is_out = opcode is Opcode.STORE or places[target.place].level in CLUSTER_LEVELS
        return _OUT if is_out and places[source.place].level is not Level.DRAM else _IN

    def _numbered(self, moves: Moves) -> tuple[tuple[int, int, int], ...]:
        """A copy's commands with the numbers of their runs."""
        known = self._runs
        return tuple((known.setdefault(runs, len(known)), skip, jump) for runs, skip, jump in moves)

    def call(
        self,
        queue: int,
        table: int,
        entry: int,
        operands: Sequence[tuple[int, Held]],
        reads: Iterable[Slot],
        writes: Iterable[Slot],
        opcode: Opcode = Opcode.COMPUTE,
    ) -> None:
        """A command that calls a unit: a table's entry, and for operands (by number) where their boxes lie."""
        first = len(self._bindings) // _BINDING_WIDTH
        shapes = self._shapes
        bound: list[int] = []
        for operand, held in operands:
            slot, address, origin, strides, box = held
            key = (box, strides, origin)
            known = shapes.get(key)
            if known is None:
                number = self._boxes.setdefault(key[:2], len(self._boxes))
                known = shapes[key] = (number, held.at(box) - address)
            shape, offset = known
            bound += (operand, slot.place, address + offset, shape)
        self._bindings.extend(bound)
        stream = queue * STREAMS + _IN
        self._wait(stream, reads, writes)
        calls = len(self._calls) // _CALL_WIDTH
        self._commands.extend((opcode, stream, self.step, -1, -1, 0, 0, 0, -1, calls))
        self._calls.extend((table, entry, first, len(operands)))

    def arrays(self) -> tuple[Rows, Rows, Rows, Rows, Rows, Rows]:
        """Commands, their streams, wait offsets, waits, calls and bindings as arrays.

        Waits say all that a command comes after, but what is before it in its stream.
        """
        offsets = np.zeros(self._count + 1, dtype=np.int32)
        np.cumsum(np.array(self._wait_counts), out=offsets[1:])
        waits = np.array(self._waits, dtype=np.int32)
        commands = self._command_rows()
        streams = commands["queue"] % STREAMS
        commands["queue"] //= STREAMS
        calls = _rows(self._calls, CALL.names or (), CALL)
        return commands, streams, offsets, waits, calls, self._binding_rows()

    def _command_rows(self) -> Rows:
        # calls copy no runs: of these the last row is taken, which is zero
        runs = np.array([*self._runs, (0, *((0,) * MAX_COUNTS,) * 3)], dtype=_RUNS)
        rows = _rows(self._commands, (*_COMMAND_COLUMNS, "runs", "call"), COMMAND)
        which = _columns(self._commands, _COMMAND_WIDTH)[len(_COMMAND_COLUMNS)]
        for name in _RUNS.names or ():
            rows[name] = runs[name][which]
        return rows

    def _binding_rows(self) -> Rows:
        boxes = np.array([_box_row(*key) for key in self._boxes], dtype=_BOX)
        rows = _rows(self._bindings, (*_BINDING_COLUMNS, "box"), BINDING)
        which = _columns(self._bindings, _BINDING_WIDTH)[len(_BINDING_COLUMNS)]
        for name in _BOX.names or ():
            rows[name] = boxes[name][which]
        return rows


def _fields(of: np.dtype[np.void], names: tuple[str, ...]) -> np.dtype[np.void]:
    """A type of some fields of another."""
    return np.dtype([(name, of[name]) for name in names])


_RUNS: Final = _fields(COMMAND, ("run_bytes", "counts", "source_strides", "target_strides"))
_BOX: Final = _fields(BINDING, ("starts", "lengths", "strides"))


def _columns(values: array[int], width: int) -> Rows:
    """Numbers row by row as columns."""
    return np.array(values, dtype=np.int64).reshape(-1, width).T


def _rows(values: array[int], names: tuple[str, ...], dtype: np.dtype[np.void]) -> Rows:
    """Numbers row by row as fields of these names; names that the type does not have are left out."""
    columns = _columns(values, len(names))
    rows = np.zeros(columns.shape[1], dtype=dtype)
    for name, column in zip(names, columns, strict=True):
        if name in (dtype.names or ()):
            rows[name] = column
    return rows


def _box_row(box: Box, strides: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """A binding's box and strides in as many axes as a binding has."""
    rest = (0,) * (MAX_AXES - len(box))
    return (*[start for start, _ in box], *rest), (*lengths(box), *rest), (*strides, *rest)
