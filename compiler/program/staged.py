"""Breadth-first groups of a chip with SRAM: tiles lie in SRAM, cores pass over them stage by stage, piece by piece."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from math import prod
from operator import le
from typing import NamedTuple

from compiler.errors import LimitError
from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import in_slot
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At, Loop, Step
from compiler.program.larger import FreeSpace, cut
from compiler.program.program import Opcode
from compiler.program.recent import Recent
from compiler.program.slots import Slot
from compiler.program.stage_memory import StageMemory, is_missing
from compiler.program.tiles import Index
from compiler.program.weight_reach import Core, Need
from compiler.program.weights import Bound
from compiler.tiling.stages import CoreStage
from compiler.tiling.tile import Spread
from compiler.units import ceil_div

# The channels of each op of a stage.
_Channels = tuple[tuple[int, int], ...]


class _Piece(NamedTuple):
    """A part of a stage's box for one core."""

    core: int
    box: Box


class _Entry(NamedTuple):
    """A piece of a unit's tile, and the channels of all the unit's pieces."""

    unit: int
    tile: Index
    piece: _Piece
    whole: _Channels

    @property
    def place(self) -> Core:
        """The unit and the core."""
        return self.unit, self.piece.core


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    """Pieces that pass a stage side by side, one of each core at most.

    `channels`: those of each op. `slices`: those of each op's weights that come one after the other. `bringing`: the
    cores to which weights come with these pieces, for this and later turns; `use`: the number of their first use,
    counted over all rounds. `tables`: whether address tables come with them.
    """

    row: tuple[_Entry, ...]
    channels: _Channels
    slices: tuple[tuple[tuple[int, int], ...], ...]
    bringing: tuple[Core, ...]
    use: int
    tables: bool


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


def turns_of_cores(turns: Sequence[_Turn]) -> dict[Core, list[int]]:
    """By core the numbers of the turns in which it has a piece."""
    found: dict[Core, list[int]] = {}
    for number, turn in enumerate(turns):
        for entry in turn.row:
            found.setdefault(entry.place, []).append(number)
    return found


class StagedLowering(StageMemory):
    """A unit is a cluster; a stage's pieces come to NRAM, pass its ops, and go back."""

    def work(self) -> tuple[Step | Loop, ...]:
        """All stages, one after another, each on all tiles of the round."""
        # by stage and round
        self._known_turns = Recent[tuple[int, int], list[_Turn]](len(self.group.stages))
        self._known_of_cores: tuple[tuple[int, int], dict[Core, list[int]]] = (-1, -1), {}
        self._known_made: dict[tuple[int, int, int], list[tuple[_Entry, list[_Made]]]] = {}
        found: list[Step | Loop] = []
        for number, stage in enumerate(self.group.stages):
            ops = [self.geometry.ops[step] for step in stage.steps]
            found += [
                self.step(f"pull {op.output}", op, self.each(partial(self._pull_result, ops[-1], op)))
                for op in self._results(stage, ops)
            ]
            found += [self.lasting_weights(step, op) for step, op in zip(stage.steps, ops, strict=True)]
            if self.group.stays_together(stage.steps):
                tables = partial(self._tables, number, stage.steps[0])
                found.append(self.step(f"address tables of {ops[0].output}", ops[0], tables))
            body: list[Step | Loop] = []
            for place, (step, op) in enumerate(zip(stage.steps, ops, strict=True)):
                whole = partial(self._whole_weights, number, place, step)
                body.append(self.passing_weights(step, op, "weights", whole))
                body.append(self.step(f"fetch for {op.output}", op, partial(self._fetch, number, place)))
                slices = (
                    self.passing_weights(step, op, "slice of weights", partial(self._weights, number, place, step)),
                    self.step(f"make {op.output}", op, partial(self._make, number, place, step, op)),
                )
                count = partial(self._slice_count_of, number, place)
                body.append(Loop(name=f"slices of {op.output}", count=count, body=slices))
                if op in self._results(stage, ops):
                    body.append(self.step(f"put {op.output}", op, partial(self._put, number, place, op)))
            count = partial(self._turn_count, number)
            found.append(Loop(name=f"pieces of stage {number}", count=count, body=tuple(body)))
            for step, op in zip(stage.steps, ops, strict=True):
                if op in self._results(stage, ops):
                    found += [self.share_step(step, op, "cdma"), self.send_step(op.output, op)]
            # what is made and read inside one stage never comes to the SRAM
            here = {*stage.inputs, *stage.results, *stage.staying}
            kept = (name for name in self.dying(stage.steps) if name in here)
            found += [self.keep_step(name, ops[-1]) for name in kept]
        return tuple(found)

    def forget(self) -> None:
        """Drop the turns of rounds, too."""
        super().forget()
        self._known_turns.clear()

    def _results(self, stage: CoreStage, ops: list[OpFacts]) -> list[OpFacts]:
        return [op for op in ops if op.output in stage.results or op.output in stage.staying]

    def _pull_result(self, last: OpFacts, op: OpFacts, unit: int, index: Index) -> None:
        if self.first_slice(last.output, index):
            self._pull(op.output, unit, index)

    # --- what is done in turn -----------------------------------------------------------------------------------------

    def _turn_count(self, number: int, at: At) -> int:
        return len(self._turns(number, at[0]))

    @cached_property
    def _usual_turns(self) -> list[dict[Core, list[int]]]:
        """By stage the turns of each core in the round in the middle; first and last tiles may have others."""
        middle = len(self.rounds) // 2
        return [turns_of_cores(self._turns(number, middle)) for number in range(len(self.group.stages))]

    def _turn_number(self, number: int, at: At, core: Core) -> int:
        """A number of a core's turn, by which its two buffers alternate, through all stages and rounds.

        As if all rounds had their usual turns: by their own, one tile with an odd number of turns more or less would
        let turns that follow each other use one buffer, and the loop of all tiles would wait for that. A larger tile
        begins earlier, so that it ends as the others do. Where each stage has one turn rounds alternate, so that two of
        them may be on their way.
        """
        usual = [len(turns.get(core, ())) for turns in self._usual_turns]
        if max(usual) <= 1:
            return at[0] + at[1]
        turns = self._turns_of_cores(number, at[0])[core]
        more = max(0, len(turns) - usual[number])
        return at[0] * sum(usual) + sum(usual[:number]) + bisect_left(turns, at[1]) - more

    def _turns_of_cores(self, number: int, round_number: int) -> dict[Core, list[int]]:
        """The turns of each core in a round of a stage."""
        key = number, round_number
        if self._known_of_cores[0] != key:
            self._known_of_cores = key, turns_of_cores(self._turns(number, round_number))
        return self._known_of_cores[1]

    def _slice_count_of(self, number: int, place: int, at: At) -> int:
        return len(self._turns(number, at[0])[at[1]].slices[place])

    def _turns(self, number: int, round_number: int) -> list[_Turn]:
        """The turns in which the pieces of a round's tiles pass a stage."""
        key = number, round_number
        known = self._known_turns.get(key)
        if known is None:
            known = self._known_turns[key] = self._new_turns(number, round_number)
        return known

    def _new_turns(self, number: int, round_number: int) -> list[_Turn]:
        stage = self.group.stages[number]
        ops = [self.geometry.ops[step] for step in stage.steps]
        ranges: dict[_Channels, list[_Entry]] = {}
        for unit, index in self.rounds[round_number]:
            if not self.first_slice(ops[-1].output, index):
                continue
            box = self.unit_part(ops[-1], unit, self.made(ops[-1].output, index))
            if is_empty(box):
                continue
            whole = tuple(_channels(op, box) for op in ops)
            for piece in self._pieces(number, ops, unit, index, box):
                channels = tuple(_channels(op, piece.box) for op in ops)
                ranges.setdefault(channels, []).append(_Entry(unit, index, piece, whole))
        found: list[_Turn] = []
        uses: dict[Core, int] = {}
        for channels, entries in ranges.items():
            found += self._turns_of(stage, ops, channels, entries, uses)
        before = round_number * max(uses.values(), default=0)
        return [replace(turn, use=before + turn.use) for turn in found] if before else found

    def _turns_of(
        self, stage: CoreStage, ops: list[OpFacts], channels: _Channels, entries: list[_Entry], uses: dict[Core, int]
    ) -> list[_Turn]:
        """Pieces of the same channels (op by op); `uses`: how often each core has used weights before.

        Where pieces follow one another in a core, all go through with one slice of the weights before the next one
        comes, if the stage may cut its channels. Where the weights of the stage's ops take each other's place, each
        piece passes all ops, and so do all slices that come for each piece.
        """
        cores = tuple(sorted({entry.place for entry in entries}))
        rows = _rows(entries)
        slices = tuple(tuple(self.weights.slices(step, its)) for step, its in zip(stage.steps, channels, strict=True))
        together = self.group.stays_together(stage.steps)
        at_once = all(len(its) == 1 for its in slices)
        first = max((uses.get(core, 0) for core in cores), default=0)
        found: list[_Turn] = []
        if together and (at_once or (len(rows) > 1 and stage.cuts_channels)):
            count = len(slices[0])
            for part in slices[0]:
                thin = entries if count == 1 else [_thin(ops[0], entry, part) for entry in entries]
                its = channels if count == 1 else tuple(_channels(op, thin[0].piece.box) for op in ops)
                for place, row in enumerate(_rows(thin)):
                    bringing = () if place else cores
                    its_slices = tuple((found,) for found in its)
                    found.append(
                        _Turn(row=row, channels=its, slices=its_slices, bringing=bringing, use=first, tables=False)
                    )
                first += 1
        else:
            for row in rows:
                bringing = tuple(entry.place for entry in row)
                found.append(
                    _Turn(row=row, channels=channels, slices=slices, bringing=bringing, use=first, tables=not together)
                )
                first += max(map(len, slices))
        uses.update(dict.fromkeys(cores, first))
        return found

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

    # --- weights ------------------------------------------------------------------------------------------------------

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the pieces of a round need of an op's weights."""
        stage_number, stage = next((n, stage) for n, stage in enumerate(self.group.stages) if step in stage.steps)
        place = stage.steps.index(step)
        for turn in self._turns(stage_number, number):
            for entry in turn.row:
                for part in turn.slices[place]:
                    yield Need(entry.place, part, entry.whole[place])

    def _tables(self, number: int, step: int, at: At) -> None:
        cores = sorted({entry.place for turn in self._turns(number, at[0]) for entry in turn.row})
        self.weights.bring_tables(step, at, cores)

    def _whole_weights(self, number: int, place: int, step: int, at: At) -> None:
        """The weights of an op that come at once for a turn: before what the pieces read."""
        if len(self._turns(number, at[0])[at[1]].slices[place]) == 1:
            self._bring_weights(number, place, step, (*at, 0))

    def _weights(self, number: int, place: int, step: int, at: At) -> None:
        """Bring the slice of an op's weights that is at hand, where several come for one turn."""
        if len(self._turns(number, at[0])[at[1]].slices[place]) > 1:
            self._bring_weights(number, place, step, at)

    def _bring_weights(self, number: int, place: int, step: int, at: At) -> None:
        """The weights of an op, or a slice of them, to all cores that work with them from this turn on."""
        turn, part = self._turns(number, at[0])[at[1]], at[2]
        whole = turn.row[0].whole[place]
        needs = [Need(core, turn.slices[place][part], whole) for core in turn.bringing]
        self.weights.bring_passing(step, at, needs, turn.use + part, tables=turn.tables and part == 0)

    # --- pieces on their way ------------------------------------------------------------------------------------------

    def _on_their_way(self, number: int, at: At) -> list[tuple[_Entry, list[_Made]]]:
        """The pieces of a turn, and op by op what a core has of them."""
        key = (number, at[0], at[1])
        known = self._known_made.get(key)
        if known is None:
            if self._known_made and at[0] != next(iter(self._known_made))[1]:
                # those of one round are kept
                self._known_made.clear()
            turn = self._turns(number, at[0])[at[1]]
            known = self._known_made[key] = [(entry, self._made(number, entry, at)) for entry in turn.row]
        return known

    def _made(self, number: int, entry: _Entry, at: At) -> list[_Made]:
        """Where all that a piece brings and makes lies in its core, op by op."""
        stage = self.group.stages[number]
        unit, index, piece = entry.unit, entry.tile, entry.piece
        slot = self._slot(number, unit, piece.core)
        if number in self._doubled and self._turn_number(number, at, entry.place) % 2:
            slot = self.buffers.slots[slot.place, ("piece", number, 1)]
        room = _Room(slot, slot.address, self._space(number, unit, index))
        inside: dict[str, Held] = {}
        found = []
        for place, step in enumerate(stage.steps):
            op = self.geometry.ops[step]
            fetched: list[tuple[str, Held]] = []
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
                    if operand.number == 0 and room.space is None and self.address_tables(op):
                        # as an address table has it: all pieces lie with the strides of a whole one
                        longest = self._piece_lengths(name, op)
                        sides = longest if all(map(le, sides, longest)) else sides
                    where, begin = self._room(room, name, prod(sides))
                    inside[name] = in_slot(where, self.dense_strides(name, sides), need, begin)
                    fetched.append((name, inside[name]))
                operands.append((operand.number, inside[name].part(need)))
            staying = self.staying(op.output, unit, index)
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
            queue = self.queue("mvdma", self.core_number(entry.unit, entry.piece.core))
            for name, held in made[place].fetched:
                if is_empty(held.box):
                    continue
                for source in self.pieces(name, entry.unit, entry.tile, held.box):
                    self.emitter.copy(Opcode.MOVE, queue, source, held, source.box, self.element(name))

    def _make(self, number: int, place: int, step: int, op: OpFacts, at: At) -> None:
        """The calls that make an op's result of a turn's pieces, or a slice of its channels."""
        turn, part = self._turns(number, at[0])[at[1]], at[2]
        slices = turn.slices[place]
        for entry, made in self._on_their_way(number, at):
            its, core = made[place], self.core_number(*entry.place)
            need = Need(entry.place, slices[part], entry.whole[place])
            bound = self.weights.bound(step, need, at[0], turn.use + part)
            operands = [*bound, *its.operands]
            if self.is_gathering(op):
                # rows of a table come for the whole piece, with whatever slice of its weights
                if part == 0:
                    self.gather(op, core, entry.piece.box, operands, its.result)
            elif len(slices) == 1:
                self.call(op, self.queue("core", core), entry.piece.box, operands, its.result)
            else:
                self._sliced_call(op, entry, slices[part], bound, its)

    def _sliced_call(self, op: OpFacts, entry: _Entry, part: tuple[int, int], weights: Bound, made: _Made) -> None:
        """The call that makes a slice of an op's channels of a piece."""
        box, operands = entry.piece.box, [*weights]
        if op.channel_axis is not None:
            box = (*box[: op.channel_axis], part, *box[op.channel_axis + 1 :])
        for number, operand in made.operands:
            source = next(o for o in self.context.operands(op.index) if o.number == number)
            need = overlap(operand.box, self.need(source, box)) if source.gathered is None else operand.box
            if need is not None:
                operands.append((number, operand.part(need)))
        self.call(op, self.queue("core", self.core_number(*entry.place)), box, operands, made.result)

    def _put(self, number: int, place: int, op: OpFacts, at: At) -> None:
        """The results of a turn's pieces back to the unit's memory, unless they stay in the core."""
        for entry, made in self._on_their_way(number, at):
            unit, index, held = entry.unit, entry.tile, made[place].result
            target = self.tile(op.output, unit, index) if self.staying(op.output, unit, index) is None else None
            part = overlap(held.box, target.box) if target is not None else None
            if target is not None and part is not None:
                queue = self.queue("mvdma", self.core_number(*entry.place))
                self.emitter.copy(Opcode.MOVE, queue, held, target, part, self.element(op.output))

    def _result(self, room: _Room, inside: dict[str, Held], op: OpFacts, box: Box, *, first: bool) -> Held:
        """Where a piece's result lies: over an operand if the op may work in place, else behind what is there."""
        source = None if first else self._overwritten(op, {name: held.box for name, held in inside.items()}, box)
        if source is not None:
            return inside[source]
        where, begin = self._room(room, op.output, prod(lengths(box)))
        return in_slot(where, self.dense_strides(op.output, lengths(box)), box, begin)

    def _room(self, room: _Room, name: str, count: int) -> tuple[Slot, int]:
        """A place for so many elements of a tensor: in the piece's buffer, or in what else a larger tile may use."""
        element, slot = self.element(name), room.slot
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
        key = (slot.place, start, element * count)
        found = self._beside.get(key)
        if found is None:
            found = self._beside[key] = self.buffers.insert(*key)
        return found, start


def _channels(op: OpFacts, box: Box) -> tuple[int, int]:
    return (0, 1) if op.channel_axis is None else box[op.channel_axis]


def _rows(entries: list[_Entry]) -> list[tuple[_Entry, ...]]:
    """Pieces that begin side by side: one of each core at once, in all units."""
    queues: dict[Core, list[_Entry]] = {}
    for entry in entries:
        queues.setdefault(entry.place, []).append(entry)
    return [tuple(entry for entry in row if entry is not None) for row in zip_longest(*queues.values())]


def _thin(op: OpFacts, entry: _Entry, channels: tuple[int, int]) -> _Entry:
    """A piece with a part of its channels."""
    axis, piece = op.channel_axis, entry.piece
    assert axis is not None
    return entry._replace(piece=_Piece(piece.core, (*piece.box[:axis], channels, *piece.box[axis + 1 :])))
