"""What a tiled group moves and computes: the bridge from tiling to price."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np

from compiler.cost.model import LevelBytes, Traffic
from compiler.cost.rates import mac_energy_pj, op_cycles, reads_are_shared
from compiler.ops.facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import ConfiguredWeights
from compiler.tiling.core import CoreTile
from compiler.tiling.figures import Figures
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Configuration, Mode, OpWeights, Order, Spread, Tiling, WeightLoads
from compiler.units import ceil_div


@dataclass(frozen=True, kw_only=True)
class TilePlan:
    """A group under one configuration with its SRAM tile chosen."""

    geometry: GroupGeometry
    table: SizeTable
    configuration: Configuration
    tile: Mapping[str, int]
    weights: ConfiguredWeights

    @cached_property
    def positions(self) -> dict[str, int]:
        """The tile's place among the candidates of each axis."""
        return self.table.positions(self.tile)

    @cached_property
    def tiles(self) -> int:
        """SRAM tiles, channel slices apart."""
        return self.table.tile_count(self.tile)

    @property
    def units(self) -> int:
        """Units that have work."""
        if self.configuration.spread is Spread.CHANNELS:
            return self.configuration.units
        return min(self.configuration.units, self.tiles)

    @property
    def rounds(self) -> int:
        """Tiles that one unit does one after another."""
        if self.configuration.spread is Spread.CHANNELS:
            return self.tiles
        return ceil_div(self.tiles, self.configuration.units)

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
        """Bytes of all inputs as they arrive at the units: under a channel spread whole inputs reach every unit."""
        if self.configuration.spread is not Spread.CHANNELS:
            return self.loaded_bytes()
        return sum(
            self.input_bytes(name) * (1 if self._is_divided(name) else self.configuration.units)
            for name in self.geometry.inputs
        )

    def _is_divided(self, name: str) -> bool:
        return self.table.channels_are_free and self.table.follows(name, "C")

    def loaded_bytes(self) -> int:
        """Bytes of all inputs over all tiles, halos and re-reads included (FUSE-11)."""
        return sum(map(self.input_bytes, self.geometry.inputs))

    def needed_bytes(self) -> int:
        """Bytes of the part of the inputs that the outputs need, once."""
        whole = self.table.positions({})
        return sum(self.table.largest_bytes(name, whole) for name in self.geometry.inputs)

    def weights_are_resident(self, memory_bytes: float) -> bool:
        """True if all weights of the group stay in the cores while its tiles pass."""
        return self._slice_stays(memory_bytes) and self.configuration.channel_slices == 1

    def _slice_stays(self, memory_bytes: float) -> bool:
        """True if one slice of all ops' weights stays in the cores while all tiles pass."""
        return int(self.weights.held.sum()) <= memory_bytes

    def op_weights(self, profile: Profile, memory_bytes: float) -> tuple[OpWeights, ...]:
        """How each op's weights are read from DRAM (SPEC section 5.1, weight loads)."""
        if profile.is_stationary:
            return tuple(
                OpWeights(op=op.index, size_bytes=op.weight_bytes, kind=WeightLoads.STATIONARY, loads=0)
                for op in self.geometry.ops
                if op.weight_bytes
            )
        return self.weight_reads(profile, memory_bytes)

    def weight_reads(self, profile: Profile, memory_bytes: float) -> tuple[OpWeights, ...]:
        """How often each op's weights are brought to where they are used: from DRAM, or from the peers' memories."""
        configuration = self.configuration
        shared = reads_are_shared(profile) or configuration.spread is Spread.CHANNELS
        copies = 1 if shared else self.units
        if self.weights_are_resident(memory_bytes):
            kind, loads = WeightLoads.RESIDENT, copies
        elif self.rounds == 1 or (configuration.slices_outer and self._slice_stays(memory_bytes)):
            kind, loads = WeightLoads.ONCE_THROUGH, copies
        else:
            kind, loads = WeightLoads.STREAMED, copies * self.rounds
        if loads > 1 and kind is WeightLoads.ONCE_THROUGH:
            kind = WeightLoads.STREAMED
        return tuple(
            OpWeights(op=op.index, size_bytes=op.weight_bytes, kind=kind, loads=loads)
            for op in self.geometry.ops
            if op.weight_bytes
        )

    def dram_bytes(self, profile: Profile) -> int:
        """DRAM bytes of the group, as the price counts them."""
        inputs = self.loaded_bytes() if reads_are_shared(profile) else self.delivered_bytes()
        # without WRAM the exact room for weights depends on the tile; the capacity is close enough for an estimate
        weights = self.op_weights(profile, profile.weight_memory_bytes)
        outputs = sum(_tensor_bytes(self.geometry.facts, name) for name in self.geometry.outputs)
        return inputs + sum(w.size_bytes * w.loads for w in weights) + outputs

    def exact(self, figures: Figures, core: CoreTile | None, profile: Profile) -> Figures:
        """The figures of the chosen tile once its core tile is known."""
        updated = replace(figures, loaded=self.loaded_bytes(), needed=self.needed_bytes())
        if core is None:
            return replace(updated, core_tile=figures.core_capacity + 1)
        if profile.sram is None:
            return updated
        if self.configuration.order is Order.DEPTH_FIRST:
            updated = replace(
                updated,
                step_inputs=np.array([step.input_bytes for step in core.steps]),
                step_outputs=np.array([step.output_bytes for step in core.steps]),
            )
        return replace(updated, core_tile=core.peak_bytes)


def traffic_of(facts: GraphFacts, plan: TilePlan, core: CoreTile, figures: Figures, profile: Profile) -> Traffic:
    """Bytes per level, cycles and work of a tiled group, for the whole batch."""
    configuration, geometry = plan.configuration, plan.geometry
    by_channels = configuration.spread is Spread.CHANNELS
    shared = reads_are_shared(profile)
    weight_reads = sum(w.size_bytes * w.loads for w in plan.weight_reads(profile, _memory(figures)))
    weight_bytes = 0 if profile.is_stationary else weight_reads
    loaded = plan.loaded_bytes()
    copied = plan.delivered_bytes()
    inputs = loaded if shared else copied
    outputs = sum(_tensor_bytes(facts, name) for name in geometry.outputs)
    repeats = plan.rounds * configuration.channel_slices
    lanes = plan.units * configuration.cores * repeats
    core_in = sum(step.total_input_bytes for step in core.steps)
    core_out = sum(
        step.total_elements * facts.tensors[op.output].element_bytes
        for op, step in zip(geometry.ops, core.steps, strict=True)
    )
    # weights reach every unit; a unit that was not the reader gets them from a neighbour
    weight_copies = weight_reads if by_channels or not shared else weight_reads * plan.units
    if plan.weights.in_place:
        weight_copies = 0
    onto_cores = core_in if configuration.order is Order.BREADTH_FIRST else _entering(geometry, core)
    gathered = _gathered(facts, plan)
    gathers_on_chip = configuration.core_spread is Spread.CHANNELS
    passed_on = gathered * (plan.units - 1) if by_channels else 0
    # what several cores need of the SRAM is read once and broadcast
    broadcasts = configuration.core_spread is Spread.CHANNELS and profile.engines.bus is not None
    from_sram = ceil_div(onto_cores, configuration.cores) if broadcasts else onto_cores
    off_cores = core_out if configuration.order is Order.BREADTH_FIRST else outputs
    core_weights = weight_copies * (configuration.cores if configuration.core_spread is Spread.BANDS else 1)
    macs, vector_ops, mac_energy = _work(geometry, core, profile)
    weight_level = LevelBytes(
        read=int(plan.weights.held.sum()) * max(step.pieces for step in core.steps) * lanes,
        written=core_weights,
    )
    tiles = plan.tiles * configuration.channel_slices
    with_sram = profile.sram is not None
    shares = profile.wram is None
    return Traffic(
        input_bytes=inputs,
        weight_bytes=weight_bytes,
        output_bytes=outputs,
        first_load_bytes=ceil_div(inputs * min(plan.units, tiles), tiles),
        last_store_bytes=ceil_div(outputs * min(plan.units, tiles), tiles),
        units=plan.units,
        overlapped=configuration.double_buffered or repeats == 1,
        exposed_transfers=1 if configuration.double_buffered else repeats,
        sram=LevelBytes(
            read=from_sram + weight_copies + outputs + (gathered * plan.units if broadcasts else 0),
            written=copied + weight_copies + off_cores + (gathered * plan.units if gathers_on_chip else 0),
        )
        if with_sram
        else LevelBytes(),
        nram=LevelBytes(
            read=core_in + off_cores + (weight_level.read if shares else 0),
            written=core_out + onto_cores + (weight_level.written if shares else 0),
        ),
        wram=LevelBytes() if shares else weight_level,
        exchanged_bytes=(copied - loaded if shared else 0) + (weight_copies - weight_bytes) + passed_on,
        broadcast_bytes=from_sram + gathered * plan.units if broadcasts else 0,
        compute_cycles=repeats
        * sum(
            op_cycles(op, step.work, profile) * step.pieces for op, step in zip(geometry.ops, core.steps, strict=True)
        ),
        macs=macs,
        mac_energy_pj=mac_energy,
        vector_ops=vector_ops,
    )


def _gathered(facts: GraphFacts, plan: TilePlan) -> int:
    """Bytes of intermediates whose channels different units or cores made and all of them need whole."""
    if plan.table.channels_are_free:
        return 0
    kept = [op.output for op in plan.geometry.ops if op.output != plan.geometry.primary]
    return sum(_tensor_bytes(facts, name) for name in kept)


def _memory(figures: Figures) -> float:
    if isinstance(figures.weight_memory, np.ndarray):
        raise TypeError("figures of one tile are wanted")
    return figures.weight_memory


def _entering(geometry: GroupGeometry, core: CoreTile) -> int:
    """Bytes that the steps read which take in an input of the group."""
    entering = set(geometry.inputs)
    return sum(
        step.total_input_bytes
        for op, step in zip(geometry.ops, core.steps, strict=True)
        if any(operand.tensor in entering for operand in op.operands)
    )


def _work(geometry: GroupGeometry, core: CoreTile, profile: Profile) -> tuple[int, int, float]:
    """Multiply-accumulates and vector operations, recomputed halos included, and the energy of the former in pJ."""
    macs = vector_ops = 0
    energy = 0.0
    for op, step in zip(geometry.ops, core.steps, strict=True):
        done = op.macs * step.total_elements
        macs += int(done)
        vector_ops += int(op.vector_ops * step.total_elements)
        energy += float(done) * mac_energy_pj(op, profile)
    return macs, vector_ops, energy


def _tensor_bytes(facts: GraphFacts, name: str) -> int:
    tensor = facts.tensors[name]
    return prod(tensor.shape) * tensor.element_bytes


def finish_tiling(plan: TilePlan, core: CoreTile, figures: Figures, profile: Profile) -> Tiling:
    """The tiling as the plan document shows it."""
    output = plan.geometry.output
    lengths = plan.table.lengths(plan.tile)
    pairs = list(zip(output.axes, output.shape, strict=True))
    return Tiling(
        configuration=plan.configuration,
        mode=Mode.WHOLE_MAP if figures.whole_map else Mode.PARTIAL_MAP,
        axes=output.axes,
        tile=tuple(plan.tile.get(axis, extent) for axis, extent in pairs),
        core_tile=tuple(core.extents.get(axis, extent) for axis, extent in pairs),
        input_tiles=tuple((name, lengths[name]) for name in plan.geometry.inputs),
        tile_bytes=int(figures.inputs),
        tiles=plan.tiles,
        core_tiles=core.count,
        rounds=plan.rounds,
        weights=plan.op_weights(profile, _memory(figures)),
    )
