"""Weights on their way through the SRAM to the cores, where they do not wait there (TILE-7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Final

from compiler.errors import LimitError
from compiler.ir.layout import strides_of
from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held
from compiler.program.program import Level
from compiler.program.slots import Slot
from compiler.program.twins import align_to_line
from compiler.program.weight_boxes import WeightBoxes
from compiler.tiling.memory import PASSING, PASSING_LINE, WEIGHTS
from compiler.units import ceil_div

if TYPE_CHECKING:
    from compiler.program.group import GroupLowering

# With less room than this beside a group's buffers, weights come from DRAM to a core, and from there to the others.
_LEAST_SPARE: Final = 4096


@dataclass(frozen=True, slots=True)
class _Ring:
    """Equal places through which a step's weights pass, the first one to be used, and where operands lie in a place.

    `offsets`: by operand, with the bytes there.
    """

    place_bytes: int
    count: int
    first: int
    offsets: Mapping[int, tuple[int, int]]


class PassingWeights(WeightBoxes):
    """The SRAM's slots for a group's weights, and the room through which those pass that have none there."""

    def __init__(self, lowering: GroupLowering) -> None:
        super().__init__(lowering)
        self.profile = lowering.profile
        self._unit_slots: dict[tuple[int, int], Slot] = {}
        self._lines: list[Slot] = []
        # beside the group's buffers: slots by unit, address and size, and how they take turns
        self._places: dict[tuple[int, int, int], Slot] = {}
        self._rings: dict[int, _Ring] | None = None

    @property
    def unit_level(self) -> Level | None:
        """The memory of a unit that weights wait in or pass through."""
        if self.profile.units.are_cores:
            return None
        return Level.SRAM if self.profile.units.weight_part_bytes is None else Level.SRAM_WEIGHTS

    def _lay_out_lines(self) -> None:
        """The slots of all units for what has no other room to pass."""
        level, buffers = self.unit_level, self.lowering.buffers
        if level is not None and buffers.size(level.value, PASSING_LINE):
            places = (buffers.place(level, unit) for unit in range(self.lowering.units))
            self._lines = [buffers.take(place, level.value, PASSING_LINE, ("line",)) for place in places]

    def _lay_out_unit(self, step: int, unit: int) -> None:
        level, buffers = self.unit_level, self.lowering.buffers
        if level is None:
            return
        place = buffers.place(level, unit)
        # what passes the buffer of all steps is what the planner made it for: resident weights may be larger
        passing = (f"{PASSING}{step}", PASSING) if self.group.passing_unit_bytes[step] else ()
        for name in (f"{WEIGHTS}{step}", *passing):
            if buffers.size(level.value, name):
                known = buffers.slots.get((place, ("unit weights", name)))
                self._unit_slots[step, unit] = known or buffers.take(place, level.value, name, ("unit weights", name))
                return

    def _passes_spare(self, step: int, unit: int, several: int) -> bool:
        """True if weights pass the SRAM outside the group's buffers: for several cores, if there is room."""
        level, lowering = self.unit_level, self.lowering
        if level is None or (step, unit) in self._unit_slots:
            return False
        room = lowering.spare_bytes(level)
        return not lowering.machine.has("iodma") or (several > 1 and room >= _LEAST_SPARE)

    def passing_bytes(self, level: Level) -> int:
        """What of a memory should be left beside the group's buffers for weights that pass it; 0 if none do."""
        lowering = self.lowering
        several = lowering.units * lowering.configuration.cores
        steps = [s for s in range(len(self._constants)) if self._constants[s] and self._passes_spare(s, 0, several)]
        if level is not self.unit_level or not steps:
            return 0
        largest = max(self.group.weights[step].size_bytes for step in steps)
        return max(_LEAST_SPARE, min(largest, lowering.spare_bytes(level) // 2))

    def _portions(self, operand: Operand, box: Box) -> list[Box]:
        """A box of weights cut into portions that each fit the room for what passes the SRAM."""
        level = self.unit_level
        room = 0 if level is None else max([self.lowering.spare_bytes(level), *(s.size_bytes for s in self._lines)])
        size = prod(stop - start for start, stop in box) * self.lowering.element(operand.tensor)
        if size <= room:
            return [box]
        axis = next((a for a in self.context.weight_order(operand.tensor) if box[a][1] - box[a][0] > 1), None)
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
        return [
            portion for half in halves for portion in self._portions(operand, (*box[:axis], half, *box[axis + 1 :]))
        ]

    def _spare(self, step: int, operand: Operand, box: Box, units: list[int], use: int, dealt: int) -> dict[int, Held]:
        """A place in the SRAM for weights that only pass it: what the plan leaves free, or the room that it keeps."""
        level = self.unit_level
        if level is None:
            raise AssertionError
        lowering, found = self.lowering, {}
        size = prod(stop - start for start, stop in box) * lowering.element(operand.tensor)
        is_beside = size <= lowering.spare_bytes(level)
        address = self._passing_address(level, step, operand, size, use) if is_beside else 0
        for unit in units:
            slot = self._beside(level, unit, address, size) if is_beside else self._lines[unit]
            found[unit] = self._held(slot, slot.address, operand, box)
        region = self.context.region(operand.tensor)
        lowering.deliver(region, [found[u] for u in units], units, box, lowering.element(operand.tensor), dealt)
        return found

    def _beside(self, level: Level, unit: int, address: int, size_bytes: int) -> Slot:
        """Bytes of a unit's memory beside the group's buffers."""
        key = (unit, address, size_bytes)
        found = self._places.get(key)
        if found is None:
            buffers = self.lowering.buffers
            found = self._places[key] = buffers.insert(buffers.place(level, unit), address, size_bytes)
        return found

    def _passing_address(self, level: Level, step: int, operand: Operand, size_bytes: int, use: int) -> int:
        """Where an operand passes beside the group's buffers: the places of its step take turns, by the use."""
        space, ring = self.lowering.twins(level), self._passing_rings(level)[step]
        begin, size = ring.offsets[operand.number]
        # portions of a box that exceeds the room may exceed their place: they lie at the begin
        at = (ring.first + use) % ring.count * ring.place_bytes + begin
        return space.begin + (at if size_bytes <= size else 0)

    def _passing_rings(self, level: Level) -> dict[int, _Ring]:
        """By step the free part of the SRAM as equal places, each for all that one use needs.

        A step begins where the one before it ends, so that nothing keeps its first uses waiting for those. The
        number of places divides the uses of two rounds, so that a use has the same place in every second round:
        statements have one address, or two in turn.
        """
        if self._rings is None:
            space, cores = self.lowering.twins(level), self.lowering.units * self.lowering.configuration.cores
            found, room, end = {}, space.left_bytes, 0
            for step in range(len(self._constants)):
                if not (self._passes_spare(step, 0, cores) or self._passes_spare(step, 0, 1)):
                    continue
                offsets: dict[int, tuple[int, int]] = {}
                largest = 1
                at = 0
                for operand, most in self._most_that_passes(step):
                    size = min(align_to_line(most), room)
                    at = at if at + size <= room else 0
                    offsets[operand.number] = (at, size)
                    at += size
                    largest = max(largest, at)
                uses = 2 * max(1, self._uses_in_a_round(step))
                count = next((n for n in range(min(room // largest, uses), 1, -1) if uses % n == 0), 1)
                first = ceil_div(end, largest) % count
                found[step] = _Ring(largest, count, first, offsets)
                if self._constants[step]:
                    end = (first + self._uses_in_a_round(step)) % count * largest
            self._rings = found
        return self._rings

    def _most_that_passes(self, step: int) -> list[tuple[Operand, int]]:
        """An op's weights and address tables, with the bytes of each that come at once."""
        op, group = self.group.geometry.ops[step], self.group
        extent = group.geometry.summed_extent
        is_parted = group.input_parts > 1 and op is group.geometry.product
        # what is added to the sums comes with the last part of them
        summed = (extent - ceil_div(extent, group.input_parts), extent) if is_parted else None
        most = {operand: self._bytes_of(operand, self._shape(operand)) for operand in self._tables[step]}
        for count in self._channels_at_once(step, op):
            for low, high in self.slices(step, (0, count)):
                for operand, box in self.boxes(step, (low, high), summed):
                    most[operand] = max(most.get(operand, 0), self._bytes_of(operand, lengths(box)))
        return list(most.items())

    def _channels_at_once(self, step: int, op: OpFacts) -> set[int]:
        """How many channels of an op are worked on together, and so cut into slices: a part, or a piece of a stage."""
        group, stage = self.group, self.group.stage_of[step]
        part = ceil_div(self._channels_of(op), group.slices * group.channel_parts)
        if stage is None or op.channel_axis is None:
            return {part}
        piece = min(part, max(1, stage[1].extents[op.channel_axis]))
        return {piece, min(piece, ceil_div(part, group.configuration.cores))}

    def _channels_of(self, op: OpFacts) -> int:
        return 1 if op.channel_axis is None else self.lowering.tensors[op.output].shape[op.channel_axis]

    def _uses_in_a_round(self, step: int) -> int:
        """How often weights of an op come in a round: slice by slice of its channels, or of each piece of them."""
        op, group = self.group.geometry.ops[step], self.group
        stage, channels = group.stage_of[step], self._channels_of(op)
        if stage is None or op.channel_axis is None:
            return group.weights[step].slices * group.channel_parts
        piece = max(1, stage[1].extents[op.channel_axis])
        return sum(len(self.slices(step, (at, min(at + piece, channels)))) for at in range(0, channels, piece))

    def _bytes_of(self, operand: Operand, sides: tuple[int, ...]) -> int:
        return prod(sides) * self.lowering.element(operand.tensor)

    def _held(self, slot: Slot, address: int, operand: Operand, box: Box) -> Held:
        sides = lengths(box)
        order = self.context.weight_order(operand.tensor)
        strides = strides_of(sides, order, self.lowering.element(operand.tensor))
        return Held(slot, address, tuple(start for start, _ in box), strides, box)
