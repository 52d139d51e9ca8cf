"""A quick estimate of every configuration's price, as arrays: it orders them, exact prices decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from compiler.cost.array import depth_passes
from compiler.cost.objective import Totals
from compiler.cost.rates import (
    dram_port_bytes_per_cycle,
    dram_startup_cycles,
    dram_transfer_cycles,
    handed_bytes_per_cycle,
    reads_are_shared,
    waiting_sum_bytes,
)
from compiler.ir.box import Ints
from compiler.lazy import lazy
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import ConfiguredWeights
from compiler.tiling.geometry import GroupGeometry, reads_own_channels
from compiler.tiling.handed import handed_tensors, taken_tensors
from compiler.tiling.op_columns import OpArrays, op_arrays
from compiler.tiling.pace import Passed, awaited_cycles, hidden_transfers, summed_in_turn
from compiler.tiling.same_weights import bytes_again, same_parts, same_weights
from compiler.tiling.sharing import passed_parts
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread, WeightHome
from compiler.tiling.walk import unit_walk
from compiler.tiling.weight_transfers import transfers_of
from compiler.tiling.weights import weight_homes
from compiler.units import ceil_div

# Buffers of a core for an op's weights.
_BUFFERS: Final = 2

Floats = np.ndarray[Any, np.dtype[np.float64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """A group under one configuration with its SRAM tile chosen, as far as an estimate needs it.

    weight_room: bytes of a core's memory that weights may take beside the tile. known: its estimate, once made.
    """

    geometry: GroupGeometry
    table: SizeTable
    configuration: Configuration
    tile: Mapping[str, int]
    weights: ConfiguredWeights
    weight_room: float
    known: dict[str, tuple[float, float, float]] = field(default_factory=dict, init=False)

    def under(self, configuration: Configuration) -> TilePlan:
        """The same tile under another configuration."""
        return TilePlan(
            geometry=self.geometry,
            table=self.table,
            configuration=configuration,
            tile=self.tile,
            weights=self.weights,
            weight_room=self.weight_room,
        )

    @lazy
    def tiles(self) -> int:
        """SRAM tiles, channel slices apart."""
        return self.table.tile_count(self.tile)

    @property
    def units(self) -> int:
        """Units that have work."""
        if self.configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
            return self.configuration.units
        return min(self.configuration.units, self.tiles)

    @lazy
    def rounds(self) -> int:
        """Tiles that one unit does one after another; more where it waits for halos that others pass it."""
        configuration, tiles = self.configuration, self.tiles
        if configuration.spread in (Spread.CHANNELS, Spread.INPUT_CHANNELS):
            return tiles
        waits = self.passes_halos and configuration.spread is Spread.BANDS and tiles > configuration.units
        if waits:
            return unit_walk(self.geometry, configuration, self.tile).rounds
        return ceil_div(tiles, configuration.units)

    @property
    def passes_halos(self) -> bool:
        """Whether units pass each other what the others need."""
        return any(mode is HaloMode.EXCHANGE for _, mode in self.configuration.halo)

    def streamed_bytes(self) -> int:
        """Bytes of weights that find no room in the cores."""
        if self.weights.held_bytes <= int(self.weight_room):
            return 0
        steps = self.weights.steps
        homes = weight_homes(steps, [None] * len(steps), int(self.weight_room), 0)
        return sum(w.size_bytes for w, home in zip(steps, homes, strict=True) if home is WeightHome.DRAM)


class _Plans:
    """Plans of one group over one table of sizes as columns: what an estimate needs beside the work of ops."""

    def __init__(self, plans: Sequence[TilePlan], profile: Profile) -> None:
        self.plans = plans
        self.profile = profile
        self.geometry = plans[0].geometry
        self.table = plans[0].table
        choices = [plan.configuration for plan in plans]
        rows = [
            (c.units, c.cores, c.channel_slices, c.input_slices, plan.tiles, plan.units, plan.rounds)
            for c, plan in zip(choices, plans, strict=True)
        ]
        columns = np.array(rows, dtype=np.int64).T
        self.of_chip, self.cores, self.slices, self.input_slices, self.tiles, self.units, self.rounds = columns
        flags = [
            (
                c.spread is Spread.BANDS,
                c.spread is Spread.CHANNELS,
                c.spread is Spread.INPUT_CHANNELS,
                c.core_spread is Spread.CHANNELS,
                c.core_spread is Spread.BANDS,
                c.order is Order.DEPTH_FIRST,
                c.slices_outer,
                c.double_buffered,
                plan.passes_halos,
            )
            for c, plan in zip(choices, plans, strict=True)
        ]
        self.bands, self.channels, self.sums, self.core_channels, self.core_bands, *others = np.array(flags).T
        self.nested, self.outer, self.buffered, self.exchanges = others
        self.sizes = {
            axis: np.array([plan.tile.get(axis, grid.extent) for plan in plans], dtype=np.int64)
            for axis, grid in self.table.grids.items()
        }
        self.at = {axis: self.table.indices(axis, sizes) for axis, sizes in self.sizes.items()}
        self.is_shared = reads_are_shared(profile)
        self.repeats = self.rounds * self.slices
        # what stays on the chip between groups is the same for all plans of a group
        self.taken = taken_tensors(self.geometry, choices[0].handover)
        handed = handed_tensors(self.geometry, choices[0].handover)
        self.output_bytes = self.geometry.output_bytes - sum(map(self.geometry.facts.tensor_bytes, handed))

    @lazy
    def unit_share(self) -> Floats:
        """The part of all positions that the busiest unit makes."""
        output, part = self.geometry.output, np.ones(len(self.plans))
        for axis, extent in zip(output.axes, output.shape, strict=True):
            if axis != "C":
                part = part * np.minimum(1.0, self.sizes[axis] / extent)
        share = np.minimum(1.0, np.maximum(1 / self.units, self.rounds * part))
        return np.where(self.channels | self.sums, 1.0, share)

    @lazy
    def core_share(self) -> Floats:
        """The part of a unit's positions that its busiest core makes."""
        band = self.table.band_axis
        if band is None:
            return np.ones(len(self.plans))
        return np.where(self.core_bands, -(-self.sizes[band] // self.cores) / self.sizes[band], 1.0)

    @lazy
    def has_borders(self) -> Bools:
        """Where a unit's first tiles need of what the unit before made."""
        band = self.table.band_axis
        if band is None or band not in self.table.halo:
            return np.zeros(len(self.plans), dtype=np.bool_)
        return np.asarray(self.bands & (self.units > 1))

    @property
    def _halos(self) -> Ints:
        """Bytes of borders that units pass each other."""
        where = np.flatnonzero(self.has_borders & self.exchanges)
        found, band, table = np.zeros(len(self.plans), dtype=np.int64), self.table.band_axis, self.table
        if len(where) and band is not None:
            sizes = table.constant[:, None] * table.kept[band][:, self.at[band][where]]
            for axis in table.axes:
                if axis != band:
                    sizes = sizes * table.needed[axis][:, -1:]
            found[where] = (self.units[where] - 1) * sizes.sum(axis=0)
        return found

    def _kept(self) -> Bools:
        """Where a halo of an op's result is kept for later tiles [op, plan]."""
        table = self.table
        rows = [table.names.index(op.output) for op in self.geometry.ops]
        found = np.zeros((len(rows), len(self.plans)), dtype=np.bool_)
        for axis, mode in table.halo.items():
            if mode is not HaloMode.RECOMPUTE and axis in table.kept:
                found |= table.kept[axis][rows][:, self.at[axis]] > 0
        return found

    @lazy
    def inputs(self) -> Mapping[str, Ints]:
        """Bytes of each input over all tiles, each box read once; slices of an outer loop read it again."""
        found = {}
        for name in self.geometry.inputs:
            if name in self.taken:
                found[name] = np.zeros(len(self.plans), dtype=np.int64)
                continue
            total = (self.table.totals(name, self.at, len(self.plans)) * self._again(name)).astype(np.int64)
            found[name] = total if self.table.follows(name, "C") else np.where(self.outer, total * self.slices, total)
        return found

    def _again(self, name: str) -> Floats:
        """How often units together make what the tiles make of an input, where each keeps its own halos only."""
        again, band, recomputed = np.ones(len(self.plans)), self.table.band_axis, self.table.recomputed
        if band is None or recomputed is None or not self.table.follows(name, band):
            return again
        places = self.at[band]
        counts = self.table.counts(band)[places]
        where = np.flatnonzero(self.has_borders & ~self.exchanges & (counts > 1))
        if len(where):
            counts, places = counts[where], places[where]
            kept, apart = (table.made_along(name, band)[places] for table in (self.table, recomputed))
            others = (np.minimum(self.units[where], counts) - 1) / (counts - 1)
            again[where] = 1.0 + others * (apart / kept - 1.0)
        return again

    @lazy
    def loaded(self) -> Ints:
        """Bytes of all inputs over all tiles, halos and re-reads included (FUSE-11)."""
        return sum(self.inputs.values(), start=np.zeros(len(self.plans), dtype=np.int64))

    @lazy
    def delivered(self) -> Ints:
        """Bytes of all inputs as they arrive at the units: what does not follow the axis they share out reaches all."""
        again, band, follows = np.zeros(len(self.plans), dtype=np.int64), self.table.band_axis, self.table.follows
        for name, size in self.inputs.items():
            to_all = self.channels if name not in self.divided else np.zeros_like(self.channels)
            if band is not None and not follows(name, band):
                to_all = to_all | self.bands
            again += np.where(to_all, size * (np.where(self.channels, self.of_chip, self.units) - 1), 0)
        return self.loaded + again

    @lazy
    def divided(self) -> frozenset[str]:
        """Inputs that are divided along with the output channels: a part of these needs a part of the input."""
        if not self.table.channels_are_free:
            return frozenset()
        return frozenset(name for name in self.geometry.inputs if self.table.follows(name, "C"))

    @lazy
    def weight_bytes(self) -> Ints:
        """Bytes of weights read from DRAM: once what stays on the chip, for every tile what does not (TILE-6)."""
        if self.profile.is_stationary:
            return np.zeros(len(self.plans), dtype=np.int64)
        plans = self.plans
        parts = self.slices * self.input_slices
        held = np.where(self.outer, self.input_slices, parts)
        room = np.array([plan.weight_room for plan in plans])
        fits = np.array([plan.weights.held_bytes for plan in plans]) * held <= room
        # what waits in the cores does so once
        geometry = self.geometry
        again = tuple(bytes_again(geometry, same(geometry)) for same in (same_weights, same_parts))
        total = geometry.weight_bytes - np.where(fits & (parts == 1), np.where(self.parts == 1, *again), 0)
        # parts wait in the cores if each has a buffer of its own
        waits = (self.rounds == 1) | ((held <= _BUFFERS) & fits)
        in_sram = np.array([plan.configuration.weights_in_sram for plan in plans])
        found = np.where(waits | ((parts == 1) & in_sram), total, total * self.rounds)
        for row in np.flatnonzero(~waits & (parts == 1) & ~in_sram).tolist():
            streamed = plans[row].streamed_bytes()
            found[row] = total[row] - streamed + streamed * self.rounds[row]
        return found if self.is_shared else np.where(self.channels | self.sums, found, found * self.units)

    @lazy
    def dram_bytes(self) -> Ints:
        """DRAM bytes of the group, as the price counts them."""
        return (self.loaded if self.is_shared else self.delivered) + self.weight_bytes + self.output_bytes

    @lazy
    def passed_inputs(self) -> Ints:
        """Bytes of inputs that units hand on to each other."""
        return np.where(self.units > 1, self.delivered - self.loaded, 0) if self.is_shared else 0 * self.loaded

    @lazy
    def passed_weights(self) -> Floats:
        """Bytes of weights that pass between units: read from DRAM once for all of them, or stationary in others."""
        if self.profile.is_stationary:
            moved = float(self.geometry.weight_bytes) * self.rounds * self.units
            return np.where(self.channels & (self.slices == 1), 0.0, moved)
        if not self.is_shared:
            return np.zeros(len(self.plans))
        return np.where(self.channels | self.sums, 0.0, self.weight_bytes.astype(np.float64) * (self.units - 1))

    @lazy
    def parts(self) -> Ints:
        """Into how many parts units and cores cut an op's channels, slices in time apart."""
        return np.where(self.channels, self.of_chip, 1) * np.where(self.core_channels, self.cores, 1)

    def _depth(self, product: OpFacts, lanes: int) -> Ints:
        """Passes of the array for a sum of the group's product, which may be made in parts; 0 without an array."""
        if product.matrix is None or product.dtype not in self.profile.matrix.arrays:
            return np.zeros(len(self.plans), dtype=np.int64)
        sums = self.input_slices * np.where(self.sums, self.of_chip, 1)
        return np.array([depth_passes(product.matrix, parts, lanes) for parts in sums.tolist()])

    @lazy
    def moves(self) -> tuple[Floats, Floats]:
        """Cycles of the busiest engine between SRAM and cores [run, plan], and bytes moved in all.

        Depth-first all runs pass together: all of it stands in the first row.
        """
        runs, mover, bus = self.geometry.runs, self.profile.engines.mvdma, self.profile.engines.bus
        cycles, total = np.zeros((len(runs), len(self.plans))), np.zeros(len(self.plans))
        if self.profile.units.are_cores or mover is None:
            return cycles, total
        facts, cores = self.geometry.facts, np.where(self.core_channels, self.cores, 1)
        copies = np.where(self.channels, self.of_chip, 1)
        on_bus = (cores > 1) if bus is not None else np.zeros_like(self.bands)
        for number, run in enumerate(runs):
            size = float(sum(map(facts.tensor_bytes, run.inputs)))
            drained: float | Floats = float(sum(map(facts.tensor_bytes, run.results)))
            alone = reads_own_channels(self.geometry.ops[run.steps[0]])
            own: float | Floats = size if alone else 0.0
            common: float | Floats = 0.0 if alone else size * copies
            if number == 0:
                divided = sum((self.inputs[name] for name in self.divided), start=np.zeros_like(self.loaded))
                own = np.where(self.nested, divided, own)
                common = np.where(self.nested, self.delivered - divided, common)
                drained = np.where(self.nested, self.output_bytes, drained)
            broadcast = np.where(on_bus, common, 0.0)
            moved = own + drained + np.where(on_bus, 0.0, common * cores)
            each = moved / (mover.bytes_per_cycle * self.units * self.cores)
            if bus is not None:
                each = np.maximum(each, broadcast / (bus.bytes_per_cycle * self.units))
            if number:
                each, moved = np.where(self.nested, 0.0, each), np.where(self.nested, 0.0, moved)
                broadcast = np.where(self.nested, 0.0, broadcast)
            cycles[number] = each
            total += moved + broadcast
        return cycles, total

    @lazy
    def _gathered(self) -> tuple[Ints, Ints]:
        """Bytes that those need of each other which make the channels of results in parts, and of how many results."""
        size, count = (np.zeros(len(self.plans), dtype=np.int64) for _ in range(2))
        if self.table.channels_are_free:
            return size, count
        ops, facts = self.geometry.ops, self.geometry.facts
        sizes = np.array([facts.tensor_bytes(op.output) for op in ops], dtype=np.float64)
        whole = self._kept() & np.array([op.channel_axis is not None for op in ops])[:, None]
        for parts in set(self.parts.tolist()) - {1}:
            passed = passed_parts(self.geometry, parts)
            part = np.where(whole, 1.0, np.array([passed[op.index] for op in ops])[:, None])
            moved, here = np.ceil(sizes[:, None] * part).sum(axis=0), self.parts == parts
            size[here], count[here] = moved[here], (part > 0).sum(axis=0)[here]
        return size, count

    @lazy
    def exchange(self) -> tuple[Floats, Floats]:
        """Cycles in which cores wait between ops for what others made, and bytes that units pass each other."""
        gathered, results = self._gathered
        product, reduced = self.geometry.product, np.zeros(len(self.plans), dtype=np.int64)
        if product is not None:
            sums = (
                self.geometry.facts.tensor_bytes(product.output)
                // self.geometry.facts.tensors[product.output].element_bytes
            )
            reduced = np.where(self.sums, sums * waiting_sum_bytes(product, self.profile) * (self.of_chip - 1), 0)
        halos, between = self._halos, np.where(self.channels, gathered, 0)
        count = self.repeats * np.maximum(1, results)
        share = self.unit_share / np.where(self.channels, self.of_chip, 1)
        awaited, band = np.zeros(len(self.plans)), self.table.band_axis
        # who has one tile only passes halos both ways
        alone = self.table.counts(band)[self.at[band]] <= self.units if band is not None else ~self.bands
        among = np.where(self.core_channels, gathered, 0)
        for row in np.flatnonzero(between + among + halos + reduced).tolist():
            plan = self.plans[row]
            from_cores = self.nested[row] and not self.profile.units.are_cores
            passed = Passed(
                gathered=int(between[row]),
                among_cores=int(among[row]),
                senders=plan.configuration.cores if from_cores else 1,
                apart=bool(from_cores and not self.core_channels[row]),
                unit_share=float(share[row]),
                halos=int(halos[row]),
                ways=2 if alone[row] else 1,
                reduced=int(reduced[row]),
            )
            awaited[row] = awaited_cycles(self.profile, plan.units, plan.configuration.cores, int(count[row]), passed)
        exchanged = self.passed_inputs + self.passed_weights + between * (self.units - 1) + halos + reduced
        return awaited, exchanged

    def _busy(self, compute: Floats, on_cores: Floats) -> Floats:
        """Cycles of all turns and of the last store; in the first turn each op waits for its inputs and weights.

        `compute` [op, plan]: cycles of the ops alone; `on_cores` [plan]: cycles of the stages with waits on the chip.
        """
        tiles = self.tiles * self.slices
        first = np.minimum(self.units, tiles) / tiles
        turns, alone = self.repeats, 1 if self.is_shared else np.where(self.channels | self.sums, 1, self.units)
        pairs = zip(self.geometry.ops, same_weights(self.geometry), strict=True)
        comes = [0 if self.profile.is_stationary or same is not None else op.weight_bytes for op, same in pairs]
        weights = np.array(comes)
        come = self.loaded * first + np.cumsum(weights[:, None] * alone / (self.slices * self.input_slices), axis=0)
        whole = compute.sum(axis=0)
        # if no op computes, all have equal parts of the cycles
        each = np.where(whole > 0, compute / np.where(whole > 0, whole, 1.0), 1 / len(compute))
        left = np.cumsum(each[::-1], axis=0)[::-1] * (on_cores / turns)
        split = self.cores, self.core_channels, self.units, self.channels | self.sums
        loads = np.cumsum(transfers_of(self.geometry.ops, self.profile, *split) * (weights > 0)[:, None], axis=0)
        come = np.maximum(come / self.rate, (loads - 1) * dram_startup_cycles(self.profile))
        filled = (come + left).max(axis=0)
        hidden = filled + on_cores * (turns - 1) / turns + self.output_bytes * first / self.rate
        hidden = np.where(turns > 1, np.maximum(hidden, self.dram_bytes / self.rate + on_cores / turns), hidden)
        return np.where(self.buffered | (turns == 1), hidden, on_cores + self.dram_bytes / self.rate)

    @lazy
    def rate(self) -> Floats:
        """DRAM bytes per cycle."""
        return np.array([dram_port_bytes_per_cycle(self.profile, units) for units in self.units.tolist()])

    @lazy
    def transfers(self) -> Floats:
        """Cycles of DRAM transfers."""
        columns = (self.units, self.dram_bytes, self.repeats, self.sums)
        rows = zip(self.plans, *(column.tolist() for column in columns), strict=True)
        return np.array(
            [
                dram_transfer_cycles(
                    self.profile,
                    units,
                    dram,
                    hidden_transfers(self.geometry, plan.configuration, repeats),
                    in_turn=summed_in_turn(plan.configuration, repeats, 2) if shares_sums else 1.0,
                )
                for plan, units, dram, repeats, shares_sums in rows
            ]
        )

    @lazy
    def startup(self) -> Floats:
        """Start-ups of DRAM transfers that nothing hides: of the first load and the last store, or of every tile's."""
        return 2 * np.where(self.buffered, 1, self.repeats) * dram_startup_cycles(self.profile)

    @property
    def onchip_pj(self) -> Floats:
        """Energy of bytes between SRAM and cores, and between units."""
        units, link, exchanged = self.profile.units, self.profile.engines.link, self.exchange[1]
        each = units.memory.read_pj_per_byte + units.memory.write_pj_per_byte
        if units.are_cores:
            return exchanged * (each + (link.pj_per_byte_hop if link is not None else 0.0))
        ends = self.delivered + self.output_bytes
        return (self.moves[1] + ends + 2 * exchanged) * each / 2

    def totals(self, ops: OpArrays) -> tuple[Ints, Floats, Floats]:
        """DRAM bytes, cycles and energy, added up as the price does it (`cost/model.py`)."""
        profile = self.profile
        handing = np.array([handed_bytes_per_cycle(profile, units) for units in self.units.tolist()])
        passing = self.passed_inputs / handing
        compute = self._compute(ops)
        on_cores = self._stage_cycles(compute, self.passed_weights / handing) + self.exchange[0]
        busy = self._busy(compute, on_cores)
        read = self.dram_bytes - self.output_bytes
        through = (read / self.rate + (self.passed_inputs + self.passed_weights) / handing + on_cores) / 2
        cycles = np.maximum(np.maximum(self.transfers, passing), np.maximum(busy, through)) + self.startup
        energy = self.dram_bytes * profile.dram.read_pj_per_byte + self.onchip_pj
        return self.dram_bytes, cycles, energy + profile.static_w * cycles / profile.clock_hz * 1e12

    def _compute(self, ops: OpArrays) -> Floats:
        """Cycles of the busiest core [op, plan]: an op's work is that on its whole map, without halos."""
        lanes, share = self.profile.vector.lanes, self.unit_share * self.core_share
        mine = np.ceil(ops.channels[:, None] / (self.parts * self.slices))
        per_group, k = ops.per_group[:, None], ops.lanes_k[:, None]
        groups = np.ceil(mine / per_group)
        depth = np.repeat(ops.depth[:, None], len(self.plans), axis=1)
        product = self.geometry.product
        if product is not None:
            row = self.geometry.ops.index(product)
            depth[row] = self._depth(product, int(ops.lanes_c[row]))
        pixels = ops.pixels[:, None] * share
        matrix = groups * np.ceil(np.minimum(mine / groups, per_group) / k) * depth * pixels * self.slices
        on_lanes = ops.lane_operations[:, None] * share / self.parts / lanes
        compute = np.where(ops.is_matrix[:, None], np.minimum(matrix, on_lanes), 0.0)
        return compute + ops.vector_operations[:, None] * share / self.parts / lanes

    def _stage_cycles(self, compute: Floats, weights: Floats) -> Floats:
        """Cycles of the stages, one after the other: the most of work and moves of each; `weights`: of handing them on.

        Depth-first and in the cores' own memories all ops are one stage.
        """
        moves = self.moves[0]
        together = np.maximum(np.maximum(compute.sum(axis=0), moves[0]), weights)
        if len(moves) == 1 or self.profile.units.are_cores or self.profile.engines.mvdma is None:
            return np.asarray(together)
        by_run = np.add.reduceat(compute, [run.steps[0] for run in self.geometry.runs], axis=0)
        one_by_one = np.ascontiguousarray(np.maximum(by_run, moves).T).sum(axis=1)
        return np.asarray(np.where(self.nested, together, one_by_one))


def estimates(plans: Sequence[TilePlan], profile: Profile) -> Totals:
    """DRAM bytes, cycles and energy of each plan of a group, estimated; arrays over plans."""
    by_table: dict[SizeTable, list[TilePlan]] = {}
    for plan in plans:
        if not plan.known:
            by_table.setdefault(plan.table, []).append(plan)
    for table, some in by_table.items():
        columns = _Plans(some, profile).totals(op_arrays(table, profile))
        for plan, *found in zip(some, *(column.tolist() for column in columns), strict=True):
            dram, cycles, energy = found
            plan.known["totals"] = dram, cycles, energy
    figures = np.array([plan.known["totals"] for plan in plans])
    return Totals(dram_bytes=figures[:, 0], cycles=figures[:, 1], energy_pj=figures[:, 2])
