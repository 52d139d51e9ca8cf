"""What units or cores share of one tile: parts of the channels, and parts of a sum (FUSE-S1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.program.context import Operand
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At
from compiler.program.located import Located, Part
from compiler.program.peers import between_cores, is_alike, rate_of, send, share_out, shares
from compiler.program.program import OUTPUT, Level, Opcode
from compiler.program.rounds import Job
from compiler.program.tiles import Index
from compiler.tiling.stationary import part_of
from compiler.tiling.tile import Spread
from compiler.units import ceil_div, element_bytes


class SharedLowering(Located):
    """Calls on boxes or parts of them, and what passes between units for them."""

    def deliver(self, region: Held, targets: list[Held], units: list[int], box: Box, element: int, turn: int) -> None:
        """Load a box for several units: by multicast; or each a part of it, which the others get from there.

        `turn`: whose it is to load the first part.
        """
        engine = "gdma" if self.level is Level.SRAM else "iodma"
        engine = engine if self.machine.has(engine) else "iodma"
        between = "cdma" if self.level is Level.SRAM else "link"
        first, *rest = targets
        queues = [self.queue(engine, unit) for unit in units]
        in_row = all(b.slot.place - a.slot.place == 1 and is_alike(a, b, box) for a, b in pairwise(targets))
        if rest and self.profile.dram.multicast and in_row:
            also = [held.slot for held in rest]
            rate = rate_of(self.machine, queues[0])
            for number, part in enumerate(shares(self.profile, first.strides, box, len(targets), element, rate), turn):
                self.emitter.copy(Opcode.LOAD, queues[number % len(queues)], region, first, part, element, also)
        elif rest and self.machine.has(between):
            sending = [self.queue(between, unit) for unit in units]
            share_out(self.emitter, region, targets, queues, sending, box, element, turn)
        else:
            for held, queue in zip(targets, queues, strict=True):
                self.emitter.copy(Opcode.LOAD, queue, region, held, box, element)

    # --- parts of the channels ----------------------------------------------------------------------------------------

    def hands_out(self, op: OpFacts, unit: int, core: int) -> bool:
        """False, for all but one, where all units or cores make a result whole since it has no channels."""
        if op.channel_axis is not None or self.group.channels_are_free:
            return True
        alone = unit == 0 or self.configuration.spread is not Spread.CHANNELS
        return alone and (core == 0 or self.configuration.core_spread is not Spread.CHANNELS)

    def unit_part(self, op: OpFacts, unit: int, box: Box) -> Box:
        """The part of an op's box that a unit makes where units share out the channels of a common tile."""
        if self.configuration.spread is not Spread.CHANNELS or self.group.channels_are_free:
            return box
        return channel_part(op, box, unit, self.units)

    def units_share(self, op: OpFacts) -> bool:
        """True if units make parts of the channels of an op's result; without channels each makes all of it."""
        is_shared = self.configuration.spread is Spread.CHANNELS and not self.group.channels_are_free
        return is_shared and op.channel_axis is not None

    def share_channels(self, step: int, op: OpFacts, engine: str, at: At) -> None:
        """Send the parts of the channels that units make to those that need them for a later op."""
        # all units work on the same tile
        index = self.rounds[at[0]][0][1]
        receivers = self._receivers_of(step, op, index)
        # of many units most make channels that a receiver does not need
        axis = op.channel_axis
        channels = np.array([(0, 1) if axis is None else wanted[axis] for _, _, wanted in receivers]).reshape(-1, 2)
        for unit, _ in self.rounds[at[0]]:
            held = self.tile(op.output, unit, index)
            mine = self.unit_part(op, unit, held.box) if held is not None else None
            if held is None or mine is None or is_empty(mine):
                continue
            low, high = (0, 1) if axis is None else mine[axis]
            parts: dict[Box, Box | None] = {}
            found = []
            for number in np.flatnonzero((channels[:, 0] < high) & (channels[:, 1] > low)).tolist():
                other, target, wanted = receivers[number]
                if wanted not in parts:
                    parts[wanted] = overlap(mine, wanted)
                part = parts[wanted]
                if other != unit and part is not None:
                    found.append((target, part))
            self.send(held, found, self.queue(engine, unit), self.element(op.output))

    def _receivers_of(self, step: int, op: OpFacts, index: Index) -> list[tuple[int, Held, Box]]:
        """The units that need some of a tile of an op's result for a later op, where it lies in each, and what."""
        is_kept, found = bool(self.tiles.stores(op.output)), list[tuple[int, Held, Box]]()
        for unit in range(self.units):
            target = self.tile(op.output, unit, index)
            wanted = None if target is None else target.box
            if target is not None and not is_kept:
                wanted = self.wanted(
                    step,
                    op.output,
                    lambda name: self.made(name, index),
                    lambda reader, box, unit=unit: self.unit_part(reader, unit, box),  # type: ignore[misc]
                )
            if target is not None and wanted is not None:
                found.append((unit, target, wanted))
        return found

    def send(self, source: Held, targets: list[tuple[Held, Box]], queue: int, element: int) -> None:
        """From one memory to others: neighbours that need the same box at the same address get it at once."""
        send(self.emitter, source, targets, queue, element)

    def between_cores(self, sender: int, receiver: int) -> int | None:
        """The queue that moves bytes from one core to another; None if none does."""
        return between_cores(self.machine, sender, receiver)

    def wanted(
        self, step: int, name: str, made: Callable[[str], Box], part: Callable[[OpFacts, Box], Box]
    ) -> Box | None:
        """What ops after `step` need of a tensor for their parts of what they make: one box that holds it all."""
        found: Box | None = None
        for op, operand in self._readers_after(step, name):
            box = made(op.output)
            box = part(op, box) if not is_empty(box) else box
            if not is_empty(box):
                need = self.need(operand, box)
                pairs = zip(found or need, need, strict=True)
                found = tuple([(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs])
        return found

    def _readers_after(self, step: int, name: str) -> list[tuple[OpFacts, Operand]]:
        """The ops after a step that read a tensor, each with the operand that it is."""
        key = (step, name)
        found = self._readers.get(key)
        if found is None:
            found = self._readers[key] = [(op, operand) for at, op, operand in self._reads.get(name, ()) if at > step]
        return found

    @cached_property
    def _reads(self) -> dict[str, list[tuple[int, OpFacts, Operand]]]:
        """By tensor the ops that read it, with their steps and operands."""
        found: dict[str, list[tuple[int, OpFacts, Operand]]] = defaultdict(list)
        for step, op in enumerate(self.geometry.ops):
            for operand in self.context.operands(op.index):
                found[operand.tensor].append((step, op, operand))
        return found

    def need(self, operand: Operand, box: Box) -> Box:
        """The box of an operand that an op needs to make a box."""
        if operand.gathered is not None or operand.is_same:
            return box
        key = (operand, box)
        known = self._needs.get(key)
        if known is None:
            known = self._needs[key] = self._new_need(operand, box)
        return known

    def _new_need(self, operand: Operand, box: Box) -> Box:
        found = []
        for axis_map, extent in zip(operand.access, self.context.graph.tensors[operand.tensor].shape, strict=True):
            axis = axis_map.axis
            if axis is None:
                found.append((0, extent))
            else:
                start, stop = box[axis]
                found.append(axis_map.project_one(start, stop, extent))
        return tuple(found)

    def is_gathering(self, op: OpFacts) -> bool:
        """True for an op that reads rows of a table in DRAM through indices."""
        return bool(self.gathered) and any(operand.gathered for operand in self.context.operands(op.index))

    def gather(self, op: OpFacts, core: int, box: Box, at_hand: list[tuple[int, Held]], result: Held) -> bool:
        """An op that reads rows of a table in DRAM through indices: its rows come to the core; False for other ops.

        `at_hand`: by number where boxes of its other operands lie in the core; constants that do not are read in DRAM.
        """
        if not self.is_gathering(op):
            return False
        operands = self.context.operands(op.index)
        bound: list[tuple[int, Held]] = []
        for operand in operands:
            if operand.gathered is not None:
                bound.append((operand.number, self.context.region(operand.tensor)))
                continue
            need = self.need(operand, box)
            here = [piece for number, piece in at_hand if number == operand.number]
            parts = [piece.part(part) for piece in here if (part := overlap(piece.box, need)) is not None]
            if not here and operand.constant:
                parts = [self.context.region(operand.tensor).part(need)]
            bound += [(operand.number, part) for part in parts]
        if not self.machine.has("iodma"):
            raise LimitError(
                "no engine of the profile brings rows of a table from DRAM to a core",
                code="no_engine",
                stage="lower",
                node=self.context.graph.ops[op.index].node,
                op_type=op.kind,
                limit="iodma",
            )
        table = self.context.table(op.index)
        entry = self.context.entry(table, box)
        reads = [piece.slot for _, piece in bound]
        queue = self.queue("iodma", core)
        self.emitter.call(
            queue, table, entry, [*bound, (OUTPUT, result.part(box))], reads, (result.slot,), Opcode.GATHER
        )
        return True

    def need_of_part(self, op: OpFacts, operand: Operand, box: Box, part: Part | None) -> Box:
        """As `need`, of what is summed over only a part."""
        need = self.need(operand, box)
        axis = self.summed_axis(op, operand) if part is not None and part.range is not None else None
        if axis is None or part is None or part.range is None:
            return need
        return (*need[:axis], part.range, *need[axis + 1 :])

    # --- sums in parts ------------------------------------------------------------------------------------------------

    def parts(self, unit: int) -> list[Part]:
        """The parts of the summed axis that a unit works on, one after another."""
        found = self._parts_of.get(unit)
        if found is None:
            found = self._parts_of[unit] = self._new_parts(unit)
        return found

    def _new_parts(self, unit: int) -> list[Part]:
        count = self.group.input_parts
        if count == 1:
            return [Part(None, True, True)]
        extent, slices = self.geometry.summed_extent, self.configuration.input_slices
        size = ceil_div(extent, count)
        mine = range(unit * slices, (unit + 1) * slices) if self.shares_sums else range(slices)
        ranges = [(k, (min(extent, k * size), min(extent, (k + 1) * size))) for k in mine]
        last = ceil_div(extent, size) - 1
        filled = [(k, found) for k, found in ranges if found[0] < found[1]]
        return [Part(found, k == 0, k == last, turn) for turn, (k, found) in enumerate(filled)]

    @property
    def shares_sums(self) -> bool:
        """True if each unit adds up its part of what is summed over."""
        return self.configuration.spread is Spread.INPUT_CHANNELS

    @cached_property
    def summing_units(self) -> int:
        """How many units have a part of what is summed over."""
        if not self.shares_sums:
            return 1
        return sum(1 for unit in range(self.units) if self.parts(unit))

    def workers(self, op: OpFacts, jobs: list[Job], *, after: bool = False) -> list[Job]:
        """Who works on an op; of sums in parts (and `after` them) only the last unit has the result."""
        if not self.shares_sums or (op is self.geometry.product and not after):
            return jobs
        return [(unit, index) for unit, index in jobs if unit == self.summing_units - 1]

    def pass_sums(self, source: Held, target: Held, box: Box, queue: int, op: OpFacts) -> None:
        """Unfinished sums from where one unit made them to where another takes them up."""
        width = element_bytes(self.context.accumulator(op.index))
        scale = width // self.element(op.output)
        wide = [Held(h.slot, h.address, h.origin, tuple(s * scale for s in h.strides), h.box) for h in (source, target)]
        self.emitter.copy(Opcode.EXCHANGE, queue, wide[0], wide[1], box, width)

    def load_part(self, op: OpFacts, jobs: Sequence[tuple[int, Index]], part: Part, turn: int) -> None:
        """Load what an op reads of a part of the summed axis into units: at once for all that need the same."""
        for operand in self.context.operands(op.index):
            if operand.tensor not in self.group.reduced or part.range is None:
                continue
            wanted: dict[Box, tuple[list[Held], list[int]]] = {}
            for unit, index in jobs:
                held = self.tile(operand.tensor, unit, index, part)
                if held is not None:
                    targets, units = wanted.setdefault(held.box, ([], []))
                    targets.append(held)
                    units.append(unit)
            region = self.context.region(operand.tensor)
            for number, (box, (targets, units)) in enumerate(wanted.items()):
                self.deliver(region, targets, units, box, self.element(operand.tensor), turn + number)

    def call(
        self,
        op: OpFacts,
        queue: int,
        box: Box,
        operands: list[tuple[int, Held]],
        result: Held,
        part: Part | None = None,
    ) -> None:
        """Emit the call that makes a box of an op's output, or adds a part of its sums."""
        table = self.context.table(op.index)
        operands = self.with_tables(op, operands)
        if part is None or part.range is None:
            entry = self.context.entry(table, box)
            bound = [*operands, (OUTPUT, result.part(box))]
        else:
            entry = self.context.entry(table, box, part.range, begins=part.begins, ends=part.ends)
            # sums are wider than results: they lie at the same places of a wider box, hence all of it is bound
            bound = [*operands, (OUTPUT, result)]
        reads = [held.slot for _, held in operands]
        if part is not None and not part.begins:
            reads.append(result.slot)
        self.emitter.call(queue, table, entry, bound, reads, (result.slot,))


def channel_part(op: OpFacts, box: Box, number: int, parts: int) -> Box:
    """Part `number` of `parts` of a box's channels; all of a box without channels."""
    if op.channel_axis is None or parts == 1:
        return box
    part = part_of(box[op.channel_axis], number, parts)
    return (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])
