"""What a tiling is: the SRAM tile, the core tile, how they are spread, and how often weights are read."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from compiler.tiling.placement import Placement


class Mode(StrEnum):
    """Whole maps fit on chip, or only boxes of them (SPEC section 1)."""

    WHOLE_MAP = "whole-map"
    PARTIAL_MAP = "partial-map"


class Spread(StrEnum):
    """What the units that hold SRAM tiles (clusters; without SRAM cores) divide among themselves.

    Bands are the tiles of one map, dealt out as the placement says. Under `input-channels` each unit adds up its share
    of a product's input channels, and the partial sums are reduced.
    """

    SINGLE = "single"
    IMAGES = "images"
    BANDS = "bands"
    CHANNELS = "channels"
    INPUT_CHANNELS = "input-channels"


class Order(StrEnum):
    """Depth order inside an SRAM tile (TILE-8).

    Depth-first: a core tile goes through all ops, intermediates stay in NRAM, all weights are resident.
    Breadth-first: each op runs over the whole SRAM tile, intermediates return to SRAM, weights come per op.
    """

    DEPTH_FIRST = "depth-first"
    BREADTH_FIRST = "breadth-first"


class HaloMode(StrEnum):
    """What neighbouring tiles do about the elements that both need, per axis (TILE-3).

    Recompute: each tile makes all it needs. Cached: what the tiles before it in the same unit's walk made is kept.
    Exchange: as cached, and what another unit made is passed on instead of being made again; both ways where each unit
    has one tile along the axis, so that all make about as much of every op.
    """

    RECOMPUTE = "recompute"
    CACHED = "cached"
    EXCHANGE = "exchange"


class WeightHome(StrEnum):
    """Where an op's weights wait between the tiles of a unit: in the cores, in the SRAM, or nowhere on the chip."""

    CORE = "core"
    SRAM = "sram"
    DRAM = "dram"


class WeightLoads(StrEnum):
    """How an op's weights are read from DRAM per inference (SPEC section 5.1); stationary ones are not."""

    STATIONARY = "stationary"
    RESIDENT = "resident"
    ONCE_THROUGH = "once-through"
    STREAMED = "streamed"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWeights:
    """One op's weights: bytes, how they are read, how many times, where they wait, and in how many slices they come.

    `loads` is 0 where an op finds them as an earlier one of its group brought them, and for stationary weights.

    `slices`: parts by output channels, each of which fits the core's weight memory, loaded one after another.
    """

    op: int
    size_bytes: int
    kind: WeightLoads
    loads: int
    home: WeightHome
    slices: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handed:
    """A tensor that stays on the chip between the group that makes it and those that read it.

    `place`: its number among the outputs of the one, or the inputs of the others. Meanwhile units hold parts of `share`
    positions along `axis`, one after another, so many bytes before the end of their memories as `before_end` says.
    """

    place: int
    axis: str
    share: int
    before_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """What stays on the chip between groups while one of them runs (TILE-4, TILE-5).

    `hands`: a result that it leaves there; `takes`: inputs that earlier groups left there; `held_bytes`: what all such
    parts take of the end of a unit's memory, those of tensors that only others read among them.
    """

    hands: Handed | None = None
    takes: tuple[Handed, ...] = ()
    held_bytes: int = 0


NOTHING_HANDED: Final = Handover()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The discrete choices of a tiling, before sizes.

    `units` units share the work as `spread` says; inside a unit `cores` cores share it as `core_spread` says.
    `channel_slices` cuts the output channels so that a slice's weights fit; `slices_outer` runs all tiles for one
    slice before the next, else all slices for one tile. `input_slices` cuts the input channels of a group with one
    product: partial sums stay with the output tile. `halo` names the axes whose halo is not recomputed. `placement`
    deals the tiles out to units. `walk` are the axes in the order in which a unit walks its tiles, outermost first.
    `weights_in_sram`: weights that do not fit the cores wait in the SRAM. `loads`: how single ops'
    weights are to be read, by op index, where a pinned schedule says so. `handover`: what stays on the chip between
    this group and others.
    """

    units: int
    spread: Spread
    cores: int
    core_spread: Spread
    order: Order
    channel_slices: int
    slices_outer: bool
    double_buffered: bool
    input_slices: int = 1
    halo: tuple[tuple[str, HaloMode], ...] = ()
    placement: Placement = Placement.BANDS
    walk: tuple[str, ...] = ()
    weights_in_sram: bool = False
    loads: tuple[tuple[int, WeightLoads], ...] = ()
    handover: Handover = NOTHING_HANDED

    def halo_of(self, axis: str) -> HaloMode:
        """The halo mode of an axis."""
        return dict(self.halo).get(axis, HaloMode.RECOMPUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelUse:
    """What the allocation of one memory level takes (PROG-2): its peak, and the most bytes live at any step."""

    level: str
    capacity_bytes: int
    peak_bytes: int
    lower_bound_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiling:
    """The tiling of one group; extents are of the group's (last) output tensor, in its axis order.

    `kept_bytes` wait in a unit for later tiles of its walk. `memory`: what each level holds at most.
    """

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
    kept_bytes: int
    memory: tuple[LevelUse, ...]
