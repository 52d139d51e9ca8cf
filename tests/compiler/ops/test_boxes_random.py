"""Boxes of random uses of the kinds with the most cases: windows, views, slices, paddings, resizing; partial sums."""

from __future__ import annotations

import itertools
from math import erf
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError, ModelError
from compiler.ops import OP_KINDS, compute_types, convolution
from compiler.ops.contraction import Product
from compiler.ops.slab import Box, Slab, inside
from tests.compiler.ops.cases import CASES, Build, floats, ints, use
from tests.compiler.ops.test_access import ROUNDINGS, TRANSFORMATIONS
from tests.compiler.ops.test_boxes import MORE, Prepared, assert_equal, boxes, compare, slabs_of, whole


def compare_some(data: st.DataObject, build: Build, opset: int = 23) -> None:
    """Some boxes of a use; uses that are not legal, or leave no op, are not looked at."""
    try:
        case = whole(build, opset)
    except ModelError:
        case = None
    assume(case is not None and case[3].size > 0)
    assert case is not None
    for _ in range(2):
        compare(case, data.draw(boxes(case[3].shape)))


def axes_of(data: st.DataObject, low: int, high: int, count: int) -> list[int]:
    """A number per axis."""
    return [data.draw(st.integers(low, high)) for _ in range(count)]


@settings(max_examples=80)
@given(st.data())
def test_boxes_of_any_window(data: st.DataObject) -> None:
    """Strides beyond the kernel, padding beyond the input, dilation, ceiling, groups."""
    kind = data.draw(st.sampled_from(["Conv", "ConvTranspose", "MaxPool", "AveragePool"]))
    rank = data.draw(st.integers(1, 2))
    kernel = axes_of(data, 1, 3, rank)
    attributes: dict[str, Any] = {
        "strides": axes_of(data, 1, 4, rank),
        "dilations": axes_of(data, 1, 3, rank),
        "pads": axes_of(data, 0, 4, 2 * rank),
    }
    group = data.draw(st.integers(1, 3))
    shape = [data.draw(st.integers(1, 2)), group * data.draw(st.integers(1, 2)), *axes_of(data, 1, 8, rank)]
    per_group = data.draw(st.integers(1, 3))
    if kind == "Conv":
        build = use(kind, shape, (group * per_group, shape[1] // group, *kernel), group=group, **attributes)
    elif kind == "ConvTranspose":
        build = use(kind, shape, (shape[1], per_group, *kernel), group=group, **attributes)
    else:
        attributes |= {"kernel_shape": kernel, "ceil_mode": data.draw(st.integers(0, 1))}
        if kind == "AveragePool":
            attributes["count_include_pad"] = data.draw(st.integers(0, 1))
        build = use(kind, shape, **attributes)
    compare_some(data, build)


@settings(max_examples=60)
@given(st.data())
def test_boxes_of_any_reshape(data: st.DataObject) -> None:
    factors = data.draw(st.lists(st.sampled_from([1, 2, 2, 3, 4]), min_size=1, max_size=5))

    def grouped() -> list[int]:
        cuts = sorted(set(axes_of(data, 0, len(factors), data.draw(st.integers(0, 4)))))
        bounds = [0, *cuts, len(factors)]
        return [int(np.prod(factors[a:b])) for a, b in itertools.pairwise(bounds)]

    source = grouped()
    target = data.draw(st.permutations(grouped()))
    compare_some(data, use("Reshape", source, ints(*target)))


@settings(max_examples=60)
@given(st.data())
def test_boxes_of_any_slice_padding_and_tile(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
    count = len(shape)
    match data.draw(st.sampled_from(["Slice", "Pad", "Tile"])):
        case "Slice":
            steps = [data.draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
            starts, ends = axes_of(data, -7, 7, count), axes_of(data, -7, 7, count)
            build = use("Slice", shape, ints(*starts), ints(*ends), ints(*range(count)), ints(*steps))
        case "Pad":
            mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
            pads = axes_of(data, 0 if mode == "wrap" else -2, 8, 2 * count)
            build = use("Pad", shape, ints(*pads), None, mode=mode)
        case _:
            build = use("Tile", shape, ints(*axes_of(data, 1, 3, count)))
    compare_some(data, build)


@settings(max_examples=80)
@given(st.data())
def test_boxes_of_any_resize(data: st.DataObject) -> None:
    """Every coordinate transformation and rounding, scales and sizes."""
    transformation = data.draw(st.sampled_from(TRANSFORMATIONS.split()))
    attributes: dict[str, Any] = {
        "mode": data.draw(st.sampled_from(["nearest", "linear"])),
        "coordinate_transformation_mode": transformation,
        "nearest_mode": data.draw(st.sampled_from(ROUNDINGS.split())),
    }
    shape = axes_of(data, 1, 7, 2)
    if data.draw(st.booleans()) or transformation == "align_corners":
        given_as: tuple[Any, ...] = (floats(), ints(*axes_of(data, 1, 9, 2)))
    else:
        scales = [data.draw(st.sampled_from([0.5, 0.6, 0.75, 1, 1.3333334, 1.5, 2, 2.7, 3])) for _ in shape]
        assume(all(int(extent * scale) for extent, scale in zip(shape, scales, strict=True)))
        given_as = (floats(*scales),)
    compare_some(data, use("Resize", shape, floats(), *given_as, **attributes), opset=11)


PRODUCTS = ("Conv", "ConvTranspose", "MatMul", "Gemm")
SUMS = {
    **{name: (23, build) for name, build in CASES.items() if name.split()[0] in PRODUCTS},
    **{name: found for name, found in MORE.items() if name.split()[0] in PRODUCTS},
    "Gemm of halves": (23, use("Gemm", (5, 3), (3, 4), (4,), alpha=0.5, dtype="float16")),
    "Gemm without C": (23, use("Gemm", (5, 3), (4, 3), transB=1)),
    "Gemm of integers": (23, use("Gemm", (5, 3), (4, 3), (5, 1), transB=1, dtype="int64")),
    "MatMul of vectors": (23, use("MatMul", (4,), (4,))),
    "MatMul of a vector": (23, use("MatMul", (4,), (2, 4, 3))),
}


def parts_of(slab: Slab | None, axis: int, bounds: list[int]) -> list[Slab | None]:
    """A slab cut at positions of one axis."""
    if slab is None:
        return [None] * (len(bounds) - 1)
    boxes_ = [(*slab.ranges[:axis], part, *slab.ranges[axis + 1 :]) for part in itertools.pairwise(bounds)]
    return [Slab(box, slab.values[inside(box, slab.ranges)]) for box in boxes_]


@pytest.mark.parametrize("name", sorted(SUMS))
@settings(max_examples=10)
@given(data=st.data())
def test_partial_sums_add_up_to_the_whole(name: str, data: st.DataObject) -> None:
    """The summed axis cut anywhere; factors, the third input and narrowing only at the end."""
    case = whole(SUMS[name][1], SUMS[name][0], seed=3)
    assert case is not None
    kind, call, arrays, result = case
    assert isinstance(kind, Product)
    axes = kind.summed(call)
    box = data.draw(boxes(result.shape))
    slabs = slabs_of(kind, call, arrays, box)
    if axes is None:
        assert call.integer("group", 1) > 1
        with pytest.raises(InternalError, match="groups"):
            kind.compute_box(call, box, slabs, partial=True)
        return
    of_data, of_weight = axes
    assert of_data is not None
    assert of_weight is not None
    extent = arrays[1].shape[of_weight]
    bounds = sorted({0, extent, *data.draw(st.lists(st.integers(0, extent), max_size=3))})
    pairs = zip(parts_of(slabs[0], of_data, bounds), parts_of(slabs[1], of_weight, bounds), strict=True)
    found = [kind.compute_box(call, box, (a, b, *slabs[2:]), partial=True) for a, b in pairs]
    wide = {"float16": "float32"}.get(call.result.dtype, call.result.dtype)
    assert {part.dtype.name for part in found} == {wide}
    total = np.asarray(np.sum(found, axis=0, dtype=wide))
    finished = kind.finish(call, box, total, slabs[2:])
    assert_equal(finished, result[tuple(slice(*r) for r in box)])


def a_convolution() -> tuple[Prepared, Box, tuple[Slab | None, ...]]:
    case = whole(CASES["Conv"])
    assert case is not None
    box = ((0, 1), (1, 3), (0, 1), (1, 3))
    return case, box, slabs_of(case[0], case[1], case[2], box)


def test_parts_of_different_ranges_are_not_multiplied() -> None:
    (kind, call, _, _), box, slabs = a_convolution()
    assert isinstance(kind, Product)
    data, weight = parts_of(slabs[0], 1, [0, 1, 2]), parts_of(slabs[1], 1, [0, 1, 2])
    with pytest.raises(InternalError, match="different parts"):
        kind.compute_box(call, box, (data[0], weight[1]), partial=True)
    with pytest.raises(InternalError, match="lacks values"):
        kind.compute_box(call, box, (None, weight[1]), partial=True)


def test_a_bias_is_not_forgotten() -> None:
    (kind, call, _, _), box, slabs = a_convolution()
    assert isinstance(kind, Product)
    sums = kind.compute_box(call, box, slabs, partial=True)
    with pytest.raises(InternalError, match="finish a sum"):
        kind.finish(call, box, sums, ())


def test_a_partial_sum_of_an_empty_box_is_of_the_accumulators_type() -> None:
    case = whole(SUMS["Conv of halves"][1])
    assert case is not None
    kind, call, _, _ = case
    assert isinstance(kind, Product)
    found = kind.compute_box(call, ((0, 1), (1, 1), (0, 1), (1, 3)), (None, None), partial=True)
    assert found.shape == (1, 0, 1, 2)
    assert found.dtype == np.float32


def test_every_product_is_summed_in_parts() -> None:
    kinds = {kind.kind for kind in OP_KINDS.values() if isinstance(kind, Product)}
    assert kinds == {name.split()[0] for name in SUMS} == set(PRODUCTS)


def test_a_convolution_whose_columns_are_many_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    build = use("Conv", (2, 3, 7, 4), (4, 3, 2, 3), (4,), pads=[1, 0, 1, 1])
    case = whole(build)
    assert case is not None
    per_row = 2 * 3 * 2 * 3 * 3
    for rows in (0, 1, 3):
        monkeypatch.setattr(convolution, "_LARGEST_COLUMNS", rows * per_row)
        compare(case, tuple((0, extent) for extent in case[3].shape))


def test_an_error_function_of_many_values_is_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.linspace(-7, 7, 24, dtype=np.float32).reshape(4, 6)
    monkeypatch.setattr(compute_types, "_CACHED", 7)
    expected = [erf(float(value)) for value in values.reshape(-1)]
    np.testing.assert_allclose(compute_types.error_function(values).reshape(-1), expected, rtol=1e-6)
    assert compute_types.error_function(np.array(0.5, dtype=np.float32)).shape == ()
