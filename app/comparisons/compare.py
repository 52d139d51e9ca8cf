"""Two compilations side by side, in total and by the groups that cover the same nodes: comparison.json."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import msgspec

from compiler.report.execution import Part
from compiler.report.plan import ModelRef, NativeShare, Plan, PlanGroup, ProfileRef, Report

# The figures that are compared in total, with their units.
FIGURES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dram_bytes": "B",
        "estimated_latency_s": "s",
        "simulated_latency_s": "s",
        "energy_j": "J",
        "stationary_weight_bytes": "B",
        "host_link_bytes": "B",
        "groups": "",
        "segments": "",
    }
)


class Side(Part, frozen=True, kw_only=True):
    """One of the two: its model, profile and options, and how much of the model the accelerator runs.

    `options` are those that differ from the other side's.
    """

    model: ModelRef
    profile: ProfileRef
    compiler_version: str
    options: dict[str, Any]
    native: NativeShare


class Difference(Part, frozen=True, kw_only=True):
    """A figure of both sides; `change_percent` is from a to b. None: that side lacks the figure, or a's is 0."""

    figure: str
    unit: str
    a: int | float | None
    b: int | float | None
    change_percent: float | None


class GroupSum(Part, frozen=True, kw_only=True):
    """Groups of one side together; `simulated_latency_s` is None without a program."""

    groups: tuple[str, ...]
    dram_bytes: int
    estimated_latency_s: float
    simulated_latency_s: float | None
    energy_j: float


class ComparedGroups(Part, frozen=True, kw_only=True):
    """The least set of groups of both sides that share nodes: `same` is one group of the same nodes on each side.

    `a` or `b` is None if that side has these nodes in no group: they are folded there, or on the host.
    """

    nodes: tuple[str, ...]
    same: bool
    a: GroupSum | None
    b: GroupSum | None
    dram_change_percent: float | None


class ComparisonDocument(Part, frozen=True, kw_only=True):
    """comparison.json: a and b in total and by groups, in a's order; groups of b alone come last."""

    schema: Literal["tessera.comparison/1"]
    same_model: bool
    a: Side
    b: Side
    totals: tuple[Difference, ...]
    groups: tuple[ComparedGroups, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """The documents of a compilation; without its report there are no simulated figures."""

    plan: Plan
    report: Report | None


def compare(a: Compiled, b: Compiled) -> ComparisonDocument:
    """Compares both sides; their models should be the same, since groups are matched by nodes."""
    totals = _totals(a), _totals(b)
    return ComparisonDocument(
        schema="tessera.comparison/1",
        same_model=a.plan.model.sha256 == b.plan.model.sha256,
        a=_side(a.plan, b.plan),
        b=_side(b.plan, a.plan),
        totals=tuple(
            Difference(
                figure=name,
                unit=unit,
                a=totals[0][name],
                b=totals[1][name],
                change_percent=_change(totals[0][name], totals[1][name]),
            )
            for name, unit in FIGURES.items()
        ),
        groups=tuple(_compared(a, b)),
    )


def comparison_json(document: ComparisonDocument) -> bytes:
    """The canonical bytes: UTF-8 JSON, fields in schema order, indented by two."""
    values = msgspec.to_builtins(document)
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _side(plan: Plan, other: Plan) -> Side:
    return Side(
        model=plan.model,
        profile=plan.profile,
        compiler_version=plan.compiler_version,
        options={
            name: value
            for name, value in plan.options.items()
            if name not in other.options or other.options[name] != value
        },
        native=plan.native,
    )


def _groups(plan: Plan) -> list[PlanGroup]:
    return [group for segment in plan.segments for group in segment.groups]


def _cycle_s(plan: Plan) -> float:
    """Seconds per cycle: the latency of a plan is the sum over its groups."""
    cycles = sum(group.cycles for group in _groups(plan))
    return plan.totals.latency_s / cycles if cycles else 0.0


def _totals(side: Compiled) -> Mapping[str, float | None]:
    totals, report = side.plan.totals, side.report
    simulated = None
    if report is not None and report.programs:
        simulated = sum(program.simulated_cycles for program in report.programs) * _cycle_s(side.plan)
    return {
        "dram_bytes": totals.dram_bytes,
        "estimated_latency_s": totals.latency_s,
        "simulated_latency_s": simulated,
        "energy_j": totals.energy_j,
        "stationary_weight_bytes": totals.stationary_weight_bytes,
        "host_link_bytes": totals.host_link_bytes,
        "groups": len(_groups(side.plan)),
        "segments": len(side.plan.segments),
    }


def _compared(a: Compiled, b: Compiled) -> Iterator[ComparedGroups]:
    """The rows: groups connected by shared nodes."""
    ours, theirs = _groups(a.plan), _groups(b.plan)
    both = [*ours, *theirs]
    for members in _connected([group.nodes for group in both]):
        mine = [both[number] for number in members if number < len(ours)]
        other = [both[number] for number in members if number >= len(ours)]
        sums = _sum(a, mine), _sum(b, other)
        yield ComparedGroups(
            nodes=tuple(dict.fromkeys(node for group in (*mine, *other) for node in group.nodes)),
            same=len(mine) == len(other) == 1 and set(mine[0].nodes) == set(other[0].nodes),
            a=sums[0],
            b=sums[1],
            dram_change_percent=None
            if sums[0] is None or sums[1] is None
            else _change(sums[0].dram_bytes, sums[1].dram_bytes),
        )


def _connected(sets: Sequence[Sequence[str]]) -> list[list[int]]:
    """The numbers of sets connected by common members, ordered by the first, each ascending."""
    leader = list(range(len(sets)))

    def find(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    first: dict[str, int] = {}
    for number, members in enumerate(sets):
        for member in members:
            one, other = find(first.setdefault(member, number)), find(number)
            leader[max(one, other)] = min(one, other)
    found: dict[int, list[int]] = {}
    for number in range(len(sets)):
        found.setdefault(find(number), []).append(number)
    return list(found.values())


def _sum(side: Compiled, groups: Sequence[PlanGroup]) -> GroupSum | None:
    if not groups:
        return None
    cycle_s = _cycle_s(side.plan)
    programs = () if side.report is None else side.report.programs
    simulated = {group: cycles for program in programs for group, cycles in program.simulated_group_cycles.items()}
    return GroupSum(
        groups=tuple(group.id for group in groups),
        dram_bytes=sum(group.dram_bytes for group in groups),
        estimated_latency_s=sum(group.cycles for group in groups) * cycle_s,
        simulated_latency_s=sum(simulated.get(group.id, 0) for group in groups) * cycle_s if simulated else None,
        energy_j=sum(group.energy_j for group in groups),
    )


def _change(a: float | None, b: float | None) -> float | None:
    return 100 * (b / a - 1) if a and b is not None else None
