"""What decides which ops may share a single-output group: consumers, and the post-dominator tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

from compiler.errors import InternalError
from compiler.fusion.dominators import immediate_dominators
from compiler.fusion.segment_graph import bits, mask_of


class Network(Protocol):
    """Ops, the consumers of each, and whether its result is wanted elsewhere; a `SegmentGraph` is one."""

    @property
    def ops(self) -> tuple[int, ...]:
        """Op indices, ascending."""

    @property
    def successors(self) -> Mapping[int, tuple[int, ...]]:
        """Op -> the ops that read its result."""

    @property
    def leaves(self) -> Mapping[int, bool]:
        """Op -> whether its result is wanted outside the network."""


@dataclass(frozen=True, kw_only=True)
class PostDominators:
    """The post-dominator tree of a network whose outputs all lead to one virtual sink.

    The parent of an op is the first op that every path from it passes (its immediate post-dominator). An op whose
    result leaves the network has the sink as parent even if it is read further on: one of its paths is the edge out.
    Sets of ops are bit sets, op i is bit i.
    """

    ops: tuple[int, ...]
    users: Mapping[int, int]
    sources: Mapping[int, int]
    parent: Mapping[int, int | None]
    children: Mapping[int, int]
    roots: tuple[int, ...]

    @classmethod
    def of(cls, network: Network, without: int = 0) -> PostDominators:
        """The tree of a network, of which the ops `without` are left out.

        What an op left out reads counts as leaving the network: so what remains is partitioned around groups that are
        fixed already. InternalError if the ops are not in topological order.
        """
        ops = tuple(op for op in network.ops if not without >> op & 1)
        if any(first >= second for first, second in pairwise(ops)):
            raise InternalError("the ops of a network are not in ascending order", stage="fusion")
        users: dict[int, int] = {}
        sources = dict.fromkeys(ops, 0)
        leaves: dict[int, bool] = {}
        for op in ops:
            readers = mask_of(network.successors[op])
            if readers and readers & -readers <= 1 << op:
                raise InternalError(f"op {op} is read by an op before it", stage="fusion")
            leaves[op] = network.leaves[op] or bool(readers & without)
            users[op] = readers & ~without
            for user in bits(users[op]):
                sources[user] |= 1 << op
        parent = immediate_dominators(reversed(ops), {op: tuple(bits(users[op])) for op in ops}, leaves)
        children = dict.fromkeys(ops, 0)
        for op, above in parent.items():
            if above is not None:
                children[above] |= 1 << op
        return cls(
            ops=ops,
            users=MappingProxyType(users),
            sources=MappingProxyType(sources),
            parent=MappingProxyType(parent),
            children=MappingProxyType(children),
            roots=tuple(op for op in ops if parent[op] is None),
        )

    def may_join(self, op: int, group: int) -> bool:
        """True if a single-output group stays one when this op joins: it is read in the group and nowhere else."""
        return self.parent[op] is not None and not self.users[op] & ~group

    def frontier(self, group: int) -> int:
        """The ops outside a single-output group whose parent in the tree is inside.

        Each of them hands its result to its parent's group or further, so it is the output of another group.
        """
        found = 0
        for op in bits(group):
            found |= self.children[op]
        return found & ~group

    def tips(self, group: int) -> int:
        """The ops of a single-output group without which it still is one: all but its output that read no other."""
        output = group.bit_length() - 1
        return mask_of(op for op in bits(group) if op != output and not self.sources[op] & group)

    def smallest_with(self, group: int, op: int) -> int:
        """The smallest single-output group that contains `group` and `op`, whose parent is in `group`: a block.

        Beside the op these are all ops on paths between it and its parent.
        """
        return group | self._blocks[op]

    @cached_property
    def _blocks(self) -> dict[int, int]:
        """Op -> the op and all on paths between it and its parent; of one that has no parent, the op."""
        found: dict[int, int] = {}
        for op in reversed(self.ops):
            block, parent = 1 << op, self.parent[op]
            for user in bits(self.users[op]) if parent is not None else ():
                # from a user on, block after block, until all paths have met
                while user != parent and not block >> user & 1:
                    block |= found[user]
                    above = self.parent[user]
                    assert above is not None
                    user = above
            found[op] = block
        return found

    @cached_property
    def ancestors(self) -> dict[int, int]:
        """Op -> the ops that it depends on."""
        found: dict[int, int] = {}
        for op in self.ops:
            found[op] = self.sources[op]
            for source in bits(self.sources[op]):
                found[op] |= found[source]
        return found
