"""Small valid models of many kinds, to be damaged by `mutate`."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from tests.corpus.archives import external_model, tar_of, weights, zip_of
from tests.corpus.build import edited, small_file, value_info, written
from tests.models import Model


def _image_network(model: Model) -> None:
    """Convolutions, normalisation, pooling, a skip connection and a classifier."""
    x = model.input([1, 3, 16, 16], "x")
    c = model.relu(model.norm(model.conv(x, 3, 8, name="stem"), 8), "act")
    s = model.node("Add", [c, model.conv(c, 8, 8, group=8)], name="skip")
    p = model.pool(s, name="pool")
    flat = model.node("Flatten", [p], axis=1)
    model.output(model.node("Softmax", [model.node("Gemm", [flat, model.weight(512, 10), model.weight(10)])]))


def _attention(model: Model) -> None:
    """Projections, a batched product, softmax, and a layer normalisation."""
    x = model.input([1, 4, 16], "x")
    q, k, v = (model.node("MatMul", [x, model.weight(16, 16)]) for _ in range(3))
    scores = model.node("MatMul", [q, model.node("Transpose", [k], perm=[0, 2, 1])])
    mixed = model.node("MatMul", [model.node("Softmax", [scores], axis=-1), v])
    scale = model.constant(np.ones(16, np.float32))
    model.output(model.node("LayerNormalization", [model.node("Add", [mixed, x]), scale], axis=-1))


def _shape_arithmetic(model: Model) -> None:
    """A Reshape whose target is computed, a Slice, a Split, a Resize, a Gather and a Concat."""
    x = model.input([2, 4, 6, 6], "x")
    batch = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    target = model.node("Concat", [batch, model.ints(4, 36)], axis=0)
    flat = model.node("Reshape", [x, target])
    part = model.node("Slice", [flat, model.ints(0), model.ints(18), model.ints(2)])
    left, right = model.nodes_out("Split", [part, model.ints(2, 2)], ["left", "right"], axis=1)
    joined = model.node("Concat", [right, left], axis=1)
    image = model.node("Reshape", [joined, model.ints(2, 4, 3, 6)])
    scales = model.constant([1.0, 1.0, 2.0, 2.0], dtype="float32")
    model.output(model.node("Resize", [image, "", scales], mode="nearest"))


def _control_flow(model: Model) -> None:
    """An If, a Loop and a recurrent op between native ones."""
    x = model.relu(model.input([3, 1, 4], "x"))
    condition = model.input([], "condition", TensorProto.BOOL)
    branches = {
        key: helper.make_graph([helper.make_node(op, [x], [key])], key, [], [value_info(key, None)])
        for key, op in (("then_branch", "Neg"), ("else_branch", "Abs"))
    }
    chosen = model.node("If", [condition], name="if", **branches)
    step = [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Neg", ["before"], ["after"])]
    inputs = [
        value_info("i", [], TensorProto.INT64),
        value_info("go", [], TensorProto.BOOL),
        value_info("before", None),
    ]
    body = helper.make_graph(step, "body", inputs, [value_info("on", [], TensorProto.BOOL), value_info("after", None)])
    looped = model.node(
        "Loop", [model.constant(3, dtype="int64"), model.constant(True), chosen], name="loop", body=body
    )
    cell = [looped, model.weight(1, 20, 4), model.weight(1, 20, 5)]
    model.nodes_out("LSTM", cell, ["all", "last"], name="cell", hidden_size=5)
    model.output("all")


def _calls(model: Model) -> None:
    model.nodes.append(helper.make_node("scaled", [model.input([4], "x")], ["h"], domain="local", name="call", by=0.5))
    model.output(model.relu("h"))


def _function_model() -> bytes:
    """A model-local function with an attribute, which calls another."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    leaky = helper.make_node("LeakyRelu", ["a"], ["h"])
    leaky.attribute.add(name="alpha", type=1, ref_attr_name="by")
    body = [leaky, helper.make_node("twice", ["h"], ["b"], domain="local")]
    double = helper.make_function("local", "twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets)
    scaled = helper.make_function("local", "scaled", ["a"], ["b"], body, opsets, ["by"])

    def change(proto: onnx.ModelProto) -> None:
        proto.opset_import.append(opsets[1])
        proto.functions.extend([double, scaled])

    return edited(change, _calls)()


def _quantised(model: Model) -> None:
    """Quantisation, a product in integers, and back."""
    scale, zero = model.constant(0.1, dtype="float32"), model.constant(0, dtype="int8")
    x = model.node("QuantizeLinear", [model.input([2, 8], "x"), scale, zero])
    weight = model.constant(model.random.integers(-9, 9, (8, 4)), dtype="int8")
    product = model.node("MatMulInteger", [x, weight])
    model.output(model.node("Mul", [model.node("Cast", [product], to=TensorProto.FLOAT), scale]))


def originals() -> tuple[bytes, ...]:
    """The models' files."""
    pair = (("model.onnx", external_model(offset="0", length="1200")), ("weights.bin", weights()))
    return (
        small_file(),
        written(_image_network)(),
        written(_attention)(),
        written(_shape_arithmetic)(),
        written(_control_flow)(),
        _function_model(),
        written(_quantised)(),
        zip_of(*pair),
        tar_of(*pair),
    )
