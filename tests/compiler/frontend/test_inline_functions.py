"""Functions of the model: what inlining makes of them computes what ONNX Runtime computes of the calls (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, TensorProto, helper

from compiler.errors import LimitError, TesseraError
from compiler.frontend.inline_functions import MAX_CALL_DEPTH, captured
from compiler.ir.graph import Graph
from tests.compiler.execute import by_onnx, same_values
from tests.models import Model, import_graph

LOCAL = "local"
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid(LOCAL, 1)]


def function(
    name: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    nodes: Sequence[onnx.NodeProto],
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
) -> onnx.FunctionProto:
    """A function of the model."""
    return helper.make_function(
        LOCAL, name, list(inputs), list(outputs), list(nodes), OPSETS, list(attributes), list(defaults)
    )


def reference(attribute: str, to: str, kind: Any) -> AttributeProto:
    """An attribute that refers to one of the function's."""
    return AttributeProto(name=attribute, ref_attr_name=to, type=kind)


def node(
    op_type: str, inputs: Sequence[str], outputs: Sequence[str], name: str = "", **attributes: Any
) -> onnx.NodeProto:
    """A node of a function's body; `call` among the attributes makes it a call of a function."""
    domain = LOCAL if attributes.pop("call", False) else ""
    return helper.make_node(op_type, list(inputs), list(outputs), name=name, domain=domain, **attributes)


def called(
    functions: Sequence[onnx.FunctionProto], *, outputs: int = 1, arity: int = 1, **attributes: Any
) -> onnx.ModelProto:
    """A model that calls the first function once, on inputs of [2, 3]."""
    model = Model()
    inputs = [model.input([2, 3], f"in{index}") for index in range(arity)]
    made = [f"out{index}" for index in range(outputs)]
    model.nodes_out(functions[0].name, inputs, made, name="call", domain=LOCAL, **attributes)
    for output in made:
        model.output(output)
    return with_functions(model, functions)


def with_functions(model: Model, functions: Sequence[onnx.FunctionProto]) -> onnx.ModelProto:
    """The model with its functions."""
    proto = model.proto()
    proto.opset_import.append(helper.make_opsetid(LOCAL, 1))
    proto.functions.extend(functions)
    return proto


def kinds(graph: Graph) -> list[str]:
    """The ops' kinds."""
    return [op.kind for op in graph.ops]


def refused(proto: onnx.ModelProto) -> TesseraError:
    """The error that importing gives."""
    with pytest.raises(TesseraError) as caught:
        import_graph(proto.SerializeToString())
    assert caught.value.code != "internal_error"
    return caught.value


# Values and names


def test_a_call_becomes_the_functions_nodes_under_names_of_their_own() -> None:
    body = [node("Neg", ["x"], ["t"], name="first"), node("Sigmoid", ["t"], ["y"])]
    graph = same_values(called([function("f", ["x"], ["y"], body)]))
    assert kinds(graph) == ["Neg", "Sigmoid"]
    assert [op.origin for op in graph.ops] == [("call/first",), ("call/Sigmoid_1",)]
    assert [op.output for op in graph.ops] == ["call/t", "out0"]


def test_two_calls_do_not_share_values() -> None:
    model = Model()
    x = model.input([2, 3])
    for index in range(2):
        x = model.node("f", [x], domain=LOCAL, name=f"call{index}")
    # a value of the graph has the name that the first call's inner value would get
    model.output(model.node("Add", [x, model.node("Abs", [x], out="call0/t")]))
    body = [node("Tanh", ["x"], ["t"]), node("Add", ["t", "x"], ["y"])]
    graph = same_values(with_functions(model, [function("f", ["x"], ["y"], body)]))
    assert kinds(graph) == ["Tanh", "Add", "Tanh", "Add", "Abs", "Add"]
    assert len({op.output for op in graph.ops}) == 6


def test_unnamed_nodes_of_one_kind_in_a_function_keep_apart() -> None:
    body = [node("Neg", ["x"], ["t"]), node("Neg", ["t"], ["u"]), node("Tanh", ["u"], ["y"])]
    graph = same_values(called([function("f", ["x"], ["y"], body)]))
    assert len({op.node for op in graph.ops}) == 3


def test_functions_call_functions() -> None:
    inner = function("g", ["a", "b"], ["y"], [node("Sub", ["a", "b"], ["y"])])
    outer = function(
        "f",
        ["x", "z"],
        ["y"],
        [node("g", ["x", "z"], ["t"], "left", call=True), node("g", ["z", "t"], ["y"], "right", call=True)],
    )
    graph = same_values(called([outer, inner], arity=2))
    assert [op.node for op in graph.ops] == ["call/left/Sub_0", "call/right/Sub_0"]


def test_a_function_whose_nodes_stand_out_of_order_is_put_in_order() -> None:
    body = [node("Neg", ["t"], ["y"]), node("Tanh", ["x"], ["t"])]
    assert kinds(import_graph(called([function("f", ["x"], ["y"], body)]).SerializeToString())) == ["Tanh", "Neg"]


def test_a_function_of_the_name_of_an_operator_hides_only_that_of_its_own_domain() -> None:
    model = Model()
    x = model.node("Relu", [model.input([2, 3])], domain=LOCAL, name="mine")
    model.output(model.node("Relu", [x], name="theirs"))
    graph = same_values(with_functions(model, [function("Relu", ["x"], ["y"], [node("Neg", ["x"], ["y"])])]))
    assert kinds(graph) == ["Neg", "Relu"]


def test_an_operator_may_be_redefined_by_a_function_of_the_default_domain() -> None:
    """A model's own definition comes first."""
    model = Model()
    model.output(model.node("Softplus", [model.input([2, 3])], name="plus"))
    proto = model.proto()
    proto.functions.append(helper.make_function("", "Softplus", ["x"], ["y"], [node("Neg", ["x"], ["y"])], OPSETS[:1]))
    assert kinds(import_graph(proto.SerializeToString())) == ["Neg"]


# Inputs and outputs


@pytest.mark.parametrize("given", [1, 2, 3])
def test_an_optional_input_that_a_call_leaves_out_is_left_out_inside(given: int) -> None:
    body = [node("Clip", ["x", "low", "high"], ["y"])]
    model = Model()
    x = model.input([2, 3])
    bounds = [model.constant(np.float32(value)) for value in (-0.25, 0.5)]
    model.output(model.node("f", [x, *bounds][:given], domain=LOCAL))
    graph = same_values(with_functions(model, [function("f", ["x", "low", "high"], ["y"], body)]))
    assert kinds(graph) in ([], ["Clip"])


def test_an_output_that_is_an_input_is_another_name_for_it() -> None:
    """And what reads that input inside reads the caller's value."""
    body = [node("Tanh", ["x"], ["y"])]
    model = Model()
    x = model.relu(model.input([2, 3]), name="relu")
    model.nodes_out("f", [x], ["same", "y"], domain=LOCAL, name="call")
    model.output(model.node("Add", ["same", "y"]))
    graph = same_values(with_functions(model, [function("f", ["x"], ["x", "y"], body)]), run=by_onnx)
    assert kinds(graph) == ["Relu", "Tanh", "Add"]
    assert graph.ops[2].inputs == (graph.ops[0].output, "y")


def test_an_output_that_nobody_takes_costs_nothing() -> None:
    body = [node("Tanh", ["x"], ["y"]), node("Exp", ["x"], ["z"])]
    model = Model()
    model.nodes_out("f", [model.input([2, 3])], ["", "z"], domain=LOCAL, name="call")
    model.output("z")
    graph = same_values(with_functions(model, [function("f", ["x"], ["y", "z"], body)]))
    assert kinds(graph) == ["Exp"]
    assert graph.folded == ("call/Tanh_0",)


def test_a_call_that_no_output_needs_is_folded_with_all_its_nodes() -> None:
    model = Model()
    x = model.input([2, 3])
    model.node("f", [x], domain=LOCAL, name="dead")
    model.output(model.relu(x))
    graph = import_graph(
        with_functions(model, [function("f", ["x"], ["y"], [node("Neg", ["x"], ["y"])])]).SerializeToString()
    )
    assert graph.folded == ("dead/Neg_0",)


@pytest.mark.parametrize(("inputs", "outputs"), [(2, 1), (1, 2)])
def test_a_call_with_more_values_than_the_function_has_is_refused(inputs: int, outputs: int) -> None:
    error = refused(called([function("f", ["x"], ["y"], [node("Neg", ["x"], ["y"])])], arity=inputs, outputs=outputs))
    assert (error.code, error.node, error.op_type) == ("invalid_model", "call", "f")
    assert error.limit == "1 inputs, 1 outputs"


def test_a_value_that_a_body_reads_and_nothing_makes_is_refused() -> None:
    error = refused(called([function("f", ["x"], ["y"], [node("Add", ["x", "in0"], ["y"], "add")])]))
    assert (error.code, error.actual) == ("missing_value", "in0")
    assert error.node is not None
    assert "add" in error.node


def test_an_input_that_a_call_leaves_out_and_the_body_needs_is_refused() -> None:
    error = refused(called([function("f", ["x", "z"], ["y"], [node("Add", ["x", "z"], ["y"], "add")])]))
    assert (error.code, error.node) == ("missing_input", "call/add")


# Attributes


def leaky(defaults: Sequence[AttributeProto] = ()) -> onnx.FunctionProto:
    """A LeakyRelu whose slope is the function's attribute `slope`."""
    body = node("LeakyRelu", ["x"], ["y"])
    body.attribute.append(reference("alpha", "slope", AttributeProto.FLOAT))
    return function("f", ["x"], ["y"], [body], () if defaults else ("slope",), defaults)


@pytest.mark.parametrize(
    ("given", "defaults", "alpha"),
    [
        ({"slope": 0.5}, (), 0.5),
        ({"slope": 0.5}, (helper.make_attribute("slope", 0.25),), 0.5),
        ({}, (helper.make_attribute("slope", 0.25),), 0.25),
    ],
)
def test_an_attribute_is_the_calls_or_else_the_functions_default(
    given: dict[str, Any], defaults: Sequence[AttributeProto], alpha: float
) -> None:
    graph = same_values(called([leaky(defaults)], **given))
    assert dict(graph.ops[0].attributes)["alpha"] == alpha


def test_an_attribute_without_value_and_default_is_absent_inside() -> None:
    """The operator's own default then holds."""
    graph = import_graph(called([leaky()]).SerializeToString())
    assert dict(graph.ops[0].attributes)["alpha"] == pytest.approx(0.01)


def test_attributes_are_handed_through_nested_calls() -> None:
    middle = node("f", ["x"], ["y"], call=True)
    middle.attribute.append(reference("slope", "tilt", AttributeProto.FLOAT))
    outer = function("g", ["x"], ["y"], [middle], ("tilt",))
    graph = same_values(called([outer, leaky()], tilt=0.75))
    assert dict(graph.ops[0].attributes)["alpha"] == 0.75


def test_an_attribute_that_is_a_list_arrives_as_one() -> None:
    body = node("Transpose", ["x"], ["y"])
    body.attribute.append(reference("perm", "order", AttributeProto.INTS))
    graph = same_values(called([function("f", ["x"], ["y"], [body], ("order",))], order=[1, 0]))
    assert dict(graph.ops[0].attributes)["perm"] == (1, 0)


def test_an_attribute_inside_a_branch_of_a_function_is_replaced_too() -> None:
    inner = node("LeakyRelu", ["x"], ["r"])
    inner.attribute.append(reference("alpha", "slope", AttributeProto.FLOAT))
    other = branch(node("Neg", ["x"], ["r"]))
    body = [node("If", ["c"], ["y"], then_branch=branch(inner), else_branch=other)]
    model = Model()
    model.output(
        model.node("f", [model.input([2, 3]), model.input([1], dtype=TensorProto.BOOL)], domain=LOCAL, slope=0.5)
    )
    graph = same_values(with_functions(model, [function("f", ["x", "c"], ["y"], body, ("slope",))]))
    (host,) = graph.host.values()
    assert b"slope" not in host.node


# Subgraphs


def branch(*nodes: onnx.NodeProto, output: str = "r") -> onnx.GraphProto:
    """A graph without inputs."""
    return helper.make_graph(
        list(nodes), "branch", [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
    )


def chosen(then: onnx.GraphProto, other: onnx.GraphProto) -> onnx.ModelProto:
    """A model that calls a function (x, c) -> If c then ... else ..., its x called `t` and c `c`."""
    model = Model()
    inputs = [model.input([2, 3], "t"), model.input([1], "c", TensorProto.BOOL)]
    model.output(model.node("f", inputs, domain=LOCAL, name="call"))
    body = [node("If", ["c"], ["y"], "if", then_branch=then, else_branch=other)]
    return with_functions(model, [function("f", ["x", "c"], ["y"], body)])


@pytest.mark.parametrize("flag", [True, False])
def test_what_a_branch_of_a_function_captures_is_the_callers_value(flag: bool) -> None:
    proto = chosen(branch(node("Neg", ["x"], ["r"])), branch(node("Exp", ["x"], ["r"])))
    feeds = {"t": np.ones((2, 3), np.float32), "c": np.array([flag])}
    graph = same_values(proto, feeds)
    assert graph.ops[0].inputs == ("c", "t")


@pytest.mark.parametrize("flag", [True, False])
def test_a_value_of_a_branch_does_not_hide_the_callers_value_of_the_same_name(flag: bool) -> None:
    """Inside, `t` is the branch's own; the caller's `t` arrives as `x`, which must not become the inner `t`."""
    then = branch(node("Abs", ["x"], ["t"]), node("Sub", ["t", "x"], ["r"]))
    other = branch(node("Exp", ["x"], ["t"]), node("Sub", ["x", "t"], ["r"]))
    feeds = {"t": np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3), "c": np.array([flag])}
    same_values(chosen(then, other), feeds)


def test_what_is_captured_is_found_at_any_depth_and_once() -> None:
    deep = branch(node("Add", ["x", "mine"], ["q"]), node("Add", ["q", "z"], ["r"]))
    outer = branch(
        node("Neg", ["w"], ["mine"]), node("If", ["c"], ["r"], then_branch=deep, else_branch=deep), output="r"
    )
    whole = node("If", ["c"], ["y"], then_branch=outer, else_branch=branch(output="v"))
    assert sorted(captured(whole)) == ["c", "v", "w", "x", "z"]


def test_functions_called_inside_a_host_node_go_with_it() -> None:
    """IMPORT-6: the host gets all that it needs, and nothing else."""
    model = Model()
    x, c = model.input([2, 3], "x"), model.input([1], "c", TensorProto.BOOL)
    body = branch(node("f", ["x"], ["r"], call=True))
    model.output(model.node("If", [c], then_branch=body, else_branch=branch(node("Neg", [x], ["r"]))))
    inner = function("g", ["x"], ["y"], [node("Tanh", ["x"], ["y"])])
    outer = function("f", ["x"], ["y"], [node("g", ["x"], ["y"], call=True)])
    other = function("h", ["x"], ["y"], [node("Exp", ["x"], ["y"])])
    graph = same_values(with_functions(model, [outer, inner, other]))
    (host,) = graph.host.values()
    assert [onnx.FunctionProto.FromString(data).name for data in host.functions] == ["f", "g"]


# What has no good end


def test_a_function_that_calls_itself_is_refused_with_the_way_round() -> None:
    """IMPORT-4."""
    first = function("f", ["x"], ["y"], [node("g", ["x"], ["y"], call=True)])
    second = function("g", ["x"], ["y"], [node("f", ["x"], ["y"], call=True)])
    error = refused(called([first, second]))
    assert (error.code, error.actual) == ("recursive_function", "f -> g -> f")


def test_a_function_defined_twice_is_refused() -> None:
    body = [node("Neg", ["x"], ["y"])]
    error = refused(called([function("f", ["x"], ["y"], body), function("f", ["x"], ["y"], body)]))
    assert (error.code, error.actual) == ("duplicate_function", "f")


def test_functions_may_be_nested_so_deep_and_no_deeper() -> None:
    """IMPORT-4."""

    def chain(length: int) -> onnx.ModelProto:
        functions = [
            function(f"f{level}", ["x"], ["y"], [node(f"f{level + 1}", ["x"], ["y"], call=True)])
            for level in range(length - 1)
        ]
        return called([*functions, function(f"f{length - 1}", ["x"], ["y"], [node("Neg", ["x"], ["y"])])])

    assert kinds(import_graph(chain(MAX_CALL_DEPTH).SerializeToString())) == ["Neg"]
    error = refused(chain(MAX_CALL_DEPTH + 1))
    assert isinstance(error, LimitError)
    assert (error.code, error.limit) == ("nesting_too_deep", MAX_CALL_DEPTH)


def test_a_functions_body_is_held_to_the_opset_that_it_names() -> None:
    """Gelu exists from opset 20 on, and the function says 17."""
    error = refused(called([function("f", ["x"], ["y"], [node("Gelu", ["x"], ["y"], "gelu")])]))
    assert (error.code, error.node, error.op_type) == ("unknown_op", "f/gelu", "Gelu")


def test_a_functions_body_is_read_by_the_opset_of_the_model() -> None:
    """Softmax of opset 11 flattens, that of the model's 17 does not; ONNX forbids the pair, ONNX Runtime runs it."""
    model = Model()
    model.output(model.node("f", [model.input([2, 3, 4])], domain=LOCAL))
    body = [node("Softmax", ["x"], ["y"], axis=1)]
    proto = with_functions(model, [helper.make_function(LOCAL, "f", ["x"], ["y"], body, [helper.make_opsetid("", 11)])])
    graph = same_values(proto)
    assert [dict(op.attributes)["axes"] for op in graph.ops] == [(1,)]


# Random calls


@st.composite
def programs(draw: st.DrawFn) -> onnx.ModelProto:
    """Functions that call later ones, with shared value names, passed-through inputs and calls that leave outputs."""
    functions = []
    count = draw(st.integers(1, 4))
    for index in range(count):
        known, body = ["x", "z"], []
        for step in range(draw(st.integers(1, 4))):
            first, second = draw(st.sampled_from(known)), draw(st.sampled_from(known))
            callee = draw(st.integers(index, count)) if index + 1 < count else count
            made = [f"v{step}", f"w{step}"]
            if index < callee < count:
                taken = draw(st.sampled_from([made, [made[0], ""], ["", made[1]]]))
                body.append(node(f"f{callee}", [first, second], taken, call=True))
                known += [name for name in taken if name]
            else:
                body.append(node(draw(st.sampled_from(["Add", "Sub", "Max"])), [first, second], made[:1]))
                known.append(made[0])
        outputs = draw(st.lists(st.sampled_from(known[2:]), min_size=1, max_size=1))
        outputs.append(draw(st.sampled_from([name for name in known if name != outputs[0]])))
        functions.append(function(f"f{index}", ["x", "z"], outputs, body))
    model = Model()
    a, b = model.input([2, 3], "v0"), model.input([2, 3], "x")
    model.nodes_out("f0", [b, a], ["p", "q"], domain=LOCAL, name="call")
    model.output(model.node("Sub", ["p", model.node("Tanh", ["q"])]))
    # ONNX's evaluation wants callees first
    return with_functions(model, functions[::-1])


@settings(max_examples=60)
@given(programs())
def test_random_programs_of_functions_compute_what_their_calls_compute(proto: onnx.ModelProto) -> None:
    same_values(proto, run=by_onnx)


# Branches that are known to be taken


def known(
    model: Model, flag: bool, then: onnx.GraphProto, other: onnx.GraphProto, outputs: Sequence[str] = ("y",)
) -> None:
    """An If whose condition is a constant."""
    condition = model.constant(np.array([flag]))
    model.nodes_out("If", [condition], list(outputs), name="if", then_branch=then, else_branch=other)


@pytest.mark.parametrize(("flag", "kind"), [(True, "Tanh"), (False, "Exp")])
def test_of_an_if_whose_condition_is_known_only_the_branch_taken_remains(flag: bool, kind: str) -> None:
    """IMPORT-2: nothing is left to the host."""
    model = Model()
    x = model.relu(model.input([2, 3]))
    known(model, flag, branch(node("Tanh", [x], ["r"], "t")), branch(node("Exp", [x], ["r"])))
    model.output(model.node("Neg", ["y"]))
    graph = same_values(model)
    assert kinds(graph) == ["Relu", kind, "Neg"]
    assert graph.ops[1].node == ("if/t" if flag else "if/Exp_0")
    assert graph.host == {}


def test_a_condition_that_folds_to_a_constant_is_known() -> None:
    """Exporters ask for the rank or an extent."""
    model = Model()
    x = model.input([2, 3])
    model.node("Equal", [model.node("Size", [x]), model.constant(6)], out="c")
    model.nodes_out(
        "If",
        ["c"],
        ["y"],
        then_branch=branch(node("Tanh", [x], ["r"])),
        else_branch=branch(node("Exp", [x], ["r"])),
    )
    model.output("y")
    assert kinds(same_values(model)) == ["Tanh"]


def test_a_branch_brings_its_constants_and_may_hand_out_what_it_captured() -> None:
    model = Model()
    x = model.input([2, 3])
    then = branch(node("Add", [x, "w"], ["r"], "add"))
    then.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [3], [1.0, 2.0, 3.0]))
    for output in (x, "w"):
        then.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    other = branch(node("Neg", [x], ["r"]), node("Abs", [x], ["q"]), node("Exp", [x], ["p"]))
    for output in ("q", "p"):
        other.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    known(model, True, then, other, ["a", "b", "c"])
    model.output(model.node("Sub", [model.node("Add", ["a", "b"]), model.node("Exp", ["c"])]))
    graph = same_values(model, run=by_onnx)
    assert kinds(graph) == ["Add", "Add", "Sub"]
    assert "" not in graph.folded
    assert "if/w" in graph.folded


def test_an_if_inside_a_branch_that_is_taken_is_judged_in_turn() -> None:
    model = Model()
    x, c = model.input([2, 3], "x"), model.input([1], "c", TensorProto.BOOL)
    inner = node(
        "If",
        ["c"],
        ["r"],
        "inner",
        then_branch=branch(node("Neg", ["x"], ["r"])),
        else_branch=branch(node("Abs", ["t"], ["q"]), output="q"),
    )
    known(model, True, branch(node("Tanh", [x], ["t"]), inner), branch(node("Exp", [x], ["r"])))
    model.output("y")
    graph = same_values(model)
    assert [(op.kind, op.node) for op in graph.ops] == [("Tanh", "if/Tanh_0"), ("Host", "if/inner")]
    assert graph.ops[1].inputs == (c, "x", graph.ops[0].output)


def test_what_a_branch_that_is_taken_makes_on_the_host_may_be_captured_alone() -> None:
    """IMPORT-7: nothing reads `h` but the branches of the second If, which get a new name for it."""
    model = Model()
    model.input([2, 3], "x"), model.input([1], "c", TensorProto.BOOL)
    first = node(
        "If", ["c"], ["h"], then_branch=branch(node("Neg", ["x"], ["r"])), else_branch=branch(node("Abs", ["x"], ["r"]))
    )
    second = node(
        "If",
        ["c"],
        ["r"],
        "second",
        then_branch=branch(node("Squeeze", ["h"], ["r"])),
        else_branch=branch(node("Identity", ["h"], ["r"])),
    )
    known(model, True, branch(first, second), branch(node("Exp", ["x"], ["r"])))
    model.output("y")
    graph = same_values(model)
    assert graph.ops[1].inputs == ("c", graph.ops[0].output)


def test_a_branch_with_another_number_of_outputs_is_refused() -> None:
    """IMPORT-4."""
    model = Model()
    x = model.input([2, 3])
    known(model, True, branch(node("Tanh", [x], ["r"])), branch(node("Exp", [x], ["r"])), ["y", "z"])
    model.output("y")
    error = refused(model.proto())
    assert (error.code, error.node, error.op_type, error.limit) == ("invalid_model", "if", "If", 2)


# Operators that the operator set defines as functions


@pytest.mark.parametrize(
    ("op_type", "opset", "attributes"),
    [
        ("Celu", 17, {"alpha": 1.5}),
        ("ThresholdedRelu", 17, {"alpha": 0.25}),
        ("Shrink", 17, {"lambd": 0.25, "bias": 0.125}),
        ("Softsign", 17, {}),
        ("Selu", 17, {}),
        ("HardSigmoid", 17, {}),
        ("Mish", 18, {}),
        ("MeanVarianceNormalization", 17, {"axes": [0, 1]}),
        ("GroupNormalization", 21, {"num_groups": 1}),
    ],
)
def test_an_operator_is_run_by_its_definition_where_that_helps(
    op_type: str, opset: int, attributes: dict[str, Any]
) -> None:
    """IMPORT-2: nothing is left to the host, whatever the definition is written with."""
    model = Model(opset=opset)
    inputs = [model.input([2, 3, 4], "x")]
    if op_type == "GroupNormalization":
        inputs += [model.weight(3), model.weight(3)]
    model.output(model.node(op_type, inputs, name="it", **attributes))
    graph = same_values(model)
    assert graph.host == {}
    assert {op.origin for op in graph.ops} == {("it",)}


def test_a_definition_in_terms_of_control_flow_does_not_help() -> None:
    model = Model(opset=17)
    words = helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, [2, 3])
    model.inputs.append(words)
    body = helper.make_graph(
        [helper.make_node("Neg", ["e"], ["r"])],
        "body",
        [helper.make_tensor_value_info("e", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)],
    )
    mapped = model.node("SequenceMap", ["s"], name="map", body=body)
    model.output(model.node("SequenceAt", [mapped, model.constant(0)], name="at"))
    graph = model.graph()
    assert {op.node: op.kind for op in graph.ops} == {"map": "Host", "at": "Host"}
