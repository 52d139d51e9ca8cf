"""Products of halves in the float32 array of a chip that has none for them (IMPORT-7)."""

from __future__ import annotations

import pytest
from onnx import TensorProto

from compiler.compile import compile_model
from compiler.partition.wide_products import WidenProducts
from compiler.profile import builtin_profile
from compiler.profile.load import profile_from_values
from compiler.profile.schema import Profile
from tests.compiler.planning import BY_RULES
from tests.compiler.shapes.dynamic import misses
from tests.models import Model, import_graph
from tests.profiles import profile_values

EDGE = builtin_profile("edge4")


def network(dtype: int, rows: int | str = 6) -> Model:
    """A product with constant factors and a bias, and one of two activations, of this element type."""
    model = Model(opset=22)
    x = model.input([rows, 8], "x", dtype=dtype)
    weight, bias = (model.node("Cast", [model.weight(*shape)], to=dtype) for shape in ((8, 5), (5,)))
    hidden = model.node("Relu", [model.node("Gemm", [x, weight, bias], name="layer")])
    turned = model.node("Transpose", [hidden], perm=[1, 0])
    model.output(model.node("MatMul", [hidden, turned], name="square"), dtype)
    return model


def test_products_of_bfloat16_run_in_the_float32_array() -> None:
    found = compile_model(network(TensorProto.BFLOAT16).data(), EDGE, BY_RULES)
    assert not [node for segment in found.plan.segments for node in segment.host]
    assert found.plan.totals.macs == 6 * 8 * 5 + 6 * 5 * 6
    assert found.report.values.checked
    assert all(output.holds for output in found.report.values.outputs)


def without_halves() -> Profile:
    """A chip whose arrays multiply float32 and int8 only."""
    values = profile_values("edge4")
    for table in ("arrays", "pj_per_mac"):
        del values["matrix"][table]["float16"]
    return profile_from_values(values)


def test_products_of_float16_do_where_there_is_no_array_for_them() -> None:
    found = compile_model(network(TensorProto.FLOAT16).data(), without_halves(), BY_RULES)
    assert not [node for segment in found.plan.segments for node in segment.host]
    assert str(found.report.values.judge).startswith("ONNX Runtime")
    assert all(output.holds for output in found.report.values.outputs)


def test_constant_factors_are_converted_at_compile_time_and_names_of_results_stay() -> None:
    graph = import_graph(network(TensorProto.BFLOAT16).data())
    widened = WidenProducts(profile=EDGE).run(graph)
    assert [op.kind for op in widened.ops] == [
        *("Cast", "Gemm", "Cast", "Relu", "Transpose"),
        *("Cast", "Cast", "MatMul", "Cast"),
    ]
    assert {op.output for op in graph.ops} <= {op.output for op in widened.ops}
    assert (widened.inputs, widened.outputs) == (graph.inputs, graph.outputs)
    gemm = widened.ops[1]
    assert {widened.tensors[name].dtype for name in (*gemm.inputs, gemm.output)} == {"float32"}
    assert all(widened.tensors[name].constant is not None for name in gemm.inputs[1:])


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.FLOAT16])
def test_products_that_have_an_array_stay(dtype: int) -> None:
    graph = import_graph(network(dtype).data())
    assert WidenProducts(profile=EDGE).run(graph) is graph


def test_extents_of_such_products_may_vary() -> None:
    assert not misses(network(TensorProto.FLOAT16, "n"), {"n": (1, 6)}, count=2, profile=without_halves())
