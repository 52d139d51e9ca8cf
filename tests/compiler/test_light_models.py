"""The nine networks of the onnx package, compiled whole: floor ≤ plan, plan no worse than `none`, every node once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, Literal

import jsonschema
import msgspec
import onnx
import pytest

from compiler.compile import Compilation, plan_model
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.report.plan import Plan, Report, plan_json, report_json
from tests.models import LIGHT_NAMES, light_path, light_source

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

PROFILES = ("cluster4x4", "edge4")
Objective = Literal["latency", "dram_bytes", "energy", "edp"]
Fusion = Literal["search", "rules"]
OTHERS: tuple[Objective, ...] = ("dram_bytes", "energy", "edp")


@cache
def compiled(name: str, profile: str, objective: Objective = "latency", fusion: Fusion = "search") -> Compilation:
    """A network's compilation, once per test process."""
    return plan_model(light_source(name), builtin_profile(profile), Options(objective=objective, fusion=fusion))


@cache
def node_names(name: str) -> tuple[str, ...]:
    """The ONNX nodes of a network, by the names that plans use."""
    graph = onnx.load(str(light_path(name))).graph
    return tuple(node.name or f"{node.op_type}_{index}" for index, node in enumerate(graph.node))


# the largest graph takes long
CASES = [
    pytest.param(*case, marks=pytest.mark.full if case[0] == "densenet121" else ())
    for case in product(LIGHT_NAMES, PROFILES, ("latency", *OTHERS))
]


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize(("name", "profile", "objective"), CASES)
def test_a_light_model_compiles_within_its_bounds(name: str, profile: str, objective: Objective) -> None:
    """Floor ≤ plan; on its objective plan ≤ `none`; every node in exactly one group or folded (IMPORT-2)."""
    compilation = compiled(name, profile, objective)
    plan = compilation.plan
    totals, baseline = plan.totals, plan.baseline
    assert 0 < totals.dram_bytes_floor <= totals.dram_bytes
    assert totals.dram_bytes_floor <= totals.dram_bytes_reference
    assert totals.latency_bound_s <= totals.latency_s
    gap = plan.gap
    assert sum(gap.kinds.values()) == gap.above_floor_bytes == totals.dram_bytes - totals.dram_bytes_floor
    assert sum(entry.read_bytes + entry.written_bytes for entry in gap.entries) == gap.above_floor_bytes
    value, limit = {
        "latency": (totals.latency_s, baseline.latency_s),
        "dram_bytes": (totals.dram_bytes, baseline.dram_bytes),
        "energy": (totals.energy_j, baseline.energy_j),
        "edp": (totals.energy_j * totals.latency_s, baseline.energy_j * baseline.latency_s),
    }[objective]
    assert value <= limit * (1 + 1e-9)
    groups = [group for segment in plan.segments for group in segment.groups]
    seen = Counter([node for group in groups for node in group.nodes] + list(plan.folded))
    assert seen == Counter(node_names(name))
    assert sum(group.dram_bytes for group in groups) == totals.dram_bytes
    assert sum(group.cycles for group in groups) / builtin_profile(profile).clock_hz == pytest.approx(totals.latency_s)
    assert sum(group.energy_j for group in groups) == pytest.approx(totals.energy_j)
    for group in groups:
        assert all(rule.holds for rule in group.rules if rule.id not in ("FUSE-5", "FUSE-6", "FUSE-7"))
        assert group.boundary
        homes = {other.id: {op.node for op in other.ops} for other in groups}
        for edge in group.boundary:
            assert edge.consumer is None or edge.consumer in homes[edge.consumer_group or group.id]


@pytest.mark.matrix(first=0, rest=1)
@pytest.mark.parametrize(("name", "profile"), [("squeezenet", "edge4"), ("bvlc_alexnet", "cluster4x4")])
def test_documents_of_a_light_model_validate_against_their_schema(name: str, profile: str) -> None:
    compilation = compiled(name, profile)
    for data, document in ((plan_json(compilation.plan), Plan), (report_json(compilation.report), Report)):
        values = json.loads(data, parse_constant=lambda text: pytest.fail(f"{text} is no JSON"))
        schema = msgspec.json.schema(document)
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(values, schema)
        assert msgspec.convert(values, document) in (compilation.plan, compilation.report)


def test_the_schema_refuses_a_plan_that_lacks_a_part() -> None:
    values: dict[str, Any] = json.loads(plan_json(compiled("squeezenet", "edge4").plan))
    del values["totals"]["dram_bytes_floor"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(values, msgspec.json.schema(Plan))


def rendered(plan: Plan) -> str:
    """A plan as a page of text: groups, nodes, tile, bytes."""
    lines = [
        f"{plan.model.name} on {plan.profile.name}",
        f"dram {plan.totals.dram_bytes} floor {plan.totals.dram_bytes_floor}"
        f" reference {plan.totals.dram_bytes_reference} baseline {plan.baseline.dram_bytes} bytes",
        f"macs {plan.totals.macs}, {len(plan.folded)} nodes folded",
    ]
    for segment in plan.segments:
        lines.append(f"segment {segment.id} {segment.kind}")
        for group in segment.groups:
            tile = " ".join(f"{axis}={size}" for axis, size in zip(group.tiling.axes, group.tiling.tile, strict=True))
            lines.append(f"  {group.id} {group.mode} {group.dram_bytes} bytes, bound by {group.bound_by}")
            lines.append(f"    tile {tile}, {group.tiling.tiles} tiles, {group.tiling.order}, {group.placement.spread}")
            lines.append(f"    nodes {' '.join(group.nodes)}")
            lines.extend(f"    -> {edge.consumer}: {edge.rule or edge.why}" for edge in group.boundary)
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("profile", [pytest.param("cluster4x4", marks=pytest.mark.slow), "edge4"])
def test_squeezenet_plan(profile: str, golden: Callable[[str], None]) -> None:
    golden(rendered(compiled("squeezenet", profile).plan))


@pytest.mark.slow
def test_resnet50_folds_every_batch_normalisation() -> None:
    """IMPORT-2."""
    report = compiled("resnet50", "cluster4x4").report
    assert report.op_counts["Conv"] == 53
    assert "BatchNormalization" not in report.op_counts
    assert report.totals.macs == pytest.approx(4.09e9, rel=0.01)
    assert report.values_checked is False
    assert report.assumptions


def test_alexnet_has_the_shares_of_the_literature() -> None:
    """N-4: 96.2 % of AlexNet's weights are in its classifier."""
    plan = compiled("bvlc_alexnet", "cluster4x4", fusion="rules").plan
    weights = {op.node: op.weight_bytes for segment in plan.segments for group in segment.groups for op in group.ops}
    kinds = {op.node: op.kind for segment in plan.segments for group in segment.groups for op in group.ops}
    classifier = sum(size for node, size in weights.items() if kinds[node] == "Gemm")
    assert classifier / sum(weights.values()) == pytest.approx(0.962, abs=0.001)
