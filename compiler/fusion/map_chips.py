"""The pass that gives every chip segment its chip, once groups and their cycles are known (PART-5)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fusion.groups import FusedGraph
from compiler.options import Options
from compiler.partition.chips import ChipAssignment, SegmentLoad, assign_chips, hand_overs
from compiler.partition.mapping_graph import MappingGraph
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedGraph:
    """A fused graph, the chip of each segment (None on the host), and each chip's load and traffic.

    `assignment` numbers the chip segments only, in order. `mapping` is the graph's mapping graph, its nodes on the
    chips of their segments (PART-6).
    """

    fused: FusedGraph
    chip_of: tuple[int | None, ...]
    assignment: ChipAssignment
    mapping: MappingGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class MapToChips:
    """Pass: segments to chips, by the chosen strategy."""

    name: str = "map"
    profile: Profile
    options: Options

    def run(self, fused: FusedGraph) -> MappedGraph:
        """Raises LimitError where segments outnumber the chips or their weights exceed a chip's DRAM."""
        facts = fused.facts
        number: dict[int, int] = {}
        loads: list[SegmentLoad] = []
        for index, found in enumerate(fused.segments):
            if found.segment.kind is SegmentKind.CHIP:
                number[index] = len(loads)
                loads.append(
                    SegmentLoad(
                        cycles=sum(group.choice.cost.cycles for group in found.groups),
                        weight_bytes=facts.weight_bytes(found.segment.ops),
                    )
                )
        capacities = [self.profile.dram.capacity_bytes] * self.profile.chips
        passed = hand_overs(facts, [found.segment.ops for found in fused.segments], number)
        assignment = assign_chips(loads, passed, capacities, self.options.chips)
        chip_of = tuple(
            assignment.chip_of[number[index]] if index in number else None for index in range(len(fused.segments))
        )
        chip_of_op = {op: chip for chip, found in zip(chip_of, fused.segments, strict=True) for op in found.segment.ops}
        return MappedGraph(
            fused=fused,
            chip_of=chip_of,
            assignment=assignment,
            mapping=fused.partitioned.mapping.on_chips(chip_of_op),
        )
