"""The steps of a group in the order of one iteration: what is done for the tiles of a round (SCHED-2, SCHED-3).

What a step emits is a function of the counters that it is given, never of what was emitted before. So steps may be
asked for in any order, and each time they answer alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

# After how many iterations of a loop a step does the same again, at most (SCHED-2).
PERIOD_MAX: Final = 4
# The counters of the loops that a step stands in, outermost first: the round, then those of inner loops.
At = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step:
    """Something that is done once in each iteration: what, and the function that emits it.

    `emit`: None where a group never does anything in it; the numbers of all steps decide ties. `brings_lasting`: it
    brings what several rounds find in place, so that some iterations do nothing.
    """

    name: str
    emit: Callable[[At], None] | None
    brings_lasting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Loop:
    """Steps that are done several times in each iteration; `count`: how often, by the counters outside."""

    name: str
    count: Callable[[At], int]
    body: tuple[Step | Loop, ...]
