"""Lowering: names, origins, folding, and errors that name the node (IMPORT-2, IMPORT-4, IMPORT-5)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.errors import LimitError, ModelError, TesseraError
from compiler.frontend.constant_values import materialise
from compiler.frontend.source import ModelSource
from compiler.ir.constant import Splat, Stored
from compiler.ops import OP_KINDS
from compiler.option_words import parse_assignments
from compiler.options import Options
from compiler.profile import builtin_profile
from compiler.simulator.run import run_executable
from tests.compiler.planning import BY_RULES
from tests.models import Model, error_of, import_graph


def refused(model: Model, dims: Mapping[str, int] | None = None) -> TesseraError:
    """The error that importing a model gives."""
    with pytest.raises(TesseraError) as caught:
        model.graph(dims)
    assert caught.value.stage == "import"
    return caught.value


# Names and origins


def test_unnamed_nodes_are_called_by_op_type_and_index() -> None:
    model = Model()
    model.output(model.relu(model.node("Sigmoid", [model.input([1, 4])])))
    assert [op.node for op in model.graph().ops] == ["Sigmoid_0", "Relu_1"]


def test_nodes_that_share_a_name_get_names_of_their_own() -> None:
    model = Model()
    model.output(model.relu(model.relu(model.input([1, 4]), name="same"), name="same"))
    assert [op.node for op in model.graph().ops] == ["same", "Relu_1"]


def test_a_made_up_name_avoids_the_names_that_nodes_have() -> None:
    model = Model()
    model.output(model.relu(model.relu(model.input([1, 4])), name="Relu_0"))
    assert len({op.node for op in model.graph().ops}) == 2
    assert model.graph().ops[1].node == "Relu_0"


def test_dropout_and_identity_become_origins_of_the_op_before() -> None:
    model = Model()
    x = model.relu(model.input([1, 4]), name="relu")
    x = model.node("Identity", [model.node("Dropout", [x], name="dropout")], name="identity")
    model.output(model.node("Sigmoid", [x], name="sigmoid"))
    graph = model.graph()
    assert [op.origin for op in graph.ops] == [("relu", "dropout", "identity"), ("sigmoid",)]
    assert graph.ops[1].inputs == (graph.ops[0].output,)


def test_an_identity_of_a_graph_input_is_folded() -> None:
    model = Model()
    model.output(model.relu(model.node("Identity", [model.input([1, 4], "x")], name="identity")))
    graph = model.graph()
    assert graph.folded == ("identity",)
    assert graph.ops[0].inputs == ("x",)


@pytest.mark.parametrize(
    "build",
    [
        lambda model, x: model.node("Reshape", [x, model.ints(1, 4)]),
        lambda model, x: model.node("Transpose", [x], perm=[0, 1]),
        lambda model, x: model.node("Slice", [x, model.ints(0), model.ints(99), model.ints(1)]),
        lambda model, x: model.node("Pad", [x, model.ints(0, 0, 0, 0)]),
        lambda model, x: model.node("Cast", [x], to=TensorProto.FLOAT),
        lambda model, x: model.node("Concat", [x], axis=1),
        lambda model, x: model.node("Expand", [x, model.ints(1, 1)]),
    ],
)
def test_an_op_that_changes_nothing_leaves_no_op(build: Callable[[Model, str], str]) -> None:
    model = Model()
    model.output(model.relu(build(model, model.relu(model.input([1, 4])))))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Relu", "Relu"]
    assert len(graph.ops[0].origin) == 2


def test_nodes_that_no_output_needs_are_folded() -> None:
    model = Model()
    x = model.input([1, 4])
    model.relu(model.node("Sigmoid", [x], name="dead1"), name="dead2")
    model.output(model.relu(x, name="live"))
    graph = model.graph()
    assert [op.node for op in graph.ops] == ["live"]
    assert graph.folded == ("dead1", "dead2")


def test_a_split_that_no_output_needs_is_folded() -> None:
    model = Model()
    x = model.input([1, 4])
    model.nodes_out("Split", [x], ["a", "b"], name="dead", axis=1)
    model.output(model.relu(x))
    assert model.graph().folded == ("dead",)


def test_a_split_becomes_one_slice_per_used_output() -> None:
    model = Model()
    model.nodes_out("Split", [model.input([1, 7]), model.ints(2, 4, 1)], ["a", "b", "c"], name="split", axis=1)
    model.output(model.relu("a"))
    model.output(model.relu("c"))
    slices = [op for op in model.graph().ops if op.kind == "Slice"]
    assert [dict(op.attributes)["begin"] for op in slices] == [(0, 0), (0, 6)]
    assert {op.origin for op in slices} == {("split",)}


def test_a_split_without_sizes_cuts_into_equal_parts_and_a_shorter_last() -> None:
    """Opset 18: num_outputs."""
    model = Model(opset=18)
    model.nodes_out("Split", [model.input([1, 7])], ["a", "b", "c"], axis=1, num_outputs=3)
    for name in ("a", "b", "c"):
        model.output(model.relu(name))
    graph = model.graph()
    assert [graph.tensors[name].shape[1] for name in ("a", "b", "c")] == [3, 3, 1]


def test_several_output_names_may_be_one_tensor() -> None:
    model = Model()
    x = model.output(model.relu(model.input([1, 4])))
    copy = model.output(model.node("Identity", [x]))
    graph = model.graph()
    assert graph.outputs == (x,)
    assert graph.output_names == (x, copy)


def test_initialisers_listed_as_inputs_are_constants() -> None:
    """IR version 3 lists every initialiser as an input."""
    model = Model(opset=9, ir_version=3)
    x, w = model.input([1, 4]), model.constant(np.ones((4, 4), dtype=np.float32), "w")
    model.input([4, 4], "w")
    model.output(model.node("MatMul", [x, w]))
    graph = model.graph()
    assert graph.inputs == (x,)
    assert graph.tensors["w"].constant is not None


# Constants


def test_large_weights_stay_in_the_file() -> None:
    model = Model()
    model.output(model.conv(model.input([1, 16, 4, 4]), 16, 32))
    graph = import_graph(model.data())
    constant = graph.tensors[graph.ops[0].inputs[1]].constant
    assert constant is not None
    assert isinstance(constant.data, Stored)
    assert constant.data.size_bytes == 32 * 16 * 9 * 4


def test_a_constant_of_shape_stays_a_splat_however_large() -> None:
    """IMPORT-2: nothing is expanded."""
    model = Model()
    value = helper.make_tensor("value", TensorProto.FLOAT, [1], [0.5])
    w = model.node("ConstantOfShape", [model.ints(4096, 4096)], value=value)
    w = model.node("Transpose", [model.node("Reshape", [w, model.ints(1024, 16384)])], perm=[1, 0])
    model.output(model.node("MatMul", [model.input([1, 16384]), w]))
    graph = model.graph()
    constant = graph.tensors[graph.ops[0].inputs[1]].constant
    assert constant is not None
    assert constant.shape == (16384, 1024)
    assert isinstance(constant.data, Splat)
    assert np.frombuffer(constant.data.value, dtype=np.float32).tolist() == [0.5]


def folded_value(build: Callable[[Model], str], *, dtype: int) -> None:
    """The value that folding gives, after checking that it equals ONNX Runtime's."""
    model = Model()
    out = model.output(build(model), dtype)
    data = model.data()
    graph = import_graph(data)
    constant = graph.tensors[out if out in graph.tensors else graph.outputs[0]].constant
    assert constant is not None, "not folded"
    assert graph.ops == ()
    found: Any = materialise(constant, ModelSource.from_bytes(data))
    (expected,) = model.run({})
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-6)


INT = TensorProto.INT64
FOLDS: dict[str, tuple[Callable[[Model], str], int]] = {
    "shape arithmetic": (
        lambda m: m.node("Concat", [m.ints(1), m.node("Gather", [m.ints(7, 8, 9), m.ints(2, -3)], axis=0)], axis=0),
        INT,
    ),
    "integer division truncates": (lambda m: m.node("Div", [m.ints(7, -7, 7, -7), m.ints(2, 2, -2, -2)]), INT),
    "add broadcast": (lambda m: m.node("Add", [m.weight(3, 1), m.weight(4)]), TensorProto.FLOAT),
    "sub": (lambda m: m.node("Sub", [m.ints(5, 2), m.ints(9)]), INT),
    "mul": (lambda m: m.node("Mul", [m.weight(2, 3), m.weight(3)]), TensorProto.FLOAT),
    "div by zero": (lambda m: m.node("Div", [m.weight(4), m.constant(np.zeros(4, np.float32))]), TensorProto.FLOAT),
    "max of three": (lambda m: m.node("Max", [m.weight(4), m.weight(4), m.weight(1)]), TensorProto.FLOAT),
    "min": (lambda m: m.node("Min", [m.ints(1, 5), m.ints(3)]), INT),
    "sum": (lambda m: m.node("Sum", [m.weight(4), m.weight(2, 4)]), TensorProto.FLOAT),
    "neg": (lambda m: m.node("Neg", [m.ints(1, -5)]), INT),
    "abs": (lambda m: m.node("Abs", [m.weight(5)]), TensorProto.FLOAT),
    "sqrt": (lambda m: m.node("Sqrt", [m.node("Abs", [m.weight(5)])]), TensorProto.FLOAT),
    "floor": (lambda m: m.node("Floor", [m.weight(9)]), TensorProto.FLOAT),
    "ceil": (lambda m: m.node("Ceil", [m.weight(9)]), TensorProto.FLOAT),
    "cast to integers": (lambda m: m.node("Cast", [m.constant([1.7, -1.7], dtype=np.float32)], to=INT), INT),
    "slice with steps": (
        lambda m: m.node("Slice", [m.weight(5, 7), m.ints(1, -5), m.ints(5, 7), m.ints(0, 1), m.ints(2, 3)]),
        TensorProto.FLOAT,
    ),
    "transpose": (lambda m: m.node("Transpose", [m.weight(2, 3, 4)], perm=[2, 0, 1]), TensorProto.FLOAT),
    "reshape": (lambda m: m.node("Reshape", [m.weight(2, 3, 4), m.ints(0, -1)]), TensorProto.FLOAT),
    "squeeze": (lambda m: m.node("Squeeze", [m.weight(1, 3, 1), m.ints(-1)]), TensorProto.FLOAT),
    "unsqueeze": (lambda m: m.node("Unsqueeze", [m.weight(3), m.ints(0, -1)]), TensorProto.FLOAT),
    "flatten": (lambda m: m.node("Flatten", [m.weight(2, 3, 4)], axis=2), TensorProto.FLOAT),
    "expand": (lambda m: m.node("Expand", [m.weight(3, 1), m.ints(2, 1, 4)]), TensorProto.FLOAT),
    "where": (
        lambda m: m.node("Where", [m.constant([True, False]), m.weight(2), m.weight(2, 1)]),
        TensorProto.FLOAT,
    ),
    "equal": (lambda m: m.node("Equal", [m.ints(1, 2), m.ints(1, 3)]), TensorProto.BOOL),
    "less": (lambda m: m.node("Less", [m.ints(1, 2), m.ints(1, 3)]), TensorProto.BOOL),
    "not": (lambda m: m.node("Not", [m.constant([True, False])]), TensorProto.BOOL),
    "range": (lambda m: m.node("Range", [m.constant(2), m.constant(11), m.constant(3)]), INT),
    "range downwards": (lambda m: m.node("Range", [m.constant(5), m.constant(-1), m.constant(-2)]), INT),
    "constant ints": (lambda m: m.node("Constant", [], value_ints=[3, 1]), INT),
    "constant float": (lambda m: m.node("Constant", [], value_float=2.5), TensorProto.FLOAT),
    "gather rows": (
        lambda m: m.node("Gather", [m.weight(4, 3), m.constant([[0, -1], [2, 2]])], axis=0),
        TensorProto.FLOAT,
    ),
    "constant of shape": (lambda m: m.node("ConstantOfShape", [m.ints(2, 3)]), TensorProto.FLOAT),
}


@pytest.mark.parametrize("case", sorted(FOLDS))
def test_folding_gives_the_values_of_onnx_runtime(case: str) -> None:
    """IMPORT-2."""
    build, dtype = FOLDS[case]
    folded_value(build, dtype=dtype)


def test_the_shape_of_an_activation_is_known() -> None:
    model = Model()
    x = model.input([2, 3, 4, 5])
    half = model.node("Gather", [model.node("Shape", [x]), model.constant(0)], axis=0)
    target = model.node("Concat", [model.node("Unsqueeze", [half, model.ints(0)]), model.ints(-1)], axis=0)
    out = model.output(model.relu(model.node("Reshape", [x, target])))
    graph = model.graph()
    assert graph.tensors[out].shape == (2, 60)
    assert len(graph.folded) == 4


@pytest.mark.parametrize(("begin", "end", "expected"), [(1, 3, [3, 4]), (-1, 99, [5]), (0, -1, [2, 3, 4])])
def test_shape_takes_a_part_of_the_axes(begin: int, end: int, expected: list[int]) -> None:
    """Opset 15: start and end."""
    model = Model()
    x = model.input([2, 3, 4, 5])
    model.output(model.node("Shape", [x], start=begin, end=end), INT)
    graph = model.graph()
    constant = graph.tensors[graph.outputs[0]].constant
    assert constant is not None
    assert materialise(constant, ModelSource.from_bytes(b"")).tolist() == expected


def test_bfloat16_constants_are_not_computed_as_integers() -> None:
    """numpy has no such type; arithmetic on bit patterns would be wrong."""
    model = Model()
    for name in ("a", "b"):
        model.initializers.append(helper.make_tensor(name, TensorProto.BFLOAT16, [2], [1.0, 2.0]))
    total = model.node("Add", ["a", "b"])
    x = model.input([2], dtype=TensorProto.BFLOAT16)
    model.output(model.node("Mul", [x, total], name="mul"), TensorProto.BFLOAT16)
    data = model.data()
    graph = import_graph(data)
    found = graph.tensors[graph.ops[-1].inputs[1]].constant
    assert found is not None
    bits = materialise(found, ModelSource.from_bytes(data)).view(np.uint16).astype(np.uint32) << 16
    assert bits.view(np.float32).tolist() == [2.0, 4.0]


# Errors


def test_an_unknown_op_is_named_with_its_node() -> None:
    """IMPORT-4."""
    model = Model()
    model.output(model.node("Nonsense", [model.input([1, 4])], name="the one"))
    error = refused(model)
    assert (error.code, error.node, error.op_type, error.actual) == ("unknown_op", "the one", "Nonsense", "opset 17")
    assert error.hint is not None


@pytest.mark.parametrize(
    ("kind", "opset", "hint"),
    [("Gelu", 17, "exists from opset 20 on"), ("Upsample", 17, "withdrawn in opset 10"), ("Reul", 17, "name")],
)
def test_an_op_that_the_opset_does_not_have_is_refused_with_the_opset_that_has_it(
    kind: str, opset: int, hint: str
) -> None:
    """IMPORT-1: clear error beyond."""
    model = Model(opset=opset)
    model.output(model.node(kind, [model.input([1, 4])], name="the one"))
    error = refused(model)
    assert (error.code, error.node, error.op_type) == ("unknown_op", "the one", kind)
    assert hint in str(error.hint)


@pytest.mark.parametrize(
    ("kind", "opset", "native"),
    [("LayerNormalization", 11, "LayerNormalization"), ("SimplifiedLayerNormalization", 14, "RMSNormalization")],
)
def test_normalisations_that_onnx_runtime_adds_to_every_opset_are_the_standards(
    kind: str, opset: int, native: str
) -> None:
    """IMPORT-7: its optimiser writes them into models of any opset, and it runs these."""
    model = Model(opset=opset)
    model.output(model.node(kind, [model.input([2, 6, 16]), model.weight(16)], axis=-1, epsilon=1e-3))
    assert [op.kind for op in model.graph().ops] == [native]
    report = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report
    assert str(report.values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in report.values.outputs)


def test_such_a_normalisation_with_outputs_that_the_standards_does_not_have_is_the_hosts() -> None:
    model = Model(opset=14)
    names = model.nodes_out(
        "SimplifiedLayerNormalization", [model.input([2, 6, 16]), model.weight(16)], ["y", "z"], axis=-1
    )
    for name in names:
        model.output(name)
    (host,) = model.graph().host.values()
    assert host.op_type == "SimplifiedLayerNormalization"


def test_an_op_that_the_accelerator_does_not_run_stays_on_the_host_with_the_reason() -> None:
    """IMPORT-6."""
    model = Model()
    x = model.relu(model.input([2, 4, 4]), name="before")
    model.output(model.node("Neg", [model.node("Det", [x], name="the one")], name="after"))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Relu", "Host", "Neg"]
    (host,) = graph.host.values()
    assert (host.name, host.op_type, host.reason) == ("the one", "Det", "the accelerator has no Det")
    assert graph.tensors[graph.ops[1].output].shape == (2,)


def test_functions_that_double_for_ever_are_refused_before_they_are_expanded() -> None:
    """IMPORT-4: 24 levels of two calls each are 16,777,216 nodes."""
    model = Model()
    model.output(model.node("f24", [model.input([1, 4])], domain="local", name="call"))
    proto = model.proto()
    proto.opset_import.append(helper.make_opsetid("local", 1))
    for level in range(1, 25):
        inner = [
            helper.make_node(f"f{level - 1}" if level > 1 else "Neg", ["x"], ["y"], domain="local" if level > 1 else "")
        ]
        inner += [
            helper.make_node(f"f{level - 1}" if level > 1 else "Neg", ["y"], ["z"], domain="local" if level > 1 else "")
        ]
        proto.functions.append(
            helper.make_function("local", f"f{level}", ["x"], ["z"], inner, [helper.make_opsetid("", 17)])
        )
    with pytest.raises(LimitError) as caught:
        import_graph(proto.SerializeToString())
    assert (caught.value.code, caught.value.actual) == ("expansion_too_large", 2**24)


def test_an_op_without_a_definition_is_the_hosts_with_the_shape_that_the_model_declares() -> None:
    """IMPORT-7: what follows it runs on the chip."""
    model = Model()
    made = model.node("Foo", [model.input([1, 4])], domain="com.example", name="the one", out="made")
    model.output(model.relu(made))
    proto = model.proto()
    proto.graph.value_info.append(helper.make_tensor_value_info("made", TensorProto.FLOAT, [1, 8]))
    graph = import_graph(proto.SerializeToString())
    assert [op.kind for op in graph.ops] == ["Host", "Relu"]
    assert graph.tensors["made"].shape == (1, 8)
    assert "'com.example'" in graph.host["the one"].reason


def test_without_a_declared_shape_all_that_depends_on_an_undefined_op_is_the_hosts() -> None:
    """IMPORT-7."""
    model = Model()
    x = model.input([1, 4])
    model.output(model.relu(model.node("Foo", [x], domain="com.example"), name="after"))
    model.output(model.relu(x, name="beside"))
    graph = model.graph()
    assert {op.node: op.kind for op in graph.ops} == {"Foo_0": "Host", "after": "Host", "beside": "Relu"}


def test_an_op_of_onnx_runtimes_own_domain_is_the_hosts_with_the_shape_that_it_infers() -> None:
    """IMPORT-7."""
    model = Model()
    model.output(model.relu(model.node("Inverse", [model.input([4, 4])], domain="com.microsoft", name="own")))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Host", "Relu"]
    assert graph.host["own"].reason == "domain com.microsoft runs on the host"


def test_a_model_in_onnx_runtimes_layout_for_a_processor_is_told_to_be_saved_without() -> None:
    model = Model()
    x = model.input([1, 16, 4, 4])
    model.output(model.node("ReorderInput", [x], domain="com.microsoft.nchwc", name="own"))
    assert "save the model optimised at level EXTENDED" in model.graph().host["own"].reason


def test_what_a_definition_fails_on_is_the_hosts_if_onnx_runtime_accepts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """IMPORT-7; what ONNX Runtime refuses too keeps our error."""

    def fails(*_: Any) -> Any:
        raise KeyError("broken on purpose")

    monkeypatch.setattr(type(OP_KINDS["Softmax"]), "infer", fails)
    model = Model()
    model.output(model.relu(model.node("Softmax", [model.input([1, 4])], name="soft")))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Host", "Relu"]
    assert "broken on purpose" not in graph.host["soft"].reason
    wrong = Model()
    wrong.output(wrong.node("Softmax", [wrong.input([1, 4])], name="soft", axis=7))
    assert (refused(wrong).code, refused(wrong).node) == ("invalid_model", "soft")


@pytest.mark.parametrize(("extent", "count"), [(1 << 20, 1), (4, 300)])
def test_a_node_that_is_not_run_to_be_judged_is_no_error(
    monkeypatch: pytest.MonkeyPatch, extent: int, count: int
) -> None:
    """A large one is loaded alone; where ONNX Runtime accepted hundreds, further ones are not asked about."""

    def fails(*_: Any) -> Any:
        raise KeyError("broken on purpose")

    monkeypatch.setattr(type(OP_KINDS["Softmax"]), "infer", fails)
    model = Model()
    x = model.input([1, extent])
    for _ in range(count):
        x = model.node("Softmax", [x])
    model.output(x)
    assert [op.kind for op in model.graph().ops] == ["Host"] * count
    wrong = Model()
    wrong.output(wrong.node("Softmax", [wrong.input([1, 1 << 20])], name="soft", axis=7))
    assert (refused(wrong).code, refused(wrong).node) == ("invalid_model", "soft")


def test_an_integer_division_by_a_constant_0_stays_refused() -> None:
    """ONNX Runtime would end the process on it."""
    model = Model()
    model.output(model.node("Div", [model.ints(4, 6), model.ints(2, 0)], name="it"), INT)
    assert (refused(model).code, refused(model).node) == ("invalid_model", "it")


def test_a_used_second_output_keeps_the_node_on_the_host() -> None:
    """IMPORT-6: one op per result that is used, one host node."""
    model = Model()
    x = model.input([1, 1, 4, 4])
    model.nodes_out("MaxPool", [x], ["y", "indices"], kernel_shape=[2, 2], name="pool")
    model.output("y")
    model.output("indices", INT)
    graph = model.graph()
    (host,) = graph.host.values()
    assert (host.name, host.outputs) == ("pool", ("y", "indices"))
    assert "indices" in host.reason
    assert [dict(op.attributes) for op in graph.ops] == [{"node": "pool", "result": 0}, {"node": "pool", "result": 1}]
    assert [graph.tensors[name].dtype for name in graph.outputs] == ["float32", "int64"]
    assert [graph.tensors[name].shape for name in graph.outputs] == [(1, 1, 3, 3)] * 2


def test_a_host_node_that_no_output_needs_is_folded() -> None:
    """IMPORT-2: every node is somewhere."""
    model = Model()
    x = model.input([4, 4])
    model.node("Det", [x], name="dead")
    model.output(model.relu(x))
    graph = model.graph()
    assert (graph.folded, dict(graph.host)) == (("dead",), {})


def test_an_unused_second_output_is_accepted() -> None:
    model = Model()
    model.nodes_out("MaxPool", [model.input([1, 1, 4, 4])], ["y", "indices"], kernel_shape=[2, 2])
    model.output("y")
    assert len(model.graph().ops) == 1


def test_a_missing_value_is_named() -> None:
    model = Model()
    model.output(model.node("Add", [model.input([1, 4]), "nowhere"], name="add"))
    error = refused(model)
    assert (error.code, error.node, error.actual) == ("missing_value", "add", "nowhere")


def test_nodes_out_of_order_are_lowered_in_an_order_of_execution() -> None:
    model = Model()
    model.output(model.relu(model.node("Neg", [model.input([1, 4])])))
    model.nodes.reverse()
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Neg", "Relu"]
    # names are those that the nodes have by their place in the file
    assert [op.node for op in graph.ops] == ["Neg_1", "Relu_0"]


def test_a_missing_input_is_named() -> None:
    model = Model()
    model.output(model.node("Add", [model.input([1, 4]), ""], name="add"))
    error = refused(model)
    assert (error.code, error.node) == ("missing_input", "add")


def test_an_output_that_nothing_makes_is_refused() -> None:
    model = Model()
    model.relu(model.input([1, 4]))
    model.output("nowhere")
    error = refused(model)
    assert (error.code, error.actual) == ("missing_value", "nowhere")


def test_a_graph_without_outputs_is_refused() -> None:
    model = Model()
    model.relu(model.input([1, 4]))
    assert refused(model).code == "empty_graph"


def test_a_value_made_twice_is_refused() -> None:
    model = Model()
    x = model.input([1, 4])
    model.node("Relu", [x], out="y")
    model.output(model.node("Sigmoid", [x], out="y", name="second"))
    error = refused(model)
    assert (error.code, error.node, error.actual) == ("duplicate_value", "second", "y")


def test_a_node_that_overwrites_an_input_is_refused() -> None:
    model = Model()
    model.output(model.node("Relu", [model.input([1, 4], "x")], out="x"))
    assert refused(model).code == "duplicate_value"


def test_a_dynamic_dim_is_named() -> None:
    model = Model()
    model.output(model.relu(model.input(["batch", 3, 4, 4], "x")))
    error = refused(model)
    assert (error.code, error.actual) == ("dynamic_dim", "batch")
    assert "axis 0" in error.message
    assert error.hint is not None


@pytest.mark.parametrize("axis", ["batch", None])
def test_option_dims_cures_a_dynamic_dim_as_the_hint_says(axis: str | None) -> None:
    model = Model()
    model.output(model.relu(model.input([axis, 3, 4, 4], "x")))
    hint = refused(model).hint
    assert hint is not None
    options = parse_assignments([hint.partition("--set ")[2]])
    plan = compile_model(model.data(), builtin_profile("edge4"), options).plan
    assert plan.totals.images == 1


def test_option_dims_decides_the_extent() -> None:
    model = Model()
    model.output(model.relu(model.input(["batch", 3, 4, 4], "x")))
    plan = compile_model(model.data(), builtin_profile("edge4"), Options(dims={"batch": 5})).plan
    assert plan.totals.images == 5


def test_a_negative_dim_is_free_as_onnx_runtime_takes_it() -> None:
    model = Model()
    model.output(model.relu(model.input([1, -4], "x")))
    error = refused(model)
    assert (error.code, error.actual) == ("dynamic_dim", "x.1")


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.STRING, TensorProto.FLOAT8E5M2])
def test_an_input_without_elements_is_a_constant(dtype: int) -> None:
    """IMPORT-1: it has but one value, so nobody has to give it."""
    model = Model(opset=19)
    model.output(model.node("Cast", [model.input([2, 0], "x", dtype)], to=TensorProto.INT64), TensorProto.INT64)
    graph = model.graph()
    assert graph.inputs == ()
    assert graph.tensors[graph.outputs[0]].dtype == "int64"


def test_an_input_without_shape_keeps_its_readers_on_the_host() -> None:
    """IMPORT-7: ONNX Runtime runs it at any rank, and the reason says what the model lacks."""
    model = Model()
    model.inputs.append(helper.make_tensor_value_info("x", TensorProto.FLOAT, None))
    model.output(model.relu("x", name="relu"))
    model.output(model.node("Tanh", [model.input([4], "z")]))
    graph = model.graph()
    assert {op.node: op.kind for op in graph.ops} == {"relu": "Host", "Tanh_1": "Tanh"}
    assert graph.host["relu"].reason == "the model states no shape of its input 'x'"
    executable = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).executable
    assert executable is not None
    feeds = {"x": np.array([[[-1, 2]]], np.float32), "z": np.zeros(4, np.float32)}
    assert run_executable(executable, feeds)[model.outputs[0].name].tolist() == [[[0, 2]]]


def test_an_input_that_is_no_tensor_is_refused_by_the_op_that_cannot_take_it() -> None:
    """IMPORT-4."""
    model = Model()
    model.inputs.append(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, None))
    model.output(model.relu("x", name="relu"))
    error = refused(model)
    assert (error.code, error.node) == ("invalid_type", "relu")
    assert "seq" in str(error.actual)


def test_an_input_that_is_no_tensor_keeps_its_readers_on_the_host() -> None:
    """IMPORT-6."""
    model = Model()
    model.inputs.append(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2, 3]))
    model.output(model.node("SequenceAt", ["x", model.constant(0)], name="at"))
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Host"]
    assert "'x'" in graph.host["at"].reason


def test_text_passes_through_a_model_untouched() -> None:
    """IMPORT-6: what only the host understands goes to the host."""
    model = Model()
    x = model.node("Identity", [model.input([4], "x", TensorProto.STRING)])
    model.output(model.node("StringNormalizer", [x], name="lower"), TensorProto.STRING)
    graph = model.graph()
    assert {op.kind for op in graph.ops} == {"Host"}
    assert graph.tensors["x"].dtype == graph.tensors[graph.outputs[0]].dtype == "string"


def test_a_cast_to_a_type_that_the_accelerator_lacks_stays_on_the_host() -> None:
    """IMPORT-6, IMPORT-5."""
    model = Model(opset=19)
    model.output(model.node("Cast", [model.input([4])], to=TensorProto.FLOAT8E5M2), TensorProto.FLOAT8E5M2)
    graph = model.graph()
    assert [op.kind for op in graph.ops] == ["Host"]
    assert graph.tensors[graph.outputs[0]].dtype == "float8e5m2"
    assert "float8e5m2" in graph.host["Cast_0"].reason


def test_external_data_outside_the_upload_is_refused() -> None:
    """IMPORT-4."""
    model = Model()
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.0] * 4)
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.append(onnx.StringStringEntryProto(key="location", value="../../etc/passwd"))
    model.initializers.append(tensor)
    model.output(model.node("Add", [model.input([4]), "w"]))
    assert refused(model).code == "external_data_path"


@pytest.mark.parametrize("bad", ["short", "long", "huge", "negative", "overflow"])
def test_a_tensor_whose_bytes_do_not_fit_its_shape_is_refused(bad: str) -> None:
    """IMPORT-4."""
    model = Model()
    dims = {"huge": [2**40, 2**20], "negative": [-4], "overflow": [2**62, 2**62, 4]}.get(bad, [500])
    count = {"short": 499, "long": 501}.get(bad, 4)
    model.initializers.append(
        TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=b"\0" * (4 * count))
    )
    model.output(model.node("Add", [model.input([500]), "w"]))
    assert refused(model).code in ("invalid_tensor", "invalid_shape", "tensor_too_large")


def test_a_tensor_without_data_is_refused_however_large_it_claims_to_be() -> None:
    model = Model()
    model.initializers.append(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**31, 2**31]))
    model.output(model.node("Add", [model.input([500]), "w"]))
    assert refused(model).code in ("invalid_tensor", "tensor_too_large")


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.node("Expand", [m.input([1, 1]), m.ints(2**30, 2**30)]),
        lambda m: m.node("Add", [m.input([1]), m.node("ConstantOfShape", [m.ints(2**31, 2**31)])]),
        lambda m: m.node("Pad", [m.input([1]), m.ints(2**60, 2**60)]),
        lambda m: m.node("Resize", [m.input([1, 1]), "", "", m.ints(2**31, 2**31)]),
        lambda m: m.relu(m.input([2**31, 2**31])),
    ],
)
def test_bombs_are_refused_with_the_limit(build: Callable[[Model], str]) -> None:
    """IMPORT-4."""
    model = Model()
    model.output(build(model))
    error = refused(model)
    assert isinstance(error, LimitError)
    assert error.code == "tensor_too_large"


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.node("ConstantOfShape", [m.ints(-1, 4)]),
        lambda m: m.node("Range", [m.constant(0), m.constant(2**60), m.constant(1)]),
        lambda m: m.node("Range", [m.constant(0), m.constant(10), m.constant(0)]),
        lambda m: m.node("Gather", [m.ints(1, 2), m.ints(5)]),
        lambda m: m.node("Gather", [m.ints(1, 2), m.ints(-3)]),
        lambda m: m.node("Constant", []),
    ],
)
def test_impossible_constants_are_refused(build: Callable[[Model], str]) -> None:
    model = Model()
    model.output(build(model), INT)
    assert isinstance(refused(model), ModelError | LimitError)


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.node("Slice", [m.input([1, 3, 8, 8]), m.ints(4), m.ints(2), m.ints(2)]),
        lambda m: m.relu(m.input([1, 0, 4])),
        lambda m: m.node("Concat", [m.input([1, 4]), m.constant(np.zeros((1, 0), np.float32))], axis=1),
    ],
)
def test_a_tensor_without_elements_never_ends_in_an_internal_error(build: Callable[[Model], str]) -> None:
    """IMPORT-4: legal in ONNX; refused or compiled, not crashed."""
    model = Model()
    model.output(build(model))
    error = error_of(lambda: compile_model(model.data(), builtin_profile("edge4"), BY_RULES))
    assert error is None or error.code != "internal_error", error


def test_broadcasting_of_old_opsets_is_understood_not_mistaken() -> None:
    """Before opset 7 `axis` aligns the second operand; numpy rules would align it with W."""
    model = Model(opset=6)
    x, b = model.input([1, 4, 4, 4]), model.constant(np.arange(4, dtype=np.float32))
    model.output(model.node("Add", [x, b], axis=1, broadcast=1, name="add"))
    (add,) = model.facts().ops
    assert [axis.axis for axis in add.operands[1].access] == [1]


def test_attributes_of_a_wrong_type_are_refused_by_name() -> None:
    model = Model()
    model.output(model.node("MaxPool", [model.input([1, 1, 4, 4])], kernel_shape=2, name="pool"))
    error = refused(model)
    assert error.node == "pool"
    assert "kernel_shape" in error.message


def test_control_characters_of_a_name_do_not_reach_the_message() -> None:
    """API-7."""
    model = Model()
    model.output(model.node("Nonsense", [model.input([1, 4])], name="evil\x1b[31m\nname"))
    text = str(refused(model))
    assert "\x1b" not in text
    assert "\n" not in text
