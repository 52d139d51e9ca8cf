"""Fused operators of ONNX Runtime's optimiser: written out, with the values of ONNX Runtime (IMPORT-8)."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import helper

from compiler.compile import compile_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model, import_graph

# Operands behind the data: "x" another input of its shape, "v" a vector of channels, "m" and "t" a matrix, "" none.
CASES: list[tuple[str, tuple[str, ...], dict[str, Any]]] = [
    ("Gelu", (), {}),
    ("BiasGelu", ("v",), {}),
    ("FastGelu", ("v",), {}),
    ("FastGelu", (), {}),
    ("QuickGelu", (), {"alpha": 1.5}),
    ("FusedMatMul", ("t",), {"transB": 1, "alpha": 0.25}),
    ("FusedMatMul", ("m",), {}),
    ("SkipLayerNormalization", ("x", "v", "v", "v"), {"epsilon": 1e-5}),
    ("SkipLayerNormalization", ("x", "v"), {}),
    ("SkipSimplifiedLayerNormalization", ("x", "v", "v"), {"epsilon": 1e-6}),
]


def fused(op_type: str, operands: tuple[str, ...], attributes: dict[str, Any], *, outputs: int = 1) -> bytes:
    """A model of the operator alone; with 4 outputs the first and the last one, the sum that is normalised."""
    model = Model(opset=14)
    kinds = {"v": (16,), "m": (16, 12), "t": (12, 16)}
    shape: list[int | str | None] = ["b", 6, 16]
    others = [model.input(shape, "skip") if k == "x" else model.weight(*kinds[k]) if k else "" for k in operands]
    inputs = [model.input(shape, "x"), *others]
    names = ["y", "", "", "sum"][:outputs]
    model.nodes.append(helper.make_node(op_type, inputs, names, domain="com.microsoft", name="fused", **attributes))
    for name in filter(None, names):
        model.output(name)
    proto = model.proto()
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(proto.SerializeToString())


def agrees(data: bytes) -> None:
    """Nothing is left to the host, and values are ONNX Runtime's."""
    assert not import_graph(data, {"b": 2}).host
    values = compile_model(data, builtin_profile("edge4"), BY_RULES).report.values
    assert str(values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in values.outputs)


@pytest.mark.parametrize(("op_type", "operands", "attributes"), CASES)
def test_a_fused_operator_is_what_it_fuses(op_type: str, operands: tuple[str, ...], attributes: dict[str, Any]) -> None:
    agrees(fused(op_type, operands, attributes))


@pytest.mark.parametrize(
    ("op_type", "operands"),
    [("SkipLayerNormalization", ("x", "v", "", "v")), ("SkipSimplifiedLayerNormalization", ("x", "v"))],
)
def test_the_sum_that_is_normalised_is_an_output_too(op_type: str, operands: tuple[str, ...]) -> None:
    agrees(fused(op_type, operands, {}, outputs=4))


def test_what_the_operators_do_not_say_stays_on_the_host() -> None:
    graph = import_graph(fused("FusedMatMul", ("m",), {"transBatchB": 1}), {"b": 2})
    assert [host.op_type for host in graph.host.values()] == ["FusedMatMul"]


def test_a_graph_of_gelu_with_a_bias_is_recognised_as_one_op() -> None:
    plan = compile_model(fused("BiasGelu", ("v",), {}), builtin_profile("edge4"), BY_RULES).plan
    kinds = [op.kind for segment in plan.segments for group in segment.groups for op in group.ops]
    assert kinds == ["Add", "Gelu"]
