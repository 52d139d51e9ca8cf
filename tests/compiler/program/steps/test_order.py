"""The order of a group's loop (PROG-5)."""

from __future__ import annotations

import numpy as np

from compiler.program.steps.conflicts import Pairs
from compiler.program.steps.order import turns_of


def test_phases_that_differ_by_rounding_keep_the_order_of_their_step() -> None:
    """PROG-5: a node stands behind another one of its step that it waits for in the same tile."""
    early, late = 0.3, 0.1 + 0.2
    assert early < late
    first, second, distance = (np.array([value]) for value in (0, 1, 0))
    steps, once = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.bool_)
    turns = turns_of(steps, once, Pairs(first, second, distance), np.array([late, early]))
    assert turns.stages[0] == turns.stages[1]
    assert turns.places[0] <= turns.places[1]
