"""For how long weights that wait in a memory last there: for all rounds, a slice of the channels, or a round (SCHED-1).

A memory has a few slots for an op's weights. Three loops are tried, outermost first: all rounds (resident weights),
the rounds of one outermost slice of the channels, a single round. Weights come when a pass of the first loop begins
in which all that one pass needs has a slot. Where not even one round's weights have slots, they come with every use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

# A unit and its core.
Core = tuple[int, int]
# What a slot holds: the weights of a step for a range of channels and a range of what is summed over (None: all of it).
Content = tuple[int, tuple[int, int], tuple[int, int] | None]
# Who needs weights, and which.
Use = tuple[Core, Content]


class Need(NamedTuple):
    """What a core is about to work with: a range of an op's channels, and of what is summed over (None: all of it).

    `whole`: the channels that all cores of its unit work on together.
    """

    core: Core
    channels: tuple[int, int]
    whole: tuple[int, int]
    summed: tuple[int, int] | None = None


class Needs(NamedTuple):
    """What is needed of an op's weights: by round its kind, and by kind what rounds of it need, in order."""

    kinds: Sequence[int]
    of_kinds: Mapping[int, Sequence[Need]]


@dataclass(frozen=True, slots=True, eq=False)
class Lasting:
    """When weights come that last for some rounds.

    `brought`: by round, contents with the slot that they come to, and the cores. `turns`: by pass of the loop, core and
    content the slot. `passes`: by round the number of the loop's pass; None where there is one pass.
    """

    brought: dict[int, dict[tuple[Content, int], list[Core]]]
    turns: dict[tuple[int, Core, Content], int]
    passes: Sequence[int] | None

    @classmethod
    def of_one(cls, content: Content, cores: Sequence[Core]) -> Lasting:
        """One content that all cores need in all rounds."""
        return cls({0: {(content, 0): list(cores)}}, {(0, core, content): 0 for core in cores}, None)

    def turn(self, number: int, core: Core, content: Content) -> int:
        """The slot in which a core finds what it needs in a round."""
        return self.turns[0 if self.passes is None else self.passes[number], core, content]


def lasting(
    kinds: Sequence[int], uses: Mapping[int, Sequence[Use]], slots: int, slice_numbers: Sequence[int] | None
) -> Lasting | None:
    """When weights come that last longer than a use; None if a round needs more of them than there are slots.

    `kinds`: by round its kind; `uses`: by kind those of its rounds, in order. `slice_numbers`: by round the slice of
    the channels that is worked on, where slices lie outermost.
    """
    for passes in (None, *([slice_numbers] if slice_numbers is not None else []), range(len(kinds))):
        of_pass: dict[tuple[int, Core], dict[Content, int]] = {}
        # in each pass rounds of one kind need the same
        for number, kind in dict.fromkeys(zip(repeat(0) if passes is None else passes, kinds, strict=False)):
            for core, content in uses[kind]:
                its = of_pass.setdefault((number, core), {})
                its.setdefault(content, len(its))
        most = max(map(len, of_pass.values()), default=0)
        if most <= slots:
            return _lasting(of_pass, passes, slots, most)
    return None


def _lasting(
    of_pass: dict[tuple[int, Core], dict[Content, int]], passes: Sequence[int] | None, slots: int, most: int
) -> Lasting:
    begins = {0: 0}
    if passes is not None:
        begins = {number: round_number for round_number, number in reversed(list(enumerate(passes)))}
    brought: dict[int, dict[tuple[Content, int], list[Core]]] = {}
    turns = {}
    for (number, core), contents in of_pass.items():
        for content, place in contents.items():
            turn = (number * most + place) % slots
            turns[number, core, content] = turn
            brought.setdefault(begins[number], {}).setdefault((content, turn), []).append(core)
    return Lasting(brought, turns, passes)
