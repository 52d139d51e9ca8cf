"""Weights of a tiled group: their parts for units and cores, their slices in time, and where they wait (TILE-6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final

from compiler.address.unit import largest_table_bytes
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry, largest_part, share_of_weight
from compiler.tiling.tile import Configuration, Order, Spread, WeightHome, WeightLoads
from compiler.units import ceil_div

# The widest elements of tensors.
LARGEST_ELEMENT_BYTES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWeights:
    """One op's weights under a tiling: in DRAM, as one unit needs them, as one core holds them, and its slices.

    `table_bytes`: the op's address tables, which lie with its weights on the chip and are counted with them there, but
    not in `size_bytes` (ADDR-5). `shared_bytes`: what of `core_bytes` does not follow the output channels, so every
    slice needs all of it. `comes_again`: all that `core_bytes` counts gives way to more of them, for the output
    channels or what is summed over are cut in time.
    """

    size_bytes: int
    unit_bytes: int
    core_bytes: int
    slices: int
    table_bytes: int = 0
    shared_bytes: int = 0
    comes_again: bool = False

    @property
    def _slice_bytes(self) -> int:
        return self.shared_bytes + ceil_div(self.core_bytes - self.table_bytes - self.shared_bytes, self.slices)

    @property
    def staged_core_bytes(self) -> int:
        """One slice of them, where they pass in slices; beside the op's address tables."""
        return self._slice_bytes + self.table_bytes

    @property
    def passing_core_bytes(self) -> int:
        """What a core holds of them at once while they pass: two slices, one that is used and one that comes.

        The second one begins where any element may lie.
        """
        return (align(self._slice_bytes) if self.slices > 1 else 0) + self.staged_core_bytes


def most_table_bytes(geometry: GroupGeometry, profile: Profile, configuration: Configuration) -> tuple[int, ...]:
    """Per op the most that its address tables take in a core under any tile (ADDR-5).

    There is one for each kind of buffer that the op reads: the tile's, and one for each axis along which halos are
    kept; breadth-first pieces have one.
    """
    nested = profile.units.are_cores or configuration.order is Order.DEPTH_FIRST
    return table_bytes(geometry, profile, [1 + len(configuration.halo) * nested] * len(geometry.ops))


def buffers_read(op: OpFacts, frustums: Frustums | None, whole: Collection[str]) -> int:
    """In how many kinds of buffers an op finds its input in a core: the tile's, and what waits along each axis.

    `frustums` None: pieces, which lie alone. `whole`: tensors that come with every tile as whole boxes.
    """
    name = op.operands[0].tensor if op.window is not None else ""
    return 1 if frustums is None or not name or name in whole else 1 + len(frustums.kept_along(name))


def table_bytes(geometry: GroupGeometry, profile: Profile, buffers: Sequence[int]) -> tuple[int, ...]:
    """Per op the bytes of address tables for so many kinds of buffers that it reads; 0 if it has no window."""
    if profile.addressing != "tables":
        return (0,) * len(geometry.ops)
    tensors, known = geometry.facts.tensors, geometry.projections.known
    found = []
    for op, count in zip(geometry.ops, buffers, strict=True):
        size = known.get(("table", op.index))
        if not isinstance(size, int):
            size = 0 if op.window is None else largest_table_bytes(op.window, tensors[op.output].shape)
            known["table", op.index] = size
        found.append(align(count * size))
    return tuple(found)


def align(size_bytes: int) -> int:
    """Bytes of address tables or weights, filled up so that any element may lie behind them."""
    return ceil_div(size_bytes, LARGEST_ELEMENT_BYTES) * LARGEST_ELEMENT_BYTES


def step_weights(
    geometry: GroupGeometry,
    profile: Profile,
    configuration: Configuration,
    slices: int,
    input_parts: int,
    tables: Sequence[int],
) -> tuple[StepWeights, ...]:
    """Per op its weights, compressed as the profile says for what lies on the chip.

    `slices` of the output channels follow one another; `input_parts` cut the weights of the group's product along
    their other axis; `tables` are the bytes of the ops' address tables.
    """
    units = (configuration.units if configuration.spread is Spread.CHANNELS else 1) * slices
    cores = units * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)
    room = None if configuration.order is Order.DEPTH_FIRST else weight_slice_bytes(profile)
    found, known = [], geometry.projections.known
    for op, beside in zip(geometry.ops, tables, strict=True):
        depth = input_parts if op is geometry.product else 1
        again = slices > 1 or (configuration.input_slices > 1 and op is geometry.product)
        key = ("weights", op.index, units, cores, depth, room, profile.weights.compression, beside, again)
        weights = known.get(key)
        if not isinstance(weights, StepWeights):
            weights = _step_weights(geometry, op, (units, cores, depth), room, profile, beside)
            weights = known[key] = replace(weights, comes_again=again and weights.size_bytes > 0)
        found.append(weights)
    return tuple(found)


def _step_weights(
    geometry: GroupGeometry, op: OpFacts, parts: tuple[int, int, int], room: int | None, profile: Profile, beside: int
) -> StepWeights:
    """One op's weights in `parts` for units, for cores and of what is summed; slices of at most `room` bytes."""
    entries = geometry.facts.weight_entries[op.index]
    if not entries:
        return StepWeights(size_bytes=0, unit_bytes=beside, core_bytes=beside, slices=1, table_bytes=beside)
    units, cores, summed = parts
    depth, factor = Fraction(1), profile.weights.compression
    if op.matrix is not None:
        depth = largest_part(op.matrix.in_channels, summed)
    unit = sum(_share(*entry, units, depth) for entry in entries)
    core = sum(_share(*entry, cores, depth) for entry in entries)
    shared = sum(_share(*entry, cores, depth) for entry in entries if entry[1] == 1)
    if factor != 1:
        unit, core, shared = ceil(unit * factor), ceil(core * factor), ceil(shared * factor)
    slices = 1
    if room is not None:
        shape = geometry.facts.tensors[op.output].shape
        channels = shape[op.channel_axis] if op.channel_axis is not None else 1
        # as few slices as let two of them lie in a core at once
        left = (room - ceil_div(beside, 2)) // LARGEST_ELEMENT_BYTES * LARGEST_ELEMENT_BYTES - shared
        slices = max(1, min(ceil_div(channels, cores), ceil_div(core - shared, max(1, left))))
    return StepWeights(
        size_bytes=sum(size for size, _, _ in entries),
        unit_bytes=unit + beside,
        core_bytes=core + beside,
        slices=slices,
        table_bytes=beside,
        shared_bytes=shared,
    )


def _share(size_bytes: int, channels: int, is_factor: bool, parts: int, depth: Fraction) -> int:
    """The largest part of a weight by output channels, and if it is a product's factor by what is summed over."""
    share = share_of_weight(size_bytes, channels, parts)
    return ceil(share * depth) if is_factor else share


def weight_slice_bytes(profile: Profile) -> int:
    """The largest slice of weights that passes through a core: two of them fit its weight memory.

    Where weights and activations share a memory, a quarter of it.
    """
    return max(1, profile.weight_memory_bytes // (4 if profile.weights_share_activations else 2))


def line_bytes(weights: Sequence[StepWeights], profile: Profile, *, in_place: bool) -> int:
    """Room in the SRAM through which weights and address tables come line by line where nothing else has them pass.

    Where an engine brings them to a core directly there is no need of it. `in_place`: stationary weights do not come.
    """
    if profile.units.are_cores or profile.engines.iodma is not None:
        return 0
    largest = max((w.table_bytes if in_place else w.unit_bytes for w in weights), default=0)
    return align(min(largest, profile.line_bytes))


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
