"""Commands in the making: buffers, what lies in them, transfers between them, and what each command waits for.

A *slot* is a buffer of a place: bytes at one address for one use. What touches a slot leaves its mark there, queue by
queue, so that later commands know what to wait for: a read waits for the writes before it; the first write of a new
content (`begin`) waits for all that touched these bytes before, through whatever slot.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from compiler.errors import InternalError
from compiler.profile.schema import Profile
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    MAX_AXES,
    MAX_COUNTS,
    Level,
    Opcode,
    Place,
    Queue,
    Rows,
)

Box = tuple[tuple[int, int], ...]
_Moves = tuple[tuple[int, tuple[int, ...], tuple[int, ...], tuple[int, ...], int, int], ...]


class Slot:
    """Bytes [address, address + size_bytes) of a place, and the last command of each queue that touched them.

    `conflicts` are other slots that share bytes with it; `content` says what it holds now, for what is loaded once. A
    *rolling* slot is written and read in turns, part by part: every write waits for what touched it before.
    """

    __slots__ = (
        "address",
        "barrier",
        "conflicts",
        "content",
        "is_rolling",
        "place",
        "readers",
        "served",
        "size_bytes",
        "writers",
    )

    def __init__(self, place: int, address: int, size_bytes: int, *, is_rolling: bool = False) -> None:
        self.is_rolling = is_rolling
        self.place = place
        self.address = address
        self.size_bytes = size_bytes
        self.conflicts: list[Slot] = []
        self.content: object = None
        self.readers: dict[int, int] = {}
        self.writers: dict[int, int] = {}
        self.barrier: dict[int, int] = {}
        self.served: set[int] = set()

    def begin(self, content: object = None) -> None:
        """New content: its writes wait for all that touched these bytes before."""
        before: dict[int, int] = {}
        for slot in (self, *self.conflicts):
            for marks in (slot.readers, slot.writers):
                for queue, command in marks.items():
                    if before.get(queue, -1) < command:
                        before[queue] = command
            if slot is not self:
                slot.content = None
        self.barrier, self.readers, self.writers = before, {}, {}
        self.served = set()
        self.content = content

    def again(self) -> None:
        """More of the same content, over bytes that others have read since it began: writes wait for these too."""
        for slot in self.conflicts:
            for marks in (slot.readers, slot.writers):
                for queue, command in marks.items():
                    if self.barrier.get(queue, -1) < command:
                        self.barrier[queue] = command
        self.served = set()


@dataclass(frozen=True, slots=True)
class Held:
    """A box of a tensor as it lies in a slot: `address` is that of position `origin`, strides in bytes per axis."""

    slot: Slot
    address: int
    origin: tuple[int, ...]
    strides: tuple[int, ...]
    box: Box

    def at(self, box: Box) -> int:
        """The address of a box's first position."""
        return self.address + sum(
            (start - first) * stride for (start, _), first, stride in zip(box, self.origin, self.strides, strict=True)
        )

    def part(self, box: Box) -> Held:
        """The same, for a box inside it."""
        return Held(self.slot, self.address, self.origin, self.strides, box)


def overlap(a: Box, b: Box) -> Box | None:
    """The box that two boxes have in common; None if there is none."""
    found = tuple((max(p[0], q[0]), min(p[1], q[1])) for p, q in zip(a, b, strict=True))
    return None if any(start >= stop for start, stop in found) else found


def is_empty(box: Box) -> bool:
    """True if a box holds no position."""
    return any(start >= stop for start, stop in box)


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
    if profile.sram is not None:
        levels += [(Level.SRAM, clusters, profile.sram.capacity_bytes)]
        levels += [(Level.SRAM_WEIGHTS, clusters, profile.sram.weight_bytes)]
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
            partner = next((other for other in shared.get(name, ()) if (other, 0) in queue_of), None)
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
    """Collects commands, calls and bindings in program order."""

    machine: Machine
    step: int = 0
    commands: list[tuple[object, ...]] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    calls: list[tuple[int, int, int, int]] = field(default_factory=list)
    bindings: list[tuple[object, ...]] = field(default_factory=list)
    _moves: dict[tuple[object, ...], _Moves] = field(default_factory=dict)

    def _waits(self, queue: int, reads: Iterable[Slot], writes: Iterable[Slot]) -> None:
        """Record what the next command waits for, and leave its mark on what it touches."""
        number = len(self.commands)
        found: dict[int, int] = {}
        for slot in reads:
            for other, command in slot.writers.items():
                if found.get(other, -1) < command:
                    found[other] = command
            slot.readers[queue] = number
        for slot in writes:
            if queue not in slot.served:
                slot.served.add(queue)
                for other, command in slot.barrier.items():
                    if found.get(other, -1) < command:
                        found[other] = command
            if slot.is_rolling:
                for marks in (slot.readers, slot.writers):
                    for other, command in marks.items():
                        if found.get(other, -1) < command:
                            found[other] = command
            slot.writers[queue] = number
        found.pop(queue, None)
        self.waits.append(tuple(sorted(found.values())))

    def copy(
        self,
        opcode: Opcode,
        queue: int,
        source: Held,
        target: Held,
        box: Box,
        element_bytes: int,
        also: Sequence[Slot] = (),
    ) -> None:
        """Commands that copy a box from where it lies to where it shall lie.

        `also` are slots of equal address in the places that follow the target's: they receive the same.
        """
        lengths = tuple(stop - start for start, stop in box)
        key = (lengths, source.strides, target.strides, element_bytes)
        moves = self._moves.get(key)
        if moves is None:
            moves = self._moves[key] = _moves_of(lengths, source.strides, target.strides, element_bytes)
        start, to = source.at(box), target.at(box)
        writes = (target.slot, *also)
        for run, counts, source_strides, target_strides, skip, jump in moves:
            self._waits(queue, (source.slot,), writes)
            self.commands.append(
                (
                    opcode,
                    queue,
                    self.step,
                    source.slot.place,
                    target.slot.place,
                    len(writes),
                    start + skip,
                    to + jump,
                    run,
                    counts,
                    source_strides,
                    target_strides,
                    -1,
                )
            )

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
        first = len(self.bindings)
        for operand, held in operands:
            box = held.box
            rest = (0,) * (MAX_AXES - len(box))
            self.bindings.append(
                (
                    operand,
                    held.slot.place,
                    held.at(box),
                    (*(start for start, _ in box), *rest),
                    (*(stop - start for start, stop in box), *rest),
                    (*held.strides, *rest),
                )
            )
        self._waits(queue, reads, writes)
        zeros = (0,) * MAX_COUNTS
        self.commands.append((opcode, queue, self.step, -1, -1, 0, 0, 0, 0, zeros, zeros, zeros, len(self.calls)))
        self.calls.append((table, entry, first, len(self.bindings) - first))

    def arrays(self) -> tuple[Rows, Rows, Rows, Rows, Rows]:
        """Commands, wait offsets, waits, calls and bindings as arrays."""
        counts = np.fromiter((len(w) for w in self.waits), dtype=np.int64, count=len(self.waits))
        offsets = np.zeros(len(self.waits) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        waits = np.fromiter((w for row in self.waits for w in row), dtype=np.int32, count=int(counts.sum()))
        return (
            np.array(self.commands, dtype=COMMAND),
            offsets,
            waits,
            np.array(self.calls, dtype=CALL),
            np.array(self.bindings, dtype=BINDING),
        )


def _moves_of(lengths: tuple[int, ...], source: tuple[int, ...], target: tuple[int, ...], element_bytes: int) -> _Moves:
    """A box's copy as runs: (run bytes, counts, source strides, target strides, source and target offset) each.

    Axes that are dense on both sides join the run; of what is left neighbours join where their strides allow; more
    than MAX_COUNTS dimensions become several commands.
    """
    axes = [i for i, length in enumerate(lengths) if length > 1]
    axes.sort(key=lambda i: (-source[i], -target[i]))
    dims: list[tuple[int, int, int]] = []
    for axis in axes:
        length, a, b = lengths[axis], source[axis], target[axis]
        if dims and dims[-1][1] == a * length and dims[-1][2] == b * length:
            dims[-1] = (dims[-1][0] * length, a, b)
        else:
            dims.append((length, a, b))
    run = element_bytes
    if dims and dims[-1][1] == dims[-1][2] == element_bytes:
        run *= dims.pop()[0]
    extra, dims = dims[: max(0, len(dims) - MAX_COUNTS)], dims[max(0, len(dims) - MAX_COUNTS) :]
    offsets = [(0, 0)]
    for length, a, b in extra:
        offsets = [(x + i * a, y + i * b) for x, y in offsets for i in range(length)]
    fill = MAX_COUNTS - len(dims)
    counts = (*([1] * fill), *(d[0] for d in dims))
    source_strides = (*([0] * fill), *(d[1] for d in dims))
    target_strides = (*([0] * fill), *(d[2] for d in dims))
    if run <= 0:
        raise InternalError("a transfer of nothing", stage="program", actual=str(lengths))
    return tuple((run, counts, source_strides, target_strides, x, y) for x, y in offsets)


def connect(slots: Sequence[Slot]) -> None:
    """Tell slots which others share bytes with them; to be called with all slots of one place."""
    order = sorted(slots, key=lambda slot: slot.address)
    live: list[Slot] = []
    for slot in order:
        live = [other for other in live if other.address + other.size_bytes > slot.address]
        for other in live:
            slot.conflicts.append(other)
            other.conflicts.append(slot)
        if slot.size_bytes:
            live.append(slot)
