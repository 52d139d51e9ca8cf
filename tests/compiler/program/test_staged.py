"""In which turns pieces of a breadth-first group pass the cores, and which of two buffers they use there (SCHED-3)."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from compiler.program.program import Level
from compiler.program.staged import StagedCores
from compiler.tiling.tile import HaloMode, Order, Spread, WeightHome
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.lowered import Network, chip, group, pair, run, single
from tests.compiler.program.steps.test_group_steps import steps_of
from tests.models import Model


def turn_numbers(turns: list[list[list[int]]], monkeypatch: pytest.MonkeyPatch, core: int = 0) -> list[int]:
    """The numbers of a core's turns in order, of a group of two stages: by round and stage the core of each turn."""
    network = pair(height=4 * len(turns), width=12)
    tiled = group(network, chip(sram=1 << 17), {"H": 4}, HaloMode.CACHED, order=Order.BREADTH_FIRST)
    lowering = steps_of(network, tiled).lowering
    assert isinstance(lowering.cores, StagedCores)
    its = lowering.cores.turns
    assert (len(lowering.rounds), len(tiled.stages)) == (len(turns), 2)

    def made(number: int, at: int) -> list[SimpleNamespace]:
        return [SimpleNamespace(row=[SimpleNamespace(place=(0, used))]) for used in turns[at][number]]

    monkeypatch.delitem(vars(its), "_usual_turns", raising=False)
    monkeypatch.setattr(its, "_new_turns", made)
    its.forget()
    return [
        its.number(number, (at, turn), (0, core))
        for at, stages in enumerate(turns)
        for number, cores in enumerate(stages)
        for turn, used in enumerate(cores)
        if used == core
    ]


def alone(turns: list[list[int]]) -> list[list[list[int]]]:
    """So many turns of one core, by round and stage."""
    return [[[0] * count for count in counts] for counts in turns]


def test_two_buffers_alternate_through_stages_and_rounds_behind_a_larger_first_tile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An odd number of turns more in the first stage of the first tile moves no turn of later tiles."""
    numbers = turn_numbers(alone([[4, 2], [3, 2], [3, 2]]), monkeypatch)
    assert numbers == list(range(-1, 15))


def test_a_smaller_last_tile_follows_the_tile_before_in_the_other_buffer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own odd number of turns does not decide where it begins."""
    numbers = turn_numbers(alone([[3, 2], [3, 2], [3, 2], [2, 2]]), monkeypatch)
    assert numbers == [*range(17), 18, 19]


def test_rounds_alternate_where_each_stage_has_one_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that two rounds of a stage may be on their way."""
    assert turn_numbers(alone([[1, 1], [1, 1], [1, 1]]), monkeypatch) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("core", [0, 1])
def test_buffers_alternate_by_the_turns_of_their_own_core(core: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores that share out channels have turns of their own: pieces of other cores between two count for nothing."""
    numbers = turn_numbers([[[0, 0, 0, 1, 1, 1], [0, 0, 1, 1]]] * 3, monkeypatch, core)
    assert numbers == list(range(15))


def sliced(channels: int) -> tuple[Network, TiledGroup]:
    """A convolution of so many channels that two units' four cores share out, its weights in slices on their way."""
    network = single(channels, channels=32)
    its = group(
        network, chip(cores=4, clusters=2, sram=1 << 16, wram=1 << 13), {"H": 4}, units=2, spread=Spread.BANDS, cores=4,
        core_spread=Spread.CHANNELS, order=Order.BREADTH_FIRST,
    )  # fmt: skip
    assert its.homes == (WeightHome.DRAM,)
    return network, its


@pytest.mark.parametrize("channels", [64, 58])
def test_cores_that_share_channels_work_at_the_same_time_with_slices_of_their_own(channels: int) -> None:
    """Core by core all slices would come: the second one would begin when the first has ended.

    The last core may have fewer channels, and so fewer slices.
    """
    network, its = sliced(channels)
    lowering = steps_of(network, its).lowering
    assert isinstance(lowering.cores, StagedCores)
    (turn,) = lowering.cores.turns.of(0, 0)
    assert sorted(entry.place for entry in turn.row) == [(unit, core) for unit in (0, 1) for core in range(4)]
    assert turn.slice_count(0) == turn.uses > 1
    made = {entry.place: [channel for part in entry.slices[0] for channel in range(*part)] for entry in turn.row}
    assert [channel for core in range(4) for channel in made[0, core]] == list(range(channels))
    run(network, its)


def test_slices_on_their_way_use_all_of_the_buffer_that_the_plan_has_for_them() -> None:
    """Those of four cores come side by side, instead of each waiting until the one before has left."""
    network, its = sliced(64)
    found = run(network, its)
    loads = found.expanded.commands[found.loads_of("k1")]
    assert {level for level, _ in found.places(loads, "target")} == {Level.SRAM}
    begins = {number: set[int]() for number in (0, 1)}
    for row, (_, number) in zip(loads, found.places(loads, "target"), strict=True):
        begins[number].add(int(row["target_address"]))
    size = its.weights[0].slice_bytes
    for addresses in begins.values():
        assert len({(address - min(addresses)) // size for address in addresses}) == 4


def test_slices_of_an_op_behind_one_without_weights_come_again_where_others_took_their_place() -> None:
    """Four slices of a mask pass two buffers, for several pieces that a Reshape without weights makes first."""
    model = Model()
    seen = model.node("Reshape", [model.input([4, 2, 49, 49]), model.ints(1, 4, 2, 49, 49)])
    masked = model.node("Add", [seen, model.weight(1, 4, 1, 49, 49)], name="masked")
    scores = model.node("Reshape", [masked, model.ints(4, 2, 49, 49)])
    model.output(model.node("Softmax", [scores], axis=-1))
    found = compile_model(model.data(), builtin_profile("metaproto-df"))
    (planned,) = (its for segment in found.plan.segments for its in segment.groups)
    masks = [op for op in planned.ops if op.node == "masked"]
    assert [op.weight_slices for op in masks] == [4]
    assert planned.tiling.core_tiles > 1
    assert not found.plan.degraded
    assert all(output.holds for output in found.report.values.outputs)
