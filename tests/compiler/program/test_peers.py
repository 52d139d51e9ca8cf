"""What several units need is loaded in parts, each by one of them (PROG-1)."""

from __future__ import annotations

from math import prod

import pytest

from compiler.profile import builtin_profile
from compiler.program.peers import shares


@pytest.mark.parametrize(
    ("chip", "sides", "count", "cut"),
    [
        # 200 cycles of start-up at 4 bytes a cycle: 800 bytes are the least
        ("manycore2x64", (8, 64, 28), 64, (8, 1, 28)),
        # no axis outside the innermost has 64 positions: one row each
        ("manycore2x64", (64, 28, 28), 64, (64, 1, 28)),
        ("manycore2x64", (4, 7, 28), 64, (4, 3, 28)),
        ("manycore2x64", (4, 4, 4), 64, (4, 4, 4)),
        # no start-up: 64 bytes, a line of memory, are the least
        ("polar4x4", (4, 2, 2), 16, (4, 2, 2)),
        ("polar4x4", (4, 4, 4), 16, (4, 1, 4)),
        ("polar4x4", (16, 32, 8), 16, (16, 2, 8)),
    ],
)
def test_a_box_is_cut_along_its_outermost_axis_into_parts_worth_a_transfer(
    chip: str, sides: tuple[int, ...], count: int, cut: tuple[int, ...]
) -> None:
    """Channels lie innermost, then columns, then rows; elements of four bytes."""
    strides, box = (4, 4 * sides[0] * sides[2], 4 * sides[0]), tuple((0, side) for side in sides)
    parts = shares(builtin_profile(chip), strides, box, count, 4, 4.0)
    assert max(tuple(stop - start for start, stop in part) for part in parts) == cut
    assert sum(prod(stop - start for start, stop in part) for part in parts) == prod(sides)
    assert [part[1][1] for part in parts[:-1]] == [part[1][0] for part in parts[1:]]
