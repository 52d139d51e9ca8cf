"""What the operator sets say of a node, and the errors for nodes that say otherwise (IMPORT-4)."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
from onnx import helper

from compiler.errors import ModelError
from compiler.frontend.constant_values import onnx_type
from compiler.frontend.signature import Signature, Signatures, check_node, check_types, unknown_op
from compiler.ir.graph import Tensor
from compiler.ops.base import default_axes


def signature(op_type: str, version: int = 17, domain: str = "") -> Signature:
    """An operator's signature."""
    found = Signatures().find(op_type, domain, version)
    assert found is not None
    return found


def tensor(dtype: str, name: str = "t") -> Tensor:
    """A vector."""
    return Tensor(name=name, shape=(2,), dtype=dtype, axes=default_axes(1))


def refused(op_type: str, *tensors: Tensor | None) -> ModelError:
    """The error that the inputs' types give."""
    with pytest.raises(ModelError) as caught:
        check_types(signature(op_type), "it", tensors)
    error = caught.value
    assert (error.code, error.node, error.op_type) == ("invalid_type", "it", op_type)
    return error


# Finding


def test_an_operator_is_found_as_of_its_opset() -> None:
    """Squeeze takes its axes as an attribute until 12, as an input from 13 on."""
    old, new = signature("Squeeze", 12), signature("Squeeze", 13)
    assert (old.since, new.since) == (11, 13)
    assert (old.input_count, new.input_count) == ((1, 1), (1, 2))
    assert ("axes" in old.attributes, "axes" in new.attributes) == (True, False)


@pytest.mark.parametrize(("op_type", "version"), [("Gelu", 19), ("Nonsense", 17), ("relu", 17), ("", 17)])
def test_an_operator_that_the_opset_does_not_have_is_not_found(op_type: str, version: int) -> None:
    assert Signatures().find(op_type, "", version) is None


def test_a_withdrawn_operator_is_found_and_marked() -> None:
    assert signature("Upsample", 10).deprecated
    assert not signature("Upsample", 9).deprecated


def test_an_operator_that_came_back_under_its_name_is_not_withdrawn() -> None:
    """ONNX Runtime runs a group norm of opset 18, with a scale for each group."""
    assert not signature("GroupNormalization", 18).deprecated


def test_each_signature_is_made_once() -> None:
    known = Signatures()
    assert known.find("Conv", "", 17) is known.find("Conv", "", 17)


def test_a_variadic_input_stands_for_all_that_follow() -> None:
    concat = signature("Concat")
    assert concat.variadic
    assert concat.formal(7) == concat.formal(0) is not None
    conv = signature("Conv")
    assert conv.formal(3) is None
    assert [conv.formal(index).optional for index in range(3)] == [False, False, True]  # type: ignore[union-attr]


# Nodes


def test_a_node_that_keeps_to_its_operator_is_accepted() -> None:
    node = helper.make_node("Conv", ["x", "w", ""], ["y"], kernel_shape=[3, 3])
    found = signature("Conv")
    assert check_node(node, "it", found, 17) is found


@pytest.mark.parametrize(
    ("node", "text", "actual", "limit"),
    [
        (helper.make_node("Relu", [], ["y"]), "number of inputs", 0, "1 to 1"),
        (helper.make_node("Relu", ["x"], []), "number of outputs", 0, "1 to 1"),
        (helper.make_node("Relu", ["x"], [""]), "number of outputs", 1, "1 to 1"),
        (helper.make_node("Relu", ["x"], ["y"], slope=1.0), "'slope' is not known", "slope", "no attributes"),
        (helper.make_node("Elu", ["x"], ["y"], slope=1.0), "'slope' is not known", "slope", "alpha"),
        (helper.make_node("Elu", ["x"], ["y"], alpha=1), "'alpha' has a wrong type", "INT", "FLOAT"),
        (helper.make_node("Concat", ["x"], ["y"]), "'axis' is missing", "absent", "attribute axis"),
    ],
)
def test_a_node_that_does_not_says_what_where_and_what_would_be(
    node: onnx.NodeProto, text: str, actual: object, limit: str
) -> None:
    with pytest.raises(ModelError) as caught:
        check_node(node, "it", signature(node.op_type), 17)
    error = caught.value
    assert (error.code, error.node, error.op_type) == ("invalid_model", "it", node.op_type)
    assert text in error.message
    assert (error.actual, error.limit) == (actual, limit)


def test_a_reference_to_a_functions_attribute_has_whatever_type_that_has() -> None:
    node = helper.make_node("Elu", ["x"], ["y"])
    node.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope"))
    check_node(node, "it", signature("Elu"), 17)


@pytest.mark.parametrize(
    ("node", "version", "code", "limit", "hint"),
    [
        # there since 23, changed in 24: the first one counts
        (helper.make_node("Attention", ["x"], ["y"]), 17, "unknown_op", "opset 23 or later", None),
        (helper.make_node("Gelu", ["x"], ["y"]), 17, "unknown_op", "opset 20 or later", "It exists from opset 20 on"),
        (
            helper.make_node("Foo", ["x"], ["y"]),
            17,
            "unknown_op",
            "an op of the opset",
            "Check the op's name and domain",
        ),
        (
            helper.make_node("Upsample", ["x"], ["y"]),
            17,
            "unknown_op",
            "an op of the opset",
            "It was withdrawn in opset 10; export with its successor",
        ),
        (helper.make_node("Foo", ["x"], ["y"], domain="ai.onnx.ml"), 3, "unknown_op", "an op of the opset", None),
        (helper.make_node("Gelu", ["x"], ["y"], domain="ai.onnx"), 17, "unknown_op", "opset 20 or later", None),
    ],
)
def test_an_operator_that_does_not_exist_is_answered_with_where_it_does(
    node: onnx.NodeProto, version: int, code: str, limit: str | None, hint: str | None
) -> None:
    domain = "" if node.domain == "ai.onnx" else node.domain
    error = unknown_op(node, "it", version, Signatures().find(node.op_type, domain, version))
    assert (error.code, error.node, error.op_type) == (code, "it", node.op_type)
    assert limit is None or error.limit == limit
    assert hint is None or error.hint == hint
    assert error.hint


def test_names_of_a_model_reach_an_error_in_bounds_and_printable() -> None:
    """API-7."""
    node = helper.make_node("\x1b[31m" * 1000, ["x"], ["y"], domain="a\nb" * 1000)
    for domain in (node.domain, ""):
        node.domain = domain
        error = unknown_op(node, "it", 17, None)
        assert error.message.isprintable()
        assert len(error.message) < 400


# Types


@pytest.mark.parametrize(
    ("op_type", "dtypes"),
    [
        ("Add", ["float32", "float32"]),
        ("Add", ["int64", "int64"]),
        ("Where", ["bool", "int8", "int8"]),
        ("Resize", ["float32", None, "float32"]),
        ("Concat", ["float32"] * 5),
        ("Loop", ["int64", "bool", "float32", "string", "int8"]),
        ("Gather", ["string", "int32"]),
        ("SequenceAt", ["seq(tensor(float))", "int64"]),
    ],
)
def test_types_that_the_operator_allows_are_accepted(op_type: str, dtypes: list[str | None]) -> None:
    check_types(signature(op_type), "it", [None if dtype is None else tensor(dtype) for dtype in dtypes])


@pytest.mark.parametrize(
    ("op_type", "dtypes", "actual"),
    [
        ("Add", ["float32", "float64"], "tensor(float) and tensor(double)"),
        ("Add", ["bool", "bool"], "tensor(bool)"),
        ("Where", ["float32", "int8", "int8"], "tensor(float)"),
        ("Where", ["bool", "int8", "uint8"], "tensor(int8) and tensor(uint8)"),
        ("Concat", ["float32", "float32", "int8"], "tensor(float) and tensor(int8)"),
        ("Gather", ["float32", "float32"], "tensor(float)"),
        ("Relu", ["string"], "tensor(string)"),
        ("Relu", ["seq(tensor(float))"], "seq(tensor(float))"),
        ("SequenceAt", ["float32", "int64"], "tensor(float)"),
    ],
)
def test_types_that_it_does_not_allow_are_refused(op_type: str, dtypes: list[str], actual: str) -> None:
    """IMPORT-4."""
    error = refused(op_type, *map(tensor, dtypes))
    assert error.actual == actual
    assert error.limit


def test_a_type_that_nobody_knows_is_not_judged() -> None:
    """Results of host nodes whose type only the run will tell."""
    check_types(signature("Add"), "it", [tensor(""), tensor("float32")])


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("float32", "tensor(float)"), ("float64", "tensor(double)"), ("int8", "tensor(int8)"), ("seq(x)", "seq(x)")],
)
def test_types_are_written_as_the_operator_sets_write_them(dtype: str, expected: Any) -> None:
    assert onnx_type(dtype) == expected
