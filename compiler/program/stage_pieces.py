"""Pieces of a breadth-first group's stages: where they lie in a core, and in which turns they pass it (PROG-2, TILE-7).

Tiles lie in the SRAM; what stays between stages lies in the core.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from math import prod
from typing import NamedTuple

from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import in_slot, pieces_of
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.iteration import At
from compiler.program.known import Known, Recent
from compiler.program.larger import FreeSpace, cut, gaps, smaller
from compiler.program.located import Located
from compiler.program.parts import ChannelParts, channels_of
from compiler.program.peers import copy_common
from compiler.program.program import Level, Opcode
from compiler.program.slots import Slot
from compiler.program.tiles import Index
from compiler.program.unit_calls import OperandBoxes, Part
from compiler.program.unit_tiles import UnitTiles
from compiler.program.weight_boxes import WeightBoxes
from compiler.program.weight_reach import Core, Need
from compiler.tiling.memory import PIECE, STAYING
from compiler.tiling.stages import CoreStage, operand_lengths
from compiler.tiling.tile import Spread
from compiler.units import ceil_div


class StageMemory:
    """The slots of a breadth-first group, and where a stage's pieces find room in a core."""

    def __init__(self, located: Located, operands: OperandBoxes, in_units: UnitTiles) -> None:
        """`in_units`: tiles in the units' memories."""
        self._located = located
        self._group, self._geometry = located.group, located.geometry
        self._tiles, self._buffers = located.tiles, located.buffers
        self._operands = operands
        self._in_units = in_units
        self._longest = Known(self._new_lengths)
        # bytes of a core that other buffers take at other times, by place, address and size
        self.beside = Known[tuple[int, int, int], Slot](lambda key: self._buffers.insert(*key))
        # what stays in the core between stages, and the stages that have a second buffer for their pieces
        self._stays: set[str] = set()
        self.doubled: set[int] = set()
        in_units.lay_out((*self._geometry.inputs, *self._geometry.made))
        for unit in range(located.units):
            self._lay_out(unit)

    def _lay_out(self, unit: int) -> None:
        """The slots of one cluster's cores."""
        level = Level.NRAM.value
        for name in self._group.core_resident:
            if self._buffers.size(level, STAYING + name):
                self._stays.add(name)
                self._buffers.take(self._located.core_place(unit, 0), level, STAYING + name, ("staying", name))
        for number, stage in enumerate(self._group.stages):
            for core in range(self._located.configuration.cores) if stage.piece_bytes else ():
                place = self._located.core_place(unit, core)
                self._buffers.take(place, level, f"{PIECE}{number}", ("piece", number))

    def double(self) -> None:
        """A second buffer for the pieces of all stages: one comes and another leaves while a core works."""
        twins = self._located.twins(Level.NRAM)
        found: tuple[int, int] | None = None
        for number, stage in sorted(enumerate(self._group.stages), key=lambda entry: -entry[1].piece_bytes):
            if found is None and stage.piece_bytes:
                address = twins.take(stage.piece_bytes)
                found = None if address is None else (address, stage.piece_bytes)
            if found is not None and stage.piece_bytes:
                twins.add(self._located.core_places(), ("piece", number), ("piece", number, 1), found[0])
                self.doubled.add(number)

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """That of a whole piece; of what stays in the core between stages that of a tile in the middle."""
        if self._buffers.size(Level.NRAM.value, STAYING + name):
            middle = {axis: count // 2 for axis, count in self._tiles.counts.items()}
            return [self._located.dense_strides(name, lengths(self._tiles.needed(name, middle)))]
        return [self._located.dense_strides(name, self.piece_lengths(name, op))]

    def piece_lengths(self, name: str, op: OpFacts) -> tuple[int, ...]:
        """The most that a piece of an op's stage needs of its input, which the piece's buffer has room for."""
        return self._longest[op.index, name]

    def _new_lengths(self, key: tuple[int, str]) -> tuple[int, ...]:
        index, name = key
        stage = next(s for s in self._group.stages if index == self._geometry.ops[s.steps[0]].index)
        access = next(o.access for o in self._located.context.operands(index) if o.tensor == name)
        return operand_lengths(name, access, stage.extents, self._group.frustums)

    def staying(self, name: str, unit: int, index: Index) -> Held | None:
        """Where a tensor lies in the only core of its unit between stages; None if it does not, or is too large to.

        All that the tile needs of it lies there. The first tile of a walk is larger than others and passes the SRAM.
        """
        if name not in self._stays or is_empty(self._tiles.fresh(name, index)):
            return None
        slot = self._buffers.slots[self._located.core_place(unit, 0), ("staying", name)]
        box = self._tiles.needed(name, index)
        held = in_slot(slot, self._located.dense_strides(name, lengths(box)), box)
        size = self._located.element(name) * prod(lengths(box))
        return held if size <= slot.size_bytes else None

    def tile(self, name: str, unit: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a tile's new part of a tensor lies: in the core where it stays there, else in the SRAM."""
        held = self.staying(name, unit, index)
        if held is None:
            return self._in_units.tile(name, unit, index, part)
        return held.part(self._tiles.fresh(name, index))

    def pieces(self, name: str, unit: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies: all of it in the core where it stays there."""
        held = self.staying(name, unit, index)
        inside = overlap(held.box, box) if held is not None else None
        if held is not None and inside is not None:
            return [held.part(inside)]
        tile = self.tile(name, unit, index, part)
        return pieces_of(self._tiles, name, index, box, tile, self._in_units.stores(name, unit))

    def pull(self, name: str, unit: int, index: Index) -> None:
        """What waits in the SRAM of a tensor that stays in the core comes back beside what is made anew."""
        held = self.staying(name, unit, index)
        for shape in self._tiles.stores(name) if held is not None else ():
            store = self._buffers.store(self._located.place(unit), name, shape.axis)
            if held is None or store is None:
                continue
            queue, element = self._located.core_queue("mvdma", unit, 0), self._located.element(name)
            for cell in self._tiles.waiting(name, index, shape.axis):
                sources = store.pieces(self._tiles, name, index, cell)
                copy_common(self._located.emitter, Opcode.MOVE, queue, sources, [held], element)

    def slot(self, number: int, unit: int, core: int, turn: int = 0) -> Slot:
        """A stage's buffer for pieces in a core; an empty one if all that the stage reads and makes stays there.

        `turn`: by which two buffers alternate, of a doubled stage.
        """
        place = self._located.core_place(unit, core)
        key = ("piece", number, 1) if turn % 2 else ("piece", number)
        return self._buffers.slots.get((place, key)) or Slot(place, 0, 0)

    def overwritten(self, op: OpFacts, inside: Mapping[str, Box], box: Box) -> str | None:
        """The operand that an op in the middle of a stage may write over, by the boxes of what a piece holds."""
        operands = (o for o in self._located.context.operands(op.index) if not o.constant)
        source = next((o.tensor for o in operands if inside.get(o.tensor) == box), None)
        fits = source is not None and op.in_place and self._located.element(source) == self._located.element(op.output)
        return source if fits else None

    # --- tiles that are larger than the usual one ---------------------------------------------------------------------

    def space(self, number: int, unit: int, index: Index) -> FreeSpace | None:
        """The free memory for a stage's pieces beside their own buffer; None if the tile keeps all that the plan says.

        Free is what no buffer occupies while the stage works. Buffers of tensors that do not stay count as free.
        """
        away = [name for name in self._staying_at(number) if self.staying(name, unit, index) is None]
        if not away:
            return None
        free, memory = self._located.twins(Level.NRAM), self._buffers.levels[Level.NRAM.value]
        steps = self._group.stages[number].steps
        kept = {STAYING + name for name in away}
        taken = [
            (address := memory.allocation.addresses[buffer.name], address + buffer.size_bytes)
            for buffer in memory.buffers
            if buffer.name not in kept and buffer.begin <= steps[-1] and buffer.end > steps[0]
        ]
        return FreeSpace([*gaps(taken, memory.allocation.peak_bytes), (free.begin, free.end)])

    def _staying_at(self, number: int) -> list[str]:
        """What the plan keeps in the core while a stage works."""
        spans: dict[str, list[int]] = {}
        for i, stage in enumerate(self._group.stages):
            for name in stage.staying:
                spans.setdefault(name, []).append(i)
        return [name for name, span in spans.items() if span[0] <= number <= span[-1]]

    def smaller_pieces(
        self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box, sizes: tuple[int, ...]
    ) -> list[Box]:
        """A larger tile's box in the largest pieces that find room, the plan's or halves of these."""
        channel = ops[0].channel_axis
        axes = [axis for axis in range(1, len(sizes)) if axis != channel] + ([0] if channel != 0 else [])
        if channel is not None and self._group.stages[number].cuts_channels:
            axes.append(channel)
        for extents in smaller(sizes, axes):
            found = cut(box, extents)
            if all(self._finds_room(number, ops, unit, index, piece) for piece in found):
                break
        return found

    def _finds_room(self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box) -> bool:
        """True if all that a piece brings and makes has room: the same steps as when it passes."""
        space, slot = self.space(number, unit, index), self.slot(number, unit, 0)
        assert space is not None
        inside: dict[str, Box] = {}
        at = slot.address
        for place, op in enumerate(ops):
            sizes = []
            for operand in self._located.context.operands(op.index):
                if operand.constant or operand.gathered is not None:
                    continue
                need = self._operands.need(operand, box)
                if self.staying(operand.tensor, unit, index) is None and is_missing(inside.get(operand.tensor), need):
                    inside[operand.tensor] = need
                    sizes.append((self._located.element(operand.tensor), prod(lengths(need))))
            if self.staying(op.output, unit, index) is None:
                if place == 0 or self.overwritten(op, inside, box) is None:
                    sizes.append((self._located.element(op.output), prod(lengths(box))))
                inside[op.output] = box
            for element, count in sizes:
                at = -(-at // element) * element
                if at + element * count <= slot.address + slot.size_bytes:
                    at += element * count
                elif space.take(element * count) is None:
                    return False
        return True


def is_missing(held: Box | None, need: Box) -> bool:
    """True if a box is not all there."""
    return held is None or overlap(held, need) != need


# The channels of each op of a stage.
_Channels = tuple[tuple[int, int], ...]


class Piece(NamedTuple):
    """A part of a stage's box for one core."""

    core: int
    box: Box


class PieceEntry(NamedTuple):
    """A piece of a unit's tile, the channels of all the unit's pieces, and by op the slices of its own channels.

    `slices`: those whose weights come one after the other.
    """

    unit: int
    tile: Index
    piece: Piece
    whole: _Channels
    slices: tuple[_Channels, ...]

    @property
    def place(self) -> Core:
        """The unit and the core."""
        return self.unit, self.piece.core


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Pieces that pass a stage side by side, one of each core at most.

    `brings`: weights come with these pieces, for this and later turns; `use`: the number of their first use, counted
    over all rounds. `tables`: whether address tables come with them.
    """

    row: tuple[PieceEntry, ...]
    brings: bool
    use: int
    tables: bool

    def slice_count(self, place: int) -> int:
        """How many slices of an op's weights come one after the other; a core with fewer of them lacks the last."""
        return max(len(entry.slices[place]) for entry in self.row)

    @property
    def uses(self) -> int:
        """How often weights come with it."""
        return max(map(self.slice_count, range(len(self.row[0].slices)))) if self.brings else 0


class StageTurns:
    """Which pieces pass a stage when, and what weights they need."""

    def __init__(self, located: Located, memory: StageMemory, channels: ChannelParts, boxes: WeightBoxes) -> None:
        self._located = located
        self._memory = memory
        self._channels = channels
        self._boxes = boxes
        # no two rounds are known to need the same weights
        self.round_kinds = range(len(located.rounds))
        # by stage and round
        self._known_turns = Recent[tuple[int, int], list[Turn]](
            len(located.group.stages), lambda key: self._new_turns(*key)
        )
        self._known_of_cores: tuple[tuple[int, int], dict[Core, list[int]]] = (-1, -1), {}

    def forget(self) -> None:
        """Drop the turns of rounds."""
        self._known_turns.clear()

    def of(self, number: int, round_number: int) -> list[Turn]:
        """The turns in which the pieces of a round's tiles pass a stage."""
        return self._known_turns[number, round_number]

    def number(self, number: int, at: At, core: Core) -> int:
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

    @cached_property
    def _usual_turns(self) -> list[dict[Core, list[int]]]:
        """By stage the turns of each core in the round in the middle; first and last tiles may have others."""
        middle = len(self._located.rounds) // 2
        return [turns_of_cores(self.of(number, middle)) for number in range(len(self._located.group.stages))]

    def _turns_of_cores(self, number: int, round_number: int) -> dict[Core, list[int]]:
        """The turns of each core in a round of a stage."""
        key = number, round_number
        if self._known_of_cores[0] != key:
            self._known_of_cores = key, turns_of_cores(self.of(number, round_number))
        return self._known_of_cores[1]

    def needs_of(self, step: int, number: int) -> Iterator[Need]:
        """What the pieces of a round need of an op's weights."""
        stages = enumerate(self._located.group.stages)
        stage_number, stage = next((n, stage) for n, stage in stages if step in stage.steps)
        place = stage.steps.index(step)
        for turn in self.of(stage_number, number):
            for entry in turn.row:
                for part in entry.slices[place]:
                    yield Need(entry.place, part, entry.whole[place])

    def _new_turns(self, number: int, round_number: int) -> list[Turn]:
        stage = self._located.group.stages[number]
        ops = [self._located.geometry.ops[step] for step in stage.steps]
        ranges: dict[_Channels, list[PieceEntry]] = {}
        for unit, index in self._located.rounds[round_number]:
            if not self._located.first_slice(ops[-1].output, index):
                continue
            box = self._channels.of_unit(ops[-1], unit, self._located.tiles.fresh(ops[-1].output, index))
            if is_empty(box):
                continue
            whole = tuple(channels_of(op, box) for op in ops)
            for piece in self._pieces(number, ops, unit, index, box):
                channels = tuple(channels_of(op, piece.box) for op in ops)
                slices = tuple(
                    tuple(self._boxes.slices(step, its)) for step, its in zip(stage.steps, channels, strict=True)
                )
                ranges.setdefault(channels, []).append(PieceEntry(unit, index, piece, whole, slices))
        found: list[Turn] = []
        for entries in _side_by_side(ranges.values()):
            found += self._turns_of(stage, ops, entries, sum(turn.uses for turn in found))
        before = round_number * sum(turn.uses for turn in found)
        return [replace(turn, use=before + turn.use) for turn in found] if before else found

    def _turns_of(self, stage: CoreStage, ops: list[OpFacts], entries: list[PieceEntry], use: int) -> list[Turn]:
        """Pieces of equal channels in each core; `use`: how often weights have come before.

        Where pieces follow one another in a core, all go through with one slice of the weights before the next one
        comes, if the stage may cut its channels: a slice of the op that has most of them, whatever its place, so that
        the others' weights fit, too. Where the weights of the stage's ops take each other's place, each piece passes
        all ops, and so do all slices that come for each piece.
        """
        rows = _rows(entries)
        together = self._located.group.stays_together(stage.steps)
        at_once = all(len(its) == 1 for entry in rows[0] for its in entry.slices)
        found: list[Turn] = []
        if together and (at_once or (len(rows) > 1 and stage.cuts_channels)):
            most = max(range(len(ops)), key=lambda place: max(len(entry.slices[place]) for entry in rows[0]))
            for part in range(max(len(entry.slices[most]) for entry in rows[0])):
                thin = [_thin(ops, entry, most, part) for entry in entries if part < len(entry.slices[most])]
                its = [Turn(row=row, brings=place == 0, use=use, tables=False) for place, row in enumerate(_rows(thin))]
                use += its[0].uses
                found += its
        else:
            for row in rows:
                found.append(Turn(row=row, brings=True, use=use, tables=not together))
                use += found[-1].uses
        return found

    def _pieces(self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box) -> list[Piece]:
        """A stage's box cut into pieces, and their cores: in bands contiguous ones, else by channels."""
        stage = self._located.group.stages[number]
        sizes = [max(1, min(size, length)) for size, length in zip(stage.extents, lengths(box), strict=True)]
        # as the planner has it: the weights that matter are the first op's
        channel = ops[0].channel_axis
        cores = self._located.configuration.cores
        by_channels = self._located.configuration.core_spread is Spread.CHANNELS and channel is not None
        if by_channels and channel is not None:
            sizes[channel] = min(sizes[channel], ceil_div(lengths(box)[channel], cores))
        found = cut(box, sizes)
        if cores == 1:
            if self._memory.space(number, unit, index) is not None:
                found = self._memory.smaller_pieces(number, ops, unit, index, box, tuple(sizes))
            return [Piece(0, ranges) for ranges in found]
        if by_channels and channel is not None:
            starts = sorted({ranges[channel][0] for ranges in found})
            per, number_of = ceil_div(len(starts), cores), {start: i for i, start in enumerate(starts)}
            return [Piece(number_of[ranges[channel][0]] // per, ranges) for ranges in found]
        per = ceil_div(len(found), cores)
        return [Piece(i // per, ranges) for i, ranges in enumerate(found)]


def turns_of_cores(turns: Sequence[Turn]) -> dict[Core, list[int]]:
    """By core the numbers of the turns in which it has a piece."""
    found: dict[Core, list[int]] = {}
    for number, turn in enumerate(turns):
        for entry in turn.row:
            found.setdefault(entry.place, []).append(number)
    return found


def _side_by_side(ranges: Iterable[list[PieceEntry]]) -> list[list[PieceEntry]]:
    """Pieces of several ranges of channels, those of different cores together; a core goes from range to range."""
    found: list[list[PieceEntry]] = []
    ranges_of: dict[Core, int] = {}
    for entries in ranges:
        cores = {entry.place for entry in entries}
        place = max(ranges_of.get(core, 0) for core in cores)
        ranges_of.update(dict.fromkeys(cores, place + 1))
        if place == len(found):
            found.append([])
        found[place] += entries
    return found


def _rows(entries: list[PieceEntry]) -> list[tuple[PieceEntry, ...]]:
    """Pieces that begin side by side: one of each core at once, in all units."""
    queues: dict[Core, list[PieceEntry]] = {}
    for entry in entries:
        queues.setdefault(entry.place, []).append(entry)
    return [tuple(entry for entry in row if entry is not None) for row in zip_longest(*queues.values())]


def _thin(ops: list[OpFacts], entry: PieceEntry, place: int, part: int) -> PieceEntry:
    """A piece with the channels of one slice of an op's weights, which then come whole; itself if there is but one."""
    axis, piece = ops[place].channel_axis, entry.piece
    if len(entry.slices[place]) == 1:
        return entry
    assert axis is not None
    box = (*piece.box[:axis], entry.slices[place][part], *piece.box[axis + 1 :])
    slices = tuple((channels_of(op, box),) for op in ops)
    return entry._replace(piece=Piece(piece.core, box), slices=slices)
