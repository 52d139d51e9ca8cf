"""Neighbouring groups that are listed share a nest, in the order in which they are fastest (PROG-5)."""

from __future__ import annotations

from itertools import pairwise

import pytest

from compiler.profile.schema import Profile
from compiler.program.loops.time import time_of
from compiler.program.program import Program
from compiler.program.steps import interleaved
from compiler.program.steps.group_columns import LISTED_MAX
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Lowered, Network, chip, lower, run
from tests.compiler.tiling.tilings import configuration
from tests.models import Model


def _layers(count: int) -> Network:
    """Pointwise convolutions one after another, whose weights take as long as what they compute."""
    model = Model()
    x = model.input([1, 32, 6, 6], "x")
    for _ in range(count):
        x = model.conv(x, 32, 32, kernel=1, pad=0)
    model.output(x)
    return Network(model)


def _groups(network: Network, profile: Profile, height: int) -> list[TiledGroup]:
    """Each op a group by itself."""
    tile = {"N": 1, "C": 32, "H": height, "W": 6}
    its = [GroupGeometry(network.facts, (op,)) for op in network.ops]
    return [TiledGroup(geometry, profile, configuration(), tile) for geometry in its]


def _nests(program: Program) -> list[int]:
    """By group its nest."""
    nests = program.loops.spaces["nest"][program.loops.statements["space"]]
    found = [set(nests[program.group_numbers == number].tolist()) for number in range(len(program.group_names))]
    assert all(len(its) == 1 for its in found)
    return [next(iter(its)) for its in found]


@pytest.mark.parametrize(("height", "is_faster"), [(3, False), (6, True)])
def test_the_weights_of_a_group_come_while_the_results_of_the_one_before_are_made(
    height: int, is_faster: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listed group begins before the one before ends; values are the same.

    With two tiles the next weights lie where the second tile still needs what it has, so nothing is gained.
    """
    network, profile = _layers(3), chip(cores=2, nram=1 << 16)
    groups = _groups(network, profile, height)
    run(network, *groups)
    together = lower(network, *groups, listed_max=LISTED_MAX)
    assert _nests(together.program) == [0, 0, 0]
    monkeypatch.setattr(interleaved, "_STEPS_MAX", 0)
    apart = lower(network, *groups, listed_max=LISTED_MAX)
    assert _nests(apart.program) == [0, 1, 2]
    assert together.moved() == apart.moved()
    assert _begin_early(together, profile)
    one, other = (time_of(its.program, profile).ticks for its in (together, apart))
    assert one < other if is_faster else one == other


def _begin_early(lowered: Lowered, profile: Profile) -> bool:
    """Whether each group begins before the one before it ends."""
    time = time_of(lowered.program, profile)
    sections = zip(time.group_begins.tolist(), time.group_ends.tolist(), strict=True)
    return all(begin < end for (_, end), (begin, _) in pairwise([*sections][: len(lowered.groups)]))


def test_groups_that_loop_keep_nests_of_their_own() -> None:
    """A loop between listed groups parts them."""
    network, profile = _layers(3), chip(cores=1, nram=1 << 16)
    first, middle, last = _groups(network, profile, 6)
    small = TiledGroup(middle.geometry, profile, configuration(), {"N": 1, "C": 32, "H": 1, "W": 1})
    assert _nests(lower(network, first, small, last, listed_max=20).program) == [0, 1, 2]
    assert _nests(lower(network, first, middle, last, listed_max=20).program) == [0, 0, 0]
