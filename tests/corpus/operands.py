"""Operands of types that an op does not take, and attributes that are malformed or missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
from onnx import AttributeProto, TensorProto, helper

from tests.corpus.build import edited, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

Change = Callable[[onnx.ModelProto], object]
_TYPES: Final = "unsupported_dtype invalid_model invalid_type"


def _attribute(name: str, value: object, *, kind: int | None = None) -> Change:
    """Give the convolution's attribute another value, or another kind than its value has."""

    def change(proto: onnx.ModelProto) -> None:
        node = proto.graph.node[0]
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])
        if kind is not None:
            node.attribute[-1].type = kind

    return change


def _extra_attribute(**fields: object) -> Change:
    return lambda p: p.graph.node[0].attribute.append(AttributeProto(**fields))  # type: ignore[arg-type]


def _typed(op_type: str, types: Sequence[int], output: int | None = None, **attributes: Any) -> Build:
    def fill(model: Model) -> None:
        inputs = [model.input([4], f"x{index}", dtype) for index, dtype in enumerate(types)]
        model.output(model.node(op_type, inputs, name="node", **attributes), output or types[0])

    return written(fill, opset=21, ir_version=10)


def _through(dtype: int) -> Build:
    """A value of one type handed from input to output."""
    return _typed("Identity", [dtype])


def _input_of(kind: onnx.TypeProto) -> Build:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input.append(onnx.ValueInfoProto(name="other", type=kind))
        proto.graph.node.append(helper.make_node("Identity", ["other"], ["unused"], name="reader"))

    return edited(change)


def _type_of(code: int) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.input[0].type.tensor_type.elem_type = code

    return change


def _string_weight(model: Model) -> None:
    model.initializers.append(
        TensorProto(name="w", data_type=TensorProto.STRING, dims=[2], string_data=[b"a", b"\xff"])
    )
    x = model.input([1, 3, 8, 8], "x")
    model.output(model.node("Conv", [x, "w"], name="conv"))


def _sequence() -> onnx.TypeProto:
    return helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))


def _map() -> onnx.TypeProto:
    return helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))


def _optional() -> onnx.TypeProto:
    return helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))


def _sparse_type() -> onnx.TypeProto:
    return helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, [4])


def _operator(op_type: str, *, opset: int = 17, **attributes: Any) -> Build:
    """One node on an input of 2x4."""

    def fill(model: Model) -> None:
        x = model.input([2, 4], "x")
        model.output(model.node(op_type, [x], name="node", **attributes))

    return written(fill, opset=opset)


_OPEN_TYPES: Final = either("unsupported_dtype")

ELEMENT_TYPES: Final = (
    case("float-and-integer-added", _typed("Add", [1, 7]), reject(_TYPES, "node"), "operands of two types"),
    case("float16-and-float32-multiplied", _typed("MatMul", [10, 1]), reject(_TYPES, "node"), "operands of two types"),
    case("text-added-to-numbers", _typed("Add", [1, 8]), reject(_TYPES), "an operand of text"),
    case(
        "text-into-a-convolution", written(_string_weight), reject(f"{_TYPES} invalid_tensor", "w"), "weights of text"
    ),
    case("a-convolution-of-booleans", edited(_type_of(TensorProto.BOOL)), reject(_TYPES, "conv"), "an input of bits"),
    case(
        "a-convolution-of-integers", edited(_type_of(TensorProto.INT64)), reject(_TYPES, "conv"), "an input of integers"
    ),
    case("not-of-floats", _typed("Not", [1]), reject(_TYPES, "node"), "logic on numbers"),
    case("where-by-floats", _typed("Where", [1, 1, 1]), reject(_TYPES, "node"), "a condition of numbers"),
    case("gather-by-floats", _typed("Gather", [1, 1]), reject(_TYPES, "node"), "indices of fractions"),
    case("square-root-of-booleans", _typed("Sqrt", [9]), reject(_TYPES, "node"), "arithmetic on bits"),
    case("a-cast-to-nothing", _typed("Cast", [1], to=0), reject(_TYPES, "node"), "type 0"),
    case("a-cast-to-type-9999", _typed("Cast", [1], to=9999), reject(_TYPES, "node"), "a type of no version"),
    case("a-cast-to-type--1", _typed("Cast", [1], to=-1), reject(_TYPES, "node"), "a negative type"),
    case(
        "a-cast-without-a-type", _typed("Cast", [1]), reject("invalid_model", "node"), "a required attribute left out"
    ),
    case("an-input-of-type-0", edited(_type_of(0)), reject(_TYPES, "x"), "an undefined element type"),
    case("an-input-of-type-9999", edited(_type_of(9999)), reject(_TYPES, "x"), "an element type of no version"),
    case("an-input-of-type--5", edited(_type_of(-5)), reject(_TYPES, "x"), "a negative element type"),
    case(
        "an-input-without-a-type", edited(lambda p: p.graph.input[0].ClearField("type")), reject(_TYPES, "x"), "no type"
    ),
    case("a-value-of-float8", _through(TensorProto.FLOAT8E4M3FN), _OPEN_TYPES, "8-bit floats"),
    case("a-value-of-float4", _through(TensorProto.FLOAT4E2M1), either(_TYPES), "4-bit floats"),
    case("a-value-of-int4", _through(TensorProto.INT4), _OPEN_TYPES, "half bytes"),
    case("a-value-of-complex-numbers", _through(TensorProto.COMPLEX64), _OPEN_TYPES, "pairs"),
    case("a-value-of-text", _through(TensorProto.STRING), _OPEN_TYPES, "elements without a size"),
    case("an-input-that-is-a-sequence", _input_of(_sequence()), _OPEN_TYPES, "a list of tensors"),
    case("an-input-that-is-a-map", _input_of(_map()), either(_TYPES), "a dictionary"),
    case("an-input-that-is-optional", _input_of(_optional()), _OPEN_TYPES, "a value that may be absent"),
    case("an-input-that-is-sparse", _input_of(_sparse_type()), either(_TYPES), "a tensor of a few elements"),
    case(
        "an-input-of-an-empty-type",
        edited(lambda p: p.graph.input[0].type.Clear()),
        reject(_TYPES, "x"),
        "a type that says nothing",
    ),
    case(
        "an-output-without-a-type",
        edited(lambda p: p.graph.output[0].ClearField("type")),
        either("invalid_model"),
        "the compiler knows it anyway",
    ),
)

ATTRIBUTES: Final = (
    case(
        "kernel-shape-as-one-integer",
        edited(_attribute("kernel_shape", 3)),
        reject("invalid_model", "conv"),
        "INT for INTS",
    ),
    case(
        "kernel-shape-as-floats",
        edited(_attribute("kernel_shape", [3.0, 3.0])),
        reject("invalid_model", "conv"),
        "FLOATS",
    ),
    case("kernel-shape-as-text", edited(_attribute("kernel_shape", "3x3")), reject("invalid_model", "conv"), "STRING"),
    case(
        "kernel-shape-as-a-tensor",
        edited(_attribute("kernel_shape", helper.make_tensor("t", TensorProto.INT64, [2], [3, 3]))),
        reject("invalid_model", "conv"),
        "TENSOR for INTS",
    ),
    case(
        "kernel-shape-as-a-graph",
        edited(_attribute("kernel_shape", helper.make_graph([], "g", [], []))),
        reject("invalid_model", "conv"),
        "GRAPH for INTS",
    ),
    case(
        "an-attribute-whose-kind-lies",
        edited(_attribute("kernel_shape", [3, 3], kind=AttributeProto.STRING)),
        reject("invalid_model", "conv"),
        "integers declared as text",
    ),
    case(
        "an-attribute-of-no-kind",
        edited(_attribute("kernel_shape", [3, 3], kind=0)),
        either("invalid_model"),
        "kind left out, as IR version 1 allowed",
    ),
    case(
        "an-attribute-given-twice",
        edited(_extra_attribute(name="pads", type=AttributeProto.INTS, ints=[0] * 4)),
        reject("duplicate_attribute", "conv", "pads"),
        "which one holds",
    ),
    case(
        "an-attribute-that-the-op-does-not-have",
        edited(_extra_attribute(name="colour", type=AttributeProto.STRING, s=b"red")),
        either("invalid_model"),
        "an unknown attribute",
    ),
    case(
        "an-attribute-without-a-name",
        edited(_extra_attribute(type=AttributeProto.INT, i=1)),
        reject("invalid_model", "conv"),
        "a nameless attribute",
    ),
    case(
        "an-attribute-by-reference-outside-a-function",
        edited(_extra_attribute(name="group", type=AttributeProto.INT, ref_attr_name="g")),
        reject("invalid_model", "conv"),
        "a reference with nothing to refer to",
    ),
    case(
        "an-attribute-of-text-that-is-no-text",
        edited(_attribute("auto_pad", b"\xff\xfe\x00")),
        reject("invalid_model", "conv"),
        "bytes that are no UTF-8",
    ),
    case(
        "a-concat-without-axis", _operator("Concat"), reject("invalid_model", "node"), "a required attribute left out"
    ),
    case("a-pooling-without-kernel", _operator("AveragePool"), reject("invalid_model", "node"), "the same"),
    case("an-einsum-without-equation", _operator("Einsum"), reject("invalid_model", "node"), "the same"),
    case(
        "a-loop-without-a-body",
        _operator("Loop"),
        reject("invalid_model missing_input", "node"),
        "the same, for a graph",
    ),
    case("a-constant-without-a-value", _operator("Constant"), reject("invalid_model", "node"), "no attribute at all"),
    case(
        "a-constant-of-two-values",
        written(
            lambda m: m.output(
                m.node("Add", [m.input([1]), m.node("Constant", [], name="node", value_float=1.0, value_int=2)])
            )
        ),
        accept(),
        "two attributes of which one is wanted: ONNX Runtime takes the first",
    ),
)

CASES: Final[tuple[Case, ...]] = (*ELEMENT_TYPES, *ATTRIBUTES)
