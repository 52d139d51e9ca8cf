"""The cheapest of many configurations, of which few are priced: the one that promises most comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush, heapreplace
from typing import Any, Final

import numpy as np

from compiler.cost.model import price
from compiler.cost.objective import Totals, ranking
from compiler.lazy import lazy
from compiler.profile.schema import Profile
from compiler.tiling.estimate import TilePlan, estimates
from compiler.tiling.figures import Check, Figures
from compiler.tiling.finished import Choice, Priced, finished
from compiler.tiling.memory import LevelMemory, allocation_check, memory_of
from compiler.tiling.pace import turns
from compiler.tiling.price import leasts
from compiler.tiling.tile import Configuration, HaloMode, Order, Spread
from compiler.tiling.tiled import TiledGroup
from compiler.tiling.traffic import GroupWork
from compiler.tiling.wishes import Wishes

# So many configurations, in the order of their estimates, get a core tile and an exact price.
_PRICED: Final = 3
_PINNED: Final = 64
# An estimate may lie so far above the price: beyond it a configuration is given up.
_MARGIN: Final = 1.1
# Each turn beyond so many has to save this part of the price, for long programs take memory and time to lower. At a
# third a chain of concats up to 2^30 bytes takes 1.2 GiB in place of 0.9; at thirty times as much MC-CNN on cluster4x4,
# which has 40,000 turns, takes 2.7 % longer when simulated.
_MANY_TURNS: Final = 256
_OF_TURN: Final = 3e-8


@dataclass(frozen=True, kw_only=True)
class Worked:
    """A tile worked out: it holds, but is neither priced nor allocated."""

    group: TiledGroup
    figures: Figures

    @lazy
    def work(self) -> GroupWork:
        """What it moves and computes."""
        return GroupWork(self.group)

    def priced(self, profile: Profile) -> Priced:
        """With its exact price."""
        return Priced(group=self.group, figures=self.figures, cost=price(self.work.traffic, profile))

    def least(self, profile: Profile, objective: str) -> Iterator[float]:
        """What no rank is below, each time more closely."""
        for totals in leasts(self.work, profile):
            yield float(ranked(objective, totals, turns(self.group))[0])


def most_promising(
    plans: Iterable[TilePlan], profile: Profile, objective: str
) -> list[tuple[tuple[float, ...], int, TilePlan]]:
    """Plans by their estimates, the best first, each with its place; of equal ones first what has least to do."""
    tried = list(plans)
    if not tried:
        return []
    uses = [*zip(*map(_uses, tried), strict=True)]
    figures = (key.tolist() for key in ranked(objective, estimates(tried, profile), np.array(uses[1])))
    keys = zip(*figures, *uses, strict=True)
    return sorted(zip(keys, range(len(tried)), tried, strict=True), key=lambda entry: entry[:2])


def _uses(plan: TilePlan) -> tuple[bool, int]:
    """What tells plans of equal price apart: whether units add to each other's sums one after another, and how often
    ops are done: with every tile, and the slices of channels and sums.
    """
    configuration = plan.configuration
    often = plan.rounds * configuration.channel_slices * configuration.input_slices
    return configuration.spread is Spread.INPUT_CHANNELS, often


def cheapest(
    plans: Sequence[TilePlan],
    tilings: Callable[[int], Iterator[Worked | Check]],
    profile: Profile,
    wishes: Wishes,
    *,
    is_thorough: bool = False,
) -> tuple[Choice | None, list[Check]]:
    """The cheapest of the most promising that fits when its memory is allocated; else what each of them fails.

    `tilings` works out the tiles of a plan, by its place, the largest first, and ends with what fails. Where a priced
    tile does not fit when it is allocated (PROG-2), the next smaller one is priced in its place. Unless it is thorough,
    of configurations that differ in their halos only the best one is priced; the others stand aside, and wait again
    where its memory cannot be allocated. Estimates do not know core tiles, so the best of each depth order is priced.
    """
    failing: list[Check] = []
    waiting = most_promising(plans, profile, wishes.objective)
    # by rank, or what no rank is below as long as it is not the first of them
    fitting: list[tuple[tuple[float, ...], int, Worked, Iterator[Worked | Check], Iterator[float] | Priced]] = []
    # by what is priced of configurations that are alike, those that stand aside for it
    aside: dict[Configuration, list[tuple[tuple[float, ...], int, TilePlan]]] = {}
    most, orders = _PINNED if wishes.is_pinned else _PRICED, set[Order]()

    def add(number: int, smaller: Iterator[Worked | Check]) -> bool:
        """Work out the next tile of a plan; False if it is not the tile that was estimated."""
        outcome = next(smaller)
        if isinstance(outcome, Check):
            failing.append(outcome)
            return False
        bounds = outcome.least(profile, wishes.objective)
        heappush(fitting, ((next(bounds),), number, outcome, smaller, bounds))
        orders.add(plans[number].configuration.order)
        return outcome.group.tile == plans[number].tile

    def first() -> tuple[tuple[float, ...], int, Priced, Iterator[Worked | Check]]:
        """The first of what is worked out, which is priced; others only as long as they might come before it."""
        while True:
            rank, number, outcome, smaller, known = fitting[0]
            if isinstance(known, Priced):
                return rank, number, known, smaller
            bound = next(known, None)
            if bound is None:
                found = outcome.priced(profile)
                rank = (*_rank(found, wishes.objective), *_uses(plans[number]))
                heapreplace(fitting, (rank, number, outcome, smaller, found))
            else:
                heapreplace(fitting, ((bound,), number, outcome, smaller, known))

    while waiting or fitting:
        tried = waiting if len(fitting) < most else [e for e in waiting if e[2].configuration.order not in orders]
        best = min(tried, key=lambda entry: entry[:2], default=None)
        if best is not None and not (fitting and best[0][0] >= first()[0][0] * _MARGIN):
            waiting.remove(best)
            _, number, plan = best
            alike = _alike(plan.configuration)
            if alike in aside and not is_thorough:
                aside[alike].append(best)
            elif add(number, tilings(number)):
                aside.setdefault(alike, [])
            continue
        _, number, found, smaller = first()
        heappop(fitting)
        levels = memory_of(found.group)
        unfit = allocation_check(levels)
        if unfit is None:
            return _with_smaller_tiles(found, levels, smaller, profile, wishes), []
        failing.append(unfit)
        waiting.extend(aside.pop(_alike(plans[number].configuration), ()))
        add(number, smaller)
    return None, failing


def _with_smaller_tiles(
    found: Priced,
    levels: tuple[LevelMemory, ...],
    smaller: Iterator[Worked | Check],
    profile: Profile,
    wishes: Wishes,
) -> Choice:
    """A tiling, or smaller tiles of its configuration as long as these cost less: more of their transfers is hidden."""
    best = _rank(found, wishes.objective)
    while not wishes.is_pinned and wishes.split.kind == "exact":
        outcome = next(smaller)
        if isinstance(outcome, Check):
            break
        if any(least >= best[0] for least in outcome.least(profile, wishes.objective)):
            break
        other = outcome.priced(profile)
        rank = _rank(other, wishes.objective)
        if rank[0] >= best[0] or allocation_check(memory := memory_of(other.group)) is not None:
            break
        found, levels, best = other, memory, rank
    return finished(found, levels)


def ranked(objective: str, totals: Totals, count: Any) -> tuple[Any, ...]:
    """The order among tilings of one group that go through its ops so often; numbers, or arrays over candidates."""
    value, *rest = ranking(objective, totals)
    return (value * (1 + _OF_TURN * np.maximum(0, count - _MANY_TURNS)), *rest)


def _rank(found: Priced, objective: str) -> tuple[Any, ...]:
    return ranked(objective, Totals.of((found.cost,)), turns(found.group))


def _alike(configuration: Configuration) -> Configuration:
    """What it has in common with configurations that differ in halos only: the estimate knows what those cost."""
    if any(mode is HaloMode.EXCHANGE for _, mode in configuration.halo):
        return configuration
    return replace(configuration, halo=()) if configuration.halo else configuration
