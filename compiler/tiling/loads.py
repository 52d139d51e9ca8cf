"""What is read from DRAM per inference: inputs, weights, address tables, and how often (SPEC 5.1, ADDR-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from compiler.cost.rates import reads_are_shared
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, OpWeights, Spread, WeightHome, WeightLoads
from compiler.tiling.tiled import TiledGroup
from compiler.units import ceil_div


def op_weights(group: TiledGroup) -> tuple[OpWeights, ...]:
    """How each op's weights are read from DRAM."""
    result = []
    for step, (op, weights, home) in enumerate(zip(group.geometry.ops, group.weights, group.homes, strict=True)):
        size, slices = weights.size_bytes, weights.slices
        if group.finds_weights(step):
            kind, loads, size = WeightLoads.RESIDENT, 0, group.weights_of_each[step].size_bytes
        elif size:
            kind, loads = _loads_of_all(group, step, home)
        else:
            continue
        if loads > 1 and kind is WeightLoads.ONCE_THROUGH:
            kind = WeightLoads.STREAMED
        result.append(OpWeights(op=op.index, size_bytes=size, kind=kind, loads=loads, home=home, slices=slices))
    return tuple(result)


def weight_reads(group: TiledGroup) -> Sequence[int]:
    """Bytes of weights that each op reads from DRAM, in order."""
    pairs = zip(group.weights, group.homes, strict=True)
    return [
        weights.size_bytes * _loads_of_all(group, step, home)[1] if weights.size_bytes else 0
        for step, (weights, home) in enumerate(pairs)
    ]


def _loads_of_all(group: TiledGroup, step: int, home: WeightHome) -> tuple[WeightLoads, int]:
    """How an op's weights are read from DRAM, and how often by all units together."""
    if group.profile.is_stationary:
        return WeightLoads.STATIONARY, 0
    kind, loads = _loads(group, step, home)
    return kind, loads * group.weight_copies


def table_reads(group: TiledGroup) -> Mapping[int, int]:
    """Bytes of address tables that each op reads from DRAM, by its index: as often as its weights come to cores."""
    copies = 1 if reads_are_shared(group.profile) else group.walk.units
    found = {}
    for step, (op, weights, home) in enumerate(zip(group.geometry.ops, group.weights, group.homes, strict=True)):
        if weights.table_bytes:
            loads = 1
            if not group.weights_in_place:
                loads = _loads(group, step, home)[1]
            found[op.index] = weights.table_bytes * loads * copies
    return found


def _loads(group: TiledGroup, step: int, home: WeightHome) -> tuple[WeightLoads, int]:
    """How weights of one home are read from DRAM, and how often by each unit."""
    if home is WeightHome.SRAM and group.slices * group.configuration.input_slices == 1:
        return WeightLoads.RESIDENT, 1
    if group.waits_in_core(step):
        return WeightLoads.RESIDENT, 1
    times = group.walk.rounds
    if group.is_nested and (home is WeightHome.DRAM or group.weight_parts_come_again):
        # units that pass halos on one way work one after another, so that each brings them for itself
        in_turn = (
            group.exchanges
            and not group.is_in_step
            and not group.shares_weights_out
            and reads_are_shared(group.profile)
        )
        times = (group.walk.tiles if in_turn else group.walk.rounds) * group.core_walk.rounds
    if group.configuration.slices_outer and group.slice_stays and home is WeightHome.CORE:
        times = 1
    if home is WeightHome.DRAM:
        times *= group.passes(step)[0]
    is_product = group.geometry.ops[step] is group.geometry.product
    if is_product and group.configuration.input_slices > 1 and group.configuration.slices_outer:
        # a factor that does not follow the channels comes part by part for each slice of them
        times *= group.slices if group.weights[step].shared_bytes else 1
    return (WeightLoads.ONCE_THROUGH, 1) if times == 1 else (WeightLoads.STREAMED, times)


def input_reads(group: TiledGroup) -> dict[str, tuple[int, int]]:
    """By input the bytes read from DRAM if units pass on what several need, and if each reads for itself."""
    # what earlier groups left on the chip is not read there
    return {name: (0, 0) if name in group.taken else reads_of(group, name) for name in group.geometry.inputs}


def reads_of(group: TiledGroup, name: str) -> tuple[int, int]:
    """Bytes read of an input if units pass on what several need, and if each reads for itself."""
    configuration = group.configuration
    by_channels = configuration.spread is Spread.CHANNELS
    are_bands = configuration.spread is Spread.BANDS and configuration.placement is Placement.BANDS
    constant, shares = group.frustums.factors(name)
    followed = group.frustums.of_tensor[name].followed
    own = constant
    once = constant
    for axis, share in shares.items():
        own *= share.made_sum
        # what is the same for all tiles along an axis reaches the chip once and is passed on
        unchanging = axis not in followed
        cached = unchanging and group.frustums.tiles[axis].mode is not HaloMode.RECOMPUTE
        in_bands = unchanging and axis == group.walk.rows and are_bands
        if by_channels and axis == "C" and group.slices == 1:
            # units that make channels of one group of a convolution need the same
            once *= _distinct(group, name)
        else:
            once *= 1 if cached else ceil_div(share.made_sum, group.walk.units) if in_bands else share.made_sum
    divided = group.channels_are_free and "C" in followed
    whole_output = group.geometry.channels_follow and _follows_channels(group, name)
    own *= group.configuration.units if by_channels and not (divided or whole_output) else 1
    if name in group.reduced and group.is_nested and group.parts_come_again:
        once, own = once * group.core_walk.rounds, own * group.core_walk.rounds
    return once, max(once, own)


def _distinct(group: TiledGroup, name: str) -> int:
    """Channels of an input over all ranges that differ: units that share out the output's read equal ones once."""
    ranges = [
        zip(starts.tolist(), stops.tolist(), strict=True)
        for axis, starts, stops in group.frustums.of_tensor[name].ranges
        if axis == "C"
    ]
    return prod(sum(stop - start for start, stop in set(its)) for its in ranges)


def _follows_channels(group: TiledGroup, name: str) -> bool:
    """True if an input's box follows the output's channels, whether or not these are cut in time."""
    boxes = group.geometry.channel_boxes
    return any(axis == "C" for axis, _, _ in boxes[name])
