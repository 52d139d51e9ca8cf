"""Core tiles of depth-first groups: the largest that goes through all ops within a core's memory (FUSE-17, TILE-8)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from compiler.tiling.sizes import SizeTable, stage_sizes, stages
from compiler.tiling.tile import Configuration, Spread
from compiler.units import ceil_div


def core_tile_for(
    table: SizeTable,
    configuration: Configuration,
    tile: Mapping[str, int],
    capacity: int,
    lanes: Mapping[str, int],
    shares: tuple[float, ...] = (),
) -> dict[str, int] | int:
    """The largest core tile of an SRAM tile whose live boxes fit `capacity` bytes; else bytes of the smallest.

    One that fills the array's `lanes` along its axes comes first. What waits for later core tiles is not counted:
    where a core has no room for it, it waits in the SRAM. `shares`: by tensor of the table, what sums in parts make
    of its bytes.
    """
    inner = table.inside(tile)
    caps = {axis: tile[axis] for axis in table.axes}
    channels = tile.get("C")
    if configuration.core_spread is Spread.CHANNELS:
        if table.channels_are_free and channels is not None:
            channels = ceil_div(channels, configuration.cores)
    elif table.band_axis is not None:
        caps[table.band_axis] = ceil_div(caps[table.band_axis], configuration.cores)
    sliced = configuration.channel_slices > 1 and not configuration.slices_outer
    key = (*caps.items(), channels, sliced, capacity, *lanes.items(), shares)
    found = inner.core_tiles.get(key)
    if found is None:
        found = inner.core_tiles[key] = _largest(inner, caps, channels, capacity, lanes, shares, sliced=sliced)
    return found


def _largest(
    inner: SizeTable,
    caps: Mapping[str, int],
    channels: int | None,
    capacity: int,
    lanes: Mapping[str, int],
    shares: tuple[float, ...],
    *,
    sliced: bool,
) -> dict[str, int] | int:
    scales = np.array(shares)[:, None] if shares else 1.0
    any_size = None
    smallest: list[float] = []
    for stage in stages(inner, caps, channels, lanes):
        peaks = inner.geometry.peak(inner.boxes_of(stage.at, stage.axis, stage.count) * scales, sliced=sliced)
        smallest.append(float(peaks.min()))
        fits = peaks <= capacity
        even = np.flatnonzero(fits & stage.even)
        if len(even):
            return stage_sizes(inner, stage, int(even[-1]))
        if any_size is None and fits.any():
            any_size = stage_sizes(inner, stage, int(np.flatnonzero(fits)[-1]))
    return any_size if any_size is not None else int(min(smallest))
