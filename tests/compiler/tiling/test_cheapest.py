"""The cheapest of many configurations: which are priced, which stand aside, and that none is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from compiler.cost.model import Cost, Traffic, price
from compiler.fusion.segment_graph import bits
from compiler.profile.schema import Profile
from compiler.tiling.cheapest import Worked, cheapest, most_promising
from compiler.tiling.choose import _Found, _largest_tiles, _tilings
from compiler.tiling.commands import COMMANDS_RULE
from compiler.tiling.estimate import TilePlan
from compiler.tiling.figures import PHYSICAL, Check
from compiler.tiling.finished import finished
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import memory_of
from compiler.tiling.wishes import Wishes
from tests.compiler.fusion.test_search import case

TOO_LONG = Check(rule=COMMANDS_RULE, holds=False, actual=2, limit=1)
FULL = Check(rule="PROG-2:nram", holds=False, actual=2, limit=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """The configurations of a group that have a tiling, the most promising first, with that tiling."""

    plans: tuple[TilePlan, ...]
    worked: tuple[Worked, ...]
    profile: Profile
    wishes: Wishes

    def only(self, places: list[int]) -> Tried:
        """Some of them."""
        plans, worked = tuple(self.plans[i] for i in places), tuple(self.worked[i] for i in places)
        return replace(self, plans=plans, worked=worked)

    def alike(self) -> Tried:
        """The first two that differ in their halos only."""
        met: dict[object, int] = {}
        for place, plan in enumerate(self.plans):
            key = replace(plan.configuration, halo=()), plan.configuration.placement
            if key in met:
                return self.only([met[key], place])
            met[key] = place
        raise AssertionError(self.plans)

    def behind(self, place: int) -> Worked:
        """A tiling that is estimated to be a little worse than all others once its tile is worked out."""
        worked, reads = self.worked[place], 1
        while True:
            plan = replace(worked.plan, weight_reads=reads)
            if most_promising((*self.plans, plan), self.profile, self.wishes.objective)[-1][2] is plan:
                return replace(worked, plan=plan)
            reads *= 2


def tried(seed: int, group: int) -> Tried:
    """The configurations of a group of a random case."""
    these = case(seed)
    geometry = GroupGeometry(these.graph.facts, tuple(bits(group)))
    wishes = Wishes(objective=these.options.objective)
    found, _ = _largest_tiles(geometry, these.profile, PHYSICAL, wishes)

    def first(entry: _Found) -> Worked | Check:
        return next(_tilings(entry, these.profile, PHYSICAL, wishes, is_thorough=False))

    pairs = []
    for _, number, plan in most_promising((entry.plan for entry in found), these.profile, wishes.objective):
        worked = first(found[number])
        if isinstance(worked, Worked):
            pairs.append((plan, worked))
    plans, done = zip(*pairs, strict=True)
    return Tried(plans=plans, worked=done, profile=these.profile, wishes=wishes)


def one_each(outcomes: list[Worked | Check]) -> Callable[[int], Iterator[Worked | Check]]:
    """Each configuration has one tiling, or fails; then no smaller one."""
    return lambda number: iter([outcomes[number], FULL])


def test_what_is_worked_out_is_not_given_up_with_what_is_too_long() -> None:
    """PROG-1:commands keeps out those that fail it, not one that waits behind them."""
    these = tried(128, 50)
    count = 1 + 8
    these = these.only(list(range(count)))
    outcomes: list[Worked | Check] = [these.behind(0), *[TOO_LONG] * (count - 1)]
    choice, _ = cheapest(these.plans, one_each(outcomes), these.profile, these.wishes)
    assert choice is not None


def test_of_configurations_that_differ_in_halos_only_one_is_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where both are worked out before the first of them is priced."""
    these = tried(128, 50).alike()
    priced: list[Traffic] = []

    def counted(traffic: Traffic, profile: Profile) -> Cost:
        priced.append(traffic)
        return price(traffic, profile)

    monkeypatch.setattr("compiler.tiling.cheapest.price", counted)
    outcomes: list[Worked | Check] = [these.behind(0), these.worked[1]]
    choice, _ = cheapest(these.plans, one_each(outcomes), these.profile, these.wishes)
    assert choice is not None
    assert len(priced) == 1


@pytest.mark.parametrize("is_first_behind", [False, True])
def test_other_halos_are_tried_where_memory_cannot_be_allocated(
    monkeypatch: pytest.MonkeyPatch, *, is_first_behind: bool
) -> None:
    """PROG-2: what stood aside for a configuration that does not fit comes back."""
    these = tried(128, 50).alike()
    checks = iter([FULL, None])
    monkeypatch.setattr("compiler.tiling.cheapest.allocation_check", lambda _levels: next(checks))
    outcomes: list[Worked | Check] = [these.behind(0) if is_first_behind else these.worked[0], these.worked[1]]
    choice, _ = cheapest(these.plans, one_each(outcomes), these.profile, these.wishes)
    assert choice is not None
    assert choice.tiling.configuration.halo == these.plans[0 if is_first_behind else 1].configuration.halo


@pytest.mark.parametrize(("seed", "group"), [(86, 40), (128, 7), (190, 1), (218, 1)])
def test_a_tile_that_is_worked_out_is_estimated_with_the_weights_that_it_reads(seed: int, group: int) -> None:
    """TILE-6: slices, sums in parts and weights that wait in the SRAM included."""
    these = tried(seed, group)
    for worked in these.worked:
        choice = finished(worked.priced(these.profile), memory_of(worked.group))
        assert worked.plan.weight_bytes(these.profile) == sum(w.size_bytes * w.loads for w in choice.tiling.weights)
