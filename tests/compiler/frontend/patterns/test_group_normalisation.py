"""GroupNorm as exporters and people write it, and what is none (IMPORT-8)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from compiler.frontend.lower import LowerModel
from compiler.frontend.patterns import RecognisePatterns
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.ir.graph import Graph
from compiler.ir.pattern import Pattern
from tests.compiler.frontend.patterns.forms import mean
from tests.compiler.frontend.patterns.harness import (
    assert_same_values,
    exposed,
    lowered,
    mutants,
    recognised,
    s,
)
from tests.models import Model

CHANNELS, GROUPS = 6, 3
SHAPE = (2, CHANNELS, 4, 5)


def by_instance(m: Model, x: str, scale: str, bias: str, back: tuple[int, ...] = SHAPE) -> str:
    """The middle of all exporters: seen as groups, normalised, seen as channels."""
    grouped = m.node("Reshape", [x, m.ints(0, GROUPS, -1)])
    return m.node("Reshape", [m.node("InstanceNormalization", [grouped, scale, bias], epsilon=1e-3), m.ints(*back)])


def affine(m: Model, normal: str, *shape: int) -> str:
    return m.node("Add", [m.node("Mul", [normal, m.weight(*shape)]), m.weight(*shape)])


def plain(m: Model, x: str) -> str:
    """TorchScript and Dynamo: scale 1 and bias 0 for groups, then those of channels."""
    return affine(m, by_instance(m, x, s(m, 1, shape=(GROUPS,)), s(m, 0, shape=(GROUPS,))), CHANNELS, 1, 1)


def four_axes(m: Model, x: str) -> str:
    """Scale and bias with an axis for each of the data's, and on the left."""
    n = by_instance(m, x, s(m, 1, shape=(GROUPS,)), s(m, 0, shape=(GROUPS,)))
    scaled = m.node("Mul", [m.weight(1, CHANNELS, 1, 1), n])
    return m.node("Add", [m.weight(1, CHANNELS, 1, 1), scaled])


def without_affine(m: Model, x: str) -> str:
    return by_instance(m, x, s(m, 1, shape=(GROUPS,)), s(m, 0, shape=(GROUPS,)))


def without_bias(m: Model, x: str) -> str:
    return m.node("Mul", [without_affine(m, x), m.weight(CHANNELS, 1, 1)])


def without_scale(m: Model, x: str) -> str:
    return m.node("Add", [without_affine(m, x), m.weight(CHANNELS, 1, 1)])


def own_affine(m: Model, x: str) -> str:
    """The InstanceNormalization has a scale and a bias that do something."""
    return affine(m, by_instance(m, x, m.weight(GROUPS), m.weight(GROUPS)), CHANNELS, 1, 1)


def only_own_affine(m: Model, x: str) -> str:
    return by_instance(m, x, m.weight(GROUPS), m.weight(GROUPS))


def by_parts(m: Model, x: str) -> str:
    """Written by hand: mean and variance over all that a group has."""
    y = m.node("Reshape", [x, m.ints(2, GROUPS, CHANNELS // GROUPS, 4, 5)])
    d = m.node("Sub", [y, m.node("ReduceMean", [y], axes=[2, 3, 4])])
    variance = m.node("ReduceMean", [m.node("Pow", [d, s(m, 2)])], axes=[2, 3, 4])
    n = m.node("Div", [d, m.node("Sqrt", [m.node("Add", [variance, s(m, 1e-3)])])])
    return affine(m, m.node("Reshape", [n, m.ints(*SHAPE)]), CHANNELS, 1, 1)


def by_parts_flat(m: Model, x: str) -> str:
    y = m.node("Reshape", [x, m.ints(2, GROUPS, -1)])
    d = m.node("Sub", [y, mean(m, y, -1)])
    variance = mean(m, m.node("Mul", [d, d]), -1)
    n = m.node("Div", [d, m.node("Sqrt", [m.node("Add", [variance, s(m, 1e-3)])])])
    return affine(m, m.node("Reshape", [n, m.ints(*SHAPE)]), CHANNELS, 1, 1)


FORMS = (
    plain,
    four_axes,
    without_affine,
    without_bias,
    without_scale,
    own_affine,
    only_own_affine,
    by_parts,
    by_parts_flat,
)


def model_of(build: object, shape: tuple[int | str, ...] = SHAPE, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    model = Model(opset=17, seed=5)
    assert callable(build)
    model.output(build(model, model.input(shape, "x", dtype)), dtype)
    for index, node in enumerate(model.nodes):
        node.name = f"n{index}"
    return model.proto()


@pytest.mark.parametrize("build", FORMS)
def test_a_group_norm_becomes_one_op_of_the_same_values(build: object) -> None:
    """IMPORT-8"""
    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    (op,) = graph.ops
    attributes = dict(op.attributes)
    assert (op.kind, attributes["num_groups"], attributes["per_channel"]) == ("GroupNormalization", GROUPS, 1)
    assert attributes["epsilon"] == pytest.approx(1e-3)
    assert op.origin == tuple(f"n{index}" for index in range(len(proto.graph.node)))
    assert graph.patterns == (Pattern(kind="group-norm", ops=(op.output,), nodes=op.origin),)
    assert_same_values(proto, graph)


@pytest.mark.parametrize("build", [own_affine, by_parts])
def test_a_value_inside_a_group_norm_that_somebody_else_reads_stays(build: object) -> None:
    for name, proto in exposed(model_of(build)):
        graph = recognised(proto.SerializeToString())
        assert name in {op.output for op in graph.ops}
        assert_same_values(proto, graph)


@pytest.mark.parametrize("build", [plain, own_affine, by_parts])
def test_a_near_miss_of_a_group_norm_keeps_its_values(build: object) -> None:
    for proto in mutants(model_of(build)):
        assert_same_values(proto, recognised(proto.SerializeToString()))


def turned_back(m: Model, x: str) -> str:
    """Seen as other channels than those it had."""
    return by_instance(m, x, m.weight(GROUPS), m.weight(GROUPS), (2, 4, CHANNELS, 5))


def images_and_channels(m: Model, x: str) -> str:
    """A group takes half of the images, not some of the channels."""
    y = m.node("Reshape", [x, m.ints(1, GROUPS, -1)])
    n = m.node("InstanceNormalization", [y, m.weight(GROUPS), m.weight(GROUPS)])
    return m.node("Reshape", [n, m.ints(*SHAPE)])


def parts_of_channels(m: Model, x: str) -> str:
    """Four groups of six channels: a group has half of a channel."""
    y = m.node("Reshape", [x, m.ints(2, 4, -1)])
    n = m.node("InstanceNormalization", [y, m.weight(4), m.weight(4)])
    return m.node("Reshape", [n, m.ints(*SHAPE)])


def computed_scale(m: Model, x: str) -> str:
    return by_instance(m, x, m.input([GROUPS], "scale"), m.weight(GROUPS))


@pytest.mark.parametrize("build", [turned_back, images_and_channels, parts_of_channels, computed_scale])
def test_what_is_no_group_norm_stays(build: object) -> None:
    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert graph == lowered(proto.SerializeToString())
    assert_same_values(proto, graph)


@pytest.mark.parametrize("shape", [(), (5,), (4, 5), (CHANNELS, 4, 5)])
def test_a_factor_that_is_not_per_channel_stays_behind_a_group_norm(shape: tuple[int, ...]) -> None:
    proto = model_of(lambda m, x: m.node("Mul", [without_affine(m, x), m.weight(*shape)]))
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["GroupNormalization", "Mul"]
    assert_same_values(proto, graph)


def test_a_group_norm_by_parts_with_a_scale_inside_groups_stays_a_layer_norm() -> None:
    def build(m: Model, x: str) -> str:
        y = m.node("Reshape", [x, m.ints(2, GROUPS, -1)])
        n = m.node("LayerNormalization", [y, m.weight(40)], axis=2)
        return m.node("Reshape", [n, m.ints(*SHAPE)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Reshape", "LayerNormalization", "Reshape"]
    assert_same_values(proto, graph)


def test_views_beside_a_group_norm_stay_outside() -> None:
    """Attention of diffusion networks: positions are one axis before, between and behind."""

    def build(m: Model, x: str) -> str:
        flat = m.node("Reshape", [x, m.ints(2, CHANNELS, 20)])
        n = by_instance(m, flat, s(m, 1, shape=(GROUPS,)), s(m, 0, shape=(GROUPS,)), (2, CHANNELS, 20))
        return m.node("Reshape", [n, m.ints(*SHAPE)])

    proto = model_of(build)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Reshape", "GroupNormalization", "Reshape"]
    assert_same_values(proto, graph)


def imported(shape: tuple[int | str, ...], build: object) -> Graph:
    data = model_of(build, shape).SerializeToString()
    dims = {name: extent for name, extent in zip(shape, SHAPE, strict=True) if isinstance(name, str)}
    graph = LowerModel(dims=dims).run(ReadModel().run(ModelSource.from_bytes(data)))
    return RecognisePatterns(source=ModelSource.from_bytes(data)).run(graph)


def test_a_group_norm_is_recognised_with_free_dimensions_but_not_with_free_channels() -> None:
    def back(m: Model, x: str) -> str:
        grouped = m.node("Reshape", [x, m.ints(0, GROUPS, -1)])
        n = m.node("InstanceNormalization", [grouped, m.weight(GROUPS), m.weight(GROUPS)])
        return affine(m, m.node("Reshape", [n, m.node("Shape", [x])]), CHANNELS, 1, 1)

    (op,) = imported(("n", CHANNELS, "h", "w"), back).ops
    assert op.kind == "GroupNormalization"
    kinds = [op.kind for op in imported((2, "c", 4, 5), back).ops]
    assert "GroupNormalization" not in kinds
    assert "InstanceNormalization" in kinds


def test_a_group_norm_in_half_precision_keeps_its_values() -> None:
    def build(m: Model, x: str) -> str:
        one, none = (m.constant(np.full(GROUPS, value), dtype=np.float16) for value in (1, 0))
        scale = m.constant(np.linspace(0.5, 2, CHANNELS).reshape(-1, 1, 1), dtype=np.float16)
        return m.node("Mul", [by_instance(m, x, one, none), scale])

    proto = model_of(build, SHAPE, TensorProto.FLOAT16)
    graph = recognised(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["GroupNormalization"]
    assert_same_values(proto, graph, 5e-3)
