"""Random looped programs of a chain of element-wise ops: tile by tile through the DRAM, nest after nest or side by side.

Some are safe: what waits are left out or too weak, and what is stored, is chosen at random.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
    LoopedProgram,
    Loops,
)
from compiler.program.program import OUTPUT, Opcode, Role
from tests.compiler.program.builder import CORE0, CORE1, DRAM, IODMA0, IODMA1, NRAM0, NRAM1, Bound, Builder

_ROW = 16


@dataclass(slots=True)
class _Made:
    """Statements so far; waits name them."""

    builder: Builder = field(default_factory=Builder)
    spaces: list[Any] = field(default_factory=list)
    statements: list[Any] = field(default_factory=list)
    runs: list[list[Any]] = field(default_factory=list)
    terms: list[list[Any]] = field(default_factory=list)
    rings: list[list[Any]] = field(default_factory=list)
    waits: list[dict[int, int]] = field(default_factory=list)

    def add(self, space: int, runs: list[Any], terms: list[Any], rings: list[Any], waits: dict[int, int]) -> int:
        """The statement of the builder's last command; its number."""
        self.statements.append((space, 0))
        self.runs.append(runs)
        self.terms.append(sorted(term for term in terms if term[2]))
        self.rings.append(sorted(rings))
        self.waits.append(waits)
        return len(self.statements) - 1


def random_chain(seed: int) -> LoopedProgram:
    """Up to three ops over up to 24 rows; each loads tiles of some rows, computes and stores them."""
    random = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(random.integers(len(values)))]

    made, rows = _Made(), pick(8, 12, 24, 48)
    ops = pick(1, 2, 2, 3)
    roles = [Role.INPUT, *[Role.INTERMEDIATE] * (ops - 1), Role.OUTPUT]
    regions = [made.builder.region(f"r{number}", role, (rows, 4)) for number, role in enumerate(roles)]
    table = made.builder.table("Relu", ((rows, 4),), (rows, 4))
    nest, lag, stores, shift = 0, 0, [], 0
    for op in range(ops):
        if op and pick(True, True, False):
            nest, lag = nest + 1, 0
        elif op:
            lag += pick(1, 2, 3)
        tile = pick(*(t for t in (1, 2, 4) if rows % t == 0))
        stores = _op(made, pick, table, (nest, lag), (rows, tile), regions[op : op + 2], stores, shift)
        shift = pick(0, shift + 256)
    offsets = [np.cumsum([0, *map(len, rows)]).astype(np.int32) for rows in (made.runs, made.terms, made.rings)]
    waits = [sorted(its.items()) for its in made.waits]
    program = made.builder.build()
    program.waits.resize(sum(map(len, waits)), refcheck=False)
    program.waits[:] = [name for its in waits for name, _ in its]
    program.wait_offsets[:] = np.cumsum([0, *map(len, waits)])
    loops = Loops(
        spaces=np.array(made.spaces, dtype=SPACE),
        statements=np.array(made.statements, dtype=STATEMENT),
        run_offsets=offsets[0],
        runs=np.array([row for its in made.runs for row in its], dtype=RUN),
        term_offsets=offsets[1],
        terms=np.array([row for its in made.terms for row in its], dtype=TERM),
        ring_offsets=offsets[2],
        rings=np.array([row for its in made.rings for row in its], dtype=RING),
        distances=np.array([distance for its in waits for _, distance in its], dtype=np.int64),
    )
    return LoopedProgram(program=program, loops=loops)


def _op(
    made: _Made, pick: Any, table: int, place: tuple[int, int], size: tuple[int, int], regions: list[int], before: Any, shift: int
) -> list[int]:
    """Statements of one op: its space, loads, calls and stores; the numbers of the stores."""
    (nest, lag), (rows, tile), (source, target) = place, size, regions
    builder, tiles = made.builder, rows // tile
    inner = pick(*(n for n in (1, 1, 2, 3, 4) if tiles % n == 0))
    counts = [tiles] if inner == 1 else [tiles // inner, inner]
    strides = [1] if inner == 1 else [inner, 1]
    width = len(counts)
    zeros, ones = [0] * (MAX_COUNTERS - width), [1] * (MAX_COUNTERS - width)
    made.spaces.append((nest, width, lag, (*counts, *ones), (*strides, *zeros)))
    space = len(made.spaces) - 1
    dma, core, memory = pick((IODMA0, CORE0, NRAM0), (IODMA0, CORE0, NRAM0), (IODMA1, CORE1, NRAM1))
    slots, apart, length = pick(1, 2, 2, 3), pick(64, 128), _ROW * tile
    runs = [(0, 1, count) for count in counts]
    box = ((0, tile), (0, 4))
    steps = [tile * stride for stride in strides]
    turn = [*strides, *zeros]

    def ring(name: int) -> Any:
        return (name, slots, apart, pick(0, 0, 1) if slots > 1 else 0, turn)

    data, results = shift, shift + slots * apart
    in_ring, out_ring = ring(0), ring(0)
    distance = pick(slots, slots, slots, slots + 1, max(1, slots - 1))
    number = len(made.statements)
    halves = pick(1, 1, 2) if counts[0] > 1 else 1
    loads, calls, stores = [number + n * 3 for n in range(halves)], [], []
    del loads
    found = []
    for half in range(halves):
        begin, end = half * counts[0] // halves, (half + 1) * counts[0] // halves
        own = [(begin, 1, end - begin), *runs[1:]]
        first = begin * strides[0]
        number = len(made.statements)
        load, call, store = number, number + 1, number + 2
        builder.transfer(
            Opcode.LOAD, dma, (DRAM, source + first * length), (memory, data), length, waits=()
        )
        waits = {store_before: pick(0, 0, 1, 2) for store_before in before if pick(True, True, True, False)}
        waits |= {call: distance}
        made.add(
            space,
            own,
            [(SOURCE_ADDRESS, k, _ROW * step) for k, step in enumerate(steps)],
            [(TARGET_ADDRESS, *in_ring[1:])],
            waits,
        )
        moved = tuple((a + first * tile, b + first * tile) if not axis else (a, b) for axis, (a, b) in enumerate(box))
        bounds = (
            (0, Bound(place=memory, address=data, box=moved)),
            (OUTPUT, Bound(place=memory, address=results, box=moved)),
        )
        builder.call(core, table, moved, bounds, waits=())
        terms = [(ENTRY_START, k, step) for k, step in enumerate(steps)]
        for bound in range(2):
            terms += [(BINDING_ADDRESS + bound * BINDING_FIELDS + 1, k, step) for k, step in enumerate(steps)]
        rings = [(BINDING_ADDRESS, *in_ring[1:]), (BINDING_ADDRESS + BINDING_FIELDS, *out_ring[1:])]
        waits = {load: 0, store: distance}
        if pick(0, 0, 0, 0, 1):
            waits.pop(pick(load, store))
        made.add(space, own, terms, rings, waits)
        builder.transfer(
            Opcode.STORE, dma, (memory, results), (DRAM, target + first * length), length, waits=()
        )
        made.add(
            space,
            own,
            [(TARGET_ADDRESS, k, _ROW * step) for k, step in enumerate(steps)],
            [(SOURCE_ADDRESS, *out_ring[1:])],
            {call: 0},
        )
        found.append(store)
    # a second half waits for what the first one did, too
    for half in range(1, halves):
        for offset in (0, 1):
            its = found[half] - 2 + offset
            made.waits[its] |= {found[half - 1] - 1 + offset: 0} if pick(True, False) else {}
    return found
