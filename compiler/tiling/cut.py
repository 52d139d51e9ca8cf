"""How a group is cut: its tiles and core tiles, who walks them, and parts of channels and of sums (TILE-1, TILE-4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from compiler.cost.rates import reads_are_shared
from compiler.lazy import lazy
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.axis_tiles import AxisTiles
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.handed import handed_tensors, part_bytes, taken_tensors
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.tiling.walk import CoreWalk, Walk, core_walk, unit_walk
from compiler.units import ceil_div


class GroupCut:
    """A group with its tiles chosen.

    `tile` and `core` are extents of the group's output by axis; `core` only where an SRAM tile is cut into core tiles
    that go through all ops (depth-first). `is_flat`: tiles lie in the cores' own memories, none is between them and
    DRAM; `is_nested`: SRAM tiles are cut into core tiles that go through all ops; `is_staged`: ops pass an SRAM tile
    one after the other, piece by piece. `input_parts`: into how many parts the input channels of the group's product
    are cut, over units and in time. `handed`, `taken`: the result that stays on the chip for later groups, and the
    inputs that earlier groups left there.
    """

    def __init__(
        self,
        geometry: GroupGeometry,
        profile: Profile,
        configuration: Configuration,
        tile: Mapping[str, int],
        core: Mapping[str, int] | None = None,
    ) -> None:
        self.geometry = geometry
        self.profile = profile
        self.configuration = configuration
        self.tile = tile
        self.core = core
        self.is_flat = profile.units.are_cores
        self.is_nested = not self.is_flat and configuration.order is Order.DEPTH_FIRST
        self.is_staged = not self.is_flat and not self.is_nested
        over_units = configuration.units if configuration.spread is Spread.INPUT_CHANNELS else 1
        self.input_parts = over_units * configuration.input_slices
        self.handed = handed_tensors(geometry, configuration.handover)
        self.taken = taken_tensors(geometry, configuration.handover)

    def part_bytes(self, name: str) -> int:
        """Bytes of a unit's part of a tensor that passes from group to group on the chip; 0 for others."""
        its = self.handed.get(name) or self.taken.get(name)
        return 0 if its is None else part_bytes(self.geometry.facts, name, its)

    @lazy
    def walk(self) -> Walk:
        """The SRAM tiles, and who walks them."""
        return unit_walk(self.geometry, self.configuration, self.tile, self.core if self.is_nested else None)

    @lazy
    def frustums(self) -> Frustums:
        """The frustums of the SRAM tiles."""
        return self._known_frustums(self.walk.axes)

    @property
    def is_in_step(self) -> bool:
        """True if units pass each other halos both ways."""
        return any(tiles.both_ways for tiles in self.walk.axes.values())

    def _known_frustums(self, axes: Mapping[str, AxisTiles]) -> Frustums:
        """Frustums of these tiles; configurations of equal tiles share them."""
        projection = self.geometry.projections.of(axes)
        found = self.geometry.known.get(projection)
        if found is None:
            found = self.geometry.known[projection] = Frustums(self.geometry, axes)
        return found

    @lazy
    def core_walk(self) -> CoreWalk:
        """The core tiles of a depth-first group."""
        return core_walk(self.walk, self.configuration, self.tile, self.core or self.tile)

    @lazy
    def core_frustums(self) -> Frustums:
        """The frustums that cores work on: of core tiles depth-first, else of the SRAM tiles."""
        return self._known_frustums(self.core_walk.axes) if self.is_nested else self.frustums

    @lazy
    def cached_core_frustums(self) -> Frustums:
        """As `core_frustums`, but every run makes again what it does not keep itself: nothing is exchanged."""
        axes = {
            axis: replace(tiles, mode=HaloMode.CACHED, both_ways=False) if tiles.mode is HaloMode.EXCHANGE else tiles
            for axis, tiles in self.core_frustums.tiles.items()
        }
        return self._known_frustums(axes)

    # --- channels and input channels -------------------------------------------------------------------------------

    @lazy
    def channels_are_free(self) -> bool:
        """True if every op can make a slice of its output channels for itself (FUSE-S1)."""
        geometry = self.geometry
        axes = geometry.output.axes
        if "C" not in axes or geometry.output.shape[axes.index("C")] == 1:
            return False
        return geometry.channels_follow

    @lazy
    def channel_parts(self) -> int:
        """Into how many parts units and cores cut an op's output channels, slices in time apart."""
        parts = self.configuration.units if self.configuration.spread is Spread.CHANNELS else 1
        return parts * (self.configuration.cores if self.configuration.core_spread is Spread.CHANNELS else 1)

    @property
    def shares_sums(self) -> bool:
        """True if each unit adds up its part of what is summed over."""
        return self.configuration.spread is Spread.INPUT_CHANNELS and self.configuration.units > 1

    @property
    def shares_weights_out(self) -> bool:
        """True if each unit has its own part of every op's weights."""
        return self.configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS)

    @property
    def weight_copies(self) -> int:
        """How many units read the same weights from DRAM, each for itself."""
        return 1 if reads_are_shared(self.profile) or self.shares_weights_out else self.walk.units

    def channels_of_core(self, op: OpFacts) -> int:
        """Output channels of an op that one core makes at a time."""
        channels = self.core_frustums.channels(op)
        if self.channels_are_free and "C" in self.core_frustums.tiles and self.is_nested:
            return channels
        if self.channels_are_free:
            # the tile is a unit's slice already
            cores = self.configuration.cores if self.configuration.core_spread is Spread.CHANNELS else 1
            return ceil_div(channels, cores)
        return ceil_div(channels, self.channel_parts)

    @lazy
    def slices(self) -> int:
        """Slices of the output channels that one unit works on one after another."""
        return self.configuration.channel_slices if self.channels_are_free else 1

    @lazy
    def reduced(self) -> frozenset[str]:
        """Inputs of the group that an input-channel split cuts: what its product reads along the summed axis."""
        product = self.geometry.product
        if self.input_parts == 1 or product is None:
            return frozenset()
        return frozenset(
            o.tensor for o in product.operands if o.is_summed and not o.constant and o.tensor in self.geometry.inputs
        )

    @property
    def is_whole_map(self) -> bool:
        """True if every map of the group fits on chip as spread, one or more images at once (SPEC section 1)."""
        extents = dict(zip(self.geometry.output.axes, self.geometry.output.shape, strict=True))
        rows = self.walk.rows
        for axis, extent in extents.items():
            if axis in ("N", "C"):
                continue
            share = extent
            if self.configuration.spread is Spread.BANDS and axis == rows:
                share = ceil_div(extent, self.configuration.units)
            if self.tile[axis] < share:
                return False
        return True

    @property
    def exchanges(self) -> bool:
        """True if units pass each other halos."""
        return any(mode is HaloMode.EXCHANGE for _, mode in self.configuration.halo)

    @property
    def needed_bytes(self) -> int:
        """Bytes of the part of the inputs that the outputs need, once."""
        return self.geometry.needed_input_bytes

    @property
    def loaded_bytes(self) -> int:
        """Input bytes read over all tiles, halos and re-reads included, and partial sums that leave the chip."""
        return sum(self.frustums.made_bytes(name) for name in self.geometry.inputs)
