"""What else than the plan that costs least by price a segment might be given, once some of it was simulated (SCHED-7).

Prices leave out how transfers meet. So what a group takes when it is simulated tells something of all groups with the
same ops: each op gets the mean ratio of simulated to priced figures of the groups it was met in, each priced group the
mean of its ops' ratios, and the least partition under such prices is a plan that may be better.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from compiler.cost.objective import Totals
from compiler.fusion.boundary import Reasons
from compiler.fusion.greedy import execution_order, greedy_groups
from compiler.fusion.grouped import Grouped, Work, finished
from compiler.fusion.groups import FusedSegment, Simulated
from compiler.fusion.handing import handed_over
from compiler.fusion.improve import improve
from compiler.fusion.partitions import Floats, Least
from compiler.fusion.segment_graph import bits
from compiler.partition.segments import Segment
from compiler.tiling.finished import Choice


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rivals:
    """A segment, the plan that costs least by price, and the way to others."""

    segment: Segment
    part: Work
    found: Grouped

    def may_change(self, group: int) -> bool:
        """False for a group that a schedule pins."""
        return group not in self.part.fixed

    def tilings(self, group: int, choice: Choice, count: int) -> list[Choice]:
        """At most so many other tilings of a group that has this one: with the largest tile, then by price."""
        return self.part.evaluator.other_tilings(group, choice, count)

    def with_tilings(self, grouped: Grouped, tilings: Mapping[int, Choice]) -> Grouped:
        """The same groups, some with these tilings."""
        return replace(grouped, evaluator=grouped.evaluator.with_tilings(tilings)) if tilings else grouped

    def taken_apart(self, grouped: Grouped) -> Grouped:
        """The same groups, nothing between which stays on the chip."""
        apart = {group: choice for run in grouped.apart for group, choice in run.items()}
        return replace(self.with_tilings(grouped, apart), apart=())

    def handed(self, grouped: Grouped, outside: Totals) -> Grouped:
        """The same groups, between which tensors stay on the chip where that costs less by price."""
        evaluator = grouped.evaluator
        choices = {group: its for group in grouped.groups if isinstance(its := evaluator.tiling(group), Choice)}
        found = handed_over(evaluator, self.part.graph, choices, outside, frozenset(self.part.fixed))
        return replace(self.with_tilings(grouped, found.tilings), apart=found.apart)

    def rules(self, outside: Totals) -> Grouped:
        """The groups that strategy `rules` grows."""
        evaluator = self.part.evaluator.under("rules")
        grown = greedy_groups(evaluator, self.part.graph, outside, self.part.fixed).groups
        tilings = {group: choice for group in grown if isinstance(choice := evaluator.tiling(group), Choice)}
        return Grouped(evaluator=self.part.evaluator.with_tilings(tilings), groups=grown)

    def none(self) -> Grouped:
        """The groups of strategy `none`."""
        return Grouped(evaluator=self.part.evaluator, groups=self.part.start)

    def regrouped(
        self, met: Sequence[tuple[int, Totals, Totals]], weights: tuple[float, float, float], outside: Totals
    ) -> Grouped | None:
        """The least partition under prices corrected by groups `met`: their price, and what they take.

        `weights` of DRAM bytes, cycles and energy in what is to be least. None where nothing was searched.
        """
        space, part = self.found.space, self.part
        if space is None:
            return None
        ratios = _ratios_of_ops(met)
        scale = np.array(weights)
        exact: dict[int, float] = {}
        for group, _, simulated in met:
            exact[group] = min(float(_row(simulated) @ scale), exact.get(group, inf))
        values = np.full(space.size, inf)
        for row in np.flatnonzero(space.is_priced & np.isfinite(space.known).all(axis=1)).tolist():
            group = space.groups[row]
            if group in exact:
                values[row] = exact[group]
                continue
            known = [ratios[op] for op in bits(group) if op in ratios]
            values[row] = (space.known[row] * (np.mean(known, axis=0) if known else 1.0)) @ scale
        rows = Least(space, values).rows()
        if rows is None:
            return None
        groups = execution_order(part.graph, [*part.fixed, *(space.groups[row] for row in rows)])
        fixed = frozenset(part.fixed)
        better = improve(part.evaluator, part.graph, groups, outside, fixed, space=space, moves_boundaries=False)
        return replace(self.found, evaluator=better.evaluator, groups=better.groups, apart=())

    def finished(self, grouped: Grouped, simulated: Simulated) -> FusedSegment:
        """The segment with these groups, explained."""
        found = replace(grouped, search=self.found.search)
        return replace(finished(found, self.part, self.segment, Reasons()), simulated=simulated)


def _row(totals: Totals) -> Floats:
    return np.array([totals.dram_bytes, totals.cycles, totals.energy_pj], dtype=np.float64)


def _ratios_of_ops(met: Sequence[tuple[int, Totals, Totals]]) -> dict[int, Floats]:
    """By op the mean ratio of what the groups that it is in take to their price, by figure."""
    found: dict[int, list[Floats]] = {}
    for group, priced, simulated in met:
        price = _row(priced)
        ratio = np.where(price > 0, _row(simulated) / np.maximum(price, 1e-300), 1.0)
        for op in bits(group):
            found.setdefault(op, []).append(ratio)
    return {op: np.mean(ratios, axis=0) for op, ratios in found.items()}
