"""What a step of the compiler fails on is planned in a simpler way, and said (IMPORT-7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from compiler.compile import Compilation, compile_model
from compiler.degraded import DefectError
from compiler.errors import LimitError
from compiler.fusion import evaluate
from compiler.ops import OP_KINDS
from compiler.ops.op_facts import GraphFacts
from compiler.options import Options
from compiler.partition.products import TurnProducts
from compiler.profile import builtin_profile
from compiler.profile.fields import with_fields
from compiler.program import lower
from compiler.program.executable import ChipSegment
from compiler.program.segment import PlannedGroup
from compiler.program.steps.segment import SegmentSteps
from compiler.simulator import value_check
from compiler.simulator.values import Chip
from compiler.tiling.choose import choose_tiling
from tests.models import Model

pytestmark = pytest.mark.degrades

Fails = Callable[[GraphFacts, PlannedGroup], bool]


def network() -> bytes:
    """Two convolutions with a normalisation, and a pooling: one group on a chip with memory."""
    model = Model()
    x = model.conv(model.input([1, 8, 16, 16]), 8, 16, name="first")
    x = model.conv(model.relu(x, name="relu"), 16, 16, stride=2, name="second")
    model.output(model.pool(model.relu(model.norm(x, 16)), name="pool"))
    return model.data()


def compiled(**options: Any) -> Compilation:
    return compile_model(network(), builtin_profile("edge4"), Options(**options))


def breaks(monkeypatch: pytest.MonkeyPatch, fails: Fails, error: Exception | None = None) -> None:
    """Let lowering fail on the groups for which `fails` holds."""

    def steps(facts: GraphFacts, profile: Any, name: str, groups: Sequence[PlannedGroup], *rest: Any) -> Any:
        if any(fails(facts, group) for group in groups):
            raise error or KeyError("broken on purpose")
        return SegmentSteps(facts, profile, name, groups, *rest)

    monkeypatch.setattr(lower, "SegmentSteps", steps)


def kinds(facts: GraphFacts, group: PlannedGroup) -> list[str]:
    return [facts.graph.ops[op].kind for op in group.ops]


def test_a_group_whose_lowering_fails_is_planned_op_by_op(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, lambda _, group: len(group.ops) > 1)
    found = compiled()
    (entry,) = found.plan.degraded
    assert entry.instead == "op by op"
    assert entry.stage == "lower"
    assert "broken on purpose" in entry.failed
    assert set(entry.nodes) >= {"first", "relu", "second", "pool"}
    (part,) = found.plan.segments
    assert len(part.groups) == 5
    assert found.report.values_checked
    assert found.report.degraded == found.plan.degraded


def test_an_op_whose_lowering_fails_alone_runs_on_the_host_with_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, lambda facts, group: "MaxPool" in kinds(facts, group))
    found = compiled()
    assert [(entry.instead, len(entry.nodes) > 1) for entry in found.plan.degraded] == [
        ("op by op", True),
        ("on the host", False),
    ]
    assert found.plan.degraded[-1].nodes == ("pool",)
    assert [part.kind for part in found.plan.segments] == ["chip", "host"]
    assert found.report.values_checked


def test_a_graph_of_which_nothing_can_be_lowered_runs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, lambda *_: True)
    found = compiled()
    assert [part.kind for part in found.plan.segments] == ["host"]
    assert found.report.values_checked
    assert found.executable is not None


@pytest.mark.parametrize("option", [{"degraded": "error"}, {"strict": True}])
def test_options_make_it_an_error_that_names_the_node(monkeypatch: pytest.MonkeyPatch, option: dict[str, Any]) -> None:
    breaks(monkeypatch, lambda _, group: len(group.ops) > 1)
    with pytest.raises(DefectError, match="lowering or the proof") as caught:
        compiled(**option)
    assert caught.value.code == "internal_error"
    assert caught.value.node == "first"


@pytest.mark.parametrize("error", [LimitError("too long", code="time_limit"), MemoryError()])
def test_limits_of_time_and_memory_degrade_nothing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    breaks(monkeypatch, lambda *_: True, error)
    with pytest.raises(type(error)):
        compiled()


def test_wrong_values_lead_to_the_group_that_makes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group of several ops whose result is disturbed in the simulation is planned op by op, and its values hold."""
    proper = Chip.read

    def read(self: Chip, name: str) -> Any:
        values = np.array(proper(self, name))
        # only the fused group computes in one step what the pooling makes
        return values + 1 if len(self.program.steps) and len(groups_of(self)) == 1 else values

    monkeypatch.setattr(Chip, "read", read)
    found = compiled()
    (entry,) = found.plan.degraded
    assert (entry.stage, entry.instead) == ("check values", "op by op")
    assert "computes other values" in entry.failed
    assert found.report.values_checked


def test_a_program_that_cannot_be_run_is_planned_otherwise_also_where_every_op_is_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Which group is at fault the failure does not say: groups of several ops are suspected first, then all."""
    proper = value_check.check_values

    def checked(executable: Any, *rest: Any, **named: Any) -> Any:
        if any(isinstance(part, ChipSegment) for part in executable.segments):
            raise ValueError("broken on purpose")
        return proper(executable, *rest, **named)

    monkeypatch.setattr(value_check, "check_values", checked)
    plan = compiled(fusion="none").plan
    assert plan.degraded
    assert {segment.kind for segment in plan.segments} == {"host"}


def groups_of(chip: Chip) -> set[str]:
    return {step.group for step in chip.program.steps}


def test_a_step_that_only_improves_the_graph_is_left_out_where_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> Any:
        raise AssertionError("broken on purpose")

    monkeypatch.setattr(TurnProducts, "run", run)
    found = compiled()
    (entry,) = found.plan.degraded
    assert (entry.nodes, entry.stage, entry.instead) == ((), "turn-products", "without this step")
    assert found.report.values_checked


def test_an_op_whose_tiling_fails_is_left_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    proper = choose_tiling

    def chosen(geometry: Any, *rest: Any) -> Any:
        if any(op.kind == "MaxPool" for op in geometry.ops):
            raise ZeroDivisionError("broken on purpose")
        return proper(geometry, *rest)

    monkeypatch.setattr(evaluate, "choose_tiling", chosen)
    found = compiled()
    assert ("pool",) in [entry.nodes for entry in found.plan.degraded]
    assert "host" in [part.kind for part in found.plan.segments]
    assert found.report.values_checked


def test_a_definition_that_disagrees_with_onnx_runtime_leaves_its_nodes_to_the_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = type(OP_KINDS["MaxPool"])
    proper = kind.compute

    def compute(self: Any, call: Any, arrays: Any) -> Any:
        return proper(self, call, arrays) + 1

    monkeypatch.setattr(kind, "compute", compute)
    found = compiled()
    (entry,) = found.plan.degraded
    assert (entry.nodes, entry.stage, entry.instead) == (("pool",), "check values", "on the host")
    assert found.report.values_checked


def averaged(**options: Any) -> Compilation:
    """The mean of many integers: no tile of it fits a core, and it has no parts, for their means would be cut off."""
    model = Model()
    scores = model.node("Abs", [model.input([2, 400_000], dtype=TensorProto.INT32)])
    model.output(model.node("ReduceMean", [scores], name="mean", axes=[1]), TensorProto.INT32)
    return compile_model(model.data(), builtin_profile("edge4"), Options(**options))


def test_an_op_beside_the_matrix_unit_without_a_tiling_runs_on_the_host() -> None:
    found = averaged()
    (entry,) = found.plan.degraded
    assert (entry.nodes, entry.stage, entry.instead) == (("mean",), "partition", "on the host")
    assert found.report.values_checked
    with pytest.raises(LimitError) as caught:
        averaged(degraded="error")
    assert (caught.value.code, caught.value.node) == ("does_not_fit", "mean")


def test_a_main_op_that_exceeds_the_chip_stays_an_error_of_the_profile() -> None:
    tiny = with_fields(builtin_profile("edge4"), {"nram.capacity_bytes": 1024})
    with pytest.raises(LimitError) as caught:
        compile_model(network(), tiny, Options())
    assert caught.value.code == "does_not_fit"
    assert caught.value.node == "first"


def test_nothing_is_degraded_where_nothing_fails() -> None:
    found = compiled()
    assert found.plan.degraded == ()
    assert found.report.degraded == ()
