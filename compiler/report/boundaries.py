"""What boundaries between groups cost: the tensors that cross them through DRAM, the costliest first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from compiler.amounts import bytes_text, cycles_text, number_text, share_text, si_text
from compiler.errors import printable
from compiler.report.explain_gap import remedy
from compiler.report.plan import GapEntryDoc, Plan
from compiler.report.plan_rules import BoundaryDoc
from compiler.rules import named

# So many tensors of a boundary are named.
_NAMES: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A boundary between groups: tensors that one group stores and the others load, with the edges of the plan.

    `fields` are the fields of the profile that would all have to grow for nothing to cross; empty where no larger
    memory is known to help.
    """

    entries: tuple[GapEntryDoc, ...]
    edges: tuple[BoundaryDoc, ...]

    @property
    def tensors(self) -> tuple[str, ...]:
        """The names of the tensors that cross."""
        return tuple(entry.name for entry in self.entries)

    @property
    def groups(self) -> tuple[str, ...]:
        """The group that stores them, then those that load them."""
        return self.entries[0].groups

    @property
    def fields(self) -> tuple[str, ...]:
        """The memories that would have to grow for all tensors; empty if none is known for one of them."""
        if not all(entry.fields for entry in self.entries):
            return ()
        return tuple(sorted({field for entry in self.entries for field in entry.fields}))

    @property
    def size_bytes(self) -> int:
        """DRAM traffic that would not be there if the tensors stayed on the chip."""
        return sum(entry.read_bytes + entry.written_bytes for entry in self.entries)


def crossings(plan: Plan) -> tuple[Crossing, ...]:
    """All boundaries between groups that cost traffic above the minimum, the costliest first."""
    edges: dict[str, list[BoundaryDoc]] = {}
    for segment in plan.segments:
        for group in segment.groups:
            for edge in group.boundary:
                edges.setdefault(edge.tensor, []).append(edge)
    between: dict[tuple[str, ...], list[GapEntryDoc]] = {}
    for entry in plan.gap.entries:
        if entry.kind == "intermediates":
            between.setdefault(entry.groups, []).append(entry)
    found = [
        Crossing(entries=tuple(entries), edges=tuple(edge for entry in entries for edge in edges.get(entry.name, ())))
        for entries in between.values()
    ]
    return tuple(sorted(found, key=lambda crossing: -crossing.size_bytes))


def crossing_lines(plan: Plan, most: int, advised: int = 0) -> Iterator[str]:
    """The costliest boundaries in words, each with why it is there and what may help.

    For the first `advised` of them changes are planned again, and listed elsewhere.
    """
    found = crossings(plan)
    for number, crossing in enumerate(found[:most], 1):
        readers = " and ".join(crossing.groups[1:]) or "a later segment"
        share = share_text(crossing.size_bytes, plan.totals.dram_bytes)
        size = f"{bytes_text(crossing.size_bytes)}, {share} of the DRAM traffic"
        yield f"{number}. {crossing.groups[0]} to {readers}: {size}; {tensors_text(crossing)}"
        for reason in dict.fromkeys(
            f"{printable(edge.consumer, 60)}: {reason_text(edge, plan)}"
            for edge in crossing.edges
            if edge.consumer is not None
        ):
            yield f"   not fused with {reason}"
        priced = any(edge.rule in (None, "FUSE-20") for edge in crossing.edges)
        for why in dict.fromkeys(entry.why for entry in crossing.entries if entry.fields and priced):
            yield f"   because {printable(why, 300)}"
        if number <= advised:
            yield "   remedy: see the changes that were planned again, below"
        else:
            unchecked = " (not checked; --advise plans the three costliest again)" if crossing.fields else ""
            yield f"   remedy: {remedy(crossing.entries)}{unchecked}"
    if len(found) > most:
        rest = sum(crossing.size_bytes for crossing in found[most:])
        yield f"and {len(found) - most} more with {bytes_text(rest)} together"


def tensors_text(crossing: Crossing) -> str:
    """The tensors of a boundary by name, the first few."""
    names = [printable(name, 60) for name in crossing.tensors]
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{'tensor' if len(names) == 1 else 'tensors'} {', '.join(names[:_NAMES])}{more}"


def objective_text(plan: Plan, value: float) -> str:
    """A value of the plan's objective with its unit."""
    match plan.options.get("objective"):
        case "latency":
            return cycles_text(value, plan.cycle_s)
        case "dram_bytes":
            return f"{bytes_text(value)} of DRAM traffic"
        case "energy":
            return si_text(value * 1e-12, "J")
        case _:
            return si_text(value * 1e-12 * plan.cycle_s, "J·s")


def reason_text(edge: BoundaryDoc, plan: Plan) -> str:
    """Why two groups are not one: the rule with its amounts, both costs, or why the question does not arise."""
    why = printable(edge.why, 300)
    if edge.actual is None or edge.limit is None:
        return why
    if edge.rule in (None, "FUSE-20"):
        return f"{why}: {objective_text(plan, edge.actual)} fused, {objective_text(plan, edge.limit)} apart"
    return f"{named(edge.rule)} fails with {number_text(edge.actual)}, limit {number_text(edge.limit)}: {why}"
