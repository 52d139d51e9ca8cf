"""What the ops of a tiled group move between a unit's SRAM and its cores, and which way to DRAM (TILE-7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import NamedTuple

from compiler.cost.rates import direct_is_as_wide
from compiler.ops.op_facts import OpFacts
from compiler.tiling.geometry import reads_own_channels
from compiler.tiling.halos import halos_between_cores
from compiler.tiling.sharing import passed_parts
from compiler.tiling.tile import Spread
from compiler.tiling.tiled import TiledGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Which way bytes go between DRAM and cores: True directly by IODMA, False through the SRAM (TILE-7)."""

    inputs: bool
    outputs: bool
    weights: bool


class Moved(NamedTuple):
    """Bytes of one step between a unit's SRAM and its cores, over all tiles and units.

    filled: read from SRAM for the cores; broadcast: the part of it that goes to all cores of a unit at once.
    received: what arrives in the cores' memories. drained: written back to the SRAM.
    """

    filled: int
    broadcast: int
    received: int
    drained: int


def routes_of(group: TiledGroup, copied: int, outputs: int, moves: Sequence[Moved]) -> Routes:
    """The DRAM route of each kind of data (TILE-7): directly where the SRAM would serve nobody twice."""
    profile = group.profile
    if group.is_flat or group.profile.engines.iodma is None:
        return Routes(inputs=False, outputs=False, weights=False)
    wide = direct_is_as_wide(profile, group.walk.units, group.configuration.cores)
    filled = sum(move.filled for move in moves)
    broadcast = sum(move.broadcast for move in moves)
    # what several units need of the weights comes to the SRAM of one, which hands it on
    alone = (group.configuration.core_spread is Spread.CHANNELS or group.configuration.cores == 1) and (
        group.walk.units == 1 or group.shares_weights_out
    )
    return Routes(
        inputs=wide and group.is_nested and broadcast == 0 and filled == copied and not group.taken,
        outputs=wide and group.is_nested and sum(move.drained for move in moves) == outputs and not group.handed,
        weights=wide and alone,
    )


def moves_of(group: TiledGroup, step: int) -> Moved:
    """What one step fills into and drains from the cores."""
    if group.is_flat:
        return Moved(filled=0, broadcast=0, received=0, drained=0)
    return _nested_moves(group, step) if group.is_nested else _staged_moves(group, step)


def _nested_moves(group: TiledGroup, step: int) -> Moved:
    """Depth-first: group inputs come from the SRAM, outputs return to it, and what waits there for lack of room."""
    geometry, frustums, op = group.geometry, group.core_frustums, group.geometry.ops[step]
    filled = drained = gathered = 0
    inputs = set(geometry.inputs)
    for operand in op.operands:
        if not operand.constant and operand.tensor in inputs:
            filled += frustums.read_bytes(op, operand)
    if op.output in geometry.outputs:
        drained += frustums.made_bytes(op.output)
    waiting = _waiting_in_sram(group, op.output)
    filled, drained = filled + waiting, drained + waiting
    if group.exchanges and group.configuration.core_spread is Spread.BANDS and group.configuration.cores > 1:
        between = halos_between_cores(group, op.output)
        filled, drained = filled + between, drained + between
    part = gathered_part(group, op)
    if part:
        gathered = ceil(frustums.made_bytes(op.output) * part)
        drained += 0 if op.output in geometry.outputs else gathered
    return _to_cores(group, op, filled, gathered, drained)


def _staged_moves(group: TiledGroup, step: int) -> Moved:
    """Breadth-first: what a stage reads from outside comes from the SRAM, what it makes returns to it."""
    frustums, op = group.frustums, group.geometry.ops[step]
    _, stage = group.stage_of[step] or (0, None)
    filled = drained = 0
    for operand in op.operands:
        if operand.constant:
            continue
        if stage is None or operand.tensor in stage.inputs:
            again = 1.0 if stage is None else stage.rereads * group.passes(step)[1]
            if stage is not None and not group.configuration.slices_outer:  # pieces come anew for every slice
                again *= 1 if "C" in frustums.of_tensor[operand.tensor].followed else group.slices
            filled += ceil(frustums.read_bytes(op, operand) * again)
        elif operand.tensor in stage.staying:
            filled += ceil(frustums.read_bytes(op, operand) * stage.staying[operand.tensor])
    if stage is None or op.output in stage.results:
        drained = frustums.made_bytes(op.output)
    elif op.output in stage.staying:
        waiting = _waiting_in_sram(group, op.output)
        filled += waiting
        drained = ceil(frustums.made_bytes(op.output) * stage.staying[op.output]) + waiting
    return _to_cores(group, op, filled, 0, drained)


def fetched(group: TiledGroup, op: OpFacts) -> float:
    """How often, in the turns of its tiles, a core puts parts of a result into the SRAM and takes them back."""
    if not group.is_nested:
        return 0.0
    tiles, along = group.core_frustums.tiles, group.core_frustums.reused_along(op.output)
    outside = [tiles[axis] for axis in along if axis not in group.core_kept_axes]
    return sum(2.0 * (1 + its.both_ways) * (its.count - int(its.restarts.sum())) / its.count for its in outside)


def _waiting_in_sram(group: TiledGroup, name: str) -> int:
    """Bytes of a result that stays in the cores which wait in the SRAM for later tiles, each way."""
    reused = group.core_frustums.reused_along(name)
    return sum(size for axis, size in reused.items() if axis not in group.core_kept_axes)


def _to_cores(group: TiledGroup, op: OpFacts, filled: int, gathered: int, drained: int) -> Moved:
    """Under a channel spread all cores need what is not cut with the channels: by the bus at once, else one by one."""
    configuration = group.configuration
    cores = configuration.cores if configuration.core_spread is Spread.CHANNELS else 1
    # units that share channels each read the whole for themselves
    units = configuration.units if configuration.spread is Spread.CHANNELS else 1
    own = reads_own_channels(op)
    copies = 1 if own else cores
    filled *= 1 if own else units
    on_bus = copies > 1 and group.profile.engines.bus is not None
    gathered *= units
    read = (filled + gathered) * (1 if on_bus else copies)
    return Moved(
        filled=read,
        broadcast=filled + gathered if on_bus else 0,
        received=filled * copies + gathered * cores,
        drained=drained,
    )


def gathered_part(group: TiledGroup, op: OpFacts) -> float:
    """The part of an op's result that cores or units which make its channels in parts need of each other.

    All of it where some waits for later tiles: whoever takes it up then has all channels.
    """
    if group.channels_are_free or group.channel_parts == 1 or op.channel_axis is None:
        return 0.0
    if group.core_frustums.kept_bytes(op.output):
        return 1.0
    return passed_parts(group.geometry, group.channel_parts)[op.index]
