"""Plans are chosen by simulation: what is taken takes least, and no more than what other strategies plan (SCHED-7)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from compiler.compile import Compilation, compile_model
from compiler.fusion.groups import FusedSegment
from compiler.ops.op_facts import GraphFacts
from compiler.options import parse_options
from compiler.partition.partition import Refused
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.program.alone import UsedUpError
from compiler.program.lower import LoweredSegment, LowerSegments, key_of
from compiler.report.plan import PlanSegment, plan_json
from compiler.report.plan_search import SimulatedPlanDoc
from tests.models import Model, light_source

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

OBJECTIVES: dict[str, Callable[[float, float, float], float]] = {
    "latency": lambda _bytes, cycles, _energy: cycles,
    "dram_bytes": lambda dram, _cycles, _energy: dram,
    "energy": lambda _bytes, _cycles, energy: energy,
    "edp": lambda _bytes, cycles, energy: cycles * energy,
}


def pyramid() -> Model:
    """Convolutions of two widths over a map, joined at the end."""
    model = Model(seed=5)
    x = model.input([1, 8, 48, 48])
    left = model.relu(model.conv(model.relu(model.conv(x, 8, 24)), 24, 24))
    right = model.relu(model.conv(x, 8, 24, kernel=1, pad=0))
    model.output(model.relu(model.conv(model.node("Add", [left, right]), 24, 48, stride=2)))
    return model


def compiled(model: Model, chip: str, **options: Any) -> Compilation:
    """Compiled with these options, values not compared."""
    return compile_model(model.data(), builtin_profile(chip), parse_options({"verify": "none", **options}))


def value(plan: SimulatedPlanDoc, objective: str) -> float:
    """The objective of a segment's plan."""
    return OBJECTIVES[objective](plan.dram_bytes, plan.simulated_cycles, plan.simulated_energy_j)


def chip_segments(compilation: Compilation) -> list[PlanSegment]:
    """Those on the chip."""
    return [segment for segment in compilation.plan.segments if segment.kind == "chip"]


@pytest.mark.matrix(first=1, rest=2)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("chip", ["edge4", "cluster4x4"])
def test_the_plan_that_is_taken_takes_least_and_is_the_one_that_is_lowered(chip: str, objective: str) -> None:
    compilation = compiled(pyramid(), chip, objective=objective)
    for segment, program in zip(chip_segments(compilation), compilation.report.programs, strict=True):
        simulated = segment.simulated
        assert simulated is not None
        first, *others = simulated.plans
        assert all(value(first, objective) <= value(other, objective) for other in others)
        assert {plan.origin for plan in simulated.plans}.isdisjoint(simulated.excluded)
        assert "price" in {plan.origin for plan in simulated.plans}
        assert first.groups == len(segment.groups)
        assert first.simulated_cycles == pytest.approx(program.simulated_cycles, abs=1)
        moved = program.dram_read_bytes + program.dram_write_bytes + program.table_read_bytes
        assert first.dram_bytes == moved


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("chip", ["edge4", "cluster4x4", "polar4x4"])
def test_search_takes_no_more_than_other_strategies_when_simulated(chip: str, objective: str) -> None:
    precision = {"precision": "int8"} if chip == "polar4x4" else {}

    def simulated(fusion: str) -> float:
        totals = compiled(pyramid(), chip, objective=objective, fusion=fusion, **precision).plan.totals
        assert totals.simulated_latency_s is not None
        assert totals.simulated_energy_j is not None
        return OBJECTIVES[objective](totals.dram_bytes, totals.simulated_latency_s, totals.simulated_energy_j)

    assert simulated("search") <= min(simulated("rules"), simulated("none")) * (1 + 1e-9)


def random_chain(seed: int) -> Model:
    """A few convolutions of random widths, kernels and strides."""
    rng, model = np.random.default_rng(seed), Model(seed=seed)
    channels, extent = int(rng.integers(4, 33)), int(rng.integers(16, 65))
    x = model.input([1, channels, extent, extent])
    for _ in range(int(rng.integers(2, 6))):
        filters, kernel = int(rng.integers(4, 65)), int(rng.choice([1, 3, 5]))
        x = model.relu(model.conv(x, channels, filters, kernel=kernel, stride=int(rng.integers(1, 3))))
        channels = filters
    model.output(x)
    return model


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("objective", ["latency", "energy"])
@pytest.mark.parametrize("chip", ["edge4", "cluster4x4"])
def test_search_takes_no_more_on_random_chains(chip: str, objective: str, seed: int) -> None:
    model = random_chain(seed)

    def simulated(fusion: str) -> float:
        totals = compiled(model, chip, objective=objective, fusion=fusion).plan.totals
        found = {"latency": totals.simulated_latency_s, "energy": totals.simulated_energy_j}[objective]
        assert found is not None
        return found

    assert simulated("search") <= min(simulated("rules"), simulated("none")) * (1 + 1e-9)


@pytest.mark.slow
def test_groups_that_take_more_one_by_one_may_take_less_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours work side by side, which no figure of a single group says."""
    (near,) = chip_segments(compiled(random_chain(4), "edge4"))
    monkeypatch.setattr("compiler.program.choose._OF_ALONE_SMALL", 1.0)
    (least,) = chip_segments(compiled(random_chain(4), "edge4"))
    assert near.simulated is not None
    assert least.simulated is not None
    assert len(near.simulated.plans) > len(least.simulated.plans)
    assert near.simulated.plans[0].simulated_cycles < 0.99 * least.simulated.plans[0].simulated_cycles


def test_a_chip_whose_energy_is_not_stated_is_compared_too() -> None:
    def without(values: Any) -> Any:
        if isinstance(values, dict):
            return {name: 0 if "pj" in name and not isinstance(v, dict) else without(v) for name, v in values.items()}
        return values

    values = without(msgspec.to_builtins(builtin_profile("edge4")))
    values["matrix"]["pj_per_mac"] = dict.fromkeys(values["matrix"]["pj_per_mac"], 0)
    profile = profile_from_values({**values, "static_w": 0})
    found = compile_model(pyramid().data(), profile, parse_options({"verify": "none", "objective": "energy"}))
    assert all(segment.simulated is not None for segment in chip_segments(found))
    assert not found.plan.degraded


def test_strategies_without_a_search_are_lowered_as_planned() -> None:
    for fusion in ("rules", "none"):
        assert all(segment.simulated is None for segment in chip_segments(compiled(pyramid(), "edge4", fusion=fusion)))


@pytest.mark.slow
def test_pinned_groups_keep_their_tilings() -> None:
    plan = compiled(pyramid(), "cluster4x4").plan
    again = compiled(pyramid(), "cluster4x4", schedule=json.loads(plan_json(plan))).plan
    (groups,), (others,) = ([segment.groups for segment in one.segments] for one in (plan, again))
    for group, other in zip(groups, others, strict=True):
        assert (group.nodes, group.tiling, group.placement) == (other.nodes, other.tiling, other.placement)


@pytest.mark.slow
def test_what_cannot_be_proved_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best plan by simulation fails its proof: the next one is taken, and nothing is planned in a simpler way."""
    before = chip_segments(compiled(pyramid(), "cluster4x4"))[0].simulated
    assert before is not None
    proved, asked = LowerSegments.proved, []

    def failing(self: LowerSegments, facts: GraphFacts, found: FusedSegment) -> LoweredSegment | Refused:
        asked.append(found)
        if len(asked) == 1:
            raise ValueError("no proof")
        return proved(self, facts, found)

    monkeypatch.setattr(LowerSegments, "proved", failing)
    plan = compiled(pyramid(), "cluster4x4").plan
    assert not plan.degraded
    (segment,) = plan.segments
    assert segment.simulated is not None
    assert segment.simulated.plans == before.plans[1:]
    assert [key_of(found.groups) for found in asked[2:]] == [key_of(asked[1].groups)]


def test_equal_segments_get_equal_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was lowered for the first one gives the second one no other budget."""
    monkeypatch.setattr("compiler.program.choose._ACTIONS", 1)
    model = Model(seed=5)
    x = model.input([1, 8, 24, 24])
    for _ in range(2):
        x = model.relu(model.node("Add", [model.relu(model.conv(x, 8, 8)), x]))
        x = model.node("Cosh", [x])  # on the host
    model.output(x)
    first, second = chip_segments(compiled(model, "edge4"))
    assert first.simulated is not None
    assert first.simulated == second.simulated
    assert [group.tiling for group in first.groups] == [group.tiling for group in second.groups]


@pytest.mark.matrix(first=1, rest=1)
@pytest.mark.parametrize("chip", ["edge4", "cluster4x4", "manycore2x64"])
def test_with_nearly_no_budget_search_takes_no_more_than_other_strategies(
    chip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("compiler.program.choose._ACTIONS", 1)
    monkeypatch.setattr("compiler.program.alone.GroupsAlone._simulated", _given_up)
    compilation = compiled(pyramid(), chip)
    assert not compilation.plan.degraded
    (segment,) = chip_segments(compilation)
    assert segment.simulated is not None
    assert segment.simulated.tried == 0
    others = [compiled(pyramid(), chip, fusion=fusion).plan.totals.simulated_latency_s for fusion in ("rules", "none")]
    ours = compilation.plan.totals.simulated_latency_s
    assert ours is not None
    assert all(other is not None and ours <= other * (1 + 1e-9) for other in others)


def _given_up(*_: object) -> None:
    raise UsedUpError("no group is tried any more", stage="choose")


@pytest.mark.slow
def test_a_network_takes_less_by_simulation_than_by_price() -> None:
    compilation = compile_model(light_source("squeezenet"), builtin_profile("cluster4x4"), parse_options({}))
    (simulated,) = [segment.simulated for segment in chip_segments(compilation)]
    assert simulated is not None
    best = simulated.plans[0]
    (by_price,) = (plan for plan in simulated.plans if plan.origin == "price")
    assert best.origin == "simulation"
    assert best.simulated_cycles < by_price.simulated_cycles
    assert best.estimated_cycles >= by_price.estimated_cycles
    assert all(output.holds for output in compilation.report.values.outputs)
