"""The spike on one case of each kind, so that it does not rot."""

from __future__ import annotations

import numpy as np
import pytest

from compiler.program.verify import verify
from compiler.tiling.tile import HaloMode, Spread
from tests.compiler.program.lowered import Lowered, chip, group, lower, pair
from tests.spike.expand import firsts_of, program_of
from tests.spike.fold import chain_of, expanded_figures, fold
from tests.spike.halos import HaloActions, network
from tests.spike.measure import measure
from tests.spike.order import looped
from tests.spike.proof import prove
from tests.spike.statements import over_cores
from tests.spike.ticks import expanded_ticks, looped_ticks


def test_statements_do_what_todays_program_does_and_are_proved_and_timed_in_jumps() -> None:
    """PROG-5, PROG-6: the same bytes and calls, the same ticks and verdicts, also of changed programs."""
    net = pair(height=40, width=8)
    found = group(net, chip(cores=2), {"H": 1}, HaloMode.CACHED, units=2, spread=Spread.BANDS, double_buffered=True)
    case = measure(net, found, changed=6)
    assert case.differences == []
    assert case.are_ticks_equal
    assert case.are_verdicts_equal
    assert case.timed_jump > 0
    assert case.proved_jump > 0
    assert case.statements * 2 < case.commands
    assert all(key.split(": ")[1] in ("safe / safe", "refused / refused") for key in case.mutants)


@pytest.mark.parametrize("images", [20, 28])
def test_statements_of_halos_both_ways_do_not_depend_on_cores_or_iterations(images: int) -> None:
    """TILE-3, PROG-5: values are right, and a core is one more counter."""
    counts = []
    for cores in (4, 6):
        net = network(images, 2 * cores)
        actions = HaloActions(net, cores)
        found = looped(actions)
        program, profile = program_of(found), actions.group.profile
        verified = verify(program, shared=profile.engines.shared)
        Lowered(network=net, groups=(), program=program, verified=verified).check_values()
        assert expanded_ticks(program, profile).ticks == looped_ticks(found, firsts_of(found), profile).ticks
        assert prove(found).jumped > 0
        counts.append(over_cores(found))
    assert counts[0] == counts[1]


def test_a_fold_has_the_bytes_and_the_work_of_the_commands() -> None:
    """SCHED-3: bytes loaded and stored, multiply-accumulates."""
    net = pair(height=40, width=8)
    found = group(net, chip(cores=2), {"H": 3}, HaloMode.CACHED, units=2, spread=Spread.BANDS)
    chain = chain_of(net.facts)
    rates = np.array([8.0, 16.0, 16.0, 8.0, 8.0, 120.0])
    folded = fold(chain.extents, chain.windows, chain.channels, chain.work, np.array([[3, 8, 2, 1]]), rates, 4)[0]
    graph = net.facts.graph
    figures = expanded_figures(lower(net, found).program, graph.inputs, graph.outputs, chain.work.tolist())
    assert [folded[0], folded[1], folded[3]] == figures
