"""What boundaries between groups cost: the tensors that cross them through DRAM, the costliest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from compiler.amounts import bytes_text, number_text, share_text
from compiler.errors import printable
from compiler.explain_gap import remedy
from compiler.plan import BoundaryDoc, GapEntryDoc, Plan

# What FUSE-20 compares, by objective.
_UNITS: Final = MappingProxyType(
    {"latency": "cycles", "dram_bytes": "DRAM bytes", "energy": "pJ", "edp": "pJ × cycles"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A tensor that one group stores and others load again: its traffic above the minimum, and its edges.

    `fields` are the fields of the profile that would all have to grow for it to stay on the chip; empty where no larger
    memory is known to help.
    """

    entry: GapEntryDoc
    edges: tuple[BoundaryDoc, ...]

    @property
    def tensor(self) -> str:
        """The tensor's name."""
        return self.entry.name

    @property
    def size_bytes(self) -> int:
        """DRAM traffic that would not be there if the tensor stayed on the chip."""
        return self.entry.read_bytes + self.entry.written_bytes


def crossings(plan: Plan) -> tuple[Crossing, ...]:
    """All tensors between groups that cost traffic above the minimum, the costliest first."""
    edges: dict[str, list[BoundaryDoc]] = {}
    for segment in plan.segments:
        for group in segment.groups:
            for edge in group.boundary:
                edges.setdefault(edge.tensor, []).append(edge)
    between = (entry for entry in plan.gap.entries if entry.kind == "intermediates")
    return tuple(Crossing(entry=entry, edges=tuple(edges.get(entry.name, ()))) for entry in between)


def crossing_lines(plan: Plan, most: int) -> Iterator[str]:
    """The costliest crossings in words, each with why it is there and what may help."""
    found = crossings(plan)
    objective = str(plan.options.get("objective", ""))
    for number, crossing in enumerate(found[:most], 1):
        groups = crossing.entry.groups
        readers = ", ".join(groups[1:]) or "a later segment"
        share = share_text(crossing.size_bytes, plan.totals.dram_bytes)
        what = f"{printable(crossing.tensor, 60)}: {bytes_text(crossing.size_bytes)}, {share} of the DRAM traffic"
        yield f"{number}. {what}; stored by {groups[0]}, loaded by {readers}"
        inside = [edge for edge in crossing.edges if edge.consumer is not None]
        for reason in dict.fromkeys(reason_text(edge, objective) for edge in inside):
            yield f"   why: {reason}"
        unchecked = " (not checked)" if crossing.entry.fields else ""
        yield f"   remedy: {remedy([crossing.entry])}{unchecked}"
    if len(found) > most:
        rest = sum(crossing.size_bytes for crossing in found[most:])
        yield f"and {len(found) - most} more with {bytes_text(rest)} together"


def reason_text(edge: BoundaryDoc, objective: str) -> str:
    """Why two groups are not one: the rule with its amounts, both costs, or why the question does not arise."""
    why = printable(edge.why, 300)
    if edge.actual is None or edge.limit is None:
        return why
    if edge.rule in (None, "FUSE-20"):
        unit = _UNITS.get(objective, objective)
        return f"{why} ({number_text(edge.actual)} merged, {number_text(edge.limit)} apart, in {unit})"
    return f"{edge.rule} fails with {number_text(edge.actual)}, limit {number_text(edge.limit)}: {why}"
