"""How long one thing takes and what it costs: the only place where profile rates are turned into cycles."""

from __future__ import annotations

from math import inf
from typing import Final

from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import DEFAULT_ACCUMULATOR_BYTES, Engine, Link, Profile

# Bytes that one lane of a core's vector unit copies per cycle.
_LANE_BYTES: Final = 4


def copying_bytes_per_cycle(profile: Profile) -> int:
    """Bytes that a core's vector unit copies from one place of its memories to another, which no profile states."""
    return profile.vector.lanes * _LANE_BYTES


def mac_energy_pj(op: OpFacts, profile: Profile) -> float:
    """Energy of one multiply-accumulate of the op's element type, in pJ."""
    return profile.matrix.pj_per_mac.get(op.dtype, 0.0)


def waiting_sum_bytes(op: OpFacts, profile: Profile) -> int:
    """Bytes of a sum that waits in a memory for its next part: a float32 or an int32 at least."""
    return max(DEFAULT_ACCUMULATOR_BYTES, profile.partial_sum_bytes, op.sum_bytes)


def reads_are_shared(profile: Profile) -> bool:
    """True if what one unit reads from DRAM can reach the others on chip: DRAM multicast, CDMA or core links."""
    return profile.dram.multicast or units_are_connected(profile)


def units_are_connected(profile: Profile) -> bool:
    """True if data can pass between the units that hold tiles: over CDMA, or without SRAM over core links."""
    return profile.units.peer_engine is not None or profile.units.count == 1


def dram_startup_cycles(profile: Profile) -> float:
    """Start-up of one DRAM transfer in cycles."""
    engine = profile.units.dram_engine
    own = profile.dram.startup_ns * profile.clock_hz / 1e9
    return own if engine is None else max(own, engine_startup_cycles(engine, profile))


def engine_startup_cycles(engine: Engine | Link, profile: Profile) -> float:
    """Start-up of one transfer of an engine in cycles; of a link, a hop."""
    if isinstance(engine, Link):
        return engine.hop_cycles
    return engine.startup_ns * profile.clock_hz / 1e9


def dram_port_bytes_per_cycle(profile: Profile, units: int) -> float:
    """Bytes per cycle between DRAM and `units` units: the engines' sum, at most the DRAM's bandwidth."""
    engine = profile.units.dram_engine
    engines = engine.bytes_per_cycle * units if engine is not None else profile.dram_bytes_per_cycle
    return min(profile.dram_bytes_per_cycle, engines)


def dram_transfer_cycles(
    profile: Profile, units: int, moved: int, transfers: int, copied: int = 0, in_turn: float = 1.0
) -> float:
    """Cycles of DRAM transfers that go on beside all else.

    The bytes of all units take the DRAM's rate. The engine of a unit takes its part of them and of the bytes `copied`
    inside the units' memories, and a start-up for each of its `transfers`, for it prepares one after the other.
    `in_turn`: how many times as long the engines take because some load when others have.
    """
    engine = profile.units.dram_engine
    rate = engine.bytes_per_cycle * units if engine is not None else profile.dram_bytes_per_cycle
    alone = (moved * in_turn + copied) / rate + transfers * dram_startup_cycles(profile)
    return max(moved / dram_port_bytes_per_cycle(profile, units), alone)


def transfers_of_part(profile: Profile, units: int, *, apart: bool = False) -> int:
    """How many transfers, one after another, hand a unit's part of what all need to the other units.

    An engine sends to neighbouring memories at once: to those before it, and those behind it, unless they lie `apart`.
    """
    if profile.units.are_cores or units == 1:
        return 1
    return units - 1 if apart else min(2, units - 1)


def busiest_link(profile: Profile, units: int, transfers: int) -> float:
    """What the busiest link or engine carries where each unit hands its part to all others, as a part of the whole.

    `transfers`: those of a part, by an engine.
    """
    link = profile.engines.link
    if not profile.units.are_cores or link is None:
        return transfers / units
    if link.topology == "ring":
        # a part goes both ways, one after the other, and meets those of the neighbours
        return (units - 1) / units
    columns = mesh_columns(profile.cores)
    return 1 - min(columns, units - 1) / units if units > columns else (units - 1) / units


def scattered_share(profile: Profile) -> float:
    """What the busiest link or engine carries where each unit gives every other a part of its own, as a part of all.

    Half of it crosses the middle of a mesh's longer side, over as many links each way as the other side has. Round a
    ring a byte goes a quarter of the way on average, and links go both ways.
    """
    units, link = profile.units.count, profile.engines.link
    if not profile.units.are_cores or link is None:
        return 1 / units
    if link.topology == "ring":
        return 1 / min(units, 8)
    return max(1 / units, mesh_columns(profile.cores) / (4 * profile.cores))


def handed_bytes_per_cycle(profile: Profile, units: int) -> float:
    """Bytes that arrive per cycle at all units together where what all need is read in parts that they hand each other.

    Infinite where nothing passes between units. One unit alone gets what others hold. Over links many a part is too
    small to be read in parts: the busiest carries about all of it.
    """
    engine = profile.units.peer_engine
    if engine is None:
        return inf
    if units == 1 or profile.units.are_cores:
        return engine.bytes_per_cycle * max(1, units - 1)
    return engine.bytes_per_cycle * (units - 1) / busiest_link(profile, units, transfers_of_part(profile, units))


def direct_is_as_wide(profile: Profile, units: int, cores: int) -> bool:
    """True if the IODMAs of a unit's cores bring as much from DRAM as GDMAs bring to the SRAMs (TILE-7)."""
    iodma, gdma = profile.engines.iodma, profile.engines.gdma
    if iodma is None:
        return False
    staged = min(profile.dram_bytes_per_cycle, gdma.bytes_per_cycle * units if gdma is not None else 0.0)
    return min(profile.dram_bytes_per_cycle, iodma.bytes_per_cycle * units * cores) >= staged


def dram_hops(profile: Profile) -> float:
    """Links that a byte crosses between DRAM and a core on average: to the nearer side of a mesh with DRAM there."""
    if profile.dram.ports != "mesh-sides":
        return 0.0
    columns = mesh_columns(profile.cores)
    return sum(min(column, columns - 1 - column) for column in range(columns)) / columns


def mesh_columns(cores: int) -> int:
    """Columns of the squarest mesh of so many cores."""
    return next(cores // rows for rows in range(int(cores**0.5), 0, -1) if cores % rows == 0)
