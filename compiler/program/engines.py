"""Which engine may do what: its opcodes, the memories it reaches, and which of them are its own (PROF-2, PROG-1).

An engine belongs to a core or to a cluster. Every place that a command touches must be one that its engine reaches,
and one of them at least must be the engine's own (the DRAM is nobody's): so a core's queue serves its own memories
alone, unless one read is multicast, and a link or the CDMA moves between its owner and a peer. A broadcast is sent by
the owner of its source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from compiler.program.errors import ProgramError
from compiler.program.program import Level, Opcode, Place, Queue
from compiler.program.strided import Flags

CORE_LEVELS: Final = (Level.NRAM, Level.NRAM_WEIGHTS, Level.WRAM)
CLUSTER_LEVELS: Final = (Level.SRAM, Level.SRAM_WEIGHTS)
Engines = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """An engine: whether there is one per core (else per cluster), its opcodes, its own levels, and what it reaches.

    `near` are levels that it reaches in its own cluster, `far` those that it reaches everywhere.
    """

    per_core: bool
    opcodes: tuple[Opcode, ...]
    own: tuple[Level, ...]
    near: tuple[Level, ...] = ()
    far: tuple[Level, ...] = ()


_RULES: Final[Mapping[str, _Rule]] = MappingProxyType(
    {
        "iodma": _Rule(
            per_core=True,
            opcodes=(Opcode.LOAD, Opcode.STORE, Opcode.GATHER),
            own=CORE_LEVELS,
            far=(Level.DRAM, *CORE_LEVELS),
        ),
        "gdma": _Rule(
            per_core=False,
            opcodes=(Opcode.LOAD, Opcode.STORE, Opcode.GATHER, Opcode.MOVE),
            own=CLUSTER_LEVELS,
            far=(Level.DRAM, *CLUSTER_LEVELS),
        ),
        # between the cores of a cluster it passes through the SRAM without staying there (TILE-3)
        "mvdma": _Rule(
            per_core=True,
            opcodes=(Opcode.MOVE, Opcode.EXCHANGE, Opcode.BROADCAST),
            own=CORE_LEVELS,
            near=(*CLUSTER_LEVELS, *CORE_LEVELS),
        ),
        "cdma": _Rule(
            per_core=False,
            opcodes=(Opcode.EXCHANGE, Opcode.BROADCAST, Opcode.MOVE),
            own=(*CLUSTER_LEVELS, *CORE_LEVELS),
            far=(*CLUSTER_LEVELS, *CORE_LEVELS),
        ),
        "bus": _Rule(per_core=False, opcodes=(Opcode.BROADCAST, Opcode.MOVE), own=CLUSTER_LEVELS, near=CORE_LEVELS),
        "link": _Rule(
            per_core=True,
            opcodes=(Opcode.EXCHANGE, Opcode.BROADCAST, Opcode.MOVE),
            own=CORE_LEVELS,
            far=CORE_LEVELS,
        ),
        "core": _Rule(per_core=True, opcodes=(Opcode.COMPUTE, Opcode.MOVE), own=CORE_LEVELS),
    }
)
ENGINE_NAMES: Final = tuple(_RULES)


def is_per_core(engine: str) -> bool:
    """True if each core has an engine of this name, False if each cluster has one."""
    return _RULES[engine].per_core


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """By queue and place, whether the engine reaches it and owns it; by queue and opcode, whether it may do it.

    `clusters` and `cores` say whose each place is, -1 for nobody's; a core's place is also its cluster's.
    """

    reaches: Flags
    owns: Flags
    does: Flags
    clusters: tuple[int, ...]
    cores: tuple[int, ...]


def reach_of(places: tuple[Place, ...], queues: tuple[Queue, ...], shared: Engines = ()) -> Reach:
    """What each queue may touch and do; raises ProgramError for places or queues that no chip has.

    `shared` are the profile's engines that are one component: a queue by one of their names serves them all.
    """
    cores, clusters = _count(places, CORE_LEVELS), _count(places, CLUSTER_LEVELS)
    per = cores // clusters if clusters else max(1, cores)
    if clusters and cores % clusters:
        raise ProgramError(
            "cores cannot be shared out evenly to clusters", violation="places", actual=cores, limit=clusters
        )
    clusters = clusters or 1
    core_of = tuple(place.number if place.level in CORE_LEVELS else -1 for place in places)
    cluster_of = tuple(
        place.number // per if place.level in CORE_LEVELS else place.number if place.level in CLUSTER_LEVELS else -1
        for place in places
    )
    reaches = np.zeros((len(queues), len(places)), dtype=np.bool_)
    owns = np.zeros_like(reaches)
    does = np.zeros((len(queues), len(Opcode)), dtype=np.bool_)
    does[:, Opcode.BARRIER] = True
    for row, queue in enumerate(queues):
        for rule, core, cluster in _parts(queue, shared, cores, clusters, per):
            does[row, list(rule.opcodes)] = True
            for index, place in enumerate(places):
                is_own = place.level in rule.own and (
                    core_of[index] == core if rule.per_core else cluster_of[index] == cluster
                )
                is_near = place.level in rule.near and cluster_of[index] == cluster
                owns[row, index] |= is_own
                reaches[row, index] |= is_own or is_near or place.level in rule.far
    return Reach(reaches=reaches, owns=owns, does=does, clusters=cluster_of, cores=core_of)


def _count(places: tuple[Place, ...], levels: tuple[Level, ...]) -> int:
    """How many owners (cores or clusters) have places of these levels, numbered from 0."""
    return 1 + max((place.number for place in places if place.level in levels), default=-1)


def _parts(queue: Queue, shared: Engines, cores: int, clusters: int, per: int) -> list[tuple[_Rule, int | None, int]]:
    """The engines that a queue stands for: rule, core and cluster of each."""
    if queue.engine not in _RULES:
        raise ProgramError(
            f"queue {queue.engine!r} is no engine", violation="queues", actual=queue.engine, limit=", ".join(_RULES)
        )
    per_core = _RULES[queue.engine].per_core
    limit = cores if per_core else clusters
    if not 0 <= queue.number < limit:
        raise ProgramError(
            f"the chip has no such {queue.engine}", violation="queues", actual=queue.number, limit=limit - 1
        )
    cluster = queue.number // per if per_core else queue.number
    # one queue of a cluster that also is its cores' engines serves each of these cores; and the other way round
    mine = [queue.number] if per_core else list(range(cluster * per, cluster * per + per))
    names = next((group for group in shared if queue.engine in group), (queue.engine,))
    found: list[tuple[_Rule, int | None, int]] = []
    for name in dict.fromkeys((queue.engine, *names)):
        rule = _RULES.get(name)
        if rule is not None:
            found += [(rule, core, cluster) for core in mine] if rule.per_core else [(rule, None, cluster)]
    return found
