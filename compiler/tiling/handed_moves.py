"""What it takes to move tensors that stay on the chip between groups, from and to the units that hold parts of them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from compiler.cost.rates import busiest_link, engine_startup_cycles, scattered_share, transfers_of_part
from compiler.tiling.loads import reads_of
from compiler.tiling.tile import Handed, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


class HandedMoves(NamedTuple):
    """Bytes of a tensor that move between the parts that units hold and their tiles, over all tiles.

    gathered: what all units need. scattered: what one unit needs, or makes, and others hold. Of both so many `senders`
    at a time each give some, of what is scattered to so many `receivers`. own: what a unit copies of its own part, or
    all of them one after another where one of them holds what a tile needs.
    """

    gathered: int = 0
    scattered: int = 0
    senders: int = 1
    receivers: int = 0
    own: int = 0


def taken_moves(group: TiledGroup, name: str) -> HandedMoves:
    """How an input that an earlier group left on the chip comes to the units."""
    held, holders = group.taken[name], group.profile.units.count
    once, copied = reads_of(group, name)
    size, part = group.geometry.facts.tensor_bytes(name), group.part_bytes(name)
    if _is_along(group, held.axis) and not (held.axis == "C" and copied > once):
        # each begins with about its own part, neighbours have the rest
        again, apart = max(1, copied // size), _apart(group, name, held)
        scattered = again * apart + max(0, copied - again * size)
        return HandedMoves(own=again * min(part, size - apart), scattered=scattered, senders=holders, receivers=2)
    # units are at the same place along that axis, so that few of them hold what all need at a time
    givers, units = _givers(group, name, held), group.walk.units
    if copied > once:
        return HandedMoves(gathered=copied // units, senders=givers, own=copied // units // givers)
    own = once // holders
    return HandedMoves(scattered=once - own, senders=givers, receivers=units - 1, own=own // min(units, givers))


def put_moves(group: TiledGroup, name: str) -> HandedMoves:
    """How a result that stays on the chip comes to the units that hold it."""
    held, units, size = group.handed[name], group.walk.units, group.geometry.facts.tensor_bytes(name)
    if _is_along(group, held.axis):
        apart = _apart(group, name, held)
        own = min(group.part_bytes(name), size - apart)
        return HandedMoves(own=own, scattered=apart, senders=units, receivers=1)
    holders = group.profile.units.count
    own = size // holders
    return HandedMoves(scattered=size - own, senders=units, receivers=holders - 1, own=own // units)


def moving_cycles(group: TiledGroup, moves: HandedMoves, times: int) -> float:
    """Cycles of the busiest engine or link between units, in so many transfers one after another to each of its others.

    What a core without SRAM copies of its own part it does itself: `copying_cycles` of pace.
    """
    profile, units = group.profile, group.walk.units
    engine = profile.units.peer_engine
    if engine is None:
        return 0.0
    rate, start, total = engine.bytes_per_cycle, engine_startup_cycles(engine, profile), 0.0
    if moves.gathered and units > 1:
        each = transfers_of_part(profile, units)
        share = max(busiest_link(profile, units, each), each / moves.senders)
        total += moves.gathered * share / rate + times * start * each
    if moves.scattered:
        share = max(scattered_share(profile), 1 / moves.senders)
        total += moves.scattered * share / rate + times * start * moves.receivers
    if moves.own and not profile.units.are_cores:
        total += moves.own / rate + times * start
    return total


def _is_along(group: TiledGroup, axis: str) -> bool:
    """True if units share out the group's output along an axis."""
    axes = {Spread.BANDS: group.walk.rows, Spread.IMAGES: "N", Spread.CHANNELS: "C"}
    return axes.get(group.configuration.spread) == axis


def _givers(group: TiledGroup, name: str, held: Handed) -> int:
    """How many units hold parts of a box of a tensor."""
    _, starts, stops = group.frustums.of_tensor[name].ranges[group.geometry.facts.tensors[name].axes.index(held.axis)]
    return max(1, min(group.profile.units.count, int((stops - starts).max()) // held.share))


def _apart(group: TiledGroup, name: str, held: Handed) -> int:
    """Bytes of a tensor that other units hold than those that work on them; borders of tiles apart."""
    walk, output, tensor = group.walk, group.geometry.output, group.geometry.facts.tensors[name]
    rows = np.arange(output.shape[output.axes.index(held.axis)])
    if group.configuration.spread is Spread.BANDS:
        cut = walk.axes[held.axis]
        working = walk.assignment.owner[np.searchsorted(cut.starts, rows, side="right") - 1]
    else:
        working = (rows // ceil_div(len(rows), walk.units))[:, None]
    holding = rows * tensor.shape[tensor.axes.index(held.axis)] // len(rows) // held.share
    return group.geometry.facts.tensor_bytes(name) * int((working != holding[:, None]).sum()) // working.size
