"""What stays on the host: with its reason, all that it needs, and results as far as they can be known (IMPORT-6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.errors import LimitError, ModelError, TesseraError
from compiler.frontend.host import MAX_HOST_BYTES
from compiler.frontend.lower import LowerModel
from compiler.frontend.read import ReadModel
from compiler.frontend.source import ModelSource
from compiler.frontend.validate import ValidateModel
from compiler.ir.graph import Graph
from tests.compiler.execute import same_values
from tests.models import Model

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def kinds(graph: Graph) -> list[str]:
    """The ops' kinds."""
    return [op.kind for op in graph.ops]


def reasons(graph: Graph) -> dict[str, str]:
    """Why each node stays on the host."""
    return {name: host.reason for name, host in graph.host.items()}


def body(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[tuple[str, int]], outputs: Sequence[tuple[str, int]]
) -> onnx.GraphProto:
    """A graph of scalars and tensors whose shapes are left open."""
    return helper.make_graph(
        list(nodes),
        "body",
        [helper.make_tensor_value_info(name, kind, [] if kind != FLOAT else None) for name, kind in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs],
    )


def loop(model: Model, state: str, trips: str, *, name: str = "loop") -> tuple[str, str]:
    """s = s + x per trip, for as many trips as there are; hands out s and all of them in a row."""
    inner = [
        helper.make_node("Add", ["s", "x"], ["next"]),
        helper.make_node("Identity", ["go"], ["still"]),
        helper.make_node("Identity", ["next"], ["row"]),
    ]
    graph = body(inner, [("i", INT), ("go", BOOL), ("s", FLOAT)], [("still", BOOL), ("next", FLOAT), ("row", FLOAT)])
    found = model.nodes_out("Loop", [trips, "", state], [f"{name}.end", f"{name}.rows"], name=name, body=graph)
    return found[0], found[1]


# What the host holds


LARGE: dict[str, Callable[[Model], object]] = {
    "a constant output": lambda m: m.node("ConstantOfShape", [m.ints(2**32 + 1)], name="node"),
    "an output of a view": lambda m: m.node("Transpose", [m.node("ConstantOfShape", [m.ints(2, 2**32)])], name="node"),
    "a result of the host": lambda m: m.node("RandomNormal", [], name="node", shape=[2**32 + 1]),
    "an identity": lambda m: m.node("EyeLike", [m.input([2**16 + 1, 2**16], "x")], name="node"),
    "a long range": lambda m: m.node("Range", [m.constant(0), m.constant(2**31 + 1), m.constant(1)], name="node"),
    "a constant that the host reads": lambda m: m.node(
        "NonZero", [m.node("ConstantOfShape", [m.ints(2**32 + 1)], name="node")]
    ),
    "an input that the host reads": lambda m: m.node("Det", [m.input([2**28 + 1, 4, 4], "x")]),
}


@pytest.mark.parametrize("name", sorted(LARGE))
def test_what_is_too_large_for_the_host_is_refused_by_node_size_and_limit(name: str) -> None:
    """IMPORT-4: not a matter of the memory that happens to be there."""
    model = Model()
    model.output(str(LARGE[name](model)))
    with pytest.raises(LimitError) as caught:
        model.graph()
    error = caught.value
    assert (error.code, error.limit) == ("tensor_too_large", f"{MAX_HOST_BYTES} bytes")
    assert int(str(error.actual).split()[0]) > MAX_HOST_BYTES
    assert error.node == "node" or "'x'" in error.message


def test_a_result_whose_extents_overflow_in_shape_inference_is_refused() -> None:
    """IMPORT-4: the inference multiplies in 64 bits, and ONNX Runtime accepts the negative extents that come of it."""
    model = Model()
    scales = model.constant([1.0, 1.0, 3e38, 3e38], dtype="float32")
    model.output(model.node("Resize", [model.input([1, 1, 8, 8]), "", scales], name="node", mode="nearest"))
    with pytest.raises(TesseraError) as caught:
        model.graph()
    assert (caught.value.code, caught.value.node) == ("tensor_too_large", "node")


def test_what_the_host_can_hold_is_not_refused() -> None:
    model = Model()
    model.output(model.node("ConstantOfShape", [model.ints(2**32)], name="node"))
    assert model.graph().ops == ()


# Kinds of nodes


def test_a_recurrent_network_stays_whole_with_shapes_and_work() -> None:
    """Work: per step and image, both weight matrices."""
    model = Model()
    x = model.relu(model.input([98, 2, 3]))
    w, r = model.weight(1, 16, 3), model.weight(1, 16, 4)
    model.nodes_out("LSTM", [x, w, r], ["all", "last", ""], name="lstm", hidden_size=4)
    model.output(model.node("Tanh", ["all"]))
    model.output("last")
    graph = same_values(model)
    assert kinds(graph) == ["Relu", "Host", "Host", "Tanh"]
    assert [graph.tensors[name].shape for name in ("all", "last")] == [(98, 1, 2, 4), (1, 2, 4)]
    (host,) = graph.host.values()
    assert "number of steps is fixed" in host.reason
    assert host.macs == 98 * 2 * (16 * 3 + 16 * 4)
    assert host.inputs == (x, w, r)


def test_work_of_control_flow_cannot_be_told_and_others_have_none() -> None:
    model = Model()
    model.input([2, 3], "x")
    end, _ = loop(model, model.weight(2, 3), model.input([], dtype=INT))
    model.output(end)
    model.nodes_out("TopK", [model.input([2, 8]), model.ints(3)], ["values", "places"], name="top", sorted=0)
    model.output("values")
    model.output(model.node("Det", [model.input([4, 4])], name="det"))
    found = {name: host.macs for name, host in model.graph().host.items()}
    assert found == {"loop": None, "top": 0, "det": None}


@pytest.mark.parametrize("trips", [0, 1, 4])
def test_a_loop_gets_what_its_body_captures_and_its_row_of_results_has_no_known_length(trips: int) -> None:
    model = Model()
    model.node("Neg", [model.input([2, 3], "given")], out="x", name="neg")
    end, rows = loop(model, model.weight(2, 3), model.input([], "trips", INT))
    model.output(model.relu(end, name="after"))
    model.output(model.node("Neg", [rows], name="rows"))
    feeds = {"given": np.ones((2, 3), np.float32), "trips": np.array(trips)}
    graph = same_values(model, feeds)
    host = graph.host["loop"]
    assert host.reason == "control flow runs on the host unless a Loop's number of trips is known at compile time"
    assert host.inputs[-1] == "x"
    assert not graph.tensors[rows].is_known
    assert "loop.rows" in reasons(graph)["rows"]


@pytest.mark.parametrize("flag", [True, False])
def test_an_if_decided_at_run_time_stays_with_the_shape_on_which_its_branches_agree(flag: bool) -> None:
    model = Model()
    x, c = model.input([2, 3], "x"), model.input([1], "c", BOOL)
    then = body([helper.make_node("Tanh", [x], ["r"])], [], [("r", FLOAT)])
    other = body([helper.make_node("Exp", [x], ["r"])], [], [("r", FLOAT)])
    y = model.node("If", [c], name="if", then_branch=then, else_branch=other)
    model.output(model.relu(y))
    graph = same_values(model, {"x": np.ones((2, 3), np.float32), "c": np.array([flag])})
    assert kinds(graph) == ["Host", "Relu"]
    assert graph.tensors[y].shape == (2, 3)


def test_an_if_whose_branches_differ_in_shape_keeps_its_readers_on_the_host() -> None:
    model = Model()
    x, c = model.input([2, 3], "x"), model.input([1], "c", BOOL)
    then = body([helper.make_node("Tanh", [x], ["r"])], [], [("r", FLOAT)])
    other = body([helper.make_node("ReduceSum", [x], ["r"], keepdims=1)], [], [("r", FLOAT)])
    y = model.node("If", [c], name="if", then_branch=then, else_branch=other)
    model.output(model.relu(y, name="after"))
    graph = same_values(model, {"x": np.ones((2, 3), np.float32), "c": np.array([False])})
    assert kinds(graph) == ["Host", "Host"]
    assert not graph.tensors[y].is_known
    assert repr(y) in reasons(graph)["after"]


def test_a_scan_stays_on_the_host_with_its_shapes() -> None:
    model = Model()
    x = model.input([4, 3], "x")
    inner = [helper.make_node("Add", ["s", "part"], ["next"]), helper.make_node("Sinh", ["next"], ["row"])]
    graph = body(inner, [("s", FLOAT), ("part", FLOAT)], [("next", FLOAT), ("row", FLOAT)])
    for value in (*graph.input, *graph.output):
        value.type.tensor_type.shape.dim.add().dim_value = 3
    model.nodes_out("Scan", [model.weight(3), x], ["end", "rows"], name="scan", body=graph, num_scan_inputs=1)
    model.output(model.node("Tanh", ["rows"]))
    found = same_values(model)
    assert kinds(found) == ["Host", "Tanh"]
    assert found.tensors["rows"].shape == (4, 3)


def test_boxes_whose_number_nobody_knows_keep_what_reads_them_on_the_host() -> None:
    """Only what has no part in it goes back to the accelerator."""
    model = Model()
    boxes, scores = model.input([1, 6, 4], "boxes"), model.input([1, 1, 6], "scores")
    chosen = model.node(
        "NonMaxSuppression", [boxes, scores, model.constant(3), model.constant([0.5], dtype=np.float32)], name="nms"
    )
    rows = model.node("Gather", [chosen, model.constant(2)], axis=1, name="column")
    model.output(model.node("Cast", [rows], to=FLOAT, name="cast"))
    model.output(model.node("Tanh", [scores], name="tanh"))
    graph = same_values(model)
    assert {op.node: op.kind for op in graph.ops} == {"nms": "Host", "column": "Host", "cast": "Host", "tanh": "Tanh"}
    assert "known only when the host has run" in reasons(graph)["cast"]
    assert graph.tensors[chosen].dtype == "int64"


def test_a_sequence_stays_on_the_host_and_its_parts_come_back() -> None:
    model = Model()
    x = model.relu(model.input([4, 3], "x"))
    parts = model.node("SplitToSequence", [x, model.input([], "rows", TensorProto.INT64)], axis=0, name="split")
    model.output(model.node("ConcatFromSequence", [parts], axis=0, name="join"))
    graph = same_values(model, {"x": np.ones((4, 3), np.float32), "rows": np.array(2)})
    assert kinds(graph) == ["Relu", "Host", "Host"]
    assert graph.tensors[parts].dtype.startswith("seq(")
    assert graph.tensors[parts].shape == ()
    assert not graph.tensors[parts].is_known


def test_text_is_the_hosts_and_numbers_made_of_it_are_everybodys() -> None:
    model = Model(opset=21)
    words = model.input([3], "words", TensorProto.STRING)
    number = model.node("Cast", [words], to=FLOAT, name="parse")
    model.output(model.relu(number))
    graph = same_values(model, {"words": np.array(["1.5", "-2", "3"])})
    assert kinds(graph) == ["Host", "Relu"]
    assert "string" in reasons(graph)["parse"]


def test_ops_of_other_domains_of_onnx_stay_on_the_host() -> None:
    model = Model()
    x = model.relu(model.input([2, 3]))
    numbers: dict[str, Any] = {"keys_floats": [0.0, 1.0], "values_floats": [5.0, 6.0], "default_float": 7.0}
    y = model.node("LabelEncoder", [x], domain="ai.onnx.ml", name="label", **numbers)
    model.output(model.node("Neg", [y]))
    proto = model.proto()
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    graph = same_values(proto)
    assert kinds(graph) == ["Relu", "Host", "Neg"]
    assert reasons(graph) == {"label": "domain ai.onnx.ml runs on the host"}


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda m: m.node("Add", [m.input([2], dtype=TensorProto.DOUBLE)] * 2, name="it"), "(here float64)"),
        (
            lambda m: m.node("Reshape", [m.input([2, 3]), m.input([2], "target", INT)], name="it"),
            "target is computed or given at run time",
        ),
        (
            lambda m: m.nodes_out("MaxPool", [m.input([1, 1, 4, 4])], ["v", "i"], kernel_shape=[2, 2], name="it")[1],
            "'i'",
        ),
    ],
)
def test_a_native_op_that_breaks_a_limit_says_which_and_what_is(build: Callable[[Model], str], text: str) -> None:
    """IMPORT-6: the reason per node."""
    model = Model()
    model.output(build(model))
    assert text in reasons(model.graph())["it"]


# The graph around


def test_each_result_that_is_used_is_an_op_of_its_own_and_the_node_is_kept_once() -> None:
    model = Model()
    model.nodes_out("TopK", [model.input([2, 8], "x"), model.ints(3)], ["values", "places"], name="top", sorted=0)
    model.output(model.relu("values"))
    graph = same_values(model)
    assert [(op.kind, op.output) for op in graph.ops] == [("Host", "values"), ("Relu", graph.outputs[0])]
    assert graph.host["top"].outputs == ("values", "places")
    assert dict(graph.ops[0].attributes) == {"node": "top", "result": 0}


def test_a_view_of_a_hosts_result_is_an_op_and_another_name_for_it_is_folded() -> None:
    model = Model()
    y = model.node("Det", [model.input([2, 4, 4])], name="det")
    model.output(model.relu(model.node("Identity", [y], name="same")))
    graph = same_values(model)
    assert [(op.kind, op.origin) for op in graph.ops] == [("Host", ("det",)), ("Relu", ("Relu_2",))]
    assert graph.folded == ("same",)


def test_the_node_is_kept_with_the_operator_set_that_it_was_written_for() -> None:
    model = Model(opset=13)
    model.output(model.node("Det", [model.input([4, 4])], name="det"))
    (host,) = model.graph().host.values()
    assert host.opsets == (("", 13),)
    assert onnx.NodeProto.FromString(host.node).op_type == "Det"


def test_extents_that_vary_pass_through_the_host() -> None:
    model = Model()
    x = model.input(["time", "batch", 3])
    model.nodes_out("GRU", [x, model.weight(1, 12, 3), model.weight(1, 12, 4)], ["all"], name="gru", hidden_size=4)
    model.output(model.relu("all"))
    found = model.graph({"time": 5, "batch": 2}).tensors["all"]
    assert found.shape == (5, 1, 2, 4)
    assert {axis: str(expression) for axis, expression in found.symbols} == {0: "time", 2: "batch"}


def test_a_result_that_holds_nothing_keeps_its_readers_on_the_host() -> None:
    model = Model()
    model.nodes_out("TopK", [model.input([2, 8]), model.ints(0)], ["values", "places"], name="top")
    model.output(model.relu("values", name="after"))
    assert kinds(model.graph()) == ["Host", "Host"]


# What is refused


@pytest.mark.parametrize(
    "build",
    [
        lambda m: m.node("Det", [m.input([4, 3])], name="it"),
        lambda m: m.nodes_out("TopK", [m.input([2, 8]), m.ints(9)], ["v", "i"], name="it")[0],
        lambda m: m.node("ReverseSequence", [m.input([4]), m.ints(1)], name="it"),
        lambda m: m.nodes_out("MaxPool", [m.input([1, 1, 4, 4])], ["", "i"], kernel_shape=[2, 2], name="it")[1],
    ],
)
def test_a_host_node_whose_inputs_do_not_go_together_is_refused(build: Callable[[Model], str]) -> None:
    """IMPORT-4: the host would fail with it."""
    model = Model()
    model.output(build(model))
    with pytest.raises(ModelError) as caught:
        model.graph()
    assert (caught.value.code, caught.value.node) == ("invalid_model", "it")


def test_strict_names_the_first_node_its_reason_and_how_many_there_are() -> None:
    """IMPORT-6."""
    model = Model()
    x = model.node("Det", [model.input([4, 4])], name="first")
    model.output(model.node("Neg", [x]))
    model.output(model.node("Det", [model.input([4, 4])], name="second"))
    source = ModelSource.from_bytes(model.data())
    with pytest.raises(ModelError) as caught:
        LowerModel(strict=True).run(ValidateModel().run(ReadModel().run(source)))
    error = caught.value
    assert (error.code, error.node, error.op_type, error.actual) == (
        "unsupported_op",
        "first",
        "Det",
        "2 nodes on the host",
    )
    assert "the accelerator has no Det" in error.message


def test_strict_accepts_what_folding_and_dead_code_take_away() -> None:
    """IMPORT-6: only what the host would have to run counts."""
    model = Model()
    x = model.input([4, 4])
    model.node("Det", [x], name="dead")
    found: Any = model.node("NonZero", [model.ints(0, 3, 0, 5)], name="constant")
    model.output(model.node("Gather", [x, model.node("Squeeze", [found])], axis=0))
    source = ModelSource.from_bytes(model.data())
    graph = LowerModel(strict=True).run(ValidateModel().run(ReadModel().run(source)))
    assert kinds(graph) == ["Gather"]
