"""How fast boxes come to a core, by the ways that `routes.py` sends them (SHAPE-6)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.cost.rates import dram_startup_cycles, engine_startup_cycles
from compiler.profile.schema import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """From where boxes lie to a core or back, while all cores move theirs: start-up of a box, and rate.

    `readers`: how many cores' time a box takes that all of them get at once. Of DRAM that is how often it is read, for
    each core has its share of the bandwidth.
    """

    start_cycles: float
    bytes_per_cycle: float
    readers: int


def dram_way(profile: Profile) -> Way:
    """The way from DRAM: by a core's own engine, or through the SRAM of its cluster where it has none."""
    engines, share = profile.engines, profile.dram_bytes_per_cycle / profile.cores
    start, readers = dram_startup_cycles(profile), _dram_readers(profile)
    if engines.iodma is not None:
        rate = min(share, engines.iodma.bytes_per_cycle)
        return Way(start_cycles=start, bytes_per_cycle=rate, readers=readers)
    if engines.gdma is None or engines.mvdma is None:
        raise AssertionError(profile.name)
    loads = min(share, engines.gdma.bytes_per_cycle / profile.cores_per_cluster)
    # a box lies in the SRAM whole before it goes on
    rate = 1 / (1 / loads + 1 / engines.mvdma.bytes_per_cycle)
    # and those of all cores of a cluster start one after another
    start = start * profile.cores_per_cluster + engine_startup_cycles(engines.mvdma, profile)
    return Way(start_cycles=start, bytes_per_cycle=rate, readers=readers)


def _dram_readers(profile: Profile) -> int:
    """How often what all calls read is read from DRAM: once if it can be passed on, else by each who needs it."""
    engines = profile.engines
    if engines.iodma is None:
        return profile.clusters_per_chip
    if profile.dram.multicast:
        return 1
    if engines.gdma is not None and engines.bus is not None:
        return profile.clusters_per_chip
    return 1 if engines.link is not None else profile.cores


def saved_by_passing_on(profile: Profile, size_bytes: int, count: int) -> float:
    """Cycles that a box of some cores comes sooner if it is read from DRAM for all of them, not by each for itself.

    Where it passes an SRAM, of cores of one cluster; a single core gains there if its own engine is the slower one.
    Negative where starting one transfer after another takes longer than what is gained.
    """
    engines, share = profile.engines, profile.dram_bytes_per_cycle / profile.cores
    if engines.iodma is None or profile.dram.multicast:
        return 0.0
    own = engines.iodma.bytes_per_cycle
    # several cores want their share of the bandwidth at one time; nobody may be waiting but a single one
    direct = size_bytes / (min(own, share) if count > 1 else own)
    if engines.gdma is not None and engines.bus is not None:
        inside = engines.bus if count > 1 or engines.mvdma is None else engines.mvdma
        loads = engines.gdma.bytes_per_cycle
        load = size_bytes / (min(loads, share * count) if count > 1 else loads)
        starts = dram_startup_cycles(profile) + engine_startup_cycles(inside, profile)
        return direct - load - starts - size_bytes / inside.bytes_per_cycle
    if engines.link is not None and count > 1:
        load = size_bytes / min(own, share * count)
        return direct - load - engines.link.hop_cycles - size_bytes / engines.link.bytes_per_cycle
    return -1.0


def peer_way(profile: Profile) -> Way | None:
    """The way of stationary weights from the cores in which they lie; None where there is none between all cores."""
    engines = profile.engines
    if engines.link is not None:
        start, rate = engines.link.hop_cycles, engines.link.bytes_per_cycle
    elif profile.clusters_per_chip == 1 and not profile.units.are_cores and engines.mvdma is not None:
        start, rate = engine_startup_cycles(engines.mvdma, profile), engines.mvdma.bytes_per_cycle
    elif engines.cdma is not None:
        start = engine_startup_cycles(engines.cdma, profile)
        rate = engines.cdma.bytes_per_cycle / profile.cores_per_cluster
    else:
        return None
    return Way(start_cycles=start, bytes_per_cycle=rate, readers=profile.cores)
