"""Dimensions that are unknown, impossible, or given by options that do not fit the model (IMPORT-2)."""

from __future__ import annotations

from typing import Final

import onnx

from tests.corpus.build import edited, value_info, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

_BATCH: Final = {"dims": {"batch": 2}}


def _input(*shape: int | str | None) -> Build:
    """The input `x` of the small network with another shape."""
    return edited(lambda p: p.graph.input[0].CopyFrom(value_info("x", shape)))


def _no_shape(proto: onnx.ModelProto) -> None:
    proto.graph.input[0].type.tensor_type.ClearField("shape")


def _two_inputs(first: str, second: str) -> Build:
    def fill(model: Model) -> None:
        model.output(model.node("Add", [model.input([first, 4], "a"), model.input([second, 4], "b")], name="add"))

    return written(fill)


def _computed(model: Model) -> None:
    """A Reshape whose target depends on the batch."""
    x = model.input(["batch", 4, 4], "x")
    batch = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    target = model.node("Concat", [batch, model.ints(-1)], axis=0)
    model.output(model.node("Reshape", [x, target], name="node"))


def _difference(model: Model) -> None:
    """An extent that is negative for the given batch."""
    x = model.input(["batch", 4], "x")
    batch = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    extent = model.node("Sub", [batch, model.ints(5)])
    model.output(model.node("Expand", [model.input([1], "one"), extent], name="node"))


def _squared(model: Model) -> None:
    """An extent that is the product of the dimension with itself, four times."""
    x = model.input(["batch"], "x")
    extent = model.node("Shape", [x])
    for _ in range(4):
        extent = model.node("Mul", [extent, extent])
    model.output(model.node("Expand", [model.input([1], "one"), extent], name="node"))


def _nonlinear(model: Model) -> None:
    """An extent divided, rounded and multiplied: a long expression in one symbol."""
    x = model.input(["batch", 4], "x")
    extent = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    for index in range(200):
        extent = model.node(
            "Div", [model.node("Mul", [model.node("Add", [extent, model.ints(index)]), extent]), extent]
        )
    model.output(model.node("Expand", [model.input([1], "one"), extent], name="node"))


def _doubled_expression(model: Model) -> None:
    """An expression that doubles in each of 60 steps, though its value stays 0."""
    x = model.input(["batch", 4], "x")
    batch = model.node("Gather", [model.node("Shape", [x]), model.ints(0)])
    extent = model.node("Sub", [batch, batch])
    for _ in range(60):
        extent = model.node("Mul", [model.node("Add", [extent, batch]), model.node("Sub", [extent, batch])])
    extent = model.node("Add", [model.node("Mul", [extent, model.ints(0)]), model.ints(4)])
    model.output(model.node("Expand", [model.input([1], "one"), extent], name="node"))


CASES: Final[tuple[Case, ...]] = (
    case("a-dynamic-batch-without-a-value", _input("batch", 3, 8, 8), accept(), "a default range"),
    case("a-dynamic-batch-with-a-value", _input("batch", 3, 8, 8), accept(), "legal", options=_BATCH),
    case("an-axis-without-name-or-value", _input(None, 3, 8, 8), accept(), "a default range, no name"),
    case(
        "an-option-for-a-dimension-that-does-not-exist",
        _input(1, 3, 8, 8),
        reject("unknown_dim", "batch"),
        "a wrong name",
        options=_BATCH,
    ),
    case(
        "an-option-almost-named-like-the-dimension",
        _input("batch ", 3, 8, 8),
        reject("unknown_dim dynamic_dim", "batch"),
        "a space too many",
        options=_BATCH,
    ),
    case(
        "an-option-of-0",
        _input("batch", 3, 8, 8),
        accept(),
        "an extent of 0: results without elements",
        options={"dims": {"batch": 0}},
    ),
    case(
        "an-option-of-a-negative-extent",
        _input("batch", 3, 8, 8),
        reject("invalid_option invalid_shape"),
        "an extent below 0",
        options={"dims": {"batch": -3}},
    ),
    case(
        "an-option-of-text",
        _input("batch", 3, 8, 8),
        reject("invalid_option"),
        "an extent of letters",
        options={"dims": {"batch": "many"}},
    ),
    case(
        "an-option-of-a-huge-extent",
        _input("batch", 3, 2**20, 2**20),
        reject("tensor_too_large"),
        "2^71 elements by option",
        options={"dims": {"batch": 2**31 - 1}},
    ),
    case(
        "an-option-beyond-64-bits",
        _input("batch", 3, 8, 8),
        reject("invalid_option"),
        "10^30",
        options={"dims": {"batch": 10**30}},
    ),
    case(
        "an-option-of-a-strange-name",
        _input(1, 3, 8, 8),
        reject("unknown_dim"),
        "escape codes in an option",
        options={"dims": {"\x1b[31m\n": 2}},
    ),
    case(
        "ten-thousand-options",
        _input(1, 3, 8, 8),
        reject("unknown_dim"),
        "names without end",
        options={"dims": {f"d{index}": 2 for index in range(10_000)}},
    ),
    case("an-input-without-a-shape", edited(_no_shape), accept("conv"), "no rank: who reads it is the host's"),
    case("an-input-of-a-negative-extent", _input(1, 3, -8, 8), reject("invalid_shape dynamic_dim", "x"), "-8 elements"),
    case(
        "an-input-of-the-smallest-extent", _input(1, 3, -(2**63), 8), reject("invalid_shape dynamic_dim", "x"), "-2^63"
    ),
    case("an-input-of-extent-0", _input(1, 3, 0, 8), either("invalid_shape dynamic_dim"), "no elements"),
    case(
        "an-input-of-extents-whose-product-wraps",
        _input(2**32, 2**32, 1, 1),
        reject("tensor_too_large invalid_shape"),
        "2^64 is 0 in 64 bits",
    ),
    case(
        "two-names-for-equal-extents",
        _two_inputs("batch", "other"),
        accept(),
        "legal: extents agree",
        options={"dims": {"batch": 3, "other": 3}},
    ),
    case(
        "two-names-for-extents-that-differ",
        _two_inputs("batch", "other"),
        reject("invalid_shape invalid_model", "add"),
        "3 against 4",
        options={"dims": {"batch": 3, "other": 4}},
    ),
    case("one-name-twice", _two_inputs("batch", "batch"), accept(), "legal", options={"dims": {"batch": 3}}),
    case("a-target-computed-from-the-batch", written(_computed), accept(), "legal", options=_BATCH),
    case(
        "an-extent-negative-for-the-batch",
        written(_difference),
        reject("invalid_shape invalid_model", "node"),
        "2 - 5",
        options=_BATCH,
    ),
    case(
        "an-extent-of-the-16th-power",
        written(_squared),
        # 30000^16 wraps to 0 in the 64-bit arithmetic of the model
        either("tensor_too_large invalid_model invalid_shape"),
        "30000^16",
        options={"dims": {"batch": 30_000}},
    ),
    case(
        "an-extent-of-200-divisions",
        written(_nonlinear),
        either("invalid_shape tensor_too_large expansion_too_large"),
        "a long expression",
        options=_BATCH,
    ),
    case(
        "an-expression-that-doubles-60-times",
        written(_doubled_expression),
        either("invalid_shape tensor_too_large expansion_too_large"),
        "2^60 terms if written out",
        options=_BATCH,
    ),
    case(
        "a-dimension-named-by-a-number",
        _input("2", 3, 8, 8),
        accept(),
        "a name that looks like an extent",
    ),
    case(
        "a-dimension-named-by-an-expression",
        _input("batch*2", 3, 8, 8),
        reject("unknown_dim dynamic_dim", "batch"),
        "a name that looks computed",
        options=_BATCH,
    ),
)
