"""Tensors that stay on the chip between groups: bytes, values, pins, and what cannot be (TILE-4, TILE-5)."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest

from compiler.compile import Compilation, compile_model, plan_model
from compiler.errors import LimitError, RequestError
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from compiler.report.plan import Plan, PlanGroup, plan_json
from tests.models import Model, light_source
from tests.profiles import profile_values

# Of these some have tensors that pass over a group, groups that take two, and groups that take one and hand one on.
SEEDS = range(64)


def cores(
    count: int, nram_bytes: int, *, mode: str = "streamed", topology: str = "mesh", multicast: bool = False
) -> Profile:
    """Connected cores with little memory each."""
    values = profile_values("manycore2x64")
    values |= {"name": "cores", "chips": 1, "cores_per_cluster": count, "weights": {"mode": mode}}
    values["nram"]["capacity_bytes"] = nram_bytes
    values["dram"]["multicast"] = multicast
    values["engines"]["link"]["topology"] = topology
    return profile_from_values(values)


def clusters(random: Random) -> Profile:
    """Clusters of cores with little memory each, connected or not inside."""
    values = profile_values("cluster4x4")
    values |= {"name": "clusters", "clusters_per_chip": random.choice([2, 3, 4])}
    values["cores_per_cluster"] = random.choice([1, 2, 4])
    values["sram"]["capacity_bytes"] = random.choice([12, 16, 24, 48, 96]) << 10
    values["nram"]["capacity_bytes"] = random.choice([6, 8, 16, 32]) << 10
    values["dram"]["multicast"] = random.random() < 0.5
    if random.random() < 0.3:
        values["engines"]["bus"] = None
    return profile_from_values(values)


def any_network(random: Random) -> Model:
    """A chain of convolutions and poolings with residuals and branches."""
    model = Model(seed=random.randrange(1 << 30))
    channels, height = random.choice([3, 4, 8]), random.choice([12, 17, 24, 32])
    width = random.choice([height, height + 5, 16])
    x = model.input([random.choice([1, 1, 1, 2]), channels, height, width])
    for _ in range(random.randint(3, 9)):
        kind, made = (
            random.choice(["conv", "conv", "point", "residual", "pool", "branches", "strided"]),
            random.choice([8, 16, 24, 48]),
        )
        if kind == "conv":
            x, channels = model.relu(model.conv(x, channels, made)), made
        elif kind == "point":
            x, channels = model.conv(x, channels, made, kernel=1, pad=0), made
        elif kind == "residual":
            inner = model.conv(model.relu(model.conv(x, channels, made)), made, channels)
            x = model.relu(model.node("Add", [x, inner]))
        elif kind == "branches":
            sides = [model.relu(model.conv(x, channels, made)), model.conv(x, channels, made, kernel=1, pad=0)]
            x, channels = model.node("Concat", sides, axis=1), 2 * made
        elif kind == "pool" and min(height, width) > 6:
            x, height, width = model.pool(x), height // 2, width // 2
        elif kind == "strided" and min(height, width) > 6:
            x, channels = model.conv(x, channels, made, stride=2), made
            height, width = (height + 1) // 2, (width + 1) // 2
    model.output(x)
    return model


def any_case(seed: int) -> Compilation:
    """A network on a chip of connected cores, proved and with its values checked."""
    random = Random(seed)
    model = any_network(random)
    if seed % 3 == 2:
        profile = clusters(random)
    else:
        profile = cores(
            random.choice([2, 4, 6, 9, 16]),
            random.choice([8, 16, 24, 32, 64]) << 10,
            mode=random.choice(["streamed", "streamed", "stationary"]),
            topology=random.choice(["mesh", "ring"]),
            multicast=random.random() < 0.5,
        )
    options = parse_options({"objective": random.choice(["dram_bytes", "dram_bytes", "latency", "energy", "edp"])})
    while True:
        try:
            return compile_model(model.data(), profile, options)
        except LimitError:
            # not even the smallest tile of some op fits
            nram = msgspec.structs.replace(profile.nram, capacity_bytes=2 * profile.nram.capacity_bytes)
            profile = msgspec.structs.replace(profile, nram=nram)


def groups_of(plan: Plan) -> list[PlanGroup]:
    return [group for segment in plan.segments for group in segment.groups]


def narrowing() -> ModelSource:
    """A large map with few channels, then a small one with many: rows suit the one, channels the other."""
    model = Model(seed=3)
    x = model.input([1, 8, 32, 32])
    for channels in (8, 16, 16):
        x = model.relu(model.conv(x, channels, 16))
    x = model.conv(x, 16, 64, stride=2)
    for _ in range(3):
        x = model.relu(model.conv(model.pool(x) if _ == 1 else x, 64, 64))
    model.output(x)
    return ModelSource.from_bytes(model.data(), name="narrowing")


def narrow_plan(schedule: Any = None, profile: Profile | None = None) -> Plan:
    """Its plan by DRAM bytes on sixteen cores."""
    options = parse_options({"objective": "dram_bytes", "schedule": schedule})
    return plan_model(narrowing(), cores(16, 24 << 10) if profile is None else profile, options).plan


@pytest.mark.slow
def test_resnet50_reaches_its_floor_by_a_change_of_spread() -> None:
    options = parse_options({"precision": "int8", "objective": "dram_bytes"})
    plan = plan_model(light_source("resnet50"), builtin_profile("polar4x4"), options).plan
    first, second = groups_of(plan)
    assert plan.totals.dram_bytes == plan.totals.dram_bytes_floor
    assert (first.placement.spread, second.placement.spread) == ("bands", "channels")
    assert first.handover is not None
    assert second.handover is not None
    assert first.handover.hands == second.handover.takes[0]
    edge = first.boundary[0]
    assert edge.tensor == first.handover.hands.tensor
    assert edge.why.startswith("it stays on the chip between the two")


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_programs_compute_the_models_values_and_move_the_planned_bytes(seed: int) -> None:
    compilation = any_case(seed)
    assert not compilation.plan.degraded
    assert compilation.report.values.checked
    moved = sum(p.dram_read_bytes + p.dram_write_bytes for p in compilation.report.programs)
    assert moved == compilation.plan.totals.dram_bytes


@pytest.mark.slow
def test_a_plan_that_hands_tensors_over_can_be_pinned() -> None:
    plan = narrow_plan()
    handed = [group for group in groups_of(plan) if group.handover is not None]
    assert any(group.handover is not None and group.handover.takes for group in handed)
    again = narrow_plan(json.loads(plan_json(plan)))
    assert [group.handover for group in groups_of(again)] == [group.handover for group in groups_of(plan)]
    assert [group.tiling for group in groups_of(again)] == [group.tiling for group in groups_of(plan)]
    assert again.totals.dram_bytes == plan.totals.dram_bytes


@cache
def narrow_schedule() -> str:
    """That plan as text, made once per test process."""
    return plan_json(narrow_plan()).decode()


def pinned(*, where: str = "hands", **changes: Any) -> dict[str, Any]:
    """The plan as a schedule; `changes` of the last tensor that stays on the chip, where it is made, read, or both."""
    schedule: dict[str, Any] = json.loads(narrow_schedule())
    groups = [group for segment in schedule["segments"] for group in segment["groups"]]
    group = [g for g in groups if g["handover"] is not None and g["handover"]["hands"] is not None][-1]
    name = group["handover"]["hands"]["tensor"]
    read = [its for g in groups if g["handover"] for its in g["handover"]["takes"] if its["tensor"] == name]
    for field, value in changes.items():
        if field == "handover":
            group["handover"] = value
        elif field == "held_bytes":
            group["handover"]["held_bytes"] = value
        else:
            made = [] if where == "takes" else [group["handover"]["hands"]]
            for its in [*made, *([] if where == "hands" else read)]:
                its[field] = value
    return schedule


@pytest.mark.matrix(first=3, rest=5)
@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"handover": None}, "does not take it there"),
        ({"axis": "Q"}, "whose handover names"),
        ({"tensor": "nothing"}, "whose handover names"),
        ({"axis": "C", "share": 1, "where": "both"}, "in parts that"),
        ({"share": 5, "where": "takes"}, "which no earlier group leaves on the chip like that"),
        ({"held_bytes": 64}, "keeps 64 bytes free"),
        ({"before_end": 0, "where": "both"}, "two tensors stay on the chip in one place"),
        ({"before_end": 4100, "where": "both"}, "at no multiple of 64 bytes"),
    ],
)
def test_what_groups_cannot_hand_over_is_refused_with_the_reason(changes: dict[str, Any], what: str) -> None:
    with pytest.raises(RequestError) as caught:
        narrow_plan(pinned(**changes))
    assert what in caught.value.message


def test_all_groups_of_a_segment_that_hands_tensors_over_have_to_be_pinned() -> None:
    schedule = pinned()
    segment = next(s for s in schedule["segments"] if any(g["handover"] for g in s["groups"]))
    segment["groups"] = [group for group in segment["groups"] if group["handover"] is not None][:1]
    with pytest.raises(RequestError) as caught:
        narrow_plan(schedule)
    assert "hand tensors over on the chip" in caught.value.message


@pytest.mark.slow
def test_units_without_links_hand_nothing_over() -> None:
    values = profile_values("manycore2x64")
    values |= {"chips": 1, "cores_per_cluster": 16, "weights": {"mode": "streamed"}}
    values["nram"]["capacity_bytes"] = 24 << 10
    values["engines"]["link"] = None
    apart = profile_from_values(values)
    assert all(group.handover is None for group in groups_of(narrow_plan(profile=apart)))
    schedule = pinned()
    for segment in schedule["segments"]:
        for group in segment["groups"]:
            del group["halo"], group["tiling"], group["ops"]
    with pytest.raises(RequestError) as caught:
        narrow_plan(schedule, apart)
    assert str(caught.value.actual).startswith("handover")
