"""Graphs whose nodes and values do not fit together, and unusual ones that do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.corpus.build import edited, value_info, written
from tests.corpus.case import Case, accept, case, either, reject
from tests.models import Model

Change = Callable[[onnx.ModelProto], object]
_UNSORTED: Final = "missing_value cycle not_sorted"


def _cycle(model: Model) -> None:
    x = model.input([4], "x")
    model.node("Add", [x, "ring1"], out="ring0", name="first")
    model.node("Relu", ["ring0"], out="ring1", name="second")
    model.output("ring1")


def _long_cycle(model: Model) -> None:
    """A ring of 2,000 nodes: a search by recursion overflows."""
    x = model.input([4], "x")
    for index in range(2_000):
        model.node("Add", [x, f"ring{(index - 1) % 2_000}"], out=f"ring{index}", name=f"n{index}")
    model.output("ring1999")


def _two_nodes(second_output: str, model: Model) -> None:
    x = model.input([4], "x")
    model.node("Relu", [x], out="y", name="first")
    model.node("Sigmoid", [x], out=second_output, name="second")
    model.output("y")


def _unsorted(model: Model) -> None:
    x = model.input([4], "x")
    model.node("Sigmoid", ["h"], out="y", name="late")
    model.node("Relu", [x], out="h", name="early")
    model.output("y")


def _constants_only(model: Model) -> None:
    model.output(model.node("Add", [model.constant([1.0], dtype="float32"), model.constant([2.0], dtype="float32")]))


def _scalars(model: Model) -> None:
    x = model.input([], "x")
    model.output(model.node("Mul", [x, model.constant(2.0, dtype="float32")]))


def _initialiser_as_output(model: Model) -> None:
    model.output(model.relu(model.input([4])))
    model.output(model.constant(np.ones(4, np.float32), "w"))


def _input_as_output(model: Model) -> None:
    x = model.input([4], "x")
    model.output(model.relu(x))
    model.output(x)


def _pass_through_only(model: Model) -> None:
    x = model.input([4], "x")
    model.node("Relu", [x], out="unused")
    model.output(x)


def _input_with_default(model: Model) -> None:
    """Before IR version 4 every initialiser is a graph input too."""
    model.input([4], "w")
    model.constant(np.ones(4, np.float32), "w")
    model.output(model.node("Add", [model.input([4], "x"), "w"]))


def _all_names_equal(model: Model) -> None:
    """Nodes need no names of their own."""
    value = model.input([4], "n")
    for _ in range(50):
        value = model.node("Relu", [value], name="n")
    model.output(value)


def _generated_names_taken(model: Model) -> None:
    value = model.input([4], "x")
    value = model.node("Relu", [value], name="Relu_1")
    value = model.node("Relu", [value])
    value = model.node("Relu", [value], name="Relu_1_")
    model.output(model.node("Relu", [value], name="Relu_1"))


def _dead_half(model: Model) -> None:
    x = model.input([4], "x")
    value = x
    for _ in range(100):
        value = model.relu(value)
    model.output(model.node("Sigmoid", [x]))


def _no_output_node(model: Model) -> None:
    model.output(model.relu(model.input([4], "x")))
    model.nodes.append(helper.make_node("Relu", ["x"], [], name="mute"))


def _value_info(name: str, shape: list[int], dtype: int = TensorProto.FLOAT) -> Change:
    return lambda p: p.graph.value_info.append(value_info(name, shape, dtype))


def _set_output(shape: list[int], dtype: int = TensorProto.FLOAT) -> Change:
    return lambda p: p.graph.output[0].CopyFrom(value_info("y", shape, dtype))


def _change_node(position: int, **fields: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        for name, text in fields.items():
            setattr(proto.graph.node[position], name, text)

    return change


def _rename(field: str, position: int, name: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        getattr(proto.graph, field)[position].name = name

    return change


def _inputs(position: int, *names: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.node[position].input[:] = names

    return change


def _outputs(position: int, *names: str) -> Change:
    def change(proto: onnx.ModelProto) -> None:
        proto.graph.node[position].output[:] = names

    return change


def _no_graph() -> bytes:
    proto = onnx.ModelProto(ir_version=8, producer_name="nobody")
    proto.opset_import.append(helper.make_opsetid("", 17))
    return bytes(proto.SerializeToString())


def _training(proto: onnx.ModelProto) -> None:
    proto.training_info.add().algorithm.CopyFrom(proto.graph)


def _quantization(proto: onnx.ModelProto) -> None:
    annotation = proto.graph.quantization_annotation.add(tensor_name="nothing")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="nowhere")


_MODEL: Final = "invalid_model missing_input missing_value"
_DECLARED: Final = "invalid_shape invalid_model invalid_type"

CASES: Final[tuple[Case, ...]] = (
    case("a-model-without-a-graph", _no_graph, reject("empty_graph not_onnx"), "the field is missing"),
    case(
        "a-graph-without-nodes",
        edited(lambda p: p.graph.ClearField("node")),
        reject("empty_graph missing_value"),
        "inputs and outputs, and nothing between them",
    ),
    case(
        "a-graph-of-nothing",
        edited(lambda p: p.graph.Clear()),
        reject("empty_graph not_onnx"),
        "the library's checker accepts it",
    ),
    case(
        "a-graph-without-outputs",
        edited(lambda p: p.graph.ClearField("output")),
        reject("empty_graph"),
        "all of it is dead code",
    ),
    case("a-cycle-of-two-nodes", written(_cycle), reject(_UNSORTED, "ring"), "no order exists"),
    case("a-cycle-of-2000-nodes", written(_long_cycle), reject(_UNSORTED, "ring"), "a search by recursion overflows"),
    case(
        "a-node-that-reads-itself",
        edited(_inputs(1, "y")),
        reject(_UNSORTED, "relu", "y"),
        "a self-loop",
    ),
    case("nodes-out-of-order", written(_unsorted), either(_UNSORTED), "ONNX asks for topological order"),
    case(
        "a-value-that-nothing-makes",
        edited(_inputs(1, "nowhere")),
        reject("missing_value", "relu", "nowhere"),
        "a dangling edge",
    ),
    case(
        "an-output-that-nothing-makes",
        edited(_rename("output", 0, "nowhere")),
        reject("missing_value", "nowhere"),
        "a dangling output",
    ),
    case(
        "an-output-without-a-name",
        edited(_rename("output", 0, "")),
        reject("missing_value invalid_model"),
        "a nameless output",
    ),
    case(
        "an-input-without-a-name",
        edited(_rename("input", 0, "")),
        reject("missing_value invalid_model"),
        "a nameless input",
    ),
    case(
        "an-initialiser-without-a-name",
        edited(_rename("initializer", 0, "")),
        reject("missing_value invalid_model"),
        "a nameless weight",
    ),
    case(
        "a-value-made-twice",
        written(partial(_two_nodes, "y")),
        reject("duplicate_value", "second", "y"),
        "single assignment broken",
    ),
    case(
        "a-node-that-overwrites-an-input",
        written(partial(_two_nodes, "x")),
        reject("duplicate_value", "second", "x"),
        "single assignment broken",
    ),
    case(
        "a-node-that-overwrites-an-initialiser",
        edited(_outputs(0, "w")),
        reject("duplicate_value", "w"),
        "a weight that changes",
    ),
    case(
        "an-output-name-twice-in-a-node",
        edited(lambda p: p.graph.node[1].output.append("y")),
        reject("duplicate_value invalid_model", "relu"),
        "single assignment broken inside one node",
    ),
    case(
        "an-initialiser-given-twice",
        edited(lambda p: p.graph.initializer.append(p.graph.initializer[0])),
        accept(),
        "which one holds: in ONNX Runtime the last",
    ),
    case(
        "an-input-given-twice",
        edited(lambda p: p.graph.input.append(value_info("x", [9]))),
        reject("duplicate_value", "x"),
        "two shapes for one name",
    ),
    case(
        "an-output-given-twice",
        edited(lambda p: p.graph.output.append(p.graph.output[0])),
        either("duplicate_value"),
        "one value answered twice",
    ),
    case(
        "a-node-without-outputs", written(_no_output_node), either(f"{_MODEL} unknown_op"), "a node for its side effect"
    ),
    case(
        "a-node-without-a-type",
        edited(_change_node(1, op_type="")),
        reject("unknown_op invalid_model", "relu"),
        "no type",
    ),
    case("a-node-without-inputs", edited(_inputs(1)), reject(_MODEL, "relu"), "Relu of nothing"),
    case(
        "a-required-input-left-out", edited(_inputs(0, "x", "")), reject(_MODEL, "conv"), "a convolution without weight"
    ),
    case(
        "too-many-inputs", edited(_inputs(1, "c", "c", "c")), reject("invalid_model", "relu"), "a Relu of three inputs"
    ),
    case("too-many-outputs", edited(_outputs(1, "y", "z")), reject("invalid_model", "relu"), "a Relu of two outputs"),
    case("an-output-that-is-an-input", written(_input_as_output), accept(), "a value handed through beside others"),
    case("only-an-input-handed-through", written(_pass_through_only), accept(), "no op is needed"),
    case("an-output-that-is-an-initialiser", written(_initialiser_as_output), accept(), "a weight as an answer"),
    case("only-constants", written(_constants_only), accept(), "everything folds away"),
    case("only-scalars", written(_scalars), accept(), "tensors of rank 0"),
    case(
        "an-input-nobody-reads",
        edited(lambda p: p.graph.input.append(value_info("spare", [9]))),
        accept(),
        "an unused input",
    ),
    case(
        "an-initialiser-nobody-reads",
        edited(lambda p: p.graph.initializer.append(helper.make_tensor("spare", TensorProto.FLOAT, [1], [0.0]))),
        accept(),
        "an unused weight",
    ),
    case("an-input-with-a-default", written(_input_with_default), accept(), "an initialiser that is an input too"),
    case("all-names-equal", written(_all_names_equal), accept(), "node names need not differ"),
    case(
        "names-that-would-be-generated", written(_generated_names_taken), accept(), "a clash with names made for others"
    ),
    case("a-hundred-dead-nodes", written(_dead_half), accept(), "nodes that no output needs"),
    case(
        "a-declared-value-that-does-not-exist",
        edited(_value_info("ghost", [4])),
        either("missing_value invalid_model"),
        "value_info without a value",
    ),
    case(
        "a-declared-shape-that-disagrees",
        edited(_value_info("c", [1, 4, 9, 9])),
        either(_DECLARED),
        "value_info against inference",
    ),
    case(
        "a-declared-rank-that-disagrees", edited(_value_info("c", [4])), either(_DECLARED), "value_info of another rank"
    ),
    case(
        "a-declared-type-that-disagrees",
        edited(_value_info("c", [1, 4, 8, 8], TensorProto.INT8)),
        either(f"{_DECLARED} unsupported_dtype"),
        "value_info of another type",
    ),
    case("an-output-shape-that-disagrees", edited(_set_output([1, 4, 9, 9])), either(_DECLARED), "a promise not kept"),
    case(
        "an-output-shape-of-negative-extents",
        edited(_set_output([-1, -4, -(2**63), 8])),
        either(_DECLARED),
        "a promise that nobody can keep",
    ),
    case(
        "an-output-type-that-disagrees",
        edited(_set_output([1, 4, 8, 8], TensorProto.STRING)),
        either(f"{_DECLARED} unsupported_dtype"),
        "text promised, numbers made",
    ),
    case("a-graph-for-training-too", edited(_training), either("invalid_model unsupported_op"), "training_info"),
    case(
        "an-annotation-that-leads-nowhere", edited(_quantization), either("invalid_model missing_value"), "quantisation"
    ),
)
