"""A segment's ops as bit sets: neighbours, ancestors, blocks, convexity.

Op i of the graph is bit i; a group is an int. Set operations on thousands of ops are then a few machine words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, overload

from compiler.fusion.dominators import immediate_dominators
from compiler.ops.op_facts import GraphFacts
from compiler.ops.quantised import base_kind

_CONVOLUTIONS: Final = ("Conv", "ConvTranspose")


class SegmentGraph:
    """The ops of one segment and how they hang together."""

    def __init__(self, facts: GraphFacts, ops: tuple[int, ...]) -> None:
        self.facts = facts
        self.ops = ops
        self.all = mask_of(ops)
        graph = facts.graph
        self._outputs = set(graph.outputs)
        self.successors: dict[int, tuple[int, ...]] = {}
        self.leaves: dict[int, bool] = {}
        predecessors: dict[int, list[int]] = {op: [] for op in ops}
        for op in ops:
            users = graph.consumers.get(graph.ops[op].output, ())
            inside = tuple(user for user in users if self.all >> user & 1)
            self.successors[op] = inside
            # the result is wanted outside the segment, or by nobody
            self.leaves[op] = graph.ops[op].output in self._outputs or len(inside) < len(users)
            for user in inside:
                predecessors[user].append(op)
        self.predecessors = {op: tuple(found) for op, found in predecessors.items()}
        # those that read a result, as a set; a number of no op stands for what is outside, or for nobody
        nobody = 1 << len(graph.ops)
        self._wanted_by = {
            op: mask_of(users) | (nobody if self.leaves[op] or not users else 0)
            for op, users in self.successors.items()
        }

    @cached_property
    def with_computed_weights(self) -> int:
        """The convolutions whose weight is the output of an op of the network."""
        producer = self.facts.graph.producer
        return mask_of(op for op, weight in self._convolution_weights() if weight in producer)

    @cached_property
    def with_shared_weights(self) -> int:
        """The convolutions whose weight other ops read, too."""
        consumers = self.facts.graph.consumers
        return mask_of(op for op, weight in self._convolution_weights() if len(consumers[weight]) > 1)

    def _convolution_weights(self) -> Iterator[tuple[int, str]]:
        nodes = ((op, self.facts.graph.ops[op]) for op in self.ops)
        return ((op, node.inputs[1]) for op, node in nodes if base_kind(node.kind) in _CONVOLUTIONS)

    @cached_property
    def descendants(self) -> dict[int, int]:
        """Op -> everything that depends on it, itself excluded."""
        result: dict[int, int] = {}
        for op in reversed(self.ops):
            mask = 0
            for user in self.successors[op]:
                mask |= 1 << user | result[user]
            result[op] = mask
        return result

    @cached_property
    def ancestors(self) -> dict[int, int]:
        """Op -> everything it depends on, itself excluded."""
        result: dict[int, int] = {}
        for op in self.ops:
            mask = 0
            for source in self.predecessors[op]:
                mask |= 1 << source | result[source]
            result[op] = mask
        return result

    @cached_property
    def exits(self) -> dict[int, int | None]:
        """Op -> its immediate post-dominator: the first op that every path from it passes; None if there is none."""
        return immediate_dominators(reversed(self.ops), self.successors, self.leaves)

    @cached_property
    def entries(self) -> dict[int, int | None]:
        """Op -> its immediate dominator among the segment's ops; None if there is none."""
        graph = self.facts.graph
        roots = {
            op: not self.predecessors[op]
            or any(
                name
                and name not in graph.inputs
                and graph.tensors[name].constant is None
                and graph.producer.get(name) not in self.successors
                for name in graph.ops[op].inputs
            )
            for op in self.ops
        }
        return immediate_dominators(self.ops, self.predecessors, roots)

    def members(self, group: int) -> Iterator[int]:
        """The ops of a group in execution order."""
        return bits(group)

    def outputs_of(self, group: int) -> tuple[int, ...]:
        """Ops of the group whose result is wanted outside it."""
        return tuple([op for op in bits(group) if self._wanted_by[op] & ~group])

    def is_convex(self, group: int) -> bool:
        """True if no path leaves the group and comes back."""
        after = before = 0
        for op in bits(group):
            after |= self.descendants[op]
            before |= self.ancestors[op]
        return not after & before & ~group

    def block_after(self, op: int) -> int | None:
        """The block that opens at `op`: everything between it and its exit, the exit included (FUSE-3)."""
        leave = self.exits[op]
        if leave is None:
            return None
        return self.descendants[op] & self.ancestors[leave] | 1 << leave

    def block_before(self, op: int) -> int | None:
        """The block that closes at `op`: everything between its entry and it, the entry included."""
        enter = self.entries[op]
        if enter is None:
            return None
        return self.ancestors[op] & self.descendants[enter] | 1 << enter

    def holds_whole_block(self, group: int) -> bool:
        """True if the group contains a multi-branch block from its opening op to its exit."""
        for op in bits(group):
            if len(self.successors[op]) > 1:
                block = self.block_after(op)
                if block is not None and not block & ~group:
                    return True
        return False


class GroupList(Sequence[int]):
    """Groups, each kept as a number of its first op and bits from there on.

    The ops of a group lie near each other as a rule, so a group takes a few words however many ops are before it.
    """

    def __init__(self) -> None:
        self._first: list[int] = []
        self._rest: list[int] = []

    def __len__(self) -> int:
        return len(self._first)

    @overload
    def __getitem__(self, place: int) -> int: ...

    @overload
    def __getitem__(self, place: slice) -> list[int]: ...

    def __getitem__(self, place: int | slice) -> int | list[int]:
        if isinstance(place, slice):
            return [rest << first for first, rest in zip(self._first[place], self._rest[place], strict=True)]
        return self._rest[place] << self._first[place]

    def __iter__(self) -> Iterator[int]:
        return (rest << first for first, rest in zip(self._first, self._rest, strict=True))

    def append(self, group: int) -> None:
        """Add a group, which has an op, behind the others."""
        first = (group & -group).bit_length() - 1
        self._first.append(first)
        self._rest.append(group >> first)


def mask_of(ops: Iterable[int]) -> int:
    """A group from op indices."""
    mask = 0
    for op in ops:
        mask |= 1 << op
    return mask


def bits(mask: int) -> Iterator[int]:
    """The op indices of a group, ascending."""
    if not mask:
        return
    # ops of a group lie near each other as a rule: from its first op on the set is a few machine words
    first = (mask & -mask).bit_length() - 1
    mask >>= first
    while mask:
        low = mask & -mask
        yield first + low.bit_length() - 1
        mask ^= low
