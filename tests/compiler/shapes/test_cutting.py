"""Where segments are cut: every routine once, in order, no part empty, and always more than one (PROG-4)."""

from __future__ import annotations

import pytest

from compiler.errors import LimitError
from compiler.shapes.cutting import SegmentTooLargeError, cut


def parts(commands: list[int], excess: float) -> list[tuple[int, ...]]:
    """The parts of routines 10, 11..., that have so many commands each."""
    problem = LimitError("too large", code="program_too_long", stage="lower")
    return cut(range(10, 10 + len(commands)), SegmentTooLargeError(problem, excess, commands))


def test_parts_have_as_many_commands_as_there_is_room_for() -> None:
    # 400 commands are twice as many as may be: 0.9 of 200 in each part
    assert parts([100, 79, 21, 100, 100], 2.0) == [(10, 11), (12, 13), (14,)]
    assert parts([100, 1], 1.0001) == [(10,), (11,)]


@pytest.mark.parametrize("commands", [[0, 10, 10], [0, 0], [0, 0, 100], [100, 0], [0, 100, 0], [1, 1]])
@pytest.mark.parametrize("excess", [1.0000001, 1.5, 2.0, 1e9])
def test_routines_without_commands_are_cut_too(commands: list[int], excess: float) -> None:
    found = parts(commands, excess)
    assert len(found) >= 2
    assert all(found)
    assert [routine for part in found for routine in part] == list(range(10, 10 + len(commands)))
