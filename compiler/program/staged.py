"""Breadth-first groups of a chip with SRAM: tiles lie in SRAM, cores pass over them stage by stage, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from math import prod
from operator import le
from typing import NamedTuple

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import in_slot
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.larger import FreeSpace, cut
from compiler.program.program import Opcode
from compiler.program.rounds import Job
from compiler.program.slots import Slot
from compiler.program.stage_memory import StageMemory, is_missing
from compiler.program.tiles import Index
from compiler.program.weights import Bound
from compiler.tiling.stages import CoreStage
from compiler.tiling.tile import Spread
from compiler.units import ceil_div


class _Piece(NamedTuple):
    """A part of a stage's box for one core; `channels`: the output channels of its first op."""

    core: int
    box: Box


# The channels of each op of a stage; a unit and its tile, a piece, and the channels of all the unit's pieces.
_Channels = tuple[tuple[int, int], ...]
_Entry = tuple[int, Index, _Piece, _Channels]


@dataclass(slots=True)
class _Passing:
    """A piece on its way through a stage: its buffer, where the free part of that begins, what lies in it.

    `space`: what else its core has, None for a piece of a usual tile, whose buffer has room for all.
    """

    unit: int
    index: Index
    piece: _Piece
    slot: Slot
    at: int
    inside: dict[str, Held]
    space: FreeSpace | None


class StagedLowering(StageMemory):
    """A unit is a cluster; a stage's pieces come to NRAM, pass its ops, and go back."""

    def work(self, jobs: list[Job], parity: int) -> None:
        """All stages, one after another, each on all tiles of the round."""
        for number, stage in enumerate(self.group.stages):
            steps = [self.geometry.ops[step] for step in stage.steps]
            self.emitter.step = self.step_of[steps[0].index]
            self._stage(number, stage, steps, jobs, parity)
            for unit, index in jobs:
                for step, op in zip(stage.steps, steps, strict=True):
                    if op.output in stage.results or op.output in stage.staying:
                        self.share_channels(step, op, unit, index, parity, "cdma")
                        self.pass_on(op.output, unit, index, parity)
            # what is made and read inside one stage never comes to the SRAM
            here = {*stage.inputs, *stage.results, *stage.staying}
            for name in (name for name in self.dying(stage.steps) if name in here):
                for unit, index in jobs:
                    self.keep(name, unit, index, parity)

    def _results(self, stage: CoreStage, ops: list[OpFacts]) -> list[OpFacts]:
        return [op for op in ops if op.output in stage.results or op.output in stage.staying]

    def _stage(self, number: int, stage: CoreStage, ops: list[OpFacts], jobs: list[Job], parity: int) -> None:
        work: list[tuple[int, Index, list[_Piece], Box]] = []
        last = ops[-1]
        for unit, index in jobs:
            if not self.first_slice(last.output, index):
                continue
            for op in self._results(stage, ops):
                held = self.tile(op.output, unit, index, parity)
                if held is not None:
                    held.slot.begin()
                    self._pull(op.output, unit, index)
            box = self.unit_part(last, unit, self.made(last.output, index))
            if not is_empty(box):
                work.append((unit, index, self._pieces(number, ops, unit, index, box), box))
        ranges: dict[_Channels, list[_Entry]] = {}
        for unit, tile, pieces, box in work:
            whole = tuple(self._channels(op, box) for op in ops)
            for piece in pieces:
                channels = tuple(self._channels(op, piece.box) for op in ops)
                ranges.setdefault(channels, []).append((unit, tile, piece, whole))
        everywhere = sorted({(unit, piece.core) for unit, _, pieces, _ in work for piece in pieces})
        self.weights.ensure_tables(stage.steps[0], everywhere)
        for channels, entries in ranges.items():
            self._slices(number, stage, ops, channels, entries, parity)

    def _channels(self, op: OpFacts, box: Box) -> tuple[int, int]:
        return (0, 1) if op.channel_axis is None else box[op.channel_axis]

    def _slices(
        self,
        number: int,
        stage: CoreStage,
        ops: list[OpFacts],
        channels: _Channels,
        entries: list[_Entry],
        parity: int,
    ) -> None:
        """Pieces of the same channels (op by op), slice by slice of the first op's weights.

        Where pieces follow one another in a core, all go through with one slice before the next one comes, if the
        stage may cut its channels.
        """
        first = stage.steps[0]
        slices = self.weights.slices(first, channels[0])
        several = len(entries) > len({(unit, piece.core) for unit, _, piece, _ in entries})
        later = zip(stage.steps[1:], channels[1:], strict=True)
        at_once = len(slices) == 1 and all(len(self.weights.slices(step, its)) == 1 for step, its in later)
        if at_once and self.weights.take_turns(stage.steps):
            self._in_turns(number, stage, ops, channels, entries, parity)
        elif at_once:
            self._whole_pieces(number, stage, ops, channels, entries, parity)
        elif several and stage.cuts_channels and not self.weights.take_turns(stage.steps):
            for part in slices:
                thin = [(unit, tile, _slice_of(ops[0], piece, part), whole) for unit, tile, piece, whole in entries]
                its = tuple(self._channels(op, thin[0][2].box) for op in ops)
                self._whole_pieces(number, stage, ops, its, thin, parity)
        else:
            for row in self._rows(number, entries):
                for place in range(len(ops)):
                    self._pass_slices(row, stage, ops, place, slices if place == 0 else None, parity)

    def _whole_pieces(
        self,
        number: int,
        stage: CoreStage,
        ops: list[OpFacts],
        channels: _Channels,
        entries: list[_Entry],
        parity: int,
    ) -> None:
        """Pieces one after another through all ops of a stage, with weights that lie in the cores meanwhile."""
        cores = sorted({(unit, piece.core) for unit, _, piece, _ in entries})
        each = zip(stage.steps, channels, entries[0][3], strict=True)
        bound = [self.weights.ensure(step, cores, its, of) for step, its, of in each]
        for unit, index, piece, _ in entries:
            passing = self._begin(number, unit, index, piece)
            for place in range(len(ops)):
                self._pass(passing, stage, ops, place, bound[place][unit, piece.core], parity)

    def _pieces(self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box) -> list[_Piece]:
        """A stage's box cut into pieces, and their cores: in bands contiguous ones, else by channels."""
        stage = self.group.stages[number]
        sizes = [max(1, min(size, length)) for size, length in zip(stage.extents, lengths(box), strict=True)]
        # as the planner has it: the weights that matter are the first op's
        channel = ops[0].channel_axis
        cores = self.configuration.cores
        by_channels = self.configuration.core_spread is Spread.CHANNELS and channel is not None
        if by_channels and channel is not None:
            sizes[channel] = min(sizes[channel], ceil_div(lengths(box)[channel], cores))
        found = cut(box, sizes)
        if cores == 1:
            if self._space(number, unit, index) is not None:
                found = self._smaller_pieces(number, ops, unit, index, box, tuple(sizes))
            return [_Piece(0, ranges) for ranges in found]
        if by_channels and channel is not None:
            starts = sorted({ranges[channel][0] for ranges in found})
            per, number_of = ceil_div(len(starts), cores), {start: i for i, start in enumerate(starts)}
            return [_Piece(number_of[ranges[channel][0]] // per, ranges) for ranges in found]
        per = ceil_div(len(found), cores)
        return [_Piece(i // per, ranges) for i, ranges in enumerate(found)]

    # --- pieces on their way -----------------------------------------------------------------------------------------

    def _in_turns(
        self,
        number: int,
        stage: CoreStage,
        ops: list[OpFacts],
        channels: _Channels,
        entries: list[_Entry],
        parity: int,
    ) -> None:
        """Pieces of a stage whose ops' weights take each other's place: one piece of each core at once, op by op."""
        for row in self._rows(number, entries):
            cores = [(passing.unit, passing.piece.core) for passing in row]
            for place, step in enumerate(stage.steps):
                bound = self.weights.ensure(step, cores, channels[place], entries[0][3][place])
                for passing, core in zip(row, cores, strict=True):
                    self._pass(passing, stage, ops, place, bound[core], parity)

    def _rows(self, number: int, entries: list[_Entry]) -> Iterator[list[_Passing]]:
        """Pieces that begin side by side: one of each core at once, in all units."""
        queues: dict[tuple[int, int], list[tuple[int, Index, _Piece]]] = {}
        for unit, index, piece, _ in entries:
            queues.setdefault((unit, piece.core), []).append((unit, index, piece))
        for row in zip_longest(*queues.values()):
            yield [self._begin(number, *entry) for entry in row if entry is not None]

    def _begin(self, number: int, unit: int, index: Index, piece: _Piece) -> _Passing:
        """A piece before the first op of its stage."""
        slot = self._slot(number, unit, piece.core)
        if number in self._doubled and self.turns.next((number, unit, piece.core), (0, 1)):
            slot = self.buffers.slots[slot.place, ("piece", number, 1)]
        slot.begin()
        return _Passing(unit, index, piece, slot, slot.address, {}, self._space(number, unit, index))

    def _pass(
        self, passing: _Passing, stage: CoreStage, ops: list[OpFacts], place: int, bound: Bound, parity: int
    ) -> None:
        """One op of a stage on a piece, its weights at hand."""
        op, core = ops[place], self.core_number(passing.unit, passing.piece.core)
        operands, held = self._prepare(passing, op, place, parity)
        operands = [*bound, *operands]
        if not self.gather(op, core, passing.piece.box, operands, held):
            self.call(op, self.queue("core", core), passing.piece.box, operands, held)
        self._finish(passing, stage, op, held, parity)

    def _pass_slices(
        self,
        row: list[_Passing],
        stage: CoreStage,
        ops: list[OpFacts],
        place: int,
        slices: list[tuple[int, int]] | None,
        parity: int,
    ) -> None:
        """One op of a stage on pieces side by side, slice by slice of its weights: each slice comes once for all."""
        step, op = stage.steps[place], ops[place]
        prepared = [(passing, *self._prepare(passing, op, place, parity)) for passing in row]
        left = [
            (passing, operands, held)
            for passing, operands, held in prepared
            if not self.gather(
                op, self.core_number(passing.unit, passing.piece.core), passing.piece.box, operands, held
            )
        ]
        channels = self._channels(op, row[0].piece.box)
        cores = [(passing.unit, passing.piece.core) for passing, _, _ in left]
        for part in (slices or self.weights.slices(step, channels)) if left else ():
            bound = self.weights.ensure(step, cores, part, channels)
            for (passing, operands, held), core in zip(left, cores, strict=True):
                self._sliced_call(op, passing, part, [*bound[core]], operands, held)
        for passing, _, held in prepared:
            self._finish(passing, stage, op, held, parity)

    def _prepare(self, passing: _Passing, op: OpFacts, place: int, parity: int) -> tuple[Bound, Held]:
        """What an op reads of a piece but for its weights, brought where it is not yet, and where its result lies."""
        unit, index, piece, inside = passing.unit, passing.index, passing.piece, passing.inside
        operands: Bound = []
        for operand in self.context.operands(op.index):
            name = operand.tensor
            if operand.constant or operand.gathered is not None:
                continue
            need = self.need(operand, piece.box)
            staying = self.staying(name, unit, index)
            if staying is not None:
                operands.append((operand.number, staying.part(need)))
                continue
            if is_missing(inside[name].box if name in inside else None, need):
                sides = lengths(need)
                if operand.number == 0 and passing.space is None and self.address_tables(op):
                    # as an address table has it: all pieces lie with the strides of a whole one
                    longest = self._piece_lengths(name, op)
                    sides = longest if all(map(le, sides, longest)) else sides
                inside[name] = self._fetch(passing, name, need, sides, parity)
            operands.append((operand.number, inside[name].part(need)))
        staying = self.staying(op.output, unit, index)
        held = staying.part(piece.box) if staying is not None else self._result(passing, op, first=place == 0)
        inside[op.output] = held
        return operands, held

    def _finish(self, passing: _Passing, stage: CoreStage, op: OpFacts, held: Held, parity: int) -> None:
        """A result that leaves its stage goes back, unless it stays in the core."""
        leaves = op.output in stage.results or op.output in stage.staying
        if leaves and self.staying(op.output, passing.unit, passing.index) is None:
            self._put(op, passing.unit, passing.index, passing.piece, held, parity)

    def _sliced_call(
        self, op: OpFacts, passing: _Passing, part: tuple[int, int], weights: Bound, operands: Bound, held: Held
    ) -> None:
        """The call that makes a slice of an op's channels of a piece."""
        box = passing.piece.box
        if op.channel_axis is not None:
            box = (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])
        for number, operand in operands:
            source = next(o for o in self.context.operands(op.index) if o.number == number)
            need = overlap(operand.box, self.need(source, box)) if source.gathered is None else operand.box
            if need is not None:
                weights.append((number, operand.part(need)))
        queue = self.queue("core", self.core_number(passing.unit, passing.piece.core))
        self.call(op, queue, box, weights, held)

    def _fetch(self, passing: _Passing, name: str, need: Box, sides: tuple[int, ...], parity: int) -> Held:
        """Bring a box from the unit's memory to a piece, where it lies as a box of lengths `sides` would."""
        unit, element = passing.unit, self.element(name)
        queue = self.queue("mvdma", self.core_number(unit, passing.piece.core))
        where, begin = self._room(passing, name, prod(sides))
        held = in_slot(where, self.dense_strides(name, sides), need, begin)
        for source in self.pieces(name, unit, passing.index, need, parity) if prod(sides) else []:
            self.emitter.copy(Opcode.MOVE, queue, source, held, source.box, element)
        return held

    def _result(self, passing: _Passing, op: OpFacts, *, first: bool) -> Held:
        """Where a piece's result lies: over an operand if the op may work in place, else behind what is there."""
        box, inside = passing.piece.box, passing.inside
        source = None if first else self._overwritten(op, {name: held.box for name, held in inside.items()}, box)
        if source is not None:
            return inside[source]
        where, begin = self._room(passing, op.output, prod(lengths(box)))
        return in_slot(where, self.dense_strides(op.output, lengths(box)), box, begin)

    def _room(self, passing: _Passing, name: str, count: int) -> tuple[Slot, int]:
        """A place for so many elements of a tensor: in the piece's buffer, or in what else a larger tile may use."""
        element, slot = self.element(name), passing.slot
        begin = -(-passing.at // element) * element
        if begin + element * count <= slot.address + slot.size_bytes:
            passing.at = begin + element * count
            return slot, begin
        start = passing.space.take(element * count) if passing.space is not None else None
        if start is None:
            raise LimitError(
                "a tile that is larger than the usual one has no room in the core",
                code="not_lowered",
                stage="lower",
                node=name,
                actual=element * count,
                limit=0 if passing.space is None else passing.space.largest_bytes,
                hint="Pin a smaller tile, or halo recompute",
            )
        key = (slot.place, start, element * count)
        found = self._beside.get(key)
        if found is None:
            found = self._beside[key] = self.buffers.insert(*key)
        found.begin()
        return found, start

    def _put(self, op: OpFacts, unit: int, index: Index, piece: _Piece, held: Held, parity: int) -> None:
        """A piece's result back to the unit's memory."""
        target = self.tile(op.output, unit, index, parity)
        part = overlap(held.box, target.box) if target is not None else None
        if target is not None and part is not None:
            if op.output in self.takes_over:
                # other cores have read what this lies over since the stage began
                target.slot.again()
            queue = self.queue("mvdma", self.core_number(unit, piece.core))
            self.emitter.copy(Opcode.MOVE, queue, held, target, part, self.element(op.output))


def _slice_of(op: OpFacts, piece: _Piece, channels: tuple[int, int]) -> _Piece:
    """A part of a piece's channels."""
    axis = op.channel_axis
    assert axis is not None
    return _Piece(piece.core, (*piece.box[:axis], channels, *piece.box[axis + 1 :]))
