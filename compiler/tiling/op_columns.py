"""The ops of a group as columns: what an estimate of all its tilings needs of their work."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from compiler.cost.array import Lanes, arrangements, depth_passes
from compiler.ops.base import MatrixShape
from compiler.ops.op_facts import OpFacts
from compiler.profile.schema import Profile
from compiler.tiling.sizes import SizeTable
from compiler.units import ceil_div

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpArrays:
    """The ops of a group as columns: what their cycles depend on; `pixels` in array steps of output positions."""

    pixels: Floats
    channels: Floats
    per_group: Floats
    depth: Floats
    lane_operations: Floats
    vector_operations: Floats
    is_matrix: np.ndarray[Any, np.dtype[np.bool_]]
    lanes_k: Floats
    lanes_c: Floats


def op_arrays(table: SizeTable, profile: Profile) -> OpArrays:
    """Columns of a group's ops, whole maps."""
    geometry, matrix = table.geometry, profile.matrix
    rows, known = [], geometry.projections.known
    for op in geometry.ops:
        found = known.get(("column", op.index))
        # the row of another matrix unit is not this one's
        if not isinstance(found, tuple) or found[0] is not matrix:
            found = known["column", op.index] = (matrix, _op_row(op, table, profile))
        rows.append(found[1])
    columns = [np.array(column, dtype=np.float64) for column in zip(*rows, strict=True)]
    return OpArrays(
        pixels=columns[0],
        channels=columns[1],
        per_group=columns[2],
        depth=columns[3],
        lane_operations=columns[4],
        vector_operations=columns[5],
        is_matrix=columns[6] > 0,
        lanes_k=columns[7],
        lanes_c=columns[8],
    )


def _op_row(op: OpFacts, table: SizeTable, profile: Profile) -> tuple[float, ...]:
    output = table.geometry.facts.tensors[op.output]
    channels = output.shape[op.channel_axis] if op.channel_axis is not None else 1
    elements = prod(output.shape)
    pixels = elements / max(1, channels)
    array = profile.matrix.arrays.get(op.dtype)
    shape = op.matrix
    lanes, depth = None, 0
    if shape is not None and array is not None:
        # the arrangement of the array's blocks that suits the whole map
        lanes = min(arrangements(array), key=lambda lanes: _whole_map_cycles(pixels, channels, shape, lanes))
        depth = depth_passes(shape, 1, lanes.c)
        pixels /= lanes.ox * lanes.oy
    return (
        pixels,
        channels,
        shape.out_channels if shape is not None else 1,
        depth,
        float(2 * op.macs * elements),
        float(op.vector_ops * elements),
        float(shape is not None),
        lanes.k if lanes is not None else 1,
        lanes.c if lanes is not None else 1,
    )


def _whole_map_cycles(pixels: float, channels: int, shape: MatrixShape, lanes: Lanes) -> float:
    passes = ceil_div(channels, min(shape.out_channels, lanes.k))
    return pixels / (lanes.ox * lanes.oy) * passes * depth_passes(shape, 1, lanes.c)
