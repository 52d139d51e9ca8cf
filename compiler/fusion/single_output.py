"""The groups whose one output is a given op, smallest first.

A set of ops is a group with output w if it contains w, and of every other member all consumers: only w's result is
wanted outside. Such a group is convex, because every member reaches w, so a path that leaves it starts behind w.

The groups of one output are closed under union and intersection, and each larger one is a smaller one and one op more.
There are as many as operators on a chain, and the product of the branches' lengths in a block of parallel branches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from compiler.fusion.postdominators import PostDominators
from compiler.fusion.segment_graph import bits

# What the block tree offers of an output is looked for until so many ops have been visited, for each group allowed.
_VISITS: Final = 64


def single_output_groups(
    tree: PostDominators, output: int, may_grow: Callable[[int], bool], limit: int
) -> Iterator[tuple[int, int]]:
    """Groups with output `output`, each once and with its frontier (`PostDominators.frontier`), as bit sets.

    `may_grow` prunes: no group is offered that contains a smaller one of this output for which it is false. It has to
    be monotone: false for a group, it is false for all that contain it. It is asked about offered groups and about
    groups that lack one op of what may be offered.

    Groups come by number of ops. If there are more than `limit` (at least 1), the first `limit` are followed by what
    the block tree offers of the larger ones, at most `limit` groups of each kind:

    - one branch alone: for every op, the smallest group that contains it. Ops of a branch come one by one while the
      branches beside it are out, and with the op that opens a block comes the whole block;
    - branch after branch: ops one by one, each branch to its end before the next begins;
    - all branches but one: for every op between a block's first op and its last, the block without that op and without
      what leads to it, and without the block's first op. Ops of a branch come one by one while the branches beside it
      are whole. Of these, `limit` are tried.

    In each kind at most 64 ops are visited for each group of the limit: blocks nested in blocks have large groups only.

    What is left out then are groups that end inside several branches at once, and those with some branches whole and
    some out that this order of branches does not pass through.
    """
    first = 1 << output
    yield first, tree.children[output]
    offered = 1
    # of one size: group -> its frontier and its tips
    growing = {first: (tree.children[output], 0)} if may_grow(first) else {}
    while growing:
        following: dict[int, tuple[int, int]] = {}
        same_size: set[int] = set()
        for group, (frontier, tips) in growing.items():
            # each group is made once, from the one that lacks its earliest op
            for op in bits(frontier & (group & -group) - 1):
                if not tree.may_join(op, group):
                    continue
                larger = group | 1 << op
                others = tips & ~tree.users[op]
                if any(larger ^ 1 << tip not in growing for tip in bits(others)):
                    continue
                if offered == limit:
                    yield from _by_blocks(tree, output, may_grow, limit, same_size, larger.bit_count())
                    return
                offered += 1
                same_size.add(larger)
                next_frontier = frontier & ~(1 << op) | tree.children[op]
                yield larger, next_frontier & ~larger
                if may_grow(larger):
                    following[larger] = (next_frontier & ~larger, others | 1 << op)
        growing = following


def _by_blocks(
    tree: PostDominators, output: int, may_grow: Callable[[int], bool], limit: int, same_size: set[int], size: int
) -> Iterator[tuple[int, int]]:
    """The block tree's groups of at least `size` ops, but for those of this very size that were offered already."""
    seen = set(same_size)
    reached: list[int] = []
    kinds: tuple[Iterator[int], ...] = (
        _one_branch(tree, output, may_grow, limit, reached),
        _branch_after_branch(tree, output, may_grow, limit),
        _all_but_one_branch(tree, reached, may_grow, limit),
    )
    for kind in kinds:
        for group in kind:
            if group.bit_count() >= size and group not in seen:
                seen.add(group)
                yield group, tree.frontier(group)


@dataclass(slots=True)
class _Visits:
    """The ops that may still be visited."""

    left: int

    def of(self, ops: int) -> bool:
        """Count a set of ops; False once too many have been visited."""
        self.left -= ops.bit_count()
        return self.left > 0


def _is_reached(tree: PostDominators, group: int, may_grow: Callable[[int], bool]) -> bool:
    """True if every group that lacks one op of this one may grow."""
    return may_grow(group) or all(may_grow(group ^ 1 << tip) for tip in bits(tree.tips(group)))


def _one_branch(
    tree: PostDominators, output: int, may_grow: Callable[[int], bool], limit: int, reached: list[int]
) -> Iterator[int]:
    """For every op the smallest group that contains it, op by op away from the output; `reached` collects them all."""
    waiting = deque([(output, 1 << output)])
    visits = _Visits(limit * _VISITS)
    while waiting:
        op, group = waiting.popleft()
        reached.append(group)
        for source in sorted(bits(tree.children[op]), reverse=True):
            if len(reached) + len(waiting) > limit:
                break
            larger = tree.smallest_with(group, source)
            if not visits.of(larger & ~group):
                return
            if _is_reached(tree, larger, may_grow):
                waiting.append((source, larger))
                yield larger


def _branch_after_branch(
    tree: PostDominators, output: int, may_grow: Callable[[int], bool], limit: int
) -> Iterator[int]:
    """One op more each time: the latest op that can join because of the op that joined last, else of the one before."""
    group = 1 << output
    waiting = list(bits(tree.sources[output]))
    for _ in range(limit):
        while waiting and (group >> waiting[-1] & 1 or not tree.may_join(waiting[-1], group)):
            waiting.pop()  # an op that is read elsewhere too comes again behind its last consumer
        if not waiting:
            return
        op = waiting.pop()
        group |= 1 << op
        if not _is_reached(tree, group, may_grow):
            return
        yield group
        waiting.extend(bits(tree.sources[op]))


def _all_but_one_branch(
    tree: PostDominators, reached: list[int], may_grow: Callable[[int], bool], limit: int
) -> Iterator[int]:
    """For every op inside a block that closes in a reached group: the block without that op and what leads to it."""
    tried = 0
    visits = _Visits(limit * _VISITS)
    for group in reached:
        last = group & -group
        for first in sorted(bits(tree.children[last.bit_length() - 1]), reverse=True):
            inside = tree.smallest_with(group, first) & ~group ^ 1 << first
            if not visits.of(inside):
                return
            # away from the output: what is left without an op is contained in what is left without one before it
            waiting = deque(op for op in bits(inside) if not tree.users[op] & inside)
            accepted = 0
            while waiting:
                if tried == limit:
                    return
                tried += 1
                op = waiting.popleft()
                # what leads to the op from inside the block does so inside the block
                out = tree.ancestors[op] & inside | 1 << op
                if not visits.of(out):
                    return
                rest = group | inside & ~out
                if not _is_reached(tree, rest, may_grow):
                    continue
                yield rest
                accepted |= 1 << op
                waiting.extend(s for s in bits(tree.sources[op] & inside) if not tree.users[s] & inside & ~accepted)
