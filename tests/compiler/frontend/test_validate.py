"""Validation: what onnx.checker lets through is refused by name, and nodes are put in order (IMPORT-4)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper

from compiler.errors import LimitError, TesseraError
from compiler.frontend import validate as module
from compiler.frontend.read import OnnxModel, ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import MAX_INPUTS, MAX_NAME_BYTES, MAX_NESTING, MAX_RANK, ValidateModel
from tests.models import Model, import_graph
from tests.strategies import models


def read(proto: onnx.ModelProto) -> OnnxModel:
    """The model as validation gets it."""
    return ReadModel().run(ModelSource.from_bytes(proto.SerializeToString()))


def validated(proto: onnx.ModelProto) -> onnx.ModelProto:
    """The model after validation."""
    return ValidateModel().run(read(proto)).proto


def refused(model: Model | onnx.ModelProto) -> TesseraError:
    """The error that validation gives."""
    proto = model.proto() if isinstance(model, Model) else model
    with pytest.raises(TesseraError) as caught:
        validated(proto)
    error = caught.value
    assert error.stage == "import"
    assert error.code != "internal_error"
    return error


def relu(*, name: str = "relu") -> Model:
    """A Relu."""
    model = Model()
    model.output(model.relu(model.input([1, 4], "x"), name=name))
    return model


def branch(*nodes: onnx.NodeProto, outputs: tuple[str, ...] = ("r",), name: str = "branch") -> onnx.GraphProto:
    """A graph without inputs, for an If."""
    values = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None) for output in outputs]
    return helper.make_graph(list(nodes), name, [], values)


def condition(model: Model, *nodes: onnx.NodeProto, name: str = "if") -> str:
    """An If at run time whose branches both consist of the nodes and make `r`."""
    flag = model.input([1], dtype=TensorProto.BOOL)
    return model.node("If", [flag], name=name, then_branch=branch(*nodes), else_branch=branch(*nodes))


# Order


def test_a_model_in_order_stays_the_object_it_is() -> None:
    model = read(relu().proto())
    assert ValidateModel().run(model) is model


def test_nodes_out_of_order_are_put_in_one_that_keeps_theirs_where_it_can() -> None:
    model = Model()
    x = model.input([1, 4])
    a = model.relu(x, name="a")
    b = model.relu(x, name="b")
    model.output(model.node("Add", [a, b], name="sum"))
    model.output(model.relu(x, name="last"))
    nodes = model.nodes
    model.nodes = [nodes[2], nodes[1], nodes[0], nodes[3]]
    assert [node.name for node in validated(model.proto()).graph.node] == ["b", "a", "sum", "last"]


def test_nodes_that_move_keep_the_names_of_their_places() -> None:
    """Unnamed nodes are called by op type and place in the file, wherever they end up."""
    model = Model()
    model.output(model.relu(model.node("Neg", [model.input([1, 4])])))
    model.nodes.reverse()
    assert [node.name for node in validated(model.proto()).graph.node] == ["Neg_1", "Relu_0"]


def test_a_value_that_a_branch_captures_comes_before_its_node() -> None:
    model = Model()
    x = model.input([1, 4], "x")
    model.output(condition(model, helper.make_node("Neg", ["late"], ["r"])))
    model.node("Relu", [x], out="late", name="relu")
    assert [node.name for node in validated(model.proto()).graph.node] == ["relu", "if"]


def test_weights_stay_where_they_are_when_nodes_move() -> None:
    model = Model()
    x = model.conv(model.input([1, 16, 4, 4]), 16, 32, name="conv")
    model.output(model.relu(x, name="relu"))
    model.nodes.reverse()
    before = read(model.proto())
    after = ValidateModel().run(before)
    assert after.weights == before.weights != {}
    assert after.source is before.source


@settings(max_examples=60)
@given(models(max_ops=10), st.randoms(use_true_random=False))
def test_any_order_of_the_nodes_gives_the_same_graph(model: Model, random: Any) -> None:
    """Judged by following the values, not by the compiler's order."""
    for index, node in enumerate(model.nodes):
        node.name = f"node{index}"
    expected = model.graph()
    random.shuffle(model.nodes)
    proto = validated(model.proto())
    known = {value.name for value in proto.graph.input} | {tensor.name for tensor in proto.graph.initializer}
    for node in proto.graph.node:
        assert {name for name in node.input if name} <= known
        known.update(node.output)
    assert len(proto.graph.node) == len(model.nodes)
    found = import_graph(model.data())
    assert {op.output: op for op in found.ops} == {op.output: op for op in expected.ops}
    assert found.tensors == expected.tensors


# What depends on itself, is missing or made twice


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_is_refused_with_a_node_on_it(length: int) -> None:
    """IMPORT-4. The nodes before and behind the cycle are not on it."""
    model = Model()
    x = model.relu(model.input([1, 4]), name="before")
    names = [f"c{index}" for index in range(length)]
    for index, name in enumerate(names):
        model.node("Add", [x, names[index - 1]], out=name, name=name)
    model.output(model.relu(names[-1], name="behind"))
    model.output(x)
    error = refused(model)
    assert (error.code, error.op_type) == ("cycle", "Add")
    assert error.node in names
    assert error.actual in names


def test_a_branch_that_captures_what_its_own_node_makes_is_a_cycle() -> None:
    model = Model()
    flag = model.input([1], dtype=TensorProto.BOOL)
    body = branch(helper.make_node("Neg", ["y"], ["r"]))
    model.output(model.node("If", [flag], out="y", name="if", then_branch=body, else_branch=body))
    error = refused(model)
    assert (error.code, error.node) == ("cycle", "if")


def test_a_value_that_nothing_makes_is_named_with_its_reader() -> None:
    model = Model()
    model.output(model.node("Add", [model.input([1, 4]), "nowhere"], name="add"))
    error = refused(model)
    assert (error.code, error.node, error.op_type, error.actual) == ("missing_value", "add", "Add", "nowhere")


def test_a_value_that_nothing_makes_is_named_inside_a_branch_too() -> None:
    model = Model()
    model.output(condition(model, helper.make_node("Neg", ["nowhere"], ["r"])))
    error = refused(model)
    assert (error.code, error.node, error.actual) == ("missing_value", "if", "nowhere")


def test_what_one_branch_makes_the_other_does_not_see() -> None:
    model = Model()
    flag = model.input([1], dtype=TensorProto.BOOL)
    made = branch(helper.make_node("Constant", [], ["r"], value_float=1.0))
    model.output(
        model.node(
            "If",
            [flag],
            name="if",
            then_branch=made,
            else_branch=branch(helper.make_node("Neg", ["r"], ["q"]), outputs=("q",)),
        )
    )
    assert refused(model).actual == "r"


def test_a_value_made_twice_is_named_with_the_second_node() -> None:
    model = Model()
    x = model.input([1, 4])
    model.node("Relu", [x], out="y", name="first")
    model.output(model.node("Neg", [x], out="y", name="second"))
    error = refused(model)
    assert (error.code, error.node, error.actual) == ("duplicate_value", "second", "y")


def test_a_node_that_makes_one_value_twice_is_refused() -> None:
    model = Model()
    model.nodes_out("Split", [model.input([1, 4])], ["y", "y"], axis=1, name="split")
    model.output("y")
    error = refused(model)
    assert (error.code, error.node) == ("duplicate_value", "split")


def test_a_node_that_makes_an_initialiser_is_refused() -> None:
    model = Model()
    model.output(model.node("Relu", [model.input([4])], out=model.weight(4), name="relu"))
    assert refused(model).code == "duplicate_value"


@pytest.mark.parametrize("what", ["input", "initializer"])
@pytest.mark.parametrize(("name", "code"), [("x", "duplicate_value"), ("", "invalid_model")])
def test_inputs_and_initialisers_have_names_of_their_own(what: str, name: str, code: str) -> None:
    """Two initializers of one name and type are one: see test_tolerated.py."""
    proto = relu().proto()
    if what == "input":
        proto.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]))
    else:
        for extent in (1, 2):
            proto.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [extent], [0.0] * extent))
    error = refused(proto)
    assert error.code == code
    assert what in error.message


def test_an_initialiser_may_be_listed_as_an_input() -> None:
    """IR version 3 does so: it is one value with a default."""
    model = Model(ir_version=3)
    w = model.weight(4)
    model.input([4], w)
    model.output(model.node("Add", [model.input([4]), w]))
    proto = model.proto()
    assert validated(proto) == proto


# Bounds


def nested(depth: int) -> onnx.ModelProto:
    """Ifs inside Ifs."""
    node = helper.make_node("Neg", ["x"], ["r"])
    for _ in range(depth - 1):
        node = helper.make_node("If", ["flag"], ["r"], then_branch=branch(node), else_branch=branch(node))
    model = Model()
    model.input([1, 4], "x")
    model.input([1], "flag", TensorProto.BOOL)
    body = branch(node)
    model.output(model.node("If", ["flag"], then_branch=body, else_branch=body))
    return model.proto()


def chained(depth: int) -> onnx.ModelProto:
    """Ifs inside the then-branches only, so that their number grows with the depth and not with its power."""
    plain = branch(helper.make_node("Neg", ["x"], ["r"]))
    node = helper.make_node("Neg", ["x"], ["r"])
    for _ in range(depth):
        node = helper.make_node("If", ["flag"], ["r"], then_branch=branch(node), else_branch=plain)
    model = Model()
    model.input([1, 4], "x")
    model.input([1], "flag", TensorProto.BOOL)
    proto = model.proto()
    proto.graph.node.append(node)
    proto.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, None))
    return proto


def test_subgraphs_may_be_nested_so_deep_and_no_deeper() -> None:
    validated(chained(MAX_NESTING))
    error = refused(chained(MAX_NESTING + 1))
    assert isinstance(error, LimitError)
    assert (error.code, error.limit) == ("nesting_too_deep", MAX_NESTING)


def test_nodes_of_subgraphs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """15 Ifs and 16 nodes inside the innermost."""
    monkeypatch.setattr(module, "MAX_NODES", 31)
    validated(nested(4))
    monkeypatch.setattr(module, "MAX_NODES", 30)
    error = refused(nested(4))
    assert (error.code, error.actual, error.limit) == ("too_many_nodes", 31, 30)


def test_values_of_subgraphs_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_VALUES", 10)
    assert refused(nested(4)).code == "too_many_values"


def named(place: str, name: str) -> onnx.ModelProto:
    """A Relu with a name somewhere."""
    proto = relu().proto()
    node = proto.graph.node[0]
    match place:
        case "node":
            node.name = name
        case "op type":
            node.op_type = name
        case "domain":
            node.domain = name
        case "attribute":
            node.attribute.append(helper.make_attribute(name, 1))
        case "value":
            node.input[0] = proto.graph.input[0].name = name
        case "dimension":
            proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        case "initializer":
            proto.graph.initializer.append(helper.make_tensor(name, TensorProto.FLOAT, [1], [0.0]))
    return proto


PLACES = ["node", "op type", "domain", "attribute", "value", "dimension", "initializer"]


@pytest.mark.parametrize("place", PLACES)
def test_names_have_a_longest_length(place: str) -> None:
    error = refused(named(place, "n" * (MAX_NAME_BYTES + 1)))
    assert (error.code, error.limit) == ("name_too_long", MAX_NAME_BYTES)
    assert place in error.message
    assert len(str(error)) < 300


@pytest.mark.parametrize("place", ["node", "value", "dimension", "initializer"])
def test_names_of_that_length_are_accepted(place: str) -> None:
    proto = named(place, "n" * MAX_NAME_BYTES)
    assert validated(proto) == proto


@pytest.mark.parametrize("field", ["input", "output"])
def test_a_node_has_a_largest_number_of_inputs_and_outputs(field: str) -> None:
    proto = relu().proto()
    getattr(proto.graph.node[0], field).extend(["x"] * MAX_INPUTS)
    error = refused(proto)
    assert (error.code, error.node, error.actual) == ("too_many_values", "relu", MAX_INPUTS + 1)


# Nodes against the operator set


def broken(change: Callable[[onnx.NodeProto], Any], op_type: str = "Conv") -> onnx.ModelProto:
    """A convolution (or pooling) called `it` that is changed."""
    model = Model()
    x = model.input([1, 4, 8, 8])
    if op_type == "Conv":
        model.output(model.conv(x, 4, 4, name="it"))
    else:
        model.output(model.pool(x, name="it"))
    proto = model.proto()
    change(proto.graph.node[0])
    return proto


def twice(node: onnx.NodeProto) -> None:
    """Give an attribute twice."""
    node.attribute.append(node.attribute[0])


def without(name: str) -> Callable[[onnx.NodeProto], None]:
    """Leave an attribute out."""

    def change(node: onnx.NodeProto) -> None:
        kept = [attribute for attribute in node.attribute if attribute.name != name]
        del node.attribute[:]
        node.attribute.extend(kept)

    return change


@pytest.mark.parametrize(
    ("change", "code", "text"),
    [
        (lambda n: n.input.extend(["x1", "x1"]), "invalid_model", "number of inputs"),
        (lambda n: n.input.pop(), "invalid_model", "number of inputs"),
        (lambda n: n.output.append("more"), "invalid_model", "number of outputs"),
        (lambda n: n.output.pop(), "invalid_model", "number of outputs"),
        (lambda n: n.input.__setitem__(1, ""), "missing_input", "input 1"),
        (twice, "duplicate_attribute", "twice"),
        (lambda n: n.attribute.append(helper.make_attribute("colour", 1)), "invalid_model", "colour"),
        (lambda n: n.attribute.append(helper.make_attribute("auto_pad", 1)), "invalid_model", "auto_pad"),
    ],
)
def test_a_node_that_its_operator_does_not_allow_is_refused(
    change: Callable[[onnx.NodeProto], Any], code: str, text: str
) -> None:
    """IMPORT-4."""
    error = refused(broken(change))
    assert (error.code, error.node, error.op_type) == (code, "it", "Conv")
    assert text in error.message


def test_a_required_attribute_that_is_missing_is_named() -> None:
    error = refused(broken(without("kernel_shape"), "MaxPool"))
    assert (error.code, error.node) == ("invalid_model", "it")
    assert "kernel_shape" in error.message


def test_an_optional_input_may_be_left_out_and_an_unused_output_too() -> None:
    for proto in (broken(lambda n: n.input.append("")), broken(lambda n: n.output.append(""), "MaxPool")):
        assert validated(proto) == proto


def test_an_attribute_of_a_type_that_does_not_exist_is_refused() -> None:
    """Its number stands in the error, for there is no name."""

    def change(node: onnx.NodeProto) -> None:
        node.attribute.append(AttributeProto(name="auto_pad", type=AttributeProto.UNDEFINED, s=b"VALID"))

    assert "auto_pad" in refused(broken(change)).message


def test_nodes_of_a_branch_are_held_to_the_operator_set_too() -> None:
    model = Model()
    model.input([1, 4], "x")
    model.output(condition(model, helper.make_node("Nonsense", ["x"], ["r"], name="inner")))
    error = refused(model)
    assert (error.code, error.node, error.op_type) == ("unknown_op", "if/inner", "Nonsense")


# Tensors


def with_tensor(tensor: TensorProto, place: str) -> onnx.ModelProto:
    """A model with the tensor as initialiser, attribute, or initialiser of a branch."""
    model = Model()
    x = model.input([1, 4], "x")
    if place == "initializer":
        model.output(model.relu(x))
        model.initializers.append(tensor)
    elif place == "attribute":
        model.output(model.relu(x))
        model.node("Constant", [], value=tensor, name="constant")
    else:
        body = branch(helper.make_node("Neg", ["x"], ["r"]))
        body.initializer.append(tensor)
        model.output(model.node("If", [model.input([1], dtype=TensorProto.BOOL)], then_branch=body, else_branch=body))
    return model.proto()


@pytest.mark.parametrize("place", ["initializer", "attribute", "branch"])
@pytest.mark.parametrize(
    ("tensor", "code"),
    [
        (TensorProto(name="t", data_type=1, dims=[2, -1], raw_data=b"\0" * 8), "invalid_shape"),
        (TensorProto(name="t", data_type=1, dims=[1] * (MAX_RANK + 1), raw_data=b"\0" * 4), "invalid_shape"),
        (TensorProto(name="t", data_type=1, dims=[2**40, 2], raw_data=b"\0" * 4), "tensor_too_large"),
        (TensorProto(name="t", data_type=1, dims=[2**62, 4], raw_data=b"\0" * 4), "tensor_too_large"),
    ],
)
def test_a_tensor_of_impossible_form_is_refused_wherever_it_stands(place: str, tensor: TensorProto, code: str) -> None:
    """IMPORT-4: negative, huge and overflowing dims."""
    assert refused(with_tensor(tensor, place)).code == code


@pytest.mark.parametrize("place", ["initializer", "attribute", "branch"])
def test_a_proper_tensor_is_accepted_wherever_it_stands(place: str) -> None:
    for tensor in (
        TensorProto(name="t", data_type=1, dims=[0, 3]),
        helper.make_tensor("t", 1, [2], np.zeros(2, np.float32)),
    ):
        proto = with_tensor(tensor, place)
        assert validated(proto) == proto


@pytest.mark.parametrize("tensor", [{"raw_data": b"\0" * 4}, {"int32_data": [1]}])
def test_values_in_two_fields_are_refused_in_a_branch(tensor: dict[str, Any]) -> None:
    """IMPORT-4: as by ONNX Runtime, which checks subgraphs more strictly than the graph (test_tolerated.py)."""
    both = TensorProto(name="t", data_type=1, dims=[1], float_data=[1.0], **tensor)
    assert refused(with_tensor(both, "branch")).code == "invalid_tensor"


def test_external_data_of_a_branch_is_refused() -> None:
    """It would be read by nobody but the host, which has only the node."""
    tensor = TensorProto(name="t", data_type=1, dims=[2], data_location=TensorProto.EXTERNAL)
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value="w.bin"))
    error = refused(with_tensor(tensor, "branch"))
    assert (error.code, error.op_type) == ("external_data", "If")
