"""How fast programs are simulated in time, and how that grows with their commands (SIM-2).

`python -m tests.bench timing`.
"""

from __future__ import annotations

from time import process_time
from typing import Final

import numpy as np

from compiler.profile import builtin_profile
from compiler.program.emitter import machine_of
from compiler.program.loops.loops import Loops
from compiler.program.loops.time import time_of
from compiler.program.program import BINDING, CALL, COMMAND, Opcode, Program, Step

_COUNTS: Final = (10_000, 100_000, 1_000_000)
_TILE_BYTES: Final = 4096
# Load, fill, drain and store, tile after tile on each core.
_COMMANDS_OF_A_TILE: Final = 4


def run() -> None:
    """Commands per second on one core, after the first program."""
    print("\n### Simulation in time: `cluster4x4`, tiles loaded, moved to the cores, moved back and stored\n")
    print("| commands | s | commands per s | exponent |\n|---:|---:|---:|---:|")
    profile = builtin_profile("cluster4x4")
    time_of(streaming(_COUNTS[0]), profile)
    last: tuple[int, float] | None = None
    for count in _COUNTS:
        program = streaming(count)
        begin = process_time()
        time_of(program, profile)
        seconds = process_time() - begin
        exponent = "" if last is None else f"{np.log(seconds / last[1]) / np.log(count / last[0]):.2f}"
        print(f"| {count:,} | {seconds:.3f} | {count / seconds:,.0f} | {exponent} |")
        last = count, seconds


def streaming(count: int) -> Program:
    """A program of about so many commands: all cores of `cluster4x4` work on tiles of their own, two buffers each."""
    machine = machine_of(builtin_profile("cluster4x4"))
    queue_of, place_of = machine.queue_of, machine.place_of
    cores, per = 16, 4
    tiles = count // (_COMMANDS_OF_A_TILE * cores)
    commands = np.zeros(tiles * cores * _COMMANDS_OF_A_TILE, dtype=COMMAND)
    commands["counts"], commands["call"], commands["targets"], commands["run_bytes"] = 1, -1, 1, _TILE_BYTES
    names = {place.level.value: place.level for place in machine.places}
    dram, sram, nram = (names[name] for name in ("dram", "sram", "nram"))
    for core in range(cores):
        cluster = core // per
        queues = (
            queue_of["gdma", cluster],
            queue_of["mvdma", core],
            queue_of["mvdma", core],
            queue_of["gdma", cluster],
        )
        places = [place_of[dram, 0], place_of[sram, cluster], place_of[nram, core]]
        ways = ((0, 1, Opcode.LOAD), (1, 2, Opcode.MOVE), (2, 1, Opcode.MOVE), (1, 0, Opcode.STORE))
        for turn, (queue, (source, target, opcode)) in enumerate(zip(queues, ways, strict=True)):
            rows = slice(core * _COMMANDS_OF_A_TILE + turn, None, cores * _COMMANDS_OF_A_TILE)
            commands["queue"][rows], commands["opcode"][rows] = queue, opcode
            commands["source"][rows], commands["target"][rows] = places[source], places[target]
    # each waits for the one before it of its tile, a load for the store of the tile before the last
    number = np.arange(len(commands))
    is_load = commands["opcode"] == Opcode.LOAD
    before = np.where(is_load, number - (2 * cores - 1) * _COMMANDS_OF_A_TILE - 1, number - 1)
    waits = before >= 0
    offsets = np.zeros(len(commands) + 1, dtype=np.int64)
    np.cumsum(waits, out=offsets[1:])
    return Program(
        name="tiles",
        places=machine.places,
        queues=machine.queues,
        steps=(Step(group="g0", nodes=("n0",), tensor="t"),),
        commands=commands,
        wait_offsets=offsets,
        waits=before[waits],
        loops=Loops.one_iteration(len(commands), int(waits.sum())),
        calls=np.zeros(0, dtype=CALL),
        bindings=np.zeros(0, dtype=BINDING),
        units=(),
        tables=(),
        regions=(),
        residents=(),
    )
