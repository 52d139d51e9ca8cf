"""Shape inference of every op kind against ONNX Runtime, over random parameters and opsets (IMPORT-5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from compiler.errors import ModelError
from compiler.ir.graph import Graph
from compiler.ops import OP_KINDS
from tests.models import Model, error_of

Draw = st.DataObject


def shapes_agree(model: Model, outputs: list[str], *, dtype: Any = np.float32) -> None:
    """The imported shapes are those of the values that ONNX Runtime computes; or both refuse."""
    feeds = {
        value.name: np.ones([d.dim_value for d in value.type.tensor_type.shape.dim], dtype=dtype)
        for value in model.inputs
    }
    try:
        expected: list[tuple[int, ...]] | None = [value.shape for value in model.run(feeds)]
    except Exception:  # noqa: BLE001 (whatever ONNX Runtime raises means that it refuses)
        expected = None
    made: list[Graph] = []
    error = error_of(lambda: made.append(model.graph(fold=False)))
    if not made:
        assert error is not None
        assert error.code != "internal_error"
        assert expected is None or 0 in [e for shape in expected for e in shape], f"{error}; {expected}"
        return
    graph = made[0]
    if expected is None:
        return  # we may accept more than this version of the runtime implements
    made_of = [graph.tensors[name] if name in graph.tensors else graph.tensors[graph.outputs[0]] for name in outputs]
    for tensor, shape in zip(made_of, expected, strict=True):
        # a result without elements may be left to the host, which tells its shape when it has run
        assert tensor.shape == shape or (not tensor.is_known and 0 in shape)


def window_attributes(draw: Draw, rank: int, *, dilation: bool = True, largest: int = 4) -> dict[str, Any]:
    """Random kernel, strides, dilations and padding."""
    kernel = [draw.draw(st.integers(1, largest)) for _ in range(rank)]
    attributes: dict[str, Any] = {
        "kernel_shape": kernel,
        "strides": [draw.draw(st.integers(1, largest - 1)) for _ in range(rank)],
    }
    if dilation and draw.draw(st.booleans()):
        attributes["dilations"] = [draw.draw(st.integers(1, 2)) for _ in range(rank)]
    auto = draw.draw(st.sampled_from(["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]))
    if auto == "NOTSET":
        begin = [draw.draw(st.integers(0, size - 1)) for size in kernel]
        end = [draw.draw(st.integers(0, size - 1)) for size in kernel]
        attributes["pads"] = begin + end
    else:
        attributes["auto_pad"] = auto
        if auto != "VALID":
            attributes.pop("dilations", None)
    return attributes


@settings(max_examples=120)
@given(st.data())
def test_convolutions(draw: Draw) -> None:
    rank = draw.draw(st.sampled_from([1, 2, 2, 3]))
    group = draw.draw(st.integers(1, 2))
    channels, filters = group * draw.draw(st.integers(1, 2)), group * draw.draw(st.integers(1, 2))
    attributes = window_attributes(draw, rank)
    model = Model()
    x = model.input([1, channels, *(draw.draw(st.integers(1, 9)) for _ in range(rank))])
    w = model.weight(filters, channels // group, *attributes["kernel_shape"])
    shapes_agree(model, [model.output(model.node("Conv", [x, w], group=group, **attributes))])


@settings(max_examples=150)
@given(st.data())
def test_poolings(draw: Draw) -> None:
    """IMPORT-4: with kernels beyond the padded input, which have a position where the stride is as large."""
    rank = draw.draw(st.sampled_from([1, 2, 2, 3]))
    kind = draw.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    attributes = window_attributes(draw, rank, dilation=kind == "MaxPool", largest=draw.draw(st.sampled_from([4, 12])))
    if attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        attributes["ceil_mode"] = draw.draw(st.integers(0, 1))
    model = Model()
    extents = [draw.draw(st.integers(1, 9)) for _ in range(rank)]
    shapes_agree(model, [model.output(model.node(kind, [model.input([1, 2, *extents])], **attributes))])


@settings(max_examples=120)
@given(st.data())
def test_transposed_convolutions(draw: Draw) -> None:
    rank = draw.draw(st.sampled_from([1, 2, 2]))
    group = draw.draw(st.integers(1, 2))
    attributes = window_attributes(draw, rank)
    if attributes.get("auto_pad", "").startswith("SAME"):
        # what the runtime does where the stride exceeds the kernel is no shape any more
        assume(all(k >= s for k, s in zip(attributes["kernel_shape"], attributes["strides"], strict=True)))
    if "pads" in attributes and draw.draw(st.booleans()):
        attributes["output_padding"] = [draw.draw(st.integers(0, s - 1)) for s in attributes["strides"]]
    model = Model()
    x = model.input([1, 2 * group, *(draw.draw(st.integers(1, 6)) for _ in range(rank))])
    w = model.weight(2 * group, 2, *attributes["kernel_shape"])
    shapes_agree(model, [model.output(model.node("ConvTranspose", [x, w], group=group, **attributes))])


SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=100)
@given(SHAPES, SHAPES, st.sampled_from(["Add", "Sub", "Mul", "Div", "Max", "Pow", "PRelu", "Sum"]))
def test_broadcasting(a: list[int], b: list[int], kind: str) -> None:
    model = Model()
    x, y = model.input(a), model.input(b)
    shapes_agree(model, [model.output(model.node(kind, [x, y]))])


@settings(max_examples=120)
@given(SHAPES, SHAPES)
def test_matrix_products(a: list[int], b: list[int]) -> None:
    if len(b) > 1:
        b[-2] = a[-1]
    else:
        b[0] = a[-1]
    model = Model()
    x, y = model.input(a), model.input(b)
    shapes_agree(model, [model.output(model.node("MatMul", [x, y]))])


@settings(max_examples=60)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
    st.sampled_from([(), (1,), (0,), (1, 0)]),
)
def test_general_matrix_products(m: int, k: int, n: int, ta: bool, tb: bool, bias: tuple[int, ...]) -> None:
    model = Model()
    inputs = [model.input([k, m] if ta else [m, k]), model.input([n, k] if tb else [k, n])]
    if bias:
        inputs.append(model.weight(*{(1,): (n,), (0,): (1, n), (1, 0): (m, 1)}[bias]))
    shapes_agree(model, [model.output(model.node("Gemm", inputs, transA=int(ta), transB=int(tb)))])


@settings(max_examples=100)
@given(st.data(), SHAPES)
def test_reductions(draw: Draw, shape: list[int]) -> None:
    rank = len(shape)
    kind = draw.draw(st.sampled_from(["Mean", "Sum", "Max", "Min", "Prod", "L1", "L2", "SumSquare"]))
    opset = draw.draw(st.sampled_from([11, 13, 17, 18]))
    axes = draw.draw(
        st.one_of(
            st.none(), st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank, unique_by=lambda a: a % rank)
        )
    )
    keep = draw.draw(st.integers(0, 1))
    model = Model(opset=opset)
    x = model.input(shape)
    by_input = opset >= 18 or (kind == "Sum" and opset >= 13)
    if axes is None or not by_input:
        extra: dict[str, Any] = {} if axes is None else {"axes": axes}
        y = model.node(f"Reduce{kind}", [x], keepdims=keep, **extra)
    else:
        y = model.node(f"Reduce{kind}", [x, model.ints(*axes)], keepdims=keep)
    shapes_agree(model, [model.output(y)])


@settings(max_examples=120)
@given(st.data(), SHAPES)
def test_slices(draw: Draw, shape: list[int]) -> None:
    rank = len(shape)
    axes = draw.draw(st.lists(st.integers(-rank, rank - 1), min_size=1, max_size=rank, unique_by=lambda a: a % rank))
    starts = [draw.draw(st.integers(-6, 6)) for _ in axes]
    ends = [draw.draw(st.one_of(st.integers(-6, 6), st.just(2**63 - 1), st.just(-(2**63)))) for _ in axes]
    old = draw.draw(st.booleans())
    model = Model(opset=9 if old else 17)
    x = model.input(shape)
    if old:
        y = model.node("Slice", [x], starts=starts, ends=ends, axes=axes)
    else:
        steps = [draw.draw(st.integers(1, 3)) for _ in axes]
        y = model.node("Slice", [x, *(model.ints(*v) for v in (starts, ends, axes, steps))])
    shapes_agree(model, [model.output(y)])


@settings(max_examples=80)
@given(st.data(), SHAPES)
def test_pads(draw: Draw, shape: list[int]) -> None:
    opset = draw.draw(st.sampled_from([9, 13, 18]))
    model = Model(opset=opset)
    x = model.input(shape)
    axes = list(range(len(shape)))
    if opset >= 18:
        axes = draw.draw(
            st.lists(
                st.sampled_from([*axes, *(a - len(shape) for a in axes)]),
                min_size=1,
                unique_by=lambda a: a % len(shape),
            )
        )
    pads = [draw.draw(st.integers(-1, 3)) for _ in range(2 * len(axes))]
    if opset == 9:
        y = model.node("Pad", [x], pads=pads)
    elif opset == 13:
        y = model.node("Pad", [x, model.ints(*pads), model.constant(np.float32(1))])
    else:
        y = model.node("Pad", [x, model.ints(*pads), "", model.ints(*axes)])
    shapes_agree(model, [model.output(y)])


@settings(max_examples=80)
@given(st.data(), SHAPES)
def test_squeezes_and_unsqueezes(draw: Draw, shape: list[int]) -> None:
    opset = draw.draw(st.sampled_from([11, 13]))
    model = Model(opset=opset)
    x = model.input(shape)
    if draw.draw(st.booleans()):
        ones = [i - draw.draw(st.sampled_from([0, len(shape)])) for i, e in enumerate(shape) if e == 1]
        kind, axes = "Squeeze", ones
    else:
        kind, axes = "Unsqueeze", [0, -1]
    assume(axes)
    y = model.node(kind, [x], axes=axes) if opset == 11 else model.node(kind, [x, model.ints(*axes)])
    shapes_agree(model, [model.output(y)])


@settings(max_examples=80)
@given(st.data(), SHAPES)
def test_reshapes(draw: Draw, shape: list[int]) -> None:
    total = int(np.prod(shape))
    divisors = [d for d in range(1, total + 1) if total % d == 0]
    first = draw.draw(st.sampled_from(divisors))
    target = draw.draw(st.permutations([first, -1, 1])) if draw.draw(st.booleans()) else [0, -1]
    model = Model()
    x = model.input(shape)
    shapes_agree(model, [model.output(model.node("Reshape", [x, model.ints(*target)]))])


@settings(max_examples=60)
@given(st.data(), SHAPES)
def test_movements(draw: Draw, shape: list[int]) -> None:
    rank = len(shape)
    model = Model()
    x = model.input(shape)
    kind = draw.draw(st.sampled_from(["Transpose", "Flatten", "Concat", "Expand", "Softmax", "LogSoftmax"]))
    if kind == "Transpose":
        permutation: dict[str, Any] = {"perm": list(draw.draw(st.permutations(range(rank))))}
        y = model.node(kind, [x], **draw.draw(st.sampled_from([{}, permutation])))
    elif kind == "Flatten":
        y = model.node(kind, [x], axis=draw.draw(st.integers(-rank, rank)))
    elif kind == "Concat":
        axis = draw.draw(st.integers(-rank, rank - 1))
        other = list(shape)
        other[axis] = draw.draw(st.integers(1, 3))
        y = model.node(kind, [x, model.input(other)], axis=axis)
    elif kind == "Expand":
        y = model.node(kind, [x, model.ints(*draw.draw(SHAPES))])
    else:
        y = model.node(kind, [x], axis=draw.draw(st.integers(-rank, rank - 1)))
    shapes_agree(model, [model.output(y)])


@settings(max_examples=40)
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.booleans(), st.sampled_from(["DCR", "CRD"]))
def test_depth_and_space(block: int, h: int, w: int, forth: bool, mode: str) -> None:
    model = Model()
    if forth:
        y = model.node("DepthToSpace", [model.input([1, 2 * block * block, h, w])], blocksize=block, mode=mode)
    else:
        y = model.node("SpaceToDepth", [model.input([1, 2, h * block, w * block])], blocksize=block)
    shapes_agree(model, [model.output(y)])


@settings(max_examples=40)
@given(st.lists(st.integers(1, 3), min_size=4, max_size=4), st.sampled_from(["sizes", "scales", "upsample"]))
def test_resizes_by_whole_factors(factors: list[int], how: str) -> None:
    shape = [1, 2, 3, 4]
    factors[:2] = [1, 1]
    model = Model(opset=9 if how == "upsample" else 13)
    x = model.input(shape)
    scales = model.constant(np.array(factors, dtype=np.float32))
    if how == "upsample":
        y = model.node("Upsample", [x, scales])
    elif how == "scales":
        y = model.node("Resize", [x, "", scales])
    else:
        y = model.node("Resize", [x, "", "", model.ints(*(e * f for e, f in zip(shape, factors, strict=True)))])
    shapes_agree(model, [model.output(y)])


@settings(max_examples=40)
@given(st.data())
def test_splits(draw: Draw) -> None:
    sizes = draw.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    opset = draw.draw(st.sampled_from([11, 13]))
    model = Model(opset=opset)
    x = model.input([2, sum(sizes)])
    outputs = [f"part{i}" for i in range(len(sizes))]
    if opset == 11:
        model.nodes_out("Split", [x], outputs, axis=-1, split=sizes)
    else:
        model.nodes_out("Split", [x, model.ints(*sizes)], outputs, axis=-1)
    for name in outputs:
        model.output(model.relu(name, name=None))
    shapes_agree(model, [value.name for value in model.outputs])


UNARY = """Neg Abs Sqrt Reciprocal Exp Log Floor Ceil Sign Relu LeakyRelu Elu
Sigmoid HardSigmoid HardSwish Tanh Softplus Erf"""


@pytest.mark.parametrize("kind", UNARY.split())
def test_functions_of_one_element_keep_the_shape(kind: str) -> None:
    model = Model()
    shapes_agree(model, [model.output(model.node(kind, [model.input([2, 3, 4])]))])


OTHERS: dict[str, Callable[[Model], str]] = {
    "global average": lambda m: m.node("GlobalAveragePool", [m.input([1, 2, 3, 4])]),
    "global maximum": lambda m: m.node("GlobalMaxPool", [m.input([1, 2, 3])]),
    "lrn": lambda m: m.node("LRN", [m.input([1, 4, 3, 3])], size=3),
    "layer norm": lambda m: m.node("LayerNormalization", [m.input([2, 3, 4]), m.weight(3, 4), m.weight(3, 4)], axis=1),
    "instance norm": lambda m: m.node("InstanceNormalization", [m.input([2, 3, 4, 4]), m.weight(3), m.weight(3)]),
    "batch norm": lambda m: m.norm(m.input([2, 3, 4, 4]), 3),
    "clip": lambda m: m.node("Clip", [m.input([2, 3]), m.constant(np.float32(0)), m.constant(np.float32(6))]),
    "clip without bounds": lambda m: m.node("Clip", [m.input([2, 3])]),
    "where": lambda m: m.node("Where", [m.constant([[True], [False]]), m.input([1, 3]), m.input([2, 1])]),
    "mean": lambda m: m.node("Mean", [m.input([2, 1]), m.input([3]), m.input([1, 1, 1])]),
    "softmax 9": lambda m: m.node("Softmax", [m.input([2, 3, 4])]),
    "conv with empty bias": lambda m: m.node("Conv", [m.input([1, 2, 4, 4]), m.weight(3, 2, 3, 3), ""]),
}


@pytest.mark.parametrize("case", sorted(OTHERS))
def test_other_kinds(case: str) -> None:
    model = Model(opset=9 if case.endswith(" 9") else 17)
    shapes_agree(model, [model.output(OTHERS[case](model))])


@pytest.mark.parametrize(
    ("opset", "axis", "expected"),
    [(11, None, (1, 2)), (11, 2, (2,)), (11, -1, (2,)), (13, None, (2,)), (13, 1, (1,)), (17, -2, (1,))],
)
def test_softmax_flattens_up_to_opset_12(opset: int, axis: int | None, expected: tuple[int, ...]) -> None:
    model = Model(opset=opset)
    attributes: dict[str, Any] = {} if axis is None else {"axis": axis}
    model.output(model.node("Softmax", [model.input([2, 3, 4])], **attributes))
    assert dict(model.graph().ops[0].attributes)["axes"] == expected


@pytest.mark.parametrize("opset", [6, 11])
def test_clip_bounds_come_from_attributes_and_inputs_alike(opset: int) -> None:
    model = Model(opset=opset)
    x = model.input([2, 3])
    if opset == 6:
        y = model.node("Clip", [x], min=0.0, max=6.0)
    else:
        y = model.node("Clip", [x, model.constant(np.float32(0)), model.constant(np.float32(6))])
    model.output(y)
    (op,) = model.graph().ops
    assert op.inputs == (x,)
    assert dict(op.attributes) == {"min": 0.0, "max": 6.0}


@pytest.mark.parametrize("auto", ["SAME_UPPER", "SAME_LOWER"])
def test_automatic_padding_is_resolved_to_the_same_side(auto: str) -> None:
    model = Model()
    x = model.input([1, 1, 5, 5])
    model.output(model.node("Conv", [x, model.weight(1, 1, 2, 4)], auto_pad=auto))
    pads = dict(model.graph().ops[0].attributes)["pads"]
    assert pads == ((0, 1, 1, 2) if auto == "SAME_UPPER" else (1, 2, 0, 1))


REFUSED: dict[str, Callable[[Model], str]] = {
    "channels against weight": lambda m: m.node("Conv", [m.input([1, 3, 4, 4]), m.weight(2, 4, 3, 3)]),
    "group does not divide": lambda m: m.node("Conv", [m.input([1, 4, 4, 4]), m.weight(3, 2, 1, 1)], group=2),
    "kernel larger than padded input": lambda m: m.node("Conv", [m.input([1, 1, 2, 2]), m.weight(1, 1, 3, 3)]),
    "weight rank": lambda m: m.node("Conv", [m.input([1, 1, 4, 4]), m.weight(1, 1, 3)]),
    "kernel_shape against weight": lambda m: m.node(
        "Conv", [m.input([1, 1, 4, 4]), m.weight(1, 1, 3, 3)], kernel_shape=[2, 2]
    ),
    "bias length": lambda m: m.node("Conv", [m.input([1, 1, 4, 4]), m.weight(2, 1, 3, 3), m.weight(3)]),
    "stride 0": lambda m: m.node("MaxPool", [m.input([1, 1, 4, 4])], kernel_shape=[2, 2], strides=[0, 1]),
    "negative pad": lambda m: m.node("MaxPool", [m.input([1, 1, 4, 4])], kernel_shape=[2, 2], pads=[-1, 0, 0, 0]),
    "unknown auto_pad": lambda m: m.node("MaxPool", [m.input([1, 1, 4, 4])], kernel_shape=[2, 2], auto_pad="SAME"),
    "pool without kernel": lambda m: m.node("MaxPool", [m.input([1, 1, 4, 4])]),
    "no broadcast": lambda m: m.node("Add", [m.input([2, 3]), m.input([2])]),
    "different types": lambda m: m.node("Add", [m.input([2]), m.input([2], dtype=TensorProto.INT32)]),
    "inner extents": lambda m: m.node("MatMul", [m.input([2, 3]), m.input([4, 2])]),
    "gemm of three axes": lambda m: m.node("Gemm", [m.input([1, 2, 3]), m.input([3, 2])]),
    "gemm bias": lambda m: m.node("Gemm", [m.input([2, 3]), m.input([3, 4]), m.weight(3)]),
    "impossible reshape": lambda m: m.node("Reshape", [m.input([2, 3]), m.ints(4, -1)]),
    "two unknown extents": lambda m: m.node("Reshape", [m.input([2, 3]), m.ints(-1, -1)]),
    "squeeze of 2": lambda m: m.node("Squeeze", [m.input([2, 3]), m.ints(0)]),
    "axis out of range": lambda m: m.node("Softmax", [m.input([2, 3])], axis=2),
    "perm": lambda m: m.node("Transpose", [m.input([2, 3])], perm=[0, 0]),
    "concat": lambda m: m.node("Concat", [m.input([2, 3]), m.input([3, 2])], axis=0),
    "split sizes": lambda m: m.nodes_out("Split", [m.input([4]), m.ints(1, 2)], ["a", "b"])[0],
    "depth": lambda m: m.node("DepthToSpace", [m.input([1, 3, 2, 2])], blocksize=2),
    "norm statistics": lambda m: m.node("BatchNormalization", [m.input([1, 3, 2]), *[m.weight(2) for _ in range(4)]]),
    "expand": lambda m: m.node("Expand", [m.input([2]), m.ints(3)]),
}


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_what_is_not_legal_is_refused_by_node(case: str) -> None:
    """IMPORT-4: convolutions that disagree with their weight, kernels larger than their input, and the like."""
    model = Model()
    model.output(REFUSED[case](model))
    model.nodes[-1].name = "culprit"
    with pytest.raises(ModelError) as caught:
        model.graph()
    assert caught.value.node == "culprit"
    assert caught.value.code in ("invalid_model", "invalid_shape", "invalid_type")
    assert caught.value.op_type == model.nodes[-1].op_type


def test_every_definition_is_listed_under_its_own_name() -> None:
    assert all(name == kind.kind for name, kind in OP_KINDS.items())
