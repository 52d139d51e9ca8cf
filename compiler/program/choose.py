"""The pass that chooses plans by simulation: what is lowered is what takes least when it runs (SCHED-7).

For each segment these plans are compared: the one of least price; the best that are found by simulating single groups
(`alone.py`), formed anew under corrected prices or with other tilings; those of `rules` and `none`, unless a sample of
their groups shows that they take more (`outlook.py`). The one whose whole program takes least is taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from math import inf
from typing import Final, Literal, NamedTuple

from compiler.cost.model import Cost
from compiler.cost.objective import Totals, objective_value
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
from compiler.program.alone import GroupsAlone, UsedUpError, choice_of, figures_of, if_it_can_be
from compiler.program.loops.time import ProgramTime
from compiler.program.lower import LoweredSegment, LowerSegments, key_of, no_programs
from compiler.program.outlook import as_whole, least_of, sampled, tiles_of
from compiler.tiling.finished import Choice
from compiler.tiling.tile import NOTHING_HANDED

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
# Other groups are compared as a whole if this share of what they take one by one is less than what the best ones take
# (long programs: they take long to put together). Inception-v1 on cluster4x4 gains 1 % by groups that take 0.3 % more.
# So is any plan of a long program if this share of what the sum of its groups promises is less than the best takes:
# what a whole takes of that sum differs from plan to plan of Inception-v1 by 1.5 %, of DenseNet-121 on edge4 by 0.1 %.
_NEAR: Final = 0.98


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


class _Tried(NamedTuple):
    """A plan whose whole program was simulated, and what that takes: the `ticks` of the program."""

    origin: Origin
    grouped: Grouped
    ticks: int
    totals: Totals


class _Chooser:
    """The plans of one segment, and what was simulated of it. `outside`: totals of the other segments."""

    def __init__(self, choose: ChoosePlans, facts: GraphFacts, rivals: Rivals, outside: Totals) -> None:
        self._lowering, self._profile, self._facts = choose.lowering, choose.profile, facts
        self._objective, self._rate = choose.options.objective, choose.profile.dram_bytes_per_cycle
        self._rivals, self._outside = rivals, outside
        self._alone = GroupsAlone(choose.lowering, facts, rivals.segment, self._value)
        self._actions_max: float = inf
        # the sum of groups between which nothing stays on the chip, and what they took as a whole
        self._whole_of: tuple[Totals, Totals] | None = None

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
            tells = self._promises if origin == "simulation" else self._may_be_best
            may_be_best = tells(grouped, tried[0])
            time = self._time_of(grouped) if may_be_best else None
            if time is not None:
                tried.append(self._tried(origin, grouped, time))
                self._keep_best(tried)
            elif origin == "rules" or origin == "none":
                excluded.append(origin)
        self._prove_best(tried)
        if not tried:
            return by_price
        simulated = Simulated(
            plans=tuple(map(self._plan, tried)), tilings=self._alone.simulated, excluded=tuple(excluded)
        )
        if tried[0].origin == "price":
            return replace(by_price, simulated=simulated)
        return self._rivals.finished(tried[0].grouped, simulated)

    def _of_least_price(self, by_price: FusedSegment) -> _Tried | None:
        """The plan of least price, and what its groups take by themselves; None if it has no program."""
        first, lowered = self._rivals.found, self._whole(by_price)
        if lowered is None or lowered.time is None:
            return None
        self._alone.budget = max(_ACTIONS, lowered.actions)
        self._actions_max = max(_ACTIONS, _TILES * lowered.actions)
        self._alone.tiles_max = max(_FEW_TILES, _TILES * tiles_of(by_price.groups))
        self._learn(first, lowered.time)
        return self._tried("price", first, lowered.time)

    def _learn(self, grouped: Grouped, time: ProgramTime) -> None:
        """What the groups of a plan take by themselves whose whole program was simulated, and takes this."""
        self._alone.learn(grouped, self._lowering.lowered.programs[key_of(self._bare(grouped).groups)])
        alone = None if grouped.apart else self._alone.sum_of(grouped)
        if alone is not None:
            self._whole_of = alone, figures_of(time, self._profile)

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
        self._alone.refill()
        choices = {group: choice_of(grouped, group) for group in grouped.groups}
        known, open_ = Totals(), list[int]()
        for group, choice in choices.items():
            its = self._alone.known(group, choice)
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
                its = self._alone.of(group, choices[group])
            except UsedUpError:
                if self._alone.left <= 0:
                    return self._may_beat(known + least_of(unknown, [*met], self._rate, 0.0), best)
                left_out.append(costs[number])
                continue
            if its is None:
                return False
            known += its
            met[Totals.of((costs[number],)), its] = None
        return self._may_beat(known + least_of(left_out, [*met], self._rate, 0.0), best)

    def _promises(self, grouped: Grouped, best: _Tried) -> bool:
        """False if a plan found by simulating its groups takes more as a whole than the best one; told from another.

        True where that cannot be told, or where the program is soon put together.
        """
        alone = self._alone.sum_of(grouped) if self._is_long and self._whole_of and not grouped.apart else None
        if alone is None or self._whole_of is None:
            return True
        return self._value(_scaled(as_whole(alone, *self._whole_of), _NEAR)) < self._value(best.totals)

    @property
    def _is_long(self) -> bool:
        """Whether a whole program takes long to put together, beside the groups that it consists of."""
        return self._alone.budget > _ACTIONS

    @property
    def _near(self) -> float:
        """The least ratio of what the best groups take to what others take at which these are compared as a whole."""
        return _NEAR if self._is_long else _OF_ALONE_SMALL

    def _may_beat(self, alone: Totals, best: _Tried) -> bool:
        """Whether a program may take less than the best one if its groups take this each by itself."""
        share = _OF_ALONE if self._is_long else _OF_ALONE_SMALL
        return self._value(_scaled(alone, share)) <= self._value(best.totals)

    def _others(self, first: Grouped, least: _Tried) -> Iterator[tuple[Origin, Grouped]]:
        """Other plans: the best by sums over simulated groups, then those of the other strategies."""
        for better in self._better(first, least):
            yield "simulation", better
        yield "rules", self._rivals.rules(self._outside)
        yield "none", self._rivals.none()

    # --- other plans --------------------------------------------------------------------------------------------------

    def _better(self, first: Grouped, price: _Tried) -> Iterator[Grouped]:
        """The best plans by sums over groups that were simulated by themselves; `price`: what `first` takes.

        Where tensors stay on the chip between groups also that plan without, and the given one, unless they take more,
        and other groups that take little more: how groups work side by side only their whole program tells.
        """
        best = apart = self._rivals.taken_apart(first) if first.apart else first
        if first.apart:
            may_be_best = self._may_be_best(apart, price)
            time = self._time_of(apart) if may_be_best else None
            if time is None:
                best = apart = first
            else:
                self._learn(apart, time)
        least = self._alone.sum_of(best)
        assert least is not None
        self._alone.refill()
        tried, near = {first.groups}, list[tuple[Grouped, Totals]]()
        for turn in range(_REGROUPED):
            if self._alone.left <= 0:
                break
            other = (first.unmoved if turn == 0 else None) or self._regrouped(best)
            if other is None or other.groups in tried:
                break
            tried.add(other.groups)
            its = self._alone.sum_of(other, below=self._value(_scaled(least, 1 / self._near)))
            if its is None:
                continue
            if self._value(its) < self._value(least):
                (other, its), (best, least) = (best, least), (other, its)
            near.append((other, its))
        if not self._is_long:
            self._alone.refill()
        yield from self._with_tilings(best, least)
        yield apart
        self._alone.refill()
        for other, its in sorted(near, key=lambda one: self._value(one[1])):
            if self._value(_scaled(its, self._near)) >= self._value(least):
                break
            yield other
            if not self._is_long:
                yield from self._with_tilings(other, its)

    def _with_tilings(self, grouped: Grouped, totals: Totals) -> Iterator[Grouped]:
        """Groups, which take `totals`, with other tilings; then the same with tensors that stay on the chip."""
        plain = self._retiled(grouped, totals)
        yield plain
        if not plain.apart:
            handed = self._handed(plain)
            if handed.apart:
                yield handed

    def _handed(self, plain: Grouped) -> Grouped:
        """A plan in which tensors stay on the chip between groups of those runs that then take less."""
        handed, totals = self._rivals.handed(plain, self._outside), self._alone.sum_of(plain)
        taken: dict[int, Choice] = {}
        if totals is None:
            return plain
        self._alone.refill()
        for run in handed.apart:
            if self._alone.left <= 0:
                break
            try:
                pairs = [(self._alone.of(g, choice_of(plain, g)), self._alone.of(g, choice_of(handed, g))) for g in run]
            except UsedUpError:
                continue
            changed = totals
            for before, after in pairs:
                changed = changed - (before or Totals()) + (after or Totals())
            if not any(None in pair for pair in pairs) and self._value(changed) < self._value(totals):
                totals = changed
                taken |= {group: choice_of(handed, group) for group in run}
        runs = tuple(run for run in handed.apart if taken.keys() >= run.keys())
        return replace(self._rivals.with_tilings(plain, taken), apart=runs)

    def _retiled(self, grouped: Grouped, totals: Totals) -> Grouped:
        """The groups, which take `totals`, with the tilings that are best when simulated."""
        better: dict[int, Choice] = {}

        def may_save(group: int) -> float:
            cost, its = choice_of(grouped, group).cost, self._alone.of(group, choice_of(grouped, group))
            assert its is not None
            return float(its.cycles - max(cost.dram_cycles, cost.compute_cycles))

        # first those with most to gain: what transfers and computation do not hide of each other
        for group in sorted(grouped.groups, key=lambda group: (-may_save(group), group))[:_RETILED]:
            own = choice_of(grouped, group)
            # what stays on the chip between groups fits their tilings
            if not self._rivals.may_change(group) or own.tiling.configuration.handover != NOTHING_HANDED:
                continue
            best = self._alone.of(group, own)
            assert best is not None
            others = self._rivals.tilings(group, own, _TILINGS) if self._alone.left > 0 else []
            for other in others:
                if self._alone.left <= 0:
                    break
                if other.tiling.tiles * other.tiling.core_tiles > _TILES * own.tiling.tiles * own.tiling.core_tiles:
                    continue
                least = totals - best + least_of([other.cost], [], self._rate)
                if self._value(least)[0] > (1 - _LEAST_GAIN) * self._value(totals)[0]:
                    continue
                try:
                    its = self._alone.of(group, other)
                except UsedUpError:
                    continue
                if its is not None and self._value(totals - best + its) < self._value(totals):
                    totals, best, better[group] = totals - best + its, its, other
            self._alone.forget(group, [other for other in others if other is not better.get(group)])
        return self._rivals.with_tilings(grouped, better)

    def _regrouped(self, grouped: Grouped) -> Grouped | None:
        """The segment grouped anew by what is known of groups."""
        met = [
            (group, Totals.of((choice.cost,)), its)
            for group, choice, its in self._alone.all_met()
            # what a group takes while something stays on the chip it takes beside such groups only
            if choice.tiling.configuration.handover == NOTHING_HANDED
        ]
        own = self._alone.sum_of(grouped)
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

    # --- whole plans --------------------------------------------------------------------------------------------------

    def _whole(self, found: FusedSegment) -> LoweredSegment | None:
        """A segment's program and its time, which the lowering then knows; None if it has none.

        One that exceeds a limit of the profile has no time; the lowering, which is asked for it next, refuses it.
        """
        known, key = self._lowering.lowered.programs, key_of(found.groups)
        if tiles_of(found.groups) > self._alone.tiles_max:
            return None

        def simulated() -> LoweredSegment:
            lowered = self._lowering.within_limits(
                lambda: self._lowering.steps_of(self._facts, found, found.groups), self._actions_max
            )
            refused = self._lowering.refused(self._facts, found, lowered) is not None
            return lowered if refused else replace(lowered, time=lowered.timed())

        if key not in known and (lowered := if_it_can_be(simulated)) is not None:
            known[key] = lowered
        return known.get(key)

    def _proved(self, found: FusedSegment) -> LoweredSegment | None:
        """A segment's program, proved, which the lowering then has; None if it is unsafe or exceeds a limit."""
        lowered = if_it_can_be(lambda: self._lowering.proved(self._facts, found))
        if lowered is None or isinstance(lowered, Refused):
            return None
        return lowered if self._lowering.refused(self._facts, found, lowered) is None else None

    def _bare(self, grouped: Grouped) -> FusedSegment:
        """A plan as it is lowered, without reasons."""
        groups = tuple(
            Group(ops=tuple(bits(group)), choice=choice_of(grouped, group), checks=()) for group in grouped.groups
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
        return _Tried(origin, grouped, time.ticks, figures_of(time, self._profile))

    def _value(self, totals: Totals) -> tuple[float, float]:
        """The objective of the whole with a segment that takes this; then its cycles."""
        whole = self._outside + totals
        return float(objective_value(self._objective, whole)), float(whole.cycles)


def _scaled(totals: Totals, share: float) -> Totals:
    """So much of the cycles and of the energy; bytes are the same."""
    return replace(totals, cycles=share * totals.cycles, energy_pj=share * totals.energy_pj)


def _same(one: Grouped, other: Grouped) -> bool:
    if one.groups != other.groups:
        return False
    return all(choice_of(one, group).tiling == choice_of(other, group).tiling for group in one.groups)
