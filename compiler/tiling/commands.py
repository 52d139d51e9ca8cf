"""Which tilings have a program, and how long it is going to be: plans keep from tiles of a few positions (PROG-1)."""

from __future__ import annotations

from typing import Final

from compiler.cost.rates import units_are_connected
from compiler.tiling.figures import Check
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div

# The commands of a group: with more, tiles are so small that issuing commands is what takes the time.
GROUP_COMMANDS_MAX: Final = 1 << 15
# What takes up a sum: the call, its inputs, its weights and bias, the sums passed on.
_COMMANDS_OF_A_PART: Final = 5
COMMANDS_RULE: Final = "PROG-1:commands"
SUMS_RULE: Final = "PROG-1:sums"
FALLS_RULE: Final = "PROG-1:falls"
APART_RULE: Final = "TILE-3:exchange"
# What a tiling is like, which no memory changes.
FORM_RULES: Final = (SUMS_RULE, FALLS_RULE, APART_RULE)


def commands_check(group: TiledGroup, *, is_searched: bool) -> Check | None:
    """What keeps a group from being lowered, or its program from being sensible; None if nothing does.

    PROG-1:commands holds where tilings are searched.
    """
    found = apart_check(group) or sums_check(group) or falls_check(group)
    return found or (length_check(group) if is_searched else None)


def apart_check(group: TiledGroup) -> Check | None:
    """TILE-3:exchange: units that are to pass each other halos have a way to each other."""
    configuration, geometry = group.configuration, group.geometry
    if configuration.spread not in (Spread.BANDS, Spread.IMAGES) or units_are_connected(group.profile):
        return None
    if not group.exchanges or not any(map(group.frustums.kept_bytes, (*geometry.inputs, *geometry.made))):
        return None
    return Check(rule=APART_RULE, holds=False, actual=configuration.units, limit=1)


def sums_check(group: TiledGroup) -> Check | None:
    """PROG-1:sums: sums in parts keep nothing of what is summed for later tiles, and do not pass an SRAM in pieces."""
    if group.input_parts == 1:
        return None
    kept = sum(group.frustums.kept_bytes(name) for name in group.reduced)
    if group.is_staged:
        kept = max(kept, group.input_parts)
    return Check(rule=SUMS_RULE, holds=False, actual=kept, limit=0) if kept else None


def falls_check(group: TiledGroup) -> Check | None:
    """PROG-1:falls: no tensor's ranges fall back from core tile to core tile where those of SRAM tiles rise.

    Whether ranges rise is told level by level. Where only those of core tiles fall (a pooling between pads), cores make
    whole boxes, of what the SRAM tile may have only the new part of.
    """
    if not group.is_nested or not any(mode is not HaloMode.RECOMPUTE for _, mode in group.configuration.halo):
        return None
    whole, inside = group.frustums, group.core_frustums
    for name in (*group.geometry.inputs, *group.geometry.made):
        if not whole.of_tensor[name].rising.isdisjoint(inside.of_tensor[name].falling):
            return Check(rule=FALLS_RULE, holds=False, actual=1, limit=0)
    return None


def length_check(group: TiledGroup) -> Check | None:
    """PROG-1:commands as a check; None if a group's program is not too long to be sensible."""
    limit = min(group.profile.limits.commands or GROUP_COMMANDS_MAX, GROUP_COMMANDS_MAX)
    actual = estimated_commands(group)
    return None if actual <= limit else Check(rule=COMMANDS_RULE, holds=False, actual=actual, limit=limit)


def estimated_commands(group: TiledGroup) -> int:
    """About how many commands a group's program takes: calls, inputs, results, and what is kept, sent and passed on."""
    geometry, frustums = group.geometry, group.frustums
    shared = group.channel_parts > 1 and not group.channels_are_free
    workers = group.channel_parts
    names = (*geometry.inputs, *geometry.made)
    # what waits moves into a store per axis, in two pieces where it goes round
    kept = 2 * sum(len(frustums.reused_along(name)) for name in names if frustums.kept_bytes(name))
    sent = 2 if shared else 0
    if group.is_nested:
        tiles, steps = group.core_walk.total * group.slices, len(geometry.ops)
    elif group.is_flat:
        tiles, steps = group.walk.tiles * group.slices, len(geometry.ops)
    else:
        # pieces are shared out to the cores: nobody works on one with others
        tiles, workers = group.walk.tiles * group.slices, 1
        steps = sum(stage.pieces * (len(stage.steps) + len(stage.inputs) + 1) for stage in group.stages)
    ends = len(geometry.outputs) * workers
    if group.is_nested:
        # between the SRAM and each core
        ends += (len(geometry.inputs) + len(geometry.outputs)) * workers
    # each part of a sum is a call of its own, brings its inputs and weights, and is passed on
    sums = tiles * (group.input_parts - 1) * _COMMANDS_OF_A_PART
    each = steps * workers * (1 + sent) + ends
    return tiles * each + group.walk.tiles * (kept * workers + len(geometry.inputs)) + sums + _from_peers(group)


def _from_peers(group: TiledGroup) -> int:
    """Transfers of stationary weights from the cores in which they lie: each sends its part to all that need it.

    Units that share sums need each a part of what every core has.
    """
    if not group.profile.is_stationary or group.weights_in_place:
        return 0
    facts, units = group.geometry.facts, group.walk.units
    spread = group.configuration.spread
    total = 0
    for step, op in enumerate(group.geometry.ops):
        if group.weights[step].size_bytes:
            shape = facts.tensors[op.output].shape
            owners = min(group.profile.cores, 1 if op.channel_axis is None else shape[op.channel_axis])
            slices = group.weights[step].slices
            if spread is Spread.INPUT_CHANNELS:
                total += group.brought(step) * units * (owners + slices)
            elif spread is Spread.CHANNELS:
                total += group.brought(step) * (owners + units * slices)
            else:
                total += ceil_div(group.brought(step), units) * (owners + slices)
    return total
