"""What a tiling is: the SRAM tile, the core tile, how they are spread, and how often weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """Whole maps fit on chip, or only boxes of them (SPEC section 1)."""

    WHOLE_MAP = "whole-map"
    PARTIAL_MAP = "partial-map"


class Spread(StrEnum):
    """What the units that hold SRAM tiles (clusters; without SRAM cores) divide among themselves."""

    SINGLE = "single"
    IMAGES = "images"
    BANDS = "bands"
    CHANNELS = "channels"


class Order(StrEnum):
    """Depth order inside an SRAM tile (TILE-8).

    Depth-first: a core tile goes through all ops, intermediates stay in NRAM, all weights are resident.
    Breadth-first: each op runs over the whole SRAM tile, intermediates return to SRAM, weights come per op.
    """

    DEPTH_FIRST = "depth-first"
    BREADTH_FIRST = "breadth-first"


class WeightLoads(StrEnum):
    """How an op's weights are read from DRAM per inference (SPEC section 5.1); stationary ones are not."""

    STATIONARY = "stationary"
    RESIDENT = "resident"
    ONCE_THROUGH = "once-through"
    STREAMED = "streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWeights:
    """One op's weights: bytes, how they are read, and how many times."""

    op: int
    size_bytes: int
    kind: WeightLoads
    loads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The discrete choices of a tiling, before sizes.

    `units` units share the work as `spread` says; inside a unit `cores` cores share it as `core_spread` says.
    `channel_slices` cuts the output channels so that a slice's weights fit; `slices_outer` runs all tiles for one
    slice before the next, else all slices for one tile.
    """

    units: int
    spread: Spread
    cores: int
    core_spread: Spread
    order: Order
    channel_slices: int
    slices_outer: bool
    double_buffered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """The tiling of one group; extents are of the group's (last) output tensor, in its axis order."""

    configuration: Configuration
    mode: Mode
    axes: tuple[str, ...]
    tile: tuple[int, ...]
    core_tile: tuple[int, ...]
    input_tiles: tuple[tuple[str, tuple[int, ...]], ...]
    tile_bytes: int
    tiles: int
    core_tiles: int
    rounds: int
    weights: tuple[OpWeights, ...]
