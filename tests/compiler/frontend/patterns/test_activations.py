"""Near misses of activations stay as they are (IMPORT-2)."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest
from onnx import TensorProto

from tests.compiler.frontend.patterns.forms import (
    hard_sigmoid_keras,
    six,
)
from tests.compiler.frontend.patterns.harness import (
    Build,
    assert_same_values,
    lowered,
    model_of,
    recognised,
    s,
)
from tests.models import Model


def off(factor: float) -> Build:
    def build(m: Model, x: str) -> str:
        t = m.node("Add", [m.node("Erf", [m.node("Div", [x, s(m, sqrt(2) * factor)])]), s(m, 1)])
        return m.node("Mul", [m.node("Mul", [x, t]), s(m, 0.5)])

    return build


def test_constants_may_be_off_by_what_rounding_explains_and_no_more() -> None:
    def kinds(factor: float) -> list[str]:
        return [op.kind for op in recognised(model_of(off(factor)).SerializeToString()).ops]

    assert kinds(1.0009) == ["Gelu"]
    assert "Erf" in kinds(1.0011)


def gelu_shifted(m: Model, x: str) -> str:
    """erf((x + 1) / √2)."""
    t = m.node("Erf", [m.node("Div", [m.node("Add", [x, s(m, 1)]), s(m, sqrt(2))])])
    return m.node("Mul", [m.node("Mul", [x, s(m, 0.5)]), m.node("Add", [t, s(m, 1)])])


def gelu_without_cube(m: Model, x: str) -> str:
    t = m.node("Tanh", [m.node("Mul", [x, s(m, sqrt(2 / pi))])])
    return m.node("Mul", [m.node("Mul", [x, s(m, 0.5)]), m.node("Add", [t, s(m, 1)])])


def gelu_quartered(m: Model, x: str) -> str:
    t = m.node("Erf", [m.node("Div", [x, s(m, sqrt(2))])])
    return m.node("Mul", [m.node("Mul", [x, s(m, 0.25)]), m.node("Add", [t, s(m, 1)])])


def silu_doubled(m: Model, x: str) -> str:
    return m.node("Mul", [m.node("Mul", [x, s(m, 2)]), m.node("Sigmoid", [x])])


def silu_shifted(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("Sigmoid", [m.node("Add", [x, s(m, 1)])])])


def gate_squared(m: Model, x: str) -> str:
    """x² · relu6(x + 3) / 6."""
    return m.node("Div", [m.node("Mul", [m.node("Mul", [x, six(m, x)]), x]), s(m, 6)])


def silu_of_infinite_slope(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("Sigmoid", [m.node("Mul", [x, s(m, np.inf)])])])


def gate_of_another_slope(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("HardSigmoid", [x], alpha=0.2, beta=0.5)])


def gate_of_another_height(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("HardSigmoid", [x], alpha=1 / 6, beta=0.4)])


def gate_shifted(m: Model, x: str) -> str:
    return m.node("Mul", [x, m.node("HardSigmoid", [m.node("Add", [x, s(m, 1)])], alpha=1 / 6, beta=0.5)])


def clipped_from_one(m: Model, x: str) -> str:
    return m.node("Div", [m.node("Clip", [m.node("Add", [x, s(m, 3)]), s(m, 1), s(m, 6)]), s(m, 6)])


def clipped_at_five(m: Model, x: str) -> str:
    return m.node("Div", [m.node("Clip", [m.node("Add", [x, s(m, 3)]), s(m, 0), s(m, 5)]), s(m, 6)])


def clipped_off_centre(m: Model, x: str) -> str:
    return m.node("Div", [m.node("Clip", [m.node("Add", [x, s(m, 2)]), s(m, 0), s(m, 6)]), s(m, 6)])


def clipped_alone(m: Model, x: str) -> str:
    return m.node("Clip", [x, s(m, 0), s(m, 6)])


@pytest.mark.parametrize(
    "build",
    [
        gelu_shifted,
        gelu_without_cube,
        gelu_quartered,
        silu_doubled,
        silu_shifted,
        gate_squared,
        silu_of_infinite_slope,
        gate_of_another_slope,
        gate_of_another_height,
        gate_shifted,
        clipped_from_one,
        clipped_at_five,
        clipped_off_centre,
        clipped_alone,
    ],
)
def test_what_is_no_activation_stays(build: Build) -> None:
    data = model_of(build).SerializeToString()
    assert recognised(data) == lowered(data)


def test_a_gate_of_another_slope_times_its_input_is_a_hard_sigmoid_and_a_product() -> None:
    def build(m: Model, x: str) -> str:
        return m.node("Mul", [x, hard_sigmoid_keras(m, x)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["HardSigmoid", "Mul"]
    assert_same_values(proto, graph)


def test_integers_are_no_activation() -> None:
    def build(m: Model, x: str) -> str:
        bounds = [m.constant(np.array(value, dtype=np.int32)) for value in (3, 0, 6, 6)]
        y = m.node("Clip", [m.node("Add", [x, bounds[0]]), *bounds[1:3]])
        return m.node("Div", [y, bounds[3]])

    assert recognised(model_of(build, TensorProto.INT32).SerializeToString()).patterns == ()


def test_a_constant_of_more_axes_than_the_input_broadcasts_and_is_no_part_of_a_pattern() -> None:
    def build(m: Model, x: str) -> str:
        t = m.node("Add", [m.node("Erf", [m.node("Div", [x, s(m, sqrt(2))])]), s(m, 1)])
        return m.node("Mul", [m.node("Mul", [x, t]), s(m, 0.5, shape=(1, 1, 1, 1))])

    assert recognised(model_of(build).SerializeToString()).patterns == ()


def test_a_pattern_in_half_precision_is_recognised_by_its_rounded_constants() -> None:
    def build(m: Model, x: str) -> str:
        half = np.float16
        cube = m.node("Mul", [m.node("Pow", [x, s(m, 3, half)]), s(m, 0.044715, half)])
        t = m.node("Tanh", [m.node("Mul", [m.node("Add", [x, cube]), s(m, sqrt(2 / pi), half)])])
        return m.node("Mul", [m.node("Mul", [x, s(m, 0.5, half)]), m.node("Add", [t, s(m, 1, half)])])

    proto = model_of(build, TensorProto.FLOAT16)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Gelu"]
    assert_same_values(proto, graph, 5e-3)


def test_a_gate_with_another_value_is_no_silu() -> None:
    def build(m: Model, x: str) -> str:
        return m.node("Mul", [m.node("Abs", [x]), m.node("Sigmoid", [x])])

    graph = recognised(model_of(build).SerializeToString())
    assert [op.kind for op in graph.ops] == ["Abs", "Sigmoid", "Mul"]


def test_a_broadcast_product_is_no_silu() -> None:
    def build(m: Model, x: str) -> str:
        return m.node("Mul", [x, m.node("Sigmoid", [m.node("ReduceMax", [x], axes=[1, 2])])])

    assert recognised(model_of(build).SerializeToString()).patterns == ()
