"""Projection against the truth: which input elements an output box depends on, found by changing each of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from compiler.tiling.geometry import GroupGeometry
from tests.compiler.brute import Box, dependencies, mask_hull, needed_mask, project_group, volume
from tests.models import Model, error_of
from tests.strategies import models

Build = Callable[[Model], str]


def conv(shape: tuple[int, ...], filters: int, kernel: tuple[int, ...], **attributes: Any) -> Build:
    """A convolution of any rank."""

    def build(model: Model) -> str:
        x = model.input(shape, "x")
        weight = model.weight(filters, shape[1] // attributes.get("group", 1), *kernel)
        return model.node("Conv", [x, weight, model.weight(filters)], **attributes)

    return build


def deconv(shape: tuple[int, ...], filters: int, kernel: tuple[int, ...], **attributes: Any) -> Build:
    """A transposed convolution."""

    def build(model: Model) -> str:
        x = model.input(shape, "x")
        weight = model.weight(shape[1], filters // attributes.get("group", 1), *kernel)
        return model.node("ConvTranspose", [x, weight], **attributes)

    return build


def unary(kind: str, shape: tuple[int, ...], **attributes: Any) -> Build:
    """A node with one input."""
    return lambda model: model.node(kind, [model.input(shape, "x")], **attributes)


def with_ints(kind: str, shape: tuple[int, ...], *lists: tuple[int, ...] | None, **attributes: Any) -> Build:
    """A node whose further inputs are lists of integers."""

    def build(model: Model) -> str:
        extra = ["" if values is None else model.ints(*values) for values in lists]
        return model.node(kind, [model.input(shape, "x"), *extra], **attributes)

    return build


def binary(
    kind: str, shape: tuple[int, ...], other: tuple[int, ...], *, first: bool = True, **attributes: Any
) -> Build:
    """A node with a second operand of another shape; `x` is the first or the second."""

    def build(model: Model) -> str:
        x, y = model.input(shape, "x"), model.weight(*other)
        return model.node(kind, [x, y] if first else [y, x], **attributes)

    return build


# Kinds whose dependence is a product of ranges per axis: the box must be the tight hull.
TIGHT: dict[str, Build] = {
    "conv 3x3": conv((1, 2, 6, 5), 3, (3, 3), pads=[1, 1, 1, 1]),
    "conv stride and asymmetric pads": conv((2, 1, 7, 6), 2, (3, 2), strides=[2, 3], pads=[0, 1, 2, 0]),
    "conv dilated": conv((1, 1, 9, 8), 1, (3, 2), dilations=[2, 3]),
    "conv kernel smaller than stride": conv((1, 1, 8, 8), 1, (1, 2), strides=[3, 3]),
    "conv grouped": conv((1, 4, 3, 3), 6, (3, 3), group=2),
    "conv depthwise": conv((1, 3, 4, 4), 6, (3, 3), group=3, pads=[1, 1, 1, 1]),
    "conv 1-d": conv((1, 2, 7), 2, (3,), strides=[2], pads=[1, 0]),
    "conv 3-d": conv((1, 1, 4, 3, 3), 2, (2, 2, 2)),
    "conv same lower": conv((1, 1, 5, 6), 1, (2, 4), strides=[2, 2], auto_pad="SAME_LOWER"),
    "transposed conv": deconv((1, 2, 4, 3), 2, (3, 3), strides=[2, 1], pads=[1, 0, 0, 1]),
    "transposed conv without overlap": deconv((1, 1, 3, 3), 1, (2, 2), strides=[2, 2]),
    "transposed conv grouped": deconv((1, 4, 3, 2), 2, (2, 2), group=2, output_padding=[1, 0], strides=[2, 2]),
    "max pool": unary("MaxPool", (1, 2, 6, 6), kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 0]),
    "max pool dilated": unary("MaxPool", (1, 1, 7, 7), kernel_shape=[2, 3], dilations=[2, 2]),
    "average pool ceil": unary("AveragePool", (1, 1, 6, 5), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    "global average pool": unary("GlobalAveragePool", (2, 2, 3, 4)),
    "relu": unary("Relu", (1, 2, 3, 4)),
    "add broadcast row": binary("Add", (1, 2, 3, 4), (2, 1, 4)),
    "add broadcast into x": binary("Add", (4,), (2, 3, 4)),
    "mul broadcast of x's extent 1": binary("Mul", (1, 2, 1, 4), (2, 2, 3, 4)),
    "softmax": unary("Softmax", (2, 3, 4), axis=1),
    "reduce mean keepdims": unary("ReduceMean", (2, 3, 4), axes=[1]),
    "reduce mean without keepdims": unary("ReduceMean", (2, 3, 4), axes=[0, 2], keepdims=0),
    "transpose": unary("Transpose", (2, 3, 4), perm=[2, 0, 1]),
    "concat": binary("Concat", (1, 2, 3), (1, 4, 3), axis=1),
    "concat behind": binary("Concat", (1, 2, 3), (1, 4, 3), first=False, axis=1),
    "slice with steps": with_ints("Slice", (2, 6, 7), (1, -6), (6, 6), (1, 2), (2, 3)),
    "pad": with_ints("Pad", (2, 3, 4), (0, 1, 2, 0, 0, 3)),
    "crop by negative pad": with_ints("Pad", (1, 5, 6), (0, -1, 1, 0, -2, -1)),
    "expand": with_ints("Expand", (1, 3, 1), (2, 3, 4)),
    "resize nearest": with_ints("Resize", (1, 1, 3, 4), None, None, (1, 1, 6, 12), mode="nearest"),
    "unsqueeze": with_ints("Unsqueeze", (2, 3), (0, 2)),
    "matmul left": binary("MatMul", (2, 3, 4), (4, 5)),
    "matmul right batched": binary("MatMul", (1, 4, 3), (2, 2, 4), first=False),
    "matmul vector": binary("MatMul", (4,), (4, 3)),
    "gemm": binary("Gemm", (3, 4), (4, 2)),
    "gemm transposed": binary("Gemm", (4, 3), (2, 4), transA=1, transB=1),
    "gemm right": binary("Gemm", (4, 2), (3, 4), first=False),
    "batch normalisation": lambda model: model.norm(model.input((1, 3, 2, 2), "x"), 3),
}
# Kinds for which the box is allowed to be larger than what is needed, never smaller.
SAFE: dict[str, Build] = {
    "transposed conv dilated": deconv((1, 1, 4, 4), 1, (2, 2), dilations=[2, 2], strides=[1, 1]),
    "flatten": unary("Flatten", (2, 3, 4), axis=1),
    "reshape splits an inner axis": with_ints("Reshape", (2, 3, 4), (2, 3, 2, 2)),
    "space to depth": unary("SpaceToDepth", (1, 1, 4, 6), blocksize=2),
    "depth to space DCR": unary("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="DCR"),
    "depth to space CRD": unary("DepthToSpace", (1, 8, 2, 3), blocksize=2, mode="CRD"),
    "reshape across axes": with_ints("Reshape", (4, 6), (8, 3)),
    "reshape without common strides": with_ints("Reshape", (4, 6), (6, 4)),
    "reshape merges": with_ints("Reshape", (2, 3, 4), (6, 4)),
    "reshape splits": with_ints("Reshape", (12, 2), (3, 4, 2)),
    "lrn": unary("LRN", (1, 6, 2, 2), size=3),
    "resize asymmetric ceil": with_ints(
        "Resize",
        (1, 1, 2, 4),
        None,
        None,
        (1, 1, 2, 12),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "layer normalisation": binary("LayerNormalization", (2, 3, 4), (4,)),
    "instance normalisation": lambda model: model.node(
        "InstanceNormalization", [model.input((1, 2, 3, 3), "x"), model.weight(2), model.weight(2)]
    ),
    "dilated conv at its border": conv((1, 1, 5, 5), 1, (2, 2), dilations=[3, 3], pads=[2, 2, 2, 2]),
}


def random_boxes(shape: tuple[int, ...], count: int) -> list[Box]:
    """Seeded boxes of a tensor, the whole one first."""
    random = np.random.default_rng(7)
    boxes: list[Box] = [tuple((0, extent) for extent in shape)]
    for _ in range(count):
        pairs = [sorted(random.choice(extent + 1, 2, replace=False).tolist()) for extent in shape]
        boxes.append(tuple((low, high) for low, high in pairs))
    return boxes


def projected(geometry: GroupGeometry, name: str, box: Box) -> Box:
    """The input box for one output box, by GroupGeometry.project."""
    output = geometry.output
    grids = {axis: (np.array([low]), np.array([high])) for axis, (low, high) in zip(output.axes, box, strict=True)}
    return tuple((int(starts[0]), int(stops[0])) for _, starts, stops in geometry.project(grids)[name])


def compare(build: Build, *, tight: bool) -> None:
    """Check many boxes of one op against its dependence."""
    model = Model(opset=17)
    out = model.output(build(model))
    facts = model.facts()
    shape, target = facts.tensors["x"].shape, facts.tensors[out].shape
    values: NDArray[np.float32] = model.random.random(shape).astype(np.float32) + 0.5
    (dependence,) = dependencies(model.proto(), {"x": values}, "x")
    geometry = GroupGeometry(facts, range(len(facts.ops)))
    for box in random_boxes(target, 60):
        needed = mask_hull(needed_mask(dependence, target, shape, box))
        found = projected(geometry, "x", box)
        if needed is None:
            continue
        inside = all(f[0] <= n[0] and n[1] <= f[1] for f, n in zip(found, needed, strict=True))
        assert inside, f"box {box} needs {needed}, projected {found}"
        assert not tight or found == needed, f"box {box} needs {needed}, projected {found}"


@pytest.mark.parametrize("case", sorted(TIGHT))
def test_projection_is_the_tight_hull_of_what_a_box_needs(case: str) -> None:
    """TILE-1, per op kind."""
    compare(TIGHT[case], tight=True)


@pytest.mark.parametrize("case", sorted(SAFE))
def test_projection_contains_what_a_box_needs(case: str) -> None:
    """TILE-1, for kinds whose dependence is no product of ranges."""
    compare(SAFE[case], tight=False)


@pytest.mark.parametrize(
    ("transformation", "nearest"),
    [
        ("asymmetric", "round_prefer_floor"),
        ("asymmetric", "round_prefer_ceil"),
        ("asymmetric", "ceil"),
        ("align_corners", "round_prefer_floor"),
        ("half_pixel", "round_prefer_floor"),
        ("half_pixel", "floor"),
    ],
)
def test_resize_projects_what_its_rounding_reads_or_is_refused(transformation: str, nearest: str) -> None:
    """Every coordinate transformation reads other elements; one that is not modelled must not be accepted."""
    build = with_ints(
        "Resize",
        (1, 1, 1, 4),
        None,
        None,
        (1, 1, 1, 12),
        mode="nearest",
        coordinate_transformation_mode=transformation,
        nearest_mode=nearest,
    )
    error = error_of(lambda: compare(build, tight=False))
    assert error is None or error.code == "unsupported_op", error


@settings(max_examples=40)
@given(models(max_ops=5, max_extent=7), st.randoms(use_true_random=False))
def test_projection_of_a_whole_network_contains_what_its_output_needs(model: Model, random: Any) -> None:
    """TILE-1: union over consumers, through any mixture of ops."""
    facts = model.facts()
    proto = model.proto()
    feeds = {
        value.name: model.random.random([d.dim_value for d in value.type.tensor_type.shape.dim]).astype(np.float32)
        for value in model.inputs
    }
    for number, name in enumerate(facts.graph.output_names):
        ops = ancestors(facts.graph.producer, facts, name)
        geometry = GroupGeometry(facts, ops)
        if len(geometry.outputs) != 1:
            continue
        target = facts.tensors[name].shape
        box = tuple(
            (low, low + random.randint(1, extent - low)) for extent in target for low in [random.randint(0, extent - 1)]
        )
        boxes = project_group(facts, geometry, box)
        for source in geometry.inputs:
            shape = facts.tensors[source].shape
            dependence = dependencies(proto, feeds, source)[number]
            needed = mask_hull(needed_mask(dependence, target, shape, box))
            found = projected(geometry, source, box)
            if needed is None:
                continue
            assert volume(boxes[source]) > 0
            for axis_found, axis_needed in zip(found, needed, strict=True):
                assert axis_found[0] <= axis_needed[0] <= axis_needed[1] <= axis_found[1]


def ancestors(producer: Any, facts: Any, name: str) -> list[int]:
    """The ops that make a tensor, and all before them."""
    found: set[int] = set()
    pending = [name]
    while pending:
        index = producer.get(pending.pop())
        if index is not None and index not in found:
            found.add(index)
            pending.extend(o.tensor for o in facts.ops[index].operands if not o.constant)
    return sorted(found)
