"""A quick estimate of every configuration's price, as arrays: it orders them, exact prices decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from compiler.cost.array import array_lanes
from compiler.cost.objective import Totals
from compiler.cost.rates import dram_port_bytes_per_cycle, reads_are_shared
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import ConfiguredWeights
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread, WeightHome
from compiler.tiling.walk import unit_walk
from compiler.tiling.weights import weight_homes
from compiler.units import ceil_div

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """A group under one configuration with its SRAM tile chosen, as far as an estimate needs it.

    weight_room: bytes of a core's memory that weights may take beside the tile. weight_reads: bytes of weights that are
    read from DRAM, where the tile is worked out.
    """

    geometry: GroupGeometry
    table: SizeTable
    configuration: Configuration
    tile: Mapping[str, int]
    weights: ConfiguredWeights
    weight_room: float
    weight_reads: int | None = None
    known: dict[str, _PlanFigures] = field(default_factory=dict, init=False)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The tile's place among the candidates of each axis."""
        return self.table.positions(self.tile)

    @cached_property
    def tiles(self) -> int:
        """SRAM tiles, channel slices apart."""
        return self.table.tile_count(self.tile)

    @cached_property
    def units(self) -> int:
        """Units that have work."""
        if self.configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
            return self.configuration.units
        return min(self.configuration.units, self.tiles)

    @cached_property
    def rounds(self) -> int:
        """Tiles that one unit does one after another."""
        if self.configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
            return self.tiles
        return ceil_div(self.tiles, self.configuration.units) if self._in_turn is None else self._in_turn

    @cached_property
    def _in_turn(self) -> int | None:
        """As `rounds`, where units wait for halos that others pass them; None if they pass none."""
        passes = any(mode is HaloMode.EXCHANGE for _, mode in self.configuration.halo)
        if not passes or self.configuration.spread is not Spread.BANDS or self.tiles <= self.configuration.units:
            return None
        return unit_walk(self.geometry, self.configuration, self.tile).rounds

    @property
    def waits(self) -> float:
        """How much longer units take than they work, since they wait for each other."""
        return 1.0 if self._in_turn is None else self._in_turn / ceil_div(self.tiles, self.configuration.units)

    @property
    def cores_in_use(self) -> int:
        """Cores that have work, as far as the SRAM tile tells."""
        configuration, band = self.configuration, self.table.band_axis
        per_unit = configuration.cores
        if configuration.core_spread is Spread.BANDS and band is not None:
            per_unit = min(per_unit, self.tile[band])
        return self.units * per_unit

    def input_bytes(self, name: str) -> int:
        """Bytes of one input over all tiles, each box read once; slices of an outer loop read it again."""
        total = self.table.total(name, self.positions)
        if self.configuration.slices_outer and not self.table.follows(name, "C"):
            total *= self.configuration.channel_slices
        return total

    def delivered_bytes(self) -> int:
        """Bytes of all inputs as they arrive at the units: what does not follow the axis they share out reaches all."""
        band = self.table.band_axis
        if self.configuration.spread is Spread.BANDS and band is not None:
            alike = [name for name in self.geometry.inputs if not self.table.follows(name, band)]
            return self.loaded_bytes + sum(map(self.input_bytes, alike)) * (self.units - 1)
        if self.configuration.spread is not Spread.CHANNELS:
            return self.loaded_bytes
        return sum(
            self.input_bytes(name) * (1 if self._is_divided(name) else self.configuration.units)
            for name in self.geometry.inputs
        )

    def _is_divided(self, name: str) -> bool:
        return self.table.channels_are_free and self.table.follows(name, "C")

    @cached_property
    def loaded_bytes(self) -> int:
        """Bytes of all inputs over all tiles, halos and re-reads included (FUSE-11)."""
        return sum(map(self.input_bytes, self.geometry.inputs))

    def weight_bytes(self, profile: Profile) -> int:
        """Bytes of weights read from DRAM: once what stays on the chip, for every tile what does not (TILE-6)."""
        if self.weight_reads is not None:
            return self.weight_reads
        if profile.is_stationary:
            return 0
        configuration, total = self.configuration, self.geometry.weight_bytes
        shared = reads_are_shared(profile) or configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS)
        copies = 1 if shared else self.units
        rounds = self.rounds
        cut = configuration.channel_slices * configuration.input_slices > 1
        fits = self.weights.held_bytes * configuration.input_slices <= self.weight_room
        if rounds == 1 or (fits if configuration.slices_outer or not cut else False):
            return total * copies
        if cut:
            return total * copies * rounds
        if configuration.weights_in_sram:
            return total * copies
        steps = self.weights.steps
        homes = weight_homes(steps, [None] * len(steps), int(self.weight_room), 0)
        streamed = sum(w.size_bytes for w, home in zip(steps, homes, strict=True) if home is WeightHome.DRAM)
        return (total - streamed + streamed * rounds) * copies

    @property
    def exposed_bytes(self) -> float:
        """Bytes of the first tiles' loads and the last tiles' stores, which nothing hides."""
        outputs = self.geometry.output_bytes
        tiles = self.tiles * self.configuration.channel_slices
        return (self.loaded_bytes + outputs) * min(self.units, tiles) / tiles

    def dram_bytes(self, profile: Profile) -> int:
        """DRAM bytes of the group, as the price counts them."""
        inputs = self.loaded_bytes if reads_are_shared(profile) else self.delivered_bytes()
        return inputs + self.weight_bytes(profile) + self.geometry.output_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpArrays:
    """The ops of a group as columns: what their cycles depend on; `pixels` in array steps of output positions."""

    pixels: Floats
    channels: Floats
    per_group: Floats
    depth: Floats
    lane_operations: Floats
    vector_operations: Floats
    is_matrix: np.ndarray[Any, np.dtype[np.bool_]]
    all_input_bytes: float
    all_output_bytes: float
    lanes_k: Floats


def op_arrays(table: SizeTable, profile: Profile) -> OpArrays:
    """Columns of a group's ops, whole maps."""
    geometry, matrix = table.geometry, profile.matrix
    rows, known = [], geometry.projections.known
    for op in geometry.ops:
        found = known.get(("column", op.index))
        # the row of another matrix unit is not this one's
        if not isinstance(found, tuple) or found[0] is not matrix:
            found = known["column", op.index] = (matrix, _op_row(op, table, profile))
        rows.append(found[1])
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    return OpArrays(
        pixels=columns[0],
        channels=columns[1],
        per_group=columns[2],
        depth=columns[3],
        lane_operations=columns[4],
        vector_operations=columns[5],
        is_matrix=columns[6] > 0,
        all_input_bytes=float(columns[7].sum()),
        all_output_bytes=float(columns[8].sum()),
        lanes_k=columns[9],
    )


def _op_row(op: OpFacts, table: SizeTable, profile: Profile) -> tuple[float, ...]:
    tensors = table.geometry.facts.tensors
    output = tensors[op.output]
    columns, rows = array_lanes(op, profile) if op.dtype in profile.matrix.arrays else (1, 1)
    channels = output.shape[op.channel_axis] if op.channel_axis is not None else 1
    elements = prod(output.shape)
    array = profile.matrix.arrays.get(op.dtype)
    shape = op.matrix
    depth = -(-shape.in_channels // array.c) * shape.taps if shape is not None and array is not None else 0
    inputs = sum(prod(tensors[o.tensor].shape) * tensors[o.tensor].element_bytes for o in op.operands if not o.constant)
    return (
        elements / max(1, channels) / (columns * rows),
        channels,
        shape.out_channels if shape is not None else 1,
        depth,
        float(2 * op.macs * elements),
        float(op.vector_ops * elements),
        float(shape is not None),
        inputs,
        elements * output.element_bytes,
        array.k if array is not None else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanFigures:
    """What an estimate depends on beside the ops: `parts` of the channels, `slices` of them in time, bytes, rates.

    `cores`: in use, less the time that they wait. `rate`: DRAM bytes per cycle. `exposed`: bytes that nothing hides.
    """

    parts: int
    slices: int
    cores: float
    dram: int
    rate: float
    exposed: float
    onchip: float
    gathered: float


def _figures(plan: TilePlan, profile: Profile, ops: OpArrays) -> _PlanFigures:
    """A plan's figures, worked out once."""
    known = plan.known.get("figures")
    if known is None:
        configuration = plan.configuration
        alone = not (configuration.double_buffered or plan.rounds * configuration.channel_slices == 1)
        dram = plan.dram_bytes(profile)
        known = plan.known["figures"] = _PlanFigures(
            parts=_channel_parts(plan),
            slices=configuration.channel_slices,
            cores=plan.cores_in_use / plan.waits,
            dram=dram,
            rate=dram_port_bytes_per_cycle(profile, plan.units),
            exposed=dram if alone else plan.exposed_bytes,
            onchip=_onchip(plan, ops, profile),
            gathered=max(_gather_cycles(plan, profile), _passing_cycles(plan, profile)),
        )
    return known


def estimates(plans: list[TilePlan], profile: Profile) -> Totals:
    """DRAM bytes, cycles and energy of each plan, estimated; arrays over plans.

    Compute is spread evenly over the cores in use; on-chip transfers go through the cores' move engines.
    """
    ops = op_arrays(plans[0].table, profile)
    figures = [_figures(plan, profile, ops) for plan in plans]
    share = np.array([plan.parts for plan in figures], dtype=np.float64)
    slices = np.array([plan.slices for plan in figures], dtype=np.float64)
    cores = np.array([plan.cores for plan in figures], dtype=np.float64)
    dram = np.array([plan.dram for plan in figures], dtype=np.float64)
    by_area = cores / share
    mine = np.ceil(ops.channels[:, None] / (share * slices))
    per_group, k = ops.per_group[:, None], ops.lanes_k[:, None]
    groups = np.ceil(mine / per_group)
    pixels = ops.pixels[:, None] / by_area
    matrix = groups * np.ceil(np.minimum(mine / groups, per_group) / k) * ops.depth[:, None] * pixels * slices
    lanes = ops.lane_operations[:, None] / cores / profile.vector.lanes
    compute = np.where(ops.is_matrix[:, None], np.minimum(matrix, lanes), 0.0)
    compute = compute + ops.vector_operations[:, None] / cores / profile.vector.lanes
    onchip = np.array([plan.onchip for plan in figures], dtype=np.float64)
    rate = np.array([plan.rate for plan in figures])
    moved = dram / rate
    ends = np.array([plan.exposed for plan in figures], dtype=np.float64) / rate
    busy = compute.sum(axis=0) + ends
    gathered = np.array([plan.gathered for plan in figures], dtype=np.float64)
    cycles = np.maximum(np.maximum(moved, busy), np.maximum(onchip, gathered))
    energy = dram * profile.dram.read_pj_per_byte + profile.static_w * cycles / profile.clock_hz * 1e12
    if not profile.units.are_cores and profile.engines.mvdma is not None:
        energy = energy + onchip * profile.engines.mvdma.bytes_per_cycle * profile.units.memory.read_pj_per_byte
    return Totals(dram_bytes=dram, cycles=cycles, energy_pj=energy)


def _gather_cycles(plan: TilePlan, profile: Profile) -> float:
    """Cycles of passing on what units make in channel parts and all of them need."""
    engine = profile.units.peer_engine
    shared_out = plan.configuration.spread is Spread.CHANNELS and plan.configuration.units > 1
    if engine is None or not shared_out or plan.table.channels_are_free:
        return 0.0
    return plan.geometry.gathered_bytes / engine.bytes_per_cycle


def _passing_cycles(plan: TilePlan, profile: Profile) -> float:
    """Cycles of handing on inputs that several units need and one has read."""
    engine = profile.units.peer_engine
    if engine is None or plan.units == 1 or not reads_are_shared(profile):
        return 0.0
    return (plan.delivered_bytes() - plan.loaded_bytes) / (engine.bytes_per_cycle * (plan.units - 1))


def _channel_parts(plan: TilePlan) -> int:
    configuration = plan.configuration
    parts = configuration.units if configuration.spread is Spread.CHANNELS else 1
    return parts * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)


def _onchip(plan: TilePlan, ops: OpArrays, profile: Profile) -> float:
    """Cycles of the busiest move engine."""
    engine = profile.engines.link if profile.units.are_cores else profile.engines.mvdma
    if engine is None:
        return 0.0
    parts = _channel_parts(plan)
    if plan.configuration.order is Order.BREADTH_FIRST:
        moved = ops.all_input_bytes * parts + ops.all_output_bytes
    else:
        moved = plan.geometry.input_bytes * parts * plan.configuration.channel_slices
    return moved / (engine.bytes_per_cycle * plan.cores_in_use)
