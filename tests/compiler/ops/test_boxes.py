"""Ops computed box by box equal the same boxes of the whole result, from nothing but the boxes that access demands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.errors import InternalError
from compiler.ops import OP_KINDS
from compiler.ops.base import Call, OpKind
from compiler.ops.slab import Box, Range, Slab, inside, is_empty
from tests.compiler.ops.calls import Values, resolved
from tests.compiler.ops.cases import CASES, Build, built, floats, ints, scalar, use
from tests.compiler.ops.test_access import prepared

Prepared = tuple[OpKind, Call, list[Values], Values]


def whole(build: Build, opset: int = 23, *, seed: int = 0) -> Prepared | None:
    """The op of the IR of a case, its operands whole, and its whole result; None where no op remains."""
    _, call, inferred, arrays = prepared(built(build, opset=opset))
    if inferred.source is not None:
        return None
    kind, op = OP_KINDS[inferred.kind], resolved(call, inferred)
    if seed:
        arrays = [shuffled(array, seed + i) for i, array in enumerate(arrays)]
    with np.errstate(all="ignore"):
        return kind, op, arrays, np.asarray(kind.compute(op, tuple(arrays)))


def shuffled(array: Values, seed: int) -> Values:
    """The same values elsewhere."""
    return np.random.default_rng(seed).permutation(array.reshape(-1)).reshape(array.shape)


def slabs_of(kind: OpKind, call: Call, arrays: list[Values], box: Box, margin: int = 0) -> tuple[Slab | None, ...]:
    """For each operand the box that access demands (made larger by `margin` positions); nothing else of it."""
    result: list[Slab | None] = []
    for maps, array in zip(kind.access(call), arrays, strict=True):
        assert maps is not None
        ranges = []
        for axis_map, extent in zip(maps, array.shape, strict=True):
            start, stop = (0, 1) if axis_map.axis is None else box[axis_map.axis]
            ranges.append(axis_map.project_one(start, stop, extent))
        if is_empty(tuple(ranges)):
            result.append(None)
            continue
        larger = tuple((max(0, a - margin), min(e, b + margin)) for (a, b), e in zip(ranges, array.shape, strict=True))
        result.append(Slab(larger, array[tuple(slice(*r) for r in larger)].copy()))
    return tuple(result)


def assert_equal(found: Values, expected: Values) -> None:
    """To the bit, floats up to the order of summation."""
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if found.dtype.kind in "biu":
        np.testing.assert_array_equal(found, expected)
        return
    rtol = 1e-5 if found.dtype == np.float32 else 1e-2
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-6)


def compare(case: Prepared, box: Box, margin: int = 0) -> None:
    """One box of a case against that box of the whole."""
    kind, call, arrays, result = case
    found = kind.compute_box(call, box, slabs_of(kind, call, arrays, box, margin))
    assert_equal(found, result[tuple(slice(*r) for r in box)])


@st.composite
def boxes(draw: st.DrawFn, shape: tuple[int, ...]) -> Box:
    """A box of at least one element."""
    result: list[Range] = []
    for extent in shape:
        start = draw(st.integers(0, extent - 1))
        result.append((start, draw(st.integers(start + 1, extent))))
    return tuple(result)


# Uses whose boxes need care, beside the cases that every kind has.
MORE: dict[str, tuple[int, Build]] = {
    "PRelu by channel": (6, use("PRelu", (2, 3, 4), (3,))),
    "Add from an axis": (6, use("Add", (2, 3, 4), (3,), broadcast=1, axis=1)),
    "Pow of integers": (15, use("Pow", (2, 5), ints(-1, 0, 1, 2, 40), dtype="int64")),
    "Conv groups of three": (23, use("Conv", (2, 6, 7), (9, 2, 3), (9,), group=3, pads=[2, 1], strides=[2])),
    "Conv depthwise": (23, use("Conv", (1, 3, 6, 5), (6, 1, 3, 3), (6,), group=3, pads=[1, 1, 1, 1])),
    "Conv far in the padding": (23, use("Conv", (1, 2, 3, 3), (2, 2, 2, 1), pads=[4, 3, 5, 2], strides=[1, 2])),
    "Conv of halves": (
        23,
        use("Conv", (1, 3, 6, 6), (4, 3, 3, 3), dtype="float16", dilations=[2, 1], pads=[2, 0, 1, 1]),
    ),
    "ConvTranspose of gaps": (23, use("ConvTranspose", (1, 2, 4, 3), (2, 3, 1, 2), (3,), strides=[3, 4])),
    "ConvTranspose of groups": (
        23,
        use("ConvTranspose", (2, 6, 4), (6, 2, 3), (6,), group=3, strides=[2], pads=[2, 1], output_padding=[1]),
    ),
    "AveragePool in the padding": (
        23,
        use("AveragePool", (1, 2, 6, 5), kernel_shape=[3, 2], pads=[2, 1, 2, 1], count_include_pad=1, strides=[2, 1]),
    ),
    "AveragePool dilated": (
        23,
        use(
            "AveragePool",
            (1, 1, 9, 7),
            kernel_shape=[3, 2],
            dilations=[2, 3],
            pads=[1, 1, 3, 2],
            strides=[2, 3],
            ceil_mode=1,
            count_include_pad=1,
        ),
    ),
    "MaxPool of bytes": (
        23,
        use("MaxPool", (1, 2, 7, 7), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1, dtype="int8"),
    ),
    "GroupNormalization by group": (18, use("GroupNormalization", (2, 6, 3), (3,), (3,), num_groups=3)),
    "LRN of many": (23, use("LRN", (1, 9, 2), size=4, alpha=1.0)),
    "QuantizeLinear of mixed ranks": (
        23,
        use("QuantizeLinear", (2, 3), scalar(np.float32(0.1)), {"is": np.ones(1, np.int8)}),
    ),
    "Softmax flattens": (9, use("Softmax", (2, 3, 4), axis=1)),
    "Upsample linear": (9, use("Upsample", (1, 1, 3, 4), floats(1, 1, 2, 2), mode="linear")),
    "DepthToSpace of more": (23, use("DepthToSpace", (1, 12, 2, 3), blocksize=2)),
    "DepthToSpace of more CRD": (23, use("DepthToSpace", (1, 12, 2, 3), blocksize=2, mode="CRD")),
    "SpaceToDepth of more": (23, use("SpaceToDepth", (2, 3, 4, 6), blocksize=2)),
    "SpaceToDepth CRD": (23, use("SpaceToDepth", (2, 3, 4, 6), blocksize=2, mode="CRD")),
    "Gather by threes": (23, use("Gather", (2, 7, 2), ints(1, 4), axis=1)),
    "Transpose of halves": (23, use("Transpose", (2, 3, 4), dtype="float16", perm=[1, 2, 0])),
    "Squeeze all": (23, use("Squeeze", (1, 1), ints(0, 1))),
}
ALL = {name: (23, build) for name, build in CASES.items()} | MORE


@pytest.mark.matrix(first=60, rest=99)
@pytest.mark.parametrize("name", sorted(ALL))
@settings(max_examples=12)
@given(data=st.data())
def test_a_box_from_its_operands_boxes_is_that_box_of_the_whole(name: str, data: st.DataObject) -> None:
    """SIM-1: a core has nothing else in its memory; every kind."""
    opset, build = ALL[name]
    case = whole(build, opset, seed=0 if name.startswith("Gather") else 1)
    if case is None:
        return
    box = data.draw(boxes(case[3].shape))
    compare(case, box, data.draw(st.sampled_from([0, 0, 1, 2])))


@pytest.mark.matrix(first=60, rest=99)
@pytest.mark.parametrize("name", sorted(ALL))
def test_every_single_element_is_computed_alone(name: str) -> None:
    opset, build = ALL[name]
    case = whole(build, opset, seed=0 if name.startswith("Gather") else 2)
    if case is None:
        return
    for element in np.ndindex(case[3].shape):
        compare(case, tuple((at, at + 1) for at in element))


def test_every_kind_is_computed_box_by_box() -> None:
    """Every op that remains of a case of each kind is compared; only what leaves no op is not."""
    compared = {case[0].kind for opset, build in ALL.values() if (case := whole(build, opset)) is not None}
    views = {
        "Identity",
        "Dropout",
        "Flatten",
        "Squeeze",
        "Unsqueeze",
        "Upsample",
    }  # of these another kind remains, or none
    assert compared == set(OP_KINDS) - views


@pytest.mark.matrix(first=60, rest=99)
@pytest.mark.parametrize("name", sorted(ALL))
@settings(max_examples=5)
@given(data=st.data())
def test_what_is_computed_around_a_box_reads_no_more_data_than_the_box(name: str, data: st.DataObject) -> None:
    """The cost of a box is that of its operands' boxes: nothing is computed whole and thrown away."""
    case = whole(ALL[name][1], ALL[name][0])
    if case is None:
        return
    kind, call, _, result = case
    box = data.draw(boxes(result.shape))
    assert kind.demanded(call, kind.enclosing(call, box))[0] == kind.demanded(call, box)[0]


def test_a_kind_that_says_nothing_of_boxes_is_computed_whole_and_cut() -> None:
    class Cautious(type(OP_KINDS["Transpose"])):  # type: ignore[misc]  # the class of a definition
        is_local = False

    _, call, arrays, result = whole(CASES["Transpose"]) or pytest.fail("no op")
    box = ((1, 3), (0, 1), (1, 3))
    kind = Cautious("Transpose")
    assert kind.enclosing(call, box) == ((0, 4), (0, 2), (0, 3))
    found = kind.compute_box(call, box, slabs_of(kind, call, arrays, box))
    np.testing.assert_array_equal(found, result[1:3, 0:1, 1:3])


@pytest.mark.parametrize("kind", ["Identity", "Dropout"])
def test_a_box_of_an_unchanged_input_is_its_box(kind: str) -> None:
    _, call, inferred, (array,) = prepared(built(CASES[kind]))
    box = ((0, 1), (1, 3))
    found = OP_KINDS[kind].compute_box(resolved(call, inferred), box, (Slab(box, array[0:1, 1:3]),))
    np.testing.assert_array_equal(found, array[0:1, 1:3])


def test_an_empty_box_is_computed_of_nothing() -> None:
    case = whole(CASES["Conv"])
    assert case is not None
    found = case[0].compute_box(case[1], ((0, 1), (1, 1), (0, 2), (0, 2)), (None, None, None))
    assert found.shape == (1, 0, 2, 2)
    assert found.dtype == np.float32


@pytest.mark.parametrize("name", ["Conv", "Softmax", "Relu", "GroupNormalization", "LRN"])
def test_an_operand_that_lacks_part_of_its_box_is_refused(name: str) -> None:
    """Nothing is made up where the caller moved too little."""
    case = whole(CASES[name])
    assert case is not None
    kind, call, arrays, result = case
    box = tuple((0, extent) for extent in result.shape)
    slabs = list(slabs_of(kind, call, arrays, box))
    first = slabs[0]
    assert first is not None
    less = ((0, first.ranges[0][1]), (0, first.ranges[1][1] - 1), *first.ranges[2:])
    for lacking in (None, Slab(less, first.values[inside(less, first.ranges)])):
        with pytest.raises(InternalError, match="operand 0 lacks values"):
            kind.compute_box(call, box, (lacking, *slabs[1:]))


def test_a_slab_whose_values_are_not_of_its_ranges_is_refused() -> None:
    with pytest.raises(InternalError):
        Slab(((0, 2), (1, 3)), np.zeros((2, 3), dtype=np.float32))
    with pytest.raises(InternalError):
        Slab(((0, 2), (1, 3)), np.zeros((2, 2), dtype=np.float32)).cut(((0, 2), (0, 2)))


def test_a_box_of_what_was_gathered_needs_no_table() -> None:
    """The transfer engine has read what the indices name; the indices are still an operand."""
    case = whole(CASES["Gather"])
    assert case is not None
    kind, call, arrays, result = case
    box = ((1, 2), (0, 1), (0, 2), (1, 4))
    larger = ((0, 2), (0, 2), (0, 2), (1, 4))
    indices = Slab(((0, 1), (0, 2)), arrays[1][0:1])
    found = kind.compute_box(call, box, (None, indices), gathered=Slab(larger, result[..., 1:4]))
    np.testing.assert_array_equal(found, result[1:2, 0:1, :, 1:4])
    relu = whole(CASES["Relu"])
    assert relu is not None
    with pytest.raises(InternalError, match="indices"):
        relu[0].compute_box(relu[1], ((0, 1), (0, 1)), (None,), gathered=indices)


def test_a_power_does_not_depend_on_its_neighbours_exponents() -> None:
    """A negative exponent elsewhere used to turn the whole tensor to double precision."""
    case = whole(use("Pow", (2,), ints(-1, 3), dtype="int64"))
    assert case is not None
    kind, call, _, _ = case
    base = np.array([2**20 + 1] * 2, dtype=np.int64)
    result = np.asarray(kind.compute(call, (base, np.array([-1, 3]))))
    assert result.tolist() == [0, (2**20 + 1) ** 3]
