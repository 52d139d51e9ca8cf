"""How a group's weights come to its cores: once or again and again, all at once or slice by slice (TILE-6, TILE-7).

What is brought, where to, and into which of two slots follows from where weights wait and from the counters of a use,
never from what a slot happens to hold (SCHED-3). Weights that wait in a core come when the loop begins of which all
needs have a slot (`weight_reach.py`); the others pass it, and come with every use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Final, Protocol

from compiler.address.table import ENTRY_BYTES
from compiler.cost.rates import direct_is_as_wide, dram_port_bytes_per_cycle, dram_startup_cycles
from compiler.errors import LimitError
from compiler.ops.slab import lengths
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.peers import are_connected, between_cores, deliver, from_peers, send, to_cores
from compiler.program.program import Opcode
from compiler.program.slots import Slot
from compiler.program.unit_calls import Bound
from compiler.program.weight_boxes import PassingWeights, WeightBoxes
from compiler.program.weight_reach import Content, Core, Lasting, Need, Needs, Use, lasting
from compiler.tiling.stationary import part_of
from compiler.tiling.tile import WeightHome

# In so many parts weights come at most that are brought while others are worked with.
_PARTS_MAX: Final = 8
# What a unit holds of weights: those of a range of channels, and of what is summed over.
_Whole = tuple[tuple[int, int], tuple[int, int] | None]
# Origin, strides and box of what lies in a slot.
_Laid = tuple[tuple[int, ...], tuple[int, ...], Box]


class WeightUses(Protocol):
    """Who needs which weights when."""

    @property
    def round_kinds(self) -> Sequence[int]:
        """By round its kind: rounds of one kind need the same weights."""

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the uses of an op's weights in a round need, in order."""


class GroupWeights:
    """The weights of one group's ops in cores and SRAM."""

    def __init__(self, located: Located, boxes: WeightBoxes, passing: PassingWeights, uses: WeightUses) -> None:
        self._located = located
        self._group = located.group
        self._boxes = boxes
        self._passing = passing
        self._uses = uses
        self._bound_tables = Known(self._new_bound_tables)
        self._bindings = Known(self._new_bound)
        self._layouts = Known(self._layout)
        # by step what all uses need; when which weights come that last longer than a use: to cores, and to SRAMs
        self._needed = Known(self._all_needed)
        self._lasting = Known(self._new_lasting)
        self._lasting_in_units = Known(self._new_lasting_in_unit)
        self._lasting_parts = Known(self._new_lasting_parts)

    # --- loading ------------------------------------------------------------------------------------------------------

    def lasting_parts(self, step: int) -> int:
        """In how many parts weights come to the cores that last for some rounds, and alternate between two slots.

        While those of one pass are worked with those of the next one come. In one transfer they would keep the engine
        from the tiles that it loads meanwhile. A part takes at least as long as its start-up.
        """
        return self._lasting_parts[step]

    def _new_lasting_parts(self, step: int) -> int:
        lasting, slots = self._lasting[step], self._boxes.slots[step, 0, 0]
        if lasting is None or lasting.passes is None or self._passing.level is not None or len(slots) < 2:
            return 1
        profile = self._located.profile
        least = max(1.0, dram_startup_cycles(profile) * dram_port_bytes_per_cycle(profile, self._located.units))
        rounds = len(lasting.passes) // (1 + max(lasting.passes))
        return max(1, min(_PARTS_MAX, rounds, int(slots[0].size_bytes * self._located.units / least)))

    def bring_lasting(self, step: int, part: int, at: At) -> None:
        """Bring what an op's uses in a round and later ones find in place: to the SRAMs, and to the cores.

        It comes before the round's first use of the op's weights; `at`: the counters of that, or of any other. `part`:
        of what comes to the cores in parts.
        """
        if any(at[1:]):
            return
        if self._waits_in_unit(step) and part == 0:
            self._fill_units_lasting(step, at)
        if self._boxes.tables[step] and at[0] == 0 and self._tables_last(step) and part == 0:
            self._fill_tables(step, self._located.working_cores, at)
        lasting = self._lasting[step]
        if lasting is not None and self._boxes.first_with(step) == step:
            brought = lasting.brought.get(at[0], {})
            uses = _uses_in_units(at[0], brought.values())
            for number, (((content, turn), cores), use) in enumerate(zip(brought.items(), uses, strict=True)):
                self._fill(step, cores, content, turn, at, use, number, part=part)

    def bring_passing(self, step: int, at: At, needs: Sequence[Need], use: int, *, tables: bool) -> None:
        """Bring what comes with every use of an op's weights to the cores that are about to work.

        `use`: its number, by which slots take turns. With `tables` the op's address tables come, too, if they pass.
        """
        if not needs:
            return
        if self._boxes.constants[step] and self._waits_in_unit(step) and self._lasting_in_units[step] is None:
            wholes = {unit: (need.whole, need.summed) for need in needs for unit in (need.core[0],)}
            self._fill_units(step, wholes, self._boxes.constants[step], at)
        if tables:
            self.bring_tables(step, at, list(dict.fromkeys(need.core for need in needs)), use)
        if self._lasting[step] is not None or not self._boxes.constants[step]:
            return
        # what comes to several cores at once lies at one address in all of them
        wanted: dict[tuple[Content, int], dict[Core, Need]] = {}
        for need in needs:
            slots = self._boxes.slots[step, *need.core]
            if slots:  # weights without elements take no room
                key = (self._content(step, need), use % len(slots))
                wanted.setdefault(key, {})[need.core] = need
        uses = _uses_in_units(use, wanted.values())
        for number, (((content, turn), its), in_unit) in enumerate(zip(wanted.items(), uses, strict=True)):
            need = next(iter(its.values()))
            self._fill(step, list(its), content, turn, at, in_unit, number, need)

    def bring_tables(self, step: int, at: At, cores: list[Core], use: int = 0) -> None:
        """Bring an op's address tables to cores that are about to work, if they pass these."""
        if cores and self._boxes.tables[step] and not self._tables_last(step):
            self._fill_tables(step, cores, at, use)

    def bound(self, step: int, need: Need, number: int, use: int) -> Bound:
        """Where in a core the weights of a use lie, its address tables before them; `number`: of its round."""
        found: Bound = []
        if self._boxes.tables[step]:
            found += self._bound_tables[step, self._boxes.table_slots[step, *need.core]]
        if self._group.weights_in_place:
            weights = self._boxes.weights_of(self._group.geometry.ops[step])
            in_place = self._boxes.boxes_of(weights, step, need.channels, need.summed)
            return found + self._in_place(need.core, in_place)
        content, slots = self._content(step, need), self._boxes.slots[step, *need.core]
        if not slots or not self._boxes.boxes(*content):
            return found
        lasting = self._lasting[step]
        turn = use % len(slots) if lasting is None else lasting.turn(number, need.core, content)
        held = self._bindings[slots[turn], content]
        if content[1] == need.channels:
            return found + held if found else held
        wanted = {operand.number: box for operand, box in self._boxes.boxes(step, need.channels, need.summed)}
        return found + [(operand, its.part(wanted[operand])) for operand, its in held]

    def _content(self, step: int, need: Need) -> Content:
        return self._boxes.first_with(step), self._staying(step, need.channels), need.summed

    def may_last(self, step: int) -> bool:
        """False for an op without anything that `bring_lasting` brings."""
        comes = self._lasting[step] is not None and self._boxes.first_with(step) == step
        return bool(self._boxes.tables[step]) or self._waits_in_unit(step) or comes

    def may_pass(self, step: int) -> bool:
        """False for an op without anything that `bring_passing` brings."""
        return bool(self._boxes.tables[step]) or (bool(self._boxes.constants[step]) and self._lasting[step] is None)

    @cached_property
    def resident_axes(self) -> frozenset[str]:
        """The axes along which a tile's position says which parts of stationary weights come to cores.

        The axis of an op's channels need not be that of the output's: a view may make it another one.
        """
        found = set()
        for step, (op, operands) in enumerate(zip(self._group.geometry.ops, self._boxes.constants, strict=True)):
            residents = [operand for operand in operands if operand.tensor in self._located.context.residents]
            if any(self._boxes.channel_axis(step, its) is not None for its in residents) and self._needed[step] is None:
                assert op.channel_axis is not None
                found.add(self._located.tiles.dims(op.output)[op.channel_axis].axis)
        return frozenset(axis for axis in found if axis is not None)

    # --- what lasts ---------------------------------------------------------------------------------------------------

    def needs(self, step: int) -> Needs:
        """What all uses of an op's weights need."""
        kinds, found = self._uses.round_kinds, dict[int, Sequence[Need]]()
        for number, kind in enumerate(kinds):
            if kind not in found:
                found[kind] = tuple(dict.fromkeys(self._uses.needs_of(step, number)))
        return Needs(kinds, found)

    def _waits_in_unit(self, step: int) -> bool:
        """True if an op's weights wait in the SRAM."""
        return self._group.homes[step] is WeightHome.SRAM and (step, 0) in self._passing.slots

    def _tables_last(self, step: int) -> bool:
        """True if address tables stay in the cores: beside weights that wait there, or are not brought at all."""
        return self._group.homes[step] is WeightHome.CORE or self._group.weights_in_place

    def _new_lasting(self, step: int) -> Lasting | None:
        """When which weights come to the cores, where they last longer than a use; None where they pass."""
        if (first := self._boxes.first_with(step)) != step:
            return self._lasting[first]
        slots, op = self._boxes.slots[step, 0, 0], self._group.geometry.ops[step]
        if self._group.homes[step] is not WeightHome.CORE or not self._boxes.constants[step] or not slots:
            return None
        low_high = self._needed[step]
        if low_high is not None and not self._located.is_parted(op):
            # all uses need the same
            return Lasting.of_one((step, low_high, None), self._located.working_cores)
        kinds, _ = self.needs(step)
        uses: dict[int, list[Use]] = {}
        # all that the op and later ones with the same weights need of them
        for other in self._with_the_same(step):
            for kind, its in self.needs(other).of_kinds.items():
                uses.setdefault(kind, []).extend((need.core, self._content(other, need)) for need in its)
        return lasting(kinds, uses, len(slots), self._located.slice_numbers)

    def _new_lasting_in_unit(self, step: int) -> Lasting | None:
        """The same of weights that wait in the SRAM: all that a unit's cores need of them at once."""
        kinds, needs = self.needs(step)
        uses = {
            kind: [((need.core[0], 0), (step, need.whole, need.summed)) for need in its] for kind, its in needs.items()
        }
        return lasting(kinds, uses, 1, self._located.slice_numbers)

    def _fill_units_lasting(self, step: int, at: At) -> None:
        """Bring to the SRAMs what lasts there: address tables once, weights when their loop begins."""
        if at[0] == 0 and self._boxes.tables[step]:
            units = dict.fromkeys(unit for unit, _ in self._located.working_cores)
            self._fill_units(step, dict.fromkeys(units, ((0, 0), None)), self._boxes.tables[step], at)
        found = self._lasting_in_units[step] if self._boxes.constants[step] else None
        for ((_, whole, summed), _), cores in (found.brought.get(at[0], {}) if found else {}).items():
            self._fill_units(step, {unit: (whole, summed) for unit, _ in cores}, self._boxes.constants[step], at)

    def _fill_units(self, step: int, wholes: Mapping[int, _Whole], operands: Sequence[Operand], at: At) -> None:
        """Bring an op's weights or address tables to where they wait in the SRAMs of units."""
        located = self._located
        cores = {core for unit in wholes for core in located.cores_of(unit)}
        for number, operand in enumerate(operands):
            if self._come_from_peers(operand, tuple((0, extent) for extent in self._boxes.shape(operand)), cores):
                continue
            targets: dict[Box, dict[int, Held]] = {}
            for unit, (whole, summed) in wholes.items():
                place, box = self._in_unit(step, operand, whole, summed)
                if box is not None and not is_empty(box):
                    slot = self._passing.slots[step, unit]
                    targets.setdefault(box, {})[unit] = self._boxes.held(slot, slot.address + place, operand, box)
            region = self._located.context.region(operand.tensor)
            for box, its in targets.items():
                dealt = self._dealt(step, number, at)
                deliver(
                    located.emitter, region, list(its.values()), list(its), box, located.element(operand.tensor), dealt
                )

    def _dealt(self, step: int, number: int, at: At) -> int:
        """Whose turn it is to load an op's operand of a number for all that need it."""
        return self._located.turn(len(self._group.geometry.inputs) + step, at) + number

    def _staying(self, step: int, channels: tuple[int, int]) -> tuple[int, int]:
        """The range of an op's channels whose weights come with those of `channels`.

        Of weights that wait whole in every core it is all that any tile needs: a tile's position may say which channels
        of an op it makes. Of weights that follow no channels it is all, for each needs the same.
        """
        low, high = self._needed[step] or channels
        return min(channels[0], low), max(channels[1], high)

    def _all_needed(self, step: int) -> tuple[int, int] | None:
        """As `_staying`, whatever the channels; None if these decide what comes."""
        op, group = self._group.geometry.ops[step], self._group
        if op.channel_axis is None or not self._boxes.constants[step]:
            return None
        if all(self._boxes.channel_axis(step, operand) is None for operand in self._boxes.constants[step]):
            return 0, self._located.tensors[op.output].shape[op.channel_axis]
        if group.homes[step] is not WeightHome.CORE or group.slices * group.channel_parts > 1:
            return None
        # all that the ops with the same weights need of them
        its = [self._group.geometry.ops[other] for other in self._with_the_same(self._boxes.first_with(step))]
        boxes = [group.core_frustums.boxes[one.output][op.channel_axis] for one in its]
        return min(int(starts.min()) for _, starts, _ in boxes), max(int(stops.max()) for _, _, stops in boxes)

    def _with_the_same(self, first: int) -> list[int]:
        """The steps of the ops that find the weights of one in the cores, and that one."""
        return [step for step in range(first, len(self._boxes.constants)) if self._boxes.first_with(step) == first]

    def _fill_tables(self, step: int, cores: list[Core], at: At, use: int = 0) -> None:
        """Bring an op's address tables to cores."""
        bound = {core: self._bound_tables[step, self._boxes.table_slots[step, *core]] for core in cores}
        for number, operand in enumerate(self._boxes.tables[step]):
            targets = {core: bound[core][number][1] for core in cores}
            self._bring(step, operand, targets[cores[0]].box, targets, None, use, self._dealt(step, number, at))

    def _new_bound_tables(self, key: tuple[int, Slot]) -> Bound:
        """Where an op's address tables lie in a core's slot, one after another."""
        (step, slot), found = key, list[tuple[int, Held]]()
        at = slot.address
        for operand in self._boxes.tables[step]:
            (words,) = self._boxes.shape(operand)
            found.append((operand.number, Held(slot, at, (0,), (ENTRY_BYTES,), ((0, words),))))
            at += words * ENTRY_BYTES
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
        part: int | None = None,
    ) -> None:
        """Bring boxes of an op's weights to a slot of each of these cores.

        `use`: its number among those of its units; `dealt`: how many contents come before it in the same step; `need`:
        of a use for which they come; `part`: of those that come in parts.
        """
        parts = 1 if part is None else self.lasting_parts(step)
        boxes = self._boxes.boxes(*content)
        bound = {core: self._bindings[self._boxes.slots[step, *core][turn], content] for core in cores}
        brought = set()
        filled = [(operand, box) for operand, box in boxes if not is_empty(box)]
        for number, (operand, box) in enumerate(filled):
            if (operand.tensor, box) not in brought:
                brought.add((operand.tensor, box))
                targets = {core: bound[core][number][1] for core in cores}
                its = self._dealt(step, dealt * len(filled) + number, at)
                portion = self._portion(step, operand, box, part or 0, parts)
                if not is_empty(portion):
                    self._bring(step, operand, portion, targets, need, use, its)

    def _portion(self, step: int, operand: Operand, box: Box, part: int, parts: int) -> Box:
        """A part of a weight's box: of its channels; one without channels comes with the first part."""
        axis = self._boxes.channel_axis(step, operand)
        if parts == 1 or (axis is None and part == 0):
            return box
        if axis is None:
            return tuple([(0, 0)] * len(box))
        return (*box[:axis], part_of(box[axis], part, parts), *box[axis + 1 :])

    def _new_bound(self, key: tuple[Slot, Content]) -> Bound:
        """Where boxes of an op's weights lie in a core's slot, one after another."""
        slot, content = key
        return [(number, Held(slot, slot.address + at, *rest)) for number, at, rest in self._layouts[content]]

    def _layout(self, content: Content) -> list[tuple[int, int, _Laid]]:
        """Operands' numbers and how their boxes lie behind one another; all slots of a step are of one size."""
        found: list[tuple[int, int, _Laid]] = []
        step, end = content[0], 0
        slot = self._boxes.slots[step, 0, 0][0]
        for operand, box, at in self._behind_one_another(self._boxes.boxes(*content)):
            held = self._boxes.held(slot, at, operand, box)
            found.append((operand.number, at, (held.origin, held.strides, box)))
            end = max(end, at + prod(lengths(box)) * self._located.element(operand.tensor))
        if end > slot.size_bytes:
            raise LimitError(
                "the weights of an op exceed the buffer that the plan has for them",
                code="weights_do_not_fit",
                stage="lower",
                node=self._located.context.graph.ops[self._group.geometry.ops[step].index].node,
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
                end = max(end, at + prod(lengths(box)) * self._located.element(operand.tensor))

    def _in_place(self, core: Core, boxes: list[tuple[Operand, Box]]) -> Bound:
        """Stationary weights that lie where they are used."""
        number = self._located.core_number(*core)
        found: Bound = []
        for operand, box in boxes:
            for owner, held in self._located.context.residents.get(operand.tensor, []):
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
        element = self._located.element(operand.tensor)
        receivers = {self._located.core_number(*core): held for core, held in targets.items()}
        if self._come_from_peers(operand, box, receivers):
            residents, idle = self._located.context.residents[operand.tensor], self._located.idle_cores
            from_peers(self._located.emitter, residents, box, receivers, element, idle)
            return
        region = self._located.context.region(operand.tensor)
        if self._passing.level is None:
            units = [unit for unit, _ in targets]
            deliver(self._located.emitter, region, list(targets.values()), units, box, element, dealt)
            return
        if len(targets) == 1 and self._goes_directly(step):
            (((unit, core), target),) = targets.items()
            queue = self._located.queue("iodma", self._located.core_number(unit, core))
            self._located.emitter.copy(Opcode.LOAD, queue, region, target, box, element)
            return
        units = sorted({unit for unit, _ in targets})
        if (step, units[0]) in self._passing.slots:
            self._to_all_cores(self._in_units(step, operand, box, units, need, use, dealt), targets, box, element)
        elif self._passing.pass_beside(step, units[0], len(targets)):
            for number, portion in enumerate(self._passing.portions(operand, box), use):
                staged = self._passing.beside(step, operand, portion, units, number, dealt)
                self._to_all_cores(staged, targets, portion, element)
        else:
            self._directly(region, targets, box, element, dealt)

    def _come_from_peers(self, operand: Operand, box: Box, receivers: Collection[int]) -> bool:
        """True for a box of stationary weights of which each part has a way from its core to all receivers."""
        residents = self._located.context.residents.get(operand.tensor)
        return residents is not None and are_connected(self._located.machine, residents, box, receivers)

    def _to_all_cores(self, staged: dict[int, Held], targets: dict[Core, Held], box: Box, element: int) -> None:
        for unit, source in staged.items():
            its = {self._located.core_number(*core): held for core, held in targets.items() if core[0] == unit}
            to_cores(self._located.emitter, unit, source, its, box, element)

    def _directly(self, region: Held, targets: dict[Core, Held], box: Box, element: int, dealt: int) -> None:
        """From DRAM to cores without a stay in the SRAM: read once for all that can get it from each other."""
        located, cores = self._located, list(targets)
        first = dealt % len(cores)
        left = {core: targets[core] for core in (*cores[first:], *cores[:first])}
        while left:
            reader = next(iter(left))
            number, source = located.core_number(*reader), left.pop(reader)
            self._located.emitter.copy(Opcode.LOAD, located.queue("iodma", number), region, source, box, element)
            ways: dict[int, list[Core]] = {}
            for core in left:
                queue = between_cores(located.machine, number, located.core_number(*core))
                if queue is not None:
                    ways.setdefault(queue, []).append(core)
            for queue, cores in ways.items():
                send(located.emitter, source, [(left.pop(core), box) for core in cores], queue, element)

    def _goes_directly(self, step: int) -> bool:
        """True if what one core needs alone is loaded by its own engine: nobody else reads it in the SRAM (TILE-7)."""
        if self._group.homes[step] is WeightHome.SRAM or not self._located.machine.has("iodma"):
            return False
        return direct_is_as_wide(self._located.profile, self._located.units, self._located.configuration.cores)

    def _in_units(
        self, step: int, operand: Operand, box: Box, units: list[int], need: Need | None, use: int, dealt: int
    ) -> dict[int, Held]:
        """Where an operand's box lies in the SRAM of each unit: where it waits, else in the buffer that it passes."""
        if self._group.homes[step] is WeightHome.SRAM:
            whole, summed = ((0, 0), None) if need is None else (need.whole, need.summed)
            place, its = self._in_unit(step, operand, whole, summed)
            assert its is not None
            slots = ((unit, self._passing.slots[step, unit]) for unit in units)
            return {unit: self._boxes.held(slot, slot.address + place, operand, its) for unit, slot in slots}
        return self._passing.through_buffer(step, operand, box, units, use, dealt)

    def _in_unit(
        self, step: int, operand: Operand, whole: tuple[int, int], summed: tuple[int, int] | None
    ) -> tuple[int, Box | None]:
        """Where in a unit's slot an address table or weight lies, and what of it: of weights the unit's channels."""
        at = 0
        for table in self._boxes.tables[step]:
            if table is operand:
                return at, ((0, self._boxes.shape(table)[0]),)
            at += self._boxes.shape(table)[0] * ENTRY_BYTES
        first = self._group.weights[step].table_bytes
        for other, its, place in self._behind_one_another(self._boxes.boxes(step, whole, summed)):
            if other is operand:
                return first + place, its
        return 0, None


def _uses_in_units(use: int, contents: Collection[Collection[Core]]) -> list[int]:
    """Numbers of contents that cores need at a use, counted over all uses of a unit.

    Units with contents of their own count alike, so that what passes the SRAM of each takes the next place there.
    """
    numbers, known = list[int](), dict[int, int]()
    for cores in contents:
        units = {unit for unit, _ in cores}
        numbers.append(max(known.get(unit, 0) for unit in units))
        known.update(dict.fromkeys(units, numbers[-1] + 1))
    return [use * max(known.values()) + number for number in numbers]
