"""Versions, domains and op types that are not there, not there yet, or not there any more (IMPORT-1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import onnx
from onnx import helper

from tests.corpus.build import edited, entry, raw_model, raw_node, raw_tensor_type, small_network, written
from tests.corpus.case import Build, Case, accept, case, either, reject
from tests.models import Model

_NEWEST: Final = onnx.defs.onnx_opset_version()


def _opset(version: int, domain: str = "") -> Build:
    def change(proto: onnx.ModelProto) -> None:
        del proto.opset_import[:]
        proto.opset_import.append(helper.make_opsetid(domain, version))

    return edited(change)


def _ir_version(version: int) -> Build:
    def change(proto: onnx.ModelProto) -> None:
        proto.ir_version = version

    return edited(change)


def _imports(*pairs: tuple[str, int]) -> Build:
    def change(proto: onnx.ModelProto) -> None:
        proto.opset_import.extend(helper.make_opsetid(domain, version) for domain, version in pairs)

    return edited(change)


def _node(op_type: str, *, opset: int = 17, domain: str = "", imported: int | None = None, **attributes: Any) -> Build:
    """One node `node` on an input of 1x4x4x4; its domain imported with a version if one is given."""

    def fill(model: Model) -> None:
        model.output(model.node(op_type, [model.input([1, 4, 4, 4], "x")], name="node", domain=domain, **attributes))

    def change(proto: onnx.ModelProto) -> None:
        if imported is not None:
            proto.opset_import.append(helper.make_opsetid(domain, imported))

    return edited(change, fill, opset=opset)


def _first_opset(fill: Callable[[Model], object]) -> Build:
    return written(fill, opset=1, ir_version=3)


def _old_network(model: Model) -> None:
    x = model.input([1, 3, 8, 8], "x")
    c = model.node("Conv", [x, model.weight(4, 3, 3, 3)], name="conv", kernel_shape=[3, 3], pads=[1] * 4)
    model.output(model.node("Relu", [c], name="relu", consumed_inputs=[0]))


def _old_upsample(model: Model) -> None:
    model.output(model.node("Upsample", [model.input([1, 1, 4, 4])], name="node", height_scale=2.0, width_scale=2.0))


def _old_reshape(model: Model) -> None:
    """Opset 1 to 4: the target is an attribute."""
    model.output(model.node("Reshape", [model.input([4, 4])], name="node", shape=[16]))


def _old_pad(model: Model) -> None:
    model.output(model.node("Pad", [model.input([4])], name="node", paddings=[2**40, 2**40]))


def _without_ir_version() -> bytes:
    return raw_model(
        raw_node("Relu", ["x"], ["y"]), inputs=[raw_tensor_type("x", [4])], outputs=[raw_tensor_type("y", [4])]
    )[2:]


def _float_ir_version() -> bytes:
    """The version's field with the bytes of a string."""
    return entry(1, b"eight") + _without_ir_version()


def _renamed_to_alias(proto: onnx.ModelProto) -> None:
    for node in proto.graph.node:
        node.domain = "ai.onnx"


_UNKNOWN: Final = reject("unknown_op unsupported_opset", "node")

CASES: Final[tuple[Case, ...]] = (
    case("an-opset-of-the-future", _opset(99), reject("unsupported_opset", "99"), "the library's checker accepts it"),
    case("the-opset-after-the-newest", _opset(_NEWEST + 1), reject("unsupported_opset", str(_NEWEST)), "one too new"),
    case("opset-0", _opset(0), reject("unsupported_opset"), "below the first"),
    case("opset--1", _opset(-1), reject("unsupported_opset"), "a negative version"),
    case("opset-2-to-the-62", _opset(2**62), reject("unsupported_opset"), "an absurd version"),
    case("the-smallest-opset-there-is", _opset(-(2**63)), reject("unsupported_opset"), "the smallest integer"),
    case("the-newest-opset", _opset(_NEWEST), accept(), "legal"),
    case(
        "opset-1",
        _first_opset(_old_network),
        either("unsupported_opset unsupported_op invalid_model"),
        "the first of all",
    ),
    case(
        "opset-1-upsampling",
        _first_opset(_old_upsample),
        either("unknown_op unsupported_opset invalid_model"),
        "an early op",
    ),
    case(
        "opset-1-reshaping", _first_opset(_old_reshape), either("unsupported_opset invalid_model"), "an attribute then"
    ),
    case(
        "opset-1-padding-bomb",
        _first_opset(_old_pad),
        either("tensor_too_large expansion_too_large unsupported_opset invalid_model invalid_shape"),
        "an old form of a bomb",
    ),
    case("no-opset", edited(lambda p: p.ClearField("opset_import")), reject("missing_opset"), "no version at all"),
    case("an-opset-of-another-domain-only", _opset(1, "com.example"), accept(), "none for ONNX"),
    case("an-opset-imported-twice", _imports(("", 13)), accept(), "which one holds: in ONNX Runtime the last"),
    case("an-opset-imported-twice-alike", _imports(("", 17)), accept(), "the same one twice"),
    case("an-opset-imported-by-its-alias-too", _imports(("ai.onnx", 13)), accept(), "which one holds: the last"),
    case(
        "a-foreign-opset-imported-twice",
        _imports(("com.example", 1), ("com.example", 2)),
        accept(),
        "nobody uses either",
    ),
    case(
        "a-hundred-thousand-opsets",
        lambda: _without_ir_version() + entry(1, 8) + entry(8, entry(1, "d") + entry(2, 1)) * 100_000,
        either("model_too_large too_many_values invalid_model unsupported_ir_version"),
        "one domain over and over",
    ),
    case("an-unknown-domain-nobody-uses", _imports(("com.example", 1)), accept(), "legal"),
    case(
        "a-machine-learning-opset-of-the-future",
        _imports(("ai.onnx.ml", 99)),
        either("unsupported_opset"),
        "nobody uses it",
    ),
    case(
        "an-ir-version-of-the-future", _ir_version(99), reject("unsupported_ir_version", "99"), "a format of the future"
    ),
    case("ir-version-0", _ir_version(0), accept(), "below the first"),
    case("ir-version--1", _ir_version(-1), accept(), "a negative version"),
    case("ir-version-2-to-the-62", _ir_version(2**62), reject("unsupported_ir_version"), "an absurd version"),
    case("no-ir-version", _without_ir_version, reject("unsupported_ir_version"), "no version at all"),
    case(
        "an-ir-version-of-letters",
        _float_ir_version,
        reject("unsupported_ir_version not_onnx"),
        "a field of another type",
    ),
    case(
        "an-unknown-domain",
        _node("Relu", domain="com.example", imported=1),
        accept("node"),
        "someone's own op",
    ),
    case(
        "a-domain-that-is-not-imported",
        _node("Relu", domain="com.example"),
        accept("node"),
        "an op from nowhere",
    ),
    case(
        "an-op-of-a-runtime",
        _node("FusedConv", domain="com.microsoft", imported=1),
        accept("node"),
        "a model optimised for one runtime",
    ),
    case("the-default-domain-by-its-alias", edited(_renamed_to_alias, small_network), accept(), "legal"),
    case(
        "a-domain-with-a-space",
        _node("Relu", domain=" "),
        accept("node"),
        "almost the default domain",
    ),
    case(
        "a-domain-in-capitals",
        _node("Relu", domain="AI.ONNX"),
        accept("node"),
        "almost the default domain",
    ),
    case(
        "an-op-of-machine-learning",
        _node("Scaler", domain="ai.onnx.ml", imported=3, offset=[0.0], scale=[1.0]),
        either("unknown_domain"),
        "a known domain, nothing for a chip",
    ),
    case(
        "an-op-of-training",
        _node("Gradient", domain="ai.onnx.preview.training", imported=1, xs=["x"], y="y"),
        either("unknown_domain unknown_op invalid_model"),
        "a known domain, nothing for inference",
    ),
    case("an-unknown-op", _node("Flummox"), reject("unknown_op", "node", "Flummox"), "an op of no version"),
    case("an-op-of-another-letter-case", _node("relu"), reject("unknown_op", "node", "relu"), "almost an op"),
    case("an-op-with-a-space", _node("Relu "), reject("unknown_op", "node"), "almost an op"),
    case("an-op-that-does-not-exist-yet", _node("Gelu"), _UNKNOWN, "Gelu came with opset 20"),
    case(
        "an-op-that-does-not-exist-any-more",
        _node("Upsample", scales=[1.0, 1.0, 2.0, 2.0]),
        _UNKNOWN,
        "gone since opset 10",
    ),
    case(
        "an-op-that-never-left-trial",
        _node("Affine", opset=13, alpha=1.0, beta=0.0),
        _UNKNOWN,
        "an experiment of opset 1",
    ),
    case(
        "an-attribute-of-another-opset",
        _node("Softmax", opset=1, axis=-1),
        either("invalid_model invalid_shape unsupported_op"),
        "negative axes came later",
    ),
    case(
        "an-input-of-another-opset",
        written(lambda m: m.output(m.node("ReduceSum", [m.input([4, 4]), m.ints(1)], name="node")), opset=11),
        reject("invalid_model", "node"),
        "axes became an input in opset 13",
    ),
)
