"""Weights of a tiled group: their parts for units and cores, their slices in time, and where they wait (TILE-6)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Final

from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry, largest_part, share_of_weight
from compiler.tiling.tile import Configuration, Order, Spread, WeightHome, WeightLoads
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWeights:
    """One op's weights under a tiling: in DRAM, as one unit needs them, as one core holds them, and its slices."""

    size_bytes: int
    unit_bytes: int
    core_bytes: int
    slices: int

    @property
    def staged_core_bytes(self) -> int:
        """One slice of them, where they pass in slices."""
        return ceil_div(self.core_bytes, self.slices)

    @property
    def passing_core_bytes(self) -> int:
        """What a core holds of them at once while they pass: two slices, one that is used and one that comes."""
        return self.staged_core_bytes * min(2, self.slices)


_NO_WEIGHTS: Final = StepWeights(size_bytes=0, unit_bytes=0, core_bytes=0, slices=1)


def step_weights(
    geometry: GroupGeometry, profile: Profile, configuration: Configuration, slices: int, input_parts: int
) -> tuple[StepWeights, ...]:
    """Per op its weights, compressed as the profile says for what lies on the chip.

    `slices` of the output channels follow one another; `input_parts` cut the weights of the group's product along
    their other axis.
    """
    units = (configuration.units if configuration.spread is Spread.CHANNELS else 1) * slices
    cores = units * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)
    factor = profile.weights.compression
    result = []
    for op, entries in zip(geometry.ops, geometry.weight_entries, strict=True):
        if not entries:
            result.append(_NO_WEIGHTS)
            continue
        depth = Fraction(1)
        if op is geometry.product and op.matrix is not None:
            depth = largest_part(op.matrix.in_channels, input_parts)
        unit = sum(_share(*entry, units, depth) for entry in entries)
        core = sum(_share(*entry, cores, depth) for entry in entries)
        if factor != 1:
            unit, core = ceil(unit * factor), ceil(core * factor)
        shape = geometry.facts.tensors[op.output].shape
        channels = shape[op.channel_axis] if op.channel_axis is not None else 1
        parts = 1
        if configuration.order is not Order.DEPTH_FIRST:
            # as few slices as let two of them lie in a core at once
            parts = max(1, min(ceil_div(channels, cores // slices), ceil_div(core, weight_slice_bytes(profile))))
        total = sum(size for size, _, _ in entries)
        result.append(StepWeights(size_bytes=total, unit_bytes=unit, core_bytes=core, slices=parts))
    return tuple(result)


def _share(size_bytes: int, channels: int, is_factor: bool, parts: int, depth: Fraction) -> int:
    """The largest part of a weight by output channels, and if it is a product's factor by what is summed over."""
    share = share_of_weight(size_bytes, channels, parts)
    return ceil(share * depth) if is_factor else share


def weight_slice_bytes(profile: Profile) -> int:
    """The largest slice of weights that passes through a core: two of them fit its weight memory.

    Where weights and activations share a memory, a quarter of it.
    """
    return max(1, profile.weight_memory_bytes // (4 if profile.weights_share_activations else 2))


def weight_homes(
    weights: Sequence[StepWeights], wanted: Sequence[WeightLoads | None], core_room: int, sram_room: int
) -> tuple[WeightHome, ...]:
    """Where each op's weights wait between tiles: all in the cores if they fit, else the SRAM, the cores, DRAM.

    Ops that are wanted resident come first, those wanted streamed wait nowhere. What passes needs room in the cores
    beside what waits there.
    """
    steps = range(len(weights))
    if sum(w.core_bytes for w in weights) <= core_room and WeightLoads.STREAMED not in wanted:
        return tuple(WeightHome.CORE for _ in steps)
    homes = [WeightHome.DRAM] * len(weights)
    order = sorted(
        (s for s in steps if wanted[s] is not WeightLoads.STREAMED), key=lambda s: wanted[s] is not WeightLoads.RESIDENT
    )
    left = sram_room
    for step in order:
        if weights[step].unit_bytes <= left:
            homes[step] = WeightHome.SRAM
            left -= weights[step].unit_bytes
    left = core_room - max((w.passing_core_bytes for w in weights), default=0)
    for step in order:
        if homes[step] is WeightHome.DRAM and weights[step].core_bytes <= left:
            homes[step] = WeightHome.CORE
            left -= weights[step].core_bytes
    return tuple(homes)
