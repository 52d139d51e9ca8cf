"""The cheapest of many configurations, of which few are priced: the one that promises most comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Final

from compiler.cost.model import price
from compiler.cost.objective import Totals, ranking
from compiler.profile.schema import Profile
from compiler.tiling.commands import COMMANDS_RULE
from compiler.tiling.estimate import TilePlan, estimates
from compiler.tiling.figures import Check, Figures
from compiler.tiling.finished import Choice, Priced, finished
from compiler.tiling.memory import allocation_check, memory_of
from compiler.tiling.tile import Configuration, HaloMode
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import traffic_of
from compiler.tiling.wishes import Wishes

# So many configurations, in the order of their estimates, get a core tile and an exact price.
_PRICED: Final = 4
_PINNED: Final = 64
# After so many whose programs are too long those not worked out yet are given up.
_TOO_LONG: Final = 8
# An estimate may lie so far above the price: beyond it a configuration is given up.
_MARGIN: Final = 1.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """A tile worked out: it holds, but is neither priced nor allocated."""

    plan: TilePlan
    group: TiledGroup
    figures: Figures

    def priced(self, profile: Profile) -> Priced:
        """With its exact price."""
        return Priced(group=self.group, figures=self.figures, cost=price(traffic_of(self.group), profile))


@dataclass(slots=True, kw_only=True, eq=False)
class Promise:
    """A configuration that waits for its price, with an estimate made for its tile.

    `tilings` works its tiles out, the largest first, and ends with what fails. `worked`: the last of them.
    """

    plan: TilePlan
    tilings: Iterator[Worked | Check]
    worked: Worked | None = field(default=None, init=False)

    @property
    def alike(self) -> Configuration:
        """What it has in common with configurations that differ in halos only: the estimate knows what those cost."""
        configuration = self.plan.configuration
        if any(mode is HaloMode.EXCHANGE for _, mode in configuration.halo):
            return configuration
        return replace(configuration, halo=()) if configuration.halo else configuration

    def advance(self) -> Worked | Check:
        """Work out the first tile, or the next smaller one; what fails if there is none."""
        outcome = next(self.tilings)
        if isinstance(outcome, Worked):
            self.worked = outcome
        return outcome


def most_promising(
    plans: Iterable[TilePlan], profile: Profile, objective: str
) -> list[tuple[tuple[float, ...], int, TilePlan]]:
    """Plans by their estimates, the best first, each with its place; equal ones keep their order."""
    tried = list(plans)
    if not tried:
        return []
    keys = zip(*(key.tolist() for key in ranking(objective, estimates(tried, profile))), strict=True)
    return sorted(zip(keys, range(len(tried)), tried, strict=True), key=lambda entry: entry[:2])


def cheapest(
    plans: Sequence[TilePlan],
    tilings: Callable[[int], Iterator[Worked | Check]],
    profile: Profile,
    wishes: Wishes,
    *,
    is_thorough: bool = False,
) -> tuple[Choice | None, list[Check]]:
    """The cheapest of the most promising that fits when its memory is allocated; else what each of them fails.

    `tilings` works out the tiles of a plan, by its place. Once one is worked out it is estimated anew and takes its
    place among those that wait, and so does the next smaller one where it does not fit when it is allocated (PROG-2):
    an estimate is as good as what it knows of the tile. Unless it is thorough, of configurations that differ in their
    halos only the best one is priced; the others stand aside, and wait again where its memory cannot be allocated.
    """
    failing: list[Check] = []
    waiting = [
        (key, number, Promise(plan=plan, tilings=tilings(number)))
        for key, number, plan in most_promising(plans, profile, wishes.objective)
    ]
    fitting: list[tuple[tuple[float, ...], int, Priced, Promise]] = []
    # by what is priced of configurations that are alike, those that stand aside for it
    aside: dict[Configuration, list[tuple[tuple[float, ...], int, Promise]]] = {}
    most, too_long = _PINNED if wishes.is_pinned else _PRICED, 0
    while waiting or fitting:
        if waiting and len(fitting) < most and not (fitting and waiting[0][0][0] >= fitting[0][0][0] * _MARGIN):
            key, number, promise = heappop(waiting)
            if promise.alike in aside and not is_thorough:
                aside[promise.alike].append((key, number, promise))
                continue
            worked = promise.worked
            if worked is None:
                outcome = promise.advance()
                if isinstance(outcome, Check):
                    failing.append(outcome)
                    too_long += outcome.rule == COMMANDS_RULE
                    if too_long == _TOO_LONG and not is_thorough:
                        waiting = [entry for entry in waiting if entry[2].worked is not None]
                        heapify(waiting)
                    continue
                if not _is_as_estimated(promise.plan, outcome.plan, profile):
                    key = _estimate(outcome, profile, wishes)
                heappush(waiting, (key, number, promise))
                continue
            aside.setdefault(promise.alike, [])
            found = worked.priced(profile)
            heappush(fitting, (ranking(wishes.objective, Totals.of((found.cost,))), number, found, promise))
            continue
        _, number, found, promise = heappop(fitting)
        levels = memory_of(found.group)
        unfit = allocation_check(levels)
        if unfit is None:
            return finished(found, levels), []
        failing.append(unfit)
        for entry in aside.pop(promise.alike, ()):
            heappush(waiting, entry)
        smaller = promise.advance()
        if isinstance(smaller, Worked):
            heappush(waiting, (_estimate(smaller, profile, wishes), number, promise))
    return None, failing


def _is_as_estimated(estimated: TilePlan, worked: TilePlan, profile: Profile) -> bool:
    return estimated.tile == worked.tile and estimated.weight_bytes(profile) == worked.weight_bytes(profile)


def _estimate(worked: Worked, profile: Profile, wishes: Wishes) -> tuple[float, ...]:
    [(key, _, _)] = most_promising([worked.plan], profile, wishes.objective)
    return key
