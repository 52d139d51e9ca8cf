"""How a model for ranges of shapes is cut into segments, and which chip runs each (PART-3 to PART-5, SHAPE-9).

The rules are those of plans. A candidate segment compiles if each of its ops has a shape unit beside the segment's
stationary weights; weights that are streamed take no room, and nothing is cut but host from chip.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from compiler.errors import LimitError
from compiler.fusion.candidate import SegmentCompiler
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.chain import alternating_parts
from compiler.partition.chips import ChipStrategy, SegmentLoad, assign_chips, hand_overs
from compiler.partition.partition import PartitionGraph
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile
from compiler.shapes.choose import RoutineChooser
from compiler.shapes.model import Part
from compiler.shapes.residence import in_every_core


class UnitCompiler(SegmentCompiler):
    """Whether ops compile as one segment of shape units: limits as for plans, and a unit of each op."""

    def __init__(
        self, facts: GraphFacts, profile: Profile, options: Options, others: Sequence[GraphFacts] = ()
    ) -> None:
        """`others` are the facts of the graph at other extents than the largest."""
        super().__init__(facts, profile, options)
        self._others = others
        # whichever ops are in a segment, and whichever of them reads a weight first
        readers = [in_every_core(facts, profile, (op.index,)) for op in facts.ops]
        self._in_place = frozenset().union(*readers) - {
            name
            for op, mine in zip(facts.ops, readers, strict=True)
            for name in facts.weights_of((op.index,))
            if name not in mine
        }
        self._choosers: dict[int, RoutineChooser] = {}

    def _alone(self, op: int, resident: int) -> LimitError | None:
        """Why an op has no unit beside so many bytes of stationary weights in each core; None if it has one."""
        chooser = self._choosers.get(resident)
        if chooser is None:
            profile = self.profile.beside(resident)
            chooser = self._choosers[resident] = RoutineChooser(self.facts, profile, self._others, self._in_place)
        return chooser.refusal(op)


def segments_of(
    facts: GraphFacts, profile: Profile, options: Options, others: Sequence[GraphFacts]
) -> tuple[tuple[bool, tuple[int, ...]], ...]:
    """The chain of segments, each with whether it is the host's; raises LimitError where a single op does not fit."""
    if not profile.is_stationary:
        return alternating_parts(facts.graph)
    compiler = UnitCompiler(facts, profile, options, others)
    partition = PartitionGraph(
        profile=profile, options=options, candidates=lambda _: compiler, facts_of=lambda _: facts
    )
    found = partition.run(facts.graph)
    return tuple((segment.kind is SegmentKind.HOST, segment.ops) for segment in found.segments)


def on_chips(
    facts: GraphFacts, profile: Profile, strategy: ChipStrategy, parts: Sequence[Part], cycles: Mapping[int, float]
) -> tuple[Part, ...]:
    """The parts with their chips; `cycles`: by place in the chain what a part of the chip takes at the largest extents.

    Raises LimitError where segments outnumber the chips or their weights exceed a chip's DRAM.
    """
    number = {place: index for index, place in enumerate(sorted(cycles))}
    loads = [
        SegmentLoad(cycles=ceil(cycles[place]), weight_bytes=facts.weight_bytes(parts[place].ops)) for place in number
    ]
    passed = hand_overs(facts, [part.ops for part in parts], number)
    chip_of = assign_chips(loads, passed, [profile.dram.capacity_bytes] * profile.chips, strategy).chip_of
    return tuple(
        replace(part, chip=chip_of[number[place]]) if place in number else part for place, part in enumerate(parts)
    )
