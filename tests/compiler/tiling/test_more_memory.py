"""More memory never refuses a group that less memory accepts: what the planner calls fitting is allocated (PROG-2)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compiler.ops.op_facts import GraphFacts
from compiler.profile.schema import Profile
from compiler.tiling.choose import Refusal, choose_tiling
from compiler.tiling.finished import Choice
from compiler.tiling.geometry import GroupGeometry
from compiler.tiling.memory import allocation_check, memory_of
from compiler.tiling.tile import Order
from compiler.tiling.wishes import Wishes
from tests.compiler.tiling.groups import groups
from tests.compiler.tiling.tilings import group_of_all, tiled
from tests.matrices import tries
from tests.models import Model
from tests.profiles import small_profile

# Capacities of a sweep: each an eighth more than the one before, from where nothing fits.
SWEEP = [int(1024 * 1.125**step) for step in range(36)]


def chain(*kinds: str, extent: int = 24, channels: int = 8) -> GroupGeometry:
    """A group of ops one after another, all of as many channels; an addition also reads its operand's Relu."""
    model = Model()
    x = model.input([1, channels, extent, extent], "x")
    for kind in kinds:
        match kind:
            case "3x3" | "1x1":
                x = model.conv(x, channels, channels, int(kind[0]))
            case "pool":
                x = model.node("MaxPool", [x], kernel_shape=[3, 3], pads=[1] * 4)
            case "add":
                x = model.node("Add", [x, model.relu(x)])
            case _:
                x = model.relu(x)
    model.output(x)
    return group_of_all(model)[1]


def refused_above(geometry: GroupGeometry, profiles: Iterable[Profile], **wishes: Any) -> list[Refusal]:
    """Refusals on profiles of rising capacity after the first that accepts the group."""
    wished = Wishes(objective=wishes.pop("objective", "latency"), **wishes)
    found = [choose_tiling(geometry, profile, (), wished) for profile in profiles]
    first = next((n for n, outcome in enumerate(found) if isinstance(outcome, Choice)), len(found))
    return [outcome for outcome in found[first:] if isinstance(outcome, Refusal)]


@pytest.mark.matrix(first=2, rest=2)
@pytest.mark.parametrize(
    ("kinds", "extent", "chip"),
    [
        (("3x3", "1x1", "relu", "1x1", "3x3"), 24, {"nram_bytes": 2048, "cores": 2}),
        (("3x3", "pool", "3x3", "3x3"), 17, {"nram_bytes": 4096, "cores": 4}),
        (("3x3", "pool", "1x1", "relu", "3x3", "add"), 17, {"nram_bytes": 2048, "cores": 4}),
        (("3x3", "3x3", "relu", "add", "1x1", "pool"), 24, {"nram_bytes": 1024, "cores": 4, "wram_bytes": 65536}),
    ],
)
def test_a_larger_sram_accepts_what_a_smaller_one_does(
    kinds: tuple[str, ...], extent: int, chip: dict[str, Any]
) -> None:
    geometry = chain(*kinds, extent=extent)
    assert not refused_above(geometry, (small_profile(sram_bytes=size, **chip) for size in SWEEP[::2]))


@tries(first=5, rest=12)
@given(
    groups(),
    st.sampled_from([512, 1024, 2048, 4096]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2]),
    st.sampled_from([None, 512, 4096]),
    st.sampled_from(["latency", "dram_bytes"]),
    st.sampled_from(["auto", "recompute", "cached"]),
)
def test_any_group_stays_accepted_as_the_sram_grows(
    drawn: tuple[GraphFacts, GroupGeometry],
    nram: int,
    cores: int,
    clusters: int,
    wram: int | None,
    objective: str,
    halo: str,
) -> None:
    profiles = (
        small_profile(nram_bytes=nram, sram_bytes=size, cores=cores, clusters=clusters, wram_bytes=wram)
        for size in SWEEP[::3]
    )
    assert not refused_above(drawn[1], profiles, objective=objective, halo=halo)


@tries(first=5, rest=12)
@given(groups(), st.sampled_from([1, 2, 4]), st.sampled_from([None, 512, 4096]), st.sampled_from([0, 8192]))
def test_any_group_stays_accepted_as_the_cores_grow(
    drawn: tuple[GraphFacts, GroupGeometry], cores: int, wram: int | None, sram: int
) -> None:
    profiles = (
        small_profile(nram_bytes=size, cores=cores, wram_bytes=wram, sram_bytes=sram or None)
        for size in [256, 512, *SWEEP[::3]]
    )
    assert not refused_above(drawn[1], profiles)


def test_what_a_run_of_ops_reads_is_held_until_its_last_piece_is_done() -> None:
    """Of a 1x1 convolution and the Relu behind it: its operand is still read when the Relu's first results come."""
    geometry = chain("3x3", "1x1", "relu", "3x3", extent=8)
    profile = small_profile(nram_bytes=4096, sram_bytes=1 << 16)
    group = tiled(geometry, {}, profile=profile, order=Order.BREADTH_FIRST)
    assert [run.steps for run in geometry.runs] == [(0,), (1, 2), (3,)]
    map_bytes = 8 * 8 * 8 * 4
    # the group's input all the time, the operand, and the product that the Relu is written over
    assert group.tile_bytes == 3 * map_bytes
    levels = memory_of(group)
    assert allocation_check(levels) is None
    (sram,) = (level for level in levels if level.level == "sram")
    weights = sum(buffer.size_bytes for buffer in sram.buffers if "weights" in buffer.name)
    assert sram.allocation.lower_bound_bytes - weights <= group.tile_bytes <= sram.allocation.lower_bound_bytes
