"""Branches: host segments where they are sound, refused where they are not (IMPORT-6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from tests.corpus.build import NODE, entry, raw_model, raw_tensor_type, value_info, written
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
)
