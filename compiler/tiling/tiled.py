"""One group under one complete tiling: its frustums, where everything lies, and what fits (TILE-1 to TILE-8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from math import ceil

from compiler.cost.array import array_lanes, spatial_lanes
from compiler.cost.rates import waiting_sum_bytes
from compiler.lazy import lazy
from compiler.ops.op_facts import OpFacts
from compiler.tiling.cut import GroupCut
from compiler.tiling.frustum import Frustums
from compiler.tiling.geometry import largest_part
from compiler.tiling.same_weights import needs_all_channels
from compiler.tiling.stages import CoreStage, beside_weights, core_stages
from compiler.tiling.stationary import has_all_shared
from compiler.tiling.tile import Spread, WeightHome
from compiler.tiling.weights import (
    StepWeights,
    align,
    buffers_read,
    line_bytes,
    step_weights,
    table_bytes,
    weight_homes,
    with_fewer_cycles,
)
from compiler.units import ceil_div


class TiledGroup(GroupCut):
    """A group with every choice made; figures are computed when asked for, once."""

    @lazy
    def _stages(self) -> tuple[CoreStage, ...] | int:
        lanes = spatial_lanes(self.geometry.ops, self.profile)
        rows, capacity = self.walk.rows, self.core_room_bytes
        return core_stages(self.geometry, self.frustums, self.configuration, rows, capacity, lanes)

    @property
    def stages(self) -> tuple[CoreStage, ...]:
        """Breadth-first: runs of ops that pass a core piece by piece; empty if some piece does not fit."""
        return () if isinstance(self._stages, int) else self._stages

    @property
    def piece_shortfall_bytes(self) -> int:
        """What the smallest piece takes of a stage of which no piece fits; 0 if all fit."""
        beside = self.profile.nram.capacity_bytes - self.core_room_bytes
        return self._stages + beside if isinstance(self._stages, int) else 0

    @lazy
    def stage_of(self) -> tuple[tuple[int, CoreStage] | None, ...]:
        """Per step the number of its stage and the stage; None where a core works on its tile alone."""
        found: list[tuple[int, CoreStage] | None] = [None] * len(self.geometry.ops)
        if self.is_staged:
            for number, stage in enumerate(self.stages):
                for step in stage.steps:
                    found[step] = (number, stage)
        return tuple(found)

    def doubles_pieces(self, stage: CoreStage) -> bool:
        """True if a stage's pieces have a second buffer: in what a core has left beside all that it holds (PROG-2)."""
        weights = self.core_weight_bytes if self.profile.weights_share_activations else 0
        return stage.piece_bytes <= self.profile.nram.capacity_bytes - self.core_peak_bytes - weights

    # --- weights ---------------------------------------------------------------------------------------------------

    @lazy
    def weights(self) -> tuple[StepWeights, ...]:
        """Per step its weights; where an earlier op's are the same and wait in the cores, the address tables alone."""
        each = self.weights_of_each
        return tuple([w.beside_like if self.finds_weights(step) else w for step, w in enumerate(each)])

    def finds_weights(self, step: int) -> bool:
        """True if an op finds its weights in the cores, as an earlier one brought them."""
        like = self.weights_of_each[step].like
        return like is not None and self.homes[step] is self.homes[like] is WeightHome.CORE

    @lazy
    def weights_of_each(self) -> tuple[StepWeights, ...]:
        """Per step its weights as if it were the only one, compressed as the profile says for what lies on the chip.

        A slice that passes alone leaves fewer lanes of the array idle than one beside another. It comes while no core
        works, so that is done where the array would lose more, and never for whole maps (FUSE-16).
        """
        found = step_weights(
            self.geometry, self.profile, self.configuration, self.slices, self.input_parts, self.table_bytes
        )
        if self.channel_parts > 1 and any(weights.like is not None for weights in found):
            # the parts of cores are equal where every tile needs all channels (the whole result does: `same_parts`)
            boxes = self.core_frustums.boxes
            all_of = [needs_all_channels(self.geometry, op, boxes) for op in self.geometry.ops]
            found = tuple(
                [
                    w if w.like is None or (own and all_of[w.like]) else replace(w, like=None)
                    for w, own in zip(found, all_of, strict=True)
                ]
            )
        if all(weights.in_one_buffer is None for weights in found) or self.is_whole_map:
            return found
        return tuple(self._with_fewer_cycles(*pair) for pair in zip(found, self.geometry.ops, strict=True))

    def _with_fewer_cycles(self, weights: StepWeights, op: OpFacts) -> StepWeights:
        if weights.in_one_buffer is None:
            return weights
        columns, rows = array_lanes(op, self.profile)
        bands = self.configuration.core_spread is Spread.BANDS and self.walk.rows is not None
        divide = {self.walk.rows: self.configuration.cores} if bands and self.walk.rows is not None else {}
        steps = self.frustums.steps(op, {"W": columns, "H": rows}, divide)
        channels, tiles = self.channels_of_core(op), self.walk.tiles
        return with_fewer_cycles(weights, op, channels, steps, tiles, self.profile, self.configuration)

    @lazy
    def table_bytes(self) -> tuple[int, ...]:
        """Per step the most that the op's address tables take in a core: one for each kind of buffer that it reads."""
        walks = not self.is_staged
        frustums, whole = self.core_frustums if walks else None, self.geometry.inputs if self.is_nested else ()
        buffers = tuple([buffers_read(op, frustums, whole) for op in self.geometry.ops])
        return table_bytes(self.geometry, self.profile, buffers)

    @lazy
    def weights_in_place(self) -> bool:
        """True if stationary weights lie where they are used, so that nothing is staged.

        They are shared out by all of their op's own channels. A tile that needs only some of these, for a view makes
        other axes of them or no output needs the rest, needs other ones in a core than lie there.
        """
        parts = self.configuration.units * self.configuration.cores
        shared_out = self.slices == 1 and self.channel_parts == parts == self.profile.cores
        if not self.profile.is_stationary or not shared_out:
            return False
        if parts == 1 or self.geometry.channels_follow:
            return True
        facts, channels = self.geometry.facts, self.frustums.channels
        has_all = all(has_all_shared(facts, op, channels(op)) for op in self.geometry.ops)
        return self.walk.tiles == 1 and not self.is_nested and has_all

    @lazy
    def homes(self) -> tuple[WeightHome, ...]:
        """Where each step's weights wait between tiles: the first of cores, SRAM and DRAM with room (TILE-6)."""
        asked = dict(self.configuration.loads)
        wanted = [asked.get(op.index) for op in self.geometry.ops]
        in_sram = self.configuration.weights_in_sram and not self.is_flat
        return weight_homes(
            self.weights_of_each, wanted, self.weight_room_bytes, self.sram_weight_room_bytes if in_sram else 0
        )

    @lazy
    def doubles_weights(self) -> bool:
        """True if weights that give way to more of them have two buffers, so that some come while others are used."""
        more = sum(map(self.second_weight_bytes, range(len(self.weights))))
        return 0 < more <= self.weight_room_bytes - self.core_weight_bytes and not self.weights_in_place

    def second_weight_bytes(self, step: int) -> int:
        """What a second buffer takes for an op's weights that give way to more of them whole; 0 if they do not.

        It begins where any element may lie.
        """
        weights = self.weights[step]
        is_whole = self.homes[step] is WeightHome.CORE or weights.slices == 1
        return align(weights.core_bytes - weights.table_bytes) if weights.comes_again and is_whole else 0

    @lazy
    def weight_room_bytes(self) -> int:
        """Bytes of a core's memory that its weights may take beside what else lies there."""
        profile = self.profile
        if not profile.weights_share_activations:
            return profile.weight_memory_bytes
        if self.is_flat:
            return max(0, profile.nram.capacity_bytes - self.tile_bytes - self.buffered_bytes)
        held = self.core_peak_bytes
        if not self.is_nested:
            held = (
                beside_weights(self.stages, [w.passing_core_bytes for w in self.weights_of_each]) + self.core_kept_bytes
            )
        return max(0, profile.nram.capacity_bytes - held)

    @lazy
    def sram_weight_room_bytes(self) -> int:
        """Bytes of the SRAM that weights may wait in: its weight part, else what the tiles leave."""
        if self.is_flat:
            return 0
        line, unit = line_bytes(self.weights_of_each, self.profile, in_place=self.weights_in_place), self.profile.units
        if unit.weight_part_bytes is not None:
            return max(0, unit.weight_part_bytes - line)
        return max(0, unit.memory.capacity_bytes - self.tile_bytes - self.buffered_bytes - line)

    @lazy
    def resident_weight_bytes(self) -> int:
        """Weights that wait in one core."""
        if self.weights_in_place:
            return sum(w.table_bytes for w in self.weights)
        pairs = zip(self.weights, self.homes, strict=True)
        return sum(w.core_bytes for w, home in pairs if home is WeightHome.CORE)

    @lazy
    def core_weight_bytes(self) -> int:
        """The most that a core holds of weights at once: what waits there, and the largest slice that passes."""
        if self.weights_in_place:
            return self.resident_weight_bytes
        pairs = zip(self.weights, self.homes, strict=True)
        passing = max((w.passing_core_bytes for w, home in pairs if home is not WeightHome.CORE), default=0)
        return self.resident_weight_bytes + passing

    @lazy
    def refills(self) -> int:
        """How often units bring one slice of the weights that do not wait in their cores, over all units."""
        if not self.is_nested:
            return self.walk.tiles
        # every round of core tiles needs all ops' weights in turn
        return ceil(self.core_walk.total * self.core_walk.rounds / self.core_walk.count)

    def waits_in_core(self, step: int) -> bool:
        """True if all of an op's weights wait in the cores once they have come: each of their parts has a buffer."""
        parts = self.slices * (
            self.configuration.input_slices if self.geometry.ops[step] is self.geometry.product else 1
        )
        buffers = 2 if self.doubles_weights and self.second_weight_bytes(step) else 1
        return self.homes[step] is WeightHome.CORE and parts <= buffers

    def brought(self, step: int) -> int:
        """How often a step's weights come into the cores of all units together."""
        stays = self.configuration.slices_outer and self.slice_stays and self.homes[step] is WeightHome.CORE
        if self.waits_in_core(step) or stays:
            return 1 if self.shares_weights_out else self.walk.units
        if self.is_nested and self.homes[step] is WeightHome.CORE and not self.weight_parts_come_again:
            # all core tiles of an SRAM tile pass with one slice before the next one comes
            return self.walk.tiles
        return self.refills * self.passes(step)[0]

    def passes(self, step: int) -> tuple[int, int]:
        """How often a stage's weights come for one tile, and how often what it reads comes to its pieces.

        Where pieces follow one another in a core, and weights of the stage pass in slices, pieces go through slice by
        slice if the stage may cut its channels; else all slices come for each of them, and so do the weights of all ops
        where these take each other's place.
        """
        found = self.stage_of[step]
        if found is None or found[1].rounds == 1:
            return 1, 1
        steps = found[1].steps
        slices = max(1 if self.homes[its] is WeightHome.CORE else self.weights[its].slices for its in steps)
        if not self.stays_together(steps):
            return found[1].rounds, 1
        if slices <= 1:
            return 1, 1
        return (1, slices) if found[1].cuts_channels else (found[1].rounds, 1)

    def stays_together(self, steps: Sequence[int]) -> bool:
        """True if what passes of the weights of a stage's ops has room in a core at once, so that it comes once."""
        passing = [self.weights[step].passing_core_bytes for step in steps if self.homes[step] is not WeightHome.CORE]
        if sum(size > 0 for size in passing) <= 1 or self.weights_in_place:
            return True
        return sum(passing) <= self.weight_room_bytes - self.resident_weight_bytes

    @lazy
    def parts_come_again(self) -> bool:
        """True if every core tile goes through all parts of what is summed over, of which two have buffers at most."""
        return self.configuration.input_slices > (2 if self.is_buffered and self.doubles_weights else 1)

    @lazy
    def weight_parts_come_again(self) -> bool:
        """The same of the weights' parts in the cores."""
        return self.configuration.input_slices > (2 if self.doubles_weights else 1)

    @lazy
    def slice_stays(self) -> bool:
        """True if all weights that one slice of the channels needs stay in the cores: its input parts have buffers."""
        parts = self.configuration.input_slices
        total = sum(weights.core_bytes for weights in self.weights)
        return parts <= (2 if self.doubles_weights else 1) and total <= self.weight_room_bytes

    # --- activations -----------------------------------------------------------------------------------------------

    def held_bytes(self, frustums: Frustums, name: str) -> int:
        """Bytes of a tensor's box that a tile adds to what waits; of an input that is summed in parts, one part."""
        return self._in_parts(name, frustums.largest_made(name))

    def _in_parts(self, name: str, size: int) -> int:
        share = self.split_share(name)
        return ceil_div(size * share.numerator, share.denominator)

    def split_share(self, name: str) -> Fraction:
        """What an input-channel split makes of a tensor's bytes: parts of what is summed, wider partial sums."""
        if self.input_parts == 1:
            return Fraction(1)
        if name in self.reduced:
            return largest_part(self.geometry.summed_extent, self.input_parts)
        product = self.geometry.product
        width = self.geometry.facts.tensors[name].element_bytes
        if product is not None and name == product.output:
            # partial sums of all slices wait until the last part of the input has come
            waiting = max(width, waiting_sum_bytes(product, self.profile))
            return Fraction(waiting * (self.slices if self.is_sliced else 1), width)
        return Fraction(1)

    def volumes(self, frustums: Frustums) -> Mapping[str, int]:
        """Bytes of every activation that a tile adds, by tensor."""
        return self._all_in_parts(frustums.largest)

    def _all_in_parts(self, sizes: Mapping[str, int]) -> Mapping[str, int]:
        if self.input_parts == 1:
            return sizes
        return {name: self._in_parts(name, size) for name, size in sizes.items()}

    def peak(self, frustums: Frustums) -> int:
        """The most that is live of one tile at any step, apart from what is kept."""
        sizes, by_runs = self.volumes(frustums), not self.is_flat
        over = None if by_runs else self.taken_over(sizes)
        return self.geometry.peak_of(sizes, sliced=self.is_sliced, by_runs=by_runs, over=over)

    @property
    def is_sliced(self) -> bool:
        """True if slices of the output channels follow one another within a tile, so that what they share is held."""
        return self.slices > 1 and not self.configuration.slices_outer

    @lazy
    def kept_bytes(self) -> int:
        """What waits in the unit's memory for later tiles of its walk, all tensors."""
        if not self.is_nested:
            return sum(self.frustums.kept.values())
        kept = self.frustums.kept
        inputs = sum(size for name, size in kept.items() if name in self.geometry.inputs)
        return inputs + self.kept_outside_cores_bytes

    @lazy
    def core_resident(self) -> tuple[str, ...]:
        """Results that stay in the cores between ops: all of them depth-first, else what stages keep."""
        if self.is_flat:
            return ()
        if self.is_nested:
            return self.geometry.made
        return tuple(dict.fromkeys(name for stage in self.stages for name in stage.staying))

    @lazy
    def _core_kept(self) -> dict[str, int]:
        """What waits of the results that stay in the cores, by axis of the walk."""
        total: dict[str, int] = {}
        if self.core_frustums.projection.is_recomputed:
            return total
        for name in self.core_resident:
            for axis, size in self.core_frustums.kept_along(name).items():
                total[axis] = total.get(axis, 0) + size
        return total

    @lazy
    def core_kept_axes(self) -> frozenset[str]:
        """Axes of the walk along which the cores keep what later tiles need: the innermost that have room."""
        room = self.core_room_bytes
        found: frozenset[str] = frozenset()
        for axis in reversed(list(self.core_frustums.tiles)):
            if not self._core_kept.get(axis, 0):
                continue
            with_axis = found | {axis}
            size = sum(self._core_kept.get(kept, 0) for kept in with_axis)
            if self._live_in_core(with_axis) + size > room:
                break
            found = with_axis
        return found

    def _live_in_core(self, kept: frozenset[str]) -> int:
        """The most that is live in a core at once if it keeps what is shared along these axes, that apart."""
        if not self.is_nested:
            return self._staying_bytes
        sizes = self._all_in_parts(self.core_frustums.core_volumes(kept))
        return self.geometry.peak_of(sizes, sliced=self.is_sliced, over=self.taken_over(sizes, kept))

    def taken_over(self, sizes: Mapping[str, int], kept: frozenset[str] | None = None) -> dict[str, str]:
        """Results that are written over an operand in one memory: those whose box there is no larger than that one's.

        Where a core holds a result together with what waited of it in the SRAM, its box is not its operand's. `kept`:
        the axes along which the core keeps what waits; None: those that it has room for.
        """
        over: Mapping[str, str] = self.geometry.takes_over
        if over and self.is_nested:
            within = self.core_kept_axes if kept is None else kept
            along = self.core_frustums.kept_along
            over = {name: source for name, source in over.items() if within.issuperset(along(name))}
        return {name: source for name, source in over.items() if sizes[name] <= sizes[source]}

    @property
    def core_volumes(self) -> Mapping[str, int]:
        """Depth-first: bytes of each tensor's box in a core, what is kept there for later core tiles apart."""
        return self._all_in_parts(self.core_frustums.core_volumes(self.core_kept_axes))

    @property
    def _staying_bytes(self) -> int:
        return max((stage.piece_bytes + stage.staying_bytes for stage in self.stages), default=0)

    @property
    def core_kept_bytes(self) -> int:
        """What the cores keep for later tiles."""
        return sum(self._core_kept.get(axis, 0) for axis in self.core_kept_axes)

    @property
    def kept_outside_cores_bytes(self) -> int:
        """What waits in the SRAM of the results that stay in the cores, for lack of room there."""
        return (sum(self._core_kept.values()) - self.core_kept_bytes) * self.configuration.cores

    @lazy
    def core_peak_bytes(self) -> int:
        """The most that a core holds of activations; breadth-first of its largest piece and what stays beside it."""
        if self.is_nested:
            return self._live_in_core(self.core_kept_axes) + self.core_kept_bytes
        if self.is_flat:
            return self.tile_bytes
        if not self.stages:
            return self.piece_shortfall_bytes
        return self._staying_bytes + self.core_kept_bytes

    @lazy
    def core_room_bytes(self) -> int:
        """Bytes of a core that activations may take beside the weights that lie in the same memory."""
        capacity = self.profile.nram.capacity_bytes
        if self.profile.weights_share_activations:
            if self.is_nested:
                once = (w.own_core_bytes if w.slices == 1 else w.staged_core_bytes for w in self.weights_of_each)
                return capacity - sum(once)
            capacity -= max(w.passing_core_bytes for w in self.weights_of_each)
        return capacity

    @lazy
    def ends_bytes(self) -> tuple[int, int]:
        """Input and output bytes of the largest SRAM tile, what waits of the inputs included (IN1, OUT)."""
        frustums, held, inputs = self.frustums, self.volumes(self.frustums), self.geometry.inputs
        outputs = self.geometry.outputs or (self.geometry.primary,)
        taken = sum([held[name] for name in inputs])
        if frustums.kept:
            taken += sum([frustums.kept_bytes(name) for name in inputs])
        return taken, sum([frustums.largest[name] for name in outputs])

    @lazy
    def tile_bytes(self) -> int:
        """The most that is live in the unit's memory at once, weights and the next tile apart."""
        if self.is_nested:
            inputs, outputs = self.ends_bytes
            live = max(inputs, outputs) if self.geometry.is_in_place else inputs + outputs
            return live + self.kept_outside_cores_bytes
        return self.peak(self.frustums) + self.kept_bytes

    @lazy
    def passing_unit_bytes(self) -> tuple[int, ...]:
        """Per step, what lies in the SRAM of weights on their way to the cores: of those that wait nowhere."""
        if self.is_flat or self.profile.units.weight_part_bytes is not None or self.weights_in_place:
            return (0,) * len(self.weights)
        cores = self.profile.cores_per_cluster
        staged = [min(w.unit_bytes, w.staged_core_bytes * cores) for w in self.weights]
        return tuple(s if home is WeightHome.DRAM else 0 for s, home in zip(staged, self.homes, strict=True))

    @property
    def passing_line_bytes(self) -> int:
        """What of the SRAM is kept for weights and address tables that pass it and have no buffer there."""
        pairs = zip(self.weights, self.homes, self.passing_unit_bytes, strict=True)
        passing = [weights for weights, home, size in pairs if home is not WeightHome.SRAM and not size]
        return line_bytes(passing, self.profile, in_place=self.weights_in_place)

    @lazy
    def is_buffered(self) -> bool:
        """True if the next tile's inputs load, and the last one's results leave, while a tile is worked on."""
        return self.configuration.double_buffered and self.walk.rounds * self.slices > 1

    @lazy
    def staging_bytes(self) -> int:
        """Bytes for the next tile's inputs (IN2)."""
        if not self.is_buffered:
            return 0
        held = self.volumes(self.frustums)
        return sum([held[name] for name in self.geometry.inputs])

    @lazy
    def leaving(self) -> Mapping[str, int]:
        """Results whose last tile is stored from a buffer of its own while the next one is made, with its bytes.

        By the tensor whose space a result takes over; what lies over an input leaves from that one's two buffers.
        """
        if not self.is_buffered or self.input_parts > 1 or (self.is_nested and self.geometry.is_in_place):
            return {}
        sizes = self.volumes(self.frustums)
        over = {} if self.is_nested else self.taken_over(sizes)
        roots = [root_of(name, over) for name in self.geometry.outputs or (self.geometry.primary,)]
        return {name: sizes[name] for name in roots if name not in self.geometry.inputs}

    @property
    def buffered_bytes(self) -> int:
        """What a tile's memory holds of the next one's inputs and the last one's results."""
        return self.staging_bytes + sum(self.leaving.values())

    @property
    def core_tiles(self) -> int:
        """Core tiles per SRAM tile; breadth-first the most pieces of any stage."""
        if self.is_nested:
            return self.core_walk.count
        return max((stage.pieces for stage in self.stages), default=1) if self.is_staged else 1

    @property
    def core_extents(self) -> tuple[int, ...]:
        """Extents of the group's output per core tile; breadth-first of its last stage's piece."""
        output = self.geometry.output
        if self.is_nested:
            sizes = self.core or self.tile
            return tuple(sizes.get(a, self.tile.get(a, e)) for a, e in zip(output.axes, output.shape, strict=True))
        if self.is_flat or not self.stages:
            return tuple(self.tile.get(a, e) for a, e in zip(output.axes, output.shape, strict=True))
        stage = self.stages[-1]
        piece = self.geometry.facts.tensors[self.geometry.ops[stage.steps[0]].output]
        # where the stage regroups axes its pieces are not of the output's shape
        alike = piece.axes == output.axes and piece.shape == output.shape
        tile = tuple(self.tile.get(a, e) for a, e in zip(output.axes, output.shape, strict=True))
        return stage.extents if alike else tile


def root_of(name: str, over: Mapping[str, str]) -> str:
    """The tensor in whose space a result lies, by what is written over what."""
    while name in over:
        name = over[name]
    return name
