"""Weights on their way through the SRAM to the cores, where they do not wait there (TILE-7)."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Final

from compiler.errors import LimitError
from compiler.ir.layout import strides_of
from compiler.ops.slab import lengths
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held
from compiler.program.program import Level
from compiler.program.slots import Slot
from compiler.program.twins import align_to_line
from compiler.program.weight_boxes import WeightBoxes
from compiler.tiling.memory import PASSING, PASSING_LINE, WEIGHTS
from compiler.tiling.tile import WeightHome

if TYPE_CHECKING:
    from compiler.program.group import GroupLowering

# With less room than this beside a group's buffers, weights come from DRAM to a core, and from there to the others.
_LEAST_SPARE: Final = 4096
# In how many places what passes the SRAM takes turns: a loop whose period is longer is no loop (SCHED-2).
_PASSING_PLACES: Final = 4


class PassingWeights(WeightBoxes):
    """The SRAM's slots for a group's weights, and the room through which those pass that have none there."""

    def __init__(self, lowering: GroupLowering) -> None:
        super().__init__(lowering)
        self.profile = lowering.profile
        self._unit_slots: dict[tuple[int, int], Slot] = {}
        self._lines: list[Slot] = []
        # beside the group's buffers: slots by unit, address and size, and where operands pass
        self._places: dict[tuple[int, int, int], Slot] = {}
        self._operand_places: dict[tuple[int, int], tuple[int, int, int, int]] | None = None

    @property
    def unit_level(self) -> Level | None:
        """The memory of a unit that weights wait in or pass through."""
        sram = self.profile.sram
        if sram is None:
            return None
        return Level.SRAM if sram.weight_bytes is None else Level.SRAM_WEIGHTS

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
        """A box of weights in portions of which each may pass through the SRAM at once."""
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
            slot.begin()
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
        """Where one operand passes beside the group's buffers: in places of its own that take turns, by the use."""
        begin, size, skip, count = self._passing_places(level)[step, operand.number]
        # portions of a box that exceeds the room may exceed its place: they lie at the begin
        return begin + use % count * skip if size_bytes <= size else self.lowering.twins(level).begin

    def _passing_places(self, level: Level) -> dict[tuple[int, int], tuple[int, int, int, int]]:
        """By step and operand: the address of its first place, its bytes, how far it is to the next one, and how many.

        The places of one step after the other fill the room, and begin anew where it ends: nothing keeps the first
        ones of a step waiting for the last ones of the step before.
        """
        if self._operand_places is None:
            space, cores = self.lowering.twins(level), self.lowering.units * self.lowering.configuration.cores
            found, at = {}, space.begin
            for step in range(len(self._constants)):
                if not (self._passes_spare(step, 0, cores) or self._passes_spare(step, 0, 1)):
                    continue
                sizes = [(o.number, min(align_to_line(s), space.left_bytes)) for o, s in self._most_that_passes(step)]
                skip = min(sum(size for _, size in sizes), space.left_bytes)
                count = max(1, min(_PASSING_PLACES, space.left_bytes // max(1, skip)))
                if at + count * skip > space.end:
                    at = space.begin
                end = at + skip
                for number, size in sizes:
                    begin = min(at, end - size) if size <= skip else at
                    found[step, number] = (begin, size, skip, count)
                    at = begin + size
                at = end + (count - 1) * skip
            self._operand_places = found
        return self._operand_places

    def _most_that_passes(self, step: int) -> list[tuple[Operand, int]]:
        """An op's weights and address tables, with the most of each that comes at once."""
        weights = self.group.weights[step]
        home = self.group.homes[step]
        most = (weights.core_bytes if home is WeightHome.CORE else weights.staged_core_bytes) - weights.table_bytes
        found = []
        for operand in (*self._tables[step], *self._constants[step]):
            size = prod(self._shape(operand)) * self.lowering.element(operand.tensor)
            found.append((operand, size if operand in self._tables[step] else min(size, most)))
        return found

    def _held(self, slot: Slot, address: int, operand: Operand, box: Box) -> Held:
        sides = lengths(box)
        order = self.context.weight_order(operand.tensor)
        strides = strides_of(sides, order, self.lowering.element(operand.tensor))
        return Held(slot, address, tuple(start for start, _ in box), strides, box)
