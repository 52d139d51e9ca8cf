"""How many statements a group has (SCHED-2); that its program is right, test_lowering_random.py shows."""

from __future__ import annotations

import pytest

from compiler.program.loops.time import time_of
from compiler.program.steps.cells import Cells
from compiler.program.steps.statements import statements_of
from tests.compiler.program.loops.groups import METAPROTO, mc_cnn, pinned_group
from tests.networks import _chain as chain


@pytest.mark.slow
def test_as_many_statements_for_a_large_map_as_for_a_small_one() -> None:
    """SCHED-2: MC-CNN (N-6), four and eight rows of tiles, three and five in a row."""
    small, profile = mc_cnn(180, 96, {"W": 60, "H": 24})
    large, _ = mc_cnn(300, 192, {"W": 60, "H": 24})
    assert len(large.commands) <= 1.1 * len(small.commands)
    assert time_of(large, profile).commands > 2 * time_of(small, profile).commands


@pytest.mark.parametrize(
    ("layers", "extent"),
    [(((256, 1),) * 4, 28), (((64, 1),) * 4, 48), (((64, 3),) * 3, 48), (((64, 1), (64, 3)) * 2, 48)],
)
def test_a_loop_brings_operands_while_the_call_before_works(layers: tuple[tuple[int, int], ...], extent: int) -> None:
    """PROG-5: stages that pass a core one after another; as fast as commands in the best order that is known."""
    steps = pinned_group(chain("stages", 1, layers, extent, extent), {"W": extent, "H": extent})
    looped, listed = (time_of(steps.lowered(listed_max=most), METAPROTO) for most in (0, 1 << 20))
    assert looped.commands == listed.commands > 100
    assert looped.ticks <= 1.01 * listed.ticks


@pytest.mark.parametrize(("height", "is_listed"), [(48, True), (480, False)])
def test_a_group_that_loops_hardly_shorten_is_listed(height: int, is_listed: bool) -> None:
    """PROG-5: two rows of tiles leave 17 statements for 20 commands, twenty rows 26 for 200."""
    steps = pinned_group(chain("few", 1, ((16, 3),) * 2, height, 60), {"W": 60, "H": 24})
    (group,) = steps.groups
    statements = list(statements_of(Cells(group.steps)))
    commands = sum(its.tiles for its in statements)
    found = len(steps.lowered(listed_max=1).commands)
    assert found == (commands if is_listed else len(statements))
    assert len(steps.lowered(listed_max=0).commands) == len(statements) < commands
