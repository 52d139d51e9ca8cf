"""What the ops of a tiled group wait for: first inputs, weights that last, weights that pass (`cost/turns.py`)."""

from __future__ import annotations

from collections.abc import Mapping

from compiler.cost.rates import (
    dram_port_bytes_per_cycle,
    dram_startup_cycles,
    handed_bytes_per_cycle,
    reads_are_shared,
)
from compiler.cost.turns import Passing
from compiler.tiling.tile import Spread, WeightHome
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.weight_transfers import brought_alone, transfers, weights_of
from compiler.tiling.weights import slice_cycles
from compiler.units import ceil_div


class Arrivals:
    """By step of a group what its first turn waits for, and what every turn does.

    `directly`: weights go from DRAM to the cores without a stay in the SRAM; `reads`: bytes of each input, as
    `input_reads` of traffic has them; `turns` of the cores.
    """

    def __init__(self, group: TiledGroup, directly: bool, reads: Mapping[str, tuple[int, int]], turns: int) -> None:
        self._group = group
        self._directly = directly
        self._reads = reads
        self._turns = turns
        self._units = group.walk.units
        self._shared = reads_are_shared(group.profile)
        self._passes_ahead = _passes_ahead(group)
        # the cores' own engines bring what one core alone needs
        self._is_direct = brought_alone(group.profile, *_split(group))

    def inputs(self, step: int) -> tuple[int, int]:
        """Bytes of the first tiles' inputs that an op is the first to read: from DRAM, and what units then hand on."""
        group, found, handed = self._group, 0, 0
        for name in group.geometry.first_readers.get(group.geometry.ops[step].index, ()):
            loaded, copied = self._reads[name]
            first, of = self.first_part(name)
            found += ceil_div((loaded if self._shared else copied) * first, of)
            if self._shared and not group.profile.dram.multicast:
                handed += ceil_div((copied - loaded) * first, of)
        return found, handed

    def first_part(self, name: str) -> tuple[int, int]:
        """The part of an input, of all that DRAM brings of it, that the first tiles wait for: so many of so many."""
        group = self._group
        again = group.configuration.slices_outer or "C" in group.frustums.of_tensor[name].followed
        tiles = group.walk.tiles * (group.slices if again else 1)
        return min(self._units, tiles), tiles * (group.input_parts if name in group.reduced else 1)

    def lasting(self, step: int, read_from_dram: int) -> int:
        """Bytes of an op's weights that DRAM brings for the first turn and that later ones find in place."""
        group = self._group
        if not read_from_dram or group.homes[step] is WeightHome.DRAM:
            return 0
        # of what a product sums in parts the weights stay side by side, or each part's come when it is its turn
        parts = 1 if _keeps_parts(group) and group.walk.rounds > 1 else group.configuration.input_slices
        return ceil_div(group.weights[step].size_bytes * group.weight_copies, group.slices * parts)

    def loads(self, step: int, lasting: int) -> float:
        """How many loads one engine prepares one after another to bring an op's lasting weights."""
        group, configuration = self._group, self._group.configuration
        if not lasting:
            return 0.0
        own, common = weights_of(group.geometry.ops[step])
        in_cores = group.homes[step] is WeightHome.CORE
        cores = configuration.cores if in_cores and configuration.core_spread is Spread.CHANNELS else 1
        sharing, apart = self._units if self._shared else 1, group.shares_weights_out
        common += group.weights[step].table_bytes > 0
        return transfers(own, common, float(cores), float(sharing), float(apart), float(in_cores and self._is_direct))

    def loading_cycles(self, step: int, arriving: int, lasting: int) -> float:
        """Cycles that the engine which brings these bytes of an op takes by itself.

        It prepares one transfer after the other, each while the one before it moves.
        """
        group, profile = self._group, self._group.profile
        engine, engines, loads = profile.units.dram_engine, self._units, self.loads(step, lasting)
        if self._is_direct and group.homes[step] is WeightHome.CORE:
            engine, engines, arriving = profile.engines.iodma, engines * group.configuration.cores, 0
        elif arriving:
            names = group.geometry.first_readers.get(group.geometry.ops[step].index, ())
            loads += sum(self._reads[name][0] > 0 for name in names)
        moved = 0.0 if engine is None else (arriving + lasting) / (engine.bytes_per_cycle * engines)
        return max(loads * dram_startup_cycles(profile), moved)

    def handed(self, step: int, passed: int) -> int:
        """Of the bytes of an op's weights that units get from each other, those that the first turn waits for."""
        if self._group.homes[step] is WeightHome.DRAM and not self._group.profile.is_stationary:
            return 0
        once = 1 if self._group.shares_weights_out else self._units
        return ceil_div(passed * once, max(once, self._group.brought(step)))

    def unhidden_cycles(self, step: int, read_from_dram: int) -> float:
        """Cycles of later loads that come to where what is worked with lies: weights that last for some turns, and
        parts of inputs that are summed.
        """
        group = self._group
        waits = self._weights_unhidden(step, read_from_dram)
        if group.reduced and group.geometry.ops[step] is group.geometry.product and not _doubles_parts(group):
            read = sum(self._reads[name][0 if self._shared else 1] for name in group.reduced)
            waits += (
                read
                * (1 - 1 / group.configuration.input_slices)
                / dram_port_bytes_per_cycle(group.profile, self._units)
            )
        return waits

    def _weights_unhidden(self, step: int, read_from_dram: int) -> float:
        group = self._group
        weights, home = group.weights[step], group.homes[step]
        doubles = group.doubles_weights and not _keeps_parts(group)
        if not group.second_weight_bytes(step) or doubles or home is not WeightHome.CORE:
            return 0.0
        once = weights.size_bytes * group.weight_copies
        loads = read_from_dram / once * group.slices * group.configuration.input_slices - 1
        fetched, moved = slice_cycles(weights.core_bytes, group.profile, group.configuration, WeightHome.DRAM)
        return max(0.0, loads) * (fetched if group.is_flat or self._directly else moved)

    def passing(self, step: int, passed: int) -> Passing | None:
        """Weights of an op that come to the cores in every turn; `passed`: bytes that units get from each other."""
        group = self._group
        weights, home = group.weights[step], group.homes[step]
        if home is WeightHome.CORE or not weights.size_bytes or group.weights_in_place:
            return None
        fetched, moved = slice_cycles(weights.slice_bytes, group.profile, group.configuration, home)
        directly = group.is_flat or (self._directly and home is WeightHome.DRAM)
        parts = weights.slices * group.passes(step)[0]
        handed = passed / (self._turns * parts * handed_bytes_per_cycle(group.profile, self._units))
        return Passing(
            parts=parts,
            fetched=0.0 if directly else fetched,
            moved=max(fetched if directly else moved, handed),
            slots=weights.slice_buffers if weights.slices > 1 else 1,
            directly=directly,
            ahead=not directly and (home is WeightHome.SRAM or self._passes_ahead),
        )


def _split(group: TiledGroup) -> tuple[bool, bool]:
    """Whether no two units need the same weights, and no two cores of a unit."""
    configuration = group.configuration
    cores_apart = configuration.cores == 1 or configuration.core_spread is Spread.CHANNELS
    return group.walk.units == 1 or group.shares_weights_out, cores_apart


def _passes_ahead(group: TiledGroup) -> bool:
    """True if weights that pass the SRAMs in a turn have room there together, beside those that wait."""
    homes = {WeightHome.DRAM, WeightHome.SRAM}
    held = sum(w.unit_bytes for w, home in zip(group.weights, group.homes, strict=True) if home in homes)
    return held <= group.sram_weight_room_bytes


def _keeps_parts(group: TiledGroup) -> bool:
    """True if the weights of all parts of a sum stay in the cores, in the place that a next slice's would have."""
    return group.configuration.input_slices > 1 and not group.weight_parts_come_again


def _doubles_parts(group: TiledGroup) -> bool:
    """True if parts of inputs that are summed one after another have two buffers: in what their memory has left."""
    room = group.weight_room_bytes if group.is_flat else group.sram_weight_room_bytes
    if not group.is_flat:
        pairs = zip(group.weights, group.homes, strict=True)
        room -= sum(w.unit_bytes for w, home in pairs if home is WeightHome.SRAM)
    elif not group.profile.weights_share_activations:
        room = group.profile.nram.capacity_bytes - group.tile_bytes - group.buffered_bytes
    else:
        seconds = sum(map(group.second_weight_bytes, range(len(group.weights)))) if group.doubles_weights else 0
        room -= group.core_weight_bytes + seconds
    return group.is_buffered or sum(group.held_bytes(group.frustums, name) for name in group.reduced) <= room


def copied_bytes(group: TiledGroup) -> int:
    """Bytes that the engines of the DRAM put aside in the SRAMs for later tiles, where no other engine moves them."""
    if group.is_flat or group.profile.engines.cdma is not None:
        return 0
    names = group.geometry.inputs if group.is_nested else group.geometry.lifetimes[0]
    return sum(sum(group.frustums.reused_along(name).values()) for name in names if name not in group.core_resident)
