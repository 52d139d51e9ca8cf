"""The least partition against brute force over all partitions: sums, and products of two sums (FUSE-O)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

from compiler.fusion.guided import Guide, Proven, best_within
from compiler.fusion.partitions import Floats, Least, Partition, Partitions, Price
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.product import best_product
from compiler.fusion.segment_graph import GroupList, mask_of
from tests.compiler.fusion.networks import (
    Counted,
    Edges,
    all_partitions,
    as_mask,
    branches,
    chain,
    is_convex,
    random_network,
    residual,
    runs_in_some_order,
    series_parallel,
    set_partitions,
    single_output_groups_of,
    wanted,
)

NO_LIMIT = 10**9
Pair = tuple[int, int]


def table(rows: Sequence[tuple[float, ...]]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Floors as an array."""
    return np.array(rows, dtype=np.float64).reshape(len(rows), -1 if rows else 1)


def by_floors(space: Partitions, weights: Sequence[float] = (1,)) -> Partition | None:
    """The least partition, by pricing the groups of the least one in floors until all of it is priced.

    Ties go to fewer groups, then to the smaller bit set where two partitions first differ from the last output on.
    """
    while (chosen := Least(space, space.values(weights)).rows()) is not None:
        unknown = [row for row in chosen if not space.is_priced[row]]
        if not unknown:
            return space.partition(chosen, weights)
        for row in unknown:
            space.settle(row)
    return None


def best_partition(
    tree: PostDominators,
    floor: Callable[[int], float],
    price: Callable[[int], float | None],
    may_grow: Callable[[int], bool],
    limit: int,
) -> Partition | None:
    """The partition of least total price; a floor of infinity refuses a group."""

    def floors(groups: Sequence[int]) -> Floats:
        return table([(floor(group),) for group in groups])

    def exact(group: int) -> Price | None:
        found = price(group)
        return None if found is None else (found,)

    return by_floors(Partitions(tree, floors, exact, may_grow, limit))


def guided(space: Partitions, weights: Sequence[float] = (1,), steps: int = NO_LIMIT) -> Proven | None:
    """As the search finds it."""
    return best_within(space, Guide(space), weights, weights, steps)


def anything(_group: int) -> bool:
    """No pruning."""
    return True


@dataclass(frozen=True, kw_only=True)
class Case:
    """A small network, a price or a refusal for each group, and floors below; `masks` are all its partitions."""

    network: Edges
    prices: dict[int, Pair | None]
    floors: dict[int, Pair]
    masks: list[tuple[int, ...]]

    @property
    def tree(self) -> PostDominators:
        return PostDominators.of(self.network)

    def sums(self) -> list[Pair]:
        """The two sums of every partition without a refused group."""
        found = []
        for partition in self.masks:
            pairs = [pair for group in partition if (pair := self.prices[group]) is not None]
            if len(pairs) == len(partition):
                found.append((sum(a for a, _ in pairs), sum(b for _, b in pairs)))
        return found

    def space(self) -> Partitions:
        return Partitions(
            self.tree, lambda groups: table([self.floors[g] for g in groups]), self.prices.__getitem__, anything, 10**9
        )


def case(seed: int, most: int = 10) -> Case:
    """Half of the networks of any shape, half series-parallel; small whole costs, so that many partitions tie."""
    random = Random(seed)
    network = (random_network, series_parallel)[seed % 2](random, most)
    masks = [tuple(map(as_mask, partition)) for partition in all_partitions(network)]
    groups = sorted({group for partition in masks for group in partition})
    highest = random.choice((2, 5, 20))
    known = {group: (random.randint(0, highest), random.randint(0, highest)) for group in groups}
    refused = random.choice((0, 0.1, 0.3))
    prices = {group: None if random.random() < refused else known[group] for group in groups}
    floors = {group: (random.randint(0, a), random.randint(0, b)) for group, (a, b) in known.items()}
    return Case(network=network, prices=prices, floors=floors, masks=masks)


def least_by_brute_force(these: Case) -> tuple[int, int, tuple[int, ...]] | None:
    """Cost, number of groups, and groups from the last output to the first, the least in this order."""
    found = []
    for partition in these.masks:
        costs = [pair[0] for group in partition if (pair := these.prices[group]) is not None]
        if len(costs) == len(partition):
            found.append((sum(costs), len(partition), tuple(sorted(partition, reverse=True))))
    return min(found, default=None)


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("start", range(0, 3000, 300))
def test_the_least_partition_is_that_of_brute_force(start: int) -> None:
    """FUSE-O over its class, ties included, in 3,000 networks; and no group is priced twice."""
    for seed in range(start, start + 300):
        these = case(seed)

        def price(group: int, these: Case = these) -> int | None:
            pair = these.prices[group]
            return None if pair is None else pair[0]

        def floor(group: int, these: Case = these) -> int:
            return these.floors[group][0]

        asked = Counted(price)
        found = best_partition(these.tree, floor, asked, anything, NO_LIMIT)
        wished = least_by_brute_force(these)
        if wished is None:
            assert found is None
        else:
            assert found is not None
            assert (found.value, len(found.groups), found.groups[::-1]) == wished
        assert len(asked.asked) == len(set(asked.asked))


@pytest.mark.parametrize("start", range(0, 600, 100))
def test_the_guided_partition_is_that_of_brute_force(start: int) -> None:
    """FUSE-O as it is searched, under weights: without a bound on steps the least, with one never below its bound."""
    ended = 0
    for seed in range(start, start + 100):
        these = case(seed)
        sums = sorted(a + 2 * b for a, b in these.sums())
        space = these.space()
        found = guided(space, (1, 2))
        assert (None if found is None else found.partition.value) == (sums[0] if sums else None)
        assert space.priced <= space.size
        if found is None:
            continue
        assert found.is_least
        assert found.bound == found.partition.value
        early = guided(these.space(), (1, 2), steps=seed % 7)
        if early is not None:
            assert early.bound <= sums[0] <= early.partition.value
            assert early.partition.value in sums
            ended += not early.is_least
    assert ended


@pytest.mark.matrix(first=1, rest=3)
@pytest.mark.parametrize("start", range(0, 2000, 250))
def test_the_least_product_is_that_of_brute_force(start: int) -> None:
    """FUSE-O for `edp`, with and without totals from elsewhere."""
    for seed in range(start, start + 250):
        these = case(seed)
        random = Random(seed)
        outside = random.choice(((0, 0), (random.randint(0, 40), random.randint(0, 40))))
        products = [(outside[0] + a) * (outside[1] + b) for a, b in these.sums()]
        found = best_product(partial(by_floors, these.space()), outside=outside)
        assert (None if found is None else found.value) == min(products, default=None)
        if found is not None:
            assert frozenset(found.groups) in set(map(frozenset, these.masks))


def test_fixed_groups_are_partitioned_around() -> None:
    """Ops of a fixed convex group are left out; around it are single-output groups, which never wait in a circle."""
    several_outputs = 0
    for seed in range(600):
        these, random = case(seed, most=7), Random(seed)
        network = these.network
        sets = [frozenset(op for op in network.ops if mask >> op & 1) for mask in range(1, 1 << len(network.ops))]
        fixed = random.choice([group for group in sets if is_convex(network, group)])
        several_outputs += len(wanted(network, fixed)) > 1
        around = list(set_partitions(frozenset(network.ops) - fixed, single_output_groups_of(network)))
        assert all(runs_in_some_order(network, (*partition, fixed)) for partition in around)
        costs = [[these.prices[as_mask(group)] for group in partition] for partition in around]
        wished = min((sum(pair[0] for pair in one if pair) for one in costs if None not in one), default=None)

        def price(group: int, these: Case = these) -> int | None:
            pair = these.prices[group]
            return None if pair is None else pair[0]

        tree = PostDominators.of(network, without=as_mask(fixed))
        found = best_partition(tree, lambda _: 0, price, anything, NO_LIMIT)
        assert (None if found is None else found.value) == wished
    assert several_outputs > 100


def test_only_groups_that_the_hook_reaches_are_used() -> None:
    """With at most 3 ops before growth ends, no group has more than 4."""
    tree = PostDominators.of(chain(20))
    found = best_partition(tree, lambda _: 1, lambda _: 1, lambda group: group.bit_count() <= 3, NO_LIMIT)
    assert found is not None
    assert found.value == 5
    assert max(map(int.bit_count, found.groups)) == 4


def test_a_floor_of_infinity_refuses_a_group_unasked() -> None:
    tree = PostDominators.of(chain(6))
    asked = Counted(lambda _: 1)
    found = best_partition(
        tree, lambda group: float("inf") if group & 0b1100 == 0b1100 else 0, asked, anything, NO_LIMIT
    )
    assert found is not None
    assert found.groups == (0b111, 0b111000)
    assert not any(group & 0b1100 == 0b1100 for group in asked.asked)


@pytest.mark.parametrize(("floor", "sound"), [(2.0, False), (1.0, True)])
def test_after_a_price_below_its_floor_no_bound_is_claimed(floor: float, sound: bool) -> None:
    """A floor that is wrong is a defect, and none that a compilation should end of."""
    space = Partitions(
        PostDominators.of(chain(3)),
        lambda groups: table([(floor,)] * len(groups)),
        lambda _: (1.0,),
        anything,
        NO_LIMIT,
    )
    assert guided(space) is not None
    assert space.is_sound is sound


def test_a_network_without_ops_has_the_empty_partition() -> None:
    tree = PostDominators.of(Edges(successors={}, leaves={}))
    assert best_partition(tree, lambda _: 0, lambda _: 0, anything, 1) == Partition(groups=(), prices=(), value=0)


def least(network: Edges, most: int, limit: int, slack: float) -> tuple[Partition, int, int]:
    """The least partition for invented costs with floors `slack` below; what was priced, and what there is."""

    def price(group: int) -> int:
        count = group.bit_count()
        return 1000 + count * (group * 2654435761 % 997) // 4

    def floors(groups: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        return table([(price(group) * (1 - slack),) for group in groups])

    space = Partitions(
        PostDominators.of(network), floors, lambda group: (price(group),), lambda group: group.bit_count() < most, limit
    )
    found = by_floors(space)
    assert found is not None
    covered = 0
    for group in found.groups:
        assert not covered & group
        covered |= group
    assert covered == mask_of(network.ops)
    return found, space.priced, space.size


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize(
    ("network", "limit"), [(chain(10_000), 100), (residual(300), 100), (branches(32, 10), 300), (branches(3, 2000), 40)]
)
def test_large_networks_are_partitioned_with_few_groups_priced(network: Edges, limit: int) -> None:
    """No recursion, no product of branches; with floors a tenth below the prices most groups are never priced."""
    _, priced, size = least(network, 8, limit, 0.1)
    assert size <= 4 * limit * len(network.ops)
    assert priced < size / 2


def test_bounded_enumeration_still_takes_a_whole_block() -> None:
    """One group of all ops is by far the cheapest; enumeration by size alone would not come that far."""
    network = branches(32, 10)
    everything = mask_of(network.ops)
    found = best_partition(
        PostDominators.of(network), lambda _: 1, lambda group: 1 if group == everything else 10, anything, 100
    )
    assert found is not None
    assert found.groups == (everything,)


@pytest.mark.slow
def test_results_do_not_depend_on_hash_seeds() -> None:
    script = (
        "from tests.compiler.fusion.test_partitions import *\n"
        "for seed in range(40):\n"
        "    these = case(seed)\n"
        "    print(by_floors(these.space(), (1, 2)), guided(these.space(), (1, 2), 9))\n"
        "    print(best_product(partial(by_floors, these.space())))\n"
        "print(least(branches(6, 4), 12, 50, 0.3), least(residual(12), 12, 500, 0.3))\n"
    )
    printed = set()
    for seed in ("0", "77"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        printed.add(done.stdout)
    assert len(printed) == 1
    assert len(printed.pop()) > 1000


def test_groups_are_kept_as_they_were_added_and_in_their_order() -> None:
    groups = [1, 0b1010, 1 << 9_999, (1 << 9_999) | 1, 0b111 << 9_990]
    kept = GroupList()
    for group in groups:
        kept.append(group)
    assert len(kept) == len(groups)
    assert list(kept) == [kept[place] for place in range(len(groups))] == groups
    assert kept[1:4] == groups[1:4]
