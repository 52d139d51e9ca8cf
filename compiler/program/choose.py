"""The pass that chooses plans by simulation: what is lowered is what takes least when it runs (SCHED-7).

For each segment these plans are compared: the one of least price; the best that is found by simulating single groups,
formed anew under corrected prices or with other tilings; those of `rules` and `none`, unless a sample of their groups
shows that they take more (`outlook.py`). The one whose whole program takes least is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Literal, NamedTuple, TypeVar

from compiler.cost.model import Cost
from compiler.cost.objective import Totals, objective_value
from compiler.degraded import DEFECTS
from compiler.errors import LimitError
from compiler.fusion.fuse import verify_fused
from compiler.fusion.grouped import Grouped
from compiler.fusion.groups import FusedSegment, Group, Origin, Simulated, SimulatedPlan
from compiler.fusion.map_chips import MappedGraph, MapToChips
from compiler.fusion.rivals import Rivals
from compiler.fusion.segment_graph import bits
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.partition import Refused
from compiler.profile.schema import Profile
from compiler.program.errors import ProgramError
from compiler.program.loops.time import ProgramTime, time_under
from compiler.program.lower import LoweredSegment, LowerSegments, key_of, no_programs
from compiler.program.outlook import least_of, sampled, tiles_of
from compiler.program.steps.equal_groups import SegmentGroup
from compiler.program.steps.group_steps import TooManyActionsError
from compiler.program.timing.energy import energy_by_level
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice
from compiler.tiling.tile import NOTHING_HANDED, Tiling

# The work of choosing: other tilings tried for a group, groups for which they are tried, and new groupings.
_TILINGS: Final = 4
_RETILED: Final = 32
_REGROUPED: Final = 4
# The budget of all of these together, and of the sample of each other plan: as many actions as the plan of least price
# was lowered from, or this many. Half of that made VGG-19 on cluster4x4 0.4 % worse and took as long.
_ACTIONS: Final = 1 << 13
# What has more than this many times the tiles of the plan of least price, or more than a few, or is lowered from more
# than this many times its actions, is not tried: its program is that much longer.
_TILES: Final = 4
_FEW_TILES: Final = 64
# Another tiling of a group is tried if it may save more than this part of the objective.
_LEAST_GAIN: Final = 0.002
# A whole program takes at least this share of what its groups take each by itself. Shares measured: 0.953 to 1.04 for
# 16 plans of 4 light networks on edge4 and cluster4x4, most of single ops; from 0.753 on for 60 plans of 15 small ones.
_OF_ALONE: Final = 0.95
_OF_ALONE_SMALL: Final = 0.75
# The stages that refuse a plan by a LimitError.
_STAGES: Final = ("lower", "simulate")

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoosePlans:
    """Pass: each segment under strategy `search` with the plan that is best when simulated."""

    name: str = "choose"
    profile: Profile
    options: Options
    lowering: LowerSegments = field(repr=False)

    def run(self, mapped: MappedGraph) -> MappedGraph:
        """The graph with its plans; as it is where nothing was searched, or where there are no programs."""
        fused = mapped.fused
        if not fused.rivals or no_programs(self.profile):
            return mapped
        self.lowering.lowered.of(fused.facts.graph)
        segments = list(fused.segments)
        for number, rivals in fused.rivals.items():
            outside = Totals()
            for other, found in enumerate(segments):
                if other != number:
                    outside += _totals(found)
            chooser = _Chooser(self, fused.facts, rivals, outside)
            segments[number] = chooser.chosen(segments[number])
            if self.profile.is_stationary:
                # stationary weights lie elsewhere in other segments: groups of this one would take memory for nothing
                self.lowering.lowered.forget_groups()
        self.lowering.compilers.of(fused.facts).forget_boxes()
        chosen = replace(fused, segments=tuple(segments), rivals={})
        verify_fused(chosen)
        return MapToChips(profile=self.profile, options=self.options).run(chosen)


def _totals(found: FusedSegment) -> Totals:
    if found.simulated is not None:
        return found.simulated.plans[0].simulated
    return Totals.of(group.choice.cost for group in found.groups)


class _Met(NamedTuple):
    """A group with a tiling, what it takes by itself (None: it has no program), and the group that others are like."""

    choice: Choice
    totals: Totals | None
    original: SegmentGroup | None = None


class _Tried(NamedTuple):
    """A plan whose whole program was simulated, and what that takes: the `ticks` of the program."""

    origin: Origin
    grouped: Grouped
    ticks: int
    totals: Totals


class _UsedUpError(LimitError):
    """A group cannot be simulated by itself with what is left of the budget."""


class _Chooser:
    """The plans of one segment, and what was simulated of it. `outside`: totals of the other segments."""

    def __init__(self, choose: ChoosePlans, facts: GraphFacts, rivals: Rivals, outside: Totals) -> None:
        self._lowering, self._profile, self._facts = choose.lowering, choose.profile, facts
        self._objective, self._rate = choose.options.objective, choose.profile.dram_bytes_per_cycle
        self._rivals, self._outside = rivals, outside
        # what groups take by themselves: by ops and tiling, and by what those that take the same have in common
        self._alone: dict[tuple[int, Tiling], _Met] = {}
        self._alike: dict[tuple[object, ...], Totals] = {}
        # what takes more than all of a budget to be lowered
        self._too_long: set[tuple[int, Tiling]] = set()
        self._left = self._budget = self._tilings = 0
        self._tiles_max: float = inf
        self._actions_max: float = inf

    def chosen(self, by_price: FusedSegment) -> FusedSegment:
        """The segment with the plan that is best when simulated; as it is where that cannot be told."""
        first = self._rivals.found
        if self._lowering.exceeds_dram(self._facts, by_price) is not None:
            return by_price
        least = self._of_least_price(by_price)
        if least is None:
            return by_price
        tried = [least]
        excluded: list[Literal["rules", "none"]] = []
        for origin, grouped in self._others(first, least):
            if any(_same(grouped, one.grouped) for one in tried):
                continue
            may_be_best = origin == "simulation" or self._may_be_best(grouped, tried[0])
            time = self._time_of(grouped) if may_be_best else None
            if time is not None:
                tried.append(self._tried(origin, grouped, time))
                self._keep_best(tried)
            elif origin == "rules" or origin == "none":
                excluded.append(origin)
        self._prove_best(tried)
        if not tried:
            return by_price
        simulated = Simulated(plans=tuple(map(self._plan, tried)), tilings=self._tilings, excluded=tuple(excluded))
        if tried[0].origin == "price":
            return replace(by_price, simulated=simulated)
        return self._rivals.finished(tried[0].grouped, simulated)

    def _of_least_price(self, by_price: FusedSegment) -> _Tried | None:
        """The plan of least price, and what its groups take by themselves; None if it has no program."""
        first, lowered = self._rivals.found, self._whole(by_price)
        if lowered is None or lowered.time is None:
            return None
        self._left = self._budget = max(_ACTIONS, lowered.actions)
        self._actions_max = max(_ACTIONS, _TILES * lowered.actions)
        self._tiles_max = max(_FEW_TILES, _TILES * tiles_of(by_price.groups))
        self._meet(first)
        return self._tried("price", first, lowered.time)

    def _meet(self, grouped: Grouped) -> None:
        """What the groups of a plan that was simulated take by themselves."""
        its = self._lowering.lowered.programs[key_of(self._bare(grouped).groups)]
        for group, (_, part), ticks in zip(grouped.groups, its.timed().parts(), its.alone, strict=True):
            choice = _choice(grouped, group)
            self._alone[group, choice.tiling] = _Met(choice, self._figures(replace(part, ticks=ticks)))

    def _time_of(self, grouped: Grouped) -> ProgramTime | None:
        """The time of a plan's program; None if it has none, or exceeds a limit."""
        bare = self._bare(grouped)
        whole = self._whole(bare)
        if whole is not None and whole.time is None:
            del self._lowering.lowered.programs[key_of(bare.groups)]
        return None if whole is None else whole.time

    def _keep_best(self, tried: list[_Tried]) -> None:
        """Sort plans, the best first, and forget the programs of the others: they take much memory."""
        tried.sort(key=lambda one: self._value(one.totals))
        for one in tried[1:]:
            self._lowering.lowered.programs.pop(key_of(self._bare(one.grouped).groups), None)

    def _prove_best(self, tried: list[_Tried]) -> None:
        """Sort plans, the best first, and drop those whose program is not safe; the first one's program is kept."""
        while tried:
            self._keep_best(tried)
            lowered = self._proved(self._bare(tried[0].grouped))
            if lowered is None or lowered.time is None:
                del tried[0]
            elif lowered.time.ticks == tried[0].ticks:
                break
            else:
                # it is proved in another form
                tried[0] = self._tried(tried[0].origin, tried[0].grouped, lowered.time)

    def _may_be_best(self, grouped: Grouped, best: _Tried) -> bool:
        """False if a plan takes more than the best one, or has no program; told from a sample of its groups.

        The sample grows until the plan is out by all standard errors, or until its budget is used up: then the mean
        decides.
        """
        self._left = self._budget
        choices = {group: _choice(grouped, group) for group in grouped.groups}
        known, open_ = Totals(), list[int]()
        for group, choice in choices.items():
            its = met_before.totals if (met_before := self._alone.get((group, choice.tiling))) else None
            if its is None:
                open_.append(group)
            else:
                known += its
        open_ = [open_[number] for number in sampled(len(open_))]
        # equal groups tell nothing new
        met = dict[tuple[Totals, Totals], None]()
        costs = [choices[group].cost for group in open_]
        left_out: list[Cost] = []  # what takes too long
        for number, group in enumerate(open_):
            unknown = [*left_out, *costs[number:]]
            if not self._may_beat(known + least_of(unknown, [*met], self._rate), best):
                return False
            try:
                its = self._of(group, choices[group])
            except _UsedUpError:
                if self._left <= 0:
                    return self._may_beat(known + least_of(unknown, [*met], self._rate, 0.0), best)
                left_out.append(costs[number])
                continue
            if its is None:
                return False
            known += its
            met[Totals.of((costs[number],)), its] = None
        return self._may_beat(known + least_of(left_out, [*met], self._rate, 0.0), best)

    def _may_beat(self, alone: Totals, best: _Tried) -> bool:
        """Whether a program may take less than the best one if its groups take this each by itself."""
        share = _OF_ALONE if self._budget > _ACTIONS else _OF_ALONE_SMALL
        least = replace(alone, cycles=share * alone.cycles, energy_pj=share * alone.energy_pj)
        return self._value(least) <= self._value(best.totals)

    def _others(self, first: Grouped, least: _Tried) -> Iterator[tuple[Origin, Grouped]]:
        """Other plans: the best by sums over simulated groups, then those of the other strategies."""
        for better in self._better(first, least):
            yield "simulation", better
        yield "rules", self._rivals.rules(self._outside)
        yield "none", self._rivals.none()

    # --- groups by themselves -----------------------------------------------------------------------------------------

    def _better(self, first: Grouped, price: _Tried) -> list[Grouped]:
        """The best plan by sums over groups that were simulated by themselves; `price`: what `first` takes.

        Where tensors stay on the chip between groups also that plan without, and the given one, unless they take more:
        how long groups wait for each other only their whole program tells.
        """
        best = apart = self._rivals.taken_apart(first) if first.apart else first
        if first.apart:
            may_be_best = self._may_be_best(apart, price)
            time = self._time_of(apart) if may_be_best else None
            if time is None:
                best = apart = first
            else:
                self._meet(apart)
        least = self._sum(best)
        assert least is not None
        self._left = self._budget
        tried = {first.groups}
        for turn in range(_REGROUPED):
            if self._left <= 0:
                break
            other = (first.unmoved if turn == 0 else None) or self._regrouped(best)
            if other is None or other.groups in tried:
                break
            tried.add(other.groups)
            its = self._sum(other, least)
            if its is not None:
                best, least = other, its
        plain = self._retiled(best, least)
        handed = plain if plain.apart else self._handed(plain)
        return [plain, *([handed] if handed.apart else []), apart]

    def _handed(self, plain: Grouped) -> Grouped:
        """A plan in which tensors stay on the chip between groups of those runs that then take less."""
        handed, totals = self._rivals.handed(plain, self._outside), self._sum(plain)
        taken: dict[int, Choice] = {}
        if totals is None:
            return plain
        self._left = self._budget
        for run in handed.apart:
            if self._left <= 0:
                break
            try:
                pairs = [(self._of(g, _choice(plain, g)), self._of(g, _choice(handed, g))) for g in run]
            except _UsedUpError:
                continue
            changed = totals
            for before, after in pairs:
                changed = changed - (before or Totals()) + (after or Totals())
            if not any(None in pair for pair in pairs) and self._value(changed) < self._value(totals):
                totals = changed
                taken |= {group: _choice(handed, group) for group in run}
        runs = tuple(run for run in handed.apart if taken.keys() >= run.keys())
        return replace(self._rivals.with_tilings(plain, taken), apart=runs)

    def _retiled(self, grouped: Grouped, totals: Totals) -> Grouped:
        """The groups, which take `totals`, with the tilings that are best when simulated."""
        better: dict[int, Choice] = {}

        def may_save(group: int) -> float:
            cost, its = _choice(grouped, group).cost, self._of(group, _choice(grouped, group))
            assert its is not None
            return float(its.cycles - max(cost.dram_cycles, cost.compute_cycles))

        # first those with most to gain: what transfers and computation do not hide of each other
        for group in sorted(grouped.groups, key=lambda group: (-may_save(group), group))[:_RETILED]:
            own = _choice(grouped, group)
            # what stays on the chip between groups fits their tilings
            if not self._rivals.may_change(group) or own.tiling.configuration.handover != NOTHING_HANDED:
                continue
            best = self._of(group, own)
            assert best is not None
            others = self._rivals.tilings(group, own, _TILINGS) if self._left > 0 else []
            for other in others:
                if self._left <= 0:
                    break
                if other.tiling.tiles * other.tiling.core_tiles > _TILES * own.tiling.tiles * own.tiling.core_tiles:
                    continue
                least = totals - best + least_of([other.cost], [], self._rate)
                if self._value(least)[0] > (1 - _LEAST_GAIN) * self._value(totals)[0]:
                    continue
                try:
                    its = self._of(group, other)
                except _UsedUpError:
                    continue
                if its is not None and self._value(totals - best + its) < self._value(totals):
                    totals, best, better[group] = totals - best + its, its, other
            self._forget(group, [other for other in others if other is not better.get(group)])
        return self._rivals.with_tilings(grouped, better)

    def _regrouped(self, grouped: Grouped) -> Grouped | None:
        """The segment grouped anew by what is known of groups."""
        met = [
            (group, Totals.of((choice.cost,)), its)
            for (group, _), (choice, its, _) in self._alone.items()
            # what a group takes while something stays on the chip it takes beside such groups only
            if its is not None and choice.tiling.configuration.handover == NOTHING_HANDED
        ]
        own = self._sum(grouped)
        assert own is not None
        totals = self._outside + own
        weights = {
            "dram_bytes": (1.0, 0.0, 0.0),
            "latency": (0.0, 1.0, 0.0),
            "energy": (0.0, 0.0, 1.0),
            # how the product changes with its factors
            "edp": (0.0, float(totals.energy_pj), float(totals.cycles)),
        }
        return self._rivals.regrouped(met, weights[self._objective], self._outside)

    def _of(self, group: int, choice: Choice) -> Totals | None:
        """What a group takes by itself; None if it has no program. Raises _UsedUpError."""
        key = group, choice.tiling
        if key not in self._alone:
            if key in self._too_long:
                raise _UsedUpError("this group takes too long", stage="choose", limit=self._budget)
            self._alone[key] = self._simulated(group, choice)
        return self._alone[key].totals

    def _simulated(self, group: int, choice: Choice) -> _Met:
        its = Group(ops=tuple(bits(group)), choice=choice, checks=())
        if tiles_of((its,)) > self._tiles_max:
            return _Met(choice, None)
        found = FusedSegment(segment=self._rivals.segment, groups=(its,), boundaries=())

        def simulated() -> _Met:
            steps = self._lowering.steps_of(self._facts, found, (its,))
            only = steps.groups[0]
            totals = self._alike.get(only.likeness)
            if totals is None:
                if self._left <= 0:
                    raise _UsedUpError("no group is tried any more", stage="choose", limit=self._budget)
                try:
                    time = time_under(*steps.emitted(actions_max=self._budget)[:2])
                except TooManyActionsError as error:
                    self._left -= self._budget
                    self._too_long.add((group, choice.tiling))
                    raise _UsedUpError(error.message, stage="choose", limit=self._budget) from error
                self._left -= steps.actions
                self._tilings += 1
                totals = self._alike[only.likeness] = self._figures(time)
            return _Met(choice, totals, only.original or only)

        return _if_it_can_be(simulated) or _Met(choice, None)

    def _forget(self, group: int, choices: Sequence[Choice]) -> None:
        """What was lowered for tilings that are not taken takes memory."""
        for choice in choices:
            key = group, choice.tiling
            met = self._alone.get(key)
            if met is not None and met.original is not None:
                self._lowering.lowered.groups.forget(met.original)
                self._alone[key] = met._replace(original=None)

    def _sum(self, grouped: Grouped, below: Totals | None = None) -> Totals | None:
        """What the groups take, each by itself; None if one could not be simulated, or if they do not take less."""
        totals = Totals()
        costs = [_choice(grouped, group).cost for group in grouped.groups]
        try:
            for number, group in enumerate(grouped.groups):
                if below is not None:
                    least = totals + least_of(costs[number:], [], self._rate)
                    if self._value(least) >= self._value(below):
                        return None
                its = self._of(group, _choice(grouped, group))
                if its is None:
                    return None
                totals += its
        except _UsedUpError:
            return None
        return totals if below is None or self._value(totals) < self._value(below) else None

    # --- whole plans --------------------------------------------------------------------------------------------------

    def _whole(self, found: FusedSegment) -> LoweredSegment | None:
        """A segment's program and its time, which the lowering then knows; None if it has none.

        One that exceeds a limit of the profile has no time; the lowering, which is asked for it next, refuses it.
        """
        known, key = self._lowering.lowered.programs, key_of(found.groups)
        if tiles_of(found.groups) > self._tiles_max:
            return None

        def simulated() -> LoweredSegment:
            lowered = self._lowering.within_limits(
                lambda: self._lowering.steps_of(self._facts, found, found.groups), self._actions_max
            )
            refused = self._lowering.refused(self._facts, found, lowered) is not None
            return lowered if refused else replace(lowered, time=lowered.timed())

        if key not in known and (lowered := _if_it_can_be(simulated)) is not None:
            known[key] = lowered
        return known.get(key)

    def _proved(self, found: FusedSegment) -> LoweredSegment | None:
        """A segment's program, proved, which the lowering then has; None if it is unsafe or exceeds a limit."""
        lowered = _if_it_can_be(lambda: self._lowering.proved(self._facts, found))
        if lowered is None or isinstance(lowered, Refused):
            return None
        return lowered if self._lowering.refused(self._facts, found, lowered) is None else None

    def _bare(self, grouped: Grouped) -> FusedSegment:
        """A plan as it is lowered, without reasons."""
        groups = tuple(
            Group(ops=tuple(bits(group)), choice=_choice(grouped, group), checks=()) for group in grouped.groups
        )
        return FusedSegment(segment=self._rivals.segment, groups=groups, boundaries=())

    def _plan(self, one: _Tried) -> SimulatedPlan:
        return SimulatedPlan(
            origin=one.origin,
            groups=len(one.grouped.groups),
            estimated=one.grouped.totals,
            simulated=one.totals,
        )

    def _tried(self, origin: Origin, grouped: Grouped, time: ProgramTime) -> _Tried:
        return _Tried(origin, grouped, time.ticks, self._figures(time))

    def _figures(self, time: ProgramTime) -> Totals:
        moved = time.moved()
        dram = moved.memories["dram"]
        return Totals(
            dram_bytes=dram.read + dram.written,
            cycles=time.cycles,
            energy_pj=sum(energy_by_level(time, self._profile, moved).values()),
        )

    def _value(self, totals: Totals) -> tuple[float, float]:
        """The objective of the whole with a segment that takes this; then its cycles."""
        whole = self._outside + totals
        return float(objective_value(self._objective, whole)), float(whole.cycles)


def _choice(grouped: Grouped, group: int) -> Choice:
    found = grouped.evaluator.tiling(group)
    assert not isinstance(found, Refusal)
    return found


def _if_it_can_be(done: Callable[[], _T]) -> _T | None:
    """What a function returns; None where lowering or simulation fails. What a caller's time limit raises passes."""
    try:
        return done()
    except LimitError as error:
        if error.stage not in _STAGES:
            raise
    except (*DEFECTS, ProgramError):
        pass
    return None


def _same(one: Grouped, other: Grouped) -> bool:
    if one.groups != other.groups:
        return False
    return all(_choice(one, group).tiling == _choice(other, group).tiling for group in one.groups)
