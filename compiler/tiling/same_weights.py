"""Which ops of a group may find their weights in the cores, as an earlier one of the group brought them (TILE-6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from compiler.ops.op_facts import OpFacts
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.projection import Box

# Per step an earlier step, or None.
Same = tuple[int | None, ...]


def same_weights(geometry: GroupGeometry) -> Same:
    """Per step the first step of an equal op that reads the same weights; None for that one, and without weights."""
    found: Same | None = geometry.worked_out.get(("same weights",))
    if found is None:
        numbers = [geometry.facts.weight_numbers[index] for index in geometry.indices]
        first: dict[int | None, int] = {}
        for step, number in enumerate(numbers):
            first.setdefault(number, step)
        found = tuple([None if n is None or first[n] == step else first[n] for step, n in enumerate(numbers)])
        geometry.worked_out["same weights",] = found
    return found


def same_parts(geometry: GroupGeometry) -> Same:
    """As `same_weights`, but None where not all channels of both are needed: their parts of channels differ."""
    same = same_weights(geometry)
    if all(like is None for like in same):
        return same
    found: Same | None = geometry.worked_out.get(("same parts",))
    if found is None:
        boxes = geometry.whole_boxes
        has_all = [needs_all_channels(geometry, op, boxes) for op in geometry.ops]
        pairs = zip(same, has_all, strict=True)
        found = tuple([like if like is not None and own and has_all[like] else None for like, own in pairs])
        geometry.worked_out["same parts",] = found
    return found


def needs_all_channels(geometry: GroupGeometry, op: OpFacts, boxes: Mapping[str, Box]) -> bool:
    """True if all tiles of these boxes need all output channels of an op: a view may make other axes of them."""
    if op.channel_axis is None:
        return True
    _, starts, stops = boxes[op.output][op.channel_axis]
    extent = geometry.facts.tensors[op.output].shape[op.channel_axis]
    return int(starts.max()) == 0 and int(stops.min()) == extent


def bytes_again(geometry: GroupGeometry, same: Sequence[int | None]) -> int:
    """Bytes of weights of ops that find them as an earlier one brought them."""
    return sum(op.weight_bytes for op, like in zip(geometry.ops, same, strict=True) if like is not None)
