"""How many statements a group has (SCHED-2); that its program is right, test_lowering_random.py shows."""

from __future__ import annotations

import pytest

from compiler.program.loops.time import time_of
from tests.compiler.program.loops.groups import mc_cnn


@pytest.mark.slow
def test_as_many_statements_for_a_large_map_as_for_a_small_one() -> None:
    """SCHED-2: MC-CNN (N-6), four and eight rows of tiles, three and five in a row."""
    small, profile = mc_cnn(180, 96, {"W": 60, "H": 24})
    large, _ = mc_cnn(300, 192, {"W": 60, "H": 24})
    assert len(large.program.commands) <= 1.1 * len(small.program.commands)
    assert time_of(large, profile).commands > 2 * time_of(small, profile).commands
