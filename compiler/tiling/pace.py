"""What keeps the cores of a tiled group from working all the time: uneven parts, and waiting for each other."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import NamedTuple

import numpy as np

from compiler.cost.rates import (
    busiest_link,
    copying_bytes_per_cycle,
    engine_startup_cycles,
    transfers_of_part,
)
from compiler.ir.box import Ints
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.axis_tiles import AxisTiles, Share
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Configuration, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


def turns(group: TiledGroup) -> int:
    """How often a unit's cores go through the ops of the group, one tile or core tile after another."""
    inner = group.core_walk.rounds if group.is_nested else 1
    return group.walk.rounds * group.slices * inner


class Unevenness:
    """How much more of an op the busiest core does than of a group's output, both as parts of all.

    Where tiles keep or pass on halos the first one makes more of what lies far before the output, the last one less.
    """

    def __init__(self, group: TiledGroup) -> None:
        by_units = group.configuration.spread is Spread.BANDS and group.walk.units > 1
        self._by_cores = _cores_have_bands(group)
        self._group, self._is_shared = group, by_units or self._by_cores
        self._frustums = group.core_frustums if self._by_cores else group.frustums
        self._cores = group.configuration.cores if self._by_cores else 1
        walk = group.walk
        cut = (walk.rows, walk.columns, group.configuration.placement, *walk.grid, walk.dealt_to)
        self._key = ("busiest", *cut, self._cores)
        self._of_output = self._busiest(group.geometry.primary) if self._is_shared else 1.0

    def of(self, op: OpFacts) -> float:
        """Of one op of the group."""
        return self._busiest(op.output) / self._of_output if self._is_shared else 1.0

    def _busiest(self, name: str) -> float:
        """The largest part of a tensor that one core makes; of one unit, where cores do not share out its rows."""
        known = self._frustums.of_tensor[name].known
        found = known.get(self._key)
        if not isinstance(found, float):
            found = known[self._key] = self._largest_part(name)
        return found

    def _largest_part(self, name: str) -> float:
        # imported where it is used alone: it brings a compiler with it
        from compiler.tiling.kernels import largest_part

        walk, (_, shares) = self._group.walk, self._frustums.factors(name)
        cut: Mapping[str, AxisTiles] = self._group.core_walk.axes if self._by_cores else {}
        rows, columns = (
            _made_by_tile(shares.get(axis or ""), cut.get(axis or ""), count, its)
            for axis, count, its in zip((walk.rows, walk.columns), walk.grid, (self._cores, 1), strict=True)
        )
        return float(largest_part(walk.assignment.owner, rows, columns))


def _cores_have_bands(group: TiledGroup) -> bool:
    """True if the cores of a unit each have rows of its tiles, and take these through all ops."""
    return group.is_nested and group.configuration.core_spread is Spread.BANDS and group.configuration.cores > 1


def _made_by_tile(share: Share | None, core_tiles: AxisTiles | None, count: int, cores: int) -> Ints:
    """What is made along an axis in each of `count` SRAM tiles by each of the cores that share out its core tiles."""
    found = np.zeros((count, cores), dtype=np.int64)
    blocks = None if core_tiles is None else core_tiles.blocks
    if share is None or blocks is None:
        found[:, 0] = 1 if share is None else share.made
        return found
    pieces = np.diff(np.append(blocks, len(share.made)))
    number = np.arange(len(share.made)) - np.repeat(blocks, pieces)
    np.add.at(found, (np.repeat(np.arange(count), pieces), number // ceil_div(int(pieces.max()), cores)), share.made)
    return found


def in_turn(group: TiledGroup) -> float:
    """The part of a product's sums that takes its time where units add to each other's, one after another.

    Each makes its part of a tile's sums when the unit before it has; meanwhile that one is at the next tile.
    """
    units, count = group.configuration.units, turns(group)
    return (count + units - 1) / (count * units)


def loads_in_turn(group: TiledGroup, count: int) -> float:
    """How many times as long the engines of the DRAM take because units load one after another, in `count` turns."""
    buffers = 2 if group.doubles_weights else 1
    return summed_in_turn(group.configuration, count, buffers) if group.shares_sums else 1.0


def summed_in_turn(configuration: Configuration, count: int, buffers: int) -> float:
    """The same of units that add to each other's sums: parts that have buffers come while a unit waits for others."""
    waiting = max(0.0, 1 - buffers / configuration.input_slices)
    return 1 + waiting * (configuration.units - 1) / count


def hidden_transfers(geometry: GroupGeometry, configuration: Configuration, repeats: int) -> int:
    """DRAM transfers of a unit's `repeats` of tiles but the first load and the last store; 0 if all are exposed.

    What is done once has nothing to buffer twice, whatever its configuration says.
    """
    if repeats > 1 and not configuration.double_buffered:
        return 0
    loads = len(geometry.inputs) - len(configuration.handover.takes) + configuration.input_slices - 1
    stores = len(geometry.outputs) - (configuration.handover.hands is not None)
    return max(0, repeats * (loads + stores) - 2)


class Passed(NamedTuple):
    """Bytes of one op's result, over all tiles, that others wait for.

    gathered: parts of the channels that units hand each other, all of them together; among_cores: the same between the
    cores of a unit, and how much of it one unit has (`unit_share`). apart: what units hand each other goes to one core
    of each, which are no neighbours. halos: borders of tiles, to as many neighbours of a
    unit as `ways` says; beside: the same between the cores of a unit in step. reduced: unfinished sums.
    senders: how many cores of a unit send their parts to other units, each by itself. fetched: transfers of a core, per
    turn, of what waits in the SRAM.
    """

    gathered: int = 0
    among_cores: int = 0
    unit_share: float = 1.0
    apart: bool = False
    halos: int = 0
    ways: int = 1
    beside: int = 0
    reduced: int = 0
    senders: int = 1
    fetched: float = 0.0


def awaited_cycles(profile: Profile, units: int, cores: int, count: int, passed: Passed) -> int:
    """Cycles in which cores wait between an op and the next for what others made of it, in `count` turns.

    `units`: those with work; `cores` of each.
    """
    total = 0.0
    engine = profile.units.peer_engine
    if engine is not None:
        rate, start = engine.bytes_per_cycle, _startup(profile)
        if passed.gathered and units > 1:
            each = transfers_of_part(profile, units, apart=passed.apart)
            starts = count * each * (1 if profile.units.are_cores else passed.senders)
            total += passed.gathered * busiest_link(profile, units, each) / rate + start * starts
        if passed.halos and units > 1:
            total += passed.halos / units / rate + count * start * passed.ways
        if passed.reduced:
            total += passed.reduced / rate + count * start
    mover = profile.engines.mvdma
    if passed.among_cores and cores > 1 and mover is not None:
        # those before and those behind a core get its part one after the other
        ways = min(2, cores - 1)
        start = engine_startup_cycles(mover, profile)
        total += ways * (passed.among_cores * passed.unit_share / cores / mover.bytes_per_cycle + count * start)
    if passed.beside and cores > 1 and mover is not None:
        start = engine_startup_cycles(mover, profile)
        total += passed.beside / (units * cores) / mover.bytes_per_cycle + 2 * count * start
    if passed.fetched and mover is not None:
        total += passed.fetched * count * engine_startup_cycles(mover, profile)
    return ceil(total)


def filling_cycles(group: TiledGroup, step: int, filled: int, broadcast: int, drained: int) -> int:
    """Cycles in which cores wait for the first piece of a breadth-first stage to come, and for the last one to leave.

    `filled`, `broadcast`, `drained`: bytes of the op between SRAMs and cores over all tiles, `broadcast` the part of
    `filled` that the bus brings. Pieces between the first and the last come and leave while others are worked on, if
    two have room in a core.
    """
    found, engines, units = group.stage_of[step], group.profile.engines, group.walk.units
    if found is None or engines.mvdma is None:
        return 0
    start = engine_startup_cycles(engines.mvdma, group.profile)
    moved = (filled - broadcast + drained) / (engines.mvdma.bytes_per_cycle * units * group.configuration.cores)
    moved += broadcast / (engines.bus.bytes_per_cycle * units) if engines.bus is not None else 0.0
    ways = (filled > 0) + (drained > 0)
    overlapped = found[1].rounds if group.doubles_pieces(found[1]) else 1
    return ceil(moved / overlapped + ways * start * turns(group))


def _startup(profile: Profile) -> float:
    """Cycles before what one unit sends another moves."""
    engine = profile.units.peer_engine
    return 0.0 if engine is None else engine_startup_cycles(engine, profile)


def copying_cycles(group: TiledGroup, op: OpFacts, own: int) -> int:
    """Cycles in which the busiest core puts aside what later tiles need of an op's result and first inputs.

    `own`: what it copies itself, without SRAM, of the parts that it holds of tensors which stay on the chip.
    """
    profile, configuration, units = group.profile, group.configuration, group.walk.units
    if group.is_flat:
        names = (op.output, *group.geometry.first_readers.get(op.index, ()))
        kept = sum(sum(group.frustums.reused_along(name).values()) for name in names)
        share = 1.0 if configuration.spread is Spread.CHANNELS else 1 / units
    elif group.is_nested:
        reused = group.core_frustums.reused_along(op.output)
        kept = sum(size for axis, size in reused.items() if axis in group.core_kept_axes)
        share = (1.0 if configuration.spread is Spread.CHANNELS else 1 / units) / (
            1 if configuration.core_spread is Spread.CHANNELS else configuration.cores
        )
    else:
        return 0
    return ceil((kept * share + own) / copying_bytes_per_cycle(profile))
