"""Immediate dominators of a directed acyclic graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def immediate_dominators(
    order: Iterable[int], neighbours: Mapping[int, Iterable[int]], ends: Mapping[int, bool]
) -> dict[int, int | None]:
    """Op -> the first op that every path from it toward the end passes; None where that is the end itself.

    `neighbours` lead toward the end, `ends` marks ops that also reach it directly; an op without neighbours does. With
    consumers as neighbours and ops last to first these are post-dominators, with producers and first to last
    dominators. Needs O(edges × log ops) steps.
    """
    tree = _Tree()
    for op in order:
        tree.add(op, None if ends[op] else tree.common(neighbours[op]))
    return tree.parent


class _Tree:
    """A growing tree that finds common ancestors in logarithmic time; None is its root.

    Beside its parent each node knows one far ancestor. How far these jumps go follows the skew binary numbers, which
    makes any ancestor reachable in O(log depth) steps [Myers, An applicative random-access stack, 1983].
    """

    def __init__(self) -> None:
        self.parent: dict[int, int | None] = {}
        self._jump: dict[int | None, int | None] = {None: None}
        self._depth: dict[int | None, int] = {None: 0}

    def add(self, op: int, parent: int | None) -> None:
        """A new leaf below `parent`."""
        jump, depth = self._jump, self._depth
        far = jump[parent]
        even = depth[parent] - depth[far] == depth[far] - depth[jump[far]]
        self.parent[op] = parent
        jump[op] = jump[far] if even and parent is not None else parent
        depth[op] = depth[parent] + 1

    def common(self, ops: Iterable[int]) -> int | None:
        """The deepest node that has all of these in its subtree; the root if there are none."""
        found: int | None = None
        for number, op in enumerate(ops):
            found = self._meet(found, op) if number else op
        return found

    def _meet(self, a: int | None, b: int | None) -> int | None:
        jump, depth = self._jump, self._depth
        if depth[a] < depth[b]:
            a, b = b, a
        while depth[a] > depth[b]:
            a = jump[a] if depth[jump[a]] >= depth[b] else self._up(a)
        while a != b:
            if jump[a] == jump[b]:
                a, b = self._up(a), self._up(b)
            else:
                a, b = jump[a], jump[b]
        return a

    def _up(self, op: int | None) -> int | None:
        return None if op is None else self.parent[op]
