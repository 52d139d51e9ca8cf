"""Breadth-first groups of a chip with SRAM: tiles lie in SRAM, cores pass over them stage by stage, piece by piece."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import le
from typing import NamedTuple

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import in_slot
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.group import OpSteps
from compiler.program.iteration import At, Loop, Step
from compiler.program.larger import FreeSpace
from compiler.program.located import Located
from compiler.program.peers import copy_common
from compiler.program.program import Opcode
from compiler.program.slots import Slot
from compiler.program.stage_pieces import PieceEntry, StageMemory, StageTurns, is_missing
from compiler.program.tiles import Index
from compiler.program.unit_calls import Bound, OperandBoxes, UnitCalls
from compiler.program.weight_reach import Need
from compiler.program.weights import GroupWeights
from compiler.tiling.stages import CoreStage


class _Made(NamedTuple):
    """One op on a piece: what comes to it (tensor and place), what it reads but for weights, where its result lies."""

    fetched: list[tuple[str, Held]]
    operands: Bound
    result: Held


@dataclass(slots=True)
class _Room:
    """Where a piece finds room: its buffer, where the free part of that begins, and what else its core has.

    `space` is None for a piece of a usual tile, whose buffer has room for all.
    """

    slot: Slot
    at: int
    space: FreeSpace | None


@dataclass(slots=True, eq=False)
class StagedCores:
    """A unit is a cluster; a stage's pieces come to NRAM, pass its ops, and go back."""

    located: Located
    operands: OperandBoxes
    memory: StageMemory
    turns: StageTurns
    calls: UnitCalls
    weights: GroupWeights
    _known_made: dict[tuple[int, int, int], list[tuple[PieceEntry, list[_Made]]]] = field(default_factory=dict)

    def work(self, steps: OpSteps) -> tuple[Step | Loop, ...]:
        """All stages, one after another, each on all tiles of the round."""
        found: list[Step | Loop] = []
        for number, stage in enumerate(self.located.group.stages):
            ops = [self.located.geometry.ops[step] for step in stage.steps]
            found += [
                steps.step(f"pull {op.output}", op, steps.each(partial(self._pull_result, ops[-1], op)))
                for op in self._results(stage, ops)
            ]
            for step, op in zip(stage.steps, ops, strict=True):
                found += steps.lasting_weights(step, op)
            if self.located.group.stays_together(stage.steps):
                tables = partial(self._tables, number, stage.steps[0])
                found.append(steps.step(f"address tables of {ops[0].output}", ops[0], tables))
            body: list[Step | Loop] = []
            for place, (step, op) in enumerate(zip(stage.steps, ops, strict=True)):
                whole = partial(self._whole_weights, number, place, step)
                body.append(steps.passing_weights(step, op, "weights", whole))
                body.append(steps.step(f"fetch for {op.output}", op, partial(self._fetch, number, place)))
                slices = (
                    steps.passing_weights(step, op, "slice of weights", partial(self._weights, number, place, step)),
                    steps.step(f"make {op.output}", op, partial(self._make, number, place, step, op)),
                )
                count = partial(self._slice_count_of, number, place)
                body.append(Loop(name=f"slices of {op.output}", count=count, body=slices))
                if op in self._results(stage, ops):
                    body.append(steps.step(f"put {op.output}", op, partial(self._put, number, place, op)))
            count = partial(self._turn_count, number)
            found.append(Loop(name=f"pieces of stage {number}", count=count, body=tuple(body)))
            for step, op in zip(stage.steps, ops, strict=True):
                if op in self._results(stage, ops):
                    found += [steps.share(step, op, "cdma"), steps.send(op.output, op)]
            # what is made and read inside one stage never comes to the SRAM
            here = {*stage.inputs, *stage.results, *stage.staying}
            kept = (name for name in self.located.dying(stage.steps) if name in here)
            found += [steps.keep(name, ops[-1]) for name in kept]
        return tuple(found)

    def _results(self, stage: CoreStage, ops: list[OpFacts]) -> list[OpFacts]:
        return [op for op in ops if op.output in stage.results or op.output in stage.staying]

    def _pull_result(self, last: OpFacts, op: OpFacts, unit: int, index: Index) -> None:
        if self.located.first_slice(last.output, index):
            self.memory.pull(op.output, unit, index)

    def _turn_count(self, number: int, at: At) -> int:
        return len(self.turns.of(number, at[0]))

    def _slice_count_of(self, number: int, place: int, at: At) -> int:
        return self.turns.of(number, at[0])[at[1]].slice_count(place)

    # --- weights ------------------------------------------------------------------------------------------------------

    def _tables(self, number: int, step: int, at: At) -> None:
        cores = sorted({entry.place for turn in self.turns.of(number, at[0]) for entry in turn.row})
        self.weights.bring_tables(step, at, cores)

    def _whole_weights(self, number: int, place: int, step: int, at: At) -> None:
        """The weights of an op that come at once for a turn: before what the pieces read."""
        if self._slice_count_of(number, place, at) == 1:
            self._bring_weights(number, place, step, (*at, 0))

    def _weights(self, number: int, place: int, step: int, at: At) -> None:
        """Bring the slice of an op's weights that is at hand, where several come for one turn."""
        if self._slice_count_of(number, place, at) > 1:
            self._bring_weights(number, place, step, at)

    def _bring_weights(self, number: int, place: int, step: int, at: At) -> None:
        """The weights of an op, or a slice of them, to all cores that work with them from this turn on."""
        turn, part = self.turns.of(number, at[0])[at[1]], at[2]
        slices = [(entry, entry.slices[place]) for entry in turn.row if turn.brings]
        needs = [Need(entry.place, its[part], entry.whole[place]) for entry, its in slices if part < len(its)]
        self.weights.bring_passing(step, at, needs, turn.use + part, tables=turn.tables and part == 0)

    # --- pieces on their way ------------------------------------------------------------------------------------------

    def _on_their_way(self, number: int, at: At) -> list[tuple[PieceEntry, list[_Made]]]:
        """The pieces of a turn, and op by op what a core has of them."""
        key = (number, at[0], at[1])
        known = self._known_made.get(key)
        if known is None:
            if self._known_made and at[0] != next(iter(self._known_made))[1]:
                # those of one round are kept
                self._known_made.clear()
            turn = self.turns.of(number, at[0])[at[1]]
            known = self._known_made[key] = [(entry, self._made(number, entry, at)) for entry in turn.row]
        return known

    def _made(self, number: int, entry: PieceEntry, at: At) -> list[_Made]:
        """Where all that a piece brings and makes lies in its core, op by op."""
        stage = self.located.group.stages[number]
        unit, index, piece = entry.unit, entry.tile, entry.piece
        turn = self.turns.number(number, at, entry.place) if number in self.memory.doubled else 0
        slot = self.memory.slot(number, unit, piece.core, turn)
        room = _Room(slot, slot.address, self.memory.space(number, unit, index))
        inside: dict[str, Held] = {}
        found = []
        for place, step in enumerate(stage.steps):
            op = self.located.geometry.ops[step]
            fetched: list[tuple[str, Held]] = []
            operands: Bound = []
            for operand in self.located.context.operands(op.index):
                name = operand.tensor
                if operand.constant or operand.gathered is not None:
                    continue
                need = self.operands.need(operand, piece.box)
                staying = self.memory.staying(name, unit, index)
                if staying is not None:
                    operands.append((operand.number, staying.part(need)))
                    continue
                if is_missing(inside[name].box if name in inside else None, need):
                    sides = lengths(need)
                    if operand.number == 0 and room.space is None and self.calls.address_tables(op):
                        # as an address table has it: all pieces lie with the strides of a whole one
                        longest = self.memory.piece_lengths(name, op)
                        sides = longest if all(map(le, sides, longest)) else sides
                    where, begin = self._room(room, name, prod(sides))
                    inside[name] = in_slot(where, self.located.dense_strides(name, sides), need, begin)
                    fetched.append((name, inside[name]))
                operands.append((operand.number, inside[name].part(need)))
            staying = self.memory.staying(op.output, unit, index)
            if staying is not None:
                result = staying.part(piece.box)
            else:
                result = self._result(room, inside, op, piece.box, first=place == 0)
            inside[op.output] = result
            found.append(_Made(fetched, operands, result))
        return found

    def _fetch(self, number: int, place: int, at: At) -> None:
        """Bring what an op reads from outside the stage to the pieces of a turn."""
        for entry, made in self._on_their_way(number, at):
            queue = self.located.core_queue("mvdma", *entry.place)
            for name, held in made[place].fetched:
                if is_empty(held.box):
                    continue
                for source in self.memory.pieces(name, entry.unit, entry.tile, held.box):
                    self.located.emitter.copy(Opcode.MOVE, queue, source, held, source.box, self.located.element(name))

    def _make(self, number: int, place: int, step: int, op: OpFacts, at: At) -> None:
        """The calls that make an op's result of a turn's pieces, or a slice of its channels."""
        turn, part = self.turns.of(number, at[0])[at[1]], at[2]
        for entry, made in self._on_their_way(number, at):
            slices = entry.slices[place]
            if part >= len(slices):
                continue
            its, core = made[place], self.located.core_number(*entry.place)
            need = Need(entry.place, slices[part], entry.whole[place])
            bound = self.weights.bound(step, need, at[0], turn.use + part)
            if len(slices) == 1 or self.calls.is_gathering(op):
                # rows of a table come for the whole piece, with whatever slice of its weights
                if part == 0:
                    self.calls.call(op, core, entry.piece.box, [*bound, *its.operands], its.result)
            else:
                self._sliced_call(op, entry, slices[part], bound, its)

    def _sliced_call(self, op: OpFacts, entry: PieceEntry, part: tuple[int, int], weights: Bound, made: _Made) -> None:
        """The call that makes a slice of an op's channels of a piece."""
        box, operands = entry.piece.box, [*weights]
        if op.channel_axis is not None:
            box = (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])
        for number, operand in made.operands:
            source = next(o for o in self.located.context.operands(op.index) if o.number == number)
            need = overlap(operand.box, self.operands.need(source, box)) if source.gathered is None else operand.box
            if need is not None:
                operands.append((number, operand.part(need)))
        self.calls.call(op, self.located.core_number(*entry.place), box, operands, made.result)

    def _put(self, number: int, place: int, op: OpFacts, at: At) -> None:
        """The results of a turn's pieces back to the unit's memory, unless they stay in the core."""
        for entry, made in self._on_their_way(number, at):
            target = None
            if self.memory.staying(op.output, entry.unit, entry.tile) is None:
                target = self.memory.tile(op.output, entry.unit, entry.tile)
            if target is not None:
                queue, element = self.located.core_queue("mvdma", *entry.place), self.located.element(op.output)
                copy_common(self.located.emitter, Opcode.MOVE, queue, [made[place].result], [target], element)

    def _result(self, room: _Room, inside: dict[str, Held], op: OpFacts, box: Box, *, first: bool) -> Held:
        """Where a piece's result lies: over an operand if the op may work in place, else behind what is there."""
        source = None if first else self.memory.overwritten(op, {name: held.box for name, held in inside.items()}, box)
        if source is not None:
            return inside[source]
        where, begin = self._room(room, op.output, prod(lengths(box)))
        return in_slot(where, self.located.dense_strides(op.output, lengths(box)), box, begin)

    def _room(self, room: _Room, name: str, count: int) -> tuple[Slot, int]:
        """A place for so many elements of a tensor: in the piece's buffer, or in what else a larger tile may use."""
        element, slot = self.located.element(name), room.slot
        begin = -(-room.at // element) * element
        if begin + element * count <= slot.address + slot.size_bytes:
            room.at = begin + element * count
            return slot, begin
        start = room.space.take(element * count) if room.space is not None else None
        if start is None:
            raise LimitError(
                "a tile that is larger than the usual one has no room in the core",
                code="not_lowered",
                stage="lower",
                node=name,
                actual=element * count,
                limit=0 if room.space is None else room.space.largest_bytes,
                hint="Pin a smaller tile, or halo recompute",
            )
        return self.memory.beside[slot.place, start, element * count], start
