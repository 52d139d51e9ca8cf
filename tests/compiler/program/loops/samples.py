"""A small program of loops by hand: two nests, double buffers, stages, a last tile that is smaller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from compiler.program.loops.loops import (
    BINDING_ADDRESS,
    BINDING_FIELDS,
    ENTRY_START,
    MAX_COUNTERS,
    RING,
    RUN,
    SOURCE_ADDRESS,
    SPACE,
    STATEMENT,
    TARGET_ADDRESS,
    TERM,
    Loops,
)
from compiler.program.program import OUTPUT, Opcode, Program, Role, Rows, Step
from tests.compiler.program.builder import CORE0, DRAM, GDMA, IODMA0, MVDMA0, NRAM0, SRAM, Bound, Box, Builder

RESULT = BINDING_ADDRESS
OPERAND = BINDING_ADDRESS + BINDING_FIELDS


@dataclass(slots=True)
class LoopBuilder:
    """Collects the loops of commands, which are added in the order of a program."""

    spaces: list[Any] = field(default_factory=list)
    statements: list[Any] = field(default_factory=list)
    parts: dict[str, list[list[Any]]] = field(default_factory=lambda: {"runs": [], "terms": [], "rings": []})
    waits: list[Sequence[tuple[int, int]]] = field(default_factory=list)

    def space(self, nest: int, base: int, extents: Sequence[int], strides: Sequence[int]) -> int:
        """A space; its number."""
        rest = MAX_COUNTERS - len(extents)
        self.spaces.append((nest, len(extents), base, (*extents, *(1,) * rest), (*strides, *(0,) * rest)))
        return len(self.spaces) - 1

    def add(
        self,
        space: int,
        runs: Sequence[tuple[int, int, int]] = (),
        *,
        stage: int = 0,
        terms: Sequence[tuple[int, int, int]] = (),
        rings: Sequence[tuple[int, int, int, int, tuple[int, ...]]] = (),
        waits: Sequence[tuple[int, int]] = (),
    ) -> None:
        """The loops of the next command: terms (field, counter, coefficient), rings, waits (statement, distance)."""
        self.statements.append((space, stage))
        padded = [(*head, (*row, *(0,) * (MAX_COUNTERS - len(row)))) for *head, row in rings]
        for name, rows in (("runs", runs), ("terms", sorted(terms)), ("rings", padded)):
            self.parts[name].append(list(rows))
        self.waits.append(waits)

    def build(self, program: Program) -> Program:
        """The program of commands without waits or loops, with these."""
        lists: dict[str, Rows] = {}
        for name, dtype in (("runs", RUN), ("terms", TERM), ("rings", RING)):
            parts = self.parts[name]
            lists[name] = np.array([row for rows in parts for row in rows], dtype=dtype)
            lists[f"{name[:-1]}_offsets"] = np.cumsum([0, *map(len, parts)]).astype(np.int32)
        loops = Loops(
            spaces=np.array(self.spaces, dtype=SPACE),
            statements=np.array(self.statements, dtype=STATEMENT),
            distances=np.array([distance for its in self.waits for _, distance in its], dtype=np.int64),
            **lists,
        )
        named = np.array([number for its in self.waits for number, _ in its], dtype=np.int32)
        offsets = np.cumsum([0, *map(len, self.waits)]).astype(np.int32)
        return replace(program, waits=named, wait_offsets=offsets, loops=loops)


def _in_core(address: int, box: Box) -> Bound:
    return Bound(place=NRAM0, address=address, box=box)


def sample() -> Program:
    """Two ReLUs one after another: tiles of 2 x 4 of 12 x 8 in double buffers; then bands of 5, 5 and 2 rows.

    Load, call and store of a tile are in iterations t - 1, t and t + 1.
    """
    builder, loops = Builder(), LoopBuilder()
    x, y, z = (
        builder.region(name, role, (12, 8))
        for name, role in (("x", Role.INPUT), ("y", Role.INTERMEDIATE), ("z", Role.OUTPUT))
    )
    tiles = loops.space(0, 0, (6, 2), (2, 1))
    once, bands = loops.space(1, 0, (), ()), loops.space(1, 0, (3,), (1,))
    every = ((0, 1, 6), (0, 1, 2))
    first, second = builder.table("Relu", ((12, 8),), (12, 8)), builder.table("Relu", ((12, 8),), (12, 8))

    def positions(row: int, column: int) -> list[tuple[int, int, int]]:
        """Terms of a tile's position from a field on."""
        return [(row, 0, 2), (column, 1, 4)]

    # a tile's buffer: of two the one of the parity of its column, the second one first
    turn = (1, (0, 1))
    builder.transfer(Opcode.LOAD, IODMA0, (DRAM, x), (NRAM0, 0), 16, (2,), (32,), (16,), waits=())
    source = [(SOURCE_ADDRESS, 0, 64), (SOURCE_ADDRESS, 1, 16)]
    loops.add(tiles, every, stage=1, terms=source, rings=[(TARGET_ADDRESS, 2, 32, *turn)], waits=[(1, 1)])
    tile = ((0, 2), (0, 4))
    operands = ((OUTPUT, _in_core(64, tile)), (0, _in_core(0, tile)))
    builder.call(CORE0, first, tile, operands, waits=())
    moved = [
        *positions(ENTRY_START, ENTRY_START + 1),
        *positions(RESULT + 1, RESULT + 2),
        *positions(OPERAND + 1, OPERAND + 2),
    ]
    rings = [(RESULT, 2, 32, *turn), (OPERAND, 2, 32, *turn)]
    loops.add(tiles, every, terms=moved, rings=rings, waits=[(0, 1), (2, 1)])
    builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 64), (DRAM, y), 16, (2,), (16,), (32,), waits=())
    target = [(TARGET_ADDRESS, 0, 64), (TARGET_ADDRESS, 1, 16)]
    loops.add(tiles, every, stage=-1, terms=target, rings=[(SOURCE_ADDRESS, 2, 32, *turn)], waits=[(1, 1)])

    builder.transfer(Opcode.LOAD, GDMA, (DRAM, y), (SRAM, 0), 384, waits=())
    loops.add(once, waits=[(2, 0)])
    for rows, run in ((5, (0, 1, 2)), (2, (2, 1, 1))):
        at, band = run[0] * 5, ((0, rows), (0, 8))
        number = len(loops.statements)
        builder.transfer(Opcode.MOVE, MVDMA0, (SRAM, 32 * at), (NRAM0, 128), 32 * rows, waits=())
        terms = [(SOURCE_ADDRESS, 0, 160)] if rows == 5 else []
        loops.add(bands, [run], terms=terms, waits=[(2, 0), (3, 0), (number + 1, 1)])
        box = ((at, at + rows), band[1])
        operands = ((OUTPUT, _in_core(512, box)), (0, _in_core(128, box)))
        builder.call(CORE0, second, box, operands, waits=())
        terms = [(place, 0, 5) for place in (ENTRY_START, RESULT + 1, OPERAND + 1)] if rows == 5 else []
        loops.add(bands, [run], terms=terms, waits=[(number, 0), (number + 2, 1)])
        builder.transfer(Opcode.STORE, IODMA0, (NRAM0, 512), (DRAM, z + 32 * at), 32 * rows, waits=())
        terms = [(TARGET_ADDRESS, 0, 160)] if rows == 5 else []
        loops.add(bands, [run], terms=terms, waits=[(number + 1, 0)])
    program = builder.build()
    program.commands["step"][3:] = 1
    steps = tuple(Step(group=f"g{number}", nodes=(f"relu_{name}",), tensor=name) for number, name in enumerate("yz"))
    return loops.build(replace(program, steps=steps))
