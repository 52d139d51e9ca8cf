"""The post-dominator tree and the groups it offers, against definitions on random graphs."""

from __future__ import annotations

from random import Random

import pytest

from compiler.errors import InternalError
from compiler.fusion.dominators import immediate_dominators
from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import bits, mask_of
from compiler.fusion.single_output import single_output_groups
from tests.compiler.fusion.networks import (
    Edges,
    as_mask,
    branches,
    chain,
    is_convex,
    random_network,
    reachable,
    residual,
    runs_in_some_order,
    series_parallel,
    set_partitions,
    single_output_groups_of,
    wanted,
)

NO_LIMIT = 10**9


def networks(count: int, most: int) -> list[Edges]:
    """Half of them of any shape, half series-parallel."""
    kinds = (random_network, series_parallel)
    return [kinds[seed % 2](Random(seed), most) for seed in range(count)]


def sink_reached(network: Edges, op: int, without: int) -> bool:
    """True if some path from an op leads out of the network without passing another op."""
    return any(network.leaves[other] for other in reachable(network, op, without))


def test_every_path_to_the_outside_passes_the_parent_and_no_nearer_op() -> None:
    for network in networks(300, 12):
        tree = PostDominators.of(network)
        for op in network.ops:
            passed = [other for other in network.ops if other != op and not sink_reached(network, op, other)]
            # of the ops that all paths pass the nearest comes first in execution order
            assert tree.parent[op] == min(passed, default=None)


def test_an_output_that_is_read_further_has_no_parent() -> None:
    tree = PostDominators.of(Edges.of({(0, 1), (1, 2)}, 3, outputs={1}))
    assert dict(tree.parent) == {0: 1, 1: None, 2: None}
    assert tree.roots == (1, 2)


def test_dominators_of_a_deep_ladder_are_found() -> None:
    """Each op reads the one before and the first: the common ancestors are far up."""
    ops = range(2000)
    sources = {op: (op - 1, 0) if op > 1 else (0,) * op for op in ops}
    found = immediate_dominators(ops, sources, {op: op == 0 for op in ops})
    assert found == {0: None, **dict.fromkeys(range(1, 2000), 0)} | {1: 0}


def test_ops_out_of_order_are_an_internal_error() -> None:
    with pytest.raises(InternalError, match="is read by an op before it"):
        PostDominators.of(Edges(successors={0: (), 1: (0,)}, leaves={0: True, 1: False}))
    with pytest.raises(InternalError, match="ascending"):
        PostDominators.of(Edges(successors={1: (), 0: (1,)}, leaves={0: False, 1: True}))


def test_single_output_partitions_are_convex_and_run_in_some_order() -> None:
    """The first fact of partitions.py: nothing but the number of outputs has to be asked."""
    seen = 0
    for network in networks(1000, 9):
        groups = single_output_groups_of(network)
        assert all(is_convex(network, group) for group in groups)
        for partition in set_partitions(frozenset(network.ops), groups):
            assert runs_in_some_order(network, partition)
            seen += 1
    assert seen > 10_000


def test_all_groups_of_an_output_are_offered_once_smallest_first() -> None:
    for network in networks(400, 9):
        tree = PostDominators.of(network)
        by_output: dict[int, set[int]] = {op: set() for op in network.ops}
        for group in single_output_groups_of(network):
            by_output[wanted(network, group)[0]].add(as_mask(group))
        for op in network.ops:
            offered = [group for group, _ in single_output_groups(tree, op, lambda _: True, NO_LIMIT)]
            assert len(offered) == len(set(offered))
            assert set(offered) == by_output[op]
            assert offered == sorted(offered, key=int.bit_count)


def test_the_frontier_are_the_outputs_that_a_group_leaves_behind() -> None:
    for network in networks(200, 9):
        tree = PostDominators.of(network)
        for op in network.ops:
            for group, frontier in single_output_groups(tree, op, lambda _: True, NO_LIMIT):
                inside = set(bits(group))
                parents = {other: tree.parent[other] for other in set(network.ops) - inside}
                assert frontier == mask_of(other for other, parent in parents.items() if parent in inside)


def test_nothing_is_offered_that_contains_a_group_that_may_not_grow() -> None:
    for seed, network in enumerate(networks(300, 9)):
        random = Random(seed)
        weights = [random.randint(1, 4) for _ in network.ops]
        most = random.randint(1, 12)
        tree = PostDominators.of(network)

        def may_grow(group: int, weights: list[int] = weights, most: int = most) -> bool:
            return sum(weights[op] for op in bits(group)) <= most

        for op in network.ops:
            everything = [group for group, _ in single_output_groups(tree, op, lambda _: True, NO_LIMIT)]
            stopped = [group for group in everything if not may_grow(group)]
            wished = {g for g in everything if not any(other != g and not other & ~g for other in stopped)}
            offered = [group for group, _ in single_output_groups(tree, op, may_grow, NO_LIMIT)]
            assert set(offered) == wished
            for limit in (1, 3, 6):
                few = [group for group, _ in single_output_groups(tree, op, may_grow, limit)]
                assert len(few) == len(set(few))
                assert set(few) <= wished


def test_a_wide_block_stays_bounded_and_offers_whole_blocks() -> None:
    network = branches(32, 10)
    tree = PostDominators.of(network)
    last = len(network.ops) - 1
    offered = {group for group, _ in single_output_groups(tree, last, lambda _: True, 500)}
    assert 500 < len(offered) <= 4 * 500
    assert tree.smallest_with(1 << last | 1 << last - 1, 0) in offered  # all ops
    inside = mask_of(range(1, last - 1))
    ends = 1 << last | 1 << last - 1
    for branch in range(32):
        ops = range(1 + 10 * branch, 11 + 10 * branch)
        for place in range(10):
            assert ends | mask_of(ops[place:]) in offered, "one branch alone, op by op"
            assert ends | inside & ~mask_of(ops[: place + 1]) in offered, "all others whole, op by op"
    assert any(ends | mask_of(range(10 * count + 1, last - 1)) in offered for count in range(2, 30)), "some whole"


def test_the_limit_holds_on_wide_and_on_long_networks() -> None:
    for network, limit in ((branches(64, 3), 50), (chain(400), 20), (residual(40), 30), (branches(2, 300), 100)):
        tree = PostDominators.of(network)
        for op in network.ops[::37] + network.ops[-1:]:
            assert sum(1 for _ in single_output_groups(tree, op, lambda _: True, limit)) <= 4 * limit


def test_groups_are_all_offered_where_there_are_as_many_as_the_limit() -> None:
    tree = PostDominators.of(branches(2, 2))
    everything = [group for group, _ in single_output_groups(tree, 5, lambda _: True, NO_LIMIT)]
    assert len(everything) == 10  # one branch 0 to 2 ops, the other too, and the op before both
    assert [group for group, _ in single_output_groups(tree, 5, lambda _: True, 10)] == everything


def test_an_output_never_joins_a_group_that_reads_it_even_beyond_the_limit() -> None:
    tree = PostDominators.of(Edges.of({(0, 3), (1, 3), (2, 3)}, 4, outputs={1}))
    offered = [group for group, _ in single_output_groups(tree, 3, lambda _: True, 2)]
    assert set(offered) == {0b1000, 0b1001, 0b1100, 0b1101}
