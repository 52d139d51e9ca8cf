"""What the groups of one segment share while they are lowered: regions, tables and units, and the emitter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from compiler.address.build import WindowRead
from compiler.address.stored import AddressTables
from compiler.address.table import ENTRY_BYTES
from compiler.ir.box import AxisMap
from compiler.ir.graph import MAX_AXES, Graph
from compiler.ir.layout import strides_of
from compiler.ops import call_of, definition
from compiler.ops.contraction import Product
from compiler.ops.op_facts import GraphFacts, gathered_name, streamed_inputs
from compiler.ops.slab import lengths
from compiler.program.decode import Decoders
from compiler.program.emitter import Box, Emitter, Held, Machine
from compiler.program.encoding.records import with_identifier
from compiler.program.program import ENTRY, Addresses, OperandType, ParameterTable, Region, Role, Rows, Unit
from compiler.program.slots import Slot
from compiler.units import element_bytes


@dataclass(frozen=True, slots=True, eq=False)
class Operand:
    """One input of an op: its number among the op's inputs, the tensor, its access, and whether it is a weight.

    There is one object for each, by which results for it are looked up. `is_same`: of every box of the result it needs
    the same box. `gathered`: the tensor of what is read of a table through indices, where the table is not read whole.
    """

    number: int
    tensor: str
    access: tuple[AxisMap, ...]
    constant: bool
    gathered: str | None = None
    is_same: bool = False


# A row of ENTRY: where the box starts, how long it is, the range of what is summed, whether sums begin and end.
Entry = tuple[tuple[int, ...], tuple[int, ...], int, int, int, int]


@dataclass(slots=True)
class Table:
    """A parameter table in the making: its op, the axes of its result, and its entries with their numbers."""

    op: int
    rank: int
    entries: list[Entry] = field(default_factory=list)
    known: dict[tuple[Box, tuple[int, int], bool, bool], int] = field(default_factory=dict)


class Context:
    """Regions of the DRAM, parameter tables and the emitter of one segment."""

    def __init__(
        self,
        facts: GraphFacts,
        machine: Machine,
        made: frozenset[str],
        outputs: frozenset[str],
        decoders: Decoders | None = None,
        tables: AddressTables | None = None,
    ) -> None:
        """`made` are the tensors that the segment's ops make, `outputs` those of them that others read.

        `tables`: the address tables of the compilation.
        """
        self._tables_by_read = tables or AddressTables()
        self.facts = facts
        self._made = made
        self._decoders = decoders
        self._outputs = outputs
        self.residents: dict[str, list[tuple[int, Held]]] = {}
        self.graph: Graph = facts.graph
        self.machine = machine
        self.emitter = Emitter(machine)
        self.regions: dict[str, Held] = {}
        self.region_list: list[Region] = []
        self._end = 0
        self._tables: dict[int, int] = {}
        self.tables: list[Table] = []
        self._operands: dict[int, tuple[Operand, ...]] = {}
        self._orders: dict[str, tuple[int, ...]] = {}
        self.addresses: list[Addresses] = []
        self._address_names: dict[WindowRead, str] = {}
        self.address_tables: dict[str, int] = {}

    def region(self, name: str) -> Held:
        """The tensor's region in DRAM, made at first use."""
        found = self.regions.get(name)
        if found is not None:
            return found
        tensor = self.graph.tensors[name]
        role = Role.WEIGHT if tensor.constant is not None else Role.INPUT
        if name in self._made:
            role = Role.OUTPUT if name in self._outputs else Role.INTERMEDIATE
        order = self.weight_order(name) if role is Role.WEIGHT else self.facts.tensors[name].order
        size = element_bytes(tensor.stored_dtype)
        strides = strides_of(tensor.shape, order, size)
        total = tensor.elements * size
        line = self.machine.profile.line_bytes
        address = -(-self._end // line) * line
        return self._enter(
            Region(
                name=name,
                role=role,
                address=address,
                shape=tensor.shape,
                dtype=tensor.stored_dtype,
                order=order,
                strides=strides,
                size_bytes=total,
            )
        )

    def alias(self, name: str, of: str) -> bool:
        """Let a result lie where another tensor does; False for one that others read: it has a region of its own."""
        if name in self._outputs:
            return False
        source = self.region(of)
        tensor = self.graph.tensors[name]
        order, size = self.facts.tensors[name].order, element_bytes(tensor.stored_dtype)
        box = tuple((0, extent) for extent in tensor.shape)
        strides = strides_of(tensor.shape, order, size)
        self.regions[name] = Held(source.slot, source.address, (0,) * len(box), strides, box)
        return True

    def _enter(self, region: Region) -> Held:
        self._end = region.address + region.size_bytes
        self.region_list.append(region)
        box = tuple((0, extent) for extent in region.shape)
        slot = Slot(0, region.address, region.size_bytes)
        found = self.regions[region.name] = Held(slot, region.address, (0,) * len(box), region.strides, box)
        return found

    def address_table(self, read: WindowRead) -> str:
        """The name of the region in which the address table of a read lies; equal ones are one (ADDR-5)."""
        name = self._address_names.get(read)
        if name is not None:
            return name
        table = self._tables_by_read.of(read)
        number, words = len(self.addresses), table.size_bytes // ENTRY_BYTES
        name = f"addresses {number}"
        while name in self.graph.tensors:
            name += "'"
        self._address_names[read], self.address_tables[name] = name, number
        self.addresses.append(Addresses(region=len(self.region_list), table=table))
        line = self.machine.profile.line_bytes
        self._enter(
            Region(
                name=name,
                role=Role.ADDRESSES,
                address=-(-self._end // line) * line,
                shape=(words,),
                dtype="int32",
                order=(0,),
                strides=(ENTRY_BYTES,),
                size_bytes=table.size_bytes,
            )
        )
        return name

    def window_read(self, number: int) -> WindowRead:
        """The read whose address table has this number."""
        return tuple(self._address_names)[number]

    def element_bytes(self, name: str) -> int:
        """Bytes of an element of a tensor as it is stored, or of an address table's."""
        return ENTRY_BYTES if name in self.address_tables else self.facts.tensors[name].element_bytes

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a tensor, or of an address table."""
        if name in self.address_tables:
            return tuple(stop for _, stop in self.regions[name].box)
        return self.graph.tensors[name].shape

    def weight_order(self, name: str) -> tuple[int, ...]:
        """A weight's axes as they lie in memory: the one that its first reader's output channels follow outermost.

        Then a slice of the output channels is one run. The other axes of a convolution's weight lie in the order of the
        offsets in an address table: as those of its input (ADDR-1).
        """
        found = self._orders.get(name)
        if found is None:
            found = self._orders[name] = (0,) if name in self.address_tables else self._weight_order(name)
        return found

    def _weight_order(self, name: str) -> tuple[int, ...]:
        rank = len(self.graph.tensors[name].shape)
        for index in self.graph.consumers.get(name, ()):
            facts = self.facts.ops[index]
            for operand in () if index in self.graph.on_host else self.operands(index):
                if operand.tensor == name and facts.channel_axis is not None:
                    follows = [
                        i for i, m in enumerate(operand.access) if m.axis == facts.channel_axis and m.is_identity
                    ]
                    first = follows[:1]
                    rest = [i for i in range(rank) if i not in first]
                    if facts.matrix is not None and rank > 2 and rest and first == [0]:
                        rest = [*rest[1:], rest[0]] if facts.window is None else self._as_input(index, rest)
                    return (*first, *rest)
        return tuple(range(rank))

    def _as_input(self, op: int, axes: list[int]) -> list[int]:
        """The axes of a convolution's weight in the order in which those of its input lie in memory."""
        data = next(operand.tensor for operand in self.operands(op) if operand.number == 0)
        return sorted(axes, key=self.facts.tensors[data].order.index)

    def operands(self, op: int) -> tuple[Operand, ...]:
        """The op's inputs that are there, by their numbers."""
        found = self._operands.get(op)
        if found is None:
            node, graph = self.graph.ops[op], self.graph
            kind, call = definition(node), call_of(graph, node)
            gathered, streamed = kind.gathered(call), streamed_inputs(kind, call)
            output = graph.tensors[node.output]
            entries = []
            for number, (name, access) in enumerate(zip(node.inputs, kind.access(call), strict=True)):
                if not name:
                    continue
                table = number in gathered and graph.tensors[name].elements > output.elements
                if access is not None or table:
                    entries.append(
                        Operand(
                            number,
                            name,
                            access or (),
                            graph.tensors[name].constant is not None and number not in streamed,
                            gathered_name(graph, node.output) if table else None,
                            _is_same(access, len(output.shape)),
                        )
                    )
            found = self._operands[op] = tuple(entries)
        return found

    def table(self, op: int, like: Table | None = None) -> int:
        """The number of an op's parameter table; a new one has the entries of that of an equal op (`like`)."""
        found = self._tables.get(op)
        if found is None and like is not None:
            found = self.add_table(Table(op, like.rank, list(like.entries), dict(like.known)))
        elif found is None:
            found = self.add_table(Table(op, len(self.graph.tensors[self.graph.ops[op].output].shape)))
        return found

    def add_table(self, table: Table) -> int:
        """Enter the table of an op that has none yet; its number."""
        number = self._tables[table.op] = len(self.tables)
        self.tables.append(table)
        return number

    def entry(
        self, table: int, box: Box, sums: tuple[int, int] = (0, 0), *, begins: bool = True, ends: bool = True
    ) -> int:
        """The number of a table's entry for an output box; equal entries are one."""
        found = self.tables[table]
        key = (box, sums, begins, ends)
        number = found.known.get(key)
        if number is None:
            number = found.known[key] = len(found.entries)
            rest = (0,) * (MAX_AXES - len(box))
            starts = (*[start for start, _ in box], *rest)
            found.entries.append((starts, (*lengths(box), *rest), *sums, int(begins), int(ends)))
        return number

    def finished(self, calls: Rows) -> tuple[tuple[ParameterTable, ...], tuple[Unit, ...], Rows]:
        """All tables, the units that they call, and the calls; ops of equal signature share a unit.

        Entries that no call names are left out: the others come in the order of the calls.
        """
        number_of: dict[tuple[object, ...], int] = {}
        units: list[Unit] = []
        tables, numbered = [], calls.copy()
        for its, table in enumerate(self.tables):
            op = self.graph.ops[table.op]
            mine = np.flatnonzero(calls["table"] == its)
            called, first, places = np.unique(calls["entry"][mine], return_index=True, return_inverse=True)
            order = np.argsort(first)
            numbered["entry"][mine] = np.argsort(order)[places]
            entries = np.array([table.entries[number] for number in called[order].tolist()], dtype=ENTRY)
            unit = self._unit(table.op, tuple(int(e) for e in entries["lengths"].max(axis=0, initial=1)[: table.rank]))
            key = (unit.kind, unit.attributes, unit.operands, unit.output, unit.gathers, len(unit.extents))
            number = number_of.setdefault(key, len(units))
            if number == len(units):
                units.append(unit)
            units[number] = replace(units[number], extents=tuple(map(max, units[number].extents, unit.extents)))
            tables.append(
                ParameterTable(
                    unit=number,
                    operand_shapes=tuple(self.graph.tensors[n].shape if n else () for n in op.inputs),
                    shape=self.graph.tensors[op.output].shape,
                    entries=entries,
                )
            )
        return tuple(tables), tuple(with_identifier(unit) for unit in units), numbered

    def _unit(self, number: int, extents: tuple[int, ...]) -> Unit:
        op = self.graph.ops[number]
        output, weights = self._operand_type(op.output), {o.number for o in self.operands(number) if o.constant}
        gathers = next((o.number for o in self.operands(number) if o.gathered is not None), -1)
        return Unit(
            identifier="",
            kind=op.kind,
            attributes=op.attributes,
            opset=self.graph.opset,
            operands=tuple(
                self._operand_type(name, is_weight=position in weights) if name else None
                for position, name in enumerate(op.inputs)
            ),
            output=output,
            extents=extents,
            gathers=gathers,
            accumulator_dtype=self.accumulator(number),
        )

    def accumulator(self, number: int) -> str:
        """The element type of an op's partial sums; empty for what makes none."""
        op = self.graph.ops[number]
        kind = definition(op)
        return kind.accumulator(call_of(self.graph, op)) if isinstance(kind, Product) else ""

    def _operand_type(self, name: str, *, is_weight: bool = False) -> OperandType:
        """A tensor as a unit sees it."""
        tensor = self.graph.tensors[name]
        return OperandType(
            dtype=tensor.dtype,
            stored_dtype=tensor.stored_dtype,
            axes=tensor.axes,
            constant=is_weight,
            decode=None if self._decoders is None else self._decoders.of(name),
        )


def _is_same(access: Sequence[AxisMap] | None, rank: int) -> bool:
    """True if an operand's box is the result's, axis by axis."""
    return access is not None and [m.axis if m.is_identity else None for m in access] == list(range(rank))
