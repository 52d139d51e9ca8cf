"""How a group's weights come to its cores: once or again and again, all at once or slice by slice (TILE-6, TILE-7).

Whether something has to be loaded is not planned here but seen: a slot says what it holds, and forgets it when a buffer
that shares its bytes is written. So weights that have room to wait are loaded once, and the others whenever they are
needed again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import TYPE_CHECKING

from compiler.address.table import ENTRY_BYTES
from compiler.cost.rates import direct_is_as_wide
from compiler.errors import InternalError, LimitError
from compiler.ops.slab import lengths
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.passing import PassingWeights
from compiler.program.peers import are_connected, from_peers, to_cores
from compiler.program.program import Level, Opcode
from compiler.program.residents import weight_level
from compiler.program.slots import Slot
from compiler.program.twins import Turns
from compiler.tiling.memory import WEIGHTS
from compiler.tiling.tile import WeightHome
from compiler.tiling.weights import align

if TYPE_CHECKING:
    from compiler.program.group import GroupLowering

Bound = list[tuple[int, Held]]
Core = tuple[int, int]
# What a core's slot holds: of a step's weights what a range of channels, and of what is summed over, needs.
_Content = tuple[int, tuple[int, int], tuple[int, int] | None]
# Origin, strides and box of what lies in a slot.
_Laid = tuple[tuple[int, ...], tuple[int, ...], Box]


class GroupWeights(PassingWeights):
    """The weights of one group's ops in cores and SRAM."""

    def __init__(self, lowering: GroupLowering) -> None:
        super().__init__(lowering)
        self.emitter = lowering.emitter
        self._holders: dict[int, list[tuple[Core, list[Slot]]]] = {}
        self._table_slots: dict[tuple[int, int, int], Slot] = {}
        self._table_holders: dict[int, list[tuple[Core, Slot]]] = {}
        self._bound_tables: dict[Slot, Bound] = {}
        self._bindings: dict[tuple[object, ...], Bound] = {}
        self._layouts: dict[_Content, list[tuple[int, int, _Laid]]] = {}
        self._needed: dict[int, tuple[int, int] | None] = {}
        self._whole = (0, 0)
        self._turns = Turns()
        # how often each unit passed weights on to a core
        self._passed_by: dict[int, int] = {}
        self._summed: tuple[int, int] | None = None

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
                part, count = room - skip, 2
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
                        self._table_holders.setdefault(step, []).append(((unit, core), slot))
                    self._holders.setdefault(step, []).append(((unit, core), self._slots[step, unit, core]))
                self._lay_out_unit(step, unit)

    # --- loading ------------------------------------------------------------------------------------------------------

    def ensure(
        self,
        step: int,
        cores: list[Core],
        channels: tuple[int, int],
        whole: tuple[int, int] | None = None,
        summed: tuple[int, int] | None = None,
    ) -> dict[Core, Bound]:
        """Bring what a range of an op's output channels needs to all of these cores; where it lies in each.

        Slices that pass use two slots in turn. `whole` is the range that the cores' units work on
        together: what waits in the SRAM is loaded for all of it. `summed`: the part of the summed axis that is worked
        on.
        """
        self._whole = whole or channels
        self._summed = summed
        bound = self.ensure_tables(step, cores)
        stays = self._staying(step, channels)
        for core, held in self._ensure(step, cores, stays, summed).items():
            if stays != channels:
                wanted = {operand.number: box for operand, box in self.boxes(step, channels, summed)}
                held = [(number, found.part(wanted[number])) for number, found in held]
            bound[core] = [*bound[core], *held]
        return bound

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

    def ensure_tables(self, step: int, cores: list[Core]) -> dict[Core, Bound]:
        """Bring an op's address tables to all of these cores; where they lie in each."""
        tables = self._tables[step]
        bound: dict[Core, Bound] = {core: [] for core in cores}
        lacking = []
        for core in cores if tables else ():
            slot = self._table_slots[step, *core]
            bound[core] = self._tables_in(step, slot)
            if slot.content != ("addresses", step):
                slot.begin(("addresses", step))
                lacking.append(core)
        holders = self._table_holders.get(step, ())
        if lacking and not self._from_holder(step, holders, lacking, bound, ("addresses", step)):
            self.emitter.step = self.lowering.step_of[self.group.geometry.ops[step].index]
            for number, operand in enumerate(tables):
                targets = {core: bound[core][number][1] for core in lacking}
                self._bring(step, operand, targets[lacking[0]].box, targets)
        return bound

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

    def _ensure(
        self, step: int, cores: list[Core], channels: tuple[int, int], summed: tuple[int, int] | None
    ) -> dict[Core, Bound]:
        boxes = self.boxes(step, channels, summed)
        bound: dict[Core, Bound] = {core: [] for core in cores}
        if self.group.weights_in_place:
            in_place = self._boxes_of(self._weights_of(self.group.geometry.ops[step]), step, channels, summed)
            return {core: self._in_place(core, in_place) for core in cores}
        if not boxes:
            return bound
        content = (step, channels, summed)
        # what comes to several cores at once lies at one address in all of them: hence by which slot they have for it
        lacking: dict[int, list[Core]] = {}
        for core in cores:
            slots = self._slots[step, *core]
            if not slots:
                # weights without elements take no room
                continue
            turn = next((turn for turn, slot in enumerate(slots) if slot.content == content), None)
            if turn is None:
                turn = self._turns.next((step, core), range(len(slots)))
                lacking.setdefault(turn, []).append(core)
            bound[core] = self._bound(slots[turn], content, boxes)
        for turn, mine in lacking.items():
            for core in mine:
                self._slots[step, *core][turn].begin(content)
            self._fill(step, mine, bound, content, boxes)
        return bound

    def _fill(
        self,
        step: int,
        lacking: list[Core],
        bound: dict[Core, Bound],
        content: _Content,
        boxes: list[tuple[Operand, Box]],
    ) -> None:
        """Bring boxes of an op's weights to cores that lack them: from who has them, else from where they wait."""
        holders = ((core, slot) for core, slots in self._holders.get(step, ()) for slot in slots)
        if self._from_holder(step, holders, lacking, bound, content):
            return
        self.emitter.step = self.lowering.step_of[self.group.geometry.ops[step].index]
        filled = [(operand, box) for operand, box in boxes if not is_empty(box)]
        brought = set()
        for number, (operand, box) in enumerate(filled):
            if (operand.tensor, box) not in brought:
                brought.add((operand.tensor, box))
                self._bring(step, operand, box, {core: bound[core][number][1] for core in lacking})

    def _bound(self, slot: Slot, content: _Content, boxes: list[tuple[Operand, Box]]) -> Bound:
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

    def _from_holder(
        self,
        step: int,
        holders: Iterable[tuple[Core, Slot]],
        lacking: list[Core],
        bound: dict[Core, Bound],
        content: object,
    ) -> bool:
        """Pass on what a core holds already; False if none of `holders` does, or if there is no way from it.

        Of several the one that has passed on least so far.
        """
        having = [(holder, slot) for holder, slot in holders if slot.content == content and holder not in lacking]
        if not having:
            return False
        holder, source = min(having, key=lambda entry: self._passed_by.get(entry[0][0], 0))
        sender = self.lowering.core_number(*holder)
        ways: dict[int, list[Core]] = {}
        for core in lacking:
            queue = self.lowering.between_cores(sender, self.lowering.core_number(*core))
            if queue is None:
                return False
            ways.setdefault(queue, []).append(core)
        self.emitter.step = self.lowering.step_of[self.group.geometry.ops[step].index]
        for queue, cores in ways.items():
            sent = set()
            for entry, (number, held) in enumerate(bound[cores[0]]):
                if held.address in sent:
                    continue  # another operand reads the same
                sent.add(held.address)
                at = held.address - held.slot.address + source.address
                mine = Held(source, at, held.origin, held.strides, held.box)
                targets = [(bound[core][entry][1], held.box) for core in cores]
                self.lowering.send(mine, targets, queue, self._element_of(step, number))
        self._passed_by[holder[0]] = self._passed_by.get(holder[0], 0) + len(lacking)
        return True

    def _element_of(self, step: int, number: int) -> int:
        both = (*self._constants[step], *self._tables[step])
        operand = next(operand for operand in both if operand.number == number)
        return self.lowering.element(operand.tensor)

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

    def _bring(self, step: int, operand: Operand, box: Box, targets: dict[Core, Held]) -> None:
        element = self.lowering.element(operand.tensor)
        residents = self.context.residents.get(operand.tensor)
        receivers = {self.lowering.core_number(*core): held for core, held in targets.items()}
        if residents is not None and are_connected(self.lowering.machine, residents, box, receivers):
            from_peers(self.emitter, residents, box, receivers, element)
            return
        region = self.context.region(operand.tensor)
        if self.unit_level is None:
            units = [unit for unit, _ in targets]
            self.lowering.deliver(region, list(targets.values()), units, box, element)
            return
        if len(targets) == 1 and self._goes_directly(step):
            (((unit, core), target),) = targets.items()
            queue = self.lowering.queue("iodma", self.lowering.core_number(unit, core))
            self.emitter.copy(Opcode.LOAD, queue, region, target, box, element)
            return
        units = sorted({unit for unit, _ in targets})
        half = self._halves(operand, box) if self._passes_spare(step, units[0], len(targets)) else None
        if half is not None:
            for part in half:
                self._bring(step, operand, part, targets)
            return
        staged = self._through_sram(step, operand, box, units, region, len(targets))
        if staged is None:
            self._directly(region, targets, box, element)
            return
        for unit in units:
            held = [h for (u, _), h in targets.items() if u == unit]
            cores = [core for (u, core) in targets if u == unit]
            self.to_cores(staged[unit], unit, cores, held, box, element)

    def _directly(self, region: Held, targets: dict[Core, Held], box: Box, element: int) -> None:
        """From DRAM to cores without a stay in the SRAM: read once for all that can get it from each other."""
        lowering, left = self.lowering, dict(targets)
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

    def _through_sram(
        self, step: int, operand: Operand, box: Box, units: list[int], region: Held, several: int
    ) -> dict[int, Held] | None:
        """Where a weight's box lies in each unit's SRAM, loaded if it does not yet; None if it goes to cores directly.

        `several`: how many cores need the box. Weights that wait in the SRAM are loaded whole, as far as the unit needs
        them.
        """
        lowering = self.lowering
        if (step, units[0]) not in self._unit_slots:
            if self._passes_spare(step, units[0], several):
                return self._spare(operand, box, units, region)
            return None
        waits = self.group.homes[step] is WeightHome.SRAM
        found, lacking = {}, []
        for unit in units:
            slot = self._unit_slots[step, unit]
            at, its = self._in_unit(step, operand) if waits else (0, box)
            found[unit] = self._held(slot, slot.address + at, operand, its)
            content = (step, operand.number, (self._whole, self._summed) if waits else box)
            known = slot.content if isinstance(slot.content, frozenset) else frozenset()
            if content not in known:
                same_step = {
                    entry for entry in known if waits and entry[0] == step and entry[2] == (self._whole, self._summed)
                }
                if not same_step:
                    slot.begin()
                slot.content = frozenset({*same_step, content})
                lacking.append(unit)
        if lacking:
            its = found[lacking[0]].box
            lowering.deliver(region, [found[unit] for unit in lacking], lacking, its, lowering.element(operand.tensor))
        return found

    def _in_unit(self, step: int, operand: Operand) -> tuple[int, Box]:
        """Where in a unit's slot an address table or weight lies, and what of it: of weights the unit's channels."""
        at = 0
        for table in self._tables[step]:
            if table is operand:
                return at, ((0, self._shape(table)[0]),)
            at += self._shape(table)[0] * ENTRY_BYTES
        first = self.group.weights[step].table_bytes
        for other, its, at in self._behind_one_another(self.boxes(step, self._whole, self._summed)):
            if other is operand:
                return first + at, its
        raise InternalError("a unit is asked for what it does not hold", stage="lower", node=operand.tensor)
