"""All candidate tiles of all configurations of a group, with their figures, as arrays (FUSE-S4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

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

    @property
    def count(self) -> int:
        """Number of candidates."""
        return len(self.inputs)


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
    held_bytes: int
    in_place: bool = False

    @property
    def room(self) -> ConfiguredWeights:
        """What they take of a unit's and of a core's memory, stationary weights apart."""
        if not self.in_place:
            return self
        only = self.tables
        total = int(only.sum())
        return ConfiguredWeights(
            staged=only, held=only, sliced=only, passing=only, tables=only, held_bytes=total, in_place=True
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownFigures:
    """Of one group under one profile: stages' figures by table and what decides them, and weights."""

    stages: dict[tuple[object, ...], tuple[StageFigures, ...]] = field(default_factory=dict)
    weights: dict[tuple[object, ...], ConfiguredWeights] = field(default_factory=dict)


class CandidateTable:
    """Every candidate tile of every configuration as one table: rules are then evaluated once for all of them."""

    def __init__(
        self,
        table: SizeTable,
        profile: Profile,
        choices: tuple[Configuration, ...],
        split: Split | None = None,
        known: KnownFigures | None = None,
    ) -> None:
        self.table = table
        self.profile = profile
        self.split = split or Split()
        self.lanes = spatial_lanes(table.geometry.ops, profile)
        self._known = known or KnownFigures()
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
            ends = tuple(accumulate((part.count for part in found), initial=begin))[1:]
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

    def _keys(self, choice: Configuration) -> tuple[tuple[object, ...], tuple[object, ...]]:
        """What decides a configuration's stages and its weights."""
        known, key = self.table.candidates.known, ("keys", id(choice), self.table.channels_are_free)
        found: tuple[Configuration, tuple[object, ...], tuple[object, ...]] | None = known.get(key)
        if found is None:
            split = (choice.input_slices, choice.spread is Spread.INPUT_CHANNELS)
            caps, sliced = tuple(sorted(self.caps(choice).items())), choice.channel_slices > 1
            shares = (unit_share(choice), core_share(choice), choice.channel_slices)
            self.table.candidates.projections.held += 1
            # the configuration stands beside the result: an id names it only while it lives
            found = known[key] = (
                choice,
                (caps, self.channel_size(choice), sliced, split),
                (*shares, choice.order, split, len(choice.halo)),
            )
        return found[1:]

    def _stage_figures(self, choice: Configuration) -> tuple[StageFigures, ...]:
        key = (self.table, self.split, self._keys(choice)[0])
        found = self._known.stages.get(key)
        if found is None:
            caps, channels = self.caps(choice), self.channel_size(choice)
            sliced, scales = choice.channel_slices > 1, self._scales(choice)
            if self.split.kind == "exact":
                found = tuple(
                    self._of_stage(stage, caps, sliced=sliced, scales=scales)
                    for stage in stages(self.table, caps, channels, self.lanes)
                )
            else:
                path = Path.build(self.table, caps, channels, self.split)
                found = (self._of_path(path, caps, sliced=sliced, scales=scales),)
            self._known.stages[key] = found
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
        if choice.input_slices == 1 and choice.spread is not Spread.INPUT_CHANNELS:
            return None
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
        whole, images, tiles = self._cut(stage, caps, volumes.shape[1])
        held = _Held(volumes=volumes, waiting=waiting, whole_map=whole, images=images, tiles=tiles)
        return self._figures_of(stage, held, sliced=sliced)

    def _cut(self, stage: Stage, caps: Mapping[str, int], count: int) -> tuple[np.ndarray, Ints, Ints]:
        """Of a stage's tiles: whether they are the whole map, their images, and how many cover what a unit gets."""
        known, key = self.table.candidates.known, ("cut", *caps.items(), stage.axis, count, *stage.at.items())
        found: tuple[np.ndarray, Ints, Ints] | None = known.get(key)
        if found is None:
            whole, around = True, 1
            for axis in self.table.axes:
                if axis != stage.axis:
                    # a unit whose only tile this is has nothing to stage behind it
                    size = int(self.table.grids[axis].sizes[stage.at[axis]])
                    around *= ceil_div(caps[axis], size)
                    whole &= axis == "N" or size >= caps[axis]
            ones = np.ones(count, dtype=np.int64)
            found = np.full(count, whole), ones, around * ones
            if stage.axis is not None:
                sizes = self.table.grids[stage.axis].sizes[:count]
                images = sizes if stage.axis == "N" else ones
                along = found[0] if stage.axis == "N" else found[0] & (sizes >= caps[stage.axis])
                found = along, images, around * -(-caps[stage.axis] // sizes)
            known[key] = found
        return found

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
        key = self._keys(choice)[1]
        found = self._known.weights.get(key)
        if found is None:
            tile = {axis: grid.extent for axis, grid in self.table.grids.items()}
            if "C" in tile:
                tile["C"] = self.channel_size(choice) or tile["C"]
            group = TiledGroup(self.table.geometry, self.profile, choice, tile)
            tables = most_table_bytes(self.table.geometry, self.profile, choice)
            weights = step_weights(self.table.geometry, self.profile, choice, group.slices, group.input_parts, tables)
            found = self._known.weights[key] = ConfiguredWeights(
                staged=np.array([w.unit_bytes for w in weights], dtype=np.int64),
                held=np.array([w.core_bytes for w in weights], dtype=np.int64),
                sliced=np.array([w.staged_core_bytes for w in weights], dtype=np.int64),
                passing=np.array([w.passing_core_bytes for w in weights], dtype=np.int64),
                tables=np.array([w.table_bytes for w in weights], dtype=np.int64),
                held_bytes=sum(w.core_bytes for w in weights),
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

        def steps(values: list[Ints]) -> Ints:
            return np.stack(values, axis=1)

        inputs = np.concatenate([part.inputs for part in parts])
        outputs = np.concatenate([part.outputs for part in parts])
        waiting = np.concatenate([part.waiting for part in parts])
        live = np.concatenate([part.peak for part in parts]) + waiting
        nested = per_block([b.configuration.order is Order.DEPTH_FIRST for b in self.blocks])
        buffered = per_block([b.configuration.double_buffered for b in self.blocks])
        buffered &= ~np.concatenate([part.last for part in parts])
        # weights are the same for all rows of a block
        blocks_nested = np.array([b.configuration.order is Order.DEPTH_FIRST for b in self.blocks])
        in_sram = np.array([b.configuration.weights_in_sram for b in self.blocks])
        held = steps([block.weights.room.held for block in self.blocks]).sum(axis=0)
        passing = steps([block.weights.room.passing for block in self.blocks]).max(axis=0, initial=0)
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
            waits = in_sram | (held <= profile.weight_memory_bytes)
            in_unit = np.where(waits, in_unit, staged.max(axis=0, initial=0))
        if not on_core:
            # depth-first: the weights are in the cores before the first tile comes, steps work on core tiles
            staged = np.where(blocks_nested, 0, staged)
            step_inputs[:, nested] = 0
            step_outputs[:, nested] = 0
        needed = np.repeat(np.where(blocks_nested & ~in_sram, held, passing), spans)
        in_unit = np.repeat(in_unit, spans)
        in_place = self.table.geometry.is_in_place
        ends = np.maximum(inputs, outputs) if in_place else inputs + outputs
        peak = (live if on_core else np.where(nested, ends, live)) + in_unit
        staging = np.where(buffered, np.concatenate([part.fresh_inputs for part in parts]), 0)
        memory = np.full(len(inputs), float(profile.weight_memory_bytes))
        if profile.weights_share_activations and on_core:
            memory -= peak + staging
        return Figures(
            whole_map=np.concatenate([part.whole_map for part in parts]),
            capacity=profile.nram.capacity_bytes if profile.sram is None else profile.sram.capacity_bytes,
            inputs=inputs,
            outputs=outputs,
            staging=staging,
            shared=in_place,
            step_inputs=step_inputs,
            step_outputs=step_outputs,
            step_weights=np.repeat(staged, spans, axis=1),
            core_weights=np.repeat(sliced, spans, axis=1),
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
