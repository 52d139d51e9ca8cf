"""The energy of a program: every byte that its commands move, every product, and static power by time (SIM-2).

The levels are those of the planner's price (`Cost.energy_by_level`), and what a call takes inside its core is what the
planner prices an op with (`cost/array.py`).
"""

from __future__ import annotations

from compiler.cost.array import register_energy_pj
from compiler.cost.levels import LevelBytes
from compiler.profile.schema import Dram, Memory, Profile
from compiler.program.loops.time import ProgramTime
from compiler.program.timing.levels import Moved, kinds_of


def energy_by_level(time: ProgramTime, profile: Profile, moved: Moved) -> dict[str, float]:
    """pJ by memory, unit and link, in the planner's order; static power for as long as the program takes.

    `moved`: what its commands move.
    """
    demands = time.demands
    registers = macs = vector = 0.0
    _, counts, _ = kinds_of(demands, time.instances)
    for work, count in zip(demands.works, counts.tolist(), strict=True):
        if work is not None and count:
            registers += register_energy_pj(work.use, profile) * count
            macs += work.macs * profile.matrix.pj_per_mac.get(work.dtype, 0.0) * count
            vector += work.vector_ops * profile.vector.pj_per_operation * count
    memories = {"dram": profile.dram, "sram": profile.sram, "nram": profile.nram, "wram": profile.wram}
    link = profile.engines.link
    return {
        **{name: _memory_pj(moved.memories.get(name), memory) for name, memory in memories.items()},
        "registers": registers,
        "link": 0.0 if link is None else moved.link_byte_hops * link.pj_per_byte_hop,
        "mac": macs,
        "vector": vector,
        "static": profile.static_w * time.cycles / profile.clock_hz * 1e12,
    }


def _memory_pj(level: LevelBytes | None, memory: Dram | Memory | None) -> float:
    if level is None or memory is None:
        return 0.0
    return level.read * memory.read_pj_per_byte + level.written * memory.write_pj_per_byte
