"""Networks written by real exporters from real architecture code all come in and compile (IMPORT-5, IMPORT-6)."""

from __future__ import annotations

import pytest

from compiler.compile import plan_model
from compiler.options import parse_options
from compiler.profile import builtin_profile
from compiler.report.plan import Plan, plan_json
from tests.exported import ExportedModel, exported_models

# plans are chosen by simulation, in samples too
pytestmark = pytest.mark.chosen

MODELS = exported_models()


def compiled(model: ExportedModel, **options: object) -> Plan:
    """The plan for cluster4x4 at the maxima that the manifest names."""
    return plan_model(
        model.read(), builtin_profile("cluster4x4"), parse_options({"dims": model.dims, "fusion": "none"} | options)
    ).plan


@pytest.mark.matrix(first=0, rest=2)
@pytest.mark.parametrize("model", MODELS, ids=[model.file for model in MODELS])
def test_an_exported_network_compiles_and_its_products_are_native(model: ExportedModel) -> None:
    """More than 99 % of the multiply-accumulates run on the chip."""
    plan = compiled(model)
    native = plan.native
    assert native.host_nodes_of_unknown_work == 0
    assert native.chip_macs > 0.99 * (native.chip_macs + native.host_macs)
    # the manifest counts products in the exporting framework's own ops
    assert 0.98 * model.macs <= native.chip_macs <= 1.02 * model.macs
    assert plan_json(plan)
    listed = [node for segment in plan.segments for node in segment.nodes] + list(plan.folded)
    assert len(listed) == len(set(listed))


def test_both_exporters_styles_are_among_the_networks() -> None:
    """FACTS: compact graphs, and long Shape/Gather/Concat chains."""
    assert {model.exporter for model in MODELS} >= {"dynamo", "torchscript"}
    assert any(model.nodes > 500 for model in MODELS)
