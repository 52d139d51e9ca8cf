"""All candidate tiles of all configurations of a group, with their figures, as arrays (FUSE-S4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from compiler.cost.array import spatial_lanes
from compiler.lazy import lazy
from compiler.profile.schema import Profile
from compiler.tiling.configurations import core_share, unit_share
from compiler.tiling.figures import Figures
from compiler.tiling.ranges import Reals
from compiler.tiling.rows import RowFigures, StagePart, StageRows, gathered, rows_of
from compiler.tiling.sizes import SizeTable, Stage, stages
from compiler.tiling.split import Path, Split
from compiler.tiling.tile import Configuration, Order, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.weights import StepWeights, line_bytes, most_table_bytes, step_weights
from compiler.units import ceil_div

# What decides figures that configurations have in common.
_Key = tuple[object, ...]


class Block(NamedTuple):
    """One configuration's rows in the table of candidates: per stage the begin and end row."""

    configuration: Configuration
    stages: tuple[StageRows, ...]
    begin: int
    ends: tuple[int, ...]
    weights: ConfiguredWeights

    @property
    def path(self) -> Path | None:
        """The path of a split by steps, which is then the only stage; None under `exact`."""
        stage = self.stages[0].stage
        return stage if isinstance(stage, Path) else None


def last_holding(block: Block, holds: np.ndarray, below: int | None = None) -> int | None:
    """The largest tile of the first stage in which any holds; with `below`, only rows after that one's stage half.

    Tiles that fill the array's lanes come first.
    """
    if not holds[block.begin : block.ends[-1]].any():
        return None
    for evenly in (True, False):
        begin = block.begin
        for part, end in zip(block.stages, block.ends, strict=True):
            stop = end
            if below is not None and begin <= below < end:
                stop = begin + ceil_div(below - begin, 2)
            if below is None or (stop > begin and end > below):
                allowed = holds[begin:stop]
                rows = (allowed & part.stage.even[: stop - begin] if evenly else allowed).nonzero()[0]
                if len(rows):
                    return begin + int(rows[-1])
            begin = end
    return None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConfiguredWeights:
    """Weights with channels cut as configured, step by step.

    `room`: bytes [step, figure] that they take, with the op's address tables: of one unit and of one core, of one slice
    in a core, and of what a core holds while they pass. Of stationary weights that lie where they are used these tables
    alone: nothing is staged beside them. `line_bytes`: what of the SRAM is kept for them to pass.
    """

    room: tuple[tuple[int, ...], ...]
    held_bytes: int
    line_bytes: int
    steps: tuple[StepWeights, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KnownFigures:
    """Of one group under one profile and split: stages' figures by table and what decides them, and weights."""

    stages: dict[SizeTable, dict[_Key, tuple[StageRows, ...]]] = field(default_factory=dict)
    weights: dict[_Key, ConfiguredWeights] = field(default_factory=dict)


def channel_size(table: SizeTable, configuration: Configuration) -> int | None:
    """Output channels in a unit's tile; None if the output has no channel axis."""
    if "C" not in table.grids:
        return None
    extent = table.grids["C"].extent
    if not table.channels_are_free:
        return extent
    return ceil_div(extent, unit_share(configuration) * configuration.channel_slices)


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
        keys = [self._keys(choice) for choice in choices]
        stages_of = self._known.stages.setdefault(table, {})
        self._work_out(choices, keys, stages_of)
        blocks = []
        begin = 0
        for choice, (of_stages, of_weights) in zip(choices, keys, strict=True):
            found = stages_of[of_stages]
            ends = tuple(accumulate([part.rows for part in found], initial=begin))[1:]
            weights = self.weights(choice, of_weights)
            blocks.append(Block(configuration=choice, stages=found, begin=begin, ends=ends, weights=weights))
            begin = ends[-1]
        self.blocks = tuple(blocks)
        self.rows = begin

    def caps(self, choice: Configuration) -> dict[str, int]:
        """The largest tile one unit may get, per axis."""
        caps = {axis: self.table.grids[axis].extent for axis in self.table.axes}
        band = self.table.band_axis
        if choice.spread is Spread.BANDS and band is not None:
            caps[band] = ceil_div(caps[band], choice.units)
        if choice.spread is Spread.IMAGES:
            caps["N"] = ceil_div(caps["N"], choice.units)
        return caps

    def _keys(self, choice: Configuration) -> tuple[_Key, _Key]:
        """What decides a configuration's stages and its weights."""
        split = (choice.input_slices, choice.spread is Spread.INPUT_CHANNELS)
        # what decides the largest tile of a unit
        cut = (choice.spread, choice.units) if choice.spread in (Spread.BANDS, Spread.IMAGES) else None
        shares = (unit_share(choice), core_share(choice), choice.channel_slices)
        of_stages = (cut, channel_size(self.table, choice), choice.channel_slices > 1, split)
        return of_stages, (*shares, choice.order, split, len(choice.halo))

    def _work_out(
        self,
        choices: tuple[Configuration, ...],
        keys: list[tuple[_Key, _Key]],
        known: dict[_Key, tuple[StageRows, ...]],
    ) -> None:
        """The figures of all stages that are not known yet, at once."""
        found: dict[_Key, list[StagePart]] = {}
        for choice, (key, _) in zip(choices, keys, strict=True):
            if key not in known and key not in found:
                found[key] = self._parts(choice)
        parts = [part for these in found.values() for part in these]
        if not parts:
            return
        rows = iter(rows_of(self.table, parts, by_runs=not self.profile.units.are_cores))
        for key, these in found.items():
            known[key] = tuple([next(rows) for _ in these])

    def _parts(self, choice: Configuration) -> list[StagePart]:
        """A configuration's stages, or the path of its split by steps."""
        caps, channels = self.caps(choice), channel_size(self.table, choice)
        sliced, scales = choice.channel_slices > 1, self._scales(choice)
        found: tuple[Stage | Path, ...]
        if self.split.kind == "exact":
            found = stages(self.table, caps, channels, self.lanes)
        else:
            found = (Path.build(self.table, caps, channels, self.split),)
        return [StagePart(stage=stage, caps=caps, sliced=sliced, scales=scales) for stage in found]

    def _scales(self, choice: Configuration) -> Reals | None:
        """By tensor, what an input-channel split makes of its bytes; None if there is no such split."""
        if choice.input_slices == 1 and choice.spread is not Spread.INPUT_CHANNELS:
            return None
        tile = {axis: grid.extent for axis, grid in self.table.grids.items()}
        group = TiledGroup(self.table.geometry, self.profile, choice, tile)
        if group.input_parts == 1:
            return None
        return np.array([[float(group.split_share(name))] for name in self.table.names])

    def weights(self, choice: Configuration, key: _Key) -> ConfiguredWeights:
        """The weights of each step under a configuration, by what decides them; compressed as the profile says."""
        found = self._known.weights.get(key)
        if found is None:
            tile = {axis: grid.extent for axis, grid in self.table.grids.items()}
            if "C" in tile:
                tile["C"] = channel_size(self.table, choice) or tile["C"]
            group = TiledGroup(self.table.geometry, self.profile, choice, tile)
            tables, in_place = most_table_bytes(self.table.geometry, self.profile, choice), group.weights_in_place
            weights = step_weights(self.table.geometry, self.profile, choice, group.slices, group.input_parts, tables)
            room = tuple([(w.unit_bytes, w.own_core_bytes, w.staged_core_bytes, w.passing_core_bytes) for w in weights])
            found = self._known.weights[key] = ConfiguredWeights(
                room=tuple([(w.table_bytes,) * 4 for w in weights]) if in_place else room,
                held_bytes=sum([held for _, held, _, _ in room]),
                line_bytes=line_bytes(weights, self.profile, in_place=in_place),
                steps=weights,
            )
        return found

    @lazy
    def _rows(self) -> RowFigures:
        """The figures of all rows, block after block."""
        return gathered([part for block in self.blocks for part in block.stages])

    def largest_rows(self, holds: np.ndarray) -> list[int | None]:
        """Per block the largest tile of its first stage in which any holds; tiles that fill all lanes come first.

        Of a split by steps the tile that it ends at.
        """
        begins = [begin for block in self.blocks for begin in (block.begin, *block.ends[:-1])]
        number = np.arange(self.rows)
        last = np.maximum.reduceat(np.where(holds, number, -1), begins).tolist()
        even = np.maximum.reduceat(np.where(holds & self._rows.even, number, -1), begins).tolist()
        result: list[int | None] = []
        at = 0
        for block in self.blocks:
            end = at + len(block.ends)
            path = block.path
            if path is None:
                result.append(next((row for row in (*even[at:end], *last[at:end]) if row >= 0), None))
            else:
                chosen = path.chosen(holds[block.begin : block.ends[-1]])
                result.append(None if chosen is None else block.begin + chosen)
            at = end
        return result

    def figures(self) -> Figures:
        """The figures of all candidates; core tiles are not known yet and pass."""
        profile = self.profile
        on_core = profile.units.are_cores
        blocks, rows = self.blocks, self._rows
        spans = np.array([block.ends[-1] - block.begin for block in blocks])
        # weights are the same for all rows of a block, and for many blocks: [figure, step, block]
        numbers: dict[ConfiguredWeights, int] = {}
        alike = [numbers.setdefault(block.weights, len(numbers)) for block in blocks]
        staged, held, sliced, passing = np.array([its.room for its in numbers], dtype=np.int64).T[:, :, alike]
        held, passing = held.sum(axis=0), passing.max(axis=0, initial=0)
        live = rows.peak + rows.waiting
        choices = [block.configuration for block in blocks]
        flags = [(c.order is Order.DEPTH_FIRST, c.double_buffered, c.weights_in_sram) for c in choices]
        blocks_nested, blocks_buffered, in_sram = np.array(flags).T
        nested = np.repeat(blocks_nested, spans)
        buffered = np.repeat(blocks_buffered, spans) & ~rows.last
        if on_core:
            staged = sliced
        in_unit = np.where(in_sram, staged.sum(axis=0), 0)
        step_inputs, step_outputs = rows.step_inputs, rows.step_outputs
        if profile.units.weight_part_bytes is not None:
            staged = np.zeros_like(staged)  # weights are staged in a part of their own
            in_unit = np.zeros_like(in_unit)
        elif not on_core:
            # slices pass through the SRAM; only what waits there takes room for whole ops
            staged = np.where(in_sram, staged, np.minimum(staged, sliced * profile.cores_per_cluster))
            # what does not wait in the cores passes through here op by op
            waits = in_sram | (held <= profile.weight_memory_bytes)
            in_unit = np.where(waits, in_unit, staged.max(axis=0, initial=0))
            in_unit += np.array([block.weights.line_bytes for block in blocks])
        if not on_core:
            # depth-first: the weights are in the cores before the first tile comes, steps work on core tiles
            staged = np.where(blocks_nested, 0, staged)
            step_inputs, step_outputs = np.where(nested, 0, step_inputs), np.where(nested, 0, step_outputs)
        needed = np.repeat(np.where(blocks_nested & ~in_sram, held, passing), spans)
        in_unit = np.repeat(in_unit, spans)
        in_place = self.table.geometry.is_in_place
        ends = np.maximum(rows.inputs, rows.outputs) if in_place else rows.inputs + rows.outputs
        peak = (live if on_core else np.where(nested, ends, live)) + in_unit
        staging = np.where(buffered, rows.fresh_inputs, 0)
        nested_leaving = 0 if in_place else rows.outputs
        leaving = np.where(buffered, np.where(nested & (not on_core), nested_leaving, rows.leaving), 0)
        memory = np.full(self.rows, float(profile.weight_memory_bytes))
        if profile.weights_share_activations and on_core:
            memory -= peak + staging + leaving
        return Figures(
            whole_map=rows.whole_map,
            capacity=profile.units.memory.capacity_bytes,
            inputs=rows.inputs,
            outputs=rows.outputs,
            staging=staging,
            leaving=leaving,
            shared=in_place,
            step_inputs=step_inputs,
            step_outputs=step_outputs,
            step_weights=np.repeat(staged, spans, axis=1),
            core_weights=np.repeat(sliced, spans, axis=1),
            weight_memory=memory,
            needed_weights=needed,
            core_tile=peak if on_core else np.zeros(self.rows),
            core_capacity=profile.nram.capacity_bytes,
            images=rows.images,
            loaded=np.zeros(self.rows),
            needed=1,
            peak=peak,
        )
