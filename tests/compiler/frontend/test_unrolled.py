"""Loops of known length are written out where the accelerator may run their bodies (IMPORT-5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.frontend.decompose.node_builder import MAX_UNROLLED
from compiler.frontend.loop_trips import trips_of
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def agrees(model: Model) -> None:
    """Nothing is left to the host, and values are ONNX Runtime's."""
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def graph_of(nodes: list[onnx.NodeProto], inputs: Mapping[str, int], outputs: Mapping[str, int]) -> onnx.GraphProto:
    """The body of a loop."""
    sides = [
        [helper.make_tensor_value_info(name, kind, None if kind == FLOAT else []) for name, kind in side.items()]
        for side in (inputs, outputs)
    ]
    return helper.make_graph(nodes, "body", sides[0], sides[1])


def counted(trips: Any, start: Any = "", *, last: str = "still", function: str = "Tanh", batch: Any = 2) -> Model:
    """h = tanh(h · W + i) for so many trips; hands out h and all of them. `start`: the condition at first."""
    model = Model()
    weight = model.weight(4, 4)
    nodes = [
        helper.make_node("MatMul", ["h", weight], ["product"]),
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Add", ["product", "number"], ["sum"]),
        helper.make_node(function, ["sum"], ["next"]),
        helper.make_node("Identity", ["go"], ["still"]),
        helper.make_node("Constant", [], ["never"], value=helper.make_tensor("never", BOOL, [], [False])),
        helper.make_node("Identity", ["next"], ["row"]),
    ]
    body = graph_of(nodes, {"i": INT, "go": BOOL, "h": FLOAT}, {last: BOOL, "next": FLOAT, "row": FLOAT})
    given = [model.constant(trips) if isinstance(trips, int) else trips, "", model.input([batch, 4], "x")]
    if isinstance(trips, str):
        model.input([], trips, INT)
    if start != "":
        given[1] = model.constant(start)
    for name in model.nodes_out("Loop", given, ["end", "rows"], name="loop", body=body):
        model.output(name)
    return model


@pytest.mark.parametrize("start", ["", True])
@pytest.mark.parametrize("last", ["still", "go"])
def test_a_loop_of_constant_length_is_written_out(start: Any, last: str) -> None:
    model = counted(3, start, last=last)
    found = import_graph(model.data())
    assert [op.kind for op in found.ops].count("MatMul") == 3
    assert {op.origin[0].split("/")[0] for op in found.ops} == {"loop"}
    agrees(model)


def test_its_batch_may_vary() -> None:
    assert not misses(counted(3, batch="n"), {"n": (1, 5)}, count=2)


@pytest.mark.parametrize(
    "model",
    [
        counted("trips"),
        counted(3, False),
        counted(0),
        counted(3, function="Sinh"),
        counted(1 + MAX_UNROLLED // 4),
    ],
    ids=["length at run time", "never begins", "no trip", "host op", "long"],
)
def test_other_loops_stay_loops(model: Model) -> None:
    graph = import_graph(model.data())
    assert [host.op_type for host in graph.host.values()] == ["Loop"]


def stepping(steps: int, limit: Any, *, most: int | None = None, inside: bool = True) -> Model:
    """h = tanh(h · W) while step < limit, as TensorFlow writes it; the limit is carried, or read from outside."""
    model = Model()
    weight, int32 = model.weight(4, 4), TensorProto.INT32
    bound = model.constant(limit, dtype="int32") if isinstance(limit, int) else model.input([], limit, int32)
    nodes = [
        helper.make_node("MatMul", ["h", weight], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
        helper.make_node("Add", ["step", "by"], ["later"]),
        helper.make_node("Cast", ["later"], ["number"], to=FLOAT),
        helper.make_node("Cast", ["limit" if inside else bound], ["end"], to=FLOAT),
        helper.make_node("Less", ["number", "end"], ["on"]),
        helper.make_node("Identity", ["next"], ["row"]),
    ]
    limits = {"limit": int32} if inside else {}
    carried = {"step": int32, "by": int32, "h": FLOAT} | limits
    handed = {"on": BOOL, "later": int32, "by": int32, "next": FLOAT} | limits | {"row": FLOAT}
    body = graph_of(nodes, {"i": INT, "go": BOOL} | carried, handed)
    first = [model.constant(0, dtype="int32"), model.constant(steps, dtype="int32"), model.input([2, 4], "x")]
    given = [
        model.constant(most) if most is not None else "",
        model.constant(True),
        *first,
        *([bound] if inside else []),
    ]
    results = [f"last {name}" for name in carried] + ["rows"]
    model.nodes_out("Loop", given, results, name="loop", body=body)
    model.output("last h")
    model.output("rows")
    return model


@pytest.mark.parametrize(
    ("model", "trips"),
    [
        (stepping(1, 3), 3),
        (stepping(2, 5, most=20), 3),
        (stepping(1, 9, most=4), 4),
        (stepping(1, 3, inside=False), 3),
        (counted(3, last="never"), 1),
        (stepping(1, 120), 120),
    ],
    ids=["carried", "step", "most", "from outside", "at once", "nodes that count are not counted"],
)
def test_a_loop_that_counts_to_a_constant_is_written_out(model: Model, trips: int) -> None:
    assert [op.kind for op in import_graph(model.data()).ops].count("MatMul") == trips
    if trips < MAX_UNROLLED // 8:
        agrees(model)


def test_what_is_made_of_constants_does_not_count() -> None:
    """A Keras GRU cuts its weights in every trip."""
    model = Model()
    weight, length = model.weight(4, 6), MAX_UNROLLED // 2
    nodes = [
        helper.make_node("Slice", ["kept", *(model.ints(number) for number in (0, 4, 1))], ["part"]),
        helper.make_node("MatMul", ["h", "part"], ["product"]),
        helper.make_node("Tanh", ["product"], ["next"]),
    ]
    body = graph_of(
        nodes, {"i": INT, "go": BOOL, "h": FLOAT, "kept": FLOAT}, {"go": BOOL, "next": FLOAT, "kept": FLOAT}
    )
    given = [model.constant(length), "", model.input([2, 4], "x"), weight]
    model.output(model.nodes_out("Loop", given, ["end", "weights"], name="loop", body=body)[0])
    assert not import_graph(model.data()).host


def counting_only(trips: int) -> Model:
    """while step < trips: step += 1."""
    model = Model()
    nodes = [
        helper.make_node("Add", ["step", "by"], ["later"]),
        helper.make_node("Less", ["later", "end"], ["on"]),
    ]
    names = {"step": FLOAT, "by": FLOAT, "end": FLOAT}
    body = graph_of(nodes, {"i": INT, "go": BOOL} | names, {"on": BOOL, "later": FLOAT, "by": FLOAT, "end": FLOAT})
    first = [model.constant(np.float32(number)) for number in (0, 1, trips)]
    steps, *_ = model.nodes_out("Loop", ["", model.constant(True), *first], ["a", "b", "c"], name="loop", body=body)
    model.output(model.node("Add", [steps, model.input([2], "x")]))
    return model


def made_of_constants(trips: int, nodes: int) -> Model:
    """h = tanh(h), beside many nodes that compute a constant."""
    model = Model()
    weight = model.weight(4)
    chain = [weight, *(f"part {number}" for number in range(nodes))]
    body = graph_of(
        [
            *(helper.make_node("Abs", [a], [b]) for a, b in pairwise(chain)),
            helper.make_node("Tanh", ["h"], ["next"]),
        ],
        {"i": INT, "go": BOOL, "h": FLOAT},
        {"go": BOOL, "next": FLOAT},
    )
    given = [model.constant(trips), "", model.input([2, 4], "x")]
    model.output(model.nodes_out("Loop", given, ["end"], name="loop", body=body)[0])
    return model


def test_names_in_a_model_do_not_change_the_trips() -> None:
    stems = ("most", "starts", "first", "last", "rows", "out")
    carried, end, by, *others = (f"{stem} 0" for stem in stems)
    nodes = [
        helper.make_node("Add", [carried, by], [others[0]]),
        helper.make_node("Less", [others[0], end], [others[1]]),
    ]
    kinds = {"i": INT, "go": BOOL, carried: INT}
    body = graph_of(nodes, kinds, {others[1]: BOOL, others[0]: INT})
    one, five = np.array(1), np.array(5)
    trips, made = trips_of(body, most=9, carried={carried: np.array(0)}, outside={end: five, by: one}, opset=17)
    assert trips == 5
    assert made == frozenset(others[:2])


@pytest.mark.parametrize("wide", ["initializer", "constant", "sparse"])
def test_large_constants_behind_a_condition_are_not_computed(wide: str) -> None:
    nodes = [helper.make_node("Less", ["step", "wide"], ["on"]), helper.make_node("Add", ["step", "step"], ["later"])]
    body = graph_of(nodes, {"i": INT, "go": BOOL, "step": INT}, {"on": BOOL, "later": INT})
    many = helper.make_tensor("wide", INT, [3], [1, 2, 3])
    if wide == "initializer":
        body.initializer.append(many)
    elif wide == "constant":
        body.node.insert(0, helper.make_node("Constant", [], ["wide"], value=many))
    else:
        places = helper.make_tensor("places", INT, [3], [0, 1, 2])
        sparse = helper.make_sparse_tensor(many, places, [1 << 40])
        body.node.insert(0, helper.make_node("Constant", [], ["wide"], sparse_value=sparse))
    trips, _ = trips_of(body, most=9, carried={"step": np.array(0)}, outside={}, opset=17)
    assert trips is None


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (stepping(1, "limit"), "a Loop's number of trips is known at compile time"),
        (stepping(1, "limit", inside=False), "a Loop's number of trips is known at compile time"),
        (stepping(0, 3), "all trips of a Loop have at most 512 nodes (here more than 512 trips)"),
        (stepping(1, 300), "all trips of a Loop have at most 512 nodes (here 300 trips of 2 nodes)"),
        (counting_only(600), "all trips of a Loop have at most 512 nodes (here more than 512 trips)"),
        (counted(600), "all trips of a Loop have at most 512 nodes (here more than 512 trips)"),
        (made_of_constants(300, 4), "all trips have at most 1024 nodes, what only counts among them"),
        (counted(3, False), "a Loop runs at least once"),
        (counted(3, function="Sinh"), "the accelerator may run all nodes of a body (here not Sinh)"),
    ],
)
def test_another_loop_stays_a_loop_and_says_why(model: Model, reason: str) -> None:
    hosts = import_graph(model.data()).host.values()
    (host,) = (each for each in hosts if each.op_type == "Loop")
    assert host.reason.startswith(f"control flow runs on the host unless {reason}")


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_axes": [1, -1], "scan_output_axes": [1, 0]},
        {"scan_input_directions": [1, 0], "scan_output_directions": [0, 1]},
    ],
)
def test_a_scan_over_fixed_lengths_is_written_out(attributes: dict[str, Any]) -> None:
    axes = attributes.get("scan_input_axes", [0, 0])
    model = Model()
    nodes = [
        helper.make_node("Add", ["s", "x"], ["sum"]),
        helper.make_node("Mul", ["sum", "y"], ["next"]),
        helper.make_node("Neg", ["next"], ["one"]),
        helper.make_node("Abs", ["next"], ["two"]),
    ]
    outputs = {"next": FLOAT, "one": FLOAT, "two": FLOAT}
    body = graph_of(nodes, {"s": FLOAT, "x": FLOAT, "y": FLOAT}, outputs)
    for value in (*body.input, *body.output):
        value.type.tensor_type.shape.dim.add().dim_value = 4
    x, y = (model.input([3, 4] if axis == 0 else [4, 3], name) for axis, name in zip(axes, "xy", strict=True))
    start = model.constant(np.ones(4, dtype=np.float32))
    given: dict[str, Any] = {"num_scan_inputs": 2, "body": body, **attributes}
    for name in model.nodes_out("Scan", [start, x, y], ["end", "ones", "twos"], name="scan", **given):
        model.output(name)
    agrees(model)
