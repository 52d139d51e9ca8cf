"""The limit on the constants of decompositions, summed over a model."""

from __future__ import annotations

import pytest

from compiler.compile import plan_model
from compiler.frontend import lower
from compiler.options import Options
from compiler.profile import builtin_profile
from tests.models import Model


def test_constants_that_replace_nodes_are_bounded_over_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transform of 64 points has a matrix of 64 KiB; those behind the limit stay on the host, with the reason."""
    monkeypatch.setattr(lower, "MAX_MADE_BYTES", 100_000)
    model = Model()
    value = model.input([1, 64, 2], "x")
    for number in range(4):
        value = model.node("DFT", [value], name=f"transform_{number}", axis=1)
    model.output(model.node("Relu", [value], name="relu"))
    plan = plan_model(model.data(), builtin_profile("edge4"), Options()).plan
    hosts = {host.node: host.reason for segment in plan.segments for host in segment.host}
    assert set(hosts) == {"transform_2", "transform_3"}
    assert all("more than 100,000 bytes" in reason for reason in hosts.values())
