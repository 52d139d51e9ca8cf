"""Calls of units: the op on a box, the boxes of its operands, and the address tables that it reads (ADDR-1)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TypeVar

from compiler.address.table import ENTRY_BYTES
from compiler.address.unit import CHANNELS, block_of, is_addressable, unit_read
from compiler.errors import InternalError, LimitError
from compiler.ops import call_of, definition
from compiler.ops.contraction import Product
from compiler.ops.op_facts import FACTORS, OpFacts
from compiler.program.context import Context, Operand
from compiler.program.emitter import Box, Held, is_empty, overlap
from compiler.program.known import Known
from compiler.program.located import Located
from compiler.program.program import ADDRESSES, OUTPUT, Opcode
from compiler.program.tiles import Index, Tiles
from compiler.tiling.geometry import GroupGeometry


@dataclass(frozen=True, slots=True)
class Part:
    """A part of what a product sums over: its range (None: all of it), and whether the sum begins and ends here.

    `turn`: how many parts its unit has worked on before, in the same tile, of `count`.
    """

    range: tuple[int, int] | None
    begins: bool
    ends: bool
    turn: int = 0
    count: int = 1


# Who works on a tile: a unit, or a core of one.
W = TypeVar("W")


class OperandBoxes:
    """The operands of one group's ops."""

    def __init__(self, context: Context, geometry: GroupGeometry) -> None:
        self._context = context
        self._geometry = geometry
        self._needs = Known(self._new_need)
        self._summed = Known(self._new_summed_axis)
        self._readers = Known(self._new_readers)

    def forget(self) -> None:
        """Drop the boxes of operands."""
        self._needs.clear()

    def need(self, operand: Operand, box: Box) -> Box:
        """The box of an operand that an op needs to make a box."""
        if operand.gathered is not None or operand.is_same:
            return box
        return self._needs[operand, box]

    def _new_need(self, key: tuple[Operand, Box]) -> Box:
        operand, box = key
        found = []
        for axis_map, extent in zip(operand.access, self._context.graph.tensors[operand.tensor].shape, strict=True):
            axis = axis_map.axis
            if axis is None:
                found.append((0, extent))
            else:
                start, stop = box[axis]
                found.append(axis_map.project_one(start, stop, extent))
        return tuple(found)

    def need_of_part(self, op: OpFacts, operand: Operand, box: Box, part: Part | None) -> Box:
        """As `need`, of what is summed over only a part."""
        need = self.need(operand, box)
        axis = self.summed_axis(op, operand) if part is not None and part.range is not None else None
        if axis is None or part is None or part.range is None:
            return need
        return (*need[:axis], part.range, *need[axis + 1 :])

    def summed_axis(self, op: OpFacts, operand: Operand) -> int | None:
        """The axis of an operand that a product sums over; None for other operands and ops."""
        return self._summed[op.index, operand.number]

    def _new_summed_axis(self, key: tuple[int, int]) -> int | None:
        node, number = self._context.graph.ops[key[0]], key[1]
        kind = definition(node)
        axes = kind.summed(call_of(self._context.graph, node)) if isinstance(kind, Product) else None
        return axes[number] if axes is not None and 0 <= number < len(axes) else None

    def part_box(self, name: str, box: Box, part: Part | None) -> Box:
        """Of a box of an input that is summed in parts, the part at hand; empty if there is none."""
        axis = self.reduced_axis(name)
        return (*box[:axis], (0, 0) if part is None or part.range is None else part.range, *box[axis + 1 :])

    def reduced_axis(self, name: str) -> int:
        """The axis of an input that is summed in parts."""
        product = self._geometry.product
        operands = () if product is None else self._context.operands(product.index)
        for operand in operands:
            axis = self.summed_axis(product, operand) if product is not None and operand.tensor == name else None
            if axis is not None:
                return axis
        raise InternalError("an input that is summed in parts has no summed axis", stage="lower", node=name)

    def receivers(
        self,
        step: int,
        name: str,
        tiles: Tiles,
        index: Index,
        workers: Iterable[tuple[W, Held | None]],
        part: Callable[[OpFacts, W, Box], Box],
    ) -> list[tuple[W, Held, Box]]:
        """Of those who work on a tile who needs some of a result for an op after `step`, where it lies, and which box.

        `workers`: with where it lies; `part`: of what a tile makes, what a worker does. Results that wait for later
        tiles are needed whole.
        """
        made, is_kept, found = tiles.fresh(name, index), bool(tiles.stores(name)), list[tuple[W, Held, Box]]()
        for worker, held in workers:
            wanted = made if is_kept else None
            for op, operand in () if is_kept or held is None else self.readers_after(step, name):
                box = tiles.fresh(op.output, index)
                box = part(op, worker, box) if not is_empty(box) else box
                if not is_empty(box):
                    need = self.need(operand, box)
                    pairs = zip(wanted or need, need, strict=True)
                    wanted = tuple([(min(a[0], b[0]), max(a[1], b[1])) for a, b in pairs])
            if held is not None and wanted is not None:
                found.append((worker, held, wanted))
        return found

    def readers_after(self, step: int, name: str) -> list[tuple[OpFacts, Operand]]:
        """The ops after a step that read a tensor, each with the operand that it is."""
        return self._readers[step, name]

    def _new_readers(self, key: tuple[int, str]) -> list[tuple[OpFacts, Operand]]:
        return [(op, operand) for at, op, operand in self._reads.get(key[1], ()) if at > key[0]]

    @cached_property
    def _reads(self) -> dict[str, list[tuple[int, OpFacts, Operand]]]:
        """By tensor the ops that read it, with their steps and operands."""
        found: dict[str, list[tuple[int, OpFacts, Operand]]] = defaultdict(list)
        for step, op in enumerate(self._geometry.ops):
            for operand in self._context.operands(op.index):
                found[operand.tensor].append((step, op, operand))
        return found


# The byte strides of the buffers in which an op finds an input in a core, the most usual ones first.
BuffersRead = Callable[[str, OpFacts], list[tuple[int, ...]]]
# Operands of a call: number and place of each.
Bound = list[tuple[int, Held]]
# Where a box of a tensor lies in a core.
Find = Callable[[str, Box], list[Held]]


class UnitCalls:
    """The calls of one group's ops."""

    def __init__(self, located: Located, operands: OperandBoxes, buffers_read: BuffersRead) -> None:
        self._located = located
        self._operands = operands
        self._context = located.context
        self._address_tables = {op.index: self._new_address_tables(op, buffers_read) for op in located.geometry.ops}

    def address_tables(self, op: OpFacts) -> list[Operand]:
        """The address tables of an op with a window: one for each kind of buffer, as far as the plan has room."""
        return list(self._address_tables[op.index].values())

    def make(
        self, op: OpFacts, core: int, box: Box, weights: Bound, find: Find, result: Held, part: Part | None
    ) -> None:
        """The call that makes a box of an op's result, or adds a `part` of its sums, from weights and what it finds."""
        operands = [found for found in weights if part is None or part.ends or found[0] < FACTORS]
        for operand in self._context.operands(op.index):
            if not operand.constant and operand.gathered is None:
                need = self._operands.need_of_part(op, operand, box, part)
                operands += [(operand.number, piece) for piece in find(operand.tensor, need)]
        self.call(op, core, box, operands, result, part)

    def call(self, op: OpFacts, core: int, box: Box, operands: Bound, result: Held, part: Part | None = None) -> None:
        """The same, with operands by number where they lie in the core; rows of a table come to it from DRAM."""
        if self.is_gathering(op):
            self._gather(op, core, box, operands, result)
            return
        table = self._context.table(op.index)
        operands = self._with_tables(op, operands)
        if part is None or part.range is None:
            entry = self._context.entry(table, box)
            bound = [*operands, (OUTPUT, result.part(box))]
        else:
            entry = self._context.entry(table, box, part.range, begins=part.begins, ends=part.ends)
            # sums are wider than results: they lie at the same places of a wider box, hence all of it is bound
            bound = [*operands, (OUTPUT, result)]
        reads = [held.slot for _, held in operands]
        if part is not None and not part.begins:
            reads.append(result.slot)
        self._located.emitter.call(self._located.queue("core", core), table, entry, bound, reads, (result.slot,))

    def is_gathering(self, op: OpFacts) -> bool:
        """True for an op that reads rows of a table in DRAM through indices."""
        return bool(self._located.gathered) and any(operand.gathered for operand in self._context.operands(op.index))

    def _gather(self, op: OpFacts, core: int, box: Box, at_hand: Bound, result: Held) -> None:
        """`at_hand`: operands but for the table; constants that are not among them are read in DRAM."""
        operands = self._context.operands(op.index)
        bound: Bound = []
        for operand in operands:
            if operand.gathered is not None:
                bound.append((operand.number, self._context.region(operand.tensor)))
                continue
            need = self._operands.need(operand, box)
            here = [piece for number, piece in at_hand if number == operand.number]
            parts = [piece.part(part) for piece in here if (part := overlap(piece.box, need)) is not None]
            if not here and operand.constant:
                parts = [self._context.region(operand.tensor).part(need)]
            bound += [(operand.number, part) for part in parts]
        if not self._located.machine.has("iodma"):
            raise LimitError(
                "no engine of the profile brings rows of a table from DRAM to a core",
                code="no_engine",
                stage="lower",
                node=self._context.graph.ops[op.index].node,
                op_type=op.kind,
                limit="iodma",
            )
        table = self._context.table(op.index)
        entry = self._context.entry(table, box)
        reads = [piece.slot for _, piece in bound]
        queue = self._located.queue("iodma", core)
        self._located.emitter.call(
            queue, table, entry, [*bound, (OUTPUT, result.part(box))], reads, (result.slot,), Opcode.GATHER
        )

    def _with_tables(self, op: OpFacts, operands: Bound) -> Bound:
        """A call's operands with those of its address tables that it needs; none where a piece fits no table."""
        tables = self._address_tables[op.index]
        if not tables:
            return operands
        wanted = set()
        for number, held in operands:
            if number == 0:
                table = tables.get(held.strides)
                if table is None:
                    return [entry for entry in operands if entry[0] > ADDRESSES]
                wanted.add(table.number)
        return [entry for entry in operands if entry[0] > ADDRESSES or entry[0] in wanted]

    def _new_address_tables(self, op: OpFacts, buffers_read: BuffersRead) -> dict[tuple[int, ...], Operand]:
        found: dict[tuple[int, ...], Operand] = {}
        if op.window is None:
            return found
        room = self._located.group.weights[self._located.geometry.indices.index(op.index)].table_bytes
        data = next((o for o in self._context.operands(op.index) if o.number == 0), None)
        if not room or data is None or data.constant or data.gathered is not None:
            return found
        block = block_of(self._located.tensors[op.output].shape)
        channels, element = self._located.tensors[data.tensor].shape[CHANNELS], self._located.element(data.tensor)
        for strides in buffers_read(data.tensor, op):
            read = unit_read(op.window, block, channels, strides, element)
            if strides in found or not is_addressable(read):
                continue
            name = self._context.address_table(read)
            size = prod(self._context.shape(name)) * ENTRY_BYTES
            known = next((table for table in found.values() if table.tensor == name), None)
            if known is None and size > room:
                break
            room -= size if known is None else 0
            number = self._context.address_tables[name]
            found[strides] = known or Operand(ADDRESSES - number, name, (), constant=True)
        return found
