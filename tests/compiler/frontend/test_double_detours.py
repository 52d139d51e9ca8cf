"""Floats that are read in double precision only to be asked about, or to be made floats again (IMPORT-6)."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph


@pytest.mark.parametrize(
    ("kind", "attributes", "dtype"),
    [
        ("IsInf", {"detect_negative": 0}, TensorProto.BOOL),
        ("IsNaN", {}, TensorProto.BOOL),
        ("Cast", {"to": TensorProto.FLOAT}, TensorProto.FLOAT),
        ("Cast", {"to": TensorProto.INT32}, TensorProto.INT32),
    ],
)
@pytest.mark.parametrize("given", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_a_float_that_was_cast_to_double_is_read_itself(
    kind: str, attributes: dict[str, Any], dtype: int, given: int
) -> None:
    model = Model(opset=20)
    x = model.node("Log", [model.input([2, 3], "x", given)])
    double = model.node("Cast", [x], to=TensorProto.DOUBLE)
    model.output(model.node(kind, [double], **attributes), dtype)
    assert not import_graph(model.data()).host
    values = compile_model(model.data(), builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


def test_a_half_that_an_operator_did_not_take_yet_is_asked_about_in_double() -> None:
    model = Model(opset=13)
    double = model.node("Cast", [model.input([2, 3], "x", TensorProto.FLOAT16)], to=TensorProto.DOUBLE)
    model.output(model.node("IsInf", [double]), TensorProto.BOOL)
    (_, asked) = import_graph(model.data()).host.values()
    assert asked.inputs == (double,)


def test_what_is_computed_in_double_stays_on_the_host() -> None:
    model = Model()
    double = model.node("Cast", [model.input([2, 3], "x")], to=TensorProto.DOUBLE)
    root = model.node("Sqrt", [double])
    model.output(model.node("IsNaN", [root]), TensorProto.BOOL)
    assert sorted(host.op_type for host in import_graph(model.data()).host.values()) == ["Cast", "IsNaN", "Sqrt"]
