"""Groups of a chip without SRAM: each core holds its tiles and works on them op by op."""

from __future__ import annotations

from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.emitter import Box, Held, is_empty
from compiler.program.group import GroupLowering
from compiler.program.parts import Part
from compiler.program.rounds import Job
from compiler.program.tiles import Index
from compiler.program.weights import Bound

# A unit, its tile, where the result lies, and the box of it that the unit makes; by range of channels.
_Entry = tuple[int, Index, Held, Box]
_Work = dict[tuple[int, int], list[_Entry]]


class FlatLowering(GroupLowering):
    """A unit is a core; tiles lie in NRAM."""

    def lay_out(self, unit: int) -> None:
        """The slots of one core."""
        self.unit_tensors(unit, (*self.geometry.inputs, *self.geometry.made))

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The tile's, and those of the stores."""
        del op
        return [self.strides(name), *self.stores_read(name, self.tiles.stores(name))]

    def work(self, jobs: list[Job], parity: int) -> None:
        """All ops of the group, one after another, each on all tiles of the round."""
        for step, op in enumerate(self.geometry.ops):
            self.emitter.step = self.step_of[op.index]
            self._op(step, op, jobs, parity)
            for unit, index in jobs:
                self.share_channels(step, op, unit, index, parity, "link")
                self.pass_on(op.output, unit, index, parity)
            for name in self.dying((step,)):
                for unit, index in jobs:
                    self.keep(name, unit, index, parity)

    def _op(self, step: int, op: OpFacts, jobs: list[Job], parity: int) -> None:
        work: _Work = {}
        for unit, index in self.workers(op, jobs):
            held = self.tile(op.output, unit, index, parity)
            if held is None or not self.first_slice(op.output, index):
                continue
            held.slot.begin()
            box = self.unit_part(op, unit, held.box)
            if not is_empty(box):
                channels = (0, 1) if op.channel_axis is None else box[op.channel_axis]
                work.setdefault(channels, []).append((unit, index, held, box))
        self.weights.ensure_tables(step, [(entry[0], 0) for entries in work.values() for entry in entries])
        if self.group.input_parts > 1 and op is self.geometry.product:
            if self.shares_sums:
                self._shared_sums(step, op, work, parity)
            else:
                self._sums(step, op, work, parity)
            return
        for channels, entries in work.items():
            slices = self.weights.slices(step, channels)
            for low, high in slices:
                bound = self.weights.ensure(step, [(entry[0], 0) for entry in entries], (low, high))
                for unit, tile, held, box in entries:
                    part = box
                    if op.channel_axis is not None and len(slices) > 1:
                        part = (*box[: op.channel_axis], (low, high), *box[op.channel_axis + 1 :])
                    self._call(op, unit, tile, part, held, bound[unit, 0], parity)

    def _sums(self, step: int, op: OpFacts, work: _Work, parity: int) -> None:
        """A product whose sums are made part by part, by all units at the same time."""
        jobs = [(unit, tile) for entries in work.values() for unit, tile, _, _ in entries]
        for turn, part in enumerate(self.parts(0)):
            self.load_part(op, jobs, part, turn)
            for channels, entries in work.items():
                self._sum_part(step, op, entries, channels, part, parity)

    def _shared_sums(self, step: int, op: OpFacts, work: _Work, parity: int) -> None:
        """A product whose units make a part of the sums each: one takes up the sums of another."""
        for channels, entries in work.items():
            before: Held | None = None
            sender = 0
            for entry in entries:
                unit, tile, held, box = entry
                parts = self.parts(unit)
                if before is not None and parts:
                    self.pass_sums(before, held, box, self.queue("link", sender), op)
                for turn, part in enumerate(parts):
                    self.load_part(op, [(unit, tile)], part, turn)
                    self._sum_part(step, op, [entry], channels, part, parity)
                if parts:
                    before, sender = held, unit

    def _sum_part(
        self, step: int, op: OpFacts, entries: list[_Entry], channels: tuple[int, int], part: Part, parity: int
    ) -> None:
        """Add one part to the sums of a range of channels, slice of the weights by slice."""
        slices = self.weights.slices(step, channels)
        for low, high in slices:
            cores = [(entry[0], 0) for entry in entries]
            bound = self.weights.ensure(step, cores, (low, high), None, part.range)
            for unit, tile, held, box in entries:
                its = box
                if op.channel_axis is not None and len(slices) > 1:
                    its = (*box[: op.channel_axis], (low, high), *box[op.channel_axis + 1 :])
                self._call(op, unit, tile, its, held, bound[unit, 0], parity, part)

    def _call(
        self,
        op: OpFacts,
        unit: int,
        index: Index,
        box: Box,
        held: Held,
        weights: Bound,
        parity: int,
        part: Part | None = None,
    ) -> None:
        operands: Bound = [entry for entry in weights if part is None or part.ends or entry[0] < FACTORS]
        for operand in self.context.operands(op.index):
            if not operand.constant and operand.gathered is None:
                need = self.need_of_part(op, operand, box, part)
                operands += [
                    (operand.number, piece) for piece in self.pieces(operand.tensor, unit, index, need, parity)
                ]
        if not self.gather(op, unit, box, operands, held):
            self.call(op, self.queue("core", unit), box, operands, held, part)
