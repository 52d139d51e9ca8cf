"""All candidate tiles of all configurations of a group, with their figures, as arrays (FUSE-S4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from compiler.cost.array import spatial_lanes
from compiler.ir.box import Ints
from compiler.profile.schema import Profile
from compiler.tiling.configurations import core_share, unit_share
from compiler.tiling.figures import Figures
from compiler.tiling.sizes import Reals, SizeTable, Stage, stages
from compiler.tiling.split import Path, Split
from compiler.tiling.tile import Configuration, Order, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.weights import most_table_bytes, step_weights
from compiler.units import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Bytes [tensor, candidate] that tiles make and that wait for later ones, and what kind of tiles they are.

    `tiles`: how many of them cover what one unit gets.
    """

    volumes: Reals
    waiting: Reals
    whole_map: np.ndarray
    images: Ints
    tiles: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFigures:
    """What a stage's tiles, or those of a split's path, hold in the unit's memory, whatever the depth order.

    Arrays over the candidates.
    """

    stage: Stage | Path
    inputs: Reals
    fresh_inputs: Reals
    outputs: Reals
    peak: Reals
    waiting: Reals
    step_inputs: Reals
    step_outputs: Reals
    whole_map: np.ndarray
    images: Ints
    last: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One configuration's rows in the table of candidates: per stage the begin and end row."""

    configuration: Configuration
    stages: tuple[StageFigures, ...]
    begin: int
    ends: tuple[int, ...]
    weights: ConfiguredWeights

    @property
    def path(self) -> Path | None:
        """The path of a split by steps, which is then the only stage; None under `exact`."""
        stage = self.stages[0].stage
        return stage if isinstance(stage, Path) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredWeights:
    """Per step: weight bytes of one unit and one core with channels cut as configured, and of one slice in a core.

    All of them with the op's address tables, `tables` these alone.
    `in_place`: stationary weights that lie where they are used, so that nothing is staged beside them.
    """

    staged: Ints
    held: Ints
    sliced: Ints
    passing: Ints
    tables: Ints
    in_place: bool = False

    @property
    def room(self) -> ConfiguredWeights:
        """What they take of a unit's and of a core's memory, stationary weights apart."""
        if not self.in_place:
            return self
        only = self.tables
        return ConfiguredWeights(staged=only, held=only, sliced=only, passing=only, tables=only, in_place=True)


class CandidateTable:
    """Every candidate tile of every configuration as one table: rules are then evaluated once for all of them."""

    def __init__(
        self, table: SizeTable, profile: Profile, choices: tuple[Configuration, ...], split: Split | None = None
    ) -> None:
        self.table = table
        self.profile = profile
        self.split = split or Split()
        self.lanes = spatial_lanes(table.geometry.ops, profile)
        self._stages: dict[tuple[object, ...], tuple[StageFigures, ...]] = {}
        self._weights: dict[tuple[object, ...], ConfiguredWeights] = {}
        geometry = table.geometry
        column = {name: index for index, name in enumerate(table.names)}
        reads = [
            (step, column[operand.tensor])
            for step, op in enumerate(geometry.ops)
            for operand in op.operands
            if not operand.constant
        ]
        self._read_steps = np.unique(np.array([step for step, _ in reads], dtype=np.int64), return_index=True)
        self._read_tensors = np.array([tensor for _, tensor in reads], dtype=np.int64)
        self._makes = [column[op.output] for op in geometry.ops]
        self._outputs = [column[name] for name in geometry.outputs or (geometry.primary,)]
        blocks = []
        begin = 0
        for choice in choices:
            found = self._stage_figures(choice)
            ends = tuple(int(n) for n in begin + np.cumsum([len(part.inputs) for part in found]))
            blocks.append(
                Block(configuration=choice, stages=found, begin=begin, ends=ends, weights=self.weights(choice))
            )
            begin = ends[-1]
        self.blocks = tuple(blocks)
        self.rows = begin

    def channel_size(self, choice: Configuration) -> int | None:
        """Output channels in a unit's tile; None if the output has no channel axis."""
        if "C" not in self.table.grids:
            return None
        extent = self.table.grids["C"].extent
        if not self.table.channels_are_free:
            return extent
        return ceil_div(extent, unit_share(choice) * choice.channel_slices)

    def caps(self, choice: Configuration) -> dict[str, int]:
        """The largest tile one unit may get, per axis."""
        caps = {axis: self.table.grids[axis].extent for axis in self.table.axes}
        band = self.table.band_axis
        if choice.spread is Spread.BANDS and band is not None:
            caps[band] = ceil_div(caps[band], choice.units)
        if choice.spread is Spread.IMAGES:
            caps["N"] = ceil_div(caps["N"], choice.units)
        return caps

    def _stage_figures(self, choice: Configuration) -> tuple[StageFigures, ...]:
        caps, channels = self.caps(choice), self.channel_size(choice)
        split = (choice.input_slices, choice.spread is Spread.INPUT_CHANNELS)
        key = (tuple(sorted(caps.items())), channels, choice.channel_slices > 1, split)
        found = self._stages.get(key)
        if found is None:
            sliced, scales = choice.channel_slices > 1, self._scales(choice)
            if self.split.kind == "exact":
                found = tuple(
                    self._of_stage(stage, caps, sliced=sliced, scales=scales)
                    for stage in stages(self.table, caps, channels, self.lanes)
                )
            else:
                path = Path.build(self.table, caps, channels, self.split)
                found = (self._of_path(path, caps, sliced=sliced, scales=scales),)
            self._stages[key] = found
        return found

    def _of_path(self, path: Path, caps: Mapping[str, int], *, sliced: bool, scales: Reals | None) -> StageFigures:
        table = self.table
        volumes, waiting = path.volumes(table), path.waiting(table)
        if scales is not None:
            volumes, waiting = volumes * scales, waiting * scales
        whole = np.ones(path.count, dtype=np.bool_)
        tiles = np.ones(path.count, dtype=np.int64)
        for axis in table.axes:
            tiles *= -(-caps[axis] // table.grids[axis].sizes[path.at[axis]])
            if axis != "N":
                whole &= table.grids[axis].sizes[path.at[axis]] >= caps[axis]
        images = table.grids["N"].sizes[path.at["N"]] if "N" in path.at else np.ones(path.count, dtype=np.int64)
        held = _Held(volumes=volumes, waiting=waiting, whole_map=whole, images=images, tiles=tiles)
        return self._figures_of(path, held, sliced=sliced)

    def _scales(self, choice: Configuration) -> Reals | None:
        """By tensor, what an input-channel split makes of its bytes; None if there is no such split."""
        tile = {axis: grid.extent for axis, grid in self.table.grids.items()}
        group = TiledGroup(self.table.geometry, self.profile, choice, tile)
        if group.input_parts == 1:
            return None
        return np.array([[float(group.split_share(name))] for name in self.table.names])

    def _of_stage(self, stage: Stage, caps: Mapping[str, int], *, sliced: bool, scales: Reals | None) -> StageFigures:
        volumes = self.table.volumes(stage.at, stage.axis, stage.count)
        waiting = self.table.waiting(stage.at, stage.axis, stage.count)
        if scales is not None:
            volumes, waiting = volumes * scales, waiting * scales
        count = volumes.shape[1]
        whole = np.ones(count, dtype=np.bool_)
        for axis in self.table.axes:
            if axis != "N":
                sizes = self.table.grids[axis].sizes
                whole &= (sizes[:count] if axis == stage.axis else sizes[stage.at[axis]]) >= caps[axis]
        images = self.table.grids["N"].sizes[:count] if stage.axis == "N" else np.ones(count, dtype=np.int64)
        # a unit whose only tile this is has nothing to stage behind it
        tiles = np.ones(count, dtype=np.int64)
        for axis in self.table.axes:
            sizes = self.table.grids[axis].sizes
            tiles = tiles * -(-caps[axis] // (sizes[:count] if axis == stage.axis else sizes[stage.at[axis]]))
        held = _Held(volumes=volumes, waiting=waiting, whole_map=whole, images=images, tiles=tiles)
        return self._figures_of(stage, held, sliced=sliced)

    def _figures_of(self, stage: Stage | Path, held: _Held, *, sliced: bool) -> StageFigures:
        geometry = self.table.geometry
        volumes, waiting = held.volumes, held.waiting
        return StageFigures(
            stage=stage,
            last=held.tiles == 1,
            inputs=(volumes + waiting)[: len(geometry.inputs)].sum(axis=0),
            fresh_inputs=volumes[: len(geometry.inputs)].sum(axis=0),
            waiting=waiting.sum(axis=0),
            outputs=volumes[self._outputs].sum(axis=0),
            peak=geometry.peak(volumes, sliced=sliced, by_runs=self.profile.sram is not None),
            step_inputs=self._read(volumes),
            step_outputs=volumes[self._makes],
            whole_map=held.whole_map,
            images=held.images,
        )

    def _read(self, volumes: Reals) -> Reals:
        """Bytes [step, candidate] that each step reads."""
        # readers ascend, so each step's operands stand side by side
        result = np.zeros((len(self.table.geometry.ops), volumes.shape[1]))
        steps, begins = self._read_steps
        if len(steps):
            result[steps] = np.add.reduceat(volumes[self._read_tensors], begins, axis=0)
        return result

    def weights(self, choice: Configuration) -> ConfiguredWeights:
        """The weights of each step under a configuration, compressed as the profile says."""
        split = (choice.input_slices, choice.spread is Spread.INPUT_CHANNELS)
        key = (unit_share(choice), core_share(choice), choice.channel_slices, choice.order, split, len(choice.halo))
        found = self._weights.get(key)
        if found is None:
            tile = {axis: grid.extent for axis, grid in self.table.grids.items()}
            if "C" in tile:
                tile["C"] = self.channel_size(choice) or tile["C"]
            group = TiledGroup(self.table.geometry, self.profile, choice, tile)
            tables = most_table_bytes(self.table.geometry, self.profile, choice)
            weights = step_weights(self.table.geometry, self.profile, choice, group.slices, group.input_parts, tables)
            found = self._weights[key] = ConfiguredWeights(
                staged=np.array([w.unit_bytes for w in weights], dtype=np.int64),
                held=np.array([w.core_bytes for w in weights], dtype=np.int64),
                sliced=np.array([w.staged_core_bytes for w in weights], dtype=np.int64),
                passing=np.array([w.passing_core_bytes for w in weights], dtype=np.int64),
                tables=np.array([w.table_bytes for w in weights], dtype=np.int64),
                in_place=group.weights_in_place,
            )
        return found

    def figures(self) -> Figures:
        """The figures of all candidates; core tiles are not known yet and pass."""
        profile = self.profile
        on_core = profile.sram is None
        parts = [part for block in self.blocks for part in block.stages]
        spans = [block.ends[-1] - block.begin for block in self.blocks]

        def per_block(values: list[bool]) -> np.ndarray:
            return np.repeat(np.array(values), spans)

        def steps(values: list[Ints]) -> np.ndarray:
            return np.repeat(np.stack(values, axis=1), spans, axis=1)

        inputs = np.concatenate([part.inputs for part in parts])
        outputs = np.concatenate([part.outputs for part in parts])
        waiting = np.concatenate([part.waiting for part in parts])
        live = np.concatenate([part.peak for part in parts]) + waiting
        nested = per_block([b.configuration.order is Order.DEPTH_FIRST for b in self.blocks])
        in_sram = per_block([b.configuration.weights_in_sram for b in self.blocks])
        buffered = per_block([b.configuration.double_buffered for b in self.blocks])
        buffered &= ~np.concatenate([part.last for part in parts])
        held = steps([block.weights.room.held for block in self.blocks])
        passing = steps([block.weights.room.passing for block in self.blocks])
        sliced = steps([block.weights.room.sliced for block in self.blocks])
        staged = sliced if on_core else steps([block.weights.room.staged for block in self.blocks])
        in_unit = np.where(in_sram, staged.sum(axis=0), 0)
        step_inputs = np.concatenate([part.step_inputs for part in parts], axis=1)
        step_outputs = np.concatenate([part.step_outputs for part in parts], axis=1)
        if profile.sram is not None and profile.sram.weight_bytes is not None:
            staged = np.zeros_like(staged)  # weights are staged in a part of their own
            in_unit = np.zeros_like(in_unit)
        elif not on_core:
            # slices pass through the SRAM; only what waits there takes room for whole ops
            staged = np.where(in_sram, staged, np.minimum(staged, sliced * profile.cores_per_cluster))
            # what does not wait in the cores passes through here op by op
            waits = in_sram | (held.sum(axis=0) <= profile.weight_memory_bytes)
            in_unit = np.where(waits, in_unit, staged.max(axis=0, initial=0))
        if not on_core:
            # depth-first: the weights are in the cores before the first tile comes, steps work on core tiles
            staged = np.where(nested, 0, staged)
            step_inputs = np.where(nested, 0, step_inputs)
            step_outputs = np.where(nested, 0, step_outputs)
        in_place = self.table.geometry.is_in_place
        ends = np.maximum(inputs, outputs) if in_place else inputs + outputs
        peak = (live if on_core else np.where(nested, ends, live)) + in_unit
        staging = np.where(buffered, np.concatenate([part.fresh_inputs for part in parts]), 0)
        memory = np.full(len(inputs), float(profile.weight_memory_bytes))
        if profile.weights_share_activations and on_core:
            memory -= peak + staging
        needed = np.where(nested & ~in_sram, held.sum(axis=0), passing.max(axis=0, initial=0))
        return Figures(
            whole_map=np.concatenate([part.whole_map for part in parts]),
            capacity=profile.nram.capacity_bytes if profile.sram is None else profile.sram.capacity_bytes,
            inputs=inputs,
            outputs=outputs,
            staging=staging,
            shared=in_place,
            step_inputs=step_inputs,
            step_outputs=step_outputs,
            step_weights=staged,
            core_weights=sliced,
            weight_memory=memory,
            needed_weights=needed,
            core_tile=peak if on_core else np.zeros(len(inputs)),
            core_capacity=profile.nram.capacity_bytes,
            sram_is_all_nram=profile.sram is not None
            and profile.sram.capacity_bytes == profile.cores_per_cluster * profile.nram.capacity_bytes,
            images=np.concatenate([part.images for part in parts]),
            loaded=np.zeros(len(inputs)),
            needed=1,
            peak=peak,
        )
