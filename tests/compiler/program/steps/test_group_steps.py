"""The tiles of a group's units as counters, and in which runs of them steps may do the same (SCHED-2)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from compiler.program.decode import Decoders
from compiler.program.flat import FlatCores
from compiler.program.iteration import Loop
from compiler.program.lower import handed_out
from compiler.program.nested import NestedCores
from compiler.program.segment import PlannedGroup
from compiler.program.steps.cells import Cells
from compiler.program.steps.commands import Kinds, all_commands
from compiler.program.steps.group_steps import GroupSteps
from compiler.program.steps.segment import SegmentSteps
from compiler.program.steps.statement_commands import StatementCommands
from compiler.program.steps.statements import statements_of
from compiler.tiling.memory import memory_of
from compiler.tiling.placement import Placement
from compiler.tiling.tile import HaloMode, Order, Spread, WeightLoads
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Network, chip, group, pair, tiling_of
from tests.models import Model


def relu_steps(rows: int, placement: Placement, width: int = 8) -> GroupSteps:
    """A Relu over rows of 8, cut into tiles of one row and a width, on two cores."""
    model = Model(seed=1)
    model.output(model.relu(model.input([1, 2, rows, 8], "x")))
    network = Network(model, seed=1)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "placement": placement}
    its = group(network, chip(cores=2, nram=1 << 14), {"H": 1, "W": width}, HaloMode.RECOMPUTE, **how)
    return steps_of(network, its)


def steps_of(network: Network, its: TiledGroup) -> GroupSteps:
    """The steps of one group."""
    planned = [PlannedGroup(name="g", ops=its.geometry.indices, tiling=tiling_of(its, memory_of(its)))]
    outputs = handed_out(network.facts, its.geometry.indices)
    decoders = Decoders(network.facts.graph, network.source)
    (found,) = SegmentSteps(network.facts, its.profile, "g", planned, outputs, decoders=decoders).groups
    assert isinstance(found.steps, GroupSteps)
    return found.steps


@pytest.mark.parametrize(("placement", "rows", "width"), [(Placement.QUADRANTS, 5, 8), (Placement.Z_ORDER, 5, 4)])
def test_rounds_of_tiles_in_no_even_order_are_not_taken_for_tiles_of_an_axis(
    placement: Placement, rows: int, width: int
) -> None:
    """SCHED-2: where a unit's tiles follow each other in no even order its rounds are listed one by one."""
    steps = relu_steps(rows, placement, width)
    for unit in (0, 1):
        (runs,) = steps.runs(unit)
        assert all(run.tiles == 1 for run in runs)


@pytest.mark.parametrize("rows", [11, 12])
def test_tiles_that_are_dealt_in_turn_are_runs(rows: int) -> None:
    """SCHED-2: a unit that has every second row of tiles counts its own; a row that only one has ends a run."""
    steps = relu_steps(rows, Placement.ROW_MAJOR)
    for unit in (0, 1):
        (runs,) = steps.runs(unit)
        assert sum(run.tiles for run in runs) == 6
        assert max(run.tiles for run in runs) >= 4


def test_bands_are_runs_of_tiles() -> None:
    steps = relu_steps(12, Placement.BANDS)
    for unit in (0, 1):
        runs = steps.runs(unit)[-1]
        assert sum(run.tiles for run in runs) == 6
        assert max(run.tiles for run in runs) > 1


def test_runs_end_where_what_is_handed_out_does_not_go_up_evenly() -> None:
    """SCHED-2: an output of 16 rows beside one of 7 is handed out in parts of two and three rows."""
    model = Model(seed=1)
    made = model.relu(model.input([1, 2, 16, 8], "x"))
    model.output(made)
    model.output(model.conv(made, 2, 2, stride=2, pad=0))
    its = group(Network(model, seed=1), chip(nram=1 << 14), {"H": 1}, HaloMode.RECOMPUTE)
    steps = steps_of(Network(model, seed=1), its)
    boxes = steps.lowering.stored_boxes(made)
    (ranges,) = [found.ranges for found in boxes.ranges if found.counter == "H"]
    assert len({stop - start for start, stop in ranges}) > 1
    (runs,) = [runs for axis, runs in zip(steps.lowering.tiles.order, steps.runs(0), strict=True) if axis == "H"]
    for run in runs:
        cut = [ranges[number] for number in run.values]
        assert len({stop - start for start, stop in cut}) == 1
        assert len({other - start for (start, _), (other, _) in pairwise(cut)}) <= 1


def test_what_a_unit_passes_on_before_its_first_tile_is_no_less_a_statement() -> None:
    """SCHED-2: halos between bands let the second core begin later, but weights that stream pass it from the start."""
    network = pair(height=12, width=8)
    halo = (("H", HaloMode.EXCHANGE), ("W", HaloMode.EXCHANGE))
    loads = tuple((op, WeightLoads.STREAMED) for op in network.ops)
    how: dict[str, Any] = {"units": 2, "spread": Spread.BANDS, "halo": halo, "loads": loads}
    its = group(network, chip(cores=2, nram=1 << 14), {"H": 2, "W": 4}, HaloMode.EXCHANGE, **how)
    steps = steps_of(network, its)
    said = Counter(
        (statement.step, statement.space.iteration(counters))
        for statement in statements_of(Cells(steps))
        if statement.space is not None
        for counters in product(*(run.values for run in statement.runs))
    )
    does = Counter(
        (step, iteration)
        for step, is_once in enumerate(steps.once)
        if not is_once
        for iteration in range(steps.iterations)
        for _ in steps.at(step, iteration)
    )
    assert said == does


def test_loops_of_stages_share_no_iteration() -> None:
    """SCHED-2: the pieces of a tile's two stages have as many iterations as there are pieces."""
    network = pair(height=32, width=34, channels=8)
    its = group(network, chip(sram=1 << 17, nram=3 << 10), {"H": 4}, HaloMode.CACHED, order=Order.BREADTH_FIRST)
    steps = steps_of(network, its)
    pieces = [loop for loop in steps.lowering.body if isinstance(loop, Loop)]
    most = [max(loop.count((number,)) for number in range(len(steps.lowering.rounds))) for loop in pieces]
    assert min(most) > 1
    assert steps.iterations == len(steps.lowering.rounds) * sum(most)


BANDS: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS}
NESTED: list[dict[str, Any]] = [
    {"tile": {"H": 5, "W": 4}, "halo": HaloMode.CACHED, "core": {"H": 2, "W": 2}, **BANDS},
    {"tile": {"H": 3, "C": 2}, "halo": HaloMode.CACHED, "core": {"H": 1}, "channel_slices": 2, **BANDS},
    {"tile": {"H": 2}, "halo": HaloMode.EXCHANGE, "core": {"H": 1}, "units": 2, "spread": Spread.BANDS, **BANDS},
    {"tile": {"H": 4}, "halo": HaloMode.RECOMPUTE, "core": {"H": 2}, "cores": 2, "core_spread": Spread.CHANNELS},
]


FLAT: list[dict[str, Any]] = [
    {"tile": {"H": 2, "W": 4}, "halo": HaloMode.EXCHANGE, "units": 2, "spread": Spread.BANDS},
    {"tile": {"H": 3}, "halo": HaloMode.CACHED, "units": 1},
    {"tile": {"H": 2, "C": 2}, "halo": HaloMode.RECOMPUTE, "units": 2, "spread": Spread.BANDS, "channel_slices": 2},
    {"tile": {"H": 4}, "halo": HaloMode.RECOMPUTE, "units": 2, "spread": Spread.CHANNELS},
]


@pytest.mark.parametrize(("kind_of_cores", "how"), [*product([NestedCores], NESTED), *product([FlatCores], FLAT)])
def test_rounds_of_one_kind_need_the_same_weights(kind_of_cores: Any, how: dict[str, Any]) -> None:
    """SCHED-1: what lasts is asked of a round of each kind; of the rounds of a map most are of few kinds."""
    cores = nested_cores(**how) if kind_of_cores is NestedCores else flat_cores(**how)
    for step in range(len(cores.located.geometry.ops)):
        kinds, needs = cores.weights.needs(step)
        for number, kind in enumerate(kinds):
            assert dict.fromkeys(cores.jobs.needs_of(step, number)) == dict.fromkeys(needs[kind])
    assert len(set(cores.jobs.round_kinds)) < len(cores.located.rounds)


@pytest.mark.parametrize("how", NESTED)
def test_a_core_uses_its_two_buffers_in_turn(how: dict[str, Any]) -> None:
    """PROG-2: by the number of a core tile among those of its core."""
    cores = nested_cores(**how)
    located, rounds = cores.located, cores.rounds
    numbers: Counter[tuple[int, int]] = Counter()
    seen = set()
    for unit, tile in (job for jobs in located.rounds for job in jobs):
        for _, _, core, index in (entry for work in rounds.of_tile(unit, tile) for entry in work):
            counts = [number for axis, number in index.items() if axis != "C" or located.configuration.slices_outer]
            if (unit, core, *counts) not in seen:
                seen.add((unit, core, *counts))
                assert rounds.turn(unit, core, index) == numbers[unit, core] % 2
                numbers[unit, core] += 1
    assert max(numbers.values()) > 2


def flat_cores(tile: dict[str, int], halo: HaloMode, **how: Any) -> FlatCores:
    """Two convolutions on cores that hold their tiles."""
    network = pair(height=20, width=16, channels=8)
    its = group(network, chip(cores=2, nram=1 << 14), tile, halo, **how)
    cores = steps_of(network, its).lowering.cores
    assert isinstance(cores, FlatCores)
    return cores


def nested_cores(tile: dict[str, int], halo: HaloMode, core: dict[str, int], **how: Any) -> NestedCores:
    """Two convolutions on clusters of two cores, core tile by core tile."""
    network = pair(height=20, width=16, channels=8)
    profile = chip(clusters=2, cores=2, sram=1 << 16, nram=1 << 14)
    cores = steps_of(network, group(network, profile, tile, halo, core, **how)).lowering.cores
    assert isinstance(cores, NestedCores)
    return cores


@pytest.mark.parametrize(
    ("units", "parts", "spread", "tile", "height", "channels"),
    [
        (6, 3, Spread.CHANNELS, {"H": 2, "C": 4}, 32, 24),
        (5, 8, Spread.CHANNELS, {"H": 2, "C": 5}, 32, 16),
        (7, 5, Spread.CHANNELS, {"H": 3, "C": 4}, 15, 16),
        (4, 8, Spread.BANDS, {"H": 1}, 17, 12),
    ],
)
def test_statements_are_what_steps_say_where_turns_go_on_with_tiles_and_parts(
    units: int, parts: int, spread: Spread, tile: dict[str, int], height: int, channels: int
) -> None:
    """Whose turn it is to load for all may come at none of a first tile's parts and at the first part of no tile."""
    model = Model(seed=1)
    model.output(model.conv(model.input([1, channels, height, 16], "x"), channels, 24))
    network = Network(model, seed=1)
    how: dict[str, Any] = {"units": units, "spread": spread, "input_slices": parts}
    steps = steps_of(network, group(network, chip(cores=units, nram=1 << 17), tile, HaloMode.RECOMPUTE, **how))
    kinds = Kinds()
    said = all_commands(steps, kinds, 1 << 20)
    assert said is not None
    found = StatementCommands(steps, list(statements_of(Cells(steps)))).at(np.arange(-1, steps.iterations), kinds)
    assert found.kinds.tolist() == said.kinds.tolist()
    assert found.iterations.tolist() == said.iterations.tolist()
    assert found.numbers.rows.tolist() == said.numbers.rows.tolist()
