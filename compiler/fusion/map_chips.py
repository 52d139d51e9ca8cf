"""The pass that gives every chip segment its chip, once groups and their cycles are known (PART-5)."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.fusion.groups import FusedGraph
from compiler.options import Options
from compiler.partition.chips import ChipAssignment, HandOver, SegmentLoad, assign_chips
from compiler.partition.segments import SegmentKind
from compiler.profile.schema import Profile


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedGraph:
    """A fused graph, the chip of each segment (None on the host), and each chip's load and traffic.

    `assignment` numbers the chip segments only, in order.
    """

    fused: FusedGraph
    chip_of: tuple[int | None, ...]
    assignment: ChipAssignment


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
        assignment = assign_chips(loads, _hand_overs(fused, number), capacities, self.options.chips)
        return MappedGraph(
            fused=fused,
            chip_of=tuple(
                assignment.chip_of[number[index]] if index in number else None for index in range(len(fused.segments))
            ),
            assignment=assignment,
        )


def _hand_overs(fused: FusedGraph, number: dict[int, int]) -> list[HandOver]:
    """What passes between chip segments and the host: graph inputs and outputs, host results, results of segments."""
    graph, facts = fused.partitioned.graph, fused.facts
    home = {op: index for index, found in enumerate(fused.segments) for op in found.segment.ops}
    outputs = set(graph.outputs)
    result = []
    for name in (*graph.inputs, *(op.output for op in graph.ops)):
        made_in = home.get(graph.producer[name]) if name in graph.producer else None
        producer = number.get(made_in) if made_in is not None else None
        readers = [home[op] for op in graph.consumers.get(name, ())]
        consumers = sorted({number[reader] for reader in readers if reader in number and number[reader] != producer})
        to_host = producer is not None and (name in outputs or any(reader not in number for reader in readers))
        if (consumers or to_host) and name in facts.tensors:
            result.append(
                HandOver(
                    producer=producer,
                    consumers=tuple(consumers),
                    size_bytes=facts.tensor_bytes(name),
                    to_host=to_host,
                )
            )
    return result
