"""The tiles of a group's units as counters, and in which runs of them steps may do the same (SCHED-2)."""

from __future__ import annotations

from typing import Any

import pytest

from compiler.program.decode import Decoders
from compiler.program.lower import handed_out
from compiler.program.segment import PlannedGroup
from compiler.program.steps.axis_runs import Run
from compiler.program.steps.group_steps import GroupSteps
from compiler.program.steps.segment import SegmentSteps
from compiler.tiling.memory import memory_of
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Spread
from tests.compiler.program.lowered import Network, chip, group, tiling_of
from tests.models import Model


def relu_steps(rows: int, placement: Placement) -> GroupSteps:
    """A Relu over so many rows, of which each is a tile, on two cores."""
    model = Model(seed=1)
    model.output(model.relu(model.input([1, 2, rows, 8], "x")))
    network = Network(model, seed=1)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "placement": placement}
    its = group(network, chip(cores=2, nram=1 << 14), {"H": 1, "W": 8}, HaloMode.RECOMPUTE, **how)
    planned = [PlannedGroup(name="g", ops=its.geometry.indices, tiling=tiling_of(its, memory_of(its)))]
    outputs = handed_out(network.facts, its.geometry.indices)
    decoders = Decoders(network.facts.graph, network.source)
    (steps,) = SegmentSteps(network.facts, its.profile, "g", planned, outputs, decoders=decoders).groups
    return steps


@pytest.mark.parametrize("placement", [Placement.ROW_MAJOR, Placement.CHECKERBOARD])
def test_rounds_of_tiles_in_no_even_order_are_not_taken_for_tiles_of_an_axis(placement: Placement) -> None:
    """SCHED-2: where a unit has every second tile its rounds are listed one by one."""
    steps = relu_steps(12, placement)
    assert [steps.runs(unit) for unit in (0, 1)] == [[[Run(number, 1, 1) for number in range(6)]]] * 2


def test_bands_are_runs_of_tiles() -> None:
    steps = relu_steps(12, Placement.BANDS)
    for unit in (0, 1):
        runs = steps.runs(unit)[-1]
        assert sum(run.tiles for run in runs) == 6
        assert max(run.tiles for run in runs) > 1
