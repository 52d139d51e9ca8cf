"""The proof of programs: accesses stay in their memories, find what was written, and wait (PROG-4).

1. The loops are well formed (`form.py`), and every command is fit by itself (`statement_accesses.py`): both are judged
   for all tiles at once, from a few of them.
2. The DRAM is written once, and completely (`dram_order.py`).
3. Iteration by iteration, every command waits for those that touched the same bytes before (`chip_order.py`). Where
   the state of the proof recurs and the loop goes on alike, the next iterations need no look (PROG-6).

The verdict is that of the program without loops. Time and memory follow statements and iterations that are judged; a
program without loops is a single iteration.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from compiler.program.engines import Engines
from compiler.program.errors import ProgramError
from compiler.program.fields import DEFAULT_LIMITS, ProgramLimits, check_fields
from compiler.program.loops.chip_order import Order
from compiler.program.loops.dram_order import DramProof, writes_of
from compiler.program.loops.form import check_loops
from compiler.program.loops.instances import Instances
from compiler.program.loops.positions import Positions
from compiler.program.loops.statement_accesses import accesses_of_statements
from compiler.program.program import Level, Opcode, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedProgram:
    """What the proof found of a program that is fit to run.

    `peak_bytes`: per place one past the highest byte touched (of the DRAM: that regions take). `commands`: how many all
    statements stand for, by opcode. `touched_bytes`: what they read and write together. Of `iterations`, `jumped` were
    not gone through, and `judged` commands were judged in the others.
    """

    peak_bytes: tuple[int, ...]
    commands: tuple[tuple[Opcode, int], ...]
    touched_bytes: int
    iterations: int
    jumped: int
    judged: int


def prove(program: Program, limits: ProgramLimits = DEFAULT_LIMITS, shared: Engines = ()) -> ProvedProgram:
    """What the proof knows of a program that is fit to run; raises ProgramError for any other.

    `shared` are the profile's engines that are one component. `limits` bound what the proof may cost.
    """
    check_fields(program, limits)
    check_loops(program, limits)
    instances = Instances(program)
    positions = Positions(instances)
    found = accesses_of_statements(instances, limits, shared)
    touched = found.touched_bytes
    if touched > limits.touched_bytes:
        raise ProgramError(
            "the commands touch too many bytes", violation="size", actual=touched, limit=limits.touched_bytes
        )
    writes = writes_of(found, instances, positions)
    DramProof(found, writes, limits).run()
    order = Order(instances, positions, found, writes, limits)
    order.run()
    peaks = found.peaks.copy()
    for index, _, high in found.residents:
        peaks[index] = max(int(peaks[index]), high)
    for number, place in enumerate(program.places):
        if place.level == Level.DRAM:
            peaks[number] = max((region.address + region.size_bytes for region in program.regions), default=0)
    counts = np.zeros(len(Opcode), dtype=np.int64)
    np.add.at(counts, program.commands["opcode"], instances.counts)
    return ProvedProgram(
        peak_bytes=tuple(peaks.tolist()),
        commands=tuple((opcode, int(counts[opcode])) for opcode in Opcode if counts[opcode]),
        touched_bytes=int(touched),
        iterations=order.iterations,
        jumped=order.jumped,
        judged=order.judged,
    )
