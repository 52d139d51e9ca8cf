"""The closed-form price of one group under one tiling.

Assumptions, each to be measured against the event simulation later: inside a group transfers and computation
overlap; the first tile's load and the last tile's store do not; every operand crosses a core's memories once per core
tile; groups run one after another. docs/cost-model.md derives the formulas.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Literal

from compiler.cost.rates import dram_port_bytes_per_cycle, dram_startup_cycles
from compiler.profile.schema import Memory, Profile

BoundBy = Literal["dram", "compute", "on-chip"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelBytes:
    """Bytes read from and written to one memory level."""

    read: int = 0
    written: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What a group moves and computes under a tiling; bytes, cycles and counts for the whole batch.

    first_load_bytes and last_store_bytes: the part of the transfers that nothing can hide. exchanged_bytes: bytes
    passed between units (CDMA or core links). broadcast_bytes: SRAM bytes that the bus hands to all cores of a unit
    at once. exposed_transfers: loads (and as many stores) whose start-up nothing hides. compute_cycles: on the
    critical core.
    """

    input_bytes: int
    weight_bytes: int
    output_bytes: int
    first_load_bytes: int
    last_store_bytes: int
    units: int
    overlapped: bool
    exposed_transfers: int
    sram: LevelBytes
    nram: LevelBytes
    wram: LevelBytes
    exchanged_bytes: int
    broadcast_bytes: int
    compute_cycles: int
    macs: int
    mac_energy_pj: float
    vector_ops: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The price of a group: bytes, cycles and energy; `bound_by` names the largest part of the cycles."""

    dram_read_bytes: int
    dram_write_bytes: int
    weight_read_bytes: int
    dram_cycles: int
    onchip_cycles: int
    compute_cycles: int
    cycles: int
    energy_pj: float
    bound_by: BoundBy
    macs: int
    vector_ops: int
    sram: LevelBytes
    nram: LevelBytes
    wram: LevelBytes
    exchanged_bytes: int

    @property
    def dram_bytes(self) -> int:
        """DRAM reads plus writes."""
        return self.dram_read_bytes + self.dram_write_bytes


def price(traffic: Traffic, profile: Profile) -> Cost:
    """Bytes, cycles and energy of a group (SPEC section 5.1: groups add up, inside a group things overlap)."""
    reads = traffic.input_bytes + traffic.weight_bytes
    moved = reads + traffic.output_bytes
    rate = dram_port_bytes_per_cycle(profile, traffic.units)
    dram_cycles = ceil(moved / rate)
    onchip_cycles = _onchip_cycles(traffic, profile)
    exposed = ceil((traffic.first_load_bytes + traffic.last_store_bytes) / rate) if moved else 0
    busy = traffic.compute_cycles + (exposed if traffic.overlapped else dram_cycles)
    startup = ceil(2 * traffic.exposed_transfers * dram_startup_cycles(profile)) if moved else 0
    cycles = max(dram_cycles, onchip_cycles, busy) + startup
    parts: dict[BoundBy, int] = {
        "dram": dram_cycles,
        "compute": traffic.compute_cycles,
        "on-chip": onchip_cycles,
    }
    energy = _energy_pj(traffic, profile) + profile.static_w * cycles / profile.clock_hz * 1e12
    return Cost(
        dram_read_bytes=reads,
        dram_write_bytes=traffic.output_bytes,
        weight_read_bytes=traffic.weight_bytes,
        dram_cycles=dram_cycles,
        onchip_cycles=onchip_cycles,
        compute_cycles=traffic.compute_cycles,
        cycles=cycles,
        energy_pj=energy,
        bound_by=max(parts, key=lambda name: parts[name]),
        macs=traffic.macs,
        vector_ops=traffic.vector_ops,
        sram=traffic.sram,
        nram=traffic.nram,
        wram=traffic.wram,
        exchanged_bytes=traffic.exchanged_bytes,
    )


def _onchip_cycles(traffic: Traffic, profile: Profile) -> int:
    """Cycles of the busiest on-chip path, each path's traffic spread evenly over the units in use."""
    engines = profile.engines
    cores = traffic.units * (profile.cores_per_cluster if profile.sram is not None else 1)
    paths = [0.0]
    if engines.mvdma is not None and profile.sram is not None:
        moved = traffic.sram.read + traffic.sram.written - traffic.broadcast_bytes
        paths.append(moved / (engines.mvdma.bytes_per_cycle * cores))
    for memory, level, count in (
        (profile.sram, traffic.sram, traffic.units),
        (profile.nram, traffic.nram, cores),
        (profile.wram, traffic.wram, cores),
    ):
        if memory is not None and memory.bytes_per_cycle is not None:
            paths.append((level.read + level.written) / (memory.bytes_per_cycle * count))
    if engines.bus is not None:
        paths.append(traffic.broadcast_bytes / (engines.bus.bytes_per_cycle * traffic.units))
    between = engines.cdma if profile.sram is not None else engines.link
    if between is not None and traffic.exchanged_bytes:
        paths.append(traffic.exchanged_bytes / (between.bytes_per_cycle * max(1, traffic.units - 1)))
    return ceil(max(paths))


def _energy_pj(traffic: Traffic, profile: Profile) -> float:
    """Dynamic energy: every byte at every level and direction, every multiply-accumulate and vector operation."""
    dram = (traffic.input_bytes + traffic.weight_bytes) * profile.dram.read_pj_per_byte
    dram += traffic.output_bytes * profile.dram.write_pj_per_byte
    onchip = 0.0
    weights = profile.wram or profile.nram
    for level, memory in (
        (traffic.sram, profile.sram),
        (traffic.nram, profile.nram),
        (traffic.wram, weights),
    ):
        if memory is not None:
            onchip += _level_pj(level, memory)
    link = profile.engines.link
    if link is not None and profile.sram is None:
        onchip += traffic.exchanged_bytes * link.pj_per_byte_hop
    return dram + onchip + traffic.mac_energy_pj + traffic.vector_ops * profile.vector.pj_per_operation


def _level_pj(level: LevelBytes, memory: Memory) -> float:
    return level.read * memory.read_pj_per_byte + level.written * memory.write_pj_per_byte
