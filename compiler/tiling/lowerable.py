"""Which tilings can be lowered to a program (PROG-1, TILE-3)."""

from __future__ import annotations

from typing import Final

import numpy as np

from compiler.cost.rates import units_are_connected
from compiler.tiling.figures import Check
from compiler.tiling.frustum import Frustums
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup

SUMS_RULE: Final = "PROG-1:sums"
FALLS_RULE: Final = "PROG-1:falls"
APART_RULE: Final = "TILE-3:exchange"
# What a tiling is like, which no memory changes.
FORM_RULES: Final = (SUMS_RULE, FALLS_RULE, APART_RULE)


def lowering_check(group: TiledGroup) -> Check | None:
    """What keeps a group from being lowered; None if nothing does."""
    return apart_check(group) or sums_check(group) or falls_check(group)


def apart_check(group: TiledGroup) -> Check | None:
    """TILE-3:exchange: units that are to pass each other halos have a way to each other."""
    configuration, geometry = group.configuration, group.geometry
    if configuration.spread not in (Spread.BANDS, Spread.IMAGES) or units_are_connected(group.profile):
        return None
    if not group.exchanges or not any(map(group.frustums.kept_bytes, (*geometry.inputs, *geometry.made))):
        return None
    return Check(rule=APART_RULE, holds=False, actual=configuration.units, limit=1)


def sums_check(group: TiledGroup) -> Check | None:
    """PROG-1:sums: sums in parts keep nothing of what is summed for later tiles, and do not pass an SRAM in pieces."""
    if group.input_parts == 1:
        return None
    kept = sum(group.frustums.kept_bytes(name) for name in group.reduced)
    if group.is_staged:
        kept = max(kept, group.input_parts)
    return Check(rule=SUMS_RULE, holds=False, actual=kept, limit=0) if kept else None


def falls_check(group: TiledGroup) -> Check | None:
    """PROG-1:falls: no tensor's ranges fall back from core tile to core tile where those of SRAM tiles rise.

    Whether ranges rise is told level by level. Where only those of core tiles fall (a pooling between pads), cores make
    whole boxes, of what the SRAM tile may have only the new part of. Where neighbours pass halos both ways, what the
    core tiles of an SRAM tile make has to end where that one ends.
    """
    if not group.is_nested or not any(mode is not HaloMode.RECOMPUTE for _, mode in group.configuration.halo):
        return None
    whole, inside = group.frustums, group.core_frustums
    for name in (*group.geometry.inputs, *group.geometry.made):
        if not whole.of_tensor[name].rising.isdisjoint(inside.of_tensor[name].falling):
            return Check(rule=FALLS_RULE, holds=False, actual=1, limit=0)
        if group.is_in_step and not _end_together(whole, inside, name):
            return Check(rule=FALLS_RULE, holds=False, actual=1, limit=0)
    return None


def _end_together(whole: Frustums, inside: Frustums, name: str) -> bool:
    """True if what core tiles make anew of a tensor begins and ends where what their SRAM tiles make does."""
    for entry, parts in zip(whole.boxes[name], inside.boxes[name], strict=True):
        axis = entry[0]
        if axis is None or axis != parts[0] or not whole.tiles[axis].both_ways:
            continue
        (first, last, _), (begin, end, _), blocks = whole.fresh(entry), inside.fresh(parts), inside.tiles[axis].blocks
        assert blocks is not None
        made = end > begin
        low = np.minimum.reduceat(np.where(made, begin, np.iinfo(np.int64).max), blocks)
        high = np.maximum.reduceat(np.where(made, end, 0), blocks)
        if bool(((low != first) | (high != last))[last > first].any()) or not np.array_equal(
            np.logical_or.reduceat(made, blocks), last > first
        ):
            return False
    return True
