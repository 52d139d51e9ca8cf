"""Weights of a tiled group: their parts for units and cores, their slices in time, and where they wait (TILE-6)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Final

from compiler.cost.array import array_of, array_passes
from compiler.cost.rates import (
    dram_port_bytes_per_cycle,
    dram_startup_cycles,
    engine_startup_cycles,
    reads_are_shared,
)
from compiler.lazy import lazy
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import GroupGeometry, largest_part, share_of_weight
from compiler.tiling.same_weights import same_parts, same_weights
from compiler.tiling.tile import Configuration, Order, Spread, WeightHome, WeightLoads
from compiler.units import ceil_div

# The widest elements of tensors.
LARGEST_ELEMENT_BYTES: Final = 8


@dataclass(frozen=True, kw_only=True)
class StepWeights:
    """One op's weights under a tiling: in DRAM, as one unit needs them, as one core holds them, and its slices.

    `slice_bytes`: the largest slice, of whole channels. `table_bytes`: the op's address tables, which lie with its
    weights on the chip and are counted with them there, but not in `size_bytes` and `slice_bytes` (ADDR-5).
    `shared_bytes`: what of `core_bytes` does not follow the output channels, so every slice needs all of it.
    `like`: an earlier step of an equal op with the same weights; where both wait in the cores they do so once.
    `comes_again`: all that `core_bytes` counts gives way to more of them, for the output channels or what is summed
    over are cut in time. `slice_buffers`: how many slices have room in a core while they pass. `in_one_buffer`: the
    same weights in larger slices, one in a core at a time, if these leave fewer lanes of the array idle.
    """

    size_bytes: int
    unit_bytes: int
    core_bytes: int
    slices: int
    slice_bytes: int
    table_bytes: int = 0
    shared_bytes: int = 0
    comes_again: bool = False
    slice_buffers: int = 2
    like: int | None = None
    in_one_buffer: StepWeights | None = None

    @lazy
    def staged_core_bytes(self) -> int:
        """One slice of them, where they pass in slices; beside the op's address tables."""
        return self.slice_bytes + self.table_bytes

    @property
    def own_core_bytes(self) -> int:
        """What they take of a core where those of all ops wait there."""
        return self.core_bytes if self.like is None else self.table_bytes

    @property
    def beside_like(self) -> StepWeights:
        """What is left of them where the earlier step's wait in the cores, too: the address tables."""
        return _tables_alone(self.table_bytes, self.like)

    @lazy
    def passing_core_bytes(self) -> int:
        """What a core holds of them at once while they pass: with two buffers a slice that is used and one that comes.

        The second one begins where any element may lie.
        """
        return (align(self.slice_bytes) if self.slices > 1 and self.slice_buffers > 1 else 0) + self.staged_core_bytes


def most_table_bytes(geometry: GroupGeometry, profile: Profile, configuration: Configuration) -> tuple[int, ...]:
    """Per op the most that its address tables take in a core under any tile (ADDR-5).

    There is one for each kind of buffer that the op reads: the tile's, and one for each axis along which halos are
    kept; breadth-first pieces have one.
    """
    nested = profile.units.are_cores or configuration.order is Order.DEPTH_FIRST
    return table_bytes(geometry, profile, (1 + len(configuration.halo) * nested,) * len(geometry.ops))


def buffers_read(op: OpFacts, frustums: Frustums | None, whole: Collection[str]) -> int:
    """In how many kinds of buffers an op finds its input in a core: the tile's, and what waits along each axis.

    `frustums` None: pieces, which lie alone. `whole`: tensors that come with every tile as whole boxes.
    """
    name = op.operands[0].tensor if op.window is not None else ""
    return 1 if frustums is None or not name or name in whole else 1 + len(frustums.kept_along(name))


def table_bytes(geometry: GroupGeometry, profile: Profile, buffers: tuple[int, ...]) -> tuple[int, ...]:
    """Per op the bytes of address tables for so many kinds of buffers that it reads; 0 if it has no window."""
    if profile.addressing != "tables":
        return (0,) * len(geometry.ops)
    key = ("tables", buffers)
    found: tuple[int, ...] | None = geometry.worked_out.get(key)
    if found is None:
        sizes = geometry.table_bytes
        found = tuple(align(count * size) for count, size in zip(buffers, sizes, strict=True))
        geometry.worked_out[key] = found
    return found


def align(size_bytes: int) -> int:
    """Bytes of address tables or weights, filled up so that any element may lie behind them."""
    return ceil_div(size_bytes, LARGEST_ELEMENT_BYTES) * LARGEST_ELEMENT_BYTES


def step_weights(
    geometry: GroupGeometry,
    profile: Profile,
    configuration: Configuration,
    slices: int,
    input_parts: int,
    tables: tuple[int, ...],
) -> tuple[StepWeights, ...]:
    """Per op its weights, compressed as the profile says for what lies on the chip.

    `slices` of the output channels follow one another; `input_parts` cut the weights of the group's product along
    their other axis; `tables` are the bytes of the ops' address tables.
    """
    units = (configuration.units if configuration.spread is Spread.CHANNELS else 1) * slices
    cores = units * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)
    room = None if configuration.order is Order.DEPTH_FIRST else weight_slice_bytes(profile)
    of_group = (
        "weights",
        units,
        cores,
        input_parts,
        room,
        profile.weights.compression,
        tables,
        slices > 1,
        configuration.input_slices > 1,
    )
    of_all: tuple[StepWeights, ...] | None = geometry.worked_out.get(of_group)
    if of_all is not None:
        return of_all
    found, known = [], geometry.projections.known
    for op, beside in zip(geometry.ops, tables, strict=True):
        depth = input_parts if op is geometry.product else 1
        again = slices > 1 or (configuration.input_slices > 1 and op is geometry.product)
        key: tuple[object, ...] = ("weights", beside)
        if entries := geometry.facts.weight_entries[op.index]:
            key = (
                *key,
                geometry.facts.numbers[op.index],
                entries,
                units,
                cores,
                depth,
                room,
                profile.weights.compression,
                again,
            )
        weights = known.get(key)
        if not isinstance(weights, StepWeights):
            weights = _step_weights(geometry, op, (units, cores, depth), room, profile, beside)
            if again and weights.size_bytes:
                one = weights.in_one_buffer
                one = None if one is None else replace(one, comes_again=True)
                weights = replace(weights, comes_again=True, in_one_buffer=one)
            known[key] = weights
        found.append(weights)
    if slices * input_parts == 1 and not profile.is_stationary:
        same = same_weights(geometry) if cores == 1 else same_parts(geometry)
        found = [w if like is None else _like(w, like) for w, like in zip(found, same, strict=True)]
    of_all = geometry.worked_out[of_group] = tuple(found)
    return of_all


def _tables_alone(size: int, like: int | None = None) -> StepWeights:
    """What an op holds that brings no weights of its own: address tables of so many bytes."""
    return StepWeights(
        size_bytes=0, unit_bytes=size, core_bytes=size, slices=1, slice_bytes=0, table_bytes=size, like=like
    )


def _like(weights: StepWeights, like: int) -> StepWeights:
    one = weights.in_one_buffer
    return replace(weights, like=like, in_one_buffer=None if one is None else replace(one, like=like))


def _step_weights(
    geometry: GroupGeometry, op: OpFacts, parts: tuple[int, int, int], room: int | None, profile: Profile, beside: int
) -> StepWeights:
    """One op's weights in `parts` for units, for cores and of what is summed; slices of at most `room` bytes."""
    entries = geometry.facts.weight_entries[op.index]
    if not entries:
        return _tables_alone(beside)
    units, cores, summed = parts
    depth, factor = Fraction(1), profile.weights.compression
    if op.matrix is not None:
        depth = largest_part(op.matrix.in_channels, summed)
    unit = sum(_share(*entry, units, depth) for entry in entries)
    core = sum(_share(*entry, cores, depth) for entry in entries)
    shared = sum(_share(*entry, cores, depth) for entry in entries if entry[1] == 1)
    if factor != 1:
        unit, core, shared = ceil(unit * factor), ceil(core * factor), ceil(shared * factor)
    whole = StepWeights(
        size_bytes=sum(size for size, _, _ in entries),
        unit_bytes=unit + beside,
        core_bytes=core + beside,
        slices=1,
        slice_bytes=core,
        table_bytes=beside,
        shared_bytes=shared,
    )
    if room is None:
        return whole
    shape = geometry.facts.tensors[op.output].shape
    channels = ceil_div(shape[op.channel_axis] if op.channel_axis is not None else 1, cores)
    two = _sliced(whole, op, channels, room - ceil_div(beside, 2), profile)
    one = replace(_sliced(whole, op, channels, 2 * room - beside, profile), slice_buffers=1)
    return (
        replace(two, in_one_buffer=one)
        if passes_of(one, op, channels, profile) < passes_of(two, op, channels, profile)
        else two
    )


def _sliced(whole: StepWeights, op: OpFacts, channels: int, room: int, profile: Profile) -> StepWeights:
    """Weights in as few slices as let each have so much room, or some more where that leaves fewer lanes idle."""
    shared = whole.shared_bytes
    sliced = whole.slice_bytes - shared
    if not sliced:
        return whole
    tried = slices_tried(sliced, channels, room, shared)
    slices = min(tried, key=lambda slices: _passes(slices, op, channels, profile))
    size = ceil_div(sliced * ceil_div(channels, slices), channels)
    return replace(whole, slices=slices, slice_bytes=shared + size)


def slices_tried(size: int, channels: int, room: int, shared: int = 0) -> range:
    """Into how many slices weights of so many channels may be cut: the fewest that have room, to less than twice these.

    `shared`: bytes that every slice has beside its part of `size`.
    """
    left = room // LARGEST_ELEMENT_BYTES * LARGEST_ELEMENT_BYTES - shared
    least = ceil_div(channels, min(channels, max(1, left * channels // size)))
    return range(least, min(channels, 2 * least - 1) + 1)


def passes_of(weights: StepWeights, op: OpFacts, channels: int, profile: Profile) -> int:
    """How often the array goes over the same positions for so many channels of a core, slice by slice."""
    return _passes(weights.slices, op, channels, profile)


def _passes(slices: int, op: OpFacts, channels: int, profile: Profile) -> int:
    return slices * array_passes(op, ceil_div(channels, slices), profile)


def _share(size_bytes: int, channels: int, is_factor: bool, parts: int, depth: Fraction) -> int:
    """The largest part of a weight by output channels, and if it is a product's factor by what is summed over."""
    share = share_of_weight(size_bytes, channels, parts)
    return ceil(share * depth) if is_factor else share


def weight_slice_bytes(profile: Profile) -> int:
    """The largest slice of weights that passes through a core: two of them fit its weight memory.

    Where weights and activations share a memory, a quarter of it.
    """
    return max(1, profile.weight_memory_bytes // (4 if profile.weights_share_activations else 2))


def slice_cycles(size: int, profile: Profile, configuration: Configuration, home: WeightHome) -> tuple[float, float]:
    """Cycles in which so many bytes of weights of each core come from DRAM (0: they wait in SRAMs), and to cores."""
    engines, by_channels = profile.engines, configuration.core_spread is Spread.CHANNELS
    fetched = moved = 0.0
    on_bus = engines.bus is not None and configuration.cores > 1 and not by_channels
    if (engine := engines.bus if on_bus else engines.mvdma) is not None:
        moved = size / engine.bytes_per_cycle + engine_startup_cycles(engine, profile)
    if home is WeightHome.DRAM:
        parts = (configuration.cores if by_channels else 1) * (
            configuration.units if configuration.spread is Spread.CHANNELS or not reads_are_shared(profile) else 1
        )
        fetched = size * parts / dram_port_bytes_per_cycle(profile, configuration.units) + dram_startup_cycles(profile)
    return fetched, moved


def with_fewer_cycles(
    weights: StepWeights,
    op: OpFacts,
    channels: int,
    steps: int,
    tiles: int,
    profile: Profile,
    configuration: Configuration,
) -> StepWeights:
    """The weights, or their slices with all the room for each where that saves more cycles of the array than it waits.

    `channels`: of a core; `steps`: of the array over all positions; `tiles`: of the walk.
    """
    one = weights.in_one_buffer
    if one is None or op.matrix is None:
        return weights
    each = steps * ceil_div(op.matrix.in_channels, array_of(op, profile).c) * op.matrix.taps
    saved = each * (passes_of(weights, op, channels, profile) - passes_of(one, op, channels, profile))
    home = WeightHome.SRAM if configuration.weights_in_sram else WeightHome.DRAM
    return (
        one
        if tiles * one.slices * max(slice_cycles(one.slice_bytes, profile, configuration, home)) < saved
        else weights
    )


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
    if sum(w.own_core_bytes for w in weights) <= core_room and WeightLoads.STREAMED not in wanted:
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
        like = weights[step].like
        is_there = like is not None and homes[like] is WeightHome.CORE
        size = weights[step].own_core_bytes if is_there else weights[step].core_bytes
        if homes[step] is WeightHome.DRAM and size <= left:
            homes[step] = WeightHome.CORE
            left -= size
    return tuple(homes)
