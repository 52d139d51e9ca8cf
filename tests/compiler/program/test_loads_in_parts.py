"""Weights and inputs that come in parts, so that they do not keep others waiting (TILE-6, SCHED-2)."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from compiler.compile import compile_model
from compiler.options import parse_options
from compiler.program.iteration import Step
from compiler.program.program import Opcode
from compiler.program.steps.equal_groups import EqualGroups
from compiler.program.steps.segment import SegmentSteps
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.tile import HaloMode, Spread
from compiler.tiling.tiled import TiledGroup
from tests.compiler.program.loops.expander import expanded
from tests.compiler.program.lowered import Lowered, Network, chip, classifier, group, run, segment_of, single
from tests.compiler.program.steps.test_group_steps import steps_of
from tests.compiler.tiling.tilings import along, configuration
from tests.models import Model
from tests.profiles import changed_profile


@pytest.mark.parametrize(("slices", "outer", "times"), [(1, False, 1), (2, False, 1), (5, False, 1), (2, True, 2)])
def test_a_units_only_part_of_an_input_stays_for_all_slices_of_the_channels(
    slices: int, outer: bool, times: int
) -> None:
    """Each of four units sums up a quarter of the input's 32 columns, in slices of the ten channels."""
    network = classifier()
    how: dict[str, Any] = {"units": 4, "spread": Spread.INPUT_CHANNELS, "channel_slices": slices, "slices_outer": outer}
    found = run(network, group(network, chip(cores=4), {"C": -(-10 // slices)}, **how))
    assert found.loaded_bytes("x") == times * 3 * 32 * 4


@pytest.mark.parametrize(("slices", "outer", "times"), [(1, False, 1), (4, False, 1), (4, True, 4)])
def test_what_a_core_has_of_an_input_stays_for_all_slices_of_the_channels(slices: int, outer: bool, times: int) -> None:
    """Two cores of a unit each have half of the rows, for slices of the eight channels one after another."""
    network = single(8)
    how: dict[str, Any] = {"cores": 2, "core_spread": Spread.BANDS, "channel_slices": slices, "slices_outer": outer}
    chip_of_two = chip(cores=2, sram=1 << 16, iodma=False)
    found = run(network, group(network, chip_of_two, {"C": 8 // slices}, core={"H": 4}, **how))
    # five of eight rows each, with the halo
    moved = Counter(found.moved())
    assert moved[Opcode.MOVE, 3 * 5 * 6 * 4] == 2 * times


@pytest.mark.parametrize("parts", [3, 5])
def test_parts_of_an_input_alternate_between_two_buffers_over_all_tiles(parts: int) -> None:
    """Of an odd number of parts the last one of a tile and the first one of the next do not meet in one buffer."""
    model = Model()
    model.output(model.conv(model.input([1, 16, 8, 8], "x"), 16, 8, kernel=1, pad=0))
    network = Network(model)
    found = run(network, group(network, chip(cores=1), {"H": 2, "C": 8}, input_slices=parts))
    assert alternate(found, "x", Opcode.LOAD)


def test_results_of_sums_in_parts_leave_while_the_next_ones_are_made() -> None:
    """From two buffers, where there is room for them."""
    model = Model()
    result = model.output(model.conv(model.input([1, 16, 8, 8], "x"), 16, 8, kernel=1, pad=0))
    network = Network(model)
    assert alternate(run(network, group(network, chip(), {"H": 1, "C": 8}, input_slices=2)), result, Opcode.STORE)


def alternate(found: Lowered, name: str, opcode: Opcode) -> bool:
    """Whether what moves between a tensor in DRAM and a core does so through two buffers in turn."""
    region = next(its for its in found.program.regions if its.name == name)
    commands = expanded(found.program).commands
    outside, inside = ("source", "target") if opcode is Opcode.LOAD else ("target", "source")
    addresses = commands[f"{outside}_address"]
    of_tensor = (addresses >= region.address) & (addresses < region.address + region.size_bytes)
    buffers = commands[f"{inside}_address"][(commands["opcode"] == opcode) & of_tensor].tolist()
    return len(set(buffers)) == 2 and all(one != other for one, other in pairwise(buffers))


def uneven() -> tuple[Network, list[TiledGroup]]:
    """Two groups. In the second one units work in different numbers of rounds and exchange halos."""
    model = Model()
    model.output(model.conv(model.conv(model.input([1, 4, 28, 6], "x"), 4, 6), 6, 5, bias=True))
    network = Network(model)

    def tiled(ops: tuple[int, ...], rows: int, mode: HaloMode, **how: Any) -> TiledGroup:
        geometry = GroupGeometry(network.facts, ops)
        whole = dict(zip(geometry.output.axes, geometry.output.shape, strict=True))
        halo = () if mode is HaloMode.RECOMPUTE else tuple(its for its in along(geometry, mode) if its[0] != "N")
        return TiledGroup(geometry, chip(cores=4), configuration(halo=halo, **how), {**whole, "H": rows})

    rest = tuple(range(1, len(network.ops)))
    return network, [
        tiled((0,), 3, HaloMode.RECOMPUTE),
        tiled(rest, 1, HaloMode.EXCHANGE, units=3, spread=Spread.BANDS),
    ]


def test_a_segments_program_depends_on_nothing_that_was_lowered_before() -> None:
    """SCHED-3: nor does it on what was asked of the same steps before."""
    network, groups = uneven()

    def steps(its: list[TiledGroup], equals: EqualGroups | None) -> SegmentSteps:
        segment = segment_of(network, *its, resident_bytes=0, profile=chip(cores=4))
        facts, profile, name, planned, outputs, resident_bytes, decoders = segment
        return SegmentSteps(facts, profile, name, planned, outputs, resident_bytes, decoders, equal_groups=equals)

    fresh = steps(groups, None).lowered(0)
    equals = EqualGroups()
    steps(groups[1:], equals).lowered(0)
    after_it = steps(groups, equals).lowered(0)
    asked = steps(groups, None)
    assert len(asked.lowered(4096).commands) > len(fresh.commands)
    for other in (after_it, asked.lowered(0)):
        assert len(other.commands) == len(fresh.commands)
        assert (other.commands["opcode"] == fresh.commands["opcode"]).all()


@pytest.mark.parametrize(("nram", "alternate"), [(1 << 16, True), (20_000, False)])
def test_weights_come_in_parts_where_two_slots_alternate(nram: int, alternate: bool) -> None:
    """Four slices of 64 output channels, each for eight tiles; with one slot a part would only add start-ups."""
    network = single(64, channels=16, height=16)
    its = group(network, chip(cores=1, nram=nram), {"H": 2, "C": 16}, channel_slices=4, slices_outer=True)
    assert its.doubles_weights == alternate
    run(network, its)
    names = [step.name for step in steps_of(network, its).lowering.body if isinstance(step, Step)]
    parts = sum(name.startswith("lasting weights") for name in names)
    assert parts > 1 if alternate else parts == 1


def test_whose_turn_it_is_to_load_goes_on_with_tiles_and_parts() -> None:
    """Of four units on a ring each loads a part for all, another one at each part of each tile."""
    model = Model(seed=1)
    model.output(model.conv(model.input([1, 12, 32, 32]), 12, 24))
    profile = changed_profile(
        "manycore2x64",
        chips=1,
        cores_per_cluster=4,
        nram__capacity_bytes=8192,
        engines__link__topology="ring",
        weights__mode="streamed",
    )
    tiling = {"tile": {"N": 1, "C": 6, "H": 2, "W": 32}, "input_slices": 4, "channel_slices": 1}
    pinned = {"nodes": ["Conv_0"], "tiling": tiling, "placement": {"units": 4, "spread": "channels"}}
    found = compile_model(model.data(), profile, parse_options({"schedule": {"groups": [pinned]}}))
    assert not found.plan.degraded
    assert found.report.values.checked
    assert found.report.programs[0].dram_read_bytes == found.plan.totals.dram_bytes - 24 * 32 * 32 * 4
