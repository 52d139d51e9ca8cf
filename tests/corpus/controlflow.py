"""Branches, loops, recurrent ops and sequences: host segments where they are sound, refused where not (IMPORT-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from tests.corpus.build import NODE, edited, entry, raw_model, raw_tensor_type, value_info, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

BOOL: Final = TensorProto.BOOL
INT64: Final = TensorProto.INT64
_BODY: Final = "invalid_model missing_value missing_input unknown_value invalid_shape unknown_shape"
_DEPTH: Final = "nesting_too_deep not_onnx expansion_too_large"


def _branch(name: str, nodes: Sequence[onnx.NodeProto], output: str, dtype: int = TensorProto.FLOAT) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [value_info(output, None, dtype)])


def _neg(source: str = "x", target: str = "t") -> onnx.NodeProto:
    return helper.make_node("Neg", [source], [target])


def _relu(source: str = "x", target: str = "e") -> onnx.NodeProto:
    return helper.make_node("Relu", [source], [target])


def _if(**branches: Any) -> Build:
    """A convolution, an If on a condition of the user's, a Relu."""

    def fill(model: Model) -> None:
        x = model.input([1, 3, 8, 8], "image")
        model.node("Relu", [model.conv(x, 3, 4, name="conv")], out="x")
        condition = model.input([], "condition", BOOL)
        model.output(model.relu(model.node("If", [condition], name="if", **branches), "relu"))

    return written(fill)


_THEN: Final = _branch("then", [_neg()], "t")
_ELSE: Final = _branch("else", [_relu()], "e")


def _constant_if(model: Model) -> None:
    x = model.input([4], "x")
    condition = model.constant(True)
    model.output(model.node("If", [condition], name="if", then_branch=_THEN, else_branch=_ELSE))
    model.output(x)


def _float_if(model: Model) -> None:
    model.input([4], "x")
    condition = model.input([], "condition")
    model.output(model.node("If", [condition], name="if", then_branch=_THEN, else_branch=_ELSE))


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


def _nested_ifs(depth: int) -> Build:
    """An If in the branch of an If..., written as bytes, since the library reads back only so deep."""

    def build() -> bytes:
        inner = b""
        for level in range(depth):
            leaf = entry(1, "x") + entry(2, f"t{level}") + entry(4, "Relu")
            branch = entry(NODE, inner or leaf)
            graph = branch + entry(2, f"g{level}") + entry(12, entry(1, f"t{level}"))
            attributes = b"".join(
                entry(
                    5,
                    entry(1, name)
                    + entry(6, graph if name == "then_branch" else small)
                    + entry(20, AttributeProto.GRAPH),
                )
                for name, small in (("then_branch", b""), ("else_branch", _leaf_graph(level)))
            )
            inner = entry(1, "c") + entry(2, f"t{level + 1}") + entry(4, "If") + entry(3, f"if{level}") + attributes
        condition = raw_tensor_type("c", [], BOOL)
        output = raw_tensor_type(f"t{depth}", [4])
        return raw_model(entry(NODE, inner), inputs=[raw_tensor_type("x", [4]), condition], outputs=[output])

    return build


def _leaf_graph(level: int) -> bytes:
    node = entry(1, "x") + entry(2, f"e{level}") + entry(4, "Neg")
    return entry(NODE, node) + entry(2, f"h{level}") + entry(12, entry(1, f"e{level}"))


def _sequence(model: Model) -> None:
    x = model.relu(model.input([4], "x"))
    pair = model.node("SequenceConstruct", [x, x], name="pair")
    model.output(model.node("ConcatFromSequence", [pair], name="join", axis=0))


def _captured(model: Model) -> None:
    """Both branches read a value of the outer graph, a weight among them."""
    x = model.input([4], "x")
    model.constant(np.ones(4, np.float32), "w")
    branches = {
        key: _branch(key, [helper.make_node("Add", ["h", "w"], [f"{key}_out"])], f"{key}_out")
        for key in ("then_branch", "else_branch")
    }
    model.node("Sigmoid", [x], out="h")
    condition = model.input([], "condition", BOOL)
    model.output(model.node("If", [condition], name="if", **branches))


def _branch_with_large_weight(model: Model) -> None:
    """A weight of 2^60 elements in a branch, without data."""
    branch = _branch("then", [helper.make_node("Add", ["x", "big"], ["t"])], "t")
    branch.initializer.append(TensorProto(name="big", data_type=1, dims=[2**30, 2**30]))
    model.input([4], "x")
    condition = model.input([], "condition", BOOL)
    model.output(model.node("If", [condition], name="if", then_branch=branch, else_branch=_ELSE))


def _branch_outside(model: Model) -> None:
    """A branch whose weight claims to lie in a file of the machine."""
    branch = _branch("then", [helper.make_node("Add", ["x", "far"], ["t"])], "t")
    far = TensorProto(name="far", data_type=1, dims=[4], data_location=TensorProto.EXTERNAL)
    far.external_data.append(onnx.StringStringEntryProto(key="location", value="/etc/passwd"))
    branch.initializer.append(far)
    model.input([4], "x")
    condition = model.input([], "condition", BOOL)
    model.output(model.node("If", [condition], name="if", then_branch=branch, else_branch=_ELSE))


def _map_over(proto: onnx.ModelProto) -> None:
    proto.graph.node[1].op_type = "SequenceMap"


def _many_branches(count: int) -> Build:
    """Many Ifs, one after another, on conditions of the user's."""

    def fill(model: Model) -> None:
        condition = model.input([], "condition", BOOL)
        value = model.input([4], "x")
        for index in range(count):
            branches = {
                "then_branch": _branch(f"t{index}", [_neg(value, f"t{index}")], f"t{index}"),
                "else_branch": _branch(f"e{index}", [_relu(value, f"e{index}")], f"e{index}"),
            }
            value = model.node("If", [condition], name=f"if{index}", **branches)
        model.output(value)

    return written(fill)


_REFUSED: Final = reject(_BODY, "if")
_FREE: Final = either(f"{_BODY} duplicate_value unsupported_dtype")

CASES: Final[tuple[Case, ...]] = (
    case("an-if-of-both-branches", _if(then_branch=_THEN, else_branch=_ELSE), accept("if"), "legal"),
    case("an-if-of-a-known-condition", written(_constant_if), accept(), "legal: one branch is dead"),
    case("an-if-that-captures", written(_captured), accept("if"), "legal: branches read outer values"),
    case(
        "an-if-made-strict",
        _if(then_branch=_THEN, else_branch=_ELSE),
        reject("unsupported_op", "if"),
        "legal, but not native",
        options={"strict": True},
    ),
    case("an-if-of-one-branch", _if(then_branch=_THEN), reject("invalid_model", "if"), "no else"),
    case("an-if-of-no-branch", _if(), reject("invalid_model", "if"), "neither"),
    case(
        "an-if-whose-branch-is-empty",
        _if(then_branch=onnx.GraphProto(), else_branch=_ELSE),
        _REFUSED,
        "a graph of nothing",
    ),
    case(
        "an-if-whose-branch-has-no-output",
        _if(then_branch=helper.make_graph([_neg()], "g", [], []), else_branch=_ELSE),
        _REFUSED,
        "no value to hand out",
    ),
    case(
        "an-if-whose-branch-has-two-outputs",
        _if(
            then_branch=helper.make_graph([_neg()], "g", [], [value_info("t", None), value_info("x", None)]),
            else_branch=_ELSE,
        ),
        _REFUSED,
        "one too many",
    ),
    case(
        "an-if-whose-branch-reads-nothing",
        _if(then_branch=_branch("g", [_neg("nowhere")], "t"), else_branch=_ELSE),
        reject("missing_value", "nowhere"),
        "a dangling edge inside",
    ),
    case(
        "an-if-whose-branch-makes-nothing",
        _if(then_branch=_branch("g", [_neg()], "nowhere"), else_branch=_ELSE),
        reject("missing_value", "nowhere"),
        "a dangling output inside",
    ),
    case(
        "an-if-whose-branch-has-inputs",
        _if(
            then_branch=helper.make_graph([_neg()], "g", [value_info("z", [4])], [value_info("t", None)]),
            else_branch=_ELSE,
        ),
        _FREE,
        "branches take no inputs",
    ),
    case(
        "an-if-whose-branch-shadows",
        _if(then_branch=_branch("g", [_neg("image", "x")], "x"), else_branch=_ELSE),
        _FREE,
        "an inner value named like an outer one",
    ),
    case(
        "an-if-whose-branches-differ-in-type",
        _if(
            then_branch=_branch("g", [helper.make_node("Cast", ["x"], ["t"], to=INT64)], "t", INT64), else_branch=_ELSE
        ),
        _FREE,
        "two types for one value",
    ),
    case(
        "an-if-whose-branch-knows-an-op-that-does-not-exist",
        _if(then_branch=_branch("g", [helper.make_node("Flummox", ["x"], ["t"])], "t"), else_branch=_ELSE),
        reject("unknown_op", "Flummox"),
        "an unknown op inside",
    ),
    case(
        "an-if-on-a-float",
        written(_float_if),
        reject(f"{_BODY} unsupported_dtype invalid_type", "if"),
        "no truth value",
    ),
    case(
        "an-if-with-a-large-weight-inside",
        written(_branch_with_large_weight),
        reject("invalid_tensor tensor_too_large invalid_shape"),
        "2^60 elements that nobody counts",
    ),
    case(
        "an-if-with-a-weight-elsewhere",
        written(_branch_outside),
        reject("external_data external_data_path", "far"),
        "external data where nobody looks",
    ),
    case("ifs-nested-10-deep", _nested_ifs(10), accept("if9"), "legal"),
    case("ifs-nested-30-deep", _nested_ifs(30), either(_DEPTH), "about as deep as protobuf reads"),
    case("ifs-nested-500-deep", _nested_ifs(500), reject(_DEPTH), "deeper than protobuf reads"),
    case("ifs-nested-5000-deep", _nested_ifs(5_000), reject(_DEPTH), "deep enough to overflow a stack"),
    case("a-hundred-ifs-in-a-row", _many_branches(100), accept("if0", "if99"), "legal"),
    case("a-loop-of-3-trips", _loop(3), accept("loop"), "legal"),
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
    case("a-scan", _scan(1), accept("scan"), "legal"),
    case("a-scan-of-more-inputs-than-there-are", _scan(9), reject(_BODY, "scan"), "num_scan_inputs beyond the inputs"),
    case("a-scan-of-a-negative-number-of-inputs", _scan(-1), reject(_BODY, "scan"), "num_scan_inputs below 0"),
    case(
        "a-scan-of-2-to-the-40-steps",
        _scan(1, 2**40),
        either("tensor_too_large expansion_too_large"),
        "it must not be run",
    ),
    case("a-long-short-term-memory", _recurrent("LSTM", 4), accept("cell"), "legal"),
    case("a-gated-recurrent-unit", _recurrent("GRU", 3), accept("cell"), "legal"),
    case("a-recurrent-network", _recurrent("RNN", 1), accept("cell"), "legal"),
    case("a-recurrent-op-whose-weight-disagrees", _recurrent("LSTM", 4, features=7), either(_BODY), "features differ"),
    case("a-recurrent-op-of-too-few-gates", _recurrent("LSTM", 3), either(_BODY), "a weight for another op"),
    case(
        "a-recurrent-op-of-a-huge-state",
        _recurrent("LSTM", 0, hidden=2**40, features=0),
        either(f"{_BODY} tensor_too_large invalid_tensor"),
        "hidden_size of 2^40 without weights",
    ),
    case("a-sequence", written(_sequence), accept("pair", "join"), "legal"),
    case("a-sequence-map-without-a-body", edited(_map_over), reject(f"{_BODY} unsupported_dtype", "relu"), "no graph"),
)
