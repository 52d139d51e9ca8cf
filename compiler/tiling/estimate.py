"""A quick estimate of every configuration's price, as arrays: it orders them, exact prices decide."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from compiler.cost.objective import Totals
from compiler.cost.rates import dram_port_bytes_per_cycle
from compiler.ops.facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.sizes import SizeTable
from compiler.tiling.tile import Order, Spread
from compiler.tiling.traffic import TilePlan

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpArrays:
    """The ops of a group as columns: what their cycles depend on."""

    pixels: Floats
    channels: Floats
    per_group: Floats
    depth: Floats
    lane_operations: Floats
    vector_operations: Floats
    is_matrix: np.ndarray[Any, np.dtype[np.bool_]]
    input_bytes: Floats
    output_bytes: Floats
    lanes_k: Floats


def op_arrays(table: SizeTable, profile: Profile) -> OpArrays:
    """Columns of a group's ops, whole maps."""
    geometry = table.geometry
    rows = [_op_row(op, table, profile) for op in geometry.ops]
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    return OpArrays(
        pixels=columns[0],
        channels=columns[1],
        per_group=columns[2],
        depth=columns[3],
        lane_operations=columns[4],
        vector_operations=columns[5],
        is_matrix=columns[6] > 0,
        input_bytes=columns[7],
        output_bytes=columns[8],
        lanes_k=columns[9],
    )


def _op_row(op: OpFacts, table: SizeTable, profile: Profile) -> tuple[float, ...]:
    tensors = table.geometry.facts.tensors
    output = tensors[op.output]
    channels = output.shape[op.channel_axis] if op.channel_axis is not None else 1
    elements = prod(output.shape)
    array = profile.matrix.arrays.get(op.dtype)
    shape = op.matrix
    depth = -(-shape.in_channels // array.c) * shape.taps if shape is not None and array is not None else 0
    inputs = sum(prod(tensors[o.tensor].shape) * tensors[o.tensor].element_bytes for o in op.operands if not o.constant)
    return (
        elements / max(1, channels),
        channels,
        shape.out_channels if shape is not None else 1,
        depth,
        float(2 * op.macs * elements),
        float(op.vector_ops * elements),
        float(shape is not None),
        inputs,
        elements * output.element_bytes,
        array.k if array is not None else 1,
    )


def estimates(plans: list[TilePlan], table: SizeTable, profile: Profile) -> Totals:
    """DRAM bytes, cycles and energy of each plan, estimated; arrays over plans.

    Compute is spread evenly over the cores in use; on-chip transfers go through the cores' move engines.
    """
    ops = op_arrays(table, profile)
    share = np.array([_channel_parts(plan) for plan in plans], dtype=np.float64)
    slices = np.array([plan.configuration.channel_slices for plan in plans], dtype=np.float64)
    cores = np.array([plan.cores_in_use for plan in plans], dtype=np.float64)
    dram = np.array([plan.dram_bytes(profile) for plan in plans], dtype=np.float64)
    by_area = cores / share
    mine = np.ceil(ops.channels[:, None] / (share * slices))
    per_group, k = ops.per_group[:, None], ops.lanes_k[:, None]
    groups = np.ceil(mine / per_group)
    pixels = ops.pixels[:, None] / by_area
    matrix = groups * np.ceil(np.minimum(mine / groups, per_group) / k) * ops.depth[:, None] * pixels * slices
    lanes = ops.lane_operations[:, None] / cores / profile.vector.lanes
    compute = np.where(ops.is_matrix[:, None], np.minimum(matrix, lanes), 0.0)
    compute = compute + ops.vector_operations[:, None] / cores / profile.vector.lanes
    onchip = _onchip(plans, ops, profile)
    rate = np.array([dram_port_bytes_per_cycle(profile, plan.units) for plan in plans])
    moved = dram / rate
    alone = np.array(
        [not (p.configuration.double_buffered or p.rounds * p.configuration.channel_slices == 1) for p in plans]
    )
    busy = compute.sum(axis=0) + np.where(alone, moved, 0.0)
    cycles = np.maximum(np.maximum(moved, busy), onchip)
    energy = dram * profile.dram.read_pj_per_byte + profile.static_w * cycles / profile.clock_hz * 1e12
    if profile.sram is not None and profile.engines.mvdma is not None:
        energy = energy + onchip * profile.engines.mvdma.bytes_per_cycle * profile.sram.read_pj_per_byte
    return Totals(dram_bytes=dram, cycles=cycles, energy_pj=energy)


def _channel_parts(plan: TilePlan) -> int:
    configuration = plan.configuration
    parts = configuration.units if configuration.spread is Spread.CHANNELS else 1
    return parts * (configuration.cores if configuration.core_spread is Spread.CHANNELS else 1)


def _onchip(plans: list[TilePlan], ops: OpArrays, profile: Profile) -> Floats:
    """Cycles of the busiest move engine, per plan."""
    engine = profile.engines.mvdma if profile.sram is not None else profile.engines.link
    if engine is None:
        return np.zeros(len(plans))
    result = np.zeros(len(plans))
    tensors = plans[0].geometry.facts.tensors
    inputs = sum(prod(tensors[name].shape) * tensors[name].element_bytes for name in plans[0].geometry.inputs)
    for index, plan in enumerate(plans):
        parts = _channel_parts(plan)
        if plan.configuration.order is Order.BREADTH_FIRST:
            moved = float(ops.input_bytes.sum()) * parts + float(ops.output_bytes.sum())
        else:
            moved = inputs * parts * plan.configuration.channel_slices
        result[index] = moved / (engine.bytes_per_cycle * plan.cores_in_use)
    return result
