"""A quick estimate of every configuration's price, as arrays: it orders them, exact prices decide."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import ceil, inf, prod
from typing import Any, Final

import numpy as np

from compiler.cost.array import array_lanes, depth_passes
from compiler.cost.objective import Totals
from compiler.cost.rates import (
    dram_port_bytes_per_cycle,
    dram_startup_cycles,
    dram_transfer_cycles,
    reads_are_shared,
)
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import ConfiguredWeights
from compiler.tiling.geometry import GroupGeometry, reads_own_channels
from compiler.tiling.pace import Passed, awaited_cycles
from compiler.tiling.sharing import passed_parts
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread, WeightHome
from compiler.tiling.traffic import hidden_transfers
from compiler.tiling.walk import unit_walk
from compiler.tiling.weights import weight_homes
from compiler.units import ceil_div

# Buffers of a core for an op's weights.
_BUFFERS: Final = 2

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """A group under one configuration with its SRAM tile chosen, as far as an estimate needs it.

    weight_room: bytes of a core's memory that weights may take beside the tile.
    """

    geometry: GroupGeometry
    table: SizeTable
    configuration: Configuration
    tile: Mapping[str, int]
    weights: ConfiguredWeights
    weight_room: float
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
        configuration = self.configuration
        if not self.passes_halos or configuration.spread is not Spread.BANDS or self.tiles <= configuration.units:
            return None
        return unit_walk(self.geometry, configuration, self.tile).rounds

    @property
    def unit_share(self) -> float:
        """The part of all positions that the busiest unit makes."""
        if self.configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
            return 1.0
        output, part = self.geometry.output, 1.0
        for axis, extent in zip(output.axes, output.shape, strict=True):
            part *= min(1.0, self.tile.get(axis, extent) / extent) if axis != "C" else 1.0
        return min(1.0, max(1 / self.units, self.rounds * part))

    @property
    def core_share(self) -> float:
        """The part of a unit's positions that its busiest core makes."""
        band = self.table.band_axis
        if self.configuration.core_spread is not Spread.BANDS or band is None:
            return 1.0
        return ceil_div(self.tile[band], self.configuration.cores) / self.tile[band]

    @cached_property
    def borders(self) -> Mapping[str, float]:
        """Per tensor the bytes that a unit's first tiles need of what the unit before made, where halos are kept."""
        band, table = self.table.band_axis, self.table
        if band is None or self.configuration.spread is not Spread.BANDS or band not in table.halo or self.units == 1:
            return {}
        sizes: Floats = table.constant * table.kept[band][:, self.positions[band]]
        for axis in table.axes:
            if axis != band:
                sizes = sizes * table.needed[axis][:, -1]
        return dict(zip(table.names, sizes.tolist(), strict=True))

    @cached_property
    def kept_names(self) -> frozenset[str]:
        """Tensors with a halo that tiles keep for later tiles."""
        table = self.table
        axes = [axis for axis, mode in table.halo.items() if mode is not HaloMode.RECOMPUTE and axis in table.kept]
        along = [table.kept[axis][:, self.positions[axis]] > 0 for axis in axes]
        return frozenset(
            name for flags in along for name, flag in zip(table.names, flags.tolist(), strict=True) if flag
        )

    @property
    def passes_halos(self) -> bool:
        """Whether units pass each other what the others need."""
        return any(mode is HaloMode.EXCHANGE for _, mode in self.configuration.halo)

    def input_bytes(self, name: str) -> int:
        """Bytes of one input over all tiles, each box read once; slices of an outer loop read it again."""
        total = int(self.table.total(name, self.positions) * self._again(name))
        if self.configuration.slices_outer and not self.table.follows(name, "C"):
            total *= self.configuration.channel_slices
        return total

    def _again(self, name: str) -> float:
        """How often units together make what the tiles make of an input, where each keeps its own halos only."""
        band, recomputed = self.table.band_axis, self.table.recomputed
        count = 0 if band is None else self.table.grids[band].counts[self.positions[band]]
        if not self.borders or self.passes_halos or band is None or recomputed is None or count < 2:
            return 1.0
        if not self.table.follows(name, band):
            return 1.0
        kept, apart = (t.made_along(name, band, self.positions[band]) for t in (self.table, recomputed))
        return 1.0 + (min(self.units, count) - 1) / (count - 1) * (apart / kept - 1.0)

    def delivered_bytes(self) -> int:
        """Bytes of all inputs as they arrive at the units: what does not follow the axis they share out reaches all."""
        band = self.table.band_axis
        if self.configuration.spread is Spread.BANDS and band is not None:
            alike = [name for name in self.geometry.inputs if not self.table.follows(name, band)]
            return self.loaded_bytes + sum(map(self.input_bytes, alike)) * (self.units - 1)
        if self.configuration.spread is not Spread.CHANNELS:
            return self.loaded_bytes
        return sum(
            self.input_bytes(name) * (1 if self.is_divided(name) else self.configuration.units)
            for name in self.geometry.inputs
        )

    def is_divided(self, name: str) -> bool:
        """True if each part of the channels needs only its part of an input."""
        return self.table.channels_are_free and self.table.follows(name, "C")

    @cached_property
    def loaded_bytes(self) -> int:
        """Bytes of all inputs over all tiles, halos and re-reads included (FUSE-11)."""
        return sum(map(self.input_bytes, self.geometry.inputs))

    def weight_bytes(self, profile: Profile) -> int:
        """Bytes of weights read from DRAM: once what stays on the chip, for every tile what does not (TILE-6)."""
        if profile.is_stationary:
            return 0
        configuration, total = self.configuration, self.geometry.weight_bytes
        shared = reads_are_shared(profile) or configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS)
        copies = 1 if shared else self.units
        rounds = self.rounds
        parts = configuration.channel_slices * configuration.input_slices
        held = configuration.input_slices if configuration.slices_outer else parts
        # parts wait in the cores if each has a buffer of its own
        if rounds == 1 or (held <= _BUFFERS and self.weights.held_bytes * held <= self.weight_room):
            return total * copies
        if parts > 1:
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
        lanes_k=columns[7],
    )


def _op_row(op: OpFacts, table: SizeTable, profile: Profile) -> tuple[float, ...]:
    output = table.geometry.facts.tensors[op.output]
    columns, rows = array_lanes(op, profile) if op.dtype in profile.matrix.arrays else (1, 1)
    channels = output.shape[op.channel_axis] if op.channel_axis is not None else 1
    elements = prod(output.shape)
    array = profile.matrix.arrays.get(op.dtype)
    shape = op.matrix
    depth = depth_passes(shape, 1, array.c) if shape is not None and array is not None else 0
    return (
        elements / max(1, channels) / (columns * rows),
        channels,
        shape.out_channels if shape is not None else 1,
        depth,
        float(2 * op.macs * elements),
        float(op.vector_ops * elements),
        float(shape is not None),
        array.k if array is not None else 1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlanFigures:
    """What an estimate depends on beside the work of ops.

    `parts` of the channels, `slices` of them in time; `depth`: passes of the array for a sum of the product that may be
    made in parts; `share`: the part of the positions that the busiest core makes.
    `dram`, `read`: DRAM bytes, and those that are read. `rate`: DRAM bytes per cycle. `exposed`: bytes that nothing
    hides. `moved`: cycles of the busiest engine between SRAM and cores, by run of ops that pass the cores together, or
    for all together. `transfers`: cycles of DRAM transfers. `passing`, `handed_on`: cycles of handing on shared inputs,
    and weights too. `awaited`: cycles in which cores wait between ops. `startup`: cycles of start-ups that nothing
    hides. `onchip_pj`: energy of what moves on the chip.
    """

    parts: int
    slices: int
    depth: int
    share: float
    dram: int
    read: int
    rate: float
    exposed: float
    moved: tuple[float, ...]
    transfers: float
    passing: float
    handed_on: float
    awaited: float
    startup: float
    onchip_pj: float


def _figures(plan: TilePlan, profile: Profile) -> _PlanFigures:
    """A plan's figures, worked out once."""
    known = plan.known.get("figures")
    if known is None:
        configuration, units = plan.configuration, plan.units
        alone = not (configuration.double_buffered or plan.rounds * configuration.channel_slices == 1)
        dram, weights = plan.dram_bytes(profile), plan.weight_bytes(profile)
        shared = units > 1 and reads_are_shared(profile)
        engine = profile.units.peer_engine
        passed_inputs = plan.delivered_bytes() - plan.loaded_bytes if shared else 0
        passed_weights = _passed_weights(plan, profile, weights)
        rate = engine.bytes_per_cycle * max(1, units - 1) if engine is not None else inf
        moves = _moves(plan, profile)
        gathered = _gathered(plan)
        others = _passed(plan, profile, sum(gathered))
        repeats = plan.rounds * configuration.channel_slices
        hidden = hidden_transfers(plan.geometry, configuration, repeats)
        awaited = awaited_cycles(profile, units, configuration.cores, repeats * max(1, len(gathered)), others)
        exchanged = passed_inputs + passed_weights + others.gathered * (units - 1) + others.halos + others.reduced
        known = plan.known["figures"] = _PlanFigures(
            parts=_channel_parts(plan),
            slices=configuration.channel_slices,
            depth=_depth(plan, profile),
            share=plan.unit_share * plan.core_share,
            dram=dram,
            read=dram - plan.geometry.output_bytes,
            rate=dram_port_bytes_per_cycle(profile, units),
            exposed=dram if alone else plan.exposed_bytes,
            moved=tuple(max(cycles, passed_weights / rate) if len(moves) == 1 else cycles for cycles, _ in moves),
            transfers=dram_transfer_cycles(profile, units, dram, hidden),
            passing=passed_inputs / rate,
            handed_on=(passed_inputs + passed_weights) / rate,
            awaited=awaited,
            startup=_startup_cycles(plan, profile),
            onchip_pj=_onchip_pj(plan, profile, sum(moved for _, moved in moves), exchanged),
        )
    return known


def estimates(plans: list[TilePlan], profile: Profile) -> Totals:
    """DRAM bytes, cycles and energy of each plan, estimated; arrays over plans.

    They add up as the price does (`cost/model.py`). An op's work is that on its whole map, without halos.
    """
    ops = op_arrays(plans[0].table, profile)
    figures = [_figures(plan, profile) for plan in plans]

    def column(name: str) -> Floats:
        return np.array([getattr(plan, name) for plan in figures], dtype=np.float64)

    parts, slices, share, dram, rate = map(column, ("parts", "slices", "share", "dram", "rate"))
    mine = np.ceil(ops.channels[:, None] / (parts * slices))
    per_group, k = ops.per_group[:, None], ops.lanes_k[:, None]
    groups = np.ceil(mine / per_group)
    pixels = ops.pixels[:, None] * share
    depth = np.repeat(ops.depth[:, None], len(plans), axis=1)
    product = plans[0].geometry.product
    if product is not None:
        depth[plans[0].geometry.ops.index(product)] = column("depth")
    matrix = groups * np.ceil(np.minimum(mine / groups, per_group) / k) * depth * pixels * slices
    lanes = ops.lane_operations[:, None] * share / parts / profile.vector.lanes
    compute = np.where(ops.is_matrix[:, None], np.minimum(matrix, lanes), 0.0)
    compute = compute + ops.vector_operations[:, None] * share / parts / profile.vector.lanes
    on_cores = _stage_cycles(compute, plans, figures) + column("awaited")
    busy = on_cores + column("exposed") / rate
    through = (column("read") / rate + column("handed_on") + on_cores) / 2
    cycles = np.maximum(np.maximum(column("transfers"), column("passing")), np.maximum(busy, through)) + column(
        "startup"
    )
    energy = dram * profile.dram.read_pj_per_byte + column("onchip_pj")
    energy = energy + profile.static_w * cycles / profile.clock_hz * 1e12
    return Totals(dram_bytes=dram, cycles=cycles, energy_pj=energy)


def _stage_cycles(compute: Floats, plans: list[TilePlan], figures: list[_PlanFigures]) -> Floats:
    """Per plan the cycles of its stages, one after the other: the most of work and moves of each; `compute` by op."""
    together = compute.sum(axis=0)
    begins = [run.steps[0] for run in plans[0].geometry.runs]
    by_run = np.add.reduceat(compute, begins, axis=0).T
    return np.array(
        [
            max(work, *figure.moved) if len(figure.moved) == 1 else np.maximum(runs, figure.moved).sum()
            for work, runs, figure in zip(together, by_run, figures, strict=True)
        ]
    )


def _moves(plan: TilePlan, profile: Profile) -> list[tuple[float, float]]:
    """By stage the cycles of the busiest engine between SRAM and cores, and bytes moved; of one stage depth-first."""
    mover, bus = profile.engines.mvdma, profile.engines.bus
    if profile.units.are_cores or mover is None:
        return [(0.0, 0.0)]
    configuration, geometry, facts = plan.configuration, plan.geometry, plan.geometry.facts
    units = plan.units
    cores = configuration.cores if configuration.core_spread is Spread.CHANNELS else 1
    on_bus = bus is not None and cores > 1
    copies = configuration.units if configuration.spread is Spread.CHANNELS else 1
    if configuration.order is Order.BREADTH_FIRST:
        filled = []
        for run in geometry.runs:
            size = float(sum(map(facts.tensor_bytes, run.inputs)))
            drained = sum(map(facts.tensor_bytes, run.results))
            own = reads_own_channels(geometry.ops[run.steps[0]])
            filled.append((size if own else 0.0, 0.0 if own else size * copies, drained))
    else:
        divided = sum(plan.input_bytes(name) for name in geometry.inputs if plan.is_divided(name))
        filled = [(float(divided), float(plan.delivered_bytes() - divided), geometry.output_bytes)]
    found = []
    for own_bytes, common, drained in filled:
        broadcast = common if on_bus else 0.0
        moved = own_bytes + drained + (0.0 if on_bus else common * cores)
        cycles = moved / (mover.bytes_per_cycle * units * configuration.cores)
        if bus is not None:
            cycles = max(cycles, broadcast / (bus.bytes_per_cycle * units))
        found.append((cycles, moved + broadcast))
    return found


def _passed_weights(plan: TilePlan, profile: Profile, read: int) -> float:
    """Bytes of weights that pass between units: read from DRAM once for all of them, or stationary in other cores."""
    configuration, units = plan.configuration, plan.units
    if profile.is_stationary:
        in_place = configuration.spread is Spread.CHANNELS and configuration.channel_slices == 1
        return 0.0 if in_place else float(plan.geometry.weight_bytes) * plan.rounds * units
    if configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS) or not reads_are_shared(profile):
        return 0.0
    return float(read) * (units - 1)


def _passed(plan: TilePlan, profile: Profile, gathered: int) -> Passed:
    """What others wait for."""
    configuration, geometry = plan.configuration, plan.geometry
    reduced, product = 0, geometry.product
    if product is not None and configuration.spread is Spread.INPUT_CHANNELS:
        tensor = geometry.facts.tensors[product.output]
        sums = geometry.facts.tensor_bytes(product.output) // tensor.element_bytes
        reduced = sums * profile.partial_sum_bytes * (configuration.units - 1)
    by_channels = configuration.spread is Spread.CHANNELS
    return Passed(
        gathered=gathered if by_channels else 0,
        among_cores=gathered if configuration.core_spread is Spread.CHANNELS else 0,
        senders=configuration.cores if configuration.order is Order.DEPTH_FIRST and not profile.units.are_cores else 1,
        unit_share=plan.unit_share / (configuration.units if by_channels else 1),
        halos=int((plan.units - 1) * sum(plan.borders.values())) if plan.passes_halos else 0,
        reduced=reduced,
    )


def _gathered(plan: TilePlan) -> list[int]:
    """Of each result that is passed on the bytes that those need of each other which make its channels in parts."""
    parts, geometry = _channel_parts(plan), plan.geometry
    if plan.table.channels_are_free or parts == 1:
        return []
    kept, passed, size = plan.kept_names, passed_parts(geometry, parts), geometry.facts.tensor_bytes
    found = []
    for op in geometry.ops:
        part = 1.0 if op.channel_axis is not None and op.output in kept else passed[op.index]
        if part:
            found.append(ceil(size(op.output) * part))
    return found


def _startup_cycles(plan: TilePlan, profile: Profile) -> float:
    """Start-ups of DRAM transfers that nothing hides: of the first load and the last store, or of every tile's."""
    tiles = 1 if plan.configuration.double_buffered else plan.rounds * plan.configuration.channel_slices
    return 2 * tiles * dram_startup_cycles(profile)


def _onchip_pj(plan: TilePlan, profile: Profile, moved: float, exchanged: float) -> float:
    """Energy of bytes between SRAM and cores, and between units."""
    units, link = profile.units, profile.engines.link
    each = units.memory.read_pj_per_byte + units.memory.write_pj_per_byte
    if units.are_cores:
        return exchanged * (each + (link.pj_per_byte_hop if link is not None else 0.0))
    ends = plan.delivered_bytes() + plan.geometry.output_bytes
    return (moved + ends + 2 * exchanged) * each / 2


def _depth(plan: TilePlan, profile: Profile) -> int:
    """Passes of the array for a sum of the group's product; 0 without one."""
    product = plan.geometry.product
    array = None if product is None else profile.matrix.arrays.get(product.dtype)
    if product is None or product.matrix is None or array is None:
        return 0
    spread = plan.configuration.spread is Spread.INPUT_CHANNELS
    parts = plan.configuration.input_slices * (plan.configuration.units if spread else 1)
    return depth_passes(product.matrix, parts, array.c)


def _channel_parts(plan: TilePlan) -> int:
    configuration = plan.configuration
    parts = configuration.units if configuration.spread is Spread.CHANNELS else 1
    return parts * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)
