"""Loops of known length are written out where the accelerator may run their bodies (IMPORT-5)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from compiler.compile import compile_model
from compiler.frontend import loop_trips, unrolled
from compiler.frontend.decompose.node_builder import MAX_UNROLLED
from compiler.frontend.loop_trips import Trips, trips_of
from compiler.frontend.runtimes import Run
from compiler.host_bound import HostBoundError
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
        (stepping(1, 420), 420),
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


def counting_only(trips: int, *, others: int = 0) -> Model:
    """while step < trips: step += 1, beside so many other nodes."""
    model = Model()
    chain = ["h", *(f"part {number}" for number in range(others))]
    nodes = [
        helper.make_node("Add", ["step", "by"], ["later"]),
        helper.make_node("Less", ["later", "end"], ["on"]),
        *(helper.make_node("Abs", [a], [b]) for a, b in pairwise(chain)),
    ]
    names = {"step": FLOAT, "by": FLOAT, "end": FLOAT, "h": FLOAT}
    handed = {"on": BOOL, "later": FLOAT, "by": FLOAT, "end": FLOAT, chain[-1]: FLOAT}
    body = graph_of(nodes, {"i": INT, "go": BOOL} | names, handed)
    first = [model.constant(np.float32(number)) for number in (0, 1, trips)] + [model.input([2], "x")]
    steps, *_, last = model.nodes_out(
        "Loop", ["", model.constant(True), *first], ["a", "b", "c", "d"], name="loop", body=body
    )
    model.output(model.node("Add", [steps, last]))
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
    trips = trips_of(body, most=9, carried={carried: np.array(0)}, outside={end: five, by: one}, opset=17)
    assert trips == Trips(number=5, counting=frozenset(others[:2]))


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
    assert trips_of(body, most=9, carried={"step": np.array(0)}, outside={}, opset=17) == Trips(number=None)


_AMONG = "what only counts among them"


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (stepping(1, "limit"), "a Loop's number of trips is known at compile time"),
        (stepping(1, "limit", inside=False), "a Loop's number of trips is known at compile time"),
        (stepping(0, 3), f"all trips have at most 4096 nodes, {_AMONG} (here at least 586 trips of 7 nodes)"),
        (stepping(1, 900), f"all trips have at most 4096 nodes, {_AMONG} (here at least 586 trips of 7 nodes)"),
        (stepping(1, 900, most=586), f"all trips have at most 4096 nodes, {_AMONG} (here 586 trips of 7 nodes)"),
        (counting_only(2400), "all trips of a Loop have at most 2048 nodes (here more than 2048 trips)"),
        (counted(2400), "all trips of a Loop have at most 2048 nodes (here more than 2048 trips)"),
        (counting_only(4, others=600), "all trips of a Loop have at most 2048 nodes (here 4 trips of 600 nodes)"),
        (
            counting_only(3, others=5000),
            "all trips of a Loop have at most 2048 nodes (here at least 1 trip of 5002 nodes)",
        ),
        (made_of_constants(900, 4), f"all trips have at most 4096 nodes, {_AMONG} (here 900 trips of 5 nodes)"),
        (counted(3, False), "a Loop runs at least once"),
        (counted(3, function="Sinh"), "the accelerator may run all nodes of a body (here not Sinh)"),
    ],
)
def test_another_loop_stays_a_loop_and_says_why(model: Model, reason: str) -> None:
    hosts = import_graph(model.data()).host.values()
    (host,) = (each for each in hosts if each.op_type == "Loop")
    assert host.reason.startswith(f"control flow runs on the host unless {reason}")


def test_no_more_trips_are_counted_than_may_be_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def count(body: onnx.GraphProto, *, most: int, **known: Any) -> Trips:
        asked.append(most)
        return trips_of(body, most=most, **known)

    monkeypatch.setattr(unrolled, "trips_of", count)
    for others in (0, 98, 5000):
        import_graph(counting_only(2400, others=others).data())
    import_graph(stepping(1, 3).data())
    # 2400 trips of 2 nodes, of 100 and of 5002, and 3 trips of 7; each loop is counted once, the third not at all
    assert asked == [2049, 41, 586]


def test_a_loop_that_takes_too_long_to_count_stays_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any, **__: Any) -> Run:
        raise HostBoundError("the node did not end", stage="simulate", actual="more than 300 s", limit="300 s")

    monkeypatch.setattr(loop_trips, "run_model", run)
    (host,) = import_graph(stepping(1, 3).data()).host.values()
    assert host.reason.endswith("number of trips is known at compile time (here counting them took more than 300 s)")


def test_a_loop_whose_counting_fails_says_why() -> None:
    nodes = [
        helper.make_node("Mod", ["step", "step"], ["later"]),  # of floats, without the attribute that it needs
        helper.make_node("Less", ["later", "step"], ["on"]),
    ]
    body = graph_of(nodes, {"i": INT, "go": BOOL, "step": FLOAT}, {"on": BOOL, "later": FLOAT})
    trips = trips_of(body, most=9, carried={"step": np.array(1, np.float32)}, outside={}, opset=17)
    assert trips.number is None
    assert "ONNX Runtime" in trips.failure


def test_the_loops_of_a_model_are_written_out_up_to_a_bound_together(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Model()
    value = model.input([2, 4], "x")
    for number in range(3):
        body = graph_of(
            [helper.make_node("Tanh", ["h"], ["next"])], {"i": INT, "go": BOOL, "h": FLOAT}, {"go": BOOL, "next": FLOAT}
        )
        given = [model.constant(4), "", value]
        (value,) = model.nodes_out("Loop", given, [f"end {number}"], name=f"loop {number}", body=body)
    model.output(value)
    assert not import_graph(model.data()).host
    monkeypatch.setattr(unrolled, "WRITTEN_IN_MODEL", 80)
    hosts = import_graph(model.data()).host.values()
    assert [host.name for host in hosts] == ["loop 2"]
    assert "in at most 80 nodes together (here 4 trips of up to 13 nodes" in next(iter(hosts)).reason


@pytest.mark.parametrize("is_node", [False, True])
def test_constants_of_a_body_are_written_once_for_all_trips(is_node: bool) -> None:
    model, own = Model(), numpy_helper.from_array(np.eye(4, dtype=np.float32) / 2, "own")
    made = [helper.make_node("Constant", [], ["own"], value=own)] if is_node else []
    body = graph_of(
        [*made, helper.make_node("MatMul", ["h", "own"], ["next"])],
        {"i": INT, "go": BOOL, "h": FLOAT},
        {"go": BOOL, "next": FLOAT, "own": FLOAT},
    )
    body.initializer.extend([] if is_node else [own])
    given = [model.constant(3), "", model.input([2, 4], "x")]
    for name in model.nodes_out("Loop", given, ["end", "rows"], name="loop", body=body):
        model.output(name)
    products = [op for op in import_graph(model.data()).ops if op.kind == "MatMul"]
    assert len(products) == 3
    assert len({op.inputs[1] for op in products}) == 1
    agrees(model)


@pytest.mark.parametrize("made", ["loop/Constant", "loop/Constant.1", "loop/0/next"])
def test_a_body_may_make_a_name_like_those_that_are_written(made: str) -> None:
    model = Model()
    nodes = [helper.make_node("Mul", ["h", "h"], [made]), helper.make_node("Add", ["h", "own"], ["last"])]
    results = {"go": BOOL, "last": FLOAT, made: FLOAT}
    body = graph_of(nodes, {"i": INT, "go": BOOL, "h": FLOAT}, results)
    body.initializer.append(numpy_helper.from_array(np.full(4, 3, dtype=np.float32), "own"))
    given = [model.constant(2), "", model.input([2, 4], "x")]
    for name in model.nodes_out("Loop", given, ["end", "rows"], name="loop", body=body):
        model.output(name)
    agrees(model)


def pooling(trips: int) -> Model:
    """h = maxpool(h) + maxpool(weight) while step < trips; the second outputs of both are left out, as is the count."""
    model = Model()
    weight = model.weight(1, 2, 4)
    nodes = [
        helper.make_node("MaxPool", [weight], ["part", ""], kernel_shape=[1]),
        helper.make_node("MaxPool", ["h"], ["pooled", ""], kernel_shape=[1]),
        helper.make_node("Add", ["pooled", "part"], ["next"]),
    ]
    body = graph_of(nodes, {"i": INT, "go": BOOL, "h": FLOAT}, {"go": BOOL, "next": FLOAT})
    given = [model.constant(trips), "", model.input([1, 2, 4], "x")]
    model.output(model.nodes_out("Loop", given, ["end"], name="loop", body=body)[0])
    return model


def test_outputs_that_are_left_out_are_no_names() -> None:
    agrees(pooling(3))
    (host,) = import_graph(pooling(1200).data()).host.values()
    assert "(here 1200 trips of 2 nodes)" in host.reason
    nodes = [helper.make_node("Less", ["i", "end"], ["on", ""])]
    body = graph_of(nodes, {"i": INT, "go": BOOL}, {"on": BOOL})
    found = trips_of(body, most=9, carried={}, outside={"end": np.array(5)}, opset=17)
    assert found.counting == {"on"}


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"scan_input_axes": [1, -1], "scan_output_axes": [1, 0]},
        {"scan_output_axes": [-1, -2]},
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
