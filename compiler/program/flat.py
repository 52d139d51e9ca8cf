"""Groups of a chip without SRAM: each core holds its tiles and works on them op by op."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.emitter import Box, Held, is_empty
from compiler.program.group import GroupLowering
from compiler.program.iteration import At, Loop, Step
from compiler.program.located import Part
from compiler.program.recent import Recent
from compiler.program.tiles import Index
from compiler.program.weight_reach import Need
from compiler.program.weights import Bound


class _Entry(NamedTuple):
    """A unit, its tile, where an op's result lies, the box of it that the unit makes, and the channels of that."""

    unit: int
    tile: Index
    held: Held
    box: Box
    channels: tuple[int, int]


class FlatLowering(GroupLowering):
    """A unit is a core; tiles lie in NRAM."""

    def lay_out(self, unit: int) -> None:
        """The slots of one core."""
        self.unit_tensors(unit, (*self.geometry.inputs, *self.geometry.made))

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """The tile's, and those of the stores."""
        del op
        return [self.strides(name), *self.stores_read(name, self.tiles.stores(name))]

    def work(self) -> tuple[Step | Loop, ...]:
        """All ops of the group, one after another, each on all tiles of a round, slice by slice of its weights."""
        # by op and round
        self._known_entries = Recent[tuple[int, int], list[_Entry]](len(self.geometry.ops))
        found: list[Step | Loop] = []
        for step, op in enumerate(self.geometry.ops):
            name = op.output
            found.append(self.lasting_weights(step, op))
            if self.group.input_parts > 1 and op is self.geometry.product:
                sums = self._shared_sums if self.shares_sums else self._sums
                found.append(self.step(f"sum up {name}", op, partial(sums, step, op)))
            else:
                slices = (
                    self.passing_weights(step, op, "weights", partial(self._weights, step, op)),
                    self.step(f"make {name}", op, partial(self._make, step, op)),
                )
                found.append(Loop(name=f"slices of {name}", count=partial(self._slice_count_of, step, op), body=slices))
            found += [self.share_step(step, op, "link"), self.send_step(name, op)]
            found += [self.keep_step(dying, op) for dying in self.dying((step,))]
        return tuple(found)

    def forget(self) -> None:
        """Drop the entries of rounds, too."""
        super().forget()
        self._known_entries.clear()

    # --- ops ----------------------------------------------------------------------------------------------------------

    def _held(self, op: OpFacts, number: int) -> Iterator[tuple[int, Index, Held]]:
        """Where an op's result lies in the units that work on it in a round."""
        for unit, index in self.workers(op, self.rounds[number]):
            held = self.tile(op.output, unit, index) if self.first_slice(op.output, index) else None
            if held is not None:
                yield unit, index, held

    def _entries(self, op: OpFacts, number: int) -> list[_Entry]:
        """Who makes what of an op's result in a round; kept, for it is asked for slice by slice."""
        known = self._known_entries.get((op.index, number))
        if known is not None:
            return known
        found: list[_Entry] = []
        for unit, index, held in self._held(op, number):
            box = self.unit_part(op, unit, held.box)
            if not is_empty(box):
                channels = (0, 1) if op.channel_axis is None else box[op.channel_axis]
                found.append(_Entry(unit, index, held, box, channels))
        self._known_entries[op.index, number] = found
        return found

    def _slice_count_of(self, step: int, op: OpFacts, at: At) -> int:
        entries = self._entries(op, at[0])
        return max((len(self.weights.slices(step, entry.channels)) for entry in entries), default=0)

    def _at_slice(self, step: int, op: OpFacts, at: At) -> Iterator[tuple[_Entry, Need]]:
        """Who works on an op in a round, with the slice of its weights that is at hand."""
        number, part = at
        for entry in self._entries(op, number):
            slices = self.weights.slices(step, entry.channels)
            if part < len(slices):
                yield entry, Need((entry.unit, 0), slices[part], slices[part])

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the tiles of a round need of an op's weights."""
        op = self.geometry.ops[step]
        is_parted = self.group.input_parts > 1 and op is self.geometry.product
        for entry in self._entries(op, number):
            for part in self.parts(entry.unit) if is_parted else (None,):
                for channels in self._slices(step, entry):
                    yield self._need(entry, channels, part)

    def _slices(self, step: int, entry: _Entry) -> list[tuple[int, int]]:
        return self.weights.slices(step, entry.channels)

    def _need(self, entry: _Entry, channels: tuple[int, int], part: Part | None = None) -> Need:
        return Need((entry.unit, 0), channels, channels, None if part is None else part.range)

    def _weights_turn(self, step: int, number: int, part: int) -> int:
        """Which use of an op's weights this is, counted over all rounds."""
        return number * self.group.weights[step].slices + part

    def _weights(self, step: int, op: OpFacts, at: At) -> None:
        number, part = at
        needs = [need for _, need in self._at_slice(step, op, at)]
        self.weights.bring_passing(step, at, needs, self._weights_turn(step, number, part), tables=part == 0)

    def _make(self, step: int, op: OpFacts, at: At) -> None:
        """The calls that make an op's result, or a slice of its channels."""
        number, part = at
        for entry, need in self._at_slice(step, op, at):
            bound = self.weights.bound(step, need, number, self._weights_turn(step, number, part))
            self._call(op, entry, self._sliced(step, op, entry, need.channels), bound)

    def _sliced(self, step: int, op: OpFacts, entry: _Entry, channels: tuple[int, int]) -> Box:
        if op.channel_axis is None or len(self.weights.slices(step, entry.channels)) == 1:
            return entry.box
        return (*entry.box[: op.channel_axis], channels, *entry.box[op.channel_axis + 1 :])

    # --- sums in parts ------------------------------------------------------------------------------------------------

    def _sums(self, step: int, op: OpFacts, at: At) -> None:
        """A product whose sums are made part by part, by all units at the same time."""
        entries = self._entries(op, at[0])
        for part in self.parts(0):
            self._sum_part(step, op, entries, part, at)

    def _shared_sums(self, step: int, op: OpFacts, at: At) -> None:
        """A product whose units make a part of the sums each: one takes up the sums of another."""
        by_channels: dict[tuple[int, int], list[_Entry]] = {}
        entries = self._entries(op, at[0])
        for entry in entries:
            by_channels.setdefault(entry.channels, []).append(entry)
        for alike in by_channels.values():
            before: _Entry | None = None
            for entry in alike:
                parts = self.parts(entry.unit)
                if before is not None and parts:
                    self.pass_sums(before.held, entry.held, entry.box, self.queue("link", before.unit), op)
                for part in parts:
                    self._sum_part(step, op, [entry], part, at)
                before = entry if parts else before

    def _sum_part(self, step: int, op: OpFacts, entries: list[_Entry], part: Part, at: At) -> None:
        """Add one part to the sums of some units, slice of the weights by slice."""
        turn = self.turn(len(self.geometry.inputs) + step, at)
        self.load_part(op, [(entry.unit, entry.tile) for entry in entries], part, turn)
        count = max((len(self._slices(step, entry)) for entry in entries), default=0)
        for number in range(count):
            its = [(e, self._slices(step, e)[number]) for e in entries if number < len(self._slices(step, e))]
            needs = [self._need(entry, channels, part) for entry, channels in its]
            use = (at[0] * self.group.input_parts + part.turn) * count + number
            self.weights.bring_passing(step, at, needs, use, tables=part.turn == number == 0)
            for (entry, channels), need in zip(its, needs, strict=True):
                bound = self.weights.bound(step, need, at[0], use)
                self._call(op, entry, self._sliced(step, op, entry, channels), bound, part)

    def _call(self, op: OpFacts, entry: _Entry, box: Box, weights: Bound, part: Part | None = None) -> None:
        operands: Bound = [found for found in weights if part is None or part.ends or found[0] < FACTORS]
        for operand in self.context.operands(op.index):
            if not operand.constant and operand.gathered is None:
                need = self.need_of_part(op, operand, box, part)
                pieces = self.pieces(operand.tensor, entry.unit, entry.tile, need, part)
                operands += [(operand.number, piece) for piece in pieces]
        if not self.gather(op, entry.unit, box, operands, entry.held):
            self.call(op, self.queue("core", entry.unit), box, operands, entry.held, part)
