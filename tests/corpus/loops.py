"""Loops, scans, recurrent ops, sequences: host segments where they are sound, refused where not (IMPORT-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import onnx
from onnx import TensorProto, helper

from tests.corpus.build import edited, value_info, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

BOOL: Final = TensorProto.BOOL
INT64: Final = TensorProto.INT64
_BODY: Final = "invalid_model missing_value missing_input unknown_value invalid_shape unknown_shape"
_DEPTH: Final = "nesting_too_deep not_onnx expansion_too_large"


def _neg(source: str = "x", target: str = "t") -> onnx.NodeProto:
    return helper.make_node("Neg", [source], [target])


def _step(nodes: Sequence[onnx.NodeProto], *, condition: str = "keep", carried: str = "after") -> onnx.GraphProto:
    inputs = [value_info("i", [], INT64), value_info("cond", [], BOOL), value_info("before", None)]
    return helper.make_graph(list(nodes), "body", inputs, [value_info(condition, [], BOOL), value_info(carried, None)])


_PLAIN_STEP: Final = (helper.make_node("Identity", ["cond"], ["keep"]), _neg("before", "after"))


def _loop(trips: int | None, body: onnx.GraphProto | None = None, *, condition: bool | None = True) -> Build:
    def fill(model: Model) -> None:
        count = "" if trips is None else model.constant(trips, dtype="int64")
        start = "" if condition is None else model.constant(condition)
        x = model.relu(model.input([4], "x"))
        model.output(model.node("Loop", [count, start, x], name="loop", body=body or _step(_PLAIN_STEP)))

    return written(fill)


def _growing_loop() -> Build:
    """A value that doubles its length in every trip."""
    grow = [
        helper.make_node("Identity", ["cond"], ["keep"]),
        helper.make_node("Concat", ["before"] * 2, ["after"], axis=0),
    ]
    return _loop(60, _step(grow))


def _unsound_body(model: Model) -> None:
    body = helper.make_graph([_neg("nowhere", "after")], "body", [], [value_info("after", None)])
    model.output(model.node("Loop", ["", "", model.input([4])], name="loop", body=body))


def _nested_loops(depth: int) -> Build:
    """Loops of a thousand trips inside each other: 10^(3·depth) steps."""
    body = _step(_PLAIN_STEP)
    for level in range(depth - 1):
        count = helper.make_node("Constant", [], [f"n{level}"], value_int=1_000)
        keep = helper.make_node("Identity", ["cond"], ["keep"])
        inner = helper.make_node("Loop", [f"n{level}", "cond", "before"], ["after"], body=_renamed(body, level))
        body = _step([count, keep, inner])
    return _loop(1_000, body)


def _renamed(graph: onnx.GraphProto, level: int) -> onnx.GraphProto:
    """The graph with names of its own, as inner scopes must have."""
    copy = onnx.GraphProto()
    copy.CopyFrom(graph)
    own = {value.name for value in copy.input} | {name for node in copy.node for name in node.output}
    for node in copy.node:
        node.input[:] = [f"{name}_{level}" if name in own else name for name in node.input]
        node.output[:] = [f"{name}_{level}" for name in node.output]
    for value in (*copy.input, *copy.output):
        value.name = f"{value.name}_{level}"
    return copy


def _scan(count: int, steps: int = 5) -> Build:
    def fill(model: Model) -> None:
        inputs = [value_info("state", [4]), value_info("part", [4])]
        nodes = [helper.make_node("Add", ["state", "part"], ["next"]), helper.make_node("Identity", ["next"], ["row"])]
        body = helper.make_graph(nodes, "body", inputs, [value_info("next", [4]), value_info("row", [4])])
        given = [model.input([4], "start"), model.input([steps, 4], "rows")]
        model.nodes_out("Scan", given, ["last", "all"], name="scan", body=body, num_scan_inputs=count)
        model.output("last")
        model.output("all")

    return written(fill)


def _recurrent(op_type: str, gates: int, *, hidden: int = 8, features: int = 6) -> Build:
    def fill(model: Model) -> None:
        x = model.input([5, 2, 6], "x")
        weights = [model.weight(1, gates * hidden, features), model.weight(1, gates * hidden, hidden)]
        model.nodes_out(op_type, [model.relu(x), *weights], ["all", "last"], name="cell", hidden_size=hidden)
        model.output(model.relu("all"))

    return written(fill)


def _sequence(model: Model) -> None:
    x = model.relu(model.input([4], "x"))
    pair = model.node("SequenceConstruct", [x, x], name="pair")
    model.output(model.node("ConcatFromSequence", [pair], name="join", axis=0))


def _map_over(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "SequenceMap"


CASES: Final[tuple[Case, ...]] = (
    case("a-loop-of-3-trips", _loop(3), accept(), "legal, written out"),
    case("a-loop-of-600-trips", _loop(600), accept("loop"), "legal, too long to be written out"),
    case("a-loop-of-no-trips", _loop(0), either(_BODY), "legal: the value passes through"),
    case("a-loop-of-negative-trips", _loop(-5), either(_BODY), "as good as none"),
    case(
        "a-loop-of-2-to-the-40-trips",
        _loop(2**40),
        either("expansion_too_large"),
        "it must not be run, unrolled or counted",
    ),
    case("a-loop-of-the-most-trips", _loop(2**63 - 1), either("expansion_too_large"), "the same"),
    case(
        "a-loop-without-an-end", _loop(None, condition=None), either("expansion_too_large"), "no count and no condition"
    ),
    case(
        "a-loop-that-grows",
        _growing_loop(),
        either("expansion_too_large tensor_too_large"),
        "2^60 elements after 60 trips",
    ),
    case(
        "a-loop-whose-body-reads-nothing",
        _loop(3, _step([helper.make_node("Identity", ["cond"], ["keep"]), _neg("nowhere", "after")])),
        reject("missing_value", "nowhere"),
        "a dangling edge inside",
    ),
    case("a-loop-whose-body-has-no-inputs", written(_unsound_body), reject(_BODY, "loop"), "a body of another form"),
    case("loops-nested-20-deep", _nested_loops(20), either(f"{_DEPTH} {_BODY}"), "10^60 steps"),
    case("a-scan", _scan(1), accept(), "legal, written out"),
    case("a-scan-of-600-steps", _scan(1, 600), accept("scan"), "legal, too long to be written out"),
    case("a-scan-of-more-inputs-than-there-are", _scan(9), reject(_BODY, "scan"), "num_scan_inputs beyond the inputs"),
    case("a-scan-of-a-negative-number-of-inputs", _scan(-1), reject(_BODY, "scan"), "num_scan_inputs below 0"),
    case(
        "a-scan-of-2-to-the-40-steps",
        _scan(1, 2**40),
        either("tensor_too_large expansion_too_large"),
        "it must not be run",
    ),
    case("a-long-short-term-memory", _recurrent("LSTM", 4), accept(), "legal"),
    case("a-gated-recurrent-unit", _recurrent("GRU", 3), accept(), "legal"),
    case("a-recurrent-network", _recurrent("RNN", 1), accept(), "legal"),
    case("a-recurrent-op-whose-weight-disagrees", _recurrent("LSTM", 4, features=7), either(_BODY), "features differ"),
    case("a-recurrent-op-of-too-few-gates", _recurrent("LSTM", 3), either(_BODY), "a weight for another op"),
    case(
        "a-recurrent-op-of-a-huge-state",
        _recurrent("LSTM", 0, hidden=2**40, features=0),
        either(f"{_BODY} tensor_too_large invalid_tensor"),
        "hidden_size of 2^40 without weights",
    ),
    case("a-sequence", written(_sequence), accept(), "legal, replaced by its elements"),
    case("a-sequence-map-without-a-body", edited(_map_over), reject(f"{_BODY} unsupported_dtype", "relu"), "no graph"),
)
