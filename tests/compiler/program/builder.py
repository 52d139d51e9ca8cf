"""Small programs by hand, and random ones; waits by brute force, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np

from compiler.ir.graph import MAX_AXES
from compiler.ir.layout import strides_of
from compiler.program.loops.loops import Loops
from compiler.program.program import (
    BINDING,
    CALL,
    COMMAND,
    ENTRY,
    MAX_COUNTS,
    OUTPUT,
    Level,
    Opcode,
    OperandType,
    ParameterTable,
    Place,
    Program,
    Queue,
    Region,
    Resident,
    Role,
    Step,
    Unit,
)
from compiler.units import element_bytes

PLACES = (
    Place(level=Level.DRAM, number=0, capacity_bytes=1 << 20),
    Place(level=Level.SRAM, number=0, capacity_bytes=4096),
    Place(level=Level.NRAM, number=0, capacity_bytes=2048),
    Place(level=Level.NRAM, number=1, capacity_bytes=2048),
    Place(level=Level.WRAM, number=0, capacity_bytes=1024),
    Place(level=Level.WRAM, number=1, capacity_bytes=1024),
)
DRAM, SRAM, NRAM0, NRAM1, WRAM0, WRAM1 = range(6)
QUEUES = tuple(
    Queue(engine=engine, number=number)
    for engine, count in (("gdma", 1), ("bus", 1), ("iodma", 2), ("mvdma", 2), ("link", 2), ("core", 2))
    for number in range(count)
)
GDMA, BUS, IODMA0, IODMA1, MVDMA0, MVDMA1, LINK0, LINK1, CORE0, CORE1 = range(10)
AXES = ((), ("C",), ("N", "C"), ("N", "H", "C"), ("N", "C", "H", "W"))
Box = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A box of an operand in memory."""

    place: int
    address: int
    box: Box
    strides: tuple[int, ...] | None = None


@dataclass(slots=True)
class Builder:
    """Collects a program; with `waits` None a command waits for all that it has to, found byte by byte."""

    places: tuple[Place, ...] = PLACES
    queues: tuple[Queue, ...] = QUEUES
    commands: list[Any] = field(default_factory=list)
    waits: list[tuple[int, ...]] = field(default_factory=list)
    calls: list[Any] = field(default_factory=list)
    bindings: list[Any] = field(default_factory=list)
    units: list[Unit] = field(default_factory=list)
    tables: list[tuple[int, Any, Any, list[Any]]] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)
    residents: list[Resident] = field(default_factory=list)
    touched: list[tuple[set[tuple[int, int]], set[tuple[int, int]]]] = field(default_factory=list)

    def region(self, name: str, role: Role, shape: tuple[int, ...], dtype: str = "float32") -> int:
        """A dense tensor in DRAM; its address."""
        address = sum(-(-region.size_bytes // 64) * 64 for region in self.regions)
        order = tuple(range(len(shape)))
        size = prod(shape) * element_bytes(dtype)
        self.regions.append(
            Region(
                name=name,
                role=role,
                address=address,
                shape=shape,
                dtype=dtype,
                order=order,
                strides=strides_of(shape, order, element_bytes(dtype)),
                size_bytes=size,
            )
        )
        return address

    def transfer(
        self,
        opcode: Opcode,
        queue: int,
        source: tuple[int, int],
        target: tuple[int, int],
        run: int,
        counts: tuple[int, ...] = (),
        source_strides: tuple[int, ...] = (),
        target_strides: tuple[int, ...] = (),
        *,
        targets: int = 1,
        waits: tuple[int, ...] | None = None,
    ) -> int:
        """A transfer; its number."""
        fill = MAX_COUNTS - len(counts)
        zeros = (0,) * fill
        reads = _bytes(source, run, counts, source_strides)
        writes = {
            (place, byte)
            for place in range(target[0], target[0] + targets)
            for _, byte in _bytes(target, run, counts, target_strides)
        }
        row = (
            *(opcode, queue, 0, source[0], target[0], targets, source[1], target[1], run),
            *((*(1,) * fill, *counts), (*zeros, *source_strides), (*zeros, *target_strides), -1),
        )
        return self._add(row, queue, reads, writes, waits)

    def table(
        self,
        kind: str,
        shapes: tuple[tuple[int, ...] | None, ...],
        shape: tuple[int, ...],
        dtype: str = "float32",
        *,
        dtypes: tuple[str, ...] = (),
        gathers: int = -1,
        result: str = "",
        accumulator: str = "",
        **attributes: Any,
    ) -> int:
        """A unit and its table of no entries yet; the table's number."""
        dtypes = dtypes or (dtype,) * len(shapes)
        unit = Unit(
            identifier=f"unit {len(self.units)}",
            kind=kind,
            attributes=tuple(sorted(attributes.items())),
            opset=17,
            operands=tuple(None if s is None else _type(t, s) for t, s in zip(dtypes, shapes, strict=True)),
            output=_type(result or dtype, shape),
            extents=shape,
            gathers=gathers,
            accumulator_dtype=accumulator,
        )
        self.units.append(unit)
        self.tables.append((len(self.units) - 1, tuple(s or () for s in shapes), shape, []))
        return len(self.tables) - 1

    def call(
        self,
        queue: int,
        table: int,
        box: Box,
        operands: tuple[tuple[int, Bound], ...],
        *,
        sums: tuple[int, int] = (0, 0),
        begins: int = 1,
        ends: int = 1,
        opcode: Opcode = Opcode.COMPUTE,
        waits: tuple[int, ...] | None = None,
    ) -> int:
        """A call that computes `box`; bindings are taken to be touched whole. Its number."""
        unit, _, _, entries = self.tables[table]
        rest = (0,) * (MAX_AXES - len(box))
        entries.append(((*(a for a, _ in box), *rest), (*(b - a for a, b in box), *rest), *sums, begins, ends))
        reads: set[tuple[int, int]] = set()
        writes: set[tuple[int, int]] = set()
        first = len(self.bindings)
        for number, bound in operands:
            operand = self.units[unit].output if number == OUTPUT else self.units[unit].operands[number]
            size = 4 if operand is None else element_bytes(operand.stored_dtype)
            lengths = tuple(b - a for a, b in bound.box)
            strides = bound.strides
            if strides is None:
                strides = strides_of(lengths, tuple(range(len(lengths))), size)
            touched = _bytes((bound.place, bound.address), size, lengths, strides)
            (writes if number == OUTPUT else reads).update(touched)
            if number == OUTPUT and not begins:
                reads.update(touched)
            rest = (0,) * (MAX_AXES - len(lengths))
            self.bindings.append(
                (
                    *(number, bound.place, bound.address, (*(a for a, _ in bound.box), *rest)),
                    *((*lengths, *rest), (*strides, *rest)),
                )
            )
        zeros = (0,) * MAX_COUNTS
        row = (opcode, queue, 0, -1, -1, 0, 0, 0, 0, zeros, zeros, zeros, len(self.calls))
        self.calls.append((table, len(entries) - 1, first, len(operands)))
        return self._add(row, queue, reads, writes, waits)

    def barrier(self, queue: int, waits: tuple[int, ...]) -> int:
        """A command that does nothing but wait."""
        zeros = (0,) * MAX_COUNTS
        row = (Opcode.BARRIER, queue, -1, -1, -1, 0, 0, 0, 0, zeros, zeros, zeros, -1)
        return self._add(row, queue, set(), set(), waits)

    def build(self) -> Program:
        """The program."""
        offsets = np.zeros(len(self.waits) + 1, dtype=np.int64)
        offsets[1:] = np.cumsum([len(w) for w in self.waits])
        waits = np.array([w for row in self.waits for w in row], dtype=np.int64)
        return Program(
            name="test",
            places=self.places,
            queues=self.queues,
            steps=(Step(group="g", nodes=("n",), tensor="t"),),
            commands=np.array(self.commands, dtype=COMMAND),
            wait_offsets=offsets,
            waits=waits,
            loops=Loops.one_iteration(len(self.commands), len(waits)),
            calls=np.array(self.calls, dtype=CALL),
            bindings=np.array(self.bindings, dtype=BINDING),
            units=tuple(self.units),
            tables=tuple(
                ParameterTable(unit=unit, operand_shapes=shapes, shape=shape, entries=np.array(rows, dtype=ENTRY))
                for unit, shapes, shape, rows in self.tables
            ),
            regions=tuple(self.regions),
            residents=tuple(self.residents),
        )

    def _add(
        self,
        row: Any,
        queue: int,
        reads: set[tuple[int, int]],
        writes: set[tuple[int, int]],
        waits: tuple[int, ...] | None,
    ) -> int:
        if waits is None:
            waits = tuple(
                number
                for number, (read, written) in enumerate(self.touched)
                if self.commands[number][1] != queue and (written & (reads | writes) or read & writes)
            )
        self.commands.append(row)
        self.waits.append(waits)
        self.touched.append((reads, writes))
        return len(self.commands) - 1


def _type(dtype: str, shape: tuple[int, ...]) -> OperandType:
    return OperandType(dtype=dtype, stored_dtype=dtype, axes=AXES[len(shape)], constant=False)


def _bytes(at: tuple[int, int], run: int, counts: tuple[int, ...], strides: tuple[int, ...]) -> set[tuple[int, int]]:
    """Every byte of an access, one by one."""
    return {
        (at[0], at[1] + sum(i * s for i, s in zip(index, strides, strict=True)) + byte)
        for index in product(*(range(count) for count in counts))
        for byte in range(run)
    }


def changed(program: Program, **rows: tuple[int, str, Any]) -> Program:
    """The program with one field of one row changed: commands=(row, field, value), or a field and index."""
    for table, (row, name, value) in rows.items():
        copy = getattr(program, table).copy()
        column, _, index = name.partition(".")
        if index:
            copy[column][row, int(index)] = value
        elif column:
            copy[column][row] = value
        else:
            copy[row] = value
        program = replace(program, **{table: copy})
    return program


def happens_before(program: Program) -> list[set[int]]:
    """For each command all that happen before it, by closure over waits and queues."""
    before: list[set[int]] = []
    last: dict[int, int] = {}
    for number in range(len(program.commands)):
        direct = set(program.waits[program.wait_offsets[number] : program.wait_offsets[number + 1]].tolist())
        queue = int(program.commands["queue"][number])
        if queue in last:
            direct.add(last[queue])
        before.append(direct.union(*(before[other] for other in direct)))
        last[queue] = number
    return before


def random_order(program: Program, random: np.random.Generator) -> list[int]:
    """Some order of the commands that waits and queues allow."""
    before = happens_before(program)
    left, order = list(range(len(before))), []
    done: set[int] = set()
    while left:
        ready = [number for number in left if before[number] <= done]
        chosen = int(random.choice(ready))
        left.remove(chosen)
        done.add(chosen)
        order.append(chosen)
    return order
