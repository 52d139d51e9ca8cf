"""What units that make parts of a result's channels need of each other for the ops that follow (FUSE-S1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from compiler.ir.box import AxisMap, Ints
from compiler.ops.op_facts import OpFacts
from compiler.tiling.geometry import GroupGeometry
from compiler.units import ceil_div

# An op that reads a result, and the number of the operand that it is.
_Reader = tuple[OpFacts, int]


def passed_parts(geometry: GroupGeometry, parts: int) -> Mapping[int, float]:
    """By op how much of the others' channels of its result each of `parts` units needs, as a part of these, on average.

    A later op needs all channels (1), or as a grouped convolution or a shuffle does, those of its groups; 0 where it
    needs its own alone. Without channels each unit makes the whole.
    """
    found = geometry.passed_parts.get(parts)
    if found is None:
        readers: dict[str, list[_Reader]] = {op.output: [] for op in geometry.ops}
        for reader in geometry.ops:
            for number, operand in enumerate(reader.operands):
                if operand.tensor in readers:
                    readers[operand.tensor].append((reader, number))
        found = {op.index: _passed_part(geometry, op, readers[op.output], parts) for op in geometry.ops}
        geometry.passed_parts[parts] = found
    return found


def _passed_part(geometry: GroupGeometry, op: OpFacts, readers: Sequence[_Reader], parts: int) -> float:
    axis = op.channel_axis
    if axis is None or parts == 1 or not readers:
        return 0.0
    key = ("channels passed", op.index, parts, tuple([(reader.index, number) for reader, number in readers]))
    known = geometry.projections.known.get(key)
    if isinstance(known, float):
        return known
    extent = geometry.facts.tensors[op.output].shape[axis]
    begins, ends = _own(extent, parts)
    low, high = np.full(parts, extent, dtype=np.int64), np.zeros(parts, dtype=np.int64)
    for reader, number in readers:
        begin, end = _needed(geometry, reader, reader.operands[number].access[axis], extent, parts)
        some = end > begin
        low = np.where(some, np.minimum(low, begin), low)
        high = np.where(some, np.maximum(high, end), high)
    mine = np.maximum(0, np.minimum(high, ends) - np.maximum(low, begins))
    of_others = int((np.maximum(0, high - low) - mine).sum())
    found = geometry.projections.known[key] = of_others / ((parts - 1) * extent)
    return found


def _needed(geometry: GroupGeometry, reader: OpFacts, access: AxisMap, extent: int, parts: int) -> tuple[Ints, Ints]:
    """The channels, of `extent`, that each unit's part of a reader needs."""
    shape = geometry.facts.tensors[reader.output].shape
    if access.axis is not None and access.axis == reader.channel_axis:
        return access.project(*_own(shape[access.axis], parts), extent)
    # what does not follow the reader's channels is needed as for all of it
    whole = np.array([1 if access.axis is None else shape[access.axis]])
    begin, end = access.project(np.zeros(1, dtype=np.int64), whole, extent)
    return np.repeat(begin, parts), np.repeat(end, parts)


def _own(extent: int, parts: int) -> tuple[Ints, Ints]:
    """The parts of an axis, as `program/parts.py` cuts it."""
    size = ceil_div(extent, parts)
    begins = np.minimum(np.arange(parts, dtype=np.int64) * size, extent)
    return begins, np.minimum(begins + size, extent)
