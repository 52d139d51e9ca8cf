"""A group of a segment on its way to a program: what the plan says of it, and the objects that lower it (PROG-7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from compiler.program.context import Context
from compiler.program.core_tiles import CoreMemory, CoreRounds, result_over_input
from compiler.program.flat import FlatCores, FlatJobs
from compiler.program.group import GroupLowering, Halos, OpSteps, refuse_what_has_no_commands
from compiler.program.located import Located
from compiler.program.nested import CoreJobs, NestedCores
from compiler.program.parts import ChannelParts, SumParts
from compiler.program.stage_pieces import StageMemory, StageTurns
from compiler.program.staged import StagedCores
from compiler.program.unit_calls import OperandBoxes, UnitCalls
from compiler.program.unit_tiles import UnitTiles
from compiler.program.weight_boxes import PassingWeights, WeightBoxes
from compiler.program.weights import GroupWeights
from compiler.tiling.tile import Tiling
from compiler.tiling.tiled import TiledGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGroup:
    """A group of a segment as the plan has it: its name, its ops and its tiling."""

    name: str
    ops: tuple[int, ...]
    tiling: Tiling


def lowering_of(context: Context, group: TiledGroup, steps: Mapping[int, int]) -> GroupLowering:
    """The lowering of a group, by how its chip and its tiling have it worked on.

    `steps`: the number of each op's step in the program. Raises LimitError for tilings that are not lowered.
    """
    located, operands = Located(context, group), OperandBoxes(context, group.geometry)
    refuse_what_has_no_commands(located)
    kind = _flat if group.is_flat else _staged if group.is_staged else _nested
    return kind(located, operands, steps)


def _flat(located: Located, operands: OperandBoxes, numbers: Mapping[int, int]) -> GroupLowering:
    tiles = UnitTiles(located, operands, located.takes_over)
    tiles.lay_out((*located.geometry.inputs, *located.geometry.made))
    channels, sums = ChannelParts(located, operands, tiles), SumParts(located, operands, tiles)
    calls = UnitCalls(located, operands, tiles.buffers_read)
    boxes = WeightBoxes(located, operands, calls)
    passing = PassingWeights(located, boxes)
    jobs = FlatJobs(located, tiles, channels, sums, boxes)
    weights = GroupWeights(located, boxes, passing, jobs)
    tiles.double(passing.passing_bytes)
    tiles.load_to_stores()
    cores = FlatCores(located, tiles, jobs, sums, calls, weights)
    steps = OpSteps(located, numbers, Halos(located, tiles), channels, weights)
    return GroupLowering(
        located, tiles, channels, sums, cores, steps, [its.forget for its in (located.tiles, operands, tiles, jobs)]
    )


def _staged(located: Located, operands: OperandBoxes, numbers: Mapping[int, int]) -> GroupLowering:
    tiles = UnitTiles(located, operands, located.takes_over)
    memory = StageMemory(located, operands, tiles)
    channels, sums = ChannelParts(located, operands, memory), SumParts(located, operands, memory)
    calls = UnitCalls(located, operands, memory.buffers_read)
    boxes = WeightBoxes(located, operands, calls)
    passing = PassingWeights(located, boxes)
    turns = StageTurns(located, memory, channels, boxes)
    weights = GroupWeights(located, boxes, passing, turns)
    tiles.double(passing.passing_bytes)
    memory.double()
    tiles.load_to_stores()
    cores = StagedCores(located, operands, memory, turns, calls, weights)
    steps = OpSteps(located, numbers, Halos(located, memory), channels, weights)
    return GroupLowering(
        located, memory, channels, sums, cores, steps, [its.forget for its in (located.tiles, operands, tiles, turns)]
    )


def _nested(located: Located, operands: OperandBoxes, numbers: Mapping[int, int]) -> GroupLowering:
    tiles = UnitTiles(located, operands, result_over_input(located.group))
    channels, sums = ChannelParts(located, operands, tiles), SumParts(located, operands, tiles)
    rounds = CoreRounds(located, channels)
    memory = CoreMemory(located, operands, tiles, rounds)
    calls = UnitCalls(located, operands, memory.buffers_read)
    boxes = WeightBoxes(located, operands, calls)
    passing = PassingWeights(located, boxes)
    jobs = CoreJobs(located, rounds, memory, sums)
    weights = GroupWeights(located, boxes, passing, jobs)
    tiles.double(passing.passing_bytes)
    memory.double()
    tiles.load_to_stores()
    cores = NestedCores(located, operands, tiles, rounds, memory, jobs, channels, sums, calls, weights)
    steps = OpSteps(located, numbers, Halos(located, tiles), channels, weights)
    forget = [its.forget for its in (located.tiles, operands, tiles, rounds, memory)]
    walks = [(rounds.core_tiles, rounds.blocks)]
    return GroupLowering(located, tiles, channels, sums, cores, steps, forget, walks)
