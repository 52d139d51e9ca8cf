"""What passes from group to group on the chip: units hold parts of a tensor beside all that the groups do (TILE-4).

Groups with a tensor between them may so be spread in different ways, the first by rows and the second by channels, say.
Units hold their parts at the end of their memories, which all groups between the first and the last leave free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Final

from compiler.cost.rates import units_are_connected
from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import Configuration, Handed, Handover, Spread
from compiler.tiling.walk import dealt_axes
from compiler.units import ceil_div

Box = tuple[tuple[int, int], ...]
# Of parts that lie one before the other.
ALIGNMENT_BYTES: Final = 64


def may_hand_over(profile: Profile) -> bool:
    """True if units can hold tensors for each other: several, with a way from each to each."""
    return profile.units.count > 1 and units_are_connected(profile)


def handed_tensors(geometry: GroupGeometry, handover: Handover) -> Mapping[str, Handed]:
    """The result that a group leaves on the chip; none or one."""
    its = handover.hands
    return {} if its is None else {geometry.outputs[its.place]: its}


def taken_tensors(geometry: GroupGeometry, handover: Handover) -> Mapping[str, Handed]:
    """The inputs of a group that earlier ones left on the chip."""
    return {geometry.inputs[its.place]: its for its in handover.takes}


def part_bytes(facts: GraphFacts, name: str, handed: Handed) -> int:
    """Bytes of the largest part of a tensor."""
    tensor = facts.tensors[name]
    extent = tensor.shape[tensor.axes.index(handed.axis)]
    return facts.tensor_bytes(name) // extent * min(extent, handed.share) if extent else 0


def begin_of(facts: GraphFacts, name: str, handed: Handed) -> int:
    """How many bytes before the end of a unit's memory its part of a tensor begins."""
    return handed.before_end + ceil_div(part_bytes(facts, name, handed), ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def part_boxes(facts: GraphFacts, name: str, handed: Handed, units: int) -> list[Box]:
    """The part of a tensor that each unit holds; of the last ones it may be empty."""
    tensor = facts.tensors[name]
    along = tensor.axes.index(handed.axis)
    extent = tensor.shape[along]
    cuts = [min(extent, handed.share * unit) for unit in range(units + 1)]
    return [
        tuple((low, high) if axis == along else (0, side) for axis, side in enumerate(tensor.shape))
        for low, high in pairwise(cuts)
    ]


def apart_from(facts: GraphFacts, name: str, handed: Handed, others: Iterable[tuple[int, int]]) -> Handed:
    """A tensor's parts as near to the end of the memories as others leave room: by theirs, where they end and begin."""
    taken = sorted(others)
    for before_end in sorted({0, *(begin for _, begin in taken)}):
        found = replace(handed, before_end=before_end)
        begin = begin_of(facts, name, found)
        if all(begin <= end or before_end >= other for end, other in taken):
            return found
    raise AssertionError(taken)


def shared_out(geometry: GroupGeometry, configuration: Configuration) -> Handed | None:
    """How units hold a group's only output where each makes its part of it; None where units have no such parts."""
    output, spread = geometry.output, configuration.spread
    if len(geometry.outputs) != 1 or geometry.outputs[0] != geometry.primary:
        return None
    axes = {Spread.BANDS: dealt_axes(geometry)[0], Spread.IMAGES: "N", Spread.CHANNELS: "C"}
    axis = axes.get(spread)
    if axis is None or axis not in output.axes:
        return None
    extent = output.shape[output.axes.index(axis)]
    return Handed(place=0, axis=axis, share=ceil_div(extent, configuration.units), before_end=0)
