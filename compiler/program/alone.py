"""What groups take when each is simulated by itself, within a budget of what is lowered for it (SCHED-7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple, TypeVar

from compiler.cost.objective import Totals
from compiler.degraded import DEFECTS
from compiler.errors import LimitError
from compiler.fusion.grouped import Grouped
from compiler.fusion.groups import FusedSegment, Group
from compiler.fusion.segment_graph import bits
from compiler.ops.op_facts import GraphFacts
from compiler.partition.segments import Segment
from compiler.profile.schema import Profile
from compiler.program.errors import ProgramError
from compiler.program.loops.time import ProgramTime, time_under
from compiler.program.lower import LoweredSegment, LowerSegments
from compiler.program.outlook import least_of, tiles_of
from compiler.program.steps.equal_groups import SegmentGroup
from compiler.program.steps.group_steps import TooManyActionsError
from compiler.program.timing.energy import energy_by_level
from compiler.tiling.choose import Refusal
from compiler.tiling.finished import Choice
from compiler.tiling.tile import Tiling

# The stages that refuse a plan by a LimitError.
_STAGES: Final = ("lower", "simulate")

_T = TypeVar("_T")


class Met(NamedTuple):
    """A group with a tiling, what it takes by itself (None: it has no program), and the group that others are like."""

    choice: Choice
    totals: Totals | None
    original: SegmentGroup | None = None


class UsedUpError(LimitError):
    """A group cannot be simulated by itself with what is left of the budget."""


class GroupsAlone:
    """Groups of one segment that were simulated by themselves.

    `budget`: how many actions may be lowered from one `refill` to the next; of it `left` are. `simulated`: how many
    groups were. No group with more than `tiles_max` tiles of its ops is tried. `value`: the objective of the whole with
    a segment that takes so much.
    """

    def __init__(
        self,
        lowering: LowerSegments,
        facts: GraphFacts,
        segment: Segment,
        value: Callable[[Totals], tuple[float, float]],
    ) -> None:
        self._lowering, self._facts, self._segment = lowering, facts, segment
        self._value = value
        self.budget = self.left = self.simulated = 0
        self.tiles_max: float = inf
        # what groups take by themselves: by ops and tiling, and by what those that take the same have in common
        self._met: dict[tuple[int, Tiling], Met] = {}
        self._alike: dict[tuple[object, ...], Totals] = {}
        # what takes more than all of a budget to be lowered
        self._too_long: set[tuple[int, Tiling]] = set()

    def refill(self) -> None:
        """From now on all of the budget may be used again."""
        self.left = self.budget

    def learn(self, grouped: Grouped, its: LoweredSegment) -> None:
        """What the groups of a plan take by themselves whose whole program was simulated."""
        for group, (_, part), ticks in zip(grouped.groups, its.timed().parts(), its.alone, strict=True):
            choice = choice_of(grouped, group)
            self._met[group, choice.tiling] = Met(choice, figures_of(replace(part, ticks=ticks), self._profile))

    def known(self, group: int, choice: Choice) -> Totals | None:
        """What a group takes by itself; None if it was not tried, or has no program."""
        met = self._met.get((group, choice.tiling))
        return None if met is None else met.totals

    def all_met(self) -> Iterator[tuple[int, Choice, Totals]]:
        """Each group that was simulated, its tiling, and what it takes."""
        for (group, _), (choice, totals, _) in self._met.items():
            if totals is not None:
                yield group, choice, totals

    def of(self, group: int, choice: Choice) -> Totals | None:
        """What a group takes by itself; None if it has no program. Raises UsedUpError."""
        key = group, choice.tiling
        if key not in self._met:
            if key in self._too_long:
                raise UsedUpError("this group takes too long", stage="choose", limit=self.budget)
            self._met[key] = self._simulated(group, choice)
        return self._met[key].totals

    def sum_of(self, grouped: Grouped, below: tuple[float, float] | None = None) -> Totals | None:
        """What a plan's groups take together, each by itself; None if one could not be simulated.

        None, too, if the objective is not `below` what is given.
        """
        totals = Totals()
        costs = [choice_of(grouped, group).cost for group in grouped.groups]
        try:
            for number, group in enumerate(grouped.groups):
                if below is not None:
                    least = totals + least_of(costs[number:], [], self._profile.dram_bytes_per_cycle)
                    if self._value(least) >= below:
                        return None
                its = self.of(group, choice_of(grouped, group))
                if its is None:
                    return None
                totals += its
        except UsedUpError:
            return None
        return totals if below is None or self._value(totals) < below else None

    def forget(self, group: int, choices: Sequence[Choice]) -> None:
        """What was lowered for tilings that are not taken takes memory."""
        for choice in choices:
            key = group, choice.tiling
            met = self._met.get(key)
            if met is not None and met.original is not None:
                self._lowering.lowered.groups.forget(met.original)
                self._met[key] = met._replace(original=None)

    @property
    def _profile(self) -> Profile:
        return self._lowering.profile

    def _simulated(self, group: int, choice: Choice) -> Met:
        its = Group(ops=tuple(bits(group)), choice=choice, checks=())
        if tiles_of((its,)) > self.tiles_max:
            return Met(choice, None)
        found = FusedSegment(segment=self._segment, groups=(its,), boundaries=())

        def simulated() -> Met:
            steps = self._lowering.steps_of(self._facts, found, (its,))
            only = steps.groups[0]
            totals = self._alike.get(only.likeness)
            if totals is None:
                if self.left <= 0:
                    raise UsedUpError("no group is tried any more", stage="choose", limit=self.budget)
                try:
                    time = time_under(*steps.emitted(actions_max=self.budget)[:2])
                except TooManyActionsError as error:
                    self.left -= self.budget
                    self._too_long.add((group, choice.tiling))
                    raise UsedUpError(error.message, stage="choose", limit=self.budget) from error
                self.left -= steps.actions
                self.simulated += 1
                totals = self._alike[only.likeness] = figures_of(time, self._profile)
            return Met(choice, totals, only.original or only)

        return if_it_can_be(simulated) or Met(choice, None)


def figures_of(time: ProgramTime, profile: Profile) -> Totals:
    """What a simulated program takes: bytes of the DRAM, cycles, pJ."""
    moved = time.moved()
    dram = moved.memories["dram"]
    return Totals(
        dram_bytes=dram.read + dram.written,
        cycles=time.cycles,
        energy_pj=sum(energy_by_level(time, profile, moved).values()),
    )


def choice_of(grouped: Grouped, group: int) -> Choice:
    """The tiling of a group of a plan."""
    found = grouped.evaluator.tiling(group)
    assert not isinstance(found, Refusal)
    return found


def if_it_can_be(done: Callable[[], _T]) -> _T | None:
    """What a function returns; None where lowering or simulation fails. What a caller's time limit raises passes."""
    try:
        return done()
    except LimitError as error:
        if error.stage not in _STAGES:
            raise
    except (*DEFECTS, ProgramError):
        pass
    return None
