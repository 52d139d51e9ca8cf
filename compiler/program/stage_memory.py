"""Where a breadth-first group lies: tiles in the SRAM, pieces and what stays between stages in the cores (PROG-2)."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from compiler.ops.op_facts import OpFacts
from compiler.ops.slab import lengths
from compiler.program.buffers import in_slot
from compiler.program.context import Context
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.group import GroupLowering
from compiler.program.larger import FreeSpace, cut, gaps, smaller
from compiler.program.located import Part
from compiler.program.program import Level, Opcode
from compiler.program.slots import Slot
from compiler.program.tiles import Index
from compiler.tiling.memory import PIECE, STAYING
from compiler.tiling.stages import operand_lengths
from compiler.tiling.tiled import TiledGroup


class StageMemory(GroupLowering):
    """The slots of a breadth-first group, and where a stage's pieces find room in a core."""

    def __init__(self, context: Context, group: TiledGroup, steps: Mapping[int, int]) -> None:
        """As any group's."""
        self._longest: dict[tuple[int, str], tuple[int, ...]] = {}
        self._beside: dict[tuple[int, int, int], Slot] = {}
        super().__init__(context, group, steps)

    def lay_out(self, unit: int) -> None:
        """The slots of one cluster and its cores."""
        self._stays: set[str] = set()
        self.unit_tensors(unit, (*self.geometry.inputs, *self.geometry.made))
        for name in self.group.core_resident:
            size = self.buffers.size(Level.NRAM.value, STAYING + name)
            if size:
                self._stays.add(name)
                self.buffers.take(self.core_place(unit, 0), Level.NRAM.value, STAYING + name, ("staying", name))
        for number, stage in enumerate(self.group.stages):
            for core in range(self.configuration.cores):
                if stage.piece_bytes:
                    self.buffers.take(
                        self.core_place(unit, core), Level.NRAM.value, f"{PIECE}{number}", ("piece", number)
                    )

    def double(self) -> None:
        """A second buffer for the pieces of all stages: one comes and another leaves while a core works."""
        self._doubled: set[int] = set()
        twins = self.twins(Level.NRAM)
        cores = [(unit, core) for unit in range(self.units) for core in range(self.configuration.cores)]
        found: tuple[int, int] | None = None
        for number, stage in sorted(enumerate(self.group.stages), key=lambda entry: -entry[1].piece_bytes):
            if found is None and stage.piece_bytes:
                address = twins.take(stage.piece_bytes)
                found = None if address is None else (address, stage.piece_bytes)
            if found is not None and stage.piece_bytes:
                places = (self.core_place(*core) for core in cores)
                twins.add(places, ("piece", number), ("piece", number, 1), found[0])
                self._doubled.add(number)

    def buffers_read(self, name: str, op: OpFacts) -> list[tuple[int, ...]]:
        """That of a whole piece; of what stays in the core between stages that of a tile in the middle."""
        if self.buffers.size(Level.NRAM.value, STAYING + name):
            middle = {axis: count // 2 for axis, count in self.tiles.counts.items()}
            return [self.dense_strides(name, lengths(self.tiles.needed(name, middle)))]
        return [self.dense_strides(name, self._piece_lengths(name, op))]

    def _piece_lengths(self, name: str, op: OpFacts) -> tuple[int, ...]:
        """The most that a piece of an op's stage needs of its input, which the piece's buffer has room for."""
        found = self._longest.get((op.index, name))
        if found is None:
            stage = next(s for s in self.group.stages if op is self.geometry.ops[s.steps[0]])
            access = next(o.access for o in self.context.operands(op.index) if o.tensor == name)
            found = self._longest[op.index, name] = operand_lengths(name, access, stage.extents, self.group.frustums)
        return found

    def staying(self, name: str, unit: int, index: Index) -> Held | None:
        """Where a tensor lies in the only core of its unit between stages; None if it does not, or is too large to.

        All that the tile needs of it lies there. The first tile of a walk is larger than others and passes the SRAM.
        """
        if name not in self._stays or is_empty(self.made(name, index)):
            return None
        slot = self.buffers.slots[self.core_place(unit, 0), ("staying", name)]
        box = self.tiles.needed(name, index)
        held = in_slot(slot, self.dense_strides(name, lengths(box)), box)
        size = self.element(name) * prod(lengths(box))
        return held if size <= slot.size_bytes else None

    def tile(self, name: str, unit: int, index: Index, part: Part | None = None) -> Held | None:
        """Where a tile's new part of a tensor lies: in the core where it stays there, else in the SRAM."""
        held = self.staying(name, unit, index)
        return held.part(self.made(name, index)) if held is not None else super().tile(name, unit, index, part)

    def pieces(self, name: str, unit: int, index: Index, box: Box, part: Part | None = None) -> list[Held]:
        """Where a box of a tensor lies: all of it in the core where it stays there."""
        held = self.staying(name, unit, index)
        inside = overlap(held.box, box) if held is not None else None
        if held is not None and inside is not None:
            return [held.part(inside)]
        return super().pieces(name, unit, index, box, part)

    def _pull(self, name: str, unit: int, index: Index) -> None:
        """What waits in the SRAM of a tensor that stays in the core comes back beside what is made anew."""
        held = self.staying(name, unit, index)
        for shape in self.tiles.stores(name) if held is not None else ():
            store = self.buffers.store(self.place(unit), name, shape.axis)
            cell = self.tiles.waiting(name, index, shape.axis)
            if held is None or store is None or cell is None:
                continue
            for source in store.pieces(self.tiles, name, index, cell):
                part = overlap(source.box, held.box)
                if part is not None:
                    queue = self.queue("mvdma", self.core_number(unit, 0))
                    self.emitter.copy(Opcode.MOVE, queue, source, held, part, self.element(name))

    def _slot(self, number: int, unit: int, core: int) -> Slot:
        """A stage's buffer for pieces in a core; an empty one if all that the stage reads and makes stays there."""
        found = self.buffers.slots.get((self.core_place(unit, core), ("piece", number)))
        return Slot(self.core_place(unit, core), 0, 0) if found is None else found

    def _overwritten(self, op: OpFacts, inside: Mapping[str, Box], box: Box) -> str | None:
        """The operand that an op in the middle of a stage may write over, by the boxes of what a piece holds."""
        operands = (o for o in self.context.operands(op.index) if not o.constant)
        source = next((o.tensor for o in operands if inside.get(o.tensor) == box), None)
        fits = source is not None and op.in_place and self.element(source) == self.element(op.output)
        return source if fits else None

    # --- tiles that are larger than the usual one --------------------------------------------------------------------

    def _space(self, number: int, unit: int, index: Index) -> FreeSpace | None:
        """Where a stage's pieces find room besides their buffer; None for a tile of which all stays that should.

        What no buffer takes while the stage works, that of what does not stay apart.
        """
        away = [name for name in self._staying_at(number) if self.staying(name, unit, index) is None]
        if not away:
            return None
        free, memory = self.twins(Level.NRAM), self.buffers.levels[Level.NRAM.value]
        steps = self.group.stages[number].steps
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
        for i, stage in enumerate(self.group.stages):
            for name in stage.staying:
                spans.setdefault(name, []).append(i)
        return [name for name, span in spans.items() if span[0] <= number <= span[-1]]

    def _smaller_pieces(
        self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box, sizes: tuple[int, ...]
    ) -> list[Box]:
        """A larger tile's box in the largest pieces that find room, the plan's or halves of these."""
        channel = ops[0].channel_axis
        axes = [axis for axis in range(1, len(sizes)) if axis != channel] + ([0] if channel != 0 else [])
        if channel is not None and self.group.stages[number].cuts_channels:
            axes.append(channel)
        for extents in smaller(sizes, axes):
            found = cut(box, extents)
            if all(self._finds_room(number, ops, unit, index, piece) for piece in found):
                break
        return found

    def _finds_room(self, number: int, ops: list[OpFacts], unit: int, index: Index, box: Box) -> bool:
        """True if all that a piece brings and makes has room: the same steps as when it passes."""
        space, slot = self._space(number, unit, index), self._slot(number, unit, 0)
        assert space is not None
        inside: dict[str, Box] = {}
        at = slot.address
        for place, op in enumerate(ops):
            sizes = []
            for operand in self.context.operands(op.index):
                if operand.constant or operand.gathered is not None:
                    continue
                need = self.need(operand, box)
                if self.staying(operand.tensor, unit, index) is None and is_missing(inside.get(operand.tensor), need):
                    inside[operand.tensor] = need
                    sizes.append((self.element(operand.tensor), prod(lengths(need))))
            if self.staying(op.output, unit, index) is None:
                if place == 0 or self._overwritten(op, inside, box) is None:
                    sizes.append((self.element(op.output), prod(lengths(box))))
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
