"""The price of a schedule whose tilings are given: what a search asks thousands of times (TILE-9)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from compiler.cost.model import Cost, least, price
from compiler.cost.objective import Totals
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Tiling
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import GroupWork, traffic_of


def price_groups(
    facts: GraphFacts, profile: Profile, groups: Sequence[tuple[tuple[int, ...], Tiling]]
) -> tuple[Cost, ...]:
    """The cost of each group of ops under its tiling; groups of equal content and tiling are priced once.

    What fits is not asked here: tilings come from a plan, or their checks have been made. Op indices in a cost are
    those of the first group of its content.
    """
    known: dict[tuple[object, ...], Cost] = {}
    costs = []
    for ops, tiling in groups:
        geometry = GroupGeometry(facts, ops)
        loads = tuple((geometry.indices.index(entry.op), entry.kind) for entry in tiling.weights)
        key = (geometry.content(), replace(tiling.configuration, loads=()), tiling.tile, tiling.core_tile, loads)
        found = known.get(key)
        if found is None:
            found = known[key] = price(traffic_of(group_of(geometry, profile, tiling)), profile)
        costs.append(found)
    return tuple(costs)


def group_of(geometry: GroupGeometry, profile: Profile, tiling: Tiling) -> TiledGroup:
    """The group under the tiling of a plan."""
    tile = dict(zip(tiling.axes, tiling.tile, strict=True))
    core = dict(zip(tiling.axes, tiling.core_tile, strict=True))
    beside = profile.holding(tiling.configuration.handover.held_bytes)
    return TiledGroup(geometry, beside, tiling.configuration, tile, core)


def leasts(work: GroupWork, profile: Profile) -> Iterator[Totals]:
    """What no price of a group is below: first by what DRAM carries alone, then with the work of its ops."""
    for is_with_work in (False, True):
        compute = sum(work.compute_cycles) if is_with_work else 0
        dram, cycles, energy = least(work.carried, compute, profile)
        yield Totals(dram_bytes=dram, cycles=cycles, energy_pj=energy)
