"""The order of a group's loop (PROG-5)."""

from __future__ import annotations

from compiler.program.steps.conflicts import Node
from compiler.program.steps.order import order_of


def test_phases_that_differ_by_rounding_keep_the_order_of_their_step() -> None:
    """PROG-5: a node stands behind another one of its step that it waits for in the same tile."""
    first, second = Node(0, 0, 0), Node(0, 0, 1)
    early, late = 0.3, 0.1 + 0.2
    assert early < late
    turns = order_of([first, second], [False], {(first, second): 0}, {first: late, second: early}).turns
    assert turns[first].stage == turns[second].stage
    assert turns[first].order <= turns[second].order
