"""Groups under tilings stated by hand, for tests of halos, walks and choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from tests.models import Model
from tests.profiles import small_profile


def group_of_all(model: Model) -> tuple[GraphFacts, GroupGeometry]:
    """All ops of a model as one group."""
    facts = model.facts()
    return facts, GroupGeometry(facts, range(len(facts.ops)))


def configuration(**changes: Any) -> Configuration:
    """One unit of one core, one tile after another, halos recomputed, but for the changes."""
    values: dict[str, Any] = {
        "units": 1,
        "spread": Spread.SINGLE,
        "cores": 1,
        "core_spread": Spread.SINGLE,
        "order": Order.DEPTH_FIRST,
        "channel_slices": 1,
        "slices_outer": False,
        "double_buffered": False,
    }
    return Configuration(**{**values, **changes})


def along(geometry: GroupGeometry, mode: HaloMode) -> tuple[tuple[str, HaloMode], ...]:
    """One halo mode for every axis of the group's output but its channels."""
    return tuple((axis, mode) for axis in geometry.output.axes if axis != "C")


def tiled(
    geometry: GroupGeometry,
    tile: Mapping[str, int],
    mode: HaloMode = HaloMode.RECOMPUTE,
    *,
    profile: Profile | None = None,
    core: Mapping[str, int] | None = None,
    **changes: Any,
) -> TiledGroup:
    """A group under a tile of the given extents, axes not named whole; on cores without SRAM unless given a profile."""
    whole = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
    how = configuration(halo=along(geometry, mode), **changes)
    if profile is None:
        profile = small_profile(nram_bytes=1 << 20, cores=how.units)
    return TiledGroup(geometry, profile, how, {**whole, **tile}, core)
