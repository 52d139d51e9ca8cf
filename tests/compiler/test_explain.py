"""A plan in words: segments, cuts, hosts and what merging did (PART-3 to PART-6, IMPORT-6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from compiler.errors import RequestError
from compiler.explain import explain
from compiler.frontend.source import ModelSource
from compiler.options import parse_options
from compiler.plan import Plan
from compiler.profile import builtin_profile
from compiler.profile.schema import Profile
from tests.compiler.partition.graphs import limited, stationary
from tests.compiler.planning import plan_model
from tests.models import Model

# Bytes of weights of one convolution of the network.
WEIGHTS = 8 * 8 * 9 * 4


def network() -> Model:
    """Three convolutions with taps, an op of the host, a folded branch, and a tail."""
    model = Model(name="explained")
    x = model.input(["batch", 8, 16, 16], "image")
    for index in range(3):
        x = model.output(model.relu(model.conv(x, 8, 8, name=f"conv{index}"), name=f"relu{index}"))
    x = model.node("Det", [x], name="determinant")
    scale = model.node("Sqrt", [model.constant(4.0, dtype="float32")], name="folded")
    model.output(model.node("Mul", [x, scale], name="tail"))
    return model


def plan_of(model: Model, profile: Profile, **options: object) -> Plan:
    """The plan under options."""
    source = ModelSource.from_bytes(model.data(), name="explained.onnx")
    return plan_model(source, profile, parse_options(options)).plan


def test_a_plan_with_a_host_op_and_a_limit(golden: Callable[[str], None]) -> None:
    """What does not fit together is said with limit and amount."""
    profile = limited(weight_bytes=2 * WEIGHTS)
    golden(explain(plan_of(network(), profile, dims={"batch": 2}, merge="forward")))


def test_a_plan_on_two_chips_with_stationary_weights(golden: Callable[[str], None]) -> None:
    """Cut further for what does not fit beside the weights; each chip's load and traffic."""
    model = Model(name="chips")
    x = model.input([1, 8, 16, 16], "image")
    for index in range(4):
        x = model.conv(x, 8, 8, name=f"conv{index}")
    model.output(x)
    profile = stationary(nram_bytes=2 * WEIGHTS // 4 + 900)
    golden(explain(plan_of(model, profile, merge="pairwise")))


def test_a_merge_that_does_not_compile(golden: Callable[[str], None]) -> None:
    """Two convolutions' weights fit a core, but leave less than the smallest tile needs."""
    model = Model(name="tight")
    x = model.input([1, 8, 16, 16], "image")
    for index in range(2):
        x = model.output(model.conv(x, 8, 8, name=f"conv{index}"))
    golden(explain(plan_of(model, stationary(nram_bytes=2 * WEIGHTS // 4 + 200), merge="forward", chips="single")))


def test_one_segment(golden: Callable[[str], None]) -> None:
    golden(explain(plan_of(network(), builtin_profile("edge4"), dims={"batch": 1}, merge="none"), "s1"))


def test_one_group(golden: Callable[[str], None]) -> None:
    """What keeps its neighbours outside."""
    golden(explain(plan_of(network(), builtin_profile("edge4"), dims={"batch": 1}, merge="none"), "s1.g0"))


@pytest.mark.parametrize("group", ["s9", "s0.g9", "", "s0.g0 ", "\x1b[31m"])
def test_a_group_that_the_plan_does_not_have_is_refused_with_some_that_it_has(group: str) -> None:
    with pytest.raises(RequestError) as caught:
        explain(plan_of(network(), builtin_profile("edge4"), dims={"batch": 1}), group)
    error = caught.value
    assert error.code == "unknown_group"
    assert "s0.g0" in str(error.limit)
    assert str(error).isprintable()


def test_a_plan_without_groups_names_its_segments() -> None:
    model = Model()
    model.output(model.node("Det", [model.input([4, 4])], name="it"))
    plan = plan_of(model, builtin_profile("edge4"))
    with pytest.raises(RequestError) as caught:
        explain(plan, "s0.g0")
    assert caught.value.limit == "s0"
    assert "it (Det) stays on the host: the accelerator has no Det." in explain(plan)


def test_names_of_a_model_reach_the_text_in_bounds_and_printable() -> None:
    """API-7."""
    model = Model()
    x = model.relu(model.input([4, 4]), name="evil\x1b[31m\nnode" * 200)
    model.output(model.node("Det", [x], name="host\x1b[0m\n" * 200))
    text = explain(plan_of(model, builtin_profile("edge4")))
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) < 1000


def test_every_segment_group_and_reason_is_in_the_text() -> None:
    plan = plan_of(network(), limited(weight_bytes=2 * WEIGHTS), dims={"batch": 2}, merge="pairwise")
    text = explain(plan)
    for segment in plan.segments:
        assert f"Segment {segment.id} " in text
        assert segment.cut.why in text
        assert all(node.reason in text for node in segment.host)
        for group in segment.groups:
            assert group.id in explain(plan, segment.id)
            assert all(edge.why in explain(plan, group.id) for edge in group.boundary)
    assert all(entry.why[:100] in text for entry in plan.partition.apart)
