"""Rewrites for ONNX Runtime: no legal model ends its process, and the values are those of the model (IMPORT-7)."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from compiler.compile import compile_model
from compiler.frontend.runnable import without_faults
from compiler.frontend.runtimes import run_model
from compiler.profile import builtin_profile
from tests.compiler.planning import BY_RULES
from tests.models import Model

TYPES = (np.int8, np.int16, np.int32, np.int64, np.float32)


def division(kind: str, dtype: Any, divisor: list[int]) -> onnx.ModelProto:
    """x divided by a constant."""
    code = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    values = helper.make_tensor("d", code, [len(divisor)] if len(divisor) > 1 else [], divisor)
    sides = [helper.make_tensor_value_info(name, code, [4]) for name in "xy"]
    attributes: dict[str, Any] = {"fmod": 1} if kind == "Mod" else {}
    node = helper.make_node(kind, ["x", "d"], ["y"], **attributes)
    graph = helper.make_graph([node], "division", sides[:1], sides[1:], initializer=[values])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", ["Div", "Mod"])
def test_the_smallest_integer_is_divided_by_minus_one(kind: str, dtype: Any) -> None:
    least = np.iinfo(dtype).min if np.dtype(dtype).kind == "i" else -7
    x = np.array([least, 7, -9, 100], dtype=dtype)
    run = run_model(division(kind, dtype, [-1, 2, -4, -3]), {"x": x})
    assert run.values is not None
    assert run.judge.startswith("ONNX Runtime") or (kind, dtype) == ("Mod", np.int16)
    d = np.array([-1, 2, -4, -3], dtype=dtype)
    if kind == "Mod":
        expected = np.fmod(x, d)
    elif dtype is np.float32:
        expected = x / d
    else:
        expected = np.array([least, 3, 2, -33], dtype=dtype)
    np.testing.assert_array_equal(run.values[0], expected)


def test_a_scalar_divisor_keeps_the_rank_of_its_quotient() -> None:
    run = run_model(division("Div", np.int64, [-1]), {"x": np.array([-(2**63), 1, 2, 3])})
    assert run.values is not None
    assert run.values[0].tolist() == [-(2**63), -1, -2, -3]


def test_a_division_in_a_branch_is_guarded() -> None:
    branches = [
        helper.make_graph(
            [helper.make_node("Div", ["x", "d"], [name])],
            name,
            [],
            [helper.make_tensor_value_info(name, TensorProto.INT64, None)],
        )
        for name in ("then", "else")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    sides = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in "xdy"]
    inputs = [helper.make_tensor_value_info("c", TensorProto.BOOL, []), *sides[:2]]
    model = helper.make_model(
        helper.make_graph([node], "branches", inputs, sides[2:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    run = run_model(model, {"c": np.array(True), "x": np.array([-(2**63)]), "d": np.array([-1])})
    assert run.values is not None
    assert run.values[0].tolist() == [-(2**63)]


def test_floats_are_not_rewritten() -> None:
    model = division("Div", np.float32, [-1, 2, -4, -3])
    assert without_faults(model) is model


def test_a_model_that_divides_the_smallest_integer_is_compiled_and_checked() -> None:
    model = division("Div", np.int64, [-1])
    model.graph.node[0].input[0] = "least"
    model.graph.initializer.append(helper.make_tensor("least", TensorProto.INT64, [4], [-(2**63), 5, 6, 7]))
    del model.graph.input[:]
    compilation = compile_model(model.SerializeToString(), builtin_profile("cluster4x4"), BY_RULES)
    assert compilation.report.values.checked


@pytest.mark.parametrize("zero", [None, 3, -128])
@pytest.mark.parametrize("kind", ["MatMulInteger", "ConvInteger"])
def test_sums_of_products_of_mixed_signs_are_exact_on_every_processor(kind: str, zero: int | None) -> None:
    """Pairs of 255 × 127 exceed 16 bits; the smallest weight less the smallest zero point is 0."""
    x: Any = np.full((1, 8), 255, dtype=np.uint8)
    w: Any = np.array([[127, -128, 127]] * 8, dtype=np.int8)
    if kind == "ConvInteger":
        x, w = x.reshape(1, 8, 1, 1), np.ascontiguousarray(w.T).reshape(3, 8, 1, 1)
    weights = [onnx.numpy_helper.from_array(w, "w")]
    inputs = ["x", "w"]
    if zero is not None:
        weights += [onnx.numpy_helper.from_array(np.array(5, dtype=np.uint8), "x_zero")]
        weights += [onnx.numpy_helper.from_array(np.array(zero, dtype=np.int8), "w_zero")]
        inputs += ["x_zero", "w_zero"]
    node = helper.make_node(kind, inputs, ["y"])
    sides = [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.INT32, None)]
    graph = helper.make_graph([node], "product", sides, results, initializer=weights)
    run = run_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), {"x": x})
    assert run.values is not None, run.reason
    moved = 8 * (255 - (0 if zero is None else 5)) * (np.array([127, -128, 127]) - (zero or 0))
    assert run.values[0].ravel().tolist() == moved.tolist()


@pytest.mark.parametrize("zero", [None, 3])
@pytest.mark.parametrize("kind", ["DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QAttention"])
def test_fused_products_of_mixed_signs_are_exact_on_every_processor(kind: str, zero: int | None) -> None:
    """Inputs of 0 to 255 in steps of 1 are quantised to themselves; 255 is the only value of most positions."""
    x: Any = np.array([[0.0, *[255.0] * 7]], dtype=np.float32)
    w: Any = np.array([[127, -128, 127]] * 8, dtype=np.int8)
    weights = {"w": w, "one": np.array(1, dtype=np.float32)}
    if zero is not None:
        weights["w_zero"] = np.array(zero, dtype=np.int8)
    its = "" if zero is None else "w_zero"
    inputs, given = ["x", "w", "one", its], TensorProto.FLOAT
    if kind == "MatMulIntegerToFloat":
        x, inputs, given = x.astype(np.uint8), ["x", "w", "one", "one", "", its], TensorProto.UINT8
    elif kind == "QAttention":  # of one token, whose value is all that it attends to
        x, inputs, given = x.astype(np.uint8)[None], ["x", "w", "bias", "one", "one", "", "", its], TensorProto.UINT8
        weights |= {"w": np.concatenate([w, w, w], axis=1), "bias": np.zeros(9, np.float32)}
    attributes: dict[str, Any] = {"num_heads": 1} if kind == "QAttention" else {}
    node = helper.make_node(kind, inputs, ["y"], domain="com.microsoft", **attributes)
    sides = [helper.make_tensor_value_info("x", given, x.shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph([node], "product", sides, results, initializer=constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    run = run_model(helper.make_model(graph, opset_imports=opsets, ir_version=8), {"x": x})
    assert run.values is not None, run.reason
    expected = 7 * 255 * (np.array([127, -128, 127]) - (zero or 0))
    assert run.values[0].ravel().tolist() == expected.tolist()


def test_weights_of_four_bits_are_judged_by_floats_where_data_may_be_rounded_to_eight() -> None:
    """accuracy_level 4 permits ONNX Runtime to compute with data of 8 bits, which is off by per cents."""
    model = Model()
    x = model.input([2, 64])
    generator = np.random.default_rng(0)
    packed = model.constant(generator.integers(0, 256, (48, 2, 16), dtype=np.uint8))
    scales = model.constant(generator.random(96, dtype=np.float32))
    attributes: dict[str, Any] = {"K": 64, "N": 48, "bits": 4, "block_size": 32, "domain": "com.microsoft"}
    for level in (4, 0):
        model.output(model.node("MatMulNBits", [x, packed, scales], accuracy_level=level, **attributes))
    run = run_model(model.proto(), {x: generator.standard_normal((2, 64), dtype=np.float32)})
    assert run.values is not None, run.reason
    np.testing.assert_array_equal(*run.values)


def test_a_constant_of_four_bits_reaches_an_operator_that_only_onnx_runtime_knows() -> None:
    """ONNX Runtime takes no array of 4 bits from numpy."""
    node = helper.make_node(
        "GatherBlockQuantized", ["table", "rows", "scales"], ["y"], domain="com.microsoft", block_size=16
    )
    inputs = [
        helper.make_tensor_value_info("table", TensorProto.UINT4, [3, 16]),
        helper.make_tensor_value_info("rows", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3, 1]),
    ]
    graph = helper.make_graph([node], "rows", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    feeds: dict[str, Any] = {
        "table": (np.arange(48).reshape(3, 16) % 16).astype(ml_dtypes.uint4),
        "rows": np.array([1]),
        "scales": np.full((3, 1), 0.5, dtype=np.float32),
    }
    run = run_model(helper.make_model(graph, opset_imports=opsets, ir_version=10), feeds)
    assert run.values is not None, run.reason
    np.testing.assert_array_equal(run.values[0], [np.arange(16) / 2])
