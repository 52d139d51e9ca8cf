"""Where routines are cut into segments, as one program for all of them is larger than may be (PROF-2, PROG-4)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from compiler.errors import LimitError

# Part of what a limit allows that cuts fill: what a command takes differs from routine to routine.
_FILLED: Final = 0.9


class SegmentTooLargeError(Exception):
    """The program of a segment cannot be proved as one or exceeds a limit of the profile.

    `problem` is what a single routine ends in; `excess` how many times too large the program is, more than 1;
    `commands` how many each of the segment's routines has.
    """

    def __init__(self, problem: LimitError, excess: float, commands: Sequence[int]) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.excess = excess
        self.commands = commands


def cut(routines: Sequence[int], too_large: SegmentTooLargeError) -> list[tuple[int, ...]]:
    """At least two parts of a segment of several routines, in order, each as long as it is expected to have room."""
    # a routine without commands counts as well, so that there are always parts and none of them is empty
    sizes = [commands + 1 for commands in too_large.commands]
    room = _FILLED * sum(sizes) / too_large.excess
    parts: list[tuple[int, ...]] = []
    filled = room
    for routine, size in zip(routines, sizes, strict=True):
        if filled + size > room:
            parts.append(())
            filled = 0.0
        parts[-1] += (routine,)
        filled += size
    return parts
