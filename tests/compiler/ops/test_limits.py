"""Limits of definitions: stated once, enforced, and described by the very same data (IMPORT-5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.ops import OP_KINDS, describe_kinds
from compiler.ops.base import NATIVE_DTYPES, Call, Refusal
from compiler.ops.quantise import QUANTISED
from tests.compiler.ops.calls import Values, call_of_node
from tests.models import Model

Build = Callable[[Model], str]


def last_call(model: Model) -> Call:
    """The call of the model's last node, with its initialisers as the constants."""
    values: dict[str, Values] = {
        value.name: np.zeros(
            [d.dim_value for d in value.type.tensor_type.shape.dim],
            helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type),
        )
        for value in model.inputs
    }
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.initializers}
    node = model.nodes[-1]
    positions = [i for i, name in enumerate(node.input) if name in constants]
    return call_of_node(node, values | constants, model.opset, constants=positions)


def refusal(build: Build, *, opset: int = 23, any_dtype: bool = False) -> Refusal | None:
    """What the definition of a model's last node says of it."""
    model = Model(opset=opset)
    build(model)
    return OP_KINDS[model.nodes[-1].op_type].unsupported(last_call(model), any_dtype=any_dtype)


def resize(scale: float = 2.0, **attributes: Any) -> Build:
    """A Resize of the last axis by a scale."""
    return lambda m: m.node(
        "Resize", [m.input([1, 1, 2]), "", m.constant([1, 1, scale], dtype=np.float32)], **attributes
    )


def resized_to(size: int, **attributes: Any) -> Build:
    """A Resize of 14 positions to others, from the first one on."""
    sizes = {"coordinate_transformation_mode": "asymmetric", **attributes}
    return lambda m: m.node("Resize", [m.input([14]), "", "", m.ints(size)], **sizes)


def upsample(scale: float) -> Build:
    """An Upsample of eight positions."""
    return lambda m: m.node("Upsample", [m.input([8]), m.constant([scale], dtype=np.float32)])


def norm(**attributes: Any) -> Build:
    """A BatchNormalization of three channels."""
    return lambda m: m.node("BatchNormalization", [m.input([1, 3, 2]), *(m.weight(3) for _ in range(4))], **attributes)


def quantise(kind: str, dtype: int, zero: Any, **attributes: Any) -> Build:
    """A QuantizeLinear or DequantizeLinear with a zero point of the given type."""
    return lambda m: m.node(
        kind, [m.input([4], dtype=dtype), m.constant(np.float32(0.5)), m.constant(zero)], **attributes
    )


def window(kind: str, spatial: int) -> Build:
    """A convolution or pooling of so many spatial axes."""
    ones = [1] * spatial

    def build(m: Model) -> str:
        inputs = [m.input([1, 1, *(2 for _ in ones)])]
        if kind.startswith("Conv"):
            inputs.append(m.weight(1, 1, *ones))
        attributes: dict[str, Any] = {} if kind.startswith("Global") else {"kernel_shape": ones}
        return m.node(kind, inputs, **attributes)

    return build


def dropout(training: bool) -> Build:
    """A Dropout with its mode given."""
    return lambda m: m.node("Dropout", [m.input([4]), m.constant(np.float32(0.5)), m.constant(training)])


# One case per limit: kind, a part of the limit's text, what holds, what does not, operator set, the offending value.
LIMITS: dict[str, tuple[str, str, Build, Build, int, object]] = {
    **{
        f"four spatial axes in {kind}": (kind, "spatial axes", window(kind, 3), window(kind, 4), 22, 4)
        for kind in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    },
    "training": ("BatchNormalization", "statistics are given", norm(), norm(training_mode=1), 15, "training_mode 1"),
    "old training": (
        "BatchNormalization",
        "statistics are given",
        norm(is_test=1),
        norm(),
        6,
        "is_test 0",
    ),
    "statistics per position": (
        "BatchNormalization",
        "statistics are per channel",
        norm(),
        norm(spatial=0),
        7,
        "spatial 0",
    ),
    "dropout": ("Dropout", "training_mode", dropout(False), dropout(True), 13, True),
    "cast": (
        "Cast",
        "attribute to",
        lambda m: m.node("Cast", [m.input([4])], to=TensorProto.INT8),
        lambda m: m.node("Cast", [m.input([4])], to=TensorProto.DOUBLE),
        13,
        "float64",
    ),
    "quantisation to floats of 8 bits": (
        "QuantizeLinear",
        "the result is",
        quantise("QuantizeLinear", TensorProto.FLOAT, np.int8(0)),
        lambda m: m.node(
            "QuantizeLinear", [m.input([4]), m.constant(np.float32(1))], output_dtype=TensorProto.FLOAT8E4M3FN
        ),
        23,
        "type code 17",
    ),
    "blocked quantisation": (
        "QuantizeLinear",
        "one scale",
        quantise("QuantizeLinear", TensorProto.FLOAT, np.int8(0)),
        quantise("QuantizeLinear", TensorProto.FLOAT, np.int8(0), block_size=2),
        23,
        2,
    ),
    "blocked dequantisation": (
        "DequantizeLinear",
        "one scale",
        quantise("DequantizeLinear", TensorProto.INT8, np.int8(0)),
        quantise("DequantizeLinear", TensorProto.INT8, np.int8(0), block_size=2),
        23,
        2,
    ),
    "dequantisation into double": (
        "DequantizeLinear",
        "the result is",
        quantise("DequantizeLinear", TensorProto.INT8, np.int8(0), output_dtype=TensorProto.FLOAT16),
        quantise("DequantizeLinear", TensorProto.INT8, np.int8(0), output_dtype=TensorProto.DOUBLE),
        23,
        "type code 11",
    ),
    "precision": (
        "QuantizeLinear",
        "quotient",
        quantise("QuantizeLinear", TensorProto.FLOAT, np.int8(0)),
        quantise("QuantizeLinear", TensorProto.FLOAT, np.int8(0), precision=TensorProto.FLOAT16),
        23,
        TensorProto.FLOAT16,
    ),
    "cubic": ("Resize", "mode is nearest or linear", resize(), resize(mode="cubic"), 19, "cubic"),
    "linear integers": (
        "Resize",
        "linear mode is for floats",
        lambda m: m.node("Resize", [m.input([2], dtype=TensorProto.UINT8), "", m.constant([2], dtype=np.float32)]),
        lambda m: m.node(
            "Resize", [m.input([2], dtype=TensorProto.UINT8), "", m.constant([2], dtype=np.float32)], mode="linear"
        ),
        19,
        "uint8",
    ),
    "crop and resize": (
        "Resize",
        "tf_crop_and_resize",
        resize(),
        resize(coordinate_transformation_mode="tf_crop_and_resize"),
        19,
        "tf_crop_and_resize",
    ),
    "antialias": ("Resize", "antialias", resize(2.0, antialias=1), resize(0.5, mode="linear", antialias=1), 19, 1),
    "exclude outside": ("Resize", "exclude_outside", resize(), resize(mode="linear", exclude_outside=1), 19, 1),
    "uneven corners": (
        "Resize",
        "align_corners",
        resize(1.5, coordinate_transformation_mode="align_corners"),
        resize(1.25, coordinate_transformation_mode="align_corners"),
        19,
        1.25,
    ),
    "huge terms": ("Resize", "64 bits", resize(1e-3), resize(5e11), 19, float(np.float32(5e11))),
    "rounded positions": (
        "Resize",
        "float32 arithmetic",
        resized_to(2, nearest_mode="ceil"),
        resized_to(2, nearest_mode="floor"),
        19,
        "14 to 2",
    ),
    "rounded positions of Upsample": ("Upsample", "float32 arithmetic", upsample(2), upsample(8 / 7), 9, "8 to 9"),
    "wrap that crops": (
        "Pad",
        "mode wrap",
        lambda m: m.node("Pad", [m.input([4]), m.ints(1, 1)], mode="wrap"),
        lambda m: m.node("Pad", [m.input([4]), m.ints(1, -1)], mode="wrap"),
        19,
        (1, -1),
    ),
    "old cubic": (
        "Upsample",
        "mode is nearest or linear",
        lambda m: m.node("Upsample", [m.input([2]), m.constant([2], dtype=np.float32)]),
        lambda m: m.node("Upsample", [m.input([2]), m.constant([2], dtype=np.float32)], mode="cubic"),
        9,
        "cubic",
    ),
    "old linear integers": (
        "Upsample",
        "linear mode is for floats",
        lambda m: m.node("Upsample", [m.input([2]), m.constant([2], dtype=np.float32)], mode="linear"),
        lambda m: m.node(
            "Upsample", [m.input([2], dtype=TensorProto.INT8), m.constant([2], dtype=np.float32)], mode="linear"
        ),
        9,
        "int8",
    ),
}


@pytest.mark.parametrize("case", sorted(LIMITS))
def test_a_limit_holds_on_one_side_and_refuses_with_its_own_text_on_the_other(case: str) -> None:
    """IMPORT-5: the reason is the limit's text, the actual value the one that broke it."""
    kind, text, holds, breaks, opset, actual = LIMITS[case]
    assert refusal(holds, opset=opset) is None
    found = refusal(breaks, opset=opset)
    assert found is not None
    (limit,) = (c for c in OP_KINDS[kind].constraints if c.text == found.reason)
    assert text in limit.text
    assert found.actual == actual


def test_every_limit_has_a_case() -> None:
    stated = {(name, limit.text) for name, kind in OP_KINDS.items() for limit in kind.constraints}
    tested = {
        (kind, limit.text)
        for kind, text, *_ in LIMITS.values()
        for limit in OP_KINDS[kind].constraints
        if text in limit.text
    }
    assert stated == tested


CONSTANT_INPUTS: dict[str, tuple[Build, int]] = {
    "Reshape": (lambda m: m.node("Reshape", [m.input([4]), m.input([1], "k", TensorProto.INT64)]), 1),
    "Slice": (
        lambda m: m.node("Slice", [m.input([4]), m.ints(0), m.input([1], "k", TensorProto.INT64)]),
        2,
    ),
    "Pad": (lambda m: m.node("Pad", [m.input([4]), m.ints(1, 1), m.input([], "k")]), 2),
    "ReduceSum": (lambda m: m.node("ReduceSum", [m.input([4]), m.input([1], "k", TensorProto.INT64)]), 1),
    "CumSum": (lambda m: m.node("CumSum", [m.input([4]), m.input([], "k", TensorProto.INT64)]), 1),
    "Tile": (lambda m: m.node("Tile", [m.input([4]), m.input([1], "k", TensorProto.INT64)]), 1),
    "Expand": (lambda m: m.node("Expand", [m.input([4]), m.input([1], "k", TensorProto.INT64)]), 1),
    "Resize": (lambda m: m.node("Resize", [m.input([4]), "", m.input([1], "k")]), 2),
}


@pytest.mark.parametrize("kind", sorted(CONSTANT_INPUTS))
def test_inputs_that_must_be_constant_are_named_when_they_are_not(kind: str) -> None:
    build, position = CONSTANT_INPUTS[kind]
    found = refusal(build)
    assert found is not None
    assert f"(input {position}) is known at compile time" in found.reason
    assert OP_KINDS[kind].constant_inputs[position] in found.reason
    assert str(found.actual).startswith("k ")


def test_an_element_type_that_a_kind_does_not_have_is_named() -> None:
    found = refusal(lambda m: m.node("Relu", [m.input([4], dtype=TensorProto.DOUBLE)]))
    assert found == Refusal(reason=f"input 0 is of {' or '.join(OP_KINDS['Relu'].dtypes)}", actual="float64")
    assert refusal(lambda m: m.node("Relu", [m.input([4], dtype=TensorProto.DOUBLE)]), any_dtype=True) is None
    assert refusal(lambda m: m.node("Conv", [m.input([1, 1, 2], dtype=TensorProto.INT8), m.weight(1, 1, 1)]))


def test_element_types_of_single_inputs_are_judged_apart() -> None:
    build: Build = lambda m: m.node(  # noqa: E731
        "Where", [m.input([4], dtype=TensorProto.BOOL), m.input([4]), m.input([4])]
    )
    assert refusal(build) is None
    found = refusal(lambda m: m.node("Where", [m.input([4]), m.input([4]), m.input([4])]))
    assert found == Refusal(reason="input 0 is of bool", actual="float32")


def test_what_is_only_evaluated_may_have_any_element_type() -> None:
    build: Build = lambda m: m.node("Cast", [m.input([4])], to=TensorProto.DOUBLE)  # noqa: E731
    assert refusal(build) is not None
    assert refusal(build, any_dtype=True) is None
    assert refusal(norm(training_mode=1), opset=15, any_dtype=True) is not None  # no other limit is lifted


def test_kinds_describe_themselves_with_the_texts_that_refuse() -> None:
    """The documentation is generated from what is enforced."""
    rows = {row.op_type: row for row in describe_kinds()}
    assert list(rows) == sorted(OP_KINDS)
    assert "spatial axes are 1 to 3" in rows["Conv"].constraints
    assert rows["Tile"].constant_inputs == ("repeats (input 1)", "axis (input 2)")
    assert rows["Where"].constraints == ("input 0 is of bool",)
    for row in rows.values():
        assert set(row.dtypes) <= {*NATIVE_DTYPES, *QUANTISED}
        assert set(row.constraints) >= {limit.text for limit in OP_KINDS[row.op_type].constraints}


SPEC_KINDS = """Conv ConvTranspose Gemm MatMul Add Sub Mul Div Max Min Pow Sqrt Neg Abs Exp Log Reciprocal Sin Cos Floor
Ceil Round Sign Mod And Or Xor Not Equal Less LessOrEqual Greater GreaterOrEqual IsNaN IsInf Relu LeakyRelu PRelu Clip
Sigmoid HardSigmoid HardSwish Tanh Erf Gelu Swish Elu Softplus BatchNormalization InstanceNormalization
LayerNormalization RMSNormalization GroupNormalization MaxPool AveragePool GlobalAveragePool GlobalMaxPool ReduceL1
ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare ArgMax ArgMin
Softmax LogSoftmax LRN Sum Mean CumSum QuantizeLinear DequantizeLinear Reshape Flatten Squeeze Unsqueeze Identity
Dropout Transpose Concat Slice Pad Expand Tile Gather DepthToSpace SpaceToDepth Resize Upsample Cast Where"""


def test_every_native_op_of_the_contract_has_a_definition() -> None:
    """IMPORT-5; Split, Einsum, Attention, RotaryEmbedding and the integer products are put in terms of these."""
    assert set(SPEC_KINDS.split()) <= set(OP_KINDS)
