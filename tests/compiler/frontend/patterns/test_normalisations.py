"""Scales, axes and conversions around LayerNorm and RMSNorm, and what is none (IMPORT-2)."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto

from compiler.frontend.lower import LowerModel
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from tests.compiler.frontend.patterns.forms import (
    affine,
    mean,
    rms_norm,
    rms_norm_one_over,
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


def wrong_axis(m: Model, x: str) -> str:
    """Normalised over an axis that is not the last."""
    d = m.node("Sub", [x, mean(m, x, 1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), 1), s(m, 1e-5)])
    return affine(m, m.node("Div", [d, m.node("Sqrt", [v])]), 8)


def two_axes(m: Model, x: str) -> str:
    """Mean and variance over different axes."""
    d = m.node("Sub", [x, mean(m, x, 1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), 2), s(m, 1e-5)])
    return m.node("Div", [d, m.node("Sqrt", [v])])


def difference_turned(m: Model, x: str) -> str:
    d = m.node("Sub", [mean(m, x, -1), x])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -1), s(m, 1e-5)])
    return m.node("Div", [d, m.node("Sqrt", [v])])


def epsilon_after_root(m: Model, x: str) -> str:
    d = m.node("Sub", [x, mean(m, x, -1)])
    root = m.node("Sqrt", [mean(m, m.node("Pow", [d, s(m, 2)]), -1)])
    return m.node("Div", [d, m.node("Add", [root, s(m, 1e-5)])])


def square_of_another(m: Model, x: str) -> str:
    """The mean square is that of other values than those divided."""
    other = m.node("Abs", [x])
    v = m.node("Add", [mean(m, m.node("Mul", [x, other]), -1), s(m, 9.0)])
    return m.node("Div", [x, m.node("Sqrt", [v])])


def negative_epsilon(m: Model, x: str) -> str:
    v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, -1e-3)])
    return m.node("Div", [x, m.node("Sqrt", [v])])


def reduced_axis_lost(m: Model, x: str) -> str:
    """Without keepdims a square input is divided by columns, not by rows."""
    y = m.node("Reshape", [m.node("Slice", [x, m.ints(0), m.ints(4), m.ints(1)]), m.ints(8, 8)])
    v = m.node("Add", [mean(m, m.node("Mul", [y, y]), -1, keepdims=0), s(m, 1e-3)])
    return m.node("Div", [y, m.node("Sqrt", [v])])


def fourth_root(m: Model, x: str) -> str:
    v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, 1e-3)])
    return m.node("Div", [x, m.node("Pow", [v, s(m, 0.25)])])


def inverse_fourth_root(m: Model, x: str) -> str:
    v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, 1e-3)])
    return m.node("Mul", [x, m.node("Pow", [v, s(m, -0.25)])])


def two_centres(m: Model, x: str) -> str:
    """The variance of one value, the difference of another."""
    y = m.node("Abs", [x])
    d, e = m.node("Sub", [x, mean(m, x, -1)]), m.node("Sub", [y, mean(m, y, -1)])
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -1), s(m, 1e-5)])
    return m.node("Div", [e, m.node("Sqrt", [v])])


@pytest.mark.parametrize(
    "build",
    [
        wrong_axis,
        fourth_root,
        inverse_fourth_root,
        two_centres,
        epsilon_after_root,
        square_of_another,
        negative_epsilon,
        reduced_axis_lost,
    ],
)
def test_what_is_no_normalisation_of_the_last_axes_stays(build: Build) -> None:
    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert graph.patterns == ()
    assert [op.kind for op in graph.ops] == [op.kind for op in lowered(proto.SerializeToString()).ops]
    assert_same_values(proto, graph)


@pytest.mark.parametrize("build", [two_axes, difference_turned])
def test_a_difference_that_is_not_from_its_own_mean_is_what_is_normalised(build: Build) -> None:
    """d / √(mean(d²) + ε) is the RMSNorm of d, whatever d is."""
    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["ReduceMean", "Sub", "RMSNormalization"]
    assert_same_values(proto, graph)


@pytest.mark.parametrize("shape", [(5, 1), (1,), (2, 5, 8), (5, 8)])
def test_a_scale_of_another_shape_stays_behind_the_normalisation(shape: tuple[int, ...]) -> None:
    def build(m: Model, x: str) -> str:
        v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, 1e-6)])
        return m.node("Mul", [m.node("Div", [x, m.node("Sqrt", [v])]), m.weight(*shape)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["RMSNormalization", "Mul"]
    assert_same_values(proto, graph)


def test_a_bias_stays_behind_an_rms_norm() -> None:
    def build(m: Model, x: str) -> str:
        return m.node("Add", [rms_norm(m, x), m.weight(8)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["RMSNormalization", "Add"]
    assert_same_values(proto, graph)


def test_a_scale_along_a_leading_axis_stays_behind_the_normalisation() -> None:
    """Before opset 7 attribute axis says where the second input's axes begin."""
    model = Model(opset=6)
    x = model.input([2, 8, 8], "x")
    v = model.node("Add", [mean(model, model.node("Mul", [x, x]), -1), s(model, 1e-6)], broadcast=1)
    n = model.node("Div", [x, model.node("Sqrt", [v])], broadcast=1)
    model.output(model.node("Mul", [n, model.weight(8)], broadcast=1, axis=1))
    assert [op.kind for op in recognised(model.data()).ops] == ["RMSNormalization", "Mul"]


def test_a_normalised_axis_of_unknown_extent_keeps_the_nodes() -> None:
    """A scale of ones would have to be as long as the axis is at run time."""

    def kinds(*shape: int | str) -> list[str]:
        model = Model()
        model.output(rms_norm_one_over(model, model.input(shape, "x")))
        data = model.data()
        graph = LowerModel(dims={"d": 8}).run(ReadModel().run(ModelSource.from_bytes(data)))
        return [op.kind for op in RecognisePatterns(source=ModelSource.from_bytes(data)).run(graph).ops]

    assert kinds("d", 8) == ["RMSNormalization"]
    assert "Sqrt" in kinds(8, "d")


def test_new_constants_get_names_that_nothing_has() -> None:
    model = Model()
    y = rms_norm_one_over(model, model.input([4, 8], "x"))
    model.output(model.node("Add", [y, model.constant(np.full(8, 3.0), name=f"{y}/scale", dtype=np.float32)]))
    proto = model.proto()
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["RMSNormalization", "Add"]
    assert_same_values(proto, graph)


def test_a_computed_scale_stays_behind_the_normalisation() -> None:
    def build(m: Model, x: str) -> str:
        v = m.node("Add", [mean(m, m.node("Mul", [x, x]), -1), s(m, 1e-6)])
        n = m.node("Div", [x, m.node("Sqrt", [v])])
        return m.node("Mul", [n, m.input([8], "scale")])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["RMSNormalization", "Mul"]
    assert_same_values(proto, graph)


def converted_rms_norm(m: Model, x: str) -> str:
    """Llama in half precision: normalised in float32, scaled in float16."""
    wide = m.node("Cast", [x], to=TensorProto.FLOAT)
    v = m.node("Add", [mean(m, m.node("Pow", [wide, s(m, 2)]), -1), s(m, 1e-6)])
    n = m.node("Mul", [wide, m.node("Reciprocal", [m.node("Sqrt", [v])])])
    narrow = m.node("Cast", [n], to=TensorProto.FLOAT16)
    return m.node("Mul", [m.constant(np.linspace(0.5, 2, 8), dtype=np.float16), narrow])


def converted_twice(m: Model, x: str) -> str:
    """T5 in half precision by TorchScript: x is converted twice."""
    first, second = (m.node("Cast", [x], to=TensorProto.FLOAT) for _ in range(2))
    v = m.node("Add", [mean(m, m.node("Pow", [first, s(m, 2)]), -1), s(m, 1e-6)])
    n = m.node("Mul", [second, m.node("Div", [s(m, 1), m.node("Sqrt", [v])])])
    narrow = m.node("Cast", [n], to=TensorProto.FLOAT16)
    return m.node("Mul", [m.constant(np.linspace(0.5, 2, 8), dtype=np.float16), narrow])


def converted_in_between(m: Model, x: str) -> str:
    """LayerNorm in half precision: the difference is converted, the quotient back."""
    d = m.node("Cast", [m.node("Sub", [x, mean(m, x, -1)])], to=TensorProto.FLOAT)
    v = m.node("Add", [mean(m, m.node("Pow", [d, s(m, 2)]), -1), s(m, 1e-5)])
    n = m.node("Cast", [m.node("Div", [d, m.node("Sqrt", [v])])], to=TensorProto.FLOAT16)
    scaled = m.node("Mul", [n, m.constant(np.linspace(0.5, 2, 8), dtype=np.float16)])
    return m.node("Add", [scaled, m.constant(np.linspace(-1, 1, 8), dtype=np.float16)])


@pytest.mark.parametrize("build", [converted_rms_norm, converted_twice, converted_in_between])
def test_conversions_around_a_normalisation_are_part_of_it(build: Build) -> None:
    proto = model_of(build, TensorProto.FLOAT16)
    graph = recognised(proto.SerializeToString())
    (op,) = graph.ops
    assert op.kind.endswith("Normalization")
    assert op.origin == tuple(f"n{index}" for index in range(len(proto.graph.node)))
    assert_same_values(proto, graph, 5e-3)


def test_a_scale_applied_before_the_conversion_back_leaves_the_conversions_outside() -> None:
    """Gemma: scaled in float32, so that is where the op computes."""

    def build(m: Model, x: str) -> str:
        wide = m.node("Cast", [x], to=TensorProto.FLOAT)
        v = m.node("Add", [mean(m, m.node("Pow", [wide, s(m, 2)]), -1), s(m, 1e-6)])
        n = m.node("Mul", [wide, m.node("Reciprocal", [m.node("Sqrt", [v])])])
        return m.node("Cast", [m.node("Mul", [n, m.weight(8)])], to=TensorProto.FLOAT16)

    proto = model_of(build, TensorProto.FLOAT16)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Cast", "RMSNormalization", "Cast"]
    assert_same_values(proto, graph, 5e-3)


def test_a_conversion_to_a_third_type_leaves_the_conversions_outside() -> None:
    def build(m: Model, x: str) -> str:
        wide = m.node("Cast", [x], to=TensorProto.FLOAT)
        v = m.node("Add", [mean(m, m.node("Pow", [wide, s(m, 2)]), -1), s(m, 1e-6)])
        n = m.node("Mul", [wide, m.node("Reciprocal", [m.node("Sqrt", [v])])])
        return m.node("Cast", [n], to=TensorProto.BFLOAT16)

    graph = recognised(model_of(build, TensorProto.FLOAT16).SerializeToString())
    assert [op.kind for op in graph.ops] == ["Cast", "RMSNormalization", "Cast"]


def test_a_conversion_that_somebody_else_reads_stays_before_the_normalisation() -> None:
    def build(m: Model, x: str) -> str:
        wide = m.node("Cast", [x], to=TensorProto.FLOAT)
        v = m.node("Add", [mean(m, m.node("Pow", [wide, s(m, 2)]), -1), s(m, 1e-6)])
        n = m.node("Mul", [wide, m.node("Reciprocal", [m.node("Sqrt", [v])])])
        return m.node("Cast", [m.node("Add", [wide, n])], to=TensorProto.FLOAT16)

    proto = model_of(build, TensorProto.FLOAT16)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Cast", "RMSNormalization", "Add", "Cast"]
    assert_same_values(proto, graph, 5e-3)


def test_a_conversion_to_a_narrower_type_in_between_keeps_the_nodes() -> None:
    def build(m: Model, x: str) -> str:
        narrow = m.node("Cast", [m.node("Mul", [x, x])], to=TensorProto.FLOAT16)
        average = m.node("Cast", [mean(m, narrow, -1)], to=TensorProto.FLOAT)
        return m.node("Div", [x, m.node("Sqrt", [m.node("Add", [average, s(m, 1e-3)])])])

    graph = recognised(model_of(build).SerializeToString())
    assert graph.patterns == ()
    assert len(graph.ops) == 7
