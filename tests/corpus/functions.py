"""Model-local functions: legal ones, ones that expand without end, and ones that do not fit their calls (IMPORT-2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import onnx
from onnx import AttributeProto, helper

from tests.corpus.build import edited
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

_EXPANSION: Final = "expansion_too_large too_many_nodes too_many_values nesting_too_deep"
_DOMAIN: Final = "local"


def _call(
    function: str, inputs: Sequence[str], outputs: Sequence[str], *, name: str = "", **attributes: Any
) -> onnx.NodeProto:
    return helper.make_node(function, list(inputs), list(outputs), name=name, domain=_DOMAIN, **attributes)


def _function(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    *,
    inputs: Sequence[str] = ("a",),
    outputs: Sequence[str] = ("b",),
    opset: int = 17,
    attributes: Sequence[str] = (),
    defaults: Sequence[AttributeProto] = (),
) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid(_DOMAIN, 1)]
    return helper.make_function(
        _DOMAIN, name, list(inputs), list(outputs), list(nodes), opsets, list(attributes), list(defaults)
    )


def _calling(*functions: onnx.FunctionProto, inputs: Sequence[str] = ("x",), **attributes: Any) -> Build:
    """A model of one node `call` that calls function `f`, with the functions given."""

    def fill(model: Model) -> None:
        model.input([4], "x")
        model.nodes.append(_call("f", inputs, ["y"], name="call", **attributes))
        model.output("y")

    return edited(_with_functions(functions), fill)


def _with_functions(functions: Sequence[onnx.FunctionProto]) -> Callable[[onnx.ModelProto], object]:
    def change(proto: onnx.ModelProto) -> None:
        proto.opset_import.append(helper.make_opsetid(_DOMAIN, 1))
        proto.functions.extend(functions)

    return change


def _name(level: int, top: int) -> str:
    return "f" if level == top else f"f{level}"


def _doubling(top: int) -> Build:
    """Each function calls the one below twice: 2^top nodes."""
    bottom = _function("f0", [helper.make_node("Neg", ["a"], ["b"])])
    upper = [
        _function(_name(i, top), [_call(f"f{i - 1}", ["a"], ["h"]), _call(f"f{i - 1}", ["h"], ["b"])])
        for i in range(1, top + 1)
    ]
    return _calling(bottom, *upper)


def _widening(top: int) -> Build:
    """Each function calls the one below eight times, side by side."""
    bottom = _function("f0", [helper.make_node("Neg", ["a"], ["b"])])
    upper = []
    for level in range(1, top + 1):
        calls = [_call(f"f{level - 1}", ["a"], [f"h{i}"]) for i in range(8)]
        upper.append(
            _function(_name(level, top), [*calls, helper.make_node("Sum", [f"h{i}" for i in range(8)], ["b"])])
        )
    return _calling(bottom, *upper)


def _chain(length: int) -> Build:
    """Each function calls the one below once: no more nodes, but a deep stack."""
    bottom = _function("f0", [helper.make_node("Neg", ["a"], ["b"])])
    upper = [_function(_name(i, length), [_call(f"f{i - 1}", ["a"], ["b"])]) for i in range(1, length + 1)]
    return _calling(bottom, *upper)


def _long_names(levels: int) -> Build:
    """Names that double at each level of expansion if prefixes are joined carelessly."""
    bottom = _function("f0", [helper.make_node("Neg", ["a"], ["b"], name="n" * 1_000)])
    upper = [
        _function(_name(i, levels), [helper.make_node(f"f{i - 1}", ["a"], ["b"], name="n" * 1_000, domain=_DOMAIN)])
        for i in range(1, levels + 1)
    ]
    return _calling(bottom, *upper)


def _in_a_subgraph(calls: str) -> onnx.NodeProto:
    """An If in a function's body whose branches call a function."""
    branches = {
        branch: helper.make_graph([_call(calls, ["a"], [f"{branch}_out"])], branch, [], [_float(f"{branch}_out")])
        for branch in ("then_branch", "else_branch")
    }
    return helper.make_node("If", ["c"], ["b"], **branches)


def _float(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)


def _reference(name: str, parameter: str) -> AttributeProto:
    return AttributeProto(name=name, type=AttributeProto.FLOAT, ref_attr_name=parameter)


def _leaky(**fields: Any) -> onnx.FunctionProto:
    """A function that hands its attribute `slope` to a LeakyRelu."""
    node = helper.make_node("LeakyRelu", ["a"], ["b"])
    node.attribute.append(_reference("alpha", "slope"))
    return _function("f", [node], **fields)


def _neg(name: str = "f", **fields: Any) -> onnx.FunctionProto:
    return _function(name, [helper.make_node("Neg", ["a"], ["b"])], **fields)


def _overriding() -> Build:
    """A function that takes the name of an ONNX operator."""
    function = helper.make_function("", "Relu", ["X"], ["Y"], [helper.make_node("Neg", ["X"], ["Y"])], [])

    def fill(model: Model) -> None:
        model.output(model.node("Relu", [model.input([4])], name="relu"))

    return edited(lambda p: p.functions.append(function), fill)


def _recursive_over_an_operator() -> Build:
    """A function named like the operator that its own body uses."""
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("", "Relu", ["X"], ["Y"], [helper.make_node("Relu", ["X"], ["Y"])], opsets)

    def fill(model: Model) -> None:
        model.output(model.node("Relu", [model.input([4])], name="relu"))

    return edited(lambda p: p.functions.append(function), fill)


_BODY: Final = "invalid_model missing_value missing_input unknown_function"

CASES: Final[tuple[Case, ...]] = (
    case("a-function", _calling(_neg()), accept(), "legal"),
    case("a-function-called-by-a-function", _chain(3), accept(), "legal"),
    case("a-function-of-an-attribute", _calling(_leaky(attributes=["slope"]), slope=0.5), accept(), "legal"),
    case(
        "a-function-of-an-attribute-with-a-default",
        _calling(_leaky(defaults=[helper.make_attribute("slope", 0.25)])),
        accept(),
        "legal",
    ),
    case("functions-that-double-8-times", _doubling(8), accept(), "legal, 256 nodes"),
    case("functions-that-double-10-times", _doubling(10), accept(), "legal, a thousand nodes"),
    case("functions-that-double-24-times", _doubling(24), reject(_EXPANSION), "the library's checker hangs"),
    case("functions-that-double-40-times", _doubling(40), reject(_EXPANSION), "10^12 nodes in 2 kB"),
    case("functions-that-double-60-times", _doubling(60), reject(_EXPANSION), "10^18 nodes"),
    case("functions-that-widen-20-levels", _widening(20), reject(_EXPANSION), "8^20 nodes side by side"),
    case("functions-called-50-deep", _chain(50), either(_EXPANSION), "a stack of 50"),
    case("functions-called-10000-deep", _chain(10_000), either(_EXPANSION), "a stack of 10,000"),
    case(
        "functions-whose-names-grow",
        _long_names(40),
        either(f"{_EXPANSION} name_too_long"),
        "names joined level by level",
    ),
    case(
        "a-function-that-calls-itself",
        _calling(_function("f", [_call("f", ["a"], ["b"])])),
        reject("recursive_function", "f"),
        "recursion",
    ),
    case(
        "two-functions-that-call-each-other",
        _calling(_function("f", [_call("g", ["a"], ["b"])]), _function("g", [_call("f", ["a"], ["b"])])),
        reject("recursive_function"),
        "mutual recursion",
    ),
    case(
        "a-function-that-calls-itself-in-a-branch",
        _calling(_function("f", [helper.make_node("Cast", ["a"], ["c"], to=9), _in_a_subgraph("f")])),
        reject("recursive_function"),
        "recursion behind a condition",
    ),
    case(
        "a-function-named-like-what-it-uses",
        _recursive_over_an_operator(),
        either("recursive_function invalid_model unknown_domain"),
        "recursion, or the operator?",
    ),
    case(
        "a-function-named-like-an-operator",
        _overriding(),
        either("invalid_model duplicate_function"),
        "overriding Relu",
    ),
    case(
        "a-recursive-function-that-nobody-calls",
        _calling(_neg(), _function("g", [_call("g", ["a"], ["b"])])),
        either("recursive_function"),
        "dead recursion",
    ),
    case(
        "a-function-that-is-missing",
        _calling(_neg("g")),
        accept("call"),
        "a call of nothing",
    ),
    case(
        "a-function-that-calls-a-missing-one",
        _calling(_function("f", [_call("g", ["a"], ["b"])])),
        accept(),
        "a call of nothing, one level down",
    ),
    case(
        "a-function-given-twice",
        _calling(_neg(), _neg()),
        reject("duplicate_function duplicate_value invalid_model", "f"),
        "which one holds",
    ),
    case(
        "a-function-without-its-attribute",
        _calling(_leaky(attributes=["slope"])),
        either("invalid_model"),
        "an attribute that the call leaves out",
    ),
    case(
        "a-function-with-an-attribute-of-another-kind",
        _calling(_leaky(attributes=["slope"]), slope="steep"),
        reject("invalid_model"),
        "text for a number",
    ),
    case(
        "a-function-that-refers-to-no-attribute", _calling(_leaky()), either("invalid_model"), "a reference to nothing"
    ),
    case(
        "a-function-called-with-too-many-inputs",
        _calling(_neg(), inputs=("x", "x")),
        reject("invalid_model", "call"),
        "two for one",
    ),
    case("a-function-called-with-too-few-inputs", _calling(_neg(), inputs=()), reject(f"{_BODY}"), "none for one"),
    case(
        "a-function-without-nodes",
        _calling(_function("f", [])),
        reject(f"{_BODY} empty_graph"),
        "an output nothing makes",
    ),
    case(
        "a-function-that-hands-through", _calling(_function("f", [], outputs=("a",))), either(_BODY), "output is input"
    ),
    case(
        "a-function-that-reads-the-caller's-value",
        _calling(_function("f", [helper.make_node("Add", ["a", "x"], ["b"])])),
        reject(_BODY, "x"),
        "scopes leak",
    ),
    case(
        "a-function-that-makes-a-value-twice",
        _calling(_function("f", [helper.make_node("Neg", ["a"], ["b"]), helper.make_node("Abs", ["a"], ["b"])])),
        reject("duplicate_value invalid_model"),
        "single assignment broken",
    ),
    case(
        "a-function-that-overwrites-its-input",
        _calling(_function("f", [helper.make_node("Neg", ["a"], ["a"])])),
        reject(f"{_BODY} duplicate_value"),
        "single assignment broken",
    ),
    case(
        "a-function-of-a-cycle",
        _calling(_function("f", [helper.make_node("Add", ["a", "b"], ["c"]), helper.make_node("Neg", ["c"], ["b"])])),
        reject(f"{_BODY} cycle not_sorted"),
        "a ring inside",
    ),
    case(
        "a-function-of-opset-99",
        _calling(_neg(opset=99)),
        reject("unsupported_opset"),
        "a version of the future inside",
    ),
    case(
        "a-function-of-another-opset",
        _calling(_neg(opset=11)),
        either("unsupported_opset invalid_model"),
        "two versions in one model",
    ),
    case(
        "a-function-without-a-name",
        _calling(_neg(), _neg("")),
        either("invalid_model unknown_op"),
        "a nameless function",
    ),
    case(
        "a-thousand-functions-that-nobody-calls",
        _calling(_neg(), *(_neg(f"g{i}") for i in range(1_000))),
        accept(),
        "legal",
    ),
)
