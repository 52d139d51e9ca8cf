"""From routines and their parameter tables to the program of a segment: calls of units and their transfers (SHAPE-9).

Every call works on buffers of its own unit at addresses that were decided when the unit was made; a box comes from DRAM
to its buffer by strided transfers, and the result leaves likewise (SHAPE-3). What a core holds already is not brought
again. Calls are dealt to cores in the order of the table, so that neighbours share what they read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

import numpy as np

from compiler.address.table import ENTRY_BYTES
from compiler.address.unit import is_addressable, unit_read
from compiler.errors import InternalError, LimitError
from compiler.ir.box import Ints
from compiler.ir.layout import is_relabelling, memory_order, strides_of
from compiler.ops.base import OpClass
from compiler.ops.facts import GraphFacts, OpFacts
from compiler.ops.slab import lengths
from compiler.profile.schema import Profile
from compiler.program.context import Context, Operand
from compiler.program.decode import Decoders
from compiler.program.emitter import Box, Held, Slot, connect, is_empty, machine_of, merged
from compiler.program.program import ADDRESSES, OUTPUT, Level, Opcode, Program, Step
from compiler.program.timing.order import in_time
from compiler.shapes.buffers import addresses_name
from compiler.shapes.routine import Calls, Routine, RoutineGeometry
from compiler.shapes.unit_library import UnitBuffers

# The channels' axis of what a window goes over.
_CHANNELS: Final = 1
# Where boxes may begin in the SRAM.
_ALIGNMENT: Final = 64


@dataclass(slots=True)
class _Core:
    """What a core holds while a routine runs: by unit, tensor and turn its slot; the boxes of the unit called last."""

    number: int
    slots: dict[tuple[int, str, int], Slot]
    turns: dict[tuple[int, str], int] = field(default_factory=dict)
    boxes: dict[str, Box] = field(default_factory=dict)
    unit: int = -1


def lower_tables(
    facts: GraphFacts,
    profile: Profile,
    name: str,
    work: Sequence[tuple[Calls, Sequence[UnitBuffers]]],
    outputs: frozenset[str],
    decoders: Decoders,
) -> Program:
    """The program of a segment at one shape; `outputs` are the tensors that others read of it."""
    made = frozenset(facts.ops[op].output for calls, _ in work for op in calls.routine.ops)
    context = Context(facts, machine_of(profile), made, outputs, decoders)
    steps: list[Step] = []
    before: dict[int, Slot] = {}
    for number, (calls, buffers) in enumerate(work):
        first = len(steps)
        for op in calls.routine.ops:
            node = facts.graph.ops[op]
            steps.append(Step(group=f"{name}.t{number}", nodes=node.origin, tensor=node.output))
        if not _is_view(context, calls.routine):
            before = _RoutineLowering(context, profile, calls, buffers, first, before).run()
    commands, streams, offsets, waits, rows, bindings = context.emitter.arrays()
    tables, units = context.finished()
    program = Program(
        name=name,
        places=context.machine.places,
        queues=context.machine.queues,
        steps=tuple(steps),
        commands=commands,
        wait_offsets=offsets,
        waits=waits,
        calls=rows,
        bindings=bindings,
        units=units,
        tables=tables,
        regions=tuple(context.region_list),
        residents=(),
        addresses=tuple(context.addresses),
    )
    return in_time(program, profile, streams.astype(np.int64))


def _is_view(context: Context, routine: Routine) -> bool:
    """Make a view's result another name of its operand's bytes, if they lie in the same order; False for what is none.

    Only between tensors of the segment: what comes in and goes out has regions of its own.
    """
    op = context.facts.ops[routine.ops[0]]
    if len(routine.ops) > 1 or op.op_class is not OpClass.VIEW or len(op.operands) != 1:
        return False
    source, result = (context.graph.tensors[name] for name in (op.operands[0].tensor, op.output))
    if source.constant is not None or not is_relabelling(source.shape, source.axes, result.shape, result.axes):
        return False
    return context.alias(op.output, op.operands[0].tensor)


class _RoutineLowering:
    """All calls of one routine."""

    def __init__(
        self,
        context: Context,
        profile: Profile,
        calls: Calls,
        buffers: Sequence[UnitBuffers],
        first_step: int,
        before: Mapping[int, Slot],
    ) -> None:
        self.buffers = buffers
        self.shared: list[Slot] = []
        self.context = context
        self.emitter = context.emitter
        self.machine = context.machine
        self.profile = profile
        self.calls = calls
        self.geometry = RoutineGeometry(context.facts, calls.routine.ops)
        self.first_step = first_step
        self.before = before
        self.operands: list[tuple[OpFacts, tuple[Operand, ...]]] = [
            (op, context.operands(op.index)) for op in self.geometry.ops
        ]
        self.gathers = frozenset(
            op.output for op, operands in self.operands if any(o.gathered is not None for o in operands)
        )
        self.in_dram = frozenset(
            o.gathered or o.tensor for op, operands in self.operands if op.output in self.gathers for o in operands
        )
        if not self.machine.has("iodma"):
            raise LimitError(
                "tables need an engine that moves boxes between DRAM and a core",
                code="no_engine",
                stage="shapes",
                limit="iodma",
                actual=", ".join(sorted({queue.engine for queue in self.machine.queues})),
            )

    def run(self) -> dict[int, Slot]:
        """Emit the calls, dealt to the cores; by place what the next routine comes after."""
        boxes = self.geometry.boxes(self.calls.starts, self.calls.lengths)
        ranges = {name: np.stack([begin, end], axis=2).tolist() for name, (begin, end) in boxes.items()}
        dealt = _dealt(self.calls.lengths, self.profile.cores)
        cores = [self._core(number) if rows else _Core(number, {}) for number, rows in enumerate(dealt)]
        self._share(cores, dealt, ranges)
        for turn in range(max(len(rows) for rows in dealt)):
            for core, rows in zip(cores, dealt, strict=True):
                if turn < len(rows):
                    row = rows[turn]
                    box = {name: tuple((a, b) for a, b in of[row]) for name, of in ranges.items()}
                    self._call(core, int(self.calls.units[row]), box)
        return self._left(cores)

    def _share(self, cores: Sequence[_Core], dealt: Sequence[Sequence[int]], ranges: Mapping[str, Any]) -> None:
        """Bring what all calls read to the cores that begin with the same unit, from DRAM as few times as can be."""
        units = self.calls.units
        working = [(core, int(units[rows[0]])) for core, rows in zip(cores, dealt, strict=True) if rows]
        first = working[0][1]
        if len(working) < 2 or any(unit != first for _, unit in working):
            return
        at = 0
        for name in (*self.geometry.weights, *self.geometry.inputs):
            boxes = ranges.get(name)
            if boxes is None or name in self.in_dram or any(box != boxes[0] for box in boxes):
                continue
            box: Box = tuple((start, stop) for start, stop in boxes[0])
            if not is_empty(box):
                at = self._pass_on([core for core, _ in working], first, name, box, at)

    def _pass_on(self, cores: Sequence[_Core], unit: int, name: str, box: Box, at: int) -> int:
        """One box to the same address of several cores; where the next one may lie in the SRAM."""
        element, region = self.context.element_bytes(name), self.context.region(name)
        queues, engines = self.machine.queue_of, self.profile.engines
        self.emitter.step = self.first_step
        if self.profile.dram.multicast:
            for together in _consecutive(cores):
                targets = self._begun(together, unit, name, box)
                queue = queues["iodma", together[0].number]
                self._send(Opcode.LOAD, queue, region, targets, box, element)
        elif self.profile.sram is not None and engines.gdma is not None and engines.bus is not None:
            size = prod(lengths(box)) * element
            if at + size > self.profile.sram.capacity_bytes:
                return at
            per = self.profile.cores_per_cluster
            for cluster in sorted({core.number // per for core in cores}):
                held = self._in_sram(cluster, name, box, at, size)
                self.emitter.copy(Opcode.LOAD, queues["gdma", cluster], region, held, box, element)
                for together in _consecutive([core for core in cores if core.number // per == cluster]):
                    targets = self._begun(together, unit, name, box)
                    self._send(Opcode.BROADCAST, queues["bus", cluster], held, targets, box, element)
            at += -(-size // _ALIGNMENT) * _ALIGNMENT
        elif engines.link is not None:
            (source,) = self._begun(cores[:1], unit, name, box)
            self._send(Opcode.LOAD, queues["iodma", cores[0].number], region, [source], box, element)
            for together in _consecutive(cores[1:]):
                targets = self._begun(together, unit, name, box)
                opcode = Opcode.BROADCAST if len(targets) > 1 else Opcode.EXCHANGE
                self._send(opcode, queues["link", cores[0].number], source, targets, box, element)
        return at

    def _send(self, opcode: Opcode, queue: int, source: Held, targets: Sequence[Held], box: Box, element: int) -> None:
        """Copy a box to the same address of consecutive cores."""
        self.emitter.copy(opcode, queue, source, targets[0], box, element, [target.slot for target in targets[1:]])

    def _in_sram(self, cluster: int, name: str, box: Box, at: int, size: int) -> Held:
        """Room for a box in a cluster's SRAM."""
        slot = Slot(self.machine.place_of[Level.SRAM, cluster], at, size)
        if slot.place in self.before:
            slot.succeed(self.before[slot.place])
        self.shared.append(slot)
        slot.begin()
        strides = strides_of(lengths(box), self._order(name), self.context.element_bytes(name))
        return Held(slot, at, tuple(start for start, _ in box), strides, box)

    def _begun(self, cores: Sequence[_Core], unit: int, name: str, box: Box) -> list[Held]:
        """The buffers of several cores, ready for a box."""
        found = []
        for core in cores:
            core.unit = unit
            core.turns[unit, name] = 0
            core.boxes[name] = box
            held = self._held(core, unit, name, box)
            held.slot.begin((name, box))
            found.append(held)
        return found

    def _order(self, name: str) -> tuple[int, ...]:
        """The order of a tensor's axes in the cores."""
        tensor = self.context.facts.tensors[name]
        return self.context.weight_order(name) if tensor.constant else memory_order(tensor.axes)

    def _core(self, number: int) -> _Core:
        """The slots of one core for every unit that the table calls."""
        slots: dict[tuple[int, str, int], Slot] = {}
        by_place: dict[int, list[Slot]] = {}
        for unit in sorted(set(self.calls.units.tolist())):
            for name, placed in self.buffers[unit].placed.items():
                place = self.machine.place_of[placed.level, number]
                for turn, address in enumerate(placed.addresses):
                    slot = slots[unit, name, turn] = Slot(place, address, placed.size_bytes)
                    if place in self.before:
                        slot.succeed(self.before[place])
                    by_place.setdefault(place, []).append(slot)
        for together in by_place.values():
            connect(together)
        return _Core(number, slots)

    def _left(self, cores: Sequence[_Core]) -> dict[int, Slot]:
        """By place one slot for all that has touched it."""
        result: dict[int, Slot] = dict(self.before)
        for slots in (self.shared, *(core.slots.values() for core in cores)):
            for slot in slots:
                rest = result.get(slot.place)
                if rest is None or rest is self.before.get(slot.place):
                    fresh = Slot(slot.place, 0, 1 << 62)
                    if rest is not None:
                        fresh.touched = dict(rest.touched)
                    rest = result[slot.place] = fresh
                rest.touched = merged(merged(rest.touched, slot.touched), slot.barrier)
        for core in cores:
            for slot in core.slots.values():
                slot.conflicts = []
        return result

    def _held(self, core: _Core, unit: int, name: str, box: Box) -> Held:
        """Where a tensor's box lies now in a core."""
        placed = self.buffers[unit].placed[name]
        turn = core.turns.get((unit, name), 0)
        if any(length > extent for length, extent in zip(lengths(box), placed.extents, strict=True)):
            raise InternalError(
                "a call needs more of a tensor than its unit has room for",
                stage="shapes",
                node=name,
                actual=lengths(box),
                limit=placed.extents,
            )
        tensor = self.context.facts.tensors[name]
        strides = strides_of(placed.extents, self._order(name), tensor.element_bytes)
        slot = core.slots[unit, name, turn]
        return Held(slot, slot.address, tuple(start for start, _ in box), strides, box)

    def _bring(self, core: _Core, unit: int, name: str, box: Box) -> Held:
        """An operand's box in the core: as it lies there already, or loaded into the buffer whose turn it is."""
        key = (unit, name)
        if core.boxes.get(name) == box:
            return self._held(core, unit, name, box)
        copies = len(self.buffers[unit].placed[name].addresses)
        core.turns[key] = (core.turns.get(key, -1) + 1) % copies
        held = self._held(core, unit, name, box)
        is_weight = self.context.facts.tensors[name].constant
        held.slot.begin((name, box) if is_weight else None)
        core.boxes[name] = box
        if not is_empty(box):
            queue = self.machine.queue_of["iodma", core.number]
            region = self.context.region(name)
            self.emitter.copy(Opcode.LOAD, queue, region, held, box, self.context.element_bytes(name))
        return held

    def _call(self, core: _Core, unit: int, boxes: Mapping[str, Box]) -> None:
        """One entry: operands in, the ops of the routine one after another, the result out."""
        result = self.geometry.result
        if is_empty(boxes[result]):
            return
        if core.unit != unit:  # its buffers lie where those of the other one do
            core.boxes.clear()
            core.unit = unit
        at_hand: dict[str, Held] = {}
        for number, (op, operands) in enumerate(self.operands):
            self.emitter.step = self.first_step + number
            for operand in operands:
                name = operand.tensor
                if name not in at_hand and name in boxes and name not in self.in_dram:
                    at_hand[name] = self._bring(core, unit, name, boxes[name])
            box = boxes[op.output]
            key = (unit, op.output)
            copies = len(self.buffers[unit].placed[op.output].addresses)
            core.turns[key] = (core.turns.get(key, -1) + 1) % copies
            held = at_hand[op.output] = self._held(core, unit, op.output, box)
            held.slot.begin()
            if not is_empty(box):
                self._compute(core, op, operands, box, held, at_hand, self._addresses(core, unit, op))
        self.emitter.step = self.first_step + len(self.operands) - 1
        queue = self.machine.queue_of["iodma", core.number]
        out = at_hand[result]
        region = self.context.region(result)
        self.emitter.copy(Opcode.STORE, queue, out, region, out.box, self.context.element_bytes(result))

    def _addresses(self, core: _Core, unit: int, op: OpFacts) -> list[tuple[int, Held]]:
        """The address table by which a unit reads an op's window, in the core; none where it reads by strides."""
        name = addresses_name(self.geometry, op.output)
        placed = self.buffers[unit].placed
        block, data = placed.get(name), placed.get(op.operands[0].tensor) if op.operands else None
        if block is None or data is None or op.window is None:
            return []
        tensor = op.operands[0].tensor
        element = self.context.facts.tensors[tensor].element_bytes
        strides = strides_of(data.extents, self._order(tensor), element)
        read = unit_read(op.window, block.extents, strides, element)
        # a table says where elements lie of which all channels follow as one run
        if strides[_CHANNELS] != element or not is_addressable(read):
            return []
        region = self.context.address_table(read)
        (words,) = self.context.shape(region)
        slot = core.slots[unit, name, 0]
        held = Held(slot, slot.address, (0,), (ENTRY_BYTES,), ((0, words),))
        if slot.content != name:
            slot.begin(name)
            queue = self.machine.queue_of["iodma", core.number]
            self.emitter.copy(Opcode.LOAD, queue, self.context.region(region), held, held.box, ENTRY_BYTES)
        return [(ADDRESSES - self.context.address_tables[region], held)]

    def _compute(
        self,
        core: _Core,
        op: OpFacts,
        operands: Sequence[Operand],
        box: Box,
        held: Held,
        at_hand: Mapping[str, Held],
        addresses: Sequence[tuple[int, Held]],
    ) -> None:
        bound: list[tuple[int, Held]] = [*addresses]
        for operand in operands:
            need = tuple(
                axis_map.project_one(*((0, 1) if axis_map.axis is None else box[axis_map.axis]), extent)
                for axis_map, extent in zip(operand.access, self.context.shape(operand.tensor), strict=False)
            )
            if operand.gathered is not None:
                bound.append((operand.number, self.context.region(operand.tensor)))
            elif operand.tensor in self.in_dram:
                bound.append((operand.number, self.context.region(operand.tensor).part(need)))
            elif not is_empty(need):
                bound.append((operand.number, at_hand[operand.tensor].part(need)))
        reads = [piece.slot for _, piece in bound]
        table = self.context.table(op.index)
        entry = self.context.entry(table, box)
        is_gather = op.output in self.gathers
        queue = self.machine.queue_of["iodma" if is_gather else "core", core.number]
        opcode = Opcode.GATHER if is_gather else Opcode.COMPUTE
        self.emitter.call(queue, table, entry, [*bound, (OUTPUT, held)], reads, (held.slot,), opcode)


def _consecutive(cores: Sequence[_Core]) -> list[list[_Core]]:
    """Cores in runs whose numbers follow one another: one command reaches all of a run."""
    runs: list[list[_Core]] = []
    for core in cores:
        if runs and runs[-1][-1].number + 1 == core.number:
            runs[-1].append(core)
        else:
            runs.append([core])
    return runs


def _dealt(sizes: Ints, cores: int) -> list[list[int]]:
    """The calls of each core: neighbours together, about as much work for each."""
    work = sizes.prod(axis=1).astype(np.float64)
    if not len(work):
        return [[] for _ in range(cores)]
    middle = np.cumsum(work) - work / 2
    owner = np.minimum((middle / work.sum() * cores).astype(np.int64), cores - 1)
    return [np.flatnonzero(owner == core).tolist() for core in range(cores)]
