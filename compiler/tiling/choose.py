"""The choice of a group's tiling.

Reads top to bottom: all configurations -> the largest SRAM tile of each that memory and rules allow (FUSE-S4), found
for all at once -> an estimate that orders them -> core tiles and exact prices for the most promising -> the cheapest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from compiler.cost.model import Cost, price
from compiler.cost.objective import Totals, ranking
from compiler.ops.facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.candidates import Block, CandidateTable
from compiler.tiling.configurations import finer_configurations, simple_configurations
from compiler.tiling.core import CoreTile, core_tile_for
from compiler.tiling.estimate import estimates
from compiler.tiling.figures import PHYSICAL, Check, Constraint, Figures
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.sizes import SizeTable, stage_sizes
from compiler.tiling.tile import Configuration, Tiling
from compiler.tiling.traffic import TilePlan, finish_tiling, traffic_of

# So many configurations, in the order of their estimates, get a core tile and an exact price.
PRICED: Final = 4
_HALVINGS: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The chosen tiling of a group, its price, and the figures that rules are checked against."""

    tiling: Tiling
    cost: Cost
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """No tiling fits: the first constraint that fails even for the smallest tile."""

    check: Check


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A configuration's largest tile: its row among the candidates."""

    search: _Search
    plan: TilePlan
    row: int
    block: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A configuration with tile, core tile, exact figures and price."""

    plan: TilePlan
    core: CoreTile
    figures: Figures
    cost: Cost


def choose_tiling(
    facts: GraphFacts,
    geometry: GroupGeometry,
    profile: Profile,
    constraints: tuple[Constraint, ...],
    objective: str,
) -> Choice | Refusal:
    """The cheapest tiling under memory and the given constraints, or why there is none (TILE-2, FUSE-S1, S4)."""
    table = SizeTable.of_group(geometry)
    bound = (*PHYSICAL, *constraints)
    simple = simple_configurations(geometry, table, profile)
    first = _Search(table, profile, simple, bound)
    found = first.found()
    # Where a tile leaves nothing to be done after it, no finer cut of the same spread can help.
    done = {entry.plan.configuration for entry in found if entry.plan.rounds == 1}
    finer = tuple(c for base in simple if base not in done for c in finer_configurations(table, base))
    failing = first.failing
    if finer:
        second = _Search(table, profile, finer, bound)
        found = [*found, *_without_twins(found, second.found())]
        failing = second.failing
    best: tuple[tuple[float, ...], _Priced] | None = None
    priced = 0
    for estimate, entry in _promising(found, table, profile, objective):
        if priced == PRICED or (best is not None and estimate >= best[0][0]):
            break
        outcome = _complete(facts, entry, profile, bound)
        if isinstance(outcome, Check):
            failing = failing or outcome
            continue
        key = ranking(objective, Totals.of((outcome.cost,)))
        if best is None or key < best[0]:
            best = (key, outcome)
        priced += 1
    if best is not None:
        chosen = best[1]
        tiling = finish_tiling(chosen.plan, chosen.core, chosen.figures, profile)
        return Choice(tiling=tiling, cost=chosen.cost, figures=chosen.figures)
    return Refusal(check=failing or Check(rule="TILE-2", holds=False, actual=1, limit=0))


class _Search:
    """Configurations, all their candidate tiles, and which of these hold."""

    def __init__(
        self,
        table: SizeTable,
        profile: Profile,
        choices: tuple[Configuration, ...],
        constraints: tuple[Constraint, ...],
    ) -> None:
        self.candidates = CandidateTable(table, profile, choices)
        self.figures = self.candidates.figures()
        self.failing: Check | None = None
        holds = np.ones(self.candidates.rows, dtype=np.bool_)
        for constraint in constraints:
            check = constraint(self.figures)
            remaining = holds & check.holds
            if self.failing is None and not remaining.any():
                self.failing = _nearest(check, holds)
            holds = remaining
        self.holds = holds

    def found(self) -> list[_Found]:
        """The largest tile of each configuration that has one."""
        result = []
        for block in self.candidates.blocks:
            row = _last_holding(block, self.holds)
            if row is None:
                continue
            plan = TilePlan(
                geometry=self.candidates.table.geometry,
                table=self.candidates.table,
                configuration=block.configuration,
                tile=self.tile(block, row),
                weights=block.weights,
            )
            result.append(_Found(search=self, plan=plan, row=row, block=block))
            if block.configuration.channel_slices > 1:
                outer = replace(block.configuration, slices_outer=True)
                result.append(_Found(search=self, plan=replace(plan, configuration=outer), row=row, block=block))
        return result

    def tile(self, block: Block, row: int) -> dict[str, int]:
        """The tile of one row: size per axis."""
        begin = block.begin
        for part, end in zip(block.stages, block.ends, strict=True):
            if row < end:
                return stage_sizes(self.candidates.table, part.stage, row - begin)
            begin = end
        raise AssertionError(row)


def _without_twins(simple: list[_Found], finer: list[_Found]) -> list[_Found]:
    """Of the finer ones, those that give up double buffering only for a larger tile."""
    buffered = {
        replace(entry.plan.configuration, double_buffered=False): entry.plan.tile
        for entry in (*simple, *finer)
        if entry.plan.configuration.double_buffered
    }
    return [
        entry
        for entry in finer
        if entry.plan.configuration.double_buffered or buffered.get(entry.plan.configuration) != entry.plan.tile
    ]


def _promising(found: list[_Found], table: SizeTable, profile: Profile, objective: str) -> list[tuple[float, _Found]]:
    """The configurations with their estimates, the best first; equal ones keep their order."""
    if not found:
        return []
    keys = ranking(objective, estimates([entry.plan for entry in found], table, profile))
    return [(float(keys[0][i]), found[i]) for i in np.lexsort(tuple(reversed(keys)))]


def _nearest(check: Check, among: np.ndarray) -> Check:
    """A check over candidates as it stands for the one nearest to its limit."""
    rows = np.flatnonzero(among)
    actual = np.broadcast_to(np.asarray(check.actual), among.shape)[rows]
    limit = np.broadcast_to(np.asarray(check.limit), among.shape)[rows]
    nearest = int(np.argmin(actual - limit))
    return Check(rule=check.rule, holds=False, actual=actual[nearest].item(), limit=limit[nearest].item())


def _last_holding(block: Block, holds: np.ndarray, below: int | None = None) -> int | None:
    """The largest tile of the first stage in which any holds; with `below`, only rows after that one's stage half."""
    begin = block.begin
    for end in block.ends:
        stop = end
        if below is not None and begin <= below < end:
            stop = begin + (below - begin) // 2
        if below is None or (stop > begin and end > below):
            rows = np.flatnonzero(holds[begin:stop])
            if len(rows):
                return begin + int(rows[-1])
        begin = end
    return None


def _complete(
    facts: GraphFacts,
    entry: _Found,
    profile: Profile,
    constraints: tuple[Constraint, ...],
) -> _Priced | Check:
    """Core tile, exact figures and price; where those do not hold, smaller tiles of the same configuration."""
    row = entry.row
    search, plan = entry.search, entry.plan
    broken: Check | None = None
    for _ in range(_HALVINGS):
        core = core_tile_for(plan.table, profile, plan.configuration, plan.tile, plan.weights.room[1])
        exact = plan.exact(search.figures.at(row), core, profile)
        verdicts = (constraint(exact) for constraint in constraints)
        failed = next((check for check in verdicts if not check.holds), None)
        if failed is None and core is not None:
            cost = price(traffic_of(facts, plan, core, exact, profile), profile)
            return _Priced(plan=plan, core=core, figures=exact, cost=cost)
        broken = broken or failed
        smaller = _last_holding(entry.block, search.holds, below=row)
        if smaller is None:
            break
        row = smaller
        plan = replace(plan, tile=search.tile(entry.block, row))
    return broken or Check(rule="FUSE-17", holds=False, actual=1, limit=0)
