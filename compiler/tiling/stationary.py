"""Stationary weights: how a segment's weights lie on its chip before it runs (PROF-2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod

import numpy as np

from compiler.ops.op_facts import GraphFacts, Operand, OpFacts
from compiler.profile.schema import Profile
from compiler.units import ceil_div


class WeightTable:
    """The weights of a graph's ops: bytes, and bytes in the fullest core where they are stationary.

    Stationary weights are spread over a chip's cores by output channels, so a core that computes its own channels
    needs no other weights; what has no channels lies in every core. A weight that several ops read counts once.
    """

    def __init__(self, facts: GraphFacts, profile: Profile) -> None:
        self._stationary = profile.is_stationary
        self._compression = profile.weights.compression
        readers: dict[str, int] = {}
        for op in facts.ops:
            for name in {operand.tensor for operand in op.operands if operand.constant}:
                readers[name] = readers.get(name, 0) + 1
        # what only one op reads, per op; what several read, by name
        self._bytes = np.zeros(len(facts.ops), dtype=np.int64)
        self._shares = np.zeros(len(facts.ops), dtype=np.int64)
        self._common: dict[int, dict[str, tuple[int, int]]] = {}
        for op in facts.ops:
            parts = {o.tensor: o for o in op.operands if o.constant}
            for name, operand in parts.items():
                size = facts.tensor_bytes(name)
                share = _share(facts, op, operand, profile.cores)
                if readers[name] == 1:
                    self._bytes[op.index] += size
                    self._shares[op.index] += share
                else:
                    self._common.setdefault(op.index, {})[name] = (size, share)

    @property
    def has_common(self) -> bool:
        """True if several ops read one weight, so that sums over ops count it more than once."""
        return bool(self._common)

    def size_bytes(self, ops: Sequence[int]) -> int:
        """Bytes of the weights that the ops read."""
        return int(self._bytes[list(ops)].sum()) + sum(size for size, _ in self._shared(ops).values())

    def resident_bytes_per_core(self, ops: Sequence[int]) -> int:
        """Bytes of weights in the fullest core of a chip that holds all weights of the ops; 0 where weights stream.

        Compressed as the profile says.
        """
        if not self._stationary:
            return 0
        total = int(self._shares[list(ops)].sum()) + sum(share for _, share in self._shared(ops).values())
        return ceil(total * self._compression)

    def _shared(self, ops: Sequence[int]) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        if self._common:
            # the first reader decides how a weight is shared out, as in `resident_weights`
            for op in reversed(ops):
                found.update(self._common.get(op, {}))
        return found


def resident_weights(facts: GraphFacts, ops: Sequence[int]) -> dict[str, tuple[OpFacts, Operand]]:
    """The weights of a segment's ops, each with the op that reads it first and the operand that it is there.

    That op decides along which axis a weight is shared out to the cores.
    """
    found: dict[str, tuple[OpFacts, Operand]] = {}
    for op in ops:
        for operand in facts.ops[op].operands:
            if operand.constant:
                found.setdefault(operand.tensor, (facts.ops[op], operand))
    return found


def is_shared_out(facts: GraphFacts, op: OpFacts, operand: Operand) -> bool:
    """True if each core holds its own output channels of a weight; what has none lies whole in every core."""
    return channel_axis(op, operand, facts.tensors[operand.tensor].shape) is not None


def has_all_shared(facts: GraphFacts, op: OpFacts, channels: int) -> bool:
    """True if so many output channels of an op are all that its weights are shared out by, or none are shared out."""
    if not any(operand.constant and is_shared_out(facts, op, operand) for operand in op.operands):
        return True
    assert op.channel_axis is not None
    return channels == facts.tensors[op.output].shape[op.channel_axis]


def resident_boxes(
    facts: GraphFacts, op: OpFacts, operand: Operand, profile: Profile
) -> list[tuple[tuple[int, int], ...]]:
    """By core the box of a stationary weight that lies there: its output channels; all of what has no channels.

    Channels are shared out to the units that hold tiles and then to their cores, as the work on them is.
    """
    shape = facts.tensors[operand.tensor].shape
    box = tuple([(0, extent) for extent in shape])
    axis = channel_axis(op, operand, shape)
    if axis is None:
        return [box] * profile.cores
    parts = (_channels_of_core(shape[axis], profile, core) for core in range(profile.cores))
    return [(*box[:axis], part, *box[axis + 1 :]) for part in parts]


def cores_of_channels(channels: int, profile: Profile) -> tuple[int, ...]:
    """The cores of a chip that hold any of so many output channels of a stationary weight."""
    ranges = enumerate(_channels_of_core(channels, profile, core) for core in range(profile.cores))
    return tuple(core for core, (start, stop) in ranges if start < stop)


def _channels_of_core(channels: int, profile: Profile, core: int) -> tuple[int, int]:
    """The range of the channels that one core holds; empty where they do not go round."""
    per = profile.units.cores
    return part_of(part_of((0, channels), core // per, profile.cores // per), core % per, per)


def part_of(channels: tuple[int, int], number: int, parts: int) -> tuple[int, int]:
    """Part `number` of `parts` of a range of channels: of the work on them, and of the weights that lie where it is."""
    start, stop = channels
    size = ceil_div(stop - start, parts)
    low = min(stop, start + number * size)
    return low, min(stop, low + size)


def channel_axis(op: OpFacts, operand: Operand, shape: tuple[int, ...]) -> int | None:
    """The axis of a weight that its op's output channels lie on; None if there is none."""
    for axis, (axis_map, extent) in enumerate(zip(operand.access, shape, strict=True)):
        if axis_map.axis is not None and axis_map.axis == op.channel_axis and axis_map.is_identity and extent > 1:
            return axis
    return None


def _share(facts: GraphFacts, op: OpFacts, operand: Operand, cores: int) -> int:
    """Bytes of one weight in the core that holds most of it."""
    tensor = facts.tensors[operand.tensor]
    axis = channel_axis(op, operand, tensor.shape)
    if axis is None:
        return facts.tensor_bytes(operand.tensor)
    extent = tensor.shape[axis]
    return ceil_div(extent, cores) * (prod(tensor.shape) // extent) * tensor.element_bytes
