"""How a group's weights come to its cores: once or again and again, all at once or slice by slice (TILE-6, TILE-7).

What is brought, where to, and into which of two slots follows from where weights wait and from the counters of a use,
never from what a slot happens to hold (SCHED-3). Weights that wait in a core come when the loop begins of which all
needs have a slot (`weight_reach.py`); the others pass it, and come with every use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from compiler.address.table import ENTRY_BYTES
from compiler.cost.rates import direct_is_as_wide
from compiler.errors import LimitError
from compiler.ops.slab import lengths
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At
from compiler.program.passing import PassingWeights
from compiler.program.peers import are_connected, from_peers, to_cores
from compiler.program.program import Level, Opcode
from compiler.program.residents import weight_level
from compiler.program.slots import Slot
from compiler.program.weight_reach import Content, Core, Lasting, Need, lasting
from compiler.tiling.memory import WEIGHTS
from compiler.tiling.tile import WeightHome
from compiler.tiling.weights import align

if TYPE_CHECKING:
    from compiler.program.group import GroupLowering

Bound = list[tuple[int, Held]]
# What a unit holds of weights: those of a range of channels, and of what is summed over.
_Whole = tuple[tuple[int, int], tuple[int, int] | None]
# Origin, strides and box of what lies in a slot.
_Laid = tuple[tuple[int, ...], tuple[int, ...], Box]


class GroupWeights(PassingWeights):
    """The weights of one group's ops in cores and SRAM."""

    def __init__(self, lowering: GroupLowering) -> None:
        super().__init__(lowering)
        self.emitter = lowering.emitter
        self._table_slots: dict[tuple[int, int, int], Slot] = {}
        self._bound_tables: dict[Slot, Bound] = {}
        self._bindings: dict[tuple[object, ...], Bound] = {}
        self._layouts: dict[Content, list[tuple[int, int, _Laid]]] = {}
        self._needed: dict[int, tuple[int, int] | None] = {}
        self._lasting: dict[int, Lasting | None] = {}
        self._lasting_in_units: dict[int, Lasting | None] = {}

    @property
    def core_level(self) -> Level:
        """The memory of a core that weights lie in."""
        return weight_level(self.profile)

    def lay_out(self) -> None:
        """Make the slots of all units and cores: in a core two halves where slices pass."""
        lowering, level = self.lowering, self.core_level
        self._lay_out_lines()
        for step in range(len(self._constants)):
            name = f"{WEIGHTS}{step}"
            size = lowering.buffers.size(level.value, name)
            weights = self.group.weights[step]
            room = size - weights.table_bytes
            second = self.group.second_weight_bytes(step) if self.group.doubles_weights else 0
            # how large a slot is, and how far behind the first one the second one begins
            part, skip, count = room - second, second, 2 if second else 1
            if self.group.homes[step] is not WeightHome.CORE and weights.slices > 1:
                skip = align(weights.staged_core_bytes - weights.table_bytes)
                part, count = (room - skip, 2) if weights.slice_buffers > 1 else (room, 1)
            for unit in range(lowering.units):
                for core in range(lowering.configuration.cores):
                    place = lowering.buffers.place(level, lowering.core_number(unit, core))
                    self._slots[step, unit, core] = [
                        lowering.buffers.take(
                            place, level.value, name, ("weights", step, half), weights.table_bytes + skip * half, part
                        )
                        for half in range(count)
                        if part
                    ]
                    if self._tables[step]:
                        slot = lowering.buffers.take(
                            place, level.value, name, ("addresses", step), 0, weights.table_bytes
                        )
                        self._table_slots[step, unit, core] = slot
                self._lay_out_unit(step, unit)

    # --- loading ------------------------------------------------------------------------------------------------------

    def bring_lasting(self, step: int, at: At) -> None:
        """Bring what an op's uses in a round and later ones find in place: to the SRAMs, and to the cores.

        It comes before the round's first use of the op's weights; `at`: the counters of that, or of any other.
        """
        if any(at[1:]):
            return
        if self._waits_in_unit(step):
            self._fill_units_lasting(step, at)
        if self._tables[step] and at[0] == 0 and self._tables_last(step):
            self._fill_tables(step, self.lowering.working_cores, at)
        lasting = self._lasting_of(step)
        if lasting is not None:
            brought = lasting.brought.get(at[0], {})
            for number, ((content, turn), cores) in enumerate(brought.items()):
                self._fill(step, cores, content, turn, at, at[0] * len(brought) + number, number)

    def bring_passing(self, step: int, at: At, needs: Sequence[Need], use: int, *, tables: bool) -> None:
        """Bring what comes with every use of an op's weights to the cores that are about to work.

        `use`: its number, by which slots take turns. With `tables` the op's address tables come, too, if they pass.
        """
        if not needs:
            return
        if self._constants[step] and self._waits_in_unit(step) and self._lasting_in_unit(step) is None:
            wholes = {unit: (need.whole, need.summed) for need in needs for unit in (need.core[0],)}
            self._fill_units(step, wholes, self._constants[step], at)
        if tables:
            self.bring_tables(step, at, list(dict.fromkeys(need.core for need in needs)), use)
        if self._lasting_of(step) is not None or not self._constants[step]:
            return
        # what comes to several cores at once lies at one address in all of them
        wanted: dict[tuple[Content, int], dict[Core, Need]] = {}
        for need in needs:
            slots = self._slots[step, *need.core]
            if slots:  # weights without elements take no room
                key = (self._content(step, need), use % len(slots))
                wanted.setdefault(key, {})[need.core] = need
        for number, ((content, turn), its) in enumerate(wanted.items()):
            need = next(iter(its.values()))
            self._fill(step, list(its), content, turn, at, use * len(wanted) + number, number, need)

    def bring_tables(self, step: int, at: At, cores: list[Core], use: int = 0) -> None:
        """Bring an op's address tables to cores that are about to work, if they pass these."""
        if cores and self._tables[step] and not self._tables_last(step):
            self._fill_tables(step, cores, at, use)

    def bound(self, step: int, need: Need, number: int, use: int) -> Bound:
        """Where in a core the weights of a use lie, its address tables before them; `number`: of its round."""
        found: Bound = []
        if self._tables[step]:
            found += self._tables_in(step, self._table_slots[step, *need.core])
        if self.group.weights_in_place:
            weights = self._weights_of(self.group.geometry.ops[step])
            in_place = self._boxes_of(weights, step, need.channels, need.summed)
            return found + self._in_place(need.core, in_place)
        content, slots = self._content(step, need), self._slots[step, *need.core]
        boxes = self.boxes(*content)
        if not boxes or not slots:
            return found
        lasting = self._lasting_of(step)
        turn = use % len(slots) if lasting is None else lasting.turn(number, need.core, content)
        held = self._bound(slots[turn], content, boxes)
        if content[1] == need.channels:
            return found + held if found else held
        wanted = {operand.number: box for operand, box in self.boxes(step, need.channels, need.summed)}
        return found + [(operand, its.part(wanted[operand])) for operand, its in held]

    def _content(self, step: int, need: Need) -> Content:
        return step, self._staying(step, need.channels), need.summed

    def may_last(self, step: int) -> bool:
        """False for an op without anything that `bring_lasting` brings."""
        return bool(self._tables[step]) or self._waits_in_unit(step) or self._lasting_of(step) is not None

    def may_pass(self, step: int) -> bool:
        """False for an op without anything that `bring_passing` brings."""
        return bool(self._tables[step]) or (bool(self._constants[step]) and self._lasting_of(step) is None)

    # --- what lasts ---------------------------------------------------------------------------------------------------

    def _waits_in_unit(self, step: int) -> bool:
        """True if an op's weights wait in the SRAM."""
        return self.group.homes[step] is WeightHome.SRAM and (step, 0) in self._unit_slots

    def _tables_last(self, step: int) -> bool:
        """True if address tables stay in the cores: beside weights that wait there, or are not brought at all."""
        return self.group.homes[step] is WeightHome.CORE or self.group.weights_in_place

    def _lasting_of(self, step: int) -> Lasting | None:
        """When which weights come to the cores, where they last longer than a use; None where they pass."""
        if step not in self._lasting:
            waits = self.group.homes[step] is WeightHome.CORE and self._constants[step] and self._slots[step, 0, 0]
            self._lasting[step] = self._new_lasting(step) if waits else None
        return self._lasting[step]

    def _new_lasting(self, step: int) -> Lasting | None:
        slots, lowering = len(self._slots[step, 0, 0]), self.lowering
        is_parted = self.group.input_parts > 1 and self.group.geometry.ops[step] is self.group.geometry.product
        low_high = self._all_needed(step)
        if low_high is not None and not is_parted:
            # all uses need the same
            return Lasting.of_one((step, low_high, None), lowering.working_cores)
        kinds, needs = lowering.needs(step)
        uses = {kind: [(need.core, self._content(step, need)) for need in its] for kind, its in needs.items()}
        return lasting(kinds, uses, slots, lowering.slice_numbers)

    def _lasting_in_unit(self, step: int) -> Lasting | None:
        """The same of weights that wait in the SRAM: all that a unit's cores need of them at once."""
        if step not in self._lasting_in_units:
            kinds, needs = self.lowering.needs(step)
            uses = {
                kind: [((need.core[0], 0), (step, need.whole, need.summed)) for need in its]
                for kind, its in needs.items()
            }
            self._lasting_in_units[step] = lasting(kinds, uses, 1, self.lowering.slice_numbers)
        return self._lasting_in_units[step]

    def _fill_units_lasting(self, step: int, at: At) -> None:
        """Bring to the SRAMs what lasts there: address tables once, weights when their loop begins."""
        if at[0] == 0 and self._tables[step]:
            units = dict.fromkeys(unit for unit, _ in self.lowering.working_cores)
            self._fill_units(step, dict.fromkeys(units, ((0, 0), None)), self._tables[step], at)
        found = self._lasting_in_unit(step) if self._constants[step] else None
        for ((_, whole, summed), _), cores in (found.brought.get(at[0], {}) if found else {}).items():
            self._fill_units(step, {unit: (whole, summed) for unit, _ in cores}, self._constants[step], at)

    def _fill_units(self, step: int, wholes: Mapping[int, _Whole], operands: Sequence[Operand], at: At) -> None:
        """Bring an op's weights or address tables to where they wait in the SRAMs of units."""
        lowering = self.lowering
        cores = {core for unit in wholes for core in lowering.cores_of(unit)}
        for number, operand in enumerate(operands):
            if self._come_from_peers(operand, tuple((0, extent) for extent in self._shape(operand)), cores):
                continue
            targets: dict[Box, dict[int, Held]] = {}
            for unit, (whole, summed) in wholes.items():
                place, box = self._in_unit(step, operand, whole, summed)
                if box is not None and not is_empty(box):
                    slot = self._unit_slots[step, unit]
                    targets.setdefault(box, {})[unit] = self._held(slot, slot.address + place, operand, box)
            region = self.context.region(operand.tensor)
            for box, its in targets.items():
                dealt = self._dealt(step, number, at)
                lowering.deliver(region, list(its.values()), list(its), box, lowering.element(operand.tensor), dealt)

    def _dealt(self, step: int, number: int, at: At) -> int:
        """Whose turn it is to load an op's operand of a number for all that need it."""
        lowering = self.lowering
        return lowering.turn(len(self.group.geometry.inputs) + step, at) + number

    def _staying(self, step: int, channels: tuple[int, int]) -> tuple[int, int]:
        """The range of an op's channels whose weights come with those of `channels`.

        Of weights that wait whole in every core it is all that any tile needs: a tile's position may say which channels
        of an op it makes. Of weights that follow no channels it is all, for each needs the same.
        """
        if step not in self._needed:
            self._needed[step] = self._all_needed(step)
        low, high = self._needed[step] or channels
        return min(channels[0], low), max(channels[1], high)

    def _all_needed(self, step: int) -> tuple[int, int] | None:
        """As `_staying`, whatever the channels; None if these decide what comes."""
        op, group = self.group.geometry.ops[step], self.group
        if op.channel_axis is None or not self._constants[step]:
            return None
        if all(self._channel_axis(step, operand) is None for operand in self._constants[step]):
            return 0, self.lowering.tensors[op.output].shape[op.channel_axis]
        if group.homes[step] is not WeightHome.CORE or group.slices * group.channel_parts > 1:
            return None
        _, starts, stops = group.core_frustums.boxes[op.output][op.channel_axis]
        return int(starts.min()), int(stops.max())

    def _fill_tables(self, step: int, cores: list[Core], at: At, use: int = 0) -> None:
        """Bring an op's address tables to cores."""
        bound = {core: self._tables_in(step, self._table_slots[step, *core]) for core in cores}
        for number, operand in enumerate(self._tables[step]):
            targets = {core: bound[core][number][1] for core in cores}
            self._bring(step, operand, targets[cores[0]].box, targets, None, use, self._dealt(step, number, at))

    def _tables_in(self, step: int, slot: Slot) -> Bound:
        """Where an op's address tables lie in a core's slot, one after another."""
        found = self._bound_tables.get(slot)
        if found is None:
            found, at = [], slot.address
            for operand in self._tables[step]:
                (words,) = self._shape(operand)
                found.append((operand.number, Held(slot, at, (0,), (ENTRY_BYTES,), ((0, words),))))
                at += words * ENTRY_BYTES
            self._bound_tables[slot] = found
        return found

    def _fill(
        self,
        step: int,
        cores: list[Core],
        content: Content,
        turn: int,
        at: At,
        use: int,
        dealt: int,
        need: Need | None = None,
    ) -> None:
        """Bring boxes of an op's weights to a slot of each of these cores.

        `use`: its number among all; `dealt`: how many contents come before it in the same step; `need`: of a use for
        which they come.
        """
        boxes = self.boxes(*content)
        bound = {core: self._bound(self._slots[step, *core][turn], content, boxes) for core in cores}
        brought = set()
        filled = [(operand, box) for operand, box in boxes if not is_empty(box)]
        for number, (operand, box) in enumerate(filled):
            if (operand.tensor, box) not in brought:
                brought.add((operand.tensor, box))
                targets = {core: bound[core][number][1] for core in cores}
                its = self._dealt(step, dealt * len(filled) + number, at)
                self._bring(step, operand, box, targets, need, use, its)

    def _bound(self, slot: Slot, content: Content, boxes: list[tuple[Operand, Box]]) -> Bound:
        """Where boxes of an op's weights lie in a core's slot, one after another."""
        key = (slot, *content)
        found = self._bindings.get(key)
        if found is not None:
            return found
        layout = self._layouts.get(content)
        if layout is None:
            layout = self._layouts[content] = self._layout(content[0], slot, boxes)
        here = [(number, Held(slot, slot.address + at, *rest)) for number, at, rest in layout]
        self._bindings[key] = here
        return here

    def _layout(self, step: int, slot: Slot, boxes: list[tuple[Operand, Box]]) -> list[tuple[int, int, _Laid]]:
        """Operands' numbers and how their boxes lie behind one another; all slots of a step are of one size."""
        found: list[tuple[int, int, _Laid]] = []
        end = 0
        for operand, box, at in self._behind_one_another(boxes):
            held = self._held(slot, at, operand, box)
            found.append((operand.number, at, (held.origin, held.strides, box)))
            end = max(end, at + prod(lengths(box)) * self.lowering.element(operand.tensor))
        if end > slot.size_bytes:
            raise LimitError(
                "the weights of an op exceed the buffer that the plan has for them",
                code="weights_do_not_fit",
                stage="lower",
                node=self.context.graph.ops[self.group.geometry.ops[step].index].node,
                actual=end,
                limit=slot.size_bytes,
            )
        return found

    def _behind_one_another(self, boxes: list[tuple[Operand, Box]]) -> Iterator[tuple[Operand, Box, int]]:
        """Boxes of weights and where they begin; what several operands read lies once, what is empty nowhere."""
        known: dict[tuple[str, Box], int] = {}
        end = 0
        for operand, box in boxes:
            if not is_empty(box):
                at = known.setdefault((operand.tensor, box), end)
                yield operand, box, at
                end = max(end, at + prod(lengths(box)) * self.lowering.element(operand.tensor))

    def _in_place(self, core: Core, boxes: list[tuple[Operand, Box]]) -> Bound:
        """Stationary weights that lie where they are used."""
        number = self.lowering.core_number(*core)
        found: Bound = []
        for operand, box in boxes:
            for owner, held in self.context.residents.get(operand.tensor, []):
                part = overlap(held.box, box) if owner == number else None
                if part is not None:
                    found.append((operand.number, held.part(part)))
        return found

    def _bring(
        self,
        step: int,
        operand: Operand,
        box: Box,
        targets: dict[Core, Held],
        need: Need | None,
        use: int,
        dealt: int,
    ) -> None:
        """Bring a box of an operand to cores, by the way that the chip and the plan have for it."""
        element = self.lowering.element(operand.tensor)
        receivers = {self.lowering.core_number(*core): held for core, held in targets.items()}
        if self._come_from_peers(operand, box, receivers):
            from_peers(self.emitter, self.context.residents[operand.tensor], box, receivers, element)
            return
        region = self.context.region(operand.tensor)
        if self.unit_level is None:
            units = [unit for unit, _ in targets]
            self.lowering.deliver(region, list(targets.values()), units, box, element, dealt)
            return
        if len(targets) == 1 and self._goes_directly(step):
            (((unit, core), target),) = targets.items()
            queue = self.lowering.queue("iodma", self.lowering.core_number(unit, core))
            self.emitter.copy(Opcode.LOAD, queue, region, target, box, element)
            return
        units = sorted({unit for unit, _ in targets})
        if (step, units[0]) in self._unit_slots:
            self._to_all_cores(self._in_units(step, operand, box, units, need, dealt), targets, box, element)
        elif self._passes_spare(step, units[0], len(targets)):
            for number, portion in enumerate(self._portions(operand, box), use):
                staged = self._spare(step, operand, portion, units, number, dealt)
                self._to_all_cores(staged, targets, portion, element)
        else:
            self._directly(region, targets, box, element, dealt)

    def _come_from_peers(self, operand: Operand, box: Box, receivers: Collection[int]) -> bool:
        """True for a box of stationary weights of which each part has a way from its core to all receivers."""
        residents = self.context.residents.get(operand.tensor)
        return residents is not None and are_connected(self.lowering.machine, residents, box, receivers)

    def _to_all_cores(self, staged: dict[int, Held], targets: dict[Core, Held], box: Box, element: int) -> None:
        for unit, source in staged.items():
            its = {core: held for (other, core), held in targets.items() if other == unit}
            self.to_cores(source, unit, list(its), list(its.values()), box, element)

    def _directly(self, region: Held, targets: dict[Core, Held], box: Box, element: int, dealt: int) -> None:
        """From DRAM to cores without a stay in the SRAM: read once for all that can get it from each other."""
        lowering, cores = self.lowering, list(targets)
        first = dealt % len(cores)
        left = {core: targets[core] for core in (*cores[first:], *cores[:first])}
        while left:
            reader = next(iter(left))
            number, source = lowering.core_number(*reader), left.pop(reader)
            self.emitter.copy(Opcode.LOAD, lowering.queue("iodma", number), region, source, box, element)
            ways: dict[int, list[Core]] = {}
            for core in left:
                queue = lowering.between_cores(number, lowering.core_number(*core))
                if queue is not None:
                    ways.setdefault(queue, []).append(core)
            for queue, cores in ways.items():
                lowering.send(source, [(left.pop(core), box) for core in cores], queue, element)

    def _goes_directly(self, step: int) -> bool:
        """True if what one core needs alone is loaded by its own engine: nobody else reads it in the SRAM (TILE-7)."""
        if self.group.homes[step] is WeightHome.SRAM or not self.lowering.machine.has("iodma"):
            return False
        return direct_is_as_wide(self.profile, self.lowering.units, self.lowering.configuration.cores)

    def to_cores(self, source: Held, unit: int, cores: list[int], targets: list[Held], box: Box, element: int) -> None:
        """From a unit's SRAM to its cores: by the bus to several at once, else by each core's own engine."""
        numbers = [self.lowering.core_number(unit, core) for core in cores]
        to_cores(self.emitter, unit, source, dict(zip(numbers, targets, strict=True)), box, element)

    def _in_units(
        self, step: int, operand: Operand, box: Box, units: list[int], need: Need | None, dealt: int
    ) -> dict[int, Held]:
        """Where an operand's box lies in the SRAM of each unit: where it waits, else in the buffer that it passes."""
        lowering, found = self.lowering, {}
        if self.group.homes[step] is WeightHome.SRAM:
            whole, summed = ((0, 0), None) if need is None else (need.whole, need.summed)
            place, its = self._in_unit(step, operand, whole, summed)
            assert its is not None
            slots = ((unit, self._unit_slots[step, unit]) for unit in units)
            return {unit: self._held(slot, slot.address + place, operand, its) for unit, slot in slots}
        for unit in units:
            slot = self._unit_slots[step, unit]
            found[unit] = self._held(slot, slot.address, operand, box)
        region, element = self.context.region(operand.tensor), lowering.element(operand.tensor)
        lowering.deliver(region, list(found.values()), units, box, element, dealt)
        return found

    def _in_unit(
        self, step: int, operand: Operand, whole: tuple[int, int], summed: tuple[int, int] | None
    ) -> tuple[int, Box | None]:
        """Where in a unit's slot an address table or weight lies, and what of it: of weights the unit's channels."""
        at = 0
        for table in self._tables[step]:
            if table is operand:
                return at, ((0, self._shape(table)[0]),)
            at += self._shape(table)[0] * ENTRY_BYTES
        first = self.group.weights[step].table_bytes
        for other, its, place in self._behind_one_another(self.boxes(step, whole, summed)):
            if other is operand:
                return first + place, its
        return 0, None
