"""Which boxes of its weights an op needs, in which slices they pass a core, and their way through the SRAM (TILE-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Final

from compiler.errors import LimitError
from compiler.ir.layout import strides_of
from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import align_to_line
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.peers import deliver
from compiler.program.program import Level
from compiler.program.residents import weight_level
from compiler.program.slots import Slot
from compiler.program.unit_calls import OperandBoxes, UnitCalls
from compiler.program.weight_reach import Content
from compiler.tiling.memory import PASSING, PASSING_LINE, WEIGHTS
from compiler.tiling.tile import Spread, WeightHome
from compiler.tiling.weights import align
from compiler.units import ceil_div


class WeightBoxes:
    """The weights and address tables of one group's ops, and the slots that cores have for them."""

    def __init__(self, located: Located, operands: OperandBoxes, calls: UnitCalls) -> None:
        self._located = located
        self._operands = operands
        self._group = located.group
        self._context = located.context
        # by step; weights without those that lie where they are used
        self.constants = [self._constants_of(op) for op in self._group.geometry.ops]
        self.tables = [tuple(calls.address_tables(op)) for op in self._group.geometry.ops]
        # weights by step, unit and core; more than one slot where slices pass in turn
        self.slots: dict[tuple[int, int, int], list[Slot]] = {}
        self.table_slots: dict[tuple[int, int, int], Slot] = {}
        for step in range(len(self.constants)):
            self._lay_out(step)
            if (first := self.first_with(step)) != step:
                its = {core: slots for core, slots in self.slots.items() if core[0] == first}
                self.slots |= {(step, unit, number): slots for (_, unit, number), slots in its.items()}
        self._slices = Known(self._new_slices)
        self._boxes = Known[Content, list[tuple[Operand, Box]]](lambda key: self.boxes_of(self.constants[key[0]], *key))

    def _constants_of(self, op: OpFacts) -> tuple[Operand, ...]:
        """An op's weights, the widest elements first, so that each lies where its type may.

        Stationary weights that lie where they are used are not brought.
        """
        found = [] if self._group.weights_in_place else self.weights_of(op)
        return tuple(sorted(found, key=lambda o: -self._located.element(o.tensor)))

    def first_with(self, step: int) -> int:
        """The step whose weights these are in the cores: its own, or that of an earlier op with the same ones there."""
        like = self._group.weights[step].like
        return step if like is None or not self._group.finds_weights(step) else like

    def weights_of(self, op: OpFacts) -> list[Operand]:
        """An op's weights, by their numbers."""
        return [o for o in self._context.operands(op.index) if o.constant and o.gathered is None]

    def _lay_out(self, step: int) -> None:
        """Make the slots of all cores for an op: two halves where slices pass."""
        level, buffers = weight_level(self._located.profile), self._located.buffers
        name = f"{WEIGHTS}{step}"
        size = buffers.size(level.value, name)
        weights = self._group.weights[step]
        room = size - weights.table_bytes
        second = self._group.second_weight_bytes(step) if self._group.doubles_weights else 0
        # how large a slot is, and how far behind the first one the second one begins
        part, skip, count = room - second, second, 2 if second else 1
        if self._group.homes[step] is not WeightHome.CORE and weights.slices > 1:
            skip = align(weights.staged_core_bytes - weights.table_bytes)
            part, count = (room - skip, 2) if weights.slice_buffers > 1 else (room, 1)
        if self._group.weights_in_place:
            part = 0
        for unit in range(self._located.units):
            for core in range(self._located.configuration.cores):
                place = buffers.place(level, self._located.core_number(unit, core))
                self.slots[step, unit, core] = [
                    buffers.take(
                        place, level.value, name, ("weights", step, half), weights.table_bytes + skip * half, part
                    )
                    for half in range(count)
                    if part
                ]
                if self.tables[step]:
                    slot = buffers.take(place, level.value, name, ("addresses", step), 0, weights.table_bytes)
                    self.table_slots[step, unit, core] = slot

    def slices(self, step: int, channels: tuple[int, int]) -> list[tuple[int, int]]:
        """A range of an op's output channels in slices whose weights fit the core's slot."""
        return self._slices[step, channels]

    def _new_slices(self, key: tuple[int, tuple[int, int]]) -> list[tuple[int, int]]:
        step, channels = key
        slots = self.slots[step, 0, 0]
        if not slots or not self.constants[step]:
            return [channels]
        room, length = slots[0].size_bytes, channels[1] - channels[0]
        fixed = each = 0
        # what several operands read lies once; all read it alike
        for operand in {operand.tensor: operand for operand in self.constants[step]}.values():
            size = prod(self.shape(operand)) * self._located.element(operand.tensor)
            along = self._operands.summed_axis(self._group.geometry.ops[step], operand)
            if along is not None and self._located.is_parted(self._group.geometry.ops[step]):
                extent = self.shape(operand)[along]
                size = size // extent * ceil_div(extent, self._group.input_parts)
            axis = self.channel_axis(step, operand)
            if axis is None:
                fixed += size
            else:
                each += size // self.shape(operand)[axis]
        if fixed + each * length <= room or not each:
            return [channels]
        count = (room - fixed) // each
        if count < 1:
            raise LimitError(
                "the weights of one output channel do not fit the buffer that the plan has for them",
                code="weights_do_not_fit",
                stage="lower",
                node=self._context.graph.ops[self._group.geometry.ops[step].index].node,
                actual=fixed + each,
                limit=room,
                hint="Report this plan: what the planner called fitting is not what lowering achieved",
            )
        parts = ceil_div(length, count)
        size = ceil_div(length, parts)
        return [(low, min(channels[1], low + size)) for low in range(channels[0], channels[1], size)]

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """The shape of a weight or an address table."""
        return self._context.shape(operand.tensor)

    def channel_axis(self, step: int, operand: Operand) -> int | None:
        """The axis of a weight that is the op's output channels."""
        channel = self._group.geometry.ops[step].channel_axis
        if channel is None:
            return None
        for axis, axis_map in enumerate(operand.access):
            if axis_map.axis == channel and axis_map.is_identity and self.shape(operand)[axis] > 1:
                return axis
        return None

    def boxes(
        self, step: int, channels: tuple[int, int], summed: tuple[int, int] | None = None
    ) -> list[tuple[Operand, Box]]:
        """Of each weight the box that a range of output channels needs, and a range of what is summed over."""
        return self._boxes[step, channels, summed]

    def boxes_of(
        self, constants: Sequence[Operand], step: int, channels: tuple[int, int], summed: tuple[int, int] | None
    ) -> list[tuple[Operand, Box]]:
        """As `boxes`, of some weights."""
        found = []
        for operand in constants:
            if summed is not None and operand.number >= FACTORS and summed[1] < self._group.geometry.summed_extent:
                # what is added to the sums comes with the last part of them
                continue
            axis = self.channel_axis(step, operand)
            box = [channels if i == axis else (0, e) for i, e in enumerate(self.shape(operand))]
            along = self._operands.summed_axis(self._group.geometry.ops[step], operand)
            if summed is not None and along is not None:
                box[along] = summed
            found.append((operand, tuple(box)))
        return found

    def held(self, slot: Slot, address: int, operand: Operand, box: Box) -> Held:
        """A box of a weight or an address table as it lies at an address."""
        sides = lengths(box)
        order = self._context.weight_order(operand.tensor)
        strides = strides_of(sides, order, self._located.element(operand.tensor))
        return Held(slot, address, tuple(start for start, _ in box), strides, box)


# With less room than this beside a group's buffers, weights come from DRAM to a core, and from there to the others.
_LEAST_SPARE: Final = 4096


@dataclass(frozen=True, slots=True)
class _Ring:
    """Equal places through which a step's weights pass, where the first one begins, and where operands lie in a place.

    `offsets`: by operand, with the bytes there.
    """

    begin: int
    place_bytes: int
    count: int
    offsets: Mapping[int, tuple[int, int]]

    def offset(self, operand: Operand, size_bytes: int, use: int) -> int:
        """Where an operand lies in the memory that the places are in: they take turns, by the use."""
        offset, most = self.offsets[operand.number]
        # portions of a box that exceeds the room may exceed their place: they lie at the begin
        return self.begin + use % self.count * self.place_bytes + offset if size_bytes <= most else 0


class PassingWeights:
    """The SRAM's slots for a group's weights, and the room through which those pass that have none there."""

    def __init__(self, located: Located, boxes: WeightBoxes) -> None:
        self._located = located
        self._group = located.group
        self._boxes = boxes
        # where they wait or pass, by step and unit
        self.slots: dict[tuple[int, int], Slot] = {}
        # of all units for what has no other room to pass
        self._lines: list[Slot] = []
        self._lay_out()
        # beside the group's buffers, by place, address and size
        self._places = Known[tuple[int, int, int], Slot](lambda key: located.buffers.insert(*key))

    @property
    def level(self) -> Level | None:
        """The memory of a unit that weights wait in or pass through."""
        if self._located.profile.units.are_cores:
            return None
        return Level.SRAM if self._located.profile.units.weight_part_bytes is None else Level.SRAM_WEIGHTS

    def _lay_out(self) -> None:
        level, buffers = self.level, self._located.buffers
        if level is None:
            return
        places = [buffers.place(level, unit) for unit in range(self._located.units)]
        if buffers.size(level.value, PASSING_LINE):
            self._lines = [buffers.take(place, level.value, PASSING_LINE, ("line",)) for place in places]
        for step, passing_bytes in enumerate(self._group.passing_unit_bytes):
            # what passes the buffer of all steps is what the planner made it for: resident weights may be larger
            passing = (f"{PASSING}{step}", PASSING) if passing_bytes else ()
            names = [name for name in (f"{WEIGHTS}{step}", *passing) if buffers.size(level.value, name)]
            for name, (unit, place) in product(names[:1], enumerate(places)):
                known = buffers.slots.get((place, ("unit weights", name)))
                self.slots[step, unit] = known or buffers.take(place, level.value, name, ("unit weights", name))

    def pass_beside(self, step: int, unit: int, several: int) -> bool:
        """True if weights pass the SRAM outside the group's buffers: for several cores, if there is room."""
        level, located = self.level, self._located
        if level is None or (step, unit) in self.slots:
            return False
        room = located.spare_bytes(level)
        return not located.machine.has("iodma") or (several > 1 and room >= _LEAST_SPARE)

    def passing_bytes(self, level: Level) -> int:
        """What of a memory should be left beside the group's buffers for weights that pass it; 0 if none do."""
        located = self._located
        several = located.units * located.configuration.cores
        steps = [
            s for s in range(len(self._boxes.constants)) if self._boxes.constants[s] and self.pass_beside(s, 0, several)
        ]
        if level is not self.level or not steps:
            return 0
        largest = max(self._group.weights[step].size_bytes for step in steps)
        return max(_LEAST_SPARE, min(largest, located.spare_bytes(level) // 2))

    def portions(self, operand: Operand, box: Box) -> list[Box]:
        """A box of weights cut into portions that each fit the room for what passes the SRAM."""
        level = self.level
        room = 0 if level is None else max([self._located.spare_bytes(level), *(s.size_bytes for s in self._lines)])
        size = prod(stop - start for start, stop in box) * self._located.element(operand.tensor)
        if size <= room:
            return [box]
        axis = next((a for a in self._located.context.weight_order(operand.tensor) if box[a][1] - box[a][0] > 1), None)
        if axis is None:
            raise LimitError(
                "there is no room for weights to pass the SRAM on their way to the core",
                code="weights_do_not_fit",
                stage="lower",
                node=operand.tensor,
                actual=size,
                limit=room,
            )
        start, stop = box[axis]
        halves = (start, (start + stop) // 2), ((start + stop) // 2, stop)
        return [portion for half in halves for portion in self.portions(operand, (*box[:axis], half, *box[axis + 1 :]))]

    def beside(self, step: int, operand: Operand, box: Box, units: list[int], use: int, dealt: int) -> dict[int, Held]:
        """A place in the SRAM for weights that only pass it: what the plan leaves free, or the room that it keeps."""
        level = self.level
        if level is None:
            raise AssertionError
        located = self._located
        size = prod(stop - start for start, stop in box) * located.element(operand.tensor)
        is_beside = size <= located.spare_bytes(level)
        address = located.twins(level).begin + self._rings[step].offset(operand, size, use) if is_beside else 0
        places = {unit: located.buffers.place(level, unit) for unit in units}
        beside = {unit: self._places[place, address, size] for unit, place in places.items()} if is_beside else {}
        return self._fill(operand, box, beside or {unit: self._lines[unit] for unit in units}, dealt)

    def through_buffer(
        self, step: int, operand: Operand, box: Box, units: list[int], use: int, dealt: int
    ) -> dict[int, Held]:
        """A place for weights on their way in the buffer that the plan has for them, where several have room."""
        size = prod(lengths(box)) * self._located.element(operand.tensor)
        at, its = self._rings[step].offset(operand, size, use), {unit: self.slots[step, unit] for unit in units}
        places = {unit: self._places[slot.place, slot.address + at, size] for unit, slot in its.items()}
        return self._fill(operand, box, places, dealt)

    def _fill(self, operand: Operand, box: Box, slots: Mapping[int, Slot], dealt: int) -> dict[int, Held]:
        """Load a box of weights to the begin of a slot of each of some units; `dealt`: whose turn it is."""
        found = {unit: self._boxes.held(slot, slot.address, operand, box) for unit, slot in slots.items()}
        region, element = self._located.context.region(operand.tensor), self._located.element(operand.tensor)
        deliver(self._located.emitter, region, list(found.values()), list(found), box, element, dealt)
        return found

    @cached_property
    def _rings(self) -> dict[int, _Ring]:
        """By step equal places in its buffer, or in the free part of the SRAM, each for all that one use needs.

        Where steps pass the same bytes, the places of one lie behind those of the one before, so that nothing keeps its
        first uses waiting for those. The number of places divides the uses of two rounds, so that a use has the same
        place in every second round: statements have one address, or two in turn.
        """
        assert self.level is not None
        spare, cores = self._located.spare_bytes(self.level), self._located.units * self._located.configuration.cores
        found = {}
        ends: dict[tuple[int, int], int] = {}
        for step in range(len(self._boxes.constants)):
            slot = self.slots.get((step, 0))
            if self._group.homes[step] is WeightHome.SRAM and slot is not None:
                continue
            if slot is None and not (self.pass_beside(step, 0, cores) or self.pass_beside(step, 0, 1)):
                continue
            # what the planner made room for lies without gaps
            room, space = (spare, (-1, spare)) if slot is None else (slot.size_bytes, (slot.address, slot.size_bytes))
            offsets: dict[int, tuple[int, int]] = {}
            largest = 1
            at = 0
            for operand, most in self._most_that_passes(step):
                size = min(align_to_line(most), room) if slot is None else most
                at = at if at + size <= room else 0
                offsets[operand.number] = (at, size)
                at += size
                largest = max(largest, at)
            if slot is not None:
                largest = align(largest)
            uses = min(2, len(self._located.rounds)) * max(1, self._uses_in_a_round(step))
            count = next((n for n in range(min(room // largest, uses), 1, -1) if uses % n == 0), 1)
            begin = ends.get(space, 0)
            begin = begin if begin + count * largest <= room else 0
            found[step] = _Ring(begin, largest, count, offsets)
            ends[space] = begin + count * largest
        return found

    def _most_that_passes(self, step: int) -> list[tuple[Operand, int]]:
        """An op's weights and address tables, with the bytes of each that come at once."""
        op, group = self._group.geometry.ops[step], self._group
        extent = group.geometry.summed_extent
        # what is added to the sums comes with the last part of them
        summed = (extent - ceil_div(extent, group.input_parts), extent) if self._located.is_parted(op) else None
        most = {operand: self._bytes_of(operand, self._boxes.shape(operand)) for operand in self._boxes.tables[step]}
        for count in self._channels_at_once(step, op):
            for low, high in self._boxes.slices(step, (0, count)):
                for operand, box in self._boxes.boxes(step, (low, high), summed):
                    most[operand] = max(most.get(operand, 0), self._bytes_of(operand, lengths(box)))
        return list(most.items())

    def _channels_at_once(self, step: int, op: OpFacts) -> set[int]:
        """How many channels of an op are worked on together, and so cut into slices: a part, or a piece of a stage."""
        group, stage = self._group, self._group.stage_of[step]
        part = ceil_div(self._channels_of(op), group.slices * group.channel_parts)
        if stage is None or op.channel_axis is None:
            return {part}
        piece = min(part, max(1, stage[1].extents[op.channel_axis]))
        return {piece, min(piece, ceil_div(part, group.configuration.cores))}

    def _channels_of(self, op: OpFacts) -> int:
        return 1 if op.channel_axis is None else self._located.tensors[op.output].shape[op.channel_axis]

    def _uses_in_a_round(self, step: int) -> int:
        """How often weights of an op come to a unit in a round: slice by slice of its channels, or of their pieces."""
        op, group, configuration = self._group.geometry.ops[step], self._group, self._located.configuration
        stage = group.stage_of[step]
        units = configuration.units if configuration.spread is Spread.CHANNELS else 1
        if stage is None or op.channel_axis is None:
            return group.weights[step].slices * ceil_div(group.channel_parts, units)
        channels, piece = ceil_div(self._channels_of(op), units), max(1, stage[1].extents[op.channel_axis])
        return sum(len(self._boxes.slices(step, (at, min(at + piece, channels)))) for at in range(0, channels, piece))

    def _bytes_of(self, operand: Operand, sides: tuple[int, ...]) -> int:
        return prod(sides) * self._located.element(operand.tensor)
