"""Values of every kind against ONNX Runtime: the cases of all kinds, and what only older operator sets have."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from compiler.ops import OP_KINDS
from tests.compiler.ops.calls import Values, call_of_node, evaluated
from tests.compiler.ops.cases import CASES, Build, built, feeds_of, floats, ints, scalar, use
from tests.models import Model

OLD: dict[str, tuple[int, Build]] = {
    "Softmax flattens": (9, use("Softmax", (2, 3, 4), axis=1)),
    "LogSoftmax flattens": (11, use("LogSoftmax", (2, 3, 4))),
    "Clip by attributes": (9, use("Clip", (2, 3), min=0.5, max=1.5)),
    "Slice by attributes": (9, use("Slice", (4, 5), starts=[1, -3], ends=[3, 9], axes=[0, 1])),
    "Pad by attributes": (9, use("Pad", (2, 3), pads=[1, 0, 0, 2], value=2.5)),
    "Pad edge by attributes": (9, use("Pad", (2, 3), pads=[1, 0, 0, 2], mode="edge")),
    "Upsample nearest": (9, use("Upsample", (1, 1, 2, 3), floats(1, 1, 2, 3))),
    "Upsample linear": (9, use("Upsample", (1, 1, 2, 3), floats(1, 1, 2, 2), mode="linear")),
    "Resize of opset 10": (10, use("Resize", (1, 1, 4, 4), floats(1, 1, 0.5, 2))),
    "Resize linear of opset 10": (10, use("Resize", (1, 1, 4, 4), floats(1, 1, 0.5, 2), mode="linear")),
    "ReduceSum by attributes": (11, use("ReduceSum", (2, 3, 4), axes=[0, -1], keepdims=0)),
    "ReduceMean of integers": (13, use("ReduceMean", (2, 3), axes=[1], dtype="int32")),
    "BatchNormalization": (9, use("BatchNormalization", (1, 2, 3), (2,), (2,), (2,), floats(0.5, 2))),
    "Dropout": (7, use("Dropout", (2, 3), ratio=0.9)),
    "GroupNormalization by group": (18, use("GroupNormalization", (2, 4, 3), (2,), (2,), num_groups=2)),
    "Squeeze by attributes": (11, use("Squeeze", (2, 1, 3), axes=[1])),
    "Unsqueeze by attributes": (11, use("Unsqueeze", (2, 3), axes=[0, -1])),
    "Gemm without C": (11, use("Gemm", (2, 3), (3, 2), transA=0)),
    "MaxPool of opset 8": (8, use("MaxPool", (1, 1, 5, 5), kernel_shape=[2, 2], auto_pad="SAME_LOWER")),
    "Gather of opset 1": (9, use("Gather", (3, 2), ints(-1, 0))),
    "Mean without broadcasting": (7, use("Mean", (2, 3), (2, 3))),
    "QuantizeLinear of opset 10": (10, use("QuantizeLinear", (2, 3), scalar(np.float32(0.1)), scalar(np.uint8(3)))),
    "Div of integers": (14, use("Div", (2, 3), ints(2, -3, 4), dtype="int64")),
    "Pow of mixed types": (15, use("Pow", (2, 3), floats(2, 0.5, 3), dtype="int32")),
    "Relu in half": (14, use("Relu", (2, 3), dtype="float16")),
    "Softmax in half": (13, use("Softmax", (2, 3), dtype="float16")),
}


def compare(build: Build, *, opset: int, reference: bool = False) -> None:
    """The definition's values of a model's only node against ONNX Runtime's (or ONNX's reference)."""
    model = built(build, opset=opset)
    (node,) = model.nodes
    feeds = feeds_of(model)
    if node.op_type == "Mod" or "Div" in node.op_type:
        feeds = {name: array if array.dtype.kind != "i" else array - 5 for name, array in feeds.items()}
        feeds = {name: np.where(array == 0, 7, array).astype(array.dtype) for name, array in feeds.items()}
    values: dict[str, Values] = feeds | {t.name: numpy_helper.to_array(t) for t in model.initializers}
    call = call_of_node(node, values, opset, constants=[i for i, n in enumerate(node.input) if n not in feeds and n])
    assert OP_KINDS[node.op_type].unsupported(call) is None
    found = evaluated(node, call, values)
    model.outputs[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(found.dtype)
    expected = by_reference(model, feeds) if reference else model.run(feeds)[0]
    assert found.dtype == expected.dtype
    rtol = 2e-3 if expected.dtype == np.float16 else 1e-5
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=1e-6)


def by_reference(model: Model, feeds: dict[str, Values]) -> Values:
    """The output of a model by ONNX's reference evaluation."""
    result: Any = ReferenceEvaluator(model.proto()).run(None, feeds)
    return np.asarray(result[0])


# This version of the runtime cannot; ONNX's own reference judges.
NOT_IN_RUNTIME = ("LRN even", "Swish")


@pytest.mark.parametrize("case", sorted(CASES))
def test_values_are_those_of_the_runtime(case: str) -> None:
    """IMPORT-5."""
    compare(CASES[case], opset=24 if case == "Swish" else 23, reference=case in NOT_IN_RUNTIME)


@pytest.mark.parametrize("case", sorted(OLD))
def test_older_operator_sets_keep_their_meaning(case: str) -> None:
    opset, build = OLD[case]
    compare(build, opset=opset)


@settings(max_examples=150)
@given(st.data())
def test_resized_values_are_those_of_the_runtime(data: st.DataObject) -> None:
    """Every coordinate transformation and rounding, scales and sizes, growing and shrinking."""
    mode = data.draw(st.sampled_from(["nearest", "linear"]))
    transformations = "half_pixel half_pixel_symmetric pytorch_half_pixel align_corners asymmetric"
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": data.draw(st.sampled_from(transformations.split())),
    }
    if mode == "nearest":
        attributes["nearest_mode"] = data.draw(
            st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        )
    shape = [data.draw(st.integers(1, 6)) for _ in range(2)]
    if data.draw(st.booleans()):
        sizes = [data.draw(st.integers(1, 9)) for _ in shape]
        smallest = min(size / extent for size, extent in zip(sizes, shape, strict=True))
        assume(smallest * min(shape) >= 0.5)  # "not_larger" would leave nothing
        given_as: tuple[Any, ...] = (None, None, ints(*sizes))
        attributes["axes"] = [2, 3]
        attributes["keep_aspect_ratio_policy"] = data.draw(st.sampled_from(["stretch", "not_larger", "not_smaller"]))
    else:
        scales = [data.draw(st.sampled_from([0.5, 0.75, 1, 1.25, 1.5, 2, 3])) for _ in shape]
        assume(all(int(extent * scale) for extent, scale in zip(shape, scales, strict=True)))
        assume(attributes["coordinate_transformation_mode"] != "align_corners")
        # where no extent changes the runtime copies, whatever the scales
        assume([int(extent * scale) for extent, scale in zip(shape, scales, strict=True)] != shape)
        given_as = (None, floats(1, 1, *scales))
    compare(use("Resize", (1, 1, *shape), *given_as, **attributes), opset=19)


@settings(max_examples=60)
@given(st.data())
def test_padded_values_are_those_of_the_runtime(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    mode = data.draw(st.sampled_from(["constant", "edge", "reflect", "wrap"]))
    low = -1 if mode == "constant" else 0
    pads = [data.draw(st.integers(low, extent - 1)) for extent in (*shape, *shape)]
    count = len(shape)
    assume(any(pads) and all(extent + pads[i] + pads[count + i] > 0 for i, extent in enumerate(shape)))
    compare(use("Pad", shape, ints(*pads), scalar(np.float32(3)), mode=mode), opset=19)


@settings(max_examples=60)
@given(st.data())
def test_sliced_values_are_those_of_the_runtime(data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    count = len(shape)
    starts, ends = ([data.draw(st.integers(-6, 6)) for _ in shape] for _ in range(2))
    steps = [data.draw(st.sampled_from([1, 2, 3, -1, -2])) for _ in shape]
    model = built(use("Slice", shape, ints(*starts), ints(*ends), ints(*range(count)), ints(*steps)))
    assume(all(model.run(feeds_of(model))[0].shape))
    compare(use("Slice", shape, ints(*starts), ints(*ends), ints(*range(count)), ints(*steps)), opset=13)
