"""From routines and their parameter tables to the program of a segment: calls of units and their transfers (SHAPE-9).

Every call works on buffers of its own unit at addresses that were decided when the unit was made; a box comes to its
buffer by strided transfers, and the result leaves likewise (SHAPE-3; `routes.py` knows the ways). What a core holds
already is not brought again. Calls are dealt to cores in the order of the table, so that neighbours share what they
read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from compiler.address.table import ENTRY_BYTES
from compiler.address.unit import CHANNELS, is_addressable, unit_read
from compiler.errors import InternalError, LimitError
from compiler.ir.box import Ints
from compiler.ir.layout import is_relabelling, strides_of
from compiler.ops.base import OpClass
from compiler.ops.op_facts import GraphFacts, OpFacts
from compiler.ops.slab import lengths
from compiler.profile.schema import Profile
from compiler.program.context import Context, Operand
from compiler.program.decode import Decoders
from compiler.program.emitter import Box, Held, is_empty, machine_of
from compiler.program.loops.loops import Loops
from compiler.program.program import ADDRESSES, OUTPUT, Opcode, Program, Step
from compiler.program.residents import ResidentPart, place_residents
from compiler.program.slots import Slot, Spans, merged
from compiler.shapes.buffers import addresses_name
from compiler.shapes.core_time import owners
from compiler.shapes.routes import Routes
from compiler.shapes.routine import Calls, Routine, RoutineGeometry
from compiler.shapes.unit_library import UnitBuffers

# The channels' axis of what a window goes over.


@dataclass(slots=True)
class _Core:
    """What a core holds while a routine runs: by unit, tensor and turn its slot; by tensor the box that it has."""

    number: int
    slots: dict[tuple[int, str, int], Slot]
    turns: dict[tuple[int, str], int] = field(default_factory=dict)
    held: dict[str, Held] = field(default_factory=dict)
    unit: int = -1

    def begin(self, unit: int) -> None:
        """Make ready for a call: the buffers of another unit lie where those of the one before did."""
        if self.unit != unit:
            self.held.clear()
            self.unit = unit


@dataclass(frozen=True, slots=True)
class _Entry:
    """A call in a core, and the box of every tensor."""

    core: _Core
    unit: int
    boxes: Mapping[str, Box]


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A program as it was emitted, with all waits there are, and the stream of each command (see `in_time`)."""

    program: Program
    streams: Ints


def lower_tables(
    facts: GraphFacts,
    profile: Profile,
    name: str,
    work: Sequence[tuple[Calls, Sequence[UnitBuffers]]],
    outputs: frozenset[str],
    decoders: Decoders,
    residents: Sequence[ResidentPart] = (),
) -> Draft:
    """The commands of a segment at one shape; `outputs` are the tensors that others read of it.

    `residents`: where stationary weights lie in the cores, whatever the shape.
    """
    ops = [op for calls, _ in work for op in calls.routine.ops]
    context = Context(facts, machine_of(profile), frozenset(facts.ops[op].output for op in ops), outputs, decoders)
    wanted = set(facts.weights_of(ops))
    placed = place_residents(context, profile, [part for part in residents if part.name in wanted])
    routes = Routes(context, profile)
    steps: list[Step] = []
    before: dict[int, Slot] = {}
    for number, (calls, buffers) in enumerate(work):
        first = len(steps)
        for op in calls.routine.ops:
            node = facts.graph.ops[op]
            steps.append(Step(group=f"{name}.t{number}", nodes=node.origin, tensor=node.output))
        if not _is_view(context, calls.routine):
            before = _RoutineLowering(routes, calls, buffers, first, before).run()
    commands, streams, offsets, waits, rows, bindings = context.emitter.arrays()
    tables, units, rows = context.finished(rows)
    program = Program(
        name=name,
        places=context.machine.places,
        queues=context.machine.queues,
        steps=tuple(steps),
        commands=commands,
        wait_offsets=offsets,
        waits=waits,
        loops=Loops.one_iteration(len(commands), len(waits)),
        calls=rows,
        bindings=bindings,
        units=units,
        tables=tables,
        regions=tuple(context.region_list),
        residents=tuple(placed),
        addresses=tuple(context.addresses),
    )
    return Draft(program=program, streams=streams.astype(np.int64))


def _is_view(context: Context, routine: Routine) -> bool:
    """Make a view's result another name of its operand's bytes, if they lie in the same order; False for what is none.

    Only between tensors of the segment: what comes in and goes out has regions of its own.
    """
    op = context.facts.ops[routine.ops[0]]
    if len(routine.ops) > 1 or op.op_class is not OpClass.VIEW or len(op.operands) != 1:
        return False
    source, result = (context.graph.tensors[name] for name in (op.operands[0].tensor, op.output))
    orders = [context.facts.tensors[tensor.name].order for tensor in (source, result)]
    if source.constant is not None or not is_relabelling(source.shape, orders[0], result.shape, orders[1]):
        return False
    return context.alias(op.output, op.operands[0].tensor)


class _RoutineLowering:
    """All calls of one routine."""

    def __init__(
        self,
        routes: Routes,
        calls: Calls,
        buffers: Sequence[UnitBuffers],
        first_step: int,
        before: Mapping[int, Slot],
    ) -> None:
        self.routes = routes
        self.buffers = buffers
        self.context = routes.context
        self.emitter = routes.emitter
        self.machine = routes.machine
        self.profile = routes.profile
        self.calls = calls
        self.geometry = RoutineGeometry(self.context.facts, calls.routine.ops)
        self.first_step = first_step
        self.before = before
        self.operands: list[tuple[OpFacts, tuple[Operand, ...]]] = [
            (op, self.context.operands(op.index)) for op in self.geometry.ops
        ]
        self.first_reader = {
            operand.tensor: number
            for number, op in reversed(tuple(enumerate(self.geometry.ops)))
            for operand in op.operands
        }
        self.gathers = frozenset(
            op.output for op, operands in self.operands if any(o.gathered is not None for o in operands)
        )
        # what ops find in DRAM that read rows through indices; an op beside them may need it in the core
        self.in_dram = frozenset(
            o.gathered or o.tensor for op, operands in self.operands if op.output in self.gathers for o in operands
        ) - {o.tensor for op, operands in self.operands if op.output not in self.gathers for o in operands}
        if self.gathers and not self.machine.has("iodma"):
            raise LimitError(
                "no engine of the profile brings rows of a table from DRAM to a core",
                code="no_engine",
                stage="shapes",
                node=self.context.graph.ops[calls.routine.ops[0]].node,
                limit="iodma",
                actual=", ".join(sorted({queue.engine for queue in self.machine.queues})),
            )

    def run(self) -> dict[int, Slot]:
        """Emit the calls, dealt to the cores; by place what the next routine comes after."""
        boxes = self.geometry.boxes(self.calls.starts, self.calls.lengths)
        ranges = {name: np.stack([begin, end], axis=2).tolist() for name, (begin, end) in boxes.items()}
        owner = owners(self.calls.lengths.prod(axis=1), self.profile.cores)
        dealt = [np.flatnonzero(owner == core).tolist() for core in range(self.profile.cores)]
        dealt = self._side_by_side(dealt, ranges)
        cores = [self._core(number) if rows else _Core(number, {}) for number, rows in enumerate(dealt)]
        for turn in range(max(len(rows) for rows in dealt)):
            entries = [
                _Entry(core, int(self.calls.units[rows[turn]]), _boxes(ranges, rows[turn]))
                for core, rows in zip(cores, dealt, strict=True)
                if turn < len(rows)
            ]
            entries = [entry for entry in entries if not is_empty(entry.boxes[self.geometry.result])]
            for entry in entries:
                entry.core.begin(entry.unit)
            self._bring_turn(entries)
            for entry in entries:
                self._call(entry)
        return self._left(cores)

    def _side_by_side(self, dealt: Sequence[list[int]], ranges: Mapping[str, Any]) -> list[list[int]]:
        """The cores' calls so that neighbours begin with the same box of what is brought most.

        A command of a link reaches a run of neighbours. Where cores share an SRAM they have other boxes in common, and
        nothing is changed. The cores that have calls are the same ones.
        """
        names = [name for name in (*self.geometry.weights, *self.geometry.inputs) if name not in self.in_dram]
        if not names or not self.machine.has("link") or not self.profile.units.are_cores:
            return list(dealt)
        traffic = {name: sum(map(partial(self._brought_bytes, name, ranges[name]), dealt)) for name in names}
        most = ranges[max(names, key=lambda name: traffic[name])]
        working = [rows for rows in dealt if rows]
        order = iter(sorted(working, key=lambda rows: most[rows[0]]))
        return [next(order) if rows else rows for rows in dealt]

    def _brought_bytes(self, name: str, boxes: Any, rows: Sequence[int]) -> int:
        """Bytes of a tensor that come to a core for its calls: a box that stays comes once."""
        element = self.context.element_bytes(name)
        changed = (row for before, row in pairwise((None, *rows)) if before is None or boxes[before] != boxes[row])
        return sum(prod(stop - start for start, stop in boxes[row]) * element for row in changed)

    def _bring_turn(self, entries: Sequence[_Entry]) -> None:
        """Bring operands to the calls of a turn: what several of them read comes to all of these at once."""
        for name in (*self.geometry.weights, *self.geometry.inputs):
            if name in self.in_dram:
                continue
            self.emitter.step = self.first_step + self.first_reader[name]
            together: dict[Box, list[_Core]] = {}
            for entry in entries:
                together.setdefault(entry.boxes[name], []).append(entry.core)
            for box, cores in together.items():
                self._bring(cores, name, box)

    def _bring(self, cores: Sequence[_Core], name: str, box: Box) -> None:
        """Have a box in some cores: where it lies in place or already, it stays; the others get it together."""
        targets: dict[int, Held] = {}
        for core in cores:
            known = core.held.get(name)
            if known is not None and known.box == box:
                continue
            own = self.routes.in_place(core.number, name, box)
            if own is None:
                is_weight = self.context.facts.tensors[name].constant
                own = targets[core.number] = self._next(core, core.unit, name, box, (name, box) if is_weight else None)
            core.held[name] = own
        if targets and not is_empty(box):
            self.routes.bring(name, box, targets)

    def _next(self, core: _Core, unit: int, name: str, box: Box, content: object = None) -> Held:
        """The buffer of a tensor whose turn it is, ready for a box."""
        key = (unit, name)
        copies = len(self.buffers[unit].placed[name].addresses)
        core.turns[key] = (core.turns.get(key, -1) + 1) % copies
        held = self._held(core, unit, name, box)
        held.slot.begin(content)
        return held

    def _core(self, number: int) -> _Core:
        """The slots of one core for every unit that the table calls."""
        slots: dict[tuple[int, str, int], Slot] = {}
        spans: dict[int, Spans] = defaultdict(Spans)
        for unit in sorted(set(self.calls.units.tolist())):
            for name, placed in self.buffers[unit].placed.items():
                place = self.machine.place_of[placed.level, number]
                for turn, address in enumerate(placed.addresses):
                    slot = slots[unit, name, turn] = Slot(place, address, placed.size_bytes)
                    if place in self.before:
                        slot.succeed(self.before[place])
                    spans[place].enter(slot)
        return _Core(number, slots)

    def _left(self, cores: Sequence[_Core]) -> dict[int, Slot]:
        """By place one slot for all that has touched it."""
        result: dict[int, Slot] = dict(self.before)
        for slots in (core.slots.values() for core in cores):
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
                slot.part()
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
        strides = strides_of(placed.extents, self.routes.order(name), tensor.element_bytes)
        slot = core.slots[unit, name, turn]
        return Held(slot, slot.address, tuple(start for start, _ in box), strides, box)

    def _call(self, entry: _Entry) -> None:
        """One entry: operands in, the ops of the routine one after another, the result out."""
        core, unit, boxes = entry.core, entry.unit, entry.boxes
        at_hand: dict[str, Held] = {}
        for number, (op, operands) in enumerate(self.operands):
            self.emitter.step = self.first_step + number
            for operand in operands:
                name = operand.tensor
                if name in boxes and name not in at_hand and name not in self.in_dram:
                    at_hand[name] = core.held[name]
            box = boxes[op.output]
            held = at_hand[op.output] = self._next(core, unit, op.output, box)
            if not is_empty(box):
                self._compute(core, op, operands, box, held, at_hand, self._addresses(core, unit, op))
        self.emitter.step = self.first_step + len(self.operands) - 1
        self.routes.store(self.geometry.result, core.number, at_hand[self.geometry.result])

    def _addresses(self, core: _Core, unit: int, op: OpFacts) -> list[tuple[int, Held]]:
        """The address table by which a unit reads an op's window, in the core; none where it reads by strides."""
        name = addresses_name(self.context.facts.tensors, op.output)
        placed = self.buffers[unit].placed
        block, data = placed.get(name), placed.get(op.operands[0].tensor) if op.operands else None
        if block is None or data is None or op.window is None:
            return []
        tensor = op.operands[0].tensor
        element = self.context.facts.tensors[tensor].element_bytes
        strides = strides_of(data.extents, self.routes.order(tensor), element)
        channels = self.context.shape(tensor)[CHANNELS]
        read = unit_read(op.window, block.extents, channels, strides, element)
        if not is_addressable(read):
            return []
        region = self.context.address_table(read)
        (words,) = self.context.shape(region)
        slot = core.slots[unit, name, 0]
        held = Held(slot, slot.address, (0,), (ENTRY_BYTES,), ((0, words),))
        if slot.content != name:
            slot.begin(name)
            self.routes.bring(region, held.box, {core.number: held})
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
        is_gather = op.output in self.gathers
        for operand in operands:
            need = tuple(
                axis_map.project_one(*((0, 1) if axis_map.axis is None else box[axis_map.axis]), extent)
                for axis_map, extent in zip(operand.access, self.context.shape(operand.tensor), strict=False)
            )
            if operand.gathered is not None:
                bound.append((operand.number, self.context.region(operand.tensor)))
            elif is_gather:
                bound.append((operand.number, self.context.region(operand.tensor).part(need)))
            elif not is_empty(need):
                bound.append((operand.number, at_hand[operand.tensor].part(need)))
        reads = [piece.slot for _, piece in bound]
        table = self.context.table(op.index)
        entry = self.context.entry(table, box)
        queue = self.machine.queue_of["iodma" if is_gather else "core", core.number]
        opcode = Opcode.GATHER if is_gather else Opcode.COMPUTE
        self.emitter.call(queue, table, entry, [*bound, (OUTPUT, held)], reads, (held.slot,), opcode)


def _boxes(ranges: Mapping[str, Any], row: int) -> dict[str, Box]:
    """The box of every tensor for one call."""
    return {name: tuple((start, stop) for start, stop in of[row]) for name, of in ranges.items()}
