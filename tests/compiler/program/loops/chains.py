"""Programs of loops by hand, and random ones: chains of element-wise ops, tile by tile through the DRAM.

Of the random ones some are safe: which waits are left out or too weak is chosen at random.
"""

from __future__ import annotations

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
from compiler.program.program import OUTPUT, Opcode, Program, Role
from tests.compiler.program.builder import CORE0, CORE1, DRAM, IODMA0, IODMA1, NRAM0, NRAM1, Bound, Builder

# Bytes of a row of the tensors.
ROW = 16


@dataclass(slots=True)
class LoopBuilder:
    """Collects statements: the commands of `builder`, with their loops."""

    builder: Builder = field(default_factory=Builder)
    spaces: list[Any] = field(default_factory=list)
    statements: list[Any] = field(default_factory=list)
    runs: list[list[Any]] = field(default_factory=list)
    terms: list[list[Any]] = field(default_factory=list)
    rings: list[list[Any]] = field(default_factory=list)
    waits: list[dict[int, int]] = field(default_factory=list)

    def space(self, nest: int, base: int, counts: list[int], strides: list[int]) -> int:
        """A space; its number."""
        rest = MAX_COUNTERS - len(counts)
        self.spaces.append((nest, len(counts), base, (*counts, *[1] * rest), (*strides, *[0] * rest)))
        return len(self.spaces) - 1

    def loop(
        self,
        space: int,
        runs: list[Any],
        waits: dict[int, int],
        terms: list[Any] | None = None,
        rings: list[Any] | None = None,
    ) -> int:
        """Make the builder's last command a statement, with waits by statement and distance; its number."""
        self.statements.append((space, 0))
        self.runs.append(runs)
        self.terms.append(sorted(term for term in terms or [] if term[2]))
        self.rings.append(sorted(rings or []))
        self.waits.append(waits)
        return len(self.statements) - 1

    def build(self) -> Program:
        """The program."""
        waits = [sorted(its.items()) for its in self.waits]
        program = replace(
            self.builder.build(),
            waits=np.array([name for its in waits for name, _ in its], dtype=np.int32),
            wait_offsets=np.cumsum([0, *map(len, waits)]).astype(np.int32),
        )
        loops = Loops(
            spaces=np.array(self.spaces, dtype=SPACE),
            statements=np.array(self.statements, dtype=STATEMENT),
            run_offsets=np.cumsum([0, *map(len, self.runs)]).astype(np.int32),
            runs=np.array([row for its in self.runs for row in its], dtype=RUN),
            term_offsets=np.cumsum([0, *map(len, self.terms)]).astype(np.int32),
            terms=np.array([row for its in self.terms for row in its], dtype=TERM),
            ring_offsets=np.cumsum([0, *map(len, self.rings)]).astype(np.int32),
            rings=np.array([row for its in self.rings for row in its], dtype=RING),
            distances=np.array([distance for its in waits for _, distance in its], dtype=np.int64),
        )
        return replace(program, loops=loops)


def random_chain(seed: int) -> Program:
    """Up to three ops over up to 48 rows; each loads tiles of some rows, computes and stores them."""
    random = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    made, rows = LoopBuilder(), pick(8, 12, 24, 48)
    ops = pick(1, 2, 2, 3)
    roles = [Role.INPUT, *[Role.INTERMEDIATE] * (ops - 1), Role.OUTPUT]
    regions = [made.builder.region(f"r{number}", role, (rows, 4)) for number, role in enumerate(roles)]
    table = made.builder.table("Relu", ((rows, 4),), (rows, 4))
    nest = lag = shift = 0
    stores: list[int] = []
    for op in range(ops):
        if op and pick(True, True, False):
            nest, lag = nest + 1, 0
        elif op:
            lag += pick(1, 2, 3)
        tile = pick(*(t for t in (1, 2, 4) if rows % t == 0))
        stores = _op(made, pick, table, (nest, lag), (rows, tile), regions[op : op + 2], stores, shift)
        shift = pick(0, shift + 256)
    return made.build()


def _op(
    made: LoopBuilder,
    pick: Any,
    table: int,
    place: tuple[int, int],
    size: tuple[int, int],
    regions: list[int],
    before: list[int],
    shift: int,
) -> list[int]:
    """Statements of one op, in one part or two: loads, calls and stores; the numbers of the stores."""
    (nest, lag), (rows, tile), (source, target) = place, size, regions
    builder, tiles = made.builder, rows // tile
    inner = pick(*(n for n in (1, 1, 2, 3, 4) if tiles % n == 0))
    counts, strides = ([tiles], [1]) if inner == 1 else ([tiles // inner, inner], [inner, 1])
    space = made.space(nest, lag, counts, strides)
    dma, core, memory = pick((IODMA0, CORE0, NRAM0), (IODMA0, CORE0, NRAM0), (IODMA1, CORE1, NRAM1))
    slots, apart, length = pick(1, 2, 2, 3), pick(64, 128), ROW * tile
    steps = [tile * stride for stride in strides]
    turn = [*strides, *[0] * (MAX_COUNTERS - len(strides))]

    def ring() -> Any:
        return slots, apart, pick(0, 0, 1) if slots > 1 else 0, turn

    def moving(name: int, bytes_each: int) -> list[Any]:
        return [(name, counter, bytes_each * step) for counter, step in enumerate(steps)]

    data, results = shift, shift + slots * apart
    in_ring, out_ring = ring(), ring()
    distance = pick(slots, slots, slots, slots + 1, max(1, slots - 1))
    halves = pick(1, 1, 2) if counts[0] > 1 else 1
    second = BINDING_ADDRESS + BINDING_FIELDS
    found: list[int] = []
    for half in range(halves):
        begin, end = half * counts[0] // halves, (half + 1) * counts[0] // halves
        runs = [(begin, 1, end - begin), *((0, 1, count) for count in counts[1:])]
        first = begin * strides[0]
        load = len(made.statements)
        call, store = load + 1, load + 2
        builder.transfer(Opcode.LOAD, dma, (DRAM, source + first * length), (memory, data), length, waits=())
        waits = {its: pick(0, 0, 1, 2) for its in before if pick(True, True, True, False)}
        waits |= {call: distance}
        made.loop(space, runs, waits, moving(SOURCE_ADDRESS, ROW), [(TARGET_ADDRESS, *in_ring)])
        box = ((first * tile, first * tile + tile), (0, 4))
        bounds = (
            (0, Bound(place=memory, address=data, box=box)),
            (OUTPUT, Bound(place=memory, address=results, box=box)),
        )
        builder.call(core, table, box, bounds, waits=())
        terms = [*moving(ENTRY_START, 1), *moving(BINDING_ADDRESS + 1, 1), *moving(second + 1, 1)]
        waits = {load: 0, store: distance}
        if pick(0, 0, 0, 0, 1):
            waits.pop(pick(load, store))
        made.loop(space, runs, waits, terms, [(BINDING_ADDRESS, *in_ring), (second, *out_ring)])
        builder.transfer(Opcode.STORE, dma, (memory, results), (DRAM, target + first * length), length, waits=())
        made.loop(space, runs, {call: 0}, moving(TARGET_ADDRESS, ROW), [(SOURCE_ADDRESS, *out_ring)])
        found.append(store)
    return found
