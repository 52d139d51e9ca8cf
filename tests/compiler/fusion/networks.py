"""Random and large networks of nameless ops, and their partitions into groups by definition alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from random import Random


@dataclass(frozen=True, kw_only=True)
class Edges:
    """A network as bare edges; op numbers ascend along them."""

    successors: Mapping[int, tuple[int, ...]]
    leaves: Mapping[int, bool]

    @property
    def ops(self) -> tuple[int, ...]:
        return tuple(self.successors)

    @classmethod
    def of(cls, edges: set[tuple[int, int]], count: int, outputs: set[int] | None = None, first: int = 0) -> Edges:
        """Ops `first` to `first + count`; ops that nobody reads leave, and `outputs` beside."""
        ops = range(first, first + count)
        readers: dict[int, tuple[int, ...]] = dict.fromkeys(ops, ())
        for a, b in sorted(edges):
            readers[a] += (b,)
        return cls(successors=readers, leaves={op: not readers[op] or op in (outputs or set()) for op in ops})


def random_network(random: Random, most: int) -> Edges:
    """Any directed acyclic graph: sparse or dense, with several outputs, some of them read further."""
    count = random.randint(1, most)
    density = random.choice((0.2, 0.35, 0.5, 0.8))
    edges = {(a, b) for a in range(count) for b in range(a + 1, count) if random.random() < density}
    if random.random() < 0.6:  # a spine, so that fewer ops are outputs
        edges |= {(a, a + 1) for a in range(count - 1)}
    outputs = {op for op in range(count) if random.random() < random.choice((0, 0, 0.2))}
    return Edges.of(edges, count, outputs)


def series_parallel(random: Random, most: int) -> Edges:
    """One op, grown by putting ops behind each other and beside each other between the ends of an edge."""
    names = [0.0, 1.0]
    edges = {(0.0, 1.0)}
    for _ in range(random.randint(0, most - 2)):
        a, b = random.choice(sorted(edges))
        middle = a + (b - a) * random.uniform(0.3, 0.7)
        names.append(middle)
        if random.random() < 0.5:
            edges.discard((a, b))
        edges |= {(a, middle), (middle, b)}
    number = {name: place for place, name in enumerate(sorted(names))}
    return Edges.of({(number[a], number[b]) for a, b in edges}, len(names))


def chain(count: int) -> Edges:
    """Ops one behind the other."""
    return Edges(
        successors={op: (op + 1,) if op + 1 < count else () for op in range(count)},
        leaves={op: op + 1 == count for op in range(count)},
    )


def residual(blocks: int) -> Edges:
    """Blocks of five ops and a sum that also reads the block's input, as in ResNet."""
    count = 6 * blocks + 1
    readers: dict[int, tuple[int, ...]] = {op: (op + 1,) if op + 1 < count else () for op in range(count)}
    for block in range(blocks):
        readers[6 * block] = (6 * block + 1, 6 * block + 6)
    return Edges(successors=readers, leaves={op: op + 1 == count for op in range(count)})


def branches(number: int, length: int) -> Edges:
    """One op, `number` branches of `length` ops that read it, one op that reads them all, one behind."""
    last = number * length + 1
    edges = {(last, last + 1)}
    for branch in range(number):
        ops = [0, *range(1 + branch * length, 1 + (branch + 1) * length), last]
        edges |= set(pairwise(ops))
    return Edges.of(edges, last + 2)


def reachable(network: Edges, start: int, without: int = -1) -> set[int]:
    """Ops that a path from `start` passes, itself included, not through `without`."""
    found, waiting = {start}, [start]
    while waiting:
        for user in network.successors[waiting.pop()]:
            if user != without and user not in found:
                found.add(user)
                waiting.append(user)
    return found


def wanted(network: Edges, group: frozenset[int]) -> list[int]:
    """Ops of a group whose result is wanted outside it."""
    return [op for op in group if network.leaves[op] or any(user not in group for user in network.successors[op])]


def is_convex(network: Edges, group: frozenset[int]) -> bool:
    """True if no path leaves the group and comes back."""
    reach = {op: reachable(network, op) for op in network.ops}
    outside = {user for op in group for user in network.successors[op]} - group
    return not any(reach[op] & group for op in outside)


def single_output_groups_of(network: Edges) -> list[frozenset[int]]:
    """All groups with one output, by looking at every set of ops."""
    ops = network.ops
    sets = (frozenset(op for place, op in enumerate(ops) if mask >> place & 1) for mask in range(1, 1 << len(ops)))
    return [group for group in sets if len(wanted(network, group)) == 1]


def set_partitions(ops: frozenset[int], groups: list[frozenset[int]]) -> Iterator[tuple[frozenset[int], ...]]:
    """All ways to take disjoint groups that cover the ops."""
    if not ops:
        yield ()
        return
    first = min(ops)
    for group in groups:
        if first in group and group <= ops:
            for rest in set_partitions(ops - group, groups):
                yield (group, *rest)


def runs_in_some_order(network: Edges, groups: tuple[frozenset[int], ...]) -> bool:
    """True if the groups do not wait for each other in a circle."""
    home = {op: number for number, group in enumerate(groups) for op in group}
    waits = {number: set[int]() for number in range(len(groups))}
    for op, users in network.successors.items():
        for user in users:
            if home[op] != home[user]:
                waits[home[user]].add(home[op])
    while waits:
        ready = {number for number, others in waits.items() if not others}
        if not ready:
            return False
        waits = {number: others - ready for number, others in waits.items() if number not in ready}
    return True


def all_partitions(network: Edges) -> list[tuple[frozenset[int], ...]]:
    """Every partition into convex groups with one output each that can run one after another."""
    groups = [group for group in single_output_groups_of(network) if is_convex(network, group)]
    found = set_partitions(frozenset(network.ops), groups)
    return [partition for partition in found if runs_in_some_order(network, partition)]


def as_mask(group: frozenset[int]) -> int:
    """A group as a bit set."""
    return sum(1 << op for op in group)


class Counted:
    """A price function that counts how often it is asked."""

    def __init__(self, prices: Callable[[int], int | None]) -> None:
        self._prices = prices
        self.asked: list[int] = []

    def __call__(self, group: int) -> int | None:
        self.asked.append(group)
        return self._prices(group)
