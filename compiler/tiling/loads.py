"""How often weights and address tables are read from DRAM per inference (SPEC 5.1, ADDR-5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.cost.rates import reads_are_shared
from compiler.tiling.tile import OpWeights, WeightHome, WeightLoads
from compiler.tiling.tiled import TiledGroup


def op_weights(group: TiledGroup) -> tuple[OpWeights, ...]:
    """How each op's weights are read from DRAM."""
    result = []
    for step, (op, weights, home) in enumerate(zip(group.geometry.ops, group.weights, group.homes, strict=True)):
        if not weights.size_bytes:
            continue
        kind, loads = _loads_of_all(group, step, home)
        if loads > 1 and kind is WeightLoads.ONCE_THROUGH:
            kind = WeightLoads.STREAMED
        size, slices = weights.size_bytes, weights.slices
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
